"""The last trials of a run are neighbours of the fastest measured states: one decision changed, never measured before, in the
order of the model; exactly the share that is asked for, by the seed alone, and in a resumed run too."""

import pytest
from search_cases import CPU4, CUDA, MALI, conv_bn_relu, matmul, policy, softmax, steps, winograd

import nestsmith as ns
from nestsmith import _core, auto_scheduler, te, topi

SMALL = {"evolutionary_search_population": 64, "sample_init_min_population": 10, "evolutionary_search_num_iters": 2}
TAKEN = 6  # the listener's event


def product16(n, m, k):
    """float16: on tensor cores, too."""
    x, w = te.placeholder((n, k), "float16", name="x"), te.placeholder((m, k), "float16", name="w")
    return [x, w, topi.nn.dense(x, w)]


CASES = {
    "matmul on a GPU": (lambda: matmul(256, 256, 256), CUDA, {}),
    "convolution on a GPU": (lambda: conv_bn_relu(1, 14, 14, 32, 64), CUDA, {"double_buffer_prob": 0.3}),
    "Winograd on a GPU": (winograd, CUDA, {}),
    "softmax on a GPU": (lambda: softmax(64, 512), CUDA, {}),
    "tensor cores": (lambda: product16(256, 256, 256), CUDA, {"tensor_cores": 1, "warpgroups": 1, "wide_stores": 1, "last_blocks": 1}),
    "matmul on Mali": (lambda: matmul(128, 128, 128), MALI, {}),
    "convolution on a CPU": (lambda: conv_bn_relu(1, 14, 14, 32, 64), CPU4, {}),
    "Winograd on a CPU": (winograd, CPU4, {}),
}


def begun(case, share=1.0, seed=3, threads=1, measured=6, **more):
    """A policy that was told of some measured states, the first the fastest, and these."""
    make, target, params = CASES[case]
    p = policy(make(), target, seed=seed, threads=threads, descent=share, **{**SMALL, **params, **more})
    states = policy(make(), target, seed=11, **{**SMALL, **params}).sample()[:measured]
    for k, s in enumerate(states):
        p.report(s, 1e-4 * (k + 1), True)
    return p, states


def taken(p):
    """What the policy's descents say, as (taken, left)."""
    out = []
    p.set_listener(lambda kind, it, count, left, *more: kind == TAKEN and out.append((count, left)))
    return out


def one_decision(a, b):
    """Do two step lists differ in one decision? Vectors follow the tile that they load, the tile of a warp that of its block;
    behind a parallel loop that becomes wider or narrower the numbers of loops move; double buffers are a kernel's."""
    doubled = [[x for x in s if x[0] == "DB"] for s in (a, b)]
    a, b = ([x for x in s if x[0] != "DB"] for s in (a, b))
    moved = [(x, y) for x, y in zip(a, b, strict=True) if x != y]
    if doubled[0] != doubled[1]:
        return not moved
    kinds = [x[0] for x, y in moved if x[0] == y[0]]
    if kinds[:1] == ["FU"]:
        return set(kinds[1:]) <= {"AN", "PR"} and len({x[1] for x, _ in moved}) == 1
    if kinds == ["MM"]:
        (x, y), = moved
        return sum(m != n for m, n in zip(x[2], y[2], strict=True)) <= 2
    parts = [len(x[4]) for x, _ in moved if x[0] == "SP"]
    return len(kinds) == len(moved) and (kinds in (["PR"], ["CA"], ["SP"]) or (set(kinds) == {"SP"} and sum(n > 1 for n in parts) == 1))


