"""Templates in two halves: a compute function and a schedule function of topi.

The wrapper of the compute half notes the workload on the operation that it returns, and the wrapper of the schedule half
finds it there.
"""

from __future__ import annotations

import functools

from ... import te
from ...target import Target
from ...te.operation import operations
from .dispatcher import DispatchContext
from .task import args_to_workload, register_half, serialize_args

__all__ = ["TaskExtractEnv", "get_workload", "register_topi_compute", "register_topi_schedule"]


class TaskExtractEnv:
    """Notes the tasks of templates that are called while ``tracing`` is on.

    Parameters
    ----------
    allow_duplicate : bool
        Keep equal tasks.
    """

    current: TaskExtractEnv | None = None

    def __init__(self, allow_duplicate=False):
        self.allow_duplicate, self.task_collection = allow_duplicate, []
        self.wanted_relay_ops, self.tracing = None, False

    def __enter__(self):
        self.task_collection, self.tracing = [], True
        return self

    def __exit__(self, ptype, value, trace):
        self.tracing = False

    def reset(self, wanted_relay_ops=None):
        """Forgets all tasks; operators other than ``wanted_relay_ops`` are not traced."""
        self.task_collection, self.wanted_relay_ops = [], wanted_relay_ops

    def add_task(self, task_name, args):
        """Notes a task."""
        key = task_name, serialize_args(args)
        if self.allow_duplicate or key not in self.task_collection:
            self.task_collection.append(key)

    def get_tasks(self):
        """The tasks noted, as (name, serialised arguments), in order of appearance."""
        return self.task_collection

    @staticmethod
    def get(allow_duplicate=False):
        """The environment of this process."""
        if TaskExtractEnv.current is None:
            TaskExtractEnv.current = TaskExtractEnv(allow_duplicate)
        TaskExtractEnv.current.allow_duplicate = allow_duplicate
        return TaskExtractEnv.current


def _with_workload(node, workload):
    """The same operation with the attribute ``workload``."""
    many = isinstance(node, (list, tuple))
    op = (node[0] if many else node).op
    if not isinstance(op, te.ComputeOp):
        raise TypeError(f"template {workload[0]!r}: its compute function returned {node!r}, which is not computed")
    outs = te.with_attrs(op, workload=workload)
    return list(outs) if many else outs[node.value_index]


def register_topi_compute(task_name, func=None):
    """Decorator that registers ``f(cfg, *args)``, the compute half of a template.

    The decorated function takes the arguments without ``cfg`` and returns what ``f`` does, a tensor (or all tensors of one
    operation).

    Parameters
    ----------
    task_name : str
        Name in logs.
    func : callable, optional
        The function, if not used as a decorator.

    Returns
    -------
    callable
        Raises ValueError if the name has a compute half.
    """

    def decorate(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            if kwargs:
                raise TypeError(f"template {task_name!r} takes no keyword arguments: {', '.join(kwargs)}")
            if TaskExtractEnv.current is not None and TaskExtractEnv.current.tracing:
                TaskExtractEnv.current.add_task(task_name, args)
            workload = args_to_workload(args, task_name)
            return _with_workload(f(DispatchContext.current.query(Target.current(), workload), *args), workload)

        register_half(task_name, "fcompute", wrapper)
        return wrapper

    return decorate if func is None else decorate(func)


def register_topi_schedule(task_name, func=None):
    """Decorator that registers ``f(cfg, outs)``, the schedule half of a template; it returns a schedule.

    The decorated function takes the tensors without ``cfg``.

    Parameters
    ----------
    task_name : str
        Name in logs.
    func : callable, optional
        The function, if not used as a decorator.

    Returns
    -------
    callable
        Raises ValueError if the name has a schedule half, RuntimeError when it is called for tensors of another template.
    """

    def decorate(f):
        @functools.wraps(f)
        def wrapper(outs, *args, **kwargs):
            workload = get_workload(outs, task_name)
            if workload is None:
                raise RuntimeError(f"Cannot find TOPI workload {task_name}. Is it registered with "
                                   "`register_topi_compute`?")
            return f(DispatchContext.current.query(Target.current(), workload), outs, *args, **kwargs)

        register_half(task_name, "fschedule", wrapper)
        return wrapper

    return decorate if func is None else decorate(func)


def get_workload(outs, task_name=None):
    """The workload of the first template behind tensors, what an operation reads before itself; None without one.

    Parameters
    ----------
    outs : te.Tensor or list of te.Tensor
    task_name : str, optional
        Only of this template.

    Returns
    -------
    tuple or None
    """
    ops = operations([t.op for t in ([outs] if isinstance(outs, te.Tensor) else outs)])
    found = (op.attrs["workload"] for op in ops if "workload" in op.attrs)
    return next((w for w in found if task_name in (None, w[0])), None)
