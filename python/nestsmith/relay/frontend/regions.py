"""Parts of images at computed places: RoiAlign and deformable convolutions, of ONNX and of torchvision."""

import functools
import math

from ...error import OpNotImplemented
from .. import op as relay
from . import common as c
from .aten.table import ATEN
from .onnx_ops import _windows, converter
from .sampling import sampled
from .values import along, arange, array, dtype_of, rank_of, shape_of

__all__: list = []


def _samples(first, size, pooled, ratio):
    """The places of `ratio` samples in each of `pooled` bins of intervals (K,): (K, pooled * ratio)."""
    steps = array((arange(pooled * ratio) + 0.5).reshape(1, -1) / (pooled * ratio), dtype_of(first))
    return relay.add(relay.expand_dims(first, 1), relay.multiply(relay.expand_dims(size, 1), steps))


def _ends(p, extent):
    """Of places (K, n): the pixels before and behind as int32, their weights; those beyond the image have none."""
    s = lambda v: c.scalar(v, p)  # noqa: E731
    inside = relay.logical_and(relay.greater_equal(p, s(-1)), relay.less_equal(p, s(extent)))
    q = relay.clip(relay.where(inside, p, s(0)), 0, extent - 1)
    low = relay.floor(q)
    part = relay.subtract(q, low)
    high = relay.minimum(relay.add(low, s(1)), s(extent - 1))
    weights = (relay.subtract(s(1), part), part)
    return [(relay.cast(i, "int32"), relay.where(inside, w, s(0))) for i, w in zip((low, high), weights)]


def roi_align(x, boxes, batch, scale, pooled, ratio, aligned, most=False):
    """Means (`most`: maxima) of samples in `pooled` bins of each box (K, 4) of an image, which `batch` (K,) names."""
    n, channels, height, width = shape_of(x)
    if ratio <= 0 and not aligned:
        rois = relay.concatenate([relay.expand_dims(c.as_dtype(batch, dtype_of(boxes)), 1), boxes], 1)
        return relay.vision.roi_align(x, rois, pooled, scale, ratio, mode="max" if most else "avg")
    if ratio <= 0:
        raise OpNotImplemented("the number of samples follows from the size of each box; give a sampling_ratio above 0, torchvision's models have 2")
    shift, sides = 0.5 if aligned else 0.0, []
    for k, bins, extent in ((1, pooled[0], height), (0, pooled[1], width)):
        first, last = (relay.subtract(relay.multiply(c.element(boxes, 1, j), c.scalar(scale, boxes)), c.scalar(shift, boxes)) for j in (k, k + 2))
        size = relay.subtract(last, first)
        size = size if aligned else relay.maximum(size, c.scalar(1, size))
        sides.append(_ends(_samples(first, size, bins, ratio), extent))
    image = relay.reshape(c.wrapped(batch, n, "roi_align", from_end=False), (-1, 1, 1))
    rows = relay.reshape(relay.transpose(x, [0, 2, 3, 1]), (n * height * width, channels))
    parts = []
    for i, v in sides[0]:
        for j, w in sides[1]:
            at = relay.add(relay.multiply(image, array(height, "int32")), relay.expand_dims(i, 2))
            at = relay.add(relay.multiply(at, array(width, "int32")), relay.expand_dims(j, 1))
            weight = relay.multiply(relay.expand_dims(v, 2), relay.expand_dims(w, 1))
            parts.append(relay.multiply(relay.take(rows, at, axis=0), c.as_dtype(relay.expand_dims(weight, 3), dtype_of(x))))
    total = functools.reduce(relay.maximum if most else relay.add, parts)
    total = relay.reshape(total, (shape_of(boxes)[0], pooled[0], ratio, pooled[1], ratio, channels))
    return relay.transpose((relay.max if most else relay.mean)(total, [2, 4]), [0, 3, 1, 2])


def deformed_convolution(x, weight, offset, mask, bias, strides, pads, dilation, groups, sets):
    """A convolution whose elements are read beside their places: `offset` (N, sets * K * 2, H', W') says by how much, `mask`
    (N, sets * K, H', W') how much they count (None: wholly). `pads` are the begins, then the ends."""
    n, channels, *_ = shape_of(x)
    outputs, _, *kernel = shape_of(weight)
    out, each, count = shape_of(offset)[2:], channels // sets, math.prod(kernel)
    spot = relay.reshape(offset, (n, sets, kernel[0], kernel[1], 2, *out))
    at = []
    for axis in (0, 1):
        base = along(arange(out[axis]) * strides[axis] - pads[axis], 4 + axis, 6)
        base = base + along(arange(kernel[axis]) * dilation[axis], 2 + axis, 6)
        moved = c.element(spot, 4, axis)
        moved = relay.add(moved, array(base.astype("float64"), dtype_of(offset)))
        at.append(relay.reshape(moved, (n * sets, count * out[0], out[1])))
    seen = sampled(relay.reshape(x, (n * sets, each, *shape_of(x)[2:])), at, "linear", "zeros", True)
    seen = relay.reshape(seen, (n, sets, each, count, *out))
    if mask is not None:
        seen = relay.multiply(seen, relay.reshape(mask, (n, sets, 1, count, *out)))
    seen = relay.reshape(seen, (n, groups, channels // groups * count, math.prod(out)))
    table = relay.reshape(weight, (groups, outputs // groups, channels // groups * count))
    y = relay.reshape(c.matmul(table, seen), (n, outputs, *out))
    return y if bias is None else relay.add(y, relay.reshape(bias, (outputs, 1, 1)))


def _torchvision_roi_align(x, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    batch = relay.cast(c.element(rois, 1, 0), "int32")
    boxes = c.part(rois, 1, 1, 5)
    return roi_align(x, boxes, batch, spatial_scale, (pooled_height, pooled_width), sampling_ratio, aligned)


def _torchvision_deform_conv2d(x, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
                               groups, offset_groups, use_mask):  # fmt: skip
    mask = mask if use_mask else None
    return deformed_convolution(x, weight, offset, mask, bias, (stride_h, stride_w), (pad_h, pad_w) * 2,
                                (dilation_h, dilation_w), groups, offset_groups)  # fmt: skip


ATEN["torchvision::roi_align"] = _torchvision_roi_align
ATEN["torchvision::deform_conv2d"] = _torchvision_deform_conv2d


@converter("RoiAlign")
def _roi_align(n):
    x, boxes, batch = n.inputs
    aligned = n.get("coordinate_transformation_mode", "half_pixel" if n.opset >= 16 else "output_half_pixel") == "half_pixel"
    pooled = n.get("output_height", 1), n.get("output_width", 1)
    return roi_align(x, boxes, batch, n.get("spatial_scale", 1.0), pooled, n.get("sampling_ratio", 0), aligned, n.get("mode", "avg") == "max")


@converter("DeformConv")
def _deform_conv(n):
    x, weight, offset = n.inputs[:3]
    if rank_of(x) != 4:
        n.refuse(f"data of rank {rank_of(x)} are not supported; images have four axes")
    strides, pads, dilation = _windows(n, x, shape_of(weight)[2:])
    return deformed_convolution(x, weight, offset, n.input(4), n.input(3), strides, pads, dilation, n.get("group", 1), n.get("offset_group", 1))
