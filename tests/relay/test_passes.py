"""Passes: what they leave in the graph, and that they do not change what it computes."""

import numpy as np
import pytest
import torch
from networks import SMALL, logits, numpy_params
from relay_reference import evaluate, relative_error

import nestsmith
from nestsmith import relay, transform
from nestsmith.auto_scheduler import extract_tasks
from nestsmith.contrib.graph_executor import GraphModule
from nestsmith.numerics import to_tf32
from nestsmith.relay import extract
from nestsmith.relay.expr import Call, Function, post_order
from nestsmith.relay.pipeline import fuse_module, optimize
from nestsmith.relay.transform.fuse import fuse
from nestsmith.target import Target

nn = relay.nn


def ops(f):
    return [e.op_name for e in post_order(f.body) if isinstance(e, Call) and e.op_name]


def groups(f, level=3):
    """Operators of each fused function, in order."""
    fused = fuse(f, level)
    return [
        [c.op_name.removeprefix("nn.") for c in post_order(e.op.body) if isinstance(c, Call)]
        for e in post_order(fused.body)
        if isinstance(e, Call) and isinstance(e.op, Function)
    ]


def func(body):
    return relay.Function(relay.expr.free_vars(body), body)


def X(*shape):
    return relay.var("x", shape=shape)


def conv(x, name="w", channels=8, k=3):
    return nn.conv2d(x, relay.var(name), channels=channels, kernel_size=(k, k), padding=k // 2)


@pytest.mark.some(4)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "llvm"])
def test_passes_keep_the_function(name, target):
    mod, params = SMALL[name]()
    mod = logits(mod)
    f, p = mod["main"], numpy_params(params)
    x = np.random.default_rng(0).uniform(-1, 1, f.params[0].checked_type.shape).astype("float32")
    want = evaluate(f, {"data": x, **p})
    out = fuse_module(optimize(mod, Target(target), params, 3), 3)["main"]
    assert [v.name_hint for v in out.params] == ["data"]
    assert relative_error(evaluate(out, {"data": x}), want) < 1e-4


def test_variables_as_parameters_work_too():
    mod, params = SMALL["mlp"]()
    out = fuse_module(optimize(mod, Target("llvm"), None, 3), 3)["main"]
    x = np.ones((1, 1, 28, 28), "float32")
    inputs = {"data": x, **numpy_params(params)}
    assert relative_error(evaluate(out, inputs), evaluate(mod["main"], inputs)) < 1e-5


def test_batch_norm_disappears_into_the_convolution():
    mod, params = SMALL["resnet18-NCHW"]()
    names = ops(optimize(mod, Target("cuda -arch=sm_80"), params, 3)["main"])
    assert (
        names.count("multiply") == 1
        and "nn.batch_norm" not in names
        and "nn.bias_add" not in names
        and "expand_dims" not in names
    )


def test_low_levels_do_less():
    mod, params = SMALL["resnet18-NHWC"]()
    target = Target("cuda -arch=sm_80")
    names = ops(optimize(mod, target, params, 2)["main"])
    assert "nn.bias_add" in names and names.count("multiply") > 10 and not any("winograd" in n for n in names)
    assert all(len(g) == 1 for g in groups(optimize(mod, target, params, 0)["main"], 0))


def test_winograd_depends_on_the_target():
    mod, params = SMALL["resnet18-NHWC"]()

    def count(target):
        return sum("without_weight_transform" in n for n in ops(optimize(mod, Target(target), params, 3)["main"]))

    assert count("cuda -arch=sm_80") == 13 and count("llvm") == 6 and count("opencl") == 0


def test_winograd_can_be_switched_off():
    mod, params = SMALL["resnet18-NHWC"]()
    with transform.PassContext(opt_level=3, config={"relay.winograd": "never"}):
        assert not any("winograd" in n for n in ops(optimize(mod, Target("cuda -arch=sm_80"), params)["main"]))


