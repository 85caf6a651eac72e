"""Loop states: what a list of transform steps makes of a compute DAG.

>>> s = dag.get_init_state()
>>> its = s.split(C, s[C].iters[0], [8, 4])
>>> s.parallel(C, its[0])
"""

import dataclasses
from typing import Any

from .. import _core, te

# Codes of annotations, as in the state text and in records.
ANNOTATION_TABLE = {
    "none": 0, "unroll": 1, "vectorize": 2, "parallel": 3, "vthread": 4, "blockIdx.x": 5, "threadIdx.x": 6,
    "blockIdx.y": 7, "threadIdx.y": 8, "blockIdx.z": 9, "threadIdx.z": 10, "tensorize": 11,
}


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Range:
    """Half-open range; ``min`` or ``extent`` is the text of an expression where it is symbolic."""

    min: Any
    extent: Any

    def __repr__(self):
        return f"range(min={self.min}, ext={self.extent})"


class Iterator:
    """One loop: ``name``, ``range`` (None if unknown), ``iter_kind`` (0 spatial, 1 reduction, 2 mixed, 3 special),
    ``annotation`` (a code of :data:`State.ANNOTATION_TRANS_TABLE`)."""

    __slots__ = "name", "range", "iter_kind", "annotation"

    def __init__(self, name, kind, annotation, lo, extent):
        self.name, self.iter_kind, self.annotation = name, kind, annotation
        self.range = None if lo is None else Range(lo, extent)

    def __repr__(self):
        return f"{self.name} ({self.range.min},{self.range.extent})" if self.range else f"{self.name} (None)"


@dataclasses.dataclass(frozen=True, repr=False)
class StageOp:
    """An operation that a step made (a cache or a partial reduction); it serves as a key for its stage."""

    name: str

    def __repr__(self):
        return f"compute({self.name})"


class StateStage:
    """One stage: ``op``, ``iters``, ``op_type`` (0 placeholder, 1 compute), ``compute_at``."""

    COMPUTE_AT_TRANS_TABLE = {"root": 0, "inlined": 1, "iter": 2}

    def __init__(self, op, iters, op_type, compute_at, home=None):
        self.op, self.iters, self.op_type, self.compute_at = op, iters, op_type, compute_at
        self._home = home  # (state, number of the stage)

    @property
    def n_axes(self):
        """Number of loops that the operation has without any step: axes and reductions."""
        if isinstance(self.op, te.Operation):
            return len(getattr(self.op, "axis", ())) + len(getattr(self.op, "reduce_axis", ()))
        state, at = self._home
        return len(self.iters) - _added(state.transform_steps, at)

    def __repr__(self):
        return f"StateStage({self.op.name}, {self.iters})"


Stage = StateStage


def _added(steps, stage):
    """How many loops the steps have added to a stage since a step made its operation."""
    count = 0
    for step in reversed(steps):
        if step[0] in _core.STEP_INSERTS:
            new = step[1] + _core.STEP_INSERTS[step[0]]
            if stage == new or (stage in (step[1], step[1] + 1) and step[0] != "CHR"):
                return count
            stage -= stage > new
        elif len(step) > 2 and step[1] == stage:
            count += {"SP": lambda s: len(s[4]), "FSP": lambda s: s[4], "FFSP": lambda s: 1, "FU": lambda s: 1 - len(s[2])}.get(
                step[0], lambda s: 0)(step)  # fmt: skip
    return count


class Step(tuple):
    """One transform step: the tuple of a record, e.g. ``("SP", 2, 0, 64, [4, 8], 1)``."""

    mnemonic = property(lambda self: self[0], doc="The kind of step: ``SP``, ``FU``, ``CA``, ...")
    stage_id = property(lambda self: self[1], doc="Number of the stage that it transforms.")


