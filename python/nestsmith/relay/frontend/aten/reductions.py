"""Reductions, order, and what runs along an axis."""

from __future__ import annotations

import math

import numpy as np

from ....numerics import is_float
from ... import op as relay
from ...expr import Expr
from .. import common as c
from ..values import dtype_of, rank_of, shape_of
from .table import ATEN, aten, listed, scaled

# ---- reductions ----


def _summed(x, dtype):
    kind = dtype_of(x) if is_float(dtype_of(x)) else "int64"
    return c.cast(x, dtype or kind)


@aten("sum")
def _sum(x, dim=None, keepdim=False, dtype=None):
    return c.reduce("sum", _summed(x, dtype), listed(dim), keepdim)


@aten("prod")
def _prod(x, dim=None, keepdim=False, dtype=None):
    return c.reduce("prod", _summed(x, dtype), listed(dim), keepdim)


@aten("mean")
def _mean(x, dim=None, keepdim=False, dtype=None):
    return c.reduce("mean", c.cast(x, dtype or dtype_of(x)), listed(dim), keepdim)


@aten("amax")
def _amax(x, dim=None, keepdim=False):
    return c.extreme("max", x, listed(dim), keepdim)


@aten("amin")
def _amin(x, dim=None, keepdim=False):
    return c.extreme("min", x, listed(dim), keepdim)


@aten("any")
def _any(x, dim=None, keepdim=False):
    return c.reduce("any", c.cast(x, "bool"), listed(dim), keepdim)


@aten("all")
def _all(x, dim=None, keepdim=False):
    return c.reduce("all", c.cast(x, "bool"), listed(dim), keepdim)


def _most(kind):
    where = getattr(relay, f"arg{kind}")

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
    """The variance over axes; of a sample if `correction` is 1."""
    if isinstance(dim, bool):  # the overload var(x, unbiased)
        dim, unbiased = None, dim
    if isinstance(unbiased, bool):
        correction = int(unbiased)
    axes = c.axes_of(listed(dim), rank_of(x))
    count = math.prod(shape_of(x)[a] for a in axes)
    correction = 1 if correction is None else correction
    y = relay.variance(x, axes, keepdims=keepdim)
    return scaled(y, count / (count - correction)) if correction else y


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
    x, axes = c.cast(x, dtype or dtype_of(x)), listed(dim)
    ord = 2 if ord is None else float(ord)
    if ord == 2:
        return relay.sqrt(c.reduce("sum", relay.multiply(x, x), axes, keepdim))
    if ord in (1, np.inf, -np.inf):
        return c.reduce({1: "sum", np.inf: "max", -np.inf: "min"}[ord], relay.abs(x), axes, keepdim)
    return relay.power(c.reduce("sum", relay.power(relay.abs(x), c.scalar(ord, x)), axes, keepdim), c.scalar(1 / ord, x))


@aten("logsumexp")
def _logsumexp(x, dim, keepdim=False):
    return relay.logsumexp(x, c.axes_of(listed(dim), rank_of(x)), keepdim)


@aten("cumsum")
def _cumsum(x, dim, dtype=None):
    return relay.cumsum(_summed(x, dtype), dim % rank_of(x))


@aten("topk")
def _topk(x, k, dim=-1, largest=True, sorted=True):
    return relay.topk(x, k, dim, "both", not largest, "int64")


@aten("sort")
def _sort(x, dim=-1, descending=False):
    return relay.topk(x, shape_of(x)[dim], dim, "both", not descending, "int64")


aten("sort.stable")(lambda x, stable=None, dim=-1, descending=False: _sort(x, dim, descending))


@aten("argsort")
def _argsort(x, dim=-1, descending=False):
    return relay.argsort(x, dim, not descending, "int64")
