"""Schedules as functions of te.hybrid, to be read, saved and run in Python."""

import ast
import pathlib

from ... import _core
from ...tir.buffer import buffer_behind
from ...tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt, function_of
from .operation import source_to_op
from .runtime import HYBRID_GLOBALS, emulated

__all__ = ["HybridModule", "build", "given_symbols"]

_WORDS = {ForKind.SERIAL: "range", ForKind.PARALLEL: "parallel", ForKind.VECTORIZED: "vectorize", ForKind.UNROLLED: "unroll"}
_OPERATORS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "FloorDiv": "//", "FloorMod": "%", "EQ": "==",
              "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "And": "and", "Or": "or"}


def given_symbols(x):
    """Whether an argument is a tensor or an expression, or a list with one."""
    return any(map(given_symbols, x)) if isinstance(x, (list, tuple)) else isinstance(x, (_core.Tensor, _core.Expr))


class _Printer:
    def __init__(self):
        self.names, self.used, self.lines = {}, set(HYBRID_GLOBALS) | {"range", "min", "max"}, []

    def name(self, x, wanted):
        """The name of a variable or buffer, its own."""
        if x not in self.names:
            base = "".join(c if c.isalnum() else "_" for c in wanted)
            k = 0
            while base + (f"_{k}" if k else "") in self.used:
                k += 1
            self.names[x] = base + (f"_{k}" if k else "")
            self.used.add(self.names[x])
        return self.names[x]

    def text(self, e):
        args = [self.text(a) for a in e.args] if e.kind not in ("Var",) else []
        if e.kind == "Var":
            return self.name(e, e.name)
        if e.kind in ("IntImm", "FloatImm"):
            return repr(e.value)
        if e.kind == "BufferLoad":
            return f"{self.name(e.buffer, e.buffer.name)}[{', '.join(args) or '()'}]"
        if e.kind in _OPERATORS:
            return f"({args[0]} {_OPERATORS[e.kind]} {args[1]})"
        if e.kind in ("Min", "Max"):
            return f"{e.kind.lower()}({', '.join(args)})"
        if e.kind == "Not":
            return f"(not {args[0]})"
        if e.kind == "Cast":
            return f"{e.dtype}({args[0]})" if e.dtype != "bool" else f"({args[0]} != 0)"
        if e.kind == "Select" or e.kind == "Call" and e.symbol == "if_then_else":
            return f"({args[1]} if {args[0]} else {args[2]})"
        if e.kind == "Call":
            return f"{'power' if e.symbol == 'pow' else e.symbol}({', '.join(args)})"
        raise ValueError(f"te.hybrid.build: {e} has no text as a function of te.hybrid")

    def stmt(self, s, depth):
        def put(x):
            self.lines.append("    " * depth + x)

        if isinstance(s, SeqStmt):
            for x in s.seq:
                self.stmt(x, depth)
        elif isinstance(s, For):
            low, end = self.text(s.min), self.text(s.extent + s.min)
            tag = getattr(s.thread_binding, "thread_tag", None)
            span = f'bind("{tag}", {end})' if tag else f"{_WORDS[ForKind(s.kind)]}({'' if low == '0' else low + ', '}{end})"
            put(f"for {self.name(s.loop_var, s.loop_var.name)} in {span}:")
            self.stmt(s.body, depth + 1)
        elif isinstance(s, IfThenElse):
            put(f"if {self.text(s.condition)}:")
            self.stmt(s.then_case, depth + 1)
            if s.else_case is not None:
                put("else:")
                self.stmt(s.else_case, depth + 1)
        elif isinstance(s, LetStmt):
            put(f"{self.name(s.var, s.var.name)} = {self.text(s.value)}")
            self.stmt(s.body, depth)
        elif isinstance(s, Allocate):
            b = buffer_behind(s.buffer_var)
            put(f"{self.name(b, b.name)} = allocate(({''.join(self.text(e) + ', ' for e in s.extents) or '1,'}), {b.dtype!r}, {b.scope()!r})")
            self.stmt(s.body, depth)
        elif isinstance(s, BufferStore):
            put(f"{self.name(s.buffer, s.buffer.name)}[{', '.join(map(self.text, s.indices)) or '()'}] = {self.text(s.value)}")
        elif isinstance(s, Stmt):
            put("pass")


class HybridModule:
    """A function of te.hybrid by its source: called with arrays it runs, with tensors it gives tensors.

    Parameters
    ----------
    src : str, optional
        `load` brings one.
    name : str, optional
    """

    def __init__(self, src=None, name=None):
        self.src_, self.name, self.func_, self.root_ = src, name, None, None
        if src is not None:
            scope: dict = {}
            self.root_ = next(n for n in ast.parse(src).body if isinstance(n, ast.FunctionDef))
            exec(compile(src, "<te.hybrid>", "exec"), scope)  # noqa: S102
            self.name = name or self.root_.name
            self.func_ = scope[self.root_.name]

    def __call__(self, *args):
        if self.func_ is None:
            raise ValueError("a HybridModule without source: load(path) brings one")
        return source_to_op(self.root_, {}, args) if any(map(given_symbols, args)) else emulated(self.func_, args)

    def get_source(self):
        """The function as text."""
        return self.src_

    def save(self, path):
        """Writes the source to ``path``, with ``.py`` behind it if that is missing."""
        path = str(path)
        pathlib.Path(path if path.endswith(".py") else path + ".py").write_text(self.src_)

    def load(self, path):
        """Takes the source from a file."""
        path = str(path)
        self.__init__(pathlib.Path(path if path.endswith(".py") else path + ".py").read_text())


def build(sch, inputs, outputs, name="hybrid_func"):
    """A schedule as a function of te.hybrid.

    Parameters
    ----------
    sch : te.Schedule
    inputs : list of te.Tensor and tir.Var
        Its parameters.
    outputs : list of te.Tensor
        What it returns.
    name : str

    Returns
    -------
    HybridModule
    """
    tensors = [t for t in [*inputs, *outputs] if isinstance(t, _core.Tensor)]
    func, p = function_of(sch._core, tensors, "llvm"), _Printer()
    buffers = dict(zip(tensors, (func.buffer_map[v] for v in func.params)))
    params = [p.name(buffers.get(x, x), x.name if isinstance(x, _core.Expr) else x.op.name) for x in inputs]
    for t in outputs:
        shape = "".join((str(s) if not isinstance(s, _core.Expr) else p.text(s)) + ", " for s in t.shape)
        p.lines.append(f"    {p.name(buffers[t], t.op.name)} = output_tensor(({shape}), {t.dtype!r})")
    p.stmt(func.body, 1)
    p.lines.append(f"    return {', '.join(p.names[buffers[t]] for t in outputs)}")
    return HybridModule("\n".join([f"def {name}({', '.join(params)}):", *p.lines, ""]), name)
