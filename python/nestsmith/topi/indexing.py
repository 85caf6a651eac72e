"""Elements by positions that come from data: gather_nd, scatter, sparse forms, masks, unique, searchsorted.

Signatures (``x``, ``data``: tensors)::

    gather_nd(a, indices)                              T_gather_nd
    scatter_elements(data, indices, updates, axis=0, reduction="update")    T_scatter
    scatter_nd(data, indices, updates, mode)           T_scatter_nd
    adv_index(data, indices)                           advanced_index
    sequence_mask(data, valid_length, mask_value=0, axis=0), reverse_sequence(a, seq_lengths, seq_axis=1, batch_axis=0)
    unravel_index(indices, shape), invert_permutation(data), sparse_to_dense(indices, output_shape, values, default_value=0)
    matrix_set_diag(data, diagonal, k=0, align="RIGHT_LEFT"), trilu(data, k, upper)
    strided_set(a, v, begin, end, strides=None), sliding_window(data, axis, window_shape, strides)
    searchsorted(sorted_sequence, values, right=False, out_dtype="int64")
    unique(data, is_sorted=True, return_counts=False)  -> list

A scatter is a reduction for each element of the result over the updates that may land on it: it needs no order of threads, so that it
runs on any target, and the last of several updates of one element wins. The price is one comparison for each pair.
"""

from .. import error, te, tir
from . import util
from .broadcast import broadcast_shape
from .elemwise import as_type
from .reduction import prod_reducer
from .scan import cumsum
from .sort import argsort

__all__ = ["adv_index", "gather_nd", "invert_permutation", "matrix_set_diag", "reverse_sequence", "scatter_elements",
           "scatter_nd", "searchsorted", "sequence_mask", "sliding_window", "sparse_to_dense", "strided_set", "trilu",
           "unique", "unravel_index"]  # fmt: skip


def gather_nd(a, indices):
    """Elements at index tuples given along the first axis of ``indices``. One out of range ends the run with an error."""
    m, rank = util.as_const_int(indices.shape[0], "the number of indices"), len(indices.shape) - 1
    if m > len(a.shape):
        raise ValueError(f"gather_nd: {m} indices for {len(a.shape)} dimension(s)")

    def f(*ax):
        at = [indices(k, *ax[:rank]) for k in range(m)]
        return a(*[i.astype("int32") if util.is_float(i.dtype) else i for i in at], *ax[rank:])

    return util.injective([*indices.shape[1:], *a.shape[m:]], f, "T_gather_nd")


# ---- scatter ----
_COMBINE = {
    "add": (te.sum, lambda a, b: a + b, lambda t: tir.const(0, t)),
    "mul": (prod_reducer, lambda a, b: a * b, lambda t: tir.const(1, t)),
    "min": (te.min, tir.Min, tir.max_value),
    "max": (te.max, tir.Max, tir.min_value),
}


def _landed(data, axes, hit, update, mode, name):
    """``data`` with what lands on each element: ``hit(ax, ks)`` says whether update number ``ks`` does, and which number it has in order."""
    dtype = data.dtype
    if mode == "mean":
        total = _landed(data, axes, hit, update, "add", name)
        ks = [te.reduce_axis(d, n) for d, n in axes]
        count = util.c_compute(
            data.shape,
            lambda *ax: te.sum(tir.Select(hit(ax, ks)[0], tir.const(1, dtype), tir.const(0, dtype)), axis=ks),
            f"{name}_count", util.COMM_REDUCE,
        )  # fmt: skip
        return util.injective(data.shape, lambda *ax: tir.Div(total(*ax), count(*ax) + tir.const(1, dtype)), name)
    ks = [te.reduce_axis(d, n) for d, n in axes]
    if mode == "update":

        def which(*ax):
            here, number = hit(ax, ks)
            return te.max(tir.Select(here, number, tir.const(-1, "int32")), axis=ks)

        last = util.c_compute(data.shape, which, f"{name}_last", util.COMM_REDUCE)

        def pick(*ax):
            at = last(*ax)
            return te.if_then_else(at >= 0, update(ax, te.max(at, 0)), data(*ax))

        return util.injective(data.shape, pick, name)
    if mode not in _COMBINE:
        raise ValueError(f'{name[2:]}: the mode is "update", "add", "mul", "min", "max" or "mean", not {mode!r}')
    reducer, combine, neutral = _COMBINE[mode]

    def all_of_them(*ax):
        here, number = hit(ax, ks)
        return reducer(te.if_then_else(here, update(ax, number), neutral(dtype)), axis=ks)

    part = util.c_compute(data.shape, all_of_them, f"{name}_{mode}", util.COMM_REDUCE)
    return util.injective(data.shape, lambda *ax: combine(data(*ax), part(*ax)), name)


