"""Convolutions for x86 CPUs with blocks of channels innermost: data [N, C/b, H, W, b], so that a vector is a block of channels
and a row of them stays in registers.

Data and weights in the usual layout are packed first; while a template is tuned, the packed ones are its arguments.
"""

from ... import te, topi
from ...numerics import sum_type
from ...topi.util import get_const_tuple, get_pad_tuple
from ..env import GLOBAL_SCOPE
from ..task.space import OtherOptionEntity, SplitEntity
from ..task.topi_integration import register_topi_compute, register_topi_schedule
from .loops import begin, is_computed, largest_divisor, simd_lanes, unroll_within
from .packing import packed

_CONV, _DEPTHWISE = "conv2d_NCHWc", "depthwise_conv2d_NCHWc"


def _output(size, window, strides, padding, dilation):
    """((height, width), padding)"""
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilation)]
    pads = get_pad_tuple(padding, reach)
    return [(n + a + b - r) // s + 1 for n, r, s, a, b in zip(size, reach, strides, pads[:2], pads[2:])], pads


def _define(cfg, ci, co, oh, ow, pointwise, policy):
    cfg.define_split("tile_ic", ci, num_outputs=2)
    cfg.define_split("tile_oc", co, num_outputs=2)
    cfg.define_split("tile_ow", ow, num_outputs=2, filter=lambda y: y.size[-1] <= 64, policy=policy)
    if pointwise:
        cfg.define_knob("tile_oh", [1, 2] if oh > 1 else [1])
    else:
        cfg.define_knob("unroll_kw", [True, False])


def _fallback(cfg, ci, co, oh, ow, pointwise):
    """Blocks of the width of a vector and as many columns as registers hold."""
    oc = largest_divisor(co, simd_lanes())
    ic = largest_divisor(ci, oc)
    cfg["tile_ic"], cfg["tile_oc"] = SplitEntity([ci // ic, ic]), SplitEntity([co // oc, oc])
    if not pointwise:
        columns = largest_divisor(ow, 31)
        cfg["tile_ow"], cfg["unroll_kw"] = SplitEntity([ow // columns, columns]), OtherOptionEntity(False)
        return
    for columns in (d for d in range(ow, 0, -1) if ow % d == 0):
        for rows in (d for d in range(oh, 0, -1) if oh % d == 0):
            if columns * rows < 32:
                cfg["tile_oh"], cfg["tile_ow"] = OtherOptionEntity(rows), SplitEntity([ow // columns, columns])
                return


def _channels(data):
    """(N, C, H, W) of data in the usual layout or in blocks."""
    n, c, h, w, *block = get_const_tuple(data.shape)
    return n, c * (block[0] if block else 1), h, w


def _packed_data(data, block):
    """Data in blocks of so many channels, whether it comes in the usual layout or in other blocks."""
    n, c, h, w = _channels(data)
    shape, have = (n, c // block, h, w, block), get_const_tuple(data.shape)[4:]
    if have == (block,):
        return data
    if GLOBAL_SCOPE.in_tuning:
        return te.placeholder(shape, data.dtype, name="data")

    def element(n, c, h, w, v):
        channel = c * block + v
        return data(n, channel // have[0], h, w, channel % have[0]) if have else data(n, channel, h, w)

    return te.compute(shape, element, name="data_vec")


def _packed_weight(kernel, ic, oc):
    co, ci, kh, kw = get_const_tuple(kernel.shape)
    return packed(kernel, (co // oc, ci // ic, kh, kw, ic, oc),
                  lambda k, c, y, x, vc, vk: kernel(k * oc + vk, c * ic + vc, y, x), (0, 1, 2, 3, 1, 0), "kernel_vec")


def _padded(data, pads):
    pt, pl, pb, pr = pads
    return topi.nn.pad(data, (0, 0, pt, pl, 0), (0, 0, pb, pr, 0), name="data_pad") if any(pads) else data


# ---- schedules ----
def _schedule_inputs(s, data, weight):
    """Padding and packing, which run in one go where there are both."""
    packing = data.op.input_tensors[0] if is_computed(data) and "pad" in data.op.tag else None
    if is_computed(data):
        if packing is not None and is_computed(packing):
            s[packing].compute_inline()
        n, c, h, _, v = s[data].op.axis
        s[data].vectorize(v)
        s[data].parallel(s[data].fuse(n, c, h))
    if is_computed(weight):
        k, c, y, x, vc, vk = s[weight].op.axis
        s[weight].reorder(k, y, c, x, vc, vk)
        s[weight].vectorize(vk)
        s[weight].parallel(s[weight].fuse(k, y))


def _tiles(stage, axes, oc, rows, columns):
    """Orders the loops of an output [N, C/oc, H, W, oc] or [N, C, H, W] by tiles of rows and columns; the outer ones are
    fused. Returns (fused, outer columns)."""
    if len(axes) == 5:
        n, k, h, w, v = axes
    else:
        n, k, h, w = axes
        k, v = stage.split(k, factor=oc)
    ho, hi = stage.split(h, factor=rows) if rows else (h, None)
    wo, wi = stage.split(w, factor=columns)
    stage.reorder(n, k, ho, wo, *([hi] if rows else []), wi, v)
    stage.vectorize(v)
    return stage.fuse(n, k, ho), wo


def _schedule_output(s, conv, out, oc, rows, columns):
    """Loops of the convolution's stage and of what follows it; returns (fused, outer columns) of the former."""
    fused, wo = _tiles(s[conv], s[conv].op.axis, oc, rows, columns)
    if conv.op == out.op:
        s[conv].parallel(fused)
        return fused, wo
    outer, _ = _tiles(s[out], s[out].op.axis, oc, rows, columns)
    s[conv].compute_at(s[out], outer)
    s[out].parallel(outer)
    return fused, wo


# ---- convolution ----
@register_topi_compute("conv2d_NCHWc.x86")
def conv2d_nchwc(cfg, data, kernel, strides, padding, dilation, layout, out_layout, out_dtype):
    """Convolution of [N, CI, H, W], or of blocks of channels, with [CO, CI, KH, KW], or with the packed weight; the result is
    [N, CO/b, H', W', b]. The layouts are part of the workload and no more."""
    n, ci, ih, iw = _channels(data)
    co, _, kh, kw, *blocks = get_const_tuple(kernel.shape)
    co *= blocks[1] if blocks else 1
    (oh, ow), pads = _output((ih, iw), (kh, kw), strides, padding, dilation)
    pointwise = (kh, kw) == (1, 1)
    _define(cfg, ci, co, oh, ow, pointwise, "verbose")
    if cfg.is_fallback:
        _fallback(cfg, ci, co, oh, ow, pointwise)
    if not blocks:
        ic, oc = cfg["tile_ic"].size[-1], cfg["tile_oc"].size[-1]
        data, kernel = _packed_data(data, ic), _packed_weight(kernel, ic, oc)
    ic, oc = get_const_tuple(kernel.shape)[4:]
    dtype = out_dtype or data.dtype
    acc = sum_type(dtype)
    padded, (sh, sw), (dh, dw) = _padded(data, pads), strides, dilation
    rc, ry, rx = te.reduce_axis((0, ci), "ic"), te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")
    conv = te.compute(
        (n, co // oc, oh, ow, oc),
        lambda n, k, h, w, v: te.sum(
            padded(n, rc // ic, h * sh + ry * dh, w * sw + rx * dw, rc % ic).astype(acc)
            * kernel(k, rc // ic, ry, rx, rc % ic, v).astype(acc),
            axis=[rc, ry, rx],
        ),
        name="conv2d_NCHWc",
        tag=_CONV,
    )
    return topi.cast(conv, dtype) if dtype != acc else conv


def _sum_window(cfg, s, part, ic):
    """The sum of a row of columns, in registers."""
    _, k, h, w, v = s[part].op.axis
    c, kh, kw = s[part].op.reduce_axis
    wo, wi = s[part].split(w, factor=cfg["tile_ow"].size[-1])
    co, ci = s[part].split(c, factor=ic)
    unroll = cfg["unroll_kw"].val
    s[part].reorder(k, h, wo, co, kh, *((ci, kw) if unroll else (kw, ci)), wi, v)
    s[part].vectorize(v)
    unroll_within(s[part], [(wi, cfg["tile_ow"].size[-1]), *([(kw, None)] if unroll else [])])


def _sum_point(cfg, s, part, ic):
    """The same for a window of one element: a tile of rows and columns."""
    rows, columns = cfg["tile_oh"].val, cfg["tile_ow"].size[-1]
    _, k, h, w, v = s[part].op.axis
    co, ci = s[part].split(s[part].op.reduce_axis[0], factor=ic)
    ho, hi = s[part].split(h, factor=rows)
    wo, wi = s[part].split(w, factor=columns)
    s[part].reorder(k, ho, wo, co, ci, hi, wi, v)
    s[part].fuse(k, ho)
    s[part].vectorize(v)
    unroll_within(s[part], [(wi, columns), (hi, rows)])


@register_topi_schedule("conv2d_NCHWc.x86")
def schedule_conv2d_nchwc(cfg, outs):
    """Rows run in parallel; a tile of columns (of rows and columns, if the window is one element) is summed in registers."""
    s, conv, out = begin(outs, _CONV, same_shape=False)
    data, weight = s[conv].op.input_tensors
    _schedule_inputs(s, data, weight)
    ic, oc = get_const_tuple(weight.shape)[4:]
    pointwise = get_const_tuple(weight.shape)[2:4] == (1, 1)
    part = s.cache_write(conv, "global")
    rows = cfg["tile_oh"].val if pointwise else 0
    fused, wo = _schedule_output(s, conv, out, oc, rows, cfg["tile_ow"].size[-1])
    s[part].compute_at(s[conv], fused if pointwise else wo)
    (_sum_point if pointwise else _sum_window)(cfg, s, part, ic)
    return s


# ---- depthwise convolution ----
@register_topi_compute("depthwise_conv2d_NCHWc.x86")
def depthwise_conv2d_nchwc(cfg, data, kernel, strides, padding, dilation, layout, out_layout, out_dtype):
    """Depthwise convolution of [N, C, H, W], or of blocks of channels, with [C, 1, KH, KW], or with the packed weight; the
    result is [N, C/b, H', W', b]."""
    n, c, ih, iw = _channels(data)
    _, multiplier, kh, kw, *blocks = get_const_tuple(kernel.shape)
    if multiplier != 1:
        raise ValueError(f"depthwise_conv2d_NCHWc.x86 takes one filter for each channel, not {multiplier}")
    (oh, ow), pads = _output((ih, iw), (kh, kw), strides, padding, dilation)
    _define(cfg, c, c, oh, ow, False, "factors")
    if cfg.is_fallback:
        _fallback(cfg, c, c, oh, ow, False)
    if not blocks:
        ic, oc = cfg["tile_ic"].size[-1], cfg["tile_oc"].size[-1]
        data, kernel = _packed_data(data, ic), _packed_weight(kernel, 1, oc)
    ic, oc = get_const_tuple(data.shape)[4], get_const_tuple(kernel.shape)[5]
    dtype = out_dtype or data.dtype
    acc = sum_type(dtype)
    padded, (sh, sw), (dh, dw) = _padded(data, pads), strides, dilation
    ry, rx = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")

    def body(n, k, h, w, v):
        channel = k * oc + v
        x = padded(n, channel // ic, h * sh + ry * dh, w * sw + rx * dw, channel % ic).astype(acc)
        return te.sum(x * kernel(k, 0, ry, rx, 0, v).astype(acc), axis=[ry, rx])

    conv = te.compute((n, c // oc, oh, ow, oc), body, name="DepthwiseConv2d", tag=_DEPTHWISE)
    return topi.cast(conv, dtype) if dtype != acc else conv


@register_topi_schedule("depthwise_conv2d_NCHWc.x86")
def schedule_depthwise_conv2d_nchwc(cfg, outs):
    """Rows run in parallel; a tile of columns is summed in registers."""
    s, conv, out = begin(outs, _DEPTHWISE, same_shape=False)
    data, weight = s[conv].op.input_tensors
    _schedule_inputs(s, data, weight)
    part = s.cache_write(conv, "global")
    columns = cfg["tile_ow"].size[-1]
    _, wo = _schedule_output(s, conv, out, cfg["tile_oc"].size[-1], 0, columns)
    s[part].compute_at(s[conv], wo)
    _, k, h, w, v = s[part].op.axis
    kh, kw = s[part].op.reduce_axis
    s[part].reorder(k, h, kh, kw, w, v)
    s[part].vectorize(v)
    unroll_within(s[part], [(w, columns), *([(kw, None)] if cfg["unroll_kw"].val else [])])
    return s
