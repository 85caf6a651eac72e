"""From networks to tuning tasks: one task per distinct fused function with a reduction in it."""

import contextlib
import json
import logging
import warnings

from .. import check
from ..numerics import math_mode, mode_fits, needed_math, unfit
from ..relay import Call, extract, lowering, post_order, schedules
from ..relay.extract import has_reduction
from ..relay.packing import rewrites
from ..relay.passes import PassContext
from ..relay.pipeline import as_module, fuse_module, optimize
from ..relay.transform.choose_forms import variants_of
from ..target import Target
from ..topi.default_schedule import steps_of
from .compute_dag import ComputeDAG, LayoutRewriteOption, has_own_hash
from .dispatcher import ApplyHistoryBest, DispatchContext, FallbackContext, tell_history
from .search_task import SearchTask
from .workload_keys import decode_workload_key
from .workload_registry import register_workload_tensors

__all__ = ["extract_tasks", "is_auto_scheduler_enabled", "has_reduction"]

logger = logging.getLogger("auto_scheduler")

_ORDERS = "evaluation", "graph-2020"
_UNSUPPORTED = "raise", "skip"


def is_auto_scheduler_enabled():
    """Whether the current PassContext asks for the auto-scheduler's kernels."""
    return bool(PassContext.current().config.get("relay.backend.use_auto_scheduler", False))


def _constant_inputs(low, constant):
    """Positions in the tensor list of the inputs that come from the constant parameters `constant`."""
    where = {t: i for i, t in enumerate(low.params)}
    return tuple(k for k, t in enumerate(low.io[: len(low.io) - len(low.outputs)]) if where[t] in constant)


def _graph_2020_order(mod, kernels, calls):
    """Kernels in the order of the first tutorials: a function before its arguments, from the output on, left to
    right."""
    order, seen, stack = [], set(), [mod["main"].body]
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        k = calls.get(id(e))
        if k is not None and k not in order:
            order.append(k)
        args = e.args if isinstance(e, Call) else getattr(e, "fields", None) or [getattr(e, "tuple_value", None)]
        stack.extend(a for a in reversed(args) if a is not None)
    return order + [k for k in kernels if k not in order]


def _warn_of_weights(main):
    """One warning if parameters of a network are weights: what an operator of ``nn`` takes beside its data."""
    params = {id(p) for p in main.params}
    calls = [e for e in post_order(main.body) if isinstance(e, Call) and str(e.op_name).startswith("nn.")]
    products = ("nn.matmul", "nn.batch_matmul")  # of two tensors of the data, as well
    weights = {id(a): a.name_hint for c in calls if c.op_name not in products for a in c.args[1:] if id(a) in params}
    if weights:
        shown = check.some(map(repr, weights.values()))
        warnings.warn(f"extract_tasks got no params for the weights {shown}: a build with params computes in other "
                      f"functions, whose tasks these are not; give extract_tasks and relay.build the same params ({{}} "
                      "where weights stay inputs)", stacklevel=3)


def _tell_what_cannot_be_built(dynamic, failed, target, unsupported):
    if dynamic:
        warnings.warn(f"extract_tasks: no tasks for {check.some(dynamic)}: they have dimensions known only at run "
                      "time, and relay.build needs all shapes", stacklevel=3)
    if failed and unsupported == "raise":
        err = lowering.refusal(failed, target)
        raise lowering.NotLowerable(f"{err}\nunsupported='skip' extracts the other tasks all the same")
    if failed:
        warnings.warn(f"extract_tasks: {lowering.refusal(failed, target)}", stacklevel=3)


def _fused(mod, params, target, opt_level, layout=None):
    """The network cut into functions, as `relay.build` does it at this level."""
    outer = PassContext.current()
    config = dict(outer.config, **{"relay.backend.use_auto_scheduler": True})
    if layout:
        config["relay.ext.layout"] = layout
    with PassContext(opt_level, outer.required_pass, outer.disabled_pass, outer.instruments, config):
        return fuse_module(optimize(mod, target, params), target=target)


def workload_keys(mod, params, target, opt_level):
    """Of each task that `extract_tasks` would give: its names, decoded, in all releases. Nothing is registered."""
    out = []
    for k in extract.collect_kernels(_fused(mod, params, target, opt_level), "vm_mod_")[0]:
        try:
            dags = [ComputeDAG(low.io) for low in lowering.lowered(k.func, target)] if k.static else []
        except ValueError:
            continue
        if dags and has_reduction(dags[0]):
            out.append([decode_workload_key(d.workload_key()) for d in dags])
    return out


