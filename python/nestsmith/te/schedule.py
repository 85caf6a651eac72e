"""Schedules: how the loops of a computation are arranged.

>>> s = te.create_schedule(C.op)
>>> xo, xi = s[C].split(C.op.axis[0], factor=32)
"""

import importlib
import inspect
import json
import warnings

from .. import _absent, _core
from ..error import TVMValueError
from ..states import contexts
from ..tir.buffer import Buffer  # noqa: F401  (TVM's place)
from ..tir.expr import Range, const
from ..tir.stmt import engine_form, function_of
from .extern import extern_of, scans_of
from .operation import dependent, operations

AXIS_SEPARATOR = "axis_separator"
_OP, _ORIGIN, _LEAVES, _AXES, _OUTPUT, _ATTACH, _TARGET = range(7)
_UNROLL, _VECTORIZE, _PARALLEL = 1, 2, 3
_PRIMITIVES = dict(x.split(":") for x in (
    "SP:split FU:fuse RE:reorder PR:pragma SA:storage_align BI:bind CA:compute_at CI:compute_inline CR:compute_root CHR:cache_read CHW:cache_write "
    "RF:rfactor SC:set_scope DB:double_buffer PD:set_store_predicate MM:tensor_cores TL:transform_layout TZ:tensorize "
    "AN1:unroll AN2:vectorize AN3:parallel"
).split())  # by the step that each appends; "X" behind it: the form of our own


def _op_of(x, what="a tensor or an operation"):
    if isinstance(x, _core.Tensor):
        return x.op
    if isinstance(x, _core.Operation):
        return x
    raise TypeError(f"expected {what}, not {type(x).__name__}")


def create_schedule(ops):
    """The schedule in which every stage runs its plain loops at root.

    Parameters
    ----------
    ops : te.Operation or te.Tensor, or a list of them
        The outputs; everything they read becomes a stage, producers first.

    Returns
    -------
    Schedule
    """
    if not isinstance(ops, (list, tuple)):
        ops = [ops]
    outputs = list(dict.fromkeys(t.op for o in map(_op_of, ops) for t in (extern_of(o).outputs if extern_of(o) else [o.output(0)])))
    return Schedule(_core.Schedule(outputs), outputs)


def schedule_from_state(dag, state, layout_rewrite=0):
    """(schedule, tensors) of a state of the auto-scheduler; ``tensors`` are the arguments of the function."""
    core, tensors = _core.schedule_from_steps(dag, state.steps(), layout_rewrite)
    sch = Schedule(core, [])
    sch.of_steps = True
    sch.outputs = [s.origin_op for s in sch.stages if s.is_output]
    return sch, tensors


