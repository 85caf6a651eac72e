"""Models of PyTorch become networks that compute what PyTorch computes."""

import math
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from whole_networks import error, outputs

from helpers import in_turn
from nestsmith import ir, relay
from nestsmith.error import ImportMismatch, OpNotImplemented

from_pytorch = relay.frontend.from_pytorch


class Module(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *x):
        return self.f(*x)


def module(f):
    return Module(f).eval()


def images(*shape, seed=0):
    torch.manual_seed(seed)
    return torch.randn(*shape)


X = images(2, 4, 7, 9)
FLAT = images(3, 8)
I = torch.tensor([[0, 2, 1], [3, 3, -1]])


def _attend(mask=None, **options):
    q, k, v = images(1, 2, 5, 4), images(1, 2, 6, 4, seed=1), images(1, 2, 6, 3, seed=2)
    more = () if mask is None else (mask,)
    return (lambda q, k, v, m=None: F.scaled_dot_product_attention(q, k, v, m, **options)), (q, k, v, *more)


def _written(x):
    y = x * 2
    y[:, 1] = 0
    y[..., 2:4] += 1
    return y


def _masked(x):
    mask = torch.zeros(7, 9)
    mask[2:, :3] = 1
    return x.masked_fill(mask != 0, -1.0)


# name: (function, inputs)
FUNCTIONS = {
    "promotion": (lambda x, i: (x[0, 0, 0, :3] + i) * 2 - i / 4 + (i > 0) + i % 3, (X, I)),
    "of integers": (lambda i: (i // 2, i * 3 + 1, i.float().sqrt(), i**2, -i, i & 1, ~i, i.clamp(0, 2), i.clamp(2, 0)), (I,)),
    "finite": (lambda x, i: (x.isfinite(), (x * 1e38 * 10).isinf(), i.isfinite(), i.isinf(), i.isnan()), (X, I)),
    "truth": (lambda x: ((x > 0) & (x < 1), ~(x > 0), (x > 0).logical_or(x < -1), (x > 0).any(1), (x > -9).all()), (X,)),
    "rounding": (lambda x: (x * 3).round() + x.floor() + x.ceil() + x.trunc() + x.frac() + torch.round(x * 2) / 2, (X,)),
    "powers": (lambda x: (x.abs() ** 1.5, 2**x, x**2, x.abs().pow(x), x.exp().rsqrt(), x.reciprocal()), (X,)),
    "where": (lambda x: torch.where(x > 0, x, 0.5) + x.clamp(min=-0.3) + torch.maximum(x, x * 2), (X,)),
    "activations": (lambda x: sum(f(x) for f in (F.elu, F.selu, F.celu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.softplus, F.relu6,
                                                 F.leaky_relu, F.logsigmoid, F.softsign, F.gelu, F.hardtanh, F.tanhshrink)), (X,)),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh") + F.glu(x, 1).repeat(1, 2, 1, 1), (X,)),
    "threshold": (lambda x: F.threshold(x, 0.1, 2.0) + F.softplus(x, 3.0, 1.0) + F.hardshrink(x) + F.softshrink(x), (X,)),
    "reductions": (lambda x: (x.sum(), x.mean((2, 3)), x.amax(1, True), x.var(1), x.std(2, unbiased=False), x.norm(dim=1), x.prod(3),
                              x.logsumexp(1), torch.var_mean(x, (0, 1)), x.norm(1, 2), x.min(), x.abs().max(2).values), (X,)),
    "places": (lambda x: (x.argmax(1), x.max(2)[1], x.topk(3, 1), x.sort(2, descending=True)[0], x.argsort(1), x.cumsum(1)), (X,)),
    "integers summed": (lambda i: (i.sum(1), (i > 0).sum(), i.cumsum(1), i.amax(1)), (I,)),
    "shapes": (lambda x: (x.flatten(1), x.transpose(1, 3), x.permute(0, 2, 3, 1), x.unflatten(1, (2, 2)), x[:, None].squeeze(1),
                          x.reshape(2, -1, 9).mT, x.view(-1), x.movedim(1, -1)), (X,)),
    "parts": (lambda x: (x[:, 1:3], x[..., ::2], x[-1], *x.split(3, 1), *x.chunk(2, 3), x.unbind(1)[2], x.narrow(2, 1, 3)), (X,)),
    "together": (lambda x: (torch.cat([x, x * 2], 1), torch.stack([x, x], 2), x.repeat(1, 2, 1, 1), x.expand(3, 2, 4, 7, 9),
                            x.repeat_interleave(2, 1), x.flip(1, 3), x.roll((1, -2), (1, 2)), torch.hstack([x, x])), (X,)),
    "pads": (lambda x: (F.pad(x, (1, 2, 0, 3), value=2.0), F.pad(x, (2, 1, 1, 2), "reflect"), F.pad(x, (1, 2, 3, 0), "replicate"),
                        F.pad(x, (1, 2, 2, 1), "circular"), F.pad(x, (-1, 2))), (X,)),
    "by index": (lambda x, i: (x[:, i[0]], x[0, 0][i], x.gather(1, i.clamp(min=0).view(2, 3, 1, 1)), x.index_select(2, i[0]),
                               x[:, :, i[0], i[1]], x[i[0] % 2, :, i[1]]), (X, I)),
    "by a known index": (lambda x: (x[:, [0, 2]], x[:, :, torch.tensor([[1, 2]]), torch.tensor([[0], [3]])]), (X,)),
    "scatter": (lambda x, i: (x.scatter(1, i.abs().view(2, 3, 1, 1), 5.0), x.scatter_add(1, i.abs().view(2, 3, 1, 1), x),
                              x.index_put((torch.tensor([0, 1]),), torch.zeros(()))), (X, I)),
    "written to": (_written, (X,)),
    "known and written to": (_masked, (X,)),
    "in place": (lambda x: F.relu(F.hardswish(x + 1, inplace=True).mul_(2).add_(x), inplace=True), (X,)),
    "products": (lambda a: (a @ a.T, a.mv(a[0]), a[0] @ a[1], a[None].expand(2, 3, 8) @ a.T, torch.addmm(a[:, :3], a, a.T, alpha=2),
                            torch.einsum("ij,kj->ik", a, a), torch.outer(a[0], a[1]), torch.bmm(a[None], a.T[None])), (FLAT,)),
    "triangles": (lambda a: (a.triu(1), a.tril(-1), a.T.tril()), (FLAT,)),
    "attention": _attend(),
    "attention, causal": _attend(is_causal=True),
    "attention, scaled": _attend(scale=0.3),
    "attention, added mask": _attend(images(5, 6)),
    "attention, an added mask of which rows see nothing": _attend(torch.tensor([0, -math.inf, 0, 1, -math.inf])[:, None].expand(5, 6)),
    "attention, rows that see nothing": _attend(torch.arange(30).view(5, 6) % 7 > torch.arange(5)[:, None] * 2),
    "norms": (lambda x: (F.layer_norm(x, (7, 9)), F.group_norm(x, 2), F.instance_norm(x), F.rms_norm(x, (9,)), F.normalize(x, dim=1),
                         F.softmax(x, 1), F.log_softmax(x, 2), F.local_response_norm(x, 3)), (X,)),
    "max pools": (lambda x: (F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, ceil_mode=True), F.max_pool2d(x, 2, 1, dilation=2),
                             F.max_pool1d(x[0], 3)), (X,)),
    "mean pools": (lambda x: (F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 2, ceil_mode=True),
                              F.avg_pool2d(x, 2, divisor_override=3), F.avg_pool1d(x[0], 3), F.lp_pool2d(x.abs(), 2, 2)), (X,)),
    "adaptive pools": (lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_max_pool2d(x, (2, 5)),
                                  F.adaptive_avg_pool2d(x, (9, 11)), F.adaptive_avg_pool1d(x[0], 2)), (X,)),
    "mean pools that overhang": (lambda x: (F.avg_pool2d(x, (4, 3), 3, 1, ceil_mode=True, divisor_override=5),
                                            F.avg_pool1d(x[0], 6, 4, 2, ceil_mode=True)), (X,)),
    "mean pools of integers": (lambda i: (F.avg_pool1d(i, 6, 3, 2, ceil_mode=True), F.avg_pool1d(i, 7, 3, 3, True, False), F.avg_pool1d(i, 3),
                                          F.avg_pool2d(i, (2, 3), divisor_override=-2), F.avg_pool3d(i[None], 2, 2, 1, divisor_override=3)),
                               (torch.arange(-40, 41).view(3, 3, 9),)),
    "without axes": (lambda x: (x.argmax(0), x.argmin(-1, True), x.max(0), x.min(-1), (x > 0).max(0), x.cumsum(0), x.topk(1), x.sort(),
                                x.argsort(), x.softmax(0), x.log_softmax(-1), x.flip(0), x.var(), x.gather(0, (x > 9).long()),
                                x.gather(0, (x > 9).long().view(1).expand(3)), x.scatter(0, (x > 9).long(), 2.0),
                                x.index_copy(0, (x > 9).long(), x * 2)), (torch.tensor(3.5),)),
    "order that is kept": (lambda i: (i.argsort(dim=0, stable=True), torch.argsort(i % 3, stable=True, dim=1, descending=True)), (I,)),
    "copied and taken": (lambda x, i: (x.index_copy(2, i[1, 1:] + 1, x[:, :, :2] * 2), x[0].index_fill(1, i[0], 3.0), x.take(i),
                                       x.index_copy(-1, torch.tensor([4, 0]), x[..., :2])), (X, I)),
    "resizing": (lambda x: (F.interpolate(x, scale_factor=2.0), F.interpolate(x, (5, 13)), F.interpolate(x, (10, 8), mode="bilinear"),
                            F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True), F.interpolate(x, (9, 4), mode="bicubic"),
                            F.interpolate(x, (5, 3), mode="bilinear", antialias=True), F.interpolate(x, (3, 9), mode="bicubic", antialias=True),
                            F.interpolate(x[0], 5, mode="linear"), F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :6, :8], 2)), (X,)),
    "types": (lambda x, i: (x.double() + 1, x.to(torch.float16).float(), i.to(x), x.int(), i.bool(), x.type_as(i), i.new_ones(2) + i[:, 0]), (X, I)),
}  # fmt: skip


