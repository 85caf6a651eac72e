"""Classes of expression nodes: constructors of one kind each, which ``isinstance`` knows, and the attributes that each kind has.

The engine has one type of expression; what kind a node is, it tells by ``kind``. So ``tir.Add`` is no class of Python with instances of its own:
``tir.Add(a, b)`` is an :class:`Expr` of that kind, and ``isinstance(e, tir.Add)`` asks for it.
"""

from .. import _core, error, structure
from .._core import Expr

__all__ = ["EQ", "GE", "GT", "LE", "LT", "NE", "Add", "And", "Broadcast", "Call", "Cast", "CommReducer", "Div",
           "FloatImm", "FloorDiv", "FloorMod", "IntImm", "IterVar", "Let", "Max", "Min", "Mod", "Mul", "Not", "Or",
           "PrimExpr", "ProducerLoad", "Ramp", "Reduce", "Select", "StringImm", "Sub", "Var"]

PrimExpr = Expr


class _OfKind(type):
    """The type of the classes below: one class for each kind of node."""

    def __instancecheck__(cls, x):
        return isinstance(x, (Expr, _core.EqualOp)) and x.kind in cls.kinds

    def __subclasscheck__(cls, sub):
        return any(cls is c for c in sub.__mro__)

    def __call__(cls, *args, **kwargs):
        kwargs.pop("span", None)
        return cls.make(*args, **kwargs)


def _node(name, make, doc, kinds=None):
    """A class of nodes that ``make`` builds."""
    body = {"kinds": (kinds or (name,)), "make": staticmethod(make), "__doc__": doc, "__module__": __name__}
    return _OfKind(name, (), body)


def _binary(kind):
    return _node(kind, lambda a, b: _core.expr_bin(kind, a, b), f"The node {kind}(a, b).")


Add, Sub, Mul, Div, Mod = (_binary(k) for k in ("Add", "Sub", "Mul", "Div", "Mod"))
FloorDiv, FloorMod, Min, Max = (_binary(k) for k in ("FloorDiv", "FloorMod", "Min", "Max"))
EQ, NE, LT, LE, GT, GE = (_binary(k) for k in ("EQ", "NE", "LT", "LE", "GT", "GE"))
And, Or = (_binary(k) for k in ("And", "Or"))

Not = _node("Not", lambda a: _core.expr_not(a), "Logical negation.")
Select = _node("Select",
               lambda condition, true_value, false_value: _core.expr_select(condition, true_value, false_value),
               "``condition ? true_value : false_value`` where both sides are evaluated; never folded.")
Cast = _node("Cast", lambda dtype, value: _core.expr_cast(dtype, value), "``value`` converted to ``dtype``.")
Let = _node("Let", lambda var, value, body: _core.expr_let(var, value, body), "``body`` with ``var`` bound to ``value``.")


def _float_literal(dtype, value):
    if not str(dtype).startswith(("float", "bfloat")):
        raise error.TVMValueError(f"FloatImm supports only float, but {dtype} was given; IntImm makes literals of integers")
    return _core.expr_const(float(value), dtype)


FloatImm = _node("FloatImm", _float_literal, "A literal of a floating-point type.")
StringImm = _node("StringImm", lambda value: _core.expr_const(value), "A text.")
Ramp = _node("Ramp", lambda base, stride, lanes: _core.expr_ramp(base, stride, int(lanes)), "``[base, base + stride, ...]``, `lanes` of them.")
Broadcast = _node("Broadcast", lambda value, lanes: _core.expr_broadcast(value, int(lanes)), "``[value, value, ...]``, `lanes` of them.")
ProducerLoad = _node("ProducerLoad", lambda producer, indices: producer(*indices), "An element of a tensor.")
Reduce = _node("Reduce", lambda *a, **k: _no_reduce(), "A reduction; te.sum, te.comm_reducer and the like make them.")


def _no_reduce():
    raise TypeError("reductions are made by te.sum, te.max, te.min or a te.comm_reducer")


def _call(dtype, op, args):
    """A call of an intrinsic by its name or :class:`Op`-like object."""
    name = getattr(op, "name", op)
    if name == "tir.if_then_else":
        return _core.expr_if_then_else(*args)
    if name == "tir.reinterpret":
        return _core.expr_cast(dtype, args[0], True)
    out = _core.expr_math(name.removeprefix("tir."), tuple(args))
    if out.dtype != str(dtype):
        raise error.TVMTypeError(f"a call of {name} with these operands is {out.dtype}, not {dtype}; cast the result with astype")
    return out


class _Calls(_OfKind):
    def __instancecheck__(cls, x):
        return super().__instancecheck__(x) or getattr(x, "kind", "") == "Call"


Call = _Calls("Call", (), {"kinds": ("Call",), "make": staticmethod(_call), "__doc__": "A call of an intrinsic.", "__module__": __name__})


class _Literal(_OfKind):
    def __instancecheck__(cls, x):
        return isinstance(x, _core.IntImm) or super().__instancecheck__(x)


def _int_literal(dtype, value):
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"IntImm takes an integer, not {value!r}")
    low, high = _core.expr_limit(dtype, False), _core.expr_limit(dtype, True)
    if dtype != "bool" and not int(low) <= int(value) <= max(int(high), 2**63 - 1 if dtype == "uint64" else int(high)):
        raise ValueError(f"Literal value {value} exceeds the range of {dtype}: {low} to {high}")
    return _core.expr_const(int(value), dtype)


IntImm = _Literal(
    "IntImm", (), {"kinds": ("IntImm",), "make": staticmethod(_int_literal), "__doc__": "A literal of an integer type.", "__module__": __name__}
)


