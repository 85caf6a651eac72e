"""How well the cost models order candidates: hold-out by task, online replay, ablations, and a check for leaks.

Part 1 uses 4,800 timings of CPU matrix products (tests/data/pilot_cpu_matmul.bin.gz, two rows per state): train on
six tasks, test on the two others, means over all four foldings. Part 2 walks through tuning logs given on the command
line (log format v0.6, tasks of tests/data/peer-states.json.gz) in rounds: train on what was known before a round, test
on the round; then it holds out one task after the other. Random scores have a pairwise accuracy of 0.5.

Part 3 takes logs of whole networks (--network as for nestsmith.pretrain): hold-out by task in five folds, metrics per task,
95 % intervals from 1,000 bootstrap draws of tasks; differences are paired with the default.

    PYTHONPATH=python python benchmarks/cost_model.py [--quick] [log.json ...]
    PYTHONPATH=python python benchmarks/cost_model.py --network resnet:num_layers=50,layout=NHWC,image_shape=224x224x3 \
        --plot models.png run.json.gz
"""

import argparse
import json
import math
import pathlib
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "schedule"), str(ROOT / "tests" / "model")]
from peer_dags import dag_of, peer_tasks  # noqa: E402
from test_forest import load_pilot, pick  # noqa: E402
from test_leak import leak_check  # noqa: E402

from nestsmith import _core  # noqa: E402

COLUMNS = ("pairwise", "top1", "top5", "a_peak32", "recall30")
FAILED = 1e10


def unit(score):
    """Scores with unit deviation, so that two models can be added."""
    ok = np.isfinite(score)
    return (score - score[ok].mean()) / max(score[ok].std(), 1e-12)


def trees(loss="top", **kw):
    return lambda part: _core.Forest.train(*part, loss=loss, **kw).score


def network(loss="top", **kw):
    return lambda part: _core.Network.train(*part, loss=loss, **kw).score


def both(loss="pairwise"):
    def train(part):
        a, b = trees(loss)(part), network(loss)(part)
        return lambda rows, first: unit(a(rows, first)) + unit(b(rows, first))

    return train


def chance(part):
    rng = np.random.default_rng(1)
    return lambda rows, first: rng.random(len(first) - 1)


def line(name, got, seconds):
    cells = "".join(f"{np.mean([g[c] for g in got]):9.3f}" for c in COLUMNS)
    print(f"  {name:34}{cells}{seconds:9.2f}", flush=True)


def title(text):
    print(f"\n{text}\n  {'model':34}" + "".join(f"{c:>9}" for c in COLUMNS) + "  train s", flush=True)


def hold_out(quick):
    data = load_pilot()
    title("hold-out by task, pilot timings: 3,600 records train, 1,200 test, four foldings")
    models = {"random": chance, "trees, top-weighted (default)": trees(), "trees, pairwise": trees("pairwise"),
              "network, top-weighted": network(), "network, pairwise": network("pairwise"),
              "trees + network, pairwise": both()}  # fmt: skip
    for name, train in models.items():
        got, seconds = [], 0.0
        for fold in range(1 if quick else 4):
            held = np.isin(data[2], [2 * fold, 2 * fold + 1])
            start = time.time()
            score = train(pick(data, np.flatnonzero(~held)))
            seconds += time.time() - start
            test = pick(data, np.flatnonzero(held))
            got.append(_core.model_metrics(*test, score(test[0], test[1])))
        line(name, got, seconds / len(got))


# ---- logs ----


def read_log(path):
    """Records of known tasks in order: rows of both rule sets, cost, task number, estimate."""
    stages = {t["key"]: tuple(t["stages"]) for t in peer_tasks()}
    number, out = {}, []
    for text in open(path):
        rec = json.loads(text)
        (key, target, hw, *_), (_, steps, *_) = rec["i"]
        if key not in stages:
            continue
        costs, error = rec["r"][0], rec["r"][1]
        sm = int(target.split("-arch=sm_")[1].split()[0]) if "-arch=sm_" in target else 0
        engine = _core.Target(target.split()[0], hw, sm=sm, fast_math=0)
        dag = dag_of(key, stages[key])
        state = _core.State(dag, json.dumps(steps)).infer_bounds()
        facts = _core.Policy(dag, engine).facts(state)
        seconds = facts["seconds"] if facts["invalid"] is None else math.inf
        out.append({
            "task": number.setdefault(key, len(number)), "cost": float(np.mean(costs)) if error == 0 else FAILED,
            1: _core.features(state, engine, rules=1)[1], 2: _core.features(state, engine, rules=2)[1],
            "estimate": -math.log(seconds) if 0 < seconds < math.inf else -1e3,
        })  # fmt: skip
    return out


