"""Functions of floats over their whole range, against PyTorch in double precision: all exponents, both signs, subnormal numbers, and the
neighbours of the numbers where formulas change. Many functions are one program."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nestsmith as ns
from nestsmith import _core, relay, te, topi
from nestsmith.contrib import graph_executor

PLAIN = """exp exp2 expm1 log log1p log2 log10 sqrt rsqrt tanh sigmoid erf erfc sin cos tan sinh cosh asin acos atan asinh acosh
    atanh reciprocal""".split()
# Within 2 units in the last place of float32.
EXACT = {name: getattr(torch, name) for name in PLAIN} | {
    "softplus": F.softplus,
    "softplus, beta 2": lambda x: F.softplus(x, 2.0),
    "softplus, beta -1": lambda x: F.softplus(x, -1.0),
    "log_sigmoid": F.logsigmoid,
    "elu": F.elu,
    "celu": lambda x: F.celu(x, 0.5),
    "selu": F.selu,
    "hardsigmoid": F.hardsigmoid,
    "softsign": F.softsign,
    "logaddexp": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "hypot": lambda x: torch.hypot(x, torch.ones_like(x)),
    "atan2": lambda x: torch.atan2(x, torch.full_like(x, -1.0)),
    "copysign": lambda x: torch.copysign(torch.ones_like(x), x),
    "xlogy": lambda x: torch.xlogy(x, x),
    "lerp": lambda x: torch.lerp(x, torch.ones_like(x), 1.0),
}
# Made of several operators: within 4 units, or within twice the error of PyTorch's float32 where that is larger.
COMPOSED = {
    "mish": F.mish,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardswish": F.hardswish,
    "logit": torch.logit,
    "sinc": torch.sinc,
    "softplus, beta 0.3": lambda x: F.softplus(x, 0.3, 5.0),
    "log1p of exp": lambda x: x.exp().log1p(),
}
FUNCTIONS = EXACT | COMPOSED
TURNS = (0, 1, 0.5, 20, 10, 3, 9, 88.7, 87.3, 104, 0.34657, 0.69315, 16, 5, 1e4, 1e5, math.pi / 2, math.pi, 2 * math.pi)


def values(per_exponent=16):
    rng = np.random.default_rng(0)
    fraction = rng.integers(0, 1 << 23, (256, per_exponent), dtype=np.uint32)
    fraction[:, :3] = 0, 1, (1 << 23) - 1
    bits = (np.arange(256, dtype=np.uint32) << 23)[:, None] | fraction
    turns = np.array(TURNS, "float32").view("uint32")
    bits = np.concatenate([bits.ravel(), turns, turns + 1, np.maximum(turns, 1) - 1])
    usual = np.concatenate([rng.normal(size=1000) * 4, rng.uniform(-110, 100, 1000), rng.uniform(-1, 1, 1000) ** 5]).astype("float32")
    return np.concatenate([bits, bits | 0x80000000, usual.view("uint32")]).view("float32")


def off(got, exact, dtype="float32"):
    """How many units in the last place; a result below the smallest normal number may be off by that one's units."""
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):
        want, got = exact.astype(dtype), np.asarray(got)
        unit = np.spacing(np.maximum(np.abs(want), info.tiny)).astype("float64")
        units = np.abs(got.astype("float64") - exact) / unit
    units[(got == want) | (np.isnan(got) & np.isnan(want))] = 0
    return np.where(np.isnan(units), np.inf, units)


class All(torch.nn.Module):
    def forward(self, x):
        return tuple(f(x) for f in FUNCTIONS.values())


class Folded(torch.nn.Module):
    """The same of a constant, which importers evaluate."""

    def __init__(self, x):
        super().__init__()
        self.x = torch.nn.Buffer(x)

    def forward(self, y):
        return tuple(f(self.x) for f in FUNCTIONS.values()) + (y + 1,)


def check(results, x, dtype="float32", exact=2.0, composed=4.0):
    """`exact`, `composed`: budgets in units. What is below the range of exp(-x) or exp(x) may be 0 (sigmoid, silu), as in PyTorch."""
    with np.errstate(invalid="ignore"):
        wide = torch.tensor(x.astype("float64"))
    wrong = {}
    for name, got in zip(FUNCTIONS, results):
        want, own = FUNCTIONS[name](wide).numpy(), FUNCTIONS[name](torch.tensor(x)).numpy()
        units, torchs = off(got, want, dtype), off(own, want, dtype)
        few = (name in COMPOSED or name == "sigmoid") & (torchs > 0)
        bad = units > np.maximum(exact if name in EXACT else composed, np.where(few, 2 * torchs, 0))
        if name.startswith("gelu"):  # 1 + erf(x): what is left of two numbers of about 1, in PyTorch too
            with np.errstate(all="ignore"):
                bad &= ~(np.abs(got - want) <= 2 * np.finfo(dtype).eps * np.abs(x))
        if bad.any():
            wrong[name] = [(float(x[i]), got[i], want[i]) for i in np.flatnonzero(bad)[:3]]
    assert not wrong, wrong


@pytest.mark.parametrize("target", ["llvm", pytest.param("opencl", marks=pytest.mark.full)])
def test_whole_range(target):
    """OpenCL allows the driver more of `tan` (5 units)."""
    x = values()
    made = ns.compile(All(), (torch.tensor(x),), target=target, trials=0, verbose=0, guess=False)
    check([r.numpy() for r in made(torch.tensor(x))], x, exact=2.0 if target == "llvm" else 3.0)


