"""A log that has nothing for a network, or not all: one line says how many tasks were found and why not the others."""

import os

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, relay, transform
from nestsmith.auto_scheduler import dispatcher, log_tools
from nestsmith.relay import testing


def network(batch=1, channels=8):
    """Three tasks, one of which is another one at each of some graph levels, and with weights that stay inputs."""
    data, w = relay.var("data", shape=(batch, 8, 8, 4)), relay.var("w", shape=(3, 3, 4, channels))
    scale = [relay.var(n, shape=(channels,)) for n in ("gamma", "beta", "mean", "var")]
    d = relay.var("d", shape=(5, channels))
    y = relay.nn.conv2d(
        data, w, channels=channels, kernel_size=(3, 3), padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO"
    )
    y = relay.nn.relu(relay.nn.batch_norm(y, *scale, axis=3)[0])
    y = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y, layout="NHWC")), d)
    mod, random = ns.IRModule.from_expr(relay.Function([data, w, *scale, d], y)), np.random.default_rng(0)
    return mod, {p.name_hint: random.uniform(0.5, 1, p.checked_type.shape).astype("float32") for p in [w, *scale, d]}


def tasks_of(mod, params, target="llvm", **more):
    return auto_scheduler.extract_tasks(mod["main"], params, target, **more)[0]


def write(log, tasks, error=0):
    """A record of each task: the program without a schedule."""
    inputs = [auto_scheduler.MeasureInput(t, t.compute_dag.get_init_state()) for t in tasks]
    result = auto_scheduler.MeasureResult([1e10 if error else 1e-3], error, "", 1, 1)
    auto_scheduler.save_records(log, inputs, [result] * len(tasks))


def build(network, log, level=3):
    """What is said about the log while the network is built; the note of each kernel without a schedule is off."""
    with dispatcher.FallbackContext(verbose=0), auto_scheduler.ApplyHistoryBest(log), transform.PassContext(level):
        relay.build(network[0], "llvm", params=network[1])


@pytest.fixture(scope="module")
def net():
    return network()


@pytest.fixture
def said(caplog):
    """The warnings so far, which are then forgotten."""

    def take():
        out = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        caplog.clear()
        return out

    return take


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_log_of_this_network_says_nothing(net, said):
    write("o.json", tasks_of(*net))
    build(net, "o.json")
    assert said() == []


CASES = [
    # what the log holds, the level of the build, what is said
    (lambda net: tasks_of(*testing.mlp.get_workload(1)), 3, "0 of 3 tasks found in o.json: keys differ because the log's "
     "other records (4 workloads) are of another network"),
    (lambda net: tasks_of(*network(batch=8)), 3, "0 of 3 tasks found in o.json: keys differ because the log has 8 where this "
     "has 1 (another batch size?)"),
    (lambda net: tasks_of(*net), 2, "2 of 3 tasks found in o.json: keys differ because the log is of tasks extracted at "
     "opt_level=3, where 3 of 3 are found, and this build is at 2: build within transform.PassContext(opt_level=3)"),
    (lambda net: tasks_of(*net, opt_level=1), 3, "extracted at opt_level=1, where 3 of 3 are found, and this build is at 3"),
    (lambda net: tasks_of(net[0], {}), 3, "extracted without params, where 3 of 3 are found: give extract_tasks the params, too"),
    (lambda net: tasks_of(*net)[:2], 3, "2 of 3 tasks found in o.json: no record for the others"),
    (lambda net: tasks_of(*net, target="cuda -arch=sm_90"), 3, "0 of 3 tasks found in o.json: only records for cuda (for 2); "
     "no record for the others (for 1)"),
    (lambda net: tasks_of(*net, target="llvm -mcpu=haswell"), 3, "3 of 3 tasks found in o.json; 3 of the schedules for llvm"),
    (lambda net: [], 3, "0 of 3 tasks found in o.json: it holds no record"),
]  # fmt: skip


