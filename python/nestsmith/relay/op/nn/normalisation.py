"""A vector per channel: bias, batch, layer, instance and group normalisation, prelu; and normalisation of vectors."""

import numpy as np

from .... import topi
from ....numerics import sum_type
from ...expr import TupleWrapper, const
from ...ty import Any, TensorType, TupleType
from .. import reduce
from ..layout import along_axes, along_axis
from ..registry import ANCHOR, BROADCAST, FOLLOW, NEVER, OPAQUE, call, norm_axis, register, tensor
from ..tensor import add, check_type, divide, maximum, multiply, negative, sqrt, subtract
from ..transform import expand_dims, reshape

__all__ = ["bias_add", "prelu", "batch_norm", "layer_norm", "instance_norm", "group_norm", "l2_normalize", "lrn",
           "channel"]  # fmt: skip


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


def _bias_add_loops(a, x, c, t):
    rank = len(c.checked_type.shape)
    n = rank - a.axis % rank - 1
    return topi.add(x[0], topi.expand_dims(x[1], 1, n) if n else x[1])


register("nn.bias_add", BROADCAST, _bias_infer, lambda attrs, x, b: x + channel(b, x.ndim, attrs.axis),
         layout=along_axis, loops=_bias_add_loops)  # fmt: skip


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


def expand_to(vec, rank, axis):
    """A per-channel vector with trailing axes so that it broadcasts along `axis` of a tensor of `rank`."""
    n = rank - axis % rank - 1
    return expand_dims(vec, 1, n) if n else vec


def _batch_norm_apart(call):
    data, gamma, beta, mean, variance = call.args
    a, t = call.attrs, data.checked_type
    scale = divide(const(1.0, t.dtype), sqrt(add(variance, const(a.epsilon, t.dtype))))
    if a.scale:
        scale = multiply(scale, gamma)
    shift = multiply(negative(mean), scale)
    if a.center:
        shift = add(shift, beta)
    rank = len(t.shape)
    return add(multiply(data, expand_to(scale, rank, a.axis)), expand_to(shift, rank, a.axis))


def _normalise(x, axes, a):
    m = reduce.mean(x, axes, True)
    v = reduce.variance(x, axes, True, with_mean=m)
    return divide(subtract(x, m), sqrt(add(v, const(a.epsilon, x.checked_type.dtype))))


def _affine(y, gamma, beta, a, rank):
    if a.scale:
        y = multiply(y, expand_to(gamma, rank, a.axis))
    if a.center:
        y = add(y, expand_to(beta, rank, a.axis))
    return y


def _layer_norm_apart(call):
    x, gamma, beta = call.args
    t = x.checked_type
    y = _normalise(x, (call.attrs.axis % len(t.shape),), call.attrs)
    return _affine(y, gamma, beta, call.attrs, len(t.shape))


def _instance_norm_apart(call):
    x, gamma, beta = call.args
    rank = len(x.checked_type.shape)
    axes = tuple(i for i in range(rank) if i not in (0, call.attrs.axis % rank))
    return _affine(_normalise(x, axes, call.attrs), gamma, beta, call.attrs, rank)


