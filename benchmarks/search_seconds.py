"""How fast a network is after so many seconds of tuning, or trials, beside the same network after a long run.

    python benchmarks/search_seconds.py --final LOG [--network resnet18] [--seconds 20 | --trials 64] [--runs 3] [--target cuda] [--rows DIR]
        [--out FILE] [--beside DIR] [--beside-trials 200]

--final is the log of the long run (it is only built). Each short run begins without a log, with another seed, and with an empty cache of
compiled programs. At the end all builds are timed in turn. --trials is per task. --beside is the checkout of another nestsmith, built: it
tunes and measures the network in a process of its own, before these. What was measured is kept in --rows; without --final the table is
made of it.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "relay"), str(ROOT / "benchmarks")]
os.environ["NESTSMITH_CACHE_MEMORY_MB"] = "0"
os.environ.setdefault("NESTSMITH_LOG_DIR", "")  # the logs that are named, and no others
TURNS, NUMBER = 15, 60
OTHER = """
import json, statistics, sys, time
root, network, target, trials, log, turns, number = sys.argv[1:]
sys.path[:0] = [f"{root}/python", f"{root}/tests/relay", f"{root}/benchmarks"]
import gpu_peers, nestsmith
model, x = gpu_peers.network(network)
tasks = len(nestsmith.compile(model, (x,), target=target, guess=False, verbose=0).tasks)
begin = time.time()
build = nestsmith.compile(model, (x,), target=target, trials=int(trials) * tasks, log=log, verbose=0)
spent = time.time() - begin
build(x)
runs = [build.runtime.time_evaluator("run", number=int(number), repeat=1)().mean for _ in range(int(turns))]
print(json.dumps({"trials": len(open(log).readlines()), "seconds": spent, "time": statistics.median(runs)}))
"""


def beside(args):
    """What another nestsmith makes of the network: trials, seconds with compiling, seconds of a run."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "NESTSMITH_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": ""}
        words = [
            args.beside,
            args.network,
            args.target,
            str(args.beside_trials),
            f"{folder}/log.json",
            str(TURNS),
            str(NUMBER),
        ]
        out = subprocess.run(
            [sys.executable, "-c", OTHER, *words], env=env, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    return {**json.loads(out.splitlines()[-1]), "name": pathlib.Path(args.beside).name, "per task": args.beside_trials}


@contextlib.contextmanager
def clocked(module, name):
    """[seconds of each call of a function of a module, by whomever]."""
    inner, seconds = getattr(module, name), []

    def outer(*args):
        begin = time.time()
        found = inner(*args)
        seconds.append(time.time() - begin)
        return found

    setattr(module, name, outer)
    try:
        yield seconds
    finally:
        setattr(module, name, inner)


def measured(args):
    """Seconds of a run of each build, and what the short runs took: a row."""
    import gpu_peers
    import torch

    import nestsmith
    from nestsmith.compiled import schedules

    model, x = gpu_peers.network(args.network)
    how = {"target": args.target, "verbose": 0}
    other = beside(args) if args.beside else None
    builds = {"final": nestsmith.compile(model, (x,), trials=0, log=args.final, **how)}
    trials = args.trials * len(builds["final"].tasks) if args.trials else 10**6
    seconds, runs = None if args.trials else args.seconds, []
    with tempfile.TemporaryDirectory() as folder:
        for k in range(args.runs):
            log = pathlib.Path(folder, f"{k}.json")
            os.environ["NESTSMITH_CACHE_DIR"] = str(pathlib.Path(folder, f"cache-{k}"))
            begin = time.time()
            with clocked(schedules, "tune") as tuning:  # of what `compile` does
                builds[f"run {k + 1}"] = nestsmith.compile(model, (x,), trials=trials, tune_seconds=seconds, log=log, **how)
            spent = time.time() - begin
            runs.append({"trials": len(log.read_text().splitlines()), "seconds": spent, "tuning": sum(tuning)})
        times = {name: [] for name in builds}
        for build in builds.values():
            build(x)
        for _ in range(TURNS):
            for name, build in builds.items():
                times[name].append(build.runtime.time_evaluator("run", number=NUMBER, repeat=1)().mean)
    device = torch.cuda.get_device_name() if args.target.startswith("cuda") else args.target
    known = {
        "network": args.network,
        "device": device,
        "cores": len(os.sched_getaffinity(0)),
        "limit": args.seconds,
        "per task": args.trials,
        "runs": runs,
        "beside": other,
    }
    times = {name: statistics.median(v) for name, v in times.items()}
    return {**known, "final trials": len(pathlib.Path(args.final).read_text().splitlines()), "times": times}


def table(rows):
    lines = [
        "| Network | Device | cores | Build | trials | seconds, with compiling | of them tuning | per trial | ms | of the final time |",
        "|---" * 10 + "|",
    ]
    for r in rows:
        final = r["times"]["final"]
        lines.append(f"| {r['network']} | {r['device']} | {r.get('cores', '')} | final | {r['final trials']} | | | | {final * 1e3:.4f} | 1 |")
        limit = f"{r['per task']} trials per task" if r.get("per task") else f"{r['limit']:.0f} s"
        found = [(f"{limit}, run {k + 1}", run, r["times"][f"run {k + 1}"]) for k, run in enumerate(r["runs"])]
        if other := r.get("beside"):
            found.append((f"{other['name']}, {other['per task']} trials per task", other, other["time"]))
        for said, run, t in found:
            tuning = f"{run['tuning']:.1f} | {run['tuning'] / run['trials']:.4f}" if "tuning" in run else "|"
            lines.append(f"| | | | {said} | {run['trials']} | {run['seconds']:.1f} | {tuning} | {t * 1e3:.4f} | {t / final:.3f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--final", help="log of the long run")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--trials", type=int, help="per task, in place of seconds")
    parser.add_argument("--beside", help="checkout of another nestsmith")
    parser.add_argument("--beside-trials", type=int, default=200, help="per task")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--rows", default="search_seconds", help="folder of what was measured")
    parser.add_argument("--out", default=str(ROOT / "docs" / "results" / "search-seconds.md"))
    args = parser.parse_args()
    folder = pathlib.Path(args.rows)
    folder.mkdir(parents=True, exist_ok=True)
    if args.final:
        name = f"{args.network}-trials" if args.trials else args.network
        (folder / f"{name}.row").write_text(json.dumps(measured(args)))
    rows = [json.loads(p.read_text()) for p in sorted(folder.glob("*.row"))]
    text = table(rows)
    pathlib.Path(args.out).write_text(
        "# After so many seconds of tuning, or trials\n\n`python benchmarks/search_seconds.py`: a network that was tuned for so many seconds "
        f"or trials (no log, an empty cache), beside a long run's. Cores are those that the process has; a run's seconds are those of "
        f"`nestsmith.compile`, from the model to what runs, and of tuning those that the log grew in, the start of its workers included. "
        f"Medians of {TURNS} times {NUMBER} runs, all builds in turn"
        f"{' but that of a commit, which is another nestsmith, before them' if any(r.get('beside') for r in rows) else ''}.\n\n{text}\n"
    )
    print(text)


if __name__ == "__main__":
    sys.exit(main())
