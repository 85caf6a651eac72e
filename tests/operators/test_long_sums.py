"""Sums of 2^16 to 2^28 terms, and normalisations of numbers far from zero, as exact as PyTorch's: in every float type and schedule.

The error of a sum is at most the larger of twice PyTorch's in that type and 4 eps of the sum of |x|; that of a normalisation at most
twice PyTorch's and 4 units in the last place of the largest result."""

import numpy as np
import pytest
import torch

import nestsmith as ns
from nestsmith import auto_scheduler, relay, transform
from nestsmith.contrib.graph_executor import GraphModule
from nestsmith.target import Target

TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
VALUES = ("ones", "constant", "uniform", "mixed")
FEW = {"evolutionary_search_population": 16, "sample_init_min_population": 6}


def axes_of(n):
    """Shapes of n elements with the axes that are added up, so that the terms lie in every order."""
    side = 1 << (n.bit_length() - 1) // 2
    return [((n,), (0,)), ((2, n // 2), (1,)), ((n // 2, 2), (0,)), ((side, 2, n // side // 2), (0, 2))]


def values_of(kind, shape, dtype, terms):
    """Numbers whose sum of so many terms is finite in the type, far from its largest one."""
    g = torch.Generator().manual_seed(1)
    x = torch.full(shape, 1.1 if kind == "constant" else 1.0) if kind in ("ones", "constant") else torch.rand(shape, generator=g)
    return ((x - 0.5 if kind == "mixed" else x) * (2.0**14 / terms if dtype == torch.float16 else 1.0)).to(dtype)


class Sums(torch.nn.Module):
    def __init__(self, axes):
        super().__init__()
        self.axes = axes

    def forward(self, *xs):
        return tuple(x.sum(a) for x, a in zip(xs, self.axes))


def array(x):
    return x.view(torch.int16).numpy().view("uint16") if x.dtype == torch.bfloat16 else x.numpy()


def tensor(a, dtype):
    return torch.from_numpy(np.array(a).view("int16")).view(dtype) if dtype == torch.bfloat16 else torch.from_numpy(np.array(a))


def schedules(way, mod):
    if way in ("default", "first"):
        return auto_scheduler.FallbackContext(verbose=0) if way == "default" else auto_scheduler.ApplyHistoryBestOrSample(None)
    history, target = auto_scheduler.ApplyHistoryBest(None), Target("llvm")
    for t in auto_scheduler.extract_tasks(mod, {}, target, include_simple_tasks=way % 2 == 0)[0]:
        policy = auto_scheduler.SketchPolicy(t, auto_scheduler.RandomModel(), seed=way, verbose=0, params=FEW)
        states = policy.sample_initial_population()
        history.update(target, t.workload_key, states[way % len(states)])
    return history


def network(n, dtype, way):
    """A function of the inputs: the sums of all axes, by schedules that are made in one way."""
    axes = axes_of(n)
    inputs = tuple(torch.ones(shape, dtype=dtype) for shape, _ in axes)
    mod, params = relay.frontend.from_pytorch(Sums([a for _, a in axes]).eval(), example_inputs=inputs)
    with transform.PassContext(opt_level=3), auto_scheduler.FallbackContext(verbose=0), schedules(way, mod):
        module = GraphModule(relay.build(mod, "llvm", params=params)["default"](ns.cpu()))
    names = [p.name_hint for p in mod["main"].params if p.name_hint not in params]

    def run(xs):
        for name, x in zip(names, xs):
            module.set_input(name, array(x))
        module.run()
        return [tensor(module.get_output(k).numpy(), dtype) for k in range(len(xs))]

    return run


def check(n, name, ways, values=VALUES):
    dtype, axes = TYPES[name], axes_of(n)
    eps, wants = torch.finfo(dtype).eps, {}
    for kind in values:
        xs = [values_of(kind, shape, dtype, n) for shape, _ in axes]
        wide = [x.double() for x in xs]
        exact = [w.sum(a) for w, (_, a) in zip(wide, axes)]
        theirs = [(x.sum(a).double() - e).abs().max() for x, (_, a), e in zip(xs, axes, exact)]
        wants[kind] = xs, exact, [max(2 * t, 4 * eps * w.abs().sum(a).max()) for t, w, (_, a) in zip(theirs, wide, axes)]
    for way in ways:
        run = network(n, dtype, way)
        for kind, (xs, exact, most) in wants.items():
            for got, e, m, (shape, axis) in zip(run(xs), exact, most, axes):
                off = (got.double() - e).abs().max()
                assert off <= m, (name, way, kind, shape, axis, float(off), float(m))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_types_of_16_bits(name):
    check(1 << 18, name, ["default"], ("constant", "mixed"))


@pytest.mark.full
@pytest.mark.long
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("n", [1 << 16, 1 << 20, 1 << 24])
def test_all_ways(name, n, monkeypatch):
    monkeypatch.setenv("NESTSMITH_BUILD_TIMEOUT", "100")  # s: of what is drawn, some unrolls much
    check(n, name, ["default", "first", *range(20)])


@pytest.mark.full
@pytest.mark.parametrize("name", TYPES)
def test_a_very_long_sum(name):
    """2^28 terms, of which each is the same number: what comes out is known without a sum."""
    n, dtype = 1 << 28, TYPES[name]
    x = torch.full((n,), 2.0**-14 if name == "float16" else 1.1, dtype=dtype)
    exact = float(x[0]) * n
    got = ns.compile(Sums([(0,)]).eval(), (x,), target="llvm", verbose=0)(x)
    got = got[0] if isinstance(got, tuple | list) else got
    assert abs(float(got) - exact) <= 4 * torch.finfo(dtype).eps * exact


# ---- normalisations ----

f = torch.nn.functional
NORMS = {
    "layer": (lambda x: f.layer_norm(x, x.shape[-1:]), (6, 300)),
    "layer, over three axes": (lambda x: f.layer_norm(x, x.shape[1:]), (2, 8, 6, 10)),
    "group": (lambda x: f.group_norm(x, 4), (2, 8, 6, 10)),
    "instance": (f.instance_norm, (2, 5, 9, 8)),
    "batch": (lambda x: f.batch_norm(x, None, None, training=True), (16, 5, 4, 4)),
    "variance": (lambda x: x.var(-1), (6, 300)),
    "deviation": (lambda x: x.std((0, 2)), (9, 3, 40)),
    "rms": (lambda x: f.rms_norm(x, x.shape[-1:]), (6, 300)),
}


class Norms(torch.nn.Module):
    def forward(self, *xs):
        return tuple(norm(x) for (norm, _), x in zip(NORMS.values(), xs))


@pytest.mark.parametrize("guess", [False, pytest.param(True, marks=pytest.mark.full)])
def test_norms_far_from_zero(guess):
    g = torch.Generator().manual_seed(2)
    inputs = tuple(1e4 + torch.randn(shape, generator=g) for _, shape in NORMS.values())
    theirs, exact = Norms()(*inputs), Norms()(*(x.double() for x in inputs))
    ours = ns.compile(Norms().eval(), inputs, target="llvm", verbose=0, guess=guess)(*inputs)
    for name, got, own, want in zip(NORMS, ours, theirs, exact):
        off, most = ((x.double() - want).abs().max() for x in (got, own))
        assert off <= 2 * most + 4 * 2.0**-23 * want.abs().max(), (name, float(off), float(most))


def onnx_norms(inputs):
    """A model with a normalisation of each input."""
    onnx = pytest.importorskip("onnx")
    make = onnx.helper
    nodes, weights = [], []
    for k, (op, _, sizes, more) in enumerate(ONNX_NORMS):
        names = [f"x{k}", f"one{k}", f"zero{k}"][: 1 + len(sizes)]
        weights += [onnx.numpy_helper.from_array(np.full(n, v, "float32"), name) for n, v, name in zip(sizes, (1, 0), names[1:])]
        nodes.append(make.make_node(op, names, [f"y{k}"], **more))
    values = lambda letter: [make.make_tensor_value_info(f"{letter}{k}", 1, x.shape) for k, x in enumerate(inputs)]  # noqa: E731
    graph = make.make_graph(nodes, "norms", values("x"), values("y"), weights)
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 23)], ir_version=10)


