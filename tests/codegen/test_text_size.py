"""The text of CPU programs stays small: what the C compiler has to read decides how long a trial takes."""

import re

import numpy as np

import nestsmith as ns
from nestsmith import _core, te, tir, topi
from nestsmith.auto_scheduler import ComputeDAG

ENGINE = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0))


def texts(tensors, count=8):
    """The texts of candidates for a computation."""
    policy = _core.Policy(ComputeDAG(tensors), ENGINE, {}, 1, 1)
    return [_core.candidate_source(state, ENGINE, 2)[0] for state, _ in policy.round(count)]


def conv3x3():
    x = te.placeholder((1, 14, 14, 256), name="x")
    w = te.placeholder((3, 3, 256, 256), name="w")
    return [x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1)]


def test_long_innermost_loops_stay_loops():
    for source in texts(conv3x3()):
        marks = [int(n) for n in re.findall(r"NS_UNROLL\((\d+)\)", source)]
        assert all(n <= 16 for n in marks), marks


def test_headers_are_there_only_if_used():
    assert all("<math.h>" not in s and "<string.h>" not in s for s in texts(conv3x3()))
    x = te.placeholder((64,), name="x")
    assert all("<math.h>" in s for s in texts([x, te.compute((64,), lambda i: te.exp(x[i]), name="y")], 2))


def test_replicated_stores_share_their_indices():
    """Stores that differ in constants of their indices alone name one base."""
    x = te.placeholder((4, 6, 6, 64), name="x")
    r, c = te.reduce_axis((0, 6), "r"), te.reduce_axis((0, 6), "c")
    m = te.compute((6, 6), lambda i, j: tir.Select(i == j, 1.0, tir.Select(i + 1 == j, -2.0, 0.0)), name="m")
    y = te.compute((4, 6, 6, 64), lambda n, i, j, k: te.sum(x[n, r, c, k] * m[r, i] * m[c, j], axis=[r, c]), name="y")
    s = te.create_schedule(y.op)
    s[m].compute_inline()
    n, i, j, k = s[y].op.axis
    for axis in (i, j, *s[y].op.reduce_axis):
        s[y].unroll(axis)
    s[y].reorder(n, k, i, j, *s[y].op.reduce_axis)
    f = ns.build(s, [x, y], "llvm")
    source = f.get_source()
    assert source.count("const int32_t at") >= 1
    longest = max(map(len, re.findall(r"\[[^][]*\]", source)))
    assert longest < 60, longest
    a = np.random.default_rng(0).integers(-3, 4, (4, 6, 6, 64)).astype("float32")
    b = ns.nd.array(np.zeros_like(a))
    f(ns.nd.array(a), b)
    e = np.eye(6, dtype="float32") - 2 * np.eye(6, k=1, dtype="float32")
    assert np.array_equal(b.numpy(), np.einsum("nrck,ri,cj->nijk", a, e, e))
