"""Reductions.

Signatures: ``sum max min prod all any mean argmax argmin (x, axis=None, keepdims=False)``, ``variance(x, mean, axis)``.
``axis``: a dimension or several; None means all. The stage is called ``<input operation>_red``, its reduce axes
``k<dimension>``.
Positions found by argmax and argmin are ``int32``; several axes count as flattened. Sums, products and means of 16-bit
floats are formed in float32, between two stages ``T_cast``.
"""

from .. import te, tir
from . import util
from .broadcast import binary
from .elemwise import as_type

__all__ = ["all", "any", "argmax", "argmin", "max", "mean", "min", "sum", "variance"]

prod_reducer = te.comm_reducer(lambda x, y: x * y, lambda t: tir.const(1, t), "prod")
# A maximum that is to be subtracted: of infinities it is the extreme finite value, because inf - inf is not a number.
_finite_max = tir.Reducer(tir.Max, tir.min_value, "max", ("x", "y"),
                          lambda x, y: tir.Min(tir.Max(x, y), tir.max_value(x.dtype)))  # fmt: skip
_all = te.comm_reducer(lambda x, y: tir.And(x, y), lambda t: tir.const(True), "all")
_any = te.comm_reducer(lambda x, y: tir.Or(x, y), lambda t: tir.const(False), "any")


def _real_axes(axis, n):
    if axis is None:
        return list(range(n))
    axes = axis if isinstance(axis, (tuple, list)) else [axis]
    return sorted({util.normal_axis(a, n) for a in axes})


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
        return util.c_compute(x.shape, lambda *ax: x(*ax), f"{x.op.name}_red", util.COMM_REDUCE)
    return util.c_compute(shape, lambda *ax: reducer(x(*index(ax)), axis=ks), f"{x.op.name}_red", util.COMM_REDUCE)


def sum(x, axis=None, keepdims=False):
    """Sum of the elements."""
    return as_type(_reduce(as_type(x, util.sum_type(x.dtype)), axis, keepdims, te.sum), x.dtype)


def max(x, axis=None, keepdims=False, finite=False):
    """Largest element; with ``finite`` an infinite one counts as the extreme finite value of its sign."""
    return _reduce(x, axis, keepdims, _finite_max if finite else te.max)


def min(x, axis=None, keepdims=False):
    """Smallest element."""
    return _reduce(x, axis, keepdims, te.min)


def prod_(x, axis=None, keepdims=False):
    """Product of the elements."""
    return as_type(_reduce(as_type(x, util.sum_type(x.dtype)), axis, keepdims, prod_reducer), x.dtype)


def all(x, axis=None, keepdims=False):
    """True where all elements (of type bool) are true."""
    return _reduce(x, axis, keepdims, _all)


def any(x, axis=None, keepdims=False):
    """True where some element (of type bool) is true."""
    return _reduce(x, axis, keepdims, _any)


def _count(x, axis, less=0):
    """Number of reduced elements, `less` some, as a literal, or as a cast where an extent is symbolic."""
    n = util.prod(util.get_const_tuple(x.shape)[a] for a in _real_axes(axis, len(x.shape))) - less
    if less and isinstance(n, int) and n < 1:
        raise ValueError("an unbiased variance needs at least two elements")
    return tir.const(n, x.dtype) if isinstance(n, int) else tir.Cast(x.dtype, n)


def _mean(x, axis, keepdims, less=0):
    """The mean of ``x``, whose type is wide enough for the sum; divided by ``less`` elements less."""
    total = sum(x, axis, keepdims)
    n = _count(x, axis, less)
    return util.c_compute(total.shape, lambda *ax: tir.Div(total(*ax), n), "T_divide", util.ELEMWISE)


def mean(x, axis=None, keepdims=False):
    """Sum divided by the number of elements (integers: rounded toward zero); stages ``<input>_red`` and ``T_divide``."""
    return as_type(_mean(as_type(x, util.mean_type(x.dtype)), axis, keepdims), x.dtype)


def variance(x, mean, axis=None, keepdims=True, unbiased=False):
    """Mean of the squared difference from ``mean`` (a tensor that broadcasts to ``x``); ``unbiased``: divided by one
    element less."""
    dtype = util.mean_type(x.dtype)
    d = binary("subtract", as_type(x, dtype), as_type(mean, dtype))
    return as_type(_mean(binary("multiply", d, d), axis, keepdims, 1 if unbiased else 0), x.dtype)



def _better(argname, compare, as_good, identity, select_last_index):
    """A reducer over (position, value). On equal values the smaller position wins, or the larger one if asked for."""

    def combine(lhs, rhs):
        first = lhs[0] > rhs[0] if select_last_index else lhs[0] < rhs[0]
        wins = compare(lhs[1], rhs[1])
        position = tir.Or(wins, tir.And(tir.EQ(lhs[1], rhs[1]), first))
        return tir.Select(position, lhs[0], rhs[0]), tir.Select(wins, lhs[1], rhs[1])

    def code(lhs, rhs):
        """The same where a NaN is better than any number, as in NumPy, and where position -1, the neutral one, is never first:
        the neutral value may occur in the data. Going through the data in order two comparisons decide."""
        i, j = (p[0] if select_last_index else tir.Cast("uint32", p[0]) for p in (lhs, rhs))
        first = i > j if select_last_index else i < j
        good, tie = as_good(lhs[1], rhs[1]), tir.EQ(lhs[1], rhs[1])
        if util.is_float(lhs[1].dtype):
            good = tir.Or(good, tir.NE(lhs[1], lhs[1]))
            tie = tir.Or(tie, tir.NE(rhs[1], rhs[1]))  # only asked where the left one is as good
        wins = tir.And(good, tir.Or(first, tir.Not(tie)))
        return tir.Select(wins, lhs[0], rhs[0]), tir.Select(wins, lhs[1], rhs[1])

    names = (f"{argname}_lhs", f"{argname}_rhs")
    return tir.Reducer(combine, lambda t0, t1: (tir.const(-1, t0), identity(t1)), argname, names, code)


_ARG = {
    (name, last): _better(name, better, as_good, identity, last)
    for name, better, as_good, identity in (
        ("argmax", tir.GT, tir.GE, tir.neutral_of_max),
        ("argmin", tir.LT, tir.LE, tir.neutral_of_min),
    )
    for last in (False, True)
}


def _arg(name, x, axis, keepdims, select_last_index):
    axes, ks, shape, index = _plan(x, axis, keepdims)
    sizes = [x.shape[a] for a in axes]
    if not axes:  # each element is the best of one
        return util.injective(shape, lambda *ax: tir.const(0, "int32"), f"{x.op.name}_red")

    def f(*ax):
        return _ARG[name, bool(select_last_index)]((util.ravel([k.var for k in ks], sizes), x(*index(ax))), axis=ks)

    temp, _ = util.c_compute(shape, f, f"{x.op.name}_red_temp", util.COMM_REDUCE_IDX)
    return util.c_compute(shape, lambda *ax: temp(*ax), f"{x.op.name}_red", util.COMM_REDUCE_IDX)


def argmax(x, axis=None, keepdims=False, select_last_index=False):
    """Position of the largest element, the first (or last) of equals; a NaN counts as the largest."""
    return _arg("argmax", x, axis, keepdims, select_last_index)


def argmin(x, axis=None, keepdims=False, select_last_index=False):
    """Position of the smallest element, the first (or last) of equals; a NaN counts as the smallest."""
    return _arg("argmin", x, axis, keepdims, select_last_index)
