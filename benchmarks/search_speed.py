"""How many candidates the search makes and judges, how many of them are valid, and what a round costs.

Per task, on one core: samples tried per second, the share that the GPU verifier accepts, complete and bounded states per
second, lowered and verified states per second, states bred per second. Then, on two threads, a round of 10,240
candidates (2,048 samples and four generations) that proposes 64 to measure: ranked by the analytic estimate, and by
trees trained on 512 records. The goal of a round is one second. Last, eight rounds of a run: search and training take so
many milliseconds of a core per trial, and a measured candidate is replayed, lowered and described so often. The milliseconds of
two checkouts in turns: trial_cost.py.

    PYTHONPATH=python python benchmarks/search_speed.py [cuda|llvm]
"""

import random
import sys
import time

from nestsmith import _core, te, topi

CUDA = _core.Target("cuda", sm=90)
LLVM = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0))


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


GOAL = 1.0  # seconds of a round
LIMITS = {"states_per_tiling_in_batch": 1, "states_per_tiling": 8}  # as in a tuning run
RECORDS = 512


def timed(f, *args):
    t0 = time.perf_counter()
    r = f(*args)
    return r, time.perf_counter() - t0


def best(f, *args, repeats=3):
    """Seconds of the fastest of a few calls, and the least core seconds: the machine may be busy."""
    wall, core = [], []
    for _ in range(repeats):
        t0 = time.process_time()
        wall.append(timed(f, *args)[1])
        core.append(time.process_time() - t0)
    return min(wall), min(core)


def train(policy):
    """A learner that has seen samples with times around the estimate."""
    learner, noise = _core.Learner(1), random.Random(1)
    task = learner.task(policy)
    states = []
    while len(states) < RECORDS:
        states += policy.sample()
    for s in states[:RECORDS]:
        learner.add(task, s, policy.facts(s)["seconds"] * noise.uniform(0.5, 2))
    learner.train(2)
    return learner, task


def tuned(dag, target, rounds=8):
    """Milliseconds of a core for search and for training per trial, and how often a measured candidate is made."""
    policy, learner, noise = _core.Policy(dag, target, LIMITS, 1, 2), _core.Learner(1), random.Random(1)
    task = learner.task(policy)
    policy.set_scorer(learner.scorer(task))
    policy.sketches()
    trials = search = training = 0
    for _ in range(rounds):
        t0 = time.process_time()
        batch = policy.candidates(64)
        search += time.process_time() - t0
        seconds = [policy.estimate(c.state()) * noise.uniform(0.5, 2) for c in batch]
        t0 = time.process_time()
        for c, t in zip(batch, seconds):
            policy.report(c, t, True)
            learner.add(task, c, t)
        learner.train(2)
        training += time.process_time() - t0
        trials += len(batch)
    return 1e3 * search / trials, 1e3 * training / trials, [n / trials for n in policy.counts().values()]


def row(name, target, label, make):
    """One line of the table."""
    dag = _core.ComputeDAG(make())
    p, q = _core.Policy(dag, target), _core.Policy(dag, target, {"evolutionary_search_num_iters": 1})
    p.sketches()
    q.sketches()
    shares, t_try = timed(p.sample_shares, 2048)
    some = p.sample()[:200]
    ok, t_low = timed(lambda: [p.check(s)[0] for s in some])
    _, t_bred = timed(q.evolve, some, 1)
    valid = shares.get("ok", 0.0) * sum(ok) / len(ok)
    per_second = [2048 / t_try, shares.get("ok", 0.0) * 2048 / t_try, len(some) / t_low, 2048 / t_bred]
    two = _core.Policy(dag, target, {}, 1, 2)
    two.sketches()
    plain = best(two.round, 64)
    learner, task = train(two)
    two.set_scorer(learner.scorer(task))
    trees = best(two.round, 64)
    print(f"{name:8}{label:26}{100 * valid:7.1f} %" + "".join(f"{v:11.0f}" for v in per_second), end="")
    print(f"{plain[0]:9.2f} s{trees[0]:9.2f} s{trees[0] / GOAL:8.2f}{trees[1]:9.2f} s", end="")
    search, training, made = tuned(dag, target)
    print(f"{search:13.1f}{training:12.2f}   {'/'.join(f'{n:.2f}' for n in made)}", flush=True)


def main(targets):
    print(f"{'target':8}{'task':26}{'valid':>9}{'tried/s':>11}{'states/s':>11}{'lowered/s':>11}{'bred/s':>11}", end="")
    print(f"{'estimate':>11}{'trees':>11}{'of goal':>8}{'core s':>11}{'ms search':>13}{'ms training':>12}   made")
    for name, target in targets:
        for label, make in TASKS.items():
            row(name, target, label, make)


if __name__ == "__main__":
    main([t for t in (("cuda", CUDA), ("llvm", LLVM)) if not sys.argv[1:] or t[0] in sys.argv[1:]])