def tensors(y):
    return torch.utils._pytree.tree_leaves(y)


@pytest.mark.some(10)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    f, inputs = FUNCTIONS[name]
    with torch.no_grad():
        want = [t.numpy() for t in tensors(f(*inputs))]
    mod, params = from_pytorch(module(f), example_inputs=inputs)
    got = outputs(mod, params, inputs)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5)


LAYERS = {
    "conv1d": (nn.Conv1d(4, 6, 3, 2, 1), (2, 4, 9)),
    "conv2d, same, groups": (nn.Conv2d(4, 8, (3, 4), padding="same", groups=2, dilation=(1, 2)), (2, 4, 7, 9)),
    "conv2d without batch": (nn.Conv2d(4, 3, 3, bias=False), (4, 7, 9)),
    "conv2d, reflected": (nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), (2, 4, 7, 9)),
    "conv3d": (nn.Conv3d(2, 3, 3, padding=1), (1, 2, 4, 5, 6)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), (2, 4, 5, 6)),
    "transposed 1-D": (nn.ConvTranspose1d(4, 3, 4, 2, 1), (2, 4, 6)),
    "transposed, dilated": (nn.ConvTranspose2d(2, 3, 3, 2, dilation=2), (1, 2, 4, 4)),
    "transposed 3-D": (nn.ConvTranspose3d(2, 3, 2, 2), (1, 2, 2, 3, 3)),
    "prelu": (nn.PReLU(4), (2, 4, 5)),
    "bilinear": (nn.Linear(8, 3), (8,)),
    "instance norm with statistics": (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (2, 4, 3, 3)),
    "lstm": (nn.LSTM(5, 4, 2, bidirectional=True), (6, 2, 5)),
    "lstm, batch first, no bias": (nn.LSTM(5, 4, bias=False, batch_first=True), (2, 6, 5)),
    "gru": (nn.GRU(5, 4, bidirectional=True), (3, 2, 5)),
    "gru without batch": (nn.GRU(5, 4), (3, 5)),
    "rnn": (nn.RNN(5, 4, nonlinearity="relu", batch_first=True), (2, 3, 5)),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), (2, 5, 8)),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), (3, 8)),
}


