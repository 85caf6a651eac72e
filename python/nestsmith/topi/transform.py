"""Data movement.

Signatures (``x``: tensor; axes may be negative)::

    reshape(x, newshape)           one -1 is derived           T_reshape
    transpose(x, axes=None)        default: reversed           T_transpose
    expand_dims(x, axis, num_newaxis=1)                        T_expand_dims
    squeeze(x, axis=None)                                      T_squeeze
    concatenate(tensors, axis=0)                               T_concat
    stack(tensors, axis=0)                                     T_stack
    split(x, indices_or_sections, axis=0) -> list              T_split / T_split_sections
    strided_slice(x, begin, end, strides=None, axes=None, slice_mode="end", index_dtype="int32")  T_strided_slice
    take(x, indices, axis=None, mode="clip")                   T_take
    check_index(x, extent, from_end=False)                     T_index
    pad(x, pad_before, pad_after=None, pad_value=0.0, name="T_pad", pad_mode="constant")
                                   graph form (nn.pad: form used by convolutions)
    repeat(x, repeats, axis=0), tile(x, reps), flip(x, axis), arange(start, stop=None, step=1, dtype="float32")
    shape(x, dtype="int32")        the extents as a tensor     T_shape
    gather(x, axis, indices), one_hot(indices, on_value, off_value, depth, axis, dtype)
"""

import importlib

from .. import _absent, te, tir
from . import util

__all__ = ["arange", "check_index", "concatenate", "expand_dims", "flip", "gather", "one_hot", "pad", "repeat",
           "reshape", "shape", "split", "squeeze", "stack", "strided_slice", "take", "tile", "transpose"]  # fmt: skip


def reshape(x, newshape):
    """The elements of ``x`` in row-major order in another shape."""
    shape = list(util.get_const_tuple(newshape if isinstance(newshape, (tuple, list)) else (newshape,)))
    old = util.get_const_tuple(x.shape)
    if any(isinstance(s, int) and s == -1 for s in shape):
        rest = util.prod(s for s in shape if not (isinstance(s, int) and s == -1))
        known = all(isinstance(s, int) for s in (*shape, *old))
        if shape.count(-1) != 1 or not known or rest == 0 or util.prod(old) % rest:
            raise ValueError(f"cannot derive the -1 of {tuple(newshape)} for shape {old}")
        shape[shape.index(-1)] = util.prod(old) // rest
    if all(isinstance(s, int) for s in (*shape, *old)) and util.prod(shape) != util.prod(old):
        raise ValueError(f"cannot reshape {old} to {tuple(shape)}: the numbers of elements differ")

    def f(*ax):
        if not old:
            return x()
        return x(*util.unravel(util.ravel(ax, shape) if ax else 0, old))

    return util.injective(shape, f, "T_reshape")


def transpose(x, axes=None):
    """Dimensions in another order."""
    n = len(x.shape)
    axes = [util.normal_axis(a, n) for a in axes] if axes is not None else list(reversed(range(n)))
    if sorted(axes) != list(range(n)):
        raise ValueError(f"transpose needs every dimension of {n} once, not {axes}")
    return util.injective([x.shape[a] for a in axes], lambda *ax: x(*util.in_layout(ax, axes)), "T_transpose")


def expand_dims(x, axis, num_newaxis=1):
    """``num_newaxis`` new dimensions of extent 1 at ``axis``."""
    n = len(x.shape)
    a = axis + n + 1 if axis < 0 else axis
    if not 0 <= a <= n:
        raise ValueError(f"axis {axis} is out of range for {n} dimension(s)")
    shape = [*x.shape[:a], *[1] * num_newaxis, *x.shape[a:]]
    return util.c_compute(shape, lambda *ax: x(*ax[:a], *ax[a + num_newaxis :]), "T_expand_dims", util.BROADCAST)


