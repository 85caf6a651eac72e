"""Functions of `topi` that are tried with one element type: name, call, what it should give, inputs. One program computes them all."""

import numpy as np
import torch
import torch.nn.functional as F

from nestsmith import te, tir, topi

nn, image, vision = topi.nn, topi.image, topi.vision
RNG = np.random.default_rng(0)
CASES = []


def f(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype("float32")


def i(*shape, low=0, high=5, dtype="int32"):
    return RNG.integers(low, high, shape).astype(dtype)


def case(name, call, want, *inputs):
    CASES.append((name, call, want, inputs))


def torched(g):
    return lambda *x: g(*(torch.from_numpy(np.array(v)) for v in x)).numpy()


# ---- elements, shapes, sums ----
for name, g in {"fast_exp": np.exp, "fast_tanh": np.tanh, "fast_erf": torched(torch.erf)}.items():
    case(name, getattr(topi, name), g, f(40, low=-5, high=5))
case("elemwise_sum", lambda *x: topi.elemwise_sum(list(x)), lambda *x: sum(x), f(3, 4), f(3, 4), f(3, 4))
case("reinterpret", lambda x: topi.reinterpret(x, "int32"), lambda x: x.view("int32"), f(7))
case("ceil_log2", topi.ceil_log2, lambda x: np.ceil(np.log2(x)).astype("int32"), i(30, low=1, high=70))
case(
    "fixed_point_multiply",
    lambda x: topi.fixed_point_multiply(x, 1395864371, -2),
    lambda x: np.floor(x.astype("float64") * 1395864371 / 2**33 + 0.5).astype("int32"),
    i(40, low=-10000, high=10000),
)
case(
    "fixed_point_multiply_per_axis",
    lambda x, y, ls, rs: topi.fixed_point_multiply_per_axis(x, y, ls, rs, True, True, [0]),
    lambda x, y, ls, rs: np.floor(x * 2.0 ** ls[:, None] * y[:, None] / 2.0 ** (31 + rs[:, None]) + 0.5).astype("int32"),
    i(4, 9, low=-999, high=999), i(4, low=2**30, high=2**31 - 1), i(4, high=3), i(4, high=3),
)  # fmt: skip
case("collapse_sum", lambda x: topi.collapse_sum(x, (3, 1)), lambda x: x.sum((0, 2))[:, None], f(2, 3, 4))
case("expand_like", lambda a, b: topi.expand_like(a, b, [0, 2]), lambda a, b: np.broadcast_to(a[None, :, None], b.shape), f(3), f(2, 3, 4))
case("ndarray_size", topi.ndarray_size, lambda x: np.int32(x.size), f(3, 5))
case(
    "layout_transform",
    lambda x: topi.layout_transform(x, "NCHW", "NCHW4c"),
    lambda x: np.pad(x, [(0, 0), (0, 2), (0, 0), (0, 0)]).reshape(2, 2, 4, 3, 5).transpose(0, 1, 3, 4, 2),
    f(2, 6, 3, 5),
)
case(
    "layout_transform",
    lambda x: topi.layout_transform(x, "NCHW2c", "NHWC"),
    lambda x: x.transpose(0, 2, 3, 1, 4).reshape(2, 4, 5, 6),
    f(2, 3, 4, 5, 2),
)
for indexing in ("ij", "xy"):
    case("meshgrid", lambda a, b, x=indexing: topi.meshgrid([a, b], x), lambda a, b, x=indexing: np.meshgrid(a, b, indexing=x), f(3), f(4))
for text, shapes in {
    "ij,jk->ik": [(2, 3), (3, 4)], "bhqd,bhkd->bhqk": [(2, 2, 3, 4), (2, 2, 5, 4)], "ii->i": [(4, 4)], "...ij,j": [(2, 1, 3, 4), (4,)],
    "ii": [(3, 3)], "i,j,k->kji": [(2,), (3,), (4,)], "...a,...a->...": [(2, 1, 3), (4, 3)],
}.items():  # fmt: skip
    case("einsum", lambda *x, t=text: topi.einsum(t, *x), lambda *x, t=text: np.einsum(t, *x), *(f(*s) for s in shapes))
case("tensordot", topi.tensordot, np.tensordot, f(2, 3, 4), f(3, 4, 5))
case("tensordot", lambda a, b: topi.tensordot(a, b, ((2, 0), (1, 2))), lambda a, b: np.tensordot(a, b, ((2, 0), (1, 2))), f(2, 3, 4), f(3, 4, 2))
case("matmul", lambda a, b: topi.matmul(a, b, True, True), lambda a, b: a.T @ b.T, f(4, 3), f(5, 4))

# ---- positions from data ----
case("gather_nd", topi.gather_nd, lambda a, x: a[tuple(x)], f(4, 5, 3), i(2, 6, high=4))
SCATTERED = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax", "mean": "mean"}
for mode, theirs in SCATTERED.items():
    case(
        "scatter_elements",
        lambda d, x, u, m=mode: topi.scatter_elements(d, x, u, 1, m),
        torched(lambda d, x, u, m=theirs: d.scatter_reduce(1, x.long(), u, m)),
        f(3, 6), i(3, 4, high=6), f(3, 4),
    )  # fmt: skip
PERMUTED = np.stack([RNG.permutation(6)[:4] for _ in range(3)]).astype("int32")


def last_wins(d, x, u):
    out = d.copy()
    for r, c in np.ndindex(x.shape):
        out[r, x[r, c]] = u[r, c]
    return out


for index in (PERMUTED, PERMUTED - 6, i(3, 4, high=3)):
    case("scatter_elements", lambda d, x, u: topi.scatter_elements(d, x, u, 1), last_wins, f(3, 6), index, f(3, 4))


def scattered(ufunc):
    def want(d, x, u):
        out = d.copy()
        ufunc.at(out, tuple(x), u)
        return out

    return want


case("scatter_nd", lambda d, x, u: topi.scatter_nd(d, x, u, "add"), scattered(np.add), f(4, 5, 3), i(2, 7, high=4), f(7, 3))
case("scatter_nd", lambda d, x, u: topi.scatter_nd(d, x, u, "max"), scattered(np.maximum), f(4, 5), i(2, 7, high=4), f(7))
case("adv_index", lambda a, x, y: topi.adv_index(a, [x, y]), lambda a, x, y: a[x, y], f(4, 5, 3), i(6, 1, high=4), i(1, 2))
LENGTHS = np.array([0, 2, 9], "int32")
case(
    "sequence_mask",
    lambda x, n: topi.sequence_mask(x, n, -1, 1),
    lambda x, n: np.where(np.arange(4)[:, None] < n[:, None, None], x, -1),
    f(3, 4, 2),
    LENGTHS,
)
case(
    "reverse_sequence",
    lambda x, n: topi.reverse_sequence(x, n, 1, 0),
    lambda x, n: np.stack([np.concatenate([r[:k][::-1], r[k:]]) for r, k in zip(x, n)]),
    f(3, 4, 2), LENGTHS,
)  # fmt: skip
case("unravel_index", topi.unravel_index, lambda x, s: np.stack(np.unravel_index(x, s)).astype("int32"), i(7, high=60), np.array([3, 4, 5], "int32"))
case("invert_permutation", topi.invert_permutation, lambda x: np.argsort(x).astype("int32"), RNG.permutation(9).astype("int32"))
case(
    "sparse_to_dense",
    lambda x, v: topi.sparse_to_dense(x, (3, 4), v, 7.0),
    lambda x, v: np.array([[v[0], 7, 7, 7], [7, 7, v[1], 7], [7, 7, 7, 7]], "float32"),
    np.array([[0, 0], [1, 2]], "int32"), f(2),
)  # fmt: skip
case(
    "matrix_set_diag",
    topi.matrix_set_diag,
    lambda x, d: np.where(np.eye(3, 4, dtype=bool), np.pad(d, [(0, 0), (0, 1)])[:, None, :], x),
    f(2, 3, 4),
    f(2, 3),
)
for upper in (False, True):
    case("trilu", lambda x, u=upper: topi.trilu(x, tir.const(1), u), (lambda x: np.triu(x, 1)) if upper else (lambda x: np.tril(x, 1)), f(2, 4, 5))


def assigned(*slices):
    def want(a, v):
        out = a.copy()
        out[slices] = v
        return out

    return want


case("strided_set", lambda a, v: topi.strided_set(a, v, [1, 0], [4, 5], [2, 2]), assigned(slice(1, 4, 2), slice(0, 5, 2)), f(5, 6), f(2, 3))
case("strided_set", lambda a, v: topi.strided_set(a, v, [4, 0], [1, 6], [-2, 1]), assigned(slice(4, 1, -2)), f(5, 6), f(2, 6))
case(
    "sliding_window",
    lambda x: topi.sliding_window(x, 1, (2, 3), (2, 1)),
    lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3), (1, 2))[:, ::2],
    f(2, 6, 5),
)
EDGES = np.sort(i(2, 6, high=9), 1)
for right in (False, True):
    case(
        "searchsorted",
        lambda s, v, r=right: topi.searchsorted(s, v, r),
        torched(lambda s, v, r=right: torch.searchsorted(s, v, right=r)),
        EDGES, i(2, 4, high=9),
    )  # fmt: skip
