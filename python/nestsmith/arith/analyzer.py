"""The analyzer: facts about variables, and what follows from them."""

import contextlib
import dataclasses
import enum

from .. import _core
from ..tir.expr import Range, const

__all__ = ["Analyzer", "ConstIntBound", "IntSet", "IntervalSet", "ModularSet", "ProofStrength"]

_INF = 2**63 - 1


class ProofStrength(enum.IntEnum):
    """How hard to try; the engine always does all that it can."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class ConstIntBound:
    """The values from ``min_value`` to ``max_value``, both included; ``NEG_INF``, ``POS_INF``: not bounded."""

    POS_INF, NEG_INF = _INF, -_INF

    def __init__(self, min_value, max_value):
        self.min_value, self.max_value = int(min_value), int(max_value)

    def __repr__(self):
        return f"ConstIntBound[{self.min_value}, {self.max_value}]"

    def __eq__(self, other):
        return isinstance(other, ConstIntBound) and (self.min_value, self.max_value) == (other.min_value, other.max_value)

    def __hash__(self):
        return hash((self.min_value, self.max_value))


@dataclasses.dataclass(frozen=True)
class ModularSet:
    """The values that are ``base`` modulo ``coeff``; ``coeff`` 0: ``base`` alone."""

    coeff: int
    base: int


class IntSet:
    """A set of integers."""

    @staticmethod
    def vector(vec):
        """The values that a vector holds: of a ramp, from its first to its last."""
        return _values_of(vec)

    @staticmethod
    def single_point(point):
        """One value."""
        return IntervalSet(point, point)

    def is_nothing(self):
        """Whether it is empty."""
        return False

    def is_everything(self):
        """Whether it is all integers."""
        return False


class IntervalSet(IntSet):
    """The integers from ``min_value`` to ``max_value``; None: not bounded on that side."""

    def __init__(self, min_value, max_value):
        self.min_value, self.max_value = (v if v is None else const(v) for v in (min_value, max_value))

    def is_everything(self):
        """Whether it is all integers."""
        return self.min_value is None and self.max_value is None

    def is_nothing(self):
        """Whether the last value is smaller than the first for certain."""
        if self.min_value is None or self.max_value is None:
            return False
        return _core.arith_prove(self.max_value < self.min_value, ())

    def __repr__(self):
        low, high = ("inf" if v is None else v for v in (self.min_value, self.max_value))
        return f"IntervalSet[{low}, {high}]"


def _values_of(vec):
    vec = const(vec)
    if vec.kind == "Ramp":
        base, stride = vec.args
        last = base + stride * (int(vec.dtype.split("x")[1]) - 1)
        return IntervalSet(base, last) if _core.arith_bound(stride, ())[0] >= 0 else IntervalSet(last, base)
    return IntervalSet(vec, vec) if vec.kind != "Broadcast" else IntervalSet(vec.args[0], vec.args[0])


def _limits(dtype):
    """(lowest, highest) of what a variable of a type can be."""
    for word, signed in (("uint", False), ("int", True)):
        if dtype.startswith(word):
            bits = int(dtype[len(word) :].split("x")[0])
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
            return (max(low, -_INF) if bits < 64 else (-_INF if signed else 0)), min(high, _INF)
    return (0, 1) if dtype == "bool" else (-_INF, _INF)


class Analyzer:
    """Bounds, residues and proofs of expressions, by what is known of their variables.

    Examples
    --------
    >>> import nestsmith
    >>> from nestsmith import te
    >>> x, ana = te.var("x"), nestsmith.arith.Analyzer()
    >>> ana.bind(x, nestsmith.ir.Range(0, 8))
    >>> ana.simplify((x * 4 + 3) // 4)
    x
    """

    def __init__(self):
        self._bound, self._conditions, self._half = {}, [], {}

    def _facts(self, extra=()):
        conditions = [*self._conditions, *extra, *[c for known in self._half.values() for c in known]]
        return (*[(v, *f) for v, f in self._bound.items()], *[(None, c, None) for c in conditions])

    def simplify(self, expr, steps=2):
        """The simplest form of an expression; ``steps`` is accepted for compatibility."""
        del steps
        return _core.arith_simplify(const(expr), self._facts())

    def rewrite_simplify(self, expr):
        """:meth:`simplify`: rules and the normal form of sums are one pass here."""
        return self.simplify(expr)

    canonical_simplify = rewrite_simplify

    def const_int_bound(self, expr):
        """The :class:`ConstIntBound` of an integer expression."""
        expr = const(expr)
        low, high = _core.arith_bound(expr, self._facts())
        least, most = _limits(expr.dtype)
        if expr.kind == "Var":
            low, high = max(low, least), min(high, most)
        return ConstIntBound(max(low, -_INF), high)

    def modular_set(self, expr):
        """The :class:`ModularSet` of an integer expression."""
        return ModularSet(*_core.arith_residue(const(expr), self._facts()))

    def can_prove(self, expr, strength=ProofStrength.DEFAULT):
        """Whether a condition holds for certain."""
        del strength
        return _core.arith_prove(const(expr), self._facts())

    def can_prove_equal(self, lhs, rhs):
        """Whether two expressions have the same value for certain."""
        return _core.arith_prove(_core.expr_bin("EQ", lhs, rhs), self._facts())

    def int_set(self, expr, dom_map):
        """The :class:`IntervalSet` of an expression whose variables go through the sets ``dom_map`` (variable to IntervalSet or Range)."""
        expr = const(expr)
        low, high = expr, expr
        for v, dom in dom_map.items():
            var = getattr(v, "var", v)
            if isinstance(dom, Range):
                dom = IntervalSet(dom.min, dom.min + dom.extent - 1)
            low, high = (self._extreme(e, var, dom, most) for e, most in ((low, False), (high, True)))
        return IntervalSet(*(None if e is None else self.simplify(e) for e in (low, high)))

    def _extreme(self, expr, var, dom, most):
        """The smallest or largest value of an expression that is monotonic in a variable; None where neither is known."""
        if expr is None:
            return None
        if not _uses(expr, var):
            return expr
        step = self.simplify(_core.expr_substitute(expr, [var], [var + 1]) - expr)
        low, high = _core.arith_bound(step, self._facts())
        if low < 0 < high:
            return None
        end = dom.max_value if (low >= 0) == most else dom.min_value
        return None if end is None else _core.expr_substitute(expr, [var], [end])

    def bind(self, var, expr):
        """From now on a variable is an expression, or goes through a :class:`Range`."""
        var = getattr(var, "var", var)
        self._bound[var] = (expr.min, expr.extent) if isinstance(expr, Range) else (const(expr), None)

    def update(self, var, info, override=False):
        """From now on ``var`` lies in a :class:`ConstIntBound`, besides what was known (``override``: instead of that)."""
        if not isinstance(info, ConstIntBound):
            raise TypeError(f"Do not know how to handle type {type(info).__name__}; pass an arith.ConstIntBound")
        var = getattr(var, "var", var)
        if var.kind != "Var":
            self._conditions += self._within(var, info)
            return
        if not override and (var in self._bound or var in self._half):
            raise ValueError(f"Trying to update var '{var}' with a different const bound: it is known already; pass override=True")
        if info.min_value == info.max_value:
            self._bound[var] = (const(info.min_value, var.dtype), None)
        elif -_INF < info.min_value and info.max_value < _INF:
            extent = info.max_value - info.min_value + 1
            self._bound[var] = (const(info.min_value, var.dtype), const(extent, var.dtype if extent < 2**31 else "int64"))
        else:
            self._bound.pop(var, None)
        self._half[var] = self._within(var, info) if var not in self._bound else []

    @staticmethod
    def _within(var, info):
        least = [const(var >= const(info.min_value, var.dtype))] if info.min_value > -_INF else []
        return least + ([const(var <= const(info.max_value, var.dtype))] if info.max_value < _INF else [])

    @contextlib.contextmanager
    def constraint_scope(self, constraint):
        """``with ana.constraint_scope(condition):`` it holds inside."""
        n = len(self._conditions)
        self._conditions.append(const(constraint))
        try:
            yield self
        finally:
            del self._conditions[n:]


def _uses(expr, var):
    return var in _core.expr_vars(expr)
