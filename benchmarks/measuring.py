"""Is a measured latency true? Short tables about the measuring itself, on one GPU (`--target llvm` for a CPU).

    python benchmarks/measuring.py [--only same,rank,events,modes,load,speed] [--trials 2000] ...

same    one program measured 50 times as 50 candidates: spread of quick, full and final results
rank    random candidates, quick against strict (min_repeat_ms=300): rank correlation of the fastest half of each task,
        and how much slower auto's winners are than strict's, measured side by side
events  20 programs of 2 us to 20 ms: our figure against the durations that CUPTI reports (through torch.profiler)
modes   the same search seed with auto and with strict: weighted latency of the winners, measured side by side. A model
        that learns proposes other candidates after other times: with --cost-model random or analytic both modes measure
        almost the same ones; the learned one needs several seeds (--mode-seeds)
load    another process uses the GPU for 10 s in the middle of a run: what the summary says, and whether the recorded
        latencies of the winners are true all the same
speed   seconds per trial on ResNet-18, idle share of the GPU, predicted against measured network
"""

import argparse
import functools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
import helpers  # noqa: E402
import nestsmith as ns  # noqa: E402
from nestsmith import _core, auto_scheduler, relay  # noqa: E402
from nestsmith.auto_scheduler.cost import is_quick  # noqa: E402
from nestsmith.auto_scheduler.measure import MeasureInput  # noqa: E402
from nestsmith.auto_scheduler.measure_record import RecordReader  # noqa: E402
from nestsmith.auto_scheduler.session import Measurer  # noqa: E402
from nestsmith.contrib import graph_executor  # noqa: E402
from nestsmith.states import core_state  # noqa: E402

DEVICE = {"llvm": 1, "cuda": 2, "opencl": 4}


def resnet18(target, image=224):
    """Network, parameters, tasks and their weights."""
    mod, params = relay.testing.resnet.get_workload(
        num_layers=18, batch_size=1, layout="NHWC", image_shape=(image, image, 3), dtype="float32"
    )
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, target)
    return mod, params, tasks, weights


def policy(min_repeat_ms, strict=False, cache="mixed", race=False, timeout=10.0):
    return helpers.policy(number=3, min_repeat_ms=min_repeat_ms, timeout=timeout, strict=strict, cache=cache, race=race)


class Bench:
    """Programs of tasks, built once and measured as often as asked."""

    def __init__(self, target):
        self.target = ns.target.Target(target)
        self.kind = DEVICE[self.target.kind.name]
        self.engine = None
        self.pipe, self.numbers = None, {}

    def program(self, task, state, layout=None):
        """(source, manifest) or None if the state is no program for this device."""
        layout = int(task.layout_rewrite_option or 0) if layout is None else layout
        try:
            return _core.candidate_source(state, task.engine_target(), layout)
        except (RuntimeError, ValueError):
            return None

    def open(self, task):
        self.engine = task.target.engine()
        self.pipe, self.numbers = _core.Pipeline(self.engine, self.kind, 0), {}

    def close(self):
        if self.pipe:
            self.pipe.close()
        self.pipe, self.numbers = None, {}

    def fresh(self, task):
        """A new task of the pipeline: its candidates race among themselves."""
        if self.pipe is None:
            self.open(task)
        arrays, exact = _core.reference_data(task.compute_dag), _core.reference_exact(task.compute_dag)
        rows = [
            (len(a), a, not t.op.is_placeholder, t.dtype, e)
            for a, t, e in zip(arrays, task.compute_dag.tensors, exact)
        ]
        return self.pipe.task(_core.TaskData(rows))

    def number(self, task):
        if id(task) not in self.numbers:
            self.numbers[id(task)] = self.fresh(task)
        return self.numbers[id(task)]

    def run(self, jobs, how):
        """jobs: (task number, source, manifest); results in their order."""
        for tag, (number, source, manifest) in enumerate(jobs):
            self.pipe.submit(number, source, manifest, tag, how)
        out = {}
        while self.pipe.pending():
            for r in self.pipe.poll(0.2):
                out[r["tag"]] = r
        return [out[i] for i in range(len(jobs))]


def inputs_of(task):
    """Small integers in the shape of each tensor."""
    rng = np.random.default_rng(0)
    return [
        rng.integers(-3, 4, [int(d) for d in t.shape]).astype(t.dtype) for t in task.compute_dag.tensors
    ]


