"""Dimensions with a name: ``te.var("n")``, and what shapes compute of it.

A dimension is kept as a sum ``c0 + c1 * a1 + c2 * a2 ...`` of atoms: variables, and quotients and products that are not taken apart.
So ``(n - 1) // 1 + 1`` is ``n``, and equal sums are equal dimensions.
"""

from ..tir import Any, Cast as cast, PrimExpr, const, convert as _expr, floordiv, floormod, round as _round

__all__ = ["Sym", "as_dim"]


class Sym(Any):
    """A dimension that is an expression of named sizes. To type rules it is an `Any` that can be compared and computed with."""

    __slots__ = ("terms", "start")

    def __init__(self, terms, start=0):
        self.terms = terms  # texts of the factors, sorted -> (coefficient, the factors)
        self.start = start

    @property
    def expr(self):
        """The dimension as an expression of :mod:`nestsmith.tir`."""
        out = None
        for c, factors in self.terms.values():
            term = factors[0]
            for f in factors[1:]:
                term = term * f
            term = term if c == 1 else term * c
            out = term if out is None else out + term
        return out if not self.start else out + self.start

    def _key(self):
        return self.start, frozenset((k, c) for k, (c, _) in self.terms.items())

    def __eq__(self, other):
        other = as_dim(other)
        return isinstance(other, Sym) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())

    def __repr__(self):
        return _text(self.expr)

    def __neg__(self):
        return self * -1

    def __add__(self, other):
        other = as_dim(other)
        if isinstance(other, int):
            return Sym(self.terms, self.start + other)
        if not isinstance(other, Sym):
            return Any()
        terms = dict(self.terms)
        for k, (c, e) in other.terms.items():
            terms[k] = (terms.get(k, (0, e))[0] + c, e)
        return _sum(terms, self.start + other.start)

    __radd__ = __add__

    def __sub__(self, other):
        return self + as_dim(other) * -1

    def __rsub__(self, other):
        return self * -1 + other

    def __mul__(self, other):
        other = as_dim(other)
        if isinstance(other, float):
            return _atom(self.expr * other)
        if isinstance(other, int):
            return _sum({k: (c * other, e) for k, (c, e) in self.terms.items()}, self.start * other)
        return _product(self, other) if isinstance(other, Sym) else Any()

    __rmul__ = __mul__

    def __floordiv__(self, other):
        other = as_dim(other)
        if isinstance(other, int):
            if all(c % other == 0 for c, _ in self.terms.values()):
                return _sum({k: (c // other, e) for k, (c, e) in self.terms.items()}, self.start // other)
            return _atom(floordiv(self.expr, other))
        ratio = self._ratio(other) if isinstance(other, Sym) else None
        if ratio is not None:
            return ratio
        return _atom(floordiv(self.expr, other.expr)) if isinstance(other, Sym) else Any()

    def _ratio(self, other):
        """k if this is k times `other`, else None."""
        key, (c, _) = next(iter(other.terms.items()))
        k = self.terms.get(key, (0,))[0] // c if c else 0
        return k if k and self == other * k else None

    def __rfloordiv__(self, other):
        return _atom(floordiv(_expr(other), self.expr))

    def __mod__(self, other):
        other = as_dim(other)
        if isinstance(other, int) and all(c % other == 0 for c, _ in self.terms.values()):
            return self.start % other
        return _atom(floormod(self.expr, getattr(other, "expr", other))) if isinstance(other, (int, Sym)) else Any()


def _text(e):
    """An expression, its variables by their names alone."""
    if getattr(e, "kind", "") == "Var":
        return e.name
    if e.kind in _TEXTS and len(e.args) == 2:
        return _TEXTS[e.kind].format(*map(_text, e.args))
    return str(e)


def scaled(d, factor):
    """A dimension times a factor, rounded."""
    if isinstance(d, Sym):
        return _atom(cast("int32", _round(d.expr * const(float(factor), "float64"))))
    return Any() if isinstance(d, Any) else int(round(d * factor))


def _sum(terms, start):
    terms = {k: v for k, v in terms.items() if v[0]}
    return Sym(terms, start) if terms else start


def _atom(e):
    return Sym({(_key(e),): (1, (e,))})


def _product(a, b):
    """All terms of one sum times all of the other."""
    out = b * a.start + Sym(a.terms) * b.start
    for ka, (ca, fa) in a.terms.items():
        for kb, (cb, fb) in b.terms.items():
            pairs = sorted(zip((*ka, *kb), (*fa, *fb)), key=lambda p: p[0])
            out = Sym({tuple(k for k, _ in pairs): (ca * cb, tuple(f for _, f in pairs))}) + out
    return out


def _key(e):
    """A text that equal expressions have in common: variables are told by identity."""
    if getattr(e, "kind", None) == "Var" or not e.args:
        return f"{e}#{hash(e)}"
    return f"{e.kind}({','.join(_key(a) for a in e.args)}){e.dtype}"


_TEXTS = {"Add": "({} + {})", "Sub": "({} - {})", "Mul": "({} * {})", "FloorDiv": "floordiv({}, {})"}
_SUMS = {"Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b,
         "FloorDiv": lambda a, b: a // b, "FloorMod": lambda a, b: a % b}  # fmt: skip


def as_dim(d):
    """An int, `Any` or `Sym` of a dimension that may be an expression."""
    if isinstance(d, Any):
        return d
    if not isinstance(d, PrimExpr):
        return int(d) if hasattr(d, "__index__") else d
    try:
        return d.__index__()
    except TypeError:
        pass
    if d.kind in _SUMS and len(d.args) == 2:
        return _SUMS[d.kind](as_dim(d.args[0]), as_dim(d.args[1]))
    return _atom(d)
