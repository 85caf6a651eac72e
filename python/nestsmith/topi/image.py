"""Images.

Signatures::

    resize2d(data, roi, size, layout="NCHW", method="linear", coordinate_transformation_mode="half_pixel",
             rounding_method="", bicubic_alpha=-0.5, bicubic_exclude=0, extrapolation_value=0.0, out_dtype=None)
    resize1d, resize3d: the same over W and over D, H, W
    grid_sample(data, grid, method, layout, padding_mode, align_corners)     affine_grid(data, target_shape)
    crop_and_resize(data, boxes, box_indices, crop_size, layout, method, extrapolation_value, out_dtype)
    dilation2d_nchw, dilation2d_nhwc(input, filter, stride, padding, dilations, out_dtype)

``method``: ``nearest_neighbor``, ``linear``, ``cubic``. The stage is called ``resize``. Its axes but those of H and W are
left as they are, so that any layout with both will do, packed ones too.

Output row y of m lies at a place p of the n input rows that the mode says:

==========================  ====================================================================================
half_pixel                  (y + 1/2) n / m - 1/2
pytorch_half_pixel          the same; 0 if m is 1
align_corners               y (n - 1) / (m - 1); 0 if m is 1
asymmetric                  y n / m
tf_half_pixel_for_nn        (y + 1/2) n / m
tf_crop_and_resize          of ``roi`` (y0, x0, y1, x1), in parts of n - 1: y0 + y (y1 - y0) / (m - 1), the middle if m is
                            1; beyond the image the result is ``extrapolation_value``
==========================  ====================================================================================

All but the last are quotients of integers that are known here, so that p is rounded exactly: no device's division decides
which pixel is nearest. Pixels beyond the edge are those of the edge. Integer pixels are cut toward zero, as casts do.
"""

import functools
import math
import operator

from .. import te, tir
from .transform import pad
from .util import INJECTIVE, get_const_int, get_pad_tuple, in_layout, is_float, layout_axes, placed, tuple_of

METHODS = ("nearest_neighbor", "linear", "cubic")
MODES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn",
         "tf_crop_and_resize")  # fmt: skip
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


class _Exact:
    """Where outputs lie on an axis of `n` inputs: output y of `m` at (a y + b) / d."""

    def __init__(self, n, m, mode):
        a, b, d = {"half_pixel": (2 * n, n - m, 2 * m), "pytorch_half_pixel": (2 * n, n - m, 2 * m),
                   "align_corners": (n - 1, 0, m - 1), "asymmetric": (n, 0, m),
                   "tf_half_pixel_for_nn": (2 * n, n, 2 * m)}[mode]  # fmt: skip
        if m == 1 and mode in ("align_corners", "pytorch_half_pixel"):
            a, b, d = 0, 0, 1
        common = math.gcd(a, b, d)
        self.a, self.b, self.d = a // common, b // common, d // common
        self.wide = 2 * (self.a * m + abs(self.b) + self.d) >= 2**31

    def _numerator(self, y):
        return (y.astype("int64") if self.wide else y) * self.a + self.b

    def floor(self, y):
        return te.floordiv(self._numerator(y), self.d).astype("int32")

    def fraction(self, y, dtype):
        """What is above the floor."""
        return te.floormod(self._numerator(y), self.d).astype(dtype) * tir.const(1 / self.d, dtype)

    def nearest(self, y, rounding):
        if rounding in ("round", "round_prefer_ceil"):  # of two neighbours at 1/2, and a place below 0 is at the edge
            return te.floordiv(self._numerator(y) * 2 + self.d, 2 * self.d).astype("int32")
        if rounding == "round_prefer_floor":
            return te.floordiv(self._numerator(y) * 2 + (self.d - 1), 2 * self.d).astype("int32")
        up = self.d - 1 if rounding == "ceil" else 0
        return te.floordiv(self._numerator(y) + up, self.d).astype("int32")


