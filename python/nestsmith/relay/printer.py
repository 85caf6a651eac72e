"""Graph expressions as text, in the form that :mod:`.parser` reads.

Every call, tuple and field of a tuple has a line of its own (``%0 = add(%x, %y);``), the last value of a block stands at its end.
Attributes that have the value which their builder gives them anyway are left out. Constants of several elements and named dimensions
stand in a table behind the text (``#[metadata]``).
"""

import base64
import json
import re

import numpy as np

from . import expr as rx
from .dims import Sym
from .op.builders import default_attrs
from .op.registry import Op
from .span import SequentialSpan, Span
from .ty import FuncType, IncompleteType, RefType, TensorType, TupleType, TypeCall

__all__ = ["astext", "type_text", "HEADER", "METADATA"]

HEADER = '#[version = "0.0.5"]\n'
METADATA = "#[metadata]\n"
_SUFFIX = {"float32": "f", "float16": "f16", "float64": "f64", "int32": "", "int16": "i16", "int64": "i64"}


def _number(v, dtype):
    """The shortest text of a number that is read back as the same one."""
    if dtype.startswith("float"):
        v = np.dtype(dtype).type(v)
        short = f"{float(v):g}"
        with np.errstate(over="ignore"):
            exact = np.isnan(v) or np.dtype(dtype).type(short) == v
        return short if exact else str(v)
    return str(int(v))


def _value(v):
    if isinstance(v, str):
        return json.dumps(v, ensure_ascii=False)
    if isinstance(v, (tuple, list)):
        return "[" + ", ".join(map(_value, v)) + "]"
    if isinstance(v, (bool, np.bool_)) or v is None:
        return str(bool(v)) if v is not None else "None"
    if isinstance(v, (float, np.floating)):
        short = f"{float(v):g}"
        return f"{short if float(short) == float(v) else repr(float(v))}f"
    if isinstance(v, rx.Function):
        return f"fn/{len(v.params)}"
    return str(v)


class _Metadata:
    """The table behind the text: values by their kind."""

    def __init__(self):
        self.tables, self.keep = {}, []

    def ref(self, kind, value, entry):
        table = self.tables.setdefault(kind, {})
        if id(value) not in table:
            self.keep.append(value)
            table[id(value)] = entry()
        return f"meta[{kind}][{list(table).index(id(value))}]"

    def constant(self, c):
        def entry():
            text = base64.b64encode(c.data.tobytes()).decode()
            return {"type_key": "relay.Constant", "dtype": c._type.dtype, "shape": list(c.data.shape), "data": text}

        return self.ref("relay.Constant", c, entry)

    def dim(self, d):
        if not isinstance(d, Sym):
            return str(d)
        factors = next(iter(d.terms.values()))[1] if len(d.terms) == 1 and not d.start else ()
        if len(factors) != 1 or factors[0].kind != "Var":
            return f'"{d}"'
        kind = "tir.SizeVar" if ">=0" in str(factors[0]) else "tir.Var"
        return self.ref(kind, factors[0], lambda: {"type_key": kind, "name": factors[0].name, "dtype": factors[0].dtype})

    def text(self):
        return METADATA + json.dumps({k: list(t.values()) for k, t in self.tables.items()}, indent=1) + "\n" if self.tables else ""


def type_text(t, dim=str):
    """A type as text."""
    if isinstance(t, TensorType):
        return f"Tensor[({', '.join(map(dim, t.shape))}), {t.dtype}]" if t.shape else t.dtype
    if isinstance(t, TupleType):
        return "(" + ", ".join(type_text(f, dim) for f in t.fields) + ("," if len(t.fields) == 1 else "") + ")"
    if isinstance(t, FuncType):
        params = f"[{', '.join(map(str, t.type_params))}]" if t.type_params else ""
        return f"fn {params}({', '.join(type_text(a, dim) for a in t.arg_types)}) -> {type_text(t.ret_type, dim)}"
    if isinstance(t, RefType):
        return f"ref({type_text(t.value, dim)})"
    if isinstance(t, TypeCall):
        return f"{t.func}[{', '.join(type_text(a, dim) for a in t.args)}]"
    return "_" if t is None or isinstance(t, IncompleteType) else str(t)


_ATOMS = (rx.Var, rx.Constant, rx.GlobalVar, Op)
_REFS = {rx.RefCreate: "ref", rx.RefRead: "ref_read", rx.RefWrite: "ref_write"}


class _Block:
    """A block of text: inside of which one, and how deep."""

    __slots__ = ("parent", "depth")

    def __init__(self, parent=None):
        self.parent, self.depth = parent, parent.depth + 1 if parent else 0


def _common(a, b):
    """The innermost block that has two blocks."""
    while a is not b:
        if a.depth >= b.depth:
            a = a.parent
        else:
            b = b.parent
    return a


