"""Statements: what loops by hand are made of. They are trees of Python objects; :func:`program` hands them to the engine.

Indices are the author's: a program of statements reads and writes where they say.
"""

import enum

from .. import _core, structure
from .buffer import ADDRESS, Buffer, PointerType, PrimType, buffer_behind, buffer_numbered, pointer
from .expr import const

__all__ = ["Allocate", "AssertStmt", "AttrStmt", "BufferRealize", "BufferStore", "DeclBuffer", "Evaluate", "For",
           "ForKind", "IfThenElse", "LetStmt", "Prefetch", "PrimFunc", "ProducerRealize", "ProducerStore", "SeqStmt",
           "Stmt", "While", "engine_form", "function_of", "of_engine_form", "stmt_list", "stmt_seq"]


class ForKind(enum.IntEnum):
    """How a loop runs."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


class Stmt:
    """A statement. Each class lists its parts: expressions, statements, and what is neither."""

    parts: tuple = ()  # names, in order; with "*": an expression; with "=": may be left out
    binds: tuple = ()

    def __init__(self, *args, span=None, **kwargs):
        names = [p.strip("*=") for p in self.parts]
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} takes {', '.join(names)}; {len(args)} arguments were given")
        given = {**dict(zip(names, args)), **kwargs}
        for p, name in zip(self.parts, names):
            if name not in given and "=" not in p:
                raise TypeError(f"{type(self).__name__} lacks the argument {name!r}")
            value = given.pop(name, None)
            setattr(self, name, const(value) if "*" in p and value is not None and not isinstance(value, OpaqueCall) else value)
        if given:
            raise TypeError(f"{type(self).__name__} has no part {', '.join(given)}")

    def children(self):
        """(name, part) of all parts that are expressions or statements, or lists of them."""
        return [(p.strip("*="), getattr(self, p.strip("*="))) for p in self.parts]

    def same_as(self, other):
        """Whether it is the same object."""
        return self is other

    def text(self, indent=0):
        """Lines of text."""
        return ["    " * indent + self.head(), *self._inner(indent + 1)]

    def head(self):
        """The first line."""
        return type(self).__name__

    def _inner(self, indent):
        return [line for _, v in self.children() if isinstance(v, Stmt) for line in v.text(indent)]

    def __repr__(self):
        return "\n".join(self.text())


class OpaqueCall:
    """A call of a function that the engine does not know: a global function of Python (``call_packed``), or one of a library."""

    kind, dtype = "Call", "int32"

    def __init__(self, dtype, name, args):
        self.dtype, self.op, self.args = dtype, _Name(name), tuple(args)

    def __repr__(self):
        return f"{self.op}({', '.join(map(str, self.args))})"


ADDRESS.append(OpaqueCall)


class _Name(str):
    name = property(lambda self: str(self), doc="The name with TVM's prefix.")


class Evaluate(Stmt):
    """An expression that is evaluated for its effect."""

    parts = "value*",

    def head(self):
        return str(self.value)


class LetStmt(Stmt):
    """``body`` with ``var`` bound to ``value``."""

    parts, binds = ("var", "value*", "body"), ("var",)

    def head(self):
        return f"let {self.var} = {self.value}"


class AssertStmt(Stmt):
    """``body``, if a condition holds."""

    parts = "condition*", "message", "body"

    def head(self):
        return f"assert {self.condition}, {self.message}"


class For(Stmt):
    """A loop: ``For(loop_var, min, extent, kind, body, thread_binding, annotations)``."""

    parts, binds = ("loop_var", "min*", "extent*", "kind", "body", "thread_binding=", "annotations="), ("loop_var",)

    def head(self):
        return f"for {self.loop_var} in {ForKind(self.kind).name.lower()}({self.min}, {self.extent})"


class While(Stmt):
    """``body`` as long as a condition holds."""

    parts = "condition*", "body"

    def head(self):
        return f"while {self.condition}"


class BufferStore(Stmt):
    """An element of a buffer is set: ``BufferStore(buffer, value, indices)``."""

    parts = "buffer", "value*", "indices", "predicate="

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if not isinstance(self.buffer, Buffer):
            raise TypeError(f"BufferStore: the buffer is {self.buffer!r}; decl_buffer makes one")
        self.indices = [const(i) for i in self.indices]
        if self.value.dtype.partition("x")[0] != self.buffer.dtype:
            self.value = self.value.astype(self.buffer.dtype)

    def head(self):
        return f"{self.buffer.name}[{', '.join(map(str, self.indices))}] = {self.value}"


class BufferRealize(Stmt):
    """``body`` with a part of a buffer there."""

    parts = "buffer", "bounds", "condition*", "body"


class ProducerStore(Stmt):
    """An element of a tensor is set."""

    parts = "producer", "value*", "indices"


class ProducerRealize(Stmt):
    """``body`` with a part of a tensor there."""

    parts = "producer", "bounds", "condition*", "body", "storage_scope="


class Allocate(Stmt):
    """``body`` with memory behind a pointer: ``Allocate(buffer_var, dtype, extents, condition, body)``."""

    parts, binds = ("buffer_var", "dtype", "extents", "condition*", "body", "annotations="), ("buffer_var",)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.extents = [const(e) for e in self.extents]

    def head(self):
        return f"allocate {self.buffer_var}: {self.dtype}[{', '.join(map(str, self.extents))}]"


class DeclBuffer(Stmt):
    """``body`` in which a buffer is used."""

    parts = "buffer", "body"


class AttrStmt(Stmt):
    """``body`` with something noted of it."""

    parts = "node", "attr_key", "value*", "body"

    def head(self):
        return f"attr [{self.node}] {self.attr_key} = {self.value}"


class SeqStmt(Stmt):
    """Statements one after the other; the lists among them are taken apart."""

    parts = "seq",

    def __init__(self, seq, span=None):
        super().__init__([s for x in seq for s in (x.seq if isinstance(x, SeqStmt) else [x])])

    def __getitem__(self, i):
        return self.seq[i]

    def __len__(self):
        return len(self.seq)

    def text(self, indent=0):
        return [line for s in self.seq for line in s.text(indent)]


class IfThenElse(Stmt):
    """``then_case`` where a condition holds, else ``else_case`` (or None)."""

    parts = "condition*", "then_case", "else_case="

    def text(self, indent=0):
        pad = "    " * indent
        rest = [f"{pad}else", *self.else_case.text(indent + 1)] if self.else_case is not None else []
        return [f"{pad}if {self.condition}", *self.then_case.text(indent + 1), *rest]


class Prefetch(Stmt):
    """A hint that a part of a buffer is wanted soon."""

    parts = "buffer", "bounds"


def stmt_seq(*args):
    """Statements, or expressions to be evaluated, one after the other."""
    seq = [a if isinstance(a, Stmt) else Evaluate(a) for a in args]
    return seq[0] if len(seq) == 1 else SeqStmt(seq)


def stmt_list(stmt):
    """The statements of a sequence, or the one that it is, as a list."""
    return list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]


@structure.rule(Stmt)
def _statement(s):
    head, parts = [type(s).__name__], []
    for p in s.parts:
        name, v = p.strip("*="), getattr(s, p.strip("*="))
        if name in s.binds:
            continue
        if v is None or isinstance(v, (str, int, enum.Enum)):
            head.append(str(v))
        else:
            parts.append((f".{name}", v))
    return structure.Node(tuple(head), tuple(parts), binds=tuple(getattr(s, b) for b in s.binds))


# ---- functions ----
class PrimFunc:
    """A function of buffers and numbers: ``PrimFunc(params, body, ret_type, buffer_map, attrs)``.

    `params` are variables or buffers; a buffer gets a variable, and `buffer_map` says which.
    """

    def __init__(self, params, body, ret_type=None, buffer_map=None, attrs=None, span=None):
        self.buffer_map, self.params = dict(buffer_map or {}), []
        for p in params:
            if isinstance(p, Buffer):
                var = pointer(f"{p.name}_handle", PointerType(PrimType(p.dtype)))
                self.buffer_map[var] = p
                p = var
            self.params.append(p)
        self.body, self.ret_type, self.attrs = body, ret_type, attrs
        self.memory: dict = {}  # buffer of an argument -> the one with the dimensions of the memory that the body has in its place

    def _with(self, body, attrs):
        out = PrimFunc(self.params, body, self.ret_type, self.buffer_map, attrs)
        out.memory = self.memory
        return out

    def with_attr(self, attr_key_or_dict, attr_value=None):
        """A copy with further attributes."""
        more = attr_key_or_dict if isinstance(attr_key_or_dict, dict) else {attr_key_or_dict: attr_value}
        more = {k: const(v) if isinstance(v, (bool, int, float)) else v for k, v in more.items()}
        return self._with(self.body, {**(self.attrs or {}), **more})

    def without_attr(self, attr_key):
        """A copy without an attribute."""
        rest = {k: v for k, v in (self.attrs or {}).items() if k != attr_key}
        return self._with(self.body, rest or None)

    def with_body(self, new_body, span=None):
        """A copy with another body."""
        return self._with(new_body, self.attrs)

    def __repr__(self):
        names = [f"{p.name}: {self.buffer_map[p].dtype}{self.buffer_map[p].shape}" if p in self.buffer_map else p.name for p in self.params]
        return "\n".join([f"primfn({', '.join(names)})", *self.body.text(1)])

    script = astext = __repr__


@structure.rule(PrimFunc)
def _function(f):
    parts = [("buffer_map", f.buffer_map[p]) for p in f.params if p in f.buffer_map]
    pointers = [f.buffer_map[p].data for p in f.params if p in f.buffer_map]
    return structure.Node(("PrimFunc", len(f.params)), (*parts, ("body", f.body)), binds=(*f.params, *pointers))


# ---- for the engine ----
def _loads(e, found):
    if isinstance(e, _core.Expr):
        if e.kind == "BufferLoad":
            found.add(e.symbol)
        for a in e.args:
            _loads(a, found)


def _numbers(s, data, found):
    """Numbers of the buffers behind a pointer that a statement uses."""
    for _, v in s.children():
        for x in v if isinstance(v, (list, tuple)) else [v]:
            if isinstance(x, Stmt):
                _numbers(x, data, found)
            elif isinstance(x, Buffer) and x.data is not None and hash(x.data) == hash(data):
                found[x.number] = x
            elif isinstance(x, _core.Expr):
                loads: set = set()
                _loads(x, loads)
                from_loads = {n: buffer_numbered(n) for n in loads}
                found.update({n: b for n, b in from_loads.items() if hash(b.data) == hash(data)})


def _argument(a):
    """An argument of a call of a function that the engine does not know."""
    if isinstance(a, OpaqueCall) and str(a.op) in ("tir.address_of", "tir.tvm_access_ptr"):
        load, offset = (a.args + (None,))[:2]
        buffer, index = (load, [0] * len(load.shape)) if isinstance(load, Buffer) else (load.buffer, list(load.args))
        if offset is not None and index:
            index[-1] = index[-1] + offset
        return buffer.number, index
    if isinstance(a, _core.Var) and a.dtype == "handle" and buffer_behind(a) is not None:
        a = buffer_behind(a)
    if isinstance(a, Buffer):
        return a.number, [0] * len(a.shape)
    if isinstance(a, OpaqueCall):
        raise ValueError(f"{a} is an argument of a call; give it a statement of its own")
    return a if isinstance(a, str) else const(a)


_WORDS = {ForKind.SERIAL: "for", ForKind.PARALLEL: "parallel", ForKind.VECTORIZED: "vector", ForKind.UNROLLED: "unroll"}


def engine_form(s):
    """A statement as nested tuples, which the engine takes.

    Raises ValueError for a statement that programs cannot have.
    """
    if isinstance(s, SeqStmt):
        return "seq", *map(engine_form, s.seq)
    if isinstance(s, For):
        kind = ForKind(s.kind)
        word = getattr(s.thread_binding, "thread_tag", None) if kind == ForKind.THREAD_BINDING else _WORDS[kind]
        return "for", s.loop_var, s.min, s.extent, word, engine_form(s.body)
    if isinstance(s, IfThenElse):
        return "if", s.condition, engine_form(s.then_case), None if s.else_case is None else engine_form(s.else_case)
    if isinstance(s, LetStmt):
        return "let", s.var, s.value, engine_form(s.body)
    if isinstance(s, Allocate):
        used: dict = {}
        _numbers(s.body, s.buffer_var, used)
        body = engine_form(s.body)
        for n in used:
            body = "alloc", n, body
        return body
    if isinstance(s, BufferStore):
        return "store", s.buffer.number, s.value, s.indices
    if isinstance(s, (AttrStmt, DeclBuffer, AssertStmt, BufferRealize)):
        return engine_form(s.body)
    if isinstance(s, Evaluate) and isinstance(s.value, _core.Expr):
        return "eval", s.value
    if isinstance(s, Evaluate):
        return "call", str(s.value.op).removeprefix("tir."), s.value.dtype or "int32", tuple(map(_argument, s.value.args))
    raise ValueError(f"programs cannot have a {type(s).__name__}")



_KINDS = {word: kind for kind, word in _WORDS.items()}


def of_engine_form(t):
    """The statement that nested tuples of the engine stand for."""
    tag, *parts = t
    if tag == "seq":
        return stmt_seq(*map(of_engine_form, parts)) if parts else Evaluate(0)
    if tag == "for":
        var, low, extent, word, body = parts
        axis = None if word in _KINDS else _core.expr_iter_var(var.name, low, extent, 1, word)
        return For(var, low, extent, _KINDS.get(word, ForKind.THREAD_BINDING), of_engine_form(body), axis)
    if tag == "if":
        return IfThenElse(parts[0], of_engine_form(parts[1]), None if parts[2] is None else of_engine_form(parts[2]))
    if tag == "let":
        return LetStmt(parts[0], parts[1], of_engine_form(parts[2]))
    if tag == "alloc":
        b = buffer_numbered(parts[0])
        return Allocate(b.data, b.dtype, b.shape, const(True), of_engine_form(parts[1]))
    if tag == "store":
        return BufferStore(buffer_numbered(parts[0]), parts[1], parts[2])
    return Evaluate(parts[0])


def function_of(core, args, target, *begins):
    """The PrimFunc of a schedule: its loops. `begins`: for each argument the dimensions where those of the memory begin; buffers have these
    then."""
    tree, numbers = _core.stmt_of(core, args, target, *begins)
    pairs = [(buffer_numbered(n), buffer_numbered(m)) for n, m in numbers]
    out = PrimFunc([b for b, _ in pairs], of_engine_form(tree), attrs={"tir.noalias": const(True)})
    out.memory = dict(pairs)
    return out
