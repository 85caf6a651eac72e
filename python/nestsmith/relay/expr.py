"""Graph expressions.

A network is a directed acyclic graph of the nodes below; a node used twice is one object with two readers. Nodes are
immutable except for their cached type. Nothing here recurses on the host stack: graphs of thousands of nodes are
walked with
an explicit one (:func:`post_order`), and passes rebuild them with :func:`rewrite`, which keeps the sharing.
"""

from functools import partialmethod
from typing import Any

import numpy as np

from .. import check
from ..numerics import Array, from_bfloat16, to_bfloat16
from .ty import IncompleteType, TensorType, Type

__all__ = ["Expr", "Var", "Constant", "Call", "Tuple", "TupleGetItem", "TupleWrapper", "Function", "Let", "If",
           "RefCreate", "RefRead", "RefWrite", "GlobalVar", "Attrs", "var", "const", "post_order", "rewrite",
           "free_vars", "children", "is_primitive_call", "with_children", "parts", "with_parts", "all_nodes",
           "count_refs", "bind"]  # fmt: skip


class above:
    """What expressions use of the modules above this one, which put it here when they are imported."""

    op: Any = None  # the operators
    infer_type: Any = None
    astext: Any = None


class Attrs(dict):
    """Attributes of a call or a function: a dictionary whose items are also attributes."""

    __slots__ = ()

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no attribute {name!r}; there are {', '.join(self) or 'none'}") from None

    def with_(self, **changes):
        return Attrs(self, **changes)

    @classmethod
    def of(cls, given):
        """Attributes of a dictionary (or none); literals of :mod:`nestsmith.tir` are numbers."""
        if isinstance(given, cls):
            return given
        return cls({k: v.value if getattr(v, "kind", None) in ("IntImm", "FloatImm") else v for k, v in (given or {}).items()})


class Expr:
    """Base class. Arithmetic operators build calls with NumPy broadcasting."""

    __slots__ = ("_type", "span")
    _type: Type | None

    def __init__(self):
        self._type, self.span = None, None

    def __call__(self, *args):
        """A call of it, if it is a function."""
        return Call(self, args)

    @property
    def checked_type(self):
        """The type of this expression, inferred on first use; ValueError if the graph is ill-typed."""
        if self._type is None:
            above.infer_type(self)
            if self._type is None:
                raise ValueError(f"the type of {self!r} cannot be inferred; give the variable a shape or use it in an "
                                 "operator that determines it")  # fmt: skip
        return self._type

    def astype(self, dtype):
        return above.op.cast(self, dtype)

    def _bin(self, name, other, swap=False):
        if not isinstance(other, Expr):
            if not isinstance(other, (int, float, bool, np.number)):
                return NotImplemented
            t = self.checked_type
            other = const(other, t.dtype if isinstance(t, TensorType) else None)
        args = (other, self) if swap else (self, other)
        return getattr(above.op, name)(*args)

    __add__, __radd__ = partialmethod(_bin, "add"), partialmethod(_bin, "add", swap=True)
    __sub__, __rsub__ = partialmethod(_bin, "subtract"), partialmethod(_bin, "subtract", swap=True)
    __mul__, __rmul__ = partialmethod(_bin, "multiply"), partialmethod(_bin, "multiply", swap=True)
    __truediv__, __rtruediv__ = partialmethod(_bin, "divide"), partialmethod(_bin, "divide", swap=True)
    __lt__, __le__ = partialmethod(_bin, "less"), partialmethod(_bin, "less_equal")
    __gt__, __ge__ = partialmethod(_bin, "greater"), partialmethod(_bin, "greater_equal")

    def __neg__(self):
        return above.op.negative(self)

    def astext(self, show_meta_data=True, annotate=None):
        """The expression as text, which :func:`relay.parse_expr` reads."""
        return above.astext(self, show_meta_data, annotate)

    def __str__(self):
        return self.astext(show_meta_data=False)

    def __repr__(self):
        return f"<relay {type(self).__name__}>"


class Var(Expr):
    """A variable. Its identity is the object, not the name."""

    __slots__ = ("name_hint", "type_annotation")

    def __init__(self, name_hint, type_annotation=None):
        super().__init__()
        self.name_hint, self.type_annotation, self._type = str(name_hint), type_annotation, type_annotation

    vid = property(lambda self: self)

    def __repr__(self):
        return f"Var({self.name_hint}, ty={self._type})"


