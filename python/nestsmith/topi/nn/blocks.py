"""Elements spread, batches of blocks and buffers: ``dilate``, ``batch_to_space_nd``, ``space_to_batch_nd``, ``fifo_buffer``."""

from ... import te, tir
from ..transform import concatenate, pad, reshape, strided_slice, transpose
from ..util import INJECTIVE, as_const_int, get_const_tuple, get_pads, normal_axis, prod, tuple_of

__all__ = ["batch_to_space_nd", "correlation_nchw", "dilate", "fifo_buffer", "space_to_batch_nd"]


def dilate(data, strides, dilation_value=0.0, name="DilatedInput"):
    """``data`` with ``strides[d] - 1`` elements of a value between neighbours along each dimension."""
    n = len(data.shape)
    if len(strides) != n:
        raise ValueError(f"data dimension and strides size dismatch : {n} vs {len(strides)}")
    steps = tuple_of(strides, n, "strides")
    value = dilation_value if isinstance(dilation_value, tir.Expr) else tir.const(dilation_value, data.dtype)

    def f(*ax):
        here = [tir.EQ(te.indexmod(i, s), 0) for i, s in zip(ax, steps) if s != 1]
        at = [te.indexdiv(i, s) if s != 1 else i for i, s in zip(ax, steps)]
        return te.if_then_else(te.all(*here), data(*at), value) if here else data(*at)

    return te.compute([(d - 1) * s + 1 for d, s in zip(data.shape, steps)], f, name=name, tag="injective,dilate")


def space_to_batch_nd(data, block_shape, pad_before, pad_after, pad_value=0.0):
    """Blocks of the dimensions behind the batch become batches: [N, s..., rest] to [N prod(block), s / block..., rest], as in TensorFlow."""
    block = [as_const_int(b) for b in block_shape]
    m, rank = len(block), len(data.shape)
    before, after = tuple_of(pad_before, m, "pad_before"), tuple_of(pad_after, m, "pad_after")
    rest = rank - 1 - m
    padded = pad(data, (0, *before, *[0] * rest), (0, *after, *[0] * rest), pad_value)
    n, *size = get_const_tuple(padded.shape)
    if any(s % b for s, b in zip(size, block)):
        raise ValueError(f"space_to_batch_nd: the padded extents {size[:m]} are no multiples of the block {block}")
    split = [v for s, b in zip(size, block) for v in (s // b, b)]
    order = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m + 1, 2), *range(2 * m + 1, 2 * m + 1 + rest)]
    moved = transpose(reshape(padded, [n, *split, *size[m:]]), order)
    return reshape(moved, [n * prod(block), *[s // b for s, b in zip(size, block)], *size[m:]])


def batch_to_space_nd(data, block_shape, crop_begin_list, crop_end_list):
    """The inverse of :func:`space_to_batch_nd`; the given amounts are cut off at the ends."""
    block = [as_const_int(b) for b in block_shape]
    m = len(block)
    n, *size = get_const_tuple(data.shape)
    if n % prod(block):
        raise ValueError(f"batch_to_space_nd: a batch of {n} is no multiple of the block {block}")
    order = [m, *[v for d in range(m) for v in (m + 1 + d, d)], *range(2 * m + 1, m + 1 + len(size))]
    whole = [s * b for s, b in zip(size, block)]
    spread = transpose(reshape(data, [*block, n // prod(block), *size]), order)
    out = reshape(spread, [n // prod(block), *whole, *size[m:]])
    begin, end = tuple_of(crop_begin_list, m, "crop_begin_list"), tuple_of(crop_end_list, m, "crop_end_list")
    return strided_slice(out, [0, *begin], [n // prod(block), *[w - e for w, e in zip(whole, end)]])


def fifo_buffer(data, buffer, axis):
    """``buffer`` moved on along ``axis`` so that ``data`` fits in at its end; shapes agree in all other dimensions."""
    a = normal_axis(axis, len(data.shape))
    new = as_const_int(data.shape[a])
    joined = concatenate([buffer, data], a)
    return te.compute(buffer.shape, lambda *ax: joined(*ax[:a], ax[a] + new, *ax[a + 1 :]), name="new_buffer",
                      tag=INJECTIVE)  # fmt: skip


def correlation_nchw(data1, data2, kernel_size, max_displacement, stride1, stride2, padding, is_multiply):
    """Correlation of the patches of two maps [N, C, H, W] (P. Fischer et al., FlowNet, 2015).

    Displacements go up to ``max_displacement`` in steps of ``stride2``. For each of them the result is the mean over channels and patch:
    of products if ``is_multiply``, else of absolute differences."""
    n, channels, *_ = data1.shape
    before, after = get_pads(padding, (kernel_size,) * 2)
    a, b = (pad(x, (0, 0, *before), (0, 0, *after), name=f"pad_{k}") for k, x in enumerate((data1, data2)))
    radius = max_displacement // stride2
    side, border = 2 * radius + 1, max_displacement + (kernel_size - 1) // 2
    size = [-(-(d - 2 * border) // stride1) for d in a.shape[2:]]
    c, ky, kx = (te.reduce_axis((0, d), i) for d, i in ((channels, "rc"), (kernel_size, "ry"), (kernel_size, "rx")))
    combine = (lambda p, q: p * q) if is_multiply else (lambda p, q: te.abs(p - q))

    def f(i, q, y, x):
        dy, dx = (te.indexdiv(q, side) - radius) * stride2, (te.indexmod(q, side) - radius) * stride2
        y1, x1 = y * stride1 + max_displacement + ky, x * stride1 + max_displacement + kx
        return te.sum(combine(a(i, c, y1, x1), b(i, c, y1 + dy, x1 + dx)), axis=[c, ky, kx])

    total = te.compute((n, side * side, *size), f, name="correlation_sum", tag="comm_reduce")
    count = tir.const(float(kernel_size * kernel_size * as_const_int(channels)), data1.dtype)
    return te.compute(total.shape, lambda *ax: total(*ax) / count, name="correlation", tag="correlation_nchw")
