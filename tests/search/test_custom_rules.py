"""Sketch rules of users: the published idiom, tuning with it, and what their mistakes look like."""

import traceback

import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, te
from nestsmith.auto_scheduler import PreloadCustomSketchRule as Rule
from nestsmith.auto_scheduler.loop_state import State, StateObject

SMALL = {"evolutionary_search_population": 32, "sample_init_min_population": 4, "evolutionary_search_num_iters": 1}


@auto_scheduler.register_workload
def ruled_matmul(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]


def task_of(n, m, k):
    hardware = auto_scheduler.HardwareParams(num_cores=4, target="llvm")
    return auto_scheduler.SearchTask(func=ruled_matmul, args=(n, m, k), target="llvm", hardware_params=hardware)


def policy_of(task, *rules, model="random"):
    return auto_scheduler.SketchPolicy(
        task, model, params=dict(SMALL), seed=1, verbose=0, init_search_callbacks=list(rules)
    )


def on_c(search_policy, state, stage_id):
    """As published: a rule makes a State of what it is given."""
    state = auto_scheduler.loop_state.State(state, search_policy.search_task.compute_dag)
    return Rule.APPLY_AND_SKIP_REST if state.stages[stage_id].op.name == "C" else Rule.PASS


def untouched_and_split(search_policy, state, stage_id):
    dag = search_policy.search_task.compute_dag
    s0 = auto_scheduler.loop_state.State(state, dag)
    out = [[s0.state_object, -1]]
    s1 = auto_scheduler.loop_state.State(state, dag)
    op = s0.stage_ops[2]
    s1.split(op, s1[op].iters[0], [8, 2])
    out.append([s1.state_object, -1])
    return out


def split_and_go_on(search_policy, state, stage_id):
    """Sizes left to the search; the State itself is returned, and the rules of the engine go on with it."""
    s = State(state, search_policy.search_task.compute_dag)
    op = s.stage_ops[stage_id]
    i = s.split(op, s[op].iters[0], [None])
    s.parallel(op, i[0])
    return [[s, stage_id - 1]]


def extents(state):
    return [it.range.extent for it in state[2].iters]


@pytest.mark.parametrize("given", [lambda s: s, lambda s: s.state_object], ids=["State", "StateObject"])
def test_the_published_idiom(given):
    """512 x 512 x 512, an untouched state and one whose first loop is split: the reference's two sketches."""

    def apply(policy, state, stage_id):
        assert isinstance(state, State) and isinstance(state.state_object, StateObject)
        return untouched_and_split(policy, given(state), stage_id)

    sketches = policy_of(task_of(512, 512, 512), Rule(on_c, apply, "tile C")).generate_sketches()
    assert [extents(s) for s in sketches] == [[512, 512, 512], [32, 8, 2, 512, 512]]


