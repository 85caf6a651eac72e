"""Transposed convolution: the data is spread by the strides, padded, and convolved with the flipped kernel."""

from ... import te, tir
from ..elemwise import as_type
from ..util import get_pads, in_layout, layout_axes, sum_type, tuple_of

__all__ = ["conv1d_transpose_ncw", "conv2d_transpose", "conv2d_transpose_nchw", "conv3d_transpose_ncdhw",
           "group_conv2d_transpose_nchw"]  # fmt: skip

_INDICES = {1: ["x"], 2: ["y", "x"], 3: ["z", "y", "x"]}


def _transposed(data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype, output_padding, letters):
    """The transposed convolution over the dimensions ``letters`` of the layouts."""
    dim = len(letters)
    out_dtype = out_dtype or data.dtype
    acc = sum_type(out_dtype)
    dpos, kpos = layout_axes(data_layout, f"NC{letters}"), layout_axes(kernel_layout, f"IO{letters}")
    n, ci, *size = (data.shape[p] for p in dpos)
    kci, co, *window = (kernel.shape[p] for p in kpos)
    if kci != ci or ci % groups:
        raise ValueError(f"{ci} input channels do not match a kernel of {kci} in {groups} group(s)")
    stride, extra = tuple_of(strides, dim, "strides"), tuple_of(output_padding, dim, "output_padding")
    step = tuple_of(dilation, dim, "dilation")
    if not all(0 <= o < max(s, d) for o, s, d in zip(extra, stride, step)):
        raise ValueError(f"output_padding {extra} must be smaller than the strides {stride} or the dilation")
    last = [d * (k - 1) for d, k in zip(step, window)]
    before, after = get_pads(padding, tuple(v + 1 for v in last))
    out = [(s - 1) * st + v + 1 - b - a + o for s, st, v, b, a, o in zip(size, stride, last, before, after, extra)]
    low, high = [v - b for v, b in zip(last, before)], [v - a + o for v, a, o in zip(last, after, extra)]
    dilated = [st * (s - 1) + 1 for st, s in zip(stride, size)]

    def spread(*ax):
        n, c, *at = (ax[p] for p in dpos)
        cond = []
        for i, lo, d, st in reversed(list(zip(at, low, dilated, stride))):
            cond += [i >= lo, i < lo + d, tir.EQ(te.indexmod(i - lo, st), 0)]
        source = [te.indexdiv(i - lo, st) for i, lo, st in zip(at, low, stride)]
        return te.if_then_else(te.all(*cond), data(*in_layout([n, c, *source], dpos)), tir.const(0, data.dtype))

    shape = in_layout([n, ci, *[lo + d + hi for lo, d, hi in zip(low, dilated, high)]], dpos)
    names = in_layout(["n", "c", *_INDICES[dim]], dpos)
    temp = te.compute(shape, spread, name="data_pad", varargs_names=names)
    dc = te.reduce_axis((0, ci // groups), "dc")
    ks = [te.reduce_axis((0, k), f"d{c.lower()}") for k, c in zip(window, letters)]

    def f(*ax):
        b, c, *at = (ax[p] for p in dpos)
        channel = te.indexdiv(c, co) * (ci // groups) + dc
        x = temp(*in_layout([b, channel, *[i + k * d for i, k, d in zip(at, ks, step)]], dpos))
        k = kernel(*in_layout([channel, te.indexmod(c, co), *[n - 1 - r for n, r in zip(window, ks)]], kpos))
        return te.sum(x.astype(acc) * k.astype(acc), axis=[dc, *ks])

    shape = in_layout([n, co * groups, *out], dpos)
    names = in_layout(["b", "c", *letters.lower()], dpos)
    tag = f"conv{dim}d_transpose_{data_layout.lower()}"
    return as_type(te.compute(shape, f, tag=tag, varargs_names=names), out_dtype)


def conv2d_transpose(data, kernel, strides, padding, dilation=1, groups=1, data_layout="NCHW", kernel_layout="IOHW",
                     out_dtype=None, output_padding=0):  # fmt: skip
    """Data in any order of N, C, H, W, and the output in the same; kernel in any order of I (channels of the data), O
    (channels of the output per group), H, W."""
    return _transposed(data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype, output_padding, "HW")


def conv1d_transpose_ncw(data, kernel, stride, padding, out_dtype=None, output_padding=0):
    """Data [N, CI, W], kernel [CI, CO, kw]; output [N, CO, W']."""
    return _transposed(data, kernel, stride, padding, 1, 1, "NCW", "IOW", out_dtype, output_padding, "W")


def conv3d_transpose_ncdhw(data, kernel, strides, padding, out_dtype=None, output_padding=0):
    """Data [N, CI, D, H, W], kernel [CI, CO, kd, kh, kw]; output [N, CO, D', H', W']."""
    return _transposed(data, kernel, strides, padding, 1, 1, "NCDHW", "IODHW", out_dtype, output_padding, "DHW")


def group_conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype=None, output_padding=0, groups=1):
    """Data [N, CI, H, W], kernel [CI, CO/groups, kh, kw]; output [N, CO, H', W']."""
    return conv2d_transpose(data, kernel, strides, padding, groups=groups, out_dtype=out_dtype,
                            output_padding=output_padding)  # fmt: skip


def conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype=None, output_padding=0):
    """:func:`group_conv2d_transpose_nchw` with one group."""
    return group_conv2d_transpose_nchw(data, kernel, strides, padding, out_dtype, output_padding, 1)


def conv_transpose(data, kernel, strides, padding, dilation=1, groups=1, data_layout="NCHW", kernel_layout="IOHW",
                   out_dtype=None, output_padding=0):  # fmt: skip
    """:func:`conv2d_transpose` over one, two or three dimensions: those letters of ``data_layout`` that are not N or C."""
    letters = "".join(c for c in "DHW" if c in data_layout)
    return _transposed(data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype, output_padding, letters)
