"""The ONNX standard's own tests of operators: how many models are imported, built for the CPU and give the standard's results.

    python benchmarks/onnx_conformance.py [--out docs/results/onnx-conformance.md] [--only PATTERN] [--jobs 2]

A test passes with the tolerance that the standard's runner has (numbers of 16 bits may be some of their own steps apart). What is
refused is counted by its reason.
"""

import collections
import concurrent.futures
import re
import sys

import onnx

from conformance import options, tell

# isort: split
from onnx_node_tests import cases, run


def main():
    p = options(__doc__)
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        rows = list(pool.map(run, [c for c in cases() if re.search(a.only, c[0])], chunksize=8))
    kinds = collections.Counter(v.split(":")[0] for _, _, v in rows)
    by_op = collections.defaultdict(collections.Counter)
    for _, op, v in rows:
        by_op[op][v.split(":")[0]] += 1
    if a.verbose:
        for name, _, v in rows:
            if v != "ok":
                print(f"{name}: {v}")
    lines = [
        f"# The tests of the ONNX standard {onnx.__version__}", "",
        f"{kinds['ok']} of {len(rows)} tests pass on the CPU; {kinds['refused']} are refused with the operator's name, "
        f"{kinds['wrong']} give another result, {kinds['error']} end in another error.", "",
        "| Operator | passed | refused | other |", "|---|---|---|---|",
    ]  # fmt: skip
    for op, k in sorted(by_op.items()):
        lines.append(f"| {op} | {k['ok']} | {k['refused']} | {k['wrong'] + k['error']} |")
    tell(lines, a.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
