"""Networks whose small kernels are one launch where they follow each other, beside the same kernels one by one, on one NVIDIA GPU.

    python benchmarks/merging.py [--networks efficientnet_b0,mobilenet_v3_small] [--precision float32] [--trials 0] [--log FILE]

Each network is compiled twice with the same schedules: those of the log, of so many trials, or the first choices of the search. Kernels
begin early, and run side by side, where that was faster.

launches   of a run without and with merged kernels
apart      microseconds of a run with nestsmith.merge = False
merged     with what nestsmith.compile has chosen, and which chains these are: how often, and their functions

Microseconds: median of 15 rounds of 20 ms, sides in turn. Both sides must give the same bits.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "benchmarks")]
os.environ.setdefault("NESTSMITH_LOG_DIR", "")  # no log but the one that is named

from overlap import measured  # noqa: E402

import nestsmith as ns  # noqa: E402


def launches(lib):
    """Kernels of a run, and how often each merged function is called."""
    called = [n["attrs"]["func_name"] for n in json.loads(lib.graph_json_str)["nodes"] if n["op"] == "tvm_op"]
    called = [c for c in called if c in lib.kernels]
    merged = {c: called.count(c) for c in called if c.startswith("tvmgen_default_merged_")}
    return sum(len(json.loads(lib.kernels[c].manifest)["kernels"]) for c in called), merged


def row(name, precision, trials, log):
    import torch
    import torchvision

    torch.manual_seed(0)
    model, x = getattr(torchvision.models, name)(weights=None).eval(), torch.randn(1, 3, 224, 224)
    sides, outputs, told = {}, {}, {}
    for side, asked in (("apart", {"nestsmith.merge": False}), ("merged", {})):
        with ns.transform.PassContext(config=asked):
            m = ns.compile(model, (x,), target="cuda", trials=trials if side == "apart" else None, log=log, precision=precision, verbose=0)
        for _ in range(3):  # without a graph, captured, replayed
            outputs[side] = m(x).numpy().tobytes()
        sides[side], told[side] = m.runtime, launches(m.lib)
    assert outputs["apart"] == outputs["merged"], "other bits"
    t = {side: 1e6 * seconds for side, seconds in measured(sides).items()}
    chains = "; ".join(f"{n} x {c.removeprefix('tvmgen_default_merged_')}" for c, n in told["merged"][1].items())
    print(
        f"| {name} | {precision} | {told['apart'][0]}, {told['merged'][0]} | {t['apart']:.1f} | {t['merged']:.1f} "
        f"| {t['apart'] / t['merged']:.3f} | {chains or 'none'} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="efficientnet_b0,mobilenet_v3_small")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--log", help="of tuning, read and written; default: a temporary one")
    args = parser.parse_args()
    print("| Network | precision | launches | apart | merged | apart / merged | chains |\n|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for precision in args.precision.split(","):
            for name in args.networks.split(","):
                row(name, precision, args.trials, args.log or os.path.join(folder, f"{name}-{precision}.json"))


if __name__ == "__main__":
    main()
