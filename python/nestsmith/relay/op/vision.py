"""Detection operators, as :mod:`nestsmith.topi.vision` defines them."""

from ... import check, topi
from ..expr import TupleWrapper
from .derived import derive
from .registry import OPAQUE, as_expr, call, ints

__all__ = ["get_valid_counts", "multibox_prior", "roi_align", "roi_pool", "yolo_reorg"]


def _aligned(a, x):
    f = {"NCHW": topi.vision.roi_align_nchw, "NHWC": topi.vision.roi_align_nhwc}[a.layout]
    return f(x[0], x[1], a.pooled_size, a.spatial_scale, a.mode, a.sample_ratio)


derive("vision.roi_align", _aligned, OPAQUE)
derive("vision.roi_pool", lambda a, x: topi.vision.roi_pool_nchw(x[0], x[1], a.pooled_size, a.spatial_scale), OPAQUE)
derive("vision.yolo_reorg", lambda a, x: topi.vision.reorg(x[0], a.stride), OPAQUE)
derive("vision.get_valid_counts", lambda a, x: topi.vision.get_valid_counts(x[0], x[1], a.id_index, a.score_index), OPAQUE)
derive("vision.multibox_prior", lambda a, x: topi.vision.multibox_prior(x[0], a.sizes, a.ratios, a.steps, a.offsets, a.clip), OPAQUE)


def roi_align(data, rois, pooled_size, spatial_scale, sample_ratio=-1, layout="NCHW", mode="avg"):
    """Means (mode max: maxima) of bilinear samples in the cells that each of the regions `rois` [R, 5] (batch, x0, y0, x1, y1) is divided
    into; `sample_ratio` of them per cell and axis, below 1 as many as the size of the region needs."""
    check.one_of_names("layout", layout, ("NCHW", "NHWC"))
    check.one_of_names("mode", mode, ("avg", "max"))
    more = {"spatial_scale": float(spatial_scale), "sample_ratio": int(sample_ratio), "layout": layout, "mode": mode}
    return call("vision.roi_align", [data, rois], pooled_size=ints(pooled_size), **more)


def roi_pool(data, rois, pooled_size, spatial_scale, layout="NCHW"):
    """The largest element in each of the cells that regions `rois` [R, 5] are divided into; 0 for an empty cell."""
    check.one_of_names("layout", layout, ("NCHW",))
    return call("vision.roi_pool", [data, rois], pooled_size=ints(pooled_size), spatial_scale=float(spatial_scale), layout=layout)


def yolo_reorg(data, stride):
    """Channels and blocks of space exchanged, [N, C, H, W] to [N, C s^2, H/s, W/s], in Darknet's order."""
    return call("vision.yolo_reorg", [data], stride=int(stride))


def get_valid_counts(data, score_threshold, id_index=0, score_index=1):
    """Boxes [B, N, K] whose score is above the threshold, in front: their count [B], the boxes, and where each was [B, N]."""
    made = call("vision.get_valid_counts", [data, as_expr(score_threshold)], id_index=int(id_index), score_index=int(score_index))
    return TupleWrapper(made, 3)


def multibox_prior(data, sizes=(1.0,), ratios=(1.0,), steps=(-1.0, -1.0), offsets=(0.5, 0.5), clip=False):
    """Boxes [1, H W (S + R - 1), 4] around the elements of a map [N, C, H, W]: all sizes, and the first one with the other ratios."""
    numbers = {k: tuple(map(float, v)) for k, v in (("sizes", sizes), ("ratios", ratios), ("steps", steps), ("offsets", offsets))}
    return call("vision.multibox_prior", [data], **numbers, clip=bool(clip))
