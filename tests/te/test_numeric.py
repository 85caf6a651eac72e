"""Operators evaluated on small integers against NumPy and PyTorch, bit for bit where the arithmetic is exact."""

import numpy as np
import pytest

import nestsmith as ns
from dag_eval import evaluate
from nestsmith import auto_scheduler, te, topi

torch = pytest.importorskip("torch")
F = torch.nn.functional
nn = topi.nn


def data(*shape, dtype="float32", low=-4, high=5, seed=0):
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def run(f, *arrays):
    """f applied to placeholders, evaluated on the arrays."""
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"x{i}") for i, a in enumerate(arrays)]
    return evaluate(f(*tensors), dict(zip(tensors, arrays)))


def same(got, want, exact=True):
    want = want.numpy() if isinstance(want, torch.Tensor) else want
    if exact:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


T = torch.from_numpy


def nhwc(t):
    return t.permute(0, 2, 3, 1)


@pytest.mark.parametrize("stride, pad, dil", [(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 0, 1)])
def test_conv2d(stride, pad, dil):
    x, w = data(2, 3, 9, 8), data(4, 3, 3, 3)
    want = F.conv2d(T(x), T(w), stride=stride, padding=pad, dilation=dil)
    same(run(lambda a, b: nn.conv2d_nchw(a, b, stride, pad, dil), x, w), want)
    same(
        run(lambda a, b: nn.conv2d_nhwc(a, b, stride, pad, dil), x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)),
        nhwc(want),
    )
    same(
        run(lambda a, b: nn.conv2d_hwcn(a, b, stride, pad, dil), x.transpose(2, 3, 1, 0), w.transpose(2, 3, 1, 0)),
        want.permute(2, 3, 1, 0),
    )


def test_conv_other_ranks_and_groups():
    x, w = data(1, 4, 7, 7), data(6, 2, 3, 3)
    same(run(lambda a, b: nn.group_conv2d_nchw(a, b, 1, 1, 1, 2), x, w), F.conv2d(T(x), T(w), padding=1, groups=2))
    same(
        run(lambda a, b: nn.group_conv2d_nhwc(a, b, 1, 1, 1, 2), x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)),
        nhwc(F.conv2d(T(x), T(w), padding=1, groups=2)),
    )
    x, w = data(1, 2, 4, 5, 6), data(3, 2, 2, 3, 3)
    want = F.conv3d(T(x), T(w), stride=(1, 2, 1), padding=(0, 1, 1))
    same(run(lambda a, b: nn.conv3d_ncdhw(a, b, (1, 2, 1), (0, 1, 1), 1), x, w), want)
    same(
        run(
            lambda a, b: nn.conv3d_ndhwc(a, b, (1, 2, 1), (0, 1, 1), 1),
            x.transpose(0, 2, 3, 4, 1),
            w.transpose(2, 3, 4, 1, 0),
        ),
        want.permute(0, 2, 3, 4, 1),
    )
    x, w = data(1, 2, 9), data(3, 2, 3)
    same(run(lambda a, b: nn.conv1d_ncw(a, b, 2, 1), x, w), F.conv1d(T(x), T(w), stride=2, padding=1))


def test_conv2d_asymmetric_and_named_padding():
    x, w = data(1, 2, 7, 6), data(3, 2, 3, 4)
    want = F.conv2d(F.pad(T(x), (2, 0, 1, 3)), T(w))
    same(run(lambda a, b: nn.conv2d_nchw(a, b, 1, (1, 2, 3, 0), 1), x, w), want)
    same(run(lambda a, b: nn.conv2d_nchw(a, b, 1, "VALID", 1), x, w), F.conv2d(T(x), T(w)))
    same(run(lambda a, b: nn.conv2d_nchw(a, b, 1, "SAME", 1), x, w), F.conv2d(F.pad(T(x), (2, 1, 1, 1)), T(w)))


@pytest.mark.parametrize("m", [1, 2])
def test_depthwise(m):
    x, w = data(2, 3, 8, 8), data(3, m, 3, 3)
    want = F.conv2d(T(x), T(w.reshape(3 * m, 1, 3, 3)), stride=2, padding=1, groups=3)
    same(run(lambda a, b: nn.depthwise_conv2d_nchw(a, b, 2, 1), x, w), want)
    xt, wt = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 0, 1)
    same(run(lambda a, b: nn.depthwise_conv2d_nhwc(a, b, 2, 1), xt, wt), nhwc(want))
    same(run(lambda a, b: nn.depthwise_conv2d_nhwc(a, b, 2, 1, 1, "HWIO"), xt, wt.swapaxes(2, 3)), nhwc(want))


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed(groups):
    x, w = data(1, 4, 5, 4), data(4, 3, 4, 3)
    same(
        run(lambda a, b: nn.group_conv2d_transpose_nchw(a, b, 2, 1, None, 1, groups), x, w),
        F.conv_transpose2d(T(x), T(w), stride=2, padding=1, output_padding=1, groups=groups),
    )


