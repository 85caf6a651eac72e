"""Tools for tuning logs, on the command line: ``python -m nestsmith.log --mode MODE -i LOG [-o OUT]``.

========  ==============================================================================================
distill   the fastest record of every workload, together with what OUT already holds (default LOG.best.json)
best      the fastest record of every task, printed or written to OUT
merge     several logs in one, without repetitions
top       the ``-k`` fastest records of every task
stats     per task: trials, failures by kind, best time, how the best time fell
strip     without comments and extensions, for exchange
to-tvm    plain v0.6 records under the keys of TVM since 0.11
from-tvm  logs of any age (v0.2 to v0.6) as v0.6, under the keys of this package
plot      best time over trials, as SVG
verify    rebuild the best record of every task, run it, compare its output with the unscheduled program's
========  ==============================================================================================

``to-tvm``, ``from-tvm`` and ``verify`` know the tasks from a network (``--network resnet-18 --layout NHWC``); the first
two also from a ``--mapping`` file, JSON of the form ``{"old key": "new key"}``, and ``verify`` from a module that
registers workloads (``--import mymodule``). Files are written beside OUT and renamed, so that an
interrupted tool leaves OUT as it was.
"""

import argparse
import importlib
import json
import logging
import os
import pathlib
import sys
from collections import Counter

from .. import _core
from ..target import Target
from . import measure_record
from .cost import NOTHING
from .log_files import write_whole
from .log_verify import verify, verify_text
from .measure_record import ERROR, KEY, STEPS, TARGET, TIME, by_task, fallen, rank_of_fields, records_of, text_of
from .networks import get_network, network_keys
from .plot import plot_log
from .relay_integration import extract_tasks
from .workload_keys import decode_workload_key

__all__ = ["main", "distill", "best", "merge", "top", "stats", "convert", "network_keys", "get_network"]

logger = logging.getLogger("auto_scheduler")
distill = measure_record.distill_record_file
ERRORS = ("no error", "not buildable from its steps", "compiler error on the host", "does not load", "run error",
          "wrong answer", "build timeout", "run timeout", "unknown error")


# ---- choosing ----


def top(names, k=1):
    """The ``k`` fastest valid records of every task and target, as lines."""
    out = []
    for group in by_task(names).values():
        good = sorted((f for f in group if rank_of_fields(f) != NOTHING), key=rank_of_fields)
        out += [text_of(f) for f in good[:k]]
    return out


def best(names):
    """The fastest valid record of every task and target, as lines."""
    return top(names, 1)


def merge(names):
    """All records of several logs, each (task, steps, result) once, as lines."""
    return list(dict.fromkeys(text_of(f) for f in records_of(names)))


# ---- looking ----


def _failure(error):
    if error == 0:
        return "impossible time"
    return ERRORS[error] if 0 < error < len(ERRORS) else f"error {error}"


def stats(names):
    """Per task a dict: key, target, trials, valid, failures (Counter by kind), best (seconds or None), best_at (trial),
    first and last (times), curve (list of (trial, seconds) at which the best time fell). What is best is what every reader of the
    log takes: quick times count only for tasks that have no others."""
    out = []
    for (_, target), group in by_task(names).items():
        row = {"key": group[0][KEY], "target": target, "trials": len(group), "failures": Counter()}
        row["curve"] = [(n, seconds) for n, _, seconds, _ in fallen(group, lambda f: None)]
        row["failures"].update(_failure(f[ERROR]) for f in group if rank_of_fields(f) == NOTHING)
        row["valid"] = len(group) - sum(row["failures"].values())
        row["best"], row["best_at"] = row["curve"][-1][::-1] if row["curve"] else (None, 0)
        times = [f[TIME] for f in group if f[TIME] > 0]
        row["first"], row["last"] = (min(times), max(times)) if times else (0, 0)
        out.append(row)
    return out