def scatter_elements(data, indices, updates, axis=0, reduction="update"):
    """A copy of ``data`` in which element ``indices[..i..]`` along ``axis`` is combined with ``updates[..i..]``, of the same shape as the
    indices. ``reduction``: update, add, mul, mean, min, max. A negative index counts from the end."""
    a = util.normal_axis(axis, len(data.shape))
    size, m = data.shape[a], indices.shape[a]
    others = [i for i in range(len(data.shape)) if i != a]
    inside = [(i, indices.shape[i]) for i in others if not bool(indices.shape[i] == data.shape[i])]

    def hit(ax, ks):
        safe = [te.min(v, indices.shape[i] - 1) if any(i == j for j, _ in inside) else v for i, v in enumerate(ax)]
        at = indices(*safe[:a], ks[0], *safe[a + 1 :])
        here = tir.EQ(tir.Select(at < 0, at + tir.const(util.as_const_int(size), at.dtype), at), ax[a])
        for i, extent in inside:
            here = tir.And(here, ax[i] < extent)
        return here, ks[0].var

    def update(ax, k):
        return updates(*ax[:a], k, *ax[a + 1 :])

    return _landed(data, [((0, m), "k")], hit, update, reduction, "T_scatter")


def scatter_nd(data, indices, updates, mode="update"):
    """A copy of ``data`` in which ``data[indices[0, y], ..., indices[m-1, y], ...]`` is combined with ``updates[y, ...]`` for all ``y``.
    ``mode``: update, add, mul, min, max. A negative index counts from the end."""
    m, extents = util.as_const_int(indices.shape[0]), [util.as_const_int(s) for s in indices.shape[1:]]
    rank = len(extents)
    if m > len(data.shape) or util.get_const_tuple(updates.shape) != (*extents, *util.get_const_tuple(data.shape)[m:]):
        raise ValueError(f"scatter_nd: updates of shape {tuple(updates.shape)} do not fit indices of "
                         f"{tuple(indices.shape)} and data of {tuple(data.shape)}")  # fmt: skip

    def hit(ax, ks):
        here = None
        for d in range(m):
            at = indices(d, *ks)
            at = tir.Select(at < 0, at + tir.const(util.as_const_int(data.shape[d]), at.dtype), at)
            same = tir.EQ(at, ax[d])
            here = same if here is None else tir.And(here, same)
        return (tir.const(True) if here is None else here), util.position([k.var for k in ks], extents)

    def update(ax, number):
        return updates(*util.unravel(number, extents), *ax[m:])

    axes = [((0, n), f"k{i}") for i, n in enumerate(extents)] or [((0, 1), "k0")]
    if not rank:
        return _landed(data, axes, lambda ax, ks: hit(ax, []), lambda ax, k: updates(*ax[m:]), mode, "T_scatter_nd")
    return _landed(data, axes, hit, update, mode, "T_scatter_nd")


def adv_index(data, indices):
    """``data[indices[0], indices[1], ...]`` of index tensors that broadcast, as NumPy has it."""
    shape = broadcast_shape(*(util.get_const_tuple(i.shape) for i in indices))
    n = len(shape)

    def at(t, ax):
        skip = n - len(t.shape)
        return t(*[0 if isinstance(s, int) and s == 1 else v for v, s in zip(ax[skip:n], t.shape)])

    def f(*ax):
        return data(*[at(i, ax) for i in indices], *ax[n:])

    return util.injective([*shape, *data.shape[len(indices) :]], f, "advanced_index")


