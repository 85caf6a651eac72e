"""RPCRunner: batches of candidates on devices that a tracker lends."""

import concurrent.futures
import inspect
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from fleet import manned, remote_matmul

import nestsmith
import nestsmith.autotvm
from helpers import PATIENCE, wait_until
from nestsmith import _core, auto_scheduler, rpc, te
from nestsmith.cluster import lanes
from nestsmith.cluster.bench import Bench
from nestsmith.cluster.client import Client

fleet = manned("board", "board")


def task(n=32, target="llvm"):
    return auto_scheduler.SearchTask(func=remote_matmul, args=(n,), target=target)


@pytest.mark.some(1)
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_tuning_on_two_boards_writes_records_that_name_their_class(fleet, tmp_path, target):
    log = str(tmp_path / "log.json")
    t = task(64, target)
    with_runner = auto_scheduler.RPCRunner("board", "0.0.0.0", fleet.port, n_parallel=2, timeout=60, min_repeat_ms=1)
    options = auto_scheduler.TuningOptions(
        num_measure_trials=12, num_measures_per_round=6, runner=with_runner, verbose=0,
        builder=auto_scheduler.LocalBuilder(n_parallel=2), measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    t.tune(options)
    with_runner.close()
    lines = [json.loads(line) for line in open(log)]
    assert len(lines) == 12
    good = [x for x in lines if x["r"][1] == 0]
    assert len(good) >= 8 and all("class=" in x["v"] for x in good) and len({w for x in good for w in x["v"].split() if "class=" in w}) == 1
    schedule, args = t.apply_best(log)
    nestsmith.build(schedule, args, target)


def test_wrong_and_broken_candidates_are_told_apart(fleet):
    """The board's isolated worker checks, races and survives as the one of this machine does."""
    t = task(16)
    states = auto_scheduler.SketchPolicy(t, verbose=0).sample_initial_population()[:3]
    inputs = [auto_scheduler.MeasureInput(t, s) for s in states]
    builder, runner = auto_scheduler.LocalBuilder(), auto_scheduler.RPCRunner("board", "127.0.0.1", fleet.port, timeout=60)
    built = builder.build(inputs, 0)
    built[0].program = (*built[0].program[:2], b"no program")
    spoilt = re.sub(r"= 0(\.0*)?(e\+00)?f?;", "= 1.0f;", built[1].program[0])
    assert spoilt != built[1].program[0]
    built[1].program = (spoilt, built[1].program[1], _core.build(t.target.engine(), spoilt)[0])
    results = runner.run(inputs, built, 0)
    runner.close()
    assert [r.error_no for r in results] == [3, 5, 0], results
    assert results[2].extra["stage"] == "full"


def test_boards_rest_between_candidates(fleet):
    """Six candidates of one board, and so five pauses at least."""
    t, rest = task(24), 0.4
    states = auto_scheduler.SketchPolicy(t, verbose=0).sample_initial_population()[:6]
    inputs = [auto_scheduler.MeasureInput(t, s) for s in states]
    built = auto_scheduler.LocalBuilder().build(inputs, 0)
    runner = auto_scheduler.RPCRunner("board", "127.0.0.1", fleet.port, min_repeat_ms=1, cooldown_interval=rest)
    begin = time.monotonic()
    results = runner.run(inputs, built, 0)
    assert time.monotonic() - begin >= 5 * rest and [r.error_no for r in results] == [0] * 6
    runner.close()


@auto_scheduler.register_workload
def remote_quotients(n):
    a, b = (te.placeholder((n,), name=name, dtype="int32") for name in "AB")
    return [a, b, te.compute((n,), lambda i: te.floordiv(a[i], b[i]), name="C")]


def test_inputs_that_users_register_reach_the_board(fleet, caplog):
    """Numbers that the program turns into others than those of the made-up inputs; zeros, by which processors cannot divide."""
    found = {}
    for n, divisor in ((64, 7), (65, 0)):
        given = {"A": np.arange(n, dtype="int32") * 1000, "B": np.full(n, divisor, "int32")}
        t = auto_scheduler.SearchTask(func=remote_quotients, args=(n,), target="llvm", task_inputs=given)
        runner = auto_scheduler.RPCRunner("board", "127.0.0.1", fleet.port, min_repeat_ms=1)
        for checked in (True, False):
            rows = runner._board_rows(t, checked)
            assert [row[1] for row in rows[:2]] == [given["A"].tobytes(), given["B"].tobytes()]
            assert not any(row[4] for row in rows)
        inputs = [auto_scheduler.MeasureInput(t, s) for s in auto_scheduler.SketchPolicy(t, verbose=0).sample_initial_population()[:2]]
        found[divisor] = [r.error_no for r in runner.run(inputs, auto_scheduler.LocalBuilder().build(inputs, 0), 0)]
        runner.close()
    assert set(found[7]) == {0}
    if platform.machine() in ("x86_64", "AMD64"):  # others divide by 0
        assert set(found[0]) == {auto_scheduler.MeasureErrorNo.RUNTIME_DEVICE}
        assert "cannot be checked, its program as it is written does not run" in caplog.text


def test_results_of_products_in_tf32_are_compared_as_such():
    """On boards as here: within the tolerance of TF32 and not to the bit."""
    runner, found = auto_scheduler.RPCRunner("board"), {}
    for math in ("strict", "tf32"):
        t = auto_scheduler.SearchTask(func=remote_matmul, args=(16,), target="llvm", math=math)
        found[math] = [row[3:] for row in runner._board_rows(t, True)]
    inputs = [("float32", False)] * 2
    assert found == {"strict": [*inputs, ("float32", True)], "tf32": [*inputs, ("tf32", False)]}


def test_a_board_that_dies_costs_one_more_try(fleet, tmp_path):
    """kill -9 of a server while it measures: no record is lost, none is there twice."""
    extra = fleet.serve("frail")
    fleet.serve("frail")
    t, log = task(48), str(tmp_path / "log.json")
    runner = auto_scheduler.RPCRunner("frail", "127.0.0.1", fleet.port, n_parallel=2, min_repeat_ms=1)

    class Kill(auto_scheduler.PythonBasedMeasureCallback):
        def callback(self, policy, inputs, results):
            if extra.child.poll() is None:
                os.killpg(extra.child.pid, signal.SIGKILL)

    options = auto_scheduler.TuningOptions(
        num_measure_trials=16, num_measures_per_round=8, runner=runner, verbose=0, builder=auto_scheduler.LocalBuilder(n_parallel=2),
        measure_callbacks=[auto_scheduler.RecordToFile(log), Kill()],
    )  # fmt: skip
    t.tune(options)
    runner.close()
    lines = [json.loads(line) for line in open(log)]
    assert len(lines) == 16 and len({json.dumps(x["i"][1]) for x in lines}) == 16
    assert sum(x["r"][1] == 0 for x in lines) >= 12


def test_what_else_runs_on_a_board_does_not_change_its_class(closing):
    """Two boards of one host measured at once, and each took the other for a machine of half the speed."""
    t, runner, found = task(16), auto_scheduler.RPCRunner("board", min_repeat_ms=1), []
    (built,) = auto_scheduler.LocalBuilder().build([auto_scheduler.MeasureInput(t, t.compute_dag.init_state)], 0)
    source, manifest, program = built.program
    batch = {
        "target": str(t.target), "device": 0, "lock": runner.lock_mode, "task": "one", "rows": runner._board_rows(t, True), "best": 0.0,
        "policy": runner.engine_policy(), "items": [(program, manifest)],
    }  # fmt: skip
    for others in (0, 2 * len(os.sched_getaffinity(0))):
        for _ in range(others):
            closing(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        found.append(closing(Bench()).measure(batch, PATIENCE)["canary"])
    assert 0 < found[0] and abs(found[1] / found[0] - 1) < lanes.CANARY_CPU, found


def test_a_runner_serves_one_task_after_the_other():
    """Scripts have one measure_option for all tasks. A DAG often lies where the one before it lay."""
    here = auto_scheduler.LocalRunner()
    there = auto_scheduler.RPCRunner("board")  # no tracker is asked
    for n in range(1, 40):
        one = auto_scheduler.SearchTask(compute_dag=auto_scheduler.ComputeDAG(remote_matmul(n)), workload_key="one", target="llvm")
        assert [row[0] for row in there._board_rows(one, False)] == [4 * n * n] * 3
        assert any(dag is one.compute_dag for dag, _ in there._rows.values())
    assert here._task_data(one) is here._task_data(one)
    assert [dag is one.compute_dag for dag, _ in here._data.values()] == [True]


def test_a_batch_that_took_too_long_does_not_answer_for_the_next():
    t, runner, bench = task(16), auto_scheduler.RPCRunner("board", timeout=1), Bench()
    (built,) = auto_scheduler.LocalBuilder().build([auto_scheduler.MeasureInput(t, t.compute_dag.init_state)], 0)
    source, manifest, good = built.program
    endless = re.sub(r"\)\s*\{", lambda m: m[0] + "for (volatile unsigned i = 0;;) i++;", source, count=1)
    batch = {
        "target": str(t.target), "device": 0, "lock": runner.lock_mode, "task": "one", "rows": runner._board_rows(t, True), "best": 0.0,
        "policy": runner.engine_policy(),
    }  # fmt: skip
    with pytest.raises(rpc.RPCSessionTimeoutError, match="longer than 0.2 s"):
        bench.measure({**batch, "items": [(_core.build(t.target.engine(), endless)[0], manifest)]}, 0.2)
    found = bench.measure({**batch, "items": [(good, manifest)]}, PATIENCE)
    bench.close()
    assert [r["error"] for r in found["results"]] == [0]


def test_closing_ends_what_waits_for_a_device(fleet):
    """Ctrl-C while others have all devices."""
    here, client = ("127.0.0.1", fleet.port), Client("127.0.0.1", fleet.port)
    with concurrent.futures.ThreadPoolExecutor(1) as pool, rpc.request_remote("board", *here), rpc.request_remote("board", *here):
        waits = pool.submit(client.acquire, "board")
        assert wait_until(lambda: client.summary()["queue_info"]["board"]["pending"] == 1)
        client.close()
        with pytest.raises(rpc.RPCError, match="was closed"):
            waits.result(PATIENCE)
    assert client.summary()["queue_info"]["board"]["total"] == 2
    client.close()


@pytest.mark.parametrize("wrong, text", [({"key": ""}, "key is ''"), ({"port": "x"}, "port is 'x'"), ({"port": 70000}, "70000"),
                                         ({"tls_dir": "/nowhere"}, "has no ca.pem"), ({"wait_limit": "3"}, "wait_limit is '3'")])  # fmt: skip
def test_what_is_wrong_is_told_before_measuring_begins(wrong, text):
    for make in (auto_scheduler.RPCRunner, nestsmith.autotvm.RPCRunner):
        if set(wrong) <= set(inspect.signature(make).parameters):
            with pytest.raises((ValueError, TypeError), match=text):
                make(**{"key": "k", "host": "127.0.0.1", "port": 9190, **wrong})


def test_no_device_is_one_error_that_names_key_and_tracker(fleet):
    runner = auto_scheduler.RPCRunner("nobody", "127.0.0.1", fleet.port, wait_limit=0.1)
    options = auto_scheduler.TuningOptions(num_measure_trials=4, runner=runner, verbose=0)
    with pytest.raises(nestsmith.TVMError, match=rf"'nobody'.*127\.0\.0\.1:{fleet.port}"):
        task(16).tune(options)
    runner.close()
