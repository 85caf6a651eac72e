"""Moving data: flattening, padding, enlarging, channel blocks to and from the spatial axes."""

import numpy as np

from .... import check, topi
from ....topi.util import placed
from ...dims import scaled
from ...expr import const
from ...ty import Any, TensorType
from .. import layout as layouts
from ..registry import INJECTIVE, as_expr, call, register, tensor
from .pool import pool_axes
from .util import SPATIAL, layout_axes, window_layout

__all__ = ["batch_flatten", "pad", "mirror_pad", "upsampling", "depth_to_space", "space_to_depth"]


def _flatten_infer(attrs, types):
    t = tensor(types, 0)
    n = 1
    for d in t.shape[1:]:
        n = n * d
    return TensorType((t.shape[0], n), t.dtype)


register("nn.batch_flatten", INJECTIVE, _flatten_infer, lambda attrs, x: x.reshape(x.shape[0], -1),
         loops=lambda a, x, c, t: topi.nn.flatten(x[0]), ranked=False)  # fmt: skip


def batch_flatten(data):
    """[n, product of the other dimensions]"""
    return call("nn.batch_flatten", [data])


def _pad_infer(attrs, types):
    t = tensor(types, 0)
    if len(attrs.pad_width) != len(t.shape):
        raise ValueError(f"pad_width {attrs.pad_width} must have one pair per axis of {t}")
    spare = {"reflect": 1, "REFLECT": 1, "SYMMETRIC": 0}.get(attrs.get("pad_mode") or attrs.mode)
    for d, amounts in zip(t.shape, attrs.pad_width):
        if spare is not None and not isinstance(d, Any) and max(amounts) > max(d - spare, 0):
            raise ValueError(f"an axis of extent {d} mirrors at most {max(d - spare, 0)} elements, not {amounts}")
    return TensorType([d + a + b for d, (a, b) in zip(t.shape, attrs.pad_width)], t.dtype)


def _np_pad(attrs, x, v):
    return np.pad(x, attrs.pad_width, attrs.pad_mode, **({"constant_values": v} if attrs.pad_mode == "constant" else {}))


def _pad_loops(a, x, c, t):
    before, after = zip(*a.pad_width)
    value = topi.cast(x[1], x[0].dtype) if a.pad_mode == "constant" else 0.0
    return topi.pad(x[0], list(before), list(after), value, pad_mode=a.pad_mode)


register("nn.pad", INJECTIVE, _pad_infer, _np_pad, layout=layouts.permuted("pad_width"), loops=_pad_loops)


def _mirror_pad_loops(a, x, c, t):
    before, after = zip(*a.pad_width)
    return topi.nn.mirror_pad(x[0], list(before), list(after), a.mode)


register("nn.mirror_pad", INJECTIVE, _pad_infer, lambda attrs, x: np.pad(x, attrs.pad_width, mode=attrs.mode.lower()),
         layout=layouts.permuted("pad_width"), loops=_mirror_pad_loops)  # fmt: skip


def mirror_pad(data, pad_width, mode="SYMMETRIC"):
    """Pads each axis by (before, after) with the tensor in a mirror; SYMMETRIC repeats the last element, REFLECT does
    not."""
    check.one_of_names("mode", mode, ("SYMMETRIC", "REFLECT"))
    return call("nn.mirror_pad", [data], pad_width=tuple((int(a), int(b)) for a, b in pad_width), mode=mode)


def pad(data, pad_width, pad_value=0, pad_mode="constant"):
    """Pads each axis by (before, after); pad_mode constant, edge or reflect."""
    if pad_mode not in ("constant", "edge", "reflect"):
        raise ValueError(f"pad_mode {pad_mode!r}; use 'constant', 'edge' or 'reflect'")
    width = tuple((int(a), int(b)) for a, b in pad_width)
    return call("nn.pad",
                [data, as_expr(pad_value) if not isinstance(pad_value, (int, float)) else const(float(pad_value))],
                pad_width=width, pad_mode=pad_mode)  # fmt: skip


def scaled_infer(dims):
    """The type of a map whose spatial axes are enlarged by factors."""

    def infer(attrs, types):
        t, at = tensor(types, 0), pool_axes(attrs.layout, dims)
        factors = [attrs[f"scale_{c.lower()}"] for c in SPATIAL[dims]]
        return TensorType(placed(t.shape, at, [scaled(t.shape[p], s) for p, s in zip(at, factors)]), t.dtype)

    return infer


def _upsampling_loops(a, x, c, t):
    return topi.nn.upsampling(x[0], a.scale_h, a.scale_w, a.layout, a.method, a.align_corners)


register("nn.upsampling", INJECTIVE, scaled_infer(2), layout=window_layout, loops=_upsampling_loops, ranked=True)


def _scale(name, value):
    """`value` as it is, if it is a positive number."""
    check.number(name, value, 0)
    return value


def upsampling(data, scale_h=1, scale_w=1, layout="NCHW", method="nearest_neighbor", align_corners=False):
    """Enlarges a map by factors: :func:`relay.image.resize2d` with method nearest_neighbor, bilinear or bicubic and the
    coordinates ``align_corners`` or ``asymmetric``."""
    check.one_of_names("method", method, ("nearest_neighbor", "bilinear", "bicubic"))
    return call("nn.upsampling", [data], scale_h=_scale("scale_h", scale_h), scale_w=_scale("scale_w", scale_w),
                layout=layout, method=method, align_corners=bool(align_corners))  # fmt: skip


def _d2s(sign):
    def infer(attrs, types):
        t = tensor(types, 0)
        _, c, h, w = (t.shape[p] for p in layout_axes(attrs.layout, "NCHW"))
        b = attrs.block_size
        if b < 1 or (c % (b * b) if sign > 0 else h % b or w % b):
            raise ValueError(f"{c} channels of {h} x {w} pixels do not divide into blocks of {b} x {b}")
        c, h, w = (c // (b * b), h * b, w * b) if sign > 0 else (c * b * b, h // b, w // b)
        return TensorType(placed(t.shape, layout_axes(attrs.layout, "NCHW")[1:], (c, h, w)), t.dtype)

    return infer


register("nn.depth_to_space", INJECTIVE, _d2s(1), layout=window_layout,
         loops=lambda a, x, c, t: topi.nn.depth_to_space(x[0], a.block_size, a.layout, a.mode))  # fmt: skip


register("nn.space_to_depth", INJECTIVE, _d2s(-1), layout=window_layout,
         loops=lambda a, x, c, t: topi.nn.space_to_depth(x[0], a.block_size, a.layout))  # fmt: skip


def depth_to_space(data, block_size, layout="NCHW", mode="DCR"):
    """Moves channel blocks into the spatial axes; mode: the channels of a block lie apart (DCR) or side by side (CRD,
    PyTorch's pixel_shuffle)."""
    check.one_of_names("mode", mode, ("DCR", "CRD"))
    return call("nn.depth_to_space", [data], block_size=int(block_size), layout=layout, mode=mode)


def space_to_depth(data, block_size, layout="NCHW"):
    """Moves spatial blocks into the channel axis, where they lie apart."""
    return call("nn.space_to_depth", [data], block_size=int(block_size), layout=layout)
