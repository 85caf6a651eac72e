"""Walks over statements and expressions, and what changes them."""

import copy
import operator

from .. import _core
from .buffer import BufferLoad, decl_buffer
from .expr import const
from .stmt import BufferStore, OpaqueCall, PrimFunc, Stmt

__all__ = ["ir_transform", "post_order_visit", "pre_order_visit", "renew_defs", "replace_buffers", "substitute"]


def _parts(x):
    if isinstance(x, PrimFunc):
        return [x.body]
    if isinstance(x, Stmt):
        flat = [v for _, v in x.children()]
        return [y for v in flat for y in (v if isinstance(v, (list, tuple)) else [v]) if isinstance(y, (Stmt, _core.Expr, OpaqueCall))]
    return list(x.args)


def post_order_visit(stmt, fvisit):
    """Calls ``fvisit(node)`` of every statement and expression, parts first, each once."""
    seen: set = set()

    def visit(x):
        key = ("e", hash(x)) if isinstance(x, _core.Expr) else id(x)
        if key in seen:
            return
        seen.add(key)
        for p in _parts(x):
            visit(p)
        fvisit(x)

    visit(stmt)


def pre_order_visit(stmt, fvisit):
    """Calls ``fvisit(node)`` of every statement and expression from the outside; where it returns False nothing below is visited."""
    if fvisit(stmt) is not False:
        for p in _parts(stmt):
            pre_order_visit(p, fvisit)


def with_args(e, args):
    """An expression with other operands."""
    kind = e.kind
    if all(a is b or a.same_as(b) for a, b in zip(args, e.args)):
        return e
    if kind == "BufferLoad":
        return BufferLoad(e.buffer, args)
    if kind == "ProducerLoad":
        return e.symbol(*args)
    if kind == "Cast":
        return _core.expr_cast(e.dtype, args[0])
    if kind == "Not":
        return _core.expr_not(args[0])
    if kind == "Select":
        return _core.expr_select(*args)
    if kind == "Call":
        return _core.expr_if_then_else(*args) if e.symbol == "if_then_else" else _core.expr_math(e.symbol, tuple(args))
    if kind == "Ramp":
        return _core.expr_ramp(*args, e.lanes)
    if kind == "Broadcast":
        return _core.expr_broadcast(*args, e.lanes)
    if len(args) == 2:
        return _core.expr_bin(kind, *args)
    raise ValueError(f"a {kind} cannot be made anew with other operands")


def _rebuilt(x, f):
    """A node whose parts went through ``f``; the node itself if none has changed."""
    if isinstance(x, PrimFunc):
        body = f(x.body)
        return x if body is x.body else x.with_body(body)
    if isinstance(x, OpaqueCall):
        return OpaqueCall(x.dtype, str(x.op), [f(a) if isinstance(a, (_core.Expr, OpaqueCall)) else a for a in x.args])
    if isinstance(x, _core.Expr):
        return with_args(x, [f(a) for a in x.args]) if x.args and x.kind != "Reduce" else x
    new = copy.copy(x)
    for name, v in x.children():
        if isinstance(v, (list, tuple)):
            items = [f(y) if isinstance(y, (Stmt, _core.Expr, OpaqueCall)) else y for y in v]
            setattr(new, name, [y for y in items if y is not None])
        elif isinstance(v, (Stmt, _core.Expr, OpaqueCall)) and name not in x.binds:
            setattr(new, name, f(v))
    pairs = zip(x.children(), new.children())
    same = all(a is b or (isinstance(a, list) and len(a) == len(b) and all(map(operator.is_, a, b))) for (_, a), (_, b) in pairs)
    return x if same else new


def ir_transform(stmt, preorder, postorder, only_enable=None):
    """A statement changed from the inside.

    Parameters
    ----------
    stmt : Stmt or Expr
    preorder : callable or None
        ``f(node)``: a node in its place, below which nothing is done; None: go on below.
    postorder : callable or None
        ``f(node)`` of a node whose parts are done: one in its place, or None to keep it.
    only_enable : list of str, optional
        Kinds that the functions are asked about, e.g. ``["tir.For"]``.
    """

    def kind(x):
        return x.kind if isinstance(x, _core.Expr) else type(x).__name__ if not isinstance(x, OpaqueCall) else "Call"

    def asked(x):
        return only_enable is None or f"tir.{kind(x)}" in only_enable

    def change(x):
        if preorder is not None and asked(x):
            new = preorder(x)
            if new is not None:
                return new
        x = _rebuilt(x, change)
        new = postorder(x) if postorder is not None and asked(x) else None
        return x if new is None else new

    return change(stmt)


def substitute(node, vmap):
    """A statement or expression with variables replaced: a dict from variable to expression."""
    names, values = [getattr(v, "var", v) for v in vmap], [const(v) for v in vmap.values()]
    if isinstance(node, (int, _core.Expr)):
        return _core.expr_substitute(const(node), names, values)

    def change(x):
        return _core.expr_substitute(x, names, values) if isinstance(x, _core.Expr) else None

    return _with_sizes(ir_transform(node, change, None), change)


def _with_sizes(node, change):
    """Memory whose size has changed belongs to other buffers."""
    new: dict = {}

    def buffer(b):
        if b not in new:
            shape = [change(const(s)) for s in b.shape]
            same = all(hash(s) == hash(const(t)) for s, t in zip(shape, b.shape))
            new[b] = b if same else decl_buffer(shape, b.dtype, b.name, b.data, scope=b.scope())
        return new[b]

    return replace_buffers(node, buffer)


def replace_buffers(node, f):
    """A statement that reads and writes buffer ``f(b)`` in the place of each buffer ``b``."""

    def renew(x):
        b = f(x.buffer)
        if b is x.buffer:
            return None
        return BufferLoad(b, list(x.args)) if isinstance(x, _core.Expr) else BufferStore(b, x.value, x.indices)

    return ir_transform(node, None, renew, ["tir.BufferLoad", "tir.BufferStore"])


def renew_defs(func):
    """A function whose variables are new ones."""
    found: dict = {}

    def note(x):
        for b in getattr(x, "binds", ()):
            v = getattr(x, b)
            if v.dtype != "handle":
                found[v] = _core.expr_var(v.name, v.dtype, False)

    post_order_visit(func.body, note)

    def change(x):
        return _core.expr_substitute(x, list(found), list(found.values())) if isinstance(x, _core.Expr) else None

    body = ir_transform(func.body, change, None)

    def rebind(x):
        for b in getattr(x, "binds", ()):
            if getattr(x, b) in found:
                new = copy.copy(x)
                setattr(new, b, found[getattr(x, b)])
                return new
        return None

    return func.with_body(ir_transform(body, None, rebind))
