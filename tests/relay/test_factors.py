"""Factors of TF32 are rounded once, where they are made, by no kernel of their own."""

import numpy as np
import pytest
import relay_reference
from networks import SMALL
from relay_reference import evaluate

from nestsmith import IRModule, relay, transform
from nestsmith.compiled.build import _context
from nestsmith.relay.expr import Call, Function, Tuple, post_order
from nestsmith.relay.op.nn.convolution import is_depthwise
from nestsmith.relay.pipeline import fuse_module, optimize
from nestsmith.relay.transform import tensor_cores
from nestsmith.target import Target

nn = relay.nn
GPU = Target("cuda -arch=sm_90")
NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
ON = {"relay.for_tensor_cores": True, "nestsmith.allow_tf32": True}


def numbers(*shape):
    """Random numbers, the same for a shape."""
    return np.random.default_rng(shape).standard_normal(shape).astype("float32")


def weight(*shape):
    return relay.const(numbers(*shape) / np.float32(np.sqrt(np.prod(shape[:-1]))))


def conv(x, ci, co, kernel=3, strides=1):
    y = nn.conv2d(x, weight(kernel, kernel, ci, co), strides=strides, padding=kernel // 2, channels=co, kernel_size=kernel, **NHWC)
    return relay.add(y, relay.const(numbers(co)))


def residual_network():
    """The form of ResNet-18: an image moved to NHWC, a pool, a plain block and one that halves the image, a mean, classes."""
    x = nn.relu(conv(relay.layout_transform(relay.var("x", shape=(1, 3, 32, 32)), "NCHW", "NHWC"), 3, 16, 7, 2))
    x = nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1), layout="NHWC")
    x = nn.relu(relay.add(conv(nn.relu(conv(x, 16, 16)), 16, 16), x))
    x = nn.relu(relay.add(conv(nn.relu(conv(x, 16, 32, 3, 2)), 32, 32), conv(x, 16, 32, 1, 2)))
    return nn.dense(nn.batch_flatten(nn.global_avg_pool2d(x, layout="NHWC")), weight(10, 32))


def attention(scale=0.3):
    """Two heads: products of values that are moved and scaled first, a softmax, gated and normed rows."""
    x = relay.var("x", shape=(16, 32))
    y = nn.layer_norm(x, relay.const(np.ones(32, "float32")), relay.const(np.zeros(32, "float32")))
    q, k, v = (relay.transpose(relay.reshape(relay.add(nn.dense(y, weight(32, 32)), weight(32)), (16, 2, 16)), (1, 0, 2)) for _ in "qkv")
    weights = nn.softmax(nn.batch_matmul(relay.multiply(q, relay.const(scale)), k))
    y = nn.batch_matmul(weights, relay.transpose(v, (0, 2, 1)))
    y = relay.add(nn.dense(relay.reshape(relay.transpose(y, (1, 0, 2)), (16, 32)), weight(32, 32)), x)
    return nn.dense(relay.multiply(y, relay.sigmoid(y)), weight(8, 32))


def module(body):
    return IRModule.from_expr(relay.Function(relay.expr.free_vars(body), body))


def grouped_network():
    """A block as in ResNeXt: groups of four channels between two layers of 1x1."""
    x = nn.relu(conv(relay.layout_transform(relay.var("x", shape=(1, 3, 16, 16)), "NCHW", "NHWC"), 3, 32))
    y = nn.relu(conv(x, 32, 32, 1))
    y = nn.relu(nn.conv2d(y, weight(3, 3, 4, 32), padding=1, groups=8, channels=32, kernel_size=3, **NHWC))
    return relay.add(conv(y, 32, 32, 1), x)


NETWORKS = {"residual": lambda: (module(residual_network()), None), "grouped": lambda: (module(grouped_network()), None),
            "attention": lambda: (module(attention()), None), **SMALL}


def made(name, precision="tf32", target=GPU):
    """The network before and after fusion, as `compile` builds it."""
    mod, params = NETWORKS[name]()
    with _context("NHWC", target, precision):
        before = optimize(mod, target, params)
        return before["main"], fuse_module(before)["main"]


def calls(body, name=None):
    return [e for e in post_order(body) if isinstance(e, Call) and (name is None or e.op_name == name)]


def kernels(fused):
    """The operators of each kernel."""
    groups = [e.op for e in calls(fused.body) if isinstance(e.op, Function) and "reshape_only" not in e.op.attrs]
    return [[c.op_name for c in calls(g.body)] for g in groups]


def is_depthwise_conv(e):
    return e.op_name == "nn.conv2d" and is_depthwise(e)


def layers(f):
    return [e for e in calls(f.body) if e.op_name in ("nn.conv2d", "nn.dense", "nn.batch_matmul", "nn.matmul") and not is_depthwise_conv(e)]


def values_read(f):
    """What each layer reads, computed: [data, weight] for each."""
    inputs = {p.name_hint: numbers(*(int(d) for d in p.checked_type.shape)) for p in f.params}
    read = Tuple([a for e in layers(f) for a in e.args])
    values = evaluate(relay.Function(f.params, read), inputs)
    return list(zip(values[::2], values[1::2]))


def cut_off(x):
    return bool((np.ascontiguousarray(x).view("uint32") & 0x1FFF).any())


def test_weights_of_groups_have_their_channels_last():
    grouped = [e for e in calls(made("grouped")[0].body, "nn.conv2d") if e.attrs.groups == 8]
    assert [(e.attrs.kernel_layout, tuple(map(int, e.args[1].checked_type.shape))) for e in grouped] == [("OHWI", (32, 3, 3, 4))]


