"""Operators along one axis: sorting, running sums, response normalisation; and shapes as values."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from levels import outputs, same, tuned_outputs
from test_operators import T, V, small

import nestsmith as ns
from helpers import rest_full
from nestsmith import IRModule, relay, transform

nn = relay.nn
rng = np.random.default_rng(2)
FLOATS = ("float32", "float16", "float64")


def ties(shape, dtype):
    """Few different values, so that most have equals; floats with NaN, infinities and both zeros."""
    x = rng.integers(0, 5, shape).astype(dtype)
    if dtype in FLOATS:
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], dtype)
        mask = rng.random(shape) < 0.5
        x = np.where(mask, special[rng.integers(0, len(special), shape)], x).astype(dtype)
    return x


def order(x, axis, ascend):
    """PyTorch's stable sort; NumPy says the same where it has the direction."""
    at = torch.sort(T(x), dim=axis, stable=True, descending=not ascend).indices.numpy()
    if ascend:
        np.testing.assert_array_equal(at, np.argsort(x, axis, kind="stable"))
    return at


@pytest.mark.parametrize(
    "dtype", rest_full(*FLOATS, "int8", "uint8", "int32", "int64", "bool", short=("float32", "float16", "bool"))
)
@pytest.mark.parametrize("ascend", [True, False])
def test_argsort(dtype, ascend):
    for shape, axis in (((3, 17), -1), ((11, 4), 0), ((2, 9, 3), 1)):
        x = ties(shape, dtype)
        body = relay.argsort(V("x", *shape, dtype=dtype), axis, ascend)
        same(body, {"x": x}, order(x, axis, ascend).astype("int32"), levels=(0, 3))


def test_long_rows():
    """Which are merged of runs: with ties, NaN, a length that is no multiple of the runs', along any axis, a part of the order."""
    x, y = ties((4099, 2), "float32"), ties((4500,), "int64")
    two, row = V("x", 4099, 2), V("y", 4500, dtype="int64")
    body = relay.Tuple([relay.argsort(two, 0, False), relay.sort(row), relay.topk(row, 7, ret_type="indices")])
    got = relay.create_executor("graph").evaluate(relay.Function([two, row], body))(x, y)
    for have, want in zip(got, (order(x, 0, False), np.sort(y), order(y, 0, False)[:7])):
        np.testing.assert_array_equal(have.numpy(), want)


def test_argsort_types_and_constants():
    x = ties((4, 6), "float32")
    for dtype in ("int64", "float32", "uint8"):
        same(relay.argsort(V("x", 4, 6), 0, dtype=dtype), {"x": x}, order(x, 0, True).astype(dtype), levels=(3,))
    for ascend in (True, False):
        same(relay.argsort(relay.const(x), 1, ascend), {}, order(x, 1, ascend).astype("int32"))
    same(relay.argsort(V("x", 3, 1)), {"x": np.ones((3, 1), "float32")}, np.zeros((3, 1), "int32"))
    with pytest.raises(ValueError, match="axis 2"):
        _ = relay.argsort(V("x", 3, 1), 2).checked_type


@pytest.mark.parametrize("ret_type", ["both", "values", "indices"])
@pytest.mark.parametrize("ascend", [True, False])
def test_topk(ret_type, ascend):
    for shape, axis, k in (((3, 17), -1, 5), ((11, 4), 0, 1), ((2, 9, 3), 1, 0), ((7,), 0, 7)):
        x = ties(shape, "float32")
        at = np.take(order(x, axis, ascend), range(k or shape[axis]), axis)
        both = [np.take_along_axis(x, at, axis), at.astype("int64")]
        want = {"both": both, "values": both[:1], "indices": both[1:]}[ret_type]
        more = {"k": k, "axis": axis, "ret_type": ret_type, "is_ascend": ascend, "dtype": "int64"}
        same(relay.topk(V("x", *shape), **more), {"x": x}, want, levels=(0, 3))
        same(relay.topk(relay.const(x), **more), {}, want, levels=(3,))


def test_topk_against_pytorch():
    x = rng.permutation(60).astype("float32").reshape(4, 15)
    for largest in (True, False):
        want = torch.topk(T(x), 6, largest=largest)
        body = relay.topk(V("x", 4, 15), 6, is_ascend=not largest)
        same(body, {"x": x}, [want.values.numpy(), want.indices.numpy().astype("int32")])


