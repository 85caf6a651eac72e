"""Convolution with spatial packing: input tiles and blocks of output channels are packed, so that the inner loops run over
both without gaps.

One definition per layout; Mali GPUs and ARM CPUs schedule it in their ways. Three kernels on a GPU: packing of the input, the
convolution, unpacking with whatever follows.
"""

from ... import te, topi
from ...numerics import sum_type
from ...topi.util import get_const_tuple, get_pad_tuple
from ..task.topi_integration import register_topi_compute, register_topi_schedule
from .loops import begin, current_target, extent, grid3, is_computed, spread
from .packing import packed

UNROLL, VECTORS = 16, (1, 2, 4, 8, 16)
_NCHW, _NHWC = "spatial_conv2d_output", "spatial_conv_output_NHWC"


def _window(size, kernel, strides, padding, dilation):
    """(output height and width, padding)"""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    pads = get_pad_tuple(padding, reach)
    out = [(n + before + after - r) // s + 1
           for n, r, s, before, after in zip(size, reach, strides, pads[:2], pads[2:])]
    return out, pads


def _define_tiles(cfg, co, oh, ow, num_tile):
    """Splits of channels, rows and columns, and their innermost axes."""
    names = ("tile_co", co), ("tile_oh", oh), ("tile_ow", ow)
    splits = [cfg.define_split(name, axis, num_outputs=num_tile) for name, axis in names]
    return [x for split in splits for x in (split[0], split[-1])]


def _fallback(cfg, num_tile):
    """A configuration that is never far off where nothing is recorded."""
    middle = [4] * (num_tile - 2)
    cfg.fallback_split("tile_co", [-1, *middle, 4])
    cfg.fallback_split("tile_oh", [-1, *middle, 1])
    cfg.fallback_split("tile_ow", [-1, *middle, 4])


