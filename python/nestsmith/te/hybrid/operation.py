"""Operations of te.hybrid. A plain nest of loops that sets each element of one result once is a te.compute, whose loops a schedule changes;
other functions are statements."""

import ast
import inspect

from ... import _core
from ...tir.buffer import BufferLoad, decl_buffer
from ...tir.expr import const
from ...tir.stmt import Allocate, AssertStmt, BufferStore, For, ForKind, ProducerRealize, ProducerStore, SeqStmt
from ...tir.stmt_functor import ir_transform
from ..extern import OperationKind, extern, note_statement
from .parser import parse_function

__all__ = ["HybridOp", "source_to_op"]


_made: set = set()


class HybridOp(metaclass=OperationKind):
    """The class of operations that functions of te.hybrid make. ``body`` of such an operation is a statement."""

    has = _made.__contains__


def _tensors(x):
    if isinstance(x, _core.Tensor):
        return [x]
    return [t for y in x for t in _tensors(y)] if isinstance(x, (list, tuple)) else []


def _on_buffers(body, buffers):
    """The statement with buffers in the place of tensors."""

    def memory(s):
        if isinstance(s, ProducerRealize):
            t = s.producer
            buffers[t] = decl_buffer(t.shape, t.dtype, t.op.name, scope=s.storage_scope)

    def change(s):
        if isinstance(s, ProducerStore):
            return BufferStore(buffers[s.producer], s.value, s.indices)
        if isinstance(s, ProducerRealize):
            b = buffers[s.producer]
            return Allocate(b.data, b.dtype, b.shape, const(True), s.body)
        return BufferLoad(buffers[s.symbol], list(s.args))

    return ir_transform(body, memory, change, ["tir.ProducerStore", "tir.ProducerRealize", "tir.ProducerLoad"])


def _plain(body, outs):
    """(axes, value) of a nest that is a te.compute, or None."""
    loops = []
    while isinstance(body, For) and body.kind == ForKind.SERIAL:
        loops.append(body)
        body = body.body
    last = [s for s in body.seq if not isinstance(s, AssertStmt)] if isinstance(body, SeqStmt) else [body]
    if len(outs) != 1 or len(last) != 1 or not isinstance(last[0], ProducerStore) or last[0].producer is not outs[0]:
        return None
    by_var, store = {f.loop_var: f for f in loops}, last[0]
    fits = len(by_var) == len(loops) == len(store.indices) == len(outs[0].shape) and all(i in by_var for i in store.indices)
    axes = [by_var.get(i) for i in store.indices] if fits else []
    if not fits or not loops or any(bool(a.min != 0) or bool(a.extent != s) for a, s in zip(axes, outs[0].shape)):
        return None
    return None if outs[0] in _reads(store.value) else (axes, store.value)


def _reads(e):
    return [*([e.symbol] if e.kind == "ProducerLoad" else []), *[t for a in e.args for t in _reads(a)]]


def source_to_op(src, symbols, args, closure_vars=None):
    """The tensors that a function computes.

    Parameters
    ----------
    src : ast.FunctionDef or str
        The function.
    symbols : dict
        Names around it.
    args : sequence
        Tensors, expressions, numbers, lists of them.
    closure_vars : dict, optional
        Further names.

    Returns
    -------
    te.Tensor or list of te.Tensor
    """
    if isinstance(src, str):
        src = next(n for n in ast.parse(inspect.cleandoc(src)).body if isinstance(n, ast.FunctionDef))
    if isinstance(symbols, (list, tuple)):  # TVM's order: src, args, symbols, closure_vars
        symbols, args = args, symbols
    r = parse_function(src, args, {**(symbols or {}), **(closure_vars or {})})
    if not r.returned:
        raise ValueError(f"te.hybrid function {r.name} returns nothing; it must return what output_tensor made")
    outs, inputs = r.returned, list(dict.fromkeys(_tensors(list(args))))
    plain = _plain(r.body, outs)
    if plain is not None and set(_reads(plain[1])) <= set(inputs):
        axes = [_core.expr_iter_var(a.loop_var.name, a.min, a.extent, 0, None) for a in plain[0]]
        value = _core.expr_substitute(plain[1], [a.loop_var for a in plain[0]], [a.var for a in axes])
        made = list(_core.te_compute(outs[0].op.name, "", axes, [value], {}))
    else:
        statement = lambda ins, results: _on_buffers(r.body, {**dict(zip(inputs, ins)), **dict(zip(outs, results))})  # noqa: E731
        made = extern([tuple(t.shape) for t in outs], inputs, statement, outs[0].op.name, [t.dtype for t in outs])
        made = made if isinstance(made, list) else [made]
    for m in made:
        note_statement(m.op, r.body, inputs)
        _made.add(m.op)
    return made[0] if len(made) == 1 else made
