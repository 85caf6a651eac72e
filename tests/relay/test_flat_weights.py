"""FlatWeights: a dense layer behind a flattened image reads it as it lies, and computes what it did."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import relay
from nestsmith.relay.transform import FlatWeights, FoldConstant, SimplifyExpr


def network(n=2, moved=("NHWC", "NCHW"), flat=None, constant=True, image=(2, 3, 4), units=5):
    rng = np.random.default_rng(0)
    h, w, c = image
    weight = rng.integers(-3, 4, (units, h * w * c)).astype("float32")
    x = relay.var("x", shape=(n, h, w, c))
    y = relay.nn.relu(x)
    y = relay.layout_transform(y, *moved) if moved else y
    y = relay.reshape(y, flat) if flat else relay.nn.batch_flatten(y)
    w = relay.const(weight) if constant else relay.var("w", shape=weight.shape)
    params = [x] if constant else [x, w]
    return ns.IRModule.from_expr(relay.Function(params, relay.nn.dense(y, w))), weight, rng.integers(-3, 4, (n, *image)).astype("float32")


def operators(mod):
    return [e.op_name for e in relay.expr.post_order(mod["main"].body) if isinstance(e, relay.expr.Call)]


@pytest.mark.parametrize("n,flat", [(1, None), (2, None), (2, (2, 24))])
def test_the_image_stays_where_it_is(n, flat):
    mod, weight, x = network(n, flat=flat)
    with ns.transform.PassContext(opt_level=3):
        assert operators(ns.transform.Sequential([FlatWeights(), FoldConstant()])(mod)) == ["nn.relu", "reshape", "nn.dense"]
    m = ns.compile(mod, {"x": x}, target="llvm", verbose=0, layout="keep")
    assert not any("layout_transform" in name for name in m.lib.kernels), list(m.lib.kernels)
    want = np.maximum(x, 0).transpose(0, 3, 1, 2).reshape(n, -1) @ weight.T
    np.testing.assert_array_equal(m(x), want)


@pytest.mark.parametrize("how", [{"moved": None}, {"moved": ("NCHW", "NHWC")}, {"constant": False}])
def test_other_layers_stay(how):
    mod, *_ = network(**how)
    with ns.transform.PassContext(opt_level=3):
        assert operators(FlatWeights()(mod)) == operators(mod)


def test_rows_that_are_no_images_stay():
    x = relay.var("x", shape=(2, 2, 3, 4))
    y = relay.reshape(relay.layout_transform(x, "NHWC", "NCHW"), (4, 12))
    mod = ns.IRModule.from_expr(relay.Function([x], relay.nn.dense(y, relay.const(np.ones((5, 12), "float32")))))
    with ns.transform.PassContext(opt_level=3):
        assert operators(FlatWeights()(mod)) == operators(mod)


def test_vgg_has_no_kernel_between_its_last_pool_and_its_first_dense_layer():
    """Its pool of 7x7 out of 7x7 is none, and what flattens is part of the pool before."""
    x = relay.var("x", shape=(1, 4, 4, 8))
    y = relay.nn.adaptive_avg_pool2d(relay.nn.max_pool2d(x, 2, 2, layout="NHWC"), (2, 2), layout="NHWC")
    y = relay.nn.batch_flatten(relay.layout_transform(y, "NHWC", "NCHW"))
    mod = ns.IRModule.from_expr(relay.Function([x], relay.nn.dense(y, relay.const(np.ones((5, 32), "float32")))))
    with ns.transform.PassContext(opt_level=3):
        mod = ns.transform.Sequential([SimplifyExpr(), FlatWeights(), FoldConstant()])(mod)
    assert operators(mod) == ["nn.max_pool2d", "reshape", "nn.dense"]


def test_many_rows_are_read_by_columns_after_it():
    """ColumnWeights wants a constant, and finds one."""
    mod, *_ = network(n=16)
    with ns.transform.PassContext(opt_level=3, config={"relay.flat_weights": True, "relay.column_weights": True}):
        out = relay.pipeline.optimize(mod, ns.target.Target("cuda -arch=sm_90"))
    assert operators(out) == ["nn.relu", "reshape", "nn.matmul"]
