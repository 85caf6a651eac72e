"""Sums of integer data that leave their type go on at its other end, as NumPy's do, whatever is simplified on the way."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, te, tir

EDGES = [-(2**31), -(2**31) + 1, -3, -1, 0, 1, 2, 5, 2**30, 2**31 - 2, 2**31 - 1]
X, Y = (v.ravel().astype("int32") for v in np.meshgrid(EDGES, EDGES))

V = te.var("v")
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
    "less, one side small": (lambda x, y: (te.max(x, 0) - 5 < y).astype("int32"), lambda x, y: np.maximum(x, 0) - np.int32(5) < y),
    "less, other side small": (lambda x, y: (x < 5 - te.max(y, 0)).astype("int32"), lambda x, y: x < np.int32(5) - np.maximum(y, 0)),
    "less, scaled": (lambda x, y: (te.floormod(x, 7) * 2 + 4 < y).astype("int32"), lambda x, y: x % 7 * 2 + 4 < y),
    "less, of a minimum": (lambda x, y: (te.min(x, 9) + 3 <= te.max(y, -8)).astype("int32"),
                           lambda x, y: np.minimum(x, 9) + 3 <= np.maximum(y, -8)),
    "less a minimum": (lambda x, y: x - te.min(x, 1), lambda x, y: x - np.minimum(x, 1)),
    "and a maximum": (lambda x, y: x + te.max(3 - x, y), lambda x, y: x + np.maximum(np.int32(3) - x, y)),
    "let": (lambda x, y: tir.Let(V, x, te.floordiv(V * 2, 2)), lambda x, y: (x * 2) // 2),
    "let, compared": (lambda x, y: tir.Let(V, x + y, tir.Select(V < V + 1, 1, 0)), lambda x, y: x + y < x + y + np.int32(1)),
    "let in let": (lambda x, y: tir.Let(V, x, tir.Let(V, V + y, V * 2) + V), lambda x, y: (x + y) * 2 + x),
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


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_compilers_do_not_assume_that_stored_sums_fit(target, lanes):
    """They know what a program has just stored: overflow in it would decide the comparison that reads it."""
    x = X[:120]
    a = te.placeholder(x.shape, "int32", name="a")
    for sum_, then, want in [
        (lambda v: v + 1, lambda b, v: (b > v).astype("int32"), x + np.int32(1) > x),
        (lambda v: v - 1, lambda b, v: (b < v).astype("int32"), x - np.int32(1) < x),
        (lambda v: v * 2, lambda b, v: te.floordiv(b, 2), (x * np.int32(2)) // 2),
        (lambda v: v + v, lambda b, v: b.astype("int64"), (x + x).astype("int64")),
    ]:
        b = te.compute(x.shape, lambda i, f=sum_: f(a[i]), name="b")
        c = te.compute(x.shape, lambda i, f=then: f(b[i], a[i]), name="c")  # noqa: B023 - used at once
        s = te.create_schedule(c.op)
        outer, inner = s[c].split(c.op.axis[0], lanes)
        s[b].compute_at(s[c], outer if lanes > 1 else inner)
        if target == "opencl":
            s[c].bind(outer, te.thread_axis("blockIdx.x"))
        elif lanes > 1:
            s[b].vectorize(s[b].op.axis[0])
        device = ns.device(target, 0)
        arrays = ns.nd.array(x, device), ns.nd.array(np.empty(x.shape, c.dtype), device)
        ns.build(s, [a, c], target)(*arrays)
        assert np.array_equal(arrays[1].numpy(), want)


def test_a_let_is_inlined_into_itself():
    a = te.placeholder((16,), "int32", name="a")
    b = te.compute((16,), lambda i: tir.Let(V, a[i], V * V + V), name="b")
    c = te.compute((16,), lambda i: tir.Let(V, b[te.max(te.min(b[i], 15), 0)], V * V + V + b[i]), name="c")
    s = te.create_schedule(c.op)
    s[b].compute_inline()
    x = np.arange(-8, 8).astype("int32")
    out = ns.nd.array(np.empty_like(x))
    ns.build(s, [a, c], "llvm")(ns.nd.array(x), out)
    y = x * x + x
    z = y[np.clip(y, 0, 15)]
    assert np.array_equal(out.numpy(), z * z + z + y)


def test_the_ends_of_64_bits_are_numbers():
    """Bounds stand for infinity there."""
    top = 2**63 - 1
    x = np.array([-top - 1, -top, -5, 5, top - 1, top], "int64")
    a = te.placeholder(x.shape, "int64", name="a")
    for body, want in [
        (lambda v: te.if_then_else(v < 0, te.max(v, tir.const(-top, "int64")), 7), np.where(x < 0, np.maximum(x, -top), 7)),
        (lambda v: te.if_then_else(v > 0, te.min(v, tir.const(top - 1, "int64")), 7), np.where(x > 0, np.minimum(x, top - 1), 7)),
    ]:
        c = te.compute(x.shape, lambda i, f=body: f(a[i]), name="c")
        out = ns.nd.array(np.empty_like(x))
        ns.build(te.create_schedule(c.op), [a, c], "llvm")(ns.nd.array(x), out)
        assert np.array_equal(out.numpy(), want)
