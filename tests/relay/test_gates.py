"""Gates: a 1x1 convolution takes in the product of its data and a number for each channel, as squeeze-and-excitation has it."""

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
ON = {"relay.FuseOps.gates": True}
RNG = np.random.default_rng(0)
TARGETS = ["llvm", pytest.param("opencl", marks=pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL device"))]


def whole_numbers(*shape):
    return RNG.integers(-3, 4, shape).astype("float32")


def gated(kernel=1, reader=None, pixels=7, gate=lambda x: relay.max(x, (1, 2), keepdims=True), swapped=False):
    """A convolution, the greatest of each channel through another one, the product of both, and a convolution of that with what follows;
    `reader` makes a second result of the product."""
    x = relay.var("x", shape=(1, pixels, pixels, 8))

    def conv(data, channels, kernel=1):
        weight = relay.const(whole_numbers(kernel, kernel, int(data_channels(data)), channels))
        form = {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": kernel // 2}
        return nn.conv2d(data, weight, channels=channels, kernel_size=kernel, **form)

    def data_channels(data):
        return ns.relay.transform.InferType()(module(data))["main"].body.checked_type.shape[3]

    wide = nn.relu(conv(x, 16))
    numbers = nn.relu(conv(gate(wide), 16))
    product = relay.multiply(numbers, wide) if swapped else relay.multiply(wide, numbers)
    out = relay.add(conv(product, 24, kernel), relay.const(whole_numbers(1, 1, 1, 24)))
    return relay.Tuple([out, reader(product)]) if reader else out


def module(body):
    return IRModule.from_expr(relay.Function(relay.expr.free_vars(body), body))


def kernels(body, config=ON):
    with transform.PassContext(opt_level=3, config=config):
        made = fuse_module(optimize(module(body), Target("llvm")))["main"].body
    calls = [e for e in post_order(made) if isinstance(e, Call) and isinstance(e.op, Function)]
    return [[c.op_name.removeprefix("nn.") for c in post_order(e.op.body) if isinstance(c, Call)] for e in calls]


@pytest.mark.parametrize("swapped", [False, True])
def test_the_product_is_made_where_it_is_read(swapped):
    assert kernels(gated(swapped=swapped))[-1] == ["multiply", "conv2d", "add"]
    assert kernels(gated(swapped=swapped), {})[-2:] == [["multiply"], ["conv2d", "add"]]


@pytest.mark.parametrize(
    "case",
    [
        {"kernel": 3},  # nine taps would each compute it
        {"reader": nn.softmax},
        {"pixels": 1},  # as many numbers as there are data
        {"gate": nn.relu},  # a number for each element
    ],
)
def test_other_products_are_kernels(case):
    assert not any("multiply" in k and "conv2d" in k[k.index("multiply") :] for k in kernels(gated(**case)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_same_bits(target, swapped):
    mod, x = module(gated(swapped=swapped)), whole_numbers(1, 7, 7, 8)
    with transform.PassContext(opt_level=3, config=ON):
        lib = relay.build(mod, target=target)
    run = graph_executor.GraphModule(lib["default"](ns.device(target, 0)))
    run.run(x=x)
    np.testing.assert_array_equal(run.get_output(0).numpy(), evaluate(mod["main"], {"x": x}))
