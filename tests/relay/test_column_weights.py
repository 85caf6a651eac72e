"""ColumnWeights: dense layers of many rows read transposed weights, and compute what they did."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import relay
from nestsmith.contrib import graph_executor
from nestsmith.relay.transform import ColumnWeights, FoldConstant


def network(*shape, units=6, constant=True):
    rng = np.random.default_rng(0)
    weight = rng.integers(-3, 4, (units, shape[-1])).astype("float32")
    x = relay.var("x", shape=shape)
    w = relay.const(weight) if constant else relay.var("w", shape=weight.shape)
    y = relay.nn.relu(relay.nn.dense(x, w, out_dtype="float32"))
    params = [x] if constant else [x, w]
    return ns.IRModule.from_expr(relay.Function(params, y)), weight, rng.integers(-3, 4, shape).astype("float32")


def operators(mod):
    return [e.op_name for e in relay.expr.post_order(mod["main"].body) if isinstance(e, relay.expr.Call)]


@pytest.mark.parametrize("shape", [(16, 5), (3, 7, 5), (197, 5)])
def test_weights_are_transposed_once(shape):
    mod, weight, x = network(*shape)
    with ns.transform.PassContext(opt_level=3):
        mod = ns.transform.Sequential([ColumnWeights(), FoldConstant()])(mod)
    assert operators(mod) == ["nn.matmul", "nn.relu"]
    lib = relay.build(mod, target="llvm")
    m = graph_executor.GraphModule(lib["default"](ns.cpu()))
    m.run(x=x)
    np.testing.assert_array_equal(m.get_output(0).numpy(), np.maximum(x @ weight.T, 0))


@pytest.mark.parametrize("options", [{"shape": (15, 5)}, {"shape": (64, 5), "constant": False}])
def test_few_rows_and_weights_that_change_stay(options):
    mod, *_ = network(*options.pop("shape"), **options)
    with ns.transform.PassContext(opt_level=3):
        assert operators(ColumnWeights()(mod)) == ["nn.dense", "nn.relu"]


def test_weights_of_8_bits_stay():
    """Tensor cores read them along the sum; with other sums they are as any other weights."""
    x, w = relay.var("x", shape=(64, 5), dtype="uint8"), relay.const(np.ones((6, 5), "int8"))
    for out, expected in (("int32", "nn.dense"), ("float32", "nn.matmul")):
        mod = ns.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, w, out_dtype=out)))
        with ns.transform.PassContext(opt_level=3):
            assert expected in operators(ColumnWeights()(mod))


def test_networks_for_gpus_are_compiled_so():
    if not ns.opencl(0).exist:
        pytest.skip("no OpenCL device")
    mod, weight, x = network(32, 24, units=48)
    m = ns.compile(mod, {"x": x}, target="opencl", verbose=0)
    assert any("nn_matmul" in name for name in m.lib.kernels), list(m.lib.kernels)
    np.testing.assert_array_equal(m(x), np.maximum(x @ weight.T, 0))