@pytest.mark.parametrize("apply", [untouched_and_split, split_and_go_on])
@pytest.mark.parametrize("model", ["random", "trees"])
def test_tuning_with_a_rule(apply, model, tmp_path):
    """Through the scheduler's way and the single task's: every candidate comes from the rule and computes the product."""
    task, log = task_of(32, 16, 8), str(tmp_path / "log.json")
    policy = policy_of(task, Rule(on_c, apply), model=model)
    options = auto_scheduler.TuningOptions(
        4, num_measures_per_round=2, verbose=0, runner=auto_scheduler.LocalRunner(min_repeat_ms=1, timeout=20),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    if model == "random":
        task.tune(options, policy)
    else:
        auto_scheduler.TaskScheduler([task], callbacks=[]).tune(options, search_policy=[policy])
    records = list(auto_scheduler.load_records(log))
    assert len(records) >= 2 and all(r.error_no == 0 for _, r in records)
    splits = {step[3] for i, _ in records for step in i.state.transform_steps if step[0] == "SP"}
    assert splits <= {32} and (apply is untouched_and_split or splits), "only C's first loop is split, by the rule"
    schedule, args = task.apply_best(log)
    assert ns.build(schedule, args, "llvm") is not None


def test_a_rule_may_change_a_sketch_with_open_lengths():
    """A split that a later step needs before its length is chosen (rfactor): such a state is copied and changed too."""
    sketch = policy_of(task_of(8, 8, 512)).generate_sketches()[0]
    assert [s[0] for s in sketch.transform_steps][:2] == ["SP", "RF"] and not sketch.concrete
    changed = State(sketch, sketch.compute_dag)
    op = changed.stage_ops[-1]
    changed.parallel(op, changed[op].iters[0])
    assert len(changed.transform_steps) == len(sketch.transform_steps) + 1
    assert sketch == sketch.copy() != changed


def fails(policy, state, stage_id):
    raise KeyError("my own bug")


def fails_like_the_engine(policy, state, stage_id):
    State(state, policy.search_task.compute_dag).split(2, state[2].iters[0], [0, 0])


@pytest.mark.parametrize("condition, action, error, words", [
    (fails, untouched_and_split, KeyError, "my own bug"),
    (on_c, fails, KeyError, "my own bug"),
    (on_c, fails_like_the_engine, ValueError, "split"),
])  # fmt: skip
def test_an_error_in_a_rule_keeps_its_traceback(condition, action, error, words):
    task = task_of(64, 64, 64)
    policy = policy_of(task, Rule(condition, action))
    guilty = next(f.__name__ for f in (condition, action) if f.__name__.startswith("fails"))
    options = auto_scheduler.TuningOptions(4, verbose=0)
    for call in (
        policy.generate_sketches,
        lambda: policy.propose(4),
        lambda: task.tune(options, policy),
        lambda: auto_scheduler.TaskScheduler([task], callbacks=[]).tune(options, search_policy=[policy]),
    ):
        with pytest.raises(error, match=words) as caught:
            call()
        assert guilty in [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    with pytest.raises(RuntimeError, match="custom sketch rule") as caught:
        policy.engine.sketches()  # what the engine itself says names the part, and the exception is its cause
    assert isinstance(caught.value.__cause__, error) and caught.value.__cause__.__traceback__ is not None


@pytest.mark.parametrize("returned, error, words", [
    (lambda s: s, TypeError, "list of .state, next stage id."),
    (lambda s: None, TypeError, "list of .state, next stage id."),
    (lambda s: [s, -1], TypeError, "list of .state, next stage id."),
    (lambda s: [[s, -1, 0]], ValueError, "3 values instead of two"),
    (lambda s: [[3, -1]], TypeError, "its state is of type int"),
    (lambda s: [[s, "x"]], TypeError, "'str' object cannot be interpreted as an integer"),
    (lambda s: [[s, 99]], RuntimeError, "position 99; the state has 3 stages"),
    (lambda s: [[s, 2**70]], RuntimeError, "the state has 3 stages"),
])  # fmt: skip
def test_what_a_rule_returns_wrongly(returned, error, words):
    """None of these is taken for a task without programs, which a scheduler would give up in silence."""
    task = task_of(64, 64, 64)
    policy = policy_of(task, Rule(on_c, lambda policy, state, stage_id: returned(state)))
    tuner = auto_scheduler.TaskScheduler([task], callbacks=[])
    with pytest.raises(error, match=words):
        tuner.tune(auto_scheduler.TuningOptions(4, verbose=0), search_policy=[policy])


def test_a_failure_is_the_cause_of_its_own_call_only():
    """After a rule has failed once and is mended, the search goes on; nothing of the old failure is left."""
    answers = [KeyError("once")]

    def action(policy, state, stage_id):
        if answers:
            raise answers.pop()
        return untouched_and_split(policy, state, stage_id)

    policy = policy_of(task_of(64, 64, 64), Rule(on_c, action))
    with pytest.raises(KeyError, match="once"):
        policy.generate_sketches()
    assert len(policy.generate_sketches()) == 2
    with pytest.raises(ValueError) as caught:
        policy.engine.evolve([], -1)
    assert caught.value.__cause__ is None
