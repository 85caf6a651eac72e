"""Networks whose kernels begin while the ones before them end, beside plain launches of the same kernels, on one NVIDIA GPU.

    python benchmarks/overlap.py [--networks resnet18,efficientnet_b0] [--precision float32] [--trials 0]

Networks are built with the option nestsmith.overlap.

alone      sum of the kernels' times, each repeated by itself
plain      the network in a CUDA graph without overlap (NESTSMITH_CUDA_OVERLAP=0), and how many times `alone` that is
overlap    the same programs in a graph with it
no waits   the same programs compiled without the wait at their beginning, alone and in a plain graph: what the wait costs, and that
           the compiler must not assume that inputs never change

Microseconds: median of 15 rounds of 20 ms, sides in turn. Both sides of the same programs must give the same bits.
"""

import argparse
import copy
import json
import os
import pathlib
import re
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python")]
os.environ.setdefault("NESTSMITH_LOG_DIR", "")  # no log but what is tuned here

import nestsmith as ns  # noqa: E402
from nestsmith import _core  # noqa: E402
from nestsmith.runtime.graph import GraphExecutorFactoryModule  # noqa: E402

ROUNDS, ROUND_S, ALONE = 15, 0.02, 50
WAIT = re.compile(r"#if __CUDA_ARCH__ >= \d+\n  asm volatile\(\"griddepcontrol[^\n]*\n#endif\n")


def without_waits(lib):
    """The same network of programs that do not wait."""

    def plain(kernel):
        k, manifest = copy.copy(kernel), json.loads(kernel.manifest)
        k.source, count = WAIT.subn("", kernel.source)
        assert count == len(manifest["kernels"]) == sum(bool(x.pop("waits")) for x in manifest["kernels"])
        k.manifest = json.dumps(manifest)
        k.binary = _core.build(lib.target.engine(), k.source)[0]
        return k

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        kernels = dict(zip(lib.kernels, pool.map(plain, lib.kernels.values())))
    return GraphExecutorFactoryModule(lib.graph_json_str, kernels, lib.params, lib.libmod_name, lib.target, lib.original_names)


def runtime(lib, overlap, x):
    os.environ["NESTSMITH_CUDA_OVERLAP"] = "1" if overlap else "0"
    r = lib[lib.libmod_name](ns.cuda(0))
    r.set_input(0, x)
    for _ in range(3):  # without a graph, captured, replayed
        r.run()
    return r


def measured(sides):
    """{side: median seconds}"""
    seconds = {s: [] for s in sides}
    counts = {s: max(5, int(ROUND_S / r.core.time(20))) for s, r in sides.items()}
    for _ in range(ROUNDS):
        for s, r in sides.items():
            seconds[s].append(r.core.time(counts[s]))
    return {s: statistics.median(v) for s, v in seconds.items()}


def row(name, precision, trials):
    import torch
    import torchvision

    torch.manual_seed(0)
    model, x = getattr(torchvision.models, name)(weights=None).eval(), torch.randn(1, 3, 224, 224)
    with ns.transform.PassContext(config={"nestsmith.overlap": True}):
        lib = ns.compile(model, (x,), target="cuda", trials=trials, precision=precision, verbose=0).lib
    bare = without_waits(lib)
    sides = {"plain": runtime(lib, False, x.numpy()), "overlap": runtime(lib, True, x.numpy()), "bare": runtime(bare, False, x.numpy())}
    outputs = {s: r.get_output(0).numpy().tobytes() for s, r in sides.items()}
    assert outputs["plain"] == outputs["overlap"], "other bits with overlap"
    assert sides["plain"].core.early == sides["bare"].core.early == 0
    alone = {s: sum(sides[s].kernel_seconds(ALONE)[0]) for s in ("plain", "bare")}
    t = measured(sides)
    us = {k: 1e6 * v for k, v in t.items()}
    print(
        f"| {name} | {precision} | {sides['overlap'].core.early + 1} | {1e6 * alone['plain']:.1f} "
        f"| {us['plain']:.1f} ({t['plain'] / alone['plain']:.3f}) | {us['overlap']:.1f} ({t['overlap'] / alone['plain']:.3f}) "
        f"| {1e6 * alone['bare']:.1f}, {us['bare']:.1f} | {t['plain'] / t['overlap']:.3f} | {t['bare'] / t['overlap']:.3f} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="resnet18,efficientnet_b0")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--trials", type=int, default=0)
    args = parser.parse_args()
    print("| Network | precision | kernels | alone | plain | overlap | no waits: alone, plain | plain / overlap | no waits / overlap |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for precision in args.precision.split(","):
        for name in args.networks.split(","):
            row(name, precision, args.trials)


if __name__ == "__main__":
    main()
