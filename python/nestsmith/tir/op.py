"""Intrinsics, logical operators and reducers."""

import inspect
import math

from .. import _core
from .._core import IterVar
from ..numerics import is_float
from .expr import const
from .nodes import EQ, Call, Not
from .stmt import OpaqueCall

__all__ = ["Reducer", "abs", "acos", "acosh", "all", "any", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
           "add", "address_of", "bitwise_not", "bitwise_or", "call_cpacked", "call_extern", "call_intrin",
           "call_llvm_intrin", "call_llvm_pure_intrin", "call_packed", "call_pure_extern", "isnullptr", "multiply",
           "ret", "subtract", "bitwise_xor", "ceil", "ceildiv", "check_index", "clz", "comm_reducer", "copysign", "cos",
           "cosh", "div", "erf", "erfc", "exp", "exp2", "exp10", "expm1", "floor", "floordiv", "floormod", "fmod",
           "hypot", "if_then_else", "indexdiv", "indexmod", "infinity", "isfinite", "isinf", "isnan", "kept_number",
           "ldexp", "likely", "log", "log1p", "log2", "log10", "max", "max_value", "min", "min_value", "nearbyint",
           "neutral_of_max", "neutral_of_min", "nextafter", "popcount", "pow", "power", "q_multiply_shift",
           "q_multiply_shift_per_axis", "reinterpret", "round", "round_tf32", "rsqrt", "shift_left", "shift_right",
           "sigmoid", "sin", "sinh", "sqrt", "sum", "tan", "tanh", "trunc", "truncdiv", "truncmod"]


def _make_unary(name):
    def f(x):
        return _core.expr_math(name, (x,))

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"``{name}(x)`` in the type of ``x``."
    return f


def _make_binary(name):
    def f(x1, x2):
        return _core.expr_math(name, (x1, x2))

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"``{name}(x1, x2)``."
    return f


exp, exp2, exp10, expm1 = map(_make_unary, ("exp", "exp2", "exp10", "expm1"))
log, log2, log10, log1p = map(_make_unary, ("log", "log2", "log10", "log1p"))
sin, cos, tan, sinh, cosh, tanh = map(_make_unary, ("sin", "cos", "tan", "sinh", "cosh", "tanh"))
asin, acos, atan, asinh, acosh, atanh = map(_make_unary, ("asin", "acos", "atan", "asinh", "acosh", "atanh"))
sqrt, rsqrt, sigmoid, erf, erfc = map(_make_unary, ("sqrt", "rsqrt", "sigmoid", "erf", "erfc"))
floor, ceil, trunc, nearbyint, round = map(_make_unary, ("floor", "ceil", "trunc", "nearbyint", "round"))
round.__doc__ = "``round(x)`` in the type of ``x``: to the nearest integer, of two the even one."
popcount, _clz, isnan, round_tf32 = map(_make_unary, ("popcount", "clz", "isnan", "round_tf32"))


def clz(x):
    """Zeros in front of the first 1 of an integer, as int32."""
    return _clz(x).astype("int32")
round_tf32.__doc__ = """``round_tf32(x)``: the nearest float32 of 11 bits, as TF32 has them, of two the one further from zero."""
fmod, atan2, nextafter = map(_make_binary, ("fmod", "atan2", "nextafter"))
hypot, copysign, ldexp = map(_make_binary, ("hypot", "copysign", "ldexp"))


def power(x, y):
    """``x`` to the power ``y``; floating point only."""
    return _core.expr_math("pow", (x, y))


pow = power


def abs(x):
    """Absolute value."""
    return _core.expr_math("fabs", (x,))


def isinf(x):
    """True where ``x`` is positive or negative infinity."""
    if not is_float(_dtype(x)):
        return const(False)  # an integer
    return _core.expr_bin("And", EQ(abs(x), infinity(_dtype(x))), _core.expr_not(_core.expr_math("isnan", (x,))))


def isfinite(x):
    """True where ``x`` is neither infinite nor not-a-number."""
    if not is_float(_dtype(x)):
        return const(True)  # an integer
    return _core.expr_bin("And", _core.expr_not(isinf(x)), _core.expr_not(_core.expr_math("isnan", (x,))))


