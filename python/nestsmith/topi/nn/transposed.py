"""Transposed convolution: the data is spread by the strides, padded, and convolved with the flipped kernel."""

from __future__ import annotations

from ... import te, tir
from ..util import get_pads, tuple_of


def group_conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype=None, output_padding=0, groups=1):
    """Data [N, CI, H, W], kernel [CI, CO/groups, kh, kw]; output [N, CO, H', W']."""
    out_dtype = out_dtype or data.dtype
    n, ci, h, w = data.shape
    kci, co, kh, kw = kernel.shape
    if kci != ci or ci % groups:
        raise ValueError(f"{ci} input channels do not match a kernel of {kci} in {groups} group(s)")
    (sh, sw), (oh, ow) = tuple_of(strides, 2, "strides"), tuple_of(output_padding, 2, "output_padding")
    if not (0 <= oh < sh and 0 <= ow < sw):
        raise ValueError(f"output_padding {(oh, ow)} must be smaller than the strides {(sh, sw)}")
    (pt, pl), (pb, pr) = get_pads(padding, (kh, kw))
    out_h, out_w = (h - 1) * sh + kh - pt - pb + oh, (w - 1) * sw + kw - pl - pr + ow
    t, b, l, r = kh - 1 - pt, kh - 1 - pb + oh, kw - 1 - pl, kw - 1 - pr + ow
    dh_, dw_ = sh * (h - 1) + 1, sw * (w - 1) + 1

    def spread(n, c, y, x):
        cond = te.all(
            x >= l, x < l + dw_, tir.EQ(te.indexmod(x - l, sw), 0),
            y >= t, y < t + dh_, tir.EQ(te.indexmod(y - t, sh), 0),
        )
        return te.if_then_else(
            cond, data(n, c, te.indexdiv(y - t, sh), te.indexdiv(x - l, sw)), tir.const(0, data.dtype)
        )

    temp = te.compute((n, ci, t + dh_ + b, l + dw_ + r), spread, name="data_pad")
    dc = te.reduce_axis((0, ci // groups), "dc")
    dh, dw = te.reduce_axis((0, kh), "dh"), te.reduce_axis((0, kw), "dw")

    def f(b, c, h, w):
        channel = te.indexdiv(c, co) * (ci // groups) + dc
        x = temp(b, channel, h + dh, w + dw).astype(out_dtype)
        return te.sum(
            x * kernel(channel, te.indexmod(c, co), kh - 1 - dh, kw - 1 - dw).astype(out_dtype), axis=[dc, dh, dw]
        )

    return te.compute((n, co * groups, out_h, out_w), f, tag="conv2d_transpose_nchw")


def conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype=None, output_padding=0):
    """:func:`group_conv2d_transpose_nchw` with one group."""
    return group_conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype, output_padding, 1)
