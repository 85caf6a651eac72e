"""Small passes: InferType, RemoveUnusedFunctions, binding of parameters."""

import warnings

from ... import check
from ...error import TVMValueError
from .. import passes
from ..expr import Constant, GlobalVar, Let, bind, children, const, post_order, reach, rewrite
from ..infer import infer_module, infer_type
from ..module import IRModule

__all__ = ["DeadCodeElimination", "InferType", "RemoveUnusedFunctions", "bind_params_by_name", "InferTypeLocal"]


@passes.makes_module_pass(opt_level=0)
def InferType(mod, ctx):
    """Infers and caches all types."""
    return infer_module(mod) if isinstance(mod, IRModule) else infer_type(mod)


@passes.module_pass(opt_level=1, name="RemoveUnusedFunctions")
def _remove_unused(mod, ctx):
    if not isinstance(mod, IRModule):
        return mod
    keep, todo = set(), ["main"]
    while todo:
        name = todo.pop()
        if name in keep or name not in mod:
            continue
        keep.add(name)
        todo += [e.name_hint for e in post_order(mod[name].body) if isinstance(e, GlobalVar)]
    return IRModule({gv: f for gv, f in mod.functions.items() if gv.name_hint in keep})


@passes.function_pass(opt_level=1, name="DeadCodeElimination")
def _dead_code(func, mod, ctx):
    values = {id(e.var): e.value for e in post_order(func.body) if isinstance(e, Let)}

    def below(e):
        bound = [values[id(e)]] if id(e) in values else []
        return [*bound, *((e.body,) if isinstance(e, Let) else children(e))]

    live = {id(e) for e in reach([func.body], below)}
    return rewrite(func, lambda old, new: new.body if isinstance(old, Let) and id(old.var) not in live else new)


def DeadCodeElimination(inline_once=False, ignore_impurity=False):
    """Drops let-bindings that nobody reads, and what only they need. The arguments of the reference are accepted: nothing in
    a network has effects, and :func:`Inline` inlines."""
    return _dead_code


def InferTypeLocal(expr):
    """The type of one expression."""
    return expr.checked_type


def RemoveUnusedFunctions(entry_functions=None):
    """Drops functions that ``main`` does not reach."""
    return _remove_unused


def warn_of_unmatched(params, known):
    """One warning for all names in `params` that are not among the names `known` of a network's parameters."""
    wrong = check.unmatched(params, known)
    if wrong:
        warnings.warn(
            f"params holds names that are no parameter of the network, and their values are not used: {wrong}; the "
            f"network's parameters are {check.some(map(repr, known))}",
            stacklevel=2,
        )


def bind_params_by_name(func, params):
    """`func` with the parameters named in `params` (name -> array) replaced by constants.

    One warning tells the names that are no parameter, with those that they may stand for; a name shared by two
    parameters, or an array of another shape, is a ValueError.
    """
    if not hasattr(params, "items"):
        raise TypeError(f"params is a {type(params).__name__}; it must be a dictionary from names to arrays")
    by_name: dict = {}
    for p in func.params:
        by_name.setdefault(p.name_hint, []).append(p)
    warn_of_unmatched(params, by_name)
    infer_type(func)
    table = {}
    for name, value in params.items():
        targets = by_name.get(name, [])
        if len(targets) > 1:
            raise TVMValueError(f"the function has {len(targets)} parameters called {name!r}; parameters bound by name "
                             "must be unique")  # fmt: skip
        if targets:
            p, c = targets[0], value if isinstance(value, Constant) else const(value)
            want = p.checked_type
            if c.data.shape != want.shape:
                raise ValueError(f"parameter {name!r} has shape {c.data.shape}, the network wants {want.shape}")
            if c.checked_type.dtype != want.dtype:
                c = const(c.numbers, want.dtype)
            table[p] = c
    return bind(func, table) if table else func