@pytest.mark.parametrize("case", CASES)
def test_neighbours_are_all_that_one_mutation_can_make(case):
    """Each differs from the centre in one decision, is valid and new; none is left out: whatever random mutations make is there."""
    p, (centre,) = begun(case, measured=1)
    log = taken(p)
    p.progress(0, 4000)
    got = [s for s, _ in p.round(4000)]
    near = got[-log[0][0] :]
    assert len(near) >= 10 and all(p.check(s)[0] for s in near)
    texts = {s.text() for s in near}
    assert len(texts) == len(near) and centre.text() not in texts
    assert all(one_decision(steps(centre), steps(s)) for s in near)
    make, target, params = CASES[case]
    mutants = policy(make(), target, seed=5, **params, evolutionary_search_population=600, evolutionary_search_num_iters=1,
                     evolutionary_search_mutation_prob=1.0).evolve([centre], 5000)  # fmt: skip
    drawn = {s.text() for s in mutants if p.check(s)[0]} - {centre.text()}
    assert len(drawn) >= 5 and drawn <= texts


def test_order_and_centres():
    """The neighbours of the fastest first, of each decision the one that the model likes best before the second of any; a faster
    one that is measured is the next centre."""
    p, states = begun("matmul on a GPU")
    p.progress(0, 100)
    first, turns = p.round(8), {}
    for s, x in first:
        which = [i for i, (m, n) in enumerate(zip(steps(states[0]), steps(s), strict=True)) if m != n][0]
        turns.setdefault(which, []).append(x)
    assert all(of == sorted(of, reverse=True) for of in turns.values())
    assert [x for _, x in first[: len(turns)]] == sorted((of[0] for of in turns.values()), reverse=True) and 3 <= len(turns) < 8
    assert all(one_decision(steps(states[0]), steps(s)) for s, _ in first)
    for k, (s, _) in enumerate(first):
        p.report(s, 1e-5 if k == 5 else 1e-3, True)
    p.progress(8, 100)
    second = [s for s, _ in p.round(8)]
    assert all(one_decision(steps(first[5][0]), steps(s)) for s in second)
    assert not all(one_decision(steps(states[0]), steps(s)) for s in second)
    measured = {s.text() for s in states} | {s.text() for s, _ in first}
    assert len({s.text() for s in second} | measured) == len(states) + 16  # nothing twice
    p.progress(16, 1000)  # more than the fastest has: then the next one's
    more = [steps(s) for s, _ in p.round(100)]
    near = [one_decision(steps(first[5][0]), s) for s in more]
    assert all(near[:30]) and not all(near)


def counts(p, done, batch, total):
    log = taken(p)
    p.progress(done, total)
    got = p.round(batch)
    assert len(got) == batch
    return log[0][0] if log else 0


def test_exactly_the_share_that_is_asked_for():
    """A round in which the last part of the trials begins is bred up to there."""
    def due(done, batch=8, total=100, **more):
        return counts(begun("matmul on a GPU", **{"share": 0.1, **more})[0], done, batch, total)

    assert [due(d) for d in (0, 80, 82, 83, 88, 90, 92)] == [0, 0, 0, 1, 6, 8, 8]
    assert due(48, 16, 64) == 6 and due(150, 50, 200) == 20
    assert due(99, 8) == 8  # more than there are
    assert due(0, total=0) == 0  # nobody said how many there are
    assert due(92, share=0.0) == 0 and due(92, search_mode="compatible") == 0
    assert due(4, share=1.0) == 8
    assert due(92, measured=0) == 0  # nothing to begin at: all are bred
    p, _ = begun("matmul on a GPU", share=0.1)
    log = taken(p)
    p.progress(92, 100)
    p.round(8), p.round(8)
    assert log[0][0] == 8 and len(log) == 1  # what is said of a round is said of that one alone


def test_what_is_bred_does_not_change():
    """The first candidates of the round in which the descent begins are those of a round of so many without one."""
    p, _ = begun("matmul on a GPU", share=0.1)
    p.progress(84, 100)
    got = [s.steps() for s, _ in p.round(8)]
    plain, _ = begun("matmul on a GPU", share=0.0)
    bred = [s.steps() for s, _ in plain.round(6)]
    kept = [s for s in bred if s not in got[6:]]  # what the descent has taken is not bred any more
    assert len(set(got)) == 8 and len(kept) >= 4 and got[: len(kept)] == kept