# ---- masks and sequences ----
def sequence_mask(data, valid_length, mask_value=0, axis=0):
    """``data`` with ``mask_value`` from position ``valid_length[batch]`` on along ``axis`` (0 or 1; the batch is the other one)."""
    if axis not in (0, 1) or len(data.shape) < 2:
        raise ValueError(f"sequence_mask: axis is 0 or 1 of data with at least 2 dimensions, not {axis} of {len(data.shape)}")

    def f(*ax):
        outside = ax[axis] >= valid_length(ax[1 - axis])
        return te.if_then_else(outside, tir.const(mask_value, data.dtype), data(*ax))

    return util.injective(data.shape, f, "T_sequence_mask")


def reverse_sequence(a, seq_lengths, seq_axis=1, batch_axis=0):
    """``a`` with the first ``seq_lengths[b]`` elements along ``seq_axis`` reversed for each ``b`` along ``batch_axis``."""
    s, b = util.normal_axis(seq_axis, len(a.shape)), util.normal_axis(batch_axis, len(a.shape))
    if len(seq_lengths.shape) != 1 or not bool(seq_lengths.shape[0] == a.shape[b]):
        raise error.TVMValueError("For reverse_sequnece seq_lengths size should match with dimension of batch axis, "
                                  f"but got dimension of batch_axis = {a.shape[b]}, and seq_length size = "
                                  f"{', '.join(map(str, seq_lengths.shape))}")  # fmt: skip

    def f(*ax):
        n = te.min(seq_lengths(ax[b]).astype("int32"), a.shape[s])
        at = te.if_then_else(n <= 1, ax[s], te.if_then_else(ax[s] >= n, ax[s], n - 1 - ax[s]))
        return a(*ax[:s], at, *ax[s + 1 :])

    return util.injective(a.shape, f, "T_reverse_sequence")


def unravel_index(indices, shape):
    """The multi-dimensional indices [rank, ...] of positions in a tensor whose extents are the tensor ``shape``."""
    n = util.as_const_int(shape.shape[0])

    def f(d, *ax):
        rest, out = indices(*ax), None
        parts = []
        for k in reversed(range(n)):
            extent = shape(k).astype(indices.dtype)
            parts.append(te.indexmod(rest, extent))
            rest = te.indexdiv(rest, extent)
        for k, v in enumerate(reversed(parts)):
            out = v if out is None else te.if_then_else(tir.EQ(d, k), v, out)
        return out

    return util.injective([n, *indices.shape], f, "T_unravel")


def invert_permutation(data):
    """The permutation that undoes ``data``."""
    n = data.shape[0]
    k = te.reduce_axis((0, n), "k")
    out = util.c_compute([n], lambda i: te.sum(tir.Select(tir.EQ(data(k), i), k.var, 0), axis=k),
                         "T_invert_permutation", util.COMM_REDUCE)  # fmt: skip
    return as_type(out, data.dtype)


def sparse_to_dense(sparse_indices, output_shape, sparse_values, default_value=0):
    """A tensor of ``default_value`` with ``sparse_values`` at ``sparse_indices``: a scalar, [n] or [n, rank]."""
    shape = util.get_const_tuple(output_shape)
    rank = len(sparse_indices.shape)
    dtype = sparse_values.dtype
    fill = default_value() if isinstance(default_value, te.Tensor) else tir.const(default_value, dtype)
    fill = fill.astype(dtype)

    def value(*at):
        return sparse_values(*at) if len(sparse_values.shape) else sparse_values()

    def f(*ax):
        if rank == 0:
            return tir.Select(tir.EQ(sparse_indices(), ax[0]), sparse_values() if not len(sparse_values.shape) else sparse_values(0), fill)
        out = fill
        for j in range(util.as_const_int(sparse_indices.shape[0])):
            at = [sparse_indices(j)] if rank == 1 else [sparse_indices(j, d) for d in range(len(shape))]
            out = te.if_then_else(te.all(*[tir.EQ(p, i) for p, i in zip(at, ax)]), value(j), out)
        return out

    return util.injective(shape, f, "T_sparse_to_dense")