class _Crop:
    """Where outputs lie on an axis of `n` inputs that is cut to the part from `begin` to `end`."""

    def __init__(self, n, m, begin, end):
        self.last = float(n - 1)
        self.first = (begin if m > 1 else (begin + end) / 2) * (n - 1)
        self.step = (end - begin) * (n - 1) / (m - 1) if m > 1 else 0.0

    def at(self, y):
        return y.astype("float32") * tir.const(self.step, "float32") + tir.const(self.first, "float32")

    def floor(self, y):
        return te.floor(self.at(y)).astype("int32")

    def fraction(self, y, dtype):
        return (self.at(y) - te.floor(self.at(y))).astype(dtype)

    def nearest(self, y, rounding):
        p, half = self.at(y), tir.const(0.5, "float32")
        near = {
            "round": lambda: te.floor(p + half),
            "round_prefer_ceil": lambda: te.floor(p + half),
            "round_prefer_floor": lambda: te.ceil(p - half),
            "floor": lambda: te.floor(p + tir.const(1e-5, "float32")),  # products that should be whole may lie below
            "ceil": lambda: te.ceil(p - tir.const(1e-5, "float32")),
        }
        return near[rounding]().astype("int32")

    def outside(self, y):
        return tir.Or(self.at(y) < tir.const(0.0, "float32"), self.at(y) > tir.const(self.last, "float32"))


def _cubic_weights(t, alpha, dtype):
    """Weights of the four neighbours at distances t + 1, t, 1 - t and 2 - t."""

    def c(v):
        return tir.const(float(v), dtype)

    t2, t3 = t * t, t * t * t
    return [c(alpha) * (t3 - c(2) * t2 + t), c(alpha + 2) * t3 - c(alpha + 3) * t2 + c(1),
            c(-(alpha + 2)) * t3 + c(2 * alpha + 3) * t2 - c(alpha) * t, c(alpha) * t2 - c(alpha) * t3]  # fmt: skip


def _taps(place, y, n, method, dtype, alpha, exclude):
    """(input positions, their weights) on one axis."""
    base, t = place.floor(y), place.fraction(y, dtype)
    one, zero = tir.const(1.0, dtype), tir.const(0.0, dtype)
    if method == "linear":
        return [base, base + 1], [one - t, t]
    positions, weights = [base - 1, base, base + 1, base + 2], _cubic_weights(t, alpha, dtype)
    if exclude:
        weights = [tir.Select(tir.Or(p < 0, p > n - 1), zero, w) for p, w in zip(positions, weights)]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [w / total for w in weights]
    return positions, weights


def _weighted(values, weights):
    return functools.reduce(operator.add, (v * w for v, w in zip(values, weights)))


def _to(value, dtype, overshoots):
    """`value` as an element of the result; one that may pass the range of an integer type is cut to it."""
    if overshoots and not is_float(dtype):
        lo, hi = (f(dtype).astype(value.dtype) for f in (tir.min_value, tir.max_value))
        value = tir.Max(tir.Min(value, hi), lo)
    return value.astype(dtype)


def _resize(data, roi, size, letters, layout, method, mode, rounding, alpha, exclude, extrapolation_value, out_dtype):
    for what, value, known in (("method", method, METHODS), ("mode", mode, MODES), ("rounding", rounding, ROUNDINGS)):
        if value not in known:
            raise ValueError(f"resize{len(letters)}d: {what} {value!r}; use one of {', '.join(map(repr, known))}")
    axes = layout_axes(layout, letters)
    size = size if isinstance(size, (tuple, list)) else [size]
    if len(size) != len(letters):
        raise ValueError(f"resize{len(letters)}d: size {tuple(size)} must have {len(letters)} number(s)")
    old, new = [get_const_int(data.shape[a]) for a in axes], [get_const_int(s) for s in size]
    out_dtype = out_dtype or data.dtype
    dtype = "float64" if data.dtype == "float64" else "float32"
    crop = mode == "tf_crop_and_resize"
    places = [_Crop(n, m, float(roi[k]), float(roi[k + len(letters)])) if crop else _Exact(n, m, mode)
              for k, (n, m) in enumerate(zip(old, new))]  # fmt: skip

    def pixel(ax, at):
        return data(*placed(ax, axes, [tir.Max(tir.Min(p, n - 1), 0) for p, n in zip(at, old)]))

    def f(*ax):
        at = [ax[a] for a in axes]
        if method == "nearest_neighbor":
            how = rounding or ("round" if mode == "align_corners" else "floor")
            value = pixel(ax, [p.nearest(i, how) for p, i in zip(places, at)]).astype(out_dtype)
        else:
            taps = [_taps(p, i, n, method, dtype, alpha, exclude) for p, i, n in zip(places, at, old)]

            def within(chosen):
                """The weighted sum over the axes behind those whose positions are chosen."""
                if len(chosen) == len(taps):
                    return pixel(ax, chosen).astype(dtype)
                positions, weights = taps[len(chosen)]
                return _weighted([within([*chosen, p]) for p in positions], weights)

            value = _to(within([]), out_dtype, method == "cubic")
        if crop:
            off = functools.reduce(tir.Or, (p.outside(i) for p, i in zip(places, at)))
            value = tir.Select(off, tir.const(extrapolation_value, out_dtype), value)
        return value

    return te.compute(placed(data.shape, axes, new), f, name="resize", tag=INJECTIVE)


