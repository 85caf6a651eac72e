"""Products and sums that a user wrote are rounded one by one, as NumPy and PyTorch do it; what reductions add up may be fused."""

import shutil

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te

N = 64
F = {"float32": np.float32, "float64": np.float64}
TARGETS = CPU, CL, CUDA = "llvm", "opencl", "cuda"


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

ROOTS = "sqrt of a difference", "discriminant", "root", "distance"


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


def _same(got, want, name, root=False):
    """Equal bits; root: of a square root, which OpenCL wants within 3 ulp."""
    nan = np.isnan(want)
    assert (np.isnan(got) == nan).all(), name
    if root:
        np.testing.assert_allclose(got[~nan], want[~nan], rtol=4 * np.finfo(want.dtype).eps, err_msg=str(name))
        return
    assert (_bits(got)[~nan] == _bits(want)[~nan]).all(), (name, got[got != want][:4], want[got != want][:4])


def _program(dtype, target, families):
    """One program with every family: in plain loops and in vectors on a CPU, in threads on a GPU."""
    ins = [te.placeholder((N,), dtype, name=n) for n in "abcdp"]
    cpu = target == CPU
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
    dev = _device(target)
    made, n = _program(dtype, target, families)
    data = _data(dtype)
    outs = [ns.nd.array(np.zeros(N, dtype), dev) for _ in range(n)]
    made(*(ns.nd.array(x, dev) for x in data), *outs)
    ways = n // len(families)
    with np.errstate(all="ignore"):
        for k, (name, f) in enumerate(families.items()):
            for way in range(ways):
                _same(outs[k * ways + way].numpy(), f(np, *data).astype(dtype), (name, way), target == CL and name in ROOTS)
    return made


def _device(target):
    dev = ns.device("cpu" if target == CPU else target, 0)
    if not dev.exist:
        pytest.skip(f"no device for {target}: {dev.why_not}")
    return dev


@pytest.mark.parametrize("dtype", F)
@pytest.mark.parametrize("target", TARGETS)
def test_families_to_the_bit(target, dtype):
    _check(dtype, target, FAMILIES)


def test_families_with_clang(monkeypatch):
    if not shutil.which("clang"):
        pytest.skip("clang is not installed")
    monkeypatch.setenv("CC", "clang")
    _check("float32", CPU, FAMILIES)


# ---- random trees ----

LEAVES = "abcdp"


def _tree(rng, depth):
    """A random tree of operators: ("leaf", name), ("const", number) or (operator, trees)."""
    if depth == 0 or rng.random() < 0.1:
        return ("const", float(rng.choice([0.1, 0.25, 3.3, -2.0, 7.0]))) if rng.random() < 0.15 else ("leaf", str(rng.choice(list(LEAVES))))
    op = str(rng.choice(["+", "-", "*", "*", "+", "-", "neg", "abs", "min", "max", "where", "quarter", "keep"]))
    return (op, *(_tree(rng, depth - 1) for _ in range({"neg": 1, "abs": 1, "quarter": 1, "keep": 1, "where": 4}.get(op, 2))))


def _value(m, tree, leaf, dtype):
    """The tree in te's operators (m is te) or in NumPy's; each operator of NumPy rounds once."""
    op, *kids = tree
    if op == "leaf":
        return leaf[kids[0]]
    if op == "const":
        return te.const(kids[0], dtype) if m is te else F[dtype](kids[0])
    x = [_value(m, k, leaf, dtype) for k in kids]
    numpy = m is np
    return {
        "+": lambda: x[0] + x[1],
        "-": lambda: x[0] - x[1],
        "*": lambda: x[0] * x[1],
        "neg": lambda: -x[0] if numpy else x[0] * te.const(-1, dtype),
        "abs": lambda: np.abs(x[0]) if numpy else te.abs(x[0]),
        "min": lambda: np.minimum(*x) if numpy else te.min(*x),
        "max": lambda: np.maximum(*x) if numpy else te.max(*x),
        "where": lambda: np.where(x[0] > x[1], x[2], x[3]) if numpy else te.if_then_else(x[0] > x[1], x[2], x[3]),
        "quarter": lambda: x[0] / F[dtype](4) if numpy else x[0] / te.const(4, dtype),
        "keep": lambda: x[0],
    }[op]()


def _random_program(dtype, target, seed, trees=12):
    """Per tree three programs' worth of places: a stage of its own within the loop of its reader, a stage that is inlined, and what
    follows a reduction (of small integers, so that its sum is exact in any order). Returns (built, [expected])."""
    rng = np.random.default_rng(seed)
    data = dict(zip(LEAVES, (rng.uniform(0.5, 10, N).astype(dtype) for _ in LEAVES), strict=True))
    data["p"] = data["a"] * data["b"]
    ints = rng.integers(-8, 8, (N, 16)).astype(dtype)
    ins = {n: te.placeholder((N,), dtype, name=n) for n in LEAVES}
    table = te.placeholder((N, 16), dtype, name="table")
    cpu, outs, want, plans = target == CPU, [], [], []
    for t in range(trees):
        first, second = (_tree(rng, 3) for _ in range(2))
        for way in ("reader's loop", "inlined", "reduction"):
            k = te.reduce_axis((0, 16), name="k")
            at = lambda i, of=ins: {n: x[i] for n, x in of.items()}  # noqa: E731
            if way == "reduction":
                mid = te.compute((N,), lambda i, k=k: te.sum(table[i, k] * table[i, k], axis=k), name=f"mid{t}r")
            else:
                mid = te.compute((N,), lambda i, first=first: _value(te, first, at(i), dtype), name=f"mid{t}{way[0]}")
            out = te.compute(
                (N,), lambda i, mid=mid, second=second: _value(te, second, {**at(i), "c": mid[i]}, dtype) + mid[i] * at(i)["b"], name=f"o{t}{way[0]}"
            )
            with np.errstate(all="ignore"):
                m = (ints * ints).sum(1, dtype=dtype) if way == "reduction" else _value(np, first, data, dtype)
                want.append((_value(np, second, {**data, "c": m}, dtype) + m * data["b"]).astype(dtype) * np.ones(N, dtype))
            outs.append(out)
            plans.append((way, mid, out))
    s = te.create_schedule([o.op for o in outs])
    for way, mid, out in plans:
        outer, inner = s[out].split(out.op.axis[0], factor=16)
        if not cpu:
            s[out].bind(outer, te.thread_axis("blockIdx.x"))
            s[out].bind(inner, te.thread_axis("threadIdx.x"))
        if way == "inlined":
            s[mid].compute_inline()
        else:
            s[mid].compute_at(s[out], outer if cpu else inner)
        if cpu and way != "reduction":
            s[out].vectorize(inner)
            if way != "inlined":
                s[mid].vectorize(mid.op.axis[0])
    arrays = [*data.values(), ints]
    return ns.build(s, [*ins.values(), table, *outs], target), arrays, want


def _check_random(dtype, target, seed):
    dev = _device(target)
    made, arrays, want = _random_program(dtype, target, seed)
    outs = [ns.nd.array(np.zeros(N, dtype), dev) for _ in want]
    made(*(ns.nd.array(x, dev) for x in arrays), *outs)
    for k, (got, w) in enumerate(zip(outs, want, strict=True)):
        _same(got.numpy(), w, (dtype, target, seed, k))


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 30))])
@pytest.mark.parametrize("target", TARGETS)
def test_random_trees_to_the_bit(target, seed):
    _check_random(("float32", "float64")[seed % 2], target, seed)
