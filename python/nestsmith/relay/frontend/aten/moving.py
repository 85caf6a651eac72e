"""Data moved, not computed: shapes, parts, joints, and elements by index."""

import math

import numpy as np

from ....error import OpNotImplemented
from ....numerics import is_float
from ... import op as relay
from ...expr import Expr
from ...op import nn
from .. import common as c
from ..values import along, arange, array, dtype_of, known, rank_of, repeated, shape_of
from .promotion import Types, as_type, constant, fitting
from .table import aten, lifted, listed, per_axis, scaled, unless_empty, with_axis

# ---- moving data ----


@aten("view", "reshape", "_unsafe_view", "_reshape_alias", "_reshape_copy")
def _view(x, size, *_):
    if isinstance(size, str):
        raise OpNotImplemented("a view of the bits as another type is not supported")
    return x if tuple(size) == shape_of(x) else relay.reshape(x, tuple(size), allowzero=True)


@aten("flatten")
def _flatten(x, start_dim=0, end_dim=-1):
    shape = shape_of(x)
    if not shape:
        return relay.reshape(x, (1,))
    first, last = start_dim % len(shape), end_dim % len(shape)
    if first == 1 and last == len(shape) - 1:
        return nn.batch_flatten(x) if len(shape) > 2 else x
    return _view(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@aten("unflatten")
def _unflatten(x, dim, sizes):
    shape, at = shape_of(x), dim % rank_of(x)
    return _view(x, (*shape[:at], *sizes, *shape[at + 1 :]))


@aten("permute")
def _permute(x, dims):
    order = [d % rank_of(x) for d in dims]
    return x if order == sorted(order) else relay.transpose(x, order)


@aten("transpose", "swapaxes", "swapdims")
def _transpose(x, a=0, b=1):
    order = list(range(rank_of(x)))
    if order:
        order[a], order[b] = order[b], order[a]
    return _permute(x, order)


aten("t", "numpy_T")(lambda x: _permute(x, range(rank_of(x))[::-1]))
aten("unsqueeze")(lambda x, dim: relay.expand_dims(x, dim % (rank_of(x) + 1)))


@aten("squeeze")
def _squeeze(x, dim=None):
    shape = shape_of(x)
    gone = [a for a in c.axes_of([dim] if isinstance(dim, int) else dim, len(shape)) if shape[a] == 1]
    return relay.squeeze(x, gone) if gone else x


@aten("expand", "broadcast_to")
def _expand(x, size, implicit=False):
    shape = (1,) * (len(size) - rank_of(x)) + shape_of(x)
    return c.expand(x, [n if s == -1 else s for n, s in zip(shape, size)])


aten("expand_as")(lambda x, other: c.expand(x, shape_of(other)))
aten("repeat", "tile")(lambda x, repeats: relay.tile(x, list(repeats)))


@aten("repeat_interleave.self_int")
def _repeat_interleave(x, repeats, dim=None, output_size=None):
    return relay.repeat(relay.reshape(x, (-1,)) if dim is None else x, repeats, 0 if dim is None else dim % rank_of(x))


_JOINED = Types("tensors")


@aten("cat", "concat", "concatenate", types=_JOINED)
def _cat(tensors, dim=0):
    tensors = [t for t in tensors if shape_of(t) != (0,)]
    return relay.concatenate(tensors, dim) if len(tensors) > 1 else tensors[0]


aten("stack", types=_JOINED)(lambda tensors, dim=0: relay.stack(tensors, dim))


@aten("slice")
def _slice(x, dim=0, start=None, end=None, step=1):
    return c.slice_axes(x, [dim % rank_of(x)], [start], [end], [step])


@aten("narrow")
def _narrow(x, dim, start, length):
    start = start + shape_of(x)[dim] if start < 0 else start
    return _slice(x, dim, start, start + length)


@aten("select")
def _select(x, dim, index):
    axis = dim % rank_of(x)
    return c.element(x, axis, index % shape_of(x)[axis])


@aten("split_with_sizes")
def split_sizes(x, sizes, dim=0):
    if len(sizes) == 1:
        return [x]
    return list(relay.split(x, [int(v) for v in np.cumsum(sizes)[:-1]], dim % rank_of(x)))


@aten("split")
def _split(x, size, dim=0):
    if not isinstance(size, int):
        return split_sizes(x, size, dim)
    extent = shape_of(x)[dim]
    return split_sizes(x, [min(size, extent - i) for i in range(0, extent, size)], dim)


aten("chunk")(lambda x, chunks, dim=0: _split(x, -(-shape_of(x)[dim] // chunks), dim))
aten("unbind")(lambda x, dim=0: [_select(x, dim, i) for i in range(shape_of(x)[dim])])
aten("diagonal", "linalg_diagonal")(lambda x, offset=0, dim1=0, dim2=1: c.diagonal(x, offset, dim1, dim2))


@aten("diagonal_scatter")
def _diagonal_scatter(x, src, offset=0, dim1=0, dim2=1):
    at = np.diagonal(arange(math.prod(shape_of(x))).reshape(shape_of(x)), offset, dim1, dim2)
    return c.scatter(x, array(at.copy(), "int32"), src)


@aten("unfold")
def _unfold(x, dimension, size, step):
    if not rank_of(x):
        return relay.reshape(x, (size,))
    axis, rank = dimension % rank_of(x), rank_of(x)
    first = arange(0, shape_of(x)[axis] - size + 1, step)
    y = relay.take(x, array(first[:, None] + arange(size), "int32"), axis=axis)
    return _permute(y, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


def _strided(x, size, stride, offset):
    """The flat places of a view by strides."""
    at = np.asarray(offset or 0)
    for axis, (n, step) in enumerate(zip(size, stride)):
        at = at + along(arange(n), axis, len(size)) * step
    at = repeated(at, tuple(size))
    if at.min() < 0 or at.max() >= math.prod(shape_of(x)):
        raise ValueError(f"a view with the size {tuple(size)} and the strides {tuple(stride)} reaches beyond {math.prod(shape_of(x))} elements")
    return array(at, "int32")


@aten("as_strided")
def _as_strided(x, size, stride, storage_offset=None):
    return relay.take(relay.reshape(x, (-1,)), _strided(x, size, stride, storage_offset), axis=0)


@aten("resize")
def _resize(x, size, memory_format=None):
    count = math.prod(size)
    if count > math.prod(shape_of(x)):
        raise OpNotImplemented("a size of more elements than there are leaves values undefined")
    return relay.reshape(c.slice_axes(relay.reshape(x, (-1,)), [0], [0], [count], [1]), tuple(size))


@aten("as_strided_scatter")
def _as_strided_scatter(x, src, size, stride, storage_offset=None):
    return c.scatter(x, _strided(x, size, stride, storage_offset), src)


@aten("flip")
def _flip(x, dims):
    for d in dims:
        x = relay.reverse(x, d % rank_of(x)) if rank_of(x) else x
    return x


@aten("roll")
def _roll(x, shifts, dims=()):
    shape, dims = shape_of(x), listed(dims)
    if dims is None:
        return relay.reshape(_roll(relay.reshape(x, (-1,)), shifts, [0]), shape)
    for s, d in zip(per_axis(shifts, len(dims)), dims):
        axis = d % len(shape)
        s %= max(shape[axis], 1)
        if s:
            a, b = split_sizes(x, [shape[axis] - s, s], axis)
            x = relay.concatenate([b, a], axis)
    return x


_PAD = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@aten("pad")
def _pad(x, pad, mode="constant", value=None):
    rank = rank_of(x)
    begins, ends = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        begins[rank - 1 - i], ends[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return c.pad(x, begins, ends, _PAD[mode], fitting(value or 0, dtype_of(x), "value"))


aten("constant_pad_nd")(lambda x, pad, value=0: _pad(x, pad, "constant", value))
for _d in (1, 2, 3):
    aten(f"reflection_pad{_d}d")(lambda x, pad: _pad(x, pad, "reflect"))
    aten(f"replication_pad{_d}d")(lambda x, pad: _pad(x, pad, "replicate"))


aten("pixel_shuffle")(lambda x, factor: nn.depth_to_space(x, factor, mode="CRD"))
aten("triu")(lambda x, diagonal=0: c.triangle(x, diagonal, True))
aten("tril")(lambda x, diagonal=0: c.triangle(x, diagonal, False))


def _of_type(value, x):
    """A value that is written into `x`."""
    return as_type(value, dtype_of(x)) if isinstance(value, Expr) else constant(value, dtype_of(x), "value")


@aten("fill")
def _fill(x, value):
    return c.expand(_of_type(value, x), shape_of(x))


aten("copy")(lambda x, source, non_blocking=False: c.expand(c.cast(source, dtype_of(x)), shape_of(x)))
aten("zero")(lambda x: _fill(x, 0))


# ---- by index ----


aten("embedding")(lambda weight, indices, *_: c.gather(weight, indices, 0, "embedding", from_end=False))


@aten("index_select")
@with_axis
def _index_select(x, dim, index):
    return c.gather(x, lifted(index), dim % rank_of(x), "index_select", from_end=False)


aten("take")(lambda x, index: c.gather(relay.reshape(x, (-1,)), index, 0, "take"))


@aten("gather")
def _gather(x, dim, index, sparse_grad=False):
    x, at = lifted(x), lifted(index)
    y = c.gather_elements(x, at, dim % rank_of(x), from_end=False)
    return y if rank_of(index) else relay.reshape(y, ())


def _indices(x, indices):
    """(axes, index tensors): where they are, with known masks as the places of what they choose."""
    axes, out = [], []
    for i in indices:
        if i is None:
            axes.append(None)
            continue
        if dtype_of(i) in ("bool", "uint8"):
            if not known(i):
                raise OpNotImplemented("a mask that is computed from the data of the model decides how many elements there are")
            found = np.nonzero(i.data)
            axes += [True] * len(found)
            out += [array(f, "int64") for f in found]
        else:
            axes.append(True)
            out.append(i)
    return [a for a, there in enumerate(axes) if there], out


def _places(x, axes, index, what):
    """The flat place within the indexed axes `axes` of x for each element of the broadcast indices."""
    shape, at = shape_of(x), None
    for k, (a, i) in enumerate(zip(axes, index)):
        i = c.wrapped(i, shape[a], what, first=what != "index")
        stride = math.prod(shape[b] for b in axes[k + 1 :])
        i = i if stride == 1 else relay.multiply(i, array(stride, "int32"))
        at = i if at is None else relay.add(at, i)
    return c.now(at)


def _axes_before(axes):
    """How many axes lie before those of the index tensors: none where these are apart from each other."""
    return axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0


@aten("index")
def _index(x, indices):
    axes, index = _indices(x, indices)
    if len(axes) == 1:
        return c.gather(x, index[0], axes[0], "index")
    rest = [a for a in range(rank_of(x)) if a not in axes]
    shape = shape_of(x)
    at = _places(x, axes, index, "index")
    y = relay.reshape(_permute(x, [*axes, *rest]), (math.prod(shape[a] for a in axes), *(shape[a] for a in rest)))
    y = relay.take(y, at, axis=0)
    k, before = rank_of(at), _axes_before(axes)
    return _permute(y, [*range(k, k + before), *range(k), *range(k + before, rank_of(y))])


@aten("index_put")
@unless_empty
def _index_put(x, indices, values, accumulate=False):
    if any(i is not None and dtype_of(i) in ("bool", "uint8") and not known(i) for i in indices):
        return _masked_put(x, indices, values, accumulate)
    axes, index = _indices(x, indices)
    rest = [a for a in range(rank_of(x)) if a not in axes]
    shape = shape_of(x)
    at = _places(x, axes, index, "index_put")
    k, before = rank_of(at), _axes_before(axes)
    tail, block = [shape[a] for a in rest], math.prod(shape[a] for a in rest)
    values = c.expand(values, (*tail[:before], *shape_of(at), *tail[before:]))
    values = _permute(values, [*range(before, before + k), *range(before), *range(before + k, rank_of(values))])
    if block > 1:
        at = relay.add(relay.multiply(relay.reshape(at, (-1, 1)), array(block, "int32")), array(arange(block).reshape(1, -1), "int32"))
    order = [*axes, *rest]
    y = c.scatter(_permute(x, order), c.now(at), values, "add" if accumulate else "none")
    return _permute(y, np.argsort(order).tolist())


def _masked_put(x, indices, values, accumulate):
    """One value wherever a computed mask is true."""
    first = next(k for k, i in enumerate(indices) if i is not None)
    mask, rank = indices[first], rank_of(x)
    chosen = rank - rank_of(mask) + 1  # the rank of what the mask chooses
    shape = (1,) * (chosen - rank_of(values)) + shape_of(values)
    if sum(i is not None for i in indices) > 1 or shape[first] != 1:
        raise OpNotImplemented("a mask that is computed from the data of the model decides how many elements there are; torch.where has fixed shapes")
    values = relay.reshape(values, (*shape[:first], *(1,) * rank_of(mask), *shape[first + 1 :]))
    mask = relay.reshape(c.cast(mask, "bool"), (*shape_of(mask), *(1,) * (rank - first - rank_of(mask))))
    new = relay.add(x, values) if accumulate else values
    return relay.where(mask, c.expand(new, shape_of(x)), x)


@aten("scatter")
@unless_empty
def _scatter(x, dim, index, src, reduction="none", reduce=None):
    if reduce is not None:
        reduction = {"multiply": "mul"}.get(reduce, reduce)
    if reduction in ("max", "min") and dtype_of(x) == "bool":
        return relay.cast(_scatter(relay.cast(x, "int8"), dim, index, relay.cast(src, "int8"), reduction), "bool")
    if not rank_of(x):
        return relay.reshape(_scatter(lifted(x), dim, index, src, reduction), ())
    index, src = lifted(index), _of_type(src, x)
    shape = shape_of(index)
    if rank_of(src):  # what lies beyond the index is not used
        src = c.slice_axes(src, range(len(shape)), [0] * len(shape), shape, [1] * len(shape))
    return c.scatter_elements(x, index, c.expand(src, shape), dim % rank_of(x), reduction, from_end=False)


@aten("one_hot")
def _one_hot(index, num_classes=-1):
    if num_classes == -1:
        raise OpNotImplemented("the number of classes is the largest index and 1, known only at run time; give num_classes")
    index = c.wrapped(index, num_classes, "one_hot", from_end=False)
    return relay.one_hot(index, array(1, "int64"), array(0, "int64"), num_classes, -1, "int64")


def _along(x, axis, index):
    """The places of an index along an axis, for every element of the others."""
    shape = (*shape_of(x)[:axis], *shape_of(index), *shape_of(x)[axis + 1 :])
    return c.now(c.expand(relay.reshape(index, [-1 if a == axis else 1 for a in range(rank_of(x))]), shape))


def _by_index(what, x, dim, index, source, reduction="none", from_end=False):
    if not rank_of(x):
        return relay.reshape(_by_index(what, lifted(x), dim, index, source, reduction, from_end), ())
    axis = dim % rank_of(x)
    index = _along(x, axis, lifted(index))
    shape = shape_of(index)
    source = relay.reshape(source, shape) if rank_of(source) or shape == (1,) * len(shape) else c.expand(source, shape)
    return c.scatter_elements(x, index, source, axis, reduction, what, from_end)


@aten("index_copy")
@unless_empty
def _index_copy(x, dim, index, source):
    return _by_index("index_copy", x, dim, index, source)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
@unless_empty
def _index_fill(x, dim, index, value):
    return _by_index("index_fill", x, dim, index, _of_type(value, x), from_end=True)


@aten("index_add")
@unless_empty
def _index_add(x, dim, index, source, alpha=1):
    return _by_index("index_add", x, dim, index, as_type(scaled(source, alpha), dtype_of(x)), "add")


aten("scatter_add")(lambda x, dim, index, src: _scatter(x, dim, index, src, "add"))


_COMBINED = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}


@aten("scatter_reduce.two")
@unless_empty
def _scatter_reduce(x, dim, index, src, reduce, include_self=True):
    if not rank_of(x):
        return relay.reshape(_scatter_reduce(lifted(x), dim, lifted(index), lifted(src), reduce, include_self), ())
    kind = dtype_of(x)
    if kind == "bool":
        return c.cast(_scatter_reduce(c.cast(x, "int64"), dim, index, c.cast(src, "int64"), reduce, include_self), "bool")
    start = x
    if not include_self:
        one, none = relay.ones(shape_of(index), "int32"), relay.zeros(shape_of(x), "int32")
        hits = _scatter(none, dim, index, one, "add")
        start = relay.where(relay.greater(hits, array(0, "int32")), c.scalar(c.neutral(_COMBINED[reduce], kind), x), x)
    out = _scatter(start, dim, index, src, _COMBINED[reduce])
    if reduce != "mean":
        return out
    if include_self:
        hits = _scatter(relay.ones(shape_of(x), "int32"), dim, index, relay.ones(shape_of(index), "int32"), "add")
    count = relay.cast(relay.maximum(hits, array(1, "int32")), kind)
    return relay.divide(out, count) if is_float(kind) else relay.floor_divide(out, count)


@aten("index_reduce")
@unless_empty
def _index_reduce(x, dim, index, source, reduce, include_self=True):
    if not rank_of(x):
        return relay.reshape(_index_reduce(lifted(x), dim, lifted(index), lifted(source), reduce, include_self), ())
    index = _along(x, dim % rank_of(x), lifted(index))
    return _scatter_reduce(x, dim, index, relay.reshape(source, shape_of(index)), reduce, include_self)


@aten("put")
@unless_empty
def _put(x, index, source, accumulate=False):
    at = c.wrapped(index, math.prod(shape_of(x)), "put", first=True)
    return c.scatter(x, at, source, "add" if accumulate else "none")


@aten("slice_scatter")
@unless_empty
def _slice_scatter(x, src, dim=0, start=None, end=None, step=1):
    axis = dim % rank_of(x)
    at = arange(shape_of(x)[axis])[slice(start, end, step)]
    index = array(repeated(along(at, axis, rank_of(x)), shape_of(src)), "int64")
    return c.scatter_elements(x, index, src, axis)


@aten("select_scatter")
def _select_scatter(x, src, dim, index):
    axis = dim % rank_of(x)
    at = index % shape_of(x)[axis]
    return _slice_scatter(x, relay.expand_dims(src, axis), axis, at, at + 1)