# ---- matrices ----
def matrix_set_diag(data, diagonal, k=0, align="RIGHT_LEFT"):
    """``data`` with its diagonals ``k`` (a number, or the lowest and the highest) replaced by ``diagonal``. ``align``: on which side shorter ones
    above the main one and those below it lie in their rows: e.g. RIGHT_LEFT."""
    k1, k2 = (util.as_const_int(k),) * 2 if not isinstance(k, (tuple, list)) else tuple(
        util.as_const_int(v) for v in (*k, *k)
    )[:2]  # fmt: skip
    above, below = align.split("_")
    only_one = k1 == k2
    n = len(data.shape) - 1
    rows, columns = (util.as_const_int(s) for s in data.shape[-2:])

    def f(*ax):
        i, j = ax[-2:]
        batch = ax[:-2]
        if only_one:
            at = te.if_then_else(j - i >= 0, i, j) if k1 == 0 else te.min(i, j)
            return te.if_then_else(tir.EQ(j - i, k1), diagonal(*batch, at), data(*ax))
        d = j - i
        width = diagonal.shape[-1]
        length = tir.Select(d >= 0, te.min(columns - d, rows), te.min(rows + d, columns))
        right = tir.Select(d >= 0, tir.const(above == "RIGHT"), tir.const(below == "RIGHT"))
        at = te.min(i, j) + tir.Select(right, width - length, 0)
        return te.if_then_else(te.all(d >= k1, d <= k2), diagonal(*batch, k2 - d, at), data(*ax))

    assert n >= 1
    return util.injective(data.shape, f, "T_matrix_set_diag")


def trilu(data, k, upper):
    """The upper or lower triangle of matrices from diagonal ``k`` on; zeros elsewhere."""

    def f(*ax):
        i, j = ax[-2:]
        diagonal = k() if isinstance(k, te.Tensor) else k
        keep = i <= j - diagonal if upper else i >= j - diagonal
        return tir.Select(keep, data(*ax), tir.const(0, data.dtype))

    return util.injective(data.shape, f, "trilu")


def _slice_numbers(t, what):
    """Numbers of a slice per dimension: expressions from a tensor, or constants."""
    if isinstance(t, te.Tensor):
        return [t(k).astype("int32") for k in range(util.as_const_int(t.shape[0], what))]
    return [tir.const(util.as_const_int(v)) for v in t]


def strided_set(a, v, begin, end, strides=None):
    """``a`` with the elements of a slice set to those of ``v``; ``begin``, ``end`` and ``strides`` are tensors or lists of integers."""
    b, e, s = (_slice_numbers([] if t is None else t, what) for t, what in ((begin, "begin"), (end, "end"), (strides, "strides")))
    n = max(len(b), len(e))
    b, e, s = b + [tir.const(0)] * (n - len(b)), e + [tir.const(2**31 - 1)] * (n - len(e)), s + [tir.const(1)] * (n - len(s))

    def inside(i, d):
        size = a.shape[d]
        first, last = tir.Select(b[d] < 0, b[d] + size, b[d]), tir.Select(e[d] < 0, e[d] + size, e[d])
        up, down = te.all(i >= first, i < last), te.all(i <= te.min(first, size - 1), i > last)
        away = tir.Select(s[d] < 0, te.min(first, size - 1) - i, i - first)
        step = te.max(te.abs(s[d]), 1)
        hit = te.all(tir.Select(s[d] < 0, down, up), tir.EQ(te.truncmod(away, step), 0))
        return hit, te.max(te.min(te.truncdiv(te.max(away, 0), step), v.shape[d] - 1), 0)

    def f(*ax):
        found = [inside(i, d) for d, i in enumerate(ax[:n])]
        return te.if_then_else(te.all(*[h for h, _ in found]), v(*[p for _, p in found], *ax[n:]), a(*ax))

    return util.injective(a.shape, f, "T_strided_set")