case("sort", lambda x: topi.sort(x, 1, False), lambda x: -np.sort(-x, 1), f(3, 7))
case(
    "argsort",
    lambda x, n: topi.argsort(x, n, 1, True, "int32"),
    lambda x, n: np.stack([[*np.argsort(r[:k]), *range(k, 7)] for r, k in zip(x, n)]).astype("int32"),
    f(3, 7),
    np.array([7, 0, 4], "int32"),
)


def unique(x, in_order):
    values, index, inverse, counts = np.unique(x, True, True, True)
    if not in_order:
        order = np.argsort(index)
        values, index, counts, inverse = values[order], index[order], counts[order], np.argsort(order)[inverse]
    n = len(values)
    return [v.astype("int32") for v in (values, index, inverse, np.array([n]), counts)]


for in_order in (True, False):
    case("unique", lambda x, s=in_order: topi.unique(x, s, True), lambda x, s=in_order: unique(x, s), i(12))

# ---- windows, blocks, normalisations ----
case(
    "nn.dilate",
    lambda x: nn.dilate(x, (2, 1, 3), 5.0),
    lambda x: assigned(slice(None, None, 2), slice(None), slice(None, None, 3))(np.full((5, 2, 7), 5, "float32"), x),
    f(3, 2, 3),
)


