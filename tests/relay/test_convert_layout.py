"""ConvertLayout: what follows a convolution into another layout, and that networks compute the same to the bit."""

import functools

import numpy as np
import pytest
from levels import outputs
from networks import NHWC, logits
from relay_reference import evaluate, relative_error

from helpers import rest_full
from nestsmith import auto_scheduler, relay, transform
from nestsmith.relay import testing as T
from nestsmith.relay.expr import Call, post_order
from nestsmith.relay.transform.basic import bind_params_by_name
from nestsmith.relay.transform.convert_layout import layouts_of_convolutions

nn = relay.nn
CUDA = "cuda -arch=sm_90 -max_shared_memory_per_block=49152 -max_threads_per_block=1024"
MOVES = ("layout_transform", "transpose")
# Every network of relay.testing in every layout that it offers, and how many transforms stay when it goes to the other
# one: at the input, and before what flattens a map of more than one pixel. (dcgan goes from a vector to an image.)
NETWORKS = {
    "resnet-18": (lambda: T.resnet.get_workload(num_layers=18, image_shape=(3, 64, 64)), "NHWC", 1),
    "resnet-18-NHWC": (lambda: T.resnet.get_workload(num_layers=18, layout="NHWC", image_shape=(64, 64, 3)), "NCHW", 1),
    "resnet-50": (lambda: T.resnet.get_workload(num_layers=50, image_shape=(3, 64, 64)), "NHWC", 1),
    "resnet3d": (lambda: T.resnet_3d.get_workload(image_shape=(3, 4, 40, 40)), "NHWC", 1),
    "resnet3d-NDHWC": (lambda: T.resnet_3d.get_workload(layout="NDHWC", image_shape=(4, 40, 40, 3)), "NCHW", 1),
    "mobilenet": (lambda: T.mobilenet.get_workload(image_shape=(3, 64, 64)), "NHWC", 1),
    "mobilenet-NHWC": (lambda: T.mobilenet.get_workload(layout="NHWC", image_shape=(64, 64, 3)), "NCHW", 1),
    "squeezenet_v1.0": (lambda: T.squeezenet.get_workload(image_shape=(3, 64, 64)), "NHWC", 1),
    "squeezenet_v1.1": (lambda: T.squeezenet.get_workload(version="1.1", image_shape=(3, 64, 64)), "NHWC", 1),
    "vgg-11": (lambda: T.vgg.get_workload(1, image_shape=(3, 64, 64)), "NHWC", 2),
    "vgg-11-bn": (lambda: T.vgg.get_workload(1, image_shape=(3, 32, 32), batch_norm=True), "NHWC", 1),
    "inception_v3": (lambda: T.inception_v3.get_workload(), "NHWC", 1),
    "densenet": (lambda: T.densenet.get_workload(batch_size=1), "NHWC", 1),
    "dcgan": (lambda: T.dcgan.get_workload(1, ngf=8), "NHWC", 2),
    "dcgan-NHWC": (lambda: T.dcgan.get_workload(1, ngf=8, oshape=(64, 64, 3), layout="NHWC"), "NCHW", 2),
    "dqn": (lambda: T.dqn.get_workload(1), "NHWC", 2),
    "dqn-NHWC": (lambda: T.dqn.get_workload(1, layout="NHWC", image_shape=(84, 84, 4)), "NCHW", 2),
    "mlp": (lambda: T.mlp.get_workload(1), "NHWC", 0),
    "lstm": (lambda: T.lstm.get_workload(2, 8), "NHWC", 0),
}


def func(body):
    return relay.Function(relay.expr.free_vars(body), body)


def X(*shape):
    return relay.var("x", shape=shape)


