"""Networks of torchvision, and MobileNet v1, on one GPU beside PyTorch's own kernels (cuDNN, cuBLAS) and Inductor, both replayed from CUDA graphs.

    python benchmarks/gpu_peers.py [--networks resnet18,...] [--trials 24] [--precision float32] [--rows DIR] [--seconds 600] [--warm] [--out FILE]
        [--gpus 0,1] [--lanes 2] [--again]

Batch 1, weights as training leaves them. --precision is what all sides compute in: float32 with TF32 off, tf32, float16 or bfloat16. Each
network is tuned with so many trials per task and measured in a process of its own, the sides in turn, so that the peers see the GPU as
we do. PyTorch runs it as it is and with channels last; Inductor compiles it with channels last. A row is written to --rows as soon as
it is known; what has a row is not measured again, and a log in that folder is gone on with. The table is made of all rows of the
precision. --warm only lets Inductor compile, which fills its cache. --again measures the networks that have a row anew, with the best
records of their logs and without tuning; benchmarks/data has such rows and logs.

With --lanes several networks at a time share each of --gpus and the cores: while one is built or searched, another one measures its
candidates; the tuners take turns on the device, and the comparison at the end has it alone. Inductor compiles beside the tuning.
"""

import argparse
import collections
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "relay"), str(ROOT / "benchmarks")]
from nestsmith.numerics import tolerance  # noqa: E402

NETWORKS = {
    n: 299 if n == "inception_v3" else 224
    for n in (
        "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large",
        "vgg16", "vgg16_bn", "alexnet", "densenet121", "squeezenet1_0", "squeezenet1_1", "efficientnet_b0", "efficientnet_v2_s", "mnasnet1_0",
        "shufflenet_v2_x1_0", "googlenet", "inception_v3", "regnet_y_400mf", "regnet_x_400mf", "convnext_tiny", "vit_b_16", "swin_t",
    )
}  # fmt: skip
SIDES = ("nestsmith", "PyTorch, CUDA graph", "PyTorch, channels last", "Inductor")
SAID = {
    "float32": "float32 with TF32 off",
    "float32x3": "float32 as three products of TF32 (the peers: float32 with TF32 off)",
    "tf32": "float32 with TF32 on",
    "float16": "float16",
    "bfloat16": "bfloat16",
}
REPEATS = 21


def network(name):
    """(module in evaluation mode on the CPU, its input)."""
    import torch
    import torchvision
    from whole_networks import MobileNetV1, trained_like

    options = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    torch.manual_seed(0)
    made = MobileNetV1() if name == "mobilenet_v1" else getattr(torchvision.models, name)(weights=None, **options)
    model = trained_like(made)
    return model, torch.randn(1, 3, NETWORKS[name], NETWORKS[name])


