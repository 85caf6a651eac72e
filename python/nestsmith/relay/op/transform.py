"""Operators that move data: reshape, transpose, concatenate, slices, gathers, layout changes."""

from __future__ import annotations

import math
import re
import string

import numpy as np

from ... import te, topi
from ...numerics import is_float
from ..expr import Call, Constant, Expr, TupleWrapper, const
from ..ty import Any, TensorType, TupleType
from . import layout as layouts
from .layout import Layout, Plan, first
from .registry import ANCHOR, BROADCAST, FOLLOW, INJECTIVE, as_expr, call, norm_axis, register, tensor
from .tensor import broadcast_shape

__all__ = [
    "reshape",
    "transpose",
    "concatenate",
    "split",
    "strided_slice",
    "expand_dims",
    "squeeze",
    "take",
    "gather",
    "gather_nd",
    "one_hot",
    "broadcast_to",
    "broadcast_to_like",
    "tile",
    "repeat",
    "stack",
    "reverse",
    "flip",
    "layout_transform",
    "arange",
    "reshape_like",
    "slice_like",
]


def _ints(v):
    if isinstance(v, Constant):
        v = v.data.tolist()
    if isinstance(v, int):
        return (v,)
    return tuple(int(x) for x in v)


def reshape_shape(old, new, allowzero=False):
    """The shape after reshape of `old` with the codes 0 (copy), -1 (infer), -2 (rest), -3 (merge two), -4 (split)."""
    out, src, infer, i = [], 0, None, 0
    new = list(new)
    while i < len(new):
        d = new[i]
        if d > 0 or (d == 0 and allowzero):
            out.append(d)
            src += 1
        elif d == 0:
            if src >= len(old):
                raise ValueError(f"newshape {tuple(new)}: 0 at position {i}, but the input has rank {len(old)}")
            out.append(old[src])
            src += 1
        elif d == -1:
            if infer is not None:
                raise ValueError(f"newshape {tuple(new)} has more than one -1")
            infer = len(out)
            out.append(1)
            src += 1
        elif d == -2:
            out.extend(old[src:])
            src = len(old)
        elif d == -3:
            if src + 1 >= len(old):
                raise ValueError(f"newshape {tuple(new)}: -3 needs two more dimensions of {tuple(old)}")
            out.append(old[src] * old[src + 1])
            src += 2
        elif d == -4:
            a, b = new[i + 1], new[i + 2]
            n = old[src]
            if a == -1:
                a = n // b
            elif b == -1:
                b = n // a
            if a * b != n:
                raise ValueError(f"newshape {tuple(new)}: {a} * {b} is not {n}")
            out += [a, b]
            src += 1
            i += 2
        else:
            raise ValueError(f"newshape {tuple(new)}: {d} has no meaning")
        i += 1
    if any(isinstance(x, Any) for x in (*old, *out)):
        if infer is not None:
            out[infer] = Any()
        return tuple(out)
    total, have = math.prod(old), math.prod(out)
    if infer is not None:
        if have == 0 or total % have:
            raise ValueError(f"cannot reshape {tuple(old)} to {tuple(new)}")
        out[infer] = total // have
    elif total != have:
        raise ValueError(f"cannot reshape {tuple(old)} ({total} elements) to {tuple(out)} ({have} elements)")
    return tuple(out)


def _reshape_infer(attrs, types):
    t = tensor(types, 0)
    return TensorType(reshape_shape(t.shape, attrs.newshape, attrs.get("allowzero", False)), t.dtype)


def _shuffled(e):
    """Of a reshape that undoes an earlier one with a transpose between them: what goes in, the axis that is cut, its parts
    and their new order; None unless the parts of one axis alone change places, as channels do that are shuffled."""
    steps = [e]
    for name in ("transpose", "reshape"):
        inner = steps[-1].args[0]
        if getattr(inner, "op_name", None) != name:
            return None
        steps.append(inner)
    source, cut = steps[2].args[0], steps[2].checked_type.shape
    shape, perm = source.checked_type.shape, _perm(steps[1].attrs, len(cut))
    more = len(cut) - len(shape)
    k = next((i for i, (a, b) in enumerate(zip(shape, cut)) if a != b), len(shape))
    parts = range(k, k + more + 1)
    if more < 1 or e.checked_type.shape != shape or cut != shape[:k] + cut[k : k + more + 1] + shape[k + 1 :]:
        return None
    if any(p != i for i, p in enumerate(perm) if i not in parts):
        return None
    return source, k, [cut[p] for p in parts], [perm[p] - k for p in parts]


