"""Every search parameter of the reference is accepted and does what its name says; warm starts; failures stay out."""

import json
import re
import resource
from collections import Counter

import pytest
from search_cases import CPU4, CUDA, conv_bn_relu, matmul, policy, steps

import nestsmith as ns
from nestsmith import _core, auto_scheduler, te

# names and defaults as in TVM 0.14
REFERENCE = {
    "eps_greedy": 0.05,
    "retry_search_one_round_on_empty": 1,
    "sample_init_min_population": 50,
    "sample_init_use_measured_ratio": 0.2,
    "evolutionary_search_population": 2048,
    "evolutionary_search_num_iters": 4,
    "evolutionary_search_mutation_prob": 0.85,
    "cpu_multi_level_tiling_structure": "SSRSRS",
    "gpu_multi_level_tiling_structure": "SSSRRSRS",
    "max_innermost_split_factor": 64,
    "max_vectorize_size": 16,
    "disable_change_compute_location": 0,
}
SMALL = {"evolutionary_search_population": 256, "sample_init_min_population": 10}


@auto_scheduler.register_workload
def params_matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]


def task(n=64):
    return auto_scheduler.SearchTask(func=params_matmul, args=(n,), target=ns.target.Target("llvm"))


def events(p):
    out = []
    p.set_listener(lambda *a: out.append(a))
    return out


def test_names_and_defaults():
    more = {"search_mode": "extended", "states_per_tiling_in_batch": 1, "states_per_tiling": 8, "double_buffer_prob": 0.0}
    more |= {"thread_sums": 1, "tensor_cores": "auto", "lane_products": 1, "warpgroups": 2, "wide_stores": "auto"}
    more |= {"last_blocks": 0, "descent": 0.1}
    assert auto_scheduler.SketchPolicy.DEFAULT_PARAMS == {**REFERENCE, **more}
    given = dict(REFERENCE)
    auto_scheduler.SketchPolicy(task(), params=given, verbose=0)
    assert given == {**REFERENCE, **more}  # missing keys are filled in


def test_eps_greedy():
    greedy = [x for _, x in policy(matmul(256, 256, 256), CUDA, seed=1, eps_greedy=0.0).round(32)]
    random = [x for _, x in policy(matmul(256, 256, 256), CUDA, seed=1, eps_greedy=1.0).round(32)]
    assert greedy == sorted(greedy, reverse=True)
    assert len(random) == 32 and random != sorted(random, reverse=True)
    assert sum(random) < 0.8 * sum(greedy)


def test_population_and_generations():
    p = policy(
        matmul(256, 256, 256),
        CUDA,
        evolutionary_search_population=96,
        evolutionary_search_num_iters=3,
        sample_init_min_population=1,
        lane_products=0,  # a family that has few measured states is bred by itself, too
    )
    seen, log = [], events(p)
    p.set_scorer(lambda s: seen.extend(s) or [1.0] * len(s))
    p.round(8)
    assert [e[1] for e in log if e[0] == 3] == [0, 3]
    assert 96 + 2 * 96 < len(seen) <= 4 * 96  # copies of parents are not scored again


def test_sample_init_min_population():
    few = policy(matmul(256, 256, 256), CUDA, evolutionary_search_population=32, sample_init_min_population=1)
    many = policy(matmul(256, 256, 256), CUDA, evolutionary_search_population=32, sample_init_min_population=100)
    assert len(few.sample()) <= 32 and len(many.sample()) >= 100


@pytest.mark.parametrize("ratio, count", [(0.0, 0), (0.0625, 16), (0.2, 20)])
def test_sample_init_use_measured_ratio(ratio, count):
    """The fastest measured states join the first generation, no more than the ratio of the population."""
    other = policy(matmul(512, 512, 512), CUDA, seed=50, **SMALL)
    measured = other.sample()[:20]
    p = policy(matmul(512, 512, 512), CUDA, seed=1, sample_init_use_measured_ratio=ratio, **SMALL)
    for k, s in enumerate(measured):
        p.report(s, 1e-4 * (k + 1), True)
    seen = set()
    p.set_scorer(lambda states: seen.update(s.text() for s in states) or [1.0] * len(states))
    p.round(8)
    assert [s.text() in seen for s in measured] == [k < count for k in range(20)]


