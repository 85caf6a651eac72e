"""Recurrences: each step of a scan is computed from the steps before."""

from __future__ import annotations

from .. import _core
from ..tir.buffer import BufferLoad, decl_buffer
from ..tir.expr import const
from ..tir.stmt import Allocate, BufferStore, For, ForKind, PrimFunc, SeqStmt
from ..tir.stmt_functor import substitute
from .extern import extern, extern_of
from .loops import nest
from .specialize import operations

__all__ = ["ScanOp", "create_prim_func", "scan"]


class _Kind(type):
    def __instancecheck__(cls, x):
        return isinstance(x, _core.Operation) and getattr(extern_of(x), "scan", None) is not None


class ScanOp(metaclass=_Kind):
    """The class of operations that `scan` makes."""


def _of_scan(get):
    def ask(op):
        if not isinstance(op, ScanOp):
            raise AttributeError(f"{op.name} is no te.scan")
        return get(op, extern_of(op).scan)

    return ask


setattr(_core.Operation, "scan_axis", property(_of_scan(lambda op, s: s.scan_axis), doc="The steps of a scan."))  # noqa: B010
setattr(_core.Operation, "spatial_axis_", property(_of_scan(lambda op, s: list(op.axis)[1:]), doc="The other axes of a scan."))  # noqa: B010


class Scan:
    """What a scan consists of."""

    def __init__(self, init, update, state, inputs):
        self.init, self.update, self.state_placeholder, self.inputs = init, update, state, inputs
        self.scan_axis = update[0].op.axis[0]

    def again(self, maker):
        """The same of the operations that a maker has made anew: its tensors."""
        for op in operations([t.op for t in (*self.state_placeholder, *self.update)]):
            maker.make(op)
        return scan(*([maker.tensors[t] for t in x] for x in (self.init, self.update, self.state_placeholder)))


def _behind(tensors, stop):
    """(operations that compute tensors from `stop` and others, the tensors that they read which do not depend on `stop`)."""
    ops = operations([t.op for t in tensors])
    depend = {t.op for t in stop}
    for op in ops:
        if any(t.op in depend for t in op.input_tensors):
            depend.add(op)
    inner = [op for op in ops if op in depend and not op.is_placeholder]
    outer = list(dict.fromkeys(t for op in inner for t in op.input_tensors if t.op not in depend))
    return inner, outer


def scan(init, update, state_placeholder, inputs=None, name="scan", tag="", attrs=None):
    """The states of a recurrence.

    Parameters
    ----------
    init : te.Tensor or list of te.Tensor
        The first states: [k, ...].
    update : te.Tensor or list of te.Tensor
        ``te.compute`` of all states [T, ...], whose body reads the placeholders at earlier steps, and what else it wants.
    state_placeholder : te.Tensor or list of te.Tensor
        The states as `update` reads them.
    inputs : list of te.Tensor, optional
        What `update` reads besides; it is found.
    name, tag, attrs
        As of `te.compute`.

    Returns
    -------
    te.Tensor or list of te.Tensor
        The states [T, ...]. One loop over the steps computes them, with plain loops inside.
    """
    init, update, state = (list(x) if isinstance(x, (list, tuple)) else [x] for x in (init, update, state_placeholder))
    if not len(init) == len(update) == len(state):
        raise ValueError(f"init, update, state_placeholder must have same length, not {len(init)}, {len(update)} and {len(state)}")
    for i, u, s in zip(init, update, state):
        if len(u.shape) != len(s.shape) or len(i.shape) != len(s.shape) or u.op.is_placeholder:
            raise ValueError(f"scan '{name}': init {i}, update {u} and state {s} must have the same number of dimensions, update be a te.compute")
    inner, outer = _behind(update, state)
    if any(u.op not in inner for u in update):
        raise ValueError(f"scan '{name}': an update does not read its state; use te.compute")
    inputs = [inputs] if isinstance(inputs, _core.Tensor) else inputs
    record = Scan(init, update, state, list(inputs or outer))

    def statement(ins, outs):
        buffers = {**dict(zip([*init, *outer], ins)), **dict(zip(state, outs)), **dict(zip(update, outs))}
        first = [_copied(buffers[i], o, i.shape) for i, o in zip(init, outs)]
        step = record.scan_axis
        temporaries, body = [], []
        for op in inner:
            for t in [op.output(k) for k in range(op.num_outputs)]:
                if t not in buffers:
                    buffers[t] = decl_buffer(t.shape, t.dtype, op.name)
                    temporaries.append(buffers[t])
            body.append(substitute(nest(op, buffers, 1), {op.axis[0].var: step.var}))
        known = init[0].shape[0]
        loop = For(step.var, const(known), const(step.extent) - known, ForKind.SERIAL, SeqStmt(body))
        for b in temporaries:
            loop = Allocate(b.data, b.dtype, b.shape, const(True), loop)
        return SeqStmt([*first, loop])

    made = extern(
        [tuple(s.shape) for s in state], [*init, *outer], statement, name, [s.dtype for s in state], tag=tag, attrs=attrs
    )
    made = made if isinstance(made, list) else [made]
    extern_of(made[0].op).scan = record
    return made[0] if len(made) == 1 else made


def _copied(source, target, shape):
    """The first steps, as they are given."""
    index = [_core.expr_var(f"i{d}", const(n).dtype, False) for d, n in enumerate(shape)]
    body = BufferStore(target, BufferLoad(source, index), index)
    for v, n in reversed(list(zip(index, shape))):
        body = For(v, const(0), const(n), ForKind.SERIAL, body)
    return body


def ScanGetBody(scan_op):  # noqa: N802 (name of the established interface)
    """The operations of a scan: itself, its updates, and what they need of its states."""
    found = extern_of(scan_op).scan
    inner, _ = _behind(found.update, found.state_placeholder)
    return [scan_op, *reversed(inner)]


def create_prim_func(ops, index_dtype_override=None):
    """A function of tensors' buffers in plain loops, which ``nestsmith.build`` compiles.

    Parameters
    ----------
    ops : list of te.Tensor
        Its parameters: inputs and results. What is computed between them is allocated inside.
    index_dtype_override : None
        Accepted for compatibility.

    Returns
    -------
    tir.PrimFunc
    """
    del index_dtype_override
    args = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    buffers = {t: decl_buffer(t.shape, t.dtype, t.op.name) for t in args}
    inside, body = [], []
    for op in operations([t.op for t in args]):
        for t in [op.output(k) for k in range(op.num_outputs)]:
            if t not in buffers:
                if op.is_placeholder:
                    raise ValueError(f"create_prim_func: {t} is read, but no parameter")
                buffers[t] = decl_buffer(t.shape, t.dtype, op.name)
                inside.append(buffers[t])
        record = extern_of(op)
        if record is not None:
            body.append(record.statement([buffers[t] for t in record.inputs], [buffers[t] for t in record.outputs]))
        elif not op.is_placeholder:
            body.append(nest(op, buffers))
    statement = SeqStmt(body) if len(body) != 1 else body[0]
    for b in inside:
        statement = Allocate(b.data, b.dtype, b.shape, const(True), statement)
    return PrimFunc([buffers[t] for t in args], statement, attrs={"global_symbol": "main", "tir.noalias": const(True)})
