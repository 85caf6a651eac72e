"""Operators whose type is that of their definition: the tensors of :mod:`nestsmith.topi` are made of placeholders to know shape and type."""

import math

from ... import te
from ...topi.utils import get_const_tuple
from ..dims import Sym
from ..ty import Any, TensorType, TupleType
from .registry import INJECTIVE, NEVER, register

__all__ = ["derive"]


_SIZE = 5040  # of a dimension that is not known, while a definition is asked: it has many divisors


def _placeholder(t, sizes):
    if isinstance(t, TupleType):
        return [_placeholder(f, sizes) for f in t.fields]
    if not isinstance(t, TensorType):
        raise ValueError("the arguments must be tensors")
    return te.placeholder([sizes.get(_key(d), d) for d in t.shape], t.dtype)


def _key(d):
    return d if isinstance(d, Sym) else Any if isinstance(d, Any) else None


def _unknown(types):
    dims = [d for t in types for d in (_unknown(t.fields) if isinstance(t, TupleType) else getattr(t, "shape", ()))]
    return list(dict.fromkeys(_key(d) for d in dims if isinstance(d, Any) or d is Any))


def _dim(at, size):
    """A dimension of a result as an expression of `size`, by what it is for numbers of that; Any if it is no linear expression of it."""
    slope = at[2 * _SIZE] - at[_SIZE]
    up, down = slope // (g := math.gcd(slope, _SIZE)), _SIZE // g
    plus = at[_SIZE] - slope
    if size is Any or any(up * n // down + plus != v for n, v in at.items()):
        return Any()
    return size * up // down + plus


def _shapes(shapes, size):
    """(shapes, which of their dimensions depend on a size) by the shapes for numbers of it."""
    def of(k, i):
        at = {n: s[k][i] for n, s in shapes.items()}
        return None if len(set(at.values())) == 1 else _dim(at, size)

    return [[of(k, i) for i in range(len(s))] for k, s in enumerate(shapes[_SIZE])]


def derive(name, make, pattern=INJECTIVE, **more):
    """Registers the operator `name`: ``make(attrs, inputs)`` gives its tensor, or a list of them for a tuple."""

    def infer(attrs, types):
        def asked(sizes):
            made = make(attrs, [_placeholder(t, sizes) for t in types])
            return made if isinstance(made, (list, tuple)) else [made], isinstance(made, (list, tuple))

        unknown = _unknown(types)
        sizes = dict.fromkeys(unknown, _SIZE)
        made, several = asked(sizes)
        found = [list(get_const_tuple(t.shape)) for t in made]
        for u in unknown:
            shapes = {_SIZE: [get_const_tuple(t.shape) for t in made]}
            for n in (2 * _SIZE, 3 * _SIZE, *range(_SIZE + 1, _SIZE + 8)):
                try:
                    shapes[n] = [get_const_tuple(t.shape) for t in asked({**sizes, u: n})[0]]
                except ValueError:  # a number that does not divide
                    continue
            for row, new in zip(found, _shapes(shapes, u)):
                row[:] = [d if v is None else v if isinstance(d, int) else Any() for d, v in zip(row, new)]
        out = [TensorType(shape, t.dtype) for shape, t in zip(found, made)]
        return TupleType(out) if several else out[0]

    def loops(attrs, inputs, call, target):
        made = make(attrs, inputs)
        return list(made) if isinstance(made, (list, tuple)) else made

    more.setdefault("colour", NEVER if pattern > INJECTIVE else None)  # in the type that the network has
    return register(name, pattern, infer, loops=loops, **more)
