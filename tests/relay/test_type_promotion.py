"""Element types of PyTorch's operators: what operands of different types, tensors without axes and Python numbers come to, and in
which type 16-bit floats are computed. All cases of one type of tensor are outputs of one network, compared with eager PyTorch."""

import itertools
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import nestsmith  # noqa: E402
from nestsmith import relay  # noqa: E402
from nestsmith.relay.expr import Constant, rewrite  # noqa: E402
from nestsmith.relay.frontend.aten import promotion  # noqa: E402
from nestsmith.relay.frontend.pytorch import dtype_name as _dtype  # noqa: E402
from nestsmith.relay.frontend.values import array  # noqa: E402
from nestsmith.relay.transform.fold_constant import fold  # noqa: E402

F = torch.nn.functional
KINDS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
NUMBERS = (2, 0.5, -3, 300, 2**31, 0.1, 1e-8, 1e5, 1.0039, -0.3, True)


def shifted(a, b, right=False):
    if any(v.dtype == torch.bool if isinstance(v, torch.Tensor) else isinstance(v, bool) for v in (a, b)):
        raise TypeError("PyTorch shifts truth values and cannot export it")
    return a >> b if right else a << b


# Functions of two operands that may be anything. `a` and `b` change places in the second run over them.
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "rsub": torch.rsub,
    "mul": torch.mul,
    "div": torch.div,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "pow": torch.pow,
    "lt": torch.lt,
    "le": torch.le,
    "eq": torch.eq,
    "ne": torch.ne,
    "gt": torch.gt,
    "ge": torch.ge,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "logical_and": torch.logical_and,
    "logical_xor": torch.logical_xor,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "where": lambda a, b: torch.where(a > 1, a, b),
    "clamp_min": lambda a, b: torch.clamp(a, min=b),
    "clamp_max": lambda a, b: torch.clamp(a, max=b),
    "shift": lambda a, b: shifted(a, b),
    "right": lambda a, b: shifted(a, b, True),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "outer": torch.outer,
    "masked_fill": lambda a, b: a.masked_fill(a > 1, b),
    "lerp": lambda a, b: torch.lerp(a, a * 2, b),
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
    "add_": lambda a, b: (a * 1).add_(b),
    "mul_": lambda a, b: (a * 1).mul_(b),
}
# Functions of a tensor and a number.
SCALED = {
    "add": lambda a, s: torch.add(a, a.flip(0), alpha=s),
    "sub": lambda a, s: torch.sub(a, a.flip(0), alpha=s),
    "rsub": lambda a, s: torch.rsub(a, a.flip(0), alpha=s),
    "number": lambda a, s: torch.add(a, 0.7, alpha=s),
    "over": lambda a, s: s / a,
    "addcmul": lambda a, s: torch.addcmul(a, a.flip(0), a, value=s),
    "addcdiv": lambda a, s: torch.addcdiv(a, a.flip(0), a, value=s),
    "leaky_relu": lambda a, s: F.leaky_relu(a, s),
    "elu": lambda a, s: F.elu(a, s),
    "celu": lambda a, s: F.celu(a, s),
    "threshold": lambda a, s: F.threshold(a, s, s),
    "hardtanh": lambda a, s: F.hardtanh(a, -abs(s), abs(s)),
    "softplus": lambda a, s: F.softplus(a, s),
    "scatter": lambda a, s: a.scatter(0, torch.tensor([1]), s),
    "fill": lambda a, s: (a * 1).fill_(s),
    "clip": lambda a, s: torch.clamp(a, s, 3),
    "softplus_from": lambda a, s: F.softplus(a, 1, s),
    "pad": lambda a, s: F.pad(a, (1, 1), value=s),
    "float_power": lambda a, s: torch.float_power(a.abs(), s),
}
UNARY = {
    "sum": torch.sum,
    "prod": lambda a: a[:6].prod(),
    "cumsum": lambda a: a.cumsum(0),
    "cumprod": lambda a: a[:4].cumprod(0),
    "mean64": lambda a: a.mean(dtype=torch.float64),
    "sum16": lambda a: a.sum(dtype=torch.int16),
    "sumf": lambda a: a.sum(dtype=torch.float32),
    "softmax": lambda a: a.softmax(0, dtype=torch.float32),
    "any": torch.any,
    "amax": torch.amax,
    "reciprocal": torch.reciprocal,
    "sqrt": torch.sqrt,
    "sigmoid": torch.sigmoid,
    "exp2": torch.exp2,
    "sign": torch.sign,
    "square": torch.square,
    "neg": torch.neg,
    "abs": torch.abs,
    "signbit": torch.signbit,
    "gelu": F.gelu,
    "tanh_gelu": lambda a: F.gelu(a, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "selu": F.selu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softsign": F.softsign,
    "log1p": lambda a: torch.log1p(a.abs()),
    "expm1": torch.expm1,
    "log_sigmoid": F.logsigmoid,
    "erfc": torch.erfc,
    "norm": lambda a: a.norm(),
    "logsumexp": lambda a: a.logsumexp(0),
    "bool": lambda a: a.bool(),
    "round": lambda a: a.round(decimals=1),
    "glu": lambda a: F.glu(a, 0),
}


def data(kind, seed, shape=(128,)):
    """Values of many sizes, none of them 0."""
    rng = np.random.default_rng(seed)
    if kind == torch.bool:
        x = rng.integers(0, 2, shape)
    elif not kind.is_floating_point:
        x = rng.integers(1, 120, shape) * (1 if kind == torch.uint8 else rng.choice([1, -1], shape))
    else:
        x = rng.standard_normal(shape) * rng.choice([0.1, 1, 10, 300], shape)
    return torch.as_tensor(x).to(kind)


def operands():
    """What stands beside a tensor: {name: operand}."""
    found = {f"{n!r}": n for n in NUMBERS}
    for k, other in enumerate(KINDS):
        found[_dtype(other)] = data(other, k + 1)
        found[f"{_dtype(other)} scalar"] = data(other, k + 40, ())
    return found


class Cases(torch.nn.Module):
    """Those of (name, function, type of the tensor, operand) that eager mode has a result for, as one model."""

    def __init__(self, cases):
        super().__init__()
        self.others, self.cases, self.want = operands(), [], []
        self.kinds = [k for k in KINDS if any(kind == k for _, _, kind, _ in cases)]
        for case in cases:
            try:
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    want = self.result(case, data(case[2], 0), self.others)
            except Exception:  # PyTorch does not have this
                continue
            self.cases.append(case)
            self.want.append(want)
        used = {k for *_, k in self.cases}
        self.names = [k for k, v in self.others.items() if isinstance(v, torch.Tensor) and k in used]

    def inputs(self):
        return *(data(k, 0) for k in self.kinds), *(self.others[k] for k in self.names)

    @staticmethod
    def result(case, x, others):
        _, f, _, k = case
        return f(x) if k is None else f(x, others[k])

    def forward(self, *given):
        tensors = dict(zip(self.kinds, given))
        others = {**self.others, **dict(zip(self.names, given[len(self.kinds) :]))}
        return tuple(self.result(case, tensors[case[2]], others) for case in self.cases)


# Their definitions lose digits, or go by a rounded quotient, whatever the type.
INEXACT = ("softplus", "mish", "elu", "celu", "expm1", "log1p", "log_sigmoid", "floor", "remainder")


def cases(kind):
    """Everything that a tensor of a type goes through."""
    return (case for case in all_cases(kind) if not case[0].startswith(INEXACT))


def all_cases(kind):
    for k in operands():
        for name, f in BINARY.items():
            yield name, f, kind, k
            yield f"{name} from the right", lambda a, b, f=f: f(b, a), kind, k
    for k in map(repr, NUMBERS):
        yield from ((f"{name} by number", f, kind, k) for name, f in SCALED.items())
    yield from ((name, f, kind, None) for name, f in UNARY.items())


def spacing(want):
    """The distance of neighbouring numbers at each value."""
    digits = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}[want.dtype]
    least = torch.finfo(want.dtype).tiny
    return 2.0 ** (np.floor(np.log2(np.maximum(want.double().abs().numpy(), least))) - digits)