def resize1d(data, roi, size, layout="NCW", method="linear", coordinate_transformation_mode="half_pixel",
             rounding_method="", bicubic_alpha=-0.5, bicubic_exclude=0, extrapolation_value=0.0, out_dtype=None,
             output_shape=None):  # fmt: skip
    """`data` with its axis W resized; see :func:`resize2d`."""
    return _resize(data, roi, output_shape or size, "W", layout, method, coordinate_transformation_mode, rounding_method, bicubic_alpha,
                   bicubic_exclude, extrapolation_value, out_dtype)  # fmt: skip


def resize2d(data, roi, size, layout="NCHW", method="linear", coordinate_transformation_mode="half_pixel",
             rounding_method="", bicubic_alpha=-0.5, bicubic_exclude=0, extrapolation_value=0.0, out_dtype=None,
             output_shape=None):  # fmt: skip
    """`data` with its axes H and W resized to `size`; see the top of this file. ``bicubic_exclude``: pixels beyond the
    edge have no weight. Raises ValueError for an unknown method, mode, rounding or layout."""
    return _resize(data, roi, output_shape or size, "HW", layout, method, coordinate_transformation_mode, rounding_method, bicubic_alpha,
                   bicubic_exclude, extrapolation_value, out_dtype)  # fmt: skip


def resize3d(data, roi, size, layout="NCDHW", method="linear", coordinate_transformation_mode="half_pixel",
             rounding_method="", bicubic_alpha=-0.5, bicubic_exclude=0, extrapolation_value=0.0, out_dtype=None,
             output_shape=None):  # fmt: skip
    """`data` with its axes D, H and W resized; see :func:`resize2d`."""
    return _resize(data, roi, output_shape or size, "DHW", layout, method, coordinate_transformation_mode, rounding_method, bicubic_alpha,
                   bicubic_exclude, extrapolation_value, out_dtype)  # fmt: skip


# ---- places that come from data ----
def _whole(x):
    """(the whole number below x as int32, what is above it)"""
    low = te.floor(x)
    return low.astype("int32"), x - low


def bilinear(read, y, x, height, width):
    """The weighted sum of the four pixels ``read(row, column)`` around a place; the edge goes on beyond itself."""
    (r, fy), (c, fx) = _whole(y), _whole(x)

    def at(i, j):
        return read(te.max(te.min(i, height - 1), 0), te.max(te.min(j, width - 1), 0)).astype(y.dtype)

    one = tir.const(1.0, y.dtype)
    top, bottom = (at(i, c) * (one - fx) + at(i, c + 1) * fx for i in (r, r + 1))
    return top * (one - fy) + bottom * fy


def affine_grid(data, target_shape):
    """The places [N, 2, H, W] (x first) that matrices ``data`` [N, 2, 3] map a grid from -1 to 1 to."""
    h, w = (get_const_int(s) for s in target_shape)

    def place(i, n):
        return tir.const(-1.0, data.dtype) + i.astype(data.dtype) * tir.const(2 / (n - 1) if n > 1 else 0.0, data.dtype)

    return te.compute((data.shape[0], 2, h, w),
                      lambda n, d, i, j: data[n, d, 0] * place(j, w) + data[n, d, 1] * place(i, h) + data[n, d, 2],
                      name="affine_grid", tag=INJECTIVE)  # fmt: skip


