"""Tensor cores as a variant of a task: drawn and mutated tiles are ones that the device takes and that give the definition's
bits; strict float32 stays strict unless asked; without the parameter the search is as ever.
"""

import json

import numpy as np
import pytest

from nestsmith import _core, auto_scheduler, te, topi, transform
from nestsmith.auto_scheduler import feature
from nestsmith.states import core_state

TARGET = "cuda -arch=sm_90"


def dense(m, n, k, dtype):
    a, b = te.placeholder((m, k), dtype, name="A"), te.placeholder((n, k), dtype, name="B")
    return [a, b, topi.nn.relu(topi.nn.dense(a, b))]


def convolution(layout, dtype):
    if layout == "NHWC":
        x, w = te.placeholder((1, 9, 9, 16), dtype, name="X"), te.placeholder((3, 3, 16, 24), dtype, name="W")
        y = topi.nn.conv2d_nhwc(x, w, 2, 1, 1)
    else:
        x, w = te.placeholder((1, 16, 9, 9), dtype, name="X"), te.placeholder((24, 16, 3, 3), dtype, name="W")
        y = topi.nn.conv2d_nchw(x, w, 2, 1, 1)
    return [x, w, topi.nn.relu(y)]


def policy(tensors, seed=1, math=None, target=TARGET, **params):
    task = auto_scheduler.SearchTask(
        compute_dag=auto_scheduler.ComputeDAG(tensors), workload_key="tensor cores", target=target, math=math
    )
    return auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), params=params, seed=seed, verbose=0)


def has_step(state):
    return "tensor cores" in str(state)


def sketches(tensors, **how):
    return [any(step[0] == "MM" for step in s.transform_steps) for s in policy(tensors, **how).generate_sketches()]


def test_who_may_use_them():
    half, brain, single = (dense(40, 24, 72, t) for t in ("float16", "bfloat16", "float32"))
    for tensors in (half, brain):
        assert sketches(tensors) == sketches(tensors, tensor_cores=1) == [False, True]
        assert sketches(tensors, tensor_cores=0) == sketches(tensors, search_mode="compatible") == [False]
        assert sketches(tensors, target="cuda -arch=sm_75") == [False]
    assert not any(sketches(single)) and not any(sketches(single, math="tf32", tensor_cores=1))
    assert sum(sketches(single, math="tf32")) == sum(sketches(single, math="tf32", tensor_cores=2)) == 1
    with pytest.raises(ValueError, match="tensor_cores is 2, but the task is to compute float32 strictly"):
        policy(single, tensor_cores=2)
    with pytest.raises(ValueError, match="tensor_cores 3 is neither 0"):
        policy(half, tensor_cores=3).generate_sketches()
    with pytest.raises(ValueError, match="math 'tf23' is unknown"):
        policy(half, math="tf23")


def test_a_context_decides_for_tasks_that_are_not_told():
    single = dense(40, 24, 72, "float32")
    with transform.PassContext(config={"nestsmith.allow_tf32": True}):
        assert any(sketches(single)) and not any(sketches(single, math="strict"))
        assert policy(single, target="cuda -arch=sm_75").search_task.math == "strict"
    assert policy(single).search_task.math == "strict"


def test_what_would_fill_the_instructions_badly_is_not_looked_at():
    x, w = te.placeholder((1, 9, 9, 64), "float16", name="X"), te.placeholder((3, 3, 64, 1), "float16", name="W")
    assert not any(sketches([x, w, topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1)]))
    assert any(sketches(dense(1, 1000, 512, "float16")))  # a single row is worth it: an eighth


def test_winograd_is_never_computed_in_tf32():
    x, w = te.placeholder((1, 8, 8, 32), name="X"), te.placeholder((6, 6, 32, 32), name="W")
    tensors = [x, w, topi.nn.conv2d_winograd_nhwc_without_weight_transform(x, w, 1, 1, 1, "float32")]
    assert not any(sketches(tensors, math="tf32"))


def right(state, tensors):
    """The program of the state in the interpreter, against the definition."""
    rng = np.random.default_rng(0)
    data = [rng.integers(-4, 5, [int(x) for x in t.shape]).astype(t.dtype) for t in tensors]
    want = [x.copy() for x in data]
    _core.interp_dag(_core.ComputeDAG(tensors), want)
    report = _core.interp(state, _core.Target("cuda", sm=90), data, stage="program")
    assert report["findings"] == []
    np.testing.assert_array_equal(data[-1], want[-1])


@pytest.mark.parametrize("make", [lambda: dense(33, 21, 40, "float16"), lambda: convolution("NHWC", "float32")])
def test_drawn_and_bred_states_are_right(make):
    tensors = make()
    p = policy(tensors, math="tf32")
    drawn = [s for s in p.sample_initial_population() if has_step(s)]
    bred = [s for s in p.evolutionary_search(drawn, 256) if has_step(s)]
    assert len(drawn) > 20 and len(bred) > 20
    for s in drawn[:3] + bred[:3]:
        right(core_state(s), tensors)


def test_records_carry_them_and_features_know_them():
    tensors = convolution("NCHW", "float16")
    p = policy(tensors)
    state = next(s for s in p.sample_initial_population() if has_step(s))
    rows = feature.get_per_store_features_from_states([state], p.search_task)[0]
    assert rows.shape[1] == 164 and (rows != 0).any()
    x = auto_scheduler.MeasureInput(p.search_task, state)
    line = auto_scheduler.measure_record.dump_record_to_string(x, auto_scheduler.MeasureResult([1e-3], 0, "", 0.1, 1))
    assert '"MM"' in json.loads(line)["v"] and '"MM"' not in line.split('"v"')[0]
    again, _ = auto_scheduler.measure_record.load_record_from_string(line)
    assert again.state.transform_steps == state.transform_steps