@pytest.mark.some(6)
@pytest.mark.parametrize("name,freeze", in_turn(list(LAYERS), [False, True]))
def test_layers(name, freeze):
    layer, shape = LAYERS[name]
    layer = layer.eval()
    x = images(*shape)
    with torch.no_grad():
        want = [t.numpy() for t in tensors(layer(x))]
    mod, params = from_pytorch(layer, [("data", shape)], freeze_params=freeze)
    assert mod["main"].params[0].name_hint == "data" and set(params) <= set(layer.state_dict())
    assert bool(params) != freeze and len(mod["main"].params) == 1 + len(params)
    assert error(outputs(mod, params, (x,)), want) < 1e-5


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)).eval()


def test_weights_keep_their_names():
    model = net()
    mod, params = from_pytorch(model, [("x", ((1, 3, 8, 8), "float32"))])
    state = model.state_dict()
    assert [p.name_hint for p in mod["main"].params] == ["x", *(k for k in state if not k.endswith("num_batches_tracked"))]
    assert all((params[k] == state[k].numpy()).all() for k in params)


def test_weights_with_two_names_are_one():
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)).eval()
    model[1].weight = model[0].weight
    _, params = from_pytorch(model, [("ids", ((2, 3), "int64"))])
    assert list(params) == ["0.weight"]


