"""PyTorch's rules of element types, for all operators in one place.

Each row of the table of converters has a column `types` (a :class:`Types`). It says to which type the operands are converted, and in
which type the operator computes. Operands follow `torch.result_type`: tensors with axes have priority over those without, and these
over Python's numbers. A higher category (truth values, integers, floats) always wins. PyTorch computes floats of 16 bits in
float32 and rounds once. A number beside such a tensor is rounded to 16 bits first by some operators and kept in float32 by
others; the rows say what PyTorch does on a CPU, found by comparing bits.
"""

import functools
import inspect
import math
import sys
from typing import NamedTuple

import numpy as np

from ....numerics import from_bfloat16, is_float, to_bfloat16
from ...expr import Expr, TupleWrapper
from .. import common as c
from ..values import array, dtype_of, known, rank_of, shape_of

__all__ = ["ONE", "PAIR", "REAL", "STEPS", "Types", "as_type", "constant", "default_float", "fitting", "is_single", "promoted", "real", "result_type"]

_KINDS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
_HALVES = ("float16", "bfloat16")


class Types(NamedTuple):
    """How an operator treats element types. Names are those of the converter's parameters, separated by spaces.

    Attributes
    ----------
    operands : str
        Operands that are converted to one type: tensors, Python numbers, lists of them, or None. Converters get expressions.
    scalars : str
        Numbers that are converted to that type and have no say in what it is. Converters get numbers.
    real : bool
        Operands that are no floats become floats.
    wide : str
        Numbers (and operands of one element) that floats of 16 bits meet in float32, as they are.
    steps : bool or str
        The converter makes several operations: floats of 16 bits go through all of them in float32. With the name of a parameter:
        if that is given and is not 1.
    fits : str
        Numbers that PyTorch refuses if the type cannot hold them; others wrap, or become infinite.
    """

    operands: str
    scalars: str = ""
    real: bool = False
    wide: str = ""
    steps: bool | str = False
    fits: str = ""


ONE = Types("x")
PAIR = Types("x y")
REAL = Types("x", real=True)
STEPS = Types("x", real=True, steps=True)


def default_float():
    """The type of Python's floats: PyTorch's default."""
    torch = sys.modules.get("torch")
    return "float32" if torch is None else str(torch.get_default_dtype()).removeprefix("torch.")


def _category(dtype):
    return 0 if dtype == "bool" else 2 if is_float(dtype) else 1


def _ranked(v):
    """(element type, level) of an operand: 0 for tensors with axes, 1 for those without, 2 for numbers."""
    if isinstance(v, Expr):
        return dtype_of(v), 0 if rank_of(v) else 1
    return "bool" if isinstance(v, (bool, np.bool_)) else "int64" if isinstance(v, (int, np.integer)) else default_float(), 2


def result_type(values):
    """The name of `torch.result_type` of expressions and Python numbers."""
    ranked = [_ranked(v) for v in values]
    top = max(_category(d) for d, _ in ranked)
    level = min(at for d, at in ranked if _category(d) == top)
    kinds = {d for d, at in ranked if at == level and _category(d) == top}
    if len(kinds) == 1:
        return kinds.pop()
    if {"float16", "bfloat16"} <= kinds:
        kinds.add("float32")
    if "uint8" in kinds and "int8" in kinds:
        kinds.add("int16")
    return max(kinds, key=_KINDS.index)


# ---- numbers ----


def _rounded(value, kind):
    """A float as a number of the type; what is too large becomes infinite."""
    if kind == "bfloat16":
        return float(from_bfloat16(to_bfloat16(np.float32(_rounded(value, "float32"))).reshape(1))[0])
    with np.errstate(over="ignore"):
        return float(np.dtype(kind).type(value))


