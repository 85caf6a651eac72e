"""The search uses double buffers where it is asked to (double_buffer_prob): as steps that records carry, counted by the plan of
sizes, the estimate and the features, in programs that compute the same."""

import json
import re

import numpy as np
import pytest
from search_cases import CPU4, CUDA, MALI, conv_bn_relu, matmul, matmul_relu, policy, winograd

import nestsmith as ns
from nestsmith import _core

OPENCL = _core.Target("opencl", (-1, 16, 64, 49152, 2147483647, 1024, 8, 32))
KIND = {CUDA: "cuda", OPENCL: "opencl"}
SMALL = dict(evolutionary_search_population=60, sample_init_min_population=20, evolutionary_search_num_iters=2)
TASK = ('["key"]', "cuda -keys=cuda,gpu", (-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32), "", 0, [])
IN_KERNELS = r" shared (\d+) "


def kinds(state):
    return [s[0] for s in json.loads(state.steps())]


def found(tensors, target, n=16, seed=3, **more):
    return [s for s, _ in policy(tensors, target, seed=seed, **SMALL, **more).round(n)]


def without(state, dag):
    """The same program with single buffers."""
    return _core.State(dag, json.dumps([s for s in json.loads(state.steps()) if s[0] != "DB"]))


@pytest.mark.parametrize("target", [CUDA, OPENCL])
@pytest.mark.parametrize("tensors", [lambda: matmul_relu(128, 128, 128), lambda: winograd(14, 32)])
def test_steps_are_recorded_and_replayed(target, tensors):
    dag = _core.ComputeDAG(tensors())
    p = policy(dag, target, seed=3, double_buffer_prob=0.4, lane_products=0, **SMALL)
    states = [s for s, _ in p.round(16)]
    doubled = [s for s in states if "DB" in kinds(s)]
    assert 0 < len(doubled) < len(states), "some are, some are not"
    for s in doubled:
        line = _core.record_text(*TASK, s.steps(), [1e-3], 0, 0.1, 1, "v0.6")
        assert "DB" not in [x[0] for x in json.loads(line)["i"][1][1]], "other readers see steps that they know"
        steps = _core.record_parse(line)[6]
        again = _core.State(dag, steps)
        assert steps == s.steps() and again.infer_bounds().text() == _core.State(dag, s.steps()).infer_bounds().text()
        assert _core.candidate_source(again, target) == _core.candidate_source(s, target)


@pytest.mark.parametrize("target", [CUDA, OPENCL])
def test_estimate_and_features_know_the_second_copy(target):
    dag = _core.ComputeDAG(matmul(128, 128, 128))
    p, more = policy(dag, target, seed=3, double_buffer_prob=0.5, lane_products=0, **SMALL), 0
    for s, _ in p.round(12):
        plain = without(s, dag).infer_bounds()
        state = _core.State(dag, s.steps()).infer_bounds()
        a, b = (p.facts(x)["kernels"][0] for x in (plain, state))
        sizes = [int(re.search(IN_KERNELS, _core.lower_text(x, "kernels", KIND[target])).group(1)) for x in (plain, state)]
        assert [a["shared_bytes"], b["shared_bytes"]] == sizes and b["shared_bytes"] <= target.hw[3]
        rows = [_core.features(x, target, rules=2)[1] for x in (plain, state)]
        allocated = [x[:, 157].sum() for x in rows]
        if sizes[0] == sizes[1]:
            assert "DB" not in kinds(s) or a["barriers"] == b["barriers"], "one slice needs one copy"
            assert allocated[0] == allocated[1]
            continue
        more += 1
        assert sizes[1] == 2 * sizes[0] and allocated[1] > allocated[0] and 2 * b["barriers"] == a["barriers"]
        assert not np.array_equal(p.vector(plain), p.vector(state))
    assert more > 2


@pytest.mark.parametrize("seed", [1, 2])
def test_results_stay_the_same_bit_for_bit(seed):
    tensors = matmul_relu(32, 32, 32)
    dag = _core.ComputeDAG(tensors)
    dev = ns.opencl(0)
    rng = np.random.default_rng(seed)
    data = [rng.integers(-3, 4, [int(x) for x in t.shape]).astype("float32") for t in tensors]
    want = np.maximum(data[0] @ data[1], 0)
    doubled = [s for s in found(dag, OPENCL, seed=seed, double_buffer_prob=0.6) if "DB" in kinds(s)][:3]
    assert doubled
    for s in doubled:
        state = _core.State(dag, s.steps())
        for kind in KIND.values():
            data[2][:] = np.nan
            assert _core.interp(state, kind, data)["findings"] == [] and np.array_equal(data[2], want)
        if dev.exist:
            at = [ns.nd.array(x, dev) for x in [*data[:2], np.zeros_like(data[2])]]
            ns.build(state, tensors, "opencl")(*at)
            assert np.array_equal(at[2].numpy(), want)


def test_mutations_begin_and_end_them():
    """Of one tiling in a search some states have double buffers, by mutation; children of those lose them again."""
    p = policy(matmul(256, 256, 256), CUDA, seed=1, **SMALL, double_buffer_prob=0.3)
    start = [s for s in p.sample() if "DB" in kinds(s)]
    bred = p.evolve(start, 40)
    assert {"DB" in kinds(s) for s in bred} == {True, False}
    never = policy(matmul(256, 256, 256), CUDA, seed=1, **SMALL)
    assert not any("DB" in kinds(s) for s in never.sample())


def test_who_has_none():
    always = dict(double_buffer_prob=1.0)
    for target, more in ((CPU4, {}), (MALI, {}), (CUDA, {"search_mode": "compatible"})):
        assert not any("DB" in kinds(s) for s in found(conv_bn_relu(1, 14, 14, 32, 32), target, 8, **always, **more))
    drawn = policy(matmul(128, 128, 128), CUDA, seed=1, **SMALL, **always).sample()
    of_lanes, of_loops = ({"DB" in kinds(s) for s in drawn if ("MM" in kinds(s)) is lanes} for lanes in (True, False))
    assert of_loops == {True} and of_lanes == {False}, "products by lanes have slices in flight of their own"
