"""Vector statements under a condition that is one for all lanes: the sides may be elements in memory, results of operations,
repeated numbers, calls, and conditions again."""

import itertools

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te

SIDES = {
    "element": (lambda a, b: a, lambda a, b: a),
    "operation": (lambda a, b: a * b + a, lambda a, b: a * b + a),
    "number": (lambda a, b: te.const(3, a.dtype), lambda a, b: np.full_like(a, 3)),
    "call": (lambda a, b: te.max(a, b), np.maximum),
    "cast": (lambda a, b: b.astype("int32").astype(b.dtype), lambda a, b: np.trunc(b).astype(b.dtype)),
}


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_sides_of_a_condition(dtype):
    """One program of all pairs, a row each; every second row takes the other side."""
    pairs = list(itertools.product(SIDES, SIDES))
    n, rng = len(pairs), np.random.default_rng(0)
    a, b = (te.placeholder((n, 2, 16), dtype, name=k) for k in "AB")
    outs, want = [], []
    x, y = (rng.integers(-9, 10, (n, 2, 16)).astype(dtype) for _ in "AB")
    for k, (p, q) in enumerate(pairs):

        def body(i, j, k=k, p=p, q=q):
            u, v = a[k, i, j], b[k, i, j]
            return te.if_then_else(i > 0, SIDES[p][0](u, v), te.if_then_else(i < 0, v, SIDES[q][0](u, v)))

        outs.append(te.compute((2, 16), body, name=f"C{k}"))
        want.append(np.stack([SIDES[q][1](x[k, 0], y[k, 0]), SIDES[p][1](x[k, 1], y[k, 1])]))
    s = te.create_schedule([c.op for c in outs])
    for c in outs:
        s[c].vectorize(c.op.axis[1])
    got = [ns.nd.empty((2, 16), dtype) for _ in outs]
    ns.build(s, [a, b, *outs], "llvm")(ns.nd.array(x), ns.nd.array(y), *got)
    for g, w, pair in zip(got, want, pairs):
        np.testing.assert_array_equal(g.numpy(), w, err_msg=str(pair))
