"""Long sums of float32 are added up in blocks: exact on small integers after every pass, and close to float64 for others."""

import functools

import numpy as np
import pytest

import nestsmith as ns
from helpers import check_passes
from nestsmith import _core, te, tir, topi

CPU = _core.Target("llvm", (4, 64, 64, 0, 0, 0, 0, 0))
CUDA = _core.Target("cuda", sm=90)
MALI = _core.Target("opencl", (-1, 16, 64, 32768, 2147483647, 256, 1, 1), mali=True)
TARGETS = {"llvm": CPU, "cuda": CUDA, "opencl": MALI}
EPS = 2.0**-23


def summed(*shape, axis=None, dtype="float32"):
    a = te.placeholder(shape, dtype, name="A")
    return [a, topi.sum(a if dtype == "float32" else topi.cast(a, "float32"), axis=axis)]


def squares(n, m):
    a, k = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), name="k")
    s = te.compute((n,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="S")
    return [a, te.compute((n,), lambda i: s[i] + tir.const(1, "float32"), name="R")]


def two_sums(n, m):
    """One reducer with two sums."""
    a, k = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), name="k")
    both = te.comm_reducer(lambda x, y: (x[0] + y[0], x[1] + y[1]),
                           lambda t, u: (tir.const(0, t), tir.const(0, u)), name="both")  # fmt: skip
    return [a, *te.compute((n,), lambda i: both((a[i, k], a[i, k] * a[i, k]), axis=k), name="S")]


def windows(n, m):
    """Loops whose extents depend on where the sum is: n windows of adaptive size over m columns."""
    a = te.placeholder((m,), name="A")

    def window(i):
        k = te.reduce_axis((0, tir.floordiv((i + 1) * m, n) - tir.floordiv(i * m, n)), name="k")
        return te.sum(a[tir.floordiv(i * m, n) + k], axis=k)

    return [a, te.compute((n,), window, name="S")]


