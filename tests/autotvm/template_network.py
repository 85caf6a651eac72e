"""A small network in which every kind of template has something to do, records for it, and what it computes."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import autotvm, relay, transform
from nestsmith.autotvm.measure import MeasureInput, MeasureResult
from nestsmith.contrib import graph_executor
from nestsmith.relay.expr import post_order


def small_network():
    """Convolutions of all kinds, each with something that follows; weights and input are small whole numbers."""
    rng = np.random.default_rng(0)
    params = {}

    def weight(*shape):
        name = f"w{len(params)}"
        params[name] = rng.integers(-1, 2, shape).astype("float32")
        return relay.var(name, shape=shape)

    x = relay.var("data", shape=(1, 4, 12, 12))
    y = relay.nn.conv2d(x, weight(8, 4, 3, 3), padding=(1, 1))
    y = relay.nn.relu(relay.nn.bias_add(y, weight(8)))
    z = relay.nn.conv2d(y, weight(8, 1, 3, 3), padding=(1, 1), groups=8)
    y = relay.add(relay.nn.conv2d(relay.nn.relu(z), weight(8, 8, 1, 1)), y)
    y = relay.nn.relu(relay.nn.conv2d(y, weight(16, 8, 3, 3), strides=(2, 2), padding=(1, 1)))
    y = relay.nn.dense(relay.nn.batch_flatten(y), weight(10, 576))
    inputs = [e for e in post_order(y) if isinstance(e, relay.Var)]
    return ns.IRModule.from_expr(relay.Function(inputs, y)), params


def records(tasks, cost=lambda task: 1.0, pick=lambda n: n // 2):
    """A record of each task, as if somebody had measured it."""
    out = []
    for task in tasks:
        n, k = len(task.config_space), pick(len(task.config_space))
        for i in [*range(k, n), *range(k)]:
            cfg = task.config_space.get(i)
            with task.target:
                task.instantiate(cfg)
            if cfg.valid():
                break
        cfg = task.config_space.get(i)
        out.append((MeasureInput(task.target, task, cfg), MeasureResult((cost(task),), 0, 1.0, 0.0)))
    return out


def blocked_records(tasks, block=lambda task, knob: 8):
    """Records of convolutions for x86 whose blocks of channels `block` chooses by the knob's name; the largest that fits."""
    out = []
    for task in tasks:
        digits = []
        for knob, space in task.config_space.space_map.items():
            fits = [k for k, e in enumerate(space) if knob not in ("tile_ic", "tile_oc") or e.size[-1] <= block(task, knob)]
            digits.append(max(fits, key=lambda k: space[k].size[-1]) if knob in ("tile_ic", "tile_oc") else 0)
        cfg = task.config_space.get(task.config_space.knob2point(digits))
        out.append((MeasureInput(task.target, task, cfg), MeasureResult((1.0,), 0, 1.0, 0.0)))
    return out


def build(mod, params, target, log=None, disabled=None):
    with autotvm.apply_history_best(log), transform.PassContext(opt_level=3, disabled_pass=disabled):
        return relay.build(mod, target=target, params=params)


def output(lib, target, x):
    device = ns.device(ns.target.Target(target).kind.name.replace("llvm", "cpu"), 0)
    if not device.exist:
        pytest.skip(f"no device: {device.why_not}")
    module = graph_executor.GraphModule(lib["default"](device))
    module.run(data=x)
    return module.get_output(0).numpy()


X = np.random.default_rng(1).integers(-2, 3, (1, 4, 12, 12)).astype("float32")