def _compute_nchw(cfg, data, kernel, strides, padding, dilation, out_dtype, num_tile):
    dtype, (n_, ci_, ih, iw) = out_dtype or data.dtype, get_const_tuple(data.shape)
    acc = sum_type(dtype)
    pre_packed = len(kernel.shape) == 5
    co_, _, kh_, kw_, *block = get_const_tuple(kernel.shape)
    co_ *= block[0] if pre_packed else 1
    (sh, sw), (dh, dw) = strides, dilation
    (oh_, ow_), (pt, pl, pb, pr) = _window((ih, iw), (kh_, kw_), strides, padding, dilation)
    pad = topi.nn.pad(data, (0, 0, pt, pl), (0, 0, pb, pr), name="data_pad")

    n, ci, kh, kw = cfg.axis(n_), cfg.reduce_axis(ci_), cfg.reduce_axis(kh_), cfg.reduce_axis(kw_)
    co, vc, oh, vh, ow, vw = _define_tiles(cfg, cfg.axis(co_), cfg.axis(oh_), cfg.axis(ow_), num_tile)
    outer = [n, co, oh, ow, ci, kh, kw]
    cfg.define_reorder("reorder_0", [*outer, vh, vw, vc], policy="candidate",
                       candidate=[[*outer, vh, vw, vc], [*outer, vc, vh, vw]])
    cfg.define_annotate("ann_reduce", [kh, kw], policy="try_unroll")
    cfg.define_annotate("ann_spatial", [vh, vw, vc], policy="try_unroll_vec")
    if cfg.is_fallback:
        _fallback(cfg, num_tile)
    VC, VH, VW = (cfg[name].size[-1] for name in ("tile_co", "tile_oh", "tile_ow"))

    if (dh, dw) == (1, 1):  # a tile with its rim
        tile = te.compute((n_, oh_ // VH, ow_ // VW, ci_, (VH - 1) * sh + kh_, (VW - 1) * sw + kw_),
                          lambda n, h, w, ci, vh, vw: pad(n, ci, h * VH * sh + vh, w * VW * sw + vw), name="data_vec")
    else:  # all that one element of the output reads
        tile = te.compute(
            (n_, oh_ // VH, ow_ // VW, ci_, kh_, kw_, VH, VW),
            lambda n, h, w, ci, kh, kw, vh, vw: pad(n, ci, (h * VH + vh) * sh + kh * dh, (w * VW + vw) * sw + kw * dw),
            name="data_vec_undilated",
        )
    weight = kernel
    if not pre_packed:
        weight = packed(kernel, (co_ // VC, ci_, kh_, kw_, VC),
                        lambda co, ci, kh, kw, vc: kernel(co * VC + vc, ci, kh, kw), (0, 1, 2, 3, 0), "kernel_vec")
    rc, ry, rx = te.reduce_axis((0, ci_), "ci"), te.reduce_axis((0, kh_), "kh"), te.reduce_axis((0, kw_), "kw")

    def product(n, co, h, w, vh, vw, vc):
        at = (vh * sh + ry, vw * sw + rx) if (dh, dw) == (1, 1) else (ry, rx, vh, vw)
        x = tile(n, h, w, rc, *at).astype(acc) * weight(co, rc, ry, rx, vc).astype(acc)
        return te.sum(x, axis=[rc, ry, rx])

    conv = te.compute((n_, co_ // VC, oh_ // VH, ow_ // VW, VH, VW, VC), product, name="conv")
    return te.compute((n_, co_, oh_, ow_),
                      lambda n, c, h, w: conv(n, c // VC, h // VH, w // VW, h % VH, w % VW, c % VC).astype(dtype),
                      name="output_unpack", tag=_NCHW)


def _compute_nhwc(cfg, data, kernel, strides, padding, dilation, out_dtype):
    dtype, (n_, ih, iw, ic_) = out_dtype or data.dtype, get_const_tuple(data.shape)
    acc = sum_type(dtype)
    kh_, kw_, _, oc_ = get_const_tuple(kernel.shape)
    (sh, sw), (dh, dw) = strides, dilation
    (oh_, ow_), (pt, pl, pb, pr) = _window((ih, iw), (kh_, kw_), strides, padding, dilation)
    pad = topi.nn.pad(data, (0, pt, pl, 0), (0, pb, pr, 0), name="data_pad")

    n, ic, kh, kw = cfg.axis(n_), cfg.reduce_axis(ic_), cfg.reduce_axis(kh_), cfg.reduce_axis(kw_)
    oco, oci, oho, ohi, owo, owi = _define_tiles(cfg, cfg.axis(oc_), cfg.axis(oh_), cfg.axis(ow_), 3)
    order = [n, oho, owo, oco, kh, kw, ic, ohi, owi, oci]
    orders = [order, [n, oho, owo, oco, ohi, kh, kw, ic, owi, oci], [n, oho, owo, oco, ohi, kh, kw, owi, ic, oci],
              [n, oho, owo, ohi, oco, kh, kw, owi, ic, oci]]
    cfg.define_reorder("reorder_conv", order, policy="candidate", candidate=orders)
    cfg.define_annotate("ann_reduce", [kh, kw], policy="try_unroll")
    cfg.define_annotate("ann_spatial", [owi, oci], policy="try_unroll_vec")
    if cfg.is_fallback:
        _fallback(cfg, 3)
    OCI, OHI, OWI = (cfg[name].size[-1] for name in ("tile_co", "tile_oh", "tile_ow"))

    if (dh, dw) == (1, 1):
        tile = te.compute((n_, oh_ // OHI, ow_ // OWI, kh_ + (OHI - 1) * sh, kw_ + (OWI - 1) * sw, ic_),
                          lambda n, oho, owo, ohi, owi, ic: pad(n, oho * OHI * sh + ohi, owo * OWI * sw + owi, ic),
                          name="data_vec")
    else:
        tile = te.compute(
            (n_, oh_ // OHI, ow_ // OWI, kh_, kw_, ic_, OHI, OWI),
            lambda n, oho, owo, kh, kw, ic, ohi, owi: pad(n, (oho * OHI + ohi) * sh + kh * dh,
                                                          (owo * OWI + owi) * sw + kw * dw, ic),
            name="data_vec_undilated",
        )
    weight = packed(kernel, (oc_ // OCI, kh_, kw_, ic_, OCI),
                    lambda oco, kh, kw, ic, oci: kernel(kh, kw, ic, oco * OCI + oci), (3, 0, 1, 2, 3), "kernel_vec")
    rc, ry, rx = te.reduce_axis((0, ic_), "ic"), te.reduce_axis((0, kh_), "kh"), te.reduce_axis((0, kw_), "kw")

    def product(n, oho, owo, oco, ohi, owi, oci):
        at = (ohi * sh + ry, owi * sw + rx, rc) if (dh, dw) == (1, 1) else (ry, rx, rc, ohi, owi)
        return te.sum(tile(n, oho, owo, *at).astype(acc) * weight(oco, ry, rx, rc, oci).astype(acc), axis=[ry, rx, rc])

    conv = te.compute((n_, oh_ // OHI, ow_ // OWI, oc_ // OCI, OHI, OWI, OCI), product, name="conv")
    return te.compute((n_, oh_, ow_, oc_),
                      lambda n, h, w, c: conv(n, h // OHI, w // OWI, c // OCI, h % OHI, w % OWI, c % OCI).astype(dtype),
                      name="output_unpack", tag=_NHWC)


def _parts(s, output):
    """The stages before the unpacking: convolution, packed input and weight; the padding is inlined."""
    (conv,) = s[output].op.input_tensors
    tile, weight = s[conv].op.input_tensors
    (pad,) = s[tile].op.input_tensors
    s[pad].compute_inline()
    return conv, tile, weight


# ---- Mali ----
def _pack_on_gpu(s, tile, weight, block, lanes, spatial):
    """Packing of the input and, where it is not done ahead of time, of the weight."""
    most = current_target().max_num_threads
    axes = s[tile].op.axis
    spread(s[tile], axes[:spatial], 64 if most >= 64 else 32)
    for axis in axes[spatial:]:
        if extent(axis) < UNROLL:
            s[tile].unroll(axis)
    if is_computed(weight):
        rest, inner = s[weight].split(s[weight].fuse(*s[weight].op.axis), factor=block)
        spread(s[weight], (rest,), most)
        if block in lanes:
            s[weight].vectorize(inner)


@register_topi_compute("conv2d_nchw_spatial_pack.mali")
def conv2d_nchw_mali(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """Convolution of [N, CI, H, W] with [CO, CI, KH, KW], or with a weight that is packed already: [CO/v, CI, KH, KW, v]."""
    return _compute_nchw(cfg, data, kernel, strides, padding, dilation, out_dtype, num_tile=3)


def _schedule_mali(cfg, outs, tag):
    s, output, out = begin(outs, tag)
    conv, tile, weight = _parts(s, output)
    channels_first = tag == _NCHW
    names = ("tile_co", "tile_oh", "tile_ow") if channels_first else ("tile_oh", "tile_ow", "tile_co")
    threads = [cfg[name].size[1] for name in names]
    _pack_on_gpu(s, tile, weight, cfg["tile_co"].size[-1], VECTORS, 4 if channels_first else 3)

    n, z, y, x, *inner = s[conv].op.axis
    sums = s[conv].op.reduce_axis
    window = list(sums[1:] if channels_first else sums[:2])
    cfg["ann_reduce"].apply(s, conv, window, axis_lens=[extent(a) for a in window], max_unroll=UNROLL, cfg=cfg)
    cfg["reorder_0" if channels_first else "reorder_conv"].apply(s, conv, [n, z, y, x, *sums, *inner])
    grid3(s[conv], (z, y, x), threads, batch=n)
    tiled = inner if channels_first else inner[1:]
    lens = [cfg[name].size[-1] for name in ("tile_oh", "tile_ow", "tile_co")][-len(tiled):]
    cfg["ann_spatial"].apply(s, conv, tiled, axis_lens=lens, max_unroll=UNROLL, vec_size=list(VECTORS), cfg=cfg)
    if output.op != out.op:
        s[output].compute_inline()
    n, *axes = s[out].op.axis
    grid3(s[out], axes, threads, batch=n)
    return s


@register_topi_schedule("conv2d_nchw_spatial_pack.mali")
def schedule_conv2d_nchw_mali(cfg, outs):
    """Blocks of threads over channels, rows and columns; one thread computes a tile."""
    return _schedule_mali(cfg, outs, _NCHW)


@register_topi_compute("conv2d_nhwc_spatial_pack.mali")
def conv2d_nhwc_mali(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """Convolution of [N, H, W, CI] with [KH, KW, CI, CO]."""
    return _compute_nhwc(cfg, data, kernel, strides, padding, dilation, out_dtype)


@register_topi_schedule("conv2d_nhwc_spatial_pack.mali")
def schedule_conv2d_nhwc_mali(cfg, outs):
    """As for NCHW, with channels along x."""
    return _schedule_mali(cfg, outs, _NHWC)


# ---- ARM CPUs ----
@register_topi_compute("conv2d_nchw_spatial_pack.arm_cpu")
def conv2d_nchw_arm(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """Convolution of [N, CI, H, W] with [CO, CI, KH, KW], or with a weight that is packed already: [CO/v, CI, KH, KW, v]."""
    return _compute_nchw(cfg, data, kernel, strides, padding, dilation, out_dtype, num_tile=2)


@register_topi_schedule("conv2d_nchw_spatial_pack.arm_cpu")
def schedule_conv2d_nchw_arm(cfg, outs):
    """Blocks of channels run in parallel; a tile stays in registers."""
    s, output, out = begin(outs, _NCHW)
    conv, tile, weight = _parts(s, output)
    sizes = [cfg[name].size[-1] for name in ("tile_oh", "tile_ow", "tile_co")]

    n, c, h, w, vh, vw, vc = s[conv].op.axis
    ci, kh, kw = s[conv].op.reduce_axis
    cfg["reorder_0"].apply(s, conv, [n, c, h, w, ci, kh, kw, vh, vw, vc])
    cfg["ann_reduce"].apply(s, conv, [kh, kw], axis_lens=[extent(kh), extent(kw)], max_unroll=UNROLL, cfg=cfg)
    cfg["ann_spatial"].apply(s, conv, [vh, vw, vc], axis_lens=sizes, max_unroll=UNROLL, cfg=cfg)

    n, c, h, w = s[out].op.axis
    co, vc = cfg["tile_co"].apply(s, out, c)
    oh, vh = cfg["tile_oh"].apply(s, out, h)
    ow, vw = cfg["tile_ow"].apply(s, out, w)
    s[out].reorder(n, co, oh, ow, vh, vw, vc)
    if output.op != out.op:
        s[output].compute_inline()
        cfg["ann_spatial"].apply(s, out, [vh, vw, vc], axis_lens=sizes, max_unroll=UNROLL, cfg=cfg)
    s[conv].compute_at(s[out], ow)
    s[out].parallel(co)
    s[tile].parallel(s[tile].op.axis[1])
    if is_computed(weight):
        s[weight].parallel(s[weight].op.axis[0])
    return s
