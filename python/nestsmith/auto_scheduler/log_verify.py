"""Proof of a log: its best records are built, run, and their outputs compared with the unscheduled program's.

``python -m nestsmith.log --mode verify -i LOG`` with ``--network resnet-18 --layout NHWC``, or with ``--import MODULE``
for a module that registers the workloads of the log.
"""

import logging

from .. import _core
from ..target import Target
from .cost import NOTHING, seconds, seconds_of
from .display import short
from .measure import LocalRunner, MeasureInput
from .measure_record import COSTS, KEY, STEPS, by_task, rank_of_fields
from .networks import network_keys
from .search_task import SearchTask, TuningOptions
from .session import Measurer, check_compilers
from .workload_keys import decode_workload_key

__all__ = ["verify", "verify_text"]

logger = logging.getLogger("auto_scheduler")


def _network_tasks(target, network):
    """Tasks of a network by decoded key, under all names of the key."""
    table = {}
    for key, others, task in network_keys(target, **network):
        for k in (key, *others):
            table.setdefault(decode_workload_key(k), task)
    return table


def _registered_task(key, target):
    try:
        return SearchTask(workload_key=key, target=target)
    except Exception as e:  # noqa: BLE001 - a user's function is called with what the log says
        logger.info("%s: %s", key, e)
        return None


def _unknown(target):
    """Why this package does not know a target; "" if it does."""
    try:
        Target(target)
    except ValueError as e:
        return f"unknown target: {str(e).splitlines()[0]}"
    return ""


def verify(names, network=None, runner=None):
    """Builds and runs the best valid record of every task and target of some logs: the fastest that was timed in full,
    the fastest of all where none was.

    Parameters
    ----------
    names : str, pathlib.Path or list of them
        Logs.
    network : dict, optional
        Arguments of `log_tools.get_network`; its tasks tell what the keys of the log stand for. Without it the keys
        must be of registered workloads.
    runner : LocalRunner, optional
        How to time; 100 ms per record by default.

    Returns
    -------
    list of dict
        key, desc, target, recorded (seconds), measured (seconds or None), max_error (largest difference from the
        reference, relative to the largest value), verdict ("right", "wrong answer", "unknown key", or why it failed).

    Raises
    ------
    FileNotFoundError
        If a log does not exist.
    RuntimeError
        If there is no compiler for a target of the log.
    """
    runner = runner or LocalRunner(repeat=1, min_repeat_ms=100)
    options, tables, rows = TuningOptions(1, verbose=0, runner=runner), {}, []
    with Measurer(options) as measurer:
        for (workload, target), group in by_task(names).items():
            best = min(group, key=rank_of_fields)
            if rank_of_fields(best) == NOTHING:
                continue
            row = {"key": best[KEY], "desc": "", "target": target, "recorded": seconds(best[COSTS]), "measured": None,
                   "max_error": None, "verdict": _unknown(target) or "unknown key"}
            rows.append(row)
            if row["verdict"] != "unknown key":
                continue
            if network and target not in tables:
                tables[target] = _network_tasks(target, network)
            task = tables[target].get(workload) if network else _registered_task(best[KEY], target)
            if task is None:
                continue
            row["desc"] = task.desc
            try:
                state = task.compute_dag.wrap_state(_core.State(task.compute_dag, best[STEPS]).infer_bounds())
                check_compilers(options, [task])
                (result,) = measurer.measure(task, None, [MeasureInput(task, state)])
            except ValueError as e:
                row["verdict"] = f"steps do not replay: {str(e).splitlines()[0]}"
                continue
            extra = getattr(result, "extra", None) or {}
            row["max_error"] = extra.get("max_error")
            if result.error_no == 0:
                row["measured"], row["verdict"] = seconds_of(result), "right"
            else:
                first = (str(result.error_msg).strip().splitlines() or [""])[0]
                row["verdict"] = f"{extra.get('cause') or f'error {result.error_no}'}: {first}".rstrip(": ")
    return rows


def verify_text(rows):
    """The table of `verify`, with a last line that counts."""
    lines = [f"{'task':40} {'recorded (ms)':>13} {'now (ms)':>10} {'largest error':>13}  verdict"]
    for r in rows:
        name, args = decode_workload_key(r["key"])
        label = short(r["desc"]) if r["desc"] else f"{str(name)[:12]} {' '.join(map(str, args or ()))}"
        now = "-" if r["measured"] is None else f"{r['measured'] * 1e3:.4g}"
        error = "-" if r["measured"] is None else "none" if not r["max_error"] else f"{r['max_error']:.1e}"
        lines.append(f"{label[:40]:40} {r['recorded'] * 1e3:13.4g} {now:>10} {error:>13}  {r['verdict']}")
    right = sum(r["verdict"] == "right" for r in rows)
    lines.append(f"{right} of {len(rows)} best records are right")
    if any(r["verdict"] == "unknown key" for r in rows):
        lines.append("unknown keys: name the network (--network resnet-18 --layout NHWC) or the module that registers "
                     "the workloads (--import mymodule)")
    return "\n".join(lines)