def _blocks(root):
    """The block in which every node has to be defined, by id: that of its reader, or the innermost one around all its readers."""
    order = rx.all_nodes(root)
    at, spine = {id(root): _Block()}, {id(root)}
    for e in reversed(order):
        own = at[id(e)]
        here = _Block(own) if isinstance(e, rx.Function) or (isinstance(e, rx.Let) and id(e) not in spine) else own
        for k, c in enumerate(rx.parts(e)):
            block = _Block(own) if isinstance(e, rx.If) and k else here
            last = isinstance(e, (rx.Function, rx.Let)) and c is e.body and id(c) not in at
            if (isinstance(e, rx.If) and k) or last:
                spine.add(id(c))
            elif id(c) in spine:
                spine.discard(id(c))
            at[id(c)] = _common(at[id(c)], block) if id(c) in at else block
    return at


class _Printer:
    def __init__(self, metadata, annotate=None):
        self.meta, self.annotate = metadata, annotate
        self.names, self.used, self.lines, self.count = {}, set(), [], 0
        self.typed = False
        self.readers: dict[int, int] = {}

    def type(self, t):
        return type_text(t, self.meta.dim)

    def note(self, e):
        """What follows a value: its type and where it comes from, or what the user says of it."""
        if self.annotate is not None:
            said = self.annotate(e)
            return f" /* {said} */" if said else ""
        typed = e._type is not None and (self.typed or isinstance(e, (rx.Call, rx.Function)))
        parts = [f"ty={self.type(e._type)}"] if typed else []
        parts += [f"span={e.span}"] if isinstance(e.span, (Span, SequentialSpan)) else []
        return f" /* {' '.join(parts)} */" if parts else ""

    def var(self, v):
        if id(v) not in self.names:
            base = re.sub(r"[^\w./:-]", "_", v.name_hint) or "v"
            base = name = f"v{base}" if base[0].isdigit() else base
            k = 1
            while name in self.used:
                name, k = f"{base}_{k}", k + 1
            self.used.add(name)
            self.names[id(v)] = "%" + name
        return self.names[id(v)]

    def param(self, v):
        return f"{self.var(v)}: {self.type(v._type)}" if v._type is not None else self.var(v)

    def start(self, roots):
        """Counts who reads what, and notes whether types are known."""
        self.blocks = _blocks(roots[0]) if roots else {}
        self.typed = any(r._type is not None and not isinstance(r, (rx.Constant, rx.Var)) for r in roots)
        for e in (n for r in roots for n in rx.all_nodes(r)):
            for c in rx.parts(e):
                self.readers[id(c)] = self.readers.get(id(c), 0) + 1

    def function(self, f, head, indent):
        types = f"[{', '.join(map(str, f.type_params))}]" if f.type_params else ""
        params = [*map(self.param, f.params), *(f"{k}={_value(v)}" for k, v in f.attrs.items())]
        ret = f.ret_type if f.ret_type is not None else f.body._type
        arrow = f" -> {self.type(ret)}" if ret is not None else ""
        self.lines.append(f"{indent}{head}{types}({', '.join(params)}){arrow} {{")
        self.body(f.body, indent + "  ")
        self.lines.append(indent + "}")

    def body(self, e, indent):
        """The lines of a block whose value is `e`."""
        names, count = dict(self.names), self.count
        while isinstance(e, rx.Let):
            self.before(e.value, indent)
            t = e.var.type_annotation
            note = f": {self.type(t)}" if t is not None else ""
            self.line(f"{indent}let {self.var(e.var)}{note} = ", self.inline(e.value, indent) + ";")
            e = e.body
        self.before(e, indent)
        self.line(indent, self.inline(e, indent))
        kept = {k: v for k, v in self.names.items() if k not in names and not v[1:].isdigit()}
        self.names, self.count = {**names, **kept}, count  # what has a number is known in its block alone

    def line(self, start, text):
        self.lines.extend((start + text).split("\n"))

    def parts(self, e):
        """What must have a name or text before a node: arguments first, then the function that is called."""
        if isinstance(e, rx.Call):
            return (*e.args, *(() if isinstance(e.op, Op) else (e.op,)))
        if isinstance(e, (rx.Function, rx.Let, rx.If)):
            return (*((e.cond,) if isinstance(e, rx.If) else ()), *self.shared(e))
        return rx.children(e)

    def shared(self, e):
        """What is read inside of the blocks of a node and has to be defined before them."""
        depth = self.blocks[id(e)].depth

        def shared(c):
            return not isinstance(c, _ATOMS) and self.blocks[id(c)].depth <= depth and self.readers[id(c)] > 1

        inside = rx.parts(e)[1:] if isinstance(e, rx.If) else rx.parts(e)
        met = rx.reach(reversed(inside), lambda c: () if isinstance(c, _ATOMS) or shared(c) else reversed(rx.parts(c)))
        return list(filter(shared, met))

    def before(self, root, indent):
        """Lines for everything that `root` needs; `root` itself gets one if others read it, too."""
        stack = [(p, False) for p in reversed(self.parts(root))] if self.readers.get(id(root), 0) < 2 else [(root, False)]
        while stack:
            e, ready = stack.pop()
            if id(e) in self.names or isinstance(e, _ATOMS):
                continue
            if not ready:
                stack.append((e, True))
                stack.extend((p, False) for p in reversed(self.parts(e)))
                continue
            text = self.text(e, indent)
            name = self.names[id(e)] = f"%{self.count}"
            self.count += 1
            self.line(f"{indent}{name} = ", text + ";")

    def inline(self, e, indent):
        return self.names.get(id(e)) or self.text(e, indent)

    def ref(self, e):
        if isinstance(e, (rx.Constant, rx.GlobalVar, Op)):
            return self.text(e, "")
        return self.var(e) if isinstance(e, rx.Var) else self.names[id(e)]

    def block(self, indent, fill, head=None):
        """The lines that `fill` makes, as a text."""
        lines, self.lines = self.lines, [] if head is None else [head]
        fill()
        text, self.lines = "\n".join(self.lines), lines
        return text

    def text(self, e, indent):
        """The text of a node whose parts have names."""
        if isinstance(e, (rx.Var, rx.GlobalVar)):
            return self.var(e) if isinstance(e, rx.Var) else f"@{e.name_hint}"
        if isinstance(e, Op):
            return e.name
        if isinstance(e, rx.Constant):
            return self.constant(e) + (self.note(e) if self.typed or not e.is_scalar else "")
        if isinstance(e, rx.Call):
            return self.call(e) + self.note(e)
        if isinstance(e, rx.Tuple):
            return f"({', '.join(map(self.ref, e.fields))}{',' if len(e.fields) == 1 else ''})" + self.note(e)
        if isinstance(e, rx.TupleGetItem):
            return f"{self.ref(e.tuple_value)}.{e.index}" + self.note(e)
        if type(e) in _REFS:
            return f"{_REFS[type(e)]}({', '.join(map(self.ref, rx.children(e)))})" + self.note(e)
        if isinstance(e, rx.Function):
            return self.block(indent, lambda: self.function(e, "fn ", indent)).lstrip() + self.note(e)
        if isinstance(e, rx.Let):
            return self.block(indent, lambda: self.body(e, indent + "  "), "(") + f"\n{indent})"
        heads = (f"if ({self.ref(e.cond)}) {{", e.true_branch), (f"{indent}}} else {{", e.false_branch)
        return "\n".join(self.block(indent, lambda b=b: self.body(b, indent + "  "), head) for head, b in heads) + f"\n{indent}}}"

    def constant(self, c):
        dtype = c._type.dtype
        if not c.is_scalar or (dtype not in _SUFFIX and dtype != "bool"):
            return self.meta.constant(c)
        if dtype == "bool":
            return str(bool(c.data))
        number = _number(c.data, dtype)
        return number + _SUFFIX[dtype] if re.match(r"-?\d", number) else self.meta.constant(c)

    def call(self, e):
        left_out = default_attrs(e)
        attrs = [f"{k}={_value(v)}" for k, v in e.attrs.items() if k not in left_out]
        return f"{self.ref(e.op)}({', '.join([*map(self.ref, e.args), *attrs])})"


