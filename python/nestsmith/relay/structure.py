"""What graph expressions, types and modules consist of, for structural equality (:mod:`nestsmith.structure`)."""

import operator

from ..structure import Node, rule
from . import ty
from .expr import Call, Constant, Function, GlobalVar, If, Let, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem, Var
from .module import IRModule
from .op.registry import Op

__all__: list[str] = []


# class: what must be the same, the parts, what is bound
_ROWS: dict = {
    ty.Any: ("", "", ""), ty.TensorType: ("dtype", "shape", ""), ty.TupleType: ("", "fields", ""), ty.GlobalTypeVar: ("name_hint", "", ""),
    ty.FuncType: ("", "arg_types ret_type type_constraints", "type_params"), ty.TypeVar: ("", "kind", ""), ty.Sym: ("", "expr", ""),
    ty.IncompleteType: ("kind", "", ""), ty.RefType: ("", "value", ""), ty.TypeCall: ("", "func args", ""),
    ty.TypeRelation: ("num_inputs func", "args attrs", ""), ty.TypeData: ("", "header constructors", "type_vars"),
    RefCreate: ("", "value", ""), RefRead: ("", "ref", ""), RefWrite: ("", "ref value", ""),
    Var: ("", "type_annotation", ""), GlobalVar: ("name_hint", "", ""), Op: ("name", "", ""), Constant: ("_type.dtype", "data", ""),
    Call: ("", "op args attrs", ""), Tuple: ("", "fields", ""), TupleGetItem: ("index", "tuple_value", ""), Function: ("", "body attrs", "params"),
    Let: ("", "value body", "var"), If: ("", "cond true_branch false_branch", ""), IRModule: ("", "functions", ""),
}  # fmt: skip
_SHARED = (Call, Tuple, Function, Let, If, RefCreate, RefRead, RefWrite)
_READ = {"func": lambda x: str(x.func), "kind": lambda x: int(x.kind), "type_annotation": lambda v: v._type}  # other fields are read as they are


def _join(cls, head, parts, bound):
    heads, names = ([(n, _READ.get(n) or operator.attrgetter(n)) for n in fields.split()] for fields in (head, parts))

    def node(x):
        what = (cls.__name__, *(read(x) for _, read in heads))
        binds = getattr(x, bound) if bound else ()
        shared = isinstance(x, _SHARED) and not (cls is Tuple and not x.fields)
        return Node(what, tuple((f".{n}", read(x)) for n, read in names), tuple(binds) if isinstance(binds, (list, tuple)) else (binds,), shared,
                    cls in (Var, ty.TypeVar))  # fmt: skip

    rule(cls)(node)


for _cls, _row in _ROWS.items():
    _join(_cls, *_row)
