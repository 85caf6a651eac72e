"""Running sums, products, extremes with their places and logarithms of sums of exponentials: lengths that fill blocks and that do
not, axes whose elements lie apart, ties, infinities and NaN; beside PyTorch."""

import re

import numpy as np
import pytest
import torch

import nestsmith as ns
from nestsmith import IRModule, relay, transform
from nestsmith.contrib import graph_executor

OPENCL = pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL device")
# Several levels; rows; elements of the axis apart from each other by few, and by whole vectors; one block, and less.
SHAPES = [((4101,), 0), ((3, 320), 1), ((2, 53, 3), 1), ((70, 16), -2), ((16, 2), 0), ((5, 1), 1)]
MORE = [((n,), 0) for n in (1, 2, 15, 17, 256, 257, 70001)] + [((300, 24), 0), ((2, 300, 5), 1), ((2, 3, 140), 2), ((1, 37, 1), 1), ((3, 130, 8), 1)]
rng = np.random.default_rng(5)


def shifted(t, axis, first):
    t = t.roll(1, axis)
    t.select(axis, 0).fill_(first)
    return t


def scans(v, axis):
    """Of an expression: {name: (networks' results, PyTorch's of the tensor)}; sums and products of PyTorch in float64."""
    sums, products = lambda t: t.double().cumsum(axis), lambda t: t.double().cumprod(axis)
    return {
        "sum": ([relay.cumsum(v, axis)], lambda t: [sums(t)]),
        "sum without": ([relay.cumsum(v, axis, exclusive=True)], lambda t: [shifted(sums(t), axis, 0)]),
        "product": ([relay.cumprod(v, axis)], lambda t: [products(t)]),
        "product without": ([relay.cumprod(v, axis, exclusive=True)], lambda t: [shifted(products(t), axis, 1)]),
        "most": (list(relay.cummax(v, axis, "both")), lambda t: torch.cummax(t, axis)),
        "least": (list(relay.cummin(v, axis, "both")), lambda t: torch.cummin(t, axis)),
        "log": ([relay.logcumsumexp(v, axis)], lambda t: [torch.logcumsumexp(t, axis)]),
    }


def check(shape, axis, target, tolerance):
    near, ties = relay.var("near", shape=shape), relay.var("ties", shape=shape)
    of_near, of_ties = scans(near, axis), scans(ties, axis)
    chosen = [of_near[k] for k in ("sum", "sum without", "product", "product without", "log")]
    chosen += [of_ties[k] for k in ("most", "least", "log")]
    results = [r for mine, _ in chosen for r in mine]
    with transform.PassContext(opt_level=3):
        lib = relay.build(IRModule.from_expr(relay.Function([near, ties], relay.Tuple(results))), target)
    m = graph_executor.GraphModule(lib["default"](ns.device(target, 0)))
    x = (1 + 0.05 * rng.standard_normal(shape)).astype("float32")
    y = rng.integers(-4, 5, shape).astype("float32")
    y[rng.random(shape) < 0.1] = -np.inf
    for bad in (0, 0.003, 0.03):
        y[rng.random(shape) < bad] = np.nan if bad < 0.01 else np.inf
        m.run(near=x, ties=y)
        want = [w for k, (_, theirs) in enumerate(chosen) for w in theirs(torch.from_numpy(x if k < 5 else y))]
        for k, w in enumerate(want):
            np.testing.assert_allclose(m.get_output(k).numpy(), w.numpy(), tolerance, 1e-6, err_msg=f"{shape}, result {k}")


@pytest.mark.parametrize("shape, axis", SHAPES, ids=str)
def test_on_a_cpu(shape, axis):
    check(shape, axis, "llvm", 3e-6)


@pytest.mark.full
@pytest.mark.parametrize("shape, axis", MORE, ids=str)
def test_more_on_a_cpu(shape, axis):
    check(shape, axis, "llvm", 3e-6)


@OPENCL
@pytest.mark.parametrize("shape, axis", [pytest.param(*s, marks=[pytest.mark.full] * (k != 2)) for k, s in enumerate(SHAPES)], ids=str)
def test_on_opencl(shape, axis):
    check(shape, axis, "opencl", 3e-5)


def run(module, *inputs):
    return [np.asarray(g) for g in torch.utils._pytree.tree_leaves(ns.compile(module.eval(), inputs, verbose=0)(*inputs))]


class Sums(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(0), x.cumprod(0)


def test_sums_and_products_pass_beyond_float32():
    """As PyTorch's on CPUs, which are formed in float64: what comes back into the range is right."""
    x = torch.tensor([1e-30, 1e-30, 1e30, 1e30, 3e38, 3e38, -3e38, -3e38] * 5)
    for got, want in zip(run(Sums(), x), Sums()(x), strict=True):
        np.testing.assert_allclose(got, want.numpy(), 1e-6)


@pytest.mark.parametrize("n", [1 << 20, pytest.param(1 << 24, marks=pytest.mark.full)])
def test_error_of_long_sums(n):
    """At most twice that of PyTorch."""
    f = ns.compile(Sums().eval(), (torch.ones(n),), verbose=0)
    for x in (np.full(n, 1.1, "float32"), rng.random(n, "float32"), rng.random(n, "float32") - np.float32(0.5)):
        want, theirs = np.cumsum(x, dtype="float64"), torch.from_numpy(x).cumsum(0).numpy()
        got = np.asarray(f(torch.from_numpy(x))[0])
        assert np.abs(got - want).max() <= 2 * np.abs(theirs - want).max()


def test_long_scans_are_vectors_in_parallel():
    """No loop over many elements is left to one thread, none but moves and totals of blocks to the compiler."""
    x = relay.var("x", shape=(1 << 20,))
    results = [r for mine, _ in scans(x, 0).values() for r in mine]
    lib = relay.build(IRModule.from_expr(relay.Function([x], relay.Tuple(results))), "llvm")
    text = lib.lib.get_source()
    loops = [int(n) for n in re.findall(r"; \w+ < (\d+); \+\+", text)]
    assert max(loops) < 1 << 13 and not re.search(r"^ *NS_IVDEP$", text, re.M)