# Operator, shape, sizes of its scale and bias, attributes; the place of PyTorch's in NORMS is that of the same shape.
ONNX_NORMS = (
    ("LayerNormalization", (6, 300), (300, 300), {}),
    ("LayerNormalization", (2, 8, 6, 10), ((8, 6, 10), (8, 6, 10)), {"axis": 1}),
    ("GroupNormalization", (2, 8, 6, 10), (8, 8), {"num_groups": 4}),
    ("InstanceNormalization", (2, 5, 9, 8), (5, 5), {}),
    ("MeanVarianceNormalization", (16, 5, 4, 4), (), {}),
    ("RMSNormalization", (6, 300), (300,), {}),
)
SAME = ("layer", "layer, over three axes", "group", "instance", "batch", "rms")


def test_norms_of_onnx_far_from_zero():
    g = torch.Generator().manual_seed(3)
    inputs = [1e4 + torch.randn(shape, generator=g) for _, shape, _, _ in ONNX_NORMS]
    ours = ns.compile(onnx_norms(inputs), target="llvm", verbose=0, guess=False)(*inputs)
    for name, x, got in zip(SAME, inputs, ours):
        norm = NORMS[name][0]
        theirs, exact = norm(x), norm(x.double())
        least = 4 * torch.finfo(torch.float32).eps * exact.abs().max()
        most = max(2 * (theirs.double() - exact).abs().max(), least)
        assert (torch.as_tensor(got).double() - exact).abs().max() <= most, name
