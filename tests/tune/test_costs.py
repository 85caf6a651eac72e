"""Times that no run can have never win, wherever the best of several results is chosen."""

import json
import math

import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, relay
from nestsmith.auto_scheduler import cost, log_tools, measure_record
from nestsmith.auto_scheduler.dispatcher import ApplyHistoryBest
from nestsmith.relay import testing

IMPOSSIBLE = {
    "zero": [0.0], "negative": [-1.0], "none": [], "denormal": [1e-320], "no clock is so fast": [1e-11], "infinite sum": [1e308, 1e308],
    "failed": [1e10], "one of two is zero": [0.0, 1e-6], "one of two is negative": [-1e-3, 1.1e-3],
}
GOOD = 3.5e-5


@pytest.fixture(scope="module")
def task():
    mod, params = testing.mlp.get_workload(1)
    tasks, _ = auto_scheduler.extract_tasks(mod["main"], params, "llvm")
    return tasks[0]


def line(task, costs, steps, error=0, mark="v0.6"):
    who = [task.workload_key, "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], "", 0, []]
    return json.dumps({"i": [who, [[], steps]], "r": [costs, error, 0.5, 1700000000], "v": mark}) + "\n"


@pytest.fixture(params=IMPOSSIBLE, ids=str)
def log(request, task, tmp_path):
    """A good record between two of the impossible kind; the steps tell which is which."""
    path = tmp_path / "log.json"
    bad = IMPOSSIBLE[request.param]
    path.write_text(line(task, bad, [["CI", 4]]) + line(task, [GOOD], [["CR", 2]]) + line(task, bad, [["CI", 4]]))
    return path


def test_the_good_record_wins_everywhere(log, task, tmp_path):
    won = [["CR", 2]]
    assert json.loads(auto_scheduler.load_best_record(str(log))[0].state.steps()) == won
    assert json.loads(task._best_input(str(log), False).state.state_object.steps()) == won
    for mode in ("distill", "best"):
        assert log_tools.main(["--mode", mode, "-i", str(log), "-o", str(tmp_path / mode)]) == 0
        (only,) = auto_scheduler.load_records(tmp_path / mode)
        assert json.loads(only[0].state.steps()) == won, mode
    with ns.target.Target("llvm") as target:
        state = ApplyHistoryBest(str(log)).query(target, task.workload_key, True, task.compute_dag, "f")
    assert json.loads(state.steps()) == won
    (row,) = log_tools.stats([log])
    assert row["best"] == pytest.approx(GOOD) and row["valid"] == 1 and row["curve"] == [(2, pytest.approx(GOOD))]


def test_a_run_that_goes_on_does_not_believe_them(log, task):
    tuner = auto_scheduler.TaskScheduler([task], [1], callbacks=[])
    tuner.tune_option, tuner.early_stopping_task = auto_scheduler.TuningOptions(24, verbose=0), 1e20
    tuner._restore_status(str(log), 1)
    assert tuner.best_costs == [pytest.approx(GOOD)]
    model = auto_scheduler.XGBModel(seed=1)
    inputs, results = zip(*auto_scheduler.load_records(log))
    model._add([auto_scheduler.recover_measure_input(i, rebuild_state=True) for i in inputs], results)
    assert sorted(model.engine.batch()[3])[0] == pytest.approx(GOOD)
    labels = auto_scheduler.feature.get_per_store_features_from_file(str(log), -1)[1]
    assert max(labels) == 1 and list(labels).index(max(labels)) == 1 and all(math.isfinite(x) for x in labels)


def test_a_log_with_such_times_says_so_once(log, caplog):
    for _ in range(2):
        ApplyHistoryBest(str(log))
    assert [r.getMessage() for r in caplog.records] == [
        f"{log}: 3 records read; 2 count as failed: their times are none that a run can have"
    ]


def test_a_log_of_nothing_else_has_no_best(task, tmp_path, caplog):
    path = tmp_path / "log.json"
    path.write_text("".join(line(task, c, [["CR", 2]]) for c in IMPOSSIBLE.values()))
    assert auto_scheduler.load_best_record(str(path)) == (None, None)
    with pytest.raises(RuntimeError, match="9 of this workload, 9 of them failed"):
        task.apply_best(str(path))
    mod, params = testing.mlp.get_workload(1)
    with auto_scheduler.ApplyHistoryBest(str(path)) as best, ns.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params=params)
    assert "only failed trials (9)" in best.report()[task.workload_key] and lib is not None


def test_text_and_nan_are_no_costs(task, tmp_path):
    for bad in (["x"], [None], [[1]], [float("nan")], [float("inf")]):
        with pytest.raises(ValueError, match="malformed record"):
            measure_record.load_record_from_string(line(task, bad, []))
    for bad in ([float("nan")], [float("inf")], ["x"], [None], [10**400], [GOOD, float("nan")]):
        assert cost.seconds(bad) == cost.FAILED and cost.rank(bad) == cost.NOTHING
    assert cost.rank([GOOD]) < cost.rank([GOOD / 2], quick=True) < cost.rank([GOOD], 4) == cost.NOTHING


def test_sizes_that_turn_a_time_around(task, tmp_path):
    """A recorded size below zero divides every wanted one; scaled by the ratio its time would be negative."""
    name, *shapes = json.loads(task.workload_key)
    smaller = json.dumps([name, *[[-n for n in s] for s in shapes]])
    path = tmp_path / "log.json"
    path.write_text(line(task, [GOOD], [["CR", 2]]) + line(task, [GOOD], [["CI", 4]]).replace(
        json.dumps(task.workload_key), json.dumps(smaller)))
    found, _ = auto_scheduler.load_best_record(str(path), task.workload_key, include_compatible=True)
    assert json.loads(found.state.steps()) == [["CR", 2]]
