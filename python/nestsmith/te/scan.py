"""Recurrences: each step of a scan is computed from the steps before."""

from .. import _core
from ..error import TVMValueError
from ..tir import BufferLoad, BufferStore, For, ForKind, SeqStmt, const, function_of
from ..tir.stmt_functor import replace_buffers
from .extern import OperationKind, extern, extern_of
from .operation import dependent, operations, placeholder
from .schedule import Group, create_schedule

__all__ = ["ScanOp", "create_prim_func", "scan"]


class ScanOp(metaclass=OperationKind):
    """The class of operations that `scan` makes."""

    @staticmethod
    def has(op):
        """Whether an operation is one."""
        return getattr(extern_of(op), "scan", None) is not None


def _of_scan(get):
    def ask(op):
        if not isinstance(op, ScanOp):
            raise AttributeError(f"{op.name} is no te.scan")
        return get(op, extern_of(op).scan)

    return ask


setattr(_core.Operation, "scan_axis", property(_of_scan(lambda op, s: s.scan_axis), doc="The steps of a scan."))  # noqa: B010
setattr(_core.Operation, "spatial_axis_", property(_of_scan(lambda op, s: list(op.axis)[1:]), doc="The other axes of a scan."))  # noqa: B010


class Scan:
    """What a scan consists of. Inside of a step its stages are a schedule of their own: the first axis of each has one value, the step."""

    def __init__(self, init, update, state, inputs):
        self.init, self.update, self.state_placeholder, self.inputs = init, update, state, inputs
        self.scan_axis = update[0].op.axis[0]
        self.inner, self.outer = _behind(update, state)
        self.attached: dict = {}  # operation -> the steps of the schedule that its statement was made of

    def again(self, maker):
        """The same of the operations that a maker has made anew: its tensors."""
        for op in operations([t.op for t in (*self.state_placeholder, *self.update)]):
            maker.make(op)
        return scan(*([maker.tensors[t] for t in x] for x in (self.init, self.update, self.state_placeholder)))

    def rows(self):
        """Of inputs that are computed, the rows that steps read: from the first step to the last."""
        known, steps, found = self.init[0].shape[0], self.scan_axis.extent, {}
        for op in self.inner:
            for tensor, index in _reads(op.expressions):
                if tensor in self.outer and not tensor.op.is_placeholder and index:
                    gap = _core.arith_simplify(index[0] - op.axis[0].var, ())
                    found.setdefault(tensor, []).append(int(gap) if gap.kind == "IntImm" else None)
        return {t: (known + min(gaps), steps + max(gaps)) for t, gaps in found.items() if None not in gaps}

    def inside(self):
        """The schedule of a step. ``members``: its operations by those of the user; ``arguments``: states, inputs, updates."""
        new = {t: placeholder(t.shape, t.dtype, t.op.name) for t in [*self.state_placeholder, *self.outer]}
        members = {}
        for op in self.inner:
            first = op.axis[0].var
            name = first.name if hash(first) == hash(self.scan_axis.var) else first
            axes = [_core.expr_iter_var(name, self.scan_axis.var, const(1, first.dtype), 0, None), *list(op.axis)[1:]]
            old = list(op.input_tensors)
            values = [[first], [axes[0].var]] if axes[0].var is not first else [[], []]
            bodies = [_core.expr_substitute(b, *values, old, [new.get(t, t) for t in old]) for b in op.expressions]
            made = _core.te_compute(op.name, op.tag, axes, bodies, dict(op.attrs))
            members[op] = made[0].op
            new.update({op.output(k): t for k, t in enumerate(made)})
        sch = create_schedule([new[t].op for t in self.update])
        sch.members, sch.arguments = members, [new[t] for t in [*self.state_placeholder, *self.outer, *self.update]]
        sch.reads = {t.op: new[t].op for t in [*self.state_placeholder, *self.outer]}
        Group(sch, list(members.values()))
        return sch

    def statement(self, ins, outs, sch=None):
        """What it does to these buffers, if its steps are computed as a schedule says."""
        sch, step, known = sch or self.inside(), self.scan_axis, self.init[0].shape[0]
        function = function_of(sch._core, sch.arguments, "llvm")
        given = [*outs, *ins[len(self.init) :], *outs]
        places = dict(zip((function.buffer_map[p] for p in function.params), given))
        body = replace_buffers(function.body, lambda b: places.get(b, b))
        threads = []
        while isinstance(body, For) and body.kind == ForKind.THREAD_BINDING:
            threads.append(body)
            body = body.body
        if threads and not all(self.apart()[1:]):
            raise TVMValueError(f"te.scan: steps of {self.update[0].op.name} read what other threads have computed in steps before; bind no loops "
                                "of it to threads")
        loop = For(step.var, const(known), const(step.extent) - known, ForKind.SERIAL, body)
        for t in reversed(threads):  # each computes its elements of all steps
            loop = For(t.loop_var, t.min, t.extent, t.kind, loop, t.thread_binding)
        return SeqStmt([*[_copied(b, o, i.shape, threads) for i, b, o in zip(self.init, ins, outs)], loop])

    def apart(self):
        """Of each dimension of the first state, whether steps never mix its values: each depends on the same one of steps before."""
        states, mixed, above = {*self.state_placeholder, *self.update}, ("mixed", 0), {}

        def place(tensor, d):
            """The class of a dimension: those that always have the same index."""
            at = ("state" if tensor in states else tensor.op, d)
            while at in above:
                at = above[at]
            return at

        for op in self.inner:
            axes = {hash(a.var): d for d, a in enumerate(op.axis)}
            for tensor, index in _reads(op.expressions):
                for d, i in enumerate(index) if tensor in states or tensor.op in self.inner else ():
                    a, b = place(tensor, d), place(op.output(0), axes[hash(i)]) if hash(i) in axes else mixed
                    a, b = (b, a) if a == mixed else (a, b)
                    if a != b:
                        above[a] = b
        ends = [place(self.update[0], d) for d in range(len(self.update[0].shape))]
        return [ends.count(e) == 1 and e != mixed for e in ends]


