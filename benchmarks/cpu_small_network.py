"""A network of four small tasks on CPU cores: is it as fast as its tasks were when they were tuned?

    python benchmarks/cpu_small_network.py [--trials 32] [--threads 2] [--log FILE]

Prints the measured time of each kernel while tuning, in the network, and of a whole run, with what 10 % and 2 microseconds per
kernel above the sum would be.
"""

import argparse
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent


def network():
    import torch

    torch.manual_seed(0)
    conv = torch.nn.Conv2d
    return torch.nn.Sequential(
        conv(3, 16, 3, padding=1), torch.nn.ReLU(), conv(16, 32, 3, 2, 1), torch.nn.ReLU(), conv(32, 32, 1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10),
    ).eval(), (torch.randn(1, 3, 32, 32),)  # fmt: skip


def best_of(log, tasks):
    """Seconds of the best record, by workload."""
    from nestsmith import auto_scheduler

    best = {}
    for inp, res in auto_scheduler.load_records(log):
        if res.error_no == 0:
            key, cost = inp.task.workload_key, float(np.mean([float(c) for c in res.costs]))
            best[key] = min(cost, best.get(key, np.inf))
    return [best[t.workload_key] for t in tasks]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=32, help="per task")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--log", default="cpu_small.json")
    args = parser.parse_args()
    os.environ["NESTSMITH_NUM_THREADS"] = str(args.threads)
    os.environ["NESTSMITH_LOG_DIR"] = ""
    sys.path[:0] = [str(ROOT / "python")]
    import nestsmith

    model, given = network()
    plain = nestsmith.compile(model, given, target="llvm", guess=False, verbose=0)
    tuned = nestsmith.compile(model, given, target="llvm", trials=args.trials * len(plain.tasks), log=args.log, verbose=0)
    costs = best_of(args.log, tuned.tasks)
    for t, c in zip(tuned.tasks, costs):
        print(f"{c * 1e6:8.2f} us tuned  {t.desc}")
    print(tuned.report(200))
    run, total, kernels = tuned.benchmark(repeat=9).median, sum(costs), len(tuned.report(1).rows)
    print(
        f"{run * 1e6:.1f} us a run, {total * 1e6:.1f} us the sum of {len(costs)} tuned tasks, {kernels} kernels: "
        f"at most {(total * 1.1 + 2e-6 * kernels) * 1e6:.1f} us wanted"
    )


if __name__ == "__main__":
    main()
