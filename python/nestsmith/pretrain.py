"""Trees trained on earlier runs, for the search to start from.

    python -m nestsmith.pretrain --network resnet:num_layers=50,layout=NHWC,image_shape=224x224x3 \\
        --log run1.json --log run2.json.gz --out h100.acm.gz

The networks name the tasks that the logs speak of (functions of `nestsmith.relay.testing` and their arguments). Records of
other tasks are skipped. The file is used with ``XGBModel(base="h100.acm.gz")``; the package may bring files of its own
(``XGBModel(base="auto")``).
"""

import argparse
import ast
import gzip
import json
import os
import shutil
import sys
import tempfile

import numpy as np

from nestsmith import _core, auto_scheduler, relay
from nestsmith.auto_scheduler.cost import seconds
from nestsmith.auto_scheduler.learned_model import packaged
from nestsmith.auto_scheduler.log_files import lines_of
from nestsmith.target import Target

__all__ = ["collect", "train", "save", "packaged", "evaluate", "main"]

PARAMS = {"trees": 200, "depth": 6, "states": 0.6, "entries": 0.3, "prior": True}


def network_tasks(text, target):
    """Tasks of a network given as ``name:argument=value,...``; an x between numbers makes a tuple (image_shape=3x64x64)."""
    name, _, rest = text.partition(":")
    module = getattr(relay.testing, name, None)
    if not hasattr(module, "get_workload"):
        raise ValueError(f"network {name!r} is not in nestsmith.relay.testing")
    arguments = {}
    for item in filter(None, rest.split(",")):
        key, eq, value = item.partition("=")
        if not eq:
            raise ValueError(f"network {name!r}: {item!r} is no argument=value")
        if value.replace("x", "").isdigit() and "x" in value:
            arguments[key] = tuple(int(v) for v in value.split("x"))
        else:
            try:
                arguments[key] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                arguments[key] = value
    mod, params = module.get_workload(**arguments)
    return auto_scheduler.extract_tasks(mod["main"], params, target)[0]


def collect(logs, tasks):
    """Rows and times of the records of known tasks.

    Parameters
    ----------
    logs : list of str
        Log files; those that end in .gz are unpacked.
    tasks : list of SearchTask

    Returns
    -------
    batch : tuple
        (rows float32 [n, entries], first int32 [records + 1], task int32 [records], cost float64 [records], seconds),
        as `_core.Forest.train` takes them; a cost of 1e10 stands for a failed record.
    counts : dict
        ``used``, ``skipped`` (unknown task, or steps that do not fit) and ``keys``, the workload keys by task number.
    """
    by_key = {k: t for t in tasks for k in t.keys}
    learner, number, skipped = _core.Learner(1), {}, 0
    for path in logs:
        with gzip.open(path, "rt") if str(path).endswith(".gz") else open(path, encoding="utf-8") as f:
            for line in filter(str.strip, lines_of(f)):
                try:
                    key, *_, steps, costs, error, _, _, _ = _core.record_parse(line)
                    task = by_key.get(key)
                    if task is not None:
                        state = _core.State(task.compute_dag, steps)
                except (ValueError, RuntimeError):
                    task = None
                if task is None:
                    skipped += 1
                    continue
                if task.workload_key not in number:
                    number[task.workload_key] = learner.task(task.engine_policy())
                learner.add(number[task.workload_key], state, seconds(costs, error))
    return learner.batch(), {"used": learner.records(), "skipped": skipped, "keys": list(number)}


def pick(batch, states):
    """The part of a batch that holds the given states."""
    rows, first, task, cost = batch
    states = np.asarray(states, np.int64)
    size = np.diff(first)[states]
    at = np.concatenate([np.arange(first[i], first[i + 1]) for i in states]) if len(states) else np.zeros(0, np.int64)
    return rows[at], np.concatenate([[0], np.cumsum(size)]).astype(np.int32), task[states], cost[states]


def train(batch, seed=1, **params):
    """A `Forest` from a batch of `collect`. Keywords override `PARAMS` and go to `_core.Forest.train`."""
    return _core.Forest.train(*batch, seed=seed, **{**PARAMS, **params})


def evaluate(batch, folds=5, seed=1, **params):
    """Hold-out by task: metrics of `model_metrics` on tasks that the trees have not seen, mean over foldings."""
    task = batch[2]
    order = np.random.default_rng(seed).permutation(int(task.max()) + 1)
    got = []
    for k in range(min(folds, len(order))):
        held = np.isin(task, order[k::folds])
        if held.all() or not held.any():
            continue
        forest = train(pick(batch, np.flatnonzero(~held)), seed, **params)
        test = pick(batch, np.flatnonzero(held))
        got.append(_core.model_metrics(*test, forest.score(test[0], test[1])))
    return {name: float(np.mean([g[name] for g in got])) for name in got[0]} if got else {}


def save(forest, path, info):
    """Writes a file that searches can start from. `info`, a dict, says what it was trained on."""
    path = str(path)
    if not path.endswith(".gz"):
        forest.save(path, json.dumps(info), True)
        return
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.TemporaryDirectory(dir=folder) as tmp:
        plain, packed = os.path.join(tmp, "m"), os.path.join(tmp, "m.gz")
        forest.save(plain, json.dumps(info), True)
        with open(plain, "rb") as f, open(packed, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as out:
            shutil.copyfileobj(f, out)
        os.replace(packed, path)


def main(argv=None):
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="nestsmith pretrain", description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cuda -arch=sm_90")
    parser.add_argument("--network", action="append", required=True, help="name:argument=value,...; may be repeated")
    parser.add_argument("--log", action="append", required=True, help="may be repeated; .gz is unpacked")
    parser.add_argument("--exclude", action="append", default=[], help="network whose tasks are left out; may be repeated")
    parser.add_argument("--device", default="", help="name of the device of the logs, noted in the file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True, help="file to write; .gz is packed")
    args = parser.parse_args(argv)
    target = Target(args.target)
    try:
        out = {t.workload_key for n in args.exclude for t in network_tasks(n, target)}
        tasks = {t.workload_key: t for n in args.network for t in network_tasks(n, target)}
        batch, counts = collect(args.log, [t for k, t in tasks.items() if k not in out])
    except (ValueError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    if counts["used"] < 16:
        print(f"error: {counts['used']} records of these networks in the logs; 16 are needed", file=sys.stderr)
        return 1
    metrics = evaluate(batch, seed=args.seed)
    forest = train(batch, args.seed)
    info = {"target": str(target), "device": args.device, "records": counts["used"], "tasks": counts["keys"]}
    info.update(seed=args.seed, loss="top", parameters=PARAMS, held_out_by_task=metrics)
    save(forest, args.out, info)
    print(f"{counts['used']} records of {len(counts['keys'])} tasks, {counts['skipped']} skipped; {forest.n_trees} trees")
    print("tasks not seen: " + ", ".join(f"{k} {v:.3f}" for k, v in metrics.items()))
    print(f"{args.out}: {os.path.getsize(args.out)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
