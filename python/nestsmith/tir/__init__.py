"""Scalar expressions: node constructors, intrinsics and reducers.

Every function takes expressions or Python numbers (an integer becomes ``int32`` if it fits, a real number ``float32``)
and returns an :class:`Expr`. Operand types are matched and constants folded while nodes are built.
"""

from .._core import EqualOp, Expr, IterVar
from .any import Any
from .expr import Range, SizeVar, _range, as_const_int, const, convert, expr_range
from .layout import BijectiveLayout, Layout, bijective_layout, layout
from .nodes import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    CommReducer,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    ProducerLoad,
    Ramp,
    Reduce,
    Select,
    StringImm,
    Sub,
    Var,
)
from .op import *  # noqa: F403
