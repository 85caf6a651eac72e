"""Scalar expressions: node constructors, intrinsics and reducers.

Every function takes expressions or Python numbers (an integer becomes ``int32`` if it fits, a real number ``float32``)
and returns an :class:`Expr`. Operand types are matched and constants folded while nodes are built.
"""

from .._core import EqualOp, Expr, IntImm, IterVar, Var
from .any import Any
from .expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Range,
    Select,
    SizeVar,
    Sub,
    _range,
    as_const_int,
    const,
    convert,
    expr_range,
)
from .op import *  # noqa: F403
