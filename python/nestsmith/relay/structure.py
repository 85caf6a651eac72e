"""What graph expressions, types and modules consist of, for structural equality (:mod:`nestsmith.structure`)."""

from __future__ import annotations

from ..structure import Node, rule
from .expr import Call, Constant, Function, GlobalVar, If, Let, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem, Var
from .module import IRModule
from .op.registry import Op
from .ty import (
    Any,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    Sym,
    TensorType,
    TupleType,
    TypeCall,
    TypeRelation,
    TypeVar,
)

__all__: list[str] = []


@rule(Any)
def _any(d):
    return Node(("Any",))


@rule(TensorType)
def _tensor(t):
    return Node(("TensorType", t.dtype), ((".shape", t.shape),))


@rule(TupleType)
def _tuple_type(t):
    return Node(("TupleType",), ((".fields", t.fields),))


@rule(FuncType)
def _func_type(t):
    parts = (".arg_types", t.arg_types), (".ret_type", t.ret_type), (".type_constraints", t.type_constraints)
    return Node(("FuncType",), parts, t.type_params)


@rule(TypeVar)
def _type_var(t):
    return Node(("TypeVar",), ((".kind", int(t.kind)),), variable=True)


@rule(GlobalTypeVar)
def _global_type_var(t):
    return Node(("GlobalTypeVar", t.name_hint))


@rule(IncompleteType)
def _incomplete(t):
    return Node(("IncompleteType", int(t.kind)))


@rule(RefType)
def _ref_type(t):
    return Node(("RefType",), ((".value", t.value),))


@rule(TypeCall)
def _type_call(t):
    return Node(("TypeCall",), ((".func", t.func), (".args", t.args)))


@rule(TypeRelation)
def _type_relation(t):
    return Node(("TypeRelation", t.num_inputs, str(t.func)), ((".args", t.args), (".attrs", t.attrs)))


@rule(Sym)
def _named(d):
    return Node(("Sym",), ((".expr", d.expr),))


@rule(RefCreate)
def _ref_create(r):
    return Node(("RefCreate",), ((".value", r.value),), shared=True)


@rule(RefRead)
def _ref_read(r):
    return Node(("RefRead",), ((".ref", r.ref),), shared=True)


@rule(RefWrite)
def _ref_write(r):
    return Node(("RefWrite",), ((".ref", r.ref), (".value", r.value)), shared=True)


@rule(Var)
def _var(v):
    return Node(("Var",), ((".type_annotation", v._type),), variable=True)


@rule(GlobalVar)
def _global(v):
    return Node(("GlobalVar", v.name_hint))


@rule(Op)
def _op(op):
    return Node(("Op", op.name))


@rule(Constant)
def _constant(c):
    return Node(("Constant", c._type.dtype), ((".data", c.data),))


@rule(Call)
def _call(c):
    return Node(("Call",), ((".op", c.op), (".args", c.args), (".attrs", c.attrs)), shared=True)


@rule(Tuple)
def _tuple(t):
    return Node(("Tuple",), ((".fields", t.fields),), shared=bool(t.fields))


@rule(TupleGetItem)
def _field(t):
    return Node(("TupleGetItem", t.index), ((".tuple_value", t.tuple_value),))


@rule(Function)
def _function(f):
    return Node(("Function",), ((".body", f.body), (".attrs", f.attrs)), tuple(f.params), shared=True)


@rule(Let)
def _let(e):
    return Node(("Let",), ((".value", e.value), (".body", e.body)), (e.var,), shared=True)


@rule(If)
def _if(e):
    parts = (".cond", e.cond), (".true_branch", e.true_branch), (".false_branch", e.false_branch)
    return Node(("If",), parts, shared=True)


@rule(IRModule)
def _module(m):
    return Node(("IRModule",), ((".functions", {gv.name_hint: f for gv, f in m.functions.items()}),))
