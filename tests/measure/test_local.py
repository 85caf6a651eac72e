# ruff: noqa: E501
"""Builder and runner on the CPU: results, errors, timeouts, interrupts; nothing is left behind."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from helpers import PATIENCE, endless, runs, wait_until, when
from nestsmith import _core, autotvm, te
from nestsmith.auto_scheduler.compute_dag import ComputeDAG
from nestsmith.auto_scheduler.measure import (
    BuildResult,
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    ProgramMeasurer,
    shorten,
)
from nestsmith.contrib import cc, ndk, tar
from nestsmith.target import Target


class Task:
    """The little that builder and runner need of a task."""

    layout_rewrite_option = 0
    workload_key, math = '["matmul"]', "strict"

    def __init__(self, target="llvm"):
        a, b = te.placeholder((32, 24), name="A"), te.placeholder((24, 40), name="B")
        k = te.reduce_axis((0, 24), name="k")
        c = te.compute((32, 40), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
        self.compute_dag = ComputeDAG([a, b, c])
        self.target = Target(target)

    def engine_target(self):
        return self.target.engine((2, 64, 64, 0, 0, 0, 0, 0))

    def fixed_inputs(self):
        return None


@pytest.fixture
def task():
    return Task()


BODY = """#include <fcntl.h>
#include <stdint.h>
int32_t default_function(void *const *args, void *const *work, void *par, void *pool) {{ {} return 0; }}
"""


def program(task, body):
    """A built candidate whose C text is ours."""
    _, manifest = _core.program(_core.State(task.compute_dag), None, "c", "default_function")
    source = BODY.format(body)
    return BuildResult(program=(source, manifest, _core.build("llvm", source, 10, "")[0]))


def test_good_candidate(task, capsys, closing, new_children):
    runner = closing(LocalRunner(repeat=3, min_repeat_ms=5))
    measurer = ProgramMeasurer(LocalBuilder(n_parallel=2), runner, [])
    r = measurer.measure(task, None, [MeasureInput(task, _core.State(task.compute_dag))] * 3)
    assert [x.error_no for x in r] == [0, 0, 0]
    assert all(len(x.costs) == 3 and 0 < min(x.costs) < 1e-2 for x in r)
    out = capsys.readouterr().out
    assert out.startswith("Get 3 programs to measure:\n...***\nTime elapsed for measurement:")
    assert measurer.best_cost[task.workload_key] == min(sum(x.costs) / 3 for x in r)
    runner.close()
    assert new_children() == []


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "body, error, cause",
    [
        ("*(volatile int *)8 = 1;", MeasureErrorNo.RUNTIME_DEVICE, "worker-died"),
        ("return 3;", MeasureErrorNo.RUNTIME_DEVICE, "launch-failure"),
        ("for (volatile unsigned i = 0;;) i++;", MeasureErrorNo.RUN_TIMEOUT, "run-timeout"),
        ("((float *)args[2])[0] = 0;", MeasureErrorNo.WRONG_ANSWER, "wrong-answer"),
    ],
)
def test_bad_programs(task, body, error, cause, closing, new_children):
    runner = closing(LocalRunner(timeout=5 if cause == "run-timeout" else PATIENCE, min_repeat_ms=1))
    inp = MeasureInput(task, _core.State(task.compute_dag))
    good = LocalBuilder(n_parallel=1).build([inp], 0)[0]
    r = runner.run([inp] * 3, [good, program(task, body), good], 0)
    assert [x.error_no for x in r] == [0, error, 0], r
    assert r[1].extra["cause"] == cause and r[1].costs == [1e10]
    runner.close()
    assert new_children() == []


def test_compiler_errors_and_timeout(task, monkeypatch, tmp_path, closing, new_children):
    slow = tmp_path / "slow-cc"
    slow.write_text("#!/bin/sh\nsleep 600 & sleep 600\n")
    slow.chmod(0o755)
    inp = MeasureInput(task, _core.State(task.compute_dag))
    monkeypatch.setenv("NESTSMITH_CACHE_DIR", "")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("CC", str(slow))
    r = LocalBuilder(timeout=0.5, n_parallel=2).build([inp] * 2, 0)
    assert [x.error_no for x in r] == [MeasureErrorNo.BUILD_TIMEOUT] * 2 and max(x.time_cost for x in r) < PATIENCE
    monkeypatch.setenv("CC", "no-such-compiler")
    r = LocalBuilder(n_parallel=1).build([inp], 0)
    assert r[0].error_no == MeasureErrorNo.COMPILE_HOST and "no-such-compiler" in r[0].error_msg
    run = closing(LocalRunner()).run([inp], r, 0)
    assert run[0].error_no == MeasureErrorNo.COMPILE_HOST and run[0].costs == [1e10]
    assert new_children() == []
    assert [os.listdir(tmp_path / d) for d in os.listdir(tmp_path) if d.startswith("nestsmith")] == [[]]


def test_disk_full(tmp_path):
    code = textwrap.dedent("""
        import resource, signal
        from nestsmith import _core
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            _core.build("llvm", "int x;" + " " * 1000, 10, "")
        except (OSError, RuntimeError) as e:
            print("refused", e)
    """)
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=True,
    ).stdout
    assert out.startswith("refused")
    assert [os.listdir(tmp_path / d) for d in os.listdir(tmp_path)] == [[]]


def test_worker_dies_with_the_tuner(closing):
    code = textwrap.dedent("""
        import os, sys, time
        from nestsmith import _core
        w = _core.Worker(1, 0)
        print(w.pid, flush=True)
        time.sleep(600)
    """)
    p = closing(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True))
    worker = int(p.stdout.readline())
    os.kill(p.pid, signal.SIGKILL)
    p.wait()
    assert wait_until(lambda: not runs(worker))


def test_killed_worker_costs_one_candidate(task, tmp_path, closing):
    runner, mark = closing(LocalRunner(timeout=PATIENCE, min_repeat_ms=1)), tmp_path / "runs"
    inp = MeasureInput(task, _core.State(task.compute_dag))
    good = LocalBuilder(n_parallel=1).build([inp], 0)[0]
    assert runner.run([inp], [good], 0)[0].error_no == 0
    worker = runner._workers[1]
    when(mark.exists, lambda: os.kill(worker.pid, signal.SIGKILL))
    r = runner.run([inp] * 2, [program(task, endless(mark)), good], 0)
    assert [x.error_no for x in r] == [MeasureErrorNo.RUNTIME_DEVICE, 0]
    assert "signal 9" in r[0].error_msg


def test_interrupt_is_heard_at_once(task, tmp_path, closing, new_children):
    runner, mark = closing(LocalRunner(timeout=2 * PATIENCE)), tmp_path / "runs"
    inp = MeasureInput(task, _core.State(task.compute_dag))
    sent = []
    when(mark.exists, lambda: (sent.append(time.monotonic()), os.kill(os.getpid(), signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        runner.run([inp], [program(task, endless(mark))], 0)
    assert time.monotonic() - sent[0] < PATIENCE  # far below the candidate's limit; 0.1 s on an idle machine
    assert new_children() == []


def test_context_and_options():
    with LocalRPCMeasureContext(min_repeat_ms=300) as ctx:
        assert ctx.tracker.port == 0 and ctx.server.port == 0
        assert (ctx.runner.min_repeat_ms, ctx.runner.number, ctx.runner.timeout) == (300, 3, 10)
    r = LocalRunner(enable_cpu_cache_flush=True)
    assert (r.number, r.min_repeat_ms) == (1, 0)
    assert pickle.loads(pickle.dumps(LocalRunner(repeat=7))).repeat == 7
    for bad in ({"number": 0}, {"repeat": 0}, {"timeout": 0}, {"min_repeat_ms": -1}, {"mode": "x"}):
        with pytest.raises(ValueError):
            LocalRunner(**bad)
    with pytest.raises(ValueError):
        LocalBuilder(build_func="nothing")


def test_a_function_that_would_not_be_called_is_no_build_func():
    def link(output, objects, options=None):
        raise AssertionError

    for builder in (LocalBuilder, autotvm.LocalBuilder):
        with pytest.raises(ValueError, match="output_format"):
            builder(build_func=link)
    link.output_format = "so"
    for builder in (LocalBuilder, autotvm.LocalBuilder):
        with pytest.raises(ValueError, match="would not be called.*export_library"):
            builder(build_func=link)
        for known in ("default", "ndk", "stackvm", cc.cross_compiler("board-g++"), ndk.create_shared, tar.tar):
            assert builder(build_func=known).build_func == known


def test_texts():
    assert (
        repr(MeasureResult([1.23456e-3], 0, "", 0.5, 12.0))
        == "MeasureResult(cost:[0.001235], error_no:0, all_cost:0.5, Tstamp:12.00)"
    )
    assert (
        repr(MeasureResult([1e10], 7, "late", 0.5, 12.0))
        == "MeasureResult(error_type:RunTimeoutError, error_msg:late, all_cost:0.5, Tstamp:12.00)"
    )
    assert len(shorten("x" * 10000)) == 512 + 5 and shorten("short") == "short"


def test_opencl_candidate(task, closing):
    if not _core.device_exists(4, 0)[0]:
        pytest.skip("no OpenCL device")
    t = Task("opencl")
    source = (
        "__kernel void k(__global const float *A, __global const float *B, __global float *C) { int i = get_global_id(0) / 40, j = get_global_id(0) % 40;"
        " float s = 0; for (int k = 0; k < 24; k++) s += A[i * 24 + k] * B[k * 40 + j]; C[i * 40 + j] = s; }"
    )
    rows = [("A", 768, True), ("B", 960, True), ("C", 1280, False)]
    args = ",".join(
        f'{{"name":"{n}","dtype":"float32","shape":[{k}],"bytes":{4 * k},"align":64,"read_only":{str(ro).lower()}}}'
        for n, k, ro in rows
    )
    params = ",".join(f'{{"kind":"arg","index":{i},"read_only":{str(r[2]).lower()}}}' for i, r in enumerate(rows))
    manifest = (
        f'{{"format":1,"target":"opencl","entry":"k","args":[{args}],"work":[],'
        f'"kernels":[{{"name":"k","params":[{params}],"grid":[20,1,1],"block":[64,1,1]}}]}}'
    )
    runner = closing(LocalRunner(timeout=PATIENCE, min_repeat_ms=5))
    inp = MeasureInput(t, _core.State(t.compute_dag))
    wrong = source.replace("k < 24", "k < 23")
    r = runner.run([inp] * 3, [BuildResult(program=(s, manifest, s.encode())) for s in (source, wrong, "no OpenCL")], 0)
    assert [x.error_no for x in r] == [0, MeasureErrorNo.WRONG_ANSWER, MeasureErrorNo.COMPILE_DEVICE], r
