"""Type inference: one pass in post-order that caches the type in every node.

It works in both directions. An operator sees the types of its arguments, some of which may be missing because a
weight variable
was made without one; the operator's rule then also says what they must be. That is how test networks get weight shapes.
"""

from ..error import DiagnosticError
from . import expr as rx
from .ty import FuncType, RefType, TensorType, TupleType

__all__ = ["declared_type", "infer_module", "infer_type"]


def _call_type(e):
    if isinstance(e.op, rx.Function):
        for p, a in zip(e.op.params, e.args):
            if a._type is None:
                a._type = p._type  # the body of the function determined it
        t = e.op._type
        return t.ret_type if t is not None else None
    if isinstance(e.op, rx.Expr):
        t = e.op._type
        if isinstance(t, FuncType):
            return t.ret_type
        raise DiagnosticError(f"call of {e.op!r}, whose type is not known: put the function into a module first")
    types = [a._type for a in e.args]
    missing = [i for i, t in enumerate(types) if t is None]
    where = f" (layer {e.span})" if e.span else ""
    try:
        out = e.op.infer(e.attrs, types)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, ZeroDivisionError) as err:
        if any(t is None for t in types):
            names = ", ".join(repr(e.args[i]) for i in missing)
            raise DiagnosticError(f"{e.op.name}{where}: the type of {names} is not known") from None
        raise DiagnosticError(f"{e.op.name}{where}: {err} (argument types: {', '.join(map(str, types))})") from None
    for i in missing:
        if types[i] is None:
            raise DiagnosticError(f"{e.op.name}{where}: the type of {e.args[i]!r} is not known")
        e.args[i]._type = types[i]
    return out


def _node_type(e):
    if isinstance(e, rx.Call):
        return _call_type(e)
    if isinstance(e, rx.Tuple):
        return TupleType([f._type for f in e.fields])
    if isinstance(e, rx.TupleGetItem):
        t = e.tuple_value._type
        if not isinstance(t, TupleType) or not 0 <= e.index < len(t.fields):
            raise DiagnosticError(f"field {e.index} of {t}")
        return t.fields[e.index]
    if isinstance(e, rx.Function):
        return FuncType([p._type or TensorType((), "float32") for p in e.params], e.body._type)
    if isinstance(e, rx.Let):
        return e.body._type
    if isinstance(e, rx.RefCreate):
        return RefType(e.value._type)
    if isinstance(e, rx.RefRead):
        if not isinstance(e.ref._type, RefType):
            raise DiagnosticError(f"a reference is read of a value of type {e.ref._type}")
        return e.ref._type.value
    if isinstance(e, rx.RefWrite):
        return TupleType([])
    if isinstance(e, rx.If):
        a, b = e.true_branch._type, e.false_branch._type
        if a != b and a.is_static and b.is_static:
            raise DiagnosticError(f"the branches of an if have different types: {a} and {b}")
        return a
    return e._type


def declared_type(func):
    """The type of a function as it is written down, None if a part is missing."""
    types = [p._type for p in func.params]
    return None if func.ret_type is None or None in types else FuncType(types, func.ret_type, func.type_params)


def _below(e):
    """What is inferred before a node: the arguments of a call before the function, whose parameters may have no types."""
    if isinstance(e, rx.Function):
        return (*e.params, e.body)
    if isinstance(e, rx.Call) and isinstance(e.op, rx.Function):
        return (*e.args, e.op)
    return rx.children(e)


def _given(e, c):
    """Before a part is inferred it gets what its place says of its type."""
    if isinstance(e, rx.Call) and c is e.op:
        for p, a in zip(c.params, e.args):
            if p._type is None:
                p._type = a._type
    if isinstance(e, rx.Let) and c is e.value and isinstance(c, rx.Function) and e.var._type is None:
        e.var._type = declared_type(c)  # it may call itself


def infer_type(expr):
    """Infer and cache the types of `expr` and everything below; returns `expr`. ValueError names the operator at
    fault."""
    stack = [(expr, None)]
    while stack:
        e, it = stack.pop()
        if it is None:
            if e._type is not None and not isinstance(e, rx.Function):
                continue
            if isinstance(e, rx.Function) and e._type is not None and e.body._type is not None:
                continue
            it = iter(_below(e))
        for c in it:
            if isinstance(c, rx.Function) and c._type is None:
                _given(e, c)
            if c._type is None and not (isinstance(c, rx.Var)):
                stack.append((e, it))
                stack.append((c, None))
                break
            if isinstance(e, rx.Let) and c is e.var and c._type is None:
                c._type = e.value._type
        else:
            if e._type is None:
                e._type = _node_type(e)
    return expr


def _share_types(mod):
    """Every mention of a function's name is the module's variable of that name, as far as types go."""
    for f in mod.functions.values():
        for e in rx.post_order(f.body):
            if isinstance(e, rx.GlobalVar) and e._type is None and e in mod:
                e._type = mod.get_global_var(e.name_hint)._type


def infer_module(mod):
    """Infers the types of all functions of a module, which may call each other; returns the module. Raises as :func:`infer_type`."""
    waiting = list(mod.functions.items())
    for gv, f in waiting:
        gv._type = gv._type or declared_type(f)
    if len(waiting) > 1:
        _share_types(mod)
    while waiting:
        failed = []
        for gv, f in waiting:
            try:
                gv._type = infer_type(f)._type
                if len(mod.functions) > 1:
                    _share_types(mod)
            except DiagnosticError as err:  # perhaps it calls one that comes later
                failed.append((gv, f, err))
        if len(failed) == len(waiting):
            raise failed[0][2]
        waiting = [(gv, f) for gv, f, _ in failed]
    return mod


rx.above.infer_type = infer_type
