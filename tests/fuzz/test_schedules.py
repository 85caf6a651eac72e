"""Random schedules through lowering and the interpreter: no finding, results bit-equal to the definition of the DAG.

A drawn schedule may be no valid program (say, a barrier under a condition that differs between threads); such a draw is
counted and must say why. ``NESTSMITH_FUZZ=n`` runs n draws per target instead of the fixed sample.
"""

import os

import numpy as np
import pytest
from schedules import draw

from helpers import unlimited
from nestsmith import _core

SAMPLE = int(os.environ.get("NESTSMITH_FUZZ", "260"))
CHUNKS = 4


def tensors(dag, rng):
    """Small integers for inputs, NaN for outputs."""
    arrays = []
    for t in dag.tensors:
        shape = tuple(int(x) for x in t.shape)
        is_input = not t.op.input_tensors and type(t.op).__name__ != "ComputeOp" and not getattr(t.op, "body", None)
        arrays.append(rng.integers(-4, 5, shape).astype("float32") if is_input else np.full(shape, np.nan, "float32"))
    return arrays


def check(seed, gpu):
    """None, or why the draw is no valid program."""
    name, dag, state, steps = draw(seed, gpu)
    target = ("cuda" if seed % 2 else "opencl") if gpu else "c"
    rng = np.random.default_rng(seed)
    want = tensors(dag, rng)
    _core.interp_dag(dag, want)
    for stage in ("loops", "program"):
        got = [a.copy() for a in want[:-1]] + [np.full_like(want[-1], np.nan)]
        where = f"seed {seed} gpu={gpu} {name} {target} {stage} {steps}"
        try:
            report = _core.interp(state, target, got, stage=stage)
        except ValueError as e:
            return str(e)
        except Exception as e:
            raise AssertionError(f"{where}: {e}") from e
        assert report["findings"] == [], f"{where}: {report['findings']}"
        np.testing.assert_array_equal(got[-1], want[-1], err_msg=where)
    source, manifest = _core.program(state, None, unlimited(target), "main")
    assert "main" in source and manifest.startswith("{")
    return None


@pytest.mark.some(3)
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_schedules(chunk, gpu):
    seeds = range(chunk * SAMPLE // CHUNKS, (chunk + 1) * SAMPLE // CHUNKS)
    invalid = [w for w in (check(s, gpu) for s in seeds) if w]
    assert len(invalid) < len(seeds) * 0.4, invalid
