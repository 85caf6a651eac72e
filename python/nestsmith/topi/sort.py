"""Order along one dimension.

Signatures::

    argsort(data, valid_count=None, axis=-1, is_ascend=True, dtype="float32")   T_rank, T_argsort
    sort(data, axis=-1, is_ascend=True)                                         T_rank, T_argsort, T_sort
    topk(data, k=1, axis=-1, ret_type="both", is_ascend=False, dtype="int64")   T_rank, T_argsort, T_topk
                                                                                -> list of values and indices, or one of them

Equal elements keep their order, NaN is larger than every number, -0.0 equals 0.0: as NumPy's stable sort and PyTorch's.

The rank of an element is the number of elements that come before it, and element r of the result is the position whose rank is
r. Both are reductions, so that they lower and are tuned as any other on CPUs and GPUs alike; the price is n comparisons
for each of n elements and n more for each element of the result: a row of 1,000 takes 1 ms on a CPU core.

Rows of more than 4,096 are sorted in runs of 64 so, and up to 16 runs at a time become one: as a run is in order, the elements of it that
come before another one are counted in steps, by groups and then within one group of them. So are the ranks, to find the element of a rank.
"""

import math

from .. import te, tir
from .elemwise import as_type
from .util import COMM_REDUCE, c_compute, get_const_int, injective, is_float, normal_axis

__all__ = ["argsort", "sort", "topk"]

_RUN, _WAYS, _LONG = 64, 16, 4096


def _less(a, b):
    """``a < b`` where NaN is larger than numbers."""
    less = tir.LT(a, b)
    return tir.Or(less, tir.And(tir.isnan(b), tir.Not(tir.isnan(a)))) if is_float(a.dtype) else less


def _ranks(x, axis, is_ascend, beyond=None):
    k = te.reduce_axis((0, x.shape[axis]), "k")

    def f(*ax):
        value, other = x(*ax), x(*ax[:axis], k, *ax[axis + 1 :])
        if value.dtype == "bool":
            value, other = value.astype("int32"), other.astype("int32")
        first, second = (other, value) if is_ascend else (value, other)
        before = tir.Select(k.var < ax[axis], tir.Not(_less(second, first)), _less(first, second))
        if beyond is not None:  # those behind all others, in their order
            mine, theirs = beyond(*ax), beyond(*ax[:axis], k, *ax[axis + 1 :])
            before = tir.Select(tir.Or(mine, theirs), k.var < ax[axis], before)
        return te.sum(before.astype("int32"), axis=k)

    return c_compute(x.shape, f, "T_rank", COMM_REDUCE)


def _positions(x, axis, is_ascend, count, beyond=None):
    """The positions of the first `count` elements of the order."""
    if beyond is None and isinstance(x.shape[axis], int) and x.shape[axis] > _LONG:
        return _merged(x, axis, is_ascend, count)
    rank, k = _ranks(x, axis, is_ascend, beyond), te.reduce_axis((0, x.shape[axis]), "k")
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]

    def f(*ax):
        here = tir.EQ(rank(*ax[:axis], k, *ax[axis + 1 :]), ax[axis])
        return te.sum(tir.Select(here, k.var, 0), axis=k)

    return c_compute(shape, f, "T_argsort", COMM_REDUCE)


