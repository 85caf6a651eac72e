"""Rewrites that hold for numbers only are not made of floats (the table of docs/numerics.md): NaN, infinities, zeros of both signs and sums that
round come out as in PyTorch, compiled and folded."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nestsmith as ns
from nestsmith import relay, te, tir, topi, transform
from nestsmith.contrib import graph_executor

INF = float("inf")
ROUND = 12582912.0  # 1.5 * 2^23: added and taken away it rounds to a whole number
X = np.array([1, np.nan, INF, -INF, -2, 0.0, -0.0, 3e38, -3e38, 1e-45, -0.3, 5.3, 0.58, 2.5], "float32")
CASES = {
    "x * 0": lambda x: x * 0,
    "0 * x": lambda x: 0 * x,
    "x * -0": lambda x: x * -0.0,
    "0 / x": lambda x: 0 / x,
    "0 // x": lambda x: 0 // x,
    "0 % x": lambda x: 0 % x,
    "x + 0": lambda x: x + 0,
    "0 + x": lambda x: 0 + x,
    "x + -0": lambda x: x + -0.0,
    "x - 0": lambda x: x - 0,
    "x - -0": lambda x: x - -0.0,
    "0 - x": lambda x: 0 - x,
    "-x": lambda x: -x,
    "x * 1": lambda x: x * 1,
    "x * -1": lambda x: x * -1,
    "x / 1": lambda x: x / 1,
    "x // 1": lambda x: x // 1,
    "x % 1": lambda x: x % 1,
    "x // 0": lambda x: x // 0.0,
    "x % inf": lambda x: x % INF,
    "zeros * x": lambda x: torch.zeros_like(x) * x,
    "zeros of one axis * x": lambda x: torch.zeros(1) * x,
    "full * x": lambda x: torch.full((14,), 0.0) * x,
    "ones * 0 * x": lambda x: torch.ones_like(x) * 0 * x,
    "isnan(x * 0)": lambda x: (x * 0).isnan(),
    "isnan(x / 0 * 0)": lambda x: (x / 0 * 0).isnan(),
    "maximum(x, x * 0 + 1)": lambda x: torch.maximum(x, x * 0 + 1),
    "where": lambda x: torch.where(x > 0, x * 0, x),
    "matmul with 0": lambda x: (x.reshape(14, 1) * torch.zeros(())).sum(1),
    "leaky_relu, slope 0": lambda x: F.leaky_relu(x, 0.0),
    "x - x": lambda x: x - x,
    "x / x": lambda x: x / x,
    "x == x": lambda x: x == x,
    "x != x": lambda x: x != x,
    "x < x": lambda x: x < x,
    "x >= x": lambda x: x >= x,
    "not (x < 1)": lambda x: ~(x < 1),
    "not (x >= 1)": lambda x: ~(x >= 1),
    "not (x == 1)": lambda x: ~(x == 1),
    "(x + c) + -c": lambda x: (x + ROUND) + (-ROUND),
    "(x + c) - c": lambda x: (x + ROUND) - ROUND,
    "(c + x) + -c": lambda x: -ROUND + (ROUND + x),
    "(x + c) + -c of arrays": lambda x: (x + torch.full((1,), ROUND)) + torch.full((14,), -ROUND),
    "((x + large) + large) - large": lambda x: ((x + 3e38) + 3e38) + (-3e38),
    "(x * large) * small": lambda x: (x * 1e30) * 1e-30,
    "x * 2 * 0.5": lambda x: x * 2 * 0.5,
    "x / 3": lambda x: x / 3,
    "sqrt(x) * sqrt(x)": lambda x: x.sqrt() * x.sqrt(),
    "sqrt(x * x)": lambda x: (x * x).sqrt(),
    "x / sqrt(x)": lambda x: x / x.sqrt(),
    "log(exp(x))": lambda x: x.exp().log(),
    "exp(log(x))": lambda x: x.log().exp(),
    "clip of clip": lambda x: x.clamp(0, 1).clamp(2, 3),
    "min of max": lambda x: torch.minimum(torch.maximum(x, torch.tensor(2.0)), torch.tensor(1.0)),
    "relu(-relu)": lambda x: F.relu(-F.relu(x)) + 0.0,  # the sign of a maximum of two zeros is anybody's
    "-(-x)": lambda x: x.neg().neg(),
    "abs(-x)": lambda x: (-x).abs(),
    "x ** 2": lambda x: x**2,
    "x ** 0.5": lambda x: x**0.5,
    "x ** 0": lambda x: x**0,
    "x ** 1": lambda x: x**1,
    "x ** -1": lambda x: x**-1,
    "float64 and back": lambda x: x.double().float(),
    "float16 and back": lambda x: x.half().float(),
    "lerp to the end": lambda x: torch.lerp(x, torch.ones_like(x), 1.0),
    "angle": lambda x: x.angle(),
    "threshold": lambda x: F.threshold(x, 0.5, 7.0),
    "round": lambda x: x.round(),
    "copysign": lambda x: torch.copysign(torch.ones_like(x), x),
    "signbit": lambda x: x.signbit(),
    "div, trunc": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "integers": lambda x: (torch.arange(14, dtype=torch.int32) * 0 + 3) + 4 + (x > 0).int(),
}
ROUNDED = {"x / sqrt(x)", "sqrt(x) * sqrt(x)", "log(exp(x))", "exp(log(x))", "gelu by tanh", "x ** -1"}


class Compiled(torch.nn.Module):
    def forward(self, x):
        return tuple(f(x) for f in CASES.values())


class Folded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.x = torch.nn.Buffer(torch.tensor(X))

    def forward(self, y):
        return tuple(f(self.x) for f in CASES.values()) + (y + 1,)


def same(got, want, rounded=False):
    if want.dtype.kind != "f":
        return got == want
    with np.errstate(all="ignore"):
        near = rounded & (np.abs(got.astype("float64") - want) <= 4e-6 * np.abs(want))
        return ((got == want) & (np.signbit(got) == np.signbit(want))) | near | (np.isnan(got) & np.isnan(want))


def check(results):
    wrong = {}
    for (name, f), got in zip(CASES.items(), results):
        want, got = f(torch.tensor(X)).numpy(), got.numpy()
        assert got.dtype == want.dtype, name
        bad = ~same(got, want, name in ROUNDED)
        if bad.any():
            wrong[name] = [(float(X[i]), got[i], want[i]) for i in np.flatnonzero(bad)]
    assert not wrong, wrong


@pytest.mark.parametrize(
    "target, guess", [("llvm", False), pytest.param("llvm", True, marks=pytest.mark.full), pytest.param("opencl", False, marks=pytest.mark.full)]
)
def test_special_values(target, guess):
    x = torch.tensor(X)
    check(ns.compile(Compiled(), (x,), target=target, trials=0, verbose=0, guess=guess)(x))


def test_special_values_folded():
    y = torch.zeros(2)
    check(ns.compile(Folded(), (y,), target="llvm", trials=0, verbose=0, guess=False)(y)[:-1])


@pytest.mark.parametrize("level", [0, 3])
def test_relay(level):
    """At every level, with constants without axes and with one; integers do add up."""
    v = relay.var("x", shape=X.shape)
    cases = {}
    for shape in ((), (1,), X.shape):
        c = lambda value, shape=shape: relay.const(np.full(shape, value, "float32"))  # noqa: E731
        cases |= {
            (shape, "round"): (relay.add(relay.add(v, c(ROUND)), c(-ROUND)), (X + np.float32(ROUND)) - np.float32(ROUND)),
            (shape, "times 0"): (relay.multiply(v, c(0)), X * np.float32(0)),
            (shape, "0 over"): (relay.divide(c(0), v), np.float32(0) / X),
            (shape, "plus 0"): (relay.add(v, c(0)), X + np.float32(0)),
            (shape, "minus -0"): (relay.subtract(v, c(-0.0)), X + np.float32(0)),
            (shape, "negative"): (relay.negative(relay.multiply(v, c(1))), -X),
        }
    with transform.PassContext(opt_level=level):
        f = relay.Function([v], relay.Tuple([e for e, _ in cases.values()]))
        made = relay.build(ns.IRModule.from_expr(f), target="llvm")
    run = graph_executor.GraphModule(made["default"](ns.device("llvm", 0)))
    run.run(x=X)
    for i, (name, (_, want)) in enumerate(cases.items()):
        assert same(run.get_output(i).numpy(), want).all(), (name, run.get_output(i).numpy(), want)
    n = relay.var("n", shape=(4,), dtype="int32")
    three, four = relay.const(np.int32(3)), relay.const(np.int32(4))
    out = relay.transform.SimplifyExpr()(relay.Function([n], relay.add(relay.add(n, three), four)))
    assert out.body.args[0] is n or out.body.args[0].name_hint == "n"


def test_onnx():
    onnx = pytest.importorskip("onnx")
    h, nh = onnx.helper, onnx.numpy_helper
    constants = {"c": np.float32(ROUND), "d": np.float32(-ROUND), "zero": np.float32(0), "tenth": np.float32(0.1), "many": np.full(1, -3, "float32")}
    nodes = [("Add", ["x", "c"], "t"), ("Add", ["t", "d"], "a"), ("Mul", ["x", "zero"], "b"), ("Neg", ["x"], "e")]
    nodes += [("Softplus", ["x"], "f"), ("Mish", ["x"], "g"), ("Elu", ["x"], "i")]
    graph = [h.make_node(op, ins, [out]) for op, ins, out in nodes]
    graph += [h.make_node("Mod", ["x", by], [f"{by}{fmod}"], fmod=fmod) for by in ("tenth", "many") for fmod in (0, 1)]
    outs = ["a", "b", "e", "f", "g", "i", "tenth0", "tenth1", "many0", "many1"]
    info = [h.make_tensor_value_info(o, 1, X.shape) for o in ["x", *outs]]
    graph = h.make_graph(graph, "g", info[:1], info[1:], [nh.from_array(v, k) for k, v in constants.items()])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)])
    got = ns.compile(model, target="llvm", trials=0, verbose=0, guess=False)(X)
    x, one = torch.tensor(X), torch.tensor(0.1)
    want = [(x + ROUND) - ROUND, x * 0, -x, F.softplus(x), F.mish(x), F.elu(x)]
    want += [x % one, torch.fmod(x, one), x % -3.0, torch.fmod(x, torch.tensor(-3.0))]
    for name, g, w in zip(outs, got, want):
        w = w.numpy()
        if name.startswith(("tenth", "many")):  # PyTorch's is NaN where the quotient is beyond the range
            w = np.where(np.isnan(w) & np.isfinite(X), np.asarray(g), w)
        assert same(np.asarray(g), w, name in "fgi").all(), (name, g, w)


def test_te_folds_as_the_reference():
    """Keys rest on it; zeros of networks are other literals with the same text."""
    a = te.placeholder((4,), name="a")
    f = lambda v: te.const(v, "float32")  # noqa: E731
    for made, text in ((a[0] * f(0), "0f"), (f(0) / a[0], "0f"), (a[0] + f(0), "a[0]"), (a[0] * f(1), "a[0]")):
        assert str(made) == text
    kept = tir.op.kept_number(0.0, "float32")
    assert str(a[0] * kept) == "(a[0]*0f)" and str(kept) == "0f" and float(kept) == 0
    assert str(topi.negative(a).op.body[0]) == "(0f - a[ax0])"
    assert str(tir.op.kept_number(2.0, "float32")) == "2f" and str(tir.op.kept_number(0, "int32")) == "0"
    half, single = te.const(0.1, "float32"), te.const(float(np.float32(0.1)), "float32")
    assert bool(tir.EQ(half, single).value)  # literals compare as the numbers that programs read
