"""Operators at every optimization level against NumPy and PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from levels import outputs, same, tuned_outputs

import nestsmith as ns
from helpers import rest_full
from nestsmith import relay

nn = relay.nn
rng = np.random.default_rng(0)


def V(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


def small(*shape, dtype="float32"):
    """Small integers, on which sums are exact."""
    return rng.integers(-8, 9, shape).astype(dtype)


def T(x):
    return torch.from_numpy(np.ascontiguousarray(x))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_scalar_constants(dtype):
    x = small(3, 4, dtype=dtype)
    v, one = V("x", 3, 4, dtype=dtype), relay.const(3, dtype)
    same(relay.add(v, one), {"x": x}, x + x.dtype.type(3))
    same(relay.Tuple([relay.subtract(one, v), one]), {"x": x}, [x.dtype.type(3) - x, np.array(3, dtype)])


def test_folded_results_of_rank_0():
    total = relay.sum(relay.const(np.arange(4, dtype="float32")))
    same(relay.add(V("x", 2), total), {"x": np.ones(2, "float32")}, np.full(2, 7, "float32"))


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize(
    ("on", "off", "dtype"), [(1.0, 0.0, "float32"), (5, -1, "int32"), (relay.const(2, "int8"), 1, "int64")]
)
def test_one_hot(on, off, dtype, axis):
    i = np.array([0, 4, 2, 7], "int32")
    value = getattr(on, "data", on)
    want = np.where(np.arange(5) == i[:, None], value, off).astype(dtype)
    body = relay.one_hot(V("i", 4, dtype="int32"), on, off, 5, axis, dtype)
    same(body, {"i": i}, want if axis else want.T)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(("size", "out"), [((13, 11), (6, 4)), ((13,), (8,)), ((5, 7, 9), (2, 4, 8)), ((6, 6), (9, 7))])
def test_adaptive_pools_whose_sizes_do_not_divide(kind, size, out):
    x = rng.uniform(-1, 1, (1, 3, *size)).astype("float32")
    name = f"adaptive_{kind}_pool{len(size)}d"
    want = getattr(F, name)(T(x), out).numpy()
    same(getattr(nn, name)(V("x", *x.shape), out), {"x": x}, want, 0 if kind == "max" else 1e-6, levels=(0, 3))


def test_not_of_truth_values():
    x = np.array([True, False, True, True])
    for op in (relay.bitwise_not, relay.logical_not):
        same(op(V("x", 4, dtype="bool")), {"x": x}, ~x)


@pytest.mark.parametrize("batch_dims", [0, 1, 2, -1])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_take_with_batch_dimensions(batch_dims, mode):
    x, i = small(2, 3, 5, 4), rng.integers(-7, 12, (2, 3, 2) if batch_dims else (2, 3)).astype("int32")
    body = relay.take(V("x", *x.shape), V("i", *i.shape, dtype="int32"), 2, batch_dims, mode)
    at = i % 5 if mode == "wrap" else np.clip(i, 0, 4)
    b = batch_dims % max(i.ndim, 1)
    want = np.stack([np.take(x[k], at[k], 2 - b) for k in np.ndindex(*i.shape[:b])])
    want = want.reshape(i.shape[:b] + want.shape[1:]) if b else np.take(x, at, 2)
    same(body, {"x": x, "i": i}, want)
    same(relay.take(relay.const(x), relay.const(i), 2, batch_dims, mode), {}, want, levels=(3,))  # folded


def test_take_with_wrong_batch_dimensions():
    for b, shape in ((2, (2, 4)), (3, (2, 3, 4)), (1, (3, 4))):
        with pytest.raises(ValueError, match="batch"):
            _ = relay.take(V("x", 2, 3, 5), V("i", *shape, dtype="int32"), 1, b).checked_type


def test_all_results_of_a_batch_norm_and_a_dropout():
    x, (g, b, m, v) = small(2, 4, 3), rng.uniform(0.5, 2, (4, 4)).astype("float32")
    inputs = {"x": x, "g": g, "b": b, "m": m, "v": v}
    out = nn.batch_norm(V("x", 2, 4, 3), *(V(n, 4) for n in "gbmv"))
    want = F.batch_norm(T(x), T(m), T(v), T(g), T(b)).numpy()
    same(out, inputs, [want, m, v], 1e-5)
    same(out[2], inputs, v)
    drop = relay.expr.Call(relay.op.get("nn.dropout"), [V("x", 2, 4, 3)], {"rate": 0.5})
    same(drop, {"x": x}, [x, np.ones_like(x)])


def test_results_of_rank_0_on_a_gpu():
    """Kernels whose results are single numbers have no loops over data that could be bound to threads."""
    dev = ns.opencl(0)
    if not dev.exist:
        pytest.skip(dev.why_not)
    x = small(3, 4)
    v = V("x", 3, 4)
    w, none = V("w"), np.zeros((3, 4), "int32")
    body = relay.Tuple([relay.sum(v), relay.argmax(v), relay.mean(v), relay.exp(relay.const(0.0)), relay.max(v),
                        relay.argmax(w), relay.argmin(w, keepdims=True), relay.argmin(v, axis=[]), relay.sum(w)])  # fmt: skip
    want = [x.sum(), np.int32(x.argmax()), x.mean(), np.float32(1), x.max(), np.int32(0), np.int32(0), none, np.float32(3)]
    same(body, {"x": x, "w": np.float32(3)}, want, 1e-6, levels=(0, 3), target="opencl")


@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions_into_another_layout(groups):
    x, w = small(1, 4, 6, 5), small(8, 4 // groups, 3, 3)
    want = F.conv2d(T(x), T(w), groups=groups).numpy()
    more = {"groups": groups, "out_layout": "NHWC"}
    same(nn.conv2d(V("x", *x.shape), V("w", *w.shape), **more), {"x": x, "w": w}, want.transpose(0, 2, 3, 1))


def test_a_winograd_convolution_into_another_layout():
    x, w = small(1, 8, 8, 96), small(3, 3, 96, 96)
    want = F.conv2d(T(x.transpose(0, 3, 1, 2)), T(w.transpose(3, 2, 0, 1)), padding=1).numpy()
    more = {"padding": 1, "data_layout": "NHWC", "kernel_layout": "HWIO", "out_layout": "NCHW"}
    same(nn.conv2d(V("x", *x.shape), V("w", *w.shape), **more), {"x": x, "w": w}, want, 2e-2)


def test_pools_into_another_layout():
    x = small(1, 4, 6, 6)
    v = V("x", *x.shape)
    pools = [
        (nn.max_pool2d(v, 2, 2, out_layout="NHWC"), F.max_pool2d(T(x), 2)),
        (nn.adaptive_avg_pool2d(v, (2, 3), out_layout="NHWC"), F.adaptive_avg_pool2d(T(x), (2, 3))),
        (nn.global_max_pool2d(v, out_layout="NHWC"), F.adaptive_max_pool2d(T(x), 1)),
    ]
    same(relay.Tuple([p for p, _ in pools]), {"x": x}, [t.numpy().transpose(0, 2, 3, 1) for _, t in pools], 1e-6)


def test_definitions_keep_the_promise_of_the_type(monkeypatch):
    """Memory of equal size would hide a definition that gives another shape or type than the operator's."""
    from nestsmith.relay.op import registry
    from nestsmith.relay.ty import TensorType

    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    for shape, dtype in (((4, 3), "float32"), ((3, 4), "int32")):
        registry._TABLE.pop("test.liar", None)
        lies = lambda attrs, types, t=TensorType(shape, dtype): t  # noqa: E731
        registry.register("test.liar", registry.OPAQUE, lies, loops=lambda a, x, c, t: x[0])
        with pytest.raises(ValueError, match="test.liar has no definition of type"):
            outputs(registry.call("test.liar", [V("x", 3, 4)]), {"x": small(3, 4)})