def squeeze(x, axis=None):
    """Without the given dimensions of extent 1 (default: all of them)."""
    n = len(x.shape)
    if axis is None:
        gone = {i for i, s in enumerate(util.get_const_tuple(x.shape)) if isinstance(s, int) and s == 1}
    else:
        gone = {util.normal_axis(a, n) for a in (axis if isinstance(axis, (tuple, list)) else [axis])}
    for a in gone:
        if util.get_const_tuple(x.shape)[a] != 1:
            raise ValueError(f"dimension {a} has extent {x.shape[a]}; only extents of 1 can be squeezed")

    def f(*ax):
        it = iter(ax)
        return x(*[0 if i in gone else next(it) for i in range(n)])

    return util.injective([s for i, s in enumerate(x.shape) if i not in gone], f, "T_squeeze")


def concatenate(a_tuple, axis=0):
    """Tensors joined along a dimension."""
    tensors = list(a_tuple)
    if not tensors:
        raise ValueError("concatenate needs at least one tensor")
    first = util.get_const_tuple(tensors[0].shape)
    a = util.normal_axis(axis, len(first))
    for t in tensors:
        s = util.get_const_tuple(t.shape)
        if len(s) != len(first) or any(not bool(p == q) for i, (p, q) in enumerate(zip(s, first)) if i != a):
            raise ValueError(f"concatenate along axis {a}: shapes {first} and {s} differ elsewhere")

    shape = list(first)
    for t in tensors[1:]:
        shape[a] = shape[a] + t.shape[a]

    def f(*ax):
        out, ind = tensors[0](*ax), ax[a]
        for prev, t in zip(tensors, tensors[1:]):
            ind = ind - prev.shape[a]
            out = te.if_then_else(ind >= 0, t(*ax[:a], ind, *ax[a + 1 :]), out)
        return out

    return util.injective(shape, f, "T_concat")


def stack(tensors, axis=0):
    """Tensors of one shape joined along a new dimension."""
    tensors = list(tensors)
    if not tensors:
        raise ValueError("stack needs at least one tensor")
    a = axis + len(tensors[0].shape) + 1 if axis < 0 else axis
    shape = [*tensors[0].shape[:a], len(tensors), *tensors[0].shape[a:]]

    def f(*ax):
        idx, ind = [*ax[:a], *ax[a + 1 :]], ax[a]
        out = tensors[0](*idx)
        for k, t in enumerate(tensors[1:], 1):
            out = te.if_then_else(tir.EQ(ind, k), t(*idx), out)
        return out

    return util.injective(shape, f, "T_stack")


