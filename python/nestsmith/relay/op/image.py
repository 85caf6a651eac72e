"""Image operators."""

from __future__ import annotations

from ..ty import TensorType
from .nn import pool_axes
from .registry import INJECTIVE, call, register, tensor

__all__ = ["resize2d"]

_MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)


def _infer(attrs, types):
    t = tensor(types, 0)
    shape = list(t.shape)
    for p, d in zip(pool_axes(attrs.layout, 2), attrs.size):
        shape[p] = d
    return TensorType(shape, attrs.out_dtype or t.dtype)


register("image.resize2d", INJECTIVE, _infer)


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
    """Resizes the spatial axes to `size` (height, width); method nearest_neighbor, linear or cubic."""
    if method not in ("nearest_neighbor", "linear", "cubic"):
        raise ValueError(f"method {method!r}; use 'nearest_neighbor', 'linear' or 'cubic'")
    if coordinate_transformation_mode not in _MODES:
        raise ValueError(
            f"coordinate_transformation_mode {coordinate_transformation_mode!r}; use one of {', '.join(_MODES)}"
        )
    size = (int(size), int(size)) if isinstance(size, int) else tuple(int(s) for s in size)
    return call(
        "image.resize2d",
        [data],
        size=size,
        layout=layout,
        method=method,
        coordinate_transformation_mode=coordinate_transformation_mode,
        rounding_method=rounding_method,
        cubic_alpha=float(cubic_alpha),
        cubic_exclude=int(cubic_exclude),
        extrapolation_value=float(extrapolation_value),
        out_dtype=out_dtype,
    )