def stats_text(rows):
    """The table of :func:`stats`."""
    lines = [f"{'task':44} {'trials':>7} {'failed':>7} {'best (ms)':>10} {'at':>6}  best so far at 25, 50, 75 % (ms)"]
    failures = Counter()
    for r in rows:
        quarter = []
        for q in (0.25, 0.5, 0.75):
            seen = [c for n, c in r["curve"] if n <= max(1, r["trials"] * q)]
            quarter.append(f"{seen[-1] * 1e3:.4g}" if seen else "-")
        name, args = decode_workload_key(r["key"])
        label = f"{str(name)[:12]} {' '.join(map(str, args or ()))}"
        shown = f"{r['best'] * 1e3:.4g}" if r["best"] is not None else "-"
        failures.update(r["failures"])
        failed = r["trials"] - r["valid"]
        lines.append(f"{label if len(label) <= 44 else label[:42] + '..':44} {r['trials']:7d} {failed:7d} {shown:>10} "
                     f"{r['best_at']:6d}  {', '.join(quarter)}")
    trials, valid = sum(r["trials"] for r in rows), sum(r["valid"] for r in rows)
    lines.append(f"{len(rows)} tasks, {trials} trials, {valid} valid, {trials - valid} failed")
    lines += [f"  {n:6d} x {cause}" for cause, n in failures.most_common()]
    lines += [f"target {t}: {n} tasks" for t, n in Counter(r["target"] for r in rows).items()]
    none = sum(r["best"] is None for r in rows)
    if none:
        lines.append(f"{none} tasks have no valid record: their default schedule will be used; tune them longer")
    return "\n".join(lines)


# ---- other names ----


def _keys_for(target, network):
    """`network_keys`; nothing for a target that this package does not know."""
    try:
        Target(target)
    except ValueError as e:
        logger.warning("no keys are known for a target: %s", e)
        return []
    return network_keys(target, **network)


def convert(names, to_tvm, mapping=None, network=None):
    """Records under other keys, in the current format and without extensions.

    Parameters
    ----------
    names : str, pathlib.Path or list of them
        Logs.
    to_tvm : bool
        True: from this package's keys to those of TVM since 0.11. False: from any known ones to this package's.
    mapping : dict of str to str, optional
        From old to new keys.
    network : dict, optional
        Arguments of :func:`get_network`; its tasks are extracted for each target in the log. The steps of each record
        are replayed on the task; those that do not replay are left out.

    Returns
    -------
    lines : list of str
    counts : Counter
        "renamed", "kept", "unknown key", "steps do not replay".
    """
    known = {decode_workload_key(k): v for k, v in (mapping or {}).items()}
    tables, lines, counts = {}, [], Counter()
    for f in records_of(names):
        fields, workload = list(f), decode_workload_key(f[KEY])
        if network and f[TARGET] not in tables:
            tables[f[TARGET]] = {}
            for key, others, task in _keys_for(f[TARGET], network):
                new = others[0] if to_tvm and others else key
                for k in (key, *others):
                    tables[f[TARGET]].setdefault(decode_workload_key(k), (new, task))
        new, task = known.get(workload), None
        if new is None and network:
            new, task = tables[f[TARGET]].get(workload, (None, None))
        if task is not None and f[ERROR] == 0:
            try:
                _core.State(task.compute_dag, f[STEPS])
            except ValueError as e:
                logger.info("left out: %s", e)
                counts["steps do not replay"] += 1
                continue
        if new is None and (known or network):
            counts["unknown key"] += 1
        elif new is None or new == f[KEY]:
            counts["kept"] += 1
        else:
            counts["renamed"] += 1
        fields[KEY] = new or f[KEY]
        lines.append(text_of(fields))
    return lines, counts


# ---- command line ----

MODES = "distill", "best", "merge", "top", "stats", "info", "strip", "to-tvm", "from-tvm", "convert", "plot", "verify"


