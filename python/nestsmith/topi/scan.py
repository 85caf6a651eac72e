"""Running sums, products, maxima and minima.

Signature::

    cumsum(x, axis=None, dtype=None, exclusive=False)          T_cumsum
    cumprod, cummax, cummin                                    T_cumprod, T_cummax, T_cummin

``axis`` None: of the flattened tensor. ``exclusive``: without the element itself. 16-bit floats are summed in float32. A maximum
or minimum is NaN from the first NaN on.

A row is cut into blocks of 16. A stage combines what lies before an element in its block: up to 16 operands, without branches, so
that lanes take an element each. The last elements of the blocks are a row of a sixteenth of the length, of which the running
values without the element itself are found in the same way. A last stage combines both. So an element costs about 18 operations
on vectors, and the error grows with the number of levels: log16 of the length (blocked scan; G. Blelloch, Prefix sums and
their applications, 1990). A running sum of up to 128 elements is one reduction per element, with what comes later left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from .. import te, tir
from .elemwise import as_type
from .transform import reshape
from .util import (
    COMM_REDUCE,
    INJECTIVE,
    c_compute,
    get_const_int,
    get_const_tuple,
    is_float,
    normal_axis,
    prod,
    sum_type,
)

_ONE_STAGE, _BLOCK = 128, 16


class _Kind(NamedTuple):
    combine: Callable
    identity: Callable  # of a type


def _extreme(infinity, of_integers):
    return lambda t: tir.const(infinity, t) if is_float(t) else of_integers(t)


_KINDS = {
    "cumsum": _Kind(lambda a, b: a + b, lambda t: tir.const(0, t)),
    "cumprod": _Kind(lambda a, b: a * b, lambda t: tir.const(1, t)),
    "cummax": _Kind(tir.Max, _extreme(-math.inf, tir.min_value)),
    "cummin": _Kind(tir.Min, _extreme(math.inf, tir.max_value)),
}


def _sum_up_to(x, a, n, exclusive):
    k = te.reduce_axis((0, n), "k")

    def element(*ax):
        counts = k.var < ax[a] if exclusive else k.var <= ax[a]
        return te.sum(tir.Select(counts, x(*ax[:a], k.var, *ax[a + 1 :]), tir.const(0, x.dtype)), axis=k)

    return c_compute(x.shape, element, "T_cumsum", COMM_REDUCE)


def _scan(x, a, kind, exclusive, name):
    """Running values of ``x``, whose type is that of the result, along axis ``a``."""
    n, none = get_const_int(x.shape[a]), _KINDS[kind].identity(x.dtype)
    combine = _KINDS[kind].combine
    if not n:
        return x
    if kind == "cumsum" and n <= _ONE_STAGE:
        return _sum_up_to(x, a, n, exclusive)

    def at(ax, *i):
        return *ax[:a], *i, *ax[a + 1 :]

    def in_block(*ax):
        lead, block, j, rest = ax[:a], ax[a], ax[a + 1], ax[a + 2 :]
        parts = []
        for k in range(min(_BLOCK, n)):
            i = block * _BLOCK + k
            y = x(*lead, i, *rest)
            y = y if n % _BLOCK == 0 or n < _BLOCK else te.if_then_else(i < n, y, none)
            parts.append(tir.Select(j >= k, y, none) if k else y)
        while len(parts) > 1:  # in pairs: four roundings instead of fifteen
            parts = [combine(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
        return parts[0]

    blocks = -(-n // _BLOCK)
    within = c_compute(at(x.shape, blocks, min(_BLOCK, n)), in_block, f"{name}_within", INJECTIVE)
    before = None
    if blocks > 1:
        total = c_compute(
            at(x.shape, blocks), lambda *ax: within(*at(ax, ax[a], _BLOCK - 1)), f"{name}_block", INJECTIVE
        )
        before = _scan(total, a, kind, True, f"{name}_before")

    def element(*ax):
        block, j = te.floordiv(ax[a], _BLOCK), te.floormod(ax[a], _BLOCK)
        if exclusive:
            y = tir.Select(j > 0, within(*at(ax, block, te.max(j - 1, 0))), none)
        else:
            y = within(*at(ax, block, j))
        return y if before is None else combine(before(*at(ax, block)), y)

    return c_compute(x.shape, element, name, INJECTIVE)


def _running(kind, x, axis, dtype, exclusive):
    if axis is None:
        x, axis = reshape(x, (prod(get_const_tuple(x.shape)),)), 0
    dtype = dtype or x.dtype
    acc = sum_type(dtype) if kind in ("cumsum", "cumprod") else dtype
    return as_type(_scan(as_type(x, acc), normal_axis(axis, len(x.shape)), kind, exclusive, f"T_{kind}"), dtype)


def cumsum(x, axis=None, dtype=None, exclusive=False):
    """The sums of the elements up to each one along a dimension, in ``dtype`` (default: that of ``x``)."""
    return _running("cumsum", x, axis, dtype, exclusive)


def cumprod(x, axis=None, dtype=None, exclusive=False):
    """The products of the elements up to each one along a dimension, in ``dtype`` (default: that of ``x``)."""
    return _running("cumprod", x, axis, dtype, exclusive)


def cummax(x, axis):
    """The largest of the elements up to each one along a dimension."""
    return _running("cummax", x, axis, None, False)


def cummin(x, axis):
    """The smallest of the elements up to each one along a dimension."""
    return _running("cummin", x, axis, None, False)
