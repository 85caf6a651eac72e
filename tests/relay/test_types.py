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
