"""Graph expressions: types, builders, sharing, depth, text and errors."""

import itertools

import numpy as np
import pytest

from nestsmith import IRModule, relay
from nestsmith.relay.expr import bind, free_vars, post_order, rewrite


def shape_of(e):
    return e.checked_type.shape


def test_inference_goes_both_ways():
    x = relay.var("x", shape=(1, 8, 10, 12))
    w, b = relay.var("w"), relay.var("b")
    y = relay.nn.bias_add(relay.nn.conv2d(x, w, channels=16, kernel_size=(3, 5), padding=(1, 2), strides=2), b)
    assert shape_of(y) == (1, 16, 5, 6) and shape_of(w) == (16, 8, 3, 5) and shape_of(b) == (16,)
    d = relay.var("d")
    assert shape_of(relay.nn.dense(relay.nn.batch_flatten(y), d, units=7)) == (1, 7) and shape_of(d) == (7, 480)


def test_batch_norm_types():
    x = relay.var("x", shape=(1, 4, 5, 6))
    v = [relay.var(n) for n in "gbmv"]
    out = relay.nn.batch_norm(x, *v, axis=3)
    assert shape_of(out[0]) == (1, 4, 5, 6) and all(shape_of(p) == (6,) for p in v)


@pytest.mark.parametrize(
    "build,want",
    [
        (lambda x: relay.reshape(x, (0, -1)), (2, 60)),
        (lambda x: relay.reshape(x, (-3, -2)), (6, 4, 5)),
        (lambda x: relay.transpose(x), (5, 4, 3, 2)),
        (lambda x: relay.reshape(x, (-4, 1, 2, -2)), (1, 2, 3, 4, 5)),
        (lambda x: relay.expand_dims(x, -1, 2), (2, 3, 4, 5, 1, 1)),
        (lambda x: relay.sum(x, axis=(1, -1), keepdims=True), (2, 1, 4, 1)),
        (lambda x: relay.mean(x, axis=1, exclude=True), (3,)),
        (lambda x: relay.split(x, 2, axis=2)[1], (2, 3, 2, 5)),
        (lambda x: relay.split(x, (1, 3), axis=3)[1], (2, 3, 4, 2)),
        (lambda x: relay.strided_slice(x, (0, -2), (1, 3), axes=(0, 1)), (1, 2, 4, 5)),
        (lambda x: relay.strided_slice(x, (3,), (-5,), (-1,), axes=(2,)), (2, 3, 4, 5)),
        (lambda x: relay.nn.max_pool2d(x, 3, 2, padding=1), (2, 3, 2, 3)),
        (lambda x: relay.nn.max_pool2d(x, 2, 2, ceil_mode=True), (2, 3, 2, 3)),
        (lambda x: relay.nn.adaptive_avg_pool2d(x, (2, 3)), (2, 3, 2, 3)),
        (lambda x: relay.concatenate([x, x], 1), (2, 6, 4, 5)),
        (lambda x: relay.take(x, relay.const([[0, 1]]), axis=1), (2, 1, 2, 4, 5)),
        (lambda x: relay.nn.pad(x, ((0, 0), (0, 0), (1, 2), (3, 0))), (2, 3, 7, 8)),
        (
            lambda x: relay.layout_transform(relay.nn.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))), "NCHW", "NCHW4c"),
            (2, 1, 4, 5, 4),
        ),
        (lambda x: relay.squeeze(relay.sum(x, 0, True)), (3, 4, 5)),
        (lambda x: relay.stack([x, x], -1), (2, 3, 4, 5, 2)),
    ],
)
def test_shapes(build, want):
    assert shape_of(build(relay.var("x", shape=(2, 3, 4, 5)))) == want


@pytest.mark.parametrize(
    "build",
    [
        lambda x: relay.reshape(x, (7, -1)),
        lambda x: relay.concatenate([x, relay.nn.relu(relay.sum(x, 0))], 1),
        lambda x: relay.nn.conv2d(x, relay.var("w", shape=(4, 2, 3, 3))),
        lambda x: relay.nn.conv2d(x, relay.var("w")),
        lambda x: relay.nn.dense(relay.nn.batch_flatten(x), relay.var("w", shape=(4, 5))),
        lambda x: relay.transpose(x, (0, 0, 1, 2)),
        lambda x: relay.add(x, relay.var("y", shape=(2,))),
        lambda x: relay.sum(x, axis=7),
        lambda x: relay.nn.max_pool2d(x, 9),
        lambda x: relay.add(x, relay.var("y", shape=(2, 3, 4, 5), dtype="int32")),
        lambda x: relay.split(x, 5, axis=0)[0],
    ],
)
def test_wrong_shapes_are_named(build):
    with pytest.raises(ValueError):
        shape_of(build(relay.var("x", shape=(2, 3, 4, 5))))


def test_argument_checks():
    with pytest.raises(TypeError, match="relay.const"):
        relay.nn.relu(3)
    with pytest.raises(TypeError, match="parameter"):
        relay.Function([relay.const(1)], relay.const(1))
    with pytest.raises(ValueError, match="nn.conv2d"):
        relay.op.get("nn.conv2dd")
    with pytest.raises(ValueError, match="float33"):
        relay.var("x", shape=(1,), dtype="float33")
    with pytest.raises(ValueError, match="negative"):
        relay.var("x", shape=(-1,))


def test_constant_dtypes():
    assert relay.const(1.5).checked_type.dtype == "float32" and relay.const(1).checked_type.dtype == "int32"
    assert (
        relay.const(np.float64(1)).checked_type.dtype == "float64"
        and relay.const([1, 2], "int64").checked_type.dtype == "int64"
    )


