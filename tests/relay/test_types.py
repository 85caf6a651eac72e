"""Passes and element types: scales are folded where that is exact, 16-bit values cross the borders of kernels."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nestsmith as ns
from nestsmith import IRModule, relay, transform
from nestsmith.contrib import graph_executor
from nestsmith.relay.expr import Call, Function, post_order
from nestsmith.relay.pipeline import fuse_module, optimize

rng = np.random.default_rng(0)


def test_short_names_of_types():
    assert relay.TensorType((2,), "float") == relay.TensorType((2,), "float32") and relay.var("x", "int").checked_type.dtype == "int32"


def run(body, **inputs):
    params = relay.expr.free_vars(body)
    with transform.PassContext(opt_level=3):
        lib = relay.build(IRModule.from_expr(relay.Function(params, body)), "llvm")
    m = graph_executor.GraphModule(lib["default"](ns.cpu(0)))
    m.run(**inputs)
    return m.get_output(0).numpy()


@pytest.mark.parametrize("types", [("int8", "int32"), ("float16", "float32"), ("int32", "int32")])
@pytest.mark.parametrize("behind", [True, False])
def test_scales_stay_where_types_differ(types, behind):
    """A scale has the type of the value that it multiplies; a weight of int8 cannot hold it, and sums of integers wrap."""
    dtype, out = types
    x, w = rng.integers(-9, 9, (1, 4, 6, 6)).astype(dtype), rng.integers(-9, 9, (3, 4, 3, 3)).astype(dtype)
    s = rng.integers(2, 900, (3 if behind else 4, 1, 1)).astype(out if behind else dtype)
    if not behind and dtype == "int8":
        s = np.full_like(s, 3)
    data = relay.var("x", shape=x.shape, dtype=dtype)
    y = relay.nn.conv2d(
        data if behind else relay.multiply(data, relay.const(s)), relay.const(w), channels=3, kernel_size=3, out_dtype=out
    )
    y = relay.multiply(y, relay.const(s)) if behind else y
    scaled = x if behind else x * s
    want = F.conv2d(*(torch.from_numpy(v.astype("float64")) for v in (scaled, w))).numpy()
    np.testing.assert_array_equal(run(y, x=x), (want * s if behind else want).astype(out))


@pytest.mark.parametrize("zeros", [False, True])
def test_a_scale_of_zero_passes_no_addition(zeros):
    """Forward, what is added to the scaled value is divided by the scale."""
    x = rng.integers(-4, 5, (1, 4, 6, 6)).astype("float32")
    w, shift = rng.integers(-4, 5, (2, 4, 3, 3)).astype("float32"), np.float32([[[3]], [[2]], [[5]], [[1]]])
    scale = np.float32([[[2]], [[0 if zeros else 1]], [[4]], [[8]]])
    y = relay.add(relay.multiply(relay.var("x", shape=x.shape), relay.const(scale)), relay.const(shift))
    y = relay.nn.conv2d(relay.nn.relu(y), relay.const(w), channels=2, kernel_size=3)
    want = F.conv2d(F.relu(torch.from_numpy(x * scale + shift)), torch.from_numpy(w)).numpy()
    np.testing.assert_allclose(run(y, x=x), want, rtol=1e-5)


@pytest.mark.parametrize("level", [0, 3])
def test_norms_hand_on_narrow_values(level):
    """A norm of float16 is computed in float32, but kernels read the float16 data: every reader has a cast of its own."""
    x, g = relay.var("x", shape=(8, 64), dtype="float16"), relay.var("g", shape=(64,), dtype="float16")
    y = relay.nn.layer_norm(x, g, g)
    with transform.PassContext(opt_level=level):
        mod = fuse_module(optimize(IRModule.from_expr(relay.Function([x, g], y)), ns.target.Target("llvm")))
    calls = [e for e in post_order(mod["main"].body) if isinstance(e, Call) and isinstance(e.op, Function)]
    wide = [p.checked_type for c in calls for p in c.op.params if p.checked_type.dtype == "float32"]
    assert all(t.shape[-1] == 1 for t in wide) if level == 3 else wide
    a, b = rng.uniform(-900, 900, (8, 64)).astype("float16"), rng.uniform(-1, 1, 64).astype("float16")
    want = F.layer_norm(torch.from_numpy(a), (64,), torch.from_numpy(b), torch.from_numpy(b)).numpy()
    np.testing.assert_allclose(run(y, x=a, g=b), want, rtol=2e-3, atol=2e-3)


def data(dtype, *shape):
    return relay.var(f"x_{dtype}", shape=shape, dtype=dtype)


REFUSED = {
    **{f"{op} of integers": (lambda op=op: getattr(relay, op)(data("int32", 2, 3)), "takes floats, not int32")
       for op in ["exp", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "atan", "fast_exp", "std", "logsumexp"]},
    "power of integers": (lambda: relay.power(data("int32", 2), data("int32", 2)), "takes floats, not int32"),
    "softmax of integers": (lambda: relay.nn.softmax(data("int8", 2, 3)), "softmax.*int8"),
    "lrn of integers": (lambda: relay.nn.lrn(data("int32", 1, 4, 8, 8)), "takes floats, not int32"),
    **{f"{op} at fractions": (lambda op=op: getattr(relay, op)(data("float32", 3), data("float16", 1)), "indices are float16")
       for op in ["take", "gather_nd"]},
    "gather at fractions": (lambda: relay.gather(data("float32", 3), 0, data("float16", 1)), "indices are float16"),
    "exp of bool": (lambda: relay.exp(data("bool", 2)), "takes floats, not bool"),
    "all of integers": (lambda: relay.all(data("int32", 2)), "all takes bool, not int32"),
    "any of floats": (lambda: relay.any(data("float32", 2)), "any takes bool, not float32"),
    "bits of floats": (lambda: relay.bitwise_not(data("float32", 2)), "takes integers, not float32"),
    "shift of floats": (lambda: relay.left_shift(data("float32", 2), data("float32", 2)), "takes integers"),
    "dense": (lambda: relay.nn.dense(data("int32", 2, 3), data("float32", 4, 3)), "formed as int32; give a floating out_dtype"),
    "dense to integers": (lambda: relay.nn.dense(data("float32", 2, 3), data("float32", 4, 3), out_dtype="int32"), "as int32"),
    "batch_matmul": (lambda: relay.nn.batch_matmul(data("int8", 1, 2, 3), data("float32", 1, 4, 3)), "formed as int8"),
    "conv2d": (lambda: relay.nn.conv2d(data("int8", 1, 4, 8, 8), data("float32", 2, 4, 3, 3)), "formed as int8"),
    "no kernel": (lambda: relay.nn.max_pool2d(data("float32", 1, 4, 8, 8), (0, 0)), "a kernel of 0 along an axis"),
    "no stride": (lambda: relay.nn.conv2d(data("float32", 1, 4, 8, 8), data("float32", 2, 4, 3, 3), strides=(0, 1)), "stride of 0"),
    "no dilation": (lambda: relay.nn.conv2d(data("float32", 1, 4, 8, 8), data("float32", 2, 4, 3, 3), dilation=0), "dilation of 0"),
    "no stride, transposed": (
        lambda: relay.nn.conv2d_transpose(data("float32", 1, 4, 8, 8), data("float32", 4, 2, 3, 3), channels=2, kernel_size=3, strides=0),
        "stride of 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_program_can_compute_is_refused_before_it_is_tuned(name):
    """These had types: they became tasks, and the build after the tuning failed, or cut fractions off."""
    build, why = REFUSED[name]
    with pytest.raises(ns.TVMError, match=why):
        body = build()
        ns.auto_scheduler.extract_tasks(relay.Function(relay.expr.free_vars(body), body), {}, "llvm")


def test_integers_times_fractions():
    x, w = data("int32", 2, 3), data("float32", 4, 3)
    y = run(relay.nn.dense(x, w, out_dtype="float32"), x_int32=np.ones((2, 3), "int32"), x_float32=np.full((4, 3), 0.5, "float32"))
    assert np.array_equal(y, np.full((2, 4), 1.5, "float32"))
