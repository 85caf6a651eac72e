"""Images read at computed positions: GridSample and RoiAlign's kin."""

import functools
import itertools
import math

import numpy as np

from .. import budget, op as relay
from . import common as c
from .onnx_ops import converter
from .values import array, dtype_of, rank_of, shape_of

__all__ = ["grid_sample", "sampled"]


def _reflected(x, low, high):
    """Positions folded back between `low` and `high`."""
    s = lambda v: c.scalar(v, x)  # noqa: E731
    span = high - low
    if span == 0:
        return relay.full_like(x, s(low))
    away = relay.abs(relay.subtract(x, s(low)))
    turns = relay.floor(relay.divide(away, s(span)))
    rest = relay.subtract(away, relay.multiply(turns, s(span)))
    odd = relay.greater(relay.subtract(turns, relay.multiply(relay.floor(relay.multiply(turns, s(0.5))), s(2))), s(0.5))
    return relay.where(odd, relay.subtract(s(high), rest), relay.add(rest, s(low)))


def _within(p, extent):
    """Positions at the nearest pixel's where there is none; what is not a number becomes 0, as in PyTorch, where clip keeps it."""
    return relay.minimum(relay.where(relay.greater(p, c.scalar(0, p)), p, c.scalar(0, p)), c.scalar(extent - 1, p))


def _pixel(x, at, padding, corners):
    """The pixels of `x` (N, C, ...) at whole positions `at`, one (N, ...) for each image axis."""
    n, channels, *size = shape_of(x)
    inside, index = None, []
    for p, extent in zip(at, size):
        s = lambda v, p=p: c.scalar(v, p)  # noqa: E731
        if padding == "reflection":
            low, high = (0, extent - 1) if corners else (-0.5, extent - 0.5)
            p = _reflected(p, low, high)
        ok = relay.logical_and(relay.greater_equal(p, s(0)), relay.less_equal(p, s(extent - 1)))
        inside = ok if inside is None else relay.logical_and(inside, ok)
        index.append(relay.cast(_within(p, extent), "int32"))
    out = shape_of(index[0])[1:]
    flat = index[0]
    for i, extent in zip(index[1:], size[1:]):
        flat = relay.add(relay.multiply(flat, array(extent, "int32")), i)
    flat = relay.reshape(flat, (n, 1, math.prod(out)))
    got = relay.gather(relay.reshape(x, (n, channels, math.prod(size))), 2, c.expand(flat, (n, channels, math.prod(out))))
    got = relay.reshape(got, (n, channels, *out))
    return relay.where(relay.expand_dims(inside, 1), got, c.scalar(0, x)) if padding == "zeros" else got


def _weights(t, mode, like):
    """Weights of the neighbours of a position `t` beyond the one before it: two, or four for cubic."""
    s = lambda v: c.scalar(v, like)  # noqa: E731
    if mode == "linear":
        return [relay.subtract(s(1), t), t]
    a, u = -0.75, relay.subtract(s(1), t)
    far = lambda v: c.polynomial(v, (a, -5 * a, 8 * a, -4 * a))  # noqa: E731
    near = lambda v: c.polynomial(v, (a + 2, -(a + 3), 0, 1))  # noqa: E731
    return [far(relay.add(t, s(1))), near(t), near(u), far(relay.add(u, s(1)))]


def grid_sample(x, grid, mode="linear", padding="zeros", corners=False):
    """`x` (N, C, H, W) at the positions `grid` (N, H', W', 2), which go from -1 to 1 along width and height; or with a depth before
    the height, (N, C, D, H, W) at (N, D', H', W', 3)."""
    size = shape_of(x)[2:]
    dims = len(size)
    at = []
    for k, extent in zip(range(dims)[::-1], size):
        g = c.element(grid, dims + 1, k)
        g = relay.add(g, c.scalar(1, g))
        if corners:
            p = relay.multiply(g, c.scalar((extent - 1) / 2, g))
        else:
            p = relay.subtract(relay.multiply(g, c.scalar(extent / 2, g)), c.scalar(0.5, g))
        if padding == "border" and mode != "cubic":
            p = _within(p, extent)
        elif padding == "reflection" and mode != "cubic":
            p = _reflected(p, *((0, extent - 1) if corners else (-0.5, extent - 0.5)))
            p = _within(p, extent)
        at.append(p)
    return sampled(x, at, mode, padding, corners)


def sampled(x, at, mode="linear", padding="zeros", corners=False):
    """`x` (N, C, ...) at the positions `at`, one (N, ...) for each image axis, in pixels."""
    dims = len(at)
    if mode == "nearest":
        return _pixel(x, [c.round_even(p) for p in at], padding, corners)
    low = [relay.floor(p) for p in at]
    steps = [0, 1] if mode == "linear" else [-1, 0, 1, 2]
    weights = [_weights(relay.subtract(p, f), mode, p) for p, f in zip(at, low)]
    parts = []
    for places in itertools.product(range(len(steps)), repeat=dims):
        spot = [relay.add(f, c.scalar(steps[k], f)) for f, k in zip(low, places)]
        w = functools.reduce(relay.multiply, (mine[k] for mine, k in zip(weights, places)))
        # positions are within the image here unless it is padded with zeros: a neighbour beyond it weighs nothing, also if infinite
        beyond = "zeros" if mode == "linear" else padding
        parts.append(relay.multiply(_pixel(x, spot, beyond, corners), c.as_dtype(relay.expand_dims(w, 1), dtype_of(x))))
    return c.summed(parts)


@converter("GridSample")
def _grid_sample(n):
    x, grid = n.inputs
    if rank_of(x) not in (4, 5):
        n.refuse(f"data of rank {rank_of(x)} are not supported; images have four or five axes")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(n.get("mode", "linear"), n.get("mode", "linear"))
    return grid_sample(x, grid, mode, n.get("padding_mode", "zeros"), bool(n.get("align_corners", 0)))


@converter("Col2Im")
def _col2im(n, x):
    """The sum of blocks at their places, one place of the block after the other."""
    size, block = (np.asarray(n.array(i, w)).ravel().tolist() for i, w in ((1, "image_shape"), (2, "block_shape")))
    dims = len(size)
    strides, dilation = list(n.get("strides", [1] * dims)), list(n.get("dilations", [1] * dims))
    pads = list(n.get("pads", [0] * 2 * dims))
    count, rows, _ = shape_of(x)
    full = [s + pads[i] + pads[dims + i] for i, s in enumerate(size)]
    places = [(f - (k - 1) * d - 1) // st + 1 for f, k, d, st in zip(full, block, dilation, strides)]
    x = relay.reshape(x, (count, rows // math.prod(block), math.prod(block), *places))
    parts = []
    for at, offset in zip(budget.times(math.prod(block)), itertools.product(*map(range, block))):
        part = c.spread(c.element(x, 2, at), strides)
        lo = [o * d for o, d in zip(offset, dilation)]
        hi = [f - b - e for f, b, e in zip(full, lo, shape_of(part)[2:])]
        parts.append(c.pad(part, [0, 0, *lo], [0, 0, *hi]))
    return c.slice_axes(c.summed(parts), range(2, 2 + dims), pads[:dims], [f - p for f, p in zip(full, pads[dims:])], [1] * dims)
