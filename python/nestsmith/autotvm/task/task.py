"""Tasks: a template with its arguments and target.

A template is registered by `template` as one function, or by `topi_integration.register_topi_compute` and
``register_topi_schedule`` as two halves. `create` runs it once to collect its knobs.
"""

from __future__ import annotations

import logging

from ... import _core, te
from ...check import did_you_mean
from ...target import Target
from ...tir.expr import Expr, as_const_int
from .dispatcher import ApplyConfig, DispatchContext
from .space import ConfigSpace

__all__ = ["FlopCalculationError", "MissingTask", "Task", "TaskTemplate", "args_to_workload", "compute_flop", "create",
           "deserialize_args", "get_config", "serialize_args", "template"]

logger = logging.getLogger("autotvm")

TASK_TABLE: dict[str, TaskTemplate] = {}


# ---- arguments ----


def _serial(x):
    if isinstance(x, te.Tensor):
        return "TENSOR", tuple(_dimension(d) for d in x.shape), str(x.dtype)
    if isinstance(x, (tuple, list)):
        return tuple(_serial(e) for e in x)
    if isinstance(x, bool):
        return int(x)
    if x is None or type(x) in (str, int, float):
        return x
    if isinstance(x, str):
        return str(x)
    if isinstance(x, Expr):
        return x if x.kind == "Var" else _constant(x)
    if hasattr(x, "__index__"):
        return int(x)
    if hasattr(x, "dtype") and getattr(x, "shape", None) == ():  # a NumPy number
        return x.item()
    raise TypeError(f"a template cannot have the argument {x!r}, a {type(x).__name__}; it takes tensors, numbers, "
                    "texts, None, variables and lists of these")


def _dimension(d):
    return d if isinstance(d, Expr) and d.kind == "Var" else as_const_int(d, "a dimension of a template's argument")


def _constant(x):
    value = x.value
    if not isinstance(value, (int, float, str)):
        raise TypeError(f"a template cannot have the argument {x}, an expression that is no constant")
    return value


def serialize_args(args):
    """Arguments of a template as a hashable tuple; a tensor becomes ``("TENSOR", shape, dtype)``.

    Raises TypeError for what a template cannot take.
    """
    return tuple(_serial(x) for x in args)


def deserialize_args(args):
    """The arguments that `serialize_args` gives: each ``("TENSOR", shape, dtype)`` becomes a new placeholder."""
    return [
        te.placeholder(tuple(x[1]), x[2]) if isinstance(x, tuple) and len(x) == 3 and x[0] == "TENSOR" else x for x in args
    ]


def args_to_workload(args, task_name=None):
    """The tuple that names a task in logs: its name, if given, and its serialised arguments."""
    return ((task_name,) if task_name is not None else ()) + serialize_args(args)


# ---- templates ----


class TaskTemplate:
    """What is registered under a name: two halves, or one function that makes the schedule and its tensors."""

    def __init__(self):
        self.fcompute = self.fschedule = self.fcustomized = None

    def __call__(self, *args):
        """(schedule, tensors) for serialised arguments."""
        given = deserialize_args(args)
        made = self.fcustomized(*given) if self.fcustomized is not None else self._halves(given)
        if not (isinstance(made, (tuple, list)) and len(made) == 2 and isinstance(made[0], te.Schedule)):
            raise TypeError(f"the template returned {made!r}; it must return its schedule and the list of its tensors")
        return made

    def _halves(self, given):
        if self.fcompute is None or self.fschedule is None:
            half = "register_topi_schedule" if self.fschedule is None else "register_topi_compute"
            raise RuntimeError(f"the template has only one half; register the other one with autotvm.{half}")
        out = self.fcompute(*given)
        return self.fschedule([out]), [out, *_placeholders(out)]


def _placeholders(out):
    """Placeholders behind a tensor, in breadth-first order."""
    queue, seen, found = [out], {out}, []
    while queue:
        t = queue.pop(0)
        if isinstance(t.op, te.PlaceholderOp):
            found.append(t)
            continue
        for i in t.op.input_tensors:
            if i not in seen:
                seen.add(i)
                queue.append(i)
    return found


class MissingTask(TaskTemplate):
    """A name that nobody has registered: it can be read from logs, but not run."""

    def __init__(self, name):
        super().__init__()
        self._name = name

    def __call__(self, *args):
        raise RuntimeError(f"Attempting to invoke a missing task {self._name}. It is possible that the function is "
                           "registered in a Python module that is not imported in this process, or that the log is of "
                           f"another release{did_you_mean(self._name, TASK_TABLE)}")


def lookup_task(name):
    """The template of a name; a `MissingTask` if there is none yet."""
    return TASK_TABLE.get(name) or MissingTask(name)


def register_half(name, which, func):
    """Registers ``fcompute``, ``fschedule`` or ``fcustomized`` of a template. Raises ValueError if it is there already."""
    entry = TASK_TABLE.setdefault(name, TaskTemplate())
    if getattr(entry, which) is not None:
        raise ValueError(f"template {name!r} has its {which[1:]} function already")
    setattr(entry, which, func)