def test_an_operator_is_one_entry(monkeypatch):
    """Nothing but its registration: type, loops, fusion, layouts, 16 bits, schedules for CPU and GPU, constant folding."""
    from nestsmith import topi
    from nestsmith.relay import transform
    from nestsmith.relay.op import registry

    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    registry.register(
        "test.softsign", registry.ELEMWISE, lambda attrs, types: types[0], lambda attrs, x: x / (1 + np.abs(x)),
        loops=lambda a, x, c, t: topi.divide(x[0], topi.add(topi.abs(x[0]), topi.full_like(x[0], 1))),
    )  # fmt: skip
    data, weights = small(1, 4, 6, 6), [small(4, 4, 3, 3) / 8 for _ in range(2)]
    x, shift = V("x", *data.shape), np.linspace(-1, 1, 16, dtype="float32").reshape(1, 4, 2, 2)
    body = relay.nn.conv2d(x, relay.const(weights[0]), padding=(1, 1))
    body = relay.nn.conv2d(registry.call("test.softsign", [body]), relay.const(weights[1]), strides=(3, 3), padding=(1, 1))
    body = relay.add(body, registry.call("test.softsign", [relay.const(shift)]))
    want = F.conv2d(F.softsign(F.conv2d(T(data), T(weights[0]), padding=1)), T(weights[1]), stride=3, padding=1) + F.softsign(T(shift))
    same(body, {"x": data}, want.numpy(), 1e-5, levels=(0, 3))
    mod = transform.InferType()(ns.ir.IRModule.from_expr(relay.Function([x], body)))
    with transform.PassContext(opt_level=3):
        folded = transform.Sequential([transform.FoldConstant(), transform.InferType()])(mod)
        assert str(folded["main"]).count("test.softsign") == 1
        moves = [transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}), transform.FoldConstant(), transform.InferType()]
        assert str(transform.Sequential(moves)(folded)["main"]).count("layout_transform(") == 2  # at both ends, not around the operator
        half = str(transform.Sequential([transform.ToMixedPrecision("float16"), transform.InferType()])(folded)["main"])
        assert next(line for line in half.splitlines() if "test.softsign" in line).endswith("float16] */;")
    for target in ("llvm", "cuda -arch=sm_90"):
        tasks, _ = ns.auto_scheduler.extract_tasks(mod["main"], {}, target)
        assert len(tasks) == 2 and any("test_softsign" in t.desc for t in tasks)


