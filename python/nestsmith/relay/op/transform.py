"""Operators that leave all elements, in another shape or order: reshape, transpose, expand_dims, squeeze, reverse."""

import math
import string

import numpy as np

from ... import topi
from ..expr import Call, Constant, Expr
from ..ty import Any, TensorType
from . import layout as layouts
from .layout import Layout, Plan, first
from .registry import BROADCAST, INJECTIVE, call, ints, norm_axis, register, tensor

__all__ = ["reshape", "reshape_like", "transpose", "expand_dims", "squeeze", "reverse", "flip"]


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
            out[infer] = math.prod(old) // math.prod(out)
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


register("reshape", INJECTIVE, _reshape_infer,
         lambda attrs, x: x.reshape(reshape_shape(x.shape, attrs.newshape, attrs.get("allowzero", False))),
         layout=_reshape_layout, loops=lambda a, x, c, t: topi.reshape(x[0], c.checked_type.shape), ranked=False)  # fmt: skip


def reshape(data, newshape, allowzero=False):
    """Another shape, same elements. Codes: 0 copy the dimension, -1 infer, -2 copy the rest, -3 merge two, -4 split."""
    if isinstance(newshape, Expr) and not isinstance(newshape, Constant):
        raise ValueError("reshape to a shape computed at run time is not supported; give the shape as integers")
    return call("reshape", [data], newshape=ints(newshape), allowzero=bool(allowzero))


def reshape_like(data, shape_like, lhs_begin=0, lhs_end=None, rhs_begin=0, rhs_end=None):
    """Reshape to the shape of another tensor; of dimensions `lhs_begin` to `lhs_end` to its dimensions `rhs_begin` to `rhs_end`."""
    like, own = list(shape_like.checked_type.concrete_shape)[rhs_begin:rhs_end], (0, None)
    if (lhs_begin, lhs_end) != own:
        shape = list(data.checked_type.concrete_shape)
        like = [*shape[:lhs_begin], *like, *(shape[lhs_end:] if lhs_end is not None else ())]
    return reshape(data, tuple(like))


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


def move_layout(e, has, want):
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

    return Plan([at], None, make=lambda args: args[0] if axes == tuple(range(len(axes))) else transpose(args[0], axes))


register("transpose", INJECTIVE, _transpose_infer,
         lambda attrs, x: np.ascontiguousarray(x.transpose(_perm(attrs, x.ndim))), layout=move_layout,
         loops=lambda a, x, c, t: topi.transpose(x[0], a.axes))  # fmt: skip


def transpose(data, axes=None):
    """Permutes the axes; None reverses them."""
    return call("transpose", [data], axes=None if axes is None else ints(axes))


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


register("expand_dims", BROADCAST, _expand_infer,
         lambda attrs, x: x.reshape(_expand_infer(attrs, [TensorType(x.shape, str(x.dtype))]).shape),
         layout=_expand_layout, loops=lambda a, x, c, t: topi.expand_dims(x[0], a.axis, a.num_newaxis), ranked=False)  # fmt: skip


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
        if t.shape[a] != 1 and type(t.shape[a]) is not Any:  # known when it runs
            raise ValueError(f"axis {a} of {t} has not extent 1")
    return TensorType([d for i, d in enumerate(t.shape) if i not in axes], t.dtype)


def _squeeze_layout(e, has, want):
    at = first(e, has)
    if at is None:
        return None
    shape = e.args[0].checked_type.shape
    axes = [i for i, d in enumerate(shape) if d == 1] if e.attrs.axis is None else [a % len(shape) for a in e.attrs.axis]
    return Plan([at], at.without(axes), {"axis": tuple(sorted(at.axis(a) for a in axes))})


register("squeeze", INJECTIVE, _squeeze_infer,
         lambda attrs, x: x.reshape(_squeeze_infer(attrs, [TensorType(x.shape, str(x.dtype))]).shape),
         layout=_squeeze_layout, loops=lambda a, x, c, t: topi.squeeze(x[0], a.axis))  # fmt: skip


def squeeze(data, axis=None):
    """Removes axes of extent 1 (None: all)."""
    return call("squeeze", [data], axis=None if axis is None else ints(axis))


register("reverse", INJECTIVE, lambda attrs, types: tensor(types, 0),
         lambda attrs, x: np.ascontiguousarray(np.flip(x, attrs.axis)), layout=layouts.along_axis,
         loops=lambda a, x, c, t: topi.flip(x[0], a.axis))  # fmt: skip


def reverse(data, axis):
    """Reverses the order along `axis`."""
    return call("reverse", [data], axis=int(axis))


flip = reverse
