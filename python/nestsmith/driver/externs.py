"""Operators with operations that are no expressions (``te.extern``): programs and calls, one after the other."""

import json
import warnings

from .. import _core, registry
from ..compiling import compile_source
from ..error import TVMValueError
from ..runtime.module import Module, OperatorModule
from ..runtime.ndarray import empty
from ..te.extern import extern_of
from ..te.operation import operations
from ..te.schedule import create_schedule
from ..te.specialize import segment
from ..tir import Buffer, engine_form, stmt_list

__all__ = ["ExternModule", "function_module", "has_extern"]


def has_extern(sch):
    """Whether an operation of a schedule is calls of global functions, or a statement has such a call."""
    return any(_packed(o) for o in operations(getattr(sch, "outputs", None) or []))


def _packed(op):
    record = extern_of(op)
    return record is not None and record.packed


def function_module(func, name, target, engine, cache_dir=None):
    """The module of a PrimFunc, whose parameters are buffers. Raises ValueError for one that is a number."""
    for p in func.params:
        if p not in func.buffer_map:
            raise ValueError(f"build: parameter {p.name} of the function is a number; make it a buffer without dimensions")
    buffers = [func.buffer_map[p] for p in func.params]
    source, manifest = _core.stmt_program(engine_form(func.body), tuple(func.memory.get(b, b).number for b in buffers), engine, name)
    if func.memory:
        program = json.loads(manifest)
        for a, b in zip(program["args"], buffers):
            a["shape"] = [int(d) for d in b.shape]
        manifest = json.dumps(program)
    binary, _ = compile_source(target, source, name, False, cache_dir, engine)
    return OperatorModule(source, manifest, binary, target)


class _Calls:
    """Calls of global functions with arrays."""

    def __init__(self, record):
        self._calls, self._buffers = [s.value for s in stmt_list(record.body)], [*record.in_buffers, *record.out_buffers]

    def __call__(self, *arrays):
        places = {}
        for b, a in zip(self._buffers, arrays):
            places[b] = places[("data", hash(b.data))] = a
        for c in self._calls:
            name, *args = c.args
            registry.get_global_func(name)(*[self._value(x, places) for x in args])

    @staticmethod
    def _value(x, places):
        if isinstance(x, Buffer):
            return places[x]
        if isinstance(x, _core.Expr):
            return places[("data", hash(x))] if x.kind == "Var" and ("data", hash(x)) in places else x.value
        return x


class _Steps:
    """A function of arrays that runs programs and calls."""

    def __init__(self, sch, args, name, made):
        self.__name__, self._args, self._steps = name, args, []
        there: set = set()
        for op in operations(sch.outputs):
            record = extern_of(op)
            if _packed(op) and record.outputs[0].op == op:
                self._compute([t for t in record.inputs if t not in there and not t.op.is_placeholder], there, made)
                self._steps.append((made(record), [*record.inputs, *record.outputs]))
                there.update(record.outputs)
        rest = [t for t in dict.fromkeys([*args, *[o.output(i) for o in sch.outputs for i in range(o.num_outputs)]])]
        self._compute([t for t in rest if t not in there and not t.op.is_placeholder], there, made)

    def _compute(self, wanted, there, made):
        if wanted:
            reads, new = segment(wanted, there)
            self._steps.append((made((create_schedule([t.op for t in new]), [*[p for _, p in reads], *new])), [*[t for t, _ in reads], *wanted]))
            there.update(wanted)

    def __call__(self, *arrays):
        if len(arrays) != len(self._args):
            raise TVMValueError(f"{self.__name__} takes {len(self._args)} arrays, {len(arrays)} were given")
        place = dict(zip(self._args, arrays))
        for run, tensors in self._steps:
            for t in tensors:
                if t not in place:
                    place[t] = empty([int(s) for s in t.shape], t.dtype, arrays[0].device if arrays else None)
            run(*[place[t] for t in tensors])


class ExternModule(Module):
    """An operator with calls of global functions. What is computed between them has plain loops, with a warning if the schedule asks for others."""

    def __init__(self, sch, args, name, target, cache_dir, build):
        for kind, stage, *_ in json.loads(sch.steps()):
            if kind not in ("CI", "CIX", "CR"):
                warnings.warn(f"stage {sch.stages[stage].op.name} is scheduled beside a te.extern that calls functions "
                              "of Python (call_packed); what is computed between such calls runs with plain loops. "
                              "Build it by itself, or write the extern as statements (tir.ir_builder)", stacklevel=3)
                break

        def made(part):
            if isinstance(part, tuple):
                return build(*part, target, cache_dir=cache_dir)
            return _Calls(part)

        super().__init__("c", {name: _Steps(sch, args, name, made)}, name)

    def export_library(self, file_name, fcompile=None, **kwargs):
        """Raises TVMValueError: a library holds one program."""
        raise TVMValueError(f"cannot export {file_name!r}: it calls functions of Python")