def conv(x, name="w", channels=8, k=3):
    return nn.conv2d(x, relay.var(name), channels=channels, kernel_size=(k, k), padding=k // 2)


def converted(f, desired=None):
    """The function with its 2-D convolutions in NHWC, or as desired."""
    with transform.PassContext(opt_level=3):
        return relay.transform.ConvertLayout(desired or {"nn.conv2d": ["NHWC", "default"]})(f)


def moves(f, params=()):
    """The shapes of what is still moved when the weights are constants."""
    with transform.PassContext(opt_level=3):
        f = relay.transform.FoldConstant()(bind_params_by_name(f, dict(params)))
    return [e.args[0].checked_type.shape for e in post_order(f.body) if isinstance(e, Call) and e.op_name in MOVES]


def of_integers(params, rng):
    """Values with which a network computes small integers, so that no order of additions changes a bit: weights of 1, 0 and
    -1, few enough that values keep their size, and norms that divide by 1."""

    def value(name, v):
        if name.endswith("weight"):
            few = rng.random(v.shape) < min(0.5, 2 * max(v.shape) / v.size)
            return rng.choice([-1, 1], v.shape) * few
        if name.endswith(("gamma", "var")):
            return np.full(v.shape, 1 - 2e-5 if name.endswith("var") else 1)
        return rng.integers(-1, 2, v.shape)

    return {k: value(k, v).astype("float32") for k, v in params.items()}


@pytest.mark.some(4)
@pytest.mark.parametrize("name", rest_full(*NETWORKS, short=("resnet-18", "mobilenet-NHWC", "dcgan", "dcgan-NHWC", "dqn", "lstm")))
def test_networks_convert_and_back(name):
    make, other, border = NETWORKS[name]
    mod, params = make()
    f = relay.transform.InlineAll()(logits(mod))["main"]
    rng = np.random.default_rng(0)
    values = of_integers(params, rng)
    data = {p.name_hint: rng.integers(-2, 3, p.checked_type.shape).astype("float32") for p in f.params if p.name_hint not in params}
    back = "NHWC" if other == "NCHW" else "NCHW"
    there = converted(f, layouts_of_convolutions(other))
    again = converted(there, layouts_of_convolutions(back))
    assert len(moves(there, values)) == border and moves(again, values) == []
    want = evaluate(f, {**data, **values})
    for g in (there, again):
        layouts = {e.attrs.data_layout for e in post_order(g.body) if isinstance(e, Call) and "data_layout" in e.attrs}
        assert len(layouts) <= 1 and layouts <= {other if g is there else back, "NDHWC" if (g is there) == (other == "NHWC") else "NCDHW"}
        np.testing.assert_array_equal(evaluate(g, {**data, **values}), want)


@functools.cache
def keys(target, kind):
    mod, params = T.resnet.get_workload(num_layers=18, **(NHWC if kind == "native" else {}))
    main = mod["main"] if kind == "native" else converted(mod["main"])
    tasks, weights = auto_scheduler.extract_tasks(main, params, target)
    return {t.workload_key: w for t, w in zip(tasks, weights)}


@pytest.mark.some(1)
@pytest.mark.parametrize("target", ["cuda -arch=sm_90", "llvm"])
def test_resnet_18_has_the_tasks_of_the_one_built_in_nhwc(target):
    assert len(keys(target, "native")) == 24 and keys(target, "converted") == keys(target, "native")


@pytest.mark.parametrize("target", rest_full("llvm", CUDA, short=("llvm",)))
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_transposed_convolutions_tune(layout, target):
    """The generator's four deconvolutions are tasks in both layouts; the search has valid programs for each."""
    shape = (3, 64, 64) if layout == "NCHW" else (64, 64, 3)
    mod, params = T.dcgan.get_workload(1, oshape=shape, ngf=8, layout=layout)
    tasks, _ = auto_scheduler.extract_tasks(mod["main"], params, target)
    assert sum("conv2d_transpose" in t.desc for t in tasks) == 4
    for t in tasks:
        policy = auto_scheduler.SketchPolicy(t, auto_scheduler.RandomModel(), seed=0, verbose=0)
        assert policy.sample_initial_population()


# ---- operators -----------------------------------------------------------------------------------------------------


def test_convert_layout_brings_old_layouts_back():
    x = X(1, 8, 6, 4)
    y = nn.relu(conv(x))
    bodies = [
        relay.reshape(y, (8, 24)),
        nn.softmax(y, 1),
        relay.mean(y, (2, 3)),
        relay.sum(y, 1),
        relay.max(y, (1,), True),
        relay.transpose(y),
        relay.concatenate([y, relay.exp(x)], 1),
        nn.pad(y, ((0, 0), (1, 0), (0, 2), (3, 0))),
        relay.add(y, relay.const(np.arange(4, dtype="float32"))),
        relay.add(relay.const(np.ones((6, 1), "float32")), y),
        nn.adaptive_avg_pool2d(y, (3, 2)),
        relay.multiply(y, relay.const(2.0)),
    ]
    rng = np.random.default_rng(0)
    values = {
        "x": rng.normal(size=(1, 8, 6, 4)).astype("float32"),
        "w": rng.normal(size=(8, 8, 3, 3)).astype("float32"),
    }
    for body in bodies:
        f = func(body)
        out = converted(f)
        assert relative_error(evaluate(out, values), evaluate(f, values)) < 1e-5


def test_convert_layout_keeps_the_values_of_all_kinds_of_operators():
    """Norms, operators along an axis, several results of one operator: what follows the layout and what does not."""
    y = conv(X(1, 8, 6, 4))
    vectors = [relay.var(n, shape=(8,)) for n in "abcd"]
    norm, dropout = nn.batch_norm(y, *vectors), relay.expr.Call(relay.op.get("nn.dropout"), [y], {"rate": 0.5})
    bodies = [
        norm.astuple(),
        relay.Tuple([relay.abs(norm[0]), relay.add(norm[1], norm[2]), norm[0]]),
        dropout,
        relay.TupleGetItem(dropout, 1),
        nn.group_norm(y, *vectors[:2], num_groups=2),
        nn.instance_norm(y, *vectors[:2]),
        nn.layer_norm(y, *vectors[:2], axis=1),
        nn.l2_normalize(y, 1e-5, (1,)),
        nn.prelu(y, vectors[0]),
        relay.topk(y, 2, 1).astuple(),
        relay.argsort(y, 1),
        relay.cumsum(y, 1),
        relay.cumsum(y),
        relay.split(y, 2, 1).astuple(),
        relay.variance(y, (2, 3), True),
        relay.strided_slice(y, (0, 2), (1, 4)),
        relay.take(y, relay.const([0, 2]), 1),
        relay.stack([y, y], 1),
        nn.mirror_pad(y, ((0, 0), (1, 0), (0, 2), (3, 0))),
        relay.where(relay.greater(y, relay.const(0.5)), y, relay.abs(y)),
    ]
    rng = np.random.default_rng(0)
    for body in bodies:
        f = relay.transform.InferType()(func(body))
        values = {p.name_hint: rng.uniform(0.5, 2, p.checked_type.shape).astype("float32") for p in f.params}
        with transform.PassContext(opt_level=3):
            out = relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(f)
            got, want = (evaluate(relay.transform.SimplifyInference()(g), values) for g in (out, f))
        for g, w in zip(*([v] if not isinstance(v, list) else v for v in (got, want))):
            assert relative_error(g, w) < 1e-5

def value(f, values):
    """What a function computes: by the tests' evaluator, or compiled where that has no definition."""
    loops = {"nn.lrn", "image.resize2d", "nn.upsampling", "nn.depth_to_space"}
    if any(getattr(e, "op_name", None) in loops for e in post_order(f.body)):
        return outputs(f.body, values)[0]
    return evaluate(f, values)


def test_nothing_moves_between_convolutions():
    """What follows, with the moves that stay: that of the input, and that of the output where it is a map."""
    x = X(1, 8, 6, 4)
    y, gate = conv(x), relay.var("g", shape=(8, 1, 1))
    shuffled = relay.reshape(relay.transpose(relay.reshape(y, (1, 4, 2, 6, 4)), (0, 2, 1, 3, 4)), (1, 8, 6, 4))
    several = relay.split(y, 2, 1)
    channels_last = relay.transpose(y, (0, 2, 3, 1))
    norm = nn.layer_norm(channels_last, relay.var("a", shape=(8,)), relay.var("b", shape=(8,)))
    bodies = [
        relay.multiply(y, gate),
        relay.multiply(y, relay.sigmoid(conv(relay.mean(y, (2, 3), True), "v", 8, 1))),
        shuffled,
        relay.concatenate([several[1], several[0]], 1),
        relay.transpose(norm, (0, 3, 1, 2)),
        relay.strided_slice(y, (0, 0, 1), (1, 8, 5), (1, 1, 2)),
        relay.strided_slice(y, (2,), (6,), axes=(1,)),
        nn.prelu(y, relay.var("p", shape=(8,))),
        nn.lrn(y),
        nn.l2_normalize(y, 1e-5, (1,)),
        nn.instance_norm(y, relay.var("a", shape=(8,)), relay.var("b", shape=(8,))),
        nn.group_norm(y, relay.var("a", shape=(8,)), relay.var("b", shape=(8,)), 2),
        relay.image.resize2d(y, (9, 5)),
        nn.upsampling(y, 2, 2),
        nn.depth_to_space(y, 2),
        relay.where(relay.greater(y, relay.const(0.5)), y, relay.abs(y)),
        relay.clip(relay.cast(y, "float32"), 0, 6),
        nn.avg_pool2d(y, (3, 3), padding=(1, 1)),
        nn.adaptive_max_pool2d(y, (3, 2)),
        relay.expand_dims(relay.squeeze(relay.sum(y, 0, True), (0,)), 0),
        relay.repeat(y, 2, 1),
        relay.reverse(relay.tile(y, (1, 1, 2, 1)), 2),
        nn.pad(y, ((0, 0), (0, 0), (1, 1), (2, 0))),
        relay.broadcast_to(relay.max(y, (2,), True), (1, 8, 6, 4)),
        nn.conv2d(y, relay.var("d"), channels=8, groups=8, kernel_size=(3, 3)),
        nn.conv2d(y, relay.var("d"), channels=8, groups=4, kernel_size=(3, 3)),
        nn.conv2d_transpose(y, relay.var("d"), channels=8, kernel_size=(2, 2), strides=(2, 2)),
    ]
    rng = np.random.default_rng(0)
    for body in bodies:
        shape = body.checked_type.shape
        f = relay.transform.InferType()(func(conv(body, "last", 8, 1)))
        values = {p.name_hint: rng.uniform(-1, 2, p.checked_type.shape).astype("float32") for p in f.params}
        out = converted(f, layouts_of_convolutions("NHWC"))
        weights = {k: v for k, v in values.items() if k != "x"}
        own = len(moves(f))
        assert len(moves(out, weights)) - own <= 2, (body.op_name, shape, moves(out, weights))
        with transform.PassContext(opt_level=3):
            got, want = (value(relay.transform.SimplifyInference()(g), values) for g in (out, f))
        assert relative_error(got, want) < 1e-5, body.op_name


def test_a_converted_network_runs():
    """The compiled program of a shuffle, a gate and a transposed convolution, of integers: equal to the bit."""
    x = X(1, 4, 5, 6)
    y = relay.reshape(relay.transpose(relay.reshape(conv(x, "w", 8), (1, 2, 4, 5, 6)), (0, 2, 1, 3, 4)), (1, 8, 5, 6))
    z = relay.concatenate([y, conv(nn.max_pool2d(y, (3, 3), padding=(1, 1)), "v", 8)], 1)
    body = nn.conv2d_transpose(z, relay.var("d"), channels=3, kernel_size=(3, 3), strides=(2, 2))
    f = relay.transform.InferType()(func(body))
    rng = np.random.default_rng(0)
    values = {p.name_hint: rng.integers(-3, 4, p.checked_type.shape).astype("float32") for p in f.params}
    out = converted(f, layouts_of_convolutions("NHWC"))
    np.testing.assert_array_equal(outputs(out.body, values)[0], evaluate(f, values))


def test_transposes_are_not_done_to_be_undone():
    """Data that come channels last and are turned for a convolution, as in exported networks, are convolved as they come."""
    x = X(1, 6, 4, 8)
    out = converted(func(relay.transpose(nn.relu(conv(relay.transpose(x, (0, 3, 1, 2)))), (0, 2, 3, 1))))
    assert moves(out, {"w": np.zeros((8, 8, 3, 3), "float32")}) == []


def test_a_move_of_no_element_is_a_reshape():
    out = converted(func(conv(X(1, 1, 28, 28))))
    assert moves(out, {"w": np.zeros((8, 1, 3, 3), "float32")}) == [(1, 28, 28, 8)]
    assert "reshape" in {e.op_name for e in post_order(out.body) if isinstance(e, Call)}


def test_layers_can_be_left_out():
    x = X(1, 8, 6, 6)
    f = func(conv(conv(conv(x), "v"), "u"))
    with relay.transform.LayoutConfig(skip_layers=[1]):
        out = converted(f)
    layouts = [e.attrs.data_layout for e in post_order(out.body) if isinstance(e, Call) and e.op_name == "nn.conv2d"]
    assert layouts == ["NHWC", "NCHW", "NHWC"]
    assert [e.attrs.data_layout for e in post_order(converted(f).body) if "data_layout" in getattr(e, "attrs", {})] == ["NHWC"] * 3


def test_convert_layout_errors():
    with pytest.raises(ValueError, match="NHWC"):
        relay.transform.ConvertLayout({"nn.conv2d": "NHWC"})
    with pytest.raises(ValueError, match="nn.conv2d"):
        relay.transform.ConvertLayout({"nn.conv2": ["NHWC"]})
    with transform.PassContext(opt_level=3), pytest.raises(ValueError, match="default"):
        relay.transform.ConvertLayout({"nn.conv2d": ["default", "default"]})(func(conv(X(1, 8, 6, 6))))
    for desired, what in (({"nn.softmax": ["NHWC"]}, "nn.softmax"),):
        with pytest.raises(ValueError, match=what):
            relay.transform.ConvertLayout(desired)
    for desired in (["NHWC", "HWOO"], ["NDHWC", "default"], ["HNWC", "default"]):
        with pytest.raises(ValueError, match="nn.conv2d"):
            converted(func(conv(X(1, 8, 6, 6))), {"nn.conv2d": desired})
    with pytest.raises(ValueError, match="NCHW"):
        layouts_of_convolutions("NHC")


def test_channels_that_stand_last_stay_there_for_a_convolution():
    """Blocks that work on channels as the last axis and convolve them as the second, with a residual: all in NHWC."""
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.integers(-3, 4, shape).astype("float32")

    x = relay.var("x", shape=(1, 5, 5, 4))
    y = relay.transpose(nn.relu(x), (0, 3, 1, 2))
    for _ in range(2):
        z = nn.conv2d(y, relay.const(numbers(4, 1, 3, 3)), padding=(1, 1), channels=4, kernel_size=(3, 3), groups=4)
        z = relay.transpose(nn.relu(relay.transpose(z, (0, 2, 3, 1))), (0, 3, 1, 2))
        y = relay.add(relay.multiply(relay.const(numbers(4, 1, 1)), z), y)
    mod = relay.module.IRModule.from_expr(relay.Function([x], y))
    passes = [relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}), relay.transform.FoldConstant()]
    with transform.PassContext(opt_level=3):
        out = transform.Sequential(passes)(mod)
    moves = [e for e in post_order(out["main"].body) if isinstance(e, Call) and e.op_name in MOVES]
    assert len(moves) == 1, moves  # the result, as the network has it
    value = {"x": numbers(1, 5, 5, 4)}
    np.testing.assert_array_equal(evaluate(out["main"], value), evaluate(mod["main"], value))
