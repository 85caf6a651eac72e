"""Order along one dimension.

Signatures::

    argsort(data, valid_count=None, axis=-1, is_ascend=True, dtype="float32")   T_rank, T_argsort
    sort(data, axis=-1, is_ascend=True)                                         T_rank, T_argsort, T_sort
    topk(data, k=1, axis=-1, ret_type="both", is_ascend=False, dtype="int64")   T_rank, T_argsort, T_topk
                                                                                -> list of values and indices, or one of them

Equal elements keep their order, NaN is larger than every number, -0.0 equals 0.0: as NumPy's stable sort and PyTorch's.

The rank of an element is the number of elements that come before it, and element r of the result is the position whose rank is
r. Both are reductions, so that they lower and are tuned as any other on CPUs and GPUs alike; the price is n comparisons
for each of n elements and n more for each element of the result: a row of 1,000 takes 1 ms on a CPU core, one of 10,000
0.2 s.
"""

from .. import te, tir
from .elemwise import as_type
from .util import COMM_REDUCE, c_compute, get_const_int, injective, is_float, normal_axis

__all__ = ["argsort", "sort", "topk"]


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
    rank, k = _ranks(x, axis, is_ascend, beyond), te.reduce_axis((0, x.shape[axis]), "k")
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]

    def f(*ax):
        here = tir.EQ(rank(*ax[:axis], k, *ax[axis + 1 :]), ax[axis])
        return te.sum(tir.Select(here, k.var, 0), axis=k)

    return c_compute(shape, f, "T_argsort", COMM_REDUCE)


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