def _reshape_layout(e, has, want):
    """Shuffled channels are shuffled where they lie. Of other shapes nothing is known: the elements must be in order."""
    found = _shuffled(e)
    at = found and has(found[0])
    if not at:
        return None
    source, k, parts, order = found
    k = at.axis(k)

    def make(args):
        shape = at.moved(source.checked_type.shape)
        rank = len(shape) + len(parts) - 1
        perm = [*range(k), *(k + p for p in order), *range(k + len(parts), rank)]
        return reshape(transpose(reshape(args[0], (*shape[:k], *parts, *shape[k + 1 :])), perm), shape)

    return Plan([at], at, make=make, args=[source])


register(
    "reshape",
    INJECTIVE,
    _reshape_infer,
    lambda attrs, x: x.reshape(reshape_shape(x.shape, attrs.newshape, attrs.get("allowzero", False))),
    layout=_reshape_layout,
    loops=lambda a, x, c, t: topi.reshape(x[0], c.checked_type.shape),
    ranked=False,
)


def reshape(data, newshape, allowzero=False):
    """Another shape, same elements. Codes: 0 copy the dimension, -1 infer, -2 copy the rest, -3 merge two, -4 split."""
    if isinstance(newshape, Expr) and not isinstance(newshape, Constant):
        raise ValueError("reshape to a shape computed at run time is not supported; give the shape as integers")
    return call("reshape", [data], newshape=_ints(newshape), allowzero=bool(allowzero))


def reshape_like(data, shape_like):
    """Reshape to the shape of another tensor."""
    return reshape(data, shape_like.checked_type.concrete_shape)


def _perm(attrs, rank):
    axes = attrs.get("axes")
    if axes is None:
        return tuple(reversed(range(rank)))
    axes = tuple(norm_axis(a, rank) for a in axes)
    if sorted(axes) != list(range(rank)):
        raise ValueError(f"axes {axes} are not a permutation of rank {rank}")
    return axes


def _transpose_infer(attrs, types):
    t = tensor(types, 0)
    return TensorType([t.shape[a] for a in _perm(attrs, len(t.shape))], t.dtype)


def axes_moved(e):
    """The axes of its argument in the order in which a call leaves them, if that is all that it does; else None."""
    if not isinstance(e, Call):
        return None
    if e.op_name == "transpose":
        return _perm(e.attrs, len(e.checked_type.shape))
    a = e.attrs
    if e.op_name == "layout_transform" and a.src_layout.isalpha() and a.dst_layout.isalpha():
        return tuple(a.src_layout.index(c) for c in a.dst_layout)
    return None


def _move_layout(e, has, want):
    """The axes come from where the data has them; nothing is left to do if they lie like this already. Channels that become the
    second axis of a map stay where they are, last, until somebody wants them there."""
    at, axes = first(e, has), axes_moved(e)
    if axes is None:
        return None
    if at is None:
        letters = {4: "NCHW", 5: "NCDHW"}.get(len(axes))
        if letters is None or axes != (0, len(axes) - 1, *range(1, len(axes) - 1)):
            return None
        return Plan([None], Layout(letters, letters[0] + letters[2:] + letters[1]), make=lambda args: args[0])
    axes = tuple(at.axis(a) for a in axes)

    def make(args):
        return args[0] if axes == tuple(range(len(axes))) else transpose(args[0], axes)

    return Plan([at], None, make=make)


register(
    "transpose",
    INJECTIVE,
    _transpose_infer,
    lambda attrs, x: np.ascontiguousarray(x.transpose(_perm(attrs, x.ndim))),
    layout=_move_layout,
    loops=lambda a, x, c, t: topi.transpose(x[0], a.axes),
)


