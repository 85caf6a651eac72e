"""Scalar expressions: node constructors, intrinsics and reducers.

Every function takes expressions or Python numbers (an integer becomes ``int32`` if it fits, a real number ``float32``)
and returns an :class:`Expr`. Operand types are matched and constants folded while nodes are built.
"""

from .expr import (
    Add, And, Cast, Div, EQ, EqualOp, Expr, FloorDiv, FloorMod, GE, GT, IntImm, IterVar, LE, LT, Let, Max, Min, Mod, Mul,
    NE, Not, Or, PrimExpr, Range, Select, SizeVar, Sub, Var, _range, as_const_int, const, convert, expr_range,
)
from .op import (
    Reducer, abs, acos, acosh, all, any, asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_not, bitwise_or, bitwise_xor, ceil,
    ceildiv, clz, comm_reducer, copysign, cos, cosh, div, erf, exp, exp2, exp10, floor, floordiv, floormod, fmod, hypot,
    if_then_else, indexdiv, indexmod, infinity, isfinite, isinf, isnan, ldexp, likely, log, log1p, log2, log10, max,
    max_value, min, min_value, nearbyint, nextafter, popcount, pow, power, reinterpret, round, rsqrt, shift_left,
    shift_right, sigmoid, sin, sinh, sqrt, sum, tan, tanh, trunc, truncdiv, truncmod,
)
