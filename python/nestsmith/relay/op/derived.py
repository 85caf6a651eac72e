"""Operators whose type is that of their definition: the tensors of :mod:`nestsmith.topi` are made of placeholders to know shape and type."""

from ... import te
from ...topi.utils import get_const_tuple
from ..ty import TensorType, TupleType
from .registry import INJECTIVE, NEVER, register

__all__ = ["derive"]


def _placeholder(t):
    if isinstance(t, TupleType):
        return [_placeholder(f) for f in t.fields]
    if not isinstance(t, TensorType):
        raise ValueError("the arguments must be tensors")
    return te.placeholder(t.concrete_shape, t.dtype)


def _type(made):
    return TensorType(get_const_tuple(made.shape), made.dtype)


def derive(name, make, pattern=INJECTIVE, **more):
    """Registers the operator `name`: ``make(attrs, inputs)`` gives its tensor, or a list of them for a tuple."""

    def infer(attrs, types):
        made = make(attrs, [_placeholder(t) for t in types])
        return TupleType([_type(t) for t in made]) if isinstance(made, (list, tuple)) else _type(made)

    def loops(attrs, inputs, call, target):
        made = make(attrs, inputs)
        return list(made) if isinstance(made, (list, tuple)) else made

    more.setdefault("colour", NEVER if pattern > INJECTIVE else None)  # in the type that the network has
    return register(name, pattern, infer, loops=loops, **more)
