"""The table of converters, and what they say of axes."""

import functools

from ... import op as relay
from ...expr import Expr, TupleWrapper
from .. import common as c
from ..values import rank_of, shape_of
from .promotion import Types, promoted

__all__ = ["ATEN", "aten", "each", "lifted", "listed", "per_axis", "scaled", "unless_empty", "with_axis"]

ATEN: dict = {}


def aten(*names, types=None):
    """Registers a function for operators of the namespace ``aten``, all overloads or (``"name.overload"``) one; `types` says how
    its operands come to one element type."""

    def add(f):
        f = f if types is None else promoted(f, types)
        for name in names:
            ATEN[f"aten::{name}"] = f
        return f

    return add


def each(rows, make=None, types=None):
    for names, what in rows.items():
        aten(*names.split(), types=types)(make(what) if make else what)


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


def unless_empty(convert):
    """`convert` writes the elements of tensors into its first argument, which stays as it is where one of them has none."""

    @functools.wraps(convert)
    def written(x, *args, **kwargs):
        nothing = any(isinstance(a, Expr) and 0 in shape_of(a) for a in _flat([*args, *kwargs.values()]))
        return x if nothing else convert(x, *args, **kwargs)

    return written


def _flat(values):
    return [w for v in values for w in (_flat(v) if isinstance(v, (list, tuple)) else [v])]


_multiplied = promoted(lambda x, factor: relay.multiply(x, c.scalar(factor, x)), Types("x", "factor", wide="factor"))


def scaled(x, factor):
    return x if factor == 1 else _multiplied(x, factor)