def difference(got, want):
    """None, or what is wrong with a result."""
    if _dtype(want.dtype) != _dtype(got.dtype) or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if not want.is_floating_point():
        return None if torch.equal(got, want) else f"{got} instead of {want}"
    g, w = got.double().numpy(), want.double().numpy()
    ulps = 1 if want.dtype in (torch.float16, torch.bfloat16) else 16
    with np.errstate(invalid="ignore"):
        room = ulps * spacing(want)
        if ulps > 1:  # a sum that cancels, fused or not
            room = np.maximum(room, 4 * spacing(want[want.isfinite()].abs().max()) if want.isfinite().any() else 0)
        far = (g != w) & ~(np.isnan(g) & np.isnan(w)) & ~(np.abs(g - w) <= room)
    return f"{g[far][:4]} instead of {w[far][:4]}" if far.any() else None


def folded(model):
    """The results of a model, computed while it is imported."""
    mod, params = relay.frontend.from_pytorch(torch.export.export(model, model.inputs(), strict=False))
    main, given = mod["main"], model.inputs()
    known = {id(p): array((x.float() if x.dtype == torch.bfloat16 else x).numpy(), _dtype(x.dtype)) for p, x in zip(main.params, given)}
    known |= {id(p): array(params[p.name_hint]) for p in main.params[len(given) :]}
    body = relay.Function([], rewrite(main.body, lambda old, new: known.get(id(old), new)))
    for e in fold(relay.transform.InferType()(body).body).fields:
        assert isinstance(e, Constant), e
        yield torch.from_numpy(np.array(e.numbers)).to(getattr(torch, e._type.dtype))


