"""Expressions, types and modules as JSON: a table of nodes, each with its kind and its fields; a field that is a node is its number.

Nodes are written and read in the order parts first, without recursion, so that sharing stays and deep networks pass.
"""

import base64
import json

import numpy as np

from .. import te, tir
from ..check import json_of
from ..te import stored as computations
from .dims import Sym
from .expr import Call, Constant, Function, GlobalVar, If, Let, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem, Var
from .module import IRModule
from .op.registry import Op, get
from .span import SequentialSpan, SourceName, Span
from .ty import Any, FuncType, GlobalTypeVar, IncompleteType, RefType, TensorType, TupleType, TypeCall, TypeVar

__all__ = ["save_json", "load_json"]

FORMAT = "nestsmith-json-1"
_PLAIN = (type(None), bool, int, float, str)


def _array(c):
    return [c._type.dtype, str(c.data.dtype), list(c.data.shape), base64.b64encode(c.data.tobytes()).decode()]


def _constant(dtype, stored, shape, data):
    return Constant(np.frombuffer(base64.b64decode(data), stored).reshape(shape).copy(), dtype)


def _module(names, functions):
    return IRModule(dict(zip(names, functions)))


def _named(terms, start):
    return Sym({tuple(keys): (c, tuple(factors)) for keys, c, factors in ((sorted(map(_key, f)), c, f) for c, f in terms)}, start)


def _key(e):
    return f"{e}#{hash(e)}"


# kind: (class, its fields, what makes it of them)
_KINDS: dict = {
    "Var": (Var, lambda v: [v.name_hint, v._type], Var),
    "GlobalVar": (GlobalVar, lambda v: [v.name_hint], GlobalVar),
    "Op": (Op, lambda o: [o.name], get),
    "Constant": (Constant, _array, _constant),
    "Call": (Call, lambda c: [c.op, c.args, dict(c.attrs), c.span], lambda op, args, attrs, span: Call(op, args, attrs, None, span)),
    "Tuple": (Tuple, lambda t: [t.fields], Tuple),
    "TupleGetItem": (TupleGetItem, lambda t: [t.tuple_value, t.index], TupleGetItem),
    "Function": (Function, lambda f: [f.params, f.body, f.ret_type, f.type_params, dict(f.attrs)], Function),
    "Let": (Let, lambda e: [e.var, e.value, e.body], Let),
    "If": (If, lambda e: [e.cond, e.true_branch, e.false_branch], If),
    "RefCreate": (RefCreate, lambda r: [r.value], RefCreate),
    "RefRead": (RefRead, lambda r: [r.ref], RefRead),
    "RefWrite": (RefWrite, lambda r: [r.ref, r.value], RefWrite),
    "TensorType": (TensorType, lambda t: [t.shape, t.dtype], TensorType),
    "TupleType": (TupleType, lambda t: [t.fields], TupleType),
    "FuncType": (FuncType, lambda t: [t.arg_types, t.ret_type, t.type_params], FuncType),
    "RefType": (RefType, lambda t: [t.value], RefType),
    "GlobalTypeVar": (GlobalTypeVar, lambda t: [t.name_hint, int(t.kind)], GlobalTypeVar),
    "TypeVar": (TypeVar, lambda t: [t.name_hint, int(t.kind)], TypeVar),
    "TypeCall": (TypeCall, lambda t: [t.func, t.args], TypeCall),
    "IncompleteType": (IncompleteType, lambda t: [int(t.kind)], IncompleteType),
    "Sym": (Sym, lambda d: [[[c, list(f)] for c, f in d.terms.values()], d.start], _named),
    "Any": (Any, lambda d: [], Any),
    "SourceName": (SourceName, lambda s: [s.name], SourceName),
    "Span": (Span, lambda s: [s.source_name, s.line, s.end_line, s.column, s.end_column], Span),
    "SequentialSpan": (SequentialSpan, lambda s: [s.spans], SequentialSpan),
    "te.Tensor": (te.Tensor, lambda t: [computations.dumps(computations.computation(t), [t])], lambda text: computations.loads(text)[1][0]),
    **{f"te.{c.__name__}": (c, lambda o: [o.output(0)], lambda t: t.op) for c in (te.PlaceholderOp, te.ComputeOp)},
    "IRModule": (IRModule, lambda m: [list(m.functions), list(m.functions.values())], _module),
}


def _kind_of(x):
    for kind, (cls, fields, _) in _KINDS.items():
        if type(x) is cls:
            return kind, fields(x)
    what = getattr(x, "kind", None)
    if what == "Var":
        return ("tir.SizeVar" if ">=0" in str(x) else "tir.Var"), [x.name, str(x.dtype)]
    if what in ("IntImm", "FloatImm"):
        return "tir.const", [x.value, str(x.dtype)]
    raise TypeError(f"a {type(x).__name__} cannot be saved as JSON; networks, tensors of te, types, modules and literals can")


_SCALARS = {"tir.Var": tir.Var, "tir.SizeVar": tir.SizeVar, "tir.const": tir.const}


def _identity(x):
    return ("expression", hash(x)) if isinstance(x, tir.PrimExpr) else id(x)


def _parts(v):
    """The nodes in a field."""
    if isinstance(v, (list, tuple)):
        return [p for x in v for p in _parts(x)]
    if isinstance(v, dict):
        return [p for pair in v.items() for x in pair for p in _parts(x)]
    return [] if isinstance(v, (*_PLAIN, np.generic)) else [v]


def _written(v, number):
    if isinstance(v, (list, tuple)):
        return [_written(x, number) for x in v]
    if isinstance(v, dict):
        return {"map": [[_written(k, number), _written(x, number)] for k, x in v.items()]}
    if isinstance(v, np.generic):
        return v.item()
    return v if isinstance(v, _PLAIN) else {"node": number[_identity(v)]}


def save_json(node):
    """A text of an expression, type, module, span, or a list or dictionary of them; :func:`load_json` reads it. Raises TypeError for
    objects of other kinds."""
    number: dict = {}
    nodes, keep, stack = [], [], [(x, False) for x in reversed(_parts(node))]
    made: dict = {}
    while stack:
        x, done = stack.pop()
        key = _identity(x)
        if key in number:
            continue
        if done:
            kind, fields = made[key]
            number[key] = len(nodes)
            nodes.append([kind, *(_written(f, number) for f in fields)])
            continue
        made[key] = _kind_of(x)
        keep.append((x, made[key]))  # ids are those of living objects
        stack.append((x, True))
        stack.extend((p, False) for p in reversed(_parts(made[key][1])))
    return json.dumps({"format": FORMAT, "nodes": nodes, "root": _written(node, number)})


def load_json(json_str):
    """What :func:`save_json` saved. Raises ValueError if the text is something else."""
    stored = json_of("json_str", json_str)
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        hint = " (of TVM's form; networks travel as text: relay.parse)" if isinstance(stored, dict) and "attrs" in stored else ""
        raise ValueError(f"json_str is no text of save_json{hint}")
    nodes: list = []

    def read(v):
        if isinstance(v, list):
            return [read(x) for x in v]
        if isinstance(v, dict):
            return nodes[v["node"]] if "node" in v else {read(k): read(x) for k, x in v["map"]}
        return v

    for kind, *fields in stored["nodes"]:
        make = _KINDS[kind][2] if kind in _KINDS else _SCALARS[kind]
        nodes.append(make(*(read(f) for f in fields)))
    return read(stored["root"])
