"""How fast a network is after so many seconds of tuning, beside the same network after a long run.

    python benchmarks/search_seconds.py --final LOG [--network resnet18] [--seconds 20] [--runs 3] [--target cuda] [--rows DIR] [--out FILE]

--final is the log of the long run (it is only built). Each short run begins without a log, with another seed, and with an empty cache of
compiled programs. At the end all builds are timed in turn. What was measured is kept in --rows; without --final the table is made of it.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "relay"), str(ROOT / "benchmarks")]
os.environ["NESTSMITH_CACHE_MEMORY_MB"] = "0"
os.environ.setdefault("NESTSMITH_LOG_DIR", "")  # the logs that are named, and no others
TURNS, NUMBER = 15, 60


def measured(args):
    """Seconds of a run of each build, and what the short runs took: a row."""
    import gpu_peers
    import torch

    import nestsmith

    model, x = gpu_peers.network(args.network)
    how = {"target": args.target, "verbose": 0}
    builds = {"final": nestsmith.compile(model, (x,), trials=0, log=args.final, **how)}
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for k in range(args.runs):
            log = pathlib.Path(folder, f"{k}.json")
            os.environ["NESTSMITH_CACHE_DIR"] = str(pathlib.Path(folder, f"cache-{k}"))
            begin = time.time()
            builds[f"run {k + 1}"] = nestsmith.compile(model, (x,), trials=10**6, tune_seconds=args.seconds, log=log, **how)
            runs.append({"trials": len(log.read_text().splitlines()), "seconds": time.time() - begin})
        times = {name: [] for name in builds}
        for build in builds.values():
            build(x)
        for _ in range(TURNS):
            for name, build in builds.items():
                times[name].append(build.runtime.time_evaluator("run", number=NUMBER, repeat=1)().mean)
    device = torch.cuda.get_device_name() if args.target.startswith("cuda") else args.target
    trials = len(pathlib.Path(args.final).read_text().splitlines())
    times = {name: statistics.median(v) for name, v in times.items()}
    return {"network": args.network, "device": device, "limit": args.seconds, "final trials": trials, "times": times, "runs": runs}


def table(rows):
    lines = ["| Network | Device | Build | trials | seconds, with compiling | ms | of the final time |", "|---" * 7 + "|"]
    for r in rows:
        final = r["times"]["final"]
        lines.append(f"| {r['network']} | {r['device']} | final | {r['final trials']} | | {final * 1e3:.4f} | 1 |")
        for k, run in enumerate(r["runs"]):
            t = r["times"][f"run {k + 1}"]
            lines.append(f"| | | {r['limit']:.0f} s, run {k + 1} | {run['trials']} | {run['seconds']:.1f} | {t * 1e3:.4f} | {t / final:.3f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--final", help="log of the long run")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--rows", default="search_seconds", help="folder of what was measured")
    parser.add_argument("--out", default=str(ROOT / "docs" / "results" / "search-seconds.md"))
    args = parser.parse_args()
    folder = pathlib.Path(args.rows)
    folder.mkdir(parents=True, exist_ok=True)
    if args.final:
        (folder / f"{args.network}.row").write_text(json.dumps(measured(args)))
    rows = [json.loads(p.read_text()) for p in sorted(folder.glob("*.row"))]
    text = table(rows)
    pathlib.Path(args.out).write_text(
        "# After so many seconds of tuning\n\n`python benchmarks/search_seconds.py`: a network that was tuned for so many seconds (no log, an empty "
        f"cache), beside a long run's. Medians of {TURNS} times {NUMBER} runs, all builds in turn.\n\n{text}\n"
    )
    print(text)


if __name__ == "__main__":
    sys.exit(main())