def split(x, indices_or_sections, axis=0):
    """A list of parts: a number of equal sections, or the positions where new parts begin."""
    a = util.normal_axis(axis, len(x.shape))
    size = util.as_const_int(x.shape[a], "the extent of the split dimension")
    if isinstance(indices_or_sections, (tuple, list)):
        begins, name = [0, *(util.as_const_int(i) for i in indices_or_sections)], "T_split"
    else:
        n = util.as_const_int(indices_or_sections)
        if n <= 0 or size % n:
            raise ValueError(f"cannot split extent {size} into {n} equal sections")
        begins, name = [i * (size // n) for i in range(n)], "T_split_sections"
    out = []
    for begin, end in zip(begins, [*begins[1:], size]):
        if not 0 <= begin <= end <= size:
            raise ValueError(f"split positions {begins[1:]} are not ascending within extent {size}")
        shape = [*x.shape[:a], end - begin, *x.shape[a + 1 :]]
        out.append(util.injective(shape, lambda *ax, b=begin: x(*ax[:a], ax[a] + b, *ax[a + 1 :]), name))
    return out


def _slice_bounds(size, begin, end, step):
    """Begin and number of elements with the rules of Python's slices."""
    r = range(*slice(begin, end, step).indices(size))
    return (r.start if len(r) else 0), len(r)


def strided_slice(x, begin, end, strides=None, axes=None, slice_mode="end", index_dtype="int32"):
    """``x[begin:end:stride]`` per dimension, with Python's meaning of negative numbers.

    ``slice_mode="size"``: ``end`` holds numbers of elements, -1 for all the rest. ``index_dtype`` is the type of the
    literals in the index expressions.
    """
    n = len(x.shape)
    if isinstance(begin, te.Tensor):
        return _slice_by_data(x, begin, strides)
    axes = [util.normal_axis(a, n) for a in axes] if axes is not None else list(range(len(begin)))
    strides = list(strides) if strides else [1] * len(axes)
    if len(strides) == 1:
        strides *= len(axes)
    starts, steps, shape = [0] * n, [1] * n, list(util.get_const_tuple(x.shape))
    for k, a in enumerate(axes):
        size, step = util.as_const_int(x.shape[a]), util.as_const_int(strides[k])
        b, e = begin[k], end[k] if k < len(end) else None
        b = None if b is None else util.as_const_int(b)
        e = None if e is None else util.as_const_int(e)
        if slice_mode == "size":
            first = (b or 0) % size if (b or 0) < 0 else (b or 0)
            e, step = (None if e == -1 else first + e), 1
        if step == 0:
            raise ValueError("a stride must not be 0")
        if step < 0 and e is not None and e < -size:
            e = None
        starts[a], shape[a] = _slice_bounds(size, b, e, step)
        steps[a] = step

    def f(*ax):
        lit = [(tir.const(s, index_dtype), tir.const(b, index_dtype)) for s, b in zip(steps, starts)]
        return x(*[i * s + b for i, (s, b) in zip(ax, lit)])

    return util.injective(shape, f, "T_strided_slice")


def _slice_by_data(x, begin, strides):
    """A slice whose numbers are tensors; its sizes are variables."""
    n = util.as_const_int(begin.shape[0], "the length of begin")
    sizes = [te.size_var(f"size{d}") if d < n else s for d, s in enumerate(x.shape)]

    def f(*ax):
        at = []
        for d, i in enumerate(ax[:n]):
            b, size = begin(d).astype("int32"), x.shape[d]
            s = tir.const(1) if strides is None else strides(d).astype("int32")
            first = tir.Select(b < 0, b + size, b)
            low, high = tir.Select(s < 0, -1, 0), tir.Select(s < 0, size - 1, size)
            at.append(te.max(te.min(first, high), low) + i * s)
        return x(*at, *ax[n:])

    return util.injective(sizes, f, "T_strided_slice_dynamic")


def take(a, indices, axis=None, batch_dims=0, mode="clip"):
    """Elements at positions along a dimension (default: of the flattened tensor).

    ``batch_dims``: so many leading dimensions of ``a`` and ``indices`` are the same ones, at most ``axis``. ``mode``:
    ``"clip"`` moves positions into range, ``"wrap"`` counts modulo; ``"fast"`` does neither, and a position out of range
    ends the run with an error.
    """
    if mode not in ("clip", "wrap", "fast"):
        raise ValueError(f'take: mode is "clip", "wrap" or "fast", not {mode!r}')
    shape, m = util.get_const_tuple(a.shape), len(indices.shape)

    def position(idx, size):
        v = indices(*idx)
        if mode == "fast":
            return v
        if isinstance(size, int) and size > int(tir.max_value(v.dtype).value):
            v = v.astype("int32")
        n = tir.const(size, v.dtype) if isinstance(size, int) else size
        if mode == "wrap":
            return te.truncmod(te.truncmod(v, n) + n, n)
        last = tir.const(size - 1, v.dtype) if isinstance(size, int) else n - 1
        return tir.Min(tir.Max(util.const_like(0, v), v), last)

    if axis is None:
        return util.injective(indices.shape, lambda *ax: a(*util.unravel(position(ax, util.prod(shape)), shape)),
                              "T_take")  # fmt: skip
    d = util.normal_axis(axis, len(shape))
    b = batch_dims + m if batch_dims < 0 else batch_dims
    if not 0 <= b <= min(d, m):
        raise ValueError(f"take: batch_dims {batch_dims} must be at most the axis {d} and the rank {m} of the indices")
    end = d + m - b

    def f(*ax):
        return a(*ax[:d], position((*ax[:b], *ax[d:end]), shape[d]), *ax[end:])

    return util.injective([*a.shape[:d], *indices.shape[b:], *a.shape[d + 1 :]], f, "T_take")


# pad mode -> position in 0 .. s-1 of a position that may lie outside
_MIRRORS = {
    "edge": lambda i, s: tir.Max(tir.Min(i, s - 1), 0),
    "reflect": lambda i, s: tir.Select(i < 0, 0 - i, tir.Select(i >= s, 2 * (s - 1) - i, i)),
    "symmetric": lambda i, s: tir.Select(i < 0, -1 - i, tir.Select(i >= s, 2 * s - 1 - i, i)),
}


def mirrored(x, before, after, mode, name):
    """``x`` surrounded by its own elements, per dimension: ``"edge"`` repeats the last one, ``"reflect"`` goes back from it,
    ``"symmetric"`` goes back and repeats it first. ``ValueError`` if an amount is more than there is."""
    sizes = [util.as_const_int(s) for s in x.shape]
    most = [s if mode == "symmetric" else s - 1 for s in sizes]
    for s, m, amounts in zip(sizes, most, zip(before, after)):
        if min(amounts) < 0 or s == 0 or mode != "edge" and max(amounts) > m:
            raise ValueError(f"pad mode {mode!r} takes amounts from 0 to {m} in a dimension of extent {s}, not {amounts}")

    def f(*ax):
        plain = [b == a == 0 for b, a in zip(before, after)]
        return x(*[i if p else _MIRRORS[mode](i - b, s) for i, p, b, s in zip(ax, plain, before, sizes)])

    return util.injective([s + b + a for s, b, a in zip(sizes, before, after)], f, name)


def pad(x, pad_before, pad_after=None, pad_value=0.0, name="T_pad", pad_mode="constant"):
    """``x`` surrounded by a value; each side is tested only if it is padded. ``pad_value``: number or tensor of one element.
    ``pad_mode`` ``"edge"`` and ``"reflect"`` take the elements of ``x`` instead, as NumPy does."""
    n = len(x.shape)
    before = util.tuple_of(pad_before, n, "pad_before")
    after = before if pad_after is None else util.tuple_of(pad_after, n, "pad_after")
    if pad_mode in ("edge", "reflect"):
        return mirrored(x, before, after, pad_mode, name)
    if pad_mode != "constant":
        raise ValueError(f'pad: pad_mode is "constant", "edge" or "reflect", not {pad_mode!r}')
    shape = [s + b + a for s, b, a in zip(x.shape, before, after)]

    def f(*ax):
        idx, cond = [], []
        for i, s, b, a in zip(ax, x.shape, before, after):
            if b:
                cond.append(i >= b)
            idx.append(i - b)
            if a:
                cond.append(i < s + b)
        value = pad_value(*[0] * len(pad_value.shape)) if isinstance(pad_value, te.Tensor) else pad_value
        if not isinstance(value, tir.Expr):
            value = tir.const(value, x.dtype)
        return te.if_then_else(util.all_of(cond), x(*idx), value) if cond else x(*idx)

    return util.c_compute(shape, f, name, util.ELEMWISE)


def shape(x, dtype="int32"):
    """The extents of ``x`` as a tensor; stage ``T_shape``."""
    extents = [util.get_const_int(s) for s in x.shape]

    def f(i):
        out = tir.const(0, dtype)
        for k, d in enumerate(extents):
            out = tir.Select(tir.EQ(i, k), tir.const(d, dtype), out)
        return out

    return util.injective([len(extents)], f, "T_shape")


def repeat(x, repeats, axis=0):
    """Every element ``repeats`` times along a dimension; stage ``T_repeat``."""
    a = util.normal_axis(axis, len(x.shape))
    shape = [*x.shape[:a], x.shape[a] * repeats, *x.shape[a + 1 :]]
    return util.c_compute(shape, lambda *ax: x(*ax[:a], te.floordiv(ax[a], repeats), *ax[a + 1 :]), "T_repeat",
                          util.BROADCAST)  # fmt: skip


def tile(x, reps):
    """The whole tensor repeated along its dimensions; stage ``T_tile``."""
    reps = [util.as_const_int(r) for r in (reps if isinstance(reps, (tuple, list)) else [reps])]
    n = max(len(reps), len(x.shape))
    full, reps = [1] * (n - len(x.shape)) + list(x.shape), [1] * (n - len(reps)) + reps
    skip = n - len(x.shape)
    return util.c_compute(
        [s * r for s, r in zip(full, reps)],
        lambda *ax: x(*[i if isinstance(s, int) and s == 0 else te.floormod(i, s) for i, s in zip(ax[skip:], x.shape)]),
        "T_tile", util.BROADCAST,
    )  # fmt: skip


def flip(x, axis=0):
    """One dimension reversed; stage ``T_reverse``."""
    a = util.normal_axis(axis, len(x.shape))
    return util.injective(x.shape, lambda *ax: x(*ax[:a], (x.shape[a] - 1) - ax[a], *ax[a + 1 :]), "T_reverse")


def arange(start, stop=None, step=1, dtype="float32"):
    """``start, start + step, ...`` below ``stop``; stage ``T_arange``."""
    if stop is None:
        start, stop = 0, start
    n = max(-int(-((stop - start) // step)) if (stop - start) % step == 0 else int((stop - start) // step) + 1, 0)
    first, step = tir.const(start), tir.const(step)
    return util.injective([n], lambda i: (first + i.astype(step.dtype) * step).astype(dtype), "T_arange")


def check_index(x, extent, from_end=False, name="T_index"):
    """``x``, integers, as int32 (int64 where ``extent`` needs it) if they are indices of an axis of ``extent``; one that is
    not ends the run with an error, which says ``name``, the stage's. ``from_end``: -1 is the last one."""
    if not x.dtype.startswith(("int", "uint")):
        raise TypeError(f"check_index: the indices are {x.dtype}; they must be integers")
    signed, bits, out = x.dtype[0] == "i", int(x.dtype.lstrip("uint")), "int32" if extent < 2**31 else "int64"
    wide = "int32" if out == "int32" and bits < 32 + signed else "int64"

    def f(*ax):
        v = x(*ax)
        v = (tir.Min(v, tir.const(2**63 - 1, "uint64")) if x.dtype == "uint64" else v).astype(wide)
        if from_end and signed:
            v = tir.Select(v < 0, v + tir.const(extent, wide), v)
        return tir.check_index(v, extent).astype(out)

    return util.injective(x.shape, f, name)


def gather(x, axis, indices):
    """``x`` read along one dimension at ``indices`` of the same rank; stage ``T_gather``. An index out of range, a negative one
    among them, ends the run with an error."""
    a = util.normal_axis(axis, len(x.shape))
    if len(indices.shape) != len(x.shape):
        raise ValueError(f"gather: indices have {len(indices.shape)} dimension(s), the data {len(x.shape)}")
    return util.injective(indices.shape, lambda *ax: x(*ax[:a], indices(*ax), *ax[a + 1 :]), "T_gather")


def one_hot(indices, on_value, off_value, depth, axis=-1, dtype="float32"):
    """``on_value`` where the position along a new dimension is the index, else ``off_value`` (numbers or rank-0 tensors);
    stage ``T_one_hot``."""
    a = util.normal_axis(axis, len(indices.shape) + 1)

    def value(v):
        return v().astype(dtype) if isinstance(v, te.Tensor) else tir.const(v, dtype)

    def f(*ax):
        return tir.Select(tir.EQ(indices(*ax[:a], *ax[a + 1 :]), ax[a]), value(on_value), value(off_value))

    return util.injective([*indices.shape[:a], depth, *indices.shape[a:]], f, "T_one_hot")


def __getattr__(name):
    """Functions of TVM's file of this name that are elsewhere here."""
    if name in ("adv_index", "gather_nd", "matrix_set_diag", "reverse_sequence", "sequence_mask", "trilu", "unravel_index", "where"):
        return getattr(importlib.import_module("nestsmith.topi"), name)
    raise _absent.attribute_error(__name__, name)
