"""Images.

Signatures::

    resize2d(data, roi, size, layout="NCHW", method="linear", coordinate_transformation_mode="half_pixel",
             rounding_method="", bicubic_alpha=-0.5, bicubic_exclude=0, extrapolation_value=0.0, out_dtype=None)

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

from __future__ import annotations

import math

from .. import te, tir
from .util import INJECTIVE, get_const_int, is_float, layout_axes

METHODS = ("nearest_neighbor", "linear", "cubic")
MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


class _Exact:
    """Where outputs lie on an axis of `n` inputs: output y of `m` at (a y + b) / d."""

    def __init__(self, n, m, mode):
        a, b, d = {
            "half_pixel": (2 * n, n - m, 2 * m),
            "pytorch_half_pixel": (2 * n, n - m, 2 * m),
            "align_corners": (n - 1, 0, m - 1),
            "asymmetric": (n, 0, m),
            "tf_half_pixel_for_nn": (2 * n, n, 2 * m),
        }[mode]
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
    return [
        c(alpha) * (t3 - c(2) * t2 + t),
        c(alpha + 2) * t3 - c(alpha + 3) * t2 + c(1),
        c(-(alpha + 2)) * t3 + c(2 * alpha + 3) * t2 - c(alpha) * t,
        c(alpha) * t2 - c(alpha) * t3,
    ]


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
    out = values[0] * weights[0]
    for v, w in zip(values[1:], weights[1:]):
        out = out + v * w
    return out


def _to(value, dtype, overshoots):
    """`value` as an element of the result; one that may pass the range of an integer type is cut to it."""
    if overshoots and not is_float(dtype):
        lo, hi = (f(dtype).astype(value.dtype) for f in (tir.min_value, tir.max_value))
        value = tir.Max(tir.Min(value, hi), lo)
    return value.astype(dtype)


def resize2d(
    data,
    roi,
    size,
    layout="NCHW",
    method="linear",
    coordinate_transformation_mode="half_pixel",
    rounding_method="",
    bicubic_alpha=-0.5,
    bicubic_exclude=0,
    extrapolation_value=0.0,
    out_dtype=None,
):
    """`data` with its axes H and W resized to `size`; see the top of this file. ``bicubic_exclude``: pixels beyond the
    edge have no weight. Raises ValueError for an unknown method, mode, rounding or layout."""
    mode = coordinate_transformation_mode
    for what, value, known in (("method", method, METHODS), ("mode", mode, MODES), ("rounding", rounding_method, ROUNDINGS)):
        if value not in known:
            raise ValueError(f"resize2d: {what} {value!r}; use one of {', '.join(map(repr, known))}")
    axes = layout_axes(layout, "HW")
    old, new = [get_const_int(data.shape[a]) for a in axes], [get_const_int(s) for s in size]
    out_dtype = out_dtype or data.dtype
    dtype = "float64" if data.dtype == "float64" else "float32"
    crop = mode == "tf_crop_and_resize"
    places = [
        _Crop(n, m, float(roi[k]), float(roi[k + 2])) if crop else _Exact(n, m, mode)
        for k, (n, m) in enumerate(zip(old, new))
    ]
    shape = list(data.shape)
    for a, m in zip(axes, new):
        shape[a] = m

    def pixel(ax, y, x):
        idx = list(ax)
        for a, p, n in zip(axes, (y, x), old):
            idx[a] = tir.Max(tir.Min(p, n - 1), 0)
        return data(*idx)

    def f(*ax):
        y, x = (ax[a] for a in axes)
        if method == "nearest_neighbor":
            how = rounding_method or ("round" if mode == "align_corners" else "floor")
            value = pixel(ax, places[0].nearest(y, how), places[1].nearest(x, how)).astype(out_dtype)
        else:
            more = method, dtype, bicubic_alpha, bicubic_exclude
            rows, row_weights = _taps(places[0], y, old[0], *more)
            columns, weights = _taps(places[1], x, old[1], *more)
            lines = [_weighted([pixel(ax, r, c).astype(dtype) for c in columns], weights) for r in rows]
            value = _to(_weighted(lines, row_weights), out_dtype, method == "cubic")
        if crop:
            off = tir.Or(places[0].outside(y), places[1].outside(x))
            value = tir.Select(off, tir.const(extrapolation_value, out_dtype), value)
        return value

    return te.compute(shape, f, name="resize", tag=INJECTIVE)
