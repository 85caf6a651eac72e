"""CUDA templates on the GPU: random configurations at shapes of real networks, bit for bit where sums are exact, and a
network that is built with such records."""

import numpy as np
import pytest
import template_cases as t
from template_network import X, build, output, records, small_network

import nestsmith as ns
from nestsmith import autotvm

pytestmark = pytest.mark.skipif(not ns.cuda(0).exist, reason="no CUDA device: " + ns.cuda(0).why_not)
CUDA = ns.target.Target("cuda") if ns.cuda(0).exist else None
NAMES = sorted(n for n, c in t.CASES.items() if c.target is t.GPU)


@pytest.mark.parametrize("name, shape", [(n, s) for n in NAMES for s in t.CASES[n].real])
def test_real_shapes(name, shape, monkeypatch):
    monkeypatch.setenv("NESTSMITH_BUILD_TIMEOUT", "60")
    assert t.twenty(name, shape, CUDA) > 0


def test_a_network_with_records():
    mod, params = small_network()
    tasks = [k for k in autotvm.task.extract_from_program(mod, params, CUDA) if "winograd" not in k.name]
    tuned = build(mod, params, "cuda", records(tasks, pick=lambda n: n // 3))
    np.testing.assert_array_equal(output(tuned, "cuda", X), output(build(mod, params, "cuda"), "cuda", X))
