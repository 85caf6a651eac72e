"""Reductions, order, and what runs along an axis."""

import math

import numpy as np

from ....error import OpNotImplemented
from ....numerics import is_float
from ... import op as relay
from ...expr import Expr
from .. import common as c
from ..values import array, dtype_of, rank_of, shape_of
from .promotion import STEPS, Types, promoted
from .table import ATEN, aten, listed, scaled, with_axis

# ---- reductions ----


def _summed(x, dtype):
    kind = dtype_of(x) if is_float(dtype_of(x)) else "int64"
    return c.cast(x, dtype or kind)


aten("sum")(lambda x, dim=None, keepdim=False, dtype=None: c.reduce("sum", _summed(x, dtype), listed(dim), keepdim))
aten("prod")(lambda x, dim=None, keepdim=False, dtype=None: c.reduce("prod", _summed(x, dtype), listed(dim), keepdim))


@aten("mean")
def _mean(x, dim=None, keepdim=False, dtype=None):
    return c.reduce("mean", c.cast(x, dtype or dtype_of(x)), listed(dim), keepdim)


aten("amax")(lambda x, dim=None, keepdim=False: c.extreme("max", x, listed(dim), keepdim))
aten("amin")(lambda x, dim=None, keepdim=False: c.extreme("min", x, listed(dim), keepdim))
aten("any")(lambda x, dim=None, keepdim=False: _of_bytes(x, c.reduce("any", c.cast(x, "bool"), listed(dim), keepdim)))
aten("all")(lambda x, dim=None, keepdim=False: _of_bytes(x, c.reduce("all", c.cast(x, "bool"), listed(dim), keepdim)))


def _of_bytes(x, truth):
    """PyTorch's any and all of uint8 are uint8."""
    return c.cast(truth, "uint8") if dtype_of(x) == "uint8" else truth


def _most(kind):
    where = getattr(relay, f"arg{kind}")

    @with_axis
    def place(x, dim=None, keepdim=False):
        y = relay.reshape(x, (-1,)) if dim is None else x
        at = where(y, 0 if dim is None else dim, keepdims=keepdim and dim is not None)
        return relay.cast(relay.reshape(at, (1,) * rank_of(x)) if keepdim and dim is None else at, "int64")

    def both(x, dim=None, keepdim=False):
        """Of a tensor its extreme, of an axis extremes and places, of two tensors the larger or smaller."""
        if isinstance(dim, Expr):
            return ATEN[f"aten::{kind}imum"](x, dim)
        if dim is None:
            return c.extreme(kind, x, None, False)
        return [c.extreme(kind, x, [dim], keepdim), place(x, dim, keepdim)]

    aten(kind)(both)
    aten(f"arg{kind}")(place)


_most("max")
_most("min")


def _spread(x, dim, correction, unbiased, keepdim):
    """The variance over axes; of a sample if `correction` is 1. A divisor below 0 is 0."""
    if isinstance(dim, bool):  # the overload var(x, unbiased)
        dim, unbiased = None, dim
    if isinstance(unbiased, bool):
        correction = int(unbiased)
    axes = c.axes_of(listed(dim), rank_of(x))
    count = math.prod(shape_of(x)[a] for a in axes)
    correction = 1 if correction is None else correction
    y = relay.variance(x, axes, keepdims=keepdim)
    return scaled(y, count / (count - correction) if count > correction else np.inf) if correction else y


@aten("var")
def _var(x, dim=None, unbiased=None, keepdim=False, correction=None):
    return _spread(x, dim, correction, unbiased, keepdim)


@aten("std")
def _std(x, dim=None, unbiased=None, keepdim=False, correction=None):
    return relay.sqrt(_spread(x, dim, correction, unbiased, keepdim))


@aten("var_mean")
def _var_mean(x, dim=None, unbiased=None, keepdim=False, correction=None):
    return [_spread(x, dim, correction, unbiased, keepdim), _mean(x, None if isinstance(dim, bool) else dim, keepdim)]


@aten("linalg_vector_norm", "norm")
def _norm(x, ord=2, dim=None, keepdim=False, dtype=None):
    return _length(c.cast(x, dtype or dtype_of(x)), ord, listed(dim), keepdim)


def _root_of_powers(x, ord, axes, keepdim):
    ord = 2 if ord is None else float(ord)
    if ord == 2:
        return relay.sqrt(c.reduce("sum", relay.multiply(x, x), axes, keepdim))
    if ord == 0:
        return c.reduce("sum", c.cast(relay.not_equal(x, c.scalar(0, x)), dtype_of(x)), axes, keepdim)
    if ord in (1, np.inf, -np.inf):
        return c.reduce({1: "sum", np.inf: "max", -np.inf: "min"}[ord], relay.abs(x), axes, keepdim)
    return relay.power(c.reduce("sum", relay.power(relay.abs(x), c.scalar(ord, x)), axes, keepdim), c.scalar(1 / ord, x))


_length = promoted(_root_of_powers, Types("x", steps=True))


@aten("logsumexp", types=STEPS)
def _logsumexp(x, dim, keepdim=False):
    return relay.logsumexp(x, c.axes_of(listed(dim), rank_of(x)), keepdim) if rank_of(x) else x


