"""FoldConstant: operator calls whose arguments are all constants are evaluated with NumPy, in the graph's element
type."""

import numpy as np

from ...numerics import is_float
from .. import budget, passes
from ..expr import Call, Constant, If, Let, Tuple, TupleGetItem, const, post_order, rewrite
from ..ty import TensorType, TupleType

__all__ = ["FoldConstant", "evaluate_call", "fold"]


def _value(e):
    if isinstance(e, Constant):
        return e.numbers
    if isinstance(e, Tuple) and all(isinstance(f, Constant) for f in e.fields):
        return [f.numbers for f in e.fields]
    return None


_GROWTH, _FREE = 4, 64 << 20  # a value is computed if it is at most _GROWTH times as large as its arguments, or has at most _FREE bytes
_PRODUCTS = {"nn.dense", "nn.matmul", "nn.batch_matmul"}
_MOST_WORK = {True: 1 << 38, False: 1 << 32}  # multiplications of a product: floats by BLAS, others by NumPy's plain loops; some seconds


def _cheap(call):
    """Whether the value of a call is worth computing while building: it is not much larger than what it is made of, and a product
    takes seconds at most. While a model is imported a value that is too large is an error: nothing else could be said of it later."""
    want = call.checked_type
    made = [t for t in (want.fields if isinstance(want, TupleType) else [want]) if t.is_static]
    for t in made:
        budget.room(t.shape, t.dtype)
    if call.op_name in _PRODUCTS:
        a, b = (x.checked_type for x in call.args[:2])
        depth = a.shape[-2 if call.attrs.get("transpose_a") else -1]
        return want.size * depth <= _MOST_WORK[is_float(a.dtype) and is_float(b.dtype)]
    given = sum(c.data.nbytes for a in call.args for c in (a.fields if isinstance(a, Tuple) else [a]))
    return budget.active() or sum(t.nbytes for t in made) <= max(_FREE, _GROWTH * given)


def _held(c):
    budget.hold(c.data)
    return c


def evaluate_call(call):
    """The value of an operator call with constant arguments as Constant or Tuple; None if it cannot be had cheaply."""
    if call.op.evaluate is None:
        return None
    values = [_value(a) for a in call.args]
    if any(v is None for v in values) or not _cheap(call):
        return None
    want = call.checked_type
    # NumPy has no bfloat16: such values are computed in float32 and rounded once.
    attrs = call.attrs.with_(**{k: "float32" for k in ("dtype", "out_dtype") if call.attrs.get(k) == "bfloat16"})
    try:
        with np.errstate(all="ignore"):  # programs do not warn of an infinity either
            out = call.op.evaluate(attrs, *values)
    except NotImplementedError:
        return None
    if isinstance(out, (list, tuple)):
        return Tuple([_held(const(np.asarray(v, order="C"), f.dtype)) for v, f in zip(out, want.fields)])
    if isinstance(want, TensorType) and want.dtype == "bfloat16":
        return _held(const(np.asarray(out, order="C"), want.dtype))
    out = np.asarray(out)
    if isinstance(want, TensorType) and (out.shape != want.shape or str(out.dtype) != want.dtype):
        if out.shape != want.shape:
            raise ValueError(f"{call.op_name}: folding gave shape {out.shape}, the type says {want.shape}")
        out = out.astype(want.dtype)
    made = Constant(np.asarray(out, order="C"))
    if call.op_name == "nn.contrib_conv2d_winograd_weight_transform":
        made.original = values[0], call.attrs.tile_size
    return _held(made)


def _visit(old, new):
    if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
        return new.tuple_value.fields[new.index]
    if isinstance(new, Call) and new.op_name:
        if new.op_name in ("shape_of", "ndarray_size") and new.args[0].checked_type.is_static:
            t = new.args[0].checked_type
            return const(np.array(t.shape if new.op_name == "shape_of" else t.size, new.attrs.dtype))
        folded = evaluate_call(new)
        return new if folded is None else folded
    return new


def fold(expr):
    """`expr`, whose types are inferred, with everything evaluated that depends on constants only."""
    lets = {id(e.var): id(e.value) for e in post_order(expr) if isinstance(e, Let)}
    made: dict = {}

    def visit(old, new):
        if id(old) in lets and isinstance(made.get(lets[id(old)]), Constant):  # a variable that stands for a constant
            return made[lets[id(old)]]
        if isinstance(old, Let) and isinstance(new.var if isinstance(new, Let) else None, Constant):
            return new.body
        if isinstance(new, If) and isinstance(new.cond, Constant):
            return new.true_branch if new.cond.data.item() else new.false_branch
        made[id(old)] = new = _visit(old, new)
        return new

    return rewrite(expr, visit)


@passes.makes_function_pass(opt_level=2)
def FoldConstant(func, mod, ctx):
    """Evaluates everything that depends on constants only."""
    return fold(func)
