"""What tests of tuners share: tasks with known spaces, and costs that are computed instead of measured."""

import functools
import math
import time

import numpy as np

from nestsmith import autotvm, te
from nestsmith.autotvm.measure import Builder, Runner


def _copy(n=16):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    return te.create_schedule(b.op), [a, b]


@autotvm.template("tests/grid64")
def grid64(filtered):
    """8 x 8 configurations; filtered: 34 of them are allowed."""
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", 128, num_outputs=2)
    cfg.define_split("tile_x", 128, num_outputs=2)
    if filtered:
        cfg.multi_filter(lambda e: 32 <= e["tile_x"].size[-1] * e["tile_y"].size[-1] < 1024)
    cfg.add_flop(2.0 * 128**3)
    return _copy()


@autotvm.template("tests/layer11")
def layer11(channels, rows):
    """The space of the mobile GPU's convolution of the last stage of ResNet-18: 79,200 configurations for 512 and 7."""
    cfg = autotvm.get_config()
    cfg.define_split("tile_co", channels, num_outputs=3)
    cfg.define_split("tile_oh", rows, num_outputs=3)
    cfg.define_split("tile_ow", rows, num_outputs=3)
    cfg.define_reorder("reorder_0", list(range(10)), "candidate", candidate=[list(range(10)), [*range(7), 9, 7, 8]])
    cfg.define_annotate("ann_reduce", list(range(2)), "try_unroll")
    cfg.define_annotate("ann_spatial", list(range(3)), "try_unroll_vec")
    cfg.add_flop(231211008.0)
    return _copy()


ASKED = []


@autotvm.template("tests/sieve")
def sieve(rows):
    """A million configurations, half of them allowed; who asks is noted."""
    cfg = autotvm.get_config()
    for name in "xy":
        cfg.define_knob(name, list(range(rows)))
    cfg.multi_filter(lambda e: ASKED.append(1) or (e["x"].val + e["y"].val) % 2 == 0)
    cfg.add_flop(1.0)
    return _copy()


@autotvm.template("tests/numpy_knob")
def numpy_knob(scalars):
    """One knob whose values are NumPy's: three numbers, or three arrays."""
    cfg = autotvm.get_config()
    cfg.define_knob("k", np.arange(1, 4) if scalars else [np.full(2, x) for x in (1, 2, 3)])
    cfg.add_flop(1.0)
    return _copy()


def make(name, *args):
    """A task of one of the templates above."""
    return autotvm.task.create(f"tests/{name}", args, "llvm")


def smooth(config):
    """Seconds of a configuration of `layer11`, small around one choice: tiles of 4 x 8 channels, vectorised."""
    _, middle, inner = config["tile_co"].size
    far = (math.log2(middle) - 2) ** 2 + (math.log2(inner) - 3) ** 2
    far += 0.3 * sum(math.log2(s) for k in ("tile_oh", "tile_ow") for s in config[k].size[1:])
    far += config["reorder_0"].perm[-1] != 9
    far += sum(w != "unroll" for w in config["ann_reduce"].anns)
    far += 2 * ("vec" not in config["ann_spatial"].anns) + sum(w == "none" for w in config["ann_spatial"].anns)
    return 1e-3 * (1 + 0.2 * far)


class NoBuilder(Builder):
    """Builds nothing."""

    def build(self, measure_inputs):
        return [None for _ in measure_inputs]


class Costs(Runner):
    """Seconds of a configuration from a function; None: it fails."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.seen = seconds, []

    def run(self, measure_inputs, build_results):
        return [self._result(i.config) for i in measure_inputs]

    def _result(self, config):
        self.seen.append(config.index)
        cost = self.seconds(config)
        if cost is None:
            return autotvm.MeasureResult(("it failed", RuntimeError("it failed")), 4, 0.1, time.time())
        return autotvm.MeasureResult((cost,), 0, 0.1, time.time())


def computed(seconds, batch=8):
    """A measure_option whose results are computed; its runner notes the indices that it saw."""
    return autotvm.measure_option(NoBuilder(n_parallel=batch), Costs(seconds))


@functools.cache
def layer11_task():
    """The task of 79,200 configurations."""
    return make("layer11", 512, 7)
