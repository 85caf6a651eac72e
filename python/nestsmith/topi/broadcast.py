"""Broadcasting binary operators.

Signatures (``a``, ``b``: tensors of any rank, or one of them a number or scalar expression)::

    add subtract multiply divide floor_divide mod floor_mod maximum minimum power atan2 hypot copysign
    equal not_equal less less_equal greater greater_equal          -> bool
    logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift
    broadcast_to(x, shape)     where(condition, x, y)     logical_not(x)

Shapes align at the right; extents must be equal or 1. The stage is called ``T_<name>``, its axes ``ax0, ax1, ...``; tag
``broadcast``, or ``elemwise`` when one operand is a scalar, which is then written into the body.
"""

import typing

from .. import te, tir
from .._core import Expr, Tensor
from .elemwise import cast
from .util import BROADCAST, ELEMWISE, c_compute, const_like, get_const_tuple, is_float, named

if typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any: ...  # operators are made from a table


def broadcast_shape(*shapes):
    """The common shape; ``ValueError`` naming the dimension if there is none."""
    n = max((len(s) for s in shapes), default=0)
    out = []
    for d in range(n):
        dims = [s[d - n + len(s)] for s in shapes if d - n + len(s) >= 0]
        best = dims[0]
        for x in dims[1:]:
            if _same(x, best) or _is_one(x):
                continue
            if _is_one(best) or (not isinstance(best, int) and isinstance(x, int)):
                best = x
            elif isinstance(best, int) and isinstance(x, int):
                names = ", ".join(map(str, shapes))
                raise ValueError(f"shapes {names} do not broadcast: {best} against {x} in dimension {d}")
        out.append(best)
    return tuple(out)


def _is_one(x):
    return isinstance(x, int) and x == 1


def _same(x, y):
    return bool(x == y)


def _index(t, ax, shape):
    """Indices of operand ``t`` for output indices ``ax``: the variable where the extent is the result's, else 0."""
    skip = len(shape) - len(t.shape)
    return [i if _same(s, full) or not _is_one(s) else 0 for i, s, full in zip(ax[skip:], t.shape, shape[skip:])]


def _mod(a, b):
    return te.fmod(a, b) if is_float(_type(a, b)) else te.truncmod(a, b)


def _type(a, b):
    return (tir.const(a) + tir.const(b)).dtype


def _xor(a, b):
    if tir.const(a).dtype != "bool":
        raise TypeError(f"logical_xor takes bool, not {tir.const(a).dtype}; compare with 0 first, or use bitwise_xor")
    return tir.NE(a, b)


_OPS = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b, "divide": lambda a, b: tir.Div(a, b),
    "floor_divide": te.floordiv, "mod": _mod, "floor_mod": te.floormod, "maximum": tir.Max, "minimum": tir.Min, "power": tir.power,
    "atan2": tir.atan2, "hypot": tir.hypot, "copysign": tir.copysign, "equal": tir.EQ, "not_equal": tir.NE, "less": tir.LT,
    "less_equal": tir.LE, "greater": tir.GT, "greater_equal": tir.GE, "logical_and": tir.And, "logical_or": tir.Or, "logical_xor": _xor,
    "bitwise_and": tir.bitwise_and, "bitwise_or": tir.bitwise_or, "bitwise_xor": tir.bitwise_xor, "left_shift": tir.shift_left,
    "right_shift": tir.shift_right,
}  # fmt: skip
__all__ = [*_OPS, "broadcast_to", "logical_not", "where"]


def _scalar(x):
    return x if isinstance(x, Expr) else tir.const(x)


def binary(name, a, b):
    """The operator ``name`` of the table above on tensors and scalars."""
    op, stage = _OPS[name], f"T_{name}"
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        sa, sb = get_const_tuple(a.shape), get_const_tuple(b.shape)
        shape = broadcast_shape(sa, sb)
        return c_compute(shape, lambda *ax: op(a(*_index(a, ax, shape)), b(*_index(b, ax, shape))), stage, BROADCAST)
    if isinstance(a, Tensor):
        return c_compute(a.shape, lambda *ax, value=_scalar(b): op(a(*ax), value), stage, ELEMWISE)
    if isinstance(b, Tensor):
        return c_compute(b.shape, lambda *ax, value=_scalar(a): op(value, b(*ax)), stage, ELEMWISE)
    return op(_scalar(a), _scalar(b))


def _make(name):
    def f(a, b):
        return binary(name, a, b)

    return named(f, name, f"Broadcasting ``{name}``; stage ``T_{name}``.")


globals().update({name: _make(name) for name in _OPS})


def tensor_arith(name, a, b):
    """What operators between whole tensors do (called by the engine's Tensor type)."""
    if name == "astype":
        return cast(a, b)
    if b is None:  # unary minus
        b = tir.const(-1, a.dtype)
    if not all(isinstance(x, (Tensor, Expr)) or hasattr(x, "__float__") or hasattr(x, "__index__") for x in (a, b)):
        return NotImplemented
    return binary(name, a, b)


def broadcast_to(x, shape):
    """``x`` repeated along new leading dimensions and dimensions of extent 1; stage ``T_broadcast_to``."""
    shape = get_const_tuple(shape)
    if broadcast_shape(get_const_tuple(x.shape), shape) != shape:
        raise ValueError(f"shape {tuple(x.shape)} does not broadcast to {shape}")
    return c_compute(shape, lambda *ax: x(*_index(x, ax, shape)), "T_broadcast_to", BROADCAST)


def where(condition, x, y):
    """``x`` where ``condition`` is non-zero, else ``y``; all three broadcast. Stage ``T_where``."""
    shape = broadcast_shape(*(get_const_tuple(t.shape) for t in (condition, x, y)))

    def f(*ax):
        c = condition(*_index(condition, ax, shape))
        cond = tir.NE(c, const_like(0, c))
        return tir.Select(cond, x(*_index(x, ax, shape)), y(*_index(y, ax, shape)))

    return c_compute(shape, f, "T_where", BROADCAST)


def logical_not(x):
    """Logical negation of a boolean tensor; stage ``T_logical_not``."""
    return c_compute(x.shape, lambda *ax: tir.Not(x(*ax)), "T_logical_not", ELEMWISE)
