"""Detection: reorganised maps, regions of interest and their suppression.

Signatures::

    reorg(data, stride)                                                        reorg
    roi_pool_nchw(data, rois, pooled_size, spatial_scale)                      pool_max
    roi_align_nchw / roi_align_nhwc(data, rois, pooled_size, spatial_scale, mode=b"avg", sample_ratio=-1)   roi_align
    get_valid_counts(data, score_threshold, id_index, score_index)             -> [counts, boxes, positions]
    multibox_prior(data, sizes=(1,), ratios=(1,), steps=(-1, -1), offsets=(0.5, 0.5), clip=False)           multibox_prior
"""

from .. import te, tir
from .image import bilinear
from .util import COMM_REDUCE, INJECTIVE, as_const_int, c_compute, injective, position, tuple_of

__all__ = ["get_valid_counts", "multibox_prior", "reorg", "roi_align_nchw", "roi_align_nhwc", "roi_pool_nchw"]


def reorg(data, stride):
    """Channels spread over a larger map, [N, C, H, W] to [N, C s^2, H/s, W/s], in the order of Darknet's reorg layer."""
    s = as_const_int(stride)
    n, c, h, w = (as_const_int(d) for d in data.shape)
    if c % (s * s):
        raise ValueError(f"reorg: {c} channels are no multiple of the square of stride {s}")
    less = c // (s * s)

    def place(flat):
        return (te.indexdiv(flat, c * h * w), te.indexmod(te.indexdiv(flat, h * w), c), te.indexmod(te.indexdiv(flat, w), h),
                te.indexmod(flat, w))  # fmt: skip

    def source(b, k, j, i):
        offset, c2 = te.indexdiv(k, less), te.indexmod(k, less)
        column, row = i * s + te.indexmod(offset, s), j * s + te.indexdiv(offset, s)
        return column + w * s * (row + h * s * (c2 + less * b))

    def f(b, k, j, i):
        flat = i + w * (j + h * (k + c * b))
        return data(*place(source(*place(flat))))

    spread = te.compute((n, c, h, w), f, name="reorg", tag=INJECTIVE)
    shape = (n, c * s * s, h // s, w // s)

    return te.compute(shape, lambda *ax: spread(*place(position(ax, shape))), name="reorg_shape", tag=INJECTIVE)


def roi_pool_nchw(data, rois, pooled_size, spatial_scale):
    """The largest element of each of the cells that a region, (batch, x0, y0, x1, y1) in ``rois`` [R, 5], is divided into; 0 for an empty cell."""
    dtype = rois.dtype
    _, channels, height, width = data.shape
    ph, pw = tuple_of(pooled_size, 2, "pooled_size")

    def cell(low, high, i, parts, size):
        begin, end = (te.floor(v * tir.const(spatial_scale, dtype) + tir.const(0.5, dtype)).astype("int32") for v in (low, high))
        step = te.max(end - begin + 1, 1).astype(dtype) / tir.const(parts, dtype)
        first = te.floor(i.astype(dtype) * step).astype("int32") + begin
        last = te.ceil((i + 1).astype(dtype) * step).astype("int32") + begin
        return te.max(te.min(first, size), 0), te.max(te.min(last, size), 0)

    rh, rw = te.reduce_axis((0, height), "rh"), te.reduce_axis((0, width), "rw")

    def bounds(i, y, x):
        return cell(rois(i, 2), rois(i, 4), y, ph, height), cell(rois(i, 1), rois(i, 3), x, pw, width)

    def largest(i, c, y, x):
        (y0, y1), (x0, x1) = bounds(i, y, x)
        inside = te.all(rh >= y0, rh < y1, rw >= x0, rw < x1)
        batch = tir.check_index(rois(i, 0).astype("int32"), data.shape[0])
        return te.max(te.if_then_else(inside, data(batch, c, rh, rw), tir.min_value(data.dtype)), axis=[rh, rw])

    shape = (rois.shape[0], channels, ph, pw)
    most = te.compute(shape, largest, name="pool_max", tag="roi_pool_max")

    def f(i, c, y, x):
        (y0, y1), (x0, x1) = bounds(i, y, x)
        return te.if_then_else(te.any(y1 <= y0, x1 <= x0), tir.const(0, data.dtype), most(i, c, y, x))

    return te.compute(shape, f, name="roi_pool", tag="pool,roi_pool_nchw")


def _roi_align(data, rois, pooled_size, spatial_scale, mode, sample_ratio, layout):
    mode = mode.decode() if isinstance(mode, bytes) else mode
    if mode not in ("avg", "max"):
        raise ValueError(f'roi_align: mode is "avg" or "max", not {mode!r}')
    dtype, nchw = rois.dtype, layout == "NCHW"
    channels, height, width = (data.shape[d] for d in ((1, 2, 3) if nchw else (3, 1, 2)))
    ph, pw = tuple_of(pooled_size, 2, "pooled_size")
    lanes = as_const_int(sample_ratio)
    most_h, most_w = (lanes, lanes) if lanes > 0 else (-(-as_const_int(height) // ph), -(-as_const_int(width) // pw))
    rh, rw = te.reduce_axis((0, most_h), "rh"), te.reduce_axis((0, most_w), "rw")

    def side(low, high, parts, most):
        begin, end = (v * tir.const(spatial_scale, dtype) for v in (low, high))
        step = te.max(end - begin, tir.const(1.0, dtype)) / tir.const(parts, dtype)
        count = tir.const(lanes, "int32") if lanes > 0 else tir.check_index(te.ceil(step).astype("int32") - 1, most) + 1
        return begin, step, count

    def value(i, c, y, x):
        (y0, sy, ny), (x0, sx, nx) = side(rois(i, 2), rois(i, 4), ph, most_h), side(rois(i, 1), rois(i, 3), pw, most_w)
        half = tir.const(0.5, dtype)
        at_y = y0 + y.astype(dtype) * sy + (rh.var.astype(dtype) + half) * sy / ny.astype(dtype)
        at_x = x0 + x.astype(dtype) * sx + (rw.var.astype(dtype) + half) * sx / nx.astype(dtype)
        outside = te.any(at_y < tir.const(-1.0, dtype), at_x < tir.const(-1.0, dtype), at_y > height, at_x > width)
        at_y, at_x = (te.max(tir.const(0.0, dtype), v) for v in (at_y, at_x))
        batch = tir.check_index(rois(i, 0).astype("int32"), data.shape[0])
        read = (lambda r, q: data(batch, c, r, q)) if nchw else (lambda r, q: data(batch, r, q, c))
        v = tir.Select(outside, tir.const(0.0, data.dtype), bilinear(read, at_y, at_x, height, width).astype(data.dtype))
        within = te.all(rh < ny, rw < nx)
        if mode == "max":
            return te.max(te.if_then_else(within, v, tir.min_value(data.dtype)), axis=[rh, rw])
        return te.sum(te.if_then_else(within, v / (ny * nx).astype(data.dtype), tir.const(0, data.dtype)), axis=[rh, rw])

    if nchw:
        return te.compute((rois.shape[0], channels, ph, pw), value, tag=f"pool,roi_align_{layout.lower()}", name="roi_align")
    shape = (rois.shape[0], ph, pw, channels)
    return te.compute(shape, lambda i, y, x, c: value(i, c, y, x), tag=f"pool,roi_align_{layout.lower()}", name="roi_align")


def roi_align_nchw(data, rois, pooled_size, spatial_scale, mode, sample_ratio=-1):
    """The average (or largest) of bilinear samples in each of the cells that a region is divided into (K. He et al., Mask R-CNN, 2017):
    ``sample_ratio`` of them per cell and axis; below 1, the size of a cell. A region that is larger than the map then ends the run with an
    error, and so does a batch that is not there."""
    return _roi_align(data, rois, pooled_size, spatial_scale, mode, sample_ratio, "NCHW")


def roi_align_nhwc(data, rois, pooled_size, spatial_scale, mode, sample_ratio=-1):
    """:func:`roi_align_nchw` of [N, H, W, C]."""
    return _roi_align(data, rois, pooled_size, spatial_scale, mode, sample_ratio, "NHWC")


def get_valid_counts(data, score_threshold, id_index, score_index):
    """Boxes [B, N, K] with those whose score is above the threshold (and whose class, if ``id_index`` is not negative, is one) in front.

    Returns
    -------
    list of te.Tensor
        How many there are [B], the boxes with -1 in the rest [B, N, K], and where each was [B, N] (-1).
    """
    b, n, k = data.shape
    r = te.reduce_axis((0, n), "r")
    limit = score_threshold() if isinstance(score_threshold, te.Tensor) else tir.const(score_threshold, data.dtype)

    def good(i, j):
        ok = data(i, j, score_index) > limit
        return ok if id_index < 0 else tir.And(ok, data(i, j, id_index) >= tir.const(0, data.dtype))

    count = c_compute([b], lambda i: te.sum(good(i, r).astype("int32"), axis=r), "valid_count", COMM_REDUCE)
    r2 = te.reduce_axis((0, n), "r")
    place = c_compute([b, n], lambda i, j: te.sum(tir.And(r2 < j, good(i, r2)).astype("int32"), axis=r2), "valid_place",
                      COMM_REDUCE)  # fmt: skip
    r3 = te.reduce_axis((0, n), "r")
    at = c_compute([b, n],
                   lambda i, j: te.max(tir.Select(tir.And(good(i, r3), tir.EQ(place(i, r3), j)), r3.var, -1), axis=r3),
                   "valid_indices", COMM_REDUCE)  # fmt: skip
    boxes = injective(
        [b, n, k],
        lambda i, j, e: te.if_then_else(at(i, j) >= 0, data(i, te.max(at(i, j), 0), e), tir.const(-1, data.dtype)),
        "valid_boxes")  # fmt: skip
    return [count, boxes, at]


def multibox_prior(data, sizes=(1,), ratios=(1,), steps=(-1, -1), offsets=(0.5, 0.5), clip=False):
    """Anchor boxes (x0, y0, x1, y1) of the elements of a map [N, C, H, W], in fractions of the image (W. Liu et al., SSD, 2016).

    An element has one box per size, with ratio 1. It has one more box, of the first size, per ratio after the first."""
    height, width = (as_const_int(d) for d in data.shape[2:])
    sides = [(s, s) for s in sizes] + [(sizes[0] * r**0.5, sizes[0] / r**0.5) for r in ratios[1:]]
    n, dtype = len(sides), data.dtype
    step = [s if s > 0 else 1.0 / d for s, d in zip(steps, (height, width))]

    def f(b, k, corner):
        place, kind = te.indexdiv(k, n), te.indexmod(k, n)
        at_y, at_x = te.indexdiv(place, width), te.indexmod(place, width)
        half = tir.const(0.0, dtype)
        for j, (w, h) in enumerate(sides):
            across = tir.EQ(te.indexmod(corner, 2), 0)
            half = tir.Select(tir.EQ(kind, j), tir.Select(across, tir.const(w * height / width / 2, dtype), tir.const(h / 2, dtype)), half)
        y, x = ((v.astype(dtype) + tir.const(o, dtype)) * tir.const(s, dtype) for v, o, s in zip((at_y, at_x), offsets, step))
        centre = tir.Select(tir.EQ(te.indexmod(corner, 2), 0), x, y)
        value = tir.Select(corner < 2, centre - half, centre + half)
        return te.max(te.min(value, tir.const(1.0, dtype)), tir.const(0.0, dtype)) if clip else value

    return te.compute((1, height * width * n, 4), f, name="multibox_prior", tag=INJECTIVE)