class Schedule:
    """Stages of a computation. ``s[T]`` is the stage of tensor (or operation) T.

    Attributes
    ----------
    stages : list of Stage
        In order of computation.
    outputs : list of te.Operation
    of_steps : bool
        It was made from a state of the auto-scheduler.
    """

    of_steps = False

    def __init__(self, core, outputs, inside=None):
        self._own, self.outputs, self.groups, self.separators, self.members, self.reads = core, list(outputs), [], {}, {}, {}
        self._kept = any(c.config.get("te.keep_schedule_record") for c in contexts()[-1:])
        self.inside = inside if inside is not None else {o: extern_of(o).scan.inside() for o in scans_of(self.outputs)}

    @property
    def _core(self):
        for op, sch in self.inside.items():
            attached, now, steps = extern_of(op).scan.attached, self._own.stage(self._own.find(op), _OP), sch.steps()
            if attached.get(now, "[]" if now == op else None) != steps:  # schedules of one computation share its operations
                self._settle(extern_of(op), sch)
                attached[now] = steps
        return self._own

    def _settle(self, record, sch):
        """Puts the loops of a scan's steps into its statement."""
        now = {t: Stage(self, t.op) for t in record.outputs if self._own.find(t.op) >= 0}
        op = next(iter(now.values()))._of(self._own, _OP)
        old = list(record.outputs[0].op.input_tensors)
        inputs = [list(op.input_tensors)[old.index(t)] for t in record.inputs]
        outs = [now[t]._of(self._own, _OP).output(t.value_index) if t in now else t for t in record.outputs]
        statement = engine_form(record.scan.statement(record.in_buffers, record.out_buffers, sch))
        numbers = [tuple(b.number for b in x) for x in (record.in_buffers, record.out_buffers)]
        _core.stmt_attach(statement, tuple(inputs), numbers[0], tuple(outs), numbers[1])

    @property
    def stages(self):
        """All stages, producers first."""
        return [Stage(self, self._core.stage(i, _ORIGIN)) for i in range(self._core.num_stages)]

    @property
    def stage_map(self):
        """Stages by the operation they were made from."""
        return {s.origin_op: s for s in self.stages}

    def _find(self, x):
        i = self._core.find(_op_of(x))
        if i < 0 and any(_op_of(x) in sch.members for sch in self.inside.values()):
            raise ValueError(f"{x} is computed in the steps of a te.scan: its loops and place there can be changed, its memory cannot")
        if i < 0:
            raise ValueError(f"the schedule has no stage of {x}; was it made from other tensors?")
        return i

    def __getitem__(self, x):
        if isinstance(x, Stage):
            return x
        for sch in self.inside.values():
            if _op_of(x) in sch.members:
                return sch[sch.members[_op_of(x)]]
        return Stage(self, self._core.stage(self._find(x), _ORIGIN))

    def __str__(self):
        return self._core.text()

    def __repr__(self):
        return f"Schedule({', '.join(s.op.name for s in self.stages)})"

    def copy(self):
        """An independent schedule with the same stages, axes and tensors."""
        out = Schedule(self._core.copy(), self.outputs, {o: s.copy() for o, s in self.inside.items()})
        out.groups, out.separators, out.members, out.reads = list(self.groups), dict(self.separators), self.members, self.reads
        out.arguments, out._kept = getattr(self, "arguments", None), self._kept
        return out

    def steps(self):
        """The schedule as a list of steps (JSON text): those of the auto-scheduler's logs, and further kinds for what
        these have no word for. `apply_steps` of another schedule of the same operations, or
        ``ComputeDAG.state_from_schedule``, does the same again."""
        return self._core.steps()

    def apply_steps(self, steps):
        """Appends the steps that another schedule of the same operations gave. Raises ValueError with the number of the
        step that does not fit; the schedule stays as it was."""
        self._core.replay(steps)

    def _record(self):
        """(number of steps, primitive) after the making and after each primitive, if they are kept."""
        steps = json.loads(self.steps()) if self._kept else []
        kinds = [f"AN{s[3]}" if s[0].startswith("AN") else s[0].rstrip("X") for s in steps]
        names = [_PRIMITIVES.get(k, "bind" if k.startswith("AN") else None) for k in kinds]
        return steps, [(0, "vanilla")] * self._kept + [(k, name) for k, name in enumerate(names, 1) if name]

    @property
    def primitive_record(self):
        """The names of the primitives that were applied, "vanilla" first; [] unless it was made under ``te.keep_schedule_record``."""
        return [name for _, name in self._record()[1]]

    @property
    def schedule_record(self):
        """The schedule as it was made and after each primitive; [] unless it was made under ``te.keep_schedule_record``."""
        steps, found = self._record()
        out = [create_schedule(self.outputs) for _ in found]
        for s, (k, _) in zip(out, found):
            s.apply_steps(json.dumps(steps[:k]))
        return out

    def normalize(self):
        """A copy; the engine normalises a schedule when it lowers it."""
        return self.copy()

    def cache_read(self, tensor, scope, readers):
        """A copy of ``tensor`` in memory ``scope`` that the stages of ``readers`` read instead; returns it."""
        if not isinstance(readers, (list, tuple)):
            readers = [readers]
        i = self._find(tensor)
        return self._core.cache_read(i, scope, [self._find(getattr(r, "origin_op", r)) for r in readers])[0]

    def cache_write(self, tensor, scope):
        """Computes ``tensor`` (or all outputs of one operation, as a list) in a cache of memory ``scope`` first.

        Returns the cache tensor (a list for a list). The stage of ``tensor`` then copies from the cache, and its axes
        are the plain ones again. Raises ValueError if
        the tensors are not all outputs of one operation.
        """
        many = isinstance(tensor, (list, tuple))
        tensors = list(tensor) if many else [tensor]
        ops = {_op_of(t) for t in tensors}
        if len(ops) != 1:
            raise ValueError("cache_write takes the outputs of one operation")
        op = ops.pop()
        if len(tensors) != op.num_outputs:
            raise ValueError(f"cache_write: all {op.num_outputs} outputs of {op.name} must be given together")
        out = self._core.cache_write(self._find(op), scope)
        return out if many else out[0]

    def rfactor(self, tensor, axis, factor_axis=0):
        """Splits the reduction of ``tensor`` along ``axis`` into independent partial results.

        Returns the tensor of partial results, with ``axis`` as data axis number ``factor_axis`` (negative: from the
        end). Fetch the axes of ``tensor`` again afterwards.
        """
        out = self._core.rfactor(self._find(tensor), axis, factor_axis)
        return out[0] if len(out) == 1 else out

    def create_group(self, outputs, inputs, include_inputs=False):
        """The stages between tensors as a :class:`Group`, which are attached together.

        Parameters
        ----------
        outputs, inputs : te.Tensor, or a list of them
            The last ones, which belong to it, and the first ones.
        include_inputs : bool
            Whether these belong to it.

        Returns
        -------
        Group

        Raises
        ------
        ValueError
            If stages of some other group, and others, would belong to it.
        """
        outs, ins = ([_op_of(t) for t in (x if isinstance(x, (list, tuple)) else [x])] for x in (outputs, inputs))
        for sch in self.inside.values():
            if any(o in sch.members for o in outs):
                places = {**sch.members, **sch.reads}
                return sch.create_group([places.get(o, o) for o in outs], [places.get(i, i) for i in ins], include_inputs)
        members = _between(outs, ins)
        if include_inputs:
            members = [i for i in ins if i not in members and self._core.find(i) >= 0] + members
        return Group(self, members)


