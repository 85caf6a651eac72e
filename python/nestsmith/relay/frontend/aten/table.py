"""The table of converters, and PyTorch's rules of element types."""

from __future__ import annotations

import functools

from ....numerics import is_float
from ... import op as relay
from ...expr import Expr, TupleWrapper
from .. import common as c
from ..values import array, dtype_of, rank_of

__all__ = ["ATEN", "as_type", "aten", "each", "lifted", "listed", "per_axis", "real", "result_type", "scaled", "together", "with_axis"]

ATEN: dict = {}


def aten(*names):
    """Registers a function for operators of the namespace ``aten``, all overloads or (``"name.overload"``) one."""

    def add(f):
        for name in names:
            ATEN[f"aten::{name}"] = f
        return f

    return add


def each(rows, make):
    for names, what in rows.items():
        aten(*names.split())(make(what))


_KINDS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def _category(dtype):
    return 0 if dtype == "bool" else 2 if is_float(dtype) else 1


def result_type(values):
    """PyTorch's rule: among the operands of the highest category, tensors come before tensors without axes, and these before
    Python's numbers."""
    ranked = []
    for v in values:
        if isinstance(v, Expr):
            ranked.append((dtype_of(v), 0 if rank_of(v) else 1))
        else:
            ranked.append(("bool" if isinstance(v, bool) else "int64" if isinstance(v, int) else "float32", 2))
    top = max(_category(d) for d, _ in ranked)
    first = min(level for _, level in ranked)
    have = [d for d, level in ranked if level == first]
    if max(map(_category, have)) < top:
        level = min(level for d, level in ranked if _category(d) == top)
        have = [d for d, at in ranked if at == level and _category(d) == top]
    kinds = set(have)
    if {"float16", "bfloat16"} <= kinds:
        kinds.add("float32")
    if "uint8" in kinds and "int8" in kinds:
        kinds.add("int16")
    return max(kinds, key=_KINDS.index)


def as_type(v, dtype):
    if isinstance(v, Expr):
        return c.cast(v, dtype)
    return array(v, dtype)


def together(*values, real=False):
    """The values as expressions of one type; `real`: a floating one."""
    kind = result_type(values)
    kind = "float32" if real and not is_float(kind) else kind
    return [as_type(v, kind) for v in values]


def real(x):
    return x if is_float(dtype_of(x)) else relay.cast(x, "float32")


def listed(dim):
    """An argument `dim` as a list; None for all axes."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return [dim] if isinstance(dim, int) else list(dim)


def per_axis(v, n):
    v = [v] if isinstance(v, int) else list(v)
    return v * n if len(v) == 1 else v


def lifted(x):
    """A tensor without axes with one; other values as they are."""
    return relay.expand_dims(x, 0) if isinstance(x, Expr) and not rank_of(x) else x


def with_axis(convert):
    """`convert` works along an axis of its first argument; PyTorch takes a tensor without axes for one of one element there."""

    @functools.wraps(convert)
    def wider(x, *args, **kwargs):
        if rank_of(x):
            return convert(x, *args, **kwargs)
        out = convert(lifted(x), *args, **kwargs)
        return [relay.reshape(y, ()) for y in out] if isinstance(out, (list, TupleWrapper)) else relay.reshape(out, ())

    return wider


def scaled(x, factor):
    return x if factor == 1 else relay.multiply(x, c.scalar(factor, x))
