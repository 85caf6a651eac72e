"""Containers of TVM's runtime as Python's own: texts, shapes, tuples, and `convert`."""

from ..tir import const, convert as _expression
from .ndarray import NDArray
from .params import ShapeTuple, String

__all__ = ["ADT", "Array", "Map", "PackedFunc", "ShapeTuple", "String", "const", "convert", "convert_to_object", "tuple_object"]


Array, Map = list, dict


class ADT(tuple):
    """Fields under a number: ``ADT(tag, fields)``."""

    tag: int

    def __new__(cls, tag, fields):
        self = super().__new__(cls, fields)
        self.tag = tag
        return self


def tuple_object(fields=None):
    """An `ADT` of number 0."""
    return ADT(0, fields or ())


class PackedFunc:
    """A function as an object that may be called."""

    def __init__(self, func):
        self._func = func
        self.__name__ = getattr(func, "__name__", "function")

    def __call__(self, *args):
        return self._func(*args)


def convert(value, span=None):
    """A value as TVM's runtime holds it: numbers become expressions, texts `String`, functions `PackedFunc`, lists and dictionaries are
    converted element by element. Arrays, expressions and None stay as they are."""
    if value is None or isinstance(value, (NDArray, PackedFunc, String, ShapeTuple, ADT)):
        return value
    if isinstance(value, str):
        return String(value)
    if isinstance(value, dict):
        return {convert(k) if not isinstance(k, str) else k: convert(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert(v) for v in value]
    if isinstance(value, (bool, int, float)):
        return const(value)
    try:
        return _expression(value)
    except (TypeError, ValueError):
        if callable(value):
            return PackedFunc(value)
        if type(value).__module__.startswith("nestsmith"):
            return value
        raise


convert_to_object = convert
