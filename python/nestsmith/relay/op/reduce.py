"""Reductions."""

import numpy as np

from ... import topi
from ...numerics import mean_type, sum_type
from ..expr import Tuple, TupleWrapper
from ..ty import TensorType
from .layout import Plan, first, rank_of
from .registry import FOLLOW, NEVER, REDUCE, call, norm_axis, register, tensor
from .tensor import add, cast, check_type, exp, log, np_divide, sqrt, subtract
from .transform import squeeze

__all__ = ["argmax", "argmin", "variance", "mean_variance", "std", "logsumexp"]


def real_axes(attrs, rank):
    """The axes reduced, sorted, counted from the front."""
    axis = attrs.get("axis")
    if axis is None:
        axes = list(range(rank))
    else:
        axes = sorted({norm_axis(a, rank) for a in ((axis,) if isinstance(axis, int) else axis)})
    if attrs.get("exclude"):
        axes = [i for i in range(rank) if i not in axes]
    return axes


def _layout_rule(e, has, want):
    """The axes are where the data has them; those that vanish leave the layout."""
    at = first(e, has)
    if at is None:
        return None
    axes = real_axes(e.attrs, len(at.old))
    if e.op_name in ("argmax", "argmin") and len(axes) > 1:
        return None  # the number of an element within several axes depends on their order
    result = at if e.attrs.keepdims else at.without(axes)
    wants = [at if rank_of(a) == len(at.old) else at.without(axes) for a in e.args]
    return Plan(wants, result, {"axis": tuple(sorted(at.axis(k) for k in axes)), "exclude": False})


def _infer(dtype=None, numeric=False, name=None):
    """The type rule; `dtype`: of the result, if it is not that of the data; `numeric`: truth values are refused;
    `name`: as ``check_type`` knows the operator."""

    def infer(attrs, types):
        t = tensor(types, 0)
        check_type(name, t.dtype)
        if numeric and t.dtype == "bool":
            raise ValueError("a mean or variance takes numbers, not bool; use relay.cast")
        axes = real_axes(attrs, len(t.shape))
        if attrs.get("keepdims"):
            shape = [1 if i in axes else d for i, d in enumerate(t.shape)]
        else:
            shape = [d for i, d in enumerate(t.shape) if i not in axes]
        return TensorType(shape, dtype or t.dtype)

    return infer


def _ev(fn):
    def ev(attrs, x, *more):
        axes = tuple(real_axes(attrs, x.ndim))
        out = np.asarray(fn(x.astype(sum_type(str(x.dtype))), axes, bool(attrs.get("keepdims"))))
        if attrs.get("finite"):
            out = np.clip(out, np.finfo(out.dtype).min, np.finfo(out.dtype).max)
        return out.astype(x.dtype)

    return ev


def _ev_arg(fn):
    def ev(attrs, x):
        axes = real_axes(attrs, x.ndim)
        rest = [i for i in range(x.ndim) if i not in axes]
        flat = x.transpose(rest + axes).reshape([x.shape[i] for i in rest] + [-1])
        last = attrs.get("select_last_index")
        out = (flat.shape[-1] - 1 - fn(flat[..., ::-1], axis=-1) if last else fn(flat, axis=-1)).astype("int32")
        if attrs.get("keepdims"):
            out = out.reshape([1 if i in axes else d for i, d in enumerate(x.shape)])
        return out

    return ev


def _ev_variance(attrs, x, mean):
    axes = tuple(real_axes(attrs, x.ndim))
    if mean.ndim != x.ndim:
        mean = np.expand_dims(mean, axes)
    n = int(np.prod([x.shape[i] for i in axes])) - (1 if attrs.get("unbiased") else 0)
    wide = mean_type(str(x.dtype))
    total = ((x.astype(wide) - mean.astype(wide)) ** 2).sum(axes, keepdims=bool(attrs.get("keepdims")))
    return np.asarray(np_divide(total, total.dtype.type(n))).astype(x.dtype)


def _np_mean(x, axes, keepdims):
    total = np.sum(x, axes, dtype=mean_type(str(x.dtype)), keepdims=keepdims)
    return np_divide(total, total.dtype.type(np.prod([x.shape[i] for i in axes])))


def _of_nothing(x, sign):
    """The extreme of no elements, as compiled: the neutral one."""
    if x.size:
        return {}
    if x.dtype == bool:
        return {"initial": sign > 0}
    if np.issubdtype(x.dtype, np.floating):
        return {"initial": sign * np.inf}
    return {"initial": np.iinfo(x.dtype).max if sign > 0 else np.iinfo(x.dtype).min}


_FN = {
    "sum": lambda x, a, k: np.sum(x, a, keepdims=k),
    "mean": _np_mean,
    "max": lambda x, a, k: np.max(x, a, keepdims=k, **_of_nothing(x, -1)),
    "min": lambda x, a, k: np.min(x, a, keepdims=k, **_of_nothing(x, 1)),
    "prod": lambda x, a, k: np.prod(x, a, keepdims=k),
    "all": lambda x, a, k: np.all(x, a, keepdims=k),
    "any": lambda x, a, k: np.any(x, a, keepdims=k),
}


