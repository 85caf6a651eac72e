"""Tensor expressions: describe what is computed.

>>> n = te.var("n")
>>> A = te.placeholder((n,), name="A")
>>> B = te.compute(A.shape, lambda i: A[i] * 2, name="B")
"""

from .._core import ComputeDAG as _ComputeDAG  # noqa: F401  (the engine's DAG; see auto_scheduler.ComputeDAG)
from .._core import Operation, Tensor, TensorSlice
from ..tir import (
    IterVar, Range, abs, acos, acosh, all, any, asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_not, bitwise_or,
    bitwise_xor, ceil, ceildiv, clz, comm_reducer, const, copysign, cos, cosh, div, erf, exp, exp2, exp10, floor, floordiv,
    floormod, fmod, hypot, if_then_else, indexdiv, indexmod, infinity, isfinite, isinf, isnan, ldexp, likely, log, log1p,
    log2, log10, max, max_value, min, min_value, nearbyint, nextafter, popcount, power, reinterpret, round, rsqrt,
    shift_left, shift_right, sigmoid, sin, sinh, sqrt, sum, tan, tanh, trunc, truncdiv, truncmod,
)
from .operation import compute, placeholder, reduce_axis, size_var, thread_axis, var
from .tag import tag_scope
