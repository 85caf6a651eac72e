"""Modules: named graph functions."""

from ..tir.stmt import PrimFunc
from .expr import Function, GlobalVar, free_vars
from .printer import astext

__all__ = ["IRModule"]


class IRModule:
    """Maps names to graph functions; ``main`` is the entry.

    ``mod["main"]`` gives a function, ``mod["main"] = f`` replaces it; ``mod.functions`` maps global variables to
    functions.
    """

    def __init__(self, functions=None, type_defs=None):
        self._functions, self._globals = {}, {}
        for k, f in (functions or {}).items():
            if isinstance(k, GlobalVar):
                self._globals[k.name_hint] = k
            self[k] = f

    @classmethod
    def from_expr(cls, expr, functions=None, type_defs=None):
        """A module whose ``main`` is `expr`: a function as it is, anything else as a function over its free
        variables."""
        if isinstance(expr, cls):
            return expr
        if hasattr(expr, "astuple"):
            expr = expr.astuple()
        mod = cls(functions)
        if isinstance(expr, PrimFunc):
            name = (expr.attrs or {}).get("global_symbol", "main")
            mod[getattr(name, "value", name)] = expr
        else:
            mod["main"] = expr if isinstance(expr, Function) else Function(free_vars(expr), expr)
        return mod

    functions = property(lambda self: {self._globals[k]: f for k, f in self._functions.items()})

    def get_global_var(self, name):
        if name not in self._globals:
            raise ValueError(f"the module has no function {name!r}; it has {', '.join(self._functions) or 'none'}")
        return self._globals[name]

    def get_global_vars(self):
        return list(self._globals.values())

    def __getitem__(self, name):
        name = getattr(name, "name_hint", name)
        if name not in self._functions:
            raise ValueError(f"the module has no function {name!r}; it has {', '.join(self._functions) or 'none'}")
        return self._functions[name]

    def __setitem__(self, name, func):
        given, name = name, getattr(name, "name_hint", name)
        if not isinstance(func, (Function, PrimFunc)):
            raise TypeError(f"module[{name!r}] must be a relay.Function or a tir.PrimFunc, not {type(func).__name__}")
        gv = self._globals.setdefault(str(name), given if isinstance(given, GlobalVar) else GlobalVar(name))
        self._functions[str(name)] = func
        gv._type = getattr(func, "_type", None)

    def _add(self, name, func, update=False):
        if name in self and not update:
            raise ValueError(f"the module has a function {getattr(name, 'name_hint', name)!r} already; pass update=True to replace it")
        self[name] = func

    def __contains__(self, name):
        return getattr(name, "name_hint", name) in self._functions

    def same_as(self, other):
        """Whether the other one is this object."""
        return self is other

    def shallow_copy(self):
        """Another module with the same functions."""
        out = IRModule()
        out._functions, out._globals = dict(self._functions), dict(self._globals)
        return out

    def update(self, other):
        """Adds (or replaces) the functions of another module."""
        for gv, f in other.functions.items():
            self[gv] = f

    def astext(self, show_meta_data=True, annotate=None):
        """The module as text, which :func:`relay.parse` reads where all functions are relay's."""
        graphs = self.shallow_copy()
        graphs._functions = {k: f for k, f in self._functions.items() if isinstance(f, Function)}
        loops = [f"@{k} = {f}" for k, f in self._functions.items() if k not in graphs]
        return "\n".join([*loops, astext(graphs, show_meta_data, annotate)])

    def __str__(self):
        return self.astext(show_meta_data=False)

    def __repr__(self):
        return f"<IRModule {', '.join(self._functions)}>"
