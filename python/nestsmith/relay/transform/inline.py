"""Inline: let-bindings and calls of functions of the network disappear, so that what follows sees one graph of
operators."""

from .. import expr as rx, passes
from ..infer import infer_module, infer_type
from ..module import IRModule

__all__ = ["Inline", "InlineAll", "without_lets"]


def _expand(body, mod, depth):
    """`body` (without lets) without calls of non-primitive functions."""
    if depth > 64:
        raise ValueError("functions of the network call each other without end; recursive networks are not supported")
    memo = {}
    for e in rx.post_order(body):
        if isinstance(e, rx.Call) and not e.op_name:
            f = mod[e.op] if isinstance(e.op, rx.GlobalVar) and e.op in mod else e.op
            if isinstance(f, rx.Function) and not f.is_primitive:
                args = [memo[id(a)] for a in e.args]
                memo[id(e)] = _expand(without_lets(rx.bind(f.body, dict(zip(f.params, args)))), mod, depth + 1)
                continue
        new = rx.with_children(e, [memo[id(c)] for c in rx.children(e)]) if not isinstance(e, rx.Function) else e
        if isinstance(new, rx.TupleGetItem) and isinstance(new.tuple_value, rx.Tuple):
            new = new.tuple_value.fields[new.index]
        memo[id(e)] = new
    return memo[id(body)]


def without_lets(body):
    """`body` with the values of its lets in the places of their variables."""
    table = {e.var: e.value for e in rx.post_order(body) if isinstance(e, rx.Let)}
    return _substitute(body, table) if table else body


def _needs(body):
    def goes(e):
        return isinstance(e, rx.Let) or (isinstance(e, rx.Call) and not e.op_name and not getattr(e.op, "is_primitive", False))

    return any(map(goes, rx.post_order(body)))


@passes.makes_function_pass(opt_level=0)
def InlineAll(func, mod, ctx):
    """Removes let-bindings and calls of functions that are not primitive: what follows sees one graph of operators."""
    if not _needs(func.body):
        return func
    infer_module(mod) if len(mod.functions) > 1 else infer_type(func)
    body = _expand(without_lets(func.body), mod, 0)
    return rx.Function(func.params, body, None, func.type_params, func.attrs, func.span)


def _substitute(body, table):
    by_id = {id(v): e for v, e in table.items()}
    memo, stack = {}, [body]
    while stack:
        e = stack[-1]
        if id(e) in memo:
            stack.pop()
            continue
        if isinstance(e, rx.Let):
            deps = [e.body]
        elif id(e) in by_id:
            deps = [by_id[id(e)]]
        elif isinstance(e, rx.Function):
            deps = []
        else:
            deps = list(rx.children(e))
        missing = [d for d in deps if id(d) not in memo]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        if isinstance(e, rx.Let) or id(e) in by_id:
            memo[id(e)] = memo[id(deps[0])]
        else:
            memo[id(e)] = rx.with_children(e, [memo[id(c)] for c in deps]) if deps else e
    return memo[id(body)]


def _calls_itself(gv, mod):
    """Whether a function is called by something that it calls."""
    seen, todo = set(), [gv.name_hint]
    while todo:
        for e in rx.post_order(mod[todo.pop()].body):
            if isinstance(e, rx.GlobalVar) and e in mod and e.name_hint not in seen:
                if e.name_hint == gv.name_hint:
                    return True
                seen.add(e.name_hint)
                todo.append(e.name_hint)
    return False


@passes.makes_module_pass(opt_level=1)
def Inline(mod, ctx):
    """Puts the bodies of functions of the module that have the attribute ``Inline`` in the places of their calls, those that call themselves
    excepted, and drops these functions; one that nobody calls stays. A function
    for a compiler of the user's (attribute ``Compiler``) stays a function."""
    marked = {gv.name_hint for gv, f in mod.functions.items() if f.attrs.get("Inline") and not _calls_itself(gv, mod)}
    called = {e.name_hint for f in mod.functions.values() for e in rx.post_order(f.body) if isinstance(e, rx.GlobalVar)}
    marked &= called
    done: dict[str, rx.Function] = {}

    def inlined(name):
        """A function whose calls of marked functions are done."""
        if name not in done:
            f = mod[name]
            done[name] = f if name not in marked and not _mentions(f, marked) else rx.rewrite(f, visit)
        return done[name]

    def visit(old, new):
        if isinstance(old, rx.GlobalVar) and old.name_hint in marked:
            return inlined(old.name_hint)
        if not isinstance(old, rx.Call) or not isinstance(old.op, rx.GlobalVar):
            return new
        if old.op.name_hint in marked and not new.op.attrs.get("Compiler"):
            return rx.bind(new.op.body, dict(zip(new.op.params, new.args)))
        return new

    return IRModule({gv: inlined(gv.name_hint) for gv in mod.functions if gv.name_hint not in marked})


def _mentions(func, names):
    return any(isinstance(e, rx.GlobalVar) and e.name_hint in names for e in rx.post_order(func.body))