@pytest.mark.parametrize(("held", "level", "words"), CASES, ids=range(len(CASES)))
def test_logs_that_do_not_fit(held, level, words, net, said):
    write("o.json", held(net))
    build(net, "o.json", level)
    (line,) = said()
    assert words in line and "\n" not in line and len(line) < 400


def test_failed_trials_and_several_causes(net, said):
    tasks = tasks_of(*net)
    write("o.json", tasks[:1])
    write("o.json", tasks[1:2] * 3, error=4)
    build(net, "o.json")
    assert said() == ["1 of 3 tasks found in o.json: only failed trials (3) (for 1); no record for the others (for 1)"]
    write("p.json", tasks[1:])
    with auto_scheduler.ApplyHistoryBest("p.json"):
        build(net, "o.json")
    assert said() == [], "two logs together have them all"


def test_notes_of_kernels_are_one_line_where_a_log_is_read(net, said):
    """Without a log the note shows the program, as in the reference; with one the line about the network comes last."""
    with dispatcher.FallbackContext(), transform.PassContext(3, config={"relay.backend.use_auto_scheduler": True}):
        relay.build(net[0], "llvm", params=net[1])
    notes = said()
    assert len(notes) == 3 and all("Compute DAG info:\nplaceholder = PLACEHOLDER" in n for n in notes)
    write("o.json", tasks_of(*net, target="cuda -arch=sm_90"))
    with dispatcher.FallbackContext(), auto_scheduler.ApplyHistoryBest("o.json"), transform.PassContext(3):
        relay.build(net[0], "llvm", params=net[1])
    *notes, last = said()
    assert len(notes) == 3 and all("\n" not in n and "Cannot find tuned schedules for target=llvm" in n for n in notes)
    assert sum("Reason: only records for cuda." in n for n in notes) == 2 and last.startswith("0 of 3 tasks found in o.json")


def test_a_cut_log(net, said):
    write("o.json", tasks_of(*net))
    text = open("o.json").read()
    with open("o.json", "w") as f:
        f.write(text[:-60])
    build(net, "o.json")
    assert said() == ["o.json: 2 records read; the last line is incomplete and was dropped",
                      "2 of 3 tasks found in o.json: no record for the others"]  # fmt: skip
    os.rename("o.json", "q.json")
    assert len(list(auto_scheduler.load_records("q.json"))) == 2 and len(said()) == 1
    assert len(list(auto_scheduler.load_records("q.json"))) == 2 and said() == [], "once: a run reads a log several times"


def test_a_directory_is_called_one(net, said, capsys):
    os.mkdir("d")
    task = tasks_of(*net)[0]
    assert list(auto_scheduler.load_records("d")) == [] and said() == ["log file d is a directory, not a log"]
    build(net, "d")
    assert said() == ["tuning log d is a directory, not a log; default schedules will be used"]
    with pytest.raises(IsADirectoryError, match="log file d is a directory"):
        auto_scheduler.ApplyHistoryBest("d", strict=True)
    with pytest.raises(IsADirectoryError, match="d is a directory; give RecordToFile a file"):
        auto_scheduler.RecordToFile("d")
    with pytest.raises(RuntimeError, match="0 records read, .*; it is a directory, not a log"):
        task.apply_best("d")
    assert said() == [], "the error says it"
    assert log_tools.main(["--mode", "stats", "-i", "d"]) == 1 and "d is a directory" in capsys.readouterr().err
    write("o.json", [task])
    assert log_tools.main(["--mode", "best", "-i", "o.json", "-o", "d"]) == 1
    told = capsys.readouterr().err
    assert "d was not changed: Is a directory" in told and "space" not in told
    os.mkfifo("pipe")  # is not waited for
    assert list(auto_scheduler.load_records("pipe")) == [] and said() == ["log file pipe is no regular file"]


def test_apply_best_says_why(net):
    task, other = tasks_of(*net)[0], tasks_of(*network(batch=8))
    write("o.json", other)
    with pytest.raises(RuntimeError, match=r"3 records read, 0 of this workload.*the log has 8 where this has 1"):
        task.apply_best("o.json")
    write("p.json", [task] * 2, error=4)
    with pytest.raises(RuntimeError, match=r"2 records read, 2 of this workload, 2 of them failed; only failed trials \(2\)"):
        task.apply_best("p.json")
    with pytest.raises(RuntimeError, match=r"; it does not exist"):
        task.apply_best("nothing.json")


