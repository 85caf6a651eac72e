"""What it costs that minima and maxima show values that are not numbers: the same schedule, compiled both ways.

    python benchmarks/not_a_number.py [--target "cuda -arch=sm_90"] [--trials 64] [--rounds 20] [--check] [--out docs/results]

Each kernel is tuned for a moment (``--trials 0``: the default schedule), then its best schedule is printed twice, with helpers
that test for such values and with ones that do not (those of fast_math=aggressive), and both texts are compiled with the
same flags. Figures are minima over rounds that alternate between the two. The table is printed and, unless ``--check`` is
given, written to a file of the device's name under OUT; ``--check`` runs every kernel once and compares the outputs.
"""

import argparse
import datetime
import pathlib
import re
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent


def kernels():
    """Name -> function that gives the tensors of a kernel, inputs first."""
    from nestsmith import te, topi

    nn = topi.nn

    def conv(hw, c):
        x, w, b = (
            te.placeholder((1, hw, hw, c), name="x"),
            te.placeholder((3, 3, c, c), name="w"),
            te.placeholder((c,), name="b"),
        )
        return [x, w, b, topi.relu(topi.add(nn.conv2d_nhwc(x, w, 1, 1, 1), b))]

    def dense():
        x, w, b = (
            te.placeholder((128, 768), name="x"),
            te.placeholder((768, 768), name="w"),
            te.placeholder((768,), name="b"),
        )
        return [x, w, b, topi.relu(topi.add(nn.dense(x, w), b))]

    def one(shape, f):
        x = te.placeholder(shape, name="x")
        return [x, f(x)]

    return {
        "conv2d 3x3 + bias + relu, 56x56x64": lambda: conv(56, 64),
        "conv2d 3x3 + bias + relu, 14x14x256": lambda: conv(14, 256),
        "dense + bias + relu, 128x768x768": dense,
        "max pool 3x3, stride 2, 112x112x64": lambda: one(
            (1, 112, 112, 64), lambda x: nn.pool2d(x, 3, 2, 1, 1, "max", layout="NHWC")
        ),
        "max pool 2x2, stride 2, 224x224x64": lambda: one(
            (1, 224, 224, 64), lambda x: nn.pool2d(x, 2, 2, 1, 0, "max", layout="NHWC")
        ),
        "max over rows of 4096x1024": lambda: one((4096, 1024), lambda x: topi.max(x, 1)),
        "softmax, 1536x128": lambda: one((1536, 128), nn.softmax),
        "softmax, 128x4096": lambda: one((128, 4096), nn.softmax),
        "relu, 4 million elements": lambda: one((1 << 22,), topi.relu),
    }


def best_state(name, make, target, trials):
    """(the engine's state of the best of so many schedules or of the default one, tensors)"""
    from nestsmith import _core, auto_scheduler
    from nestsmith.auto_scheduler.compute_dag import LayoutRewriteOption
    from nestsmith.states import core_state
    from nestsmith.topi.default_schedule import default_state

    if not trials:
        tensors = make()
        return default_state(_core.ComputeDAG(tensors), target), tensors
    auto_scheduler.register_workload(name, make)
    task = auto_scheduler.SearchTask(func=name, args=(), target=target)
    log = str(pathlib.Path(tempfile.mkdtemp()) / "log.json")
    task.tune(auto_scheduler.TuningOptions(trials, measure_callbacks=[auto_scheduler.RecordToFile(log)], verbose=0))
    schedule, tensors = task.apply_best(log, layout_rewrite_option=LayoutRewriteOption.NO_REWRITE)
    return core_state(schedule), tensors


def compiled(state, tensors, target, tests):
    """The kernel as a module, with helpers that test or that do not."""
    from nestsmith import _core
    from nestsmith.driver.build_module import _hardware
    from nestsmith.runtime.module import OperatorModule
    from nestsmith.target import Target

    of = target if tests else Target(f"{target} -fast_math=aggressive")
    source, manifest = _core.program(state, tensors, of.engine(_hardware(of)), "kernel")
    binary, _, _ = _core.build(target.engine(_hardware(target)), source, 0, None)
    return OperatorModule(source, manifest, binary, target)


def best_time(module, arrays, device, seconds=0.02):
    timer = module.time_evaluator(module.entry_name, device, number=10, repeat=1, min_repeat_ms=int(seconds * 1e3))
    return min(timer(*arrays).results)


def row(name, make, target, device, args):
    """The row of a kernel, printed too; None with --check."""
    import nestsmith as ns

    state, tensors = best_state(name, make, target, args.trials)
    sides = [compiled(state, tensors, target, tests) for tests in (False, True)]
    rng = np.random.default_rng(0)
    arrays = [ns.nd.array(rng.uniform(-1, 1, [int(s) for s in t.shape]).astype(t.dtype), device) for t in tensors]
    outputs = []
    for m in sides:
        m(*arrays)
        outputs.append(arrays[-1].numpy())
    np.testing.assert_array_equal(*outputs)  # without such values the two agree to the bit
    if args.check:
        return None
    times = [[], []]
    for _ in range(args.rounds):
        for side, m in zip(times, sides):
            side.append(best_time(m, arrays, device))
    plain, tested = (min(side) * 1e6 for side in times)
    line = f"| {name} | {plain:.2f} | {tested:.2f} | {tested / plain:.3f} |"
    print(line, flush=True)
    return line


def device_name(target, device):
    if target.kind.name == "llvm":
        with open("/proc/cpuinfo") as f:
            name = re.search(r"model name\s*: (.*)", f.read())
        return name.group(1) if name else "CPU"
    return device.device_name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--check", action="store_true", help="run every kernel once, time nothing, write nothing")
    parser.add_argument("--only", default="", help="kernels whose name has this in it")
    parser.add_argument("--out", default=str(ROOT / "docs" / "results"))
    args = parser.parse_args()
    sys.path[:0] = [str(ROOT / "python")]
    import nestsmith as ns

    target = ns.target.Target(args.target)
    device = {"llvm": ns.cpu, "cuda": ns.cuda, "opencl": ns.opencl}[target.kind.name](0)
    head = "| kernel | plain (µs) | shows NaN (µs) | ratio |\n|---|---|---|---|"
    print(head)
    lines = [row(name, make, target, device, args) for name, make in kernels().items() if args.only in name]
    if args.check:
        return
    name = device_name(target, device)
    how = f"best of {args.trials} schedules" if args.trials else "default schedules"
    text = (
        f"# NaN in minima and maxima: {name}\n\n"
        f"`{target}`, {how} per kernel, minimum of {args.rounds} alternating rounds, {datetime.date.today()}.\n"
        f"Written by `benchmarks/not_a_number.py`.\n\n{head}\n" + "\n".join(lines) + "\n"
    )
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"not-a-number-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.md"
    path.write_text(text)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
