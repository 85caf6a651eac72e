"""Checks of arguments that users give; every message names the argument, the value and what is allowed."""

import difflib
import json
import math
import operator
import re
from typing import Any

__all__ = ["did_you_mean", "Nested", "dtype_bytes", "entered", "integer", "json_of", "nearest", "number", "one_of_names",
           "printable", "shape", "share", "shown", "some", "some_names", "text", "unmatched"]

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


def share(name, value):
    """`value` as a float of 0 to 1; TypeError or ValueError otherwise."""
    x = number(name, value)
    if not 0 <= x <= 1:
        raise ValueError(f"{name} is {value}; it must be from 0 to 1")
    return x


def printable(text, lines=True):
    """`text` with escapes for the characters that a terminal obeys or that change how a line reads (ESC, CR, marks of direction);
    without `lines` for ends of lines, too."""
    if text.isprintable():
        return text
    keep = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def some_names(names):
    """Names in a row, as a terminal may print them."""
    return ", ".join(printable(n, lines=False) for n in names)


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


def _plain(name):
    """A name without case, and with one sign for all separators: ``fc.0.weight`` and ``FC_0_weight`` are alike."""
    return re.sub(r"[^0-9a-z]+", "_", str(name).lower())


def nearest(name, known, most=1):
    """Up to `most` of the names `known` that `name` may stand for: those that differ in separators and case only, else
    the most similar ones."""
    known = [str(k) for k in known]
    same = [k for k in known if _plain(k) == _plain(name)]
    return same[:most] or difflib.get_close_matches(str(name), known, most)


def entered(innermost):
    """The contexts of schedules that are entered, from the innermost one on."""
    while innermost is not None:
        yield innermost
        innermost = getattr(innermost, "_old_ctx", None)


class Nested:
    """Contexts of schedules: `current`, of the class that is derived from this one, is the innermost that is entered.

    Entering one raises RuntimeError if it is entered already: it would be the one to ask behind itself, for ever.
    """

    current: Any = None
    _family: Any = None  # the class that is derived from this one

    def __init_subclass__(cls):
        cls._family = cls._family or cls

    def __init__(self):
        self._old_ctx = self._family.current

    def __enter__(self):
        if any(inside is self for inside in entered(self._family.current)):
            raise RuntimeError(f"this {type(self).__name__} is entered already; leave it first, or make another one")
        self._old_ctx, self._family.current = self._family.current, self
        return self

    def __exit__(self, ptype, value, trace):
        self._family.current = self._old_ctx


def did_you_mean(name, known, most=1):
    """``"; did you mean 'x'?"`` with the nearest names, "" if there are none: the end of a message about a name."""
    near = nearest(name, known, most)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def some(items, most=4, of=None):
    """The first `most` of `items` (texts) as a list for a message, and how many more there are (of `of` in all)."""
    items = list(items)
    more = (len(items) if of is None else of) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def unmatched(names, known, most=4):
    """The `names` that are not among `known`, as a text for a message: up to `most` of them, each with the name that it
    may stand for, and how many more there are; "" if there are none."""
    wrong = [n for n in names if n not in known]
    near = [nearest(n, known) for n in wrong[:most]]
    shown = [f"{n!r} (did you mean {k[0]!r}?)" if k else repr(n) for n, k in zip(wrong, near)]
    return some(shown, most, len(wrong))


def json_of(what, text):
    """The value of a JSON text; ValueError if it is none, or nested deeper than this interpreter reads."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{what} {shown(text)}: nested too deeply") from None
    except ValueError as e:
        raise ValueError(f"{what} {shown(text)} is not valid JSON: {e}") from None


def shown(text, most=100):
    """A text from elsewhere, quoted and cut, as error messages show it."""
    return repr(text) if len(text) <= most else repr(text[:most]) + "..."


def one_of_names(what, name, known):
    """Raises ValueError with the nearest name if `name` is not among `known`."""
    if name in known:
        return
    raise ValueError(f"{what} {name!r} is unknown{did_you_mean(name, known)}; known are {', '.join(map(str, known))}")
