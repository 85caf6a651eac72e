"""Task scheduler: order of tasks, table and latency log, resuming, stopping, interrupts."""

import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import sys
import textwrap
import threading

import pytest
from matmuls import options, small, tasks_of

import nestsmith as ns
from helpers import PATIENCE
from nestsmith import auto_scheduler, te
from nestsmith.auto_scheduler.relatives import fitted
from nestsmith.auto_scheduler.workload_keys import decode_workload_key, size_factor
from nestsmith.topi.default_schedule import default_state

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))


@auto_scheduler.register_workload
def tune_plus_one():
    a = te.placeholder((4,), name="A")
    return [a, te.compute((4,), lambda i: a[i] + 1.0, name="B")]


def records(log):
    return list(auto_scheduler.RecordReader(str(log)))


# ---- runs ----


def test_round_robin_and_resume(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log.json"
    tasks = tasks_of(32, 16, 8)
    tuner = auto_scheduler.TaskScheduler(tasks, objective_func=sum, strategy="round-robin", callbacks=[])
    tuner.tune(options(6, 1, log), search_policy="sketch.random", search_policy_params=small())
    count = {}
    for inp, res in records(log):
        assert res.error_no == 0
        count[inp.task.workload_key] = count.get(inp.task.workload_key, 0) + 1
    assert count == {t.workload_key: 2 for t in tasks}
    again = auto_scheduler.TaskScheduler(tasks, strategy="round-robin", load_log_file=str(log), callbacks=[])
    again.tune(options(3, 1, log), search_policy="sketch.random", search_policy_params=small())
    assert again.task_cts == [3, 3, 3] and len(records(log)) == 9
    texts = [json.dumps([i.task.workload_key, i.state.steps()]) for i, _ in records(log)]
    assert len(set(texts)) == 9, "a state of the log was measured again"


@pytest.mark.parametrize("how", ["one run", "a log"])
def test_other_sizes_are_where_a_task_begins(tmp_path, how):
    """The best schedule of the same computation in another size is in the first round, whether this run has found it or a log holds
    it."""
    log, (big, little) = tmp_path / "log.json", tasks_of(32, 8)
    runs = [[big, little]] if how == "one run" else [[big], [little]]
    for tasks in runs:
        tuner = auto_scheduler.TaskScheduler(tasks, strategy="round-robin", callbacks=[], start_from=str(log))
        tuner.tune(options(4 * len(tasks), 4, log), search_policy="sketch.random", search_policy_params=small())
    found, _ = auto_scheduler.load_best_record(str(log), big.workload_key)
    start = fitted(little.compute_dag, found.state).steps()
    measured = [i.state.steps() for i, _ in records(log) if i.task.workload_key == little.workload_key]
    assert start in measured and len(measured) == 4


@pytest.mark.parametrize("mode", ["extended", "compatible"])
def test_a_task_begins_with_its_default_schedule(tmp_path, mode):
    """So tuning never ends slower than that; compatible mode measures what its sketches make."""
    log, (task,) = tmp_path / "log.json", tasks_of(32)
    tuner = auto_scheduler.TaskScheduler([task], callbacks=[])
    tuner.tune(options(2, 2, log), search_policy="sketch.random", search_policy_params={**small(), "search_mode": mode})
    first = default_state(task.compute_dag, task.target).steps()
    assert [i.state.steps() == first for i, _ in records(log)].count(True) == (mode == "extended")


def test_a_policy_of_a_user_that_takes_hints(tmp_path):
    """Of the protocol of policies it has what it wants to have: hints, but no search parameters."""
    class Policy(auto_scheduler.SearchPolicy):
        def hint(self, state, first=False):
            pass

        def propose(self, n):
            return [self.search_task.compute_dag.get_init_state()]

    policies, log = [Policy(t, verbose=0) for t in tasks_of(8, 16)], tmp_path / "log.json"
    tuner = auto_scheduler.TaskScheduler([p.search_task for p in policies], strategy="round-robin", callbacks=[])
    tuner.tune(options(2, 1, log), search_policy=policies)
    assert len(records(log)) == 2


def test_sizes_that_differ_by_one_factor():
    conv = [1, 56, 56, 64], [3, 3, 64, 64], [1, 56, 56, 64]
    eight, wider = ([8, 56, 56, 64], [3, 3, 64, 64], [8, 56, 56, 64]), ([1, 56, 56, 32], [3, 3, 32, 64], [1, 56, 56, 64])
    half = ([1, 28, 56, 64], [3, 3, 64, 64], [1, 14, 56, 64])

    def factor(one, other, names=("a" * 32, "b" * 32)):
        return size_factor(*(decode_workload_key(json.dumps([n, *s])) for n, s in zip(names, (one, other))))

    assert factor(eight, conv) == 8 and factor(conv, eight) == 1 / 8 and factor(wider, conv) == 0.5
    assert factor(conv, conv) is None and factor(half, conv) is None and factor(conv, conv[:2]) is None
    assert factor(eight, conv, ("conv", "pool")) is None and factor(eight, conv, ("conv", "conv")) == 8
    assert factor([["float32", 4]], [["float16", 8]]) is None
    of_49 = [49, 56, 56, 64], [3, 3, 64, 64], [49, 56, 56, 64]
    assert (factor(conv, of_49).numerator, factor(conv, of_49).denominator) == (1, 49)  # 1 / (1 / 49) is not 49


def test_what_a_run_knows_is_there_to_be_read_and_changed(tmp_path):
    """The attributes of TVM's scheduler, as callbacks use them: lists, a set and numbers."""
    tasks, seen = tasks_of(32, 16, 8), []

    class Watch(auto_scheduler.TaskSchedulerCallback):
        def post_tune(self, task_scheduler, task_id):
            s = task_scheduler
            seen.append((task_id, list(s.task_cts), s.best_costs[task_id] < 1, s.ct, s.best_ct))
            if task_id == 1:
                s.dead_tasks.add(1)

    tuner = auto_scheduler.TaskScheduler(tasks, strategy="round-robin", callbacks=[Watch()])
    assert tuner.best_costs == [1e10] * 3 and tuner.best_score is None and tuner.cur_score == 3e10 and not tuner.dead_tasks
    tuner.tune(options(10, 2, tmp_path / "log.json"), search_policy="sketch.random", search_policy_params=small())
    assert [row[0] for row in seen] == [0, 1, 2, 0, 2] and all(row[2] for row in seen)
    assert seen[1][1] == [1, 1, 0] and [row[3] for row in seen] == [2, 4, 6, 8, 10]
    assert tuner.task_cts == [2, 1, 2] and tuner.task_trials == [4, 2, 4] and tuner.dead_tasks == {1} and 1 in tuner.dead_tasks
    assert [len(h) for h in tuner.task_costs_history] == [2, 1, 2] and tuner.task_costs_history[0][1] == tuner.best_costs[0]
    assert tuner.best_score == tuner.cur_score == sum(tuner.best_costs) and repr(tuner.dead_tasks) == "{1}"
    tuner.best_costs[0], tuner.task_cts, tuner.ct = 1.5, [7, 8, 9], 11
    tuner.dead_tasks.discard(1)
    assert tuner.best_costs[0] == 1.5 and tuner.task_cts == [7, 8, 9] and tuner.ct == 11 and tuner.dead_tasks == set()
    for name, value, words in (("task_cts", [1], "1 values for 3 tasks"), ("task_cts", [1, "x", 1], "expected a number"),
                               ("best_costs", 3, "a list with a value for each task")):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=words):
            setattr(tuner, name, value)