class _Form:
    """A fused function as a task: its tensors in each naming, its DAG and keys, which inputs are constants."""

    def __init__(self, func, target, constant):
        namings = lowering.lowered(func, target)
        self.func, self.tensors = func, [low.io for low in namings]
        self.dag, *alt = map(ComputeDAG, self.tensors)
        self.key = self.dag.workload_key()
        self.alt_keys = [] if has_own_hash() else [d.workload_key() for d in alt]  # a user's hash names each workload once
        self.constant = _constant_inputs(namings[0], constant)


class _Layer:
    """A fused function of a network: the form that is tuned first, other forms of it, and where it occurs."""

    def __init__(self, form):
        self.form, self.others = form, []
        self.weight, self.names, self.places = 0, [], []


def _other_forms(func, target, constant):
    """The variants of a fused function that the target can compute."""
    out = []
    for f in variants_of(func):
        with contextlib.suppress(ValueError):
            out.append(_Form(f, target, constant))
    return out


def extract_tasks(mod, params, target, target_host=None, hardware_params=None, include_simple_tasks=False,
                  dump_workload_to_dag_log=None, opt_level=3, other_targets=None, order="evaluation", layout=None,
                  unsupported="raise"):
    """Cuts a network into tuning tasks.

    Parameters
    ----------
    mod : IRModule or relay.Function
    params : dict of str to array, or None
        Weights. Give the same ones to ``relay.build``: with constant weights they are transformed ahead of time, so that
        the tasks are other ones. None on a network with weights warns; an empty dictionary says that they stay inputs.
    target : Target or str
    target_host : Target or str, optional
    hardware_params : HardwareParams, optional
    include_simple_tasks : bool
        Also subgraphs without a reduction.
    dump_workload_to_dag_log : str, optional
        File that receives ``{workload key: printed DAG}`` as JSON.
    opt_level : int
        Level of the graph passes.
    other_targets : optional
        Accepted for compatibility; one target is supported.
    order : str
        ``"evaluation"`` (the order in which the network runs) or ``"graph-2020"`` (the order of the first tutorials).
    layout : str, optional
        Convert convolutions to this layout first, for example ``"NHWC"``.
    unsupported : str
        What happens when ``relay.build`` cannot build the network because operators have no definition as loops:
        ``"raise"`` or ``"skip"``, which warns and gives the tasks of the other functions. Either names all of them.

    Returns
    -------
    tasks : list of SearchTask
    weights : list of int
        How often the network runs each task.

    Raises
    ------
    ValueError
        If the order or `unsupported` is unknown, there is no target, or operators have no definition as loops.
    """
    if order not in _ORDERS:
        raise ValueError(f"order {order!r}; use one of {', '.join(_ORDERS)}")
    check.one_of_names("unsupported", unsupported, _UNSUPPORTED)
    target, target_host = Target.canon_target_and_host(target, target_host)
    if target is None:
        raise ValueError("extract_tasks needs a target, for example 'cuda' or 'llvm'")
    fused = _fused(mod, params, target, opt_level, layout)
    if params is None:
        _warn_of_weights(as_module(mod)["main"])
    kernels, calls = extract.collect_kernels(fused, "vm_mod_")
    if order == "graph-2020":
        kernels = _graph_2020_order(fused, kernels, calls)
    constant, nbytes = extract.constants_of(fused, calls)
    found, failed = {}, []
    for k in kernels:
        if not k.static:
            continue
        weights_at = constant.get(id(k), frozenset())
        try:
            first = _Form(k.func, target, weights_at)
        except ValueError as err:
            failed.append((k, err))
            continue
        if not include_simple_tasks and not has_reduction(first.dag):
            continue
        layer = found.setdefault(first.key, _Layer(first))
        layer.others = layer.others or _other_forms(k.func, target, weights_at)
        layer.weight += k.count
        layer.names.append(k.name)
        layer.places = layer.places or k.layers
    _tell_what_cannot_be_built([k.name for k in kernels if not k.static], failed, target, unsupported)
    option = LayoutRewriteOption.get_target_default(target, True)

    def task_of(form, names, places):
        for key, tensors in zip((form.key, *form.alt_keys), form.tensors):
            register_workload_tensors(key, tensors)
        task = SearchTask(
            compute_dag=ComputeDAG(form.key),
            workload_key=form.key,
            target=target,
            target_host=target_host,
            hardware_params=hardware_params,
            # without params nothing tells which matrices are weights: all are taken for them, as TVM does
            layout_rewrite_option=rewrites(option, form.dag, form.constant, target) if nbytes else option,
            desc=",".join(names),
        )
        task.alt_keys, task.layers = form.alt_keys, places
        task.constant_inputs, task.constant_bytes = form.constant, nbytes
        return task

    tasks, weights = [], []
    for layer in found.values():
        task = task_of(layer.form, layer.names, layer.places)
        others = [f for f in layer.others if f.key not in found]
        names = [f"vm_mod_{extract.fused_name(f.func)} (form {n})" for n, f in enumerate(others, 2)]
        task.variants = tuple(task_of(f, [name], layer.places) for f, name in zip(others, names))
        tasks.append(task)
        weights.append(layer.weight)
    if dump_workload_to_dag_log is not None:
        with open(dump_workload_to_dag_log, "w") as out:
            json.dump({t.workload_key: str(t.compute_dag) for task in tasks for t in (task, *task.variants)}, out)
    return tasks, weights


