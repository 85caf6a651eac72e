"""Transposed convolution: the data is spread by the strides, padded, and convolved with the flipped kernel."""

from __future__ import annotations

from ... import te, tir
from ..elemwise import as_type
from ..util import get_pads, in_layout, layout_axes, sum_type, tuple_of


def conv2d_transpose(
    data,
    kernel,
    strides,
    padding,
    dilation=1,
    groups=1,
    data_layout="NCHW",
    kernel_layout="IOHW",
    out_dtype=None,
    output_padding=0,
):
    """Data in any order of N, C, H, W, and the output in the same; kernel in any order of I (channels of the data), O
    (channels of the output per group), H, W."""
    out_dtype = out_dtype or data.dtype
    acc = sum_type(out_dtype)
    dpos, kpos = layout_axes(data_layout, "NCHW"), layout_axes(kernel_layout, "IOHW")
    n, ci, h, w = (data.shape[p] for p in dpos)
    kci, co, kh, kw = (kernel.shape[p] for p in kpos)
    if kci != ci or ci % groups:
        raise ValueError(f"{ci} input channels do not match a kernel of {kci} in {groups} group(s)")
    (sh, sw), (oh, ow) = tuple_of(strides, 2, "strides"), tuple_of(output_padding, 2, "output_padding")
    step_h, step_w = tuple_of(dilation, 2, "dilation")
    if not (0 <= oh < max(sh, step_h) and 0 <= ow < max(sw, step_w)):
        raise ValueError(f"output_padding {(oh, ow)} must be smaller than the strides {(sh, sw)} or the dilation")
    last_h, last_w = step_h * (kh - 1), step_w * (kw - 1)
    (pt, pl), (pb, pr) = get_pads(padding, (last_h + 1, last_w + 1))
    out_h, out_w = (h - 1) * sh + last_h + 1 - pt - pb + oh, (w - 1) * sw + last_w + 1 - pl - pr + ow
    t, b, l, r = last_h - pt, last_h - pb + oh, last_w - pl, last_w - pr + ow
    dh_, dw_ = sh * (h - 1) + 1, sw * (w - 1) + 1

    def spread(*ax):
        n, c, y, x = (ax[p] for p in dpos)
        cond = te.all(
            x >= l, x < l + dw_, tir.EQ(te.indexmod(x - l, sw), 0),
            y >= t, y < t + dh_, tir.EQ(te.indexmod(y - t, sh), 0),
        )
        at = in_layout([n, c, te.indexdiv(y - t, sh), te.indexdiv(x - l, sw)], dpos)
        return te.if_then_else(cond, data(*at), tir.const(0, data.dtype))

    shape = in_layout([n, ci, t + dh_ + b, l + dw_ + r], dpos)
    temp = te.compute(shape, spread, name="data_pad", varargs_names=in_layout(["n", "c", "y", "x"], dpos))
    dc = te.reduce_axis((0, ci // groups), "dc")
    dh, dw = te.reduce_axis((0, kh), "dh"), te.reduce_axis((0, kw), "dw")

    def f(*ax):
        b, c, h, w = (ax[p] for p in dpos)
        channel = te.indexdiv(c, co) * (ci // groups) + dc
        x = temp(*in_layout([b, channel, h + dh * step_h, w + dw * step_w], dpos))
        k = kernel(*in_layout([channel, te.indexmod(c, co), kh - 1 - dh, kw - 1 - dw], kpos))
        return te.sum(x.astype(acc) * k.astype(acc), axis=[dc, dh, dw])

    shape, names = in_layout([n, co * groups, out_h, out_w], dpos), in_layout(["b", "c", "h", "w"], dpos)
    tag = "conv2d_transpose_nchw" if data_layout == "NCHW" else f"conv2d_transpose_{data_layout.lower()}"
    return as_type(te.compute(shape, f, tag=tag, varargs_names=names), out_dtype)


def group_conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype=None, output_padding=0, groups=1):
    """Data [N, CI, H, W], kernel [CI, CO/groups, kh, kw]; output [N, CO, H', W']."""
    return conv2d_transpose(
        data, kernel, strides, padding, groups=groups, out_dtype=out_dtype, output_padding=output_padding
    )


def conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype=None, output_padding=0):
    """:func:`group_conv2d_transpose_nchw` with one group."""
    return group_conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype, output_padding, 1)