def test_kinds_of_models():
    model, x = net(), images(1, 3, 8, 8)
    want = model(x).detach().numpy()
    for given in (model, torch.export.export(model, (x,)), torch.export.export(model, (x,)).run_decompositions(), torch.jit.trace(model, x)):
        mod, params = from_pytorch(given, example_inputs=(x,))
        assert error(outputs(mod, params, (x,)), [want]) < 1e-5
    mod, params = from_pytorch(torch.jit.script(model), [("image", (1, 3, 8, 8))])
    assert mod["main"].params[0].name_hint == "image" and set(params) <= set(model.state_dict())


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_traced_functions():
    """Without parameters, of the types that were traced, of no inputs, with memory that is not filled, with names for the parser."""
    x, i = torch.rand(4, 5), torch.tensor([[0], [2], [1], [4]])
    traced = torch.jit.trace(lambda x, i: torch.gather(x, 1, i) + torch.empty(2).shape[0], (x, i))
    mod, params = from_pytorch(traced, [("x", (4, 5)), ("i", (4, 1))])
    assert not params and mod["main"].params[1].checked_type.dtype == "int64"
    assert error(outputs(mod, params, (x, i)), [traced(x, i).numpy()]) == 0
    mod, params = from_pytorch(torch.jit.trace(lambda: torch.full((2, 3), 7.0), ()), [])
    np.testing.assert_array_equal(outputs(mod, params, ())[0], np.full((2, 3), 7.0))
    mod, params = from_pytorch(torch.jit.trace(lambda x: torch.empty_like(x) * 0 + x, (x,)), [("x", (4, 5))])
    assert error(outputs(mod, params, (x,)), [x.numpy()]) == 0
    _, params = from_pytorch(torch.jit.trace(net(), images(1, 3, 8, 8)), [("x", (1, 3, 8, 8))], use_parser_friendly_name=True)
    assert all("." not in name for name in params) and len(params) > 2


class Gate(nn.Module):
    def forward(self, x, h):
        return torch.tanh(x + h) if bool(x.sum() > 100) else torch.tanh(x - h)


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.jit.trace(Gate(), (torch.rand(3, 4), torch.rand(3, 4)))

    def forward(self, xs):
        h = torch.zeros(3, 4)
        for i in range(xs.size(0)):
            h = self.cell(xs[i], h)
        return h


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_scripts(tmp_path):
    """With a loop around a traced cell; with a result that is known; its graph as a file."""
    x, script = torch.rand(2, 3, 4), torch.jit.script(Loop().eval())
    mods = [from_pytorch(script, [("x", (2, 3, 4))], export_renamed_c_graph_path=str(tmp_path / "graphs")) for _ in range(2)]
    ir.assert_structural_equal(mods[0][0], mods[1][0])
    assert error(outputs(*mods[0], (x,)), [script(x).numpy()]) < 1e-5
    file = next((tmp_path / "graphs").iterdir())
    assert file.name.startswith("tvm_exported_c_graph_") and "%prim::Loop_0" in file.read_text()

    class Fraction(nn.Module):
        def forward(self, x):
            return torch.is_floating_point(x)

    for dtype, want in (("float32", True), ("int8", False)):
        mod, params = from_pytorch(torch.jit.script(Fraction()), [("x", ((2,), dtype))])
        assert outputs(mod, params, (torch.zeros(2, dtype=getattr(torch, dtype)),))[0] == want


