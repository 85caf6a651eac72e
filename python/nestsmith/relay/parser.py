"""The text of networks, as :mod:`.printer` and TVM print it, becomes expressions and modules.

A block is a sequence of bindings (``let %x = value;``, ``%0 = value;`` for a value without a name) that ends with a value. Blocks are read
in a loop, nested ones by recursion. What is wrong is a DiagnosticError that names the line.
"""

import base64
import json
import re

import numpy as np

from .. import tir
from ..error import DiagnosticError
from . import expr as rx
from .infer import infer_module
from .module import IRModule
from .op.builders import make_call
from .op.registry import get
from .printer import METADATA
from .span import SourceName, Span
from .ty import DTYPES, Any, FuncType, GlobalTypeVar, RefType, TensorType, TupleType, TypeCall, TypeVar

__all__ = ["parse", "parse_expr", "fromtext"]

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)|(?P<comment>/\*)|(?P<var>%[\w/:.-]*[\w])|(?P<gvar>@[\w./:-]+)|(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)(?P<suffix>f16|f32|f64|f|i8|i16|i32|i64|i|u8|u16|u32|u64)?)(?![A-Za-z_])
    |(?P<field>\.\d+)|(?P<word>[A-Za-z_][\w.]*\??)|(?P<sign>->|=>|==|!=|<=|>=|[-+*/<>=(){}\[\],;:?|])""",
    re.VERBOSE,
)
_COMMENT, _BINDS = re.compile(r"/\*|\*/"), re.compile(r"\s*=(?![=>])")
_BINARY = ({"==": "equal", "!=": "not_equal"}, {"<": "less", ">": "greater", "<=": "less_equal", ">=": "greater_equal"},
           {"+": "add", "-": "subtract"}, {"*": "multiply", "/": "divide"})  # fmt: skip
_DTYPES = {"f": "float32", "f16": "float16", "f32": "float32", "f64": "float64", "i": "int32", **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
           **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)}}  # fmt: skip
_REFS = {"ref": (rx.RefCreate, 1), "ref_read": (rx.RefRead, 1), "ref_write": (rx.RefWrite, 2)}
_PLAIN = {"True": True, "False": False, "None": None}


class _Text:
    """Tokens (kind, text, position, suffix), one ahead."""

    def __init__(self, text, name):
        self.text, self.name, self.at = text, name, 0
        self.next()

    def next(self):
        """Steps over a token; returns the one that it was."""
        old = self.kind, self.token, self.start, self.suffix = getattr(self, "_ahead", ("", "", 0, None))
        self._ahead = self.scan()
        return old

    def scan(self):
        while self.at < len(self.text):
            m = _TOKEN.match(self.text, self.at)
            if m is None:
                self.fail(f"{self.text[self.at]!r} begins nothing that is known", self.at)
            start, self.at = self.at, m.end()
            if m["comment"]:
                self.skip_comment(start)
            elif not m["space"]:
                kind = "number" if m["number"] else m.lastgroup
                return kind, m[0], start, m["suffix"]
        return "end", "", len(self.text), None

    def skip_comment(self, start):
        depth = 1
        for m in _COMMENT.finditer(self.text, self.at):
            depth += 1 if m[0] == "/*" else -1
            if depth == 0:
                self.at = m.end()
                return
        self.fail("the comment has no end", start)

    def peek(self):
        return self._ahead[1] if self._ahead[0] not in ("string", "end") else ""

    def peek_kind(self):
        return self._ahead[0]

    def take(self, token):
        """Steps over a token if it comes next; whether it did."""
        if self.peek() != token:
            return False
        self.next()
        return True

    def want(self, token):
        if not self.take(token):
            self.fail(f"expected {token!r}, found {self._ahead[1]!r}")

    def want_kind(self, kind, what):
        if self.peek_kind() != kind:
            self.fail(f"expected {what}, found {self._ahead[1]!r}")
        return self.next()[1]

    def place(self, start=None):
        start = self._ahead[2] if start is None else start
        return self.text.count("\n", 0, start) + 1, start - (self.text.rfind("\n", 0, start) + 1) + 1

    def fail(self, what, start=None):
        line, column = self.place(start)
        lines = self.text.splitlines()
        raise DiagnosticError(f"{self.name}:{line}:{column}: {what}\n  {lines[line - 1] if line <= len(lines) else ''}")


class _Parser:
    def __init__(self, text, name, tables, spans=False):
        self.t, self.tables, self.spans = _Text(text, name), tables, spans
        self.source = SourceName(name)
        self.scopes: list[dict] = [{}]  # variables and values without names, by their text
        self.types: list[dict] = [{}]
        self.globals: dict[str, rx.GlobalVar] = {}

    # ---- names ----

    def lookup(self, name, start):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        self.t.fail(f"{name} is not defined here", start)

    def global_var(self, name):
        return self.globals.setdefault(name, rx.GlobalVar(name))

    def new_var(self, token):
        self.scopes[-1][token] = v = rx.Var(token[1:], self.type() if self.t.take(":") else None)
        return v

    # ---- types ----

    def type(self):
        t = self.t
        kind, token, start, _ = t.next()
        if token == "(":
            fields = []
            while not t.take(")"):
                fields.append(self.type())
                if not t.take(","):
                    t.want(")")
                    return TupleType(fields) if len(fields) > 1 else fields[0]
            return TupleType(fields)
        if token == "_":
            return None
        if token == "fn":
            return self.function_type()
        if token == "ref" and t.take("("):
            inner = self.type()
            t.want(")")
            return RefType(inner)
        if token == "Tensor":
            return self.tensor_type()
        if token in DTYPES:
            return TensorType((), token)
        for scope in reversed(self.types):
            if token in scope:
                return scope[token]
        if kind != "word":
            t.fail(f"{token!r} is no type", start)
        if t.take("["):
            return TypeCall(GlobalTypeVar(token), self.listed("]", self.type))
        t.fail(f"there is no type {token!r}", start)

    def tensor_type(self):
        self.t.want("[")
        self.t.want("(")
        shape = self.listed(")", self.dim)
        self.t.want(",")
        _, dtype, start, _ = self.t.next()
        self.t.want("]")
        if dtype not in DTYPES:
            self.t.fail(f"the element type {dtype!r} is not supported; use one of {', '.join(DTYPES)}", start)
        return TensorType(shape, dtype)

    def dim(self):
        if self.t.take("?"):
            return Any()
        if self.t.take("meta"):
            return self.meta()
        return int(self.t.want_kind("number", "a dimension"))

    def function_type(self):
        with_types = self.type_params()
        self.t.want("(")
        args = self.listed(")", self.type)
        self.t.want("->")
        ret = self.type()
        if with_types is not None:
            self.types.pop()
        return FuncType(args, ret, with_types or ())

    def type_params(self):
        """[A, B] of a function, in scope from here; None if there are none."""
        if not self.t.take("["):
            return None
        params = [TypeVar(name) for name in self.listed("]", lambda: self.t.want_kind("word", "a type parameter"))]
        self.types.append({p.name_hint: p for p in params})
        return params

    def listed(self, end, item):
        """Items separated by commas, up to `end`; a comma may stand behind the last one."""
        out = []
        while not self.t.take(end):
            out.append(item())
            if not self.t.take(","):
                self.t.want(end)
                break
        return out

    # ---- blocks ----

    def block(self):
        """{ bindings and a value }"""
        self.t.want("{")
        self.scopes.append({})
        e = self.sequence("}")
        self.scopes.pop()
        self.t.want("}")
        return e

    def sequence(self, end):
        t, lets = self.t, []
        while True:
            if t.take("let"):
                v = self.new_var(t.want_kind("var", "a variable"))  # in scope of its value: functions call themselves
                t.want("=")
                lets.append((v, self.expr()))
                t.want(";")
                continue
            if t.take("free_var"):
                self.new_var(t.want_kind("var", "a variable"))
                t.want(";")
                continue
            if t.peek_kind() == "var" and _BINDS.match(t.text, t.at):
                token = t.next()[1]
                t.want("=")
                self.scopes[-1][token] = self.expr()
                t.want(";")
                continue
            e = self.expr()
            if not t.take(";") or t.peek() == end or t.peek_kind() == "end":
                break
            lets.append((rx.Var("_"), e))
        for v, value in reversed(lets):
            e = rx.Let(v, value, e)
        return e

    def whole(self):
        e = self.sequence("")
        if self.t.peek_kind() != "end":
            self.t.fail(f"expected the end, found {self.t.peek()!r}")
        return e

    # ---- values ----

    def expr(self, level=0):
        if level == len(_BINARY):
            return self.unary()
        left = self.expr(level + 1)
        while self.t.peek() in _BINARY[level] and self.t.peek_kind() == "sign":
            left = make_call(_BINARY[level][self.t.next()[1]], [left, self.expr(level + 1)], {})
        return left

    def unary(self):
        sign, start = 1, self.t._ahead[2]
        while self.t.peek_kind() == "sign" and self.t.take("-"):
            sign = -sign
        if self.t.peek_kind() == "number":
            return self.postfix(self.number(sign), start)
        e = self.postfix(self.atom(), start)
        return e if sign > 0 else make_call("negative", [e], {})

    def number(self, sign=1):
        _, token, start, suffix = self.t.next()
        digits = token[: len(token) - len(suffix)] if suffix else token
        is_float = (suffix or "").startswith("f") or any(c in digits for c in ".eE")
        if is_float:
            dtype, value = _DTYPES.get(suffix or "f"), sign * float(digits)
            if abs(value) > float(np.finfo(dtype).max):
                self.t.fail(f"{digits} is too large for {dtype}", start)
            return rx.const(value, dtype)
        value = sign * int(digits)
        dtype = _DTYPES[suffix] if suffix else "int32" if -(2**31) <= value < 2**31 else "int64"
        info = np.iinfo(dtype)
        if not info.min <= value <= info.max:
            self.t.fail(f"{value} is too large for {dtype}", start)
        return rx.const(value, dtype)

    def atom(self):
        t = self.t
        kind, token, start, _ = t.next()
        if kind == "var":
            return self.lookup(token, start) if not re.fullmatch(r"%.*\.\d+", token) else self.var_field(token, start)
        if kind == "gvar":
            return self.global_var(token[1:])
        if token in ("True", "False"):
            return rx.const(token == "True", "bool")
        if token == "(":
            return self.parens()
        if token == "fn":
            return self.function()
        if token == "if":
            return self.branches()
        if token == "meta":
            return self.meta()
        if token in _REFS:
            return self.reference(token)
        if token in ("match", "match?"):
            t.fail("algebraic data types (type, match) are not there", start)
        if kind == "word":
            try:
                return get(token)
            except ValueError as err:
                t.fail(str(err), start)
        t.fail(f"expected a value, found {token!r}", start)

    def var_field(self, token, start):
        """``%0.1``: a field, unless a variable has that name."""
        if any(token in s for s in self.scopes):
            return self.lookup(token, start)
        base, _, index = token.rpartition(".")
        find = self.var_field if re.fullmatch(r"%.*\.\d+", base) else self.lookup
        return rx.TupleGetItem(find(base, start), int(index))

    def parens(self):
        if self.t.take(")"):
            return rx.Tuple([])
        self.scopes.append({})
        first = self.sequence(")")
        self.scopes.pop()
        if self.t.take(")"):
            return first
        self.t.want(",")
        return rx.Tuple([first, *self.listed(")", self.expr)])

    def function(self):
        """The rest of ``fn [types](params) -> type { body }``."""
        t, types = self.t, self.type_params()
        t.want("(")
        self.scopes.append({})
        params, attrs = [], {}

        def param():
            if t.peek_kind() == "var":
                params.append(self.new_var(t.next()[1]))
            else:
                self.named(attrs)

        self.listed(")", param)
        ret = self.type() if t.take("->") else None
        body = self.block()
        self.scopes.pop()
        if types is not None:
            self.types.pop()
        return rx.Function(params, body, ret, types, attrs)

    def branches(self):
        self.t.want("(")
        cond = self.expr()
        self.t.want(")")
        then = self.block()
        self.t.want("else")
        return rx.If(cond, then, self.block())

    def reference(self, token):
        make, count = _REFS[token]
        start = self.t._ahead[2]
        self.t.want("(")
        args = self.listed(")", self.expr)
        if len(args) != count:
            self.t.fail(f"{token} takes {count} arguments, not {len(args)}", start)
        return make(*args)

    def meta(self):
        start = self.t._ahead[2]
        self.t.want("[")
        key = self.t.want_kind("word", "a kind of values")
        self.t.want("]")
        self.t.want("[")
        index = int(self.t.want_kind("number", "a place in the table"))
        self.t.want("]")
        table = self.tables.get(key, [])
        if index >= len(table):
            self.t.fail(f"the metadata has no {key} number {index}", start)
        return table[index]

    def postfix(self, e, start):
        while True:
            if self.t.peek_kind() == "field":
                e = rx.TupleGetItem(e, int(self.t.next()[1][1:]))
            elif self.t.peek() == "(" and self.t.peek_kind() == "sign":
                e = self.call(e, start)
            else:
                return e

    def call(self, op, start):
        t, args, attrs = self.t, [], {}
        t.want("(")

        def argument():
            if t.peek_kind() == "word" and _BINDS.match(t.text, t.at):
                self.named(attrs)
            else:
                args.append(self.expr())

        self.listed(")", argument)
        attrs.pop("attrs_type_key", None)
        span = None
        if self.spans:
            (line, column), (end_line, end_column) = t.place(start), t.place(t._ahead[2])
            span = Span(self.source, line, end_line, column, end_column)
        name = getattr(op, "name", None)
        if name is None or isinstance(op, (rx.Var, rx.GlobalVar)):
            return rx.Call(op, args, attrs, span=span)
        made = make_call(name, args, attrs)
        return rx.Call(made.op, made.args, rx.Attrs(made.attrs), span=span)

    def named(self, attrs):
        """``name=attribute``"""
        key = self.t.next()[1].strip('"')
        self.t.want("=")
        attrs[key] = self.attribute()

    def attribute(self):
        t = self.t
        kind, token, start, suffix = t.next()
        if kind == "string":
            return json.loads(token)
        if token in _PLAIN:
            return _PLAIN[token]
        if token in ("[", "("):
            return tuple(self.listed("]" if token == "[" else ")", self.attribute))
        if token == "-":
            return -self.attribute()
        if kind == "number":
            digits = token[: len(token) - len(suffix)] if suffix else token
            return float(digits) if (suffix or "").startswith("f") or any(c in digits for c in ".eE") else int(digits)
        if kind == "word":
            if token in ("inf", "inff", "nan", "nanf"):
                return float(token.rstrip("f") if token.startswith("nan") else "inf")
            return self.meta() if token == "meta" else token
        t.fail(f"{token!r} is no value of an attribute", start)

    # ---- modules ----

    def definitions(self, module):
        while self.t.peek_kind() != "end":
            start = self.t._ahead[2]
            if self.t.peek() in ("type", "extern"):
                self.t.fail("algebraic data types (type, match) are not there", start)
            self.t.want("def")
            gv = self.global_var(self.t.want_kind("gvar", "the name of a function")[1:])
            if gv in module:
                self.t.fail(f"@{gv.name_hint} is defined twice", start)
            module[gv] = self.function()
        return module


def _tables(text, given):
    """(text without its metadata, values by their kind)"""
    body, found, table = text.partition(METADATA)
    out = dict(given or {})
    if found:
        try:
            stored = json.loads(table)
        except ValueError as err:
            raise DiagnosticError(f"the metadata behind the text is no JSON: {err}") from None
        if "nodes" in stored:
            raise DiagnosticError("the metadata is in the form of TVM's nodes; give the constants as init_meta_table={'relay.Constant': [...]}")
        for kind, entries in stored.items():
            out[kind] = [*out.get(kind, []), *map(_stored, entries)]
    return body, out


def _stored(entry):
    if entry["type_key"] in ("tir.Var", "tir.SizeVar"):
        return (tir.SizeVar if entry["type_key"] == "tir.SizeVar" else tir.Var)(entry["name"], entry["dtype"])
    dtype = "uint16" if entry["dtype"] == "bfloat16" else entry["dtype"]
    data = np.frombuffer(base64.b64decode(entry["data"]), dtype).reshape(entry["shape"])
    return rx.Constant(data.copy(), entry["dtype"])


def _text_of(source):
    text = source.decode() if isinstance(source, bytes) else source
    if not isinstance(text, str):
        raise TypeError(f"the text of a network must be a str, not {type(source).__name__}")
    version = re.match(r'\s*#\[version\s*=\s*"([^"]*)"\]', text)
    if version and not version[1].startswith("0.0."):
        raise DiagnosticError(f"the text is of version {version[1]}; versions 0.0.x are read")
    return text[version.end() :] if version else text


def parse(source, source_name="from_string", init_module=None, init_meta_table=None, spans=False):
    """The module of a text.

    Parameters
    ----------
    source : str
        Functions ``def @name(%x: Tensor[(1, 3), float32]) { ... }``, as :meth:`IRModule.astext` and TVM print them.
    source_name : str
        What messages call the text.
    init_module : IRModule, optional
        Functions that the text may call; they are in the result, too.
    init_meta_table : dict of str to list, optional
        Values that the text refers to as ``meta[kind][number]``.
    spans : bool
        Calls know where they stand in the text.

    Returns
    -------
    IRModule
        With all types inferred.

    Raises
    ------
    DiagnosticError
        With line and column of what cannot be read, or of types that do not fit.
    """
    text, tables = _tables(_text_of(source), init_meta_table)
    parser = _Parser(text, source_name, tables, spans)
    module = init_module.shallow_copy() if init_module is not None else IRModule()
    for gv in module.get_global_vars():
        parser.globals[gv.name_hint] = gv
    if parser.t.peek() not in ("def", "type", "extern") and parser.t.peek_kind() != "end":
        return infer_module(IRModule.from_expr(parser.whole()))
    return infer_module(parser.definitions(module))


def parse_expr(source):
    """The expression of a text: a value, bindings before it, or a function. Types are not inferred."""
    text, tables = _tables(_text_of(source), None)
    parser = _Parser(text, "from_string", tables)
    if parser.t.peek() in ("def", "type", "extern"):
        return parser.definitions(IRModule())["main"]
    return parser.whole()


def fromtext(data, source_name="from_string"):
    """As :func:`parse`."""
    return parse(data, source_name)