def transpose(data, axes=None):
    """Permutes the axes; None reverses them."""
    return call("transpose", [data], axes=None if axes is None else _ints(axes))


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
        same = len(f.shape) == len(first.shape) and all(
            i == axis or a == b or isinstance(a, Any) or isinstance(b, Any)
            for i, (a, b) in enumerate(zip(f.shape, first.shape))
        )
        if not same or f.dtype != first.dtype:
            raise ValueError(f"{f} does not match {first} beside axis {axis}")
        d = f.shape[axis]
        total = d if isinstance(d, Any) or isinstance(total, Any) else total + d
    shape = list(first.shape)
    shape[axis] = total
    return TensorType(shape, first.dtype)


register(
    "concatenate",
    INJECTIVE,
    _concat_infer,
    lambda attrs, xs: np.concatenate(xs, attrs.axis),
    layout=layouts.concatenate,
    loops=lambda a, x, c, t: topi.concatenate(x[0], a.axis),
)


def concatenate(data, axis):
    """Joins a tuple or list of tensors along `axis`."""
    return call("concatenate", [as_expr(data)], axis=int(axis))


def _stack_infer(attrs, types):
    fields = _fields(types)
    axis = norm_axis(attrs.axis, len(fields[0].shape) + 1)
    shape = list(fields[0].shape)
    shape.insert(axis, len(fields))
    return TensorType(shape, fields[0].dtype)


register(
    "stack",
    INJECTIVE,
    _stack_infer,
    lambda attrs, xs: np.stack(xs, attrs.axis),
    loops=lambda a, x, c, t: topi.stack(x[0], a.axis),
    ranked=False,
)


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


register(
    "split",
    INJECTIVE,
    _split_infer,
    lambda attrs, x: np.split(x, split_points(attrs, x.shape[attrs.axis])[1:-1], attrs.axis),
    layout=layouts.along_axis,
    loops=_split_loops,
)


def split(data, indices_or_sections, axis=0):
    """Cuts along `axis` into equal parts (an int) or at the given indices. Returns several results."""
    s = indices_or_sections if isinstance(indices_or_sections, int) else _ints(indices_or_sections)
    return TupleWrapper(
        call("split", [data], indices_or_sections=s, axis=int(axis)), s if isinstance(s, int) else len(s) + 1
    )


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
    return TensorType([_extent(r) for r in slice_ranges(attrs, t.concrete_shape)], t.dtype)


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
    return call(
        "strided_slice",
        [data],
        begin=_ints(begin),
        end=_ints(end),
        strides=_ints(strides) if strides is not None else (1,),
        axes=None if axes is None else _ints(axes),
        slice_mode=slice_mode,
    )


def slice_like(data, shape_like, axes=()):
    """A slice from 0 to the extents of another tensor on `axes` (all if empty)."""
    t, like = data.checked_type, shape_like.checked_type
    axes = [norm_axis(a, len(t.shape)) for a in axes] or list(range(min(len(t.shape), len(like.shape))))
    return strided_slice(data, [0] * len(axes), [like.shape[a] for a in axes], axes=axes)


def _expand_infer(attrs, types):
    t = tensor(types, 0)
    axis = norm_axis(attrs.axis, len(t.shape) + 1)
    return TensorType(t.shape[:axis] + (1,) * attrs.num_newaxis + t.shape[axis:], t.dtype)


def _expand_layout(e, has, want):
    """A new axis lies where the network puts it; any place would do."""
    at = first(e, has)
    if at is None:
        return None
    k = norm_axis(e.attrs.axis, len(at.old) + 1)
    more = "".join(c for c in string.ascii_letters if c not in at.old)[: e.attrs.num_newaxis]
    return Plan([at], Layout(*(s[:k] + more + s[k:] for s in (at.old, at.new))), {"axis": k})


register(
    "expand_dims",
    BROADCAST,
    _expand_infer,
    lambda attrs, x: x.reshape(_expand_infer(attrs, [TensorType(x.shape, str(x.dtype))]).shape),
    layout=_expand_layout,
    loops=lambda a, x, c, t: topi.expand_dims(x[0], a.axis, a.num_newaxis),
    ranked=False,
)


def expand_dims(data, axis, num_newaxis=1):
    """Inserts `num_newaxis` axes of extent 1 at `axis`."""
    return call("expand_dims", [data], axis=int(axis), num_newaxis=int(num_newaxis))


