"""Softmax and its logarithm; of 16-bit floats they are formed in float32, and the result is rounded once."""

from ... import te
from ..elemwise import as_type
from ..math import fast_exp_of
from ..util import normal_axis, sum_type

__all__ = ["fast_softmax", "log_softmax", "softmax", "softmax_common"]


def _parts(x, axis):
    a = normal_axis(axis, len(x.shape))
    if not x.dtype.startswith(("float", "bfloat")):
        raise ValueError(f"softmax of {x.dtype}: it is defined for floating-point types; cast the data first")
    rest = [s for i, s in enumerate(x.shape) if i != a]

    def put(ix, k):
        return [*ix[:a], k, *ix[a:]]

    def drop(ix):
        return [*ix[:a], *ix[a + 1 :]]

    return a, rest, put, drop


def softmax(x, axis=-1):
    """``exp(x - max) / sum(exp(x - max))`` along a dimension; four stages ``T_softmax_...``."""
    return softmax_common(x, axis, False)


def fast_softmax(x, axis=-1):
    """:func:`softmax` with :func:`nestsmith.topi.fast_exp`, where that is another function."""
    return softmax_common(x, axis, True)


def softmax_common(x, axis, use_fast_exp):
    """:func:`softmax` or :func:`fast_softmax`."""
    return _stages(x, axis, False, use_fast_exp)


def log_softmax(x, axis=-1):
    """Logarithm of :func:`softmax`."""
    return _stages(x, axis, True, False)


def _stages(x, axis, log, fast):
    a, rest, put, drop = _parts(x, axis)
    dtype, x = x.dtype, as_type(x, sum_type(x.dtype))
    k1, k2 = te.reduce_axis((0, x.shape[a]), "k"), te.reduce_axis((0, x.shape[a]), "k")
    with te.tag_scope("log_softmax_output" if log else "softmax_output"):
        most = te.compute(rest, lambda *i: te.max(x(*put(i, k1)), axis=k1), name="T_softmax_maxelem")
        if log:
            total = te.compute(rest, lambda *i: te.sum(te.exp(x(*put(i, k2)) - most(*i)), axis=k2))
            norm = lambda *i: (x(*i) - most(*drop(i)) - te.log(total(*drop(i)))).astype(dtype)  # noqa: E731
            return te.compute(x.shape, norm, attrs={"axis": a})
        exp = fast_exp_of if fast and x.dtype == "float32" else te.exp
        e = te.compute(x.shape, lambda *i: exp(x(*i) - most(*drop(i))), name="T_softmax_exp")
        total = te.compute(rest, lambda *i: te.sum(e(*put(i, k2)), axis=k2), name="T_softmax_expsum")
        norm = lambda *i: (e(*i) / total(*drop(i))).astype(dtype)  # noqa: E731
        return te.compute(x.shape, norm, name="T_softmax_norm", attrs={"axis": a})