def _dtype(x):
    return const(x).dtype


def if_then_else(cond, t, f):
    """``cond ? t : f`` where only the chosen side is evaluated; a literal condition folds."""
    return _core.expr_if_then_else(cond, t, f)


def check_index(value, extent):
    """``value``, an integer, if 0 <= value < extent; otherwise it counts as 0, and the run of the program ends with a
    RuntimeError that names value and extent. Indices that come from data are checked without it where they are used."""
    value = const(value)
    return _core.expr_math("check_index", (value, const(extent, value.dtype) if isinstance(extent, int) else extent))


def likely(cond):
    """Marks a condition as usually true."""
    return _core.expr_math("likely", (cond,))


def _no_bool(x, op):
    if const(x).dtype == "bool":
        raise TypeError(f"{op} takes integers, not bool; use astype")
    return x


def shift_left(x, y):
    """``x << y`` of integers. Raises TypeError for truth values."""
    return _core.expr_math("shift_left", (_no_bool(x, "<<"), y))


def shift_right(x, y):
    """``x >> y`` of integers. Raises TypeError for truth values."""
    return _core.expr_math("shift_right", (_no_bool(x, ">>"), y))


def bitwise_and(x, y):
    """``x & y``."""
    return _core.expr_math("bitwise_and", (x, y))


def bitwise_or(x, y):
    """``x | y``."""
    return _core.expr_math("bitwise_or", (x, y))


def bitwise_xor(x, y):
    """``x ^ y``."""
    return _core.expr_math("bitwise_xor", (x, y))


def bitwise_not(x):
    """``~x``; of a truth value its opposite."""
    return Not(x) if const(x).dtype == "bool" else _core.expr_math("bitwise_not", (x,))


def reinterpret(dtype, value):
    """The bits of ``value`` read as ``dtype``."""
    return _core.expr_cast(dtype, value, True)


def floordiv(a, b):
    """Division rounding down, of integers and floats; of infinity it is not a number, as in NumPy and PyTorch."""
    return _core.expr_bin("FloorDiv", a, b)


def floormod(a, b):
    """Remainder of :func:`floordiv`: 0, or of the sign of the divisor. Of floats it is exact, as ``fmod`` is, before the divisor is added."""
    return _core.expr_bin("FloorMod", a, b)


indexdiv, indexmod = floordiv, floormod


def truncdiv(a, b):
    """Integer division rounding toward zero."""
    return _core.expr_bin("Div", a, b)


def truncmod(a, b):
    """Remainder of :func:`truncdiv`."""
    return _core.expr_bin("Mod", a, b)


def div(a, b):
    """Division: of reals, or of integers rounding toward zero."""
    return _core.expr_bin("Div", a, b)


def ceildiv(a, b):
    """Integer division rounding up."""
    return floordiv(a + (b - 1), b)


def _chain(kind, args):
    if not args:
        raise ValueError("at least one condition is needed")
    out = const(args[0])
    for a in args[1:]:
        out = _core.expr_bin(kind, out, a)
    return out


def all(*args):
    """Logical and of all arguments, joined to the left."""
    return _chain("And", args)


def any(*args):
    """Logical or of all arguments, joined to the left."""
    return _chain("Or", args)


def min_value(dtype):
    """Lowest finite value of a type."""
    return _core.expr_limit(dtype, False)


def max_value(dtype):
    """Highest finite value of a type."""
    return _core.expr_limit(dtype, True)


def neutral_of_max(dtype):
    """What no value of a type is below. Floats: a literal that prints as the lowest finite value, as the reference has it,
    and computes as minus infinity, so that a maximum over minus infinities is one."""
    return _core.expr_limit(dtype, False, True)


def neutral_of_min(dtype):
    """What no value of a type is above; as :func:`neutral_of_max`."""
    return _core.expr_limit(dtype, True, True)


