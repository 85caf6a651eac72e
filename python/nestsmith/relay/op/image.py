"""Image operators."""

from ... import check, topi
from ...topi.image import METHODS, MODES, ROUNDINGS
from ...topi.util import named, placed
from ..expr import Constant
from ..ty import Any, TensorType
from .derived import derive
from .nn import pool_axes
from .nn.util import window_layout
from .registry import INJECTIVE, OPAQUE, call, ints, register, tensor

__all__ = ["affine_grid", "crop_and_resize", "dilation2d", "grid_sample", "resize1d", "resize2d", "resize3d"]


def _register(dims, name, **more):
    def infer(attrs, types):
        t = tensor(types, 0)
        return TensorType(placed(t.shape, pool_axes(attrs.layout, dims), attrs.size), attrs.out_dtype or t.dtype)

    def loops(a, x, c, target):
        how = a.coordinate_transformation_mode, a.rounding_method, a.cubic_alpha, a.cubic_exclude, a.extrapolation_value
        return getattr(topi.image, name)(x[0], list(a.roi), list(a.size), a.layout, a.method, *how, a.out_dtype or None)

    register(f"image.{name}", INJECTIVE, infer, loops=loops, ranked=True, **more)


_register(2, "resize2d", layout=window_layout)


def _call(name, data, size, roi, layout, method, mode, rounding, alpha, exclude, beyond, out_dtype):
    return call(f"image.{name}", [data], size=size, roi=roi, layout=layout, method=method, coordinate_transformation_mode=mode,
                rounding_method=rounding, cubic_alpha=float(alpha), cubic_exclude=int(exclude), extrapolation_value=float(beyond),
                out_dtype=out_dtype)  # fmt: skip


def _size(size, dims):
    """A size for each axis, which may have a name."""
    given = ints((size,) * dims if isinstance(size, int) else size)
    return tuple(n if isinstance(n, Any) else check.integer("size", n, 1) for n in given)


def resize2d(data, size, roi=None, layout="NCHW", method="linear", coordinate_transformation_mode="half_pixel",
             rounding_method="", cubic_alpha=-0.5, cubic_exclude=0, extrapolation_value=0.0, out_dtype=""):  # fmt: skip
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
    size = _size(size, 2)
    return _call("resize2d", data, size, roi, layout, method, coordinate_transformation_mode, rounding_method, cubic_alpha, cubic_exclude,
                 extrapolation_value, out_dtype)  # fmt: skip


def _resize(dims, name, default):
    _register(dims, name)

    def build(data, size, roi=None, layout=default, method="linear", coordinate_transformation_mode="half_pixel",
              rounding_method="", cubic_alpha=-0.5, cubic_exclude=0, extrapolation_value=0.0, out_dtype=""):  # fmt: skip
        check.one_of_names("method", method, METHODS)
        roi = (0.0,) * dims + (1.0,) * dims if roi is None else tuple(map(float, roi.data.tolist() if isinstance(roi, Constant) else roi))
        size = _size(size, dims)
        return _call(name, data, size, roi, layout, method, coordinate_transformation_mode, rounding_method, cubic_alpha, cubic_exclude,
                     extrapolation_value, out_dtype)  # fmt: skip

    return named(build, name, f"As :func:`resize2d`, over {'one axis' if dims == 1 else 'three axes'}.")


resize1d, resize3d = _resize(1, "resize1d", "NCW"), _resize(3, "resize3d", "NCDHW")

derive("image.affine_grid", lambda a, x: topi.image.affine_grid(x[0], a.target_shape), OPAQUE)
derive("image.grid_sample", lambda a, x: topi.image.grid_sample(x[0], x[1], a.method, a.layout, a.padding_mode, a.align_corners), OPAQUE)


def _cropped(a, x):
    return topi.image.crop_and_resize(*x, a.crop_size, a.layout, a.method, a.extrapolation_value, a.out_dtype or None)


derive("image.crop_and_resize", _cropped, OPAQUE)


def _dilation2d_of(a, x):
    f = topi.image.dilation2d_nchw if a.data_layout == "NCHW" else topi.image.dilation2d_nhwc
    return f(x[0], x[1], list(a.strides), list(a.padding), list(a.dilations), a.out_dtype or None)


derive("image.dilation2d", _dilation2d_of, OPAQUE)


def affine_grid(data, target_shape=None):
    """The places [N, 2, H, W] (x first) that matrices `data` [N, 2, 3] map a grid from -1 to 1 to."""
    return call("image.affine_grid", [data], target_shape=tuple(int(n) for n in target_shape))


def grid_sample(data, grid, method="bilinear", layout="NCHW", padding_mode="zeros", align_corners=True):
    """`data` at the places `grid`, each coordinate from -1 to 1: bilinear, nearest or bicubic; zeros, border or reflection beyond."""
    more = {"method": method, "layout": layout, "padding_mode": padding_mode, "align_corners": bool(align_corners)}
    return call("image.grid_sample", [data, grid], **more)


def crop_and_resize(data, boxes, box_indices, crop_size, layout, method="bilinear", extrapolation_value=0.0, out_dtype=None):
    """Parts of images, `boxes` [B, 4] (y0, x0, y1, x1 in parts of the image) of image `box_indices` [B], resized to `crop_size`."""
    return call("image.crop_and_resize", [data, boxes, box_indices], crop_size=tuple(int(n) for n in crop_size),
                layout=layout, method=method, extrapolation_value=float(extrapolation_value), out_dtype=out_dtype or "")  # fmt: skip


def dilation2d(data, weight, strides=(1, 1), padding=(0, 0), dilations=(1, 1), data_layout="NCHW", kernel_layout="IHW",
               out_dtype=""):  # fmt: skip
    """Morphological dilation: the largest sum of an element and a weight under a window, per channel."""
    pads = tuple(int(p) for p in ((padding,) * 2 if isinstance(padding, int) else padding))
    return call("image.dilation2d", [data, weight], strides=tuple(strides), padding=pads, dilations=tuple(dilations),
                data_layout=data_layout, kernel_layout=kernel_layout, out_dtype=out_dtype)  # fmt: skip
