"""Kernels that are timed alone on the GPU, with other memory in the place of weights: what it must not change."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import relay

pytestmark = pytest.mark.skipif(not ns.cuda(0).exist, reason="no CUDA device: " + ns.cuda(0).why_not)


def network():
    """Rows that an integer weight names, multiplied by a weight that is reshaped first."""
    x, rows, w = relay.var("x", shape=(64, 256)), relay.var("rows", shape=(32,), dtype="int32"), relay.var("w", shape=(128 * 256,))
    y = relay.take(x, rows, axis=0, mode="fast")
    y = relay.nn.relu(relay.nn.dense(y, relay.reshape(w, (128, 256))))
    rng = np.random.default_rng(0)
    params = {"rows": rng.integers(0, 64, 32).astype("int32"), "w": rng.integers(-3, 4, 128 * 256).astype("float32")}
    lib = relay.build(ns.IRModule.from_expr(relay.Function([x, rows, w], y)), target="cuda", params=params)
    data = rng.integers(-3, 4, (64, 256)).astype("float32")
    return lib, data, np.maximum(data[params["rows"]] @ params["w"].reshape(128, 256).T, 0)


def test_values_are_what_they_were():
    lib, data, want = network()
    rt = lib["default"](ns.cuda(0))
    rt.set_input("x", data)
    rt.run()
    assert (rt.get_output(0).numpy() == want).all()
    for _ in range(3):
        assert sum(rt.kernel_seconds(5)[0]) > 0
        assert (rt.get_output(0).numpy() == want).all()
    rt.run()
    assert (rt.get_output(0).numpy() == want).all()


def test_other_memory_between_two_measurements():
    lib, data, want = network()
    for _ in range(3):  # executors of one library, one after the other: their lists of arguments may lie at one address
        rt = lib["default"](ns.cuda(0))
        rt.set_input("x", data)
        for _ in range(3):
            out = ns.nd.array(np.full(want.shape, 7, "float32"), ns.cuda(0))
            rt.set_output_zero_copy(0, out)
            rt.run()
            rt.kernel_seconds(5)
            assert (out.numpy() == want).all()
            rt.set_output_zero_copy(0, None)
        del rt
