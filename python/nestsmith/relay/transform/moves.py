"""Moves: operators that compute nothing and only say where elements lie.

Importers write attention as a product of matrices, then a chain of reshapes, transposes and slices for queries, keys and values each.
`SimplifyMoves` makes a reshape of what leaves the order of the elements as it is; `OwnMoves` gives each reader of moved data a
chain of its own, which fusion then makes part of the reader.
"""

from .. import op, passes
from ..expr import Call, children, rewrite, with_children
from ..infer import infer_type
from ..op.registry import REDUCE
from ..ty import Any, TensorType

__all__ = ["PRODUCTS", "RESHAPES", "SimplifyMoves", "OwnMoves", "is_move", "static_shape"]

PRODUCTS = ("nn.dense", "nn.batch_matmul", "nn.matmul")
RESHAPES = ("reshape", "squeeze", "expand_dims", "nn.batch_flatten")


def is_move(expr):
    """Whether an expression is a call of an operator that moves each element, or leaves it out, and computes nothing."""
    return isinstance(expr, Call) and expr.op_name in (*RESHAPES, "transpose", "strided_slice")


def _takes_moves(call):
    """Whether fusion makes moves of what a call reads part of its kernel. A product of matrices reads its operands tile by tile into
    shared memory, so where an element lay is asked seldom; a convolution asks for every tap."""
    return bool(call.op_name) and (call.op.pattern <= REDUCE or call.op_name in PRODUCTS)


def static_shape(expr):
    """The constant shape of a typed expression, or None."""
    t = expr.checked_type
    if not isinstance(t, TensorType) or any(isinstance(d, Any) for d in t.shape):
        return None
    return tuple(int(d) for d in t.shape)


def _keeps_order(call, shape):
    """Whether elements stay in their order: a reshape, or a transpose that moves axes of one element only."""
    if call.op_name != "transpose":
        return call.op_name in RESHAPES
    rank = len(shape)
    axes = [a % rank for a in call.attrs.axes or reversed(range(rank))]
    long = [a for a in axes if shape[a] != 1]
    return long == sorted(long)


@passes.makes_function_pass(opt_level=3)
def SimplifyMoves(func, mod, ctx):
    """The pass: one reshape for a chain of operators that keep the order of the elements, none for one that keeps the shape."""
    infer_type(func)
    source = {}  # id of a reshape made here -> (what it reshapes, the shape of that)
    keep = []

    def visit(old, new):
        if not is_move(old) or not isinstance(new, Call):
            return new
        shape, before = static_shape(old), static_shape(old.args[0])
        if shape is None or before is None or not _keeps_order(old, before):
            return new
        data, before = source.get(id(new.args[0]), (new.args[0], before))
        if before == shape:
            return data
        out = op.reshape(data, shape)
        out.span = new.span
        source[id(out)] = data, before
        keep.append(out)
        return out

    return rewrite(func, visit)


@passes.makes_function_pass(opt_level=3)
def OwnMoves(func, mod, ctx):
    """The pass: what is moved and then read by several is moved by each reader for itself."""
    infer_type(func)

    def own(e):
        """A chain of moves of its own, up to what computes something."""
        return Call(e.op, [own(e.args[0])], e.attrs, e.type_args, e.span) if is_move(e) else e

    def visit(old, new):
        if not isinstance(new, Call) or is_move(new) or not _takes_moves(new):
            return new
        return with_children(new, [own(c) for c in children(new)])

    return rewrite(func, visit)