def test_topk_refuses():
    with pytest.raises(ValueError, match="k is 5, axis 1 has 4"):
        _ = relay.topk(V("x", 3, 4), 5).astuple().checked_type
    with pytest.raises(ValueError, match="'value' is unknown; did you mean 'values'"):
        relay.topk(V("x", 3, 4), 1, ret_type="value")


# ---- running sums --------------------------------------------------------------------------------------------------


def running(x, axis, dtype, exclusive):
    out = np.cumsum(x, axis, dtype="float64" if np.dtype(dtype).kind == "f" else dtype)
    if exclusive:
        axis = axis or 0
        out = np.concatenate([np.zeros_like(out.take([0], axis)), out.take(range(out.shape[axis] - 1), axis)], axis)
    return out.astype(dtype)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("dtype", rest_full("float32", "int8", "int32", "float16", "uint8", short=("float32", "int8")))
def test_cumsum(dtype, exclusive):
    for shape, axis in (((5, 12), 1), ((9, 4), 0), ((2, 130, 3), 1), ((1, 300), -1), ((4, 5), None)):
        x = rng.integers(0, 6, shape).astype(dtype)  # exact, and wrapped where the type is small
        body = relay.cumsum(V("x", *shape, dtype=dtype), axis, exclusive=exclusive)
        same(body, {"x": x}, running(x, axis, dtype, exclusive), levels=(0, 3))
        same(
            relay.cumsum(relay.const(x), axis, exclusive=exclusive), {}, running(x, axis, dtype, exclusive), levels=(3,)
        )


def test_cumsum_in_another_type():
    x = rng.integers(-128, 128, (3, 200)).astype("int8")
    for dtype in ("int32", "int64", "float32"):
        same(relay.cumsum(V("x", 3, 200, dtype="int8"), 1, dtype), {"x": x}, np.cumsum(x, 1, dtype), levels=(3,))
    flags = x > 0
    same(
        relay.cumsum(V("x", 3, 200, dtype="bool"), 1, "int32"), {"x": flags}, np.cumsum(flags, 1, "int32"), levels=(3,)
    )


@pytest.mark.parametrize("n", [20, 1000])
def test_cumsum_of_fractions_and_of_half_floats(n):
    x = rng.uniform(0, 1, (2, n)).astype("float32")
    same(relay.cumsum(V("x", 2, n), 1), {"x": x}, torch.cumsum(T(x), 1).numpy(), 1e-5, levels=(3,))
    ones = np.full((2, 3000), 1, "float16")  # in float16 the sum would stay at 2048
    want = np.cumsum(ones, 1, "float32").astype("float16")
    same(relay.cumsum(V("x", 2, 3000, dtype="float16"), 1), {"x": ones}, want, levels=(3,))


class Running(torch.nn.Module):
    def forward(self, x, numbers, wide):
        most = torch.cummax(x, 1), torch.cummin(x, 0), torch.cummax(numbers, 0), torch.cummin(wide, 1)
        return (
            *(part for pair in most for part in pair),
            torch.cumprod(numbers, 0),
            torch.cumprod(x * 0 + 1.001, 1),
            torch.cumsum(x, 1),
            torch.cumprod(x[:, :0], 1),
        )


def test_running_values_as_pytorch():
    """Blocks that are full and that are not, several levels, ties, NaN, infinities, no elements."""
    x, numbers = T(ties((17, 40), "float32")), T(rng.integers(-3, 4, (16, 3)).astype("int64"))
    model, inputs = Running().eval(), (x, numbers, T(ties((1, 600), "float32")))
    for got, want in zip(ns.compile(model, inputs)(*inputs), model(*inputs), strict=True):
        np.testing.assert_allclose(np.asarray(got), want.numpy(), 1e-5)


@pytest.mark.full
@pytest.mark.parametrize("n", [1 << 20, 1 << 24])
def test_error_of_long_running_sums(n):
    """At most 4 * 2^-23 times the sum of the magnitudes."""

    class Sum(torch.nn.Module):
        def forward(self, x):
            return torch.cumsum(x, 0)

    f = ns.compile(Sum().eval(), (torch.ones(n),))
    for x in (np.full(n, 1.1, "float32"), rng.random(n, "float32"), rng.random(n, "float32") - np.float32(0.5)):
        want, size = np.cumsum(x, dtype="float64"), np.cumsum(np.abs(x), dtype="float64")
        assert (np.abs(np.asarray(f(T(x))) - want) <= 4 * 2.0**-23 * size).all()


