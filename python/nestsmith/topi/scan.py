"""Running sums, products, maxima and minima, and running logarithms of sums of exponentials.

Signature::

    cumsum(x, axis=None, dtype=None, exclusive=False)          T_cumsum
    cumprod, logcumsumexp                                      T_cumprod, T_logcumsumexp
    cummax(x, axis, ret_type="values", dtype="int64")          T_cummax; cummin: T_cummin

``axis`` None: of the flattened tensor. ``exclusive``: without the element itself. A maximum or minimum is NaN from the first NaN on.

A row is cut into blocks of 16. One stage combines the elements of each block. Their results are a row of a sixteenth of the length, of
which the running values without the element itself are found in the same way. The last stage combines them with what lies before an
element in its block: up to 16 operands, of which a mask leaves out those that come later, so that lanes take an element each. So an
element costs about 2 operations on vectors and two passes over memory (blocked scan; G. Blelloch, Prefix sums and their applications, 1990).

A scan may be of tensors that go together: values and their places, or a maximum and the sum of the exponentials relative to it.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from .. import te, tir
from . import util
from .default_schedule import LANES
from .elemwise import as_type
from .transform import reshape

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]

_BLOCK = 16


def _in_pairs(combine, parts):
    """Four roundings of a sum of sixteen instead of fifteen."""
    while len(parts) > 1:
        parts = [combine(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


# ---- what is combined ----
# `stages(make, blocks)`: the tensors of a scan. make(body) makes one; blocks(*at) is what body(*at) combines: the pair of what lies before
# the block (None: nothing) and a list of (counts, item), each item a tuple of numbers. `counts` says whether it is one of those to be
# combined, None if in any case; those that are come first.


class _Plain(NamedTuple):
    """One tensor, of an operation with a neutral element."""

    combine: Callable
    neutral: Callable  # of a type

    def stages(self, make, blocks):
        def body(*at):
            before, items = blocks(*at)
            none = self.neutral(items[0][1][0].dtype)
            y = _in_pairs(self.combine, [x if counts is None else tir.Select(counts, x, none) for counts, (x,) in items])
            return y if before is None else self.combine(before[0], y)

        return [make(body)]


class _Placed(NamedTuple):
    """Extremes and their places: of equal ones, and of those that are not a number, the last."""

    extreme: _Plain

    def stages(self, make, blocks):
        def first(before, items):
            return before and before[:1], [(counts, item[:1]) for counts, item in items]

        (values,) = self.extreme.stages(make, lambda *at: first(*blocks(*at)))

        def place(*at):
            before, items = blocks(*at)
            y, found = values(*at), tir.const(-1, items[0][1][1].dtype) if before is None else before[1]
            for counts, (x, i) in items:
                here = tir.Or(x == y, x != x) if util.is_float(x.dtype) else x == y
                found = tir.Select(here if counts is None else tir.And(counts, here), i, found)
            return found

        return [values, make(place)]


class _LogSumExp:
    """A maximum, infinities as the extreme finite value, and the sum of exponentials relative to it."""

    def stages(self, make, blocks):
        def high(*at):
            before, items = blocks(*at)
            least = tir.min_value(items[0][1][0].dtype)
            y = _in_pairs(tir.Max, [x[0] if counts is None else tir.Select(counts, x[0], least) for counts, x in items])
            return tir.Max(tir.Min(y, tir.max_value(y.dtype)), least if before is None else before[0])

        top = make(high)

        def total(*at):
            before, items = blocks(*at)
            m, parts = top(*at), []
            for counts, (x, *times) in items:
                y = math.prod(times, start=te.exp(x - m))
                parts.append(y if counts is None else tir.Select(counts, y, tir.const(0, y.dtype)))
            y = _in_pairs(_add, parts)
            return y if before is None else before[1] * te.exp(before[0] - m) + y

        return [top, make(total)]


def _add(a, b):
    return a + b


def _extreme(infinity, of_integers):
    return lambda t: tir.const(infinity, t) if util.is_float(t) else of_integers(t)


_KINDS = {
    "cumsum": _Plain(_add, lambda t: tir.const(0, t)),
    "cumprod": _Plain(lambda a, b: a * b, lambda t: tir.const(1, t)),
    "cummax": _Plain(tir.Max, _extreme(-math.inf, tir.min_value)),
    "cummin": _Plain(tir.Min, _extreme(math.inf, tir.max_value)),
}


# ---- scans ----


class _Rows(NamedTuple):
    """Dimensions outside of the axis and within it."""

    lead: tuple
    rest: tuple

    def parts(self, at):
        """Of indices: those of `lead`, that along the axis, those of `rest`, more."""
        n, m = len(self.lead), len(self.rest)
        return at[:n], at[n], at[n + 1 : n + 1 + m], at[n + 1 + m :]

    @property
    def wide(self):
        """Do lanes find elements side by side within the axis?"""
        last = self.rest[-1] if self.rest else 1
        return isinstance(last, int) and any(last % d == 0 for d in range(8, 17))


def _combined(kind, rows, n, item, lanes, name):
    """What the elements of each of n full blocks come to."""

    def blocks(*at):
        lead, block, rest, _ = rows.parts(at)
        return None, [(None, item(lead, block * _BLOCK + k, rest)) for k in range(_BLOCK)]

    one = () if rows.wide or lanes else (1,)  # neighbours lie far apart: an axis without lanes
    tensors = kind.stages(lambda body: util.injective((*rows.lead, n, *rows.rest, *one), body, name),
                          blocks)  # fmt: skip
    return lambda lead, i, rest: tuple(t(*lead, i, *rest, *(0 for _ in one)) for t in tensors)


def _scan(kind, rows, item, n_in, n, exclusive, name, types=()):
    """The first n running values of n_in items along the axis: tensors of `types` (none: as they are computed), and a function of indices
    that finds elements. `item` of indices is a tuple of numbers."""
    width = min(_BLOCK, n)
    count = -(-n // width)
    before = None
    if count > 1:
        sums = _combined(kind, rows, count - 1, item, isinstance(kind, _LogSumExp), f"{name}_block")
        _, before = _scan(kind, rows, sums, count - 1, count, True, f"{name}_before")
    flat = rows.wide or not rows.rest  # else the elements of a block are the last axis
    attrs = {LANES: width} if not rows.rest and n % width else None
    shape = (*rows.lead, n, *rows.rest) if flat else (*rows.lead, count, *rows.rest, width)

    def split(i):
        return (te.floordiv(i, width), te.floormod(i, width)) if count > 1 else (0, i)

    def blocks(*at):
        lead, block, rest, j = rows.parts(at)
        block, j = split(block) if flat else (block, j[0])
        items = []
        for k in range(width - exclusive):
            i = block * width + k
            i = i if width * count - exclusive <= n_in else te.min(i, n_in - 1)  # one that does not count
            items.append((j > k if exclusive else j >= k if k else None, item(lead, i, rest)))
        return before and before(lead, block, rest), items

    left = list(types)

    def make(body):
        dtype = left.pop(0) if left else None
        f = body if dtype is None else lambda *at: tir.Cast(dtype, body(*at))
        return util.c_compute(shape, f, name if flat else f"{name}_blocks", util.INJECTIVE, attrs)

    tensors = kind.stages(make, blocks)

    def find(lead, i, rest):
        block, j = split(i)
        at = (*lead, i, *rest) if flat else (*lead, block, *rest, j)
        return tuple(t(*at) for t in tensors)

    return tensors if flat else None, find


def _running(kind, x, a, item, exclusive, name, types=(), last=None):
    """The tensors of a scan of x along axis a. `last`: what an element is of what is found for it."""
    shape = util.get_const_tuple(x.shape)
    rows, n = _Rows(shape[:a], shape[a + 1 :]), util.get_const_int(x.shape[a])
    tensors, find = _scan(kind, rows, item, n, n, exclusive, f"{name}_parts" if last else name, types)
    if tensors and not last:
        return tensors

    def found(which):
        def element(*at):
            lead, i, rest, _ = rows.parts(at)
            return last(*find(lead, i, rest)) if last else find(lead, i, rest)[which]

        return element

    return [util.injective(shape, found(k), name) for k in range(1 if last else len(types))]


def _row(x, axis):
    if axis is None:
        return reshape(x, (util.prod(util.get_const_tuple(x.shape)),)), 0
    return x, util.normal_axis(axis, len(x.shape))


def _folded(kind, x, axis, dtype, exclusive, acc):
    x, a = _row(x, axis)
    dtype = dtype or x.dtype
    acc, n = acc or util.sum_type(dtype), util.get_const_int(x.shape[a])
    if not n:
        return as_type(x, dtype)
    exclusive = bool(exclusive)
    if exclusive and n == 1:
        return util.injective(x.shape, lambda *at: _KINDS[kind].neutral(dtype), f"T_{kind}")
    item = lambda lead, i, rest: (x(*lead, i, *rest).astype(acc),)  # noqa: E731
    return _running(_KINDS[kind], x, a, item, exclusive, f"T_{kind}", (dtype,))[0]


def cumsum(x, axis=None, dtype=None, exclusive=False, acc=None):
    """The sums of the elements up to each one along a dimension, in ``dtype`` (default: that of ``x``). They are formed in ``acc``
    (default: ``dtype``, float32 for floats of 16 bits)."""
    return _folded("cumsum", x, axis, dtype, exclusive, acc)


def cumprod(x, axis=None, dtype=None, exclusive=False, acc=None):
    """The products of the elements up to each one along a dimension, in ``dtype`` (default: that of ``x``). They are formed in ``acc``
    (default: ``dtype``, float32 for floats of 16 bits)."""
    return _folded("cumprod", x, axis, dtype, exclusive, acc)


def _most(name, x, axis, ret_type, dtype):
    a = util.normal_axis(axis, len(x.shape))
    if ret_type == "values":
        if not util.get_const_int(x.shape[a]):
            return x
        return _running(_KINDS[name], x, a, lambda lead, i, rest: (x(*lead, i, *rest),), False, f"T_{name}", (x.dtype,))[0]
    if not util.get_const_int(x.shape[a]):
        out = [x, as_type(x, dtype)]
    else:
        item = lambda lead, i, rest: (x(*lead, i, *rest), tir.Cast("int32", i))  # noqa: E731
        out = _running(_Placed(_KINDS[name]), x, a, item, False, f"T_{name}", (x.dtype, dtype))
    return out if ret_type == "both" else out[1]


def cummax(x, axis, ret_type="values", dtype="int64"):
    """The largest of the elements up to each one along a dimension: ``ret_type`` ``"values"``, ``"indices"`` (of type ``dtype``; of equal
    ones and of those that are not a number, the last) or ``"both"``, a list."""
    return _most("cummax", x, axis, ret_type, dtype)


def cummin(x, axis, ret_type="values", dtype="int64"):
    """The smallest of the elements up to each one along a dimension; see :func:`cummax`."""
    return _most("cummin", x, axis, ret_type, dtype)


def logcumsumexp(x, axis):
    """The logarithms of the sums of the exponentials of the elements up to each one along a dimension."""
    a, dtype = util.normal_axis(axis, len(x.shape)), x.dtype
    if not util.get_const_int(x.shape[a]):
        return x
    acc = util.sum_type(dtype)
    item = lambda lead, i, rest: (x(*lead, i, *rest).astype(acc),)  # noqa: E731
    last = lambda m, s: (m + tir.log1p(s - tir.const(1, acc))).astype(dtype)  # noqa: E731
    return _running(_LogSumExp(), x, a, item, False, "T_logcumsumexp", last=last)[0]