def _squeeze_infer(attrs, types):
    t = tensor(types, 0)
    axis = attrs.axis
    if axis is None:
        return TensorType([d for d in t.shape if d != 1], t.dtype)
    axes = {norm_axis(a, len(t.shape)) for a in axis}
    for a in axes:
        if t.shape[a] != 1:
            raise ValueError(f"axis {a} of {t} has not extent 1")
    return TensorType([d for i, d in enumerate(t.shape) if i not in axes], t.dtype)


def _squeeze_layout(e, has, want):
    at = first(e, has)
    if at is None:
        return None
    shape = e.args[0].checked_type.shape
    axes = (
        [i for i, d in enumerate(shape) if d == 1] if e.attrs.axis is None else [a % len(shape) for a in e.attrs.axis]
    )
    return Plan([at], at.without(axes), {"axis": tuple(sorted(at.axis(a) for a in axes))})


register(
    "squeeze",
    INJECTIVE,
    _squeeze_infer,
    lambda attrs, x: x.reshape(_squeeze_infer(attrs, [TensorType(x.shape, str(x.dtype))]).shape),
    layout=_squeeze_layout,
    loops=lambda a, x, c, t: topi.squeeze(x[0], a.axis),
)


def squeeze(data, axis=None):
    """Removes axes of extent 1 (None: all)."""
    return call("squeeze", [data], axis=None if axis is None else _ints(axis))


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


def _broadcast_to_infer(attrs, types):
    t = tensor(types, 0)
    shape = tuple(attrs.shape)
    if broadcast_shape(t.shape, shape) != shape:
        raise ValueError(f"{t} does not broadcast to {shape}")
    return TensorType(shape, t.dtype)


register(
    "broadcast_to",
    BROADCAST,
    _broadcast_to_infer,
    lambda attrs, x: np.array(np.broadcast_to(x, attrs.shape)),
    layout=layouts.permuted("shape"),
    loops=lambda a, x, c, t: topi.broadcast_to(x[0], a.shape),
)


def broadcast_to(data, shape):
    """Broadcasts to `shape`."""
    return call("broadcast_to", [data], shape=_ints(shape))


def broadcast_to_like(data, broadcast_type):
    """Broadcasts to the shape of another tensor."""
    return broadcast_to(data, broadcast_type.checked_type.concrete_shape)


def _tile_infer(attrs, types):
    t = tensor(types, 0)
    r = max(len(t.shape), len(attrs.reps))
    shape = (1,) * (r - len(t.shape)) + t.shape
    reps = (1,) * (r - len(attrs.reps)) + tuple(attrs.reps)
    return TensorType([a * b for a, b in zip(shape, reps)], t.dtype)


register(
    "tile",
    BROADCAST,
    _tile_infer,
    lambda attrs, x: np.tile(x, attrs.reps),
    layout=layouts.permuted("reps"),
    loops=lambda a, x, c, t: topi.tile(x[0], a.reps),
)


def tile(data, reps):
    """Repeats the whole tensor `reps` times per axis."""
    return call("tile", [data], reps=_ints(reps))


def _repeat_infer(attrs, types):
    t = tensor(types, 0)
    axis = norm_axis(attrs.axis, len(t.shape))
    return TensorType([d * attrs.repeats if i == axis else d for i, d in enumerate(t.shape)], t.dtype)


register(
    "repeat",
    BROADCAST,
    _repeat_infer,
    lambda attrs, x: np.repeat(x, attrs.repeats, attrs.axis),
    layout=layouts.along_axis,
    loops=lambda a, x, c, t: topi.repeat(x[0], a.repeats, a.axis),
)


def repeat(data, repeats, axis):
    """Repeats each element along `axis`."""
    return call("repeat", [data], repeats=int(repeats), axis=int(axis))


register(
    "reverse",
    INJECTIVE,
    lambda attrs, types: tensor(types, 0),
    lambda attrs, x: np.ascontiguousarray(np.flip(x, attrs.axis)),
    layout=layouts.along_axis,
    loops=lambda a, x, c, t: topi.flip(x[0], a.axis),
)


def reverse(data, axis):
    """Reverses the order along `axis`."""
    return call("reverse", [data], axis=int(axis))


flip = reverse


# ---- layouts: capital letters are axes, ``16c`` is a block of axis C -----------------------------------------------