def test_an_objective_that_fails_is_the_users_error(tmp_path):
    def objective(costs):
        if costs[0] < 1:
            raise Mistake("objective")
        return sum(costs)

    tuner = auto_scheduler.TaskScheduler(tasks_of(16, 8), objective_func=objective, callbacks=[])
    with pytest.raises(Mistake, match="^objective$") as caught:
        random_search(tuner, options(8, 2, tmp_path / "log.json"))
    assert raised_by(caught) == "objective" and len(records(tmp_path / "log.json")) >= 2
    with pytest.raises(TypeError):
        auto_scheduler.TaskScheduler(tasks_of(8), objective_func=lambda costs: None, callbacks=[])


def test_gradient_prefers_the_costly_task(tmp_path):
    log = tmp_path / "log.json"
    tasks = tasks_of(32, 16)

    class Forced(auto_scheduler.TaskScheduler):
        def _count(self, *args):
            super()._count(*args)
            self.best_costs = [1e2, 1e-8]

    tuner = Forced(tasks, objective_func=lambda costs: costs[0] * 1e5, callbacks=[])
    tuner.tune(options(5, 1, log), search_policy="sketch.random", search_policy_params=small())
    keys = [i.task.workload_key for i, _ in records(log)]
    assert [keys.count(t.workload_key) for t in tasks] == [4, 1]