def _group_norm_apart(call):
    x, gamma, beta = call.args
    t = x.checked_type
    axis, g = call.attrs.axis % len(t.shape), call.attrs.num_groups
    shape = t.concrete_shape
    if shape[axis] % g:
        raise ValueError(f"group_norm: {shape[axis]} channels do not divide into {g} groups")
    grouped = shape[:axis] + (g, shape[axis] // g) + shape[axis + 1 :]
    y = reshape(x, grouped)
    y = _normalise(y, tuple(i for i in range(1, len(grouped)) if i != axis), call.attrs)
    return _affine(reshape(y, shape), gamma, beta, call.attrs, len(shape))


def _l2_normalize_apart(call):
    x = call.args[0]
    dtype = x.checked_type.dtype
    total = reduce.sum(multiply(x, x), call.attrs.axis, True)
    return divide(x, sqrt(maximum(total, const(call.attrs.eps, dtype))))


def _ev_batch_norm(attrs, x, gamma, beta, mean, var):
    shape = [x.shape[attrs.axis] if i == attrs.axis % x.ndim else 1 for i in range(x.ndim)]
    wide = [v.astype(sum_type(str(x.dtype))).reshape(shape) for v in (gamma, beta, mean, var)]
    out = (x - wide[2]) / np.sqrt(wide[3] + attrs.epsilon)
    out = out * wide[0] if attrs.scale else out
    out = out + wide[1] if attrs.center else out
    return [out.astype(x.dtype), mean, var]


register("nn.batch_norm", ANCHOR, _norm_infer(4, True), _ev_batch_norm, layout=along_axis, colour=FOLLOW, ranked=True,
         apart=_batch_norm_apart)  # fmt: skip


def _layer_norm_loops(a, x, c, t):
    return topi.nn.layer_norm(x[0], x[1] if a.scale else None, x[2] if a.center else None, a.axis, a.epsilon)


register("nn.layer_norm", ANCHOR, _norm_infer(2), layout=along_axis, colour=NEVER, loops=_layer_norm_loops,
         apart=_layer_norm_apart)  # fmt: skip
register("nn.instance_norm", OPAQUE, _norm_infer(2), layout=along_axis, colour=NEVER, apart=_instance_norm_apart)
register("nn.group_norm", OPAQUE, _norm_infer(2), layout=along_axis, colour=NEVER, apart=_group_norm_apart)
register("nn.l2_normalize", OPAQUE, lambda attrs, types: tensor(types, 0), layout=along_axes, colour=NEVER,
         apart=_l2_normalize_apart)  # fmt: skip


def _normalised(name, args, axis, epsilon, center, scale, **more):
    return call(name, args, **more, axis=int(axis), epsilon=float(epsilon), center=bool(center), scale=bool(scale))


def batch_norm(data, gamma, beta, moving_mean, moving_var, axis=1, epsilon=1e-5, center=True, scale=True):
    """Batch normalisation; three results (data, mean, variance). Rewritten to multiply and add for inference."""
    out = _normalised("nn.batch_norm", [data, gamma, beta, moving_mean, moving_var], axis, epsilon, center, scale)
    return TupleWrapper(out, 3)


def layer_norm(data, gamma, beta, axis=-1, epsilon=1e-5, center=True, scale=True):
    """Normalises over one axis."""
    return _normalised("nn.layer_norm", [data, gamma, beta], axis, epsilon, center, scale)


def instance_norm(data, gamma, beta, axis=1, epsilon=1e-5, center=True, scale=True):
    """Normalises over all axes except batch and channel."""
    return _normalised("nn.instance_norm", [data, gamma, beta], axis, epsilon, center, scale)


def group_norm(data, gamma, beta, num_groups, axis=1, epsilon=1e-5, center=True, scale=True):
    """Normalises over groups of channels."""
    return _normalised("nn.group_norm", [data, gamma, beta], axis, epsilon, center, scale, num_groups=int(num_groups))


def l2_normalize(data, eps, axis=None):
    """``data / sqrt(max(sum(data**2, axis), eps))``"""
    return call("nn.l2_normalize", [data], eps=float(eps), axis=None if axis is None else tuple(axis))


register("nn.prelu", BROADCAST, _bias_infer, lambda attrs, x, a: np.where(x > 0, x, x * channel(a, x.ndim, attrs.axis)),
         layout=along_axis, loops=lambda a, x, c, t: topi.nn.prelu(x[0], x[1], a.axis))  # fmt: skip


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


register("nn.lrn", OPAQUE, _lrn_infer, layout=along_axis, colour=NEVER,
         loops=lambda a, x, c, t: topi.nn.lrn(x[0], a.size, a.axis, a.alpha, a.beta, a.bias))  # fmt: skip


def lrn(data, size=5, axis=1, bias=2.0, alpha=1e-5, beta=0.75):
    """Local response normalisation: ``data / (bias + alpha / size * sum) ** beta``, where sum is that of the squares of
    the `size` elements around along `axis`."""
    return call("nn.lrn", [data], size=int(size), axis=int(axis), bias=float(bias), alpha=float(alpha),
                beta=float(beta))  # fmt: skip