def _merged(x, axis, is_ascend, count):
    """:func:`_positions` of a long row. Positions from its length on stand for elements behind all others."""
    n = get_const_int(x.shape[axis])
    runs, levels = -(-n // _RUN), 1
    while _WAYS**levels < runs:
        levels += 1
    ways = next(w for w in range(2, _WAYS + 1) if w**levels >= runs)
    put = lambda ax, p: (*ax[:axis], p, *ax[axis + 1 : len(x.shape)])  # noqa: E731
    shape = [*x.shape[:axis], _RUN * ways**levels, *x.shape[axis + 1 :]]

    def before(ax, p, q):
        """Whether the element of position p comes before that of q."""
        a, b = (x(*put(ax, te.min(v, n - 1))) for v in (p, q))
        a, b = (a.astype("int32"), b.astype("int32")) if a.dtype == "bool" else (a, b)
        first, second = (a, b) if is_ascend else (b, a)
        return tir.Select(te.any(p >= n, q >= n), p < q, tir.Or(_less(first, second), tir.And(tir.Not(_less(second, first)), p < q)))

    def chosen(length, comes_before, finish, name):
        """A sum over the runs that are joined, of `finish(ax, place, whether it is in the run, what was skipped)` for the places of the last
        group that begins in front of the element: `comes_before(ax, place)`."""
        steps = max(2, math.ceil(math.log(length, _WAYS)))
        sizes = [length] + [math.ceil(length ** (1 - s / steps)) for s in range(1, steps)] + [1]
        first = lambda ax, run: (te.indexdiv(ax[axis], ways * length) * ways + run) * length  # noqa: E731

        def skip(size, part, last):
            """Places in groups of `part` that are skipped, after what was skipped by groups of `size`."""
            k = te.reduce_axis((0, -(-size // part)), "k")

            def whole(*ax):
                inside = (0 if last is None else last(*ax)) + k * part + (part - 1)
                earlier = comes_before(ax, first(ax, ax[-1]) + te.min(inside, length - 1))
                return te.sum(tir.Select(tir.And(inside < length, earlier), part, 0), axis=k)

            more = c_compute([*shape, ways], whole, name + "_groups", COMM_REDUCE)
            return more if last is None else te.compute(more.shape, lambda *ax: more(*ax) + last(*ax), name=name + "_skipped")

        skipped = None
        for size, part in zip(sizes[:-2], sizes[1:]):
            skipped = skip(size, part, skipped)
        j, q = te.reduce_axis((0, ways), "j"), te.reduce_axis((0, sizes[-2]), "q")

        def rest(*ax):
            inside = skipped(*ax, j) + q
            place = first(ax, j) + te.min(inside, length - 1)
            return te.sum(finish(ax, place, inside < length, tir.Select(tir.EQ(q.var, 0), inside, 0)), axis=[j, q])

        return c_compute(shape, rest, name, COMM_REDUCE)

    r = te.reduce_axis((0, _RUN), "r")
    base = lambda ax: te.indexdiv(ax[axis], _RUN) * _RUN  # noqa: E731
    rank = c_compute(shape, lambda *ax: te.sum(before(ax, base(ax) + r, ax[axis]).astype("int32"), axis=r), "T_rank", COMM_REDUCE)
    r2 = te.reduce_axis((0, _RUN), "r")
    pick = lambda *ax: te.sum(tir.Select(tir.EQ(rank(*put(ax, base(ax) + r2)) + base(ax), ax[axis]), base(ax) + r2, 0), axis=r2)  # noqa: E731
    at, length = c_compute(shape, pick, "T_run", COMM_REDUCE), _RUN
    for _ in range(levels):
        at, length = _joined(at, put, before, chosen, length, axis, ways), length * ways
    return injective([*x.shape[:axis], count, *x.shape[axis + 1 :]], lambda *ax: at(*ax), "T_argsort")


def _joined(at, put, before, chosen, length, axis, ways):
    """Runs of `ways` times the length: the rank of each element in its own, then the element of each rank."""
    def earlier(ax, place):
        return before(ax, at(*put(ax, place)), at(*put(ax, ax[axis])))

    rank = chosen(length, earlier, lambda ax, place, ok, skipped: tir.And(ok, earlier(ax, place)).astype("int32") + skipped, "T_rank")
    own = lambda ax: te.indexmod(ax[axis], length * ways)  # noqa: E731
    found = lambda ax, place, ok, skipped: tir.Select(tir.And(ok, tir.EQ(rank(*put(ax, place)), own(ax))), at(*put(ax, place)), 0)  # noqa: E731
    return chosen(length, lambda ax, place: rank(*put(ax, place)) < own(ax), found, "T_run")


def argsort(data, valid_count=None, axis=-1, is_ascend=True, dtype="float32"):
    """The positions, of type ``dtype``, that sort ``data`` along a dimension; stable.

    ``valid_count``, a tensor of all dimensions but ``axis``: only so many elements are sorted, the rest stays in its place.
    """
    a = normal_axis(axis, len(data.shape))
    if valid_count is None:
        return as_type(_positions(data, a, is_ascend, data.shape[a]), dtype)
    rest = injective(data.shape, lambda *ax: ax[a] >= valid_count(*ax[:a], *ax[a + 1 :]), "T_beyond")
    return as_type(_positions(data, a, is_ascend, data.shape[a], rest), dtype)


def sort(data, axis=-1, is_ascend=True):
    """``data`` sorted along a dimension; stable."""
    a = normal_axis(axis, len(data.shape))
    at = _positions(data, a, is_ascend, data.shape[a])
    return injective(data.shape, lambda *ax: data(*ax[:a], at(*ax), *ax[a + 1 :]), "T_sort")


def topk(data, k=1, axis=-1, ret_type="both", is_ascend=False, dtype="int64"):
    """The ``k`` largest (``is_ascend``: smallest) elements along a dimension in their order; below 1: all. ``ret_type``:
    ``"both"`` (a list: values, then positions), ``"values"``, ``"indices"``."""
    if ret_type not in ("both", "values", "indices"):
        raise ValueError(f'topk: ret_type is "both", "values" or "indices", not {ret_type!r}')
    a = normal_axis(axis, len(data.shape))
    n = get_const_int(data.shape[a])
    count = get_const_int(k) if get_const_int(k) >= 1 else n
    if count > n:
        raise ValueError(f"topk: {count} elements of a dimension of extent {n}")
    at = _positions(data, a, is_ascend, count)
    out = []
    if ret_type != "indices":
        out.append(injective(at.shape, lambda *ax: data(*ax[:a], at(*ax), *ax[a + 1 :]), "T_topk"))
    if ret_type != "values":
        out.append(as_type(at, dtype))
    return out if len(out) > 1 else out[0]