@pytest.mark.parametrize(("target", "direct"), [("cuda -arch=sm_80", True), ("cuda -arch=sm_75", False)])
def test_no_winograd_where_tf32_is_allowed(target, direct):
    mod, params = SMALL["resnet18-NHWC"]()
    with transform.PassContext(opt_level=3, config={"nestsmith.allow_tf32": True}):
        tasks, _ = extract_tasks(mod, params, target)
    assert any("winograd" in t.desc for t in tasks) != direct
    assert all(any("conv" in s.op.name and s.op.reduce_axis for s in t.compute_dag.init_state.stages) for t in tasks
               if direct and "conv2d" in t.desc)  # nor where the loops are made


@pytest.mark.parametrize(
    ("size", "ci", "co", "tile"),
    [
        (56, 64, 64, 4),
        (55, 16, 64, 4),
        (55, 3, 8, None),
        (28, 128, 128, 4),
        (14, 256, 256, 4),
        (10, 256, 256, 2),
        (13, 48, 192, 4),
        (7, 512, 512, None),
        (112, 3, 16, None),
    ],
)
def test_the_form_of_winograd_that_is_fastest_on_a_cpu(size, ci, co, tile):
    """Tiles that save products, unless transforms or the larger weights cost what they save."""
    assert forms_of_winograd(size, ci, co, "llvm -mcpu=znver4") == ([(tile, True)] if tile else [])
    narrow = 2 if size == 7 else tile  # half the speed beside the same memory: products cost more and weights less
    assert forms_of_winograd(size, ci, co, "llvm -mcpu=znver3") == ([(narrow, True)] if narrow else [])


@pytest.mark.parametrize(
    ("size", "ci", "co", "of_loops", "of_lanes"),
    [
        (28, 16, 32, None, None),
        (55, 16, 64, None, None),
        (14, 128, 32, None, None),
        (28, 128, 128, 4, 4),
        (56, 128, 128, 4, 4),
        (112, 128, 128, 4, 4),
        (14, 512, 512, 2, 2),
        (7, 512, 512, 2, 2),
    ],
)
def test_the_form_of_winograd_that_is_fastest_on_a_gpu(size, ci, co, of_loops, of_lanes):
    """Three kernels for one where the products are many, and no thread adds up too long a sum. The direct form is one of loops, or a
    product by lanes, which has no long sums: float32 from compute capability 7.0 on."""
    for target, tile in (("cuda -arch=sm_61", of_loops), ("cuda -arch=sm_70", of_lanes), ("cuda -arch=sm_90", of_lanes)):
        assert forms_of_winograd(size, ci, co, target) == ([(tile, False)] if tile else [])
        assert forms_of_winograd(size, ci, co, target, "auto") == [(2 if size % 8 else 4, False)]  # the reference's rule


def forms_of_winograd(size, ci, co, target, mode="fastest"):
    """(tile, whether its transforms go by rows) of the convolutions that became Winograd's."""
    x, w = relay.var("x", shape=(1, size, size, ci)), relay.const(np.zeros((3, 3, ci, co), "float32"))
    body = nn.conv2d(x, w, padding=1, channels=co, kernel_size=3, data_layout="NHWC", kernel_layout="HWIO")
    with transform.PassContext(opt_level=3, config={"relay.winograd": mode}):
        out = optimize(relay.module.IRModule.from_expr(func(body)), Target(target))["main"]
    found = [e.attrs for e in post_order(out.body) if isinstance(e, Call) and "winograd_without" in str(e.op_name)]
    return [(a.tile_size, bool(a.get("by_rows"))) for a in found]


@pytest.mark.parametrize("mode", ["auto", "fastest"])
@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_90"])
def test_a_convolution_into_an_unknown_number_of_channels_stays_direct(target, mode):
    x, w = relay.var("x", shape=(1, 28, 28, 128)), relay.var("w", shape=(3, 3, 128, relay.Any()))
    body = nn.conv2d(x, w, padding=1, kernel_size=3, data_layout="NHWC", kernel_layout="HWIO")
    with transform.PassContext(opt_level=3, config={"relay.winograd": mode}):
        assert ops(optimize(relay.module.IRModule.from_expr(func(body)), Target(target))["main"]) == ["nn.conv2d"]


