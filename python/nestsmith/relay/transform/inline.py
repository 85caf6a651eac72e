"""Inline: let-bindings and calls of functions of the network disappear, so that what follows sees one graph of
operators."""

from __future__ import annotations

from .. import passes as _t
from ..expr import Call, Function, GlobalVar, Let, Tuple, TupleGetItem, bind, children, post_order, with_children
from ..infer import infer_type

__all__ = ["Inline"]


def _expand(body, mod, depth):
    """`body` (without lets) without calls of non-primitive functions."""
    if depth > 64:
        raise ValueError("functions of the network call each other without end; recursive networks are not supported")
    memo = {}
    for e in post_order(body):
        if isinstance(e, Call) and not e.op_name:
            f = (
                e.op
                if isinstance(e.op, Function)
                else mod[e.op]
                if isinstance(e.op, GlobalVar) and e.op in mod
                else None
            )
            if f is not None and not f.is_primitive:
                args = [memo[id(a)] for a in e.args]
                memo[id(e)] = _expand(_no_lets(bind(f.body, dict(zip(f.params, args)))), mod, depth + 1)
                continue
        new = with_children(e, [memo[id(c)] for c in children(e)]) if not isinstance(e, Function) else e
        if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
            new = new.tuple_value.fields[new.index]
        memo[id(e)] = new
    return memo[id(body)]


def _no_lets(body):
    table = {e.var: e.value for e in post_order(body) if isinstance(e, Let)}
    return _substitute(body, table) if table else body


def _needs(body):
    return any(
        isinstance(e, Let) or (isinstance(e, Call) and not e.op_name and not getattr(e.op, "is_primitive", False))
        for e in post_order(body)
    )


@_t.function_pass(opt_level=0, name="Inline")
def _inline(func, mod, ctx):
    if not _needs(func.body):
        return func
    infer_type(func)
    return Function(func.params, _expand(_no_lets(func.body), mod, 0), None, func.type_params, func.attrs, func.span)


def _substitute(body, table):
    by_id = {id(v): e for v, e in table.items()}
    memo, stack = {}, [body]
    while stack:
        e = stack[-1]
        if id(e) in memo:
            stack.pop()
            continue
        if isinstance(e, Let):
            deps = [e.body]
        elif id(e) in by_id:
            deps = [by_id[id(e)]]
        elif isinstance(e, Function):
            deps = []
        else:
            deps = list(children(e))
        missing = [d for d in deps if id(d) not in memo]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        if isinstance(e, Let) or id(e) in by_id:
            memo[id(e)] = memo[id(deps[0])]
        else:
            memo[id(e)] = with_children(e, [memo[id(c)] for c in deps]) if deps else e
    return memo[id(body)]


def Inline():
    """Removes let-bindings and calls of functions that are not primitive."""
    return _inline
