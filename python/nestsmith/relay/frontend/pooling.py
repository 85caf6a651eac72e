"""Places of the maxima of pools, and pools undone by them."""

import math

import numpy as np

from ...numerics import is_float
from .. import op as relay
from . import common as c
from .values import arange, array, dtype_of, shape_of

__all__ = ["adaptive_windows", "places_of_maxima", "unpooled", "windows"]


def windows(shape, size, strides, pads, dilation, ceil=False):
    """Of each axis the places of the elements of each window, (windows, elements); those outside are the first inside again. `pads`
    are the begins, then the ends."""
    dims, out = len(shape), []
    for i, (n, k, s, d) in enumerate(zip(shape, size, strides, dilation)):
        count = c.out_extent(n, k, s, d, pads[i] + pads[i + dims], ceil, pads[i])
        at = arange(count).reshape(-1, 1) * s - pads[i] + arange(k) * d
        inside = (at >= 0) & (at < n)
        out.append(np.where(inside, at, np.take_along_axis(at, inside.argmax(1)[:, None], 1)))
    return out


def adaptive_windows(shape, size):
    """:func:`windows` of an adaptive pool with results of `size`."""
    out = []
    for n, m in zip(shape, size):
        first, end = arange(m) * n // m, -(-(arange(m) + 1) * n // m)
        at = first[:, None] + arange((end - first).max())
        out.append(np.where(at < end[:, None], at, first[:, None]))
    return out


def _flat(places, size):
    """Flat places in a map of a place on each axis."""
    return sum(p * math.prod(size[axis + 1 :]) for axis, p in enumerate(places))


def places_of_maxima(x, at, columns=False):
    """The flat places within their maps of the maxima of NC* data over windows `at`: of equal ones the first, of those that are no number
    the last, as PyTorch's loop has it. `columns`: the first image axis is the one that is counted fastest."""
    n, channels, *size = shape_of(x)
    dims, lifted = len(at), []
    for axis, places in enumerate(at):  # (windows of all axes..., elements of all axes...)
        lift = [1] * 2 * dims
        lift[axis], lift[dims + axis] = places.shape
        lifted.append(places.reshape(lift))
    table = _flat(lifted, size)
    out, each = table.shape[:dims], math.prod(table.shape[dims:])
    table = table.reshape(-1, each)
    named = table if not columns else np.broadcast_to(_flat(lifted[::-1], size[::-1]), (*out, *(p.shape[1] for p in at))).reshape(-1, each)
    seen = relay.take(relay.reshape(x, (n, channels, math.prod(size))), array(table, "int32"), axis=2)
    best = relay.cast(relay.argmax(seen, [3]), "int32")
    index = relay.add(best, array(arange(len(table)) * each, "int32"))
    found = relay.take(array(named.ravel(), "int64"), index, axis=0)
    if is_float(dtype_of(x)) and not columns:
        odd = relay.max(relay.where(relay.equal(seen, seen), array(-1, "int64"), array(table, "int64")), [3])
        found = relay.where(relay.less(odd, array(0, "int64")), found, odd)
    return relay.reshape(found, (n, channels, *out))


def unpooled(x, index, size, what):
    """Zeros (N, C, *size) with the elements of `x` at their flat places within each map."""
    n, channels, *small = shape_of(x)
    total = math.prod(size)
    flat = [relay.reshape(v, (n, channels, math.prod(small))) for v in (x, index)]
    y = c.scatter_elements(relay.zeros((n, channels, total), dtype_of(x)), flat[1], flat[0], 2, "none", what, False)
    return relay.reshape(y, (n, channels, *size))