class GlobalVar(Expr):
    """The name of a function of a module. Calling it builds a call."""

    __slots__ = ("name_hint",)

    def __init__(self, name_hint):
        super().__init__()
        self.name_hint = str(name_hint)

    def __repr__(self):
        return f"@{self.name_hint}"


class Constant(Expr):
    """A tensor value, kept as a NumPy array (`data`). NumPy has no bfloat16: with this `dtype`, data are its bits, uint16.
    `original`: (the array, Winograd's output tile) of which it is the transformed weight, or None."""

    __slots__ = ("data", "original")

    def __init__(self, data, dtype=None):
        super().__init__()
        if hasattr(data, "numpy") and not isinstance(data, np.ndarray):
            data = data.numpy()
        self.data, self.original = np.asarray(data).view(Array), None
        self._type = TensorType(self.data.shape, dtype or str(self.data.dtype))

    @property
    def numbers(self):
        """The value as an array of numbers: of bfloat16 as float32."""
        return from_bfloat16(self.data) if self._type.dtype == "bfloat16" else self.data

    is_scalar = property(lambda self: self.data.ndim == 0)

    def __repr__(self):
        return f"Constant({self._type})"


class Call(Expr):
    """Application of an operator, a function or a global function to arguments."""

    __slots__ = ("op", "args", "attrs", "_type_args")

    def __init__(self, op, args, attrs=None, type_args=None, span=None):
        super().__init__()
        self.op, self.args = op, tuple(args)
        for i, a in enumerate(self.args):
            if not isinstance(a, Expr):
                raise TypeError(f"argument {i} of {getattr(op, 'name', 'the call')} is a {type(a).__name__}; it must "
                                "be a relay expression (relay.const makes one of a number or array)")  # fmt: skip
        self.attrs = attrs if isinstance(attrs, Attrs) else Attrs(attrs or {})
        self._type_args, self.span = type_args, span

    @property
    def type_args(self):
        """Types of the arguments, once they are inferred; else what was given."""
        known = [a._type for a in self.args]
        return self._type_args if self._type is None or None in known else known

    @property
    def op_name(self):
        """Name of the operator, or None if a function is called."""
        return getattr(self.op, "name", None)

    def __repr__(self):
        return f"<relay Call {self.op_name or self.op!r}>"


class Tuple(Expr):
    """Several values as one."""

    __slots__ = ("fields",)

    def __init__(self, fields, span=None):
        super().__init__()
        self.fields, self.span = tuple(fields), span

    def __len__(self):
        return len(self.fields)

    def __getitem__(self, i):
        return self.fields[i]


class TupleGetItem(Expr):
    """One field of a tuple."""

    __slots__ = ("tuple_value", "index")

    def __init__(self, tuple_value, index, span=None):
        super().__init__()
        self.tuple_value, self.index, self.span = tuple_value, int(index), span


class TupleWrapper:
    """What a builder with several results returns: indexable and iterable; `astuple()` gives the expression."""

    def __init__(self, tuple_value, size):
        self.tuple_value, self.size = tuple_value, size

    def astuple(self):
        return self.tuple_value

    def astext(self, show_meta_data=True, annotate=None):
        return above.astext(self.tuple_value, show_meta_data, annotate)

    def __getitem__(self, i):
        if not -self.size <= i < self.size:
            raise IndexError(f"field {i} of a tuple of {self.size}")
        return TupleGetItem(self.tuple_value, i % self.size)

    def __len__(self):
        return self.size

    def __iter__(self):
        return (self[i] for i in range(self.size))


class Function(Expr):
    """A function: parameters (variables), body, optional result type, and attributes such as ``Primitive``."""

    __slots__ = ("params", "body", "ret_type", "type_params", "attrs")

    def __init__(self, params, body, ret_type=None, type_params=None, attrs=None, span=None):
        super().__init__()
        if isinstance(body, TupleWrapper):
            body = body.astuple()
        self.params = list(params)
        for p in self.params:
            if not isinstance(p, Var):
                raise TypeError(f"a function parameter must be a variable (relay.var), not {type(p).__name__}")
        if not isinstance(body, Expr):
            raise TypeError(f"the body of a function must be a relay expression, not {type(body).__name__}")
        self.body, self.ret_type, self.type_params = body, ret_type, list(type_params or [])
        self.attrs, self.span = Attrs.of(attrs), span

    is_primitive = property(lambda self: bool(self.attrs.get("Primitive")))

    def with_attr(self, key, value):
        return Function(self.params, self.body, self.ret_type, self.type_params,
                        self.attrs.with_(**Attrs.of({key: value})), self.span)  # fmt: skip