def test_operators_on_expressions():
    x = relay.var("x", shape=(2,), dtype="float16")
    y = 1 / ((x + 1) * x - 2)
    assert y.checked_type.dtype == "float16" and [e.op_name for e in post_order(y) if hasattr(e, "op_name")] == [
        "add",
        "multiply",
        "subtract",
        "divide",
    ]


def test_deep_graphs_do_not_recurse():
    x = e = relay.var("x", shape=(4,))
    for _ in range(20000):
        e = relay.nn.relu(e)
    f = relay.Function([x], e)
    assert shape_of(e) == (4,) and len(post_order(f)) == 20002
    assert len(post_order(rewrite(f, lambda old, new: new))) == 20002
    assert "%19998" in f.astext()


def test_sharing_is_kept():
    x = relay.var("x", shape=(4,))
    y = relay.exp(x)
    f = relay.Function([x], relay.add(y, y))
    g = rewrite(f, lambda old, new: relay.tanh(new.args[0]) if getattr(new, "op_name", "") == "exp" else new)
    assert g.body.args[0] is g.body.args[1] and rewrite(f, lambda old, new: new) is f


def test_free_variables_and_bind():
    x, y = relay.var("v", shape=(2,)), relay.var("v", shape=(2,))
    e = relay.subtract(relay.add(y, x), y)
    assert free_vars(e) == [y, x]
    f = bind(relay.Function([y, x], e), {x: relay.const(np.ones(2, "float32"))})
    assert f.params == [y]


def test_modules():
    x = relay.var("x", shape=(2,))
    mod = IRModule.from_expr(relay.exp(x))
    assert mod["main"].params == [x] and "@main" in mod.astext()
    f = relay.Function([x], relay.tanh(x))
    mod["main"] = f
    assert mod["main"] is f and IRModule.from_expr(f)["main"] is f
    with pytest.raises(ValueError, match="other"):
        mod["other"]


def test_rebuilding_a_function_as_users_do():
    net = relay.testing.mlp.get_net(1)
    net = relay.Function(net.params, relay.nn.softmax(net.body), None, net.type_params, net.attrs)
    assert IRModule.from_expr(net)["main"].checked_type.ret_type.shape == (1, 10)


def test_unknown_dimensions():
    x = relay.var("x", relay.TensorType((relay.Any(), 32)))
    y = relay.max(relay.nn.relu(x))
    assert not relay.nn.relu(x).checked_type.is_static and shape_of(y) == ()


def test_text_of_blocks():
    text = relay.testing.lstm.get_net(2, 4).astext()
    lines = [line.strip() for line in text.splitlines()]
    wanted = "let %init = (%0, %1);", "let %call_0 = %2(", "let %call_1 = %2("
    starts = [next(i for i, line in enumerate(lines) if line.startswith(s)) for s in wanted]
    assert starts == sorted(starts) and lines[-2] == "%out_1" and "(%22, %23)" in lines
    assert sum("nn.dense" in line for line in lines) == 2  # the cell is one function
    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(2,))
    text = relay.Function([c, x], relay.If(c, relay.exp(x), x)).astext()
    assert "if (%c) {" in text and "} else {" in text and "exp(%x)" in text


@pytest.mark.parametrize("make, words", [
    (lambda v: relay.nn.dense(v((2, 8)), v((4, 9))), "inner extents 8 and 9 differ"),
    (lambda v: relay.nn.dense(v((2, 8)), v((3, 4, 8))), "must have rank 2"),
    (lambda v: relay.nn.matmul(v((2, 8)), v((4, 8))), "inner extents 8 and 4 differ"),
    (lambda v: relay.nn.matmul(v((3, 2, 8)), v((4, 8, 5))), "batches 3 and 4 do not broadcast"),
    (lambda v: relay.nn.batch_matmul(v((2, 8)), v((4, 8))), "both arguments must have rank 3"),
    (lambda v: relay.nn.batch_matmul(v((3, 2, 8)), v((3, 4, 9))), "inner extents 8 and 9 differ"),
])
def test_products_that_do_not_fit(make, words):
    count = itertools.count()
    with pytest.raises(ValueError, match=words):
        shape_of(make(lambda shape: relay.var(f"x{next(count)}", shape=shape)))


@pytest.mark.parametrize("build, a, b, out", [
    (relay.nn.dense, (8,), (4, 8), (4,)),
    (relay.nn.dense, (2, 3, 8), (4, 8), (2, 3, 4)),
    (lambda x, y: relay.nn.matmul(x, y, transpose_a=True), (8, 2), (8, 4), (2, 4)),
    (lambda x, y: relay.nn.matmul(x, y, transpose_b=True), (2, 8), (4, 8), (2, 4)),
    (relay.nn.matmul, (3, 2, 8), (8, 4), (3, 2, 4)),
    (relay.nn.batch_matmul, (3, 2, 8), (1, 4, 8), (3, 2, 4)),
    (lambda x, y: relay.nn.batch_matmul(x, y, transpose_a=True, transpose_b=False), (1, 8, 2), (3, 8, 4), (3, 2, 4)),
])
def test_products_have_one_rule(build, a, b, out):
    """The type and the NumPy evaluation agree."""
    call = build(relay.var("x", shape=a), relay.var("y", shape=b))
    x, y = np.arange(np.prod(a), dtype="float32").reshape(a), np.ones(b, "float32")
    assert shape_of(call) == out == call.op.evaluate(call.attrs, x, y).shape