@pytest.mark.parametrize("mode", ["never", "fastest"])
@pytest.mark.parametrize(("target", "co"), [("llvm -mcpu=znver4", 256), ("cuda -arch=sm_90", 32)])
def test_a_convolution_that_stays_direct_is_lowered_so(target, co, mode):
    """7x7: the closed form says direct; the reference's rule, Winograd, is not asked again for the loops."""
    x, w = relay.var("x", shape=(1, 7, 7, 128)), relay.const(np.zeros((3, 3, 128, co), "float32"))
    body = nn.conv2d(x, w, padding=1, channels=co, kernel_size=3, data_layout="NHWC", kernel_layout="HWIO")
    with transform.PassContext(opt_level=3, config={"relay.winograd": mode}):
        (task,), _ = extract_tasks(relay.module.IRModule.from_expr(func(body)), None, target)
    assert len(task.compute_dag.init_state.stages) == 4  # data, padding, weight, sum


def first_layer(dtype, moved=True, ci=3, weights=np.asarray):
    shape = (1, ci, 12, 12) if moved else (1, 12, 12, ci)
    x = relay.var("x", shape=shape, dtype=dtype)
    w = relay.const(weights(np.random.default_rng(0).standard_normal((7, 7, ci, 16)).astype(dtype)))
    y = nn.conv2d(relay.layout_transform(x, "NCHW", "NHWC") if moved else x, w, strides=2, padding=3, channels=16, kernel_size=7,
                  data_layout="NHWC", kernel_layout="HWIO")  # fmt: skip
    return relay.module.IRModule.from_expr(relay.Function([x], nn.relu(y)))


@pytest.mark.parametrize(
    ("made", "config", "target", "channels"),
    [
        ({"dtype": "float16"}, {}, "cuda -arch=sm_80", 4),
        ({"dtype": "float32"}, {"nestsmith.allow_tf32": True}, "cuda -arch=sm_80", 4),
        ({"dtype": "float32"}, {"nestsmith.allow_float32x3": True}, "cuda -arch=sm_80", 4),
        ({"dtype": "float32"}, {}, "cuda -arch=sm_80", 3),
        ({"dtype": "float16"}, {}, "cuda -arch=sm_75", 4),
        ({"dtype": "float16"}, {}, "cuda -arch=sm_70", 3),
        ({"dtype": "float16", "moved": False}, {}, "cuda -arch=sm_80", 3),
        ({"dtype": "float16", "ci": 9}, {}, "cuda -arch=sm_80", 9),
    ],
)
def test_channels_and_weights_as_tensor_cores_copy_them(made, config, target, channels):
    mod = first_layer(**made)
    with transform.PassContext(opt_level=3, config={"relay.for_tensor_cores": True, **config}):
        out = optimize(mod, Target(target))
    (conv2d,) = [e for e in post_order(out["main"].body) if isinstance(e, Call) and e.op_name == "nn.conv2d"]
    assert conv2d.attrs.kernel_layout == ("OHWI" if config else "HWIO")  # float32 is read by rows
    assert [int(t.checked_type.shape[k]) for t, k in zip(conv2d.args, (3, 3 if config else 2))] == [channels] * 2
    assert isinstance(conv2d.args[1], relay.Constant)  # at compile time
    data = np.random.default_rng(1).standard_normal([int(d) for d in mod["main"].params[0].checked_type.shape]).astype(made["dtype"])
    results, tf32 = [], "nestsmith.allow_tf32" in config
    for m, x in ((first_layer(**made, weights=to_tf32), to_tf32(data)) if tf32 else (mod, data), (out, data)):
        run = GraphModule(relay.build(m, target="llvm")["default"](nestsmith.cpu(0)))
        run.set_input("x", x)
        run.run()
        results.append(run.get_output(0).numpy())
    near = 1e-2 if made["dtype"] == "float16" else 1e-5
    np.testing.assert_allclose(*results, rtol=near, atol=near)


