"""Walks over expressions as classes: a method per kind of node, each node once.

These recurse on the host stack, as their users' methods do; passes of the package walk with :func:`nestsmith.relay.expr.post_order`.
"""

from __future__ import annotations

from .expr import (
    Call,
    Constant,
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
    parts,
    with_parts,
)
from .op.registry import Op

__all__ = ["ExprFunctor", "ExprVisitor", "ExprMutator"]

_METHODS = {Function: "visit_function", Call: "visit_call", Let: "visit_let", Var: "visit_var",
            GlobalVar: "visit_global_var", If: "visit_if", Tuple: "visit_tuple", TupleGetItem: "visit_tuple_getitem",
            Constant: "visit_constant", Op: "visit_op", RefCreate: "visit_ref_create", RefRead: "visit_ref_read",
            RefWrite: "visit_ref_write"}  # fmt: skip


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


def missing(name):
    """A method of a functor that has none for a kind."""

    def method(self, _):
        raise NotImplementedError(f"{type(self).__name__} has no method {name}")

    method.__name__ = name
    return method


class ExprVisitor(ExprFunctor):
    """Walks over all nodes; derive from it and override the methods of what you look for."""


class ExprMutator(ExprFunctor):
    """Rebuilds an expression; derive from it and override the methods of what you replace. What has no new parts stays the object that it
    is."""


def _walk(self, e):
    """Visits the parts of a node."""
    for p in parts(e):
        self.visit(p)


def _rebuild(self, e):
    """A node with its parts as they were visited."""
    return with_parts(e, [self.visit(p) for p in parts(e)])


for _name in _METHODS.values():
    setattr(ExprFunctor, _name, missing(_name))
    setattr(ExprVisitor, _name, _walk)
    setattr(ExprMutator, _name, _rebuild)
