"""Operators that join tensors and cut them: concatenate, stack, split, slices."""

import numpy as np

from ... import topi
from ..expr import TupleWrapper
from ..ty import Any, TensorType, TupleType
from . import layout as layouts
from .layout import Plan, first
from .registry import INJECTIVE, as_expr, call, ints, norm_axis, register, tensor

__all__ = ["concatenate", "stack", "split", "strided_slice", "slice_like"]


def _fields(types):
    if not isinstance(types[0], TupleType) or not types[0].fields:
        raise ValueError("the argument must be a non-empty tuple of tensors")
    return types[0].fields


def _concat_infer(attrs, types):
    fields = _fields(types)
    first = fields[0]
    axis = norm_axis(attrs.axis, len(first.shape))
    total = 0
    for f in fields:
        pairs = enumerate(zip(f.shape, first.shape))
        same = all(i == axis or a == b or isinstance(a, Any) or isinstance(b, Any) for i, (a, b) in pairs)
        if len(f.shape) != len(first.shape) or not same or f.dtype != first.dtype:
            raise ValueError(f"{f} does not match {first} beside axis {axis}")
        total = total + f.shape[axis]
    shape = list(first.shape)
    shape[axis] = total
    return TensorType(shape, first.dtype)


register("concatenate", INJECTIVE, _concat_infer, lambda attrs, xs: np.concatenate(xs, attrs.axis),
         layout=layouts.concatenate, loops=lambda a, x, c, t: topi.concatenate(x[0], a.axis))  # fmt: skip


def concatenate(data, axis):
    """Joins a tuple or list of tensors along `axis`."""
    return call("concatenate", [as_expr(data)], axis=int(axis))


def _stack_infer(attrs, types):
    fields = _fields(types)
    axis = norm_axis(attrs.axis, len(fields[0].shape) + 1)
    shape = list(fields[0].shape)
    shape.insert(axis, len(fields))
    return TensorType(shape, fields[0].dtype)


register("stack", INJECTIVE, _stack_infer, lambda attrs, xs: np.stack(xs, attrs.axis),
         loops=lambda a, x, c, t: topi.stack(x[0], a.axis), ranked=False)  # fmt: skip


def stack(data, axis):
    """Joins tensors of one shape along a new axis."""
    return call("stack", [as_expr(data)], axis=int(axis))


