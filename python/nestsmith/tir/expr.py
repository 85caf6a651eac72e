"""Expression nodes."""

from .. import _core
from .._core import EqualOp, Expr  # noqa: F401
from .any import Any  # noqa: F401
from .nodes import *  # noqa: F403  (TVM's places)


class Range:
    """A half-open range of integers, given by its first value and its number of values."""

    __slots__ = ("min", "extent")

    def __init__(self, begin, end=None):
        if end is None:
            begin, end = 0, begin
        self.min, self.extent = begin, end - begin

    @classmethod
    def from_min_extent(cls, min_value, extent):
        r = cls.__new__(cls)
        r.min, r.extent = min_value, extent
        return r

    def __repr__(self):
        return f"range(min={self.min}, ext={self.extent})"

    def __eq__(self, other):
        return isinstance(other, Range) and bool(self.min == other.min) and bool(self.extent == other.extent)

    def __hash__(self):
        return hash((self.min, self.extent))


_range = Range.from_min_extent


def expr_range(dom):
    """``Range``, ``(begin, end)`` or an extent as a pair (min, extent)."""
    if isinstance(dom, Range):
        return dom.min, dom.extent
    if isinstance(dom, (tuple, list)):
        if len(dom) != 2:
            raise ValueError(f"a range is (begin, end), not {dom!r}")
        begin, end = dom
        if isinstance(begin, int) and begin == 0:
            return 0, end
        return begin, end - begin
    return 0, dom


def const(value, dtype=None):
    """A literal. Without ``dtype``: integers ``int32`` (``int64`` if too large), reals ``float32``, booleans ``bool``;
    NumPy scalars keep their type."""
    return _core.expr_const(value, dtype)


def convert(value):
    """An expression, or a list or dict of them, from Python numbers; what is no number stays as it is."""
    if isinstance(value, (list, tuple)):
        return [convert(v) for v in value]
    if isinstance(value, dict):
        return {k: convert(v) for k, v in value.items()}
    number = isinstance(value, (bool, int, float, _core.EqualOp)) or hasattr(value, "dtype") and not isinstance(value, (Expr, _core.Tensor))
    return const(value) if number and getattr(value, "ndim", 0) == 0 else value


def as_const_int(value, what="the value"):
    """A Python integer from an int or a literal expression; ``ValueError`` otherwise."""
    try:
        return value.__index__()
    except (TypeError, AttributeError):
        raise ValueError(f"{what} must be a constant integer, not {value}") from None


def SizeVar(name="size", dtype="int32"):
    """A variable that is known not to be negative."""
    return _core.expr_var(name, dtype, True)
