"""What data choose: elements where a mask is true, rows of tables for bags, matrices for rows, bins, the most frequent values."""

import math

import numpy as np

from ....error import OpNotImplemented
from ....numerics import is_float
from ... import op as relay
from .. import common as c
from ..values import along, arange, array, dtype_of, known, rank_of, shape_of
from .table import ATEN, aten, unless_empty, with_axis


def _count(truth, axis):
    """How many of some truth values are true along an axis, as int32."""
    return relay.sum(relay.cast(truth, "int32"), [axis])


@aten("masked_scatter")
@unless_empty
def _masked_scatter(x, mask, source):
    """The elements of the source in their order, where the mask is true; too few of them are an error."""
    shape = np.broadcast_shapes(shape_of(x), shape_of(mask))
    x, mask = c.expand(x, shape), c.expand(c.cast(mask, "bool"), shape)
    flat = relay.reshape(mask, (-1,))
    order = relay.subtract(relay.cumsum(relay.cast(flat, "int32"), 0), array(1, "int32"))
    at = c.wrapped(relay.where(flat, order, array(0, "int32")), math.prod(shape_of(source)), "masked_scatter", from_end=False)
    got = relay.take(relay.reshape(source, (-1,)), at, axis=0)
    return relay.where(mask, relay.reshape(got, shape), x)


@aten("_grouped_mm")
def _grouped_mm(x, weight, offs=None, bias=None, out_dtype=None):
    """Rows of `x` (S, K) up to each offset times the matrix (K, M) of their group; rows behind the last offset are 0."""
    if bias is not None or (offs is None) != (rank_of(x) == 3) or rank_of(weight) != 3:
        raise OpNotImplemented("products of groups are supported for (rows, K) and (groups, K, M) without a bias")
    y = c.matmul(x, weight) if offs is None else _groups(x, weight, offs)
    return y if out_dtype is None else c.cast(y, out_dtype)


def _groups(x, weight, offs):
    """Few rows take their matrices out of the table; many are multiplied with all of them, and take their product."""
    (rows, _), (groups, depth, width) = shape_of(x), shape_of(weight)
    group = _count(relay.less_equal(relay.expand_dims(offs, 0), array(arange(rows).reshape(-1, 1), dtype_of(offs))), 1)
    own = relay.minimum(group, array(groups - 1, "int32"))
    if rows <= groups:
        y = relay.squeeze(c.matmul(relay.expand_dims(x, 1), relay.take(weight, own, axis=0)), [1])
    else:
        table = relay.reshape(relay.transpose(weight, [0, 2, 1]), (groups * width, depth))
        products = relay.reshape(c.linear(x, table), (rows * groups, width))
        y = relay.take(products, relay.add(array(arange(rows) * groups, "int32"), own), axis=0)
    return relay.where(relay.expand_dims(relay.less(group, array(groups, "int32")), 1), y, c.scalar(0, y))


ATEN["transformers::grouped_mm_fallback"] = _grouped_mm


@aten("histc")
def _histc(x, bins=100, min=0, max=0):
    """How many elements lie in each of `bins` equal parts of a range, the last of which has its end, too."""
    x = relay.reshape(x, (-1,))
    low, high = (c.scalar(v, x) for v in (min, max))
    if min == max:
        low, high = relay.min(x, [0]), relay.max(x, [0])
        alone = relay.equal(low, high)
        low, high = (relay.where(alone, relay.add(v, c.scalar(s, x)), v) for v, s in ((low, -1), (high, 1)))
    within = relay.logical_and(relay.greater_equal(x, low), relay.less_equal(x, high))
    place = relay.divide(relay.multiply(relay.subtract(x, low), c.scalar(bins, x)), relay.subtract(high, low))
    place = relay.where(within, place, c.scalar(-1, x))
    place = relay.minimum(relay.cast(place, "int32"), array(bins - 1, "int32"))
    place = relay.where(within, place, array(-1, "int32"))
    hits = relay.equal(relay.expand_dims(place, 0), array(arange(bins).reshape(-1, 1), "int32"))
    return relay.cast(_count(hits, 1), dtype_of(x))


