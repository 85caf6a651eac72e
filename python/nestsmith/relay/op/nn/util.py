"""Arguments that several kinds of operators share: tuples per axis, paddings, layouts, extents of windows.

Paddings are stored with two values per spatial axis, all begin values first, then all end values (2-D: top, left,
bottom, right); builders accept one number, one per axis, or both.
"""

import numpy as np

from ....numerics import is_float
from ...ty import Any
from ..layout import Layout, Plan, first, layout

__all__ = ["window_layout", "SPATIAL", "per_axis", "paddings", "layout_axes", "check_window", "window_out",
           "product_type"]  # fmt: skip

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def per_axis(v, n, what):
    """`v` as a tuple of n integers; one number stands for all. Raises ValueError for another length."""
    v = (int(v),) * n if isinstance(v, (int, np.integer)) else tuple(int(x) for x in v)
    if len(v) == 1:
        v *= n
    if len(v) != n:
        raise ValueError(f"{what} {v} must have {n} values")
    return v


def paddings(v, n):
    """`v` as 2 n integers, begins before ends. Raises ValueError for another length."""
    v = (int(v),) * n if isinstance(v, (int, np.integer)) else tuple(int(x) for x in v)
    if len(v) == 1:
        v *= n
    if len(v) == n:
        v += v
    if len(v) != 2 * n:
        raise ValueError(f"padding {v} must be a number, {n} values or {2 * n} values (all begins, then all ends)")
    return v


def layout_axes(layout, letters):
    """Positions of the letters in `layout`. Raises ValueError if it is not an order of them."""
    pos = [layout.find(c) for c in letters]
    if min(pos) < 0 or len(layout) != len(letters):
        raise ValueError(f"layout {layout!r} must be an order of the letters {letters}")
    return pos


def window_layout(call, has, want):
    """The rule of layout of what works on the spatial axes of a map: pools, resizing. It goes along with its data, unless the
    user wants another layout."""
    a = call.attrs
    if want:
        layout_axes(want[0], a.layout)
        at = Layout(a.layout, want[0])
    else:
        at = first(call, has)
        at = at and at.named(a.layout)
    if at is None:
        return None
    attrs = {"layout": at.new} | ({"out_layout": ""} if "out_layout" in a else {})
    wants = [layout(at.old, at.new), *[None] * (len(call.args) - 1)]
    return Plan(wants, layout(a.get("out_layout") or a.layout, at.new), attrs)


def check_window(k, stride, dilation):
    """Raises ValueError if the extent, the stride or the dilation of a kernel is not positive."""
    for what, v in (("kernel", k), ("stride", stride), ("dilation", dilation)):
        if not isinstance(v, Any) and v < 1:
            raise ValueError(f"a {what} of {v} along an axis; it must be at least 1")


def window_out(n, k, stride, dilation, pads):
    """Extent of a convolved axis; ValueError if the kernel does not fit, or is none."""
    check_window(k, stride, dilation)
    out = (n + pads - dilation * (k - 1) - 1) // stride + 1
    if not isinstance(out, Any) and out <= 0:
        raise ValueError(f"a kernel of extent {k} (dilation {dilation}) does not fit into {n} + {pads} of padding")
    return out


def product_type(a, b, out_dtype):
    """Element type of a sum of products of the tensors `a` and `b`, to which both are converted first. Raises ValueError
    where that would make integers of fractions."""
    dtype = out_dtype or a.dtype
    if not is_float(dtype) and (is_float(a.dtype) or is_float(b.dtype)):
        raise ValueError(f"the operands are {a.dtype} and {b.dtype}, the products would be formed as {dtype}; give a "
                         "floating out_dtype, or use relay.cast")  # fmt: skip
    return dtype