def kept_number(value, dtype):
    """A literal as the author of a network wrote it. What te folds while an expression is made (``x * 0``, ``0 / x``, ``x + 0``) does not hold for
    floats that are no numbers, infinite or minus zero. So a zero of this function is not folded away. Texts show it as 0. Raises ValueError for
    a fraction of a type that has none."""
    real = is_float(dtype)
    if not real and value != int(value):
        raise ValueError(f"{value} is no value of type {dtype}; cast the tensor to a float type first")
    v, zero = const(value, dtype), real and value == 0
    return _core.expr_kept_zero(dtype, math.copysign(1, value) < 0) if zero else v


def infinity(dtype, span=None):
    """Positive infinity."""
    return const(float("inf"), dtype)


def _q_round(wide, shift):
    """``wide / 2^shift`` rounded, halves up; int64."""
    one = const(1, "int64")
    return shift_right(wide + shift_left(one, shift - one), shift)


def q_multiply_shift(x, y, q, s):
    """``round(x * y * 2^(s - q))`` of int32, halves up: a product of fixed-point numbers, ``y`` with ``q`` bits behind the point."""
    wide = [const(v).astype("int64") for v in (x, y, q, s)]
    left = _core.expr_bin("Max", wide[3], const(0, "int64"))
    right = _core.expr_bin("Max", const(0, "int64") - wide[3], const(0, "int64")) + wide[2]
    return _q_round(shift_left(wide[0], left) * wide[1], right).astype("int32")


def q_multiply_shift_per_axis(x, y, ls, rs, q, is_lshift_required, is_rshift_required):
    """As :func:`q_multiply_shift` with a shift to the left before and one to the right behind, each only where it is asked for."""
    wide = [const(v).astype("int64") for v in (x, y, ls, rs, q)]
    zero = const(0, "int64")
    shifted = _core.expr_select(is_lshift_required, shift_left(wide[0], wide[2]), wide[0])
    return _q_round(shifted * wide[1], _core.expr_select(is_rshift_required, wide[3], zero) + wide[4]).astype("int32")


def add(lhs, rhs, span=None):
    """``lhs + rhs``."""
    return _core.expr_bin("Add", lhs, rhs)


def subtract(lhs, rhs, span=None):
    """``lhs - rhs``."""
    return _core.expr_bin("Sub", lhs, rhs)


def multiply(lhs, rhs, span=None):
    """``lhs * rhs``."""
    return _core.expr_bin("Mul", lhs, rhs)


# ---- calls ----
def call_intrin(dtype, func_name, *args, span=None):
    """A call of an intrinsic by its name, e.g. ``tir.exp``, of a type."""
    return Call(dtype, func_name, args)


# Functions of C's library that are intrinsics here.
_FUNCTIONS = "exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "floor", "ceil", "round", "pow", "fmod", "erf"
_LIBRARY = {f"{f}{s}": f for f in _FUNCTIONS for s in ("", "f")}


def call_pure_extern(dtype, func_name, *args, span=None):
    """A call of a function of C's mathematical library, e.g. ``expf``, or of one that only texts show."""
    return Call(dtype, _LIBRARY[func_name], args) if func_name in _LIBRARY else OpaqueCall(dtype, "tir.call_pure_extern", (func_name, *args))


def call_extern(dtype, func_name, *args, span=None):
    """As :func:`call_pure_extern`, of a function that may have an effect."""
    return Call(dtype, _LIBRARY[func_name], args) if func_name in _LIBRARY else OpaqueCall(dtype, "tir.call_extern", (func_name, *args))


def call_packed(*args, span=None):
    """A call of a global function (``register_func``) by its name. It can be the body of a ``te.extern``."""
    return OpaqueCall("int32", "tir.tvm_call_packed", args)


call_cpacked = call_packed


def call_llvm_intrin(dtype, name, *args, span=None):
    """An intrinsic of LLVM by its name, e.g. ``llvm.sqrt``, as far as there is one here; the first argument counts the others."""
    return Call(dtype, str(name).removeprefix("llvm.").split(".")[0], args[1:])


call_llvm_pure_intrin = call_llvm_intrin


def address_of(buffer_load, span=None):
    """The address of an element of a buffer."""
    return OpaqueCall("handle", "tir.address_of", (buffer_load,))


def isnullptr(x, span=None):
    """Whether a pointer is none."""
    return OpaqueCall("bool", "tir.isnullptr", (x,))


