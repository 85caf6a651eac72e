"""Losses, transposed convolutions and pools of one and three dimensions, blocks of space, and what else topi defines for networks."""

from .... import check, topi
from ...expr import Tuple, const
from ..derived import derive
from ..registry import FOLLOW, INJECTIVE, OPAQUE, call, ints, register
from ..tensor import divide, log, multiply, negative
from .pool import pool_axes
from .shape import scaled_infer
from .util import paddings

__all__ = ["batch_to_space_nd", "correlation", "cross_entropy",
           "cross_entropy_with_logits", "dilate", "dropout_raw", "fifo_buffer", "get_pad_tuple1d", "get_pad_tuple2d", "get_pad_tuple3d", "nll_loss",
           "space_to_batch_nd", "upsampling3d"]  # fmt: skip

# ---- losses ----

derive("nn.nll_loss", lambda a, x: topi.nn.nll_loss(x[0], x[1], x[2], a.reduction, a.ignore_index), OPAQUE)


def nll_loss(predictions, targets, weights, reduction="mean", ignore_index=-100):
    """The negative log likelihood of classes `targets` (those that are `ignore_index` do not count), each with its weight; reduction: mean
    (by the weights), sum or none."""
    check.one_of_names("reduction", reduction, ("mean", "sum", "none"))
    return call("nn.nll_loss", [predictions, targets, weights], reduction=reduction, ignore_index=int(ignore_index))


def _mean_of_rows(values, like):
    rows = like.checked_type.shape[0]
    return negative(divide(call("sum", [values], axis=None, keepdims=False, exclude=False), const(float(rows), like.checked_type.dtype)))


def cross_entropy(predictions, targets):
    """The mean over the rows of ``-sum(targets * log(predictions))``."""
    return _mean_of_rows(multiply(targets, log(predictions)), predictions)


def cross_entropy_with_logits(predictions, targets):
    """The mean over the rows of ``-sum(targets * predictions)``: `predictions` are logarithms already."""
    return _mean_of_rows(multiply(targets, predictions), predictions)


def dropout_raw(data, rate=0.5):
    """The identity, as a tuple with the mask: networks are compiled for inference."""
    return Tuple([data, data])


# ---- space ----


def _upsampling3d_loops(a, x, c, t):
    size = [c.checked_type.shape[p] for p in pool_axes(a.layout, 3)]
    method = {"nearest_neighbor": "nearest_neighbor", "trilinear": "linear"}[a.method]
    mode = "asymmetric" if method == "nearest_neighbor" else a.coordinate_transformation_mode
    return topi.image.resize3d(x[0], (0.0,) * 6, size, a.layout, method, mode)


register("nn.upsampling3d", INJECTIVE, scaled_infer(3), loops=_upsampling3d_loops, colour=FOLLOW, ranked=True)


def upsampling3d(data, scale_d=1, scale_h=1, scale_w=1, layout="NCDHW", method="nearest_neighbor", coordinate_transformation_mode="half_pixel"):
    """Enlarges a volume by factors; method nearest_neighbor or trilinear."""
    check.one_of_names("method", method, ("nearest_neighbor", "trilinear"))
    scales = {n: check.number(n, v, 0) or v for n, v in (("scale_d", scale_d), ("scale_h", scale_h), ("scale_w", scale_w))}
    mode = coordinate_transformation_mode
    return call("nn.upsampling3d", [data], **scales, layout=layout, method=method, coordinate_transformation_mode=mode)


derive("nn.dilate", lambda a, x: topi.nn.dilate(x[0], list(a.strides), a.dilation_value))


def _sides(pairs):
    """(before, after) of pairs."""
    return [p[0] for p in pairs], [p[1] for p in pairs]


def _to_batch(a, x):
    before, after = _sides(a.paddings)
    return topi.nn.space_to_batch_nd(x[0], list(a.block_shape), before, after, a.pad_value)


def _to_space(a, x):
    before, after = _sides(a.crops)
    return topi.nn.batch_to_space_nd(x[0], list(a.block_shape), before, after)


derive("nn.space_to_batch_nd", _to_batch)
derive("nn.batch_to_space_nd", _to_space)
derive("nn.fifo_buffer", lambda a, x: topi.nn.fifo_buffer(x[0], x[1], a.axis), OPAQUE)


def dilate(data, strides, dilation_value=0.0):
    """`data` with ``strides[k] - 1`` elements of `dilation_value` between its elements along axis k."""
    return call("nn.dilate", [data], strides=ints(strides), dilation_value=float(dilation_value))


def space_to_batch_nd(data, block_shape, paddings, pad_value=0):
    """Blocks of the dimensions after the batch, padded before, become more of the batch."""
    pairs = tuple(tuple(ints(p)) for p in paddings)
    return call("nn.space_to_batch_nd", [data], block_shape=ints(block_shape), paddings=pairs, pad_value=float(pad_value))


def batch_to_space_nd(data, block_shape, crops):
    """The inverse of :func:`space_to_batch_nd`: `crops` are cut off at the end."""
    return call("nn.batch_to_space_nd", [data], block_shape=ints(block_shape), crops=tuple(tuple(ints(p)) for p in crops))


def fifo_buffer(data, buffer, axis):
    """`buffer` shifted by the extent of `data` along `axis`, with `data` at the end."""
    return call("nn.fifo_buffer", [data, buffer], axis=int(axis))


def _correlated(a, x):
    return topi.nn.correlation_nchw(*x, a.kernel_size, a.max_displacement, a.stride1, a.stride2, list(a.padding), a.is_multiply)


derive("nn.correlation", _correlated, OPAQUE)


def correlation(data1, data2, kernel_size, max_displacement, stride1, stride2, padding, is_multiply, layout="NCHW"):
    """How alike patches of two maps are, per displacement: see :func:`nestsmith.topi.nn.correlation_nchw`."""
    check.one_of_names("layout", layout, ("NCHW",))
    numbers = {"kernel_size": kernel_size, "max_displacement": max_displacement, "stride1": stride1, "stride2": stride2}
    more = {k: check.integer(k, v, 0 if k == "max_displacement" else 1) for k, v in numbers.items()}
    return call("nn.correlation", [data1, data2], **more, padding=paddings(padding, 2), is_multiply=bool(is_multiply), layout=layout)


def _pad_tuple(dims):
    def pads(padding):
        p = (int(padding),) if isinstance(padding, int) else tuple(int(v) for v in padding)
        if len(p) == 1:
            p = p * dims
        if len(p) == dims:
            p = p + p
        if len(p) != 2 * dims:
            raise ValueError(f"padding {padding} must have 1, {dims} or {2 * dims} numbers")
        return p

    return topi.util.named(pads, f"get_pad_tuple{dims}d",
                           f"Padding of {dims} spatial dimensions as {2 * dims} numbers, begins before ends.")  # fmt: skip


get_pad_tuple1d, get_pad_tuple2d, get_pad_tuple3d = map(_pad_tuple, (1, 2, 3))
