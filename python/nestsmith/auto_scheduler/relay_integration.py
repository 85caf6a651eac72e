"""From networks to tuning tasks: one task per distinct fused function with a reduction in it."""

from __future__ import annotations

import json
import logging

from ..relay import extract, lowering
from ..relay.pipeline import fuse_module, optimize
from ..transform import PassContext
from .compute_dag import ComputeDAG, LayoutRewriteOption
from .workload_registry import register_workload_tensors

__all__ = ["extract_tasks", "is_auto_scheduler_enabled", "has_reduction"]

logger = logging.getLogger("auto_scheduler")
_ORDERS = ("evaluation", "graph-2020")


def is_auto_scheduler_enabled():
    """Whether the current PassContext asks for the auto-scheduler's kernels."""
    return bool(PassContext.current().config.get("relay.backend.use_auto_scheduler", False))


def has_reduction(dag):
    """Whether some stage of a DAG reduces: only such subgraphs are worth tuning."""
    return any(not op.is_placeholder and len(op.reduce_axis) > 0 for op in dag.ops)


def _constant_inputs(low, constant):
    """Positions in the tensor list of the inputs that come from the constant parameters `constant`."""
    where = {t: i for i, t in enumerate(low.params)}
    return tuple(k for k, t in enumerate(low.io[: len(low.io) - len(low.outputs)]) if where[t] in constant)


def _graph_2020_order(mod, kernels, calls):
    """Kernels in the order of the first tutorials: a function before its arguments, from the output on, left to
    right."""
    from ..relay.expr import Call

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


def extract_tasks(
    mod,
    params,
    target,
    target_host=None,
    hardware_params=None,
    include_simple_tasks=False,
    dump_workload_to_dag_log=None,
    opt_level=3,
    other_targets=None,
    order="evaluation",
    layout=None,
):
    """Cuts a network into tuning tasks.

    Parameters
    ----------
    mod : IRModule or relay.Function
    params : dict of str to array, or None
        Weights. Give the same ones to ``relay.build``: with constant weights they are transformed ahead of time.
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

    Returns
    -------
    tasks : list of SearchTask
    weights : list of int
        How often the network runs each task.

    Raises
    ------
    ValueError
        If the order is unknown or there is no target.
    """
    from ..target import Target
    from .search_task import SearchTask

    if order not in _ORDERS:
        raise ValueError(f"order {order!r}; use one of {', '.join(_ORDERS)}")
    target, target_host = Target.canon_target_and_host(target, target_host)
    if target is None:
        raise ValueError("extract_tasks needs a target, for example 'cuda' or 'llvm'")
    outer = PassContext.current()
    config = dict(outer.config, **{"relay.backend.use_auto_scheduler": True})
    if layout:
        config["relay.ext.layout"] = layout
    with PassContext(opt_level, outer.required_pass, outer.disabled_pass, outer.instruments, config):
        fused = fuse_module(optimize(mod, target, params))
    kernels, calls = extract.collect_kernels(fused, "vm_mod_")
    if order == "graph-2020":
        kernels = _graph_2020_order(fused, kernels, calls)
    constant, nbytes = extract.constants_of(fused, calls)
    found, skipped = {}, []
    for k in kernels:
        if not k.static:
            skipped.append((k.name, "a dimension is known only at run time"))
            continue
        try:
            low = lowering.lower_function(k.func, target, lowering.NAMINGS[0])
            tensors, dag = low.io, ComputeDAG(low.io)
            others = [lowering.lower_function(k.func, target, n).io for n in lowering.NAMINGS[1:]]
        except (lowering.NotLowerable, ValueError) as err:
            skipped.append((k.name, str(err)))
            continue
        if not include_simple_tasks and not has_reduction(dag):
            continue
        key = dag.workload_key()
        if key in found:
            found[key]["weight"] += k.count
            found[key]["names"].append(k.name)
            continue
        found[key] = {
            "dag": dag,
            "tensors": tensors,
            "weight": k.count,
            "names": [k.name],
            "layers": k.layers,
            "alt_keys": [ComputeDAG(t).workload_key() for t in others],
            "alt_tensors": others,
            "constant": _constant_inputs(low, constant.get(id(k), frozenset())),
        }
    for name, why in skipped:
        logger.info("extract_tasks: no task for %s: %s", name, why)
    tasks, weights = [], []
    option = LayoutRewriteOption.get_target_default(target, True)
    for key, f in found.items():
        register_workload_tensors(key, f["tensors"])
        for alt, tensors in zip(f["alt_keys"], f["alt_tensors"]):
            register_workload_tensors(alt, tensors)
        task = SearchTask(
            compute_dag=ComputeDAG(key),
            workload_key=key,
            target=target,
            target_host=target_host,
            hardware_params=hardware_params,
            layout_rewrite_option=option,
            desc=",".join(f["names"]),
        )
        task.alt_keys = f["alt_keys"]
        task.constant_inputs, task.constant_bytes = f["constant"], nbytes
        task.layers = f["layers"]
        tasks.append(task)
        weights.append(f["weight"])
    if dump_workload_to_dag_log is not None:
        with open(dump_workload_to_dag_log, "w") as out:
            json.dump({t.workload_key: str(t.compute_dag) for t in tasks}, out)
    return tasks, weights
