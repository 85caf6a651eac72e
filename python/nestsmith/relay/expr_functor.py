"""Walks over expressions as classes: a method per kind of node, each node once.

These recurse on the host stack, as their users' methods do; passes of the package walk with :func:`nestsmith.relay.expr.post_order`.
"""

from . import expr as rx
from .op.registry import Op

__all__ = ["ExprFunctor", "ExprVisitor", "ExprMutator"]

_METHODS = {rx.Function: "visit_function", rx.Call: "visit_call", rx.Let: "visit_let", rx.Var: "visit_var",
            rx.GlobalVar: "visit_global_var", rx.If: "visit_if", rx.Tuple: "visit_tuple", Op: "visit_op",
            rx.TupleGetItem: "visit_tuple_getitem", rx.Constant: "visit_constant", rx.RefCreate: "visit_ref_create",
            rx.RefRead: "visit_ref_read", rx.RefWrite: "visit_ref_write"}  # fmt: skip


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
    for p in rx.parts(e):
        self.visit(p)


def _rebuild(self, e):
    """A node with its parts as they were visited."""
    return rx.with_parts(e, [self.visit(p) for p in rx.parts(e)])


for _name in _METHODS.values():
    setattr(ExprFunctor, _name, missing(_name))
    setattr(ExprVisitor, _name, _walk)
    setattr(ExprMutator, _name, _rebuild)