def parse_layout(text):
    """A layout such as ``NCHW16c`` as a list of (axis letter, block or 0)."""
    parts = re.findall(r"([A-Z])|(\d+)([a-z])", text)
    out = [(a, 0) if a else (c.upper(), int(n)) for a, n, c in parts]
    if "".join(a if not b else f"{b}{a.lower()}" for a, b in out) != text:
        raise ValueError(f"layout {text!r} is not understood; examples: NCHW, NHWC, NCHW16c")
    return out


def layout_shape(shape, src, dst):
    """The shape in layout `dst` of a tensor that has `shape` in layout `src`."""
    full = {}
    for (a, b), d in zip(src, shape):
        full[a] = full.get(a, 1) * d if b or a in full else d
    blocks = {a: b for a, b in dst if b}
    out = []
    for a, b in dst:
        if a not in full:
            raise ValueError(f"axis {a} is not in the source layout")
        if not b and a in blocks and full[a] % blocks[a]:
            raise ValueError(f"axis {a} of extent {full[a]} has no blocks of {blocks[a]}")
        out.append(b or full[a] // blocks.get(a, 1))
    return tuple(out)


def _layout_infer(attrs, types):
    t = tensor(types, 0)
    return TensorType(layout_shape(t.shape, parse_layout(attrs.src_layout), parse_layout(attrs.dst_layout)), t.dtype)


def _ev_layout(attrs, x):
    src, dst = parse_layout(attrs.src_layout), parse_layout(attrs.dst_layout)
    order = sorted({a for a, _ in src})
    major = {a: i for i, (a, b) in enumerate(src) if not b}
    minor = {a: i for i, (a, b) in enumerate(src) if b}
    perm, shape = [], []
    for a in order:
        perm += [major[a]] + ([minor[a]] if a in minor else [])
        shape.append(x.shape[major[a]] * (x.shape[minor[a]] if a in minor else 1))
    x = x.transpose(perm).reshape(shape)
    blocks = {a: b for a, b in dst if b}
    split_shape, pos, k = [], {}, 0
    for a, d in zip(order, shape):
        if a in blocks:
            split_shape += [d // blocks[a], blocks[a]]
            pos[a, 0], pos[a, 1] = k, k + 1
            k += 2
        else:
            split_shape.append(d)
            pos[a, 0] = k
            k += 1
    return np.ascontiguousarray(x.reshape(split_shape).transpose([pos[a, 1 if b else 0] for a, b in dst]))


def relayout(x, old, new):
    if old == new:
        return x
    src, dst = parse_layout(old), parse_layout(new)
    shape = layout_shape(x.shape, src, dst)
    blocks_out, blocks_in = {k: b for k, b in dst if b}, {k: b for k, b in src if b}

    def f(*ax):
        major = {k: v for (k, b), v in zip(dst, ax) if not b}
        minor = {k: v for (k, b), v in zip(dst, ax) if b}
        full = {k: major[k] * blocks_out[k] + minor[k] if k in minor else major[k] for k in major}
        idx = []
        for k, b in src:
            v = full[k]
            idx.append(te.floormod(v, b) if b else te.floordiv(v, blocks_in[k]) if k in blocks_in else v)
        return x(*idx)

    return topi.util.c_compute(shape, f, "T_layout_trans", topi.util.INJECTIVE)


def _layout_transform_loops(a, x, c, t):
    return relayout(x[0], a.src_layout, a.dst_layout)


register(
    "layout_transform",
    INJECTIVE,
    _layout_infer,
    _ev_layout,
    layout=_move_layout,
    loops=_layout_transform_loops,
    ranked=True,
)


def layout_transform(data, src_layout, dst_layout):
    """Reorders (and blocks) the axes, e.g. from NCHW to NHWC or NCHW16c."""
    return call("layout_transform", [data], src_layout=src_layout, dst_layout=dst_layout)


def arange(start, stop=None, step=None, dtype="float32"):
    """Evenly spaced values. All bounds must be numbers (or constants), so the result is a constant."""
    vals = [start, stop, step]
    if any(isinstance(v, Expr) and not isinstance(v, Constant) for v in vals):
        raise ValueError("arange with bounds computed at run time is not supported")
    start, stop, step = (v.data.item() if isinstance(v, Constant) else v for v in vals)
    if stop is None:
        start, stop = 0, start
    return const(np.arange(start, stop, 1 if step is None else step, dtype=dtype))
