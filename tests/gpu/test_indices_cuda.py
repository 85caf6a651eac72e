"""Indices out of range on NVIDIA GPUs: told where results are read, also of runs that replay a graph, once, and for the run alone."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import relay
from nestsmith.contrib import graph_executor

pytestmark = pytest.mark.skipif(not ns.cuda(0).exist, reason="no CUDA device: " + ns.cuda(0).why_not)


def test_indices_out_of_range():
    x, i = relay.var("x", shape=(33, 64)), relay.var("i", shape=(16,), dtype="int64")
    rows = relay.gather_nd(x, relay.expand_dims(i, 0))
    more = relay.take(relay.exp(x), i, 0, mode="fast")
    lib = relay.build(ns.IRModule.from_expr(relay.Function([x, i], relay.Tuple([rows, more]))), "cuda")
    net = graph_executor.GraphModule(lib["default"](ns.cuda(0)))
    data, good = np.random.default_rng(0).standard_normal((33, 64)).astype("float32"), np.arange(16)
    for bad in (33, -1, 10**12, 2**32 + 1, -(2**63)):
        for _ in range(3):  # the second run is captured
            net.run(x=data, i=good)
            np.testing.assert_array_equal(net.get_output(0).numpy(), data[good])
        at = good.copy()
        at[7] = bad
        with pytest.raises(RuntimeError, match=f"index {bad} is out of range for axis 0"):
            net.run(x=data, i=at)
            net.get_output(0).numpy()