def test_mutation_prob():
    p = policy(matmul(256, 256, 256), CUDA, evolutionary_search_mutation_prob=0.0, **SMALL)
    init = p.sample()[:100]
    assert {s.steps() for s in p.evolve(init, 50)} <= {s.steps() for s in init}
    p = policy(matmul(256, 256, 256), CUDA, evolutionary_search_mutation_prob=1.0, **SMALL)
    assert not {s.steps() for s in p.evolve(init, 50)} <= {s.steps() for s in init}


@pytest.mark.parametrize(
    "key, target, value, sizes",
    [
        ("cpu_multi_level_tiling_structure", CPU4, "SSRS", {(2, 2)}),
        ("cpu_multi_level_tiling_structure", CPU4, "SSRSRS", {(3, 3, 1)}),
        ("gpu_multi_level_tiling_structure", CUDA, "SSSRRS", {(3, 3, 1)}),
        ("gpu_multi_level_tiling_structure", CUDA, "SSSRRSRS", {(4, 4, 2)}),
    ],
)
@pytest.mark.parametrize("mode", ["extended", "compatible"])
def test_tiling_structures(key, target, value, sizes, mode):
    p = policy(matmul(64, 64, 64), target, seed=1, search_mode=mode, lane_products=0, **{key: value}, **SMALL)
    p.set_scorer(lambda s: [1.0] * len(s))
    states = p.sample()
    assert states and {tuple(len(x[4]) for x in steps(s) if x[0] == "SP")[:3] for s in states} == sizes


@pytest.mark.parametrize("mode", ["extended", "compatible"])
def test_max_innermost_split_factor(mode):
    p = policy(matmul(256, 256, 256), CUDA, max_innermost_split_factor=4, search_mode=mode, **SMALL)
    for s in p.evolve(p.sample(), 60):
        assert all(x[4][-1] <= 4 for x in steps(s) if x[0] == "SP" and len(x[4]) > 1)
    p = policy(matmul(256, 256, 256), CUDA, search_mode=mode, **SMALL)
    assert any(x[4][-1] > 4 for s in p.sample() for x in steps(s) if x[0] == "SP" and len(x[4]) > 1)


def tilings(states):
    """How many states cut the output in each way: the splits into the most levels."""

    def cut(state):
        splits = [x[1:] for x in steps(state) if x[0] == "SP" and len(x[4]) > 1]
        return json.dumps([x for x in splits if len(x[3]) == max(len(y[3]) for y in splits)])

    return Counter(map(cut, states))


LOOPS = {"lane_products": 0, **SMALL}


def test_states_per_tiling():
    """Few tilings are good here: without a limit a batch holds many states of one of them."""
    loose = policy(matmul(256, 256, 64), CUDA, seed=1, states_per_tiling_in_batch=0, states_per_tiling=0, **LOOPS)
    assert max(tilings(s for s, _ in loose.round(16)).values()) > 2
    tight = policy(matmul(256, 256, 64), CUDA, seed=1, states_per_tiling_in_batch=1, states_per_tiling=3, **LOOPS)
    picked, most = Counter(), []
    for _ in range(16):  # after every 128 measured states a tiling may come three times more
        states = [s for s, _ in tight.round(16)]
        assert max(tilings(states).values()) <= 2  # one for each eight of a batch
        picked += tilings(states)
        most.append(max(picked.values()))
        for s in states:
            tight.report(s, 1.0, True)
    assert most[1:8] == [3] * 7 and 3 < most[-1] <= 6

    def drawn(batch, **limits):
        p = policy(matmul(256, 256, 64), CUDA, seed=2, **limits, **LOOPS)
        return [tilings(s for s, _ in p.round(batch)) for _ in range(3)]

    for batch in (4, 12):  # fewer than eight count as eight, other sizes are rounded down
        assert all(max(r.values()) == 1 for r in drawn(batch, states_per_tiling_in_batch=1))
    assert 1 < max(sum(drawn(16, states_per_tiling=3), Counter()).values()) <= 3  # either limit may be off
    compatible = drawn(16, states_per_tiling_in_batch=1, search_mode="compatible")  # like the reference: no limit
    assert max(max(r.values()) for r in compatible) > 2
    with pytest.raises(ValueError, match="states_per_tiling -1"):
        policy(matmul(8, 8, 8), CUDA, states_per_tiling=-1)


