"""Structural equality and hashes of what consists of nodes: networks, types, expressions, statements.

One walk makes a sequence of tokens of an object; two objects are equal if their sequences are, and the hash is that of the sequence. What
is bound is told by its number, not by its name. A class joins in by a rule: ``rule(node) -> Node``, found by the class (or a base of it).
"""

import hashlib
import typing

import numpy as np

from . import _core

__all__ = ["Node", "rule", "tokens", "first_difference", "digest"]


class Node(typing.NamedTuple):
    """What a rule says of a node."""

    head: tuple  # values that must be the same: the kind, numbers, names
    parts: tuple = ()  # other nodes, numbers, texts, lists and dictionaries; with their names for messages: (name, value)
    binds: tuple = ()  # variables that are defined here, before the parts
    shared: bool = False  # whether it matters that it is one node that is read twice
    variable: bool = False  # a variable: its parts are its type


_RULES: dict[type, typing.Callable] = {}


def rule(*classes):
    """Decorator: the function says what nodes of these classes consist of."""

    def join(f):
        for c in classes:
            _RULES[c] = f
        return f

    return join


def rule_of(x):
    """The rule for an object, or None."""
    return next((_RULES[c] for c in type(x).__mro__ if c in _RULES), None)


class _Binding(typing.NamedTuple):
    variable: object


def _plain(x):
    """The token of a value that is no node, or None."""
    if x is None or isinstance(x, (str, bytes)):
        return x if x is not None else ("None",)
    if isinstance(x, (bool, np.bool_)):
        return ("number", int(x))
    if isinstance(x, (int, float, np.integer, np.floating)):
        return ("number", float(x) if x == x and abs(x) < 2**53 else repr(x))
    if hasattr(x, "numpy") and not isinstance(x, np.ndarray):
        x = x.numpy()
    if isinstance(x, np.ndarray):
        return ("array", str(x.dtype), x.shape, x.tobytes())
    return None


def _key(x):
    """What tells a node from others: expressions of the engine are numbers, of which Python has many objects."""
    return ("expression", hash(x)) if isinstance(x, _core.Expr) else id(x)


class _Walk:
    def __init__(self, map_free_vars):
        self.free, self.numbers, self.seen, self.keep = map_free_vars, {}, {}, []

    def number(self, v):
        self.keep.append(v)  # ids are those of living objects
        self.numbers[_key(v)] = len(self.numbers)

    def one(self, x):
        """(token, [(name, part)]) of an object."""
        if isinstance(x, _Binding):
            self.number(x.variable)
            return "binds", rule_of(x.variable)(x.variable).parts
        token = _plain(x)
        if token is not None:
            return token, ()
        if isinstance(x, dict) or (hasattr(x, "items") and hasattr(x, "keys")):
            items = sorted(((getattr(k, "name_hint", k), v) for k, v in x.items()), key=lambda p: str(p[0]))
            return ("map", *(str(k) for k, _ in items)), [(f"[{k!r}]", v) for k, v in items]
        if isinstance(x, (list, tuple)):
            return ("list", len(x)), [(f"[{i}]", v) for i, v in enumerate(x)]
        key = _key(x)
        if key in self.seen:
            return ("again", self.seen[key]), ()
        if key in self.numbers:
            return ("variable", self.numbers[key]), ()
        f = rule_of(x)
        if f is None:
            inner = x.asobject() if callable(getattr(x, "asobject", None)) else x
            if type(inner) is not type(x):
                return self.one(inner)
            return ("object", id(x)), ()
        node = f(x)
        if node.variable:
            if not self.free:
                return ("object", key), ()
            self.number(x)
            return "free", node.parts
        if node.shared:
            self.keep.append(x)
            self.seen[key] = len(self.seen)
        return node.head, [*((".bound", _Binding(v)) for v in node.binds), *node.parts]


def tokens(x, map_free_vars=False):
    """Pairs (token, path) in the order of the walk; a path is a chain (name, path before)."""
    walk, stack = _Walk(map_free_vars), [(x, None)]
    while stack:
        x, path = stack.pop()
        token, parts = walk.one(x)
        yield token, path
        for name, part in reversed(parts):
            stack.append((part, (name, path)))


def _text(path):
    names = []
    while path is not None:
        names.append(path[0])
        path = path[1]
    return "<root>" + "".join(reversed(names))


def _close(x, y):
    """Whether two tokens are numbers that differ by rounding only: 1e-5 as float32 is 1e-5."""
    both = (x, y)
    return all(isinstance(t, tuple) and t[0] == "number" and isinstance(t[1], float) for t in both) and abs(x[1] - y[1]) <= 1e-9


def first_difference(a, b, map_free_vars=False):
    """None if two objects are equal in structure, else the path to the first difference and what is there on both sides."""
    if isinstance(a, _core.Expr) != isinstance(b, _core.Expr):  # a number of Python stands for a literal
        a, b = (_core.expr_const(x) if isinstance(x, (bool, int, float)) else x for x in (a, b))
    left, right = tokens(a, map_free_vars), tokens(b, map_free_vars)
    for (x, path), (y, _) in zip(left, right):
        if x != y and not _close(x, y):
            return _text(path), x, y
    return None


def digest(x, map_free_vars=False):
    """A number of 64 bits (signed) of the structure of an object; equal objects have the same one. A free variable counts as that
    object, or with `map_free_vars` by where it is met."""
    h = hashlib.sha256()
    for token, _ in tokens(x, map_free_vars):
        if token[:1] == ("number",) and isinstance(token[1], float):
            token = "number", round(token[1], 7)
        h.update(repr(token).encode() + b"\n")
    return int.from_bytes(h.digest()[:8], "little", signed=True)