def compiled(model):
    return nestsmith.compile(model, model.inputs(), guess=False, verbose=0, target="llvm")(*model.inputs())


def check(model, results):
    wrong = {}
    for (name, _, kind, k), got, want in zip(model.cases, results, model.want, strict=True):
        found = difference(got, want)
        if found:
            wrong[f"{name} of {_dtype(kind)} and {k}"] = found
    assert not wrong, f"{len(wrong)} of {len(model.cases)}: " + "\n".join(f"{k}: {v}" for k, v in list(wrong.items())[:20])


def test_result_types():
    tensors = [torch.zeros((2,) * rank, dtype=k) for k in KINDS for rank in (0, 1)]
    for a, b in itertools.product(tensors, [*tensors, True, 3, 2.5]):
        named = [relay.var("x", shape=tuple(v.shape), dtype=_dtype(v.dtype)) if isinstance(v, torch.Tensor) else v for v in (a, b)]
        assert promotion.result_type(named) == _dtype(torch.result_type(a, b)), (a.dtype, a.shape, b)


def test_numbers():
    """As casts of C: integers wrap, fractions are cut, floats are rounded; with a name, what cannot be held is refused."""
    cases = [(300, "int8", 44), (2**31, "int32", -(2**31)), (-1, "uint8", 255), (1.7, "int8", 1), (0.1, "float16", float(np.float16(0.1))),
             (1e5, "float16", np.inf), (1.0039, "bfloat16", 1.0),
             (1.0040, "bfloat16", 1.0078125), (1e300, "bfloat16", np.inf), (2, "bool", True)]  # fmt: skip
    for value, kind, want in cases:
        assert promotion.fitting(value, kind) == want
    for value, kind, why in ((300, "int8", "beyond int8, which reaches from -128 to 127"), (1e5, "float16", "too large for float16")):
        with pytest.raises(ValueError, match=f"value={value}.*{why}"):
            promotion.fitting(value, kind, "value")


def test_sample():
    """Of every type, folded; of some, compiled."""
    rows = [c for kind in KINDS for c in itertools.islice(cases(kind), KINDS.index(kind), None, 97)]
    model = Cases(rows)
    check(model, folded(model))
    model = Cases([c for c in rows if c[2] in (torch.float16, torch.bfloat16, torch.int8)][::2])
    check(model, compiled(model))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_everything(kind):
    rows = list(cases(kind))
    for first in range(0, len(rows), 500):
        model = Cases(rows[first : first + 500])
        check(model, folded(model))
        check(model, compiled(model))


class Applied(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def imported(f, *args):
    return relay.frontend.from_pytorch(torch.export.export(Applied(f), args, strict=False))


def test_what_pytorch_refuses():
    """PyTorch exports these and cannot run them."""
    bytes_, half = data(torch.int8, 0), data(torch.float16, 0)
    for f, x, why in (
        (lambda a: a.masked_fill(a > 1, 300), bytes_, "value=300 is beyond int8"),
        (lambda a: torch.where(a > 1, a, 300), bytes_, "=300 is beyond int8"),
        (lambda a: a.masked_fill(a > 1, -1e9), half, "value=-1000000000.0 is too large for float16"),
        (lambda a: torch.addcmul(a, a, a, value=300), bytes_, "value=300"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            imported(f, x)


def test_autocast_inside_of_a_model():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                y = self.linear(x)
                return y, y.softmax(-1)

    torch.manual_seed(0)
    model, x = Layer().eval(), torch.randn(4, 8)
    got = nestsmith.compile(model, x, guess=False, verbose=0, target="llvm")(x)
    with torch.no_grad():
        for g, w in zip(got, model(x)):
            assert g.dtype == w.dtype and torch.allclose(g.float(), w.float(), rtol=2e-2, atol=2e-2)
