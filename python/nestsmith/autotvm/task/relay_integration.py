"""From networks to tasks, and from records to networks."""

import contextlib
import logging

from ... import te
from ...relay import Call, TupleType, extract, lowering, post_order, schedules
from ...relay.infer import infer_type
from ...relay.op import Op, get as get_op
from ...relay.passes import PassContext
from ...relay.pipeline import as_module, fuse_module, optimize
from ...target import Target
from .. import strategy
from ..env import GLOBAL_SCOPE
from ..templates.packing import Ahead
from .dispatcher import ApplyConfig, DispatchContext, FallbackContext
from .task import args_to_workload, create, lookup_task
from .topi_integration import TaskExtractEnv

__all__ = ["extract_from_program", "extract_from_multiple_program"]

logger = logging.getLogger("autotvm")


def _choices(call, target, inputs=None):
    """The templates for a call; without tensors, for placeholders of its types."""
    if call.op_name not in strategy.operators() or not all(a.checked_type.is_static for a in call.args):
        return []
    if inputs is None:
        inputs = [te.placeholder(a.checked_type.concrete_shape, a.checked_type.dtype) for a in call.args]
    return strategy.choices(call, inputs, target)


# ---- extraction ----
def _operator_names(ops):
    """Names of the operators that are wanted; None for all. Raises ValueError for the name of none."""
    if ops is None:
        return None
    return {o.name if isinstance(o, Op) else get_op(o).name for o in (ops if isinstance(ops, (list, tuple, set)) else [ops])}


def _calls(mod, params, target):
    """The calls of operators of a network, primitive functions taken apart.

    They come in the order in which the reference meets them: for CPUs that in which fused functions run; for other devices
    that of the network before fusion, in which a sum of two branches follows both.
    """
    outer = PassContext.current()
    with PassContext(3, outer.required_pass, {*outer.disabled_pass, "AlterOpLayout"}, outer.instruments, outer.config):
        mod = optimize(as_module(mod), target, params)
        bodies = [mod["main"].body]
        if target.kind.device_type == 1:
            bodies = [k.func.body for k in extract.collect_kernels(fuse_module(mod))[0]]
        else:
            infer_type(mod["main"])
    return [e for body in bodies for e in post_order(body) if isinstance(e, Call) and e.op_name]


def _trace(mod, params, target, env):
    """Notes the tasks of every operator of a network, with all templates that fit."""
    for call in _calls(mod, params, target):
        if env.wanted_relay_ops is None or call.op_name in env.wanted_relay_ops:
            for choice in _choices(call, target):
                env.add_task(choice.row.template, choice.args)


def extract_from_multiple_program(mods, params, target, target_host=None, ops=None):
    """The tasks of several networks, each once.

    Parameters
    ----------
    mods : list of IRModule or relay.Function
    params : list of dict of str to array
        The weights of each.
    target : Target or str
    target_host : Target or str, optional
        Deprecated; write ``Target(target, host=...)``.
    ops : list of relay.op.Op or str, optional
        Only tasks of these operators, e.g. ``relay.op.get("nn.conv2d")``.

    Returns
    -------
    list of Task
        In the order in which the networks run them. An operator with several templates has a task for each.

    Raises
    ------
    ValueError
        If there is no target, the numbers of networks and of their weights differ, or `ops` names no operator.
    """
    target, _ = Target.canon_target_and_host(target, target_host)
    if target is None:
        raise ValueError("target is None; extraction needs one, such as 'opencl -device=mali' or 'llvm'")
    if len(mods) != len(params):
        raise ValueError(f"there are {len(mods)} networks and weights for {len(params)}")
    env = TaskExtractEnv.get()
    env.reset(_operator_names(ops))
    with env:
        for mod, values in zip(mods, params):
            _trace(mod, values, target, env)
        found = list(env.get_tasks())
    tasks = []
    for name, args in found:
        try:
            tasks.append(create(name, args, target))
        except ValueError as err:
            logger.warning("no task for %s: %s", args_to_workload(args, name), err)
    return tasks


def extract_from_program(mod, params, target, target_host=None, ops=None):
    """The tasks of a network: see :func:`extract_from_multiple_program`.

    >>> mod, params = relay.testing.resnet.get_workload(num_layers=18, batch_size=1)
    >>> tasks = extract_from_program(mod["main"], params, "opencl -device=mali", ops=(relay.op.get("nn.conv2d"),))
    >>> len(tasks)
    16
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


# ---- what relay.build asks ----
@contextlib.contextmanager
def _silence():
    before, GLOBAL_SCOPE.silent = GLOBAL_SCOPE.silent, True
    try:
        yield
    finally:
        GLOBAL_SCOPE.silent = before


def _best(call, target, inputs=None):
    """(choice, configuration) of the template that was the fastest for a call, None without a record."""
    found = []
    with _silence():
        for choice in _choices(call, target, inputs):
            cfg = DispatchContext.current.lookup(target, args_to_workload(choice.recorded, choice.row.template))
            if cfg is not None and not cfg.is_fallback:
                found.append((choice, cfg))
    return min(found, key=lambda x: x[1].cost if x[1].cost is not None else 0.0, default=None)


def _tunable(func, target):
    """The calls of a function for which there are templates."""
    return [e for e in post_order(func.body) if isinstance(e, Call) and e.op_name and _choices(e, target)]


def _constant_parameters(func, constant):
    """The ids of the parameters of a function whose places, tuples taken apart, are in `constant`."""
    found, at = set(), 0
    for p in func.params:
        if at in constant:
            found.add(id(p))
        at += len(p.checked_type.fields) if isinstance(p.checked_type, TupleType) else 1
    return found


class _Recorded(schedules.Templates):
    """The contexts that are active."""

    def enabled(self):
        return not isinstance(DispatchContext.current, FallbackContext)

    def prefers(self, call, target):
        return _best(call, target) is not None

    def block(self, call, target):
        found = _best(call, target)
        return found[1][found[0].row.block].size[-1] if found and found[0].row.block else 0

    def implement(self, func, target, constant):
        calls = _tunable(func, target)
        if len(calls) != 1 or _best(calls[0], target) is None:
            return None
        used, known = [], _constant_parameters(func, constant)

        def instead(call, inputs):
            if call is not calls[0]:
                return None
            ahead.constants.update(t for arg, t in zip(call.args, inputs) if id(arg) in known)
            choice, cfg = _best(call, target, inputs)
            used.append((choice.row.template, cfg))
            with ApplyConfig(cfg):
                return choice.result(lookup_task(choice.row.template).fcompute(*choice.args))

        try:
            with target, Ahead() as ahead:
                lowered = lowering.lower_function(func, target, instead=instead)
                if len(lowered.outputs) != 1:
                    return None
                ((name, cfg),) = used
                with ApplyConfig(cfg):
                    schedule = lookup_task(name).fschedule(lowered.outputs)
        except Exception as err:  # a template is a user's code, and a record a user's data
            raise ValueError(f"{used[0][0] if used else func}: {type(err).__name__}: {err}") from err
        if not cfg.valid():
            raise ValueError(f"{name}: {cfg.errors[0]}")
        return schedules.Implementation(lowered, schedule, ahead.made, f"log record of {name}")

    def tell(self, target, functions):
        tunable = [(f, used) for f, used in functions if _tunable(f, target)]
        missing = sum(not used for _, used in tunable)
        if missing and not GLOBAL_SCOPE.silent:
            logger.warning("%d of %d tunable operators have no record for this target and get default schedules; "
                           "autotvm.task.extract_from_program lists their tasks", missing, len(tunable))


schedules.install(_Recorded())
