"""FoldConstant: operator calls whose arguments are all constants are evaluated with NumPy, in the graph's element
type."""

from __future__ import annotations

import numpy as np

from .. import passes as _t
from ..expr import Call, Constant, Tuple, TupleGetItem, const, rewrite
from ..ty import TensorType

__all__ = ["FoldConstant", "evaluate_call", "fold"]


def _value(e):
    if isinstance(e, Constant):
        return e.numbers
    if isinstance(e, Tuple) and all(isinstance(f, Constant) for f in e.fields):
        return [f.numbers for f in e.fields]
    return None


def evaluate_call(call):
    """The value of an operator call with constant arguments as Constant or Tuple; None if it cannot be had cheaply."""
    if call.op.evaluate is None:
        return None
    values = [_value(a) for a in call.args]
    if any(v is None for v in values):
        return None
    want = call.checked_type
    # NumPy has no bfloat16: such values are computed in float32 and rounded once.
    attrs = call.attrs.with_(**{k: "float32" for k in ("dtype", "out_dtype") if call.attrs.get(k) == "bfloat16"})
    try:
        out = call.op.evaluate(attrs, *values)
    except NotImplementedError:
        return None
    if isinstance(out, (list, tuple)):
        return Tuple([const(np.asarray(v, order="C"), f.dtype) for v, f in zip(out, want.fields)])
    if isinstance(want, TensorType) and want.dtype == "bfloat16":
        return const(np.asarray(out, order="C"), want.dtype)
    out = np.asarray(out)
    if isinstance(want, TensorType) and (out.shape != want.shape or str(out.dtype) != want.dtype):
        if out.shape != want.shape:
            raise ValueError(f"{call.op_name}: folding gave shape {out.shape}, the type says {want.shape}")
        out = out.astype(want.dtype)
    return Constant(np.asarray(out, order="C"))


def _visit(old, new):
    if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
        return new.tuple_value.fields[new.index]
    if isinstance(new, Call) and new.op_name:
        if new.op_name == "shape_of":
            t = new.args[0].checked_type
            return const(np.array(t.shape, new.attrs.dtype)) if t.is_static else new
        folded = evaluate_call(new)
        return new if folded is None else folded
    return new


def fold(expr):
    """`expr`, whose types are inferred, with everything evaluated that depends on constants only."""
    return rewrite(expr, _visit)


@_t.function_pass(opt_level=2, name="FoldConstant")
def _fold_constant(func, mod, ctx):
    return fold(func)


def FoldConstant():
    """Evaluates everything that depends on constants only."""
    return _fold_constant