@pytest.mark.parametrize("size", [(8, 8), (7, 7), (16, 8), (8, 12), (6, 9)])
@pytest.mark.parametrize("pad", [0, 1])
def test_winograd(size, pad):
    x, w = data(2, 3, *size), data(4, 3, 3, 3)
    want = nhwc(F.conv2d(T(x), T(w), padding=pad))
    xt = x.transpose(0, 2, 3, 1)
    got = run(lambda a, b: nn.conv2d_winograd_nhwc(a, b, 1, pad, 1), xt, w.transpose(2, 3, 1, 0))
    np.testing.assert_allclose(got, want, atol=2e-4)
    tile = nn.winograd_tile_size(size[0])
    packed = run(lambda b: nn.conv2d_winograd_weight_transform(b, tile), w)
    for by_rows in (False, True):
        got = run(
            lambda a, b: nn.conv2d_winograd_nhwc_without_weight_transform(a, b, 1, pad, 1, by_rows=by_rows), xt, packed
        )
        np.testing.assert_allclose(got, want, atol=2e-4)


def test_winograd_by_rows_takes_a_third_of_the_operations():
    def operations(by_rows):
        x, w = te.placeholder((1, 16, 16, 8), name="x"), te.placeholder((6, 6, 8, 8), name="w")
        y = nn.conv2d_winograd_nhwc_without_weight_transform(x, w, 1, 1, 1, by_rows=by_rows)
        return auto_scheduler.ComputeDAG([x, w, y]).flop_ct - 2 * 36 * 16 * 8 * 8

    assert operations(True) * 3 < operations(False)