def test_states_of_a_log_count_for_their_tiling():
    """A resumed run does not measure the tilings again that its log has had its fill of."""

    def first(known):
        p = policy(matmul(256, 256, 64), CUDA, seed=1, states_per_tiling=3, **LOOPS)
        for s in known:
            p.report(s, 1.0, True)
        return [s for s, _ in p.round(16)]

    loose = policy(matmul(256, 256, 64), CUDA, seed=1, **LOOPS)
    known = [s for s, _ in loose.round(16)]
    (full, n), *_ = tilings(known).most_common(1)
    assert n >= 3 and tilings(first([]))[full] == 3
    assert tilings(first(known))[full] == 0


def vector_lanes(state):
    """Extents of the vector loops in the text of a state."""
    return [int(n) for n in re.findall(r"vectorize \S+ \(0,(\d+)\)", state.text())]


def test_max_vectorize_size():
    def fused(size):
        p = policy(conv_bn_relu(1, 8, 8, 4, 8), CPU4, seed=1, max_vectorize_size=size, **SMALL)
        lanes = [n for s in p.sample() for n in vector_lanes(s)]
        return max(lanes)

    assert fused(2) <= 2 < fused(16) <= 16


def test_disable_change_compute_location():
    def places(off):
        p = policy(conv_bn_relu(1, 14, 14, 32, 64), CPU4, seed=1, disable_change_compute_location=off, **SMALL)
        return {tuple(tuple(x[:4]) for x in steps(s) if x[0] in ("CA", "CI", "CR")) for s in p.sample()}

    fixed, free = places(1), places(0)
    assert len(fixed) <= 3 < len(free)  # one choice for each sketch


class Counting:
    """An engine that counts its rounds; the first ones find nothing."""

    def __init__(self, engine, empty):
        self.engine, self.empty, self.rounds = engine, empty, 0

    def candidates(self, n):
        self.rounds += 1
        return [] if self.rounds <= self.empty else self.engine.candidates(n)

    def __getattr__(self, name):
        return getattr(self.engine, name)


@pytest.mark.parametrize("retries, found", [(0, False), (1, False), (2, True)])
def test_retry_search_one_round_on_empty(retries, found):
    p = auto_scheduler.SketchPolicy(
        task(16), params={"retry_search_one_round_on_empty": retries, **SMALL}, seed=1, verbose=0
    )
    p.engine = Counting(p.engine, 2)
    assert bool(p.propose(4)) is found
    assert p.engine.rounds == retries + 1


# ---- failures and warm starts ----


@pytest.mark.parametrize("target", [CPU4, CUDA])
def test_a_failed_candidate_is_never_proposed_again_and_no_parent(target):
    p = policy(matmul(16, 16, 8), target, seed=1, **SMALL)
    failed = set()
    for _ in range(5):
        batch = [s for s, _ in p.round(24)]
        texts = {s.text() for s in batch}
        assert len(texts) == len(batch) and not texts & failed
        for s in batch:
            p.report(s, 1e10, False)
        failed |= texts
    assert len(failed) > 24
    seen = set()
    p = policy(matmul(512, 512, 512), target, seed=3, **SMALL)
    bad = policy(matmul(512, 512, 512), target, seed=60, **SMALL).sample()[:20]
    for s in bad:
        p.report(s, 1e10, False)
    p.set_scorer(lambda states: seen.update(s.text() for s in states) or [1.0] * len(states))
    p.round(8)
    assert not seen & {s.text() for s in bad}


