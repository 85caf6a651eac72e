"""A vector per channel: bias, batch, layer, instance and group normalisation, prelu; and normalisation of vectors."""

from __future__ import annotations

import numpy as np

from ...expr import TupleWrapper
from ...ty import Any, TensorType, TupleType
from ..layout import along_axes, along_axis
from ..registry import ANCHOR, BROADCAST, FOLLOW, NEVER, OPAQUE, call, norm_axis, register, tensor
from ..tensor import check_type

__all__ = [
    "bias_add",
    "prelu",
    "batch_norm",
    "layer_norm",
    "instance_norm",
    "group_norm",
    "l2_normalize",
    "lrn",
    "channel",
]


def _bias_infer(attrs, types):
    t = tensor(types, 0)
    axis = norm_axis(attrs.axis, len(t.shape))
    if types[1] is None:
        types[1] = TensorType((t.shape[axis],), t.dtype)
    b = tensor(types, 1)
    if len(b.shape) != 1 or b.shape[0] != t.shape[axis] and not isinstance(t.shape[axis], Any):
        raise ValueError(f"the bias {b} must be ({t.shape[axis]},)")
    return t


def channel(v, rank, axis):
    """A per-channel NumPy vector shaped to broadcast along `axis`."""
    return v.reshape([-1] + [1] * (rank - axis % rank - 1))


def _ev_bias(attrs, x, b):
    return x + channel(b, x.ndim, attrs.axis)


register("nn.bias_add", BROADCAST, _bias_infer, _ev_bias, layout=along_axis)


def bias_add(data, bias, axis=1):
    """Adds a vector along `axis`."""
    return call("nn.bias_add", [data, bias], axis=int(axis))


def _norm_infer(n_vec, tuple_out=False):
    def infer(attrs, types):
        t = tensor(types, 0)
        axis = norm_axis(attrs.axis, len(t.shape))
        vec = TensorType((t.shape[axis],), t.dtype)
        for i in range(1, n_vec + 1):
            if types[i] is None:
                types[i] = vec
            elif types[i].shape != vec.shape:
                raise ValueError(f"argument {i} must be ({t.shape[axis]},)")
        return TupleType([t, vec, vec]) if tuple_out else t

    return infer


register("nn.batch_norm", ANCHOR, _norm_infer(4, True), layout=along_axis, colour=FOLLOW)
register("nn.layer_norm", ANCHOR, _norm_infer(2), layout=along_axis, colour=NEVER)
for _n in ("instance_norm", "group_norm"):
    register(f"nn.{_n}", OPAQUE, _norm_infer(2), layout=along_axis, colour=NEVER)
register("nn.l2_normalize", OPAQUE, lambda attrs, types: tensor(types, 0), layout=along_axes, colour=NEVER)


def batch_norm(data, gamma, beta, moving_mean, moving_var, axis=1, epsilon=1e-5, center=True, scale=True):
    """Batch normalisation; three results (data, mean, variance). Rewritten to multiply and add for inference."""
    out = call(
        "nn.batch_norm",
        [data, gamma, beta, moving_mean, moving_var],
        axis=int(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )
    return TupleWrapper(out, 3)


def layer_norm(data, gamma, beta, axis=-1, epsilon=1e-5, center=True, scale=True):
    """Normalises over one axis."""
    return call(
        "nn.layer_norm",
        [data, gamma, beta],
        axis=int(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


def instance_norm(data, gamma, beta, axis=1, epsilon=1e-5, center=True, scale=True):
    """Normalises over all axes except batch and channel."""
    return call(
        "nn.instance_norm",
        [data, gamma, beta],
        axis=int(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


def group_norm(data, gamma, beta, num_groups, axis=1, epsilon=1e-5, center=True, scale=True):
    """Normalises over groups of channels."""
    return call(
        "nn.group_norm",
        [data, gamma, beta],
        num_groups=int(num_groups),
        axis=int(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


def l2_normalize(data, eps, axis=None):
    """``data / sqrt(max(sum(data**2, axis), eps))``"""
    return call("nn.l2_normalize", [data], eps=float(eps), axis=None if axis is None else tuple(axis))


def _ev_prelu(attrs, x, a):
    return np.where(x > 0, x, x * channel(a, x.ndim, attrs.axis))


register("nn.prelu", BROADCAST, _bias_infer, _ev_prelu, layout=along_axis)


def prelu(data, alpha, axis=1):
    """data where positive, else ``alpha * data`` with one alpha per channel."""
    return call("nn.prelu", [data, alpha], axis=int(axis))


def _lrn_infer(attrs, types):
    t = tensor(types, 0)
    check_type("power", t.dtype)
    norm_axis(attrs.axis, len(t.shape))
    if attrs.size < 1:
        raise ValueError(f"size is {attrs.size}; it must be at least 1")
    return t


register("nn.lrn", OPAQUE, _lrn_infer, layout=along_axis, colour=NEVER)


def lrn(data, size=5, axis=1, bias=2.0, alpha=1e-5, beta=0.75):
    """Local response normalisation: ``data / (bias + alpha / size * sum) ** beta``, where sum is that of the squares of
    the `size` elements around along `axis`."""
    return call(
        "nn.lrn", [data], size=int(size), axis=int(axis), bias=float(bias), alpha=float(alpha), beta=float(beta)
    )