_BAGS = ("sum", "mean", "max")


@aten("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(weight, indices, offsets, by_frequency=False, mode=0, sparse=False, weights=None, last=False, padding=-1):
    """Sums, means or maxima of the rows of each bag, which begins at its offset. An empty bag is 0."""
    if last:
        offsets = c.slice_axes(offsets, [0], [0], [shape_of(offsets)[0] - 1], [1])
    (count,), (bags,) = shape_of(indices), shape_of(offsets)
    rows = c.gather(weight, indices, 0, "embedding_bag", from_end=False)
    if weights is not None:
        rows = relay.multiply(rows, relay.expand_dims(weights, 1))
    place = array(arange(count).reshape(1, -1), dtype_of(offsets))
    begin = relay.expand_dims(offsets, 1)
    inside = relay.greater_equal(place, begin)
    if bags > 1:
        next_one = relay.concatenate([c.part(offsets, 0, 1, bags), array([count], dtype_of(offsets))], 0)
        inside = relay.logical_and(inside, relay.less(place, relay.expand_dims(next_one, 1)))
    if padding >= 0:
        inside = relay.logical_and(inside, relay.not_equal(relay.expand_dims(indices, 0), c.scalar(padding, indices)))
    kind, inside = _BAGS[mode], c.now(inside)
    size, there = _count(inside, 1), relay.expand_dims(inside, 2)
    nothing = c.scalar(-np.inf if kind == "max" else 0, rows)
    out = c.reduce("max" if kind == "max" else "sum", relay.where(there, relay.expand_dims(rows, 0), nothing), [1], False)
    full = relay.expand_dims(relay.maximum(size, array(1, "int32")), 1)
    if kind == "mean":
        out = relay.divide(out, relay.cast(full, dtype_of(out)))
    elif kind == "max":
        out = relay.where(relay.greater(relay.expand_dims(size, 1), array(0, "int32")), out, c.scalar(0, out))
    return [out, None, None, None]


@aten("mode")
@with_axis
def _mode(x, dim=-1, keepdim=False):
    """The most frequent elements along an axis, of several the smallest, and the last place of each."""
    axis = dim % rank_of(x)
    here = relay.equal(relay.expand_dims(x, axis), relay.expand_dims(x, axis + 1))
    if is_float(dtype_of(x)):
        nan = relay.not_equal(x, x)
        here = relay.logical_or(here, relay.logical_and(relay.expand_dims(nan, axis), relay.expand_dims(nan, axis + 1)))
    times = _count(here, axis + 1)
    most = relay.equal(times, relay.max(times, [axis], keepdims=True))
    order = relay.cast(relay.argsort(x, axis, True, "int32"), "int32")  # ascending: the first that is frequent enough is the smallest
    first = relay.argmax(relay.cast(relay.gather(relay.cast(most, "int32"), axis, order), "int32"), [axis], keepdims=True)
    at = relay.gather(order, axis, relay.cast(first, "int32"))
    value = relay.gather(x, axis, at)
    same = relay.equal(x, value)
    if is_float(dtype_of(x)):
        same = relay.logical_or(same, relay.logical_and(relay.not_equal(x, x), relay.not_equal(value, value)))
    places = array(along(arange(shape_of(x)[axis]), axis, rank_of(x)), "int64")
    last = relay.max(relay.where(same, places, array(-1, "int64")), [axis], keepdims=True)
    return [value, last] if keepdim else [relay.squeeze(v, [axis]) for v in (value, last)]


@aten("masked_select")
def _masked_select(x, mask):
    if not known(mask):
        raise OpNotImplemented("a mask that is computed from the data of the model decides how many elements there are; torch.where has fixed shapes")
    shape = np.broadcast_shapes(shape_of(x), shape_of(mask))
    places = np.flatnonzero(np.broadcast_to(mask.data, shape))
    return relay.take(relay.reshape(c.expand(x, shape), (-1,)), array(places, "int32"), axis=0)