class Let(Expr):
    """``let var = value; body``"""

    __slots__ = ("var", "value", "body")

    def __init__(self, variable, value, body, span=None):
        super().__init__()
        self.var, self.value, self.body, self.span = variable, value, body, span


class If(Expr):
    """``if cond then true_branch else false_branch``; cond is a scalar of type bool."""

    __slots__ = ("cond", "true_branch", "false_branch")

    def __init__(self, cond, true_branch, false_branch, span=None):
        super().__init__()
        self.cond, self.true_branch, self.false_branch, self.span = cond, true_branch, false_branch, span


class RefCreate(Expr):
    """A new reference that holds a value."""

    __slots__ = ("value",)

    def __init__(self, value, span=None):
        super().__init__()
        self.value, self.span = value, span


class RefRead(Expr):
    """The value that a reference holds."""

    __slots__ = ("ref",)

    def __init__(self, ref, span=None):
        super().__init__()
        self.ref, self.span = ref, span


class RefWrite(Expr):
    """Puts another value into a reference; its own value is the empty tuple."""

    __slots__ = ("ref", "value")

    def __init__(self, ref, value, span=None):
        super().__init__()
        self.ref, self.value, self.span = ref, value, span


# Fields that are sub-expressions, in the order of evaluation, where that is all that a kind of node has.
_PARTS = {TupleGetItem: ("tuple_value",), Let: ("value", "var", "body"), If: ("cond", "true_branch", "false_branch"), RefCreate: ("value",),
          RefRead: ("ref",), RefWrite: ("ref", "value")}  # fmt: skip


def var(name_hint, type_annotation=None, shape=None, dtype="float32", span=None):
    """A variable. Give a type or a shape; with neither, an operator must determine it (as a convolution does its
    weight)."""
    if type_annotation is not None and shape is not None:
        raise ValueError("give type_annotation or shape, not both")
    if shape is not None:
        type_annotation = TensorType(shape, dtype)
    elif isinstance(type_annotation, str):
        type_annotation = TensorType((), type_annotation)
    elif isinstance(type_annotation, IncompleteType):
        type_annotation = None
    return Var(check.text("name_hint", name_hint), type_annotation)


def const(value, dtype=None, span=None):
    """A constant of a number, a list or an array. Python floats become float32 and integers int32 unless `dtype`
    says else."""
    if isinstance(value, Constant):
        return value
    if hasattr(value, "numpy") and not isinstance(value, (np.ndarray, np.generic)):
        value = value.numpy()
    data = np.asarray(value)
    if dtype is None and not isinstance(value, (np.ndarray, np.generic)):
        dtype = {"float64": "float32", "int64": "int32"}.get(str(data.dtype))
    if dtype == "bfloat16":
        return Constant(to_bfloat16(data), dtype)
    if dtype is not None:
        data = data.astype(dtype)
    return Constant(data)


# ---- walking and rebuilding ----------------------------------------------------------------------------------------


def children(e):
    """Direct sub-expressions in the order of evaluation. A primitive function called is a leaf of its call."""
    if isinstance(e, Call):
        return (e.op, *e.args) if isinstance(e.op, Expr) else e.args
    if isinstance(e, Tuple):
        return e.fields
    if isinstance(e, Function):
        return () if e.is_primitive else (*e.params, e.body)
    return tuple(getattr(e, p) for p in _PARTS.get(type(e), ()))


def post_order(expr, below=children):
    """Every node reachable from `expr` once: what is `below` it from left to right, then the node. By default primitive functions are not
    entered.
    """
    order, seen, stack = [], set(), [(expr, None)]
    while stack:
        e, it = stack.pop()
        if it is None:
            if id(e) in seen:
                continue
            seen.add(id(e))
            it = iter(below(e))
        for c in it:
            if id(c) not in seen:
                stack.append((e, it))
                stack.append((c, None))
                break
        else:
            order.append(e)
    return order


