"""Depthwise convolution: every input channel has its own filters (``M`` of them, the channel multiplier)."""

from ... import te
from ..elemwise import as_type
from ..util import get_pad_tuple, get_pads, sum_type, tuple_of
from .blocks import dilate
from .pad import pad

__all__ = ["depthwise_conv2d_backward_input_nhwc", "depthwise_conv2d_backward_weight_nhwc", "depthwise_conv2d_nchw",
           "depthwise_conv2d_nhwc"]  # fmt: skip


def _plan(size, window, stride, padding, dilation):
    s, d = tuple_of(stride, 2, "stride"), tuple_of(dilation, 2, "dilation")
    dilated = [(k - 1) * x + 1 for k, x in zip(window, d)]
    before, after = get_pads(padding, dilated)
    out = [(i - k + b + a) // st + 1 for i, k, b, a, st in zip(size, dilated, before, after, s)]
    axes = te.reduce_axis((0, window[0]), "di"), te.reduce_axis((0, window[1]), "dj")
    return s, d, before, after, out, axes


def depthwise_conv2d_nhwc(data, kernel, stride, padding, dilation=1, kernel_layout="HWOI", out_dtype=None):
    """Data [N, H, W, C], kernel [kh, kw, C, M] (``HWOI``) or [kh, kw, M, C] (``HWIO``); output [N, H', W', C*M]."""
    out_dtype = out_dtype or data.dtype
    acc = sum_type(out_dtype)
    n, h, w, c = data.shape
    if kernel_layout not in ("HWOI", "HWIO"):
        raise ValueError(f"kernel_layout is HWOI or HWIO, not {kernel_layout!r}")
    swap = kernel_layout == "HWIO"
    kh, kw, kc, m = kernel.shape
    if swap:
        kc, m = m, kc
    if kc != c:
        raise ValueError(f"the kernel has {kc} channels, the data {c}")
    s, d, before, after, out, (di, dj) = _plan((h, w), (kh, kw), stride, padding, dilation)
    temp = pad(data, [0, *before, 0], [0, *after, 0], name="PaddedInput")

    def f(b, i, j, c):
        last = (te.indexdiv(c, m), te.indexmod(c, m))
        x = temp(b, i * s[0] + di * d[0], j * s[1] + dj * d[1], te.indexdiv(c, m)).astype(acc)
        return te.sum(x * kernel(di, dj, *(last[::-1] if swap else last)).astype(acc), axis=[di, dj])

    return as_type(te.compute((n, *out, c * m), f, name="DepthwiseConv2d", tag="depthwise_conv2d_nhwc"), out_dtype)


def depthwise_conv2d_nchw(data, kernel, stride, padding, dilation=1, out_dtype=None):
    """Data [N, C, H, W], kernel [C, M, kh, kw]; output [N, C*M, H', W']."""
    out_dtype = out_dtype or data.dtype
    acc = sum_type(out_dtype)
    n, c, h, w = data.shape
    kc, m, kh, kw = kernel.shape
    if kc != c:
        raise ValueError(f"the kernel has {kc} channels, the data {c}")
    s, d, before, after, out, (di, dj) = _plan((h, w), (kh, kw), stride, padding, dilation)
    temp = pad(data, [0, 0, *before], [0, 0, *after], name="PaddedInput")

    def f(b, c, i, j):
        x = temp(b, te.indexdiv(c, m), i * s[0] + di * d[0], j * s[1] + dj * d[1]).astype(acc)
        return te.sum(x * kernel(te.indexdiv(c, m), te.indexmod(c, m), di, dj).astype(acc), axis=[di, dj])

    return as_type(te.compute((n, c * m, *out), f, name="DepthwiseConv2d", tag="depthwise_conv2d_nchw"), out_dtype)


def depthwise_conv2d_backward_input_nhwc(Filter, Out_grad, oshape, ishape, stride, padding):
    """The gradient of the data [N, H, W, C] of a depthwise convolution, of its kernel [kh, kw, C, M] and the result's gradient
    [N, H', W', C M]; ``oshape``, ``ishape``: the shapes of result and data."""
    n, _, _, channels = oshape
    kh, kw, c, m = Filter.shape
    (sh, sw), (top, left, _, _) = tuple_of(stride, 2, "stride"), get_pad_tuple(padding, (kh, kw))
    spread = dilate(Out_grad, [1, sh, sw, 1], name="dilated_out_grad")
    low = kh - 1 - top, kw - 1 - left
    grown = [i + k - 1 - b - d for i, k, b, d in zip(ishape[1:3], (kh, kw), low, spread.shape[1:3])]
    if min(low) < 0 or min(grown) < 0:
        raise ValueError(f"depthwise_conv2d_backward_input_nhwc: padding {padding} is larger than the window {(kh, kw)} allows")
    padded = pad(spread, [0, *low, 0], [0, *grown, 0], name="padded_out_grad")
    dh, dw, dc = te.reduce_axis((0, kh), "dh"), te.reduce_axis((0, kw), "dw"), te.reduce_axis((0, m), "dc")

    def f(b, h, w, i):
        return te.sum(padded[b, h + dh, w + dw, i * m + dc] * Filter[kh - 1 - dh, kw - 1 - dw, i, dc], axis=[dh, dw, dc])

    return te.compute((n, *ishape[1:3], c), f, tag="depthwise_conv2d_backward_input_nhwc")


def depthwise_conv2d_backward_weight_nhwc(Input, Out_grad, oshape, fshape, stride, padding):
    """The gradient of the kernel [kh, kw, C, M] of a depthwise convolution, of its data [N, H, W, C] and the result's gradient
    [N, H', W', C M]; ``oshape``, ``fshape``: the shapes of result and kernel."""
    n, oh, ow, _ = oshape
    kh, kw, c, m = fshape
    (sh, sw), (top, left, bottom, right) = tuple_of(stride, 2, "stride"), get_pad_tuple(padding, (kh, kw))
    padded = pad(Input, [0, top, left, 0], [0, bottom, right, 0], name="padded_in")
    b, h, w = te.reduce_axis((0, n), "dn"), te.reduce_axis((0, oh), "dh"), te.reduce_axis((0, ow), "dw")

    def f(i, j, ch, k):
        return te.sum(Out_grad[b, h, w, ch * m + te.indexmod(k, m)] * padded[b, h * sh + i, w * sw + j, ch], axis=[b, h, w])

    return te.compute((kh, kw, c, m), f, tag="depthwise_conv2d_backward_weight_nhwc")