@pytest.mark.parametrize(("out", "arch", "layout"), [("int32", 80, "OHWI"), ("int32", 75, "OHWI"), ("int32", 70, "HWIO"), ("float32", 80, "HWIO")])
def test_weights_of_8_bits_as_tensor_cores_read_them(out, arch, layout):
    rng = np.random.default_rng(0)
    data, weight = rng.integers(0, 256, (1, 3, 12, 12)).astype("uint8"), rng.integers(-128, 128, (5, 5, 3, 16)).astype("int8")
    x = relay.var("x", shape=data.shape, dtype="uint8")
    y = nn.conv2d(relay.layout_transform(x, "NCHW", "NHWC"), relay.const(weight), strides=2, padding=2, channels=16, kernel_size=5,
                  data_layout="NHWC", kernel_layout="HWIO", out_dtype=out)  # fmt: skip
    mod = relay.module.IRModule.from_expr(relay.Function([x], y))
    with transform.PassContext(opt_level=3, config={"relay.for_tensor_cores": True}):
        made = optimize(mod, Target(f"cuda -arch=sm_{arch}"))
    (conv2d,) = [e for e in post_order(made["main"].body) if isinstance(e, Call) and e.op_name == "nn.conv2d"]
    assert conv2d.attrs.kernel_layout == layout and isinstance(conv2d.args[1], relay.Constant)
    assert int(conv2d.args[0].checked_type.shape[3]) == (4 if layout == "OHWI" else 3)
    results = []
    for m in (mod, made):
        run = GraphModule(relay.build(m, target="llvm")["default"](nestsmith.cpu(0)))
        run.set_input("x", data)
        run.run()
        results.append(run.get_output(0).numpy())
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(("mode", "rounded"), [("tf32", True), ("float32x3", False)])
def test_weights_for_tf32_are_rounded_once(mode, rounded):
    """Of products, too; depthwise convolutions stay on other units."""
    rng = np.random.default_rng(0)
    w, flat = rng.standard_normal((3, 3, 8, 1)).astype("float32"), rng.standard_normal((24, 8)).astype("float32")
    x = relay.var("x", shape=(1, 4, 4, 8))
    y = nn.conv2d(x, relay.const(w), padding=1, channels=8, groups=8, kernel_size=3, data_layout="NHWC", kernel_layout="HWOI")
    y, flat_weight = nn.batch_flatten(nn.global_avg_pool2d(y, layout="NHWC")), relay.const(flat)
    y = relay.add(nn.dense(y, flat_weight), nn.dense(nn.relu(y), flat_weight))
    with transform.PassContext(opt_level=3, config={"relay.for_tensor_cores": True, f"nestsmith.allow_{mode}": True}):
        out = optimize(relay.module.IRModule.from_expr(func(y)), Target("cuda -arch=sm_90"))["main"]
    conv2d, *dense = (e.args[1] for e in post_order(out.body) if isinstance(e, Call) and e.op_name in ("nn.conv2d", "nn.dense"))
    np.testing.assert_array_equal(conv2d.data.ravel(), w.ravel())
    np.testing.assert_array_equal(dense[0].data, to_tf32(flat) if rounded else flat)
    assert dense[1] is dense[0]  # shared as before
    assert np.abs(to_tf32(flat) / flat - 1).max() <= 2**-11 and not (to_tf32(flat).view("uint32") & 0x1FFF).any()


def test_nearest_values_of_tf32():
    x = np.array([np.inf, -np.inf, np.nan, np.finfo("float32").max, 0.0, -0.0, 1 + 2**-11, 1 + 2**-12], "float32")
    want = np.array([np.inf, -np.inf, np.nan, np.inf, 0.0, -0.0, 1 + 2**-10, 1], "float32")
    np.testing.assert_array_equal(to_tf32(x), want)