def reach(start, below):
    """Everything that is reached from some nodes, these included, each once, as it is met going down the last way first."""
    seen, stack = set(), list(start)
    while stack:
        e = stack.pop()
        if id(e) not in seen:
            seen.add(id(e))
            yield e
            stack.extend(below(e))


def with_children(e, new):
    """`e` with other children, in the order of :func:`children`; `e` itself if they are the same objects."""
    old = children(e)
    if all(a is b for a, b in zip(old, new)):
        return e
    if isinstance(e, Call):
        op, args = (new[0], new[1:]) if isinstance(e.op, Expr) else (e.op, new)
        return Call(op, args, e.attrs, e.type_args, e.span)
    if isinstance(e, Tuple):
        return Tuple(new, e.span)
    if isinstance(e, TupleGetItem):
        return TupleGetItem(new[0], e.index, e.span)
    if isinstance(e, Function):
        return Function(new[:-1], new[-1], None, e.type_params, e.attrs, e.span)
    if isinstance(e, Let):
        return Let(new[1], new[0], new[2], e.span)
    return type(e)(*new, e.span) if type(e) in _PARTS else e


def parts(e):
    """Direct parts of any node as they are written: :func:`children`, and operators, bound variables and the insides of primitive
    functions."""
    if isinstance(e, Call):
        return (e.op, *e.args)
    if isinstance(e, Function):
        return (*e.params, e.body)
    if isinstance(e, Let):
        return e.var, e.value, e.body
    return children(e) if isinstance(e, Expr) else ()


def with_parts(e, new):
    """`e` with other parts, in the order of :func:`parts`; `e` itself if they are the same objects."""
    if all(a is b for a, b in zip(parts(e), new)):
        return e
    if isinstance(e, Call):
        return Call(new[0], new[1:], e.attrs, e.type_args, e.span)
    if isinstance(e, Function):
        return Function(new[:-1], new[-1], e.ret_type, e.type_params, e.attrs, e.span)
    return Let(*new, e.span) if isinstance(e, Let) else with_children(e, new)


def all_nodes(expr):
    """Every node once, operators and the insides of primitive functions too, :func:`parts` before what has them."""
    return post_order(expr, parts)


def is_primitive_call(e):
    """Whether an expression calls a fused function."""
    return isinstance(e, Call) and isinstance(e.op, Function) and e.op.is_primitive


def rewrite(expr, visit):
    """Rebuild `expr` bottom-up. ``visit(old, new)`` gets each node and its copy with rebuilt children (`old` itself
    if nothing below changed) and returns the replacement. Shared nodes are visited once."""
    memo = {}
    for e in post_order(expr):
        memo[id(e)] = visit(e, with_children(e, [memo[id(c)] for c in children(e)]))
    return memo[id(expr)]


def bind(expr, mapping):
    """`expr` with variables replaced; `mapping` maps Var objects to expressions. Parameters of functions vanish when
    bound."""
    table = {id(k): v for k, v in mapping.items()}
    memo = {}
    for e in post_order(expr):
        if isinstance(e, Var):
            memo[id(e)] = table.get(id(e), e)
        elif isinstance(e, Function) and not e.is_primitive:
            body = memo[id(e.body)]
            params = [p for p in e.params if id(p) not in table]
            same = body is e.body and len(params) == len(e.params)
            memo[id(e)] = e if same else Function(params, body, None, e.type_params, e.attrs, e.span)
        else:
            memo[id(e)] = with_children(e, [memo[id(c)] for c in children(e)])
    return memo[id(expr)]


def free_vars(expr):
    """Variables in the order in which the post-order meets them, without the bound ones."""
    bound, out = set(), []
    for e in post_order(expr):
        if isinstance(e, Function):
            bound.update(map(id, e.params))
        elif isinstance(e, Let):
            bound.add(id(e.var))
        elif isinstance(e, Var):
            out.append(e)
    return [v for v in out if id(v) not in bound]


def count_refs(expr, order=None):
    """Number of readers of each node, by id; the root counts once."""
    refs = {id(expr): 1}
    for e in order or post_order(expr):
        for c in children(e):
            refs[id(c)] = refs.get(id(c), 0) + 1
    return refs