def batches(x):
    padded = np.pad(x, [(0, 0), (1, 0), (0, 1), (0, 0)]).reshape(2, 2, 2, 3, 2, 3)
    return padded.transpose(2, 4, 0, 1, 3, 5).reshape(8, 2, 3, 3)


case("nn.space_to_batch_nd", lambda x: nn.space_to_batch_nd(x, (2, 2), (1, 0), (0, 1)), batches, f(2, 3, 5, 3))
case(
    "nn.batch_to_space_nd",
    lambda x: nn.batch_to_space_nd(nn.space_to_batch_nd(x, (2, 2), (1, 0), (0, 1)), (2, 2), (1, 0), (0, 1)),
    lambda x: x,
    f(2, 3, 5, 3),
)
case("nn.fifo_buffer", lambda d, b: nn.fifo_buffer(d, b, 1), lambda d, b: np.concatenate([b, d], 1)[:, 2:], f(2, 2), f(2, 5))
case("nn.conv1d", lambda x, k: nn.conv1d(x, k, 2, 1), torched(lambda x, k: F.conv1d(x, k, stride=2, padding=1)), f(2, 4, 9), f(3, 4, 3))
case(
    "nn.group_conv1d_ncw",
    lambda x, k: nn.group_conv1d_ncw(x, k, 1, 1, 1, 2),
    torched(lambda x, k: F.conv1d(x, k, padding=1, groups=2)),
    f(2, 4, 9),
    f(6, 2, 3),
)
case(
    "nn.group_conv1d_nwc",
    lambda x, k: nn.group_conv1d_nwc(x, k, 1, 1, 1, 2),
    torched(lambda x, k: F.conv1d(x.mT, k.permute(2, 1, 0), padding=1, groups=2).mT),
    f(2, 9, 4), f(3, 2, 6),
)  # fmt: skip
case(
    "nn.conv1d_transpose_ncw",
    lambda x, k: nn.conv1d_transpose_ncw(x, k, 2, 1, None, 1),
    torched(lambda x, k: F.conv_transpose1d(x, k, stride=2, padding=1, output_padding=1)),
    f(2, 4, 5),
    f(4, 3, 3),
)
case(
    "nn.conv3d_transpose_ncdhw",
    lambda x, k: nn.conv3d_transpose_ncdhw(x, k, (2, 1, 2), 1, None, (1, 0, 0)),
    torched(lambda x, k: F.conv_transpose3d(x, k, stride=(2, 1, 2), padding=1, output_padding=(1, 0, 0))),
    f(1, 3, 3, 4, 3), f(3, 2, 3, 3, 3),
)  # fmt: skip


