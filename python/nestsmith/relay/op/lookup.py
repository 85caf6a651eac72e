"""Operators that look elements up by indices: take, gather, one_hot."""

from __future__ import annotations

import numpy as np

from ... import topi
from ...numerics import is_float
from ..ty import Any, TensorType
from .registry import ANCHOR, FOLLOW, INJECTIVE, as_expr, call, norm_axis, register, tensor

__all__ = ["take", "gather", "gather_nd", "one_hot"]


def _data_and_indices(types):
    t, i = tensor(types, 0), tensor(types, 1)
    if is_float(i.dtype):
        raise ValueError(f"the indices are {i.dtype}; they must be integers")
    return t, i


def _take_infer(attrs, types):
    t, i = _data_and_indices(types)
    if attrs.axis is None:
        return TensorType(i.shape, t.dtype)
    axis = norm_axis(attrs.axis, len(t.shape))
    b = attrs.get("batch_dims", 0)
    b = b + len(i.shape) if b < 0 else b
    if not 0 <= b <= min(axis, len(i.shape)):
        raise ValueError(f"batch_dims {attrs.batch_dims} must be at most the axis {axis} and the rank of the indices")
    for p, q in zip(t.shape[:b], i.shape[:b]):
        if p != q and not isinstance(p, Any) and not isinstance(q, Any):
            raise ValueError(f"the batch dimensions of {t} and {i} differ")
    return TensorType(t.shape[:axis] + i.shape[b:] + t.shape[axis + 1 :], t.dtype)


def _ev_take(attrs, x, i):
    i = i.astype("int64")
    n = x.size if attrs.axis is None else x.shape[attrs.axis]
    i = i % n if attrs.mode == "wrap" else np.clip(i, 0, n - 1)
    b = attrs.get("batch_dims", 0)
    b = b + i.ndim if b < 0 else b
    if not b:
        return np.take(x, i, attrs.axis)
    parts = [np.take(x[at], i[at], attrs.axis % x.ndim - b) for at in np.ndindex(*i.shape[:b])]
    return np.stack(parts).reshape(i.shape[:b] + parts[0].shape)


register(
    "take",
    INJECTIVE,
    _take_infer,
    _ev_take,
    loops=lambda a, x, c, t: topi.take(x[0], x[1], a.axis, a.batch_dims, a.mode),
    ranked=False,
)


def take(data, indices, axis=None, batch_dims=0, mode="clip"):
    """Elements of `data` at `indices` along `axis` (None: of the flat array); the first `batch_dims` axes of both are the
    same. mode: clip, wrap or fast (no check)."""
    if mode not in ("clip", "wrap", "fast"):
        raise ValueError(f"mode {mode!r}; use 'clip', 'wrap' or 'fast'")
    return call(
        "take",
        [data, as_expr(indices)],
        axis=None if axis is None else int(axis),
        batch_dims=int(batch_dims),
        mode=mode,
    )


def _gather_infer(attrs, types):
    t, i = _data_and_indices(types)
    return TensorType(i.shape, t.dtype)


register(
    "gather",
    INJECTIVE,
    _gather_infer,
    lambda attrs, x, i: np.take_along_axis(x, i.astype("int64"), attrs.axis),
    loops=lambda a, x, c, t: topi.gather(x[0], a.axis, x[1]),
    ranked=False,
)


def gather(data, axis, indices):
    """``out[..i..] = data[.., indices[..i..], ..]`` along `axis`."""
    return call("gather", [data, indices], axis=int(axis))


def _gather_nd_infer(attrs, types):
    t, i = _data_and_indices(types)
    return TensorType(i.shape[1:] + t.shape[i.shape[0] :], t.dtype)


def _gather_nd_loops(a, x, c, t):
    data, idx = x
    m, rank = c.args[1].checked_type.shape[0], len(c.args[1].checked_type.shape) - 1

    def f(*ax):
        return data(*[idx(k, *ax[:rank]) for k in range(m)], *ax[rank:])

    return topi.util.c_compute(c.checked_type.shape, f, "T_gather_nd", topi.util.INJECTIVE)


register(
    "gather_nd",
    INJECTIVE,
    _gather_nd_infer,
    lambda attrs, x, i: x[tuple(i.astype("int64"))],
    loops=_gather_nd_loops,
    ranked=False,
)


def gather_nd(data, indices):
    """Elements at index tuples given along the first axis of `indices`."""
    return call("gather_nd", [data, indices])


def _one_hot_infer(attrs, types):
    t = tensor(types, 0)
    shape = list(t.shape)
    shape.insert(norm_axis(attrs.axis, len(shape) + 1), attrs.depth)
    return TensorType(shape, attrs.dtype)


def _one_hot_loops(a, x, c, t):
    return topi.one_hot(x[0], x[1], x[2], a.depth, a.axis, a.dtype)


register("one_hot", ANCHOR, _one_hot_infer, colour=FOLLOW, loops=_one_hot_loops, ranked=False)


def one_hot(indices, on_value, off_value, depth, axis, dtype):
    """`on_value` at the index, else `off_value`, along a new axis of extent `depth`."""
    return call(
        "one_hot", [indices, as_expr(on_value), as_expr(off_value)], depth=int(depth), axis=int(axis), dtype=dtype
    )
