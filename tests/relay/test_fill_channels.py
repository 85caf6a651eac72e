"""FillChannels: a last convolution whose channels leave lanes of vectors empty gets some of zeros, and computes what it did."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import relay
from nestsmith.contrib import graph_executor
from nestsmith.relay.transform import FillChannels

nn = relay.nn


def network(channels=136, between=lambda e, bias: nn.relu(relay.add(e, bias)), reader=None, constant=True, layout="NHWC", dtype="float32"):
    """(module, weight, data): a 1x1 convolution, `between`, the mean over the pixels; `reader` makes another result of what is between."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(-3, 4, (1, 1, 6, channels)).astype(dtype)
    x = relay.var("x", shape=(1, 5, 5, 6), dtype=dtype)
    w = relay.const(numbers) if constant else relay.var("w", shape=numbers.shape, dtype=dtype)
    bias = relay.const((np.arange(channels) % 7).reshape(1, 1, 1, channels).astype(dtype))
    e = between(nn.conv2d(x, w, channels=channels, kernel_size=1, data_layout="NHWC", kernel_layout="HWIO"), bias)
    out = nn.global_avg_pool2d(e, layout)
    out = relay.Tuple([out, reader(e)]) if reader else out
    mod = ns.IRModule.from_expr(relay.Function(relay.expr.free_vars(out), out))
    return mod, numbers, rng.integers(-3, 4, (1, 5, 5, 6)).astype(dtype)


def filled(mod):
    """The channels of a module's convolution after the pass, and its operators."""
    with ns.transform.PassContext(opt_level=3):
        mod = relay.transform.InferType()(FillChannels()(mod))
    calls = [e for e in relay.expr.post_order(mod["main"].body) if isinstance(e, relay.expr.Call)]
    return calls[0].checked_type.concrete_shape[3], [e.op_name.removeprefix("nn.") for e in calls]


def test_channels_are_filled_and_taken_out_of_the_means():
    mod, weight, x = network()
    made = ["conv2d", "add", "relu", "global_avg_pool2d"]
    assert filled(mod) == (144, [*made, "strided_slice"])
    want = np.maximum(x @ weight[0, 0] + np.arange(136) % 7, 0).mean((1, 2), keepdims=True)
    net = ns.compile(mod, {"x": x}, target="llvm", guess=False, verbose=0)
    assert net(x).shape == (1, 1, 1, 136) and np.allclose(net(x), want, rtol=1e-6, atol=0)
    keys = [t.workload_key for t in net.tasks]
    assert any("[1, 5, 5, 144]" in k for k in keys), keys
    assert not any("144" in t.workload_key for t in ns.auto_scheduler.extract_tasks(mod, {}, "llvm")[0])


@pytest.mark.parametrize(
    "between",
    [
        lambda e, bias: nn.bias_add(e, relay.const(np.ones(136, "float32")), 3),
        lambda e, bias: relay.clip(relay.add(e, relay.const(np.float32(2))), -1, 6),
        lambda e, bias: e,
    ],
)
def test_biases_of_any_kind(between):
    mod, _, x = network(between=between)
    assert filled(mod)[0] == 144
    got = ns.compile(mod, {"x": x}, target="llvm", guess=False, verbose=0)(x)
    m = graph_executor.GraphModule(relay.build(mod, target="llvm")["default"](ns.cpu()))
    m.run(x=x)
    assert np.allclose(got, m.get_output(0).numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_two_bytes_whose_sums_are_float32(dtype):
    """NumPy has no bfloat16: such a constant holds bits, which are no numbers."""
    _, weight, x = network()
    e = nn.conv2d(relay.cast(relay.var("x", shape=x.shape), dtype), relay.const(weight, dtype), channels=136, kernel_size=1,
                  data_layout="NHWC", kernel_layout="HWIO", out_dtype="float32")  # fmt: skip
    mod = ns.IRModule.from_expr(nn.global_avg_pool2d(nn.relu(e), "NHWC"))
    with ns.transform.PassContext(opt_level=3):
        calls = [e for e in relay.expr.post_order(FillChannels()(mod)["main"].body) if isinstance(e, relay.expr.Call)]
    filled_weight = next(e for e in calls if e.op_name == "nn.conv2d").args[1]
    assert np.array_equal(filled_weight.numbers, np.pad(weight, [(0, 0)] * 3 + [(0, 8)]))
    want = np.maximum(x @ weight[0, 0], 0).mean((1, 2), keepdims=True)
    assert np.allclose(ns.compile(mod, {"x": x}, target="llvm", guess=False, verbose=0)(x), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "case",
    [
        {"channels": 144},  # whole vectors already
        {"channels": 120},  # too many would be added
        {"constant": False},
        {"layout": "NCHW"},
        {"dtype": "float16"},
        {"reader": nn.softmax},  # somebody else reads the channels
        {"between": lambda e, bias: nn.softmax(e)},
        {"between": lambda e, bias: nn.bias_add(e, relay.const(np.ones(5, "float32")), 1)},  # of rows
        {"channels": 1, "between": lambda e, bias: relay.add(e, relay.const(np.ones(136, "float32")))},  # one channel made many
        {"between": lambda e, bias: relay.add(e, e)},
    ],
)
def test_other_convolutions_stay(case):
    mod, *_ = network(**case)
    assert filled(mod)[0] == case.get("channels", 136) and "strided_slice" not in filled(mod)[1]
