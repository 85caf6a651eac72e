"""CUDA templates on the GPU: random configurations at shapes of real networks, bit for bit where sums are exact, and a
network that is built with such records."""

import os

import numpy as np
import pytest
import template_sweep
from template_network import X, build, output, records, small_network

import nestsmith as ns
from nestsmith import autotvm

pytestmark = pytest.mark.skipif(not ns.cuda(0).exist, reason="no CUDA device: " + ns.cuda(0).why_not)
PAIRS = template_sweep.pairs(target="cuda")
MINUTES = 2.7  # then what has not begun is left out; the first configurations of all shapes come first


@pytest.fixture(scope="module")
def outcomes():
    found = template_sweep.sweep(PAIRS, os.environ.get("NESTSMITH_SWEEP"), minutes=MINUTES)
    print("\n" + "\n".join(template_sweep.summary(found)))
    return found


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p.name}-{'x'.join(map(str, p.shape))}")
def test_real_shapes(pair, outcomes):
    """Twenty random configurations of each; what takes a compiler too long, or the device refuses, is no wrong answer."""
    template_sweep.check(outcomes[pair])


def test_a_network_with_records():
    mod, params = small_network()
    tasks = [k for k in autotvm.task.extract_from_program(mod, params, ns.target.Target("cuda")) if "winograd" not in k.name]
    tuned = build(mod, params, "cuda", records(tasks, pick=lambda n: n // 3))
    np.testing.assert_array_equal(output(tuned, "cuda", X), output(build(mod, params, "cuda"), "cuda", X))
