"""Operators whose elements depend on the order along an axis: running sums, sorting."""

import numpy as np

from ... import check, topi
from ...numerics import sum_type
from ..expr import Constant, TupleWrapper
from ..ty import Any, TensorType, TupleType
from . import layout as layouts
from .registry import FOLLOW, NEVER, OPAQUE, call, norm_axis, register, tensor

__all__ = ["argsort", "cummax", "cummin", "cumprod", "cumsum", "logcumsumexp", "topk"]


_FOLDED = {"cumsum": (np.add, 0), "cumprod": (np.multiply, 1)}


def _running_infer(attrs, types):
    t = tensor(types, 0)
    dtype = attrs.dtype or t.dtype
    if attrs.axis is None:
        return TensorType((t.size,), dtype)
    norm_axis(attrs.axis, len(t.shape))
    return TensorType(t.shape, dtype)


def _formed_in(dtype, target):
    """Float32 sums and products are formed in float64 on CPUs and in float32 on GPUs, where float64 may be slow or missing."""
    return "float64" if dtype == "float32" and "gpu" not in target.keys else None


def _register_folded(name):
    ufunc, first = _FOLDED[name]

    def evaluate(attrs, x):
        dtype = attrs.dtype or str(x.dtype)
        x, axis = (x.reshape(-1), 0) if attrs.axis is None else (x, attrs.axis)
        out = ufunc.accumulate(x.astype("float64" if dtype == "float32" else sum_type(dtype)), axis)
        if attrs.exclusive:  # not out - x, which rounds
            out = np.roll(out, 1, axis)
            np.moveaxis(out, axis, 0)[:1] = first
        return out.astype(dtype)

    def loops(a, x, c, t):
        dtype = c.checked_type.dtype
        return getattr(topi, name)(x[0], a.axis, dtype, a.exclusive, _formed_in(dtype, t))

    register(name, OPAQUE, _running_infer, evaluate, layout=layouts.along_axis, colour=NEVER, loops=loops)


for _name in _FOLDED:
    _register_folded(_name)


def _folded(name, data, axis, dtype, exclusive):
    return call(name, [data], axis=None if axis is None else int(axis), dtype=dtype or "", exclusive=bool(exclusive))


def cumsum(data, axis=None, dtype=None, exclusive=False):
    """Running sum along `axis` (None: of the flattened tensor), in `dtype` (None: that of the data); `exclusive`: without
    the element itself."""
    return _folded("cumsum", data, axis, dtype, exclusive)


def cumprod(data, axis=None, dtype=None, exclusive=False):
    """Running product along `axis` (None: of the flattened tensor), in `dtype` (None: that of the data); `exclusive`: without
    the element itself."""
    return _folded("cumprod", data, axis, dtype, exclusive)


def _pick(ret_type, values, indices):
    return {"both": [values, indices], "values": values, "indices": indices}[ret_type]


def _most_infer(attrs, types):
    t = tensor(types, 0)
    norm_axis(attrs.axis, len(t.shape))
    out = _pick(attrs.ret_type, t, TensorType(t.shape, attrs.dtype))
    return TupleType(out) if attrs.ret_type == "both" else out


def _register_most(name, ufunc):
    def evaluate(attrs, x):
        values = ufunc.accumulate(x, attrs.axis)
        shape = [-1 if a == attrs.axis % x.ndim else 1 for a in range(x.ndim)]
        here = np.where((x == values) | (x != x), np.arange(x.shape[attrs.axis]).reshape(shape), 0)
        return _pick(attrs.ret_type, values, np.maximum.accumulate(here, attrs.axis).astype(attrs.dtype))

    def loops(a, x, c, t):
        return getattr(topi, name)(x[0], a.axis, a.ret_type, a.dtype)

    register(name, OPAQUE, _most_infer, evaluate, layout=layouts.along_axis, colour=NEVER, loops=loops)


_register_most("cummax", np.maximum)
_register_most("cummin", np.minimum)


def _most(name, data, axis, ret_type, dtype):
    check.one_of_names("ret_type", ret_type, ("values", "indices", "both"))
    out = call(name, [data], axis=int(axis), ret_type=ret_type, dtype=dtype)
    return TupleWrapper(out, 2) if ret_type == "both" else out


def cummax(data, axis, ret_type="values", dtype="int64"):
    """Running maximum along `axis`; NaN from the first NaN on. `ret_type`: ``"values"``, ``"indices"`` (of type `dtype`; of equal ones and
    of those that are NaN, the last) or ``"both"``."""
    return _most("cummax", data, axis, ret_type, dtype)