def _reflected(x, low, high):
    """x mirrored at two places until it lies between them."""
    span = tir.const(high - low, x.dtype)
    if high <= low:
        return tir.const(0.0, x.dtype)
    away = te.abs(x - tir.const(low, x.dtype))
    turns = te.floor(away / span)
    rest = away - turns * span
    even = tir.EQ(te.floormod(turns.astype("int32"), 2), 0)
    return tir.Select(even, rest + tir.const(low, x.dtype), span - rest + tir.const(low, x.dtype))


def grid_sample(data, grid, method="bilinear", layout="NCHW", padding_mode="zeros", align_corners=True):
    """``data`` read at the places of ``grid`` [N, 2, H', W'] (x, y) or [N, 3, D', H', W'] (x, y, z), from -1 to 1 in each dimension.

    Parameters
    ----------
    method : str
        nearest, bilinear (in three dimensions trilinear) or bicubic (in two).
    layout : str
        NCHW or NCDHW.
    padding_mode : str
        What lies beyond the edge: zeros, border or reflection.
    align_corners : bool
        -1 and 1 are the middles of the first and last pixels, not their outer edges.
    """
    dims = {"NCHW": 2, "NCDHW": 3}.get(layout)
    if dims is None or method not in ("nearest", "bilinear", "bicubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample: layout {layout!r}, method {method!r} or padding_mode {padding_mode!r} is not known")
    if method == "bicubic" and dims == 3:
        raise ValueError("grid_sample: bicubic is for two dimensions; use bilinear")
    sizes, dtype = [get_const_int(s) for s in data.shape[2:]], grid.dtype

    def c(v):
        return tir.const(float(v), dtype)

    def inner(x, n):
        """A place in pixels moved into the image, as the mode has it."""
        if padding_mode == "reflection":
            x = _reflected(x, 0, n - 1) if align_corners else _reflected(x, -0.5, n - 0.5)
        return x if padding_mode == "zeros" else te.max(te.min(x, c(n - 1)), c(0))

    def pixels(g, n):
        return (g + c(1)) * c(0.5) * c(n - 1) if align_corners else ((g + c(1)) * c(n) - c(1)) * c(0.5)

    def read(b, ch, at):
        inside = te.all(*[te.all(p >= 0, p < n) for p, n in zip(at, sizes)])
        value = data(b, ch, *[te.max(te.min(p, n - 1), 0) for p, n in zip(at, sizes)])
        return te.if_then_else(inside, value, tir.const(0.0, data.dtype)) if padding_mode == "zeros" else value

    def f(b, ch, *out):
        raw = [pixels(grid(b, dims - 1 - d, *out), n) for d, n in enumerate(sizes)]
        if method == "nearest":
            return read(b, ch, [te.nearbyint(inner(x, n)).astype("int32") for x, n in zip(raw, sizes)])
        if method == "bilinear":
            places = [_whole(inner(x, n)) for x, n in zip(raw, sizes)]
            taps = [([low, low + 1], [c(1) - t, t]) for low, t in places]
        else:
            places = [_whole(x) for x in raw]
            taps = []
            for (low, t), n in zip(places, sizes):
                near = [inner((low + k).astype(dtype), n).astype("int32") for k in (-1, 0, 1, 2)]
                taps.append((near, _cubic_weights(t, -0.75, dtype)))

        def within(chosen):
            if len(chosen) == dims:
                return read(b, ch, chosen).astype(dtype)
            return _weighted([within([*chosen, p]) for p in taps[len(chosen)][0]], taps[len(chosen)][1])

        return within([]).astype(data.dtype)

    return te.compute((data.shape[0], data.shape[1], *grid.shape[2:]), f, name="grid_sample", tag=INJECTIVE)