def test_folded():
    x = values(4)
    made = ns.compile(Folded(torch.tensor(x)), (torch.zeros(2),), target="llvm", trials=0, verbose=0, guess=False)
    check([r.numpy() for r in made(torch.zeros(2))][:-1], x, exact=4.0, composed=6.0)  # NumPy's functions are within 4 units


@pytest.mark.full
@pytest.mark.parametrize("dtype, budget", [("float64", 3.0), ("float16", 1.0)])
def test_other_types(dtype, budget):
    with np.errstate(all="ignore"):
        x = values(4).astype(dtype)
    made = ns.compile(All(), (torch.tensor(x),), target="llvm", trials=0, verbose=0, guess=False)
    results = [r.numpy() for r in made(torch.tensor(x))]
    check(results, x, dtype, budget, 2 * budget)


def special_pairs(dtype):
    rng = np.random.default_rng(1)
    one = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.1, -0.1, 0.3, 7, 3, -3, 1e10, -1e9, 2**24 + 1, 0.5, 1e17, 6e4, np.finfo(dtype).max]
    with np.errstate(all="ignore"):
        a, b = (v.ravel().astype(dtype) for v in np.meshgrid(one, one))
    n = 2000
    return (
        np.concatenate([a, (rng.normal(size=n) * 10.0 ** rng.integers(-2, 4, n)).astype(dtype)]),
        np.concatenate([b, rng.normal(size=n).astype(dtype)]),
    )


def same_bits(got, want):
    return (got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want)


def remainder(a, b):
    """PyTorch's; on vectors its fmod is NaN where a / b overflows."""
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def of_torch(a, b):
    return torch.floor_divide(torch.tensor(a), torch.tensor(b)).numpy()


DIVISIONS = {"floor_divide": of_torch, "floor_mod": remainder, "mod": np.fmod}


def built(arrays, target):
    """The three divisions of te as one program, on a device."""
    args = [te.placeholder(v.shape, str(v.dtype), name=name) for v, name in zip(arrays, "ab")]
    outs = [getattr(topi, name)(*args) for name in DIVISIONS]
    s = te.create_schedule([o.op for o in outs])
    for o in outs if target != "llvm" else ():
        outer, inner = s[o].split(o.op.axis[0], factor=32)
        s[o].bind(outer, te.thread_axis("blockIdx.x"))
        s[o].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [*args, *outs]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floor_division(dtype):
    """Bit for bit PyTorch's: compiled, in the interpreter, and folded; signs of zeros and infinite operands too."""
    a, b = special_pairs(dtype)
    with np.errstate(all="ignore"):
        want = [f(a, b) for f in DIVISIONS.values()]
    theirs = torch.remainder(torch.tensor(a), torch.tensor(b)).numpy()
    assert (same_bits(want[1], theirs) | np.isnan(theirs)).all()
    got = {}
    for target in ("llvm", "opencl"):
        s, args = built((a, b), target)
        device = ns.device(target, 0)
        held = [ns.nd.array(v, device) for v in (a, b, *(np.zeros_like(a) for _ in DIVISIONS))]
        ns.build(s, args, target)(*held)
        got[target] = [v.numpy() for v in held[2:]]
    held = [a, b, *(np.zeros_like(a) for _ in DIVISIONS)]
    _core.interp_dag(_core.ComputeDAG(built((a, b), "llvm")[1]), held)
    got["interpreter"] = held[2:]
    x, y = relay.const(a), relay.const(b)
    calls = relay.Function([], relay.Tuple([getattr(relay, name)(x, y) for name in DIVISIONS]))
    got["folded"] = [c.data for c in relay.transform.FoldConstant()(calls).body.fields]
    for way, results in got.items():
        for name, r, w in zip(DIVISIONS, results, want):
            bad = ~same_bits(np.asarray(r), w)
            assert not bad.any(), (way, name, [(a[i], b[i], r[i], w[i]) for i in np.flatnonzero(bad)[:3]])


def test_floor_division_of_16_bits():
    """The nearest number of 16 bits to the exact quotient rounded down."""
    a, b = special_pairs("float16")
    x, y = (relay.var(name, shape=a.shape, dtype="float16") for name in "xy")
    outs = relay.Tuple([getattr(relay, name)(x, y) for name in DIVISIONS])
    made = relay.build(ns.IRModule.from_expr(relay.Function([x, y], outs)), target="llvm")
    run = graph_executor.GraphModule(made["default"](ns.device("llvm", 0)))
    run.set_input("x", a), run.set_input("y", b)
    run.run()
    wide = [v.astype("float32") for v in (a, b)]
    for i, f in enumerate(DIVISIONS.values()):
        with np.errstate(all="ignore"):
            want = f(*wide).astype("float16")
        bad = ~same_bits(run.get_output(i).numpy(), want)
        assert not bad.any(), (a[bad][:3], b[bad][:3], run.get_output(i).numpy()[bad][:3], want[bad][:3])


def test_literals():
    """x // 1 of floats is no x, and 0 // x is NaN where x is 0."""
    a, f = te.placeholder((4,), "float32", name="a"), lambda v: te.const(v, "float32")
    assert str(te.floordiv(a[0], f(1))) == "floordiv(a[0], 1f)" and str(te.floordiv(f(0), a[0])) == "floordiv(0f, a[0])"
    for x, y, quotient in ((1.0, 0.1, 9), (-7.0, 2.0, -4), (7.0, -2.0, -4), (7.0, -np.inf, -1)):
        assert float(te.floordiv(f(x), f(y))) == quotient