def sliding_window(data, axis, window_shape, strides):
    """Windows of ``data`` over the dimensions from ``axis`` on: [..., number of windows per dimension, ..., the window]."""
    a, n = util.normal_axis(axis, len(data.shape)), len(window_shape)
    w, s = util.tuple_of(window_shape, n, "window_shape"), util.tuple_of(strides, n, "strides")
    if a + n > len(data.shape):
        raise ValueError(f"sliding_window: {n} dimensions from {a} on, but the data has {len(data.shape)}")
    counts = [(data.shape[a + i] - w[i]) // s[i] + 1 for i in range(n)]

    def f(*ax):
        outer, inside = ax[: a + n], ax[a + n : a + 2 * n]
        return data(*outer[:a], *[o * st + i for o, st, i in zip(outer[a:], s, inside)], *ax[a + 2 * n :])

    return util.injective([*data.shape[:a], *counts, *w, *data.shape[a + n :]], f, "T_sliding_window")


# ---- order ----
def searchsorted(sorted_sequence, values, right=False, out_dtype="int64"):
    """How many elements of the sorted last dimension are smaller than each value (``right``: not larger): the place where it belongs."""
    k = te.reduce_axis((0, sorted_sequence.shape[-1]), "k")
    lead = len(sorted_sequence.shape) - 1

    def f(*ax):
        there, here = sorted_sequence(*ax[:lead], k), values(*ax)
        before = there <= here if right else there < here
        return te.sum(before.astype("int32"), axis=k)

    return as_type(util.c_compute(values.shape, f, "T_searchsorted", util.COMM_REDUCE), out_dtype)


def _matched(source, key, n, name, shape=None):
    """For each position j the element of ``source`` whose key is j; 0 where there is none."""
    k = te.reduce_axis((0, n), "k")

    def f(j):
        keys, value = key(k), source(k)
        return te.sum(tir.Select(tir.EQ(keys, j), value, tir.const(0, value.dtype)), axis=k)

    return util.c_compute([n if shape is None else shape], f, name, util.COMM_REDUCE)


def unique(data, is_sorted=True, return_counts=False):
    """The different elements of a vector of n elements.

    Returns
    -------
    list of te.Tensor
        The elements [n], in ascending order or as they come first; where each is first [n]; of each element of ``data`` the number of its
        equal [n]; how many there are [1]; with ``return_counts`` how often each is there [n]. All but the first are int32. Of tensors with n
        elements only so many count as there are different ones.
    """
    n = util.as_const_int(data.shape[0], "the number of elements")
    order = argsort(data, None, 0, True, "int32")
    ordered = util.injective([n], lambda i: data(order(i)), "T_unique_sorted")
    starts = util.injective(
        [n],
        lambda i: te.if_then_else(i > 0, tir.NE(ordered(i), ordered(te.max(i - 1, 0))), tir.const(True)).astype("int32"),
        "T_unique_starts")
    number = cumsum(starts, 0)
    rank = util.injective([n], lambda i: number(i) - 1, "T_unique_rank")
    first = util.injective([n], lambda i: tir.Select(starts(i) > 0, rank(i), -1), "T_unique_first")
    count = util.injective([1], lambda i: number(n - 1 + i), "T_unique_count")
    k = te.reduce_axis((0, n), "k")
    values, index = _matched(ordered, first, n, "T_unique_values"), _matched(order, first, n, "T_unique_indices")
    inverse = _matched(rank, order, n, "T_unique_inverse")
    counts = util.c_compute([n], lambda j: te.sum(tir.EQ(rank(k), j).astype("int32"), axis=k), "T_unique_counts",
                            util.COMM_REDUCE)  # fmt: skip
    if not is_sorted:
        far = util.injective([n], lambda j: tir.Select(j < count(0), index(j), n), "T_unique_far")
        place = argsort(far, None, 0, True, "int32")

        def moved(t):
            return util.injective([n], lambda j: t(place(j)), "T_unique_moved")

        back = _matched(util.injective([n], lambda j: j, "T_unique_slots"), place, n, "T_unique_back")
        by_rank = inverse
        inverse = util.injective([n], lambda i: back(by_rank(i)), "T_unique_inverse_moved")
        values, index, counts = moved(values), moved(index), moved(counts)
    return [values, index, inverse, count, *([counts] if return_counts else [])]
