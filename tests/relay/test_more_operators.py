"""Operators of relay that are a definition of topi each: all in three programs, against NumPy and PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nestsmith import IRModule, ir, relay, te
from nestsmith.relay.op import annotation, nn

ops = pytest.importorskip("torchvision.ops")

rng = np.random.default_rng(0)


def floats(*shape):
    return rng.standard_normal(shape).astype("float32")


def t(x):
    return torch.from_numpy(x)


X, Y, V, SQ = floats(4, 6), floats(4, 6), floats(5), floats(2, 3, 3)
IMG, VOL, SEQ = floats(1, 2, 4, 6), floats(1, 2, 2, 4, 4), floats(1, 3, 7)
I4 = np.array([[0, 3, 1], [2, 2, 0]], "int32")
SPECIAL = np.array([1, np.nan, np.inf, -np.inf, 0], "float32")
INTS, DIVS = np.array([-7, 7, -8, 9], "int32"), np.array([2, -2, 3, 4], "int32")
LOG = np.log(np.abs(floats(3, 5)) + 0.1).astype("float32")
TARGET, WEIGHT = np.array([1, 0, 4], "int32"), np.abs(floats(5)) + 0.1
c = relay.const


def scattered():
    out = X.copy()
    np.add.at(out, (np.array([0, 1, 0]),), Y[:3])
    return out


def set_slice():
    out = X.copy()
    out[1:3, ::2] = Y[:2, :3]
    return out


ELEMENTS = [
    (relay.isnan(c(SPECIAL)), np.isnan(SPECIAL)),
    (relay.isinf(c(SPECIAL)), np.isinf(SPECIAL)),
    (relay.isfinite(c(SPECIAL)), np.isfinite(SPECIAL)),
    (relay.trunc_divide(c(INTS), c(DIVS)), np.trunc(INTS / DIVS).astype("int32")),
    (relay.trunc_mod(c(INTS), c(DIVS)), np.fmod(INTS, DIVS)),
    (relay.reinterpret(c(V), "int32"), V.view("int32")),
    (relay.cast_like(c(V), c(INTS)), V.astype("int32")),
    (relay.fixed_point_multiply(c(INTS * 1000), 2**30, 1), INTS * 1000),
    (relay.collapse_sum_to(c(X), (1, 6)), X.sum(0, keepdims=True)),
    (relay.collapse_sum_like(c(X), c(X[0])), X.sum(0)),
    (relay.einsum((c(X), c(Y)), "ij,kj->ik"), X @ Y.T),
    (relay.mean_std(c(X), 1)[1], X.std(1)),
    (nn.cross_entropy_with_logits(c(LOG), c(np.abs(LOG))), -(np.abs(LOG) * LOG).sum() / 3),
    (nn.cross_entropy(c(np.exp(LOG)), c(np.abs(LOG))), -(np.abs(LOG) * LOG).sum() / 3),
    (nn.nll_loss(c(LOG), c(TARGET), c(WEIGHT)), F.nll_loss(t(LOG), t(TARGET).long(), t(WEIGHT)).numpy()),
    (nn.nll_loss(c(LOG), c(TARGET), c(WEIGHT), "none", 4), F.nll_loss(t(LOG), t(TARGET).long(), t(WEIGHT), reduction="none", ignore_index=4).numpy()),
    (annotation.stop_fusion(relay.exp(c(V))) + annotation.checkpoint(c(V)), np.exp(V) + V),
    (annotation.compiler_end(annotation.compiler_begin(c(V), "x"), "x"), V),
    (annotation.bitpack_end(annotation.bitpack_start(annotation.on_device(c(V), "cpu"))), V),
]
MOVES = [
    (relay.adv_index([c(X), c(I4 % 4), c(I4[:1])]), X[I4 % 4, I4[:1]]),
    (relay.scatter_elements(c(X), c(I4), c(Y[:2, :3]), 1), t(X).scatter(1, t(I4).long(), t(Y[:2, :3])).numpy()),
    (relay.scatter_nd(c(X), c(np.array([[0, 1, 0]], "int32")), c(Y[:3]), "add"), scattered()),
    (relay.segment_sum(c(X), c(np.array([0, 0, 2, 2], "int32"))), np.stack([X[:2].sum(0), 0 * X[0], X[2:].sum(0)])),
    (relay.sequence_mask(c(X), c(np.array([2, 0, 4, 1, 3, 2], "int32")), -1.0), np.where(np.arange(4)[:, None] < [2, 0, 4, 1, 3, 2], X, -1)),
    (relay.reverse_sequence(c(X), c(np.array([1, 2, 3, 6], "int32"))), np.stack([np.r_[r[:n][::-1], r[n:]] for r, n in zip(X, [1, 2, 3, 6])])),
    (relay.unravel_index(c(np.array([0, 5, 11], "int32")), c(np.array([3, 4], "int32"))), np.stack(np.unravel_index([0, 5, 11], (3, 4)))),
    (relay.invert_permutation(c(np.array([2, 0, 1], "int32"))), [1, 2, 0]),
    (relay.sparse_to_dense(c(np.array([[0, 1], [2, 0]], "int32")), (3, 2), c(V[:2])), np.array([[0, V[0]], [0, 0], [V[1], 0]])),
    (relay.matrix_set_diag(c(SQ), c(SQ[:, 0])), np.where(np.eye(3, dtype=bool), SQ[:, 0][:, None], SQ)),
    (relay.strided_set(c(X), c(Y[:2, :3]), [1, 0], [3, 6], [1, 2]), set_slice()),
    (relay.strided_set(c(X), c(X[:2] * 0), [2], [4]), np.r_[X[:2], X[:2] * 0]),
    (relay.strided_set(c(X), c(Y[:2, :3]), [1], [3, 3]), np.r_[X[:1], np.c_[Y[:2, :3], X[1:3, 3:]], X[3:]]),
    (nn.pad(c(X), ((1, 0), (0, 2)), c(V[:1])), np.pad(X, ((1, 0), (0, 2)), constant_values=V[0])),
    (relay.sliding_window(c(V), 0, [3], [2]), np.stack([V[:3], V[2:]])),
    (relay.trilu(c(SQ), 0, False), np.tril(SQ)),
    (relay.searchsorted(c(np.sort(V)), c(X[0]), True), np.searchsorted(np.sort(V), X[0], "right")),
    (relay.sort(c(X), 0, False), -np.sort(-X, 0)),
    (relay.unique(c(np.array([3, 1, 3, 2], "int32")))[0], None),
    (relay.meshgrid([c(V), c(X[0])])[1], np.meshgrid(V, X[0], indexing="ij")[1]),
    (relay.ndarray_size(c(X)), 24),
    (relay.reverse_reshape(c(IMG), (-1, 0)), IMG.reshape(8, 6)),
    (relay.slice_like(c(X), c(SQ[0])), X[:3, :3]),
]
WIDE, WW, ROIS = floats(1, 8, 5, 6), floats(16, 8, 3, 3), np.array([[0, 1, 1, 4, 3], [0, 0, 0, 5, 2]], "float32")


def blocked(x, n, both=False):
    """The second axis (and the first) in blocks of n, innermost."""
    x = x.reshape(x.shape[0], -1, n, *x.shape[2:])
    x = np.moveaxis(x, 2, -1)
    return np.moveaxis(x.reshape(-1, n, *x.shape[1:]), 1, -2) if both else x


def correlated(a, b, reach=1):
    """Of patches of one element: products of each with all at a distance of `reach` at most."""
    far, (_, channels, h, w) = np.pad(b, ((0, 0), (0, 0), (reach, reach), (reach, reach))), a.shape
    rows = [(a * far[:, :, y : y + h, x : x + w]).sum(1) / channels for y in range(2 * reach + 1) for x in range(2 * reach + 1)]
    return np.stack(rows, 1)


W1, W3 = floats(3, 4, 3), floats(2, 3, 2, 2, 2)
THETA = np.array([[[0.9, 0.1, 0], [0, 1, 0.2]]], "float32")
GRID = F.affine_grid(t(THETA), (1, 2, 3, 5), align_corners=True).permute(0, 3, 1, 2).contiguous().numpy()
MAPS = [
    (nn.global_avg_pool3d(c(VOL)), VOL.mean((2, 3, 4), keepdims=True)),
    (nn.global_max_pool1d(c(SEQ)), SEQ.max(2, keepdims=True)),
    (nn.conv1d_transpose(c(SEQ), c(W1), strides=2, padding=1, output_padding=1), F.conv_transpose1d(t(SEQ), t(W1), None, 2, 1, 1).numpy()),
    (nn.conv3d_transpose(c(VOL), c(W3), strides=(2, 2, 2)), F.conv_transpose3d(t(VOL), t(W3), None, 2).numpy()),
    (nn.global_avg_pool1d(c(SEQ)), SEQ.mean(2, keepdims=True)),
    (nn.global_max_pool3d(c(VOL)), VOL.max((2, 3, 4), keepdims=True)),
    (nn.upsampling3d(c(VOL), 1, 2, 2), VOL.repeat(2, 3).repeat(2, 4)),
    (nn.dilate(c(X), (2, 1), 7.0), np.insert(X, [1, 2, 3], 7, 0)),
    (nn.batch_to_space_nd(nn.space_to_batch_nd(c(X[..., None]), [3], [(0, 0)]), [3], [(0, 0)]), X[..., None]),
    (nn.fifo_buffer(c(X[:1]), c(Y), 0), np.r_[Y[1:], X[:1]]),
    (relay.image.resize1d(c(SEQ), 14), F.interpolate(t(SEQ), 14, mode="linear").numpy()),
    (relay.image.resize3d(c(VOL), (2, 8, 8)), F.interpolate(t(VOL), (2, 8, 8), mode="trilinear").numpy()),
    (relay.image.affine_grid(c(THETA), (3, 5)), GRID),
    (relay.image.grid_sample(c(IMG), c(GRID)), F.grid_sample(t(IMG), t(GRID).permute(0, 2, 3, 1), align_corners=True).numpy()),
    (relay.image.crop_and_resize(c(IMG), c(np.array([[0, 0, 1, 1]], "float32")), c(np.zeros(1, "int32")), (4, 6), "NCHW"), IMG),
    (nn.conv2d(c(blocked(WIDE, 4)), c(blocked(WW, 4, True)), padding=1, data_layout="NCHW4c", kernel_layout="OIHW4o4i", out_layout="NCHW8c"),
     blocked(F.conv2d(t(WIDE), t(WW), padding=1).numpy(), 8)),
    (nn.correlation(c(IMG), c(IMG[:, ::-1]), 1, 1, 1, 1, 1, True), correlated(IMG, IMG[:, ::-1])),
    (nn.correlation(c(IMG), c(IMG[:, ::-1]), 3, 0, 1, 1, 0, False), F.avg_pool2d(t(np.abs(IMG - IMG[:, ::-1])), 3, 1).mean(1, True).numpy()),
    (relay.vision.roi_align(c(IMG), c(ROIS), (2, 2), 1.0), ops.roi_align(t(IMG), t(ROIS), 2).numpy()),
    (relay.vision.roi_align(c(IMG.transpose(0, 2, 3, 1)), c(ROIS), 2, 0.5, 3, "NHWC"),
     ops.roi_align(t(IMG), t(ROIS), 2, 0.5, 3).numpy().transpose(0, 2, 3, 1)),
    (relay.vision.roi_pool(c(IMG), c(ROIS), (2, 2), 0.5), ops.roi_pool(t(IMG), t(ROIS), 2, 0.5).numpy()),
    (relay.vision.yolo_reorg(c(floats(1, 4, 4, 4) * 0 + 3), 2), np.full((1, 16, 2, 2), 3)),
    (relay.vision.get_valid_counts(c(np.array([[[0, 0.2, 7], [1, 0.9, 8]]], "float32")), 0.5)[1], [[[1, 0.9, 8], [-1, -1, -1]]]),
    (relay.vision.multibox_prior(c(IMG[:, :, :1, :1]), (0.5,), (1, 4), clip=True), [[[0.25, 0.25, 0.75, 0.75], [0, 0.375, 1, 0.625]]]),
    (relay.image.dilation2d(c(IMG), c(np.zeros((2, 2, 2), "float32"))), F.max_pool2d(t(IMG), 2, 1).numpy()),
]


@pytest.mark.parametrize("rows", [ELEMENTS, MOVES, MAPS], ids=["elements", "moves", "maps"])
def test_operators(rows):
    """Constants become parameters, so that nothing is folded; what is printed is read back as the same."""
    params, values = [], []

    class Inputs(relay.ExprMutator):
        def visit_constant(self, const):
            if const.is_scalar or const.data.dtype.kind in "iu" and const.data.ndim == 1 and const.data.size in (2,):
                return const  # shapes
            params.append(relay.var(f"p{len(params)}", const.checked_type))
            values.append(const.data)
            return params[-1]

    rows = [r for r in rows if r[1] is not None]
    func = relay.Function(params, Inputs().visit(relay.Tuple([e for e, _ in rows])))
    func = relay.Function(params, func.body)
    got = relay.create_executor("graph").evaluate(func)(*values)
    for (e, want), y in zip(rows, got):
        np.testing.assert_allclose(y.numpy(), want, rtol=2e-5, atol=1e-5, err_msg=str(e))
    ir.assert_structural_equal(relay.parse(IRModule.from_expr(func).astext()), relay.transform.InferType()(IRModule.from_expr(func)))


def test_unique():
    elements, first, which, count = relay.create_executor("debug").evaluate(relay.unique(c(np.array([3, 1, 3, 2], "int32"))).astuple())
    n = int(count.numpy()[0])
    assert n == 3 and list(elements.numpy()[:n]) == [1, 2, 3] and list(which.numpy()) == [2, 0, 2, 1] and len(first.numpy()) == 4


def test_types_of_sizes_known_at_run_time():
    n, m = te.var("n"), te.var("m")
    x, y = relay.var("x", relay.TensorType((n, 8))), relay.var("y", relay.TensorType((m, 3)))
    assert relay.slice_like(x, y).checked_type == relay.TensorType((m, 3))
    assert relay.strided_slice(x, [1], [4], axes=[1]).checked_type == relay.TensorType((n, 3))
    assert not relay.strided_slice(x, [1], [4], axes=[0]).checked_type.is_static
    image = relay.var("image", relay.TensorType((n, 4, m, 6)))  # operators that are a definition alone: by trying numbers
    assert nn.dilate(image, (1, 1, 3, 1)).checked_type == relay.TensorType((n, 4, m * 3 - 2, 6))
    assert relay.vision.yolo_reorg(image, 2).checked_type.shape[:2] == (n, 16)
    assert relay.image.resize2d(image, (n, 8)).checked_type == relay.TensorType((n, 4, n, 8))
    a = rng.random((5, 8), "float32")
    f = relay.Function([relay.var("z", shape=(relay.Any(), 8))], x)
    f = relay.Function([x], relay.strided_slice(x, [1], [4], axes=[0]))
    np.testing.assert_array_equal(relay.create_executor("vm").evaluate(f)(a).numpy(), a[1:4])


def test_bad_arguments():
    with pytest.raises(ValueError, match="reduction"):
        nn.nll_loss(c(LOG), c(TARGET), c(WEIGHT), "median")
    with pytest.raises(ValueError, match="indexing"):
        relay.meshgrid([c(V)], "ji")
    with pytest.raises(ValueError, match="element types"):
        relay.trunc_mod(c(INTS), c(V)).checked_type  # noqa: B018
    with pytest.raises(ValueError, match="num_segments"):
        relay.segment_sum(c(X), relay.var("s", shape=(4,), dtype="int32"))