@aten("cumsum")
@with_axis
def _cumsum(x, dim, dtype=None):
    return relay.cumsum(_summed(x, dtype), dim % rank_of(x))


@aten("topk")
@with_axis
def _topk(x, k, dim=-1, largest=True, sorted=True):
    return relay.topk(x, k, dim, "both", not largest, "int64")


@aten("sort")
@with_axis
def _sort(x, dim=-1, descending=False):
    return relay.topk(x, shape_of(x)[dim], dim, "both", not descending, "int64")


aten("sort.stable")(lambda x, stable=None, dim=-1, descending=False: _sort(x, dim, descending))


@aten("argsort")
@with_axis
def _argsort(x, dim=-1, descending=False):
    return relay.argsort(x, dim, not descending, "int64")


aten("argsort.stable")(lambda x, stable, dim=-1, descending=False: _argsort(x, dim, descending))
aten("dist")(lambda x, y, p=2: _norm(ATEN["aten::sub"](x, y), p))


@aten("cdist", "_cdist_forward")
def _cdist(x, y, p=2, compute_mode=None):
    return _norm(relay.subtract(relay.expand_dims(x, rank_of(x) - 1), relay.expand_dims(y, rank_of(y) - 2)), p, -1)


@aten("kthvalue")
def _kthvalue(x, k, dim=-1, keepdim=False):
    if not rank_of(x):
        return [x, array(0, "int64")]
    axis = dim % rank_of(x)
    found = relay.topk(x, k, axis, "both", True, "int64")
    last = [c.part(v, axis, k - 1, k) for v in found]
    return last if keepdim else [relay.squeeze(v, [axis]) for v in last]


@aten("median")
def _median(x, dim=None, keepdim=False):
    """The lower one of two; the first that is no number, if there is one."""
    y, axis = (relay.reshape(x, (-1,)), 0) if dim is None else (x, dim)
    found = _kthvalue(y, (shape_of(y)[axis] + 1) // 2 if rank_of(y) else 1, axis, keepdim)
    if is_float(dtype_of(y)):
        odd = ATEN["aten::max"](y, axis, keepdim)
        found = [relay.where(relay.not_equal(odd[0], odd[0]), o, f) for o, f in zip(odd, found)]
    return found[0] if dim is None else found


@aten("nanmedian")
def _nanmedian(x, dim=None, keepdim=False):
    """The lower one of two, without what is no number."""
    if dim is None:
        return _nanmedian(relay.reshape(x, (-1,)), 0)[0]
    if not rank_of(x):
        return [x, array(0, "int64")]
    axis = dim % rank_of(x)
    found = relay.topk(x, shape_of(x)[axis], axis, "both", True, "int64")
    count = relay.sum(relay.cast(relay.equal(x, x), "int32"), [axis], keepdims=True)
    at = relay.right_shift(relay.maximum(relay.subtract(count, array(1, "int32")), array(0, "int32")), array(1, "int32"))
    out = [relay.gather(v, axis, at) for v in found]
    return out if keepdim else [relay.squeeze(v, [axis]) for v in out]


@aten("cumprod")
def _cumprod(x, dim, dtype=None):
    x = _summed(x, dtype)
    return relay.cumprod(x, dim % rank_of(x)) if rank_of(x) else x


aten("logcumsumexp")(lambda x, dim: relay.logcumsumexp(x, dim % rank_of(x)) if rank_of(x) else x)


def _running_most(extreme):
    def convert(x, dim):
        """Extremes and their places: of equal ones, and of those that are no number, the last."""
        if not rank_of(x):
            return [x, array(0, "int64")]
        values, places = extreme(relay.cast(x, "int8") if dtype_of(x) == "bool" else x, dim % rank_of(x), "both", "int64")
        return [c.cast(values, dtype_of(x)), places]

    return convert


aten("cummax")(_running_most(relay.cummax))
aten("cummin")(_running_most(relay.cummin))


@aten("searchsorted.Tensor", "searchsorted.Scalar", types=Types("sequence value"))
def _searchsorted(sequence, value, out_int32=False, right=False, side=None, sorter=None):
    """How many elements come before each value: where the first one is that does not. What is no number comes last."""
    if sorter is not None:
        raise OpNotImplemented("a sorter is not supported; sort the sequence before")
    shape = shape_of(value)
    lifted = relay.expand_dims(value, rank_of(value))
    sequence = sequence if rank_of(sequence) == 1 else relay.expand_dims(sequence, rank_of(sequence) - 1)
    n = shape_of(sequence)[-1]
    if n:
        behind = (relay.greater if right or side == "right" else relay.greater_equal)(sequence, lifted)
        found = relay.min(relay.where(behind, array(np.arange(n), "int32"), array(n, "int32")), [len(shape)])
    else:
        found = array(np.zeros(shape), "int32")
    return found if out_int32 else relay.cast(found, "int64")


aten("bucketize.Tensor", "bucketize.Scalar")(lambda x, boundaries, out_int32=False, right=False: _searchsorted(boundaries, x, out_int32, right))
