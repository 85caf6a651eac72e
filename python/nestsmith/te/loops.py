"""Plain loops of operations as statements: one nest each, reductions after their first values."""

from __future__ import annotations

from .. import _core
from ..tir.buffer import BufferLoad
from ..tir.expr import const
from ..tir.stmt import BufferStore, For, ForKind, SeqStmt
from ..tir.stmt_functor import with_args

__all__ = ["nest", "reads_of_buffers"]


def reads_of_buffers(e, buffers):
    """An expression that reads buffers in place of tensors."""
    if e.kind == "ProducerLoad" and e.symbol in buffers:
        return BufferLoad(buffers[e.symbol], [reads_of_buffers(i, buffers) for i in e.args])
    return with_args(e, [reads_of_buffers(a, buffers) for a in e.args]) if e.args and e.kind != "Reduce" else e


def _around(axes, body):
    for a in reversed(axes):
        body = For(a.var, const(a.min), const(a.extent), ForKind.SERIAL, body)
    return body


def nest(op, buffers, fixed=0):
    """The statement that computes an operation.

    Parameters
    ----------
    op : te.ComputeOp
    buffers : dict of te.Tensor to Buffer
        Of its results and of what it reads.
    fixed : int
        So many of the first axes are bound outside.
    """
    index, outs = [a.var for a in op.axis], [buffers[op.output(i)] for i in range(op.num_outputs)]
    bodies = list(op.expressions)
    if bodies[0].kind != "Reduce":
        stores = [BufferStore(b, reads_of_buffers(e, buffers), index) for b, e in zip(outs, bodies)]
        return _around(list(op.axis)[fixed:], stores[0] if len(stores) == 1 else SeqStmt(stores))
    red = bodies[0].symbol
    first = [c[3] for c in red["combiner"]] if not red["init"] else [reads_of_buffers(e, buffers) for e in red["init"]]
    begin = [BufferStore(b, e, index) for b, e in zip(outs, first)]
    old = [BufferLoad(b, index) for b in outs]
    new = [reads_of_buffers(e, buffers) for e in red["source"]]
    names = [c[0] for c in red["combiner"]] + [c[1] for c in red["combiner"]]
    combined = [_core.expr_substitute(c[2], names, [*old, *new]) for c in red["combiner"]]
    condition = reads_of_buffers(red["condition"], buffers)
    if len(outs) > 1:  # all are combined before one is stored
        raise ValueError(f"{op.name}: reductions of tuples are no loops by hand; give each its own")
    step = BufferStore(outs[0], _core.expr_select(condition, combined[0], old[0]) if condition.kind != "IntImm" else combined[0], index)
    return _around(list(op.axis)[fixed:], SeqStmt([*begin, _around(red["axis"], step)]))
