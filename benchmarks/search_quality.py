"""Which cost model finds faster programs with equal trials? ResNet-18 (24 tasks), several seeds, winners re-measured together.

Arms are the names of cost models, and trees+base: trees that start from a file of earlier runs (--base, trained on other
networks by nestsmith.pretrain). Every arm gets the same trials, the same round size, the same measuring options; only what
ranks the candidates differs. After each round the weighted estimate is noted; at the end the network is built from every log
and all builds are timed in turn. An arm may carry search parameters: trees:eps_greedy=0.1:states_per_tiling=0.

    python benchmarks/search_quality.py --trials 1000 --seeds 1,2,3 --out DIR       # on a GPU; writes DIR/quality.json and logs
    python benchmarks/search_quality.py --plot DIR/quality.json curve.png
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "benchmarks")]


def make_model(arm, seed, base=None):
    """The cost model of an arm, and its search parameters."""
    from nestsmith.auto_scheduler import learned_model, models

    def value(text):
        try:
            return json.loads(text)
        except ValueError:
            return text  # search_mode=compatible

    name, *params = arm.split(":")
    params = {k: value(v) for k, v in (p.split("=") for p in params)}
    if name == "trees+base":
        return learned_model.XGBModel(seed=seed, base=base), params
    return models.make_cost_model(name, seed), params


class Curve:
    """Callback of the task scheduler: (trials, seconds, weighted estimate in ms) after each round."""

    def __init__(self):
        self.points = []
        self.begin = time.time()

    def pre_tune(self, scheduler, task_id):
        pass

    def post_tune(self, scheduler, task_id):
        self.points.append((scheduler.ct, time.time() - self.begin, scheduler.cur_score * 1e3))


def run_arm(arm, seed, tasks, weights, args, options, defaults=None, order=None):
    """One run. options: further tuning options; defaults: of the search parameters; order: seed of the task scheduler."""
    from nestsmith import auto_scheduler

    (model, params), curve = make_model(arm, seed, args.base), Curve()
    params = {**(defaults or {}), **params}
    policies = [
        auto_scheduler.SketchPolicy(t, model, params=dict(params), verbose=0, seed=seed * 1000 + i) for i, t in enumerate(tasks)
    ]
    tuner = auto_scheduler.TaskScheduler(tasks, weights, callbacks=[curve], seed=order)
    tuner.tune(
        auto_scheduler.TuningOptions(args.trials, num_measures_per_round=args.round, verbose=0, **options),
        search_policy=policies,
    )
    return {"arm": arm, "seed": seed, "curve": curve.points, "seconds": curve.points[-1][1]}


def remeasure(runs, out, target, mod, params, layers_data):
    """Network time of every run's log: median of 10 turns, all runs in turn."""
    import network

    import nestsmith as ns

    modules = []
    for r in runs:
        m = network.build(mod, params, target, str(out / r["log"]))
        m.set_input("data", layers_data)
        m.run()
        modules.append(m.module.time_evaluator("run", ns.device(str(target), 0), number=20, repeat=1))
    got = [[] for _ in runs]
    for _ in range(10):
        for g, timer in zip(got, modules):
            g.append(timer().mean * 1e3)
    for r, g in zip(runs, got):
        r["network_ms"] = statistics.median(g)


def at(curve, trials):
    """The estimate after the last round that ended within `trials`."""
    known = [e for t, _, e in curve if t <= trials and e < 1e6]
    return known[-1] if known else float("nan")