def samples(task, n, seed=1):
    """Up to n distinct random states."""
    policy = auto_scheduler.SketchPolicy(
        task, "random", params={"sample_init_min_population": 2 * n}, seed=seed, verbose=0
    )
    seen, out = set(), []
    for s in policy.sample_initial_population():
        s = core_state(s)
        if s.steps() not in seen:
            seen.add(s.steps())
            out.append(s)
    return out[:n]


def ranks(v):
    order = np.argsort(np.asarray(v), kind="stable")
    r = np.empty(len(v))
    r[order] = np.arange(len(v))
    return r


def spearman(a, b):
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1]) if len(a) > 2 else float("nan")


def spread(v):
    """Standard deviation, and all of the range, relative to the median."""
    m = statistics.median(v)
    return 100 * statistics.pstdev(v) / m, 100 * (max(v) - min(v)) / m


def pick_tasks(tasks, n):
    """n tasks with reductions, evenly over all."""
    big = [t for t in tasks if t.compute_dag.flop_ct > 1e6] or tasks
    step = max(1, len(big) // n)
    return big[::step][:n]


# ---- the same program as many candidates ----


def same(bench, tasks, args):
    print(f"\nOne program as {args.copies} candidates (sd and range in % of the median; limits: full 1 %, quick 3 %)")
    print(f"{'task':44s} {'us':>9s} {'quick sd':>9s} {'range':>6s} {'full sd':>9s} {'range':>6s} {'final sd':>9s} {'range':>6s}")
    chosen = []
    for t in pick_tasks(tasks, args.kernels):
        states = [(s, bench.program(t, s)) for s in samples(t, 12)]
        chosen.append((t, [p for _, p in states if p]))
    for k, (t, programs) in enumerate(chosen):
        number = bench.number(t)
        first = bench.run([(number, *p) for p in programs], policy(1))
        good = sorted((r["costs"][0], i) for i, r in enumerate(first) if r["error"] == 0)
        if not good:
            continue
        program = programs[good[(k * 3) % len(good)][1]]  # fast and slow ones
        alone = bench.run([(number, *program)] * args.copies, policy(args.min_repeat_ms))
        finals = []
        for _ in range(args.copies // 5):
            finals += bench.run([(bench.fresh(t), *program)] * 5, policy(args.min_repeat_ms, race=True))
        q = [r["quick"] for r in alone]
        f = [r["costs"][0] for r in alone]
        z = [r["costs"][0] for r in finals if r["full"]]
        a, b, c = spread(q), spread(f), spread(z) if z else (float("nan"),) * 2
        print(f"{t.desc[:44]:44s} {1e6 * statistics.median(f):9.2f} {a[0]:9.2f} {a[1]:6.2f} {b[0]:9.2f} {b[1]:6.2f} {c[0]:9.2f} {c[1]:6.2f}")
    bench.close()


# ---- quick against strict ----


def rank(bench, tasks, args):
    some = pick_tasks(tasks, args.rank_tasks)
    per = max(4, args.candidates // max(1, len(some)))
    jobs, rows = [], []
    for t in some:
        number = bench.number(t)
        for s in samples(t, per, seed=7):
            p = bench.program(t, s)
            if p:
                jobs.append((number, *p))
                rows.append((t, s))
    begin = time.time()
    fast = bench.run(jobs, policy(1))  # quick is taken; the one block of the full stage is not
    middle = time.time()
    full = bench.run(jobs, policy(300, strict=True))
    end = time.time()
    good = [i for i in range(len(jobs)) if fast[i]["error"] == 0 == full[i]["error"]]
    print(
        f"\nQuick against strict, {len(good)} random candidates of {len(some)} tasks "
        f"({(middle - begin) / len(jobs):.3f} s and {(end - middle) / len(jobs):.3f} s each; limit: 0.99)"
    )
    print(f"{'task':44s} {'n':>4s} {'best us':>9s} {'all':>7s} {'fast half':>9s} {'|quick/strict-1| median':>24s} {'p95':>6s} {'regret %':>9s}")
    every, halves = [], []
    for t in some:
        mine = sorted((full[i]["costs"][0], fast[i]["quick"], i) for i in good if rows[i][0] is t)
        if len(mine) < 8:
            continue
        s, q = np.array([m[0] for m in mine]), np.array([m[1] for m in mine])
        h = len(mine) // 2
        off = np.abs(q / s - 1)
        far = [m for m in mine if abs(m[1] / m[0] - 1) > 0.03]
        regret = 100 * (s[int(np.argmin(q))] / s[0] - 1)
        halves.append(spearman(s[:h], q[:h]))
        every += [(m[0], m[1]) for m in mine[:h]]
        print(
            f"{t.desc[:44]:44s} {len(mine):4d} {1e6 * s[0]:9.2f} {spearman(s, q):7.4f} {halves[-1]:9.4f} "
            f"{100 * np.median(off):23.2f}% {100 * np.percentile(off, 95):5.2f}% {regret:9.2f}"
        )
        for strict, quick, i in far[:3]:
            r = fast[i]
            print(f"    strict {1e6 * strict:.2f} us, quick {1e6 * quick:.2f} us ({r['blocks']} blocks, spread {100 * r['spread']:.2f} %)")
    print(f"{'median of the tasks':44s} {'':22s} {statistics.median(halves):9.4f}")
    print(f"{'fastest halves of all tasks together':44s} {'':22s} {spearman(*zip(*every)):9.4f}")
    bench.close()


# ---- against a profiler ----


def profiled(call, sync, n):
    """Mean duration in seconds of the kernels of one call, by CUPTI."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        call()
    sync()
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        for _ in range(n):
            call()
        sync()
        torch.cuda.synchronize()
    spans = [
        e.time_range.elapsed_us()
        for e in prof.events()
        if e.device_type == torch.autograd.DeviceType.CUDA and "mem" not in e.name.lower()
    ]
    return len(spans), sum(spans) * 1e-6 / n


CHAIN = """extern "C" __global__ void chain(const float* __restrict__ x, float* __restrict__ y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < %d; k++) v = v * 0.5f + 1;
  y[i] = v;
}
"""


def chain_program(steps, sm, n=1 << 19):
    """(source, manifest, arrays) of a program whose length is what one likes."""
    array = {"dtype": "float32", "shape": [n], "bytes": 4 * n, "align": 64}
    kernel = {
        "name": "chain",
        "params": [{"kind": "arg", "index": i, "read_only": i == 0} for i in range(2)],
        "grid": [n // 256, 1, 1],
        "block": [256, 1, 1],
    }
    args = [{**array, "name": "x", "read_only": True}, {**array, "name": "y", "read_only": False}]
    manifest = {"format": 1, "target": "cuda", "entry": "chain", "sm": sm, "args": args, "work": [], "kernels": [kernel]}
    return CHAIN % steps, json.dumps(manifest), [np.ones(n, "float32"), np.zeros(n, "float32")]


def events(bench, tasks, args):
    import torch

    from nestsmith.runtime.module import OperatorModule

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    dev, engine = ns.cuda(0), None
    programs = []
    for t in pick_tasks(tasks, 12):
        engine = t.target.engine()
        programs += [(t.desc, *p, inputs_of(t)) for s in samples(t, args.per_task, seed=3) if (p := bench.program(t, s, 0))]
    sm = engine.sm
    programs += [(f"{k} dependent operations", *chain_program(k, sm)) for k in (3000 * 2**i for i in range(15))]
    ready, seconds = [], []
    for desc, source, manifest, values in programs:
        binary = _core.build(engine, source)[0]
        mod = OperatorModule(source, manifest, binary)
        arrays = [ns.nd.array(v, dev) for v in values]
        ready.append((desc, mod, arrays, functools.partial(mod.time_evaluator(mod.entry_name, dev, 3, 3, 10), *arrays)))
        seconds.append(ready[-1][3]().median)
    chosen = []
    for want in np.geomspace(2e-6, 20e-3, 20):
        left = [i for i in range(len(ready)) if i not in chosen]
        chosen.append(min(left, key=lambda i: abs(np.log(seconds[i] / want))))
    chosen.sort(key=lambda i: seconds[i])
    print(f"\nOur figure against CUPTI's kernel durations, {len(chosen)} programs (limit: 3 % + 1 us for each launch)")
    print(f"{'program':44s} {'kernels':>7s} {'ours us':>10s} {'CUPTI us':>10s} {'diff us':>8s} {'diff %':>7s}  within")
    bad = 0
    for i in chosen:
        desc, mod, arrays, timer = ready[i]
        cost = timer().median
        n = int(max(5, min(200, 0.05 / cost)))
        kernels, busy = profiled(functools.partial(mod, *arrays), dev.sync, n)
        cost = statistics.median((cost, timer().median, timer().median))
        off = cost - busy
        ok = abs(off) <= 0.03 * busy + 1e-6 * max(1, kernels // n)
        bad += not ok
        print(
            f"{desc[:44]:44s} {kernels / n:7.1f} {1e6 * cost:10.2f} {1e6 * busy:10.2f} {1e6 * off:8.2f} "
            f"{100 * off / busy:7.2f}  {'yes' if ok else 'NO'}"
        )
    print(f"{len(chosen) - bad} of {len(chosen)} within the limit")


# ---- whole runs ----


def tune(tasks, weights, trials, mode, log, seed, min_repeat_ms, verbose=0, cost_model=None, per_round=None):
    runner = auto_scheduler.LocalRunner(min_repeat_ms=min_repeat_ms, mode=mode)
    tuner = auto_scheduler.TaskScheduler(tasks, weights, callbacks=[], seed=seed)
    begin = time.time()
    tuner.tune(
        auto_scheduler.TuningOptions(
            trials,
            runner=runner,
            verbose=verbose,
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
            **({"num_measures_per_round": per_round} if per_round else {}),
        ),
        cost_model=cost_model,
    )
    return tuner, time.time() - begin


def winners(tasks, log):
    """Best state of each task in a log; full results before quick ones."""
    best = {}
    for inp, res in RecordReader(log):
        if res.error_no == 0:
            key = (is_quick(res), statistics.mean(res.costs))
            if inp.task.workload_key not in best or key < best[inp.task.workload_key][0]:
                best[inp.task.workload_key] = (key, inp.state.steps())
    return [_core.State(t.compute_dag, best[t.workload_key][1]) if t.workload_key in best else None for t in tasks]


def side_by_side(tasks, sets, min_repeat_ms, l2="mixed", times=5):
    """Seconds of each program of each set, nan if one does not run; the programs of one task are measured in turn."""
    runner = auto_scheduler.LocalRunner(min_repeat_ms=min_repeat_ms, mode="strict", l2=l2)
    out = [[] for _ in sets]
    with Measurer(auto_scheduler.TuningOptions(1, runner=runner, verbose=0), check=False) as m:
        for t, states in zip(tasks, zip(*sets)):
            results = m.measure(t, None, [MeasureInput(t, s) for s in states] * times)
            for k in range(len(sets)):
                mine = [r.costs[0] for r in results[k :: len(sets)] if r.error_no == 0]
                out[k].append(statistics.median(mine) if mine else float("nan"))
    return out


def one_mode(tasks, weights, args, mode, seed, log):
    """Best states of a run, and its seconds per trial."""
    tuner, took = tune(tasks, weights, args.mode_trials, mode, log, seed, 300, cost_model=args.cost_model, per_round=args.round)
    print(f"{mode}, seed {seed}: {tuner.ct} trials, {took / max(1, tuner.ct):.3f} s each", flush=True)
    for line in tuner.measurer.split.text().splitlines():
        print("   ", line)
    return winners(tasks, log)


def modes(bench, tasks, weights, args):
    keep = pick_tasks(tasks, args.mode_tasks) if args.mode_tasks else tasks
    w = [weights[tasks.index(t)] for t in keep]
    seeds = [int(s) for s in args.mode_seeds.split(",")]
    totals, off = [], []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as d:
            sets = [one_mode(keep, w, args, mode, seed, f"{d}/{mode}.json") for mode in ("auto", "strict")]
        both = [i for i in range(len(keep)) if sets[0][i] is not None and sets[1][i] is not None]
        got = side_by_side([keep[i] for i in both], [[s[i] for i in both] for s in sets], 100)
        totals.append([1e3 * sum(w[i] * g for i, g in zip(both, gs)) for gs in got])
        off.append(100 * (totals[-1][0] / totals[-1][1] - 1))
    print(
        f"\nSame seed, {args.mode_trials} trials on {len(keep)} tasks, candidates ranked by "
        f"{args.cost_model or 'the learned model'}: winners measured in turn (limit: 2 %)"
    )
    for seed, (auto, strict), o in zip(seeds, totals, off):
        print(f"seed {seed}: auto {auto:.4f} ms, strict {strict:.4f} ms: auto is {o:+.2f} %")
    if len(seeds) > 1:
        error = statistics.stdev(off) / len(seeds) ** 0.5
        print(f"mean {statistics.mean(off):+.2f} %, standard error {error:.2f}")
    bench.close()


OTHER = """
import sys, time
import torch
time.sleep(float(sys.argv[1]))
a = torch.rand(4096, 4096, device="cuda")
b = a @ a
torch.cuda.synchronize()
print(time.time(), flush=True)
end = time.time() + float(sys.argv[2])
while time.time() < end:
    for _ in range(50):
        b = a @ a
    torch.cuda.synchronize()
"""


def load(bench, tasks, weights, args):
    keep = pick_tasks(tasks, 6)
    w = [weights[tasks.index(t)] for t in keep]
    with tempfile.TemporaryDirectory() as d:
        log = f"{d}/log.json"
        other = subprocess.Popen([sys.executable, "-c", OTHER, "2", "10"], stdout=subprocess.PIPE, text=True)
        begin = time.time()
        tuner, took = tune(keep, w, args.load_trials, "auto", log, args.seed, 100, verbose=1, per_round=args.round)
        start = float(other.stdout.readline()) - begin
        print(f"\nA run of {took:.0f} s, another process on the GPU from {start:.0f} s to {start + 10:.0f} s")
        other.wait()
        states = winners(keep, log)
        marks = [res.extra for _, res in RecordReader(log) if res.error_no == 0]
    again, disturbed = (sum(bool(m.get(k)) for m in marks) for k in ("redone", "disturbed"))
    print(f"records marked: {again} measured again, {disturbed} disturbed")
    both = [i for i in range(len(keep)) if states[i] is not None]
    (now,) = side_by_side([keep[i] for i in both], [[states[i] for i in both]], 100)
    for i, seconds in zip(both, now):
        recorded = tuner.best_costs[i]
        print(
            f"  {keep[i].desc[:44]:44s} recorded {1e6 * recorded:8.2f} us, alone on the GPU {1e6 * seconds:8.2f} us: "
            f"{100 * (recorded / seconds - 1):+.2f} %"
        )
    bench.close()


def speed(bench, network, args):
    mod, params, tasks, weights = network
    log = args.log or tempfile.mktemp(suffix=".json")
    tuner, took = tune(tasks, weights, args.trials, "auto", log, args.seed, 300, per_round=args.round)
    split = tuner.measurer.split
    print(f"\nResNet-18, auto: {tuner.ct} trials in {took:.1f} s: {took / tuner.ct:.4f} s per trial (limit 0.10; TVM 3.0)")
    print(split.text())
    with auto_scheduler.ApplyHistoryBest(log):
        with ns.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
            lib = relay.build(mod, target=bench.target, params=params)
    dev = ns.device(str(bench.target), 0)
    m = graph_executor.GraphModule(lib["default"](dev))
    m.set_input("data", np.random.default_rng(0).uniform(size=(1, 224, 224, 3)).astype("float32"))
    net = m.module.time_evaluator("run", dev, number=50, repeat=20)().results
    predicted, measured = 1e3 * tuner.cur_score, 1e3 * statistics.median(net)
    print(f"Network: predicted {predicted:.4f} ms (sum over tasks), measured {measured:.4f} ms: ratio {measured / predicted:.3f} (limit 1.10)")
    for name in ("hot", "mixed", "cold"):
        total = 1e3 * sum(w * c for w, c in zip(weights, side_by_side(tasks, [winners(tasks, log)], 30, name, 1)[0]))
        print(f"  winners measured again, l2={name:5s}: {total:.4f} ms, ratio {measured / total:.3f}")
    return log


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="same,rank,events,speed,modes")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--copies", type=int, default=50)
    parser.add_argument("--kernels", type=int, default=6, help="programs of `same`")
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--rank-tasks", type=int, default=8)
    parser.add_argument("--per-task", type=int, default=12, help="random candidates per task among which `events` chooses")
    parser.add_argument("--min-repeat-ms", type=int, default=100)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--mode-trials", type=int, default=768)
    parser.add_argument("--mode-tasks", type=int, default=0)
    parser.add_argument("--mode-seeds", default="1", help="of `modes`, separated by commas")
    parser.add_argument("--cost-model", help="of `modes`")
    parser.add_argument("--round", type=int, help="candidates per round of modes, load and speed")
    parser.add_argument("--load-trials", type=int, default=1280)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log")
    args = parser.parse_args()
    bench = Bench(args.target)
    network = resnet18(bench.target, args.image)
    failed = 0
    for name in args.only.split(","):
        begin = time.time()
        try:
            if name in ("same", "rank", "events"):
                {"same": same, "rank": rank, "events": events}[name](bench, network[2], args)
            elif name == "modes":
                modes(bench, network[2], network[3], args)
            elif name == "load":
                load(bench, network[2], network[3], args)
            elif name == "speed":
                speed(bench, network, args)
            else:
                raise ValueError(f"--only names {name!r}; there are same, rank, events, modes, load and speed")
        except Exception as e:  # the other tables are worth having
            print(f"{name} failed: {type(e).__name__}: {e}")
            failed += 1
            bench.close()
        print(f"[{name}: {time.time() - begin:.0f} s]", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