def test_converters_in_the_form_of_lists():
    seen = []

    def convert(inputs, input_types):
        seen.append(input_types)
        return relay.multiply(inputs[0], relay.const(3.0))

    model, x = nn.Sequential(nn.ReLU()).eval(), torch.rand(2, 3)
    mod, params = from_pytorch(model, [("x", (2, 3))], {"aten::relu": convert})
    assert error(outputs(mod, params, (x,)), [3 * x.numpy()]) < 1e-6 and seen == [["float32"]]


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ((net().train(), [("x", (1, 3, 8, 8))]), ValueError, "training mode.*model.eval"),
        ((net(),), ValueError, "needs example_inputs"),
        ((net(), [("x", (1, 4, 8, 8))]), ValueError, "torch.export cannot take"),
        ((net(), [("x",)]), ValueError, r"input_infos\[0\]"),
        ((net(), [("x", ((1, 3, 8, 8), "floaty"))]), ValueError, "'x' is of type 'floaty'"),
        ((net().state_dict(), [("x", (1, 3, 8, 8))]), TypeError, "load it into its module"),
        ((torch.export.export(net(), (images(1, 3, 8, 8),)), [("x", (2, 3, 8, 8))]), ValueError, "the model says"),
        ((torch.export.export(net(), (images(1, 3, 8, 8),)), [("x", (1, 3, 8, 8)), ("y", (1,))]), ValueError, "names 2 inputs"),
    ],
)
def test_bad_models(arguments, kind, text):
    with pytest.raises(kind, match=text):
        from_pytorch(*arguments)


def test_dynamic_shapes_are_refused():
    d = torch.export.Dim("n", min=2, max=9)
    program = torch.export.export(module(lambda x: x + 1), (FLAT,), dynamic_shapes={"x": ({0: d},)})
    with pytest.raises(OpNotImplemented, match="fixed shapes"):
        from_pytorch(program)


def test_open_sizes_are_bound_by_examples():
    linear, d = torch.nn.Linear(8, 4).eval(), torch.export.Dim("n", min=2, max=9)
    program = torch.export.export(linear, (FLAT,), dynamic_shapes={"input": {0: d}})
    x = images(5, 8, seed=4)
    for how in ({"example_inputs": (x,)}, {"input_infos": [("data", (5, 8))]}):
        mod, params = from_pytorch(program, **how)
        assert set(params) == {"weight", "bias"} and error(outputs(mod, params, [x]), [linear(x).detach().numpy()]) <= 1e-5
    with pytest.raises(ValueError, match=r"cannot have inputs of the shapes \(5, 7\)"):
        from_pytorch(program, example_inputs=(images(5, 7),))
    with pytest.raises(ValueError, match="2 inputs are given for an exported program that takes 1"):
        from_pytorch(program, example_inputs=(x, x))
    halves = torch.export.export(module(lambda x: x // 2), (FLAT.int(),), dynamic_shapes={"x": ({0: d},)})
    for how in ({"example_inputs": (x,)}, {"input_infos": [("x", (5, 8))]}):
        with pytest.raises(ValueError, match="given as float32; the exported program takes int32"):
            from_pytorch(halves, **how)


def test_everything_that_is_missing_is_said_at_once():
    f = module(lambda x: (torch.linalg.svd(x)[1], torch.linalg.svd(x + 1)[1], torch.linalg.eigvals(x).abs(), x + torch.rand(4, 4)))
    with pytest.raises(OpNotImplemented) as e:
        from_pytorch(f, [("x", (4, 4))])
    assert "aten._linalg_svd.default: 2 nodes" in str(e.value) and "eig" in str(e.value) and "aten.rand.default" in str(e.value)


def test_what_pytorch_cannot_take_apart_is_said():
    library = torch.library.Library("nestsmith_test", "DEF")
    library.define("by_sign(Tensor x) -> Tensor")
    library.impl("by_sign", torch.neg, "CPU")
    library.impl("by_sign", torch.empty_like, "Meta")
    program = torch.export.export(module(lambda x: torch.ops.nestsmith_test.by_sign(x)), (FLAT,))
    # From now on it has parts, which depend on the data.
    library.impl("by_sign", lambda x: x + 1 if x.sum().item() > 0 else x - 1, "CompositeImplicitAutograd")
    with pytest.raises(OpNotImplemented, match="nestsmith_test.by_sign.default: 1 node"):
        from_pytorch(program)


def test_quantised_modules_name_the_ways_out():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layers = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(8, 8)).eval(), {torch.nn.Linear}, torch.qint8)
        with pytest.raises(ValueError, match="Other ways in: torch.compile.*an ONNX file of the model"):
            from_pytorch(layers.eval(), example_inputs=(torch.randn(2, 8),))


