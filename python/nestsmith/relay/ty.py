"""Types of graph expressions: tensors, tuples and functions.

A tensor type is a shape and an element type. A dimension is a non-negative ``int`` or :class:`Any`, which stands for
an extent known only at run time; :class:`Sym` is one that has a name, so that equal ones are known to be equal.
"""

import enum

from .. import check
from ..check import dtype_bytes
from ..tir import Any, PrimExpr
from .dims import Sym, as_dim

__all__ = ["Any", "Type", "TensorType", "TupleType", "FuncType", "DTYPES", "dtype_bytes", "scalar_type", "Sym",
           "TypeVar", "GlobalTypeVar", "TypeCall", "TypeConstraint", "TypeData", "TypeRelation", "TypeKind",
           "IncompleteType", "RefType", "ShapeVar", "is_dynamic"]  # fmt: skip

DTYPES = "float32 float16 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
_ALIASES = {"float": "float32", "int": "int32", "uint": "uint32"}


class Type:
    """Base class of all types."""

    is_static = True

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
            if isinstance(d, PrimExpr):
                d = as_dim(d)
                if isinstance(d, Sym):
                    dims.append(d)
                    continue
            if isinstance(d, (str, bytes)):
                raise TypeError(f"shape {tuple(shape)}: {d!r} is not an integer")
            d = int(d)
            if d < 0:
                raise ValueError(f"shape {tuple(shape)}: a dimension must not be negative (use relay.Any() for an "
                                 "unknown one)")  # fmt: skip
            dims.append(d)
        dtype = _ALIASES.get(str(dtype), str(dtype))
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

    is_static = property(lambda self: not any(isinstance(d, Any) for d in self.shape))

    @property
    def size(self):
        n = 1
        for d in self.concrete_shape:
            n *= d
        return n

    nbytes = property(lambda self: self.size * dtype_bytes(self.dtype))

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

    is_static = property(lambda self: all(f.is_static for f in self.fields))

    def __eq__(self, other):
        return isinstance(other, TupleType) and self.fields == other.fields

    def __hash__(self):
        return hash(self.fields)

    def __repr__(self):
        return "(" + ", ".join(map(str, self.fields)) + ("," if len(self.fields) == 1 else "") + ")"


class FuncType(Type):
    """A function type: parameter types and result type; type parameters and constraints of them are only kept."""

    __slots__ = ("arg_types", "ret_type", "type_params", "type_constraints")

    def __init__(self, arg_types, ret_type, type_params=None, type_constraints=None):
        self.arg_types = tuple(arg_types)
        self.ret_type = ret_type
        self.type_params, self.type_constraints = tuple(type_params or ()), tuple(type_constraints or ())

    def __eq__(self, other):
        return isinstance(other, FuncType) and self.arg_types == other.arg_types and self.ret_type == other.ret_type

    def __hash__(self):
        return hash((self.arg_types, self.ret_type))

    def __repr__(self):
        return "fn (" + ", ".join(map(str, self.arg_types)) + f") -> {self.ret_type}"


class TypeKind(enum.IntEnum):
    """What a type variable stands for."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
    Constraint = 4
    AdtHandle = 5
    TypeData = 6


class TypeVar(Type):
    """A type parameter of a function."""

    def __init__(self, name_hint, kind=TypeKind.Type):
        self.name_hint, self.kind = str(name_hint), kind

    def __repr__(self):
        return self.name_hint


class GlobalTypeVar(TypeVar):
    """The name of a type that a module defines."""

    def __init__(self, name_hint, kind=TypeKind.AdtHandle):
        super().__init__(name_hint, kind)

    def __call__(self, *args):
        return TypeCall(self, args)


class TypeCall(Type):
    """A type with type arguments."""

    def __init__(self, func, args):
        self.func, self.args = func, tuple(args)

    def __repr__(self):
        return f"{self.func}[{', '.join(map(str, self.args))}]"


class TypeData(Type):
    """The declaration of an algebraic data type: its name, type parameters and constructors. It is kept and walked; networks have no values
    of such types."""

    def __init__(self, header, type_vars, constructors):
        self.header, self.type_vars, self.constructors = header, tuple(type_vars), tuple(constructors)

    def __repr__(self):
        return f"type {self.header}[{', '.join(map(str, self.type_vars))}]"


class TypeConstraint(Type):
    """Base class of constraints of types."""


class TypeRelation(TypeConstraint):
    """A relation that types must have to each other: `func` of `args`, of which the first `num_inputs` determine the others."""

    def __init__(self, func, args, num_inputs, attrs=None):
        self.func, self.args, self.num_inputs, self.attrs = func, tuple(args), int(num_inputs), attrs

    def __repr__(self):
        return f"{self.func}({', '.join(map(str, self.args))})"


class IncompleteType(Type):
    """A type that is not known yet."""

    def __init__(self, kind=TypeKind.Type):
        self.kind = kind

    is_static = False

    def __repr__(self):
        return "?"


class RefType(Type):
    """A reference to a value of a type."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, RefType) and self.value == other.value

    def __hash__(self):
        return hash(("ref", self.value))

    def __repr__(self):
        return f"ref({self.value})"


_PARTS = {
    TupleType: ("fields",), FuncType: ("arg_types", "ret_type", "type_params", "type_constraints"), RefType: ("value",),
    TypeCall: ("func", "args"), TypeRelation: ("args",), TypeData: ("header", "type_vars"),
}  # fmt: skip


def map_parts(visit, t):
    """What `visit` makes of the parts of a type, a list for each field that is a tuple: {field: result}."""
    fields = next((f for c, f in _PARTS.items() if isinstance(t, c)), ())
    values = ((f, getattr(t, f)) for f in fields)
    return {f: [visit(x) for x in v] if isinstance(v, tuple) else visit(v) for f, v in values}


def ShapeVar(name):
    """A type parameter that stands for a shape."""
    return TypeVar(name, TypeKind.ShapeVar)


def is_dynamic(tensor_type):
    """Whether a type has a dimension that is known only at run time."""
    return not tensor_type.is_static


def scalar_type(dtype="float32"):
    """The type of a rank-0 tensor."""
    return TensorType((), dtype)
