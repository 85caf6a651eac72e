"""A network in two precisions, timed in turn in one process; and how far products of float32x3 are off on a GPU.

    python benchmarks/precisions.py [--networks resnet50,...] [--precisions float32,float32x3] [--trials 64 | --logs LOG,LOG] [--target cuda]
        [--rows DIR] [--out FILE]
    python benchmarks/precisions.py --errors [--out FILE]

Networks, and the names of logs and rows, are gpu_peers.py's, so its folder will do for --rows: the log of each precision is gone on with
until it holds so many trials per task; --trials 0 takes it as it is. --logs names the two of one network. PyTorch only gives the network
and its result, on the CPU (docs/measuring.md). A row is kept in --rows, and the table is made of all rows of the two precisions.

--errors: the largest error and the root of the mean of squares, against float64, of schedules that the search draws, and of plain float32.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("python", "tests/relay", "tests/search", "tests/gpu", "benchmarks")]
os.environ.setdefault("NESTSMITH_LOG_DIR", "")  # the logs that are named, and no others
from gpu_peers import NETWORKS, REPEATS, SAID, named, network

import nestsmith
from nestsmith.numerics import tolerance

SECONDS = 0.03  # of a repeat


def logs_of(args, name):
    """Of each precision."""
    return args.logs or [named(argparse.Namespace(rows=args.rows, precision=p), name, "json") for p in args.precisions]


def measured(args, name):
    """Tunes a network in both precisions, then builds and times both: a row."""
    import torch

    model, x = network(name)
    with torch.no_grad():
        want, model = model(x), torch.export.export(model, (x,))
    logs, builds = logs_of(args, name), []
    hows = [{"target": args.target, "precision": p, "log": log, "verbose": 0} for p, log in zip(args.precisions, logs)]
    if args.trials:
        for how in hows:
            tasks = nestsmith.compile(model, (x,), **{**how, "log": None}, guess=False).tasks
            nestsmith.compile(model, (x,), trials=args.trials * len(tasks), **how)
    trials = [len(pathlib.Path(log).read_text().splitlines()) for log in logs]
    for how in hows:
        builds.append(nestsmith.compile(model, (x,), **how))
        error = float((builds[-1](x) - want).abs().max() / want.abs().max())
        limit = tolerance(how["precision"])
        assert error < limit, f"{name} in {how['precision']} differs from PyTorch by {error:.1e} of the largest value"
    time_of = [lambda n, b=b: b.runtime.time_evaluator("run", number=n, repeat=1)().mean for b in builds]
    number = [max(5, int(SECONDS / max(f(5), 1e-6))) for f in time_of]
    seconds = [[f(n) for f, n in zip(time_of, number)] for _ in range(REPEATS)]
    return {
        "network": name,
        "device": nestsmith.device(args.target, 0).device_name,
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "trials": trials,
        "times": [statistics.quantiles(v, n=4) for v in zip(*seconds)],
    }


def table(rows, precisions):
    names = [f"{p}, ms" for p in precisions] + [f"{precisions[1]}: times as fast", "Device", "trials", "measured"]
    lines = [f"| Network | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for r in rows:
        times = [f"{b * 1e3:.3f} ({a * 1e3:.3f} to {c * 1e3:.3f})" for a, b, c in r["times"]]
        ratio = r["times"][0][1] / r["times"][1][1]
        lines.append(
            f"| {r['network']} | {' | '.join(times)} | {ratio:.2f} | {r['device']} | {' and '.join(map(str, r['trials']))} | {r['date']} |"
        )
    return "\n".join(lines)


def errors(three_terms):
    lines = ["| terms | kind | schedule | largest error | of plain float32's | root of mean square | of plain float32's |", "|---" * 7 + "|"]
    worst = []
    for k in three_terms.SUMS:
        plain = three_terms.plain(k)
        for r in three_terms.rows(k):
            ratios = [e / p for e, p in zip(r.errors, plain)]
            cells = [f"{e:.2e} | {ratio:.2f}" for e, ratio in zip(r.errors, ratios)]
            lines.append(f"| {k} | {r.kind} | {r.schedule} | {' | '.join(cells)} |")
            worst += [ratios] if "float32x3" in r.schedule else []
    largest, mean = ([f(r[n] for r in worst) for f in (min, max)] for n in range(2))
    return "\n".join(lines), (
        f"float32x3: the largest error is {largest[0]:.2f} to {largest[1]:.2f} times that of plain float32, the root of the mean of squares "
        f"{mean[0]:.2f} to {mean[1]:.2f} times."
    )


def written(args, name, device, title, text):
    out = args.out or ROOT / "docs" / "results" / f"{name}-{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-')}.md"
    pathlib.Path(out).write_text(f"# {title}\n\n{text}\n")
    print(f"{text}\nthe table is in {out}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default="resnet50", help="comma-separated: " + ", ".join(NETWORKS))
    parser.add_argument("--precisions", default="float32,float32x3", help="two of " + ", ".join(SAID))
    parser.add_argument("--trials", type=int, default=64, help="per task, in each precision; 0: what the logs hold")
    parser.add_argument("--logs", help="the two logs, comma-separated, of the one network")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--rows", default="gpu_peers", help="folder of rows and tuning logs")
    parser.add_argument("--errors", action="store_true", help="of float32x3, in place of times")
    parser.add_argument("--out", help="where the table goes (default: docs/results/WHAT-DEVICE.md)")
    args = parser.parse_args()
    if args.errors:
        import three_terms

        text, said = errors(three_terms)
        device, shape = nestsmith.cuda(0).device_name, f"{three_terms.ROWS} x {three_terms.COLUMNS}"
        return written(
            args, "float32x3-errors", device, "Errors of float32x3 on a GPU",
            f"`python benchmarks/precisions.py --errors` on {device}, {time.strftime('%Y-%m-%d', time.gmtime())}: products of matrices of "
            f"normal numbers, {shape} results, against float64. Plain float32 is the first product by lanes, which adds term after term; "
            f"schedules are the first ones of each kind that the search draws.\n\n{said}\n\n{text}",
        )  # fmt: skip
    names, args.precisions = args.networks.split(","), args.precisions.split(",")
    args.logs = args.logs and args.logs.split(",")
    for what, given, known in (("network", names, NETWORKS), ("precision", args.precisions, SAID)):
        if wrong := [n for n in given if n not in known]:
            parser.error(f"{what} {wrong[0]!r} is not known; known are {', '.join(known)}")
    if len(args.precisions) != 2 or args.logs and (len(args.logs), len(names)) != (2, 1):
        parser.error("there are two precisions, and two logs of one network")
    folder, pair = pathlib.Path(args.rows), "-beside-".join(args.precisions[::-1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.{pair}").write_text(json.dumps(measured(args, name)))
    rows = [json.loads((folder / f"{n}.{pair}").read_text()) for n in NETWORKS if (folder / f"{n}.{pair}").exists()]
    devices = sorted({r["device"] for r in rows})
    words = [SAID[p].split(" (")[0] for p in args.precisions]
    return written(
        args, pair, devices[0], f"Networks in {args.precisions[1]} beside {args.precisions[0]}",
        f"`python benchmarks/precisions.py --precisions {','.join(args.precisions)}` on {' and '.join(devices)}: the same network "
        f"in both, in one process, in which nothing else uses the device. Batch 1, {words[0]} and {words[1]}. Milliseconds: median (first to "
        f"third quartile) of {REPEATS} repeats of {SECONDS * 1e3:.0f} ms, in turn.\n\n{table(rows, args.precisions)}",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
