"""Expressions whose parts are shared: written out they are huge, and no walk may write them out."""

import time

import numpy as np
import pytest
from search_cases import CPU2, CUDA, policy

import nestsmith as ns
from nestsmith import _core, relay, te
from nestsmith.contrib import graph_executor

FEW = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 1, "sample_init_min_population": 8}


def doubled(x, times):
    for _ in range(times):
        x = te.indexmod(x + x, 7919)
    return x


@pytest.mark.parametrize("target", [CPU2, CUDA])
def test_index(target):
    a, b = te.placeholder((7919, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[doubled(i, 17), k] * b[k, j], axis=[k]), name="C")
    begin = time.process_time()
    p = policy([a, b, c], target, **FEW)
    states = p.round(4)
    assert states and p.estimate(states[0][0]) > 0
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("target", [CPU2, CUDA])
def test_chain_of_stages(target):
    """Each reads the one before three times: 3 ** 60 operations if all were inlined."""
    x = a = te.placeholder((16, 16), name="A")
    for n in range(60):
        x = te.compute((16, 16), lambda i, j: x[i, j] * x[i, j] + x[i, j], name=f"C{n}")
    begin = time.process_time()
    state, _ = policy([a, x], target, **FEW).round(4)[0]
    names, _ = _core.features(state, target)
    source, _ = _core.candidate_source(state, target)
    assert len(names) and len(source) < 4 << 20
    assert time.process_time() - begin < 10


def test_chain_in_a_network():
    v = x = relay.var("x", shape=(4, 16))
    for _ in range(40):
        v = relay.multiply(v, relay.sigmoid(v))
    lib = relay.build(ns.IRModule.from_expr(relay.Function([x], v)), "llvm")
    m = graph_executor.GraphModule(lib["default"](ns.cpu(0)))
    want = data = np.linspace(0, 9, 64, dtype="float32").reshape(4, 16)
    m.set_input("x", data)
    m.run()
    for _ in range(40):
        want = want / (1 + np.exp(-want.astype("float64")))
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-4, atol=1e-9)


def test_what_is_too_large_is_refused_at_once():
    a = te.placeholder((64, 64), name="A")

    def value(i, j):
        x = a[i, j]
        for _ in range(60):
            x = x + x * x
        return x

    with pytest.raises(ValueError, match="compute 'C': written out.*stages of their own"):
        te.compute((64, 64), value, name="C")
    i = te.var("i")
    with pytest.raises(ValueError, match="parts of it are shared"):
        str(doubled(i, 60))
    x = a
    for n in range(20):
        x = te.compute((64, 64), lambda i, j: x[i, j] * x[i, j] + x[i, j], name=f"C{n}")
    s = te.create_schedule(x.op)
    t = x
    while t.op.input_tensors:
        t = t.op.input_tensors[0]
        if t.op.input_tensors:
            s[t].compute_inline()
    with pytest.raises(ValueError, match="inlining 'C"):
        ns.build(s, [a, x], "llvm")