def test_table_and_latency_log(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tasks = tasks_of(16, 8)
    tuner = auto_scheduler.TaskScheduler(tasks, task_weights=[2, 3])
    tuner.tune(options(4, 2, "log.json", verbose=1), search_policy="sketch.random", search_policy_params=small())
    out = capsys.readouterr().out
    head = f"|  ID  |{'Task Description':^63}| Latency (ms) | Speed (GFLOPS) | Trials |"
    assert head in out and "-" * 113 in out and "-" * 30 + "  [ Task Scheduler ]" in out
    assert re.search(r"^\|    0 \| +matmul_16 \| +[\d.]+ \| +[\d.]+ \| +2 \|$", out, re.M)
    assert re.search(r"^Estimated total latency: - ms\tTrials: 0\tUsed time : \d+ s\tNext ID: 0\t$", out, re.M)
    lines = (tmp_path / "total_latency.tsv").read_text().splitlines()
    assert len(lines) == 2 and re.fullmatch(r"ElapsedTime\(s\)\t\d+\tEstimatedLatency\(ms\)\tN/A\tTrials\t2", lines[0])
    m = re.fullmatch(r"ElapsedTime\(s\)\t\d+\tEstimatedLatency\(ms\)\t([\d.]+)\tTrials\t4", lines[1])
    assert m and float(m[1]) == pytest.approx((2 * tuner.best_costs[0] + 3 * tuner.best_costs[1]) * 1e3, abs=2e-3)


def random_search(tuner, opt, **more):
    tuner.tune(opt, search_policy="sketch.random", search_policy_params=small(), **more)


def test_nothing_is_written_where_nobody_asked(tmp_path, monkeypatch, caplog):
    """The curve lies beside the log, wherever the run was started; a run without a log leaves no file."""
    here, logs = tmp_path / "here", tmp_path / "logs"
    here.mkdir()
    monkeypatch.chdir(here)
    random_search(auto_scheduler.TaskScheduler(tasks_of(8)), options(2, 1))
    assert os.listdir(here) == []
    monkeypatch.chdir("/proc")  # where nobody can make a file
    random_search(auto_scheduler.TaskScheduler(tasks_of(8)), options(2, 1, logs / "log.json"))
    assert sorted(os.listdir(logs)) == ["log.json", "total_latency.tsv"] and len(records(logs / "log.json")) == 2
    assert len((logs / "total_latency.tsv").read_text().splitlines()) == 2
    random_search(auto_scheduler.TaskScheduler(tasks_of(8)), options(2, 1, logs / "log.json"))
    assert len((logs / "total_latency.tsv").read_text().splitlines()) == 2, "a new run starts it anew"
    assert not caplog.records


@pytest.mark.parametrize("file", ["total_latency.tsv", "no/such/folder/total.tsv", "self"])
def test_a_latency_log_that_cannot_be_written_is_one_warning(file, tmp_path, monkeypatch, caplog):
    """Asked for in /proc: a file, a file in a folder, a folder. The run goes on, and its records are there."""
    monkeypatch.chdir("/proc")
    callbacks = [auto_scheduler.LogEstimatedLatency(file)]
    random_search(auto_scheduler.TaskScheduler(tasks_of(8), callbacks=callbacks), options(3, 1, tmp_path / "log.json"))
    assert len(records(tmp_path / "log.json")) == 3
    assert [r.levelname for r in caplog.records] == ["WARNING"] and f"{file} cannot be written" in caplog.text


def test_a_model_that_cannot_be_saved_is_one_warning(tmp_path, caplog):
    task = tasks_of(32)[0]
    model = auto_scheduler.XGBModel(seed=1, model_file=tmp_path / "none" / "model.bin")
    policy = auto_scheduler.SketchPolicy(task, model, params=small(), verbose=0, seed=1)
    task.tune(options(24, 8, tmp_path / "log.json"), policy)
    assert model.engine.ready() and len(records(tmp_path / "log.json")) == 24
    assert caplog.text.count("the cost model cannot be saved") == 1 and str(tmp_path / "none") in caplog.text
    with pytest.raises(ValueError, match=r"'trees\+mlp' has no file format"):  # not after the first training
        auto_scheduler.make_cost_model("trees+mlp", model_file="model.bin")


def test_bad_arguments(tmp_path):
    tasks = tasks_of(8, 16)
    with pytest.raises(AssertionError):
        auto_scheduler.TaskScheduler([])
    with pytest.raises(AssertionError):
        auto_scheduler.TaskScheduler(tasks, strategy="best")
    with pytest.raises(ValueError, match="should be at least 2"):
        auto_scheduler.TaskScheduler(tasks, callbacks=[]).tune(options(1))
    with pytest.raises(ValueError, match="Invalid search policy"):
        auto_scheduler.TaskScheduler(tasks, callbacks=[]).tune(options(4), search_policy="sketch.magic")
    with pytest.raises(ValueError):
        auto_scheduler.TuningOptions(builder="remote")
    with pytest.raises(AssertionError):
        auto_scheduler.SearchTask(target="llvm")


def test_small_space_kills_its_task(tmp_path):
    """A task whose space is used up is dropped; the other goes on; the trials are never exceeded."""
    log = tmp_path / "log.json"
    target = ns.target.Target("llvm")
    tasks = [auto_scheduler.SearchTask(func=tune_plus_one, args=(), target=target), *tasks_of(16)]
    tuner = auto_scheduler.TaskScheduler(tasks, strategy="round-robin", callbacks=[])
    tuner.tune(options(24, 4, log), search_policy="sketch.random", search_policy_params=small())
    assert 0 in tuner.dead_tasks and tuner.ct == len(records(log)) <= 24


def test_early_stopping(tmp_path):
    """With users' runners, so that times are given: the first is the best."""

    class Builder(auto_scheduler.ProgramBuilder):
        n_parallel = 8

        def build(self, measure_inputs, verbose=1):
            return [auto_scheduler.BuildResult() for _ in measure_inputs]

    class Runner(auto_scheduler.ProgramRunner):
        timeout, n = 1, 0

        def run(self, measure_inputs, build_results, verbose=1):
            self.n += 1
            return [auto_scheduler.MeasureResult([1e-3 * self.n], 0, "", 0.1, 0) for _ in measure_inputs]

    def opt(**more):
        return auto_scheduler.TuningOptions(
            400, num_measures_per_round=8, verbose=0, builder=Builder(), runner=Runner(), **more
        )

    tuner = auto_scheduler.TaskScheduler(tasks_of(32), callbacks=[])
    tuner.tune(opt(early_stopping=16), search_policy="sketch.random", search_policy_params=small())
    assert tuner.ct == 24
    tuner = auto_scheduler.TaskScheduler(tasks_of(32, 16), callbacks=[])
    tuner.tune(opt(), search_policy="sketch.random", search_policy_params=small(), per_task_early_stopping=8)
    assert tuner.dead_tasks == {0, 1} and tuner.ct < 80
    (task,) = tasks_of(64)
    policy = auto_scheduler.SketchPolicy(task, params=small(), verbose=0)
    task.tune(opt(early_stopping=16), policy)
    assert len(policy.generate_sketches()) == 3


class Mistake(Exception):
    """What users' code raises here."""


def raised_by(caught):
    """Name of the function that raised, from the traceback that the user sees."""
    return caught.traceback[-1].name


@pytest.mark.parametrize("ends", ["by itself", "by an error"])
def test_processes_of_a_runner_that_its_user_keeps(ends, new_children):
    """A runner of a user's own class has none when the run is over, and has them again in the next one."""

    class Mine(auto_scheduler.LocalRunner):
        pass

    def broken(policy, inputs, results):
        if ends == "by an error":
            raise Mistake("in my callback")

    tasks, opt = tasks_of(32), options(4, 2)
    opt.runner = Mine(number=1, repeat=1, min_repeat_ms=0, timeout=20)
    opt.measure_callbacks[:0] = [broken]
    for _ in range(2):
        with pytest.raises(Mistake) if ends == "by an error" else contextlib.nullcontext():
            random_search(auto_scheduler.TaskScheduler(tasks, callbacks=[]), opt)
        assert new_children() == []


@pytest.mark.some(1)
@pytest.mark.parametrize("how", ["single", "scheduler", "overlap"])
def test_a_callback_that_raises_ends_the_run_in_good_order(how, tmp_path, monkeypatch, new_children):
    """The exception itself arrives, what was measured is in the log although it is written by a later callback, no
    process is left, and the run can be gone on with."""
    if how == "overlap":
        monkeypatch.setattr(auto_scheduler.TaskScheduler, "_overlap", lambda self: True)
    log, told, called = tmp_path / "log.json", [], []

    def broken(policy, inputs, results):
        told.extend(results)
        called.append(len(results))
        if len(told) >= 3:
            raise Mistake("in my callback")

    def also_broken(policy, inputs, results):
        if len(told) >= 3:
            raise KeyError("a second one")

    tasks = tasks_of(32, 48)

    def tune(opt, **more):
        if how == "single":
            tasks[0].tune(opt, auto_scheduler.SketchPolicy(tasks[0], params=small(), verbose=0, **more))
        else:
            random_search(auto_scheduler.TaskScheduler(tasks, callbacks=[], strategy="round-robin"), opt)

    opt = options(400, 4, log)
    opt.measure_callbacks[:0] = [broken, also_broken]
    with pytest.raises(Mistake, match="in my callback") as caught:
        tune(opt)
    assert raised_by(caught) == "broken" and len([n for n in called if n]) == len(called)
    kept = records(log)
    assert len(kept) >= len(told) >= 3, "every result that a callback saw is in the log"
    assert new_children() == []
    opt = options(8, 4, log)
    tune(opt)
    assert len(records(log)) == len(kept) + 8


def test_stop_tuning_keeps_records(tmp_path):
    log = tmp_path / "log.json"

    def stop(policy, inputs, results):
        raise auto_scheduler.StopTuning

    opt = options(64, 4, log)
    opt.measure_callbacks.insert(0, stop)
    tuner = auto_scheduler.TaskScheduler(tasks_of(16), callbacks=[])
    random_search(tuner, opt)
    assert tuner.ct <= 4 and 1 <= len(records(log)) <= 4


def test_stop(tmp_path):
    """From a callback or another thread; before a run begins, too; each time one run ends."""
    log = tmp_path / "log.json"
    tuner, opt = auto_scheduler.TaskScheduler(tasks_of(32), callbacks=[]), options(16, 4, log)
    opt.measure_callbacks.append(lambda policy, inputs, results: tuner.stop())
    random_search(tuner, opt)
    kept = len(records(log))
    assert 1 <= kept < 16
    opt.measure_callbacks.pop()
    tuner.stop()
    random_search(tuner, opt)
    assert len(records(log)) == kept
    random_search(tuner, opt)
    assert len(records(log)) == kept + 16


def test_other_code_of_users_ends_the_run_with_its_own_traceback(tmp_path, new_children):
    """Callbacks of the scheduler, cost models, policies, builders and runners: nothing is swallowed or renamed."""

    class Callback(auto_scheduler.TaskSchedulerCallback):
        def post_tune(self, task_scheduler, task_id):
            raise Mistake("post_tune")

    class Teaches(auto_scheduler.PythonBasedModel):
        def predict(self, task, states):
            return [0.0] * len(states)

        def update(self, inputs, results):
            raise Mistake("update")

    class Scores(auto_scheduler.PythonBasedModel):
        def predict(self, task, states):
            raise ValueError("predict")  # as what the engine says of a task without programs, which is given up

    class Policy(auto_scheduler.SearchPolicy):
        def propose(self, n):
            raise ValueError("propose")

    class Builder(auto_scheduler.ProgramBuilder):
        def build(self, measure_inputs, verbose=1):
            raise Mistake("build")

    def run(callbacks=(), **more):
        opt = options(8, 2, tmp_path / "log.json", **more.pop("options", {}))
        more.setdefault("search_policy", "sketch.random")
        auto_scheduler.TaskScheduler(tasks_of(32), callbacks=list(callbacks)).tune(
            opt, search_policy_params=small(), **more
        )

    for name, given in (
        ("post_tune", {"callbacks": [Callback()]}),
        ("update", {"cost_model": Teaches()}),
        ("predict", {"cost_model": Scores()}),
        ("propose", {"search_policy": [Policy(tasks_of(32)[0], verbose=0)]}),
        ("build", {"options": {"builder": Builder()}}),
    ):
        with pytest.raises((Mistake, ValueError), match=f"^{name}$") as caught:
            run(**given)
        assert raised_by(caught) == name
    assert len(records(tmp_path / "log.json")) >= 4, "measured before post_tune and before update"
    assert new_children() == []


def test_what_ended_the_run_is_told(tmp_path, capsys):
    def broken(policy, inputs, results):
        raise Mistake

    opt = options(8, 2, tmp_path / "log.json", verbose=1)
    opt.measure_callbacks.append(broken)
    with pytest.raises(Mistake):
        random_search(auto_scheduler.TaskScheduler(tasks_of(8)), opt)
    out = capsys.readouterr().out
    assert f"Ended by Mistake. To go on: TaskScheduler(tasks, task_weights, load_log_file='{tmp_path}/log.json')" in out


@pytest.mark.parametrize("who", ["Builder.build", "Runner.run"])
def test_a_builder_or_runner_that_loses_results_is_named(who):
    class Builder(auto_scheduler.ProgramBuilder):
        n_parallel = 4

        def build(self, measure_inputs, verbose=1):
            return [auto_scheduler.BuildResult() for _ in measure_inputs[who == "Builder.build" :]]

    class Runner(auto_scheduler.ProgramRunner):
        def run(self, measure_inputs, build_results, verbose=1):
            return (auto_scheduler.MeasureResult([1e-3], 0, "", 0.1, 0) for _ in measure_inputs[1:])

    opt = auto_scheduler.TuningOptions(8, num_measures_per_round=4, verbose=0, builder=Builder(), runner=Runner())
    with pytest.raises(ValueError, match=f"{who} returned 3 results for 4 candidates"):
        random_search(auto_scheduler.TaskScheduler(tasks_of(32), callbacks=[]), opt)
    measurer = auto_scheduler.ProgramMeasurer(Builder(), Runner(), verbose=0)
    (task,) = tasks_of(32)
    states = auto_scheduler.SketchPolicy(task, params=small(), verbose=0).propose(4)
    with pytest.raises(ValueError, match=f"{who} returned 3 results for 4 candidates"):
        measurer.measure(task, None, [auto_scheduler.MeasureInput(task, s) for s in states])


def test_users_builder_and_runner(tmp_path):
    """Objects of users are called with whole groups; results are taken as they are."""
    seen = []

    class Builder(auto_scheduler.ProgramBuilder):
        n_parallel = 2

        def build(self, measure_inputs, verbose=1):
            return [auto_scheduler.BuildResult("", [], 0, "", 0.0) for _ in measure_inputs]

    class Runner(auto_scheduler.ProgramRunner):
        timeout = 1

        def run(self, measure_inputs, build_results, verbose=1):
            seen.append(len(measure_inputs))
            return [auto_scheduler.MeasureResult([1e-3 * (k + 1)], 0, "", 0.1, 0) for k, _ in enumerate(measure_inputs)]

    opt = auto_scheduler.TuningOptions(
        num_measure_trials=10, num_measures_per_round=10, verbose=0, builder=Builder(), runner=Runner()
    )
    tuner = auto_scheduler.TaskScheduler(tasks_of(32), callbacks=[])
    tuner.tune(opt, search_policy="sketch.random", search_policy_params=small())
    assert seen == [4, 4, 2] and tuner.best_costs == [1e-3]


@pytest.mark.some(1)
@pytest.mark.parametrize("how", ["single", "scheduler"])
def test_interrupt(tmp_path, how):
    """Ctrl-C ends a run with what is measured on disk and no process left behind."""
    script = textwrap.dedent(f"""
        import os, signal, sys
        sys.path[:0] = [{os.path.dirname(__file__)!r}, {PACKAGE!r}]
        from matmuls import tasks_of, options, small
        from nestsmith import auto_scheduler
        class Later:
            def callback(self, policy, inputs, results):
                if not getattr(self, "sent", False):
                    self.sent = True
                    os.kill(os.getpid(), signal.SIGINT)
        opt = options(4000, 6, "log.json")
        opt.measure_callbacks.append(Later())
        try:
            if {how!r} == "single":
                t = tasks_of(64)[0]
                t.tune(opt, auto_scheduler.SketchPolicy(t, params=small(), verbose=0))
            else:
                tuner = auto_scheduler.TaskScheduler(tasks_of(64, 32), callbacks=[])
                tuner.tune(opt, search_policy="sketch.random", search_policy_params=small())
        except KeyboardInterrupt:
            print("interrupted")
    """)
    r = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=dict(os.environ)
    )
    assert r.stdout.strip().endswith("interrupted"), r.stderr[-2000:]
    n = len(records(tmp_path / "log.json"))
    assert 0 < n < 200


