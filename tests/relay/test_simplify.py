"""SimplifyExpr, FoldConstant and ToMixedPrecision on operators like those of other tensors, casts, moves, lets and loops: what they leave, and
that it computes the same."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import IRModule, ir, relay
from nestsmith.relay import transform
from nestsmith.relay.testing import run_infer_type, run_opt_pass

rng = np.random.default_rng(0)


def X(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


def value(expr, **given):
    func = relay.Function(relay.analysis.free_vars(expr), expr)
    return relay.create_executor("debug", IRModule.from_expr(func)).evaluate()(**{p.name_hint: given[p.name_hint] for p in func.params})


def draw(dtype, *shape):
    return (rng.uniform(-300, 300, shape) if dtype.startswith("f") else rng.integers(-300, 300, shape)).astype(dtype)


A, I = X("a", 2, 3, 4, 4), X("i", 2, 3, dtype="int32")
CLIP = relay.clip(I, 0, 255)
NHWC = relay.transpose(A, (0, 2, 3, 1))
CASES = [  # what is simplified, the operators that stay
    (relay.zeros_like(A), ["zeros"]), (relay.ones_like(I), ["ones"]), (relay.full_like(A, relay.const(3.0)), ["full"]),
    (relay.collapse_sum_like(I, X("s", 3, dtype="int32")), ["collapse_sum_to"]), (relay.cast_like(I, A), ["cast"]),
    (relay.cast_like(I, X("j", 1, dtype="int32")), []), (relay.cast(relay.cast(relay.cast(I, "int64"), "float64"), "float32"), ["cast"]),
    (relay.cast(relay.cast(I, "int64"), "float32"), ["cast"]), (relay.cast(relay.cast(I, "int8"), "int32"), ["cast"] * 2),
    (relay.cast(relay.cast(X("k", 3, dtype="int64"), "float64"), "float32"), ["cast", "cast"]),  # would be rounded once
    (relay.cast(relay.cast(CLIP, "uint8"), "int32"), ["clip"]), (relay.cast(relay.cast(CLIP, "int8"), "int32"), ["clip", "cast", "cast"]),
    (relay.clip(relay.cast(I, "uint8"), 0, 255), ["cast"]), (relay.clip(relay.cast(I, "uint8"), 1, 255), ["cast", "clip"]),
    (relay.reshape_like(A, X("l", 6, 8, 2), lhs_begin=2, rhs_begin=1), ["reshape"]),
    (relay.reverse_reshape(relay.reshape(A, (2, 12, 4)), (-1, 0)), ["reshape"]), (relay.transpose(A, (0, 1, 2, 3)), []),
    (relay.transpose(NHWC, (0, 3, 1, 2)), []), (relay.layout_transform(NHWC, "NHWC", "HWCN"), ["transpose"]),
    (relay.layout_transform(relay.transpose(A, (0, 3, 1, 2)), "NCHW", "NCHW2c"), ["layout_transform"]),
    (relay.transpose(relay.layout_transform(A, "NHWC", "NCHW"), (0, 2, 3, 1)), []),
    (relay.layout_transform(relay.layout_transform(A, "NHWC", "NCHW2c"), "NCHW2c", "NHWC"), []),
]  # fmt: skip


def test_simplified_expressions_compute_the_same():
    for k, (expr, left) in enumerate(CASES):
        after = run_opt_pass(expr, transform.SimplifyExpr())
        found = [e.op_name for e in relay.expr.post_order(after) if isinstance(e, relay.Call)]
        assert sorted(found) == sorted(left), (k, found)
        given = {p.name_hint: draw(p.checked_type.dtype, *p.checked_type.shape) for p in relay.analysis.free_vars(expr)}
        np.testing.assert_array_equal(value(after, **given).numpy(), value(expr, **given).numpy(), err_msg=str(k))


def test_a_quotient_by_a_root_of_one_is_a_reciprocal_root():
    x = X("x", 5)
    assert ir.structural_equal(run_opt_pass(relay.const(1.0) / relay.sqrt(x), transform.SimplifyExpr()), run_infer_type(relay.rsqrt(x)), True)


def test_constants_in_lets_and_branches_are_folded():
    x, v = X("x", 2), relay.var("v")
    net = relay.Let(v, relay.const(np.ones(2, "float32")) * relay.const(3.0), relay.If(relay.const(True), v + v, x) + x)
    after = run_opt_pass(relay.Function([x], net), transform.FoldConstant())
    assert ir.structural_equal(after, run_infer_type(relay.Function([x], relay.const(np.full(2, 6, "float32")) + x)))
    size = run_opt_pass(relay.ndarray_size(X("y", 3, 4) * relay.const(2.0), "int64"), transform.FoldConstant())
    assert size.data.item() == 12 and str(size.data.dtype) == "int64"


def test_mixed_precision_of_lets_of_wide_clips_and_of_other_types():
    x, w, v = X("x", 2, 8), X("w", 4, 8), relay.var("v", shape=(2, 4))
    data = {"x": rng.random((2, 8), "float32"), "w": rng.random((4, 8), "float32")}
    net = relay.Let(v, relay.nn.dense(x, w, out_dtype="float32"), relay.clip(v + v, -128000, 128000))
    mod = transform.InferType()(IRModule.from_expr(relay.Function([x, w], net)))
    want = relay.create_executor("debug", mod).evaluate()(**data).numpy()
    for dtype, clip in (("float16", "float32"), ("bfloat16", "bfloat16"), ("float64", "float64")):
        mixed = transform.InferType()(transform.ToMixedPrecision(dtype)(mod))
        let = mixed["main"].body
        assert let.value.checked_type.dtype == let.var.checked_type.dtype == dtype and let.body.checked_type.dtype == clip
        if dtype != "bfloat16":
            np.testing.assert_allclose(relay.create_executor("debug", mixed).evaluate()(**data).numpy(), want, 2e-3)


def test_loops_and_arguments_by_name():
    n, total = X("n", dtype="int32"), X("total", dtype="int32")
    loop = relay.loops.while_loop(lambda n, t: relay.less(n, relay.const(5)), [n, total], lambda n, t: [n + relay.const(1), t + n])
    main = relay.Function([n], relay.TupleGetItem(loop(n, relay.const(0)), 1))
    run = relay.create_executor("debug", IRModule.from_expr(main)).evaluate()
    assert run(n=np.int32(2)).numpy() == 2 + 3 + 4
    for made in (transform.FoldConstant(), transform.ToMixedPrecision("float16")):
        again = transform.InferType()(made(IRModule.from_expr(main)))
        assert relay.create_executor("debug", again).evaluate()(n=np.int32(2)).numpy() == 9
    with pytest.warns(UserWarning, match="no free parameter 'm'"):
        assert run(n=np.int32(9), m=1).numpy() == 0


def test_executors_and_their_options():
    kind = relay.backend.Executor
    assert kind("aot", {"interface-api": "c"})["interface-api"] == "c" and not kind("graph")["link-params"]
    assert "aot" in kind.list_registered() and kind.list_registered_options("graph") == {"link-params": "IntImm"}
    for name, options, said in (("woof", {}, "not defined"), ("graph", {"woof": 1}, "not available"), ("aot", {"interface-api": 1}, "type")):
        with pytest.raises(ns.TVMError, match=said):
            kind(name, options)


def test_small_constants_inside_of_kernels_and_where_fusion_stops():
    x = X("x", 4, 6)
    table = np.array([[5, 0, 3], [1, 1, 2]], "int32")
    net = relay.Function([x], relay.take(relay.annotation.stop_fusion(relay.exp(x)), relay.const(table), axis=1))
    with ns.transform.PassContext(opt_level=3, config={"relay.FuseOps.link_params": True}):
        mod = transform.FuseOps()(transform.InferType()(IRModule.from_expr(net)))
        kernels = [e.op.body.op_name for e in relay.expr.post_order(mod["main"].body) if isinstance(e, relay.Call)]
        assert kernels == ["exp", "take"] and len(mod["main"].body.args) == 1
        lib = relay.build(IRModule.from_expr(net), "llvm")
    run = ns.contrib.graph_executor.GraphModule(lib["default"](ns.cpu(0)))
    data = rng.random((4, 6), "float32")
    run.set_input("x", data)
    run.run()
    np.testing.assert_allclose(run.get_output(0).numpy(), np.exp(data)[:, table], rtol=1e-6)


def test_a_dimension_that_is_known_at_the_run_is_squeezed():
    x = relay.var("x", relay.TensorType((relay.Any(), 3), "float32"))
    run = relay.create_executor("vm", IRModule.from_expr(relay.Function([x], relay.squeeze(x, [0])))).evaluate()
    np.testing.assert_array_equal(run(np.ones((1, 3), "float32")).numpy(), np.ones(3))
    with pytest.raises(ValueError, match="has not extent 1"):
        run(np.ones((2, 3), "float32"))
