"""Walks over expressions as classes: a method per kind of node, each node once.

These recurse on the host stack, as their users' methods do; passes of the package walk with :func:`nestsmith.relay.expr.post_order`.
"""

from __future__ import annotations

from .expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    with_children,
)
from .op.registry import Op

__all__ = ["ExprFunctor", "ExprVisitor", "ExprMutator"]

_METHODS = {
    Function: "visit_function", Call: "visit_call", Let: "visit_let", Var: "visit_var", GlobalVar: "visit_global_var", If: "visit_if",
    Tuple: "visit_tuple", TupleGetItem: "visit_tuple_getitem", Constant: "visit_constant", Op: "visit_op",
    RefCreate: "visit_ref_create", RefRead: "visit_ref_read", RefWrite: "visit_ref_write",
}  # fmt: skip


class ExprFunctor:
    """Base of walks that compute a value for every node: ``visit(expr)`` calls ``visit_call``, ``visit_var``, ... of the kind of node and
    remembers the result in `memo_map`. A kind without a method raises NotImplementedError."""

    def __init__(self):
        self.memo_map = {}

    def visit(self, expr):
        """The value of a node."""
        if expr in self.memo_map:
            return self.memo_map[expr]
        name = next((m for c, m in _METHODS.items() if isinstance(expr, c)), None)
        if name is None:
            raise TypeError(f"visit takes a relay expression, not {type(expr).__name__}")
        self.memo_map[expr] = out = getattr(self, name)(expr)
        return out


def _missing(name):
    def method(self, _):
        raise NotImplementedError(f"{type(self).__name__} has no method {name}")

    method.__name__ = name
    return method


for _name in _METHODS.values():
    setattr(ExprFunctor, _name, _missing(_name))


class ExprVisitor(ExprFunctor):
    """Walks over all nodes; derive from it and override the methods of what you look for."""

    def _parts(self, *exprs):
        for e in exprs:
            self.visit(e)

    def visit_function(self, fn):
        self._parts(*fn.params, fn.body)

    def visit_call(self, call):
        self._parts(call.op, *call.args)

    def visit_let(self, let):
        self._parts(let.var, let.value, let.body)

    def visit_if(self, i):
        self._parts(i.cond, i.true_branch, i.false_branch)

    def visit_tuple(self, tup):
        self._parts(*tup.fields)

    def visit_tuple_getitem(self, op):
        self._parts(op.tuple_value)

    def visit_ref_create(self, r):
        self._parts(r.value)

    def visit_ref_read(self, r):
        self._parts(r.ref)

    def visit_ref_write(self, r):
        self._parts(r.ref, r.value)

    def visit_var(self, var):
        """A variable; nothing is below."""

    visit_global_var = visit_op = visit_constant = visit_var


class ExprMutator(ExprFunctor):
    """Rebuilds an expression; derive from it and override the methods of what you replace. What has no new parts stays the object that it
    is."""

    def _rebuilt(self, e, *parts):
        new = [self.visit(p) for p in parts]
        return with_children(e, new)

    def visit_function(self, fn):
        params, body = [self.visit(p) for p in fn.params], self.visit(fn.body)
        if body is fn.body and all(a is b for a, b in zip(params, fn.params)):
            return fn
        return Function(params, body, fn.ret_type, fn.type_params, fn.attrs, fn.span)

    def visit_call(self, call):
        op, args = self.visit(call.op), [self.visit(a) for a in call.args]
        if op is call.op and all(a is b for a, b in zip(args, call.args)):
            return call
        return Call(op, args, call.attrs, call.type_args, call.span)

    def visit_let(self, let):
        new = self.visit(let.var), self.visit(let.value), self.visit(let.body)
        return let if new == (let.var, let.value, let.body) else Let(*new, let.span)

    def visit_if(self, i):
        return self._rebuilt(i, i.cond, i.true_branch, i.false_branch)

    def visit_tuple(self, tup):
        return self._rebuilt(tup, *tup.fields)

    def visit_tuple_getitem(self, op):
        return self._rebuilt(op, op.tuple_value)

    def visit_ref_create(self, r):
        return self._rebuilt(r, r.value)

    def visit_ref_read(self, r):
        return self._rebuilt(r, r.ref)

    def visit_ref_write(self, r):
        return self._rebuilt(r, r.ref, r.value)

    def visit_var(self, var) -> Expr:
        return var

    visit_global_var = visit_op = visit_constant = visit_var
