"""Normalisations by statistics of the data, and losses."""

from ... import te, tir
from .. import reduction
from ..broadcast import binary
from ..elemwise import as_type, sqrt
from ..transform import reshape
from ..util import as_const_int, injective, normal_axis, sum_type

__all__ = ["group_norm", "instance_norm", "nll_loss", "rms_norm"]


def _normalized(data, axes, epsilon):
    mean = reduction.mean(data, axes, True)
    var = reduction.variance(data, mean, axes)
    return binary("divide", binary("subtract", data, mean), sqrt(binary("add", var, tir.const(epsilon, data.dtype))))


def _axes(axis, rank):
    return sorted({normal_axis(a, rank) for a in (axis if isinstance(axis, (tuple, list)) else [axis])})


def _per(v, axes, shape, acc):
    """``v``, which has the given dimensions, with 1 for all others."""
    return reshape(as_type(v, acc), [s if i in axes else 1 for i, s in enumerate(shape)])


def _scaled(out, gamma, beta, axes, shape, acc):
    if gamma is not None:
        out = binary("multiply", out, _per(gamma, axes, shape, acc))
    return out if beta is None else binary("add", out, _per(beta, axes, shape, acc))


def instance_norm(data, gamma, beta, axis, epsilon=1e-5):
    """(x - mean) / sqrt(variance + epsilon) over the dimensions ``axis``, for each image and channel. gamma and beta have these dimensions;
    if they have one where ``axis`` has several, they lie along dimension 1, the channels."""
    acc, axes = sum_type(data.dtype), _axes(axis, len(data.shape))
    out = _normalized(as_type(data, acc), axes, epsilon)
    along = axes if len(gamma.shape) == len(axes) else [1]
    return as_type(_scaled(out, gamma, beta, along, data.shape, acc), data.dtype)


def group_norm(data, gamma, beta, num_groups, channel_axis, axes, epsilon=1e-5):
    """The normalisation over ``axes`` and over each of ``num_groups`` groups of channels; gamma and beta [C]."""
    acc, rank = sum_type(data.dtype), len(data.shape)
    c, reduced = normal_axis(channel_axis, rank), _axes(axes, rank)
    channels, groups = as_const_int(data.shape[c]), as_const_int(num_groups)
    if channels % groups:
        raise ValueError(f"group_norm: {channels} channels do not divide into {groups} groups")
    shape = [*data.shape[:c], groups, channels // groups, *data.shape[c + 1 :]]
    over = sorted({c + 1, *[a if a < c else a + 1 for a in reduced if a != c]})
    out = reshape(_normalized(reshape(as_type(data, acc), shape), over, epsilon), data.shape)
    return as_type(_scaled(out, gamma, beta, [c], data.shape, acc), data.dtype)


def rms_norm(data, weight, bias, axis, epsilon=1e-5):
    """x / sqrt(mean of x^2 + epsilon) over ``axis``, times ``weight`` and plus ``bias`` (or None), which have those dimensions."""
    acc, axes = sum_type(data.dtype), _axes(axis, len(data.shape))
    x = as_type(data, acc)
    root = sqrt(binary("add", reduction.mean(binary("multiply", x, x), axes, True), tir.const(epsilon, acc)))
    return as_type(_scaled(binary("divide", x, root), weight, bias, axes, data.shape, acc), data.dtype)


def nll_loss(predictions, targets, weights, reduction, ignore_index):
    """The negative log likelihood of classes.

    Parameters
    ----------
    predictions : te.Tensor [N, C, ...] or [C]
    targets : te.Tensor [N, ...] or []
        Classes, integers; those that are ``ignore_index`` do not count.
    weights : te.Tensor [C]
    reduction : str
        mean (by the weights), sum or none.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'nll_loss: reduction is "mean", "sum" or "none", not {reduction!r}')
    dtype, batch = predictions.dtype, len(predictions.shape) > 1

    def weight(ax):
        cls = targets(*ax)
        counts = tir.NE(cls, tir.const(ignore_index, cls.dtype))
        safe = tir.Select(counts, cls, tir.const(0, cls.dtype))
        return counts, safe, te.if_then_else(counts, weights(safe), tir.const(0, dtype))

    def loss(*ax):
        counts, safe, w = weight(ax)
        at = (ax[0], safe, *ax[1:]) if batch else (safe,)
        return te.if_then_else(counts, tir.const(0, dtype) - predictions(*at) * w, tir.const(0, dtype))

    each = injective(targets.shape, loss, "T_nll_loss")
    if reduction == "none":
        return each
    total = _total(each)
    if reduction == "sum":
        return total
    weighed = _total(injective(targets.shape, lambda *ax: weight(ax)[2], "T_nll_weights"))
    return binary("divide", total, weighed)


def _total(x):
    return reduction.sum(x) if len(x.shape) else x
