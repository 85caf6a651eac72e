"""One ``time_evaluator``: operators and networks, here and in a session, take the same arguments in the same way."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import nd, relay, rpc, te
from nestsmith.contrib import graph_executor, utils
from nestsmith.registry import register_func, remove_global_func
from nestsmith.runtime import timing

N = 1 << 16


def operator():
    a = te.placeholder((N,), name="A")
    b = te.compute((N,), lambda i: a[i] + 1.0, name="B")
    return ns.build(te.create_schedule(b.op), [a, b], "llvm", name="addone")


def network():
    x = relay.var("x", shape=(N,))
    return relay.build(ns.IRModule.from_expr(relay.Function([x], x + relay.const(1.0))), target="llvm")


@pytest.fixture(scope="module")
def sides():
    """{name: (function that makes a time_evaluator with options, its arguments)}"""
    tmp, out = utils.tempdir(), {}
    with rpc.LocalSession() as remote:
        for where in (None, remote):
            op, net, dev = operator(), network(), ns.cpu(0) if where is None else where.cpu(0)
            if where is not None:
                for name, made in (("op.so", op), ("net.so", net)):
                    made.export_library(tmp.relpath(name))
                    where.upload(tmp.relpath(name))
                op, net = where.load_module("op.so"), where.load_module("net.so")
            arrays = nd.array(np.zeros(N, "float32"), dev), nd.empty((N,), "float32", dev)
            running = graph_executor.GraphModule(net["default"](dev))
            running.set_input("x", np.zeros(N, "float32"))
            place = "here" if where is None else "session"
            out[f"operator, {place}"] = (lambda o=op, d=dev, **k: o.time_evaluator("addone", d, **k)), arrays
            out[f"network, {place}"] = (lambda r=running, d=dev, **k: r.module.time_evaluator("run", d, **k)), ()
            host = np.zeros(N, "float32")
            out[f"end to end, {place}"] = (lambda r=running, d=dev, **k: r.module.time_evaluator("run_from_inputs", d, **k)), (host,)
        yield out


def test_all_take_the_same_arguments_in_the_same_way(sides, monkeypatch):
    pauses, seen = [], []
    monkeypatch.setattr(timing.time, "sleep", pauses.append)
    register_func("test_timing.before", lambda *args: seen.append(len(args)))
    try:
        for name, (make, args) in sides.items():
            pauses.clear(), seen.clear()
            r = make(number=2, repeat=5, cooldown_interval_ms=300, repeats_to_cooldown=2, f_preproc="test_timing.before")(*args)
            assert len(r.results) == 5 and 0 < r.min <= r.median <= r.max, name
            assert pauses == [0.3] * 3, name  # behind repeats 0, 2 and 4, as in TVM
            assert seen == [len(args)] * 5, name
            for wrong, error in (
                ({"f_preproc": "nonsense"}, "f_preproc 'nonsense' is unknown"), ({"number": 0}, "number is 0"),
                ({"repeat": 0}, "repeat is 0"), ({"repeats_to_cooldown": 0}, "repeats_to_cooldown is 0"),
                ({"cache_flush_bytes": -1}, "cache_flush_bytes is -1"), ({"min_repeat_ms": -1}, "min_repeat_ms is -1"),
                ({"cooldown_interval_ms": float("nan")}, "cooldown_interval_ms is nan"),
                ({"limit_zero_time_iterations": 0}, "limit_zero_time_iterations is 0"),
            ):  # fmt: skip
                with pytest.raises(ValueError, match=error):
                    make(**wrong)
            with pytest.raises(TypeError, match="number is 'x'"):
                make(number="x")
    finally:
        remove_global_func("test_timing.before")


def test_all_flush_caches(sides):
    """256 KiB from a cache, and 256 KiB from memory: at least half as long again, in the least of some runs of each."""
    for name, (make, args) in sides.items():
        if "end to end" in name:
            continue  # copies, which are slow in any case; the same code as above
        option = {"f_preproc": timing.FLUSH} if "session" in name else {"cache_flush_bytes": 1 << 26}
        hot, cold = make(number=1, repeat=20), make(number=2, repeat=3, **option)
        ratio = max(cold(*args).min / hot(*args).min for _ in range(2))
        assert ratio > 1.3, (name, option, ratio)


class Block:
    """What is timed: runs of `seconds`, and a list of the blocks that were asked for."""

    def __init__(self, *seconds):
        self.seconds, self.asked = list(seconds), []

    def __call__(self, args, number, flush):
        self.asked.append(number)
        return self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]


def timed(block, **options):
    return timing.evaluator(lambda args: None, block, **options)().results


def test_repeats_are_as_long_as_was_asked_for():
    block = Block(1e-3)
    assert timed(block, number=10, repeat=3) == (1e-3,) * 3 and block.asked == [10] * 3
    block = Block(1e-3)
    assert timed(block, number=1, repeat=2, min_repeat_ms=100) == pytest.approx((1e-3,) * 2)
    assert block.asked == [1, 100, 100]  # the number that was needed holds for the next repeat
    block = Block(1.0)
    assert timed(block, number=3, repeat=1, min_repeat_ms=100) == (1.0,) and block.asked == [3]
    block = Block(4e-3, 1e-3)  # all runs count
    assert timed(block, number=1, repeat=1, min_repeat_ms=10) == (pytest.approx((4e-3 + 1e-3 * sum(block.asked[1:])) / sum(block.asked)),)


def test_times_of_zero_do_not_hang():
    block = Block(0.0)
    assert timed(block, number=1, repeat=2, min_repeat_ms=10, limit_zero_time_iterations=7) == (0.0, 0.0) and block.asked == [1] * 14
    assert timed(Block(0.0), number=1, repeat=1) == (0.0,)

