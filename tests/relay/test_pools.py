"""Pools inside convolutions in Winograd's tiles: which are taken in, and that the result is the same."""

import numpy as np
import pytest
from relay_reference import evaluate

import nestsmith as ns
from nestsmith import IRModule, relay, transform
from nestsmith.contrib import graph_executor
from nestsmith.relay.expr import Call, Function, post_order
from nestsmith.relay.pipeline import fuse_module, optimize
from nestsmith.target import Target

nn = relay.nn
RNG = np.random.default_rng(0)
ON = {"relay.FuseOps.pools": True, "relay.winograd": "measured"}
NO_OPENCL = pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL device")


def whole_numbers(*shape):
    return RNG.integers(-3, 4, shape).astype("float32")


def pooled(size=56, ci=128, co=128, window=2, stride=2, padding=0, kernel=3, read_twice=False, batch=1):
    """A convolution with bias and ReLU, and the greatest of its windows."""
    x, weight = relay.var("x", shape=(batch, size, size, ci)), relay.const(whole_numbers(kernel, kernel, ci, co))
    how = {"channels": co, "kernel_size": kernel, "padding": kernel // 2, "data_layout": "NHWC", "kernel_layout": "HWIO"}
    y = nn.relu(nn.bias_add(nn.conv2d(x, weight, **how), relay.const(whole_numbers(co)), axis=3))
    out = nn.max_pool2d(y, window, stride, padding=padding, layout="NHWC")
    return relay.Tuple([out, nn.relu(y)]) if read_twice else out


def module(body):
    return IRModule.from_expr(relay.Function(relay.expr.free_vars(body), body))


def kernels(body, target="cuda -arch=sm_90", config=ON):
    with transform.PassContext(opt_level=3, config=config):
        made = fuse_module(optimize(module(body), Target(target)), target=Target(target))["main"].body
    calls = [e for e in post_order(made) if isinstance(e, Call) and isinstance(e.op, Function)]
    return [[c.op_name.split(".")[-1] for c in post_order(e.op.body) if isinstance(c, Call)] for e in calls]


LAYER = ["contrib_conv2d_winograd_without_weight_transform", "add", "relu"]


def test_what_makes_a_tile_has_its_windows():
    assert kernels(pooled()) == [[*LAYER, "max_pool2d"]]
    assert kernels(pooled(), config={"relay.winograd": "measured"}) == [LAYER, ["max_pool2d"]]


@pytest.mark.parametrize("how", [
    {"size": 57}, {"window": 3}, {"stride": 1}, {"window": 3, "padding": 1}, {"read_twice": True},  # not windows of two by two, and all of them
    {"kernel": 1}, {"ci": 8, "co": 8},  # not in tiles
])  # fmt: skip
def test_other_pools_are_kernels_of_their_own(how):
    assert [k for k in kernels(pooled(**how)) if "max_pool2d" in k] == [["max_pool2d"]]


def test_tensor_cores_have_no_tiles():
    allowed = {**ON, "nestsmith.allow_tf32": True}
    assert kernels(pooled(), config=allowed)[-1] == ["max_pool2d"]


def test_where_the_task_contains_the_transform_it_has_no_pool():
    assert kernels(pooled(), "opencl")[-1] == ["max_pool2d"]


@pytest.mark.parametrize(("target", "mode"), [
    ("llvm", "measured"), ("llvm", "fastest"), pytest.param("opencl -device=mali", "auto", marks=NO_OPENCL),
])  # fmt: skip
def test_the_result_is_the_same(target, mode):
    body, x = pooled(size=28, ci=32, co=64, batch=2), whole_numbers(2, 28, 28, 32)
    config = {**ON, "relay.winograd": mode}
    assert kernels(body, target, config) == [[*LAYER, "max_pool2d"]]
    with transform.PassContext(opt_level=3, config=config):
        lib = relay.build(module(body), target=target)
    made = graph_executor.GraphModule(lib["default"](ns.device(target.split()[0], 0)))
    made.run(x=x)
    np.testing.assert_allclose(made.get_output(0).numpy(), evaluate(module(body)["main"], {"x": x}), rtol=1e-5, atol=1e-2)
