"""What a template defines for one configuration is forgotten: it runs for thousands of them."""

import time

from nestsmith import autotvm, te
from nestsmith.autotvm import MeasureInput, MeasureResult
from nestsmith.autotvm.measure.program import Programs
from nestsmith.autotvm.tuner.features import _try_row

ARGS = (
    ("TENSOR", (1, 64, 56, 56), "float32"), ("TENSOR", (64, 64, 3, 3), "float32"), (1, 1), (1, 1, 1, 1), (1, 1), "float32",
)  # fmt: skip


def next_number():
    """Of an expression that the session gets next."""
    with te.scratch():
        return hash(te.var("probe"))


def test_configurations_leave_nothing_behind():
    task = autotvm.task.create("conv2d_nchw_spatial_pack.mali", ARGS, "opencl -device=mali")
    programs, failed, kept = Programs(task), 0, []
    configs = [task.config_space.get(i) for i in range(7, task.config_space.range_length, 99991)]
    for cfg in configs[:2]:  # reducers and caches are made once
        programs.try_of(MeasureInput(task.target, task, cfg), time.time)
    before = next_number()
    for cfg in configs:
        kept.append(programs.try_of(MeasureInput(task.target, task, cfg), time.time))
        failed += isinstance(kept[-1], MeasureResult)
        assert _try_row(task, "itervar", cfg.index).dtype == "float32"
    assert 0 < failed < len(configs) and next_number() == before
    good = [k for k in kept if not isinstance(k, MeasureResult)]
    assert len({id(k.task) for k in good}) > 3 and all("SP" in k.state.steps() for k in good)