class _Variable(_OfKind):
    def __instancecheck__(cls, x):
        return isinstance(x, _core.Var)


def _variable(name, dtype="int32"):
    if not isinstance(dtype, str):  # a type: of a pointer, or of a number
        return POINTERS[type(dtype).__name__](name, dtype)
    return _core.expr_var(name, dtype, False)


class _Iterator(_OfKind):
    def __instancecheck__(cls, x):
        return isinstance(x, _core.IterVar)


def _iterator(dom, var, iter_type, thread_tag=""):
    lo, extent = (None, None) if dom is None else (0, dom) if not hasattr(dom, "extent") and not isinstance(dom, (tuple, list)) else _ends(dom)
    name = var if isinstance(var, str) else var.name
    return _core.expr_iter_var(name, lo, extent, int(iter_type), thread_tag or None)


def _ends(dom):
    return (dom.min, dom.extent) if hasattr(dom, "extent") else (dom[0], dom[1] - dom[0])


IterVar = _Iterator(
    "IterVar",
    (),
    {"kinds": ("Var",), "make": staticmethod(_iterator), "__doc__": "A loop's variable with its range.", "__module__": __name__,
     "DataPar": 0, "ThreadIndex": 1, "CommReduce": 2, "Ordered": 3, "DimInfo": 4, "Unrolled": 5, "Vectorized": 6, "Parallelized": 7, "Tensorized": 8},
)  # fmt: skip

POINTERS: dict = {}  # name of a class of types -> what makes a variable of such a type


Var = _Variable("Var", (), {"kinds": ("Var",), "make": staticmethod(_variable), "__doc__": "A variable.", "__module__": __name__})


class CallOp(str):
    """The name of an intrinsic, as ``call.op``; ``name`` has TVM's prefix."""

    name = property(lambda self: f"tir.{self}", doc="The name, e.g. ``tir.exp``.")


def _attribute(name, kinds, get, doc):
    """An attribute of expressions of these kinds."""

    def ask(e):
        if e.kind not in kinds:
            raise AttributeError(f"{e.kind} has no attribute {name!r}")
        return get(e)

    setattr(Expr, name, property(ask, doc=doc))


def _lanes(e):
    return int(e.dtype.partition("x")[2] or 1)


def _reduction(key):
    return lambda e: e.symbol[key]


class CommReducer:
    """How a reduction combines: variables on both sides, results and identities."""

    def __init__(self, lhs, rhs, result, identity_element):
        self.lhs, self.rhs, self.result, self.identity_element = lhs, rhs, result, identity_element


_COMPARED = "EQ", "NE", "LT", "LE", "GT", "GE"
_attribute("op", ("Call",), lambda e: CallOp(e.symbol), "The intrinsic that is called.")
_attribute("condition", ("Select", "Reduce"), lambda e: e.args[0] if e.kind == "Select" else e.symbol["condition"], "Condition.")
_attribute("true_value", ("Select",), lambda e: e.args[1], "Value where the condition holds.")
_attribute("false_value", ("Select",), lambda e: e.args[2], "Value elsewhere.")
_attribute("base", ("Ramp",), lambda e: e.args[0], "First element.")
_attribute("stride", ("Ramp",), lambda e: e.args[1], "Difference of neighbours.")
_attribute("lanes", ("Ramp", "Broadcast"), _lanes, "Number of elements.")
_attribute("producer", ("ProducerLoad",), lambda e: e.symbol, "The tensor.")
_attribute("indices", ("ProducerLoad",), lambda e: list(e.args), "Indices.")
_attribute("axis", ("Reduce",), _reduction("axis"), "The axes reduced over.")
_attribute("source", ("Reduce",), _reduction("source"), "What is reduced.")
_attribute("init", ("Reduce",), _reduction("init"), "First values; none: the identity.")
_attribute("value_index", ("Reduce",), _reduction("value_index"), "Which result of a reduction of tuples.")
_attribute("combiner", ("Reduce",), lambda e: CommReducer(*([c[k] for c in e.symbol["combiner"]] for k in range(4))), "How it combines.")
_attribute("body", ("Let",), lambda e: e.args[1], "What the binding holds for.")


@structure.rule(Expr)
def _expression(e):
    kind, dtype = e.kind, e.dtype
    if kind == "Var":
        return structure.Node(("Var", dtype), variable=True)
    if kind in ("IntImm", "FloatImm"):
        return structure.Node((kind, dtype, repr(e.value)))
    if kind == "StringImm":
        return structure.Node((kind, str(e)))
    if kind == "ProducerLoad":
        return structure.Node((kind, dtype), (("producer", e.symbol), *(("indices", i) for i in e.args)))
    if kind == "Reduce":
        s = e.symbol
        vs = [v for c in s["combiner"] for v in c[:2]]
        parts = [p for c in s["combiner"] for p in c[2:]] + [v for a in s["axis"] for v in (a.min, a.extent)]
        all_parts = *parts, *s["source"], *s["init"], s["condition"], s["value_index"]
        return structure.Node((kind, dtype), tuple(("part", p) for p in all_parts), binds=(*vs, *(a.var for a in s["axis"])))
    if kind == "BufferLoad":
        return structure.Node((kind, dtype), (("buffer", e.buffer), *(("indices", i) for i in e.args)))
    head = kind, dtype, e.symbol if kind == "Call" else ""
    if kind == "Let":
        return structure.Node(head, (("value", e.args[0]), ("body", e.args[1])))
    return structure.Node(head, tuple((f"args[{i}]", a) for i, a in enumerate(e.args)))