def batch(records, rules=2):
    rows = [r[rules] for r in records]
    first = np.cumsum([0] + [len(x) for x in rows]).astype(np.int32)
    return (np.concatenate(rows), first, np.array([r["task"] for r in records], np.int32),
            np.array([r["cost"] for r in records]))  # fmt: skip


def replay(path, records, size):
    """Train on the records before each round, test on the round; then leave-one-task-out."""
    tasks = len({r["task"] for r in records})
    failed = sum(r["cost"] >= FAILED for r in records)
    models = {
        "random": (chance, 2, True), "estimate (no learning)": (None, 2, True),
        "trees, top-weighted": (trees(), 2, True),
        "trees, pairwise": (trees("pairwise"), 2, True), "network, top-weighted": (network(), 2, True),
        "ablation: rules 1": (trees(), 1, True), "ablation: without failed records": (trees(), 2, False),
    }  # fmt: skip

    def run(name, splits):
        train, rules, use_failed = models[name]
        got, seconds = [], 0.0
        for known, test in splits:
            if not use_failed:
                known = [r for r in known if r["cost"] < FAILED]
            t = batch(test, rules)
            start = time.time()
            if train is None:
                score = np.array([r["estimate"] for r in test])
            else:
                score = train(batch(known, rules))(t[0], t[1])
            seconds += time.time() - start
            got.append(_core.model_metrics(*t, score))
        line(name, got, seconds / len(got))

    title(f"{path}: online replay in rounds of {size}; {len(records)} records, {failed} failed, {tasks} tasks")
    splits = [(records[:i], records[i : i + size]) for i in range(size, len(records), size)]
    for name in models:
        run(name, splits)
    title(f"{path}: hold-out by task")
    splits = [([r for r in records if r["task"] != t], [r for r in records if r["task"] == t]) for t in range(tasks)]
    splits = [s for s in splits if len(s[0]) > 1 and sum(r["cost"] < FAILED for r in s[1]) > 1]
    for name in models:
        run(name, splits)


def leaks(quick):
    """Labels shuffled inside tasks before the split; the last line shows that the check finds a leak."""
    data = load_pilot()
    print("\nleak check: shuffled labels, held-out records; goal 0.50 +- 0.01")
    print(f"  {'model':34}{'pairwise':>9}{'error':>9}")
    models = {"trees": _core.Forest.train, "network": _core.Network.train}
    for name, train in models.items():
        for by_task in (True, False):
            mean, error = leak_check(data, train, 1 if quick else 2, by_task)
            verdict = "holds" if abs(mean - 0.5) <= 0.01 else "MISSED"
            text = f"{name}, {'tasks' if by_task else 'records'} held out"
            print(f"  {text:34}{mean:9.4f}{error:9.4f}  {verdict}", flush=True)
    mean, error = leak_check(data, models["trees"], 1, by_task=False, leak=True)
    print(f"  {'trees that saw the test records':34}{mean:9.4f}{error:9.4f}  (control)", flush=True)


# ---- logs of networks ----
def interval(x, rng, draws=1000):
    """95 % interval of the mean over tasks."""
    at = rng.integers(0, len(x), (draws, len(x)))
    return np.percentile(x[at].mean(1), [2.5, 97.5])


def per_task(test, score):
    """Metrics of each task with at least 8 good records, by task number."""
    out = {}
    for t in np.unique(test[2]):
        at = np.flatnonzero(test[2] == t)
        if (test[3][at] < 1e9).sum() >= 8:
            part = pick((test[0], test[1], np.zeros_like(test[2]), test[3]), at)
            out[int(t)] = _core.model_metrics(*part, score[at])
    return out


def squared(part):
    """The published reference's loss and parameters, grown by xgboost."""
    from nestsmith.auto_scheduler import xgb_model

    model = xgb_model.PackageModel(seed=1)

    class Records:  # stands in for the engine's learner
        def records(self):
            return len(part[2])

        def batch(self):
            return part

        def adopt(self, forest):
            self.forest = forest

    model.engine = Records()
    model._train()
    return model.engine.forest.score


def estimate(part):
    return lambda rows, first: -np.add.reduceat(rows[:, 164 + 41], first[:-1])