def settings(torch, precision):
    """What the peers may compute float32 in, and the type of their weights."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    return getattr(torch, precision if precision in ("float16", "bfloat16") else "float32")


def inductor(torch, name, dtype):
    """The compiled network and its input, compiled already."""
    model, x = network(name)
    last = torch.channels_last
    model, x = model.cuda().to(dtype=dtype, memory_format=last), x.cuda().to(dtype=dtype).contiguous(memory_format=last)
    compiled = torch.compile(model)
    with torch.no_grad():
        compiled(x)
    return compiled, x


def peers(name, want, precision):
    """{side: seconds of n replays, as a function of n}; what fails is said and left out."""
    import torch
    from network import captured

    dtype = settings(torch, precision)
    found, limit = {}, max(1e-3, tolerance(precision))

    def add(side, make):
        try:
            model, x = make()
            with torch.no_grad():
                differs = float((model(x).cpu().float() - want).abs().max() / want.abs().max())
            assert differs < limit, f"differs from the CPU by {differs:.1e} of the largest value"
            found[side] = captured(model, x)
        except Exception as e:  # the peer's own trouble must not hide our figures
            print(f"{name}: {side} failed: {str(e)[:300]}", flush=True)

    def plain(last):
        model, x = network(name)
        form = {"memory_format": torch.channels_last} if last else {}
        return model.cuda().to(dtype=dtype, **form), x.cuda().to(dtype=dtype).contiguous(**form)

    add(SIDES[1], lambda: plain(False))
    add(SIDES[2], lambda: plain(True))
    add(SIDES[3], lambda: inductor(torch, name, dtype))
    return found


@contextlib.contextmanager
def alone():
    """Nobody else tunes on the GPU meanwhile: holds the tuners' turn (csrc/measure/lock.c) in the folder of this GPU's locks."""
    with contextlib.ExitStack() as held:
        for kind in ("next", "lock"):
            for path in sorted(pathlib.Path(os.environ.get("NESTSMITH_LOCK_DIR") or ".").glob(f"cuda-*.{kind}")):
                fcntl.flock(held.enter_context(open(path)), fcntl.LOCK_EX)
        yield


def one(name, args):
    """Tunes and measures a network beside its peers; the row as a dictionary."""
    import numpy as np
    import torch

    import nestsmith

    warm = subprocess.Popen(command(args, name, "--warm"))
    model, x = network(name)
    with torch.no_grad():
        want, model = model(x), torch.export.export(model, (x,))  # once for both builds
    log, begin = named(args, name, "json"), time.time()
    before = json.loads(named(args, name, "row").read_text()) if args.again else None
    how = {"target": "cuda", "precision": args.precision, "verbose": 0}
    plain = nestsmith.compile(model, (x,), guess=False, **how)
    tuned = nestsmith.compile(
        model, (x,), trials=0 if before else args.trials * len(plain.tasks), tune_seconds=args.tune_seconds, log=log, **how
    )
    spent = time.time() - begin
    warm.wait()
    with alone():
        # Which launches overlap is chosen by measuring the network: anew, with nobody else on the GPU.
        tuned = nestsmith.compile(model, (x,), trials=0, log=log, **how)
        error = float((tuned(x) - want).abs().max() / want.abs().max())
        assert error < tolerance(args.precision), f"{name} differs from PyTorch by {error:.1e} of the largest value"
        run = tuned.runtime
        # Before PyTorch's work: once that has been on all of a context's channels, each kernel of a graph begins later (docs/measuring.md).
        by_itself = statistics.median(run.time_evaluator("run", number=100, repeat=1)().mean for _ in range(7))
        report = tuned.report(100)
        sides = {
            SIDES[0]: lambda n: run.time_evaluator("run", number=n, repeat=1)().mean,
            **peers(name, want, args.precision),
        }
        numbers = {side: max(5, int(0.03 / max(time_of(5), 1e-6))) for side, time_of in sides.items()}
        seconds = {side: [] for side in sides}
        for _ in range(REPEATS):
            for side, time_of in sides.items():
                seconds[side].append(time_of(numbers[side]))
    named(args, name, "report").write_text(str(report))
    now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    kept = {k: before[k] for k in ("date", "trials", "seconds")} | {"again": now} if before else {}
    return {
        "network": name,
        "precision": args.precision,
        "date": now,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "tasks": len(plain.tasks),
        "trials": len(log.read_text().splitlines()),
        "seconds": spent,
        "error": error,
        "of kernels": float(np.sum([r.seconds for r in report.rows])),
        "by itself": by_itself,
        "first": True,  # by itself it was measured before the comparison; behind it in rows without
        "times": {side: statistics.quantiles(v, n=4) for side, v in seconds.items()},
        **kept,
    }


def named(args, name, suffix):
    """A file of the folder of rows."""
    return pathlib.Path(args.rows) / (
        f"{name}.{suffix}" if args.precision == "float32" else f"{name}-{args.precision}.{suffix}"
    )


def table(rows):
    """The rows as text, and (geometric mean, least) of how many times as fast as the best peer."""
    ratios, lines = [], []
    for r in rows:
        times = r["times"]
        best = min(t[1] for side, t in times.items() if side != SIDES[0])
        ratios.append(best / times[SIDES[0]][1])
        cells = (
            f"{times[s][1] * 1e3:.3f} ({times[s][0] * 1e3:.3f} to {times[s][2] * 1e3:.3f})" if s in times else "failed"
            for s in SIDES
        )
        made = f"{r['tasks']} tasks, {r['trials']} trials, {r['seconds']:.0f} s, {r.get('date', 'before')}"
        made += f", measured again {r['again']}" if "again" in r else ""
        alone = f"{r['by itself'] * 1e3:.3f}, {r['by itself'] / r['of kernels']:.2f}" if "by itself" in r else ""
        lines.append(f"| {r['network']} | {' | '.join(cells)} | {ratios[-1]:.2f} | {alone} | {made} |")
    head = (
        f"| Network | {' | '.join(SIDES)} | faster than the best of them | by itself | tuning |\n"
        + "|---" * (len(SIDES) + 4)
        + "|\n"
    )
    return head + "\n".join(lines), statistics.geometric_mean(ratios), min(ratios)


def write(args):
    files = [named(args, n, "row") for n in NETWORKS]
    rows = [json.loads(p.read_text()) for p in files if p.exists()]
    if not rows:
        return
    text, mean, least = table(rows)
    late = [r["network"] for r in rows if not r.get("first")]
    gpus, versions = " and ".join(sorted({r["gpu"] for r in rows})), " and ".join(sorted({r["torch"] for r in rows}))
    pathlib.Path(args.out).write_text(
        f"# Networks on a GPU in {args.precision}, beside PyTorch and Inductor\n\n"
        f"`python benchmarks/gpu_peers.py --precision {args.precision}` on {gpus}; PyTorch {versions}, everything "
        f"replayed from CUDA graphs. Batch 1, {SAID[args.precision]}. Milliseconds: median (first to third quartile) of {REPEATS} repeats of "
        f"30 ms, sides in turn. By itself: a run of ours before the others are there (median of 7 times 100), and how many times the sum of "
        f"its kernels that is, each repeated alone with weights and instructions as cold as in a run. Tuning: its seconds hold two builds, too, "
        f"and Inductor compiles on the same cores meanwhile.\n\n"
        f"{text}\n\n{len(rows)} networks; geometric mean: {mean:.2f} times as fast as the best of the others; least: {least:.2f}.\n"
        + (f"\nBy itself measured behind the comparison: {', '.join(late)}.\n" if late else "")
    )
    print(
        f"{text}\n{len(rows)} networks, geometric mean {mean:.2f}, least {least:.2f}; table in {args.out}", flush=True
    )


def command(args, name, how):
    """Words of the process that does one network."""
    words = [
        sys.executable,
        __file__,
        how,
        "--networks",
        name,
        "--trials",
        str(args.trials),
        "--precision",
        args.precision,
        "--rows",
        args.rows,
    ]
    return words + (["--tune-seconds", str(args.tune_seconds)] if args.tune_seconds else []) + ["--again"] * args.again


def lane(names, args, gpu, cores, end):
    """Takes networks off the list until it is empty or the time is over."""
    env = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": gpu,
        "NESTSMITH_LOCK_DIR": str(pathlib.Path(args.rows).absolute() / f"locks-{gpu}"),
    }
    while time.time() < end:
        try:
            name = names.popleft()
        except IndexError:
            return
        row, begin, said = named(args, name, "row"), time.time(), named(args, name, "log")
        with open(said, "w") as log:
            process = subprocess.Popen(
                command(args, name, "--one"), env=env, stdout=log, stderr=log, start_new_session=True
            )
            os.sched_setaffinity(process.pid, cores)
            try:
                process.wait(timeout=end - time.time() + 30)
                done = (
                    table([json.loads(row.read_text())])[0].splitlines()[-1]
                    if process.returncode == 0
                    else f"{name}: failed, see {said}"
                )
            except subprocess.TimeoutExpired:
                done = f"{name}: out of time"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        print(f"{done} GPU {gpu}, {time.time() - begin:.0f} s; {end - time.time():.0f} s left", flush=True)


def run_all(names, args):
    """Every network that has no row yet (`again`: that has one), in the order given, on all lanes."""
    left = collections.deque(name for name in names if named(args, name, "row").exists() == args.again)
    gpus, cores = args.gpus.split(","), sorted(os.sched_getaffinity(0))
    n, end = len(gpus) * args.lanes, time.time() + args.seconds
    share = max(1, len(cores) // n)
    work = [(left, args, gpus[k % len(gpus)], cores[k * share % len(cores) :][:share], end) for k in range(n)]
    threads = [threading.Thread(target=lane, args=w) for w in work]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma-separated: " + ", ".join(NETWORKS))
    parser.add_argument("--trials", type=int, default=24, help="per task")
    parser.add_argument("--precision", default="float32", choices=SAID)
    parser.add_argument(
        "--tune-seconds", type=float, help="tuning of a network ends after them, whatever --trials says"
    )
    parser.add_argument("--rows", default="gpu_peers", help="folder of rows and tuning logs")
    parser.add_argument(
        "--seconds", type=float, default=7200, help="no network is begun after them, and none goes on 30 s after them"
    )
    parser.add_argument(
        "--gpus",
        default=os.environ.get("CUDA_VISIBLE_DEVICES") or "0",
        help="comma-separated numbers, as CUDA_VISIBLE_DEVICES",
    )
    parser.add_argument("--lanes", type=int, default=1, help="networks at a time on each GPU")
    parser.add_argument("--again", action="store_true", help="measure what has a row anew, without tuning")
    parser.add_argument("--warm", action="store_true", help="only let Inductor compile")
    parser.add_argument("--one", action="store_true", help="in this process")
    parser.add_argument("--out", default=str(ROOT / "docs" / "results" / "gpu-peers.md"), help="where the table goes")
    args = parser.parse_args()
    names = args.networks.split(",")
    if wrong := [n for n in names if n not in NETWORKS]:
        parser.error(f"network {wrong[0]!r} is not known; known are {', '.join(NETWORKS)}")
    os.makedirs(args.rows, exist_ok=True)
    if args.warm:
        import torch

        dtype = settings(torch, args.precision)
        return [inductor(torch, n, dtype) for n in names] and None
    if args.one:
        return [named(args, n, "row").write_text(json.dumps(one(n, args))) for n in names] and None
    run_all(names, args)
    write(args)


if __name__ == "__main__":
    os.environ.setdefault("NESTSMITH_LOG_DIR", "")  # the log that is named, and no other
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(1)
