"""Direct convolution of any rank and layout: one definition."""

from ... import te
from ..elemwise import as_type
from ..util import get_pads, sum_type, tuple_of
from .pad import pad

__all__ = ["conv", "conv1d", "conv1d_ncw", "conv1d_nwc", "conv2d", "conv2d_hwcn", "conv2d_nchw", "conv2d_NCHWc",
           "conv2d_nhwc", "conv3d_ncdhw", "conv3d_ndhwc", "depthwise_conv2d_NCHWc", "group_conv1d_ncw",
           "group_conv1d_nwc", "group_conv2d_nchw", "group_conv2d_nhwc"]  # fmt: skip

_KERNEL_LAYOUT = {"NCHW": "OIHW", "NHWC": "HWIO", "HWCN": "HWIO", "NCDHW": "OIDHW", "NDHWC": "DHWIO", "NCW": "OIW",
                  "NWC": "WIO"}  # fmt: skip


def _place(values, where):
    """Values sorted by their positions."""
    return [v for _, v in sorted(zip(where, values), key=lambda t: t[0])]


def conv(inp, filt, stride, padding, dilation, groups, data_layout, kernel_layout="", out_dtype=None):
    """Convolution of ``inp`` with ``filt``.

    ``data_layout`` has one letter per dimension: N, C and spatial letters; ``kernel_layout`` has O, I and the same
    spatial letters (default: the usual partner, e.g. HWIO for NHWC). The output has the data's layout. Both operands are
    converted to ``out_dtype`` (default: the data's type) before they are multiplied, 16-bit floats to float32.
    """
    dim = len(data_layout) - 2
    kernel_layout = kernel_layout or _KERNEL_LAYOUT.get(data_layout, "")
    spatial = [c for c in data_layout if c not in "NC"]
    if sorted(data_layout) != sorted(["N", "C", *spatial]) or sorted(kernel_layout) != sorted(["O", "I", *spatial]):
        raise ValueError(f"data layout {data_layout!r} and kernel layout {kernel_layout!r} do not belong together")
    if len(inp.shape) != dim + 2 or len(filt.shape) != dim + 2:
        raise ValueError(f"layout {data_layout} needs tensors of rank {dim + 2}, not {inp.shape} and {filt.shape}")
    out_dtype = out_dtype or inp.dtype
    acc = sum_type(out_dtype)
    to = [data_layout.index(c) for c in ["N", "C", *spatial]]
    kernel_to = [kernel_layout.index(c) for c in ["O", "I", *spatial]]
    batch, in_ch, *size = [inp.shape[i] for i in to]
    out_ch, group_in, *window = [filt.shape[i] for i in kernel_to]
    if isinstance(in_ch, int) and isinstance(group_in, int) and in_ch != group_in * groups:
        raise ValueError(f"{in_ch} input channels do not match a kernel of {group_in} channels in {groups} group(s)")
    if groups > 1 and out_ch % groups:
        raise ValueError(f"{out_ch} output channels cannot be divided into {groups} groups")
    strides, dilations = tuple_of(stride, dim, "stride"), tuple_of(dilation, dim, "dilation")
    dilated = [(k - 1) * d + 1 for k, d in zip(window, dilations)]
    before, after = get_pads(padding, dilated)
    out = [(s - k + b + a) // st + 1 for s, k, b, a, st in zip(size, dilated, before, after, strides)]
    temp = pad(inp, _place([0, 0, *before], to), _place([0, 0, *after], to), name="pad_temp")
    rc = te.reduce_axis((0, in_ch // groups if groups > 1 else in_ch), "rc")
    rs = [te.reduce_axis((0, k), "r" + c) for k, c in zip(window, "yxz")]

    def f(*v):
        nn, ff, *at = [v[i] for i in to]
        channel = rc if groups == 1 else ff // (out_ch // groups) * (in_ch // groups) + rc
        index = _place([nn, channel, *[a * s + r * d for a, s, r, d in zip(at, strides, rs, dilations)]], to)
        x = temp(*index).astype(acc) * filt(*_place([ff, rc, *rs], kernel_to)).astype(acc)
        return te.sum(x, axis=_place([rc, *rs], to[1:]))

    name = f"{'group_' if groups > 1 else ''}conv{dim}d_{data_layout.lower()}"
    attrs = {"layout_free_placeholders": [filt]} if name == "conv2d_nhwc" else None
    axis_names = _place(["nn", "ff", "yy", "xx", "zz"][: dim + 2], to)
    shape = _place([batch, out_ch, *out], to)
    return as_type(te.compute(shape, f, name=name, tag=name, attrs=attrs, varargs_names=axis_names), out_dtype)


def _fixed(layout, doc):
    def f(data, kernel, stride, padding, dilation, out_dtype=None, **_):
        return conv(data, kernel, stride, padding, dilation, 1, layout, "", out_dtype)

    f.__doc__ = doc
    return f


conv2d_nchw = _fixed("NCHW", "Convolution of [N, C, H, W] with [O, I, H, W].")
conv2d_nhwc = _fixed("NHWC", "Convolution of [N, H, W, C] with [H, W, I, O].")
conv2d_hwcn = _fixed("HWCN", "Convolution of [H, W, C, N] with [H, W, I, O].")


def conv2d(data, kernel, strides, padding, dilation, data_layout="NCHW", kernel_layout="", out_dtype=None):
    """Convolution in a given layout."""
    return conv(data, kernel, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def group_conv2d_nchw(data, kernel, stride, padding, dilation, groups, out_dtype=None):
    """Grouped convolution of [N, C, H, W] with [O, I/groups, H, W]."""
    return conv(data, kernel, stride, padding, dilation, groups, "NCHW", "OIHW", out_dtype)


def group_conv2d_nhwc(data, kernel, stride, padding, dilation, groups, out_dtype=None):
    """Grouped convolution of [N, H, W, C] with [H, W, I/groups, O]."""
    return conv(data, kernel, stride, padding, dilation, groups, "NHWC", "HWIO", out_dtype)


def conv1d_ncw(data, kernel, strides=1, padding="VALID", dilation=1, out_dtype=None):
    """Convolution of [N, C, W] with [O, I, W]."""
    return conv(data, kernel, strides, padding, dilation, 1, "NCW", "OIW", out_dtype)


def conv1d_nwc(data, kernel, strides=1, padding="VALID", dilation=1, out_dtype=None):
    """Convolution of [N, W, C] with [W, I, O]."""
    return conv(data, kernel, strides, padding, dilation, 1, "NWC", "WIO", out_dtype)


def conv3d_ncdhw(data, kernel, stride, padding, dilation, groups=1, out_dtype=None):
    """Convolution of [N, C, D, H, W] with [O, I/groups, D, H, W]."""
    return conv(data, kernel, stride, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


def conv3d_ndhwc(data, kernel, stride, padding, dilation, groups=1, out_dtype=None):
    """Convolution of [N, D, H, W, C] with [D, H, W, I/groups, O]."""
    return conv(data, kernel, stride, padding, dilation, groups, "NDHWC", "DHWIO", out_dtype)


def conv1d(data, kernel, strides=1, padding="VALID", dilation=1, data_layout="NCW", kernel_layout="", out_dtype=None):
    """Convolution over W in a given layout."""
    return conv(data, kernel, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def group_conv1d_ncw(data, kernel, strides=1, padding="VALID", dilation=1, groups=1, out_dtype=None):
    """Grouped convolution of [N, C, W] with [O, I/groups, W]."""
    return conv(data, kernel, strides, padding, dilation, groups, "NCW", "OIW", out_dtype)


def group_conv1d_nwc(data, kernel, strides=1, padding="VALID", dilation=1, groups=1, out_dtype=None):
    """Grouped convolution of [N, W, C] with [W, I/groups, O]."""
    return conv(data, kernel, strides, padding, dilation, groups, "NWC", "WIO", out_dtype)


def conv2d_NCHWc(data, kernel, stride, padding, dilation, layout, out_layout, out_dtype="float32"):  # noqa: N802 (TVM's name)
    """Convolution of [N, C/b, H, W, b] with [O/c, I/b, KH, KW, b, c]; output [N, O/c, H', W', c]."""
    del layout, out_layout  # the shapes say it
    return _blocked(data, kernel, stride, padding, dilation, out_dtype, False)


def depthwise_conv2d_NCHWc(Input, Filter, stride, padding, dilation, layout, out_layout, out_dtype=None):  # noqa: N802
    """Depthwise convolution of [N, C/b, H, W, b] with [C/b, 1, KH, KW, 1, b]; output [N, C/b, H', W', b]."""
    del layout, out_layout
    return _blocked(Input, Filter, stride, padding, dilation, out_dtype, True)


def _blocked(data, kernel, stride, padding, dilation, out_dtype, depthwise):
    n, chunks, h, w, block = data.shape
    out_chunks, _, kh, kw, _, out_block = kernel.shape
    out_dtype = out_dtype or data.dtype
    acc = sum_type(out_dtype)
    (sh, sw), (dh, dw) = tuple_of(stride, 2, "stride"), tuple_of(dilation, 2, "dilation")
    window = ((kh - 1) * dh + 1, (kw - 1) * dw + 1)
    (top, left), (bottom, right) = get_pads(padding, window)
    temp = pad(data, (0, 0, top, left, 0), (0, 0, bottom, right, 0), name="data_pad") if top + left + bottom + right else data
    ry, rx, ic = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw"), te.reduce_axis((0, chunks * block), "ic")
    shape = (n, out_chunks, (h + top + bottom - window[0]) // sh + 1, (w + left + right - window[1]) // sw + 1, out_block)

    def f(b, oc, y, x, ob):
        at = (y * sh + ry * dh, x * sw + rx * dw)
        if depthwise:
            v, k, axes = temp(b, oc, *at, ob), kernel(oc, 0, ry, rx, 0, ob), [ry, rx]
        else:
            v = temp(b, te.indexdiv(ic, block), *at, te.indexmod(ic, block))
            k, axes = kernel(oc, te.indexdiv(ic, block), ry, rx, te.indexmod(ic, block), ob), [ic, ry, rx]
        return te.sum(v.astype(acc) * k.astype(acc), axis=axes)

    name = "DepthwiseConv2d" if depthwise else "conv2d_NCHWc"
    return as_type(te.compute(shape, f, name=name, tag="depthwise_conv2d_NCHWc" if depthwise else name), out_dtype)