def table(runs, trials):
    marks = [m for m in (400, 500, 600, 800, trials) if m <= trials]
    print("estimate in ms (mean, min to max over seeds) after so many trials; re-measured network\n")
    wide = max(10, *(len(r["arm"]) + 1 for r in runs))
    print(f"{'arm':{wide}s}" + "".join(f"{m:>24d}" for m in marks) + f"{'network ms':>24s}{'s/trial':>9s}")
    for arm in dict.fromkeys(r["arm"] for r in runs):
        mine = [r for r in runs if r["arm"] == arm]
        cells = [[at(r["curve"], m) for r in mine] for m in marks] + [[r.get("network_ms", float("nan")) for r in mine]]
        text = "".join(f"{statistics.mean(c):8.3f} ({min(c):.3f}-{max(c):.3f})" for c in cells)
        print(f"{arm:{wide}s}{text}{statistics.mean(r['seconds'] for r in mine) / trials:9.3f}")


def plot(path, png):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs = [r for p in path.split(",") for r in json.loads(pathlib.Path(p).read_text())["runs"]]
    names = ("random", "analytic", "trees", "trees+base", "mlp", "trees+mlp", "xgb")
    colors = dict(zip(names, ("tab:gray", "tab:orange", "tab:blue", "tab:green", "tab:red", "tab:purple", "tab:brown")))
    labelled = set()
    for r in runs:
        pts = [(t, e) for t, _, e in r["curve"] if e < 1e6]
        label = None if r["arm"] in labelled else r["arm"]
        labelled.add(r["arm"])
        plt.plot([p[0] for p in pts], [p[1] for p in pts], color=colors.get(r["arm"]), label=label, linewidth=1)
    plt.xlabel("trials, all tasks together")
    plt.ylabel("weighted estimate of ResNet-18 (ms)")
    plt.yscale("log")
    ticks = [t for t in (0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5) if plt.ylim()[0] <= t <= plt.ylim()[1]]
    plt.yticks(ticks, [f"{t:g}" for t in ticks])
    plt.minorticks_off()
    plt.grid(True, linewidth=0.3)
    plt.legend()
    plt.tight_layout()
    plt.savefig(png, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--round", type=int, default=8)
    parser.add_argument("--base", help="trees to start from, for the arm trees+base")
    parser.add_argument("--no-network", action="store_true", help="do not time the networks of the logs at the end")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--arms", default="random,analytic,trees")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--min-repeat-ms", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no further run after so many seconds")
    parser.add_argument("--out", default=".")
    parser.add_argument("--plot", nargs=2, metavar=("JSON", "PNG"))
    args = parser.parse_args()
    if args.plot:
        return plot(*args.plot)
    import measuring
    import numpy as np

    import nestsmith as ns
    from nestsmith import auto_scheduler

    out, begin = pathlib.Path(args.out), time.time()
    target = ns.target.Target(args.target)
    mod, params, tasks, weights = measuring.resnet18(target)
    runs = []
    for seed in map(int, args.seeds.split(",")):
        for arm in args.arms.split(","):
            if time.time() - begin > args.seconds:
                print(f"out of time before {arm}, seed {seed}")
                continue
            log = out / f"quality-{arm.replace(':', '-').replace('=', '_')}-{seed}.json"
            log.unlink(missing_ok=True)
            context = auto_scheduler.LocalRPCMeasureContext(repeat=1, min_repeat_ms=args.min_repeat_ms, timeout=10)
            options = dict(runner=context.runner, measure_callbacks=[auto_scheduler.RecordToFile(str(log))])
            r = run_arm(arm, seed, tasks, weights, args, options) | {"log": log.name}
            runs.append(r)
            print(f"{arm} seed {seed}: {at(r['curve'], args.trials):.4f} ms after {args.trials} trials, {r['seconds']:.0f} s", flush=True)
            (out / "quality.json").write_text(json.dumps({"trials": args.trials, "round": args.round, "runs": runs}))
    data = np.random.default_rng(0).uniform(size=(1, 224, 224, 3)).astype("float32")
    if not args.no_network:
        remeasure(runs, out, target, mod, params, data)
    (out / "quality.json").write_text(json.dumps({"trials": args.trials, "round": args.round, "runs": runs}))
    table(runs, args.trials)


if __name__ == "__main__":
    main()