def _between(outs, ins):
    """`outs`, and the operations behind them that depend on `ins`, producers first."""
    ops = operations(outs, lambda op: () if op in ins else op.input_tensors)
    depend = dependent(ops, ins)
    return [op for op in ops if op in outs or (op in depend and op not in ins and not op.is_placeholder)]


class Group:
    """Stages that are attached together; :meth:`Schedule.create_group` makes one.

    Parameters
    ----------
    schedule : Schedule
    members : list of Operation
        All that it groups, those of groups in it among them.

    Attributes
    ----------
    group : Group or None
        The one that it is a part of.
    attach_stage : Stage or None
        Where it is attached.

    Raises
    ------
    ValueError
        If the stages belong to different groups.
    """

    def __init__(self, schedule, members):
        self._s, self.attach_stage = schedule, None
        inside = set(members)
        above = {id(g): g for g in (self._top(m, inside) for m in members) if g is not None}
        parents = {id(_group_of(schedule, m)): _group_of(schedule, m) for m in members if not self._within(_group_of(schedule, m), inside)}
        if len(parents) > 1:
            raise ValueError("create_group: its stages belong to different groups")
        self.group = next(iter(parents.values()), None) if parents else next((c.group for c in above.values()), None)
        for c in above.values():
            c.group = self
        grouped = {o for c in above.values() for o in c.operations()}
        self._ops, self._groups = [m for m in members if m not in grouped], list(above.values())
        for other in schedule.groups:
            other._ops = [o for o in other._ops if o not in self._ops]
        schedule.groups.append(self)

    @staticmethod
    def _within(group, inside):
        return group is not None and set(group.operations()) <= inside

    def _top(self, op, inside):
        """The largest group of an operation all of which will be inside."""
        g, found = _group_of(self._s, op), None
        while self._within(g, inside):
            g, found = g.group, g
        return found

    def operations(self):
        """Operations of all its stages, those of groups in it among them."""
        return [*[o for g in self._groups for o in g.operations()], *self._ops]

    @property
    def num_child_stages(self):
        """Stages and groups directly in it."""
        return len(self._ops) + len(self._groups)

    def compute_at(self, parent, scope):
        """Computes its stages, as far as they are not attached elsewhere, inside loop ``scope`` of stage ``parent``."""
        parent = self._s[parent]
        order = {s.origin_op: i for i, s in enumerate(self._s.stages)}
        for op in sorted(self.operations(), key=lambda o: -order[o]):
            if self._s[op].attach_type == 1:
                self._s[op].compute_at(parent, scope)
        self.attach_stage = parent

    def compute_root(self):
        """Computes its stages before their readers."""
        for op in self.operations():
            self._s[op].compute_root()
        self.attach_stage = None