def blocked(x, k):
    n, c, h, w, b = x.shape
    data = torch.from_numpy(x.transpose(0, 1, 4, 2, 3).reshape(n, c * b, h, w).copy())
    if k.shape[1] * k.shape[4] == 1:
        out = F.conv2d(
            data, torch.from_numpy(k[:, 0, :, :, 0].transpose(0, 3, 1, 2).reshape(c * b, 1, *k.shape[2:4]).copy()), padding=1, groups=c * b
        )
    else:
        out = F.conv2d(data, torch.from_numpy(k.transpose(0, 5, 1, 4, 2, 3).reshape(-1, c * b, *k.shape[2:4]).copy()), padding=1)
    return out.numpy().reshape(n, -1, k.shape[5], *out.shape[2:]).transpose(0, 1, 3, 4, 2)


case("nn.conv2d_NCHWc", lambda x, k: nn.conv2d_NCHWc(x, k, 1, 1, 1, "NCHW4c", "NCHW2c"), blocked, f(1, 2, 5, 6, 4), f(3, 2, 3, 3, 4, 2))
case(
    "nn.depthwise_conv2d_NCHWc",
    lambda x, k: nn.depthwise_conv2d_NCHWc(x, k, 1, 1, 1, "NCHW4c", "NCHW4c"),
    blocked,
    f(1, 2, 5, 6, 4),
    f(2, 1, 3, 3, 1, 4),
)


def gradient(of_data):
    def want(a, b):
        x = torch.zeros(2, 3, 6, 7) if of_data else torch.from_numpy(a.transpose(0, 3, 1, 2).copy())
        k = torch.from_numpy(a.transpose(2, 3, 0, 1).reshape(6, 1, 3, 3).copy()) if of_data else torch.zeros(6, 1, 3, 3)
        t = (x if of_data else k).requires_grad_()
        F.conv2d(x, k, stride=2, padding=1, groups=3).backward(torch.from_numpy(b.transpose(0, 3, 1, 2).copy()))
        g = t.grad.numpy()
        return g.transpose(0, 2, 3, 1) if of_data else g.reshape(3, 2, 3, 3).transpose(2, 3, 0, 1)

    return want


case(
    "nn.depthwise_conv2d_backward_input_nhwc",
    lambda k, g: nn.depthwise_conv2d_backward_input_nhwc(k, g, (2, 3, 4, 6), (2, 6, 7, 3), (2, 2), (1, 1)),
    gradient(True), f(3, 3, 3, 2), f(2, 3, 4, 6),
)  # fmt: skip
case(
    "nn.depthwise_conv2d_backward_weight_nhwc",
    lambda x, g: nn.depthwise_conv2d_backward_weight_nhwc(x, g, (2, 3, 4, 6), (3, 3, 3, 2), (2, 2), (1, 1)),
    gradient(False), f(2, 6, 7, 3), f(2, 3, 4, 6),
)  # fmt: skip
case(
    "nn.instance_norm",
    lambda x, g, b: nn.instance_norm(x, g, b, (2, 3)),
    torched(lambda x, g, b: F.instance_norm(x, None, None, g, b)),
    f(2, 3, 4, 5),
    f(3),
    f(3),
)
case(
    "nn.group_norm",
    lambda x, g, b: nn.group_norm(x, g, b, 2, 1, (2, 3)),
    torched(lambda x, g, b: F.group_norm(x, 2, g, b)),
    f(2, 6, 3, 4),
    f(6),
    f(6),
)
case("nn.rms_norm", lambda x, g: nn.rms_norm(x, g, None, -1), torched(lambda x, g: F.rms_norm(x, (7,), g, 1e-5)), f(3, 7), f(7))
CLASSES = np.array([[1, 3], [0, -100]], "int32")
for reduction in ("mean", "sum", "none"):
    case(
        "nn.nll_loss",
        lambda p, t, w, r=reduction: nn.nll_loss(p, t, w, r, -100),
        torched(lambda p, t, w, r=reduction: F.nll_loss(p, t.long(), w, reduction=r)),
        f(2, 4, 2), CLASSES, f(4, low=0.5),
    )  # fmt: skip
