"""Speed of feature extraction: replay of one state, and with it bounds, loop program, simplification and features, on one core.

The states are those that the reference tuner sampled for ResNet-18 (tests/data). Prints, per kind of task, states per
second of replay and of the whole path, the estimate alone ("draft"), the goals of both, and whether they hold.

    PYTHONPATH=python python benchmarks/features_speed.py [repeats]
"""

import argparse
import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "schedule")]
from peer_dags import dag_of, peer_tasks  # noqa: E402

from nestsmith import _core  # noqa: E402

TARGETS = {
    "cuda": _core.Target("cuda", sm=90, fast_math=0),
    "llvm": _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0), fast_math=0),
}
KINDS = {"conv2d": "conv2d_nhwc", "winograd": "conv2d_winograd"}
GOAL = {"conv2d": 2000, "winograd": 1000}  # features per second and core
DRAFTS = 50_000  # estimates per second and core


def main(repeats=20):
    heads, missed = ("replay", "+features", "goal", "draft", "goal"), []
    print(f"{'task':9} {'target':6}" + "".join(f"{h:>14}" for h in heads))
    for kind, stage in KINDS.items():
        for name, target in TARGETS.items():
            total, draft, n = [0.0] * 2, 0.0, 0
            for t in peer_tasks():
                if t["network"] != f"resnet-18-NHWC-{name}" or stage not in t["stages"]:
                    continue
                dag = dag_of(t["key"], tuple(t["stages"]))
                policy = _core.Policy(dag, target)
                for s in t["states"][:3]:
                    steps = json.dumps(s["steps"])
                    start = time.process_time()
                    states = [_core.State(dag, steps) for _ in range(repeats)]
                    replayed = time.process_time() - start
                    _core.feature_batch(states, target)
                    total[0] += replayed
                    total[1] += time.process_time() - start
                    state = _core.State(dag, steps).infer_bounds()
                    start = time.process_time()
                    policy.estimate(state, 10 * repeats)
                    draft += (time.process_time() - start) / 10
                    n += repeats
            cells = [*(n / x for x in total), GOAL[kind], n / draft, DRAFTS]
            print(f"{kind:9} {name:6}" + "".join(f"{x:14.0f}" for x in cells), flush=True)
            for what, got, goal in (("features", *cells[1:3]), ("draft", *cells[3:5])):
                if got < goal:
                    missed.append(f"{what} of {kind} on {name}: {got:.0f} < {goal}")
    print("goals (states per second and core): " + ("; ".join(missed) + " MISSED" if missed else "all hold"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repeats", type=int, nargs="?", default=20)
    main(parser.parse_args().repeats)