def _reads(expressions):
    """(tensor, indices) of all reads."""
    found, stack = [], list(expressions)
    while stack:
        e = stack.pop()
        if e.kind == "Reduce":
            s = e.symbol
            stack += [*s["source"], *s["init"], s["condition"]]
            continue
        if e.kind == "ProducerLoad":
            found.append((e.symbol, list(e.args)))
        stack += list(e.args)
    return found


def _behind(tensors, stop):
    """(operations that compute tensors from `stop` and others, the tensors that they read which do not depend on `stop`)."""
    ops = operations([t.op for t in tensors])
    depend = dependent(ops, [t.op for t in stop])
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
        The states [T, ...]. One loop over the steps computes them; what is computed inside
        of a step is scheduled as any other stage, but that it stays there.
    """
    init, update, state = (list(x) if isinstance(x, (list, tuple)) else [x] for x in (init, update, state_placeholder))
    if not len(init) == len(update) == len(state):
        raise ValueError(f"init, update, state_placeholder must have same length, not {len(init)}, {len(update)} and "
                         f"{len(state)}")
    for i, u, s in zip(init, update, state):
        if len(u.shape) != len(s.shape) or len(i.shape) != len(s.shape) or u.op.is_placeholder:
            raise ValueError(f"scan '{name}': init {i}, update {u} and state {s} must have the same number of "
                             "dimensions, update be a te.compute")
    record = Scan(init, update, state, None)
    if any(u.op not in record.inner for u in update):
        raise ValueError(f"scan '{name}': an update does not read its state; use te.compute")
    record.inputs = [inputs] if isinstance(inputs, _core.Tensor) else list(inputs or record.outer)
    made = extern([tuple(s.shape) for s in state], [*init, *record.outer], record.statement, name,
                  [s.dtype for s in state], tag=tag, attrs=attrs, rows=record.rows())
    made = made if isinstance(made, list) else [made]
    extern_of(made[0].op).scan = record
    return made[0] if len(made) == 1 else made


def _copied(source, target, shape, on_threads):
    """The first steps, as they are given."""
    index = [_core.expr_var(f"i{d}", const(n).dtype, False) for d, n in enumerate(shape)]
    body = BufferStore(target, BufferLoad(source, index), index)
    *rest, last = zip(index, shape)
    for v, n in reversed(rest if on_threads else [*rest, last]):
        body = For(v, const(0), const(n), ForKind.SERIAL, body)
    if not on_threads:
        return body
    v, n = last
    return For(v, const(0), const(n), ForKind.THREAD_BINDING, body, _core.expr_iter_var(v.name, const(0), const(n), 1, "blockIdx.x"))


def ScanGetBody(scan_op):  # noqa: N802 (name of the established interface)
    """The operations of a scan: itself, its updates, and what they need of its states."""
    return [scan_op, *reversed(extern_of(scan_op).scan.inner)]


def ScanFixPointAnalysis(scan_op):  # noqa: N802
    """A dict from each of a scan's ``spatial_axis_`` to 1 if steps never mix its values (each depends on the same one of steps before), or 0."""
    return {a: const(int(apart)) for a, apart in zip(scan_op.spatial_axis_, extern_of(scan_op).scan.apart()[1:])}


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

    Raises
    ------
    ValueError
        If an input that is read is no parameter.
    """
    del index_dtype_override
    args = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    for op in operations([t.op for t in args]):
        if extern_of(op) is not None and extern_of(op).scan is not None:
            raise TypeError(f"Unsupported Operation: ScanOp. create_prim_func takes te.placeholder, te.compute and te.extern, not {op.name}")
        if op.is_placeholder and op.output(0) not in args:
            raise ValueError(f"create_prim_func: {op.output(0)} is read, but no parameter")
    sch = create_schedule([t.op for t in args if not t.op.is_placeholder])
    return function_of(sch._core, args, "llvm").with_attr({"global_symbol": "main"})