def template(task_name, func=None):
    """Decorator that makes a function a template: it takes tensors, numbers and texts, and returns (schedule, tensors).

    Calling it directly makes the schedule with the configuration that the current dispatch context has.

    Parameters
    ----------
    task_name : str
        Name in logs.
    func : callable, optional
        The function, if not used as a decorator.

    Returns
    -------
    callable
        Raises ValueError if the name is taken.

    Examples
    --------
    >>> @template("tutorial/copy")
    ... def copy(n):
    ...     a = te.placeholder((n,), name="A")
    ...     b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    ...     s = te.create_schedule(b.op)
    ...     cfg = get_config()
    ...     cfg.define_split("tile", b.op.axis[0], num_outputs=2)
    ...     cfg["tile"].apply(s, b, b.op.axis[0])
    ...     return s, [a, b]
    """

    def decorate(f):
        def wrapper(*args, **kwargs):
            if kwargs:
                raise TypeError(f"template {task_name!r} takes no keyword arguments: {', '.join(kwargs)}")
            cfg = DispatchContext.current.query(Target.current(), args_to_workload(args, task_name))
            with ApplyConfig(cfg):
                return f(*args)

        wrapper.__name__, wrapper.__doc__, wrapper.__wrapped__ = f.__name__, f.__doc__, f  # type: ignore[attr-defined]
        register_half(task_name, "fcustomized", f)
        return wrapper

    return decorate if func is None else decorate(func)


def get_config():
    """The current configuration, for templates: a `ConfigSpace` that collects knobs, a `ConfigEntity`, or a fallback."""
    return DispatchContext.current.query(Target.current(), None)


# ---- tasks ----


class Task:
    """A template, its arguments and its target.

    A task pickles as these three; the space is collected anew where it is needed.

    Parameters
    ----------
    name : str
        Name of the template.
    args : tuple
        Its arguments, as `create` takes them.

    Attributes
    ----------
    args : tuple
        The arguments, serialised.
    config_space : ConfigSpace or None
        None for tasks that were read from a log.
    flop : float or None
        Operations of one run.
    target, target_host : Target or None
    """

    def __init__(self, name, args):
        self.name, self.args, self.kwargs = name, serialize_args(args), {}
        self.flop = self.target = self.target_host = None
        self._config_space = None
        self._sent = False  # it came from another process

    @property
    def func(self):
        """What makes the schedule: (schedule, tensors) for serialised arguments."""
        return lookup_task(self.name)

    workload = property(lambda self: (self.name, *self.args), doc="The tuple that names the task in logs.")

    @property
    def config_space(self):
        """All configurations, a `ConfigSpace`."""
        if self._config_space is None and self._sent:
            self._collect()
        return self._config_space

    @config_space.setter
    def config_space(self, space):
        self._config_space = space

    def _collect(self):
        space = ConfigSpace()
        with te.scratch(), ApplyConfig(space), self.target:
            self.flop = self._run_for(space)
        self._config_space = space

    def _run_for(self, space):
        """Runs the template with a space that collects; the number of operations."""
        sch, _ = self.func(*self.args)
        space.code_hash = getattr(sch, "code_hash", None)
        return space.flop or compute_flop(sch)

    def instantiate(self, config):
        """The schedule of a configuration.

        Parameters
        ----------
        config : ConfigEntity
            What its template finds wrong is in its ``errors`` afterwards.

        Returns
        -------
        sch : te.Schedule
        tensors : list of te.Tensor
            Arguments of the function. Raises RuntimeError if nobody has registered the template.
        """
        config.flop = 0
        with ApplyConfig(config):
            sch, tensors = self.func(*self.args)
        code_hash = getattr(sch, "code_hash", None)
        if config.code_hash is not None and code_hash is not None and config.code_hash != code_hash:
            DispatchContext.warn_once(f"template {self.name!r} has changed since configuration {config.index} was "
                                      f"recorded (version {config.code_hash}, now {code_hash}): it may not be good any "
                                      "more")
        if not self.flop:
            config.flop = config.flop or compute_flop(sch)
            self.flop = config.flop
        return sch, tensors

    def __reduce__(self):
        return _received, (self.name, self.args, self.target and self.target.export(), self.flop, self._config_space is not None)

    def __repr__(self):
        return f"Task(func_name={self.name}, args={self.args}, kwargs={self.kwargs}, workload={self.workload})"


def _received(name, args, target, flop, has_space):
    task = Task(name, args)
    task.target = target and Target(target)
    task.target_host = target and task.target.host
    task.flop, task._sent = flop, has_space
    return task


def create(task_name, args, target, target_host=None):
    """Makes a task and collects its knobs.

    Parameters
    ----------
    task_name : str
        Name of a template.
    args : tuple
        Its arguments: tensors, numbers, texts, or what `serialize_args` makes of them.
    target : Target or str
    target_host : Target or str, optional

    Returns
    -------
    Task

    Raises
    ------
    RuntimeError
        If nobody has registered the template, or its operations cannot be counted.
    ValueError
        Without a target.
    TypeError
        If `args` is no tuple, or holds what a template cannot take.
    """
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args is {args!r}; it must be a tuple of the template's arguments")
    task = Task(task_name, args)
    task.target, task.target_host = Target.canon_target_and_host(target, target_host)
    if task.target is None:
        raise ValueError("target is None; a task needs one, such as 'cuda' or 'llvm'")
    task._collect()
    return task


# ---- operations ----


class FlopCalculationError(RuntimeError):
    """The operations of a schedule cannot be counted."""


def compute_flop(sch):
    """Operations of a schedule: all arithmetic, comparisons and logic, a stage as often as others read it.

    Parameters
    ----------
    sch : te.Schedule

    Returns
    -------
    float

    Raises
    ------
    FlopCalculationError
        If there are none, or something cannot be counted: the template must call ``cfg.add_flop`` then.
    """
    remedy = "Please use `cfg.add_flop` to manually set FLOP for this operator"
    try:
        total = _core.operations([sch[o].op.output(0) for o in sch.outputs])
    except ValueError as e:
        raise FlopCalculationError(f"FLOP estimator fails for this operator. Error msg: {e}. {remedy}") from e
    if total == 0:
        raise FlopCalculationError(f"Cannot find float number operation in this operator. {remedy}")
    return total