case("nn.scale_shift_nchwc", nn.scale_shift_nchwc, lambda x, s, b: x * s[:, None, None] + b[:, None, None], f(2, 3, 4, 5, 2), f(3, 2), f(3, 2))
case(
    "nn.upsampling3d",
    lambda x: nn.upsampling3d(x, 2, 2, 2, "NCDHW", "nearest_neighbor", "asymmetric"),
    lambda x: x.repeat(2, 2).repeat(2, 3).repeat(2, 4),
    f(1, 2, 2, 3, 2),
)
Q = np.float32(0.05), np.int32(3)
case(
    "nn.simulated_quantize",
    lambda x, s, z: nn.simulated_quantize(x, "int8", s, z),
    lambda x, s, z: np.clip(np.rint(x / s) + z, -128, 127).astype("float32"),
    f(3, 5, low=-9, high=9), *map(np.asarray, Q),
)  # fmt: skip
case(
    "nn.simulated_dequantize",
    lambda x, s, z: nn.simulated_dequantize(x, "uint8", s, z),
    lambda x, s, z: ((x - z) * s).astype("float32"),
    i(3, 5, high=255).astype("float32"),
    *map(np.asarray, Q),
)

for name, fast in (("nn.fast_softmax", nn.fast_softmax), ("nn.softmax_common", lambda x: nn.softmax_common(x, 1, True))):
    case(name, fast, torched(lambda x: F.softmax(x, 1)), f(3, 7))
case(
    "nn.unpack_NCHWc_to_nchw",
    lambda x: nn.unpack_NCHWc_to_nchw(x, "float32"),
    lambda x: x.transpose(0, 1, 4, 2, 3).reshape(2, 6, 4, 5),
    f(2, 3, 4, 5, 2),
)

# ---- images and regions ----
case("image.resize1d", lambda x: image.resize1d(x, None, 7), torched(lambda x: F.interpolate(x, 7, mode="linear")), f(2, 3, 5))
case(
    "image.resize3d", lambda x: image.resize3d(x, None, (3, 4, 5)), torched(lambda x: F.interpolate(x, (3, 4, 5), mode="trilinear")), f(1, 2, 4, 3, 6)
)
GRID = f(2, 2, 3, 4, low=-1.5, high=1.5)
for method, mode, corners in [
    ("bilinear", "zeros", True),
    ("nearest", "border", False),
    ("bicubic", "reflection", False),
    ("bilinear", "reflection", True),
]:
    case(
        "image.grid_sample",
        lambda x, g, a=(method, "NCHW", mode, corners): image.grid_sample(x, g, *a),
        torched(lambda x, g, m=method, p=mode, c=corners: F.grid_sample(x, g.permute(0, 2, 3, 1), m, p, c)),
        f(2, 3, 5, 6), GRID,
    )  # fmt: skip
case(
    "image.grid_sample",
    lambda x, g: image.grid_sample(x, g, "bilinear", "NCDHW", "zeros", False),
    torched(lambda x, g: F.grid_sample(x, g.permute(0, 2, 3, 4, 1), "bilinear", "zeros", False)),
    f(1, 2, 3, 4, 5), f(1, 3, 2, 2, 3, low=-1.2, high=1.2),
)  # fmt: skip
case(
    "image.affine_grid",
    lambda x: image.affine_grid(x, (3, 4)),
    torched(lambda x: F.affine_grid(x, (2, 1, 3, 4), True).permute(0, 3, 1, 2)),
    f(2, 2, 3),
)
BOXES = np.array([[0, 0, 1, 1], [0.5, 0.25, 1, 0.75]], "float32")


def cropped(x, boxes, index):
    out = np.zeros((2, 3, 5, 3), "float32")
    for b, (y0, x0, y1, x1) in enumerate(boxes):
        ys, xs = np.linspace(y0, y1, 3) * 4, np.linspace(x0, x1, 5) * 8
        for r, yy in enumerate(ys):
            for c, xx in enumerate(xs):
                y, q = int(np.floor(yy)), int(np.floor(xx))
                fy, fx = yy - y, xx - q
                at = lambda u, v, b=b: x[index[b], min(u, 4), min(v, 8)]  # noqa: E731
                out[b, r, c] = (at(y, q) * (1 - fx) + at(y, q + 1) * fx) * (1 - fy) + (at(y + 1, q) * (1 - fx) + at(y + 1, q + 1) * fx) * fy
    return out


