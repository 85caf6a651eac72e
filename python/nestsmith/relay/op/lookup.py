"""Operators that look elements up by indices: take, gather, one_hot, and the check of indices that come from data."""

import math

import numpy as np

from ... import topi
from ...numerics import is_float
from ..expr import Constant, Var
from ..ty import Any, TensorType
from .registry import ANCHOR, FOLLOW, INJECTIVE, OPAQUE, as_expr, call, norm_axis, register, tensor

__all__ = ["take", "gather", "gather_nd", "one_hot", "check_index"]


def in_range(index, extent, from_end=False):
    """The integers of an array as int64, those counted from the end as what they are from the begin. Raises ValueError for the first
    that is no index of an axis of `extent`."""
    index = np.asarray(index)
    at = index.astype("int64")
    low = -extent if from_end else 0
    bad = (at < low) | (at >= extent) | ((index > 0) & (at < 0))
    if bad.any():
        raise ValueError(f"index {index[bad][0]} is out of range for an axis of size {extent}")
    return np.where(at < 0, at + extent, at)


def _data_and_indices(types):
    t, i = tensor(types, 0), tensor(types, 1)
    if is_float(i.dtype):
        raise ValueError(f"the indices are {i.dtype}; they must be integers")
    return t, i


def _with_known(lookup):
    """The call of an operator that looks up, whose indices are checked now if they are constants and the shape is known."""
    data, index = lookup.args
    kind = data.data if isinstance(data, Constant) else data.type_annotation if isinstance(data, Var) else data._type
    if not isinstance(index, Constant) or kind is None:
        return lookup
    shape = kind.shape
    if lookup.op_name == "gather_nd":
        pairs = list(zip(index.data, shape))
    elif lookup.attrs.axis is None:
        pairs = [(index.data, math.prod(shape))]
    else:
        pairs = [(index.data, shape[lookup.attrs.axis])]
    for i, n in pairs:
        if isinstance(n, int):
            in_range(i, n)
    return lookup


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
    n = x.size if attrs.axis is None else x.shape[attrs.axis]
    if attrs.mode == "fast":
        i = in_range(i, n)
    else:
        i = i.astype("int64")
        i = i % n if attrs.mode == "wrap" else np.clip(i, 0, n - 1)
    b = attrs.get("batch_dims", 0)
    b = b + i.ndim if b < 0 else b
    if not b:
        return np.take(x, i, attrs.axis)
    parts = [np.take(x[at], i[at], attrs.axis % x.ndim - b) for at in np.ndindex(*i.shape[:b])]
    return np.stack(parts).reshape(i.shape[:b] + parts[0].shape)


register("take", INJECTIVE, _take_infer, _ev_take,
         loops=lambda a, x, c, t: topi.take(x[0], x[1], a.axis, a.batch_dims, a.mode), ranked=False)  # fmt: skip


def take(data, indices, axis=None, batch_dims=0, mode="clip"):
    """Elements of `data` at `indices` along `axis` (None: of the flat array); the first `batch_dims` axes of both are the
    same. mode: clip, wrap or fast (an index out of range ends the run with an error)."""
    if mode not in ("clip", "wrap", "fast"):
        raise ValueError(f"mode {mode!r}; use 'clip', 'wrap' or 'fast'")
    out = call("take", [data, as_expr(indices)], axis=None if axis is None else int(axis), batch_dims=int(batch_dims),
               mode=mode)  # fmt: skip
    return _with_known(out) if mode == "fast" else out


def _gather_infer(attrs, types):
    t, i = _data_and_indices(types)
    return TensorType(i.shape, t.dtype)


register("gather", INJECTIVE, _gather_infer,
         lambda attrs, x, i: np.take_along_axis(x, in_range(i, x.shape[attrs.axis]), attrs.axis),
         loops=lambda a, x, c, t: topi.gather(x[0], a.axis, x[1]), ranked=False)  # fmt: skip


def gather(data, axis, indices):
    """``out[..i..] = data[.., indices[..i..], ..]`` along `axis`. An index out of range, a negative one among them, ends the run
    with an error."""
    return _with_known(call("gather", [data, indices], axis=int(axis)))


def _gather_nd_infer(attrs, types):
    t, i = _data_and_indices(types)
    return TensorType(i.shape[1:] + t.shape[i.shape[0] :], t.dtype)


register("gather_nd", INJECTIVE, _gather_nd_infer,
         lambda attrs, x, i: x[tuple(in_range(k, n) for k, n in zip(i, x.shape))],
         loops=lambda a, x, c, t: topi.gather_nd(x[0], x[1]), ranked=False)  # fmt: skip


def gather_nd(data, indices):
    """Elements at index tuples given along the first axis of `indices`. One out of range ends the run with an error."""
    return _with_known(call("gather_nd", [data, indices]))


def _check_infer(attrs, types):
    t = tensor(types, 0)
    if not t.dtype.startswith(("int", "uint")):
        raise ValueError(f"the indices are {t.dtype}; they must be integers")
    if attrs.extent < 1:
        raise ValueError(f"an axis of size {attrs.extent} has no index")
    return TensorType(t.shape, "int32" if attrs.extent < 2**31 else "int64")


for _name, _class in (("check_index", INJECTIVE), ("check_index_first", OPAQUE)):
    register(_name, _class, _check_infer, lambda attrs, i: in_range(i, attrs.extent, attrs.from_end),
             loops=lambda a, x, c, t: topi.check_index(x[0], a.extent, a.from_end, f"T_{a.what}"), colour=FOLLOW,
             ranked=False)  # fmt: skip


def check_index(indices, extent, from_end=False, what="index", first=False):
    """`indices` as int32 (int64 where `extent` needs it), of which one that is no index of an axis of `extent` ends the run with
    an error that names it and `what`, the operator that wants it. `from_end`: -1 is the last one. `first`: by a kernel of its own,
    for those who read the indices many times."""
    name = "check_index_first" if first else "check_index"
    return call(name, [indices], extent=int(extent), from_end=bool(from_end), what=str(what))


def _one_hot_infer(attrs, types):
    shape = list(tensor(types, 0).shape)
    shape.insert(norm_axis(attrs.axis, len(shape) + 1), attrs.depth)
    return TensorType(shape, attrs.dtype)


register("one_hot", ANCHOR, _one_hot_infer, colour=FOLLOW,
         loops=lambda a, x, c, t: topi.one_hot(x[0], x[1], x[2], a.depth, a.axis, a.dtype), ranked=False)  # fmt: skip


def one_hot(indices, on_value, off_value, depth, axis, dtype):
    """`on_value` at the index, else `off_value`, along a new axis of extent `depth`."""
    return call("one_hot", [indices, as_expr(on_value), as_expr(off_value)], depth=int(depth), axis=int(axis),
                dtype=dtype)  # fmt: skip
