"""What does coordinate descent in the last tenth of a task's trials bring? Without a device, from the same states on.

A task is searched up to its last round, once. From there on two processes go on, both with the same model and the same
measured states: one breeds the last round, of the other's the last tenth of all trials are neighbours of the fastest state.
The device is simulated: on GPUs the regression of search_simulated.py, for tasks of ResNet-18; on CPUs the estimate, bent by a
fixed random function of the features. Both have that benchmark's residuals per tiling and per state.

    python benchmarks/search_last_tenth.py --device h100 --trials 64,200 --seeds 1,2,3      # some 15 s per line and core
    python benchmarks/search_last_tenth.py --device cpu --trials 64,200 --seeds 1,2,3,4,5,6
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import time

import numpy as np
import search_simulated as simulated

import nestsmith as ns
from nestsmith import _core, auto_scheduler, te, topi
from nestsmith.auto_scheduler.measure import MeasureInput, MeasureResult

RESNET = (3, 6, 2, 14, 22, 23, 0, 12, 19)  # tasks: convolutions, Winograd, dense, softmax
SHARE, BEND, HIDDEN = 0.1, 0.7, 12


@auto_scheduler.register_workload
def tenth_conv2d(h, ci, co):
    x, w = te.placeholder((1, h, h, ci), name="x"), te.placeholder((3, 3, ci, co), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d_nhwc(x, w, 1, 1, 1))]


@auto_scheduler.register_workload
def tenth_depthwise(h, c):
    x, w = te.placeholder((1, c, h, h), name="x"), te.placeholder((c, 1, 3, 3), name="w")
    return [x, w, topi.nn.relu(topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1))]


@auto_scheduler.register_workload
def tenth_dense(n, m, k):
    x, w = te.placeholder((n, k), name="x"), te.placeholder((m, k), name="w")
    return [x, w, topi.nn.dense(x, w)]


@auto_scheduler.register_workload
def tenth_softmax(n, m):
    x = te.placeholder((n, m), name="x")
    return [x, topi.nn.softmax(x, axis=-1)]


@auto_scheduler.register_workload
def tenth_winograd(h, c):
    a = topi.nn.winograd_tile_size(h) + 2
    x, w = te.placeholder((1, h, h, c), name="x"), te.placeholder((a, a, c, c), name="w")
    return [x, w, topi.nn.conv2d_winograd_nhwc_without_weight_transform(x, w, 1, 1, 1)]


CPU_TASKS = (
    (tenth_conv2d, (28, 64, 128)), (tenth_depthwise, (56, 96)), (tenth_dense, (64, 768, 768)),
    (tenth_softmax, (384, 512)), (tenth_winograd, (28, 128)),
)  # fmt: skip


class Regression:
    def __init__(self, model):
        import xgboost

        tasks = simulated.network()[0]
        self.number = {t.workload_key: i for i, t in enumerate(tasks)}
        self.tasks = [tasks[i] for i in RESNET]
        self.booster = xgboost.Booster(model_file=model)
        self.booster.set_param("nthread", 1)

    def seconds(self, task, steps):
        x = [simulated.entries(task, self.number[task.workload_key], s) for s in steps]
        return 1e-6 * np.exp(simulated.predict(self.booster, x))


class Bent:
    def __init__(self):
        target = ns.target.Target("llvm")
        self.tasks = [auto_scheduler.SearchTask(func=f, args=a, target=target) for f, a in CPU_TASKS]
        rng = np.random.default_rng(77)
        self.into, self.out, self.policies = rng.normal(size=(2 * simulated.FEATURES, HIDDEN)), rng.normal(size=HIDDEN), {}

    def one(self, task, steps):
        key, target = task.workload_key, task.engine_target()
        if key not in self.policies:
            self.policies[key] = _core.Policy(task.compute_dag, target, {}, 1, 1)
        state = _core.State(task.compute_dag, json.dumps(steps)).infer_bounds()
        rows = _core.features(state, target, rules=2)[1][:, : simulated.FEATURES]
        seen = np.log1p(np.abs(np.concatenate([rows.sum(0), rows.max(0)])))
        bend = np.tanh(seen @ self.into / (2 * np.sqrt(len(seen)))) @ self.out / np.sqrt(HIDDEN)
        return self.policies[key].facts(state)["seconds"] * np.exp(BEND * bend)

    def seconds(self, task, steps):
        return np.array([self.one(task, s) for s in steps])


class Run:
    """The search of one task."""

    def __init__(self, device, task, args, seed):
        self.device, self.task, self.rng = device, task, np.random.default_rng(seed)
        params = {"descent": SHARE, "evolutionary_search_population": args.population}
        self.policy = auto_scheduler.SketchPolicy(task, args.model, params=params, seed=seed, verbose=0)
        self.best, self.done = math.inf, 0

    def round(self, n, total):
        """total 0: all are bred."""
        self.policy.begin_round(self.done, total)
        states = self.policy.propose(n)
        steps = [simulated.steps_of(s) for s in states]
        rest = [simulated.PER_TILING * simulated.draw(simulated.tiling(s)) + simulated.PER_STATE * simulated.draw(s) for s in steps]
        seconds = self.device.seconds(self.task, steps) * np.exp(rest)
        noisy = seconds * np.exp(simulated.NOISE * self.rng.normal(size=len(seconds)))
        results = [MeasureResult([float(s)], 0, "", 0.01, time.time()) for s in noisy]
        self.policy.learn([MeasureInput(self.task, s) for s in states], results)
        self.best, self.done = min([self.best, *map(float, seconds)]), self.done + len(states)
        return len(states)


def apart(run, n, total):
    """The best that a last round finds, made in a process of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            run.round(n, total)
            os.write(write, repr(run.best).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return float(text)


def ratio(device, task, args, seed, trials):
    """Best found with ÷ without."""
    run, size = Run(device, task, args, seed), auto_scheduler.TuningOptions(trials).round_size()
    last = trials - (trials - 1) // size * size
    while run.done < trials - last and run.round(min(size, trials - last - run.done), 0):
        pass
    run.done = trials - last
    return apart(run, last, trials) / apart(run, last, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("h100", "cpu"), default="h100")
    parser.add_argument("--trials", default="64,200")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--model", default="trees", help="the cost model that ranks")
    parser.add_argument("--population", type=int, default=512)
    parser.add_argument("--regression", default="build/simulated-h100.json", help="where the regression is kept")
    args = parser.parse_args()
    os.environ.update(NESTSMITH_SEARCH_THREADS="1", OMP_NUM_THREADS="1")  # threads, xgboost's too, do not survive a fork
    if args.device == "h100" and not pathlib.Path(args.regression).exists():
        pathlib.Path(args.regression).parent.mkdir(parents=True, exist_ok=True)
        simulated.regression(*simulated.records(simulated.network()[0])[:2]).save_model(args.regression)
    device = Regression(args.regression) if args.device == "h100" else Bent()
    for trials in map(int, args.trials.split(",")):
        logs = []
        for seed in map(int, args.seeds.split(",")):
            for task in device.tasks:
                logs.append(math.log(ratio(device, task, args, seed, trials)))
                print(f"{trials} trials, seed {seed}, {task.desc or task.workload_key[:40]}: {math.exp(logs[-1]):.4f}", flush=True)
        error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
        better, worse = sum(x < -1e-6 for x in logs), sum(x > 1e-6 for x in logs)
        mean = math.exp(statistics.mean(logs))
        print(f"{trials} trials: best with ÷ without {mean:.4f} ± {error:.4f}, better {better}, worse {worse} of {len(logs)}")


if __name__ == "__main__":
    sys.exit(main())
