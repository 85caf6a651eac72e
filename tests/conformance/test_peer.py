"""What the reference makes of ten network and target pairs, and what we make of them: tasks, sketches, states."""

import gzip
import json
import pathlib
import re

import pytest
from networks_of_reference import extracted, sketches

from nestsmith import _core

DATA = pathlib.Path(__file__).parents[1] / "data"


def read(name):
    return json.loads(gzip.decompress((DATA / name).read_bytes()))


TASKS = read("peer-networks.json.gz")
SKETCHES = read("peer-sketches.json.gz")
STATES = read("peer-states.json.gz")


def without_minima(text):
    """Minima that are expressions may be written differently; everything else must be equal."""
    return re.sub(r"\((.*),([^,()]*)\)$", lambda m: f"({m[1] if m[1].isdigit() else '...'},{m[2]})", text, flags=re.M)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_keys_weights_and_operation_counts(name):
    got = {key: (weight, dag.flop_ct) for key, (dag, _, weight) in extracted(name).items()}
    want = {key: (weight, flops) for key, weight, flops, _ in TASKS[name]}
    assert set(got) == set(want)
    for key, (weight, flops) in want.items():
        assert got[key] == (weight, pytest.approx(flops, rel=1e-6))


@pytest.mark.parametrize("name", sorted(SKETCHES))
def test_every_sketch_in_order(name):
    kind = name.rsplit("-", 1)[1]
    for task in SKETCHES[name]:
        dag = extracted(name)[task["key"]][0]
        assert str(dag) == task["text"]
        got = sketches(dag, kind)
        assert [s.text() for s in got] == [s[1] for s in task["sketches"]], task["index"]


@pytest.mark.parametrize("name", sorted({t["network"] for t in STATES}))
def test_every_sampled_state(name):
    seen = 0
    for task in (t for t in STATES if t["network"] == name):
        dag = extracted(name)[task["key"]][0]
        for s in task["states"]:
            state = _core.State(dag, json.dumps(s["steps"]))
            assert without_minima(str(state.infer_bounds())) == without_minima(s["text"]), (task["key"], s["steps"])
            assert state.python() == s["python"]
            assert json.loads(state.steps()) == s["steps"]
            seen += 1
    assert seen == {"resnet-18-NHWC-cuda": 186, "resnet-18-NHWC-llvm": 144, "mobilenet-NHWC-cuda": 88}.get(name, 16)
