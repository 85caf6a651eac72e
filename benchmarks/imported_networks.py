"""Networks of torchvision, transformers and our own: how far from PyTorch they are after every way of importing, and in 16 bits.

    python benchmarks/imported_networks.py [--out docs/results/imported-networks.md] [--only PATTERN] [--jobs 2]

Every cell is the largest error relative to the largest output, of the network built for the CPU with its default
schedules. ONNX cells show onnxruntime's error beside ours. Every cell is made in a process of its own; ends with
status 1 if one is over its limit.
"""

import argparse
import multiprocessing
import os
import pathlib
import re
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "relay")]


def run(name, way):
    """(network, way, (our error, onnxruntime's) or the message of what went wrong, seconds, MiB at the most)."""
    import torch
    from whole_networks import FULL, errors

    torch.set_num_threads(1)
    began = time.process_time()
    try:
        found = errors(FULL[name], (way,))[way]
    except Exception as err:
        found = f"{type(err).__name__}: {err}"
    spent = sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return name, way, found, max(spent, time.process_time() - began), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cell(found):
    if found is None:
        return "–"
    if isinstance(found, str):
        return "fails"
    return " / ".join(f"{e:.1e}" for e in found if e is not None)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--only", default="")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--out")
    a = p.parse_args()
    import torch
    import torchvision
    import transformers
    from whole_networks import FULL, FULL_16, LIMITS, SIXTEEN, WAYS

    names = [n for n in FULL if re.search(a.only, n)]
    cells = [(n, w) for w in reversed(WAYS + SIXTEEN) for n in names if w in WAYS or n in FULL_16]
    rows = {n: {} for n in names}
    # One process per cell: exporters keep what they made
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(a.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        for done in as_completed([pool.submit(run, *c) for c in cells]):
            name, way, found, seconds, mib = done.result()
            rows[name][way] = found
            print(f"{name:20} {way:13} {found if isinstance(found, str) else cell(found):20} {seconds:6.1f} s {mib:6.0f} MiB", flush=True)
    over = [
        (n, w) for n in names for w, e in rows[n].items()
        if isinstance(e, str) or any(not x < LIMITS[w] for x in e[:1])
    ]  # fmt: skip
    lines = [
        "# Imported networks", "",
        f"{len(cells) - len(over)} of {len(cells)} cells are within their limits: {LIMITS[WAYS[0]]:.0e} of the largest output, "
        f"{LIMITS[SIXTEEN[0]]:.0e} in 16 bits (–: not tried). PyTorch {torch.__version__.split('+')[0]}, "
        f"torchvision {torchvision.__version__.split('+')[0]}, transformers {transformers.__version__}; ONNX: ours / onnxruntime. "
        "Written by `benchmarks/imported_networks.py`.", "",
        "| network | " + " | ".join(WAYS + SIXTEEN) + " |", "|---" * (1 + len(WAYS + SIXTEEN)) + "|",
    ]  # fmt: skip
    lines += [f"| {n} | " + " | ".join(cell(rows[n].get(w)) for w in WAYS + SIXTEEN) + " |" for n in names]
    text = "\n".join(lines) + "\n"
    print(text)
    for n, w in over:
        print(f"over its limit: {n}, {w}: {rows[n][w]}")
    if a.out:
        page = pathlib.Path(a.out)
        rest = page.read_text().partition("\n## ") if page.exists() else ("", "", "")
        page.write_text(text + rest[1] + rest[2])  # sections of other scripts stay
    return 1 if over else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
