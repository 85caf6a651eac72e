"""Sums of integer data that leave their type go on at its other end, as NumPy's do, whatever is simplified on the way."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, te, tir

EDGES = [-(2**31), -(2**31) + 1, -3, -1, 0, 1, 2, 5, 2**30, 2**31 - 2, 2**31 - 1]
X, Y = (v.ravel().astype("int32") for v in np.meshgrid(EDGES, EDGES))

CASES = {
    "cast": (lambda x, y: (x + y).astype("int64"), lambda x, y: (x + y).astype("int64")),
    "cast of a product": (lambda x, y: (x * y + 1).astype("int64"), lambda x, y: (x * y + 1).astype("int64")),
    "floordiv": (lambda x, y: te.floordiv(x * 2 + 2, 2), lambda x, y: (x * 2 + 2) // 2),
    "floormod": (lambda x, y: te.floormod(x * 3 + y * 6, 3), lambda x, y: (x * 3 + y * 6) % 3),
    "truncdiv": (lambda x, y: te.truncdiv(te.max(x, 0) + 1, 2), lambda x, y: np.trunc((np.maximum(x, 0) + np.int32(1)) / 2)),
    "less": (lambda x, y: (x < x + 1).astype("int32"), lambda x, y: x < x + np.int32(1)),
    "less or equal": (lambda x, y: (x + 1 <= y + 2).astype("int32"), lambda x, y: x + np.int32(1) <= y + np.int32(2)),
    "equal": (lambda x, y: te.if_then_else(x * 2 == y * 2, 1, 0), lambda x, y: x * 2 == y * 2),
    "max": (lambda x, y: te.max(x + 1, y + 1), lambda x, y: np.maximum(x + np.int32(1), y + np.int32(1))),
    "min": (lambda x, y: te.min(x * 2, x), lambda x, y: np.minimum(x * 2, x)),
    "square": (lambda x, y: tir.Select(x * x + y * y >= 0, 1, 0), lambda x, y: x * x + y * y >= 0),
    "known": (lambda x, y: te.if_then_else(x + 1 > y, te.if_then_else(x >= y, 1, 2), 3),
              lambda x, y: np.where(x + np.int32(1) > y, np.where(x >= y, 1, 2), 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sums_of_data_wrap(name):
    made, wanted = CASES[name]
    x, y = (te.placeholder(X.shape, "int32", name=n) for n in "xy")
    z = te.compute(X.shape, lambda i: made(x[i], y[i]), name="z")
    with np.errstate(over="ignore"):
        want = wanted(X, Y).astype(z.dtype)
    got = np.empty(X.shape, z.dtype)
    _core.interp_dag(_core.ComputeDAG([x, y, z]), [X.copy(), Y.copy(), got])
    assert np.array_equal(got, want), "interpreted"
    device = [ns.nd.array(v) for v in (X, Y, np.empty_like(got))]
    ns.build(te.create_schedule(z.op), [x, y, z], "llvm")(*device)
    assert np.array_equal(device[2].numpy(), want), "compiled"
