"""Enlarging maps, and blocks of channels to and from the spatial axes."""

from ... import te
from ..image import resize2d, resize3d
from ..util import INJECTIVE, get_const_int, in_layout, layout_axes

__all__ = ["depth_to_space", "space_to_depth", "upsampling", "upsampling3d"]

_METHODS = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic", "linear": "linear",
            "cubic": "cubic"}  # fmt: skip


def upsampling(data, scale_h, scale_w, layout="NCHW", method="nearest_neighbor", align_corners=False):
    """`data` with H and W enlarged by factors (the size is rounded): :func:`topi.image.resize2d` with
    ``method`` nearest_neighbor, bilinear or bicubic, coordinates ``align_corners`` or ``asymmetric``."""
    if method not in _METHODS:
        raise ValueError(f"upsampling: method {method!r}; use one of {', '.join(map(repr, _METHODS))}")
    size = [round(get_const_int(data.shape[a]) * s) for a, s in zip(layout_axes(layout, "HW"), (scale_h, scale_w))]
    mode = "align_corners" if align_corners else "asymmetric"
    return resize2d(data, None, size, layout, _METHODS[method], mode)


def upsampling3d(data, scale_d, scale_h, scale_w, layout="NCDHW", method="nearest_neighbor",
                 coordinate_transformation_mode="half_pixel", output_shape=None):  # fmt: skip
    """`data` with D, H and W enlarged by factors; ``method`` nearest_neighbor or trilinear."""
    pos = layout_axes(layout, "DHW")
    size = output_shape or [round(get_const_int(data.shape[a]) * s) for a, s in zip(pos, (scale_d, scale_h, scale_w))]
    return resize3d(data, None, size, layout, {"trilinear": "linear"}.get(method, method), coordinate_transformation_mode)


def _axes(layout, data):
    if len(layout) != 4 or len(data.shape) != 4:
        raise ValueError(f"layout {layout!r} must be an order of the letters NCHW, for data of rank 4")
    return layout_axes(layout, "NCHW")


def depth_to_space(data, block_size, layout="NCHW", mode="DCR"):
    """Channels in blocks of ``block_size**2`` become squares of pixels; stage ``depth_to_space``. ``mode``: the channels of
    a block lie apart (``"DCR"``, depth first) or side by side (``"CRD"``, as PyTorch's pixel_shuffle)."""
    if mode not in ("DCR", "CRD"):
        raise ValueError(f'depth_to_space: mode is "DCR" or "CRD", not {mode!r}')
    pos, b = _axes(layout, data), get_const_int(block_size)
    n, c, h, w = (get_const_int(data.shape[p]) for p in pos)
    if b < 1 or c % (b * b):
        raise ValueError(f"depth_to_space: {c} channels do not divide into blocks of {b} x {b}")
    channels = c // (b * b)

    def f(*ax):
        n_, c_, y, x = (ax[p] for p in pos)
        inside = te.floormod(y, b) * b + te.floormod(x, b)
        channel = inside * channels + c_ if mode == "DCR" else c_ * (b * b) + inside
        return data(*in_layout([n_, channel, te.floordiv(y, b), te.floordiv(x, b)], pos))

    return te.compute(in_layout([n, channels, h * b, w * b], pos), f, name="depth_to_space", tag=INJECTIVE)


def space_to_depth(data, block_size, layout="NCHW"):
    """Squares of ``block_size**2`` pixels become channels, which lie apart: the inverse of :func:`depth_to_space` with
    ``"DCR"``; stage ``space_to_depth``."""
    pos, b = _axes(layout, data), get_const_int(block_size)
    n, c, h, w = (get_const_int(data.shape[p]) for p in pos)
    if b < 1 or h % b or w % b:
        raise ValueError(f"space_to_depth: {h} x {w} pixels do not divide into blocks of {b} x {b}")

    def f(*ax):
        n_, c_, y, x = (ax[p] for p in pos)
        inside = te.floordiv(c_, c)
        index = [n_, te.floormod(c_, c), y * b + te.floordiv(inside, b), x * b + te.floormod(inside, b)]
        return data(*in_layout(index, pos))

    return te.compute(in_layout([n, c * b * b, h // b, w // b], pos), f, name="space_to_depth", tag=INJECTIVE)
