"""The sweep: operators x numbers that programs get wrong x element types x ways to a program, against PyTorch.

    python tests/sweep/run.py                          # everything: hours
    python tests/sweep/run.py --minutes 6 --seed 17    # a sample that the seed chooses, of networks and of a way besides "folded"
    python tests/sweep/run.py --ops add,nn.functional.pad --types float32,bool --ways folded,default

Many operators are one network, so that their programs are compiled together. Each network has a process of its own, so that a crash
is a result as well; `--jobs` of them run side by side. Prints how many results were compared and, for each difference beyond the budget,
a script that shows it."""

import argparse
import collections
import os
import pathlib
import random
import re
import sys
import time

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = os.environ["TVM_NUM_THREADS"] = "1"  # each network has one processor
    sys.path[:0] = [str(pathlib.Path(__file__).parents[k] / p) for k, p in ((2, "python"), (0, ""), (1, "relay"))]

import torch
from sweep_networks import WAYS, every
from sweep_processes import Total, Work, judged
from sweep_values import TYPES


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=None)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--skip", type=int, default=0, help="networks that are left out")
    p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="networks that are judged side by side")
    p.add_argument("--ops")
    p.add_argument("--types", default=",".join((*TYPES, "onnx")))
    p.add_argument("--ways", help=f"of {','.join(WAYS)}; without it all, and with --minutes two of them for each network")
    p.add_argument("--most", type=int, default=2, help="samples of an operator")
    p.add_argument("--chunk", type=int, default=16)
    p.add_argument("--target", default="llvm", help="llvm, opencl, cuda, with options")
    p.add_argument("--no-scripts", dest="scripts", action="store_false", help="does not print a program for each difference")
    p.add_argument("--covered", action="store_true", help="prints differences that a row covers, too")
    a = p.parse_args()
    torch.set_num_threads(1)
    names = a.ops.split(",") if a.ops else None
    ways, draw = a.ways.split(",") if a.ways else WAYS, random.Random(a.seed)
    works = [Work(part, kind, ways) for kind in a.types.split(",") for part in every(kind, a.chunk, names)]
    if a.minutes:
        draw.shuffle(works)
    works = works[a.skip :]
    if a.minutes and not a.ways:
        works = [w._replace(ways=["folded", draw.choice(WAYS[1:])]) for w in works]
    begin, total = time.time(), Total()
    results = judged(works, (a.seed, a.most, a.target), a.jobs, a.minutes and 60 * a.minutes)
    for k, (work, new) in enumerate(results):
        total.add(new)
        for name, way, fill, what, detail in new.findings:
            print(f"{name} | {way} | {fill} | {what}", flush=True)
            if a.scripts:
                print(detail, flush=True)
        for covered, name, way, fill, what in new.covered if a.covered else ():
            print(f"[{covered}] {name} | {way} | {fill} | {what}", flush=True)
        line = f"{new.n} cases, {new.checks.total()} checks, {len(new.findings)} differences, {time.time() - begin:.0f} s"
        print(f"-- {k + 1}/{len(works)} {work.kind}: {line}", file=sys.stderr, flush=True)
    print(f"{total.checks.total()} checks of {total.n} cases; beyond the budget and outside of the table of docs/numerics.md: {len(total.findings)}")
    for (kind, way), n in total.checks.items():
        print(f"  {kind}, {way}: {n} checks")
    for covered in dict.fromkeys(c[0] for c in total.covered):
        operators = (c[1].removeprefix("onnx.").removeprefix("nn.functional.") for c in total.covered if c[0] == covered)
        names = collections.Counter(re.split(r"[.[]", name)[0] for name in operators)
        print(f"  within the row {covered!r}: {names.total()} ({', '.join(f'{k} {v}' for k, v in names.most_common())})")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
