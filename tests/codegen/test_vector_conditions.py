"""Vector statements under a condition that is one for all lanes: the sides may be elements in memory, results of operations,
repeated numbers, calls, and conditions again."""

import itertools

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te, tir

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


# (condition of row i, lane j and two numbers, what NumPy makes of it): all have a place of lanes in them
BY_PLACE = {
    "up to a row": lambda i, j, u, v: j <= i,
    "both ends": lambda i, j, u, v: (j > i, j < 11),
    "a step of three": lambda i, j, u, v: 3 * j - 7 >= i,
    "one lane": lambda i, j, u, v: j == 5,
    "all but one": lambda i, j, u, v: j != i + 3,
}


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int64"])
def test_choices_by_the_place_of_a_lane(dtype):
    """Both sides are computed and a mask chooses: also beside choices by data, and within one that is the same for all lanes."""
    rows, rng = 6, np.random.default_rng(0)
    a, b = (te.placeholder((rows, 16), dtype, name=k) for k in "AB")
    x, y = (rng.integers(-3, 4, (rows, 16)).astype(dtype) for _ in "AB")
    if dtype.startswith("float"):
        x[1, ::3] = np.nan
    i, j = np.mgrid[:rows, :16]
    outs, want = [], []
    for k, rule in enumerate(BY_PLACE.values()):

        def body(i, j, rule=rule):
            u, v, test = a[i, j], b[i, j], rule(i, j, None, None)
            test = te.all(*test) if isinstance(test, tuple) else test
            chosen = tir.Select(test, u * v, v - tir.Select(tir.any(u < v, u != u), v, u))
            return te.if_then_else(i < 4, chosen, tir.Select(tir.Not(test), a[i - 1, j] + u, te.const(7, dtype)))

        outs.append(te.compute((rows, 16), body, name=f"C{k}"))
        test = rule(i, j, None, None)
        test = np.logical_and(*test) if isinstance(test, tuple) else test
        chosen = np.where(test, x * y, y - np.where((x < y) | (x != x), y, x))
        want.append(np.where(i < 4, chosen, np.where(~test, np.roll(x, 1, 0) + x, 7)).astype(dtype))
    s = te.create_schedule([c.op for c in outs])
    for c in outs:
        s[c].vectorize(c.op.axis[1])
    got = [ns.nd.empty((rows, 16), dtype) for _ in outs]
    f = ns.build(s, [a, b, *outs], "llvm")
    assert f.get_source().count("ns_choose_") > 3 * len(outs)
    f(ns.nd.array(x), ns.nd.array(y), *got)
    for g, w, name in zip(got, want, BY_PLACE):
        np.testing.assert_array_equal(g.numpy(), w, err_msg=name)


def test_vectors_up_to_an_end():
    """A width that does not divide an axis: whole vectors, and a loop for what is left; rows alone, and several fused."""
    rng = np.random.default_rng(0)
    for shape in ((3, 1003), (5, 33), (1, 17)):
        a = te.placeholder(shape, name="A")
        c = te.compute(shape, lambda i, j: tir.Select(j % 16 >= 3, a[i, j] * a[i, te.min(j // 16 * 16 + 5, shape[1] - 1)], a[i, 0]), name="C")
        x = rng.standard_normal(shape).astype("float32")
        j = np.arange(shape[1])
        want = np.where(j % 16 >= 3, x * x[:, np.minimum(j // 16 * 16 + 5, shape[1] - 1)], x[:, :1])
        for fused in (False, True):
            s = te.create_schedule(c.op)
            outer, inner = s[c].split(c.op.axis[1], 16)
            s[c].vectorize(inner)
            s[c].parallel(s[c].fuse(c.op.axis[0], outer) if fused else outer)
            f, got = ns.build(s, [a, c], "llvm"), ns.nd.empty(shape)
            f(ns.nd.array(x), got)
            np.testing.assert_array_equal(got.numpy(), want)
            assert "ns_choose_" in f.get_source()


def test_what_a_choice_guards_stays_guarded():
    """What a choice by place keeps lanes from reading, checking or dividing by is left alone: row 0 chooses none of it."""
    a, n = te.placeholder((16,), name="A"), te.placeholder((2,), "int32", name="N")
    bodies = [
        lambda i, j: te.if_then_else(j >= 3, a[j - 3], te.const(1, "float32")),
        lambda i, j: te.if_then_else(j < i, a[n[i]], a[j]),
        lambda i, j: te.if_then_else(j < i, (8 // n[i]).astype("float32"), a[j]),
    ]
    outs = [te.compute((2, 16), body, name=f"C{k}") for k, body in enumerate(bodies)]
    s = te.create_schedule([c.op for c in outs])
    for c in outs:
        s[c].vectorize(c.op.axis[1])
    f, x, got = ns.build(s, [a, n, *outs], "llvm"), np.arange(16, dtype="float32"), [ns.nd.empty((2, 16)) for _ in outs]
    for number in (99, 0):
        f(ns.nd.array(x), ns.nd.array(np.array([number, 2], "int32")), *got)
    assert "ns_choose_" not in f.get_source()
    rows = np.stack([x, x])
    for c, first in zip(got, (None, 2, 4)):
        want = np.where(np.arange(16) >= 3, np.roll(rows, 3, 1), 1) if first is None else rows.copy()
        if first is not None:
            want[1, 0] = first
        np.testing.assert_array_equal(c.numpy(), want)
