"""Templates against the auto-scheduler on ResNet-18 NCHW with equal trials, and what learning brings a tuner of templates.

    python benchmarks/templates_vs_search.py [--target cuda] [--trials 512] [--out docs/results]
    python benchmarks/templates_vs_search.py --seeds 10 --layers 1 --minutes 4 --trials 0 --feature knob --timeout 2 --min-repeat-ms 5
    python benchmarks/templates_vs_search.py --seeds 10 --trials 0 --simulate --target "cuda -arch=sm_90" --feature knob

First part: every task of the templates gets the same number of trials (XGBTuner), the auto-scheduler divides as many among its tasks
as it likes; a candidate that fails counts. Both networks are built from their logs and timed in turn. Second part: XGBTuner
against RandomTuner on two convolutions, all seeds side by side in common batches, every candidate measured in full. Compiling is
what takes time there: the second line gets some 200 trials for each of 20 tuners from 8 to 16 cores in four minutes.
"""

import argparse
import datetime
import pathlib
import random
import re
import statistics
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "benchmarks")]
import network  # noqa: E402
from not_a_number import device_name  # noqa: E402
from search_simulated import draw  # noqa: E402

import nestsmith as ns  # noqa: E402
from nestsmith import auto_scheduler, autotvm, relay  # noqa: E402
from nestsmith.autotvm.measure import MeasureInput, MeasureResult, create_measure_batch  # noqa: E402
from nestsmith.autotvm.measure.program import Programs, limits_of  # noqa: E402
from nestsmith.contrib import graph_executor  # noqa: E402

LAYERS = (1, 512, 7, 7), (1, 128, 28, 28)  # stage 4 and stage 2: inputs of the convolutions of the second part
RESIDUAL = 0.15  # deviation of ln time between a simulated device and the estimate
PLAN = 16  # trials between two trainings in the second part