def _group_of(schedule, op):
    return next((g for g in schedule.groups if op in g._ops), None)


class Stage:
    """The loops of one operation. All primitives change the schedule in place."""

    def __init__(self, schedule, origin):
        self._s, self._origin = schedule, origin

    _core = property(lambda self: self._s._core)
    _id = property(lambda self: self._s._core.find(self._origin))

    def _get(self, what):
        return self._core.stage(self._id, what)

    def _of(self, core, what):
        return core.stage(core.find(self._origin), what)

    op = property(lambda self: self._get(_OP), doc="The operation as it is now, after cache_write and rfactor.")
    origin_op = property(lambda self: self._origin, doc="The operation as it was first.")
    leaf_iter_vars = property(lambda self: self._get(_LEAVES), doc="The loops, outermost first.")
    all_iter_vars = property(lambda self: self._get(_AXES), doc="Every axis ever made, in order of making.")
    is_output = property(lambda self: self._get(_OUTPUT), doc="True for the outputs of the schedule.")
    attach_type = property(lambda self: (1, 2, 4)[self._get(_ATTACH)], doc="1 root, 2 inlined, 4 at a loop.")

    group = property(lambda self: _group_of(self._s, self._origin), doc="The :class:`Group` that it is in, or None.")

    @property
    def attach_stage(self):
        """The stage at a loop of which this one is computed, or None."""
        i = self._get(_TARGET)
        return None if i < 0 else Stage(self._s, self._core.stage(i, _ORIGIN))

    def __repr__(self):
        return f"stage({self.op.name})"

    def __eq__(self, other):
        return isinstance(other, Stage) and self._s is other._s and self._origin == other._origin

    def __hash__(self):
        return hash(self._origin)

    # ---- loops ----

    def split(self, parent, factor=None, nparts=None):
        """(outer, inner) of ``parent``: ``factor`` gives the inner extent or ``nparts`` the outer one.
        Raises ValueError unless exactly one of them is given.
        """
        if (factor is None) == (nparts is None):
            raise ValueError("split needs either factor or nparts")
        return self._core.split(self._id, parent, factor, nparts)

    def tile(self, x_parent, y_parent, x_factor, y_factor):
        """Splits two axes and orders them (x outer, y outer, x inner, y inner); returns them in this order."""
        xo, xi = self.split(x_parent, factor=x_factor)
        yo, yi = self.split(y_parent, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def fuse(self, *args):
        """One axis out of several adjacent ones, outermost first; without arguments an axis of extent 1."""
        if not args:
            return self._core.fuse(self._id)
        fused = args[0]
        for a in args[1:]:
            fused = self._core.fuse(self._id, fused, a)
        return fused

    def reorder(self, *args):
        """The given axes take, in this order, the positions they hold now; all others stay."""
        self._core.reorder(self._id, list(args))

    def bind(self, ivar, thread_ivar):
        """Loop ``ivar`` becomes the hardware (or virtual) thread axis ``thread_ivar``."""
        self._core.bind(self._id, ivar, thread_ivar)

    def unroll(self, var):
        """Unrolls the loop fully."""
        self._core.annotate(self._id, var, _UNROLL)

    def vectorize(self, var):
        """Makes the loop one vector operation; a reduction axis is an error."""
        self._core.annotate(self._id, var, _VECTORIZE)

    def parallel(self, var):
        """Spreads the loop over CPU threads."""
        self._core.annotate(self._id, var, _PARALLEL)

    def pragma(self, var, pragma_type, pragma_value=None):
        """Attaches a hint to the loop, e.g. ``("auto_unroll_max_step", 64)``; unknown hints are ignored."""
        value = pragma_value
        self._core.pragma(self._id, var, pragma_type, int(value) if isinstance(value, (int, bool)) else 1)

    def storage_align(self, axis, factor, offset):
        """The stride of the dimension of ``axis`` becomes ``offset`` modulo ``factor`` (against bank conflicts)."""
        self._core.storage_align(self._id, axis, factor, offset)

    def transform_layout(self, mapping_function):
        """Gives the tensor other dimensions, and its loops with it; whoever reads it reads it there.

        Parameters
        ----------
        mapping_function : callable
            From the indices to a list of the new ones: sums, products with constants, quotients and remainders by constants, such as
            ``lambda n, c: [n, c // 4, c % 4]``. ``*indices`` takes those that no parameter names, keyword-only parameters the last ones.
            ``te.AXIS_SEPARATOR`` between two says where dimensions of the memory begin; memory of CPUs and GPUs has one.

        Returns
        -------
        list of IterVar
            The new axes. An argument of the function has the new shape.

        Raises
        ------
        ValueError
            If the new tensor had gaps or the indices cannot be told from the new ones, or loops of the stage are changed already.
        """
        shape, spec = self.op.output(0).shape, inspect.getfullargspec(mapping_function)
        old = [_core.expr_var(f"${i}", const(s).dtype, False) for i, s in enumerate(shape)]
        if spec.varargs is None and len(spec.args) + len(spec.kwonlyargs) != len(old):
            raise ValueError(f"transform_layout of {self.op.name}: the function takes {len(spec.args)} indices, the tensor has {len(old)}")
        first = len(old) - len(spec.kwonlyargs)
        new = list(mapping_function(*old[:first], **dict(zip(spec.kwonlyargs, old[first:]))))
        marks = [i for i, e in enumerate(new) if isinstance(e, str) and e == AXIS_SEPARATOR]
        self._core.apply("TL", self._id, ";".join(str(const(e)) for i, e in enumerate(new) if i not in marks))
        self._s.separators[self._origin] = [i - k for k, i in enumerate(marks)]
        return list(self.op.axis)

    # ---- placement ----

    def compute_at(self, parent, scope):
        """Computes this stage inside loop ``scope`` of stage ``parent``. Raises TVMValueError where one of the two is computed in the steps of
        a ``te.scan`` and the other is not.
        """
        parent = self._s[parent]
        if parent._s is not self._s:
            raise TVMValueError(f"compute_at: of {self.op.name} and {parent.op.name}, one is computed in the steps of a te.scan, the other is not")
        self._core.compute_at(self._id, parent._id, scope)

    def compute_inline(self):
        """Puts the expression into all readers; the stage disappears."""
        self._core.compute_inline(self._id)

    def compute_root(self):
        """Computes the stage as a whole, before its readers."""
        self._core.compute_root(self._id)

    def set_scope(self, scope):
        """Memory of the stage's buffer: ``global``, ``shared``, ``local`` or ``warp``."""
        self._core.set_scope(self._id, scope)

    def double_buffer(self):
        """Two copies of the buffer, so that one is filled while the other is read. Raises ValueError for an
        output stage.
        """
        if self.is_output:
            raise ValueError("an output stage cannot be double buffered")
        self._core.double_buffer(self._id)

    def tensor_cores(self, block, warp, stages=3, transposed=False, split=1, terms=1, warpgroups=0, wide=False, teams=1, last=False):
        """Computes the stage, with the one sum that is computed inside it, as a product of matrices on tensor cores, or by lanes.

        The stage is a sum of products, or reads one at the place where it stores; in that case the sum is put at its last
        loop with :meth:`compute_at`. Axes of the result that only one factor has are the rows (m) or the columns (n) of the
        product, the last axis belongs to n, or to m if ``transposed``; those that both have are a batch. Padding and other
        stages in front of the sum are inlined. The stage's loops are neither split nor bound: its tiles are given here.

        16-bit floats are multiplied exactly and added up in float32, int8 and uint8 in int32. float32 factors are rounded to TF32 (10 bits behind
        the first): whoever asks for this allows it. With ``terms=3`` each is the sum of two such numbers, and a product is the
        sum of three (all but that of the two small parts): as accurate as float32, which docs/numerics.md says in full. With
        ``terms=0`` they stay float32: the lanes of a warp multiply and add them by themselves, in the same kernel.

        Parameters
        ----------
        block : tuple of int
            Rows, columns and slice of the sum (m, n, k) that a block of threads works on at a time.
        warp : tuple of int
            Rows (a multiple of 16, with ``terms=0`` of 8) and columns (of 8) of the block that one warp computes.
        stages : int
            Slices in shared memory, 2 to 8: all but one are on their way while one is multiplied. Below compute capability 8.0 one is, by
            way of registers: two or three do.
        transposed : bool
            Whether rows and columns change places.
        split : int
            Blocks that share the sum of one tile, 1 to 64, where there are too few tiles for the device: each takes a part of k,
            and the parts are added up, always in the same order: by a second kernel, or from compute capability 9.0 on and for
            up to 8 blocks by these blocks themselves, which are a cluster then, or with ``last`` by one of them.
        terms : int
            Of a product of float32 factors: 1 (TF32), 3 ("float32x3"), or 0 (by lanes, strictly). 2: products of float16 are added
            up in float16, where the definition brings sums to it.
        warpgroups : int
            0: warps multiply what they have loaded into registers (``mma.sync``). 1 or 2: warpgroups of four warps multiply what
            lies in shared memory (``wgmma``, compute capability 9.0): ``warp`` is such a group's tile, a multiple of 64 x 8,
            a slice has 32, 64 or a multiple of 128 bytes along k, and so many slices are multiplied at a time. TF32 factors are cut off
            then, not rounded.
        wide : bool
            Whether results pass through shared memory, so that threads store up to four neighbours each and a warp whole lines.
            Not for sums that blocks share.
        teams : int
            With ``terms=0``: so many warps share a warp's tile, each with a part of k of every slice, and add up in shared memory.
        last : bool
            With a ``split``: whether the block that is done last adds up the parts of its tile, in place of a cluster or a second
            kernel.

        Raises
        ------
        ValueError
            For sizes that no machine can do. Lowering raises it if the stage is no such product or the target no CUDA device
            that has them: 7.0 is the first by lanes, 7.5 of float16 and 8 bits, 8.0 of bfloat16 and float32 on tensor cores.
        """
        self._core.tensor_cores(self._id, tuple(block), tuple(warp), stages, transposed, split, terms, warpgroups, wide, teams, last)

    def set_store_predicate(self, predicate):
        """Stores the result only where ``predicate`` holds; it may use axes of the stage and thread axes around it.

        What is not stored keeps its old content. Raises TypeError if ``predicate`` is no condition; lowering raises
        ValueError if it uses a variable that is not known where the stage stores.
        """
        self._core.set_store_predicate(self._id, predicate)

    def tensorize(self, var, tensor_intrin):
        """Puts a tensor intrinsic (``te.decl_tensor_intrin``) in the place of loop ``var`` and those inside.

        Lowering raises ValueError, with both, if the loops compute something else than the intrinsic.
        """
        leaves = list(self.all_iter_vars)
        axis = next((i for i, a in enumerate(leaves) if a == var or a.var == getattr(var, "var", None)), None)
        if axis is None:
            raise ValueError(f"tensorize: {var} is no loop of stage {self.op.name}")
        self._core.apply("TZ", self._id, axis, _core.tensor_number(tensor_intrin.known[0]))

    def prefetch(self, tensor, var, offset):
        """A hint this compiler has no use for."""
        warnings.warn("prefetch has no effect", stacklevel=2)

    def rolling_buffer(self):
        """Not supported. Raises NotImplementedError."""
        raise NotImplementedError("rolling_buffer is not supported; use compute_at")

    def env_threads(self, threads):
        """Not supported: there are no scan operations. Raises NotImplementedError."""
        raise NotImplementedError("env_threads belongs to scan operations, which are not supported")


def InferBound(sch):  # noqa: N802 (name of the established interface)
    """Ranges of all axes: a dict from axis to :class:`Range`. Raises ValueError if a stage is attached wrongly."""
    found = {axis: Range.from_min_extent(lo, extent) for row in sch._core.bounds() for axis, lo, extent in row}
    for record in (extern_of(s.op) for s in sch.stages):
        if record is not None and record.scan is not None:
            known, axis = record.scan.init[0].shape[0], record.scan.scan_axis
            found[axis] = Range.from_min_extent(const(known), const(axis.extent) - known)
    return found


def ScheduleOps(sch, bounds, debug_keep_trivial_loop=False):  # noqa: N802 (name of the established interface)
    """The loops of a schedule as a statement; all placeholders and outputs are there, the rest is allocated inside.

    ``bounds``: those of :func:`InferBound`; the engine finds them by itself.
    """
    del bounds, debug_keep_trivial_loop
    ops = [s.origin_op for s in sch.stages]
    args = [o.output(i) for o in ops if o.is_placeholder or o in sch.outputs for i in range(o.num_outputs)]
    return function_of(sch._core, args, "llvm").body


def CreateReadGraph(ops):  # noqa: N802
    """A dict from each operation behind `ops` to the tensors that it reads."""
    return {op: list(op.input_tensors) for op in operations(ops)}


def PostDFSOrder(outputs, graph):  # noqa: N802
    """The operations of a graph of :func:`CreateReadGraph`, what is read first."""
    return operations(outputs, graph.get)


def _inline(sch, wanted):
    for stage in sch.stages:
        op = stage.op
        plain = not op.is_placeholder and not len(op.reduce_axis) and not stage.is_output and stage.attach_type == 1
        if plain and wanted(op):
            stage.compute_inline()


def _reads_its_own_index(op, tensors_of_rank=True):
    """Whether each element reads all tensors at its own position (or, of those of lower rank, anywhere)."""
    own, ok = [a.var for a in op.axis], True
    stack = list(op.expressions)
    while stack:
        e = stack.pop()
        if e.kind == "ProducerLoad" and (tensors_of_rank or len(e.symbol.shape) == len(own)):
            ok = ok and len(e.args) == len(own) and all(hash(a) == hash(b) for a, b in zip(e.args, own))
        stack += e.args
    return ok


def AutoInlineElemWise(sch):  # noqa: N802 (names of the established interface)
    """Inlines all stages that compute each element from the same ones of others."""
    _inline(sch, _reads_its_own_index)


def AutoInlineBroadcast(sch):  # noqa: N802
    """Inlines all stages that compute each element from the same ones of others, and of tensors that are repeated."""
    _inline(sch, lambda op: (op.tag or "").startswith("broadcast") or _reads_its_own_index(op, False))


def AutoInlineInjective(sch):  # noqa: N802
    """Inlines all stages that are no reductions."""
    _inline(sch, lambda op: True)


def __getattr__(name):
    if name in ("ScanGetBody", "ScanFixPointAnalysis"):
        return getattr(importlib.import_module("nestsmith.te.scan"), name)
    raise _absent.attribute_error(__name__, name)
