"""Image operators."""

from __future__ import annotations

from ... import check, topi
from ...topi.image import METHODS, MODES, ROUNDINGS
from ..expr import Constant
from ..ty import TensorType
from .nn import pool_axes
from .nn.util import window_layout
from .registry import INJECTIVE, call, register, tensor

__all__ = ["resize2d"]


def _infer(attrs, types):
    t = tensor(types, 0)
    shape = list(t.shape)
    for p, d in zip(pool_axes(attrs.layout, 2), attrs.size):
        shape[p] = d
    return TensorType(shape, attrs.out_dtype or t.dtype)


def _resize2d_loops(a, x, c, t):
    return topi.image.resize2d(
        x[0],
        a.roi,
        a.size,
        a.layout,
        a.method,
        a.coordinate_transformation_mode,
        a.rounding_method,
        a.cubic_alpha,
        a.cubic_exclude,
        a.extrapolation_value,
        a.out_dtype or None,
    )


register("image.resize2d", INJECTIVE, _infer, layout=window_layout, loops=_resize2d_loops, ranked=True)


def resize2d(
    data,
    size,
    roi=None,
    layout="NCHW",
    method="linear",
    coordinate_transformation_mode="half_pixel",
    rounding_method="",
    cubic_alpha=-0.5,
    cubic_exclude=0,
    extrapolation_value=0.0,
    out_dtype="",
):
    """Resizes the spatial axes to `size` (height, width); method nearest_neighbor, linear or cubic.

    `coordinate_transformation_mode`: half_pixel, align_corners, asymmetric, pytorch_half_pixel, tf_half_pixel_for_nn or
    tf_crop_and_resize (of `roi`: y0, x0, y1, x1 in parts of the image; `extrapolation_value` beyond it).
    `rounding_method` of nearest_neighbor: round, round_prefer_floor, round_prefer_ceil, floor or ceil; "" is round for
    align_corners and floor otherwise. `cubic_alpha`: -0.75 is PyTorch's; `cubic_exclude`: pixels beyond the edge do not
    count. Integers are cut toward zero.
    """
    check.one_of_names("method", method, METHODS)
    check.one_of_names("coordinate_transformation_mode", coordinate_transformation_mode, MODES)
    check.one_of_names("rounding_method", rounding_method, ROUNDINGS)
    roi = roi.data.tolist() if isinstance(roi, Constant) else roi
    roi = (0.0, 0.0, 1.0, 1.0) if roi is None else tuple(float(v) for v in roi)
    if len(roi) != 4:
        raise ValueError(f"roi is {roi}; it must be four numbers: y0, x0, y1, x1")
    size = tuple(check.integer("size", n, 1) for n in ((size, size) if isinstance(size, int) else size))
    return call(
        "image.resize2d",
        [data],
        size=size,
        roi=roi,
        layout=layout,
        method=method,
        coordinate_transformation_mode=coordinate_transformation_mode,
        rounding_method=rounding_method,
        cubic_alpha=float(cubic_alpha),
        cubic_exclude=int(cubic_exclude),
        extrapolation_value=float(extrapolation_value),
        out_dtype=out_dtype,
    )
