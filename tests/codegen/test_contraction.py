"""Products and sums that a user wrote are rounded one by one, as NumPy and PyTorch do it; what reductions add up may be fused."""

import shutil

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te

N = 64
F = {"float32": np.float32, "float64": np.float64}
CPU, CL = "llvm", "opencl"


def _exact_zero(m, a, b, c, d, p):
    return m.sqrt(a * b - c * d)


# name -> f(te or numpy, a, b, c, d, p), where a*b == c*d by other names, and p == a*b as it is rounded
FAMILIES = {
    "sqrt of a difference": lambda m, a, b, c, d, p: m.sqrt(a * b - c * d),
    "difference to the rounded product": lambda m, a, b, c, d, p: a * b - p,
    "the product behind": lambda m, a, b, c, d, p: p - a * b,
    "sum": lambda m, a, b, c, d, p: a * b + c,
    "floor": lambda m, a, b, c, d, p: m.floor(a * a.dtype.type(3.3) - a.dtype.type(33.0)) if m is np else m.floor(a * 3.3 - 33.0),
    "real part of a complex product": lambda m, a, b, c, d, p: a * c - b * d,
    "imaginary part": lambda m, a, b, c, d, p: a * d + b * c,
    "discriminant": lambda m, a, b, c, d, p: m.sqrt(b * b - a * 4 * c * 0.25),
    "root": lambda m, a, b, c, d, p: (m.sqrt(p * p - a * b * c * d) - b) / (a + a),
    "lerp": lambda m, a, b, c, d, p: a + (b - a) * c,
    "weighted": lambda m, a, b, c, d, p: a * c + b * (1 - c),
    "distance": lambda m, a, b, c, d, p: m.sqrt((a - b) * (a - b) + (c - d) * (c - d)),
    "addcmul": lambda m, a, b, c, d, p: a + b * c * 0.5,
    "horner": lambda m, a, b, c, d, p: ((a * b + c) * b + d) * b + a,
    "doubled": lambda m, a, b, c, d, p: a * 2 - a,
    "quarter": lambda m, a, b, c, d, p: a / 4 + b,
    "scale and shift": lambda m, a, b, c, d, p: (a - b) * c + d,
    "determinant": lambda m, a, b, c, d, p: a * (b * d - c * p) - b * (a * d - c * c),
    "product of differences": lambda m, a, b, c, d, p: (a * b - c) * (d - a * c),
    "difference of squares": lambda m, a, b, c, d, p: a * a - b * b,
    "larger of two": lambda m, a, b, c, d, p: (te.max(a * b, c * c) if m is te else np.maximum(a * b, c * c)) - p,
    "choice": lambda m, a, b, c, d, p: (te.if_then_else(a > b, a * b, c * c) if m is te else np.where(a > b, a * b, c * c)) - p,
    "magnitude": lambda m, a, b, c, d, p: abs(a * a) - b if m is np else te.abs(a * a) - b,
}


def _data(dtype, seed=3):
    """Equal products by other names: c is the double of a, d half of b. Some ends of the range."""
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(0.5, 10, N).astype(dtype) for _ in range(2))
    a[:8] = 10.0
    info = np.finfo(dtype)
    a[8:12] = [info.max, info.tiny, info.smallest_subnormal, 3 * info.smallest_subnormal]
    b[8:12] = [0.75, 0.5, info.smallest_subnormal, 1.0]
    with np.errstate(all="ignore"):
        return [a, b, a + a, b / F[dtype](2), a * b]


def _bits(x):
    return x.view(f"u{x.dtype.itemsize}")


def _same(got, want, name):
    nan = np.isnan(want)
    assert (np.isnan(got) == nan).all(), name
    assert (_bits(got)[~nan] == _bits(want)[~nan]).all(), (name, got[got != want][:4], want[got != want][:4])


def _program(dtype, target, families, run=True):
    """One program with every family: in plain loops and in vectors on a CPU, in threads on a GPU."""
    ins = [te.placeholder((N,), dtype, name=n) for n in "abcdp"]
    cpu = target.startswith("llvm")
    outs = [
        te.compute((N,), lambda i, f=f: f(te, *(t[i] for t in ins)), name=f"o{k}_{way}")
        for k, f in enumerate(families.values())
        for way in range(1 + cpu)
    ]
    s = te.create_schedule([o.op for o in outs])
    for k, o in enumerate(outs):
        if not cpu:
            outer, inner = s[o].split(o.op.axis[0], factor=16)
            s[o].bind(outer, te.thread_axis("blockIdx.x"))
            s[o].bind(inner, te.thread_axis("threadIdx.x"))
        elif k % 2:
            s[o].vectorize(s[o].split(o.op.axis[0], factor=8)[1])
    return ns.build(s, [*ins, *outs], target), len(outs)


def _check(dtype, target, families):
    made, n = _program(dtype, target, families)
    data = _data(dtype)
    dev = ns.device("cpu" if target.startswith("llvm") else target.split()[0], 0)
    outs = [ns.nd.array(np.zeros(N, dtype), dev) for _ in range(n)]
    made(*(ns.nd.array(x, dev) for x in data), *outs)
    ways = n // len(families)
    with np.errstate(all="ignore"):
        for k, (name, f) in enumerate(families.items()):
            for way in range(ways):
                _same(outs[k * ways + way].numpy(), f(np, *data).astype(dtype), (name, way))
    return made


@pytest.mark.parametrize("dtype", F)
@pytest.mark.parametrize("target", [CPU, CL])
def test_families_to_the_bit(target, dtype):
    if target == CL and not ns.device(CL, 0).exist:
        pytest.skip("no OpenCL device")
    _check(dtype, target, FAMILIES)


def test_families_with_clang(monkeypatch):
    if not shutil.which("clang"):
        pytest.skip("clang is not installed")
    monkeypatch.setenv("CC", "clang")
    _check("float32", CPU, FAMILIES)