def astext(obj, show_meta_data=True, annotate=None):
    """Text of an expression, function or module; types are shown where they are known.

    Parameters
    ----------
    show_meta_data : bool
        The table of constants and named dimensions follows. Without it the text cannot be parsed if it refers to that.
    annotate : callable, optional
        ``annotate(expr) -> str`` says what follows a value as a comment, instead of its type.
    """
    meta = _Metadata()
    functions = getattr(obj, "functions", None)
    if functions is not None:
        texts = []
        for gv, f in functions.items():
            p = _Printer(meta, annotate)
            p.start([f])
            p.function(f, f"def @{gv.name_hint}", "")
            texts.append("\n".join(p.lines) + "\n")
        text = "\n".join(texts)
    else:
        p = _Printer(meta, annotate)
        p.start([] if isinstance(obj, Op) else [obj])
        p.lines += [f"free_var {p.param(v)};" for v in ([] if isinstance(obj, Op) else rx.free_vars(obj))]
        if isinstance(obj, (rx.Function, Op)):
            p.line("", p.text(obj, ""))
        else:
            p.body(obj, "")
        text = "\n".join(p.lines)
    table = meta.text() if show_meta_data else ""
    return HEADER + text + (("" if text.endswith("\n") else "\n") + "\n" + table if table else "")


rx.above.astext = astext
