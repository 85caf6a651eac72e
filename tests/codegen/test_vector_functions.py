"""Functions on GNU C vectors against double precision: units in the last place, and what is no number."""

import numpy as np
import pytest
import torch

import nestsmith as ns
from nestsmith import te

FUNCTIONS = {"exp": te.exp, "erf": te.erf, "tanh": te.tanh, "log1p": te.log1p, "expm1": te.expm1}
LEAST = np.float32(np.finfo("float32").tiny)


def values():
    rng = np.random.default_rng(0)
    n = 1 << 16
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 88.72, 88.73, -87.4, -103.9, -104.1, 0.625, -0.625, 0.927734375, 4.1]
    magnitudes = 10.0 ** rng.uniform(-40, 3, n) * rng.choice([-1, 1], n)
    turns = np.linspace(0.85, 1.15, n)  # where erf's two polynomials meet and the further one is least exact
    return np.concatenate([np.linspace(-110, 95, n), rng.normal(size=n), magnitudes, special, turns]).astype("float32")


@pytest.mark.parametrize("marked", [True, False], ids=["vector loop", "plain loop"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_two_units_of_the_last_place(name, lanes, marked):
    x = values()
    a = te.placeholder(x.shape, name="a")
    b = te.compute(x.shape, lambda i: FUNCTIONS[name](a[i]), name="b")
    s = te.create_schedule(b.op)
    inner = s[b].split(b.op.axis[0], factor=lanes)[1]
    if marked:
        s[b].vectorize(inner)
    made = ns.build(s, [a, b], "llvm")
    assert f"ns_{name}_f32x" in made.get_source()
    out = ns.nd.array(np.zeros_like(x))
    made(ns.nd.array(x), out)
    got, exact = out.numpy(), getattr(torch, name)(torch.tensor(x.astype("float64"))).numpy()
    want = exact.astype("float32")
    finite = np.isfinite(want)
    assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
    assert np.array_equal(np.signbit(got[finite]), np.signbit(want[finite]))
    unit = np.spacing(np.maximum(np.abs(want[finite]), LEAST)).astype("float64")
    assert (np.abs(got[finite].astype("float64") - exact[finite]) / unit).max() < 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_aggressive_arithmetic_keeps_them(name):
    """Sums may be taken apart: numbers that are added only to round must not vanish."""
    x = np.linspace(-0.9 if name == "log1p" else -80, 80, 1 << 14).astype("float32")
    a = te.placeholder(x.shape, name="a")
    b = te.compute(x.shape, lambda i: FUNCTIONS[name](a[i]), name="b")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].split(b.op.axis[0], factor=8)[1])
    out = ns.nd.array(np.zeros_like(x))
    ns.build(s, [a, b], "llvm -fast_math=aggressive")(ns.nd.array(x), out)
    exact = getattr(torch, name)(torch.tensor(x.astype("float64"))).numpy()
    size = np.abs(exact) if name not in ("log1p", "expm1") else np.maximum(np.abs(exact), 1)  # what is small is a difference there
    assert (np.abs(out.numpy() - exact) / size).max() < 1e-5


def test_aggressive_programs_leave_the_processor_as_it_was():
    """Whoever loads one still computes with small numbers, as does everybody in his thread; the program does, too."""
    x = np.full(64, 2.0**-140, "float32")
    a = te.placeholder(x.shape, name="a")
    b = te.compute(x.shape, lambda i: a[i] * 2.0, name="b")
    out = ns.nd.array(np.zeros_like(x))
    ns.build(te.create_schedule(b.op), [a, b], "llvm -fast_math=aggressive")(ns.nd.array(x), out)
    for got in (out.numpy(), x * np.float32(2)):  # by bits: a flushing processor compares small numbers as zeros
        assert (got.view("uint32") == 1 << 10).all()