@pytest.mark.some(4)
@pytest.mark.parametrize("name", ["residual", "grouped", "attention", "resnet18-NCHW", "mobilenet-NCHW", "squeezenet"])
def test_layers_read_rounded_values_and_no_kernel_is_added(name, monkeypatch):
    plain, fused = made(name)
    read = values_read(plain)
    assert len(read) > 2 and not any(cut_off(v) for layer in read for v in layer)
    monkeypatch.setattr(tensor_cores, "round_factors", lambda f: f)
    before, fused_before = made(name)
    assert all(any(map(cut_off, layer)) for layer in values_read(before)) and not calls(before.body, "round_tf32")
    without = [[o for o in k if o != "round_tf32"] for k in kernels(fused)]
    assert sorted(without) == sorted(kernels(fused_before))


def test_each_value_once():
    """Not behind the pool, which reads rounded values; the last sum and the convolution of a shortcut are no factors. Residual sums are
    read rounded."""
    assert kernels(made("residual")[1]) == [
        ["layout_transform", "round_tf32", "nn.pad"],
        ["nn.conv2d", "add", "nn.relu", "round_tf32"],
        ["nn.max_pool2d"],
        ["nn.conv2d", "add", "nn.relu", "round_tf32"],
        ["nn.conv2d", "add", "add", "nn.relu", "round_tf32"],
        ["nn.conv2d", "add", "nn.relu", "round_tf32"],
        ["nn.conv2d", "add"],
        ["nn.conv2d", "add", "add", "nn.relu"],
        ["nn.global_avg_pool2d", "round_tf32"],
        ["nn.dense"],
    ]


def test_factors_that_are_moved_and_scaled():
    """What is scaled on the way into a product is rounded there, behind the factor."""
    found = kernels(made("attention")[1])
    assert [k for k in found if "nn.batch_matmul" in k] == [
        ["reshape", "transpose", "multiply", "round_tf32", "reshape", "transpose", "nn.batch_matmul"],
        ["reshape", "transpose", "nn.batch_matmul", "round_tf32"],
    ]
    assert [k[-1] for k in found if k[0] in ("nn.softmax", "nn.layer_norm")] == ["round_tf32"] * 2
    assert [k for k in found if k[:1] == ["nn.dense"]].count(["nn.dense", "add", "round_tf32"]) == 2  # keys and values


def test_what_is_rounded_stays_so():
    """Through reshapes, pads, parts put together, relu and maxima of rounded values; each part that is not gets a rounding of its own."""
    x = relay.var("x", shape=(4, 8))
    y = relay.tanh(x)
    both = relay.concatenate([relay.maximum(nn.relu(y), relay.const(np.float32(0.25))), relay.exp(x)], 0)
    both = nn.pad(relay.reshape(both, (4, 16)), ((0, 0), (0, 8)))
    body = relay.add(nn.dense(both, weight(8, 24)), nn.dense(y, weight(8, 8)))
    with transform.PassContext(opt_level=3, config=ON):
        out = optimize(module(body), GPU)["main"]
    assert sorted(e.args[0].op_name for e in calls(out.body, "round_tf32")) == ["exp", "tanh"]


@pytest.mark.parametrize("body", [lambda x: x, lambda x: relay.reshape(x, (8, 8)), lambda x: relay.sum(relay.reshape(x, (8, 8, 1)), 2)])
def test_no_kernel_is_made_for_a_rounding(body):
    """An input that is read as it comes, and sums, have none that could take it in."""
    with transform.PassContext(opt_level=3, config=ON):
        out = optimize(module(nn.dense(body(relay.var("x", shape=(8, 8))), weight(8, 8))), GPU)["main"]
    assert not calls(out.body, "round_tf32") and not cut_off(calls(out.body, "nn.dense")[0].args[1].data)


@pytest.mark.parametrize(
    ("precision", "target"),
    [("float32", GPU), ("float32x3", GPU), ("float16", GPU), ("tf32", Target("cuda -arch=sm_75")), ("tf32", Target("llvm"))],
)
def test_other_precisions_and_targets_round_nothing(precision, target):
    plain, _ = made("residual", precision, target)
    assert not calls(plain.body, "round_tf32")


def test_units_that_cut_factors_off_make_nothing_smaller(monkeypatch):
    """A network computed as warpgroups do it, but for the order of sums: its results are too small unless factors are rounded."""
    inputs = {"x": numbers(1, 3, 32, 32)}
    rounded = made("residual")[0]
    monkeypatch.setattr(tensor_cores, "round_factors", lambda f: f)
    plain = made("residual")[0]
    want, special = evaluate(plain, inputs), relay_reference._special

    def on_units(e, values):
        if e.op_name in ("nn.conv2d", "nn.dense"):
            values = [(v.view("uint32") & np.uint32(0xFFFFE000)).view("float32") for v in map(np.ascontiguousarray, values)]
        out = special(e, values)
        return e.op.evaluate(e.attrs, *values) if out is None and e.op_name == "nn.dense" else out

    monkeypatch.setattr(relay_reference, "_special", on_units)
    ours, cut = (float((evaluate(f, inputs) - want).ravel() @ want.ravel() / (want.ravel() @ want.ravel())) for f in (rounded, plain))
    assert cut < -1e-3 and abs(ours) < 3e-4, (ours, cut)  # by how much results are too large