def write_log(path, own, states):
    """States with ascending times; every third one failed."""
    inputs = [auto_scheduler.MeasureInput(own, s) for s in states]
    results = [
        auto_scheduler.MeasureResult([1e10] if k % 3 == 2 else [1e-3 * (k + 1)], 4 if k % 3 == 2 else 0, "", 1.0, 1.0)
        for k in range(len(states))
    ]
    auto_scheduler.save_records(str(path), inputs, results)


def test_preload_measured_states(tmp_path, capsys):
    own, log = task(128), tmp_path / "log.json"
    states = auto_scheduler.SketchPolicy(own, params=dict(SMALL), seed=9, verbose=0).sample_initial_population()[:30]
    write_log(log, own, states)
    write_log(tmp_path / "other.json", task(64), [])
    p = auto_scheduler.SketchPolicy(
        own,
        params=dict(SMALL),
        seed=1,
        verbose=1,
        init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(str(log))],
    )
    assert "Loaded 30 measurement records" in capsys.readouterr().out
    known, seen = {s.state_object.text() for s in states}, set()
    p.engine.set_scorer(lambda batch: seen.update(s.text() for s in batch) or [1.0] * len(batch))
    proposed = {s.state_object.text() for s in p.propose(32)}
    assert len(proposed) == 32 and not proposed & known
    joined = [s.state_object.text() in seen for s in states]
    assert all(j for k, j in enumerate(joined) if k % 3 != 2)  # the good ones are parents
    assert sum(joined) == 20


def test_load_log_file_marks_states_as_measured(tmp_path):
    own, log = task(32), tmp_path / "log.json"
    states = auto_scheduler.SketchPolicy(own, params=dict(SMALL), seed=9, verbose=0).sample_initial_population()[:12]
    write_log(log, own, states)
    measured = []

    class Keep(auto_scheduler.PythonBasedMeasureCallback):
        def callback(self, policy, inputs, results):
            measured.extend(i.state.state_object.text() for i in inputs)

    tuner = auto_scheduler.TaskScheduler([own], load_log_file=str(log), callbacks=[], seed=1)
    runner = auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0, timeout=20)
    tuner.tune(
        auto_scheduler.TuningOptions(8, num_measures_per_round=8, verbose=0, runner=runner, measure_callbacks=[Keep()]),
        search_policy_params=dict(SMALL),
    )
    assert len(measured) >= 8
    assert 0 < tuner.best_costs[0] <= 1e-3
    assert not set(measured) & {s.state_object.text() for s in states}


# ---- values that no search can work with ----


def test_numbers_out_of_range():
    for name in ("eps_greedy", "sample_init_use_measured_ratio", "double_buffer_prob", "descent"):
        for bad in (-0.1, 1.5, float("nan")):
            with pytest.raises(ValueError, match=name):
                policy(matmul(8, 8, 8), CUDA, **{name: bad})
    hw = list(CUDA.hw)
    for at, name in ((5, "max_threads_per_block"), (7, "warp_size")):
        with pytest.raises(ValueError, match=f"{name} 0"):
            policy(matmul(8, 8, 8), _core.Target("cuda", [0 if i == at else v for i, v in enumerate(hw)], sm=90))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="batch size"):
        policy(matmul(8, 8, 8), CPU4).round(2**31 - 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < most + (1 << 20), "KiB: it is refused before room is made for it"


def test_a_huge_batch_takes_what_there_is():
    got = policy(matmul(8, 8, 8), CPU4, **SMALL).round(1 << 20)
    assert 10 <= len(got) < 256 * 6


def test_a_tiny_population_is_drafted_too():
    p = policy(matmul(64, 64, 64), CUDA, evolutionary_search_population=2, sample_init_min_population=20, eps_greedy=0.0)
    learner = _core.Learner(1)
    task = learner.task(p)
    for k, s in enumerate(p.sample()[:20]):
        learner.add(task, s, 1e-3 / (k + 1))
    assert learner.train(1)
    p.set_scorer(learner.scorer(task))
    assert p.round(4)
