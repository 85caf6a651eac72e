"""Statements written as they run: ``ib.for_range``, ``ib.if_scope``, ``ib.allocate``, and buffers that are indexed.

>>> from nestsmith import tir
>>> ib = tir.ir_builder.create()
>>> a = ib.allocate("float32", 4, name="a")
>>> with ib.for_range(0, 4, name="i") as i:
...     a[i] = 1.0
>>> print(ib.get())
allocate a: float32[4]
    for i in serial(0, 4)
        a[i] = 1f
"""

import contextlib

from .. import _core
from .buffer import Buffer, BufferLoad, PointerType, PrimType, decl_buffer, pointer
from .expr import const
from .stmt import Allocate, AttrStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt, While

__all__ = ["BufferVar", "IRBuilder", "create"]

_KINDS = {
    "serial": ForKind.SERIAL, "for": ForKind.SERIAL, "parallel": ForKind.PARALLEL, "vectorize": ForKind.VECTORIZED, "unroll": ForKind.UNROLLED,
}  # fmt: skip


class BufferVar:
    """A buffer in a builder: ``a[i]`` reads, ``a[i] = v`` writes. One index counts over all elements."""

    def __init__(self, builder, buffer):
        self._builder, self._buffer = builder, buffer

    dtype = property(lambda self: self._buffer.dtype, doc="Type of the elements.")

    def asobject(self):
        """The pointer."""
        return self._buffer.data

    def _index(self, index):
        index = list(index) if isinstance(index, (tuple, list)) else [index]
        shape = self._buffer.shape
        if len(index) == 1 and len(shape) > 1:
            flat, index = const(index[0]), []
            for s in reversed(shape[1:]):
                index.insert(0, _core.expr_bin("FloorMod", flat, s))
                flat = _core.expr_bin("FloorDiv", flat, s)
            index.insert(0, flat)
        return index

    def __getitem__(self, index):
        return BufferLoad(self._buffer, self._index(index) if self._buffer.shape else [])

    def __setitem__(self, index, value):
        value = const(value)
        if value.dtype.partition("x")[0] != self._buffer.dtype:
            raise ValueError(f"data type does not match content type {value.dtype} vs {self._buffer.dtype}")
        self._builder.emit(BufferStore(self._buffer, value, self._index(index) if self._buffer.shape else []))


class IRBuilder:
    """Collects statements; :func:`create` makes one."""

    def __init__(self):
        self._stack: list = [[]]

    def emit(self, stmt):
        """Adds a statement, an expression to be evaluated, or a function from the rest of the block to a statement."""
        self._stack[-1].append(stmt if isinstance(stmt, Stmt) or callable(stmt) else Evaluate(stmt))

    def _closed(self, parts):
        out: list = []
        for p in reversed(parts):
            if callable(p):
                out = [p(self._one(out))]
            else:
                out.insert(0, p)
        return self._one(out)

    @staticmethod
    def _one(parts):
        return parts[0] if len(parts) == 1 else SeqStmt(parts) if parts else Evaluate(0)

    @contextlib.contextmanager
    def _block(self, wrap, value=None):
        self._stack.append([])
        yield value
        self.emit(wrap(self._closed(self._stack.pop())))

    def for_range(self, begin, end, name="i", dtype=None, kind="serial"):
        """``with ib.for_range(0, n) as i:`` a loop."""
        begin, end = const(begin), const(end)
        dtype = dtype or ("int64" if "int64" in (begin.dtype, end.dtype) else "int32")
        if kind not in _KINDS:
            raise ValueError(f"Unknown kind {kind!r}; use one of {', '.join(_KINDS)}")
        var = _core.expr_var(name, dtype, False)
        return self._block(lambda body: For(var, begin, _core.arith_simplify(end - begin, ()), _KINDS[kind], body), var)

    def while_loop(self, condition):
        """``with ib.while_loop(condition):`` a loop as long as it holds."""
        return self._block(lambda body: While(condition, body))

    def if_scope(self, cond):
        """``with ib.if_scope(condition):`` what happens where it holds."""
        return self._block(lambda body: IfThenElse(cond, body))

    def else_scope(self):
        """``with ib.else_scope():`` what happens where the condition of the block before does not hold. Raises RuntimeError without one."""
        if not self._stack[-1] or not isinstance(self._stack[-1][-1], IfThenElse):
            raise RuntimeError("else_scope can only follow an if_scope")
        last = self._stack[-1].pop()
        return self._block(lambda body: IfThenElse(last.condition, last.then_case, body))

    def new_scope(self):
        """``with ib.new_scope():`` a block of its own."""
        return self._block(lambda body: body)

    def scope_attr(self, node, attr_key, value):
        """Notes something of the rest of the block; a thread's extent makes it run on these threads."""
        value = const(value)

        def wrap(body):
            if attr_key in ("thread_extent", "virtual_thread"):
                return For(node, const(0), value, ForKind.THREAD_BINDING, body, node)
            return AttrStmt(node, attr_key, value, body)

        self.emit(wrap)

    def allocate(self, dtype, shape, name="buf", axis_separators=None, scope=""):
        """Memory for the rest of the block, as a :class:`BufferVar`."""
        del axis_separators
        shape = list(shape) if isinstance(shape, (tuple, list)) else [shape]
        var = pointer(name, PointerType(PrimType(dtype), scope))
        # what does not leave a program is a local array
        buffer = decl_buffer(shape, dtype, name, data=var, scope=scope or "local")
        self.emit(lambda body: Allocate(var, dtype, shape, const(True), body))
        return BufferVar(self, buffer)

    def let(self, var_name, value):
        """A variable for the rest of the block."""
        value = const(value)
        var = _core.expr_var(var_name, value.dtype, False)
        self.emit(lambda body: LetStmt(var, value, body))
        return var

    def pointer(self, content_type, name="ptr", scope=""):
        """A buffer that is an argument, of any size."""
        return BufferVar(self, decl_buffer([_core.expr_var("size", "int32", True)], content_type, name, scope=scope))

    def buffer_ptr(self, buf):
        """A buffer as a :class:`BufferVar`."""
        if not isinstance(buf, Buffer):
            raise TypeError(f"buffer_ptr takes a Buffer, not {type(buf).__name__}")
        return BufferVar(self, buf)

    def likely(self, expr):
        """A condition that is usually true."""
        return _core.expr_math("likely", (expr,))

    def get(self):
        """The statement. Raises RuntimeError inside of a block."""
        if len(self._stack) != 1:
            raise RuntimeError("a block is not closed yet")
        return self._closed(self._stack[0])


def create():
    """A new :class:`IRBuilder`."""
    return IRBuilder()

