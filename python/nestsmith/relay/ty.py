"""Types of graph expressions: tensors, tuples and functions.

A tensor type is a shape and an element type. A dimension is a non-negative ``int`` or :class:`Any`, which stands for
an extent known only at run time.
"""

from __future__ import annotations

from .. import check
from ..check import dtype_bytes

__all__ = ["Any", "Type", "TensorType", "TupleType", "FuncType", "DTYPES", "dtype_bytes", "scalar_type"]

DTYPES = "float32 float16 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()


class Any:
    """A dimension known only at run time. It is equal to no other dimension, itself included."""

    def __repr__(self):
        return "?"

    def __eq__(self, other):
        return False

    __hash__ = object.__hash__


class Type:
    """Base class of all types."""

    def __str__(self):
        return repr(self)


class TensorType(Type):
    """A tensor of `shape` (iterable of int or Any; ``()`` for a scalar) and `dtype` (a string)."""

    __slots__ = ("shape", "dtype")

    def __init__(self, shape, dtype="float32"):
        if isinstance(shape, int):
            shape = (shape,)
        dims = []
        for d in shape:
            if isinstance(d, Any):
                dims.append(d)
                continue
            if isinstance(d, (str, bytes)):
                raise TypeError(f"shape {tuple(shape)}: {d!r} is not an integer")
            d = int(d)
            if d < 0:
                raise ValueError(
                    f"shape {tuple(shape)}: a dimension must not be negative (use relay.Any() for an unknown one)"
                )
            dims.append(d)
        dtype = str(dtype)
        if dtype not in DTYPES:
            raise ValueError(f"dtype {dtype!r} is not supported; use one of {', '.join(DTYPES)}")
        check.shape("relay type", dims, dtype)
        self.shape = tuple(dims)
        self.dtype = dtype

    @property
    def concrete_shape(self):
        """The shape as integers; ValueError if a dimension is unknown."""
        if not self.is_static:
            raise ValueError(f"{self} has an unknown dimension")
        return self.shape

    @property
    def is_static(self):
        return not any(isinstance(d, Any) for d in self.shape)

    @property
    def size(self):
        n = 1
        for d in self.concrete_shape:
            n *= d
        return n

    @property
    def nbytes(self):
        return self.size * dtype_bytes(self.dtype)

    def __eq__(self, other):
        return isinstance(other, TensorType) and self.shape == other.shape and self.dtype == other.dtype

    def __hash__(self):
        return hash((self.shape, self.dtype))

    def __repr__(self):
        dims = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        return f"Tensor[({dims}), {self.dtype}]"


class TupleType(Type):
    """A tuple of types."""

    __slots__ = ("fields",)

    def __init__(self, fields):
        self.fields = tuple(fields)

    @property
    def is_static(self):
        return all(f.is_static for f in self.fields)

    def __eq__(self, other):
        return isinstance(other, TupleType) and self.fields == other.fields

    def __hash__(self):
        return hash(self.fields)

    def __repr__(self):
        return "(" + ", ".join(map(str, self.fields)) + ("," if len(self.fields) == 1 else "") + ")"


class FuncType(Type):
    """A function type: parameter types and result type."""

    __slots__ = ("arg_types", "ret_type")

    def __init__(self, arg_types, ret_type):
        self.arg_types = tuple(arg_types)
        self.ret_type = ret_type

    is_static = True

    def __eq__(self, other):
        return isinstance(other, FuncType) and self.arg_types == other.arg_types and self.ret_type == other.ret_type

    def __hash__(self):
        return hash((self.arg_types, self.ret_type))

    def __repr__(self):
        return "fn (" + ", ".join(map(str, self.arg_types)) + f") -> {self.ret_type}"


def scalar_type(dtype="float32"):
    """The type of a rank-0 tensor."""
    return TensorType((), dtype)