def test_single_task(tmp_path):
    log = tmp_path / "log.json"
    (task,) = tasks_of(32)
    task.tune(options(12, 4, log), auto_scheduler.SketchPolicy(task, params=small(), verbose=0, seed=3))
    assert len(records(log)) == 12
    schedule = task.print_best(str(log))
    assert isinstance(schedule, str) and "split" in schedule
    assert "{" in task.print_best(str(log), print_mode="c")
    with pytest.raises(ValueError, match="print_mode"):
        task.print_best(str(log), print_mode="x")
    with pytest.raises(RuntimeError, match="12 records read, 0 of this workload"):
        tasks_of(48)[0].apply_best(str(log))


def test_search_without_measuring():
    (task,) = tasks_of(32)
    assert task.tune(options(0), auto_scheduler.SketchPolicy(task, params=small(), verbose=0)) is not None
    state = task.tune(options(1), auto_scheduler.EmptyPolicy(task))
    assert len(state.transform_steps) == 0


def test_search_while_measuring(tmp_path, monkeypatch):
    """The mode of GPU runs, on the CPU: the next task is searched while candidates of another are measured."""
    monkeypatch.setattr(auto_scheduler.TaskScheduler, "_overlap", lambda self: True)
    log = tmp_path / "log.json"
    tasks = tasks_of(16, 32, 64)
    tuner = auto_scheduler.TaskScheduler(tasks, callbacks=[])
    tuner.tune(options(18, 3, log), search_policy="sketch.random", search_policy_params=small())
    found = records(log)
    assert tuner.ct == len(found) == 18 == sum(tuner.task_trials) and all(r.error_no == 0 for _, r in found)
    assert min(tuner.task_cts) >= 1
    assert len({(i.task.workload_key, i.state.steps()) for i, _ in found}) == 18


