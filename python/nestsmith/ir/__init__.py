"""Modules, operators, and what is done with all kinds of nodes: structural equality, JSON, instruments of passes."""

import importlib as _importlib
import typing as _typing

from .. import _absent
from ..relay.expr import Call, Constant, Expr as RelayExpr, GlobalVar, Var
from ..relay.module import IRModule
from ..relay.ty import (FuncType, GlobalTypeVar, IncompleteType, TensorType, TupleType, Type, TypeCall, TypeConstraint,
                        TypeKind, TypeRelation, TypeVar)  # fmt: skip
from ..tir import PointerType, PrimExpr, PrimType, Range

__all__ = ["IRModule", "RelayExpr", "GlobalVar", "Type", "TensorType", "TupleType", "FuncType", "TypeVar",
           "GlobalTypeVar", "TypeCall", "TypeConstraint", "TypeKind", "TypeRelation", "IncompleteType", "PointerType",
           "PrimExpr", "PrimType", "Range", "Call", "Constant", "Var"]

_LATE = {
    "node": ("make_node", "save_json", "load_json"), "op": ("Op", "register_op_attr"),
    "structural": ("structural_equal", "assert_structural_equal", "structural_hash", "get_first_structural_mismatch"),
}
_WHERE = {name: module for module, names in _LATE.items() for name in names}

if _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> _typing.Any: ...

else:

    def __getattr__(name):
        if name in _WHERE:
            return getattr(_importlib.import_module(f".{_WHERE[name]}", __name__), name)
        if name in ("module", "op", "instrument", *_LATE):
            return _importlib.import_module(f".{name}", __name__)
        raise _absent.attribute_error(__name__, name)


def __dir__():
    return sorted({*globals(), *_WHERE})
