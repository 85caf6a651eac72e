"""Every schedule of a public TVM log for ResNet-18 (NHWC, batch 1, CUDA), rebuilt by nestsmith: correct, and how fast?

Each of the 24 records is replayed, lowered, compiled and run on small-integer inputs; the output must equal the unscheduled
program's bit for bit (softmax: within 1e-6). The time is the median of 20 repeats of at least 100 runs with a warm L2, as
for the peer's figures in tests/data/tvm-h100-replay.json.

    python benchmarks/public_log.py [--device cuda|opencl] [--tasks 0,1,2]
"""

import argparse
import gzip
import json
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
import helpers  # noqa: E402
from nestsmith import _core  # noqa: E402
from nestsmith.runtime.timing import evaluator  # noqa: E402

HARDWARE = (-1, 16, 64, 49152, 2147483647, 1024, 8, 32)


def records():
    with gzip.open(ROOT / "tests/data/tvm-resnet-18-NHWC-B1-cuda.json.gz", "rt") as f:
        parsed = [_core.record_parse(line) for line in f]
    return {r[0]: r for r in parsed}


def run_one(dev, kind, sm, dag, steps, repeat, min_ms):
    """(largest relative difference, median seconds, [registers per kernel])"""
    state = _core.State(dag, steps if isinstance(steps, str) else json.dumps(steps))
    source, manifest = _core.candidate_source(state, _core.Target(kind, HARDWARE, sm=sm))
    reference = _core.reference_data(dag)
    binary, _, _ = _core.build(_core.Target(kind, sm=sm), source, 120.0)
    module = dev.load(binary, manifest)
    buffers, args = [], json.loads(manifest)["args"]
    for a, data in zip(args, reference):
        b = dev.alloc(a["bytes"])
        if a["read_only"]:
            b.upload(data)
        else:
            b.fill(255)
        buffers.append(b)
    module.run(buffers)
    out = np.empty(args[-1]["shape"], "float32")
    buffers[-1].download(out)
    want = np.frombuffer(reference[-1], "float32").reshape(out.shape)
    error = float(np.abs(out - want).max() / max(np.abs(want).max(), 1e-30))
    timed = evaluator(lambda args: module.run(buffers), lambda args, n, flush: module.time(buffers, n, flush), 100 if min_ms else 3, repeat, min_ms)
    seconds = timed().median
    return error, seconds, [module.regs(k)[0] for k in range(len(json.loads(manifest)["kernels"]))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "opencl"])
    parser.add_argument("--tasks", default=",".join(map(str, range(24))))
    args = parser.parse_args()
    code = 2 if args.device == "cuda" else 4
    facts = _core.device_query(code, 0)
    if facts is None:
        raise SystemExit(f"no {args.device} device: {_core.device_exists(code, 0)[1]}")
    dev = _core.Device(code, 0)
    peer = {t["key"]: t for t in json.loads((ROOT / "tests/data/tvm-h100-replay.json").read_text())["tasks"]}
    recs, total, peer_total, wrong, worst = records(), 0.0, 0.0, 0, 0.0
    print(f"{facts.get('name')}\ntask weight   peer ms  nestsmith ms  ratio  difference  registers")
    for i in map(int, args.tasks.split(",")):
        dag = helpers.resnet18_task(i, "p", "pool")
        key, weight = dag.workload_key(), helpers.RESNET18[i][0]
        gpu = args.device == "cuda"
        error, seconds, regs = run_one(dev, args.device, facts.get("sm") or 0, dag, recs[key][6], 20 if gpu else 2, 10 if gpu else 0)
        wrong += error > (1e-5 if helpers.RESNET18[i][1] == "softmax" else 0)
        ratio = seconds * 1e3 / peer[key]["tvm_h100_ms"]
        worst = max(worst, ratio)
        total, peer_total = total + weight * seconds * 1e3, peer_total + weight * peer[key]["tvm_h100_ms"]
        print(f"{i:4d} {weight:6d} {peer[key]['tvm_h100_ms']:9.4f} {seconds * 1e3:13.4f} {ratio:6.2f}  {error:10.1e}  {regs}", flush=True)
    print(f"sum weight*time: nestsmith {total:.4f} ms, peer {peer_total:.4f} ms, ratio {total / peer_total:.3f}; "
          f"worst kernel ratio {worst:.2f}; wrong {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
