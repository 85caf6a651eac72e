"""Forms of the same function: a let for every value (A-normal form), or a graph without lets."""

import collections

from .. import passes
from ..expr import Call, Constant, Function, GlobalVar, If, Let, Var, all_nodes, children, parts, reach, with_children
from ..op.registry import Op
from .inline import without_lets

__all__ = ["ToANormalForm", "ToGraphNormalForm"]

_ATOMS = (Var, GlobalVar, Constant, Op)


class _Scope:
    """A block that is being made: its bindings, and what the values of the graph are called in it."""

    def __init__(self, parent=None):
        self.parent, self.names, self.lets = parent, {}, []

    def find(self, e):
        scope = self
        while scope is not None:
            if id(e) in scope.names:
                return scope.names[id(e)]
            scope = scope.parent
        return None

    def bind(self, e, value):
        v = self.names[id(e)] = Var("x", e._type)
        self.lets.append((v, value))
        return v

    def close(self, result):
        for v, value in reversed(self.lets):
            result = Let(v, value, result)
        return result


def _shared(e, readers):
    """Values that are read in both branches of an if, or in a branch and elsewhere: they are bound before it."""

    def ends(c):
        return isinstance(c, (*_ATOMS, Let, Function)) or readers.get(id(c), 0) > 1

    met = reach([e.false_branch, e.true_branch], lambda c: () if ends(c) else reversed(children(c)))
    return [c for c in met if ends(c) and not isinstance(c, (*_ATOMS, Let, Function))]


def _block(expr, parent, readers):
    scope = _Scope(parent)
    while isinstance(expr, Let):
        value = _value(expr.value, scope, readers)
        scope.names[id(expr.var)] = expr.var
        scope.lets.append((expr.var, value))
        expr = expr.body
    return scope.close(_atom(expr, scope, readers))


def _atom(root, scope, readers):
    """The name of a value in a scope, with bindings for everything below it."""
    stack = [root]
    while stack:
        e = stack[-1]
        if isinstance(e, _ATOMS) or scope.find(e) is not None:
            stack.pop()
            continue
        below = (e.cond, *_shared(e, readers)) if isinstance(e, If) else () if isinstance(e, (Function, Let)) else children(e)
        missing = [c for c in below if not isinstance(c, _ATOMS) and scope.find(c) is None]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        scope.bind(e, _value(e, scope, readers))
    return root if isinstance(root, _ATOMS) else scope.find(root)


def _value(e, scope, readers):
    """A node whose parts are names."""
    if isinstance(e, _ATOMS):
        return e

    def of(c):
        return _atom(c, scope, readers)

    if isinstance(e, Function):
        return e if e.is_primitive else Function(e.params, _block(e.body, scope, readers), e.ret_type, e.type_params, e.attrs, e.span)
    if isinstance(e, If):
        cond = of(e.cond)
        return If(cond, _block(e.true_branch, scope, readers), _block(e.false_branch, scope, readers), e.span)
    if isinstance(e, Let):
        return _block(e, scope, readers)
    if isinstance(e, Call) and isinstance(e.op, Function) and e.op.is_primitive:
        return Call(e.op, [of(a) for a in e.args], e.attrs, e.type_args, e.span)
    return with_children(e, [of(c) for c in children(e)])


@passes.makes_function_pass(opt_level=1)
def ToANormalForm(func, mod, ctx):
    """Binds every value to a variable, in the order of evaluation."""
    readers = collections.Counter(id(c) for e in all_nodes(func) for c in parts(e))
    return Function(func.params, _block(func.body, None, readers), func.ret_type, func.type_params, func.attrs, func.span)


@passes.makes_function_pass(opt_level=1)
def ToGraphNormalForm(func, mod, ctx):
    """Puts the values of let-bindings in the places of their variables: the inverse of :func:`ToANormalForm`."""
    return Function(func.params, without_lets(func.body), func.ret_type, func.type_params, func.attrs, func.span)