def cummin(data, axis, ret_type="values", dtype="int64"):
    """Running minimum along `axis`; see `cummax`."""
    return _most("cummin", data, axis, ret_type, dtype)


def _logcumsumexp(attrs, x):
    with np.errstate(invalid="ignore"):
        return np.logaddexp.accumulate(x.astype("float64"), attrs.axis).astype(x.dtype)


def _same_along_axis(attrs, types):
    t = tensor(types, 0)
    norm_axis(attrs.axis, len(t.shape))
    return t


register("logcumsumexp", OPAQUE, _same_along_axis, _logcumsumexp, layout=layouts.along_axis, colour=NEVER,
         loops=lambda a, x, c, t: topi.logcumsumexp(x[0], a.axis))  # fmt: skip


def logcumsumexp(data, axis):
    """Logarithm of the running sum of exponentials along `axis`."""
    return call("logcumsumexp", [data], axis=int(axis))


def _count(attrs, shape, axis):
    """How many elements topk takes; ValueError if there are not so many."""
    n = shape[axis]
    if attrs.k >= 1 and not isinstance(n, Any) and attrs.k > n:
        raise ValueError(f"k is {attrs.k}, axis {axis} has {n} elements")
    return attrs.k if attrs.k >= 1 else n


def _topk_infer(attrs, types):
    t = tensor(types, 0)
    axis = norm_axis(attrs.axis, len(t.shape))
    shape = [_count(attrs, t.shape, axis) if i == axis else d for i, d in enumerate(t.shape)]
    out = {"values": [TensorType(shape, t.dtype)], "indices": [TensorType(shape, attrs.dtype)]}
    fields = out["values"] + out["indices"] if attrs.ret_type == "both" else out[attrs.ret_type]
    return TupleType(fields) if len(fields) > 1 else fields[0]


def _argsort_infer(attrs, types):
    t = tensor(types, 0)
    norm_axis(attrs.axis, len(t.shape))
    return TensorType(t.shape, attrs.dtype)


def _order(attrs, x):
    """Positions that sort `x`: stable in both directions, NaN is larger than numbers."""
    if attrs.is_ascend:
        return np.argsort(x, attrs.axis, kind="stable")
    backwards = np.argsort(np.flip(x, attrs.axis), attrs.axis, kind="stable")
    return x.shape[attrs.axis] - 1 - np.flip(backwards, attrs.axis)


def _ev_topk(attrs, x):
    at = np.take(_order(attrs, x), range(_count(attrs, x.shape, attrs.axis)), attrs.axis)
    out = {"values": np.take_along_axis(x, at, attrs.axis), "indices": at.astype(attrs.dtype)}
    return list(out.values()) if attrs.ret_type == "both" else out[attrs.ret_type]


register("topk", OPAQUE, _topk_infer, _ev_topk, layout=layouts.along_axis, colour=FOLLOW,
         loops=lambda a, x, c, t: topi.topk(x[0], a.k, a.axis, a.ret_type, a.is_ascend, a.dtype))  # fmt: skip


register("argsort", OPAQUE, _argsort_infer, lambda attrs, x: _order(attrs, x).astype(attrs.dtype),
         layout=layouts.along_axis, colour=FOLLOW,
         loops=lambda a, x, c, t: topi.argsort(x[0], None, a.axis, a.is_ascend, a.dtype))  # fmt: skip


def topk(data, k=1, axis=-1, ret_type="both", is_ascend=False, dtype="int32"):
    """The `k` largest (`is_ascend`: smallest) elements along `axis` in their order, all if `k` is below 1: `ret_type`
    ``"both"`` (values and indices), ``"values"`` or ``"indices"`` (of type `dtype`). Equal elements keep their order; NaN
    is larger than numbers. The cost grows with the square of the axis' extent."""
    check.one_of_names("ret_type", ret_type, ("both", "values", "indices"))
    k = int(k.data) if isinstance(k, Constant) else check.integer("k", k)
    out = call("topk", [data], k=k, axis=int(axis), ret_type=ret_type, is_ascend=bool(is_ascend), dtype=dtype)
    return TupleWrapper(out, 2) if ret_type == "both" else out


def argsort(data, axis=-1, is_ascend=True, dtype="int32"):
    """The indices, of type `dtype`, that sort along `axis`; equal elements keep their order, NaN is larger than numbers.
    The cost grows with the square of the axis' extent."""
    return call("argsort", [data], axis=int(axis), is_ascend=bool(is_ascend), dtype=dtype)