# ---- first part: a network ----
def tune_templates(mod, params, target, args, log):
    """Tunes every task; (candidates, failures, seconds)."""
    begin = time.time()
    tasks = autotvm.task.extract_from_program(mod, params, target)
    each, failed = max(1, args.trials // len(tasks)), 0
    option = autotvm.measure_option(
        autotvm.LocalBuilder(timeout=args.timeout),
        autotvm.LocalRunner(number=3, repeat=1, min_repeat_ms=args.min_repeat_ms, cooldown_interval=0),
    )
    for k, task in enumerate(tasks):
        tuner = autotvm.tuner.XGBTuner(task, plan_size=max(8, each // 4), feature_type=args.feature)
        monitor = autotvm.callback.Monitor()
        tuner.tune(each, option, callbacks=[autotvm.callback.log_to_file(log), monitor])
        scores = monitor.trial_scores()
        failed += int((scores == 0).sum())
        print(f"[{k + 1}/{len(tasks)}] {task.name} {task.args[0][1]}: {tuner.best_flops / 1e9:.0f} GFLOPS, "
              f"{(scores == 0).sum()} of {len(scores)} failed, {time.time() - begin:.0f} s", flush=True)  # fmt: skip
    return each * len(tasks), failed, time.time() - begin


def tune_search(mod, params, target, args, log):
    """The same with the auto-scheduler."""
    begin = time.time()
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, target)
    runner = auto_scheduler.LocalRunner(number=3, repeat=1, min_repeat_ms=args.min_repeat_ms)
    auto_scheduler.TaskScheduler(tasks, weights).tune(
        auto_scheduler.TuningOptions(
            args.trials, runner=runner, builder=auto_scheduler.LocalBuilder(timeout=args.timeout), verbose=0,
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
        )
    )  # fmt: skip
    results = [r for _, r in auto_scheduler.RecordReader(log)]
    return len(results), sum(r.error_no != 0 for r in results), time.time() - begin


def built_with_templates(mod, params, target, log):
    with autotvm.apply_history_best(log), ns.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target, params=params)
    return graph_executor.GraphModule(lib["default"](ns.device(target.kind.name.replace("llvm", "cpu"), 0)))


def side_by_side(modules, device, image, rounds):
    """Median milliseconds of each, timed in turn; their outputs must agree."""
    data = np.random.default_rng(0).uniform(size=(1, 3, image, image)).astype("float32")
    outputs, timers, got = [], [], [[] for _ in modules]
    for m in modules:
        m.set_input("data", data)
        m.run()
        outputs.append(m.get_output(0).numpy())
        timers.append(m.module.time_evaluator("run", device, number=5, repeat=1))
    for other in outputs[1:]:
        np.testing.assert_allclose(other, outputs[0], rtol=2e-3, atol=1e-6)
    for _ in range(rounds):
        for g, timer in zip(got, timers):
            g.append(timer().mean * 1e3)
    return [statistics.median(g) for g in got]


def first_part(args, target, device, folder):
    """Rows of the table."""
    mod, params = relay.testing.resnet.get_workload(num_layers=18, batch_size=1, image_shape=(3, args.image, args.image))
    logs = [str(folder / n) for n in ("templates.log", "search.json")]
    told = [tune(mod, params, target, args, log) for tune, log in zip((tune_templates, tune_search), logs)]
    print("tuned:", told, flush=True)
    modules = [built_with_templates(mod, params, target, logs[0]), network.build(mod, params, target, logs[1])]
    names = f"templates, XGBTuner ({args.feature})", "auto-scheduler"
    times = side_by_side(modules, device, args.image, args.rounds)
    return [f"| {n} | {c} | {f} | {s:.0f} | {ms:.3f} |" for n, (c, f, s), ms in zip(names, told, times)]


# ---- second part: does learning beat chance ----
class Player:
    """A tuner with a seed of its own, whatever others draw meanwhile."""

    def __init__(self, make, seed):
        self._random, self.best, self.configs = random.Random(seed).getstate(), float("inf"), []
        self.tuner = self._alone(make)

    def _alone(self, do):
        outside = random.getstate()
        random.setstate(self._random)
        try:
            return do()
        finally:
            self._random = random.getstate()
            random.setstate(outside)

    def propose(self, n):
        self.configs = self._alone(lambda: self.tuner.next_batch(n))
        return self.configs

    def hear(self, inputs, results):
        self.best = min([self.best, *(float(np.mean(r.costs)) for r in results if not r.error_no)])
        self._alone(lambda: self.tuner.update(inputs, results))


def layer_tasks(target, count):
    """The direct template's tasks of the first layers."""
    for shape in LAYERS[:count]:
        ci = shape[1]
        data, weight = relay.var("data", shape=shape), relay.var("weight", shape=(ci, ci, 3, 3))
        func = relay.Function([data, weight], relay.nn.conv2d(data, weight, padding=(1, 1)))
        yield autotvm.task.extract_from_program(ns.IRModule.from_expr(func), {}, target)[0]


class Simulated:
    """A device that is none: the engine's estimate, times what it cannot know, drawn once and for all per configuration."""

    def __init__(self, task):
        self.task, self.model = task, auto_scheduler.AnalyticModel()
        self.programs = Programs(task, limits_of(task.target).get("check_gpu"))

    def __call__(self, inputs):
        return [self.measured(i) for i in inputs]

    def measured(self, inp):
        made = self.programs.try_of(inp, time.time)
        if isinstance(made, MeasureResult):
            return made
        score = self.model.predict(made.task, [made.state])[0]
        if score <= 0:
            return MeasureResult((RuntimeError("a limit of the device"),), 1, 0.0, time.time())
        return MeasureResult((1e-6 / score * float(np.exp(RESIDUAL * draw(self.task.workload, inp.config.index))),), 0, 0.0, time.time())

    def close(self):
        pass


def duel(task, args, until):
    """(wins, seeds, trials of each, best seconds of the learning ones and of the others)."""
    learn = [Player(lambda: autotvm.tuner.XGBTuner(task, plan_size=PLAN, feature_type=args.feature), s) for s in range(args.seeds)]
    chance = [Player(lambda: autotvm.tuner.RandomTuner(task), s) for s in range(args.seeds)]
    runner = autotvm.LocalRunner(number=3, repeat=1, min_repeat_ms=args.min_repeat_ms, cooldown_interval=0, mode="strict", check="off")
    option = autotvm.measure_option(autotvm.LocalBuilder(timeout=args.timeout), runner)
    measure = Simulated(task) if args.simulate else create_measure_batch(task, option)
    autotvm.GLOBAL_SCOPE.in_tuning = True
    trials = 0
    try:
        while trials < args.seed_trials and time.time() < until:
            inputs = [[MeasureInput(task.target, task, c) for c in p.propose(PLAN)] for p in learn + chance]
            results = iter(measure([i for mine in inputs for i in mine]))
            for p, mine in zip(learn + chance, inputs):
                p.hear(mine, [next(results) for _ in mine])
            trials += PLAN
            wins = sum(a.best < b.best for a, b in zip(learn, chance))
            print(f"{task.name} {task.args[0][1]}: {trials} trials each, XGBTuner ahead in {wins} of {args.seeds} seeds", flush=True)
    finally:
        autotvm.GLOBAL_SCOPE.in_tuning = False
        measure.close()
        for p in learn:
            p.tuner.end_of_run()
    a, b = ([p.best for p in side] for side in (learn, chance))
    return sum(x < y for x, y in zip(a, b)), args.seeds, trials, a, b


def second_part(args, target):
    """Rows of the table."""
    tasks, rows, until = list(layer_tasks(target, args.layers)), [], time.time()
    for task in tasks:
        until += 60 * args.minutes / len(tasks)
        wins, seeds, trials, a, b = duel(task, args, until)
        gain = statistics.median(y / x for x, y in zip(a, b))
        rows.append(f"| `{task.name}` {task.args[0][1]} | {trials} | {wins} of {seeds} | {1e6 * statistics.median(a):.1f} | "
                    f"{1e6 * statistics.median(b):.1f} | {gain:.2f} |")  # fmt: skip
    return rows


# ---- all ----
def write(folder, kind, title, what, head, rows, device):
    """One table as a page."""
    text = f"# {title}\n\n{what}, {datetime.date.today()}.\nWritten by `benchmarks/templates_vs_search.py`.\n\n{head}\n" + "\n".join(rows)
    out = pathlib.Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{kind}-{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-')}.md"
    path.write_text(text + "\n")
    print(text, f"written to {path}", sep="\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--trials", type=int, default=512, help="of the network, for each side; 0: second part only")
    parser.add_argument("--image", type=int, default=224, help="height and width of the image")
    parser.add_argument("--feature", default="itervar", choices=("itervar", "knob", "curve"), help="what the trees see")
    parser.add_argument("--seeds", type=int, default=0, help="of the second part")
    parser.add_argument("--seed-trials", type=int, default=256)
    parser.add_argument("--layers", type=int, default=len(LAYERS), help="tasks of the second part")
    parser.add_argument("--minutes", type=float, default=60, help="for the second part; it ends with a common batch")
    parser.add_argument("--simulate", action="store_true", help="second part: costs are the engine's estimates, disturbed")
    parser.add_argument("--timeout", type=int, default=10, help="seconds per build")
    parser.add_argument("--min-repeat-ms", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", default=str(ROOT / "docs" / "results"))
    args = parser.parse_args()
    target = ns.target.Target(args.target)
    device = ns.device(target.kind.name.replace("llvm", "cpu"), 0)
    name = "simulated" if args.simulate else device_name(target, device)
    if args.trials:
        with tempfile.TemporaryDirectory() as folder:
            rows = first_part(args, target, device, pathlib.Path(folder))
        what = f"ResNet-18, NCHW, batch 1, {args.image}x{args.image}, float32, `{target}`"
        head = "| | candidates | of these failed | tuning (s) | network (ms) |\n|---|---|---|---|---|"
        write(args.out, "templates-vs-search", f"Templates and the auto-scheduler: {name}", what, head, rows, name)
    if args.seeds:
        rows = second_part(args, target)
        what = f"Trees that see features of kind {args.feature}, {args.seeds} seeds, medians of the best, `{target}`"
        if args.simulate:
            what += f"; costs are the engine's estimates with a deviation of {RESIDUAL} in ln time"
        head = "| task | trials each | XGBTuner ahead | XGBTuner (µs) | RandomTuner (µs) | ratio |\n|---|---|---|---|---|---|"
        write(args.out, "xgb-vs-random", f"XGBTuner and RandomTuner: {name}", what, head, rows, name)


if __name__ == "__main__":
    main()
