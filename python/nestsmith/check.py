"""Checks of arguments that users give; every message names the argument, the value and what is allowed."""

from __future__ import annotations

import difflib
import math
import operator
import re

__all__ = ["dtype_bytes", "integer", "number", "one_of_names", "shape", "text"]

_COUNTABLE = 2**63 - 1


def integer(name, value, least=None):
    """`value` as an int of at least `least`; TypeError or ValueError otherwise."""
    try:
        n = operator.index(value) if not isinstance(value, float) or value != int(value) else int(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} is {value!r}; it must be an integer") from None
    if least is not None and n < least:
        raise ValueError(f"{name} is {n}; it must be at least {least}")
    return n


def number(name, value, above=None):
    """`value` as a float greater than `above`; TypeError or ValueError otherwise."""
    try:
        x = float(value) if not isinstance(value, str) else float("x")
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}; it must be a number") from None
    if above is not None and not x > above:
        raise ValueError(f"{name} is {value}; it must be greater than {above}")
    return x


def dtype_bytes(dtype):
    """Bytes of one element of the type, a string; bits are rounded up to whole bytes."""
    bits = re.search(r"\d+", dtype)
    return (int(bits[0]) + 7) // 8 if bits else 1


def shape(what, dims, dtype=None):
    """Number of elements; ValueError with the shape if they, or their bytes, are more than 64 bits can count.

    Dimensions that are no numbers (variables) count as 1.
    """
    known = [int(d) for d in dims if isinstance(d, int)]
    count = math.prod(known)
    size = count * dtype_bytes(dtype) if dtype else count
    if size <= _COUNTABLE and all(d <= _COUNTABLE for d in known):
        return count
    text = f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"
    held = f"{size} bytes of {dtype}" if count <= _COUNTABLE < size else f"{count} elements"
    raise ValueError(f"{what}: shape {text} overflows 64 bits: it has {held}, at most {_COUNTABLE} can be counted")


def text(name, value):
    """`value` as a str that files and programs can hold (UTF-8, no NUL); TypeError or ValueError otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; it must be a str")
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError(f"{name} is {value!a}; a text cannot hold NUL or half characters (undecoded bytes)")
    return value


def one_of_names(what, name, known):
    """Raises ValueError with the nearest name if `name` is not among `known`."""
    if name in known:
        return
    near = difflib.get_close_matches(str(name), [str(k) for k in known], 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{what} {name!r} is unknown{hint}; known are {', '.join(map(str, known))}")
