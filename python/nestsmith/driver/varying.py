"""Operators whose sizes, or numbers among whose arguments, are known at the call only (``te.var``)."""

import numpy as np

from .. import _core
from ..error import TVMValueError
from ..runtime.module import Module
from ..runtime.ndarray import NDArray, array
from ..te.specialize import is_varying, specialized, variables_of

__all__ = ["VaryingModule", "varies"]


def varies(sch, args):
    """Whether a schedule has sizes, or a program arguments, that are variables."""
    ops = getattr(sch, "outputs", None)
    return bool(args) and bool(ops) and (any(isinstance(a, _core.Expr) for a in args) or is_varying(ops))


class _Varying:
    """A function of arrays and numbers: the sizes of a call decide which program runs."""

    def __init__(self, sch, args, name, build):
        self._sch, self._args, self.__name__, self._build = sch, args, name, build
        self._made = {}
        sizes = variables_of([d for a in args if isinstance(a, _core.Tensor) for d in a.shape])
        self._scalars = [a for a in args if isinstance(a, _core.Expr) and a not in sizes]
        for a in args:
            if isinstance(a, _core.Expr) and a.kind != "Var":
                raise TypeError(f"build: the argument {a} is an expression; it must be a tensor or a variable")

    def _values(self, given):
        """The sizes of a call: those of dimensions that are a variable, and what is given for variables."""
        if len(given) != len(self._args):
            raise TypeError(f"{self.__name__} takes {len(self._args)} arguments, {len(given)} were given")
        values = {}
        for i, (a, g) in enumerate(zip(self._args, given)):
            dims = [(a, g)] if isinstance(a, _core.Expr) and a not in self._scalars else []
            if isinstance(a, _core.Tensor):
                if not isinstance(g, NDArray) or len(g.shape) != len(a.shape):
                    raise TypeError(f"argument {i} ({a.name}) of {self.__name__} must be an array with {len(a.shape)} dimensions")
                dims = [(d, s) for d, s in zip(a.shape, g.shape) if isinstance(d, _core.Expr)]
            for d, s in dims:
                if d.kind == "Var" and values.setdefault(d, int(s)) != int(s):
                    raise ValueError(f"argument {i} of {self.__name__}: {d.name} is {values[d]} elsewhere, not {int(s)}")
        return values

    def special(self, given):
        """(the function for the sizes of a call, its arguments)."""
        values = self._values(given)
        key = tuple(values.values())
        if key not in self._made:
            sch, args = specialized(self._sch, self._args, values, self._scalars)
            self._made[key] = self._build(sch, args)
        dev = next((g.device for g in given if isinstance(g, NDArray)), None)
        arrays = []
        for a, g in zip(self._args, given):
            if isinstance(a, _core.Tensor):
                arrays.append(g)
            elif a in self._scalars:
                arrays.append(g if isinstance(g, NDArray) else array(np.asarray(g, a.dtype), dev))
        return self._made[key], arrays

    def __call__(self, *given):
        module, arrays = self.special(given)
        module(*arrays)


class VaryingModule(Module):
    """One operator with sizes that are known at the call only (``te.var``), or arguments that are numbers.

    Each set of sizes is compiled when it is first met, by ``build(schedule, tensors)``, and kept.
    """

    def __init__(self, sch, args, name, build):
        super().__init__("c", {name: _Varying(sch, args, name, build)}, name)

    def export_library(self, file_name, fcompile=None, **kwargs):
        """Raises TVMValueError: a library holds programs for sizes that are known."""
        raise TVMValueError(f"cannot export {file_name!r}: its sizes are variables; give the tensors sizes that are numbers, and build again")