case(
    "image.crop_and_resize", lambda x, b, k: image.crop_and_resize(x, b, k, (3, 5), "NHWC"), cropped, f(2, 5, 9, 3), BOXES, np.array([1, 0], "int32")
)


def dilated(x, k):
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=np.finfo("float32").min)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3))[:, :, ::2, :]
    return (windows + k[:, None, None]).max((-2, -1))


case("image.dilation2d_nchw", lambda x, k: image.dilation2d_nchw(x, k, (2, 1), (1, 1), (1, 1)), dilated, f(1, 2, 5, 6), f(2, 2, 3))
case(
    "image.dilation2d_nhwc",
    lambda x, k: image.dilation2d_nhwc(x, k, (2, 1), (1, 1), (1, 1)),
    lambda x, k: dilated(x.transpose(0, 3, 1, 2), k.transpose(2, 0, 1)).transpose(0, 2, 3, 1),
    f(1, 5, 6, 2), f(2, 3, 2),
)  # fmt: skip
ROIS = np.array([[0, 0, 0, 7, 7], [1, 2, 1, 6, 5], [0, 4, 4, 7, 7]], "float32")


def pooled(x, rois):
    out = np.zeros((3, 2, 2, 3), "float32")
    for r, (b, *box) in enumerate(rois):
        x0, y0, x1, y1 = (round(v) for v in box)
        h, w = max(y1 - y0 + 1, 1) / 2, max(x1 - x0 + 1, 1) / 3
        for p, q in np.ndindex(2, 3):
            ys = slice(int(np.floor(p * h)) + y0, int(np.ceil((p + 1) * h)) + y0)
            xs = slice(int(np.floor(q * w)) + x0, int(np.ceil((q + 1) * w)) + x0)
            out[r, :, p, q] = x[int(b), :, ys, xs].max((1, 2))
    return out


case("vision.roi_pool_nchw", lambda x, r: vision.roi_pool_nchw(x, r, (2, 3), 1.0), pooled, f(2, 2, 8, 8), ROIS)


def aligned(x, rois):
    out = np.zeros((3, 2, 2, 2), "float32")
    for r, (b, x0, y0, x1, y1) in enumerate(rois):
        for p, q in np.ndindex(2, 2):
            total = 0
            for s, t in np.ndindex(2, 2):
                yy, xx = max(0, y0 + (p + (s + 0.5) / 2) * (y1 - y0) / 2), max(0, x0 + (q + (t + 0.5) / 2) * (x1 - x0) / 2)
                y, c = int(yy), int(xx)
                fy, fx = yy - y, xx - c
                at = lambda u, v, b=b: x[int(b), :, min(u, 7), min(v, 7)]  # noqa: E731
                total = total + (at(y, c) * (1 - fx) + at(y, c + 1) * fx) * (1 - fy) + (at(y + 1, c) * (1 - fx) + at(y + 1, c + 1) * fx) * fy
            out[r, :, p, q] = total / 4
    return out


case("vision.roi_align_nchw", lambda x, r: vision.roi_align_nchw(x, r, 2, 1.0, "avg", 2), aligned, f(2, 2, 8, 8), ROIS)
case(
    "vision.roi_align_nhwc",
    lambda x, r: vision.roi_align_nhwc(x, r, 2, 1.0, b"avg", 2),
    lambda x, r: aligned(x.transpose(0, 3, 1, 2), r).transpose(0, 2, 3, 1),
    f(2, 8, 8, 2), ROIS,
)  # fmt: skip


