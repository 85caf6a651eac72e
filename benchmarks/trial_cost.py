"""Processor time of search and training per trial, of this checkout and of another one, in turns on one machine.

A run of a few rounds of 64 candidates on two threads, times around the estimate: what `SketchPolicy.propose` (search) and
`SketchPolicy.learn` (training) take of a core, in milliseconds per trial. Each figure is the least of a few runs that take turns, for
others use the machine, too; which candidates are proposed is compared, for a search that finds something else may cost what it
likes. The checkout to compare with needs its extension built (`make ext`); only names that TVM has, too, are used of it.

    python benchmarks/trial_cost.py [--against CHECKOUT] [--repeats 5] [--rounds 8] [cuda|llvm] [task ...]
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGETS = {"cuda": "cuda -arch=sm_90", "llvm": "llvm -mcpu=skylake-avx512 -num-cores=2"}
BATCH = 64


def conv(te, topi, hw, ci, co, k, s):
    x, w, b = (te.placeholder(d, name=n) for d, n in (((1, hw, hw, ci), "x"), ((k, k, ci, co), "w"), ((co,), "b")))
    return [x, w, b, topi.nn.relu(topi.add(topi.nn.conv2d_nhwc(x, w, s, k // 2, 1), b))]


def winograd(te, topi, hw, c):
    x, w = te.placeholder((1, hw, hw, c), name="x"), te.placeholder((6, 6, c, c), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d_winograd_nhwc_without_weight_transform(x, w, 1, 1, 1))]


def dense(te, topi, m, n, k):
    x, w = te.placeholder((m, k), name="x"), te.placeholder((n, k), name="w")
    return [x, w, topi.nn.dense(x, w)]


def softmax(te, topi, m, n):
    x = te.placeholder((m, n), name="x")
    return [x, topi.nn.softmax(x)]


TASKS = {
    "dense": (dense, 128, 1024, 512),
    "conv2d": (conv, 56, 64, 64, 3, 1),
    "winograd": (winograd, 28, 128),
    "softmax": (softmax, 128, 1000),
}


def run(target, name, rounds, population):
    """One run in this process, of the nestsmith that it imports: ms of search and of training per trial, candidates."""
    from nestsmith import auto_scheduler, te, topi

    make, *args = TASKS[name]
    hw = {"cuda": (-1, 16, 64, 49152, 65536, 1024, 8, 32), "llvm": (2, 64, 64, 0, 0, 0, 0, 0)}[target]

    @auto_scheduler.register_workload
    def definition(*args):
        return make(te, topi, *args)

    limits = auto_scheduler.HardwareParams(*hw)
    task = auto_scheduler.SearchTask(func=definition, args=args, target=TARGETS[target], hardware_params=limits)
    model, estimate, noise = auto_scheduler.XGBModel(seed=1), auto_scheduler.AnalyticModel(), random.Random(1)
    params = {"evolutionary_search_population": population}
    policy = auto_scheduler.SketchPolicy(task, model, params, seed=1, verbose=0)
    spent, trials, found = [0.0, 0.0], 0, hashlib.md5()
    for _ in range(rounds):
        t0 = time.process_time()
        states = policy.propose(BATCH)
        spent[0] += time.process_time() - t0
        inputs = [auto_scheduler.MeasureInput(task, s) for s in states]
        times = [noise.uniform(0.5e-6, 2e-6) / v if v > 0 else 1 for v in estimate.predict(task, states)]
        results = [auto_scheduler.MeasureResult([t], 0, "", 1, 1) for t in times]
        t0 = time.process_time()
        policy.learn(inputs, results)
        spent[1] += time.process_time() - t0
        trials += len(states)
        found.update(repr(times).encode())
    return [1e3 * s / trials for s in spent], found.hexdigest()


def child(checkout, *args):
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(checkout) / "python"), "NESTSMITH_SEARCH_THREADS": "2"}
    env["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's threads spin for a tenth of a second when it is loaded: that is no trial's
    out = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(args)], env=env, check=True, stdout=subprocess.PIPE
    )
    return json.loads(out.stdout.splitlines()[-1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", nargs="*")
    p.add_argument("--against")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--population", type=int, default=2048)
    p.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        print(json.dumps(run(*a.child)))
        return
    sides = [a.against, ROOT] if a.against else [ROOT]
    columns = [f"{when} {what}" for when in ("before", "now")[-len(sides) :] for what in ("search", "train")]
    print(f"{'target':8}{'task':10}" + "".join(f"{c:>16}" for c in columns) + "      total" * bool(a.against))
    for target in [t for t in TARGETS if t in a.what] or TARGETS:
        for name in [n for n in TASKS if n in a.what] or TASKS:
            runs = [[child(s, target, name, a.rounds, a.population) for s in sides] for _ in range(a.repeats)]
            least = [[min(r[side][0][i] for r in runs) for i in (0, 1)] for side in range(len(sides))]
            text = "".join(f"{v:13.2f} ms" for side in least for v in side)
            if a.against:
                text += f"{100 * (sum(least[1]) / sum(least[0]) - 1):9.1f} %"
                text += "" if runs[0][0][1] == runs[0][1][1] else "   other candidates"
            print(f"{target:8}{name:10}{text}", flush=True)


if __name__ == "__main__":
    main()