def test_a_scale_in_front_of_a_residual_addition_stays():
    x = X(1, 8, 6, 6)
    s = relay.const(np.full((8, 1, 1), 2, "float32"))
    y = relay.multiply(nn.relu(x), s)
    with transform.PassContext(opt_level=3):
        both = func(relay.add(conv(y), conv(y, "v")))
        one = func(relay.add(conv(y), y))
        assert "multiply" in ops(relay.transform.ForwardFoldScaleAxis()(one))
        folded = relay.transform.ForwardFoldScaleAxis()(both)
        assert [n for n in ops(folded) if n == "nn.conv2d"] == ["nn.conv2d"] * 2
        assert not any(
            e.op_name == "multiply" and e.checked_type.shape == (1, 8, 6, 6)
            for e in post_order(folded.body)
            if isinstance(e, Call)
        )


def test_negative_scales_do_not_pass_a_relu():
    w = relay.const(np.ones((8, 8, 3, 3), "float32"))
    for value, stays in ((2.0, False), (-2.0, True)):
        s = relay.const(np.full((8, 1, 1), value, "float32"))
        y = relay.multiply(nn.relu(nn.conv2d(X(1, 8, 6, 6), w, padding=1)), s)
        with transform.PassContext(opt_level=3):
            out = relay.transform.FoldScaleAxis()(func(nn.max_pool2d(y)))
        assert ("multiply" in ops(out)) == stays


def test_gates_are_not_folded():
    x = X(1, 8, 6, 6)
    gate = relay.sigmoid(conv(nn.global_avg_pool2d(x), "g", 8, 1))
    with transform.PassContext(opt_level=3):
        out = relay.transform.FoldScaleAxis()(func(conv(relay.multiply(x, gate))))
    weights = [e.args[1] for e in post_order(out.body) if isinstance(e, Call) and e.op_name == "nn.conv2d"]
    assert all(isinstance(w, relay.Var) for w in weights)


def test_common_subexpressions():
    x = X(4, 4)
    f = func(relay.add(relay.exp(relay.add(x, relay.const(1.0))), relay.exp(relay.add(x, relay.const(1.0)))))
    with transform.PassContext(opt_level=3):
        assert ops(relay.transform.EliminateCommonSubexpr()(f)) == ["add", "exp", "add"]


def test_dead_bindings_are_dropped():
    """One that is read stays with what it reads; one that only a dead one reads goes, too."""
    x, a, b, c = X(4), relay.var("a"), relay.var("b"), relay.var("c")
    body = relay.Let(b, relay.tanh(a), relay.Let(c, relay.sqrt(a), relay.abs(c)))
    f = relay.Function([x], relay.Let(a, relay.exp(x), body))
    assert ops(relay.transform.DeadCodeElimination()(f)) == ["exp", "sqrt", "abs"]
    f = relay.Function([x], relay.Let(a, relay.exp(x), relay.Let(b, relay.tanh(a), relay.abs(x))))
    assert ops(relay.transform.DeadCodeElimination()(f)) == ["abs"]


def test_simplify():
    x = X(2, 3, 4)
    cases = [
        (relay.reshape(relay.reshape(x, (6, 4)), (24,)), ["reshape"]),
        (relay.transpose(relay.transpose(x, (2, 0, 1)), (1, 2, 0)), []),
        (relay.cast(x, "float32"), []),
        (relay.divide(x, relay.sqrt(relay.exp(x))), ["exp", "rsqrt", "multiply"]),
        (relay.add(x, relay.const(-0.0)), []),
        (relay.add(x, relay.const(0.0)), ["add"]),  # of -0.0 it is 0.0
        (relay.subtract(x, relay.const(0.0)), []),
        (relay.subtract(x, relay.const(-0.0)), ["subtract"]),
        (relay.multiply(x, relay.const(1.0)), []),
        (relay.cast(relay.cast(relay.cast(x, "float16"), "float32"), "float16"), ["cast"]),
        (relay.cast(relay.cast(x, "float16"), "float32"), ["cast", "cast"]),
        (nn.adaptive_avg_pool1d(x, 4), []),
        (nn.adaptive_avg_pool1d(x, 2), ["nn.adaptive_avg_pool1d"]),
        (nn.max_pool1d(x, 1), []),
        (nn.max_pool1d(x, 1, strides=2), ["nn.max_pool1d"]),
        (nn.avg_pool1d(x, 1, padding=1), ["nn.avg_pool1d"]),
    ]
    for body, want in cases:
        assert ops(relay.transform.SimplifyExpr()(relay.Function([x], relay.nn.relu(body)))) == want + ["nn.relu"]


