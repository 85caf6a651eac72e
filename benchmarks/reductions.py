"""Reductions, norms and running values beside PyTorch and, if asked for, beside an older checkout.

    python benchmarks/reductions.py [--target cuda] [--before PATH] [--rounds 5] [--only NAME] [--check] [--out docs/results]

Each side is a process of its own that compiles every module and then times the one that it is told, so rounds alternate
between the sides: before, after, PyTorch, before, ... Schedules are the first choice of the search. Figures are minima over rounds.
`--before` names a checkout that is built. `--check` runs each module once beside PyTorch and writes nothing.
"""

import argparse
import datetime
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cases():
    """Name -> (function of one tensor, shape)."""
    import torch
    import torch.nn.functional as F

    return {
        "sum, 16 million": (lambda x: x.sum(), (1 << 24,)),
        "sum over rows of 4096x1024": (lambda x: x.sum(1), (4096, 1024)),
        "sum over columns of 4096x1024": (lambda x: x.sum(0), (4096, 1024)),
        "mean over 64x256x14x14": (lambda x: x.mean((2, 3)), (64, 256, 14, 14)),
        "variance over rows of 4096x1024": (lambda x: x.var(1), (4096, 1024)),
        "length of rows of 4096x1024": (lambda x: torch.linalg.vector_norm(x, 2, 1), (4096, 1024)),
        "logsumexp over rows of 1024x1024": (lambda x: x.logsumexp(1), (1024, 1024)),
        "layer norm, 512x768": (lambda x: F.layer_norm(x, (768,)), (512, 768)),
        "group norm, 4x64x56x56": (lambda x: F.group_norm(x, 8), (4, 64, 56, 56)),
        "instance norm, 4x64x56x56": (F.instance_norm, (4, 64, 56, 56)),
        **{
            f"{name}, {title}": (f, (n,))
            for title, n in (("1 million", 1 << 20), ("16 million", 1 << 24))
            for name, f in {
                "cumsum": lambda x: x.cumsum(0),
                "cumprod": lambda x: (1 + x / (1 << 24)).cumprod(0),
                "cummax": lambda x: x.cummax(0),
                "logcumsumexp": lambda x: x.logcumsumexp(0),
            }.items()
        },
    }


def worker(root, side, target, only):
    """Compiles all modules, says their outputs' sum, then answers each name of stdin with a time in microseconds."""
    import time

    sys.path[:0] = [str(pathlib.Path(root) / "python")]
    import torch

    cuda = target.startswith("cuda")
    sum_of = lambda y: float(torch.as_tensor(y[0] if isinstance(y, (tuple, list)) else y).double().sum())  # noqa: E731
    runs = {}
    for name, (f, shape) in cases().items():
        if not re.search(only, name):
            continue
        module = type("Case", (torch.nn.Module,), {"forward": lambda self, x, f=f: f(x)})().eval()
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        if side == "torch":
            on = x.cuda() if cuda else x
            total = sum_of(module(on))

            def run(module=module, on=on):
                best = float("inf")
                for _ in range(10):
                    start = time.perf_counter()
                    module(on)
                    if cuda:
                        torch.cuda.synchronize()
                    best = min(best, time.perf_counter() - start)
                return best

        else:
            import nestsmith as ns

            net = ns.compile(module, (x,), target=target, verbose=0)
            total = sum_of(net(x))

            def run(net=net):
                how = {"repeat": 3, "number": 1, "min_repeat_ms": 10} if cuda else {"repeat": 10, "number": 1, "min_repeat_ms": 0}
                return min(net.benchmark(**how).results)  # on a CPU as PyTorch above: the least of ten calls

        runs[name] = run
        print("ready", name, total, sep="\t", flush=True)
    print("done", flush=True)
    for line in sys.stdin:
        with torch.no_grad():
            print(runs[line.strip()]() * 1e6, flush=True)


class Side:
    def __init__(self, root, side, args):
        command = [
            sys.executable,
            __file__,
            "--worker",
            side,
            "--root",
            str(root),
            "--target",
            args.target,
            "--only",
            args.only,
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.totals = {}
        for line in self.process.stdout:
            if line.startswith("ready\t"):
                _, name, total = line.rstrip("\n").split("\t")
                self.totals[name] = float(total)
            elif line.strip() == "done":
                return
        raise SystemExit(f"the side {side!r} of {root} ended while it compiled")

    def time(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a side ended while it ran {name!r}")
        return float(answer)


def device_name(target):
    if target.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(0)
    name = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return name.group(1) if name else "CPU"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--before", help="a built checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name this regular expression finds")
    parser.add_argument("--check", action="store_true", help="compare with PyTorch, time nothing, write nothing")
    parser.add_argument("--out", default=str(ROOT / "docs" / "results"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.root, args.worker, args.target, args.only)
    sides = {"before": Side(args.before, "before", args)} if args.before else {}
    sides |= {"after": Side(ROOT, "after", args), "PyTorch": Side(ROOT, "torch", args)}
    after, torch_ = sides["after"], sides["PyTorch"]
    for name, want in torch_.totals.items():
        if not abs(after.totals[name] - want) <= 1e-3 * abs(want) + 1:
            raise SystemExit(f"{name}: {after.totals[name]} where PyTorch has {want}")
    if args.check:
        return None
    ratios = [f"{s} / after" for s in sides if s != "after"]
    head = (
        "| case | "
        + " | ".join([*(f"{s} (µs)" for s in sides), *ratios])
        + " |\n"
        + "|---" * (1 + len(sides) + len(ratios))
        + "|"
    )
    print(head)
    lines = []
    for name in torch_.totals:
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(args.rounds):
            for side, process in sides.items():
                best[side] = min(best[side], process.time(name))
        cells = [f"{t:.1f}" for t in best.values()] + [
            f"{t / best['after']:.2f}" for s, t in best.items() if s != "after"
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    name = device_name(args.target)
    how = f"`{args.target}`, first choice of the search, minimum of {args.rounds} alternating rounds, {datetime.date.today()}."
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"reductions-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.md"
    path.write_text(
        f"# Reductions, norms and running values: {name}\n\n{how}\nWritten by `benchmarks/reductions.py`.\n\n{head}\n"
        + "\n".join(lines)
        + "\n"
    )
    print(f"written to {path}")
    return None


if __name__ == "__main__":
    main()