def split_points(attrs, extent):
    """Begin of every part and the end of the last."""
    s = attrs.indices_or_sections
    if isinstance(s, int):
        if s <= 0 or extent % s:
            raise ValueError(f"{s} equal parts of extent {extent}")
        return [i * (extent // s) for i in range(s + 1)]
    points = [0, *s, extent]
    if any(b < a for a, b in zip(points, points[1:])):
        raise ValueError(f"indices {tuple(s)} do not ascend within extent {extent}")
    return points


def _split_infer(attrs, types):
    t = tensor(types, 0)
    axis = norm_axis(attrs.axis, len(t.shape))
    p = split_points(attrs, t.shape[axis])
    return TupleType([TensorType(t.shape[:axis] + (b - a,) + t.shape[axis + 1 :], t.dtype) for a, b in zip(p, p[1:])])


def _split_loops(a, x, c, t):
    s = a.indices_or_sections
    return list(topi.split(x[0], s if isinstance(s, int) else list(s), a.axis))


register("split", INJECTIVE, _split_infer,
         lambda attrs, x: np.split(x, split_points(attrs, x.shape[attrs.axis])[1:-1], attrs.axis),
         layout=layouts.along_axis, loops=_split_loops)  # fmt: skip


def split(data, indices_or_sections, axis=0):
    """Cuts along `axis` into equal parts (an int) or at the given indices. Returns several results."""
    s = indices_or_sections if isinstance(indices_or_sections, int) else ints(indices_or_sections)
    return TupleWrapper(call("split", [data], indices_or_sections=s, axis=int(axis)),
                        s if isinstance(s, int) else len(s) + 1)  # fmt: skip


def slice_ranges(attrs, shape):
    """(begin, end, stride) for every dimension, clamped to the extents."""
    rank = len(shape)
    axes = attrs.get("axes")
    axes = range(len(attrs.begin)) if axes is None else [norm_axis(a, rank) for a in axes]
    strides = attrs.get("strides") or (1,)
    out = [(0, d, 1) for d in shape]
    for k, a in enumerate(axes):
        n, b, e = shape[a], attrs.begin[k], attrs.end[k] if k < len(attrs.end) else shape[a]
        st = strides[k] if k < len(strides) else (strides[0] if len(strides) == 1 else 1)
        if attrs.get("slice_mode", "end") == "size":
            st, e = 1, n if e < 0 else b + e
        if st == 0:
            raise ValueError("a stride must not be 0")
        lo, hi = (0, n) if st > 0 else (-1, n - 1)
        b = min(max(b + n if b < 0 else b, lo), hi)
        e = min(max(e + n if e < 0 and not (st < 0 and e < -n) else e, lo), hi)
        out[a] = (b, e, st)
    return out


def _extent(r):
    b, e, s = r
    return max(0, -((b - e) // s) if s > 0 else -((e - b) // -s))


def _strided_slice_infer(attrs, types):
    t = tensor(types, 0)
    if t.is_static:
        return TensorType([_extent(r) for r in slice_ranges(attrs, t.shape)], t.dtype)
    rank = len(t.shape)
    cut = range(len(attrs.begin)) if attrs.get("axes") is None else [norm_axis(a, rank) for a in attrs.axes]
    known = slice_ranges(attrs, [2**30 if isinstance(d, Any) else d for d in t.shape])
    return TensorType([(Any() if i in cut else d) if isinstance(d, Any) else _extent(known[i]) for i, d in enumerate(t.shape)], t.dtype)


def _ev_slice(attrs, x):
    index = [np.arange(b, b + _extent((b, e, s)) * s, s) for b, e, s in slice_ranges(attrs, x.shape)]
    return x[np.ix_(*index)] if index else x


def _slice_layout(e, has, want):
    at = first(e, has)
    if at is None:
        return None
    a = e.attrs
    axes = range(len(a.begin)) if a.get("axes") is None else a.axes
    return Plan([at], at, {"axes": tuple(at.axis(k) for k in axes)})


def _strided_slice_loops(a, x, c, t):
    begin, end, stride = zip(*slice_ranges(a, c.args[0].checked_type.concrete_shape))
    return topi.strided_slice(x[0], list(begin), [e if e >= 0 else -(2**30) for e in end], list(stride))


register("strided_slice", INJECTIVE, _strided_slice_infer, _ev_slice, layout=_slice_layout, loops=_strided_slice_loops)


def strided_slice(data, begin, end, strides=None, axes=None, slice_mode="end"):
    """A slice with strides; negative indices count from the end. ``slice_mode="size"``: `end` holds sizes."""
    return call("strided_slice", [data], begin=ints(begin), end=ints(end),
                strides=ints(strides) if strides is not None else (1,), axes=None if axes is None else ints(axes),
                slice_mode=slice_mode)  # fmt: skip


def slice_like(data, shape_like, axes=()):
    """A slice from 0 to the extents of another tensor on `axes` (all if empty)."""
    t, like = data.checked_type, shape_like.checked_type
    if not (t.is_static and like.is_static):
        return call("slice_like", [data, shape_like], axes=tuple(axes or ()))
    axes = [norm_axis(a, len(t.shape)) for a in axes or ()] or list(range(min(len(t.shape), len(like.shape))))
    return strided_slice(data, [0] * len(axes), [like.shape[a] for a in axes], axes=axes)


def _like_axes(attrs, rank, most):
    return [norm_axis(a, rank) for a in attrs.axes] or list(range(most))


def _slice_like_infer(attrs, types):
    t, like = tensor(types, 0), tensor(types, 1)
    shape = list(t.shape)
    for a in _like_axes(attrs, len(shape), min(len(shape), len(like.shape))):
        shape[a] = like.shape[a]
    return TensorType(shape, t.dtype)


def _ev_slice_like(attrs, x, like):
    axes = _like_axes(attrs, x.ndim, min(x.ndim, like.ndim))
    return x[tuple(slice(like.shape[i]) if i in axes else slice(None) for i in range(x.ndim))]


register("slice_like", INJECTIVE, _slice_like_infer, _ev_slice_like, loops=lambda a, x, c, t: topi.strided_slice(
    x[0], [0] * len(x[0].shape), list(c.checked_type.concrete_shape)))  # fmt: skip