def test_matrix_products():
    a, b, bias = data(5, 7), data(6, 7), data(6)
    same(run(nn.dense, a, b, bias), a @ b.T + bias)
    for ta in (False, True):
        for tb in (False, True):
            got = run(lambda p, q: nn.matmul(p, q, None, None, ta, tb), a.T if ta else a, b if tb else b.T)
            same(got, a @ b.T)
            x, y = data(3, 5, 7), data(1, 6, 7)
            got = run(
                lambda p, q: nn.batch_matmul(p, q, None, None, ta, tb),
                x.swapaxes(1, 2) if ta else x,
                y if tb else y.swapaxes(1, 2),
            )
            same(got, x @ y.swapaxes(1, 2))


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("k, s, p", [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_pool2d(k, s, p, ceil):
    x = data(1, 2, 9, 10)
    same(run(lambda a: nn.pool2d(a, k, s, 1, p, "max", ceil), x), F.max_pool2d(T(x), k, s, p, ceil_mode=ceil))
    for count in (True, False):
        got = run(lambda a: nn.pool2d(a, k, s, 1, p, "avg", ceil, "NCHW", count), x)
        same(got, F.avg_pool2d(T(x), k, s, p, ceil_mode=ceil, count_include_pad=count), exact=False)
    xt = x.transpose(0, 2, 3, 1)
    same(
        run(lambda a: nn.pool2d(a, k, s, 1, p, "max", ceil, "NHWC"), xt),
        nhwc(F.max_pool2d(T(x), k, s, p, ceil_mode=ceil)),
    )


def test_other_pooling():
    x = data(1, 2, 9, 10)
    same(run(lambda a: nn.pool2d(a, 2, 1, 2, 0, "max"), x), F.max_pool2d(T(x), 2, 1, 0, dilation=2))
    same(run(lambda a: nn.adaptive_pool(a, (4, 3), "avg"), x), F.adaptive_avg_pool2d(T(x), (4, 3)), exact=False)
    same(run(lambda a: nn.adaptive_pool(a, (4, 3), "max"), x), F.adaptive_max_pool2d(T(x), (4, 3)))
    same(run(lambda a: nn.global_pool(a, "avg"), x), x.mean((2, 3), keepdims=True), exact=False)
    same(
        run(lambda a: nn.global_pool(a, "max", "NHWC"), x.transpose(0, 2, 3, 1)),
        x.max((2, 3), keepdims=True).transpose(0, 2, 3, 1),
    )
    x3 = data(1, 2, 5, 6, 7)
    same(run(lambda a: nn.pool3d(a, 2, 2, 1, 0, "avg"), x3), F.avg_pool3d(T(x3), 2, 2), exact=False)
    same(run(lambda a: nn.adaptive_pool3d(a, 2, "max"), x3), F.adaptive_max_pool3d(T(x3), 2))
    x1 = data(1, 2, 9)
    same(run(lambda a: nn.pool1d(a, 3, 2, 1, 1, "max"), x1), F.max_pool1d(T(x1), 3, 2, 1))


def test_softmax():
    x = data(2, 3, 4)
    for axis in (-1, 1, 0):
        same(run(lambda a: nn.softmax(a, axis), x), torch.softmax(T(x), axis), exact=False)
        same(run(lambda a: nn.log_softmax(a, axis), x), torch.log_softmax(T(x), axis), exact=False)


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": np.fmod,
    "greater": np.greater,
    "less": np.less,
    "greater_equal": np.greater_equal,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_broadcast(name, dtype):
    x, y = data(2, 1, 4, dtype=dtype), data(3, 1, dtype=dtype, low=1, high=7)
    same(run(getattr(topi, name), x, y), BINARY[name](x, y))
    same(run(lambda a: getattr(topi, name)(a, 3), x), BINARY[name](x, np.asarray(3, dtype)))


def test_elementwise():
    x = data(3, 4)
    y = np.abs(x) + 1
    for name in ("exp", "tanh", "sin", "cos", "floor", "ceil", "trunc", "abs", "sign", "negative"):
        same(run(getattr(topi, name), x), getattr(np, name)(x), exact=False)
    for name in ("sqrt", "log"):
        same(run(getattr(topi, name), y), getattr(np, name)(y), exact=False)
    same(run(topi.rsqrt, y), 1 / np.sqrt(y), exact=False)
    same(run(topi.erf, x), torch.erf(T(x)), exact=False)
    same(run(topi.sigmoid, x), torch.sigmoid(T(x)), exact=False)
    for relu in (topi.relu, nn.relu):
        same(run(relu, x), np.maximum(x, 0))
    for relu in (topi.leaky_relu, nn.leaky_relu):
        same(run(lambda a: relu(a, 0.25), x), np.where(x > 0, x, x * np.float32(0.25)))
    same(run(lambda a: topi.clip(a, -1, 2), x), np.clip(x, -1, 2))
    same(run(lambda a: topi.cast(a, "int8"), x), x.astype("int8"))
    same(run(lambda a, b: topi.where(a, a, b), x, y), np.where(x != 0, x, y))
    same(run(lambda a: topi.add(a, topi.full((4,), "float32", 2)), x), x + 2)
    same(run(lambda a, s: nn.prelu(a, s, 1), x, data(4)), np.where(x > 0, x, x * data(4)))


def test_data_movement():
    x = data(2, 3, 4)
    same(run(lambda a: topi.reshape(a, (4, -1)), x), x.reshape(4, 6))
    same(run(lambda a: topi.transpose(a, (1, 0, 2)), x), x.transpose(1, 0, 2))
    same(run(topi.transpose, x), x.T)
    same(run(lambda a: topi.squeeze(topi.expand_dims(a, 1), 1), x), x)
    same(run(lambda a: topi.expand_dims(a, -1, 2), x), x[..., None, None])
    same(
        run(lambda a, b, c: topi.concatenate([a, b, c], 1), x, x[:, :1], x[:, :2]),
        np.concatenate([x, x[:, :1], x[:, :2]], 1),
    )
    same(run(lambda a, b: topi.stack([a, b], 1), x, x + 1), np.stack([x, x + 1], 1))
    for got, want in zip(run(lambda a: topi.split(a, [1, 2], 1), x), np.split(x, [1, 2], 1)):
        same(got, want)
    for got, want in zip(run(lambda a: topi.split(a, 2, 2), x), np.split(x, 2, 2)):
        same(got, want)
    same(run(lambda a: topi.strided_slice(a, [0, 1], [2, 3]), x), x[0:2, 1:3])
    same(run(lambda a: topi.strided_slice(a, [-1, 3], [-3, -5], [-1, -2], [1, 2]), x), x[:, -1:-3:-1, 3:None:-2])
    same(run(lambda a: topi.strided_slice(a, [1], [2], axes=[2], slice_mode="size"), x), x[:, :, 1:3])
    same(run(lambda a: topi.strided_slice(a, [0, 1], [2, 3], index_dtype="int64"), x), x[0:2, 1:3])
    idx = np.array([[0, 2], [5, -3]], "int64")
    same(run(lambda a, i: topi.take(a, i, 1), x, idx), np.take(x, idx, 1, mode="clip"))
    same(run(lambda a, i: topi.take(a, i), x, idx), np.take(x, idx, mode="clip"))
    same(run(lambda a, i: topi.take(a, i, 1, mode="wrap"), x, idx), np.take(x, idx, 1, mode="wrap"))
    same(
        run(lambda a: topi.pad(a, (0, 1, 0), (0, 0, 2), 7.0), x), np.pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=7)
    )
    same(run(lambda a: topi.repeat(a, 2, 1), x), np.repeat(x, 2, 1))
    same(run(lambda a: topi.tile(a, (2, 1, 3)), x), np.tile(x, (2, 1, 3)))
    same(run(lambda a: topi.flip(a, 1), x), x[:, ::-1])
    same(run(lambda a: topi.broadcast_to(a, (5, 2, 3, 4)), x), np.broadcast_to(x, (5, 2, 3, 4)))
    same(run(nn.flatten, x), x.reshape(2, 12))
    same(run(lambda a: topi.add(a, topi.arange(0, 4)), x), x + np.arange(4, dtype="float32"))
    where = np.array([[[0, 3, 1, 2]]], "int32")
    same(run(lambda a, i: topi.gather(a, 2, i), x, where), np.take_along_axis(x[:1, :1], where, 2))
    same(run(lambda i: topi.one_hot(i, 1, 0, 4), np.array([1, 3], "int32")), np.eye(4, dtype="float32")[[1, 3]])


def test_reductions():
    x = data(3, 4, 5)
    for name in ("sum", "max", "min", "prod"):
        for axis in (None, 1, (0, 2), -1):
            for keep in (False, True):
                same(
                    run(lambda a: getattr(topi, name)(a, axis, keep), x), getattr(np, name)(x, axis=axis, keepdims=keep)
                )
    same(run(lambda a: topi.mean(a, (0, 1)), x), x.mean((0, 1)), exact=False)
    for name in ("argmax", "argmin"):
        for axis in (None, 1):
            same(run(lambda a: getattr(topi, name)(a, axis), x), getattr(np, name)(x, axis))
    got = run(lambda a: topi.argmax(a, 1, select_last_index=True), x)
    same(got, 3 - np.argmax(x[:, ::-1], 1))
    b = x > 0
    same(run(lambda a: topi.all(a, 1), b), b.all(1))
    same(run(lambda a: topi.any(a, 1), b), b.any(1))


def test_normalisation():
    x, g, b, m = data(2, 3, 4, 4), data(3), data(3), data(3)
    v = np.abs(data(3, seed=1)) + 1
    got = run(lambda a, *p: nn.batch_norm(a, *p)[0], x, g, b, m, v)
    same(got, F.batch_norm(T(x), T(m), T(v), T(g), T(b)), exact=False)
    x, g, b = data(2, 5, 8), data(8), data(8)
    same(run(nn.layer_norm, x, g, b), F.layer_norm(T(x), (8,), T(g), T(b)), exact=False)
    same(run(lambda a, c: nn.bias_add(a, c, 1), x, data(5)), x + data(5)[:, None])


def test_a_reducer_that_knows_an_axis():
    import nestsmith
    from nestsmith import te

    x = te.placeholder((10,), name="x")

    def row(n):
        k = te.reduce_axis((0, n + 1))
        first = lambda t: nestsmith.tir.Select(n > 1, nestsmith.tir.const(0, t), n.astype(t))  # noqa: E731
        return te.comm_reducer(lambda a, b: te.max(a + b, n.astype("float32")), first)(x[k], axis=k)

    y = te.compute((10,), row, name="y")
    given, want = np.random.default_rng(0).random(10, "float32"), []
    for n in range(10):
        total = 0.0 if n > 1 else n
        for k in range(n + 1):
            total = max(total + given[k], n)
        want.append(total)
    for change in (lambda s: s[y].split(y.op.axis[0], 4), lambda s: s.cache_write(y, "local")):
        s, out = te.create_schedule(y.op), nestsmith.nd.empty((10,))
        change(s)
        nestsmith.build(s, [x, y])(nestsmith.nd.array(given), out)
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_leading_zeros_are_int32(dtype):
    x = te.placeholder((4,), dtype, "x")
    y = te.compute((4,), lambda i: ns.tir.clz(x[i]), name="y")
    given, out = np.array([1, 2, 3, 2**30], dtype), ns.nd.empty((4,), "int32")
    ns.build(te.create_schedule(y.op), [x, y], "llvm")(ns.nd.array(given), out)
    np.testing.assert_array_equal(out.numpy(), np.dtype(dtype).itemsize * 8 - np.array([1, 2, 2, 31]))


def test_texts_are_no_numbers():
    with pytest.raises(TypeError, match="Can't cast a handle to other types"):
        ns.tir.StringImm("s").astype("int32")