def test_integers_are_not_resized_by_weights():
    f = module(lambda x: F.interpolate(x, (9, 5), mode="bilinear"))
    with pytest.raises(OpNotImplemented, match="uint8 by linear"):
        from_pytorch(f, [("x", ((1, 2, 4, 4), "uint8"))])


@pytest.mark.parametrize("read", [lambda y, at: (y, at), lambda y, at: y + at[..., None]], ids=["returned", "read"])
def test_results_that_are_not_there_are_refused(read):
    f = module(lambda x: read(*torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)))
    with pytest.raises(OpNotImplemented, match="flash_attention.*result 1"):
        from_pytorch(f, [("x", (1, 2, 4, 4))])


def test_buffers_that_change_pass_in_and_out():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    mod, params = from_pytorch(Counter().eval(), [("x", (3,))], check=True)
    assert [p.name_hint for p in mod["main"].params] == ["x", "count"] and not params
    x, count = images(3), images(1)
    assert error(outputs(mod, params, (x, count)), [(x + count + 1).numpy(), (count + 1).numpy()]) < 1e-6


def test_a_users_converter():
    f = module(lambda x: torch.special.i0(x).relu())
    mine = {"aten::special_i0": relay.negative, "aten::i0": relay.negative, "aten::relu": lambda a: a}
    mod, params = from_pytorch(f, [("x", (4, 4))], mine)
    x = images(4, 4)
    assert error(outputs(mod, params, (x,)), [-x.numpy()]) == 0


def test_no_grad_inside():
    def f(x):
        with torch.no_grad():
            y = x * 2
        return y + x

    mod, params = from_pytorch(module(f), [("x", (3,))])
    assert outputs(mod, params, (torch.ones(3),))[0].tolist() == [3, 3, 3]


def test_nodes_are_compared():
    model, x = net(), images(1, 3, 8, 8)
    model[1].running_mean.add_(0.5)
    for given in (True, (x,), (x.numpy(),)):
        from_pytorch(model, [("x", (1, 3, 8, 8))], check=given, example_inputs=(x,))
    wrong = {"aten::batch_norm": lambda x, *_: x}
    with pytest.raises(ImportMismatch, match=r"aten.batch_norm.default 'batch_norm in 1' .* PyTorch: its largest error"):
        from_pytorch(model, None, wrong, example_inputs=(x,), check=True)


def test_mxnet_has_a_way_out():
    with pytest.raises(NotImplementedError, match="from_onnx"):
        relay.frontend.from_mxnet(None, shape={"data": (1, 3, 224, 224)})


@pytest.mark.parametrize("call", ["from_keras", "from_tensorflow", "from_tflite"])
def test_missing_packages_are_named(call, monkeypatch):
    for name in ("keras", "tensorflow", "tf2onnx"):
        monkeypatch.setitem(sys.modules, name, None)
    text = "keras" if call == "from_keras" else "tensorflow tf2onnx"
    with pytest.raises(ImportError, match=f"pip install {text}"):
        getattr(relay.frontend, call)("model")
