"""Scalar expressions: node constructors, intrinsics and reducers.

Every function takes expressions or Python numbers (an integer becomes ``int32`` if it fits, a real number ``float32``)
and returns an :class:`Expr`. Operand types are matched and constants folded while nodes are built.
"""

import importlib

from .. import _absent
from .._core import EqualOp, Expr
from . import ir_builder, stmt_functor
from .any import Any
from .buffer import Buffer, BufferLoad, BufferRegion, PointerType, PrimType, decl_buffer
from .expr import Range, SizeVar, _range, as_const_int, const, convert, expr_range
from .layout import BijectiveLayout, Layout, bijective_layout, layout
from .nodes import *  # noqa: F403
from .op import *  # noqa: F403
from .stmt import *  # noqa: F403


def __getattr__(name):
    if name == "transform":
        return importlib.import_module(f"{__name__}.{name}")
    raise _absent.attribute_error(__name__, name)