# ---- going on from a log ----


class Builder(auto_scheduler.ProgramBuilder):
    def build(self, measure_inputs, verbose=1):
        return [auto_scheduler.BuildResult() for _ in measure_inputs]


class Runner(auto_scheduler.ProgramRunner):
    """A user's runner that knows times without running anything."""

    def run(self, measure_inputs, build_results, verbose=1):
        return [auto_scheduler.MeasureResult([2e-3], 0, "", 0.1, 0) for _ in measure_inputs]


def resume(tasks, log, trials=3, **more):
    tuner = auto_scheduler.TaskScheduler(tasks, load_log_file=log, callbacks=[], **more)
    options = auto_scheduler.TuningOptions(trials, verbose=0, builder=Builder(), runner=Runner())
    small = {"sample_init_min_population": 4, "evolutionary_search_population": 16, "evolutionary_search_num_iters": 1}
    tuner.tune(options, search_policy="sketch.random", search_policy_params=small)
    return tuner


@pytest.mark.parametrize(("held", "words"), [
    (lambda: tasks_of(*testing.mlp.get_workload(1)), "0 of 3 tasks found in o.json: keys differ because the log's other records"),
    (lambda: tasks_of(*network(), target="llvm -mcpu=haswell"), "0 of 3 tasks found in o.json: only records for haswell"),
    (lambda: tasks_of(*network(batch=8)), "0 of 3 tasks found in o.json: keys differ because the log has 8 where this has 1"),
    (None, "0 of 3 tasks found in o.json: it does not exist"),
])  # fmt: skip
@pytest.mark.parametrize("seed", [None, 1])
def test_going_on_from_a_log_that_does_not_fit(held, words, seed, net, said):
    """One warning, at verbose=0 too; in the mode that repeats the run as well, unless only the machine differs."""
    if held:
        write("o.json", held())
    resume(tasks_of(*net), "o.json", seed=seed)
    lines = said()
    if seed is not None and "haswell" in words:
        return  # results are recalled by the state, wherever it was measured
    assert len(lines) == 1 and lines[0].startswith("TaskScheduler: nothing to go on from: " + words)


def test_going_on_from_a_part(net, said, capsys):
    tasks = tasks_of(*net)
    write("o.json", tasks[:2])
    tuner = auto_scheduler.TaskScheduler(tasks, load_log_file="o.json", callbacks=[])
    tuner.tune(auto_scheduler.TuningOptions(3, verbose=1, builder=Builder(), runner=Runner()), search_policy="sketch.random")
    out = capsys.readouterr().out
    assert "Loaded 2 of 2 records from o.json, 2 of 3 tasks have some: no record for the others" in out
    assert f"No measurement records found in o.json for {tasks[2].workload_key}: 2 records read, no record for this workload" in out
    assert said() == []


def test_few_trials_suffice_when_the_tasks_have_records(net):
    """Every task without a record needs a trial; with a record it does not."""
    tasks = tasks_of(*net)
    write("all.json", tasks)
    write("two.json", tasks[:2])
    tuner = resume(tasks, "all.json", trials=1)
    assert tuner.ct == 1 and sorted(tuner.task_trials) == [1, 1, 2]
    tuner = resume(tasks, "two.json", trials=1)
    assert tuner.ct == 1 and tuner.task_trials == [1, 1, 1], "the task without a record comes first"
    write("one.json", tasks[:1])
    with pytest.raises(ValueError, match="at least 2 for this model"):
        resume(tasks, "one.json", trials=1)
    with pytest.raises(ValueError, match="at least 1 for this model"):
        resume(tasks, "all.json", trials=0)
    with pytest.raises(ValueError, match="at least 3 for this model"):
        resume(tasks, None, trials=2)
