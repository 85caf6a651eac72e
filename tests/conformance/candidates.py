"""Candidates from their steps to their outputs: replayed, lowered, compiled and run at full shapes on the reference
data of the task, the way the tuner does it."""

import functools
import gzip
import json
import pathlib

import numpy as np
from networks_of_reference import ENGINE

import helpers
from nestsmith import _core
from nestsmith.relay.packing import relayout

DATA = pathlib.Path(__file__).parents[1] / "data"
OPENCL = _core.Target("opencl")
DEVICE = {"cpu": 1, "opencl": 4, "cuda": 2}


def lines(name):
    """The parsed records of a public log, by key."""
    with gzip.open(DATA / name, "rt") as f:
        return {r[0]: r for r in map(_core.record_parse, (line for line in f if line.strip() and line[0] not in "# "))}


@functools.cache
def sampled(network):
    """{key: [steps as JSON]} of the states that the reference sampled for a network and target pair."""
    with gzip.open(DATA / "peer-states.json.gz") as f:
        tasks = json.load(f)
    return {t["key"]: [json.dumps(s["steps"]) for s in t["states"]] for t in tasks if t["network"] == network}


@functools.cache
def dag(index):
    """Task `index` of ResNet-18 (NHWC) under the names of current releases."""
    return helpers.resnet18_task(index, "p", "pool")


@functools.lru_cache(maxsize=2)
def expected(index):
    """The tensors of a task as bytes: small integers for inputs, and the outputs of the unscheduled program."""
    return _core.reference_data(dag(index))


@functools.cache
def device(name):
    """An open device; (None, why) as the second value if there is none."""
    there, why = _core.device_exists(DEVICE[name], 0)
    return (_core.Device(DEVICE[name], 0), "") if there else (None, why)


def usable(steps, index):
    """Whether a GPU program with these steps keeps within the limits of the device."""
    return _core.gpu_check(_core.State(dag(index), steps), ENGINE["cuda"])["ok"]


def own_states(index, target, count, seed, **params):
    """Steps of states from our own sampler."""
    out = []
    policy = _core.Policy(dag(index), target, params, seed, 1)
    for s, _ in policy.round(count):
        out.append(s.steps())
    return out


def run(index, steps, target, dev, layout=0):
    """Largest difference of the candidate's output to the expected one, relative to the largest expected value."""
    source, manifest = _core.candidate_source(_core.State(dag(index), steps), target, layout)
    binary, _, _ = _core.build(target, source, 300.0)
    module, args = dev.load(binary, manifest), json.loads(manifest)["args"]
    buffers = []
    for a, data in zip(args, expected(index)):
        b = dev.alloc(a["bytes"])
        if not a["read_only"]:
            b.fill(255)
        elif "axis" in a:
            old = np.frombuffer(data, a["dtype"]).reshape(a["from_shape"])
            b.upload(relayout(old, a["from_shape"], a["shape"], a["axis"]))
        else:
            b.upload(data)
        buffers.append(b)
    module.run(buffers)
    out = np.empty(args[-1]["shape"], "float32")
    buffers[-1].download(out)
    want = np.frombuffer(expected(index)[-1], "float32").reshape(out.shape)
    return float(np.abs(out.astype("float64") - want).max() / np.abs(want).max()) if np.isfinite(out).all() else np.inf