def _axis(axis):
    return axis if axis is None or isinstance(axis, int) else tuple(int(a) for a in axis)


def _reduce_loops(a, x, c, t):
    axes = real_axes(a, len(c.args[0].checked_type.shape))
    more = {k: True for k in ("finite", "select_last_index") if a.get(k)}
    return getattr(topi, c.op_name)(x[0], axes, a.keepdims, **more)


def _make(name, infer, ev):
    colour = NEVER if name in ("sum", "mean", "prod") else FOLLOW
    register(name, REDUCE, infer, ev, layout=_layout_rule, colour=colour, loops=_reduce_loops)

    def build(data, axis=None, keepdims=False, exclude=False):
        return call(name, [data], axis=_axis(axis), keepdims=bool(keepdims), exclude=bool(exclude))

    return topi.util.named(build, name,
                           f"``{name}`` over `axis` (None: all; `exclude`: all but these); `keepdims` leaves them with extent 1.")  # fmt: skip


for _n, _f in _FN.items():
    globals()[_n] = _make(_n, _infer(numeric=_n == "mean", name=_n), _ev(_f))
    __all__.append(_n)


def _make_arg(name, fn, which):
    register(name, REDUCE, _infer("int32"), _ev_arg(fn), layout=_layout_rule, colour=FOLLOW, loops=_reduce_loops)

    def build(data, axis=None, keepdims=False, exclude=False, select_last_index=False):
        more = {"select_last_index": True} if select_last_index else {}
        return call(name, [data], axis=_axis(axis), keepdims=bool(keepdims), exclude=bool(exclude), **more)

    return topi.util.named(build, name,
                           f"Where the {which} element lies, as int32: the first of equals, or the last (`select_last_index`); axes as those of "
                           "the reductions. A NaN counts as the element looked for.")  # fmt: skip


argmax, argmin = _make_arg("argmax", np.argmax, "largest"), _make_arg("argmin", np.argmin, "smallest")


def _variance_loops(a, x, c, t):
    axes = real_axes(a, len(c.args[0].checked_type.shape))
    return topi.variance(x[0], x[1], axes, a.keepdims, a.unbiased)


register("variance", REDUCE, _infer(numeric=True), _ev_variance, layout=_layout_rule, colour=NEVER,
         loops=_variance_loops, apart=lambda call: call)  # fmt: skip


def _variance(data, mean_, axis, keepdims, exclude, unbiased):
    return call("variance", [data, mean_], axis=_axis(axis), keepdims=bool(keepdims), exclude=bool(exclude),
                unbiased=bool(unbiased))  # fmt: skip


def variance(data, axis=None, keepdims=False, exclude=False, unbiased=False, with_mean=None):
    """Variance over `axis`; the mean is computed unless given (with kept dimensions)."""
    m = with_mean if with_mean is not None else mean(data, axis, True, exclude)  # noqa: F821
    return _variance(data, m, axis, keepdims, exclude, unbiased)


def mean_variance(data, axis=None, keepdims=False, exclude=False, unbiased=False):
    """(mean, variance) over `axis`."""
    m = mean(data, axis, True, exclude)  # noqa: F821
    v = _variance(data, m, axis, keepdims, exclude, unbiased)
    if not keepdims:
        m = mean(data, axis, False, exclude)  # noqa: F821
    return TupleWrapper(Tuple([m, v]), 2)


def _in_sum_type(data, form):
    """``form(data)``, a composition of operators, formed in the type of sums and rounded once."""
    dtype = data.checked_type.dtype
    wide = sum_type(dtype)
    return form(data) if wide == dtype else cast(form(cast(data, wide)), dtype)


def std(data, axis=None, keepdims=False, exclude=False, unbiased=False):
    """Standard deviation over `axis`."""
    return _in_sum_type(data, lambda x: sqrt(variance(x, axis, keepdims, exclude, unbiased)))


def logsumexp(data, axis=None, keepdims=False):
    """log of the sum of exponentials over `axis`, computed without overflow."""
    axes = real_axes({"axis": axis}, len(data.checked_type.shape))

    def form(x):
        # Of infinities the extreme finite value: inf - inf would not be a number.
        m = call("max", [x], axis=_axis(axes), keepdims=True, exclude=False, finite=True)
        out = add(log(sum(exp(subtract(x, m)), axes, True)), m)  # noqa: F821
        return out if keepdims else squeeze(out, axes)

    return _in_sum_type(data, form)


def softmax_numpy(x, axis, log=False):
    """Softmax of an array, or its logarithm, rounded once to its element type."""
    wide = x.astype(sum_type(str(x.dtype)))
    if not x.size:
        return x
    with np.errstate(all="ignore"):
        d = wide - wide.max(axis, keepdims=True)
        e = np.exp(d)
        total = e.sum(axis, keepdims=True)
        return (d - np.log(total) if log else e / total).astype(x.dtype)