def networks(specs, logs, png, most=40):
    """Hold-out by task over the tasks of whole networks; at most `most` records of a task, drawn."""
    from nestsmith import pretrain
    from nestsmith.target import Target

    target = Target("cuda -arch=sm_90")
    tasks = {t.workload_key: t for n in specs for t in pretrain.network_tasks(n, target)}
    data, counts = pretrain.collect(logs, list(tasks.values()))
    rng = np.random.default_rng(0)
    keep = np.concatenate([rng.permutation(np.flatnonzero(data[2] == t))[:most] for t in np.unique(data[2])])
    data = pick(data, np.sort(keep))
    drawn = dict(states=0.6, entries=0.3)
    rows_only = lambda part: (np.where(np.arange(212) < 164, part[0], 0).astype(np.float32), *part[1:])  # noqa: E731
    good = lambda part: pick(part, np.flatnonzero(part[3] < 1e9))  # noqa: E731
    models = {
        "trees from the estimate, drawn (default)": trees(prior=True, **drawn),
        "100 trees of depth 3 (as while tuning)": trees(prior=True, trees=100, depth=3, **drawn),
        "not drawn": trees(prior=True), "not from the estimate": trees(**drawn),
        "pairwise loss": trees("pairwise", prior=True, **drawn),
        "without the row of the machine": lambda part: trees(**drawn)(rows_only(part)),
        "without failed records": lambda part: trees(prior=True, **drawn)(good(part)),
        "xgboost, squared loss": squared, "network": network(), "estimate": estimate, "random": chance,
    }  # fmt: skip
    order = np.random.default_rng(1).permutation(int(data[2].max()) + 1)
    got = {name: {} for name in models}
    print(f"\nhold-out by task: {len(data[2])} of {counts['used']} records, {len(order)} tasks, five folds", flush=True)
    print("| model | pairwise | difference | top1 | top5 | a_peak32 |\n|---|---|---|---|---|---|")
    for name, train in models.items():
        for k in range(5):
            held = np.isin(data[2], order[k::5])
            test = pick(data, np.flatnonzero(held))
            got[name].update(per_task(test, train(pick(data, np.flatnonzero(~held)))(test[0], test[1])))
        report(name, got, next(iter(models)), rng)
    if png:
        bars(got, png, rng)


def report(name, got, default, rng):
    mine, base = ([got[k][t] for t in sorted(got[k])] for k in (name, default))
    cells = []
    for c in ("pairwise", "top1", "top5", "a_peak32"):
        x = np.array([m[c] for m in mine])
        lo, hi = interval(x, rng)
        cells.append(f"{x.mean():.3f} ({lo:.3f}–{hi:.3f})")
        if c == "pairwise":
            d = x - np.array([m[c] for m in base])
            lo, hi = interval(d, rng)
            cells.append("" if name == default else f"{d.mean():+.3f} ({lo:+.3f} to {hi:+.3f})")
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def bars(got, png, rng):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(got)[::-1]
    x = [np.array([m["pairwise"] for m in got[n].values()]) for n in names]
    ends = [interval(v, rng) for v in x]
    plt.figure(figsize=(7, 0.35 * len(names) + 1))
    err = [[v.mean() - e[0] for v, e in zip(x, ends)], [e[1] - v.mean() for v, e in zip(x, ends)]]
    plt.errorbar([v.mean() for v in x], range(len(names)), xerr=err, fmt="o", capsize=3)
    plt.yticks(range(len(names)), names)
    plt.xlabel("pairwise accuracy on unseen tasks (mean, 95 % interval)")
    plt.grid(True, axis="x", linewidth=0.3)
    plt.tight_layout()
    plt.savefig(png, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one folding instead of four")
    parser.add_argument("--round", type=int, default=64, help="records per round of the replay")
    parser.add_argument("--network", action="append", help="the logs are of these networks: part 3 alone")
    parser.add_argument("--plot", help="part 3: PNG to write")
    parser.add_argument("logs", nargs="*")
    args = parser.parse_args()
    if args.network:
        networks(args.network, args.logs, args.plot)
        return
    hold_out(args.quick)
    leaks(args.quick)
    for path in args.logs:
        records = read_log(path)
        if len(records) > args.round:
            replay(pathlib.Path(path).name, records, args.round)
        else:
            print(f"{path}: only {len(records)} records of known tasks")


if __name__ == "__main__":
    main()