def ret(val):
    """What a function returns."""
    return OpaqueCall("int32", "tir.ret", (const(val),))


# ---- reducers ----


def _axes(axis):
    return list(axis) if isinstance(axis, (list, tuple)) else [axis]


def _is_axis(a):
    return isinstance(a, IterVar) or (isinstance(a, (list, tuple)) and len(a) > 0 and isinstance(a[0], IterVar))


class Reducer:
    """A commutative reducer.

    ``r(expr, axis, where=None, init=None)`` reduces over axes (``te.reduce_axis``, or a list of them);
    ``r(a, b, ...)`` combines scalars.

    ``expr`` is an expression, or a tuple of expressions when the reducer works on tuples; then the result is a tuple,
    to be returned together by one compute. ``fcode``: what programs combine with, where texts have to show ``fcombine``.
    """

    def __init__(self, fcombine, fidentity, name="reduce", names=None, fcode=None):
        self.fcombine, self.fidentity, self.__name__, self._names = fcombine, fidentity, name, names
        self.fcode, self._made = fcode, {}

    def _reducer(self, dtypes):
        """Number of the engine's reducer for these types; one per reducer object and types."""
        if dtypes in self._made:
            return self._made[dtypes]
        names = self._names or list(inspect.signature(self.fcombine).parameters)
        if len(names) != 2:
            raise ValueError(f"the combiner of reducer '{self.__name__}' takes two parameters, not {len(names)}")
        if len(dtypes) == 1:
            lhs, rhs = ([_core.expr_var(n, dtypes[0], False)] for n in names)
            combined = lambda f: [f(lhs[0], rhs[0])]  # noqa: E731
            identity = [self.fidentity(dtypes[0])]
        else:
            lhs, rhs = ([_core.expr_var(f"{n}_{i}", t, False) for i, t in enumerate(dtypes)] for n in names)
            combined = lambda f: list(f(lhs, rhs))  # noqa: E731
            identity = list(self.fidentity(*dtypes))
        identity = [v if isinstance(v, _core.Expr) else const(v, t) for v, t in zip(identity, dtypes)]
        code = self.fcode and combined(self.fcode)
        made = self._made[dtypes] = _core.te_reducer(lhs, rhs, combined(self.fcombine), identity, code)
        return made

    def __call__(self, expr, *args, axis=None, where=None, init=None):
        if args and axis is None:
            axis, *args = args
        elif not _is_axis(axis):
            given = "is missing" if axis is None else f"is {axis}"
            raise TypeError(f"te.{self.__name__}: axis {given}; it must be a te.reduce_axis or a list of them")
        if not _is_axis(axis):
            out = self.fcombine(expr, axis)
            for a in args:
                out = self.fcombine(out, a)
            return out
        if args:
            where = args[0] if where is None else where
            init = args[1] if len(args) > 1 and init is None else init
        is_tuple = isinstance(expr, (tuple, list))
        sources = [const(e) for e in (expr if is_tuple else [expr])]
        if init is not None:
            values = init if isinstance(init, (tuple, list)) else [init]
            types = [e.dtype for e in sources] if len(values) == len(sources) else [None] * len(values)
            init = [const(v) if isinstance(v, _core.Expr) else const(v, t) for v, t in zip(values, types)]
        number = self._reducer(tuple(e.dtype for e in sources))
        cond = const(True) if where is None else where
        out = _core.te_reduce(number, sources, _axes(axis), cond, init)
        return out if is_tuple else out[0]

    def __repr__(self):
        return f"<reducer {self.__name__}>"


def comm_reducer(fcombine, fidentity, name="reduce"):
    """A user-defined commutative reducer.

    ``fcombine(x, y)`` combines two values (or two lists of values and returns as many); ``fidentity(*dtypes)`` gives
    the identity element(s).
    """
    return Reducer(fcombine, fidentity, name)


sum = Reducer(lambda x, y: x + y, lambda t: const(0, t), "sum")
max = Reducer(lambda x, y: _core.expr_bin("Max", x, y), neutral_of_max, "max")
min = Reducer(lambda x, y: _core.expr_bin("Min", x, y), neutral_of_min, "min")
