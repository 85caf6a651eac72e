"""An expansion and the windows that read it are one sketch: a tile is made right before it is read."""

import numpy as np
import pytest
from search_cases import CPU4, CUDA, MALI, policy, where

import nestsmith
from nestsmith import auto_scheduler, te, topi


@auto_scheduler.register_workload
def expansion(height, ci, ce, stride, pad=1, twice=False, kernel=1):
    data, w = te.placeholder((1, height, height, ci), name="data"), te.placeholder((kernel, kernel, ci, ce), name="w")
    bias, taps = te.placeholder((1, 1, 1, ce), name="bias"), te.placeholder((3, 3, ce, 1), name="taps")
    wide = topi.clip(topi.add(topi.nn.conv2d_nhwc(data, w, (kernel + 1) // 2, kernel // 2, 1), bias), 0, 6)
    out = topi.nn.relu(topi.nn.depthwise_conv2d_nhwc(wide, taps, stride, pad, 1))
    return [data, w, bias, taps, out, *([topi.nn.relu(wide)] if twice else [])]


NAMES = ["data", "pad_temp", "w", "conv2d_nhwc", "bias", "T_add", "compute", "PaddedInput", "taps", "DepthwiseConv2d", "out"]
CONV, PAD, WINDOW, OUT = (NAMES.index(n) for n in ("conv2d_nhwc", "PaddedInput", "DepthwiseConv2d", "out"))


def attached(state):
    """{stage: (stage, loop)} of what is computed inside of loops."""
    return {i: (s[4], s[5]) for i, s in enumerate(state.stages()) if s[2] == 2}


def test_one_sketch_makes_tiles():
    (s,) = policy(expansion(14, 8, 48, 1), CPU4).sketches()
    assert attached(s) == {CONV: (OUT, 2), PAD: (OUT, 2), WINDOW: (OUT, 4)}
    assert s.stages()[PAD][0] == "PaddedInput"
    assert [where(s, NAMES.index(n)) for n in ("pad_temp", "T_add", "compute")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("target", "params", "case"),
    [
        (CPU4, {"search_mode": "compatible"}, (14, 8, 48, 1)),
        (CUDA, {}, (14, 8, 48, 1)),
        (MALI, {}, (14, 8, 48, 1)),
        (CPU4, {}, (14, 8, 48, 1, 1, True)),  # another reader wants all of it
    ],
)
def test_elsewhere_the_expansion_stays_whole(target, params, case):
    for s in policy(expansion(*case), target, **params).sketches():
        assert "PaddedInput" not in {s.stages()[i][0] for i in attached(s)}


@pytest.mark.some(1)
@pytest.mark.parametrize("case", [(14, 8, 48, 1), (15, 3, 20, 2), (15, 3, 16, 1, 1, False, 3)])
def test_drawn_programs_compute_the_same(case):
    task = auto_scheduler.SearchTask(func=expansion, args=case, target="llvm")
    states = auto_scheduler.SketchPolicy(task, auto_scheduler.AnalyticModel(), seed=3, verbose=0).sample_initial_population()[:5]
    rng, want = np.random.default_rng(0), None
    shapes = [[int(d) for d in t.shape] for t in task.compute_dag.tensors]
    arrays = [nestsmith.nd.array(rng.integers(-3, 4, shape).astype("float32")) for shape in shapes]
    for state in (task.compute_dag.init_state, *states):  # the first is the definition, loop by loop
        arrays[-1].copyfrom(np.full(shapes[-1], 77, "float32"))
        nestsmith.build(*task.compute_dag.apply_steps_from_state(state), task.target)(*arrays)
        want = arrays[-1].numpy() if want is None else want
        assert np.abs(want).max() > 6 and np.array_equal(arrays[-1].numpy(), want), state
    assert len(states) == 5
