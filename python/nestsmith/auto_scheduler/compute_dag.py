"""The compute DAG of a task, and what can be done with a state of it."""

import hashlib
import json
import math
import re
from collections import namedtuple

from .. import _core, te, tir
from ..registry import get_global_func
from ..states import core_state
from ..te import stored
from ..te.operation import rebuilt
from ..te.schedule import schedule_from_state
from ..tir.stmt_functor import with_args
from .loop_state import State
from .workload_registry import workload_key_to_tensors


class LayoutRewriteOption:
    """How a schedule may change the layout of constant inputs."""

    NO_REWRITE, INSERT_TRANSFORM_STAGE, REWRITE_FOR_PRE_TRANSFORMED = range(3)

    @staticmethod
    def get_target_default(target, in_relay_integration=False):
        """On CPUs and Mali pre-transformed inside a network; else with a transform stage on CPUs. On GPUs a kernel has no place for
        one (TVM asks for it on Mali, and cannot build what comes of it): no rewrite."""
        cpu = getattr(target.kind, "name", target.kind) in ("llvm", "c")
        mali = str(getattr(target, "attrs", {}).get("device", "")) == "mali"
        if in_relay_integration and (cpu or mali):
            return LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
        return LayoutRewriteOption.INSERT_TRANSFORM_STAGE if cpu else LayoutRewriteOption.NO_REWRITE


def get_shape_from_rewritten_layout(rewritten_layout, axis_names):
    """The shape of a tensor in its own layout, by the text of the layout that a schedule gave it.

    Parameters
    ----------
    rewritten_layout : str
        Extents and names of its axes from the outermost on: ``"4o16i2o8i"``.
    axis_names : list of str
        The axes in the order of the shape.

    Returns
    -------
    list of int
        Raises ValueError if the text names other axes.
    """
    parts = _layout_parts("rewritten_layout", rewritten_layout, axis_names)
    return [math.prod(n for n, name in parts if name == axis) for axis in axis_names]


def _layout_parts(what, text, axis_names):
    parts = re.findall(r"(\d+)([A-Za-z_]\w*?)(?=\d|$)", text)
    if "".join(n + name for n, name in parts) != text or {name for _, name in parts} - {*axis_names}:
        raise ValueError(f"{what} {text!r} has other axes than {', '.join(axis_names)}")
    return [(int(n), name) for n, name in parts]


def rewrite_tensor_shape(tensor, shape):
    """Gives a placeholder another shape in place. Raises ValueError for a computed tensor, and once something reads it."""
    _core.tensor_reshape(tensor, list(shape))


def remove_index_check(tensor):
    """Lets a tensor be read with any number of indices, so that a computation can be written as if a tensor that is stored in a layout
    of :func:`rewrite_compute_body` had its own shape. Until that function has replaced these reads they are of another placeholder."""
    _core.tensor_any_rank(tensor)


def rewrite_compute_body(compute_tensor, new_layout):
    """The computation with reads of a tensor's elements where a layout has them.

    Parameters
    ----------
    compute_tensor : te.Tensor
        It reads a tensor of :func:`remove_index_check`, with axes alone as indices.
    new_layout : str
        Extents and names of these axes from the outermost on: ``"4o16i2o8i"``. The tensor has one dimension for each part.

    Returns
    -------
    te.Tensor or tuple of te.Tensor
        Raises ValueError if nothing reads such a tensor, or the axes have other names.
    """
    found = []

    def put(e):
        of = _core.tensor_stands_for(e.symbol) if e.kind == "ProducerLoad" else None
        if of is None:
            return with_args(e, [put(a) for a in e.args]) if e.args and e.kind != "Reduce" else e
        found.append(of)
        axis, behind, index = {str(a): a for a in e.args}, dict.fromkeys(map(str, e.args), 1), []
        for n, name in reversed(_layout_parts("new_layout", new_layout, axis)):
            index.append(tir.indexmod(tir.indexdiv(axis[name], behind[name]), n))
            behind[name] *= n
        return of(*reversed(index))

    op = compute_tensor.op
    bodies = rebuilt(op.expressions, put)
    if not found:
        raise ValueError(f"rewrite_compute_body: {op.name} reads no tensor of remove_index_check with another number of indices")
    made = _core.te_compute(op.name, op.tag, op.axis, bodies, op.attrs)
    return made[0] if len(made) == 1 else made


HASH_FUNC = "auto_scheduler.compute_dag.hash_func"  # global function: simple text -> string or number, in place of md5


def has_own_hash():
    """Whether the user has registered a hash function of DAGs."""
    return get_global_func(HASH_FUNC, allow_missing=True) is not None