# ---- what relay.build asks ----
def _other_build(mod, params, target, held, found):
    """The graph level, or the lack of params, at which the records `held` have more of the network's tasks than `found`:
    why keys differ, as text; "" if there is none. The network is cut again at each, which takes its time."""
    level, known = PassContext.current().opt_level, {p.name_hint for p in as_module(mod)["main"].params}
    given = {k: v for k, v in (params or {}).items() if k in known}
    builds = [(n, given) for n in (3, 2, 1, 0) if n != level]
    builds += [(level, {})] if given else []
    why = ""
    for n, weights in builds:
        keys = workload_keys(mod, weights, target, n)
        there = sum(not held.why_not(k, target.kind.name) for k in keys)
        if there <= found:
            continue
        found = there
        if n == level:
            why = f"extracted without params, where {there} of {len(keys)} are found: give extract_tasks the params, too"
        else:
            why = f"extracted at opt_level={n}, where {there} of {len(keys)} are found, and this build is at {level}: build "
            why += f"within transform.PassContext(opt_level={n})"
        if there == len(keys):
            break
    return why and f"keys differ because the log is of tasks {why}"


class _Provider(schedules.Provider):
    """The contexts that are active."""

    def enabled(self):
        return is_auto_scheduler_enabled() or not isinstance(DispatchContext.current, (FallbackContext, type(None)))

    def find(self, target, variants, name):
        dags = [ComputeDAG(tensors) for tensors in variants]
        keys, context = [dag.workload_key() for dag in dags], DispatchContext.current
        for key in keys:  # a log may use either naming of the workload
            found = _recorded(context, target, key)
            if found is not None:
                return keys, _allowed(dags[0], found, name)
        register_workload_tensors(keys[0], list(dags[0].tensors))
        return keys, _allowed(dags[0], context.query(target, keys[0], has_reduction(dags[0]), dags[0], name), name)

    def rank(self, target, variants):
        keys = [ComputeDAG(tensors).workload_key() for tensors in variants]
        for context in check.entered(DispatchContext.current):
            ranks = [context.rank(target, key) for key in keys] if isinstance(context, ApplyHistoryBest) else []
            if known := [r for r in ranks if r is not None]:
                return min(known)
        return None

    def origin(self, target, keys):
        texts = (c.origin(target, key) for c in check.entered(DispatchContext.current) for key in keys)
        return next(filter(None, texts), None) or super().origin(target, keys)

    def layout(self, target):
        if "AutoSchedulerLayoutRewrite" in PassContext.current().disabled_pass:
            return LayoutRewriteOption.NO_REWRITE
        return LayoutRewriteOption.get_target_default(target, True)

    def tell(self, mod, params, target, tasks):
        found = sum(there for _, there in tasks)
        tell_history(tasks, target, lambda held: _other_build(mod, params, target, held, found))


def _allowed(dag, found, name):
    """A schedule, whoever gave it, unless it needs a math mode that this build does not allow: then none, and a warning."""
    steps = "" if found is None else steps_of(found)
    needs = needed_math(dag, steps)
    if mode_fits(needs, math_mode(PassContext.current().config)):
        return found
    options = " and ".join(f'"nestsmith.allow_{m}"' for m in needs.split("+"))
    logger.warning("%s: the schedule that was found %s; this build does not allow that (PassContext's %s, compile's "
                   "precision), so the default schedule is used", name, unfit(needs), options)
    return None


def _recorded(context, target, key):
    """The recorded answer of the contexts for a key: without sampling, and without the warning that a miss gives."""
    histories = [c for c in check.entered(context) if isinstance(c, ApplyHistoryBest)]
    return next((found for c in histories if (found := ApplyHistoryBest._query_inside(c, target, key)) is not None), None)


schedules.install(_Provider())