class TwoBoards(auto_scheduler.LocalRunner):
    """Each measures only while the other one has a round, too."""

    devices = 2

    def start(self, inputs, built, best=lambda: 0.0, race=False, checked=True):
        if not hasattr(self, "both"):
            self.both, self.one, self.boards = threading.Barrier(2), threading.Lock(), concurrent.futures.ThreadPoolExecutor(2)
        return self.boards.submit(self._measure, inputs, built)

    def _measure(self, inputs, built):
        self.both.wait(PATIENCE)
        with self.one:
            return self.run(inputs, built, 0)


def test_all_boards_have_work(tmp_path):
    """Several boards with CPUs get rounds of several tasks at once."""
    tasks, runner, log = tasks_of(16, 32), TwoBoards(min_repeat_ms=1), tmp_path / "log.json"
    how = auto_scheduler.TuningOptions(
        16, num_measures_per_round=4, runner=runner, builder=auto_scheduler.LocalBuilder(n_parallel=2), verbose=0,
        measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
    )  # fmt: skip
    tuner = auto_scheduler.TaskScheduler(tasks, callbacks=[], strategy="round-robin")
    tuner.tune(how, search_policy="sketch.random", search_policy_params=small())
    runner.close()
    assert tuner.ct == 16 and tuner.task_cts == [2, 2] and all(r.error_no == 0 for _, r in records(log))


def test_learned_model_runs_and_saves(tmp_path):
    model_file = tmp_path / "model.bin"
    (task,) = tasks_of(64)
    model = auto_scheduler.XGBModel(seed=1, model_file=str(model_file))
    log = tmp_path / "log.json"
    task.tune(options(24, 8, log), auto_scheduler.SketchPolicy(task, model, params=small(), verbose=0, seed=1))
    assert model.engine.ready() and model.engine.records() == 24 and model_file.exists()
    states = auto_scheduler.SketchPolicy(task, params=small(), verbose=0, seed=2).sample_initial_population()[:8]
    scores = model.predict(task, states)
    assert len(scores) == len(states) and all(s == s for s in scores)
    other = auto_scheduler.XGBModel(seed=1)
    other.load(str(model_file))
    assert other.engine.ready()
    third = auto_scheduler.XGBModel(seed=1)
    third.update_from_file(str(log))
    assert third.engine.records() == 24
    with pytest.raises(FileNotFoundError):
        other.load(str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match="not been trained"):
        auto_scheduler.XGBModel().save(str(tmp_path / "x"))