def _parser():
    p = argparse.ArgumentParser(prog="nestsmith log", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mode", choices=MODES, default="distill")
    p.add_argument("-i", "--i", "--input", dest="input", action="append", required=True, metavar="LOG",
                   help="log to read; may be given several times")
    p.add_argument("-o", "--o", "--output", dest="output", metavar="OUT", help="file to write")
    p.add_argument("-k", type=int, default=10, metavar="N", help="records per task for top")
    p.add_argument("--mapping", metavar="JSON", help="file with old and new keys")
    p.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE",
                   help="module that registers the workloads of the log, for verify")
    p.add_argument("--model", metavar="FILE", help="ONNX file whose tasks the log holds, for plot: the sum is then that of the network")
    p.add_argument("--network", metavar="NAME", help="network whose tasks the log holds, for example resnet-18")
    p.add_argument("--layout", metavar="NHWC", help="its layout")
    p.add_argument("--batch", type=int, default=1, metavar="N", help="its batch size")
    p.add_argument("--dtype", default="float32", help="its data type")
    return p


def _out(args, lines, what):
    if args.output:
        write_whole(args.output, lines)
        print(f"{len(lines)} {what} in {args.output}")
    else:
        sys.stdout.writelines(lines)


def _network(args):
    if not args.network:
        return None
    return {"name": args.network, "layout": args.layout, "batch": args.batch, "dtype": args.dtype}


def _verify(args):
    sys.path.insert(0, os.getcwd())
    for module in args.modules:
        importlib.import_module(module)
    rows = verify(args.input, _network(args))
    print(verify_text(rows))
    return 0 if rows and all(r["verdict"] == "right" for r in rows) else 1


def _convert(args):
    mapping = None
    if args.mapping:
        mapping = json.loads(pathlib.Path(args.mapping).read_text(encoding="utf-8"))
        if not isinstance(mapping, dict) or not all(isinstance(v, str) for v in mapping.values()):
            raise ValueError(f"{args.mapping} is not of the form {{\"old key\": \"new key\"}}")
    network = _network(args)
    lines, counts = convert(args.input, args.mode == "to-tvm", mapping, network)
    _out(args, lines, "records (" + ", ".join(f"{n} {what}" for what, n in counts.items()) + ")")
    if mapping is None and network is None and args.mode != "convert":
        logger.warning("keys are as they were; name the network (--network resnet-18 --layout NHWC) or a --mapping to "
                       "rename them")


def _tasks(args, read_model):
    """(tasks, weights) of the network that is named, or (None, None)."""
    if not args.network and not args.model:
        return None, None
    target = next((f[TARGET] for f in records_of(args.input)), "llvm")
    if args.model:
        if read_model is None:
            raise ValueError("--model: use python -m nestsmith.log, which reads models")
        return read_model(args.model, target, args.layout, args.dtype)
    mod, params = get_network(**_network(args))
    return extract_tasks(mod["main"], params, target, include_simple_tasks=True)


def _run(args, read_model=None):
    mode = args.mode
    if mode == "distill":
        if len(args.input) != 1:
            raise ValueError("distill reads one log; use --mode merge first for several")
        distill(args.input[0], args.output or args.input[0] + ".best.json")
    elif mode in ("stats", "info"):
        print(stats_text(stats(args.input)))
    elif mode == "plot":
        out = args.output or args.input[0] + ".svg"
        tasks, weights = _tasks(args, read_model)
        plot_log(args.input, weights=weights, tasks=tasks).savefig(out)
        print(out)
    elif mode in ("to-tvm", "from-tvm", "convert"):
        _convert(args)
    elif mode == "verify":
        return _verify(args)
    else:
        tools = {"best": best, "merge": merge, "top": lambda names: top(names, args.k),
                 "strip": lambda names: [text_of((*f[:11], "v0.6")) for f in records_of(names)]}  # without marks
        _out(args, tools[mode](args.input), "records")
    return 0


def main(argv=None, read_model=None):
    """The command line; returns 0, or 1 after a message about a file or an argument, or about a record that is wrong. read_model:
    ``(path, target, layout, dtype)`` to the tasks of a model's file and how often each occurs."""
    args = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        return _run(args, read_model)
    except (OSError, ValueError, RuntimeError, ImportError) as e:
        print(f"nestsmith.log: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
