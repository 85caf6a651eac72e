"""What moves elements joins what reads them: attention between linear layers is its products and nothing else."""

import numpy as np
import pytest
from relay_reference import evaluate, relative_error
from tensor_core_cases import by_warpgroups, defined, has_step, policy, right

import nestsmith as ns
from nestsmith import _core, relay, transform
from nestsmith.compiled import build
from nestsmith.contrib import graph_executor
from nestsmith.relay.expr import Call, Function, post_order
from nestsmith.relay.pipeline import fuse_module, optimize
from nestsmith.relay.transform import OwnMoves, SimplifyMoves
from nestsmith.states import core_state
from nestsmith.target import Target

nn = relay.nn
RNG = np.random.default_rng(0)
DIRECT = {"relay.FuseOps.into_products": True, "relay.late_reshape": True, "relay.column_weights": True}
TARGETS = ["llvm", pytest.param("opencl", marks=pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL device"))]


def whole_numbers(*shape):
    return RNG.integers(-3, 4, shape).astype("float32")


def module(body):
    return ns.IRModule.from_expr(relay.Function(relay.expr.free_vars(body), body))


def operators(mod):
    return [e.op_name.removeprefix("nn.") for e in post_order(mod["main"].body) if isinstance(e, Call)]


def kernels(mod, config, target="llvm"):
    """Operators of each fused function that is a kernel."""
    with transform.PassContext(opt_level=3, config=config):
        body = fuse_module(optimize(mod, Target(target)))["main"].body
    calls = [e for e in post_order(body) if isinstance(e, Call) and isinstance(e.op, Function)]
    return [
        [c.op_name.removeprefix("nn.") for c in post_order(e.op.body) if isinstance(c, Call)]
        for e in calls
        if not e.op.attrs.get("reshape_only")
    ]


def run(mod, inputs, config, target):
    with transform.PassContext(opt_level=3, config=config):
        lib = relay.build(mod, target=target)
    m = graph_executor.GraphModule(lib["default"](ns.device(target, 0)))
    m.run(**inputs)
    return m.get_output(0).numpy()


def attention(n=5, heads=2, d=4):
    """As importers write it: x times the three weights, taken apart into heads; its products; back, and a linear layer with a residual."""
    c = heads * d
    x = relay.var("x", shape=(1, n, c))
    qkv = nn.dense(relay.reshape(x, (n, c)), relay.const(whole_numbers(3 * c, c)))
    qkv = relay.add(relay.reshape(qkv, (n, 1, 3 * c)), relay.const(whole_numbers(3 * c)))
    qkv = relay.expand_dims(relay.reshape(qkv, (n, 1, 3, c)), 0)
    qkv = relay.squeeze(relay.transpose(qkv, (3, 1, 2, 0, 4)), [3])  # (3, n, 1, c)

    def part(k, *axes):
        one = relay.strided_slice(qkv, [k, 0, 0, 0], [k + 1, n, 1, c])
        one = relay.transpose(relay.reshape(relay.squeeze(one, [0]), (n, heads, d)), (1, 0, 2))
        return relay.transpose(one, axes) if axes else one

    scores = relay.multiply(nn.batch_matmul(relay.multiply(part(0), relay.const(2.0)), part(1)), relay.const(0.5))
    mixed = nn.batch_matmul(scores, part(2, 0, 2, 1))
    rows = relay.reshape(relay.transpose(mixed, (1, 0, 2)), (n, c))
    out = relay.add(nn.dense(rows, relay.const(whole_numbers(c, c))), relay.const(whole_numbers(c)))
    return module(relay.add(relay.transpose(relay.reshape(out, (n, 1, c)), (1, 0, 2)), x))


def test_attention_is_its_products():
    found = kernels(attention(), DIRECT)
    products = [[o for o in k if o in ("matmul", "dense", "batch_matmul")] for k in found]
    assert products == [["dense"], ["batch_matmul"], ["batch_matmul"], ["dense"]], found
    assert [k[-1] for k in found] == ["add", "multiply", "batch_matmul", "add"]
    assert len(kernels(attention(), {})) > 8


@pytest.mark.parametrize("target", TARGETS)
def test_attention_computes_the_same_to_the_bit(target):
    mod = attention()
    x = whole_numbers(1, 5, 8)
    want = evaluate(mod["main"], {"x": x})
    np.testing.assert_array_equal(run(mod, {"x": x}, DIRECT, target), want)
    np.testing.assert_array_equal(run(mod, {"x": x}, {}, target), want)


def test_attention_is_on_tensor_cores_with_its_moves():
    """Scores and context of attention in float16 have sketches by warps and by warpgroups, and what is drawn of them is right to the bit."""
    target, precision = Target("cuda -arch=sm_90"), "float16"
    mod = build._in_precision(attention(n=20, heads=2, d=12), {}, precision)
    tasks = [t.compute_dag.tensors for t in build.tasks_of(mod, {}, target, None, precision)[0]]
    products = [t for t in tasks if any("batch_matmul" in op.name for op in _core.ComputeDAG(t).ops)]
    assert [[tuple(x.shape) for x in t if len(x.shape) > 1] for t in products] == [
        [(20, 72), (2, 20, 20)],  # one matrix of all heads' rows and columns, from which both factors come
        [(2, 20, 20), (20, 72), (2, 20, 12)],
    ]
    for tensors in products:
        p = policy(tensors)
        assert [any(step[0] == "MM" for step in s.transform_steps) for s in p.generate_sketches()] == [False, True, True]
        drawn = [s for s in p.sample_initial_population() if has_step(s)]
        groups = [by_warpgroups(s) for s in drawn]
        assert True in groups and False in groups and defined(tensors)[-1].any()
        for kind in (True, False):
            for state in [s for s, g in zip(drawn, groups) if g == kind][:4]:
                right(core_state(state), tensors)


def test_reshapes_alone_stay_outside_of_products():
    x, y = relay.var("x", shape=(1, 2, 3, 4)), relay.var("y", shape=(1, 2, 4, 4))
    body = nn.batch_matmul(relay.reshape(relay.exp(x), (2, 3, 4)), relay.reshape(relay.exp(y), (2, 4, 4)))
    assert ["batch_matmul"] in kernels(module(body), DIRECT)


def test_what_is_computed_stays_outside_of_products():
    x, y = relay.var("x", shape=(2, 4, 3)), relay.var("y", shape=(2, 4, 4))
    body = nn.batch_matmul(relay.transpose(relay.exp(x), (0, 2, 1)), y)
    assert kernels(module(body), DIRECT) == [["exp", "transpose"], ["batch_matmul"]]


def test_what_convolutions_read_is_moved_once():
    x = relay.var("x", shape=(1, 6, 6, 4))
    moved = relay.transpose(x, (0, 3, 1, 2))
    weights = [relay.const(whole_numbers(k, 4, 3, 3)) for k in (2, 3)]
    mod = module(relay.Tuple([nn.conv2d(moved, w) for w in weights]))
    with transform.PassContext(opt_level=3):
        assert operators(OwnMoves()(mod)).count("transpose") == 1


def test_chains_that_keep_the_order_become_one_reshape():
    x = relay.var("x", shape=(3, 1, 4))
    body = relay.transpose(relay.expand_dims(x, 0), (1, 0, 2, 3))  # (3, 1, 1, 4)
    body = relay.exp(relay.reshape(relay.squeeze(body, [1]), (12,)))
    mod = module(relay.reshape(relay.reshape(body, (3, 4)), (12,)))
    value = {"x": whole_numbers(3, 1, 4)}
    with transform.PassContext(opt_level=3):
        out = SimplifyMoves()(mod)
    assert operators(out) == ["reshape", "exp"]
    np.testing.assert_array_equal(evaluate(out["main"], value), evaluate(mod["main"], value))


def test_a_transpose_that_moves_elements_stays():
    x = relay.var("x", shape=(3, 1, 4))
    with transform.PassContext(opt_level=3):
        assert operators(SimplifyMoves()(module(relay.transpose(x, (2, 1, 0))))) == ["transpose"]


# ---- whole norms, sums in parts -------------------------------------------------------------------------------------


def norm(**options):
    x = relay.var("x", shape=(2, 5, 48))
    g, b = (relay.const(RNG.uniform(-1, 1, 48).astype("float32")) for _ in range(2))
    return module(relay.multiply(nn.layer_norm(x, g, b, **options), relay.const(2.0)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("options", [{}, {"center": False}, {"scale": False, "epsilon": 1e-3}], ids=str)
def test_a_layer_norm_is_one_kernel(options, target):
    mod, config = norm(**options), {"relay.whole_norms": True}
    assert kernels(mod, config) == [["layer_norm", "multiply"]]
    x = {"x": RNG.normal(3, 2, (2, 5, 48)).astype("float32")}
    taken_apart = run(mod, x, {}, target)
    assert relative_error(run(mod, x, config, target), taken_apart) < 1e-6


def test_norms_over_other_axes_are_taken_apart():
    x = relay.var("x", shape=(2, 48, 5))
    body = nn.layer_norm(x, relay.const(whole_numbers(48)), relay.const(whole_numbers(48)), axis=1)
    assert not any("layer_norm" in k for k in kernels(module(body), {"relay.whole_norms": True}))


@pytest.mark.parametrize("target", TARGETS)
def test_long_sums_are_added_up_in_parts(target):
    x, w = relay.var("x", shape=(16, 1536)), whole_numbers(1536, 8)
    mod = module(nn.relu(nn.matmul(x, relay.const(w))))
    tasks, _ = ns.auto_scheduler.extract_tasks(mod, {}, target)
    with transform.PassContext(opt_level=3, config={"relay.parts_of_sums": True}):
        in_parts, _ = ns.auto_scheduler.extract_tasks(mod, {}, target)
    names = [[o.name for o in t[0].compute_dag.ops if len(getattr(o, "reduce_axis", ()))] for t in (tasks, in_parts)]
    assert names == [["T_matmul_NN"], ["T_matmul_part"]]
    value = whole_numbers(16, 1536)
    got = run(mod, {"x": value}, {"relay.parts_of_sums": True}, target)
    np.testing.assert_array_equal(got, np.maximum(value @ w, 0))


@pytest.mark.parametrize("rows,arch,parts", [(3, 90, True), (4, 90, False), (16, 70, False), (16, 61, True)])
def test_long_sums_stay_whole_where_products_by_lanes_add_up_in_parts(rows, arch, parts):
    mod = module(nn.relu(nn.matmul(relay.var("x", shape=(rows, 1536)), relay.const(whole_numbers(1536, 8)))))
    with transform.PassContext(opt_level=3, config={"relay.parts_of_sums": True}):
        (task,), _ = ns.auto_scheduler.extract_tasks(mod, {}, f"cuda -arch=sm_{arch}")
    assert any(o.name == "T_matmul_part" for o in task.compute_dag.ops) == parts
    sketches = ns.auto_scheduler.SketchPolicy(task, verbose=0).generate_sketches()
    assert any("MM" in str(s.transform_steps) for s in sketches) == (not parts)


@pytest.mark.parametrize("target", TARGETS)
def test_a_convolution_of_pixels_is_added_up_in_parts(target):
    x, w = relay.var("x", shape=(1, 3, 5, 1152)), whole_numbers(1, 1, 1152, 8)
    conv = nn.conv2d(x, relay.const(w), channels=8, kernel_size=(1, 1), data_layout="NHWC", kernel_layout="HWIO")
    mod, config = module(nn.relu(conv)), {"relay.parts_of_sums": True}
    with transform.PassContext(opt_level=3, config=config):
        (task,), _ = ns.auto_scheduler.extract_tasks(mod, {}, target)
    assert "T_matmul_part" in [o.name for o in task.compute_dag.ops]
    value = whole_numbers(1, 3, 5, 1152)
    np.testing.assert_array_equal(run(mod, {"x": value}, config, target), np.maximum(value @ w[0, 0], 0))


@pytest.mark.parametrize("width", [5, 8])  # 8: as many as channels, so that a wrong order would have the right size
def test_a_convolution_in_parts_gives_the_layout_that_it_is_asked_for(width):
    x, w = relay.var("x", shape=(1, 3, width, 1152)), whole_numbers(1, 1, 1152, 8)
    conv = nn.conv2d(
        x, relay.const(w), channels=8, kernel_size=(1, 1), data_layout="NHWC", kernel_layout="HWIO", out_layout="NCHW"
    )
    value = whole_numbers(1, 3, width, 1152)
    got = run(module(conv), {"x": value}, {"relay.parts_of_sums": True}, "llvm")
    np.testing.assert_array_equal(got, (value @ w[0, 0]).transpose(0, 3, 1, 2))


def test_parts_of_a_sum_have_one_length():
    a, b = (ns.te.placeholder(s, name="x") for s in ((4, 10), (10, 4)))
    with pytest.raises(ValueError, match="3 parts of a sum of 10"):
        ns.topi.nn.matmul_in_parts(a, b, 3)