def test_what_lies_later_does_not_matter():
    x = small(2, 150)
    x[:, 75:] = np.nan
    got = outputs(relay.cumsum(V("x", 2, 150), 1), {"x": x})[0]
    np.testing.assert_array_equal(got[:, :75], np.cumsum(x[:, :75], 1))
    assert np.isnan(got[:, 75:]).all()


# ---- normalisation, shapes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 4, 5])
def test_lrn(size):
    x = rng.uniform(-2, 2, (2, 7, 3, 4)).astype("float32")
    want = F.local_response_norm(T(x), size, 0.3, 0.6, 1.5).numpy()
    more = {"size": size, "bias": 1.5, "alpha": 0.3, "beta": 0.6}
    same(nn.lrn(V("x", *x.shape), **more), {"x": x}, want, 1e-5)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    same(nn.lrn(V("x", *last.shape), axis=-1, **more), {"x": last}, want.transpose(0, 2, 3, 1), 1e-5, levels=(3,))


def test_lrn_of_half_floats():
    x = np.full((1, 5, 2, 2), 200, "float16")  # its square is infinite
    want = F.local_response_norm(T(x).float(), 5, 1e-3, 0.5, 2.0).half().numpy()
    same(nn.lrn(V("x", *x.shape, dtype="float16"), 5, 1, 2.0, 1e-3, 0.5), {"x": x}, want, 2e-3, levels=(0, 3))
    with pytest.raises(ValueError, match="size is 0"):
        _ = nn.lrn(V("x", 1, 5, 2, 2), 0).checked_type


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_shape_of(dtype):
    x = small(3, 1, 4)
    same(relay.shape_of(V("x", 3, 1, 4), dtype), {"x": x}, np.array([3, 1, 4], dtype))
    same(relay.shape_of(relay.exp(V("x", 3, 1, 4)), dtype), {"x": x}, np.array([3, 1, 4], dtype))


# ---- on a GPU, in networks -----------------------------------------------------------------------------------------


def some_of_all(v):
    return relay.Tuple(
        [
            relay.argsort(v, 1, False),
            *relay.topk(v, 3, 2),
            relay.cumsum(v, 1),
            relay.cumsum(v),
            nn.lrn(v, 3),
            relay.shape_of(v),
        ]
    )


def test_on_opencl():
    dev = ns.opencl(0)
    if not dev.exist:
        pytest.skip(dev.why_not)
    x = small(2, 5, 30)
    body = some_of_all(V("x", 2, 5, 30))
    same(body, {"x": x}, outputs(body, {"x": x}), 1e-5, levels=(0,), target="opencl")


def test_layout_conversion_moves_the_axis():
    x = V("data", 1, 4, 6, 5)
    y = nn.conv2d(x, V("w", 4, 4, 3, 3), padding=1)
    body = relay.Tuple([nn.lrn(y, 3), relay.argsort(y, 1), relay.cumsum(y, 2), relay.cumsum(y), *relay.topk(y, 2, 1)])
    f = relay.Function(relay.expr.free_vars(body), body)
    inputs = {p.name_hint: small(*p.checked_type.shape) for p in f.params}
    with transform.PassContext(opt_level=3):
        mod = relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(IRModule.from_expr(f))
    axes = [e.attrs.axis for e in relay.expr.post_order(mod["main"].body) if getattr(e, "op_name", "") == "nn.lrn"]
    assert axes == [3]
    for got, want in zip(outputs(mod["main"].body, inputs), outputs(f.body, inputs)):
        np.testing.assert_allclose(got, want, 1e-6)


def test_tasks_of_a_sort_are_tuned():
    x = ties((4, 40), "float32")
    at = order(x, 1, False)[:, :5]
    values, positions = tuned_outputs(relay.topk(V("x", 4, 40), 5), {"x": x})
    np.testing.assert_array_equal(positions, at)
    np.testing.assert_array_equal(values, np.take_along_axis(x, at, 1))
    x = rng.integers(0, 9, (2, 300)).astype("int32")
    np.testing.assert_array_equal(
        tuned_outputs(relay.cumsum(V("x", 2, 300, dtype="int32"), 1), {"x": x})[0], np.cumsum(x, 1)
    )
