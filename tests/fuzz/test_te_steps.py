"""A schedule written in te is a list of steps: replayed, recorded and read back it gives the same program, and what a step
is not is told by its hash.

The schedules are those of test_te_schedules.py. Programs are compared as text: kernels after all passes, or the error that
refuses the schedule. ``NESTSMITH_FUZZ=n`` runs n programs per target instead of the fixed sample.
"""

import json
import os

import pytest
from te_programs import draw

from nestsmith import _core, te
from nestsmith.auto_scheduler import ComputeDAG

SAMPLE = int(os.environ.get("NESTSMITH_FUZZ", "0"))
TASK = ("[\"key\"]", "llvm -keys=cpu", (4, 64, 64, 0, 0, 0, 0, 0), "", 0, [])
TVM = {"AN", "FU", "PR", "RE", "SP", "FSP", "FFSP", "SA", "CA", "CI", "CR", "CHR", "CHW", "RF"}


def program(core, target, args):
    """Its text, or why there is none."""
    try:
        return _core.lower_text(core, "kernels", target, args=args)
    except ValueError as e:
        return f"refused: {e}"


def recorded(steps, version="v0.6"):
    """The steps of a record that was written and read again, and the record's plain list."""
    line = _core.record_text(*TASK, steps, [1e-3], 0, 0.1, 1, version)
    fields = _core.record_parse(line)
    assert fields[11] == version and _core.record_text(*fields) == line
    record = json.loads(line)
    assert {s[0] for s in record["i"][1][1]} <= TVM, "other readers refuse a record with other steps"
    return fields[6], json.dumps(record["i"][1][1])


def check(seed, gpu):
    """How many steps are TVM's, and how many are not."""
    p, target = draw(seed, gpu), ("cuda", "opencl")[seed % 2] if gpu else "c"
    s, args = p["s"], list(p["args"])
    steps, plain = recorded(s.steps(), "v0.6 stage=quick n=3")
    assert steps == s.steps()
    again = te.create_schedule(s.outputs)
    again.apply_steps(steps)
    want = program(s._core, target, args)
    assert program(again._core, target, args) == want, f"replayed\n{p.text()}"
    assert str(again) == str(s) and again.steps() == steps
    te.create_schedule(s.outputs).apply_steps(plain)  # what other readers know is a schedule by itself
    return [x[0] in TVM for x in json.loads(steps)]


def check_state(seed, gpu):
    """On a ComputeDAG, whose stages may have another order: the state's own text survives, and so does its program."""
    p, target = draw(seed, gpu), ("cuda", "opencl")[seed % 2] if gpu else "c"
    s, args = p["s"], list(p["args"])
    dag = ComputeDAG(args)  # that of the schedule has the stages that were added to it
    state = dag.state_from_schedule(s).state_object
    steps, _ = recorded(state.steps())
    again = _core.State(dag, steps)
    assert again.steps() == state.steps() and str(again) == str(state)
    got = program(again, target, args)
    assert got == program(state, target, args)
    same = [x.name for x in dag.ops] == [x.origin_op.name for x in te.create_schedule(s.outputs).stages]
    same = same and not any(t.op in s.outputs for x in dag.ops for t in x.input_tensors)  # to a DAG these are no outputs
    return same, (got, program(s._core, target, args)), p


@pytest.mark.some(1)
@pytest.mark.parametrize("gpu", [False, True])
def test_random_schedules_replay(gpu):
    n = SAMPLE or 60
    steps = [x for seed in range(n) for x in check(seed, gpu)]
    assert 0 < sum(not x for x in steps) < 0.5 * len(steps), "both kinds of steps are drawn, and most are TVM's"


@pytest.mark.parametrize("gpu", [False, True])
def test_random_schedules_as_states(gpu):
    n = SAMPLE or 50
    same = 0
    for seed in range(n):
        as_before, (got, want), p = check_state(seed, gpu)
        assert not as_before or got == want, f"seed {seed}\n{p.text()}\n{got}\n{want}"
        same += as_before
    assert same > n / 2


def test_what_is_refused_changes_nothing():
    """An inlined stage stays inlined although a copy of it was asked for."""
    a = te.placeholder((8, 6), name="A")
    b = te.compute((8, 6), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((8, 6), lambda i, j: b[i, j] * 2, name="C")
    s = te.create_schedule(c.op)
    s[b].compute_inline()
    s[b].set_store_predicate(s[b].op.axis[0].var < 8)
    before, steps = program(s._core, "c", [a, c]), s.steps()
    with pytest.raises(ValueError, match="is stored under a condition"):
        s.cache_write(b, "shared")
    assert program(s._core, "c", [a, c]) == before and s.steps() == steps


@pytest.mark.full
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("chunk", range(5))
def test_five_thousand_random_schedules_replay(chunk, gpu):
    for seed in range(1000 + chunk * 500, 1500 + chunk * 500):
        check(seed, gpu)