@pytest.mark.parametrize("layouts", [("NCHW", "IOHW"), ("NHWC", "HWIO"), ("NHWC", "HWOI")])
def test_transposed_convolutions(layouts):
    """Layouts, groups and dilations."""
    for groups, stride, pad, out_pad, dilation in ((1, 2, 1, 1, 1), (2, (2, 1), 0, 0, 1), (1, 1, 2, 0, 2), (2, 3, 1, 2, (1, 3))):
        x, w = small(2, 4, 5, 3), small(4, 3, 3, 2)
        want = F.conv_transpose2d(T(x), T(w), None, stride, pad, out_pad, groups, dilation).numpy()
        order = [tuple("NCHW".index(k) for k in layouts[0]), tuple("IOHW".index(k) for k in layouts[1])]
        x, w, want = (np.ascontiguousarray(v.transpose(o)) for v, o in ((x, order[0]), (w, order[1]), (want, order[0])))
        more = {"strides": stride, "padding": pad, "output_padding": out_pad, "groups": groups, "dilation": dilation}
        body = nn.conv2d_transpose(
            V("x", *x.shape), V("w", *w.shape), data_layout=layouts[0], kernel_layout=layouts[1], **more
        )
        same(body, {"x": x, "w": w}, want, levels=(0, 3))


@pytest.mark.parametrize(
    "flip", rest_full((False, False), (True, False), (False, True), (True, True), short=((False, False), (True, True)))
)
@pytest.mark.parametrize(
    ("a", "b"),
    [((), ()), ((3,), ()), ((2, 3), ()), ((2,), (2,)), ((2,), (1,)), ((1, 3), (2, 1)), ((2, 3), (2, 3))],
)
def test_products_of_all_ranks(a, b, flip):
    x, y = small(*a, 4, 5), small(*b, 5, 6)
    want = x @ y
    x, y = (np.ascontiguousarray(v.swapaxes(-1, -2)) if f else v for v, f in zip((x, y), flip))
    body = nn.matmul(V("x", *x.shape), V("y", *y.shape), transpose_a=flip[0], transpose_b=flip[1])
    same(body, {"x": x, "y": y}, want, levels=(0, 3))


@pytest.mark.parametrize(
    "body",
    [
        lambda: nn.matmul(V("x", 2, 8, 16), V("w", 2, 16, 8)),
        lambda: nn.matmul(V("x", 2, 3, 8, 16), V("w", 1, 1, 16, 8)),
        lambda: nn.conv2d_transpose(
            V("x", 1, 6, 6, 4), V("w", 3, 3, 8, 4), strides=2, data_layout="NHWC", kernel_layout="HWOI"
        ),
    ],
)
def test_new_products_keep_their_values_when_tuned(body):
    """With constant weights, which tuned kernels take in another layout where they can."""
    body = body()
    inputs = {v.name_hint: small(*v.checked_type.shape) for v in relay.expr.free_vars(body)}
    np.testing.assert_array_equal(tuned_outputs(body, inputs, ["w"])[0], outputs(body, inputs)[0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_halves_are_rounded_to_even(dtype):
    """In kernels, in folded constants and in the interpreter alike, as NumPy and PyTorch do."""
    from nestsmith import _core, te, topi

    x = (np.arange(-20, 21) / 4).astype(dtype)
    same(relay.round(V("x", 41, dtype=dtype)), {"x": x}, np.round(x))
    same(relay.round(relay.const(x)), {}, np.round(x))
    a, out = te.placeholder((41,), dtype), np.empty(41, dtype)
    _core.interp_dag(_core.ComputeDAG([a, topi.round(a)]), [x, out])
    np.testing.assert_array_equal(out, np.round(x))
    for v in (0.5, 1.5, -2.5):
        assert float(te.round(te.const(v, dtype)).value) == round(v)


@pytest.mark.parametrize("keepdims", [False, True])
def test_unbiased_variances(keepdims):
    x = small(3, 4, 5)
    for axis in ((1,), (0, 2), None):
        body = relay.variance(V("x", 3, 4, 5), axis, keepdims, unbiased=True)
        same(body, {"x": x}, np.asarray(x.var(axis, ddof=1, keepdims=keepdims), "float32"), 1e-5)
    same(relay.std(V("x", 3, 4, 5), 1, unbiased=True), {"x": x}, torch.std(T(x), 1).numpy(), 1e-5, levels=(3,))
    with pytest.raises(ValueError, match="at least two elements"):
        outputs(relay.variance(V("x", 3, 1), 1, unbiased=True), {"x": small(3, 1)})