def crop_and_resize(data, boxes, box_indices, crop_size, layout="NCHW", method="bilinear", extrapolation_value=None,
                    out_dtype=None):  # fmt: skip
    """Parts of images, ``boxes`` [B, 4] (y0, x0, y1, x1 in parts of the image) of image ``box_indices`` [B], resized to ``crop_size``.

    ``method``: bilinear or nearest_neighbor. What lies beyond the image is ``extrapolation_value`` (default 0).
    """
    if method not in ("bilinear", "nearest_neighbor"):
        raise ValueError(f'crop_and_resize: method is "bilinear" or "nearest_neighbor", not {method!r}')
    pn, pc, ph, pw = pos = layout_axes(layout, "NCHW")
    sizes, crop = [get_const_int(data.shape[a]) for a in (ph, pw)], [get_const_int(s) for s in crop_size]
    out_dtype, dtype = out_dtype or data.dtype, boxes.dtype
    beyond = tir.const(extrapolation_value or 0.0, out_dtype)

    def place(n, b, i, d):
        low, high, last = boxes(b, d), boxes(b, d + 2), tir.const(float(sizes[d] - 1), dtype)
        if crop[d] > 1:
            return low * last + i.astype(dtype) * ((high - low) * last / tir.const(float(crop[d] - 1), dtype))
        return tir.const(0.5, dtype) * (low + high) * last

    def f(*ax):
        b, channel = ax[pn], ax[pc]
        y, x = place(sizes, b, ax[ph], 0), place(sizes, b, ax[pw], 1)
        image = box_indices(b)

        def read(row, column):
            return data(*in_layout([image, channel, row, column], pos))

        if method == "bilinear":
            value = bilinear(read, y, x, *sizes)
        else:
            value = read(*[te.max(te.min(te.round(v).astype("int32"), n - 1), 0) for v, n in zip((y, x), sizes)])
        zero = tir.const(0.0, dtype)
        off = te.any(y < zero, y > tir.const(float(sizes[0] - 1), dtype), x < zero, x > tir.const(float(sizes[1] - 1), dtype))
        return tir.Select(off, beyond, value.astype(out_dtype))

    shape = in_layout([boxes.shape[0], data.shape[pc], *crop], pos)
    return te.compute(shape, f, name="crop_and_resize", tag=INJECTIVE)


def _dilation2d(data, kernel, stride, padding, dilations, out_dtype, layout):
    pos = layout_axes(layout, "NCHW")
    n, ch, h, w = (data.shape[p] for p in pos)
    kh, kw = (kernel.shape[1], kernel.shape[2]) if layout == "NCHW" else (kernel.shape[0], kernel.shape[1])
    (sh, sw), (dh, dw) = tuple_of(stride, 2, "stride"), tuple_of(dilations, 2, "dilations")
    window = ((kh - 1) * dh + 1, (kw - 1) * dw + 1)
    top, left, bottom, right = get_pad_tuple(padding, window)
    out_dtype = out_dtype or data.dtype
    before, after = in_layout([0, 0, top, left], pos), in_layout([0, 0, bottom, right], pos)
    padded = pad(data, before, after, tir.min_value(data.dtype), name="pad_temp")
    ry, rx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")

    def f(*ax):
        b, c, y, x = (ax[p] for p in pos)
        at = in_layout([b, c, y * sh + ry * dh, x * sw + rx * dw], pos)
        weight = kernel(c, ry, rx) if layout == "NCHW" else kernel(ry, rx, c)
        return te.max(padded(*at).astype(out_dtype) + weight.astype(out_dtype), axis=[ry, rx])

    shape = in_layout([n, ch, (h + top + bottom - window[0]) // sh + 1, (w + left + right - window[1]) // sw + 1], pos)
    return te.compute(shape, f, name=f"dilation2d_{layout.lower()}", tag=f"dilation2d_{layout.lower()}")


def dilation2d_nchw(input, filter, stride, padding, dilations, out_dtype=None):
    """The largest ``input + filter`` in each window: morphological dilation of [N, C, H, W] by [C, KH, KW]."""
    return _dilation2d(input, filter, stride, padding, dilations, out_dtype, "NCHW")


def dilation2d_nhwc(input, filter, stride, padding, dilations, out_dtype=None):
    """Morphological dilation of [N, H, W, C] by [KH, KW, C]."""
    return _dilation2d(input, filter, stride, padding, dilations, out_dtype, "NHWC")
