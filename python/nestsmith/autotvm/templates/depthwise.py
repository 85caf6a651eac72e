"""Depthwise convolution: every channel has its own window."""

from ... import topi
from ...topi.util import get_const_tuple
from ..task.topi_integration import register_topi_compute, register_topi_schedule
from .loops import accumulate, apply_unrolling, begin, bind, define_unrolling, fetch, grid3, grid_of_tiles
from .spatial_pack import UNROLL, VECTORS

_TAG = {"NCHW": "depthwise_conv2d_nchw", "NHWC": "depthwise_conv2d_nhwc"}


# ---- Mali ----
def _define_mali(cfg, out, layout):
    n, *rest = (cfg.axis(x) for x in get_const_tuple(out.shape))
    c, h, w = rest if layout == "NCHW" else (rest[2], rest[0], rest[1])
    ci, hi, wi = (
        cfg.define_split(name, axis, num_outputs=3)[-1] for name, axis in (("tile_c", c), ("tile_y", h), ("tile_x", w))
    )
    cfg.define_annotate("ann_spatial", [ci, hi, wi], policy="try_unroll_vec")
    if cfg.is_fallback:
        for name in ("tile_c", "tile_y", "tile_x"):
            cfg.fallback_split(name, [-1, 4, 2])


def _schedule_mali(cfg, outs, layout):
    s, conv, out = begin(outs, _TAG[layout])
    pad = conv.op.input_tensors[0]
    channels = cfg["tile_c"].size[1]
    n, *rest = s[pad].op.axis
    grid3(s[pad], rest, (channels, 1, 1) if layout == "NCHW" else (1, 1, channels), batch=n)

    local = accumulate(s, conv, out)
    n, *rest = s[out].op.axis
    names = ("tile_c", "tile_y", "tile_x") if layout == "NCHW" else ("tile_y", "tile_x", "tile_c")
    tiles = [cfg[name].apply(s, out, axis) for name, axis in zip(names, rest)]
    (bz, tz, _), (by, ty, _), (bx, tx, _) = tiles
    bind(s[out], (s[out].fuse(n, bz), tz, by, ty, bx, tx),
         "blockIdx.z threadIdx.z blockIdx.y threadIdx.y blockIdx.x threadIdx.x")

    _, *rest = s[local].op.axis
    for axis in s[local].op.reduce_axis:
        s[local].unroll(axis)
    s[local].compute_at(s[out], tx)
    c, h, w = rest if layout == "NCHW" else (rest[2], rest[0], rest[1])
    sizes = [cfg[name].size[-1] for name in ("tile_c", "tile_y", "tile_x")]
    cfg["ann_spatial"].apply(s, local, [c, h, w], axis_lens=sizes, max_unroll=UNROLL, vec_size=list(VECTORS), cfg=cfg)
    return s


