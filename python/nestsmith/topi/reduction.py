"""Reductions.

Signatures: ``sum max min prod all any mean argmax argmin (x, axis=None, keepdims=False)``, ``variance(x, mean, axis)``.
``axis``: a dimension or several; None means all. The stage is called ``<input operation>_red``, its reduce axes
``k<dimension>``.
Positions found by argmax and argmin are ``int32``; several axes count as flattened.
"""

from __future__ import annotations

from .. import te, tir
from .broadcast import binary
from .util import COMM_REDUCE, COMM_REDUCE_IDX, ELEMWISE, c_compute, get_const_tuple, normal_axis, prod, ravel

_prod = te.comm_reducer(lambda x, y: x * y, lambda t: tir.const(1, t), "prod")
_all = te.comm_reducer(lambda x, y: tir.And(x, y), lambda t: tir.const(True), "all")
_any = te.comm_reducer(lambda x, y: tir.Or(x, y), lambda t: tir.const(False), "any")


def _real_axes(axis, n):
    if axis is None:
        return list(range(n))
    axes = axis if isinstance(axis, (tuple, list)) else [axis]
    return sorted({normal_axis(a, n) for a in axes})


def _plan(x, axis, keepdims):
    """(axes, reduce iterators, output shape, function from output indices to input indices)"""
    axes = _real_axes(axis, len(x.shape))
    ks = [te.reduce_axis((0, x.shape[a]), f"k{a}") for a in axes]
    shape = [1 if i in axes else s for i, s in enumerate(x.shape) if keepdims or i not in axes]

    def index(ax):
        it, k, out = iter(ax), iter(ks), []
        for i in range(len(x.shape)):
            if i in axes:
                out.append(next(k))
                if keepdims:
                    next(it)
            else:
                out.append(next(it))
        return out

    return axes, ks, shape, index


def _reduce(x, axis, keepdims, reducer):
    _, ks, shape, index = _plan(x, axis, keepdims)
    if not ks:
        return c_compute(x.shape, lambda *ax: x(*ax), f"{x.op.name}_red", COMM_REDUCE)
    return c_compute(shape, lambda *ax: reducer(x(*index(ax)), axis=ks), f"{x.op.name}_red", COMM_REDUCE)


def sum(x, axis=None, keepdims=False):
    """Sum of the elements."""
    return _reduce(x, axis, keepdims, te.sum)


def max(x, axis=None, keepdims=False):
    """Largest element."""
    return _reduce(x, axis, keepdims, te.max)


def min(x, axis=None, keepdims=False):
    """Smallest element."""
    return _reduce(x, axis, keepdims, te.min)


def prod_(x, axis=None, keepdims=False):
    """Product of the elements."""
    return _reduce(x, axis, keepdims, _prod)


def all(x, axis=None, keepdims=False):
    """True where all elements (of type bool) are true."""
    return _reduce(x, axis, keepdims, _all)


def any(x, axis=None, keepdims=False):
    """True where some element (of type bool) is true."""
    return _reduce(x, axis, keepdims, _any)


def _count(x, axis, less=0):
    """Number of reduced elements, `less` some, as a literal, or as a cast where an extent is symbolic."""
    n = prod(get_const_tuple(x.shape)[a] for a in _real_axes(axis, len(x.shape))) - less
    if less and isinstance(n, int) and n < 1:
        raise ValueError("an unbiased variance needs at least two elements")
    return tir.const(float(n), x.dtype) if isinstance(n, int) else tir.Cast(x.dtype, n)


def mean(x, axis=None, keepdims=False):
    """Sum divided by the number of elements; stages ``<input>_red`` and ``T_divide``."""
    total = sum(x, axis, keepdims)
    n = _count(x, axis)
    return c_compute(total.shape, lambda *ax: tir.Div(total(*ax), n), "T_divide", ELEMWISE)


def variance(x, mean, axis=None, keepdims=True, unbiased=False):
    """Mean of the squared difference from ``mean`` (a tensor that broadcasts to ``x``); ``unbiased``: divided by one
    element less."""
    d = binary("subtract", x, mean)
    q = binary("multiply", d, d)
    total = sum(q, axis, keepdims)
    n = _count(x, axis, 1 if unbiased else 0)
    return c_compute(total.shape, lambda *ax: tir.Div(total(*ax), n), "T_divide", ELEMWISE)


def _better(argname, compare, identity, select_last_index):
    """A reducer over (position, value). On equal values the smaller position wins, or the larger one if asked for."""

    def combine(lhs, rhs):
        first = lhs[0] > rhs[0] if select_last_index else lhs[0] < rhs[0]
        wins = compare(lhs[1], rhs[1])
        position = tir.Or(wins, tir.And(tir.EQ(lhs[1], rhs[1]), first))
        return tir.Select(position, lhs[0], rhs[0]), tir.Select(wins, lhs[1], rhs[1])

    names = (f"{argname}_lhs", f"{argname}_rhs")
    return tir.Reducer(combine, lambda t0, t1: (tir.const(-1, t0), identity(t1)), argname, names)


_ARG = {
    (name, last): _better(name, cmp, identity, last)
    for name, cmp, identity in (("argmax", tir.GT, tir.min_value), ("argmin", tir.LT, tir.max_value))
    for last in (False, True)
}


def _arg(name, x, axis, keepdims, select_last_index):
    axes, ks, shape, index = _plan(x, axis, keepdims)
    sizes = [x.shape[a] for a in axes]

    def f(*ax):
        return _ARG[name, bool(select_last_index)]((ravel([k.var for k in ks], sizes), x(*index(ax))), axis=ks)

    temp, _ = c_compute(shape, f, f"{x.op.name}_red_temp", COMM_REDUCE_IDX)
    return c_compute(shape, lambda *ax: temp(*ax), f"{x.op.name}_red", COMM_REDUCE_IDX)


def argmax(x, axis=None, keepdims=False, select_last_index=False):
    """Position of the largest element, the first (or last) of equals."""
    return _arg("argmax", x, axis, keepdims, select_last_index)


def argmin(x, axis=None, keepdims=False, select_last_index=False):
    """Position of the smallest element, the first (or last) of equals."""
    return _arg("argmin", x, axis, keepdims, select_last_index)
