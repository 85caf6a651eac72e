"""Element-wise operators on one tensor.

Signatures (``x``: tensor of any rank and, unless said, float type)::

    exp log sqrt tanh erf sigmoid sin cos tan ... floor ceil round trunc abs negative sign    T_<name>
    round_tf32(x)                float32 only                         T_round_tf32
    rsqrt(x)                                                          stage ``tensor``
    relu(x), leaky_relu(x, alpha)              graph forms T_relu, T_leaky_relu (nn.relu: hand-written form)
    clip(x, a_min, a_max)                                             stage ``compute``, axes i0...
    cast(x, dtype)  identity(x)  full(shape, dtype, value)  zeros  ones  full_like(x, value)
    scalar_const(value, dtype)                                        rank-0 stage ``compile_engine_const``
"""

import typing

from .. import te, tir
from ..numerics import clip_bounds
from .util import BROADCAST, ELEMWISE, c_compute, const_like, is_float, named

if typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any: ...  # operators are made from a table


def _elemwise(x, f, name):
    return c_compute(x.shape, lambda *ax: f(x(*ax)), name, ELEMWISE)


_OPS = """exp exp2 exp10 erf tanh sigmoid log log2 log10 log1p expm1 erfc tan cos cosh sin sinh asin acos atan asinh acosh atanh sqrt floor
ceil round round_tf32 trunc isnan abs isinf isfinite bitwise_not""".split()
_DOCS = {"abs": "Absolute value", "isinf": "True where infinite", "isfinite": "True where finite", "bitwise_not": "``~x`` of integers"}
__all__ = [*_OPS, "cast", "clip", "copy", "full", "full_like", "identity", "leaky_relu", "negative", "ones", "relu", "rsqrt", "scalar_const",
           "sign", "zeros"]  # fmt: skip


def _make(name):
    scalar = getattr(tir, name)

    def f(x):
        return _elemwise(x, scalar, f"T_{name}")

    return named(f, name, f"{_DOCS.get(name, f'``{name}`` of every element')}; stage ``T_{name}``.")


globals().update({name: _make(name) for name in _OPS})


def negative(x):
    """``0 - x``, of floats ``-0.0 - x``: of 0 it is -0; stage ``T_negative``."""
    return _elemwise(x, lambda v: tir.op.kept_number(-0.0 if is_float(v.dtype) else 0, v.dtype) - v, "T_negative")


def rsqrt(x):
    """``1 / sqrt(x)``."""
    return _elemwise(x, lambda v: const_like(1, v) / te.sqrt(v), "tensor")


def sign(x):
    """-1, 0 or 1; stage ``T_sign``."""

    def f(v):
        zero, one, neg = (const_like(c, v) for c in (0, 1, -1))
        return tir.Select(v > zero, one, tir.Select(v < zero, neg, zero))

    return _elemwise(x, f, "T_sign")


def relu(x):
    """``max(x, 0)``; stage ``T_relu``, as in networks."""
    return _elemwise(x, lambda v: tir.Max(v, const_like(0, v)), "T_relu")


def leaky_relu(x, alpha=0.1):
    """``x`` where positive, else ``alpha * x``; stage ``T_leaky_relu``."""
    return _elemwise(x, lambda v: tir.Select(v > const_like(0, v), v, v * tir.op.kept_number(alpha, v.dtype)), "T_leaky_relu")


def cast(x, dtype):
    """Elements converted to ``dtype``; stage ``T_cast``."""
    return _elemwise(x, lambda v: v.astype(dtype), "T_cast")


def as_type(x, dtype):
    """``x`` itself if its elements have the type, else :func:`cast`: nothing is left behind where types agree."""
    return x if x.dtype == dtype else cast(x, dtype)


def identity(x):
    """A copy; stage ``T_identity``."""
    return _elemwise(x, lambda v: v, "T_identity")


copy = identity


def clip(x, a_min, a_max):
    """``max(min(x, a_max), a_min)``; stage ``compute``."""
    a_min, a_max = (v.value if isinstance(v, tir.Expr) else v for v in (a_min, a_max))
    low, high = (tir.const(v, x.dtype) for v in clip_bounds(a_min, a_max, x.dtype))
    return te.compute(x.shape, lambda *i: tir.Max(tir.Min(x(*i), high), low), tag=ELEMWISE)


def _value(value, dtype):
    if isinstance(value, tir.Expr):
        return value.astype(dtype)
    return tir.op.kept_number(float(value) if is_float(dtype) else int(value), dtype)


def full(shape, dtype, fill_value):
    """A tensor of one value; stage ``T_full``."""
    v = _value(fill_value, dtype)
    return c_compute(shape, lambda *ax: v, "T_full", ELEMWISE)


def zeros(shape, dtype="float32"):
    """A tensor of zeros."""
    return full(shape, dtype, 0)


def ones(shape, dtype="float32"):
    """A tensor of ones."""
    return full(shape, dtype, 1)


def full_like(x, fill_value):
    """A tensor of one value with the shape and type of ``x``; stage ``T_full_like``."""
    v = _value(fill_value, x.dtype)
    return c_compute(x.shape, lambda *ax: v, "T_full_like", ELEMWISE)


def scalar_const(value, dtype="float32"):
    """A rank-0 tensor holding a literal, as scalar constants of a network appear in tasks."""
    v = _value(value, dtype)
    return te.compute((), lambda: v, name="compile_engine_const", tag=BROADCAST)
