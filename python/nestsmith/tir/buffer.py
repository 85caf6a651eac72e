"""Buffers: arrays that statements read and write by index, and the types of pointers to them."""

from __future__ import annotations

import weakref

from .. import _core, structure
from .expr import const
from .nodes import POINTERS

ADDRESS: list = []  # what makes the address of an element; stmt.py puts it there
__all__ = ["Buffer", "BufferLoad", "BufferRegion", "PointerType", "PrimType", "decl_buffer", "pointer"]

_annotations: dict = {}  # pointer variable -> its type
_by_number: dict = {}
_behind: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # pointer variable -> the first buffer there


class PrimType:
    """A type of numbers, e.g. ``PrimType("float32")``."""

    def __init__(self, dtype):
        self.dtype = str(dtype)

    def __eq__(self, other):
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self):
        return hash(str(vars(self)))

    def __repr__(self):
        return self.dtype


class PointerType(PrimType):
    """The type of a pointer to elements of a type in a memory."""

    def __init__(self, element_type, storage_scope=""):
        self.element_type, self.storage_scope = element_type, storage_scope

    def __repr__(self):
        return f"Pointer({self.element_type})"


def pointer(name, kind):
    """A variable that is a pointer of a type."""
    var = _core.expr_var(name, "handle", False)
    _annotations[hash(var)] = kind
    return var


POINTERS["PointerType"] = pointer
POINTERS["PrimType"] = lambda name, kind: _core.expr_var(name, "float32" if kind.dtype == "float" else kind.dtype, False)


def annotation_of(var):
    """The type of a variable."""
    return _annotations.get(hash(var)) or PrimType(var.dtype)


setattr(_core.Var, "type_annotation", property(annotation_of, doc="The type: PointerType of pointers, PrimType of numbers."))  # noqa: B010


class BufferRegion:
    """A part of a buffer: a Range per dimension."""

    def __init__(self, buffer, region):
        self.buffer, self.region = buffer, list(region)


class Buffer:
    """An array that statements read and write; `decl_buffer` makes one.

    Attributes
    ----------
    name, dtype : str
    shape, strides : list
        Strides: an empty list for rows that lie one behind the other.
    data : tir.Var
        The pointer.
    elem_offset, data_alignment, offset_factor, axis_separators
    """

    def __init__(self, name, dtype, shape, data, strides, elem_offset, scope, data_alignment, offset_factor, axis_separators):
        self.name, self.dtype, self.shape, self.strides = name, dtype, shape, strides
        self.data, self.elem_offset, self._scope = data, elem_offset, scope
        self.data_alignment, self.offset_factor, self.axis_separators = data_alignment, offset_factor, axis_separators
        self._number = None
        _behind.setdefault(hash(data), self)

    @property
    def number(self):
        """Its number in the engine."""
        if self._number is None:
            self._number = _core.stmt_buffer(self.name, self.dtype, self.shape, self._scope)
            _by_number[self._number] = self
        return self._number

    def scope(self):
        """The memory it is in."""
        return self._scope

    def __repr__(self):
        return f"{self.name}"

    def same_as(self, other):
        """Whether it is the same buffer."""
        return self is other

    def _indices(self, begin):
        return list(begin) if isinstance(begin, (tuple, list)) else [begin]

    def __getitem__(self, indices):
        return BufferLoad(self, self._indices(indices))

    def vload(self, begin, dtype=None):
        """The element at an index; ``dtype`` with lanes: so many neighbours."""
        index = self._indices(begin)
        lanes = int((dtype or self.dtype).partition("x")[2] or 1)
        if lanes > 1:
            index[-1] = _core.expr_ramp(index[-1], 1, lanes)
        return BufferLoad(self, index)

    def access_ptr(self, access_mask, ptr_type="handle", content_lanes=1, offset=0, extent=None):
        """Where its element number ``offset`` is: an argument of a call in a statement."""
        del access_mask, ptr_type, content_lanes, extent
        return ADDRESS[0]("handle", "tir.tvm_access_ptr", (self, offset))

    def offset_of(self, indices):
        """The position of an element in memory, in elements, per dimension of the memory."""
        indices = self._indices(indices)
        if self.strides:
            flat = self.elem_offset
            for i, s in zip(indices, self.strides):
                flat = flat + i * s
            return [flat]
        flat = const(indices[0]) if indices else const(0)
        for i, s in zip(indices[1:], self.shape[1:]):
            flat = flat * s + i
        return [_core.arith_simplify(flat + self.elem_offset, ())]


def _is_plain_load(e):
    return e.kind == "BufferLoad"


class _Load(type):
    def __instancecheck__(cls, x):
        return isinstance(x, _core.Expr) and _is_plain_load(x)

    def __call__(cls, buffer, indices, span=None):
        return _core.stmt_load(buffer.number, [const(i) for i in indices])


class BufferLoad(metaclass=_Load):
    """``BufferLoad(buffer, indices)``: an element of a buffer, an expression."""


def buffer_behind(var):
    """The buffer that a pointer belongs to, or None."""
    return _behind.get(hash(var))


def buffer_numbered(number):
    """The buffer that has this number in the engine, which may have made it."""
    if number not in _by_number:
        name, dtype, shape, scope = _core.stmt_buffer_of(number)
        made = _by_number[number] = decl_buffer(shape, dtype, name, scope=scope)
        made._number = number
    return _by_number[number]


def _of_load(e):
    if e.kind != "BufferLoad":
        raise AttributeError(f"{e.kind} has no attribute 'buffer'")
    return buffer_numbered(e.symbol)


setattr(_core.Expr, "buffer", property(_of_load, doc="The buffer of a load."))  # noqa: B010


def decl_buffer(shape, dtype=None, name="buffer", data=None, strides=None, elem_offset=None, scope="",
                data_alignment=-1, offset_factor=0, buffer_type="", axis_separators=None, span=None):
    """A new :class:`Buffer`.

    Parameters
    ----------
    shape : int, expression, or a tuple of them
    dtype : str
        Default: float32.
    data : tir.Var, optional
        The pointer; a new one if it is not given.
    strides : tuple, optional
    elem_offset : expression, optional
        Where its first element is.
    scope : str
        The memory: global (default), shared, local.
    """
    del buffer_type, span
    shape = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    dtype, scope = dtype or "float32", scope or "global"
    if data is None:
        data = pointer(name, PointerType(PrimType(dtype), scope))
    if elem_offset is None:
        elem_offset = _core.expr_var(f"{name}_elem_offset", "int32", False) if offset_factor else const(0)
    return Buffer(name, dtype, shape, data, list(strides or []), elem_offset, scope, data_alignment, offset_factor, list(axis_separators or []))


@structure.rule(Buffer)
def _buffer(b):
    parts = ("data", b.data), *(("shape", s) for s in b.shape), *(("strides", s) for s in b.strides), ("elem_offset", b.elem_offset)
    return structure.Node(("Buffer", b.dtype, b.scope()), parts, shared=True)