def _tensors_of(source):
    """(tensors, None or a tensor of each operation in the order of stages)"""
    if isinstance(source, str):
        return workload_key_to_tensors(source), None
    if isinstance(source, (list, tuple)) and len(source) > 0 and all(isinstance(t, te.Tensor) for t in source):
        return list(source), None
    if hasattr(source, "stages") and hasattr(source, "outputs"):  # a schedule, with the stages that its steps have inserted
        stages, outputs = source.stages, {(o if isinstance(o, te.Operation) else o.op) for o in source.outputs}
        ends = [s.op for s in stages if s.op.is_placeholder or {s.op, s.origin_op} & outputs]
        return [op.output(i) for op in ends for i in range(op.num_outputs)], [s.op.output(0) for s in stages]
    raise ValueError("ComputeDAG takes a workload key, a non-empty list of tensors or a schedule, not "
                     f"{type(source).__name__}")


OpFacts = namedtuple("OpFacts", ["name", "is_placeholder"])
TensorFacts = namedtuple("TensorFacts", ["name", "shape", "dtype", "op"])


class ComputeDAG(_core.ComputeDAG):
    """The operations of a computation in stage order.

    ``str(dag)`` lists them, one line per body; ``flop_ct`` counts the arithmetic of one run (-1 if unknown).

    Parameters
    ----------
    compute_or_sche : str, list of te.Tensor, or schedule
        A registered workload key, the tensors (inputs, then outputs), or a schedule.
    order : list of te.Tensor, optional
        With tensors: one of each operation, in the order of stages.
    """

    def __new__(cls, compute_or_sche, order=None):
        tensors, order = (compute_or_sche, order) if order else _tensors_of(compute_or_sche)
        for t in tensors:
            if not all(isinstance(s, int) for s in t.shape):
                raise ValueError(f"{t}: a tuning task needs constant shapes; replace te.var in shapes by integers")
        return super().__new__(cls, tensors, order) if order else super().__new__(cls, tensors)

    def __init__(self, compute_or_sche, order=None):
        super().__init__()
        self.workload = compute_or_sche if isinstance(compute_or_sche, str) else None

    def workload_key(self):
        """JSON text of the hash of the DAG and the shapes of its tensors."""
        hash_func = get_global_func(HASH_FUNC, allow_missing=True)
        if hash_func is None:
            return super().workload_key()
        return json.dumps([hash_func(self.text(simple=True)), *(list(t.shape) for t in self.tensors)])

    def hash_key(self):
        """md5 of the simple text."""
        return hashlib.md5(self.text(simple=True).encode()).hexdigest()

    def detach(self):
        """Lets go of the objects of te that it was made from, so that `te.scratch` can forget them.

        ``tensors`` describes them from then on (``name``, ``shape``, ``dtype``, ``op.name``, ``op.is_placeholder``), ``ops`` is empty,
        and it makes no schedules of te any more. States, programs and measurements need nothing of these.
        """
        self.hold([TensorFacts(t.name, tuple(t.shape), t.dtype, OpFacts(t.op.name, t.op.is_placeholder)) for t in self.tensors])

    # ---- states ----

    def wrap_state(self, core_state):
        """The engine's state as the State that users work with."""
        return State(core_state, self)

    def get_init_state(self):
        """The state without any step."""
        return self.wrap_state(_core.State(self))

    init_state = property(get_init_state)

    def infer_bound_from_state(self, state):
        """A new state with the ranges of all iterators; also of a state as a record holds it."""
        inner = core_state(state)
        inner = inner if isinstance(inner, _core.StateBase) else _core.State(self, inner.steps())
        return self.wrap_state(inner.infer_bounds())

    def print_python_code_from_state(self, state):
        """Equivalent code with the schedule primitives of ``te``."""
        return core_state(state).python()

    def apply_steps_from_state(self, state, layout_rewrite=LayoutRewriteOption.NO_REWRITE):
        """(schedule, tensors) for ``lower`` and ``build``."""
        return schedule_from_state(self, core_state(state), int(layout_rewrite))

    def state_from_schedule(self, schedule):
        """The state that does what a schedule of ``te`` does: it can be recorded, replayed and measured.

        Parameters
        ----------
        schedule : te.Schedule

        Returns
        -------
        State

        Raises
        ------
        ValueError
            If the schedule is of other operations.
        """
        return self.wrap_state(_core.State(self, schedule._core.steps_for(self)))

    def rewrite_layout_from_state(self, state):
        """A DAG whose layout-free inputs are stored in the order in which the state reads them."""
        return _core.dag_rewrite_layout(self, core_state(state).steps())

    def __reduce__(self):
        if self.workload is not None:
            return type(self), (self.workload,)
        return _from_json, (SaveJSON(self),)


def SaveJSON(obj):  # noqa: N802 (name of the established interface)
    """A ComputeDAG as a JSON text, which `LoadJSON` reads in any process. Raises TypeError for a computation that has none."""
    try:
        text = stored.dumps(obj.ops, obj.tensors)
        if str(_from_json(text)) == str(obj):
            return text
    except (TypeError, ValueError, AttributeError, KeyError):
        pass
    raise TypeError("this ComputeDAG has no text from which it could be made again; pickle the key of its task")


def _from_json(text):
    ops, tensors = stored.loads(text)
    return ComputeDAG(tensors, [op.output(0) for op in ops])


LoadJSON = _from_json
