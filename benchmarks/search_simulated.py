"""Whole tuning runs of ResNet-18 against a simulated GPU: what does a rule of the search bring, without a GPU, in minutes?

A regression (xgboost) of 12,642 records of an H100 stands for the device. What it cannot know is drawn once and for all: a
residual per tiling of the output (deviation 0.10 in ln time) and one per state (0.04), as `--residuals` finds them in the
records: whole tilings are held out, and what is left of the states within 30 % of the best is split into between and within
tilings. Arms are those of search_quality.py (trees, analytic, random, trees:eps_greedy=0.1, ...); builder and runner are
replaced, all else runs.

    python benchmarks/search_simulated.py --arms trees,analytic --seeds 1,2,3,4        # about 80 s per run and core
    python benchmarks/search_simulated.py --residuals

Differences between means of four seeds below 3 % say nothing. What is chosen here has to be confirmed on a GPU.
"""

import argparse
import concurrent.futures
import hashlib
import json
import lzma
import multiprocessing
import pathlib
import sys
import time

import measuring
import numpy as np
import search_quality as quality

import nestsmith as ns
from nestsmith import _core
from nestsmith.auto_scheduler import measure
from nestsmith.states import core_state

RECORDS = pathlib.Path(__file__).parent / "data" / "h100-resnet18.json.xz"
PER_TILING, PER_STATE, NOISE = 0.10, 0.04, 0.01
FEATURES = 164  # entries of a row


def network():
    """Tasks and weights."""
    return measuring.resnet18(ns.target.Target("cuda -arch=sm_90"))[2:]


def steps_of(state):
    return json.loads(core_state(state).steps())


def tiling(steps):
    """How the output is cut: the splits into the most levels, as text."""
    splits = [s for s in steps if s[0] == "SP" and len(s[4]) >= 2]
    return json.dumps([s for s in splits if len(s[4]) == max(len(t[4]) for t in splits)])


def entries(task, number, steps):
    """What the regression sees of a state: sums and maxima of its rows, the closed forms, the task."""
    state = _core.State(task.compute_dag, json.dumps(steps)).infer_bounds()
    rows = _core.features(state, task.engine_target(), rules=2)[1][:, :FEATURES]
    vector = np.asarray(task.engine_policy().vector(state), np.float32)
    return np.concatenate([rows.sum(0), rows.max(0), vector, [len(rows), number]])


def records(tasks):
    """Entries, ln of microseconds, tiling and task of every record."""
    number = {t.workload_key: i for i, t in enumerate(tasks)}
    x, y, tilings, owners = [], [], [], []
    with lzma.open(RECORDS, "rt") as f:
        for line in f:
            r = json.loads(line)
            i, steps = number[r["i"][0][0]], r["i"][1][1]
            x.append(entries(tasks[i], i, steps))
            y.append(np.log(1e6 * np.mean(r["r"][0])))
            tilings.append((i, tiling(steps)))
            owners.append(i)
    return np.array(x, np.float32), np.array(y), tilings, np.array(owners)


def regression(x, y, trees=400):
    import xgboost

    how = dict(max_depth=8, eta=0.07, subsample=0.8, colsample_bytree=0.3, tree_method="hist", nthread=2)
    return xgboost.train(how, xgboost.DMatrix(x, y), trees)


def predict(booster, x):
    import xgboost

    return booster.predict(xgboost.DMatrix(np.asarray(x, np.float32)))


def draw(*what):
    """A standard normal number that is always the same for the same things."""
    digest = hashlib.blake2b(repr(what).encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "little")).normal()


class NoBuilder(measure.ProgramBuilder):
    n_parallel = 8

    def build(self, inputs, verbose=1):
        return [None] * len(inputs)


class SimulatedRunner(measure.ProgramRunner):
    def __init__(self, tasks, booster, seed):
        self.number = {t.workload_key: i for i, t in enumerate(tasks)}
        self.booster, self.rng = booster, np.random.default_rng(seed)

    def run(self, inputs, builds, verbose=1):
        steps = [steps_of(i.state) for i in inputs]
        x = [entries(i.task, self.number[i.task.workload_key], s) for i, s in zip(inputs, steps)]
        rest = [PER_TILING * draw(tiling(s)) + PER_STATE * draw(s) for s in steps]
        seconds = 1e-6 * np.exp(predict(self.booster, x) + rest + NOISE * self.rng.normal(size=len(x)))
        return [measure.MeasureResult([float(s)], 0, "", 0.01, time.time()) for s in seconds]


def run(arm, seed, args, model):
    import xgboost

    tasks, weights = network()
    booster = xgboost.Booster(model_file=model)
    booster.set_param("nthread", 1)
    options = dict(builder=NoBuilder(), runner=SimulatedRunner(tasks, booster, seed))
    defaults = dict(evolutionary_search_population=args.population)
    return quality.run_arm(arm, seed, tasks, weights, args, options, defaults, order=seed)


def residuals(x, y, tilings, owners, folds=5):
    """Deviations of what the regression leaves where it has not seen a tiling: near the best, between and within tilings."""
    ids = {}
    group = np.array([ids.setdefault(t, len(ids)) for t in tilings])
    fold = np.random.default_rng(0).integers(0, folds, len(ids))[group]
    rest = np.empty(len(y))
    for k in range(folds):
        rest[fold == k] = y[fold == k] - predict(regression(x[fold != k], y[fold != k], 250), x[fold == k])
    best = np.array([y[owners == t].min() for t in range(owners.max() + 1)])
    near = y - best[owners] < np.log(1.3)
    members = [rest[near & (group == g)] for g in np.unique(group[near])]
    several = [m for m in members if len(m) >= 3]
    within = np.sqrt(sum(((m - m.mean()) ** 2).sum() for m in several) / sum(len(m) - 1 for m in several))
    print(f"{len(y)} states of {len(ids)} tilings; deviation of ln time {y.std():.3f}, left by the regression {rest.std():.3f}")
    print(f"near the best: between tilings {np.std([m.mean() for m in several]):.3f}, within {within:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", default="trees,analytic")
    parser.add_argument("--seeds", default="1,2,3,4")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--round", type=int, default=8)
    parser.add_argument("--population", type=int, default=512)
    parser.add_argument("--base", help="trees to start from, for the arm trees+base")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--model", default="build/simulated-h100.json", help="where the regression is kept")
    parser.add_argument("--residuals", action="store_true")
    args = parser.parse_args()
    model = pathlib.Path(args.model)
    if args.residuals or not model.exists():
        data = records(network()[0])
        if args.residuals:
            return residuals(*data)
        model.parent.mkdir(parents=True, exist_ok=True)
        regression(*data[:2]).save_model(model)
    jobs = [(arm, int(seed)) for seed in args.seeds.split(",") for arm in args.arms.split(",")]
    runs = []
    with concurrent.futures.ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        for r in pool.map(run, *zip(*jobs), [args] * len(jobs), [str(model)] * len(jobs)):
            runs.append(r)
            print(f"{r['arm']} seed {r['seed']}: {quality.at(r['curve'], args.trials):.4f} ms, {r['seconds']:.0f} s", flush=True)
    quality.table(runs, args.trials)


if __name__ == "__main__":
    sys.exit(main())