def test_the_seed_alone_decides():
    for case in ("convolution on a GPU", "convolution on a CPU"):
        runs = []
        for threads in (1, 3):
            p, _ = begun(case, threads=threads)
            p.progress(10, 40)
            runs.append([(s.steps(), x) for s, x in p.round(24)])
        assert runs[0] == runs[1]


def test_trials_are_counted_from_0():
    with pytest.raises(ValueError, match="progress"):
        policy(matmul(8, 8, 8), CUDA).progress(-1, 8)


# ---- whole runs ----


@auto_scheduler.register_workload
def descent_matmul(n):
    return matmul(n, n, n)


def task(n):
    return auto_scheduler.SearchTask(func=descent_matmul, args=(n,), target=ns.target.Target("llvm"))


class Seen(auto_scheduler.SketchPolicy):
    """Notes what each round began with, and what its descent says."""

    def __init__(self, *args, **more):
        self.rounds = []
        super().__init__(*args, **more)

    def begin_round(self, done, total):
        self.rounds.append([done, total, 0])
        super().begin_round(done, total)

    def _progress(self, kind, it, count, *more):
        if kind == TAKEN:
            self.rounds[-1][2] = count


def options(trials, log):
    return auto_scheduler.TuningOptions(trials, num_measures_per_round=4, verbose=0, runner=auto_scheduler.LocalRunner(
        number=1, repeat=1, min_repeat_ms=0), measure_callbacks=[auto_scheduler.RecordToFile(str(log))])  # fmt: skip


def lines(log):
    return [(i.task.workload_key, i.state.steps(), r.costs) for i, r in auto_scheduler.RecordReader(str(log))]


def test_the_last_trials_of_a_run(tmp_path):
    """Of all trials of a run, whichever tasks they go to; of one task alone; and of a run that goes on from a log, whose fastest
    states are where it begins."""
    params = {**SMALL, "descent": 0.375}
    tasks, log = [task(16), task(32)], tmp_path / "log.json"
    policies = [Seen(t, "analytic", params=dict(params), seed=5, verbose=0) for t in tasks]
    auto_scheduler.TaskScheduler(tasks, callbacks=[], seed=5).tune(options(16, log), search_policy=policies)
    rounds = sorted(r for p in policies for r in p.rounds)
    assert [(d, n) for d, _, n in rounds] == [(0, 0), (4, 0), (8, 2), (12, 4)]
    assert {t for _, t, _ in rounds} == {16} and len(lines(log)) == 16

    alone = Seen(task(32), "analytic", params=dict(params), seed=5, verbose=0,
                 init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(str(log))])  # fmt: skip
    known = {s for _, s, _ in lines(log)}
    made = {s: _core.State(task(32).compute_dag, s) for k, s, _ in lines(log) if k == alone.search_task.workload_key}
    order = sorted(made, key=lambda s: -len(steps(made[s])))  # the first has many neighbours, the default schedule but a few
    speeds = tmp_path / "speeds.json"  # the same states: which of them is the fastest no clock decides
    for i, r in auto_scheduler.RecordReader(str(log)):
        if i.state.steps() in order:
            r = auto_scheduler.MeasureResult([1e-6 * (1 + order.index(i.state.steps()))], 0, "", r.all_cost, r.timestamp)
            auto_scheduler.save_records(str(speeds), [i], [r])
    first = Seen(task(32), "analytic", params={**params, "descent": 1.0}, seed=5, verbose=0,
                 init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(str(speeds))])  # fmt: skip
    first.begin_round(0, 4)
    assert all(one_decision(steps(made[order[0]]), steps(s.state_object)) for s in first.propose(4))
    task(32).tune(options(4, tmp_path / "more.json"), search_policy=alone)
    assert alone.rounds == [[0, 4, 1]]
    assert not known & {s for _, s, _ in lines(tmp_path / "more.json")}