def test_norms_are_decomposed():
    rng = np.random.default_rng(0)
    x = X(2, 8, 5)
    g, b = relay.var("g", shape=(8,)), relay.var("b", shape=(8,))
    values = {
        "x": rng.normal(size=(2, 8, 5)).astype("float32"),
        "g": rng.normal(size=8).astype("float32"),
        "b": rng.normal(size=8).astype("float32"),
    }
    for body in (nn.layer_norm(x, g, b, axis=1), nn.instance_norm(x, g, b)):
        f = relay.Function([x, g, b], body)
        out = relay.transform.SimplifyInference()(f)
        assert "nn.layer_norm" not in ops(out) and relative_error(evaluate(out, values), evaluate(f, values)) < 1e-5
    f = relay.Function([x, g, b], nn.group_norm(x, g, b, num_groups=8))
    inst = relay.Function([x, g, b], nn.instance_norm(x, g, b))
    assert relative_error(evaluate(relay.transform.SimplifyInference()(f), values), evaluate(inst, values)) < 1e-5


def test_constants_are_folded_in_their_type():
    a = relay.const(np.array([1, 2, 3], "int8"))
    f = relay.Function([x := X(3)], relay.add(x, relay.cast(relay.add(a, a), "float32")))
    with transform.PassContext(opt_level=3):
        assert ops(relay.transform.FoldConstant()(f)) == ["add"]


# ---- fusion --------------------------------------------------------------------------------------------------------

x4 = (1, 8, 6, 6)
FUSION = [
    ("element-wise before a convolution stays alone", lambda: conv(nn.relu(X(*x4))), [["relu"], ["conv2d"]]),
    ("relu + mean", lambda: relay.mean(nn.relu(X(*x4)), (2, 3)), [["relu", "mean"]]),
    ("epilogue", lambda: nn.relu(relay.add(conv(X(*x4)), relay.var("r", shape=x4))), [["conv2d", "add", "relu"]]),
    ("reshape after a convolution", lambda: relay.reshape(conv(X(*x4)), (8, 36)), [["conv2d"], ["reshape"]]),
    ("two convolutions added", lambda: relay.add(conv(x := X(*x4)), conv(x, "v")), [["conv2d"], ["conv2d", "add"]]),
    (
        "pool after convolution",
        lambda: nn.softmax(nn.max_pool2d(conv(X(*x4)))),
        [["conv2d"], ["max_pool2d"], ["softmax"]],
    ),
    (
        "concatenation of convolutions",
        lambda: relay.concatenate([conv(x := X(*x4)), conv(x, "v")], 1),
        [["conv2d"], ["conv2d"], ["concatenate"]],
    ),
    (
        "producers of an injective tuple",
        lambda: relay.concatenate([relay.exp(x := X(*x4)), relay.tanh(x)], 1),
        [["exp", "tanh", "concatenate"]],
    ),
    (
        "diamond",
        lambda: relay.add(relay.exp(y := nn.relu(conv(X(*x4)))), relay.tanh(y)),
        [["conv2d", "relu", "exp", "tanh", "add"]],
    ),
    (
        "gate",
        lambda: relay.multiply(y := nn.relu(X(*x4)), relay.sigmoid(conv(nn.global_avg_pool2d(y), "g", 8, 1))),
        [["relu"], ["global_avg_pool2d"], ["conv2d", "sigmoid"], ["multiply"]],
    ),
    (
        "dense, reshape, bias",
        lambda: nn.relu(
            relay.add(relay.reshape(nn.dense(X(4, 8), relay.var("w"), units=6), (2, 2, 6)), relay.var("b", shape=(6,)))
        ),
        [["dense"], ["reshape", "add", "relu"]],
    ),
    ("opaque", lambda: relay.exp(relay.cumsum(relay.exp(X(4, 4)))), [["exp"], ["cumsum"], ["exp"]]),
    ("split", lambda: relay.add(relay.exp((s := relay.split(X(4, 4), 2))[0]), s[1]), [["split", "exp", "add"]]),
]


