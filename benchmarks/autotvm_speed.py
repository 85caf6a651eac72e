"""How fast template tuning's inner loops are: features and annealing, in configurations per second.

    python benchmarks/autotvm_speed.py [--seconds 2]

A convolution's shipped template for mobile GPUs (ResNet-18, stage 4: 79,200 configurations). The reference extracts some 50
features per second and core and anneals in Python.
"""

import argparse
import resource
import time

import numpy as np

from nestsmith import _core, autotvm
from nestsmith.autotvm.measure.program import Programs
from nestsmith.autotvm.tuner import SimulatedAnnealingOptimizer, XGBoostCostModel
from nestsmith.autotvm.tuner.features import FeatureCache, Features, row_of

ARGS = (("TENSOR", (1, 512, 7, 7), "float32"), ("TENSOR", (512, 512, 3, 3), "float32"), (1, 1), (1, 1, 1, 1), (1, 1), "float32")


def rate(seconds, step):
    """Configurations per second of a function that returns how many it did."""
    n, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        n += step()
    return n / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    autotvm.GLOBAL_SCOPE.in_tuning = True
    task = autotvm.task.create("conv2d_nchw_spatial_pack.mali", ARGS, "opencl -device=mali")
    space = task.config_space
    some = iter(space.shuffle())
    rows = []

    def one(kind):
        def step():
            row_of(task, space.get(next(some)), kind)
            return 1

        return step

    for kind in ("itervar", "curve", "knob"):
        rows.append((f"features, {kind}, one after another", rate(seconds, one(kind))))
    pool = Features(task, "itervar", FeatureCache())

    def many():
        pool.rows([next(some) for _ in range(128)])
        return 128

    rows.append(("features, itervar, in processes", rate(seconds, many)))
    pool.close()
    indices = np.array(space.draw_ints(4096))
    rows.append(("features, knob, many at once", rate(seconds, lambda: len(_core.space_features(space._space, indices)))))
    programs = Programs(task)

    def program():
        programs.try_of(autotvm.MeasureInput(task.target, task, space.get(next(some))), time.time)
        return 1

    rows.append(("configuration to steps", rate(seconds, program)))
    model = XGBoostCostModel(task, "knob")
    xs = space.draw_ints(512)
    start = time.perf_counter()
    model.fit(xs, np.random.default_rng(0).random(512), 64)
    fit = time.perf_counter() - start

    def anneal():
        optimizer = SimulatedAnnealingOptimizer(task, n_iter=100, early_stop=0)
        optimizer.find_maximums(model, 64, set())
        return 101 * 128

    rows.append(("annealing, knob features and trees", rate(seconds, anneal)))

    class Free:
        def predict(self, xs):
            return np.zeros(len(xs))

    def walk():
        SimulatedAnnealingOptimizer(task, n_iter=100, early_stop=0).find_maximums(Free(), 64, set())
        return 101 * 128

    rows.append(("annealing alone", rate(seconds, walk)))
    print(f"{'':40} {'per second':>12}")
    for name, value in rows:
        print(f"{name:40} {value:12,.0f}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"training on 512 configurations: {fit * 1e3:.0f} ms; memory: {memory:.0f} MB")


if __name__ == "__main__":
    main()
