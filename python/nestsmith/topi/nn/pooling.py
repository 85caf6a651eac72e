"""Pooling: windowed, adaptive and global, over any of the dimensions D, H, W of a layout."""

from ... import te, tir
from ..naming import pool_name
from ..transform import pad
from ..util import c_compute, get_pads, layout_axes, mean_type, placed, tuple_of

__all__ = ["adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "global_pool", "pool1d", "pool2d", "pool3d"]


def _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, dims, count_include_pad):
    n, rank = len(dims), len(data.shape)
    if pool_type not in ("max", "avg"):
        raise ValueError(f'pool_type is "max" or "avg", not {pool_type!r}')
    k, s, d = tuple_of(kernel, n, "kernel"), tuple_of(stride, n, "stride"), tuple_of(dilation, n, "dilation")
    before, after = get_pads(padding, [(x - 1) * y + 1 for x, y in zip(k, d)])
    grown = [a + (st - 1 if ceil_mode else 0) for a, st in zip(after, s)]
    sizes = [(data.shape[a] - (k[i] - 1) * d[i] - 1 + before[i] + grown[i]) // s[i] + 1 for i, a in enumerate(dims)]
    shape, temp = placed(data.shape, dims, sizes), data
    if any(before) or any(grown):
        lo, hi = (placed([0] * rank, dims, amounts) for amounts in (before, grown))
        value = tir.neutral_of_max(data.dtype) if pool_type == "max" else tir.const(0, data.dtype)
        temp = pad(data, lo, hi, value, name="pad_temp")
    rv = [te.reduce_axis((0, x), f"rv{i}") for i, x in enumerate(k)]

    def window(ax):
        return placed(ax, dims, [ax[a] * s[i] + rv[i] * d[i] for i, a in enumerate(dims)])

    if pool_type == "max":
        return c_compute(shape, lambda *ax: te.max(temp(*window(ax)), axis=rv), pool_name("pool_max"), "pool_max")
    acc = mean_type(data.dtype)
    values = lambda *ax: te.sum(temp(*window(ax)).astype(acc), axis=rv)  # noqa: E731
    total = c_compute(shape, values, pool_name("pool_sum"), "pool_sum")

    def average(*ax):
        count = 1
        for i, a in enumerate(dims):
            start = ax[a] * s[i] - before[i]
            end = start + (k[i] - 1) * d[i]
            if count_include_pad:
                end = tir.Min(end, data.shape[a] + after[i] - 1)
            else:
                jump = tir.Max(te.truncdiv(d[i] - 1 - start, d[i]), 0)
                end = tir.Min(end, data.shape[a] - 1)
                start = start + jump * d[i]
            inside = te.truncdiv(end - start, d[i]) + 1
            count = inside if i == 0 else count * inside
        if not count_include_pad:
            count = tir.Max(count, 1)
        return tir.Div(total(*ax), tir.Cast(acc, count)).astype(data.dtype)

    return c_compute(shape, average, pool_name("pool_avg"), "elemwise")


def pool1d(data, kernel, stride, dilation, padding, pool_type, ceil_mode=False, layout="NCW", count_include_pad=True):
    """Pooling over W."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout_axes(layout, "W"), count_include_pad)


def pool2d(data, kernel, stride, dilation, padding, pool_type, ceil_mode=False, layout="NCHW", count_include_pad=True):
    """Pooling over H and W. ``pool_type``: ``"max"`` or ``"avg"``; ``count_include_pad``: padded elements count."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout_axes(layout, "HW"), count_include_pad)


def pool3d(data, kernel, stride, dilation, padding, pool_type, ceil_mode=False, layout="NCDHW", count_include_pad=True):
    """Pooling over D, H and W."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout_axes(layout, "DHW"), count_include_pad)


def _adaptive(data, output_size, pool_type, dims):
    if pool_type not in ("max", "avg"):
        raise ValueError(f'pool_type is "max" or "avg", not {pool_type!r}')
    sizes = tuple_of(output_size, len(dims), "output_size")
    shape = placed(data.shape, dims, sizes)

    def windows(ax):
        """Per pooled dimension: first position and number of positions, as expressions of the output index."""
        out = []
        for a, o in zip(dims, sizes):
            size = data.shape[a]
            start, stop = te.indexdiv(ax[a] * size, o), te.indexdiv((ax[a] + 1) * size, o)
            end = tir.Select(tir.EQ(te.indexmod((ax[a] + 1) * size, o), 0), stop, stop + 1)
            out.append((start, end - start))
        return out

    def reduced(reducer, dtype):
        def f(*ax):
            idx, rv = list(ax), []
            for i, (a, (start, extent)) in enumerate(zip(dims, windows(ax))):
                rv.append(te.reduce_axis((0, extent), f"rv{i}"))
                idx[a] = start + rv[-1]
            return reducer(data(*idx).astype(dtype), axis=rv)

        return f

    if pool_type == "max":
        return c_compute(shape, reduced(te.max, data.dtype), pool_name("adaptive_pool_max"), "adaptive_pool_max")
    acc = mean_type(data.dtype)
    total = c_compute(shape, reduced(te.sum, acc), pool_name("adaptive_pool_sum"), "adaptive_pool_sum")

    def average(*ax):
        count = tir.const(1, acc)
        for _, extent in windows(ax):
            count = count * tir.Cast(acc, extent)
        return tir.Div(total(*ax), count).astype(data.dtype)

    return c_compute(shape, average, pool_name("adaptive_pool_avg"), "elemwise")


def adaptive_pool(data, output_size, pool_type, layout="NCHW"):
    """Pooling of H and W to a given output size."""
    return _adaptive(data, output_size, pool_type, layout_axes(layout, "HW"))


def adaptive_pool1d(data, output_size, pool_type, layout="NCW"):
    """Pooling of W to a given output size."""
    return _adaptive(data, output_size, pool_type, layout_axes(layout, "W"))


def adaptive_pool3d(data, output_size, pool_type, layout="NCDHW"):
    """Pooling of D, H and W to a given output size."""
    return _adaptive(data, output_size, pool_type, layout_axes(layout, "DHW"))


def global_pool(data, pool_type, layout="NCHW"):
    """Pooling of all spatial dimensions to 1."""
    return _adaptive(data, 1, pool_type, layout_axes(layout, [c for c in "DHW" if c in layout]))