@pytest.mark.parametrize("build,want", [c[1:] for c in FUSION], ids=[c[0] for c in FUSION])
def test_fusion(build, want):
    got = groups(func(build()))
    assert sorted(map(sorted, got)) == sorted(map(sorted, want))


def test_fused_parameters_are_in_walking_order():
    r, x = relay.var("r", shape=x4), X(*x4)
    e = fuse(func(relay.add(r, nn.relu(conv(x)))), 3).body
    assert [a.name_hint for a in e.args] == ["r", "x", "w"] and [p.name_hint for p in e.op.params] == ["p0", "p1", "p2"]


def test_reshape_only_functions_are_marked():
    x = X(2, 3)
    e = fuse(func(relay.squeeze(relay.reshape(relay.expand_dims(x, 0), (1, 6)))), 3).body
    assert e.op.attrs["reshape_only"] == 1 and "reshape_only" not in fuse(func(relay.transpose(x)), 3).body.op.attrs


def test_max_depth():
    e = X(4)
    for _ in range(10):
        e = relay.exp(e)
    f = func(e)
    assert (
        len(groups(f)) == 1
        and max(
            map(
                len,
                [
                    [c for c in post_order(g.op.body) if isinstance(c, Call)]
                    for g in post_order(fuse(f, 3, 4).body)
                    if isinstance(g, Call)
                ],
            )
        )
        <= 4
    )


def test_defuse_is_the_inverse():
    mod, params = SMALL["mlp"]()
    main = optimize(mod, Target("llvm"), params, 3)["main"]
    assert ops(relay.transform.DefuseOps()(fuse(main, 3))) == ops(main)


def test_names():
    assert (
        f"{extract.string_hash(''):x}" == "553e93901e462a6e" and f"{extract.string_hash('a'):x}" == "454ddee488c1ed6b"
    )
    assert f"{extract.string_hash('vm_mod_fused_nn_softmax'):x}" == "e41d3e6589ef747d"
    assert f"{extract.string_hash('vm_mod_fused_nn_dense_add'):x}" == "376639c3810ea430"


def test_pass_context():
    with pytest.raises(ValueError, match="use_auto_scheduler"):
        transform.PassContext(config={"relay.backend.use_auto_schedule": True})
    with transform.PassContext(opt_level=1, disabled_pass=["FuseOps"]) as outer:
        assert transform.PassContext.current() is outer
        with transform.PassContext(opt_level=3) as inner:
            assert transform.PassContext.current() is inner and inner.disabled_pass == []
    assert transform.PassContext.current().opt_level == 2


def test_lstm_is_inlined():
    mod, params = relay.testing.lstm.get_workload(3, 8)
    kernels, _ = extract.collect_kernels(fuse_module(optimize(mod, Target("llvm"), params, 3), 3))
    assert sum(k.count for k in kernels if "dense" in k.name) == 5  # the first hidden state is zero and folded away


def test_group_norm_normalises_maps_whatever_the_axis():
    x, (gamma, beta) = np.random.default_rng(0).normal(size=(2, 6, 3, 5)).astype("float32"), np.ones((2, 6), "float32")
    want = torch.nn.functional.group_norm(torch.from_numpy(x), 3).numpy() + 1
    for order in ((0, 1, 2, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        data = np.ascontiguousarray(x.transpose(order))
        args = [relay.var(n, shape=v.shape) for n, v in (("x", data), ("g", gamma), ("b", beta))]
        f = relay.Function(args, nn.group_norm(*args, num_groups=3, axis=order.index(1)))
        got = evaluate(relay.transform.SimplifyInference()(f), {"x": data, "g": gamma, "b": beta})
        assert relative_error(got, want.transpose(order)) < 1e-5
