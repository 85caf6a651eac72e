"""How many candidates per second and core the search makes and judges.

For each task: samples tried per second (refused ones included), complete states per second through sampling, bounds
and the estimate, lowering and GPU verification per second, generations bred per second, and a whole round of 64.

    python benchmarks/search_speed.py [cuda|llvm]
"""

import sys
import time

from nestsmith import _core, te, topi

CUDA = (1, (-1, 16, 64, 49152, 2147483647, 1024, 8, 32), 90, 1, False)
LLVM = (0, (2, 64, 64, 0, 0, 0, 0, 0), 0, 1, False)


def conv(hw, ci, co, k, s):
    x, w, b = (
        te.placeholder((1, hw, hw, ci), name="x"),
        te.placeholder((k, k, ci, co), name="w"),
        te.placeholder((1, 1, 1, co), name="b"),
    )
    return [x, w, b, topi.relu(topi.add(topi.nn.conv2d_nhwc(x, w, s, k // 2, 1), b))]


def winograd(hw, c):
    x = te.placeholder((1, hw, hw, c), name="x")
    a = topi.nn.winograd_tile_size(hw) + 2
    w = te.placeholder((a, a, c, c), name="w")
    return [x, w, topi.relu(topi.nn.conv2d_winograd_nhwc_without_weight_transform(x, w, 1, 1, 1))]


def dense():
    x, w = te.placeholder((1, 512), name="x"), te.placeholder((1000, 512), name="w")
    return [x, w, topi.nn.dense(x, w)]


TASKS = {
    "conv2d 3x3 14x14x256 s2": lambda: conv(14, 256, 512, 3, 2),
    "conv2d 3x3 56x56x64": lambda: conv(56, 64, 64, 3, 1),
    "conv2d 7x7 224x224x3 s2": lambda: conv(224, 3, 64, 7, 2),
    "winograd 28x28x128": lambda: winograd(28, 128),
    "winograd 56x56x64": lambda: winograd(56, 64),
    "dense 1x1000x512": dense,
}


def timed(f, *args):
    t0 = time.perf_counter()
    r = f(*args)
    return r, time.perf_counter() - t0


def row(name, target, label, make):
    """One line of the table."""
    dag = _core.ComputeDAG(make())
    p, q = _core.Policy(dag, target), _core.Policy(dag, target, {"evolutionary_search_num_iters": 1})
    p.sketches()
    q.sketches()
    shares, t_try = timed(p.sample_shares, 4096)
    some = p.sample()[:200]
    _, t_low = timed(lambda: [p.check(s) for s in some])
    _, t_round = timed(p.round, 64)
    _, t_bred = timed(q.evolve, some, 1)
    per_second = [4096 / t_try, shares.get("ok", 0.0) * 4096 / t_try, len(some) / t_low, 2048 / t_bred]
    print(f"{name:8}{label:26}" + "".join(f"{v:11.0f}" for v in per_second) + f"{t_round:11.2f} s")


def main(targets):
    print(f"{'target':8}{'task':26}{'tried/s':>11}{'states/s':>11}{'lowered/s':>11}{'bred/s':>11}{'round of 64':>13}")
    for name, target in targets:
        for label, make in TASKS.items():
            row(name, target, label, make)


if __name__ == "__main__":
    main([t for t in (("cuda", CUDA), ("llvm", LLVM)) if not sys.argv[1:] or t[0] in sys.argv[1:]])