def fitting(value, kind, name=None):
    """A Python number as one of the type: integers wrap, fractions are cut, floats are rounded. Unsigned types hold negative numbers, wrapped,
    as in PyTorch.

    Raises
    ------
    ValueError
        With a `name`, if the type cannot hold it.
    """
    if kind == "bool":
        return bool(value)
    if is_float(kind):
        out = _rounded(float(value), kind)
        if name and np.isinf(out) and not np.isinf(float(value)):
            raise ValueError(f"{name}={value} is too large for {kind}")
        return out
    if isinstance(value, float) and not np.isfinite(value):
        raise ValueError(f"{name or 'a number'}={value} cannot become {kind}")
    bounds, whole = np.iinfo(kind), int(value)
    if bounds.min <= whole <= bounds.max:
        return whole
    if name and (bounds.min or not -bounds.max <= whole < 0):
        raise ValueError(f"{name}={value} is beyond {kind}, which reaches from {bounds.min} to {bounds.max}")
    return (whole - bounds.min) % (1 << bounds.bits) + bounds.min


def constant(value, kind, name=None):
    """A Python number as an expression of the type; see :func:`fitting`."""
    return array(fitting(value, kind, name), kind)


def as_type(v, dtype):
    """An expression or a number as an expression of the type."""
    return c.cast(v, dtype) if isinstance(v, Expr) else constant(v, dtype)


def real(x):
    """`x` if it holds floats, else as the default float."""
    return x if is_float(dtype_of(x)) else c.cast(x, default_float())


# ---- rows ----


def _leaves(v):
    return [x for w in v for x in _leaves(w)] if isinstance(v, (list, tuple)) else [] if v is None else [v]


def is_single(v):
    """Whether an operand is a number or holds one."""
    return not isinstance(v, Expr) or math.prod(shape_of(v)) == 1


def _exact(v, kind):
    """Whether an operand is the same in a type of 16 bits, or has one anyway."""
    if isinstance(v, Expr):
        if dtype_of(v) == kind or not is_single(v):
            return True
        if not known(v):
            return False
        v = v.numbers.item()
    return v != v or float(v) == _rounded(float(v), kind)


def _computed(types, given, kind):
    """The type to compute in."""
    if kind not in _HALVES:
        return kind
    steps = given.get(types.steps) not in (None, 1) if isinstance(types.steps, str) else types.steps
    exact = steps or all(_exact(v, kind) for n in types.wide.split() for v in _leaves(given.get(n)))
    return "float32" if steps or not exact else kind


def _converted(v, kind, work, keep, name):
    """An operand in the type `work`: by way of `kind`, unless it is one number that is kept as it is."""
    if isinstance(v, (list, tuple)):
        return [_converted(x, kind, work, keep, name) for x in v]
    if v is None:
        return None
    keep = keep and is_single(v)
    if isinstance(v, Expr):
        return c.cast(v if keep else c.cast(v, kind), work)
    return constant(v if keep else fitting(v, kind, name), work, name)


def _back(out, kind, work):
    if isinstance(out, (list, tuple, TupleWrapper)):
        return [_back(o, kind, work) for o in out]
    return c.cast(out, kind) if isinstance(out, Expr) and dtype_of(out) == work else out


def promoted(f, types):
    """The converter `f` by the rules of its row: it gets operands of one type, and its result has PyTorch's."""
    signature = inspect.signature(f)
    operands, scalars, wide, fits = (set(names.split()) for names in (types.operands, types.scalars, types.wide, types.fits))
    unknown = (operands | scalars | wide | fits) - set(signature.parameters)
    assert not unknown, f"{f} has no parameters {unknown}"

    @functools.wraps(f)
    def convert(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        kind = result_type([v for n in given if n in operands for v in _leaves(given[n])])
        if types.real and not is_float(kind):
            kind = default_float()
        work = _computed(types, given, kind)
        for n, v in given.items():
            name = n if n in fits else None
            if n in operands:
                given[n] = _converted(v, kind, work, n in wide, name)
            elif n in scalars and v is not None and not isinstance(v, Expr):
                given[n] = fitting(v, work if n in wide else kind, name)
        out = f(*bound.args, **bound.kwargs)
        return out if work == kind else _back(out, kind, work)

    return convert
