"""LateReshape keeps the function and lets what follows a product be fused with it."""

import numpy as np
from relay_reference import evaluate, relative_error

from nestsmith import relay, transform
from nestsmith.relay.expr import Call, Function, post_order
from nestsmith.relay.pipeline import fuse_module, optimize
from nestsmith.target import Target

nn = relay.nn
RNG = np.random.default_rng(0)


def const(*shape):
    return relay.const(RNG.uniform(-1, 1, shape).astype("float32"))


def kernels(body, late=True):
    """Operators of each fused function of what becomes of it, and how far that is from the expression's own values."""
    f = relay.Function(relay.expr.free_vars(body), body)
    mod = relay.module.IRModule.from_expr(f)
    inputs = {v.name_hint: RNG.uniform(-1, 1, v.checked_type.concrete_shape).astype("float32") for v in f.params}
    want = evaluate(mod["main"], inputs)
    with transform.PassContext(opt_level=3, config={"relay.late_reshape": late}):
        out = fuse_module(optimize(mod, Target("llvm")))["main"]
    assert relative_error(evaluate(out, inputs), want) < 1e-5
    return [
        [c.op_name.removeprefix("nn.") for c in post_order(e.op.body) if isinstance(c, Call)]
        for e in post_order(out.body)
        if isinstance(e, Call) and isinstance(e.op, Function)
    ]


def gelu(x):
    half = relay.const(np.float32(0.5))
    return relay.multiply(x, relay.add(half, relay.multiply(relay.erf(x), half)))


def linear(x, n):
    """As importers write it: a product of matrices between reshapes."""
    *lead, k = x.checked_type.concrete_shape
    return relay.reshape(nn.dense(relay.reshape(x, (-1, k)), const(n, k)), (*lead, n))


def typed(x):
    return relay.transform.InferType()(relay.module.IRModule.from_expr(relay.Function(relay.expr.free_vars(x), x)))["main"].body


def test_bias_and_activation_join_the_product():
    x = typed(relay.var("x", shape=(1, 12, 16)))
    body = gelu(relay.add(linear(x, 24), const(24)))
    assert ["dense"] in kernels(body, late=False)
    assert [k for k in kernels(body) if "dense" in k] == [["dense", "add", "erf", "multiply", "add", "multiply"]]


def test_a_residual_is_reshaped_instead():
    x = typed(relay.var("x", shape=(1, 12, 16)))
    body = relay.add(relay.add(linear(x, 16), const(16)), x)
    assert [k for k in kernels(body) if "dense" in k] == [["dense", "add", "add"]]


def test_a_mask_loses_its_leading_ones():
    x, y = relay.var("x", shape=(4, 8, 16)), relay.var("y", shape=(4, 8, 16))
    body = relay.add(relay.reshape(nn.batch_matmul(x, y), (1, 4, 8, 8)), relay.var("mask", shape=(1, 1, 1, 8)))
    assert ["batch_matmul", "add"] in kernels(body)


def test_other_reshapes_stay():
    x = typed(relay.var("x", shape=(1, 12, 16)))
    split = relay.add(relay.reshape(linear(x, 24), (1, 12, 4, 6)), const(4, 6))  # the sum is over other axes
    assert ["dense"] in kernels(split)
    wider = relay.add(linear(typed(relay.var("x", shape=(1, 12, 16))), 24), const(3, 12, 24))  # the sum is larger
    assert ["dense"] in kernels(wider)
    named = nn.bias_add(linear(typed(relay.var("x", shape=(1, 12, 16))), 24), const(12), axis=1)  # an axis is counted from the left
    kernels(named)
