"""Direct convolution for CUDA: input and weight of a block in shared memory, tiles of the output in registers."""

from ... import topi
from ..task.topi_integration import register_topi_compute, register_topi_schedule
from .loops import accumulate, apply_unrolling, begin, define_unrolling, fetch, grid_of_tiles


def _define_tiles(cfg, conv):
    for name, axis in zip(("tile_f", "tile_y", "tile_x"), conv.op.axis[1:]):
        cfg.define_split(name, axis, num_outputs=4)
    for name, axis in zip(("tile_rc", "tile_ry", "tile_rx"), conv.op.reduce_axis):
        cfg.define_split(name, axis, num_outputs=2)
    define_unrolling(cfg, [0, 512, 1500])


def _schedule(cfg, s, conv, out):
    pad, kernel = conv.op.input_tensors
    s[pad].compute_inline()
    local = accumulate(s, conv, out)
    shared = [s.cache_read(t, "shared", [local]) for t in (pad, kernel)]
    scope, _, thread = grid_of_tiles(cfg, s, out)
    s[local].compute_at(s[out], thread)
    names = "tile_rc", "tile_ry", "tile_rx"
    outer, inner = zip(*(cfg[name].apply(s, local, axis) for name, axis in zip(names, s[local].op.reduce_axis)))
    s[local].reorder(*outer, *inner, *s[local].op.axis)
    for load in shared:
        s[load].compute_at(s[local], outer[-1])
        fetch(s, load, [cfg[name].size[2] for name in ("tile_f", "tile_y", "tile_x")])
    apply_unrolling(cfg, s[out], scope)


def _count(cfg, conv):
    n = 2
    for length in (*conv.shape, *(axis.dom.extent for axis in conv.op.reduce_axis)):
        n *= topi.get_const_int(length)
    cfg.add_flop(n)


@register_topi_compute("conv2d_nchw.cuda")
def conv2d_nchw_cuda(cfg, data, kernel, strides, padding, dilation, out_dtype="float32"):
    """Convolution of [N, CI, H, W] with [CO, CI, KH, KW]."""
    return topi.nn.conv2d_nchw(data, kernel, strides, padding, dilation, out_dtype)


@register_topi_schedule("conv2d_nchw.cuda")
def schedule_conv2d_nchw_cuda(cfg, outs):
    """One kernel."""
    s, conv, out = begin(outs, "conv2d_nchw")
    _define_tiles(cfg, conv)
    _count(cfg, conv)
    _schedule(cfg, s, conv, out)
    return s
