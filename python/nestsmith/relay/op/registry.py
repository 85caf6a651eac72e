"""The operator table: all that is known of an operator stands in one entry.

That is a name, a fusion class, a type rule, its definition as loops or the operators that it is taken apart into, how it follows its
data into another layout, whether it may be computed in 16-bit floats, and (where it is cheap) a NumPy evaluation used by constant
folding. Schedules without tuning are made of the loops, whatever the operator.
"""

from __future__ import annotations

from ... import check
from ..expr import Call, Constant, Expr, Tuple, TupleWrapper, const
from ..ty import TensorType
from . import layout as layouts

__all__ = [
    "Op",
    "get",
    "register",
    "call",
    "ELEMWISE",
    "BROADCAST",
    "INJECTIVE",
    "REDUCE",
    "ANCHOR",
    "TUPLE",
    "OPAQUE",
    "ALWAYS",
    "FOLLOW",
    "NEVER",
]

# Fusion classes, in the order in which they combine.
ELEMWISE, BROADCAST, INJECTIVE, REDUCE, ANCHOR, TUPLE, OPAQUE = 0, 1, 2, 3, 4, 7, 8
# Colours for mixed precision: worth 16-bit floats; as its arguments are; only in the type that the network has.
ALWAYS, FOLLOW, NEVER = "always", "follow", "never"
_TABLE: dict[str, Op] = {}


class Op:
    """An operator: `name`, `pattern` (fusion class), ``infer(attrs, types) -> type``, ``evaluate(attrs, *arrays)``,
    `layout` (a rule of :mod:`.layout`, None: it needs its arguments as the network has them), `colour`,
    ``loops(attrs, inputs, call, target)`` (its definition: tensors of :mod:`nestsmith.topi` from tensors, lists of them for tuples) or
    ``apart(call)`` (the operators that it consists of), and `ranked`: whether the axes of its result are known to be those of a
    feature map (None: if those of an argument are), so that a vector per channel which meets it gets its rank."""

    __slots__ = ("name", "pattern", "infer", "evaluate", "stateful", "layout", "colour", "loops", "apart", "ranked")

    def __init__(self, name, pattern, infer, evaluate, stateful, layout, colour, loops, apart, ranked):
        self.name, self.pattern, self.infer, self.evaluate, self.stateful = name, pattern, infer, evaluate, stateful
        self.layout, self.colour, self.loops, self.apart, self.ranked = layout, colour, loops, apart, ranked

    def __call__(self, *args, **attrs):
        return Call(self, args, attrs)

    def __repr__(self):
        return f"Op({self.name})"

    def __reduce__(self):
        return get, (self.name,)


def register(
    name, pattern, infer, evaluate=None, stateful=False, layout=None, colour=None, loops=None, apart=None, ranked=None
):
    """Add an operator to the table and return it. What is computed element by element follows its data into any layout;
    operators up to the class INJECTIVE are computed in the type of their arguments."""
    if name in _TABLE:
        raise ValueError(f"operator {name!r} is already registered")
    if pattern == ELEMWISE and layout is None:
        layout = layouts.follow
    if pattern <= INJECTIVE and colour is None:
        colour = FOLLOW
    op = _TABLE[name] = Op(name, pattern, infer, evaluate, stateful, layout, colour, loops, apart, ranked)
    return op


def get(name):
    """The operator called `name`, e.g. ``"nn.conv2d"``; ValueError with the nearest names if there is none."""
    op = _TABLE.get(name)
    if op is None:
        raise ValueError(f"there is no operator {name!r}{check.did_you_mean(name, _TABLE, 3)}")
    return op


def names():
    """Names of all operators, sorted."""
    return sorted(_TABLE)


def call(name, args, **attrs):
    """A call of the operator `name`."""
    return Call(get(name), [a.astuple() if isinstance(a, TupleWrapper) else a for a in args], attrs)


def as_expr(x):
    """`x` as an expression: tuples of results unwrap, lists become tuples."""
    if isinstance(x, TupleWrapper):
        return x.astuple()
    if isinstance(x, (list, tuple)):
        return Tuple([as_expr(f) for f in x])
    return x if isinstance(x, Expr) else const(x)


def tensor(types, i):
    """The type of argument i, which must be a known tensor type."""
    t = types[i]
    if not isinstance(t, TensorType):
        raise ValueError(f"argument {i} must be a tensor")
    return t


def norm_axis(axis, rank, what="axis"):
    """`axis` counted from the front; ValueError if it is out of range."""
    axis = int(axis)
    if not -rank <= axis < rank:
        raise ValueError(f"{what} {axis} is out of range for rank {rank}")
    return axis % rank


def ints(v):
    """A number, a constant or some numbers as a tuple."""
    if isinstance(v, Constant):
        v = v.data.tolist()
    if isinstance(v, int):
        return (v,)
    return tuple(int(x) for x in v)