def product(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def weighted(n, m):
    """A sum of products whose factors serve one accumulator each, as in a loss with weights."""
    a, b = te.placeholder((n, m), name="A"), te.placeholder((n, m), name="B")
    k = te.reduce_axis((0, m), name="k")
    return [a, b, te.compute((n,), lambda i: te.sum(a[i, k] * b[i, k], axis=k), name="S")]


SUMS = {
    "all": functools.partial(summed, 4999),
    "rows": functools.partial(summed, 3, 1500, axis=1),
    "columns": functools.partial(summed, 1300, 5, axis=0),
    "channels": functools.partial(summed, 40, 3, 50, axis=(0, 2)),
    "half": functools.partial(summed, 3, 2048, axis=1, dtype="float16"),
    "squares": functools.partial(squares, 4, 1030),
    "two": functools.partial(two_sums, 3, 1100),
    "weighted": functools.partial(weighted, 2, 1100),
    "rests": functools.partial(summed, 2, 30, 60, axis=(1, 2)),
    "windows": functools.partial(windows, 3, 2000),
}


def integers(tensors):
    rng = np.random.default_rng(3)
    return [rng.integers(-4, 5, [int(x) for x in t.shape]).astype(t.dtype) for t in tensors]


def drawn(dag, target, n, seed=11):
    """n drawn schedules, behind the default one on CPUs."""
    states = _core.Policy(dag, target, {}, seed, 1).sample()
    return [_core.State(dag)] * (target is CPU) + states[:: max(1, len(states) // n)][:n]


def is_cut(state, target):
    text = _core.lower_text(state, "kernels", target)
    return "block_sum" in text or "lane_sum" in text


@pytest.mark.parametrize("target", list(TARGETS))
def test_blocks_are_exact_after_every_pass(target):
    cut = 0
    for case in SUMS.values():
        dag = _core.ComputeDAG(case())
        for state in drawn(dag, TARGETS[target], 2):
            assert check_passes(state, TARGETS[target], integers(dag.tensors)) == [], state.steps()
            cut += is_cut(state, target)
    assert cut >= 3


@pytest.mark.full
@pytest.mark.parametrize("target", list(TARGETS))
@pytest.mark.parametrize("case", list(SUMS))
def test_blocks_are_exact_in_many_schedules(case, target):
    dag = _core.ComputeDAG(SUMS[case]())
    for seed in range(4):
        for state in drawn(dag, TARGETS[target], 20, seed):
            assert check_passes(state, TARGETS[target], integers(dag.tensors)) == [], state.steps()


def test_products_have_blocks_beyond_65536_terms():
    for k, cut in ((65536, False), (65600, True)):
        dag = _core.ComputeDAG(product(1, 2, k))
        assert is_cut(_core.State(dag), "llvm") == cut
    got = [x.copy() for x in integers(dag.tensors)]
    assert _core.interp(_core.State(dag), CPU, got, stage="program", max_steps=50_000_000)["findings"] == []
    np.testing.assert_array_equal(got[2], got[0] @ got[1])


def test_weighted_sums_are_no_products():
    """Constant weights, where each addition to one accumulator of float32 rounds to the same side."""
    n = 6480
    a, b, s = weighted(1, n)
    assert is_cut(_core.State(_core.ComputeDAG([a, b, s])), "llvm")
    x, w = np.full((1, n), 1.1, "float32"), np.full((1, n), 0.7, "float32")
    want = (x.astype("float64") * w).sum()
    (got,) = build_and_run(te.create_schedule(s.op), [a, b, s], [x, w])
    assert abs(got[0] - want) <= 4 * EPS * want


def test_mean_of_large_numbers_is_rounded_like_one_division():
    """Rows whose rest behind the last whole vector adds up over many rows: the sum is rounded once, then the quotient."""
    a = te.placeholder((4, 54, 60), name="A")
    m = topi.mean(a, (1, 2))
    x = (1e4 + np.random.default_rng(0).standard_normal((4, 54, 60))).astype("float32")
    (got,) = build_and_run(te.create_schedule(m.op), [a, m], [x])
    assert np.abs(got / x.astype("float64").mean((1, 2)) - 1).max() <= EPS


SHORT = [
    functools.partial(summed, 30, 40, axis=0),
    functools.partial(summed, 64, 7, 7, axis=(1, 2)),
    functools.partial(product, 8, 8, 3072),
]


@pytest.mark.parametrize("target", list(TARGETS))
def test_short_sums_are_as_they_were(target):
    for case in SHORT:
        dag = _core.ComputeDAG(case())
        for state in drawn(dag, TARGETS[target], 3):
            assert not is_cut(state, target) or ".rf" in state.text()  # a product that is made in parts is a sum


def test_other_types_and_reducers_are_as_they_were():
    k = te.reduce_axis((0, 5000), name="k")
    for dtype, reducer in (("float64", te.sum), ("int32", te.sum), ("float16", te.sum), ("float32", te.max)):
        a = te.placeholder((3, 5000), dtype, name="A")
        dag = _core.ComputeDAG([a, te.compute((3,), lambda i: reducer(a[i, k], axis=k), name="S")])  # noqa: B023
        assert not is_cut(_core.State(dag), "llvm")


# ---- schedules by hand ----


def build_and_run(s, args, values):
    f = ns.build(s, args, "llvm")
    out = [ns.nd.array(np.zeros([int(x) for x in t.shape], t.dtype), ns.cpu(0)) for t in args[len(values) :]]
    f(*[ns.nd.array(v, ns.cpu(0)) for v in values], *out)
    return [x.numpy() for x in out]


def split_outside(s, b):
    k, j = s[b].op.reduce_axis[0], s[b].op.axis[0]
    s[b].reorder(k, j)


def split_unevenly(s, b):
    k, j = s[b].op.reduce_axis[0], s[b].op.axis[0]
    ko, ki = s[b].split(k, factor=37)
    jo, ji = s[b].split(j, factor=24)
    s[b].reorder(ko, jo, ki, ji)


def fused(s, b):
    k, j = s[b].op.reduce_axis[0], s[b].op.axis[0]
    s[b].parallel(s[b].split(j, factor=64)[0])
    s[b].unroll(s[b].split(k, factor=4)[1])


def vectors(s, b):
    k, j = s[b].op.reduce_axis[0], s[b].op.axis[0]
    jo, ji = s[b].split(j, factor=16)
    s[b].reorder(jo, k, ji)
    s[b].vectorize(ji)


@pytest.mark.parametrize("rows,columns", [(2100, 3000), (777, 50)])
def test_schedules_by_hand(rows, columns):
    """Loops over terms around loops over accumulators, too many of these for the stack, uneven splits, vectors."""
    x = np.random.default_rng(0).integers(-3, 4, (rows, columns)).astype("float32")
    for schedule in (split_outside, split_unevenly, fused, vectors):
        a, b = summed(rows, columns, axis=0)
        s = te.create_schedule(b.op)
        schedule(s, b)
        np.testing.assert_array_equal(build_and_run(s, [a, b], [x])[0], x.sum(0))


# ---- against float64 ----


def values_of(kind, shape, rng):
    if kind == "ones":
        return np.ones(shape, "float32")
    if kind == "constant":
        return np.full(shape, 1.1, "float32")
    x = rng.random(shape, "float32")
    return x if kind == "uniform" else x - np.float32(0.5)


KINDS = ("ones", "constant", "uniform", "mixed")


def check_errors(build, shape, axis, kinds=KINDS):
    rng = np.random.default_rng(1)
    for kind in kinds:
        x = values_of(kind, shape, rng)
        want, size = x.astype("float64").sum(axis), np.abs(x).astype("float64").sum(axis)
        off = np.abs(build(x).astype("float64") - want)
        assert (off <= 4 * EPS * size).all(), (kind, shape, axis, (off / size / EPS).max())


def by_state(state, dag):
    """A function that runs a state on arrays of float32."""
    args = list(dag.tensors)
    s = te.create_schedule(args[-1].op)
    s, args = ns.auto_scheduler.ComputeDAG(args).apply_steps_from_state(state) if state else (s, args)

    def run(x):
        return build_and_run(s, args, [x])[0]

    return run


def axes_of(n):
    """Shapes of n elements, with axes over which they are added up; few results each."""
    side = 1 << (n.bit_length() - 1) // 2
    return [((n,), None), ((2, n // 2), 1), ((n // 2, 2), 0), ((side, 2, n // side // 2), (0, 2))]


@pytest.mark.parametrize("n", [1 << 16, 1 << 20, pytest.param(1 << 24, marks=pytest.mark.full)])
def test_error_of_default_schedules(n):
    for shape, axis in axes_of(n):
        a, b = summed(*shape, axis=axis)
        f = ns.build(te.create_schedule(b.op), [a, b], "llvm")

        def run(x, f=f, b=b):
            out = ns.nd.array(np.zeros([int(v) for v in b.shape], "float32"), ns.cpu(0))
            f(ns.nd.array(x, ns.cpu(0)), out)
            return out.numpy()

        check_errors(run, shape, axis)