@register_topi_compute("depthwise_conv2d_nchw.mali")
def depthwise_conv2d_nchw_mali(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """Depthwise convolution of [N, C, H, W] with [C, M, KH, KW]."""
    out = topi.nn.depthwise_conv2d_nchw(data, kernel, strides, padding, dilation, out_dtype)
    _define_mali(cfg, out, "NCHW")
    return out


@register_topi_schedule("depthwise_conv2d_nchw.mali")
def schedule_depthwise_conv2d_nchw_mali(cfg, outs):
    """Tiles of channels, rows and columns for threads; the padded input is a kernel of its own."""
    return _schedule_mali(cfg, outs, "NCHW")


@register_topi_compute("depthwise_conv2d_nhwc.mali")
def depthwise_conv2d_nhwc_mali(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """Depthwise convolution of [N, H, W, C] with [KH, KW, C, M]."""
    out = topi.nn.depthwise_conv2d_nhwc(data, kernel, strides, padding, dilation, out_dtype=out_dtype)
    _define_mali(cfg, out, "NHWC")
    return out


@register_topi_schedule("depthwise_conv2d_nhwc.mali")
def schedule_depthwise_conv2d_nhwc_mali(cfg, outs):
    """As for NCHW, with channels along x."""
    return _schedule_mali(cfg, outs, "NHWC")


# ---- CUDA ----
@register_topi_compute("depthwise_conv2d_nchw.cuda")
def depthwise_conv2d_nchw_cuda(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """Depthwise convolution of [N, C, H, W] with [C, M, KH, KW]."""
    out = topi.nn.depthwise_conv2d_nchw(data, kernel, strides, padding, dilation, out_dtype)
    _, *lengths = get_const_tuple(out.shape)
    for name, length in zip(("tile_f", "tile_y", "tile_x"), lengths):
        cfg.define_split(name, cfg.axis(length), num_outputs=4)
    define_unrolling(cfg, [0, 256, 1500])
    if cfg.is_fallback:
        cfg["unroll_explicit"].val = 0
    return out


@register_topi_schedule("depthwise_conv2d_nchw.cuda")
def schedule_depthwise_conv2d_nchw_cuda(cfg, outs):
    """Input and weight of a block in shared memory, those of a thread in registers."""
    s, conv, out = begin(outs, _TAG["NCHW"])
    pad, kernel = conv.op.input_tensors
    s[pad].compute_inline()
    local = accumulate(s, conv, out)
    shared = [s.cache_read(t, "shared", [local]) for t in (pad, kernel)]
    own = [s.cache_read(t, "local", [local]) for t in shared]
    scope, block, thread = grid_of_tiles(cfg, s, out)
    s[local].compute_at(s[out], thread)
    for load in shared:
        s[load].compute_at(s[out], block)
        fetch(s, load, [cfg[name].size[2] for name in ("tile_f", "tile_y", "tile_x")], neighbours=True)
    for load in own:
        s[load].compute_at(s[out], thread)
    apply_unrolling(cfg, s[out], scope)
    return s


# ---- ARM CPUs ----
@register_topi_compute("depthwise_conv2d_nchw.arm_cpu")
def depthwise_conv2d_nchw_arm(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """Depthwise convolution of [N, C, H, W] with [C, M, KH, KW]."""
    out = topi.nn.depthwise_conv2d_nchw(data, kernel, strides, padding, dilation, out_dtype)
    _, c, h, w = (cfg.axis(x) for x in get_const_tuple(out.shape))
    vc, vh, vw = (
        cfg.define_split(name, axis, num_outputs=2)[-1] for name, axis in (("tile_c", c), ("tile_h", h), ("tile_w", w))
    )
    cfg.define_annotate("ann", [vh, vw, vc], policy="try_unroll_vec")
    if cfg.is_fallback:
        for name, most in (("tile_c", 4), ("tile_h", 2), ("tile_w", 4)):
            cfg.fallback_split(name, [-1, most])
    return out


@register_topi_schedule("depthwise_conv2d_nchw.arm_cpu")
def schedule_depthwise_conv2d_nchw_arm(cfg, outs):
    """Channels run in parallel; a tile of channels, rows and columns is summed in registers."""
    s, conv, out = begin(outs, _TAG["NCHW"])
    s[conv.op.input_tensors[0]].compute_inline()
    local = s.cache_write(conv, "global")
    if conv.op != out.op:
        s[conv].compute_inline()
    n, c, h, w = s[out].op.axis
    co, vc = cfg["tile_c"].apply(s, out, c)
    ho, vh = cfg["tile_h"].apply(s, out, h)
    wo, vw = cfg["tile_w"].apply(s, out, w)
    s[out].reorder(n, co, ho, wo, vh, vw, vc)
    s[out].parallel(s[out].fuse(n, co))
    s[local].compute_at(s[out], wo)
    _, c, h, w = s[local].op.axis
    kh, kw = s[local].op.reduce_axis
    s[local].reorder(kh, kw, h, w, c)
    sizes = [cfg[name].size[-1] for name in ("tile_h", "tile_w", "tile_c")]
    cfg["ann"].apply(s, local, [h, w, c], axis_lens=sizes, max_unroll=UNROLL, cfg=cfg)
    return s