class State:
    """A step list, the loops it makes, and methods that append one step each and change the state in place.

    A stage is given by its number, its operation, or a tensor of it; a loop by the Iterator object found in
    ``state[stage].iters`` or returned by a method. Invalid steps raise ``ValueError`` and change nothing.

    Parameters
    ----------
    state_object : StateObject or State
        What to start from, for example what a sketch rule is given. It is not changed by what is done here. Of a
        State the operations and iterators are valid here too.
    dag : ComputeDAG
        For example ``policy.search_task.compute_dag``.

    Raises
    ------
    TypeError
        If either is something else.
    """

    ANNOTATION_TRANS_TABLE = ANNOTATION_TABLE

    def __init__(self, state_object, dag):
        source = state_object if isinstance(state_object, State) else None
        inner = source.state_object if source else state_object
        if not isinstance(inner, (_core.State, _core.Candidate)):
            raise TypeError(f"state_object is a {type(inner).__name__}; it must be a State or the state_object of one")
        if not isinstance(dag, _core.ComputeDAG):
            raise TypeError(f"dag is a {type(dag).__name__}; it must be a ComputeDAG, such as task.compute_dag")
        self._handle, self._shared, self.compute_dag = inner, True, dag  # copied before the first change
        self._made = inner if isinstance(inner, _core.State) else None  # else when somebody looks at it
        self._op_list = self._stages = None
        if source:
            self._stages = [StateStage(s.op, list(s.iters), s.op_type, s.compute_at, (self, i)) for i, s in enumerate(source.stages)]

    @property
    def _object(self):
        if self._made is None:
            self._made = self._handle.state()
        return self._made

    @property
    def handle(self):
        """What the engine takes as this state: the candidate that a search made of it, or ``state_object``."""
        return self._handle or self.state_object

    @property
    def state_object(self):
        """The engine's state as it is now; later changes of this State make a new one."""
        self._shared = True
        return self._object

    # ---- looking at it ----

    @property
    def _ops(self):
        """Operations by stage: those of the DAG in order, with a StageOp for every stage that a step inserted."""
        if self._op_list is None:
            self._op_list = list(self.compute_dag.ops)
            for step in self.transform_steps:
                self._insert_op(step)
            self._name_ops()
        return self._op_list

    def _insert_op(self, step):
        if step[0] in _core.STEP_INSERTS:
            self._ops.insert(step[1] + _core.STEP_INSERTS[step[0]], None)

    def _name_ops(self):
        names = [s[0] for s in self._object.stages()]
        self._op_list = [StageOp(n) if o is None else o for o, n in zip(self._ops, names)]

    @property
    def stages(self):
        """All stages, in order of computation."""
        if self._stages is None:
            rows = self._object.stages()
            self._stages = [StateStage(op, [Iterator(*it) for it in its], kind, at, (self, i))
                            for i, (op, (_, kind, at, its, _, _)) in enumerate(zip(self._ops, rows))]
        return self._stages

    stage_ops = property(lambda self: list(self._ops), doc="The operations of the stages.")

    @property
    def transform_steps(self):
        """The steps so far, as tuples laid out like in a record."""
        return [Step(s) for s in self._object.step_tuples()]

    concrete = property(lambda self: self._object.concrete, doc="False while a split length is open.")

    __iter__ = None  # stages are asked for one by one

    def __getitem__(self, stage):
        return self.stages[self._stage(stage)]

    def __str__(self):
        return str(self._object)

    def __repr__(self):
        return str(self)

    def __eq__(self, other):
        return isinstance(other, State) and str(self) == str(other)

    def __hash__(self):
        return hash(str(self))

    def copy(self):
        """An independent state; operations and iterators of this one are valid there too."""
        return State(self, self.compute_dag)

    def __reduce__(self):
        if not self.concrete:
            raise TypeError("a state with open split lengths cannot be pickled; give it lengths first")
        return _restore, (self.compute_dag, self._object.steps(), self._object.bounded)

    def _stage(self, x):
        if isinstance(x, int) and not isinstance(x, bool):
            if not 0 <= x < len(self._ops):
                raise ValueError(f"stage {x} does not exist: the state has stages 0 to {len(self._ops) - 1}")
            return x
        op = x.op if isinstance(x, te.Tensor) else x
        if op not in self._ops:
            raise ValueError(f"the state has no stage of {x!r}")
        return self._ops.index(op)

    def _iter(self, stage, it):
        for i, x in enumerate(self.stages[stage].iters):
            if x is it:
                return i
        raise ValueError(f"{it!r} is not an iterator of stage {stage} ({self._ops[stage].name}) any more; it has "
                         f"{self.stages[stage].iters}")

    # ---- changing it ----

    def _apply(self, *step):
        """Appends one step; iterators of other stages and unchanged ones of this stage stay the same objects."""
        before = self.stages
        if self._shared:
            self._made, self._handle, self._shared = self._object.copy(), None, False
        self._object.apply(*step)
        self._insert_op(step)
        self._stages = None
        if step[0] in _core.STEP_INSERTS:
            self._stage_inserted(step, before)
            return
        after = self.stages
        for i, (old, new) in enumerate(zip(before, after)):
            if i != step[1]:
                new.iters = old.iters
        keep = {(repr(x), x.annotation): x for x in before[step[1]].iters}
        after[step[1]].iters = [keep.get((repr(x), x.annotation), x) for x in after[step[1]].iters]

    def _stage_inserted(self, step, before):
        """Stages behind the new one moved up by one; all but the cached or factored stage keep their iterators."""
        self._name_ops()
        behind = _core.STEP_INSERTS[step[0]]
        at = step[1] + behind
        for i, old in enumerate(before):
            if behind or i != step[1]:
                self.stages[i + (i >= at)].iters = old.iters

    def _annotate(self, stage, it, code):
        return self._split(1, "AN", stage, it, code)[0]

    def bind(self, stage, iterator, thread_name):
        """Binds the loop to ``vthread``, ``blockIdx.x``, ``threadIdx.x``, ...; returns the new iterator. Raises ValueError for another name."""
        code = ANNOTATION_TABLE.get(thread_name, 0)
        if not 4 <= code <= 10:
            names = ", ".join(k for k, v in ANNOTATION_TABLE.items() if 4 <= v <= 10)
            raise ValueError(f"thread name {thread_name!r} is not one of {names}")
        return self._annotate(stage, iterator, code)

    def parallel(self, stage, iterator):
        """Spreads the loop over CPU threads; returns the new iterator."""
        return self._annotate(stage, iterator, 3)

    def unroll(self, stage, iterator, max_unroll=None):
        """Unrolls the loop, unless its known extent exceeds ``max_unroll``; returns the (new) iterator."""
        extent = iterator.range.extent if iterator.range else None
        if max_unroll is not None and isinstance(extent, int) and extent > max_unroll:
            return iterator
        return self._annotate(stage, iterator, 1)

    def vectorize(self, stage, iterator):
        """Makes the loop one vector operation; returns the new iterator."""
        return self._annotate(stage, iterator, 2)

    def fuse(self, stage, iters):
        """One loop out of consecutive ones; returns it."""
        stage = self._stage(stage)
        ids = [self._iter(stage, it) for it in iters]
        self._apply("FU", stage, ids)
        return self.stages[stage].iters[ids[0] if ids else 0]

    def pragma(self, stage, iterator, pragma_type):
        """``auto_unroll_max_step$N`` or ``debug_skip_region`` on a loop."""
        stage = self._stage(stage)
        self._apply("PR", stage, self._iter(stage, iterator), pragma_type)

    def reorder(self, stage, order):
        """New order of all loops of the stage, outermost first."""
        stage = self._stage(stage)
        self._apply("RE", stage, [self._iter(stage, it) for it in order])

    def _split(self, parts, kind, stage, iterator, *how):
        stage = self._stage(stage)
        i = self._iter(stage, iterator)
        self._apply(kind, stage, i, *how)
        return self.stages[stage].iters[i : i + parts]

    def split(self, stage, iterator, lengths, inner_to_outer=True):
        """Splits a loop; ``lengths`` from outer to inner without the outermost (``inner_to_outer``) or innermost one.

        A length may be None (left to the search). Returns the new iterators, outermost first.
        """
        extent = iterator.range.extent if iterator.range and isinstance(iterator.range.extent, int) else 0
        return self._split(len(lengths) + 1, "SP", stage, iterator, extent, list(lengths), int(inner_to_outer))

    def follow_split(self, stage, iterator, src_step_id, n_split):
        """Splits a loop like an earlier split step; returns ``n_split + 1`` iterators."""
        return self._split(n_split + 1, "FSP", stage, iterator, src_step_id, n_split)

    def follow_fused_split(self, stage, iterator, src_step_ids, level, factor_or_nparts):
        """Splits a loop by the product of one level of several split steps; returns two iterators."""
        return self._split(2, "FFSP", stage, iterator, list(src_step_ids), level, int(factor_or_nparts))

    def storage_align(self, stage, iterator, factor, offset):
        """The stride of the loop's dimension becomes ``offset`` modulo ``factor``."""
        stage = self._stage(stage)
        self._apply("SA", stage, self._iter(stage, iterator), factor, offset)

    def compute_at(self, stage, target_stage, target_iter):
        """Computes the stage inside a loop of another one."""
        target = self._stage(target_stage)
        self._apply("CA", self._stage(stage), target, self._iter(target, target_iter))

    def compute_inline(self, stage):
        """Puts the stage's expression into its readers."""
        self._apply("CI", self._stage(stage))

    def compute_root(self, stage):
        """Computes the stage as a whole, before its readers."""
        self._apply("CR", self._stage(stage))

    def double_buffer(self, stage):
        """Two copies of the stage's buffer, so that one is filled while the other is read; not for an output.

        Other readers of logs do not know the step: it travels in a record's field ``v``, and they see the state without it.
        """
        self._apply("DB", self._stage(stage))

    def cache_read(self, stage, scope_name, reader_stages):
        """A copy of the stage's result in memory ``scope_name`` for the given readers; returns the new operation."""
        stage = self._stage(stage)
        self._apply("CHR", stage, scope_name, [self._stage(r) for r in reader_stages])
        return self._ops[stage + 1]

    def cache_write(self, stage, scope_name):
        """Computes the stage in memory ``scope_name`` first; returns the new operation."""
        stage = self._stage(stage)
        self._apply("CHW", stage, scope_name)
        return self._ops[stage]

    def rfactor(self, stage, iterator, factor_iter_id):
        """Partial results along a reduction loop; returns the new operation."""
        stage = self._stage(stage)
        self._apply("RF", stage, self._iter(stage, iterator), factor_iter_id)
        return self._ops[stage]


def _restore(dag, steps, bounded):
    """The state of what pickling keeps of it."""
    state = _core.State(dag, steps)
    return State(state.infer_bounds() if bounded else state, dag)


StateObject = _core.State
