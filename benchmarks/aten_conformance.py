"""PyTorch's database of samples of its operators: how many operators are imported and give PyTorch's results.

    python benchmarks/aten_conformance.py [--out docs/results/aten-operators.md] [--only PATTERN] [--jobs 2] [--samples 4] [--build]

Samples of float32, int64 and bool; --build compiles every one for the CPU instead of computing it by the definitions of the operators.
Ends with status 1 if a result is wrong.
"""

import concurrent.futures
import functools
import re
import sys

import torch

from conformance import options, tell

# isort: split
from aten_operators import operators, run


def table(names):
    """Rows of the operators, by namespace or first letter."""
    rows = {}
    for n in names:
        space = next((s for s in ("nn.functional", "linalg", "special", "fft", "masked") if n.startswith(s + ".")), None)
        rows.setdefault(space or n.strip("_")[:1].lower(), []).append(n)
    return ["| Namespace or letter | Operators |", "|---|---|", *(f"| {k} | {', '.join(f'`{n}`' for n in v)} |" for k, v in sorted(rows.items()))]


def main():
    p = options(__doc__)
    p.add_argument("--samples", type=int, default=4)
    p.add_argument("--build", action="store_true")
    a = p.parse_args()
    names = [n for n in operators() if re.search(a.only, n)]
    one = functools.partial(run, most=a.samples, build=a.build)
    rows = {}
    with concurrent.futures.ProcessPoolExecutor(a.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for name, found in pool.map(one, names, chunksize=4):
            rows[name] = found
            for v in sorted(set(found) - {"ok"}):
                print(f"{name}: {v}", flush=True)
    rows = {n: v for n, v in rows.items() if v}
    whole = [n for n, v in rows.items() if set(v) == {"ok"}]
    refused = [n for n, v in rows.items() if all(x.startswith("refused") for x in v)]
    wrong = [n for n, v in rows.items() if any(x.startswith("wrong") for x in v)]
    part = [n for n in rows if n not in {*whole, *refused, *wrong}]
    lines = [
        f"# Operators of PyTorch {torch.__version__.split('+')[0]}", "",
        f"Of {len(rows)} operators with samples in PyTorch's own database (`torch.testing`), {len(whole)} give its results on all samples, "
        f"{len(part)} on some while others are refused by name, {len(refused)} are refused by name, {len(wrong)} are wrong. "
        "Written by `benchmarks/aten_conformance.py`.", "",
    ]  # fmt: skip
    for title, group in (("All samples", whole), ("Some samples", part), ("Refused", refused), ("Wrong", wrong)):
        if group:
            lines += [f"## {title}", "", *table(group), ""]
    tell(lines[:-1], a.out)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
