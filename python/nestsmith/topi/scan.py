"""Running sums.

Signature::

    cumsum(x, axis=None, dtype=None, exclusive=False)          T_cumsum

``axis`` None: of the flattened tensor. ``exclusive``: without the element itself. 16-bit floats are summed in float32.

Every element is a reduction of its own, over the whole row with what comes later left out: n operations per element. A row
beyond 128 is cut into blocks of about the root of n, with stages for the sums of blocks, for what lies before a block, and for
what lies before an element in its block: twice the root of n per element.
"""

from __future__ import annotations

import math

from .. import te, tir
from .elemwise import as_type
from .transform import reshape
from .util import COMM_REDUCE, INJECTIVE, c_compute, get_const_int, get_const_tuple, normal_axis, prod, sum_type

_ONE_STAGE = 128


def _sum(shape, extent, element, name):
    """The sum of ``element(ax, k)`` over k below ``extent``."""
    k = te.reduce_axis((0, extent), "k")
    return c_compute(shape, lambda *ax: te.sum(element(ax, k.var), axis=k), name, COMM_REDUCE)


def cumsum(x, axis=None, dtype=None, exclusive=False):
    """The sums of the elements up to each one along a dimension, in ``dtype`` (default: that of ``x``)."""
    if axis is None:
        x, axis = reshape(x, (prod(get_const_tuple(x.shape)),)), 0
    a, dtype = normal_axis(axis, len(x.shape)), dtype or x.dtype
    n, acc = get_const_int(x.shape[a]), sum_type(dtype)
    zero = tir.const(0, acc)

    def at(ax, i):
        return *ax[:a], i, *ax[a + 1 :]

    def counts(k, i):
        return k < i if exclusive else k <= i

    if n <= _ONE_STAGE:
        out = _sum(x.shape, n, lambda ax, k: tir.Select(counts(k, ax[a]), x(*at(ax, k)).astype(acc), zero), "T_cumsum")
        return as_type(out, dtype)
    size = math.isqrt(n - 1) + 1
    blocks = at(x.shape, -(-n // size))

    def block_sum(ax, k):
        i = ax[a] * size + k
        return te.if_then_else(i < n, x(*at(ax, i)).astype(acc), zero)

    def earlier_block(ax, k):
        return tir.Select(k < ax[a], total(*at(ax, k)), zero)

    def same_block(ax, k):
        i = te.floordiv(ax[a], size) * size + k
        return te.if_then_else(counts(i, ax[a]), x(*at(ax, i)).astype(acc), zero)

    total = _sum(blocks, size, block_sum, "T_cumsum_block")
    before = _sum(blocks, blocks[a], earlier_block, "T_cumsum_before")
    within = _sum(x.shape, size, same_block, "T_cumsum_within")
    out = c_compute(
        x.shape, lambda *ax: before(*at(ax, te.floordiv(ax[a], size))) + within(*ax), "T_cumsum", INJECTIVE
    )
    return as_type(out, dtype)
