"""Dispatch contexts: which record answers, distances, nesting, misses."""

import json
import logging
import math

import pytest

import nestsmith as ns
from nestsmith import auto_scheduler
from nestsmith.auto_scheduler.dispatcher import DispatchContext, FallbackContext
from nestsmith.auto_scheduler.workload_keys import calc_workload_dis_factor, decode_workload_key

HW = [-1, 16, 64, 49152, 2147483647, 1024, 8, 32]


def line(key, cost, target="cuda -keys=cuda,gpu -arch=sm_90", error=0, tag=0):
    return (
        json.dumps(
            {
                "i": [[json.dumps(key), target, HW, "", 0, []], [[], [["SP", 2, 0, 512, [tag or 1, 1], 1]]]],
                "r": [[cost], error, 1.0, 1700000000],
                "v": "v0.6",
            }
        )
        + "\n"
    )


def ask(ctx, key, target="cuda -arch=sm_90"):
    state = ctx.query(ns.target.Target(target), json.dumps(key), True, None, "f")
    return None if state is None else json.loads(state.steps())[0][4][0] if hasattr(state, "steps") else state


@pytest.fixture
def log(tmp_path):
    f = tmp_path / "log.json"
    f.write_text(
        line(["h", [8, 8], [4]], 2e-3, tag=2)
        + line(["h", [8, 8], [4]], 1e-3, tag=3)
        + line(["h", [8, 8], [4]], 1e-4, error=4, tag=4)
        + line(["h", [8, 8], [4]], 5e-4, "cuda -keys=cuda,gpu -arch=sm_86", tag=5)
        + line(["h", [4, 8], [4]], 4e-4, tag=6)
        + line(["g", [8]], 1e-5, "opencl -keys=mali,opencl,gpu -device=mali", tag=7)
    )
    return f


def test_fastest_of_the_same_architecture(log):
    ctx = auto_scheduler.ApplyHistoryBest(str(log))
    assert ask(ctx, ["h", [8, 8], [4]]) == 3
    assert ask(ctx, ["h", 8, 8, 4]) == 3, "flat and nested keys are the same workload"
    assert ask(ctx, ["h", [8, 8], [4]], "cuda -arch=sm_86") == 5
    assert ask(ctx, ["h", [8, 8], [4]], "cuda -arch=sm_70") in (3, 5)
    assert ask(ctx, ["h", [8, 8], [4]], "llvm") is None
    assert ask(ctx, ["g", [8]]) is None, "a phone's record does not answer for another kind of device"
    assert "only records for opencl" in ctx.report()[json.dumps(["g", [8]])]


def test_sources(log, tmp_path):
    pairs = list(auto_scheduler.load_records(str(log)))
    for records in (log, [str(log)], pairs, [None, log, *pairs], iter(pairs)):
        assert ask(auto_scheduler.ApplyHistoryBest(records), ["h", [8, 8], [4]]) == 3
    assert ask(auto_scheduler.ApplyHistoryBest(log, n_lines=1), ["h", [8, 8], [4]]) == 2
    assert ask(auto_scheduler.ApplyHistoryBest(None), ["h", [8, 8], [4]]) is None
    with pytest.raises(FileNotFoundError):
        auto_scheduler.ApplyHistoryBest(str(tmp_path / "no.json"), strict=True)


def test_compatible_sizes(log):
    ctx = auto_scheduler.ApplyHistoryBest(log, include_compatible=True)
    assert ask(ctx, ["h", [16, 8], [4]]) == 6, "4e-4 s times 4 beats 1e-3 s times 2" if 4e-4 * 4 < 1e-3 * 2 else ""
    assert ask(ctx, ["h", [12, 8], [4]]) == 6
    assert ask(ctx, ["h", [9, 8], [4]]) is None
    assert ask(auto_scheduler.ApplyHistoryBest(log), ["h", [16, 8], [4]]) is None


def test_distance():
    def d(w, r):
        return calc_workload_dis_factor(decode_workload_key(json.dumps(w)), decode_workload_key(json.dumps(r)))

    assert d(["dense", 512, 512], ["dense", 256, 512]) == 2
    assert math.isinf(d(["dense", 512, 512], ["dense", 1024, 512]))
    assert math.isinf(d(["dense", 512, 512], ["dense", 100, 512]))
    assert math.isinf(d(["dense", 512], ["conv", 512])) and math.isinf(d(["dense", 512], ["dense", 512, 1]))
    assert d(["dense", 0], ["dense", 0]) == 1 and math.isinf(d(["dense", 4], ["dense", 0]))
    assert d(["dense", "float32"], ["dense", "float32"]) == 1 and math.isinf(
        d(["dense", "float32"], ["dense", "float16"])
    )


def test_contexts_nest(log):
    root = DispatchContext.current
    with auto_scheduler.ApplyHistoryBest(log) as outer:
        with auto_scheduler.ApplyHistoryBest(None) as inner:
            assert DispatchContext.current is inner
            assert ask(inner, ["h", [8, 8], [4]]) == 3
            inner.update(ns.target.Target("cuda -arch=sm_90"), json.dumps(["h", [8, 8], [4]]), "mine")
            assert ask(inner, ["h", [8, 8], [4]]) == "mine"
        assert DispatchContext.current is outer and ask(outer, ["h", [8, 8], [4]]) == 3
    assert DispatchContext.current is root


def test_fallback_warns_once(caplog):
    ctx = FallbackContext()
    with caplog.at_level(logging.WARNING, "auto_scheduler"):
        for _ in range(3):
            assert ctx.query(ns.target.Target("llvm"), '["x", 1]', True, "DAG", "some_function") is None
        assert ctx.query(ns.target.Target("llvm"), '["y", 1]', False, "DAG", "simple") is None
    assert len(caplog.records) == 1 and "some_function" in caplog.text
    with pytest.raises(RuntimeError, match="target"):
        auto_scheduler.ApplyHistoryBest(None).query(None, '["x"]', True, None, "f")


def test_hardware_params():
    hw = auto_scheduler.HardwareParams(target="cuda -arch=sm_90")
    assert hw.as_tuple() == tuple(HW)
    assert str(hw).splitlines()[0] == "HardwareParams:" and "  warp_size: 32" in str(hw)
    assert auto_scheduler.HardwareParams(target="opencl -device=mali").as_tuple() == (
        -1,
        16,
        64,
        32768,
        2147483647,
        256,
        1,
        1,
    )
    cpu = auto_scheduler.HardwareParams(target="llvm")
    assert cpu.as_tuple()[1:] == (64, 64, 0, 0, 0, 0, 0) and cpu.num_cores >= 1
    assert auto_scheduler.HardwareParams(num_cores=7, target="llvm").num_cores == 7
    with pytest.raises(ValueError, match="warp_size"):
        auto_scheduler.HardwareParams(1, 2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize("make", [lambda: FallbackContext(0), lambda: ns.autotvm.FallbackContext(), lambda: auto_scheduler.ApplyHistoryBest(None)])
def test_a_context_is_entered_once_at_a_time(make):
    context = make()
    outside = type(context).current
    with context:
        with FallbackContext(0), pytest.raises(RuntimeError, match="is entered already; leave it first, or make another one"):
            context.__enter__()
    with context:  # and again, when it has been left
        assert type(context).current is context
    assert type(context).current is outside