def reorganised(x, s):
    """Darknet's reorg layer, as its loops are."""
    n, c, h, w = x.shape
    flat, out, less = x.reshape(-1), np.zeros(x.size, "float32"), c // s**2
    for b, k, j, q in np.ndindex(n, c, h, w):
        c2, offset = k % less, k // less
        to = q * s + offset % s + w * s * (j * s + offset // s + h * s * (c2 + less * b))
        out[q + w * (j + h * (k + c * b))] = flat[to]
    return out.reshape(n, c * s * s, h // s, w // s)


case("vision.reorg", lambda x: vision.reorg(x, 2), lambda x: reorganised(x, 2), f(1, 8, 4, 4))


def counted(x):
    out, at, n = np.full_like(x, -1), np.full(x.shape[:2], -1, "int32"), np.zeros(len(x), "int32")
    for b, k in np.ndindex(x.shape[:2]):
        if x[b, k, 1] > 0 and x[b, k, 0] >= 0:
            out[b, n[b]], at[b, n[b]] = x[b, k], k
            n[b] += 1
    return [n, out, at]


case("vision.get_valid_counts", lambda x: vision.get_valid_counts(x, 0.0, 0, 1), counted, f(2, 6, 6))


# ---- random numbers: by the algorithm as Python's integers do it ----
def threefry(key, counter):
    mask, rotations = 2**64 - 1, ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
    ks = [*map(int, key)]
    ks.append(0x1BD11BDAA9FC1A22 ^ ks[0] ^ ks[1] ^ ks[2] ^ ks[3])
    x = [(int(c) + k) & mask for c, k in zip(counter, ks)]

    def turned(v, r):
        return ((v << r) | (v >> (64 - r))) & mask

    for r in range(20):
        a, b = rotations[r % 8]
        x[0] = (x[0] + x[1]) & mask
        x[2] = (x[2] + x[3]) & mask
        x = [x[0], turned(x[3], b) ^ x[2], x[2], turned(x[1], a) ^ x[0]]
        if r % 4 == 3:
            x = [(v + ks[(r // 4 + 1 + w) % 5] + (r // 4 + 1) * (w == 3)) & mask for w, v in enumerate(x)]
    return x


def generated(gen, n):
    words = [w for k in range(-(-n // 4)) for w in threefry(gen[:4], [*gen[4:7], int(gen[7]) + 4 * k])]
    after = gen.copy()
    after[7] += np.uint64(n)
    return [after, np.array(words[:n], "uint64")]


GEN = np.array([1, 2, 3, 4, 0, 0, 0, 5, 1 << 63, 0], "uint64")
SPLIT = [np.array([1, 2, 3, 4, p, 0, 0, 0, 1 << 62, 0], "uint64") for p in (0, 1 << 63)]
case("random.threefry_generate", lambda g: list(topi.random.threefry_generate(g, (7,))), lambda g: generated(g, 7), GEN)
case("random.threefry_split", lambda g: list(topi.random.threefry_split(g)), lambda g: SPLIT, GEN)


def uniform(g):
    after, raw = generated(g, 50)
    u = ((raw.astype("uint32") >> np.uint32(9)) | np.uint32(127 << 23)).view("float32") - np.float32(1)
    return [after, u * np.float32(2) + np.float32(3)]


def ends(low, high):
    return te.compute((), lambda: tir.const(low, "float32")), te.compute((), lambda: tir.const(high, "float32"))


case("random.uniform", lambda g: list(topi.random.uniform(g, *ends(3.0, 5.0), (50,), "float32")), uniform, GEN)


def drawn(g, p):
    after, raw = generated(g, 12)
    u = (((raw.astype("uint32") >> np.uint32(9)) | np.uint32(127 << 23)).view("float32") - np.float32(1)).reshape(2, 6)
    running = np.cumsum(np.maximum(p, 0), 1)
    return [after, np.stack([np.searchsorted(r, v * r[-1], "right") for r, v in zip(running, u)]).astype("int32")]


case("random.multinomial", lambda g, p: list(topi.random.multinomial(g, p, 6)), drawn, GEN, f(2, 5, low=-0.5))


def normal(g):
    after, u = uniform01(g, 20)
    return [after, (np.sqrt(-2 * np.log(1 - u[:10])) * np.cos(2 * np.pi * u[10:]) * 2 + 1).astype("float32")]


def uniform01(g, n):
    after, raw = generated(g, n)
    return after, ((raw.astype("uint32") >> np.uint32(9)) | np.uint32(127 << 23)).view("float32") - np.float32(1)


case("random.normal", lambda g: list(topi.random.normal(g, *ends(1.0, 2.0), (10,), "float32")), normal, GEN)
case("const_vector", lambda: topi.const_vector(np.arange(5, dtype="float32")), lambda: np.arange(5, dtype="float32"))


def correlated(a, b):
    """Patches of one element, displaced by at most one."""
    height, width = a.shape[2:]
    b = np.pad(b, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.stack([(a * b[:, :, y : y + height, x : x + width]).mean(1) for y in range(3) for x in range(3)], 1)


case("nn.correlation_nchw", lambda a, b: nn.correlation_nchw(a, b, 1, 1, 1, 1, 1, True), correlated, f(1, 3, 4, 5), f(1, 3, 4, 5))
