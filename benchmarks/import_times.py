"""How long users wait for a network before anything is tuned: its import, and `nestsmith.compile` without trials.

    taskset -c 0,1 python benchmarks/import_times.py [--out docs/results/import-times.md] [--image 224] [--tokens 128]

Imports are of a module (PyTorch's own `torch.export` is shown beside, it is part of the time) and of an ONNX file. Compiling
starts with an empty cache of binaries. Wall time, and processor time of this process and its children, in seconds.
"""

import argparse
import os
import pathlib
import resource
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "relay")]


def processor():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(f):
    """(result, wall seconds, seconds of processor)."""
    began, used = time.monotonic(), processor()
    return f(), time.monotonic() - began, processor() - used


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--image", type=int, default=224)
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--out")
    a = p.parse_args()
    os.environ["NESTSMITH_CACHE_DIR"] = tempfile.mkdtemp()
    import torch
    from whole_networks import bert, error, network, onnx_bytes, vision

    import nestsmith
    from nestsmith import relay

    rows = []
    for title, make, limit in (("ResNet-50", vision("resnet50", a.image), 2), ("BERT-base", bert(12, a.tokens), 10)):
        model, inputs, want = network(make)
        text = onnx_bytes(model, inputs, dynamo=False)
        torch.export.export(torch.nn.ReLU(), (torch.ones(1),))  # what PyTorch loads the first time
        steps = {
            "torch.export alone": (lambda m=model, x=inputs: torch.export.export(m, x), None),
            "from_pytorch": (lambda m=model, x=inputs: relay.frontend.from_pytorch(m, example_inputs=x), limit),
            "from_onnx": (lambda t=text: relay.frontend.from_onnx(t), limit),
        }
        for name, (step, most) in steps.items():
            rows.append((title, name, *timed(step)[1:], most))
        compiled, *spent = timed(lambda m=model, x=inputs: nestsmith.compile(m, x, target="llvm", trials=0))
        rows.append((title, "compile(trials=0)", *spent, 30 if title == "ResNet-50" else None))
        got = compiled(*inputs)
        got = [g.numpy() for g in (got if isinstance(got, (tuple, list)) else [got])]
        assert error(got, want) < 1e-5, f"{title}: the compiled network is off by {error(got, want):.1e}"
    lines = [
        f"# Time until a network runs: {len(os.sched_getaffinity(0))} cores", "",
        "Seconds. Written by `benchmarks/import_times.py`.", "",
        "| network | step | wall | processor | limit |", "|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {n} | {s} | {w:.2f} | {c:.2f} | {'' if m is None else m} |" for n, s, w, c, m in rows]
    text = "\n".join(lines) + "\n"
    print(text)
    if a.out:
        pathlib.Path(a.out).write_text(text)
    return 1 if any(m is not None and w > m for _, _, w, _, m in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
