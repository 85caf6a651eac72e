"""Sampling, mutation and evolution: counts, invariants, limits, reproducibility."""

import math

import pytest
from search_cases import CPU4, CUDA, MALI, conv_bn_relu, matmul, policy, row_sum, scalar_sum, softmax, steps, winograd

from helpers import full
from nestsmith import _core


def splits(state):
    return [s for s in steps(state) if s[0] == "SP"]


@pytest.mark.parametrize(
    "make, target",
    [
        (lambda: matmul(512, 512, 512), CPU4),
        (lambda: matmul(512, 512, 512), CUDA),
        (winograd, CUDA),
        (lambda: conv_bn_relu(1, 14, 14, 64, 64), CUDA),
        (lambda: softmax(64, 1024), CUDA),
        (lambda: row_sum(128, 4096), CUDA),
        (lambda: scalar_sum(128), CUDA),
        (lambda: scalar_sum(128), CPU4),
        (lambda: matmul(64, 64, 64), MALI),
    ],
)
def test_sampled_states_are_valid(make, target):
    p = policy(make(), target, seed=3)
    states = p.sample()
    assert len(states) == len({s.text() for s in states})
    for s in states[:40]:
        ok, why = p.check(s)
        assert ok, why
        for sp in splits(s):
            # the extent of a shared tile's fill is the one before threads are bound; threads need not divide
            assert sp[3] % math.prod(sp[4]) == 0 or len(sp[4]) == 1
            assert sp[4][-1] <= 64 or (len(sp[4]) == 1 and sp[4][0] <= 1024)


def test_thread_binding_follows_the_sizes():
    p = policy(matmul(512, 512, 512), CUDA, seed=5, lane_products=0)
    for s in p.sample()[:50]:
        i, j, k = [x[4] for x in splits(s)[:3]]
        kernel = p.facts(s)["kernels"][0]
        assert kernel["blocks"] == (512 // math.prod(i)) * (512 // math.prod(j))
        assert kernel["vthreads"] == i[0] * j[0] <= 8
        assert 32 <= kernel["threads"] == i[1] * j[1] <= 1024
        rows, cols, depth = math.prod(i), math.prod(j), k[0] * k[1]
        assert kernel["shared_bytes"] == 4 * depth * (rows + cols) <= 49152


def test_untiled_kernels():
    for s in policy(row_sum(128, 4096), CUDA).sample():
        st = steps(s)
        assert any(x[0] == "AN" and x[3] == 6 for x in st) and any(x[0] == "PR" for x in st)
    for s in policy(scalar_sum(128), CUDA).sample():
        assert ["FU", 1, []] in steps(s)


def test_evolution_returns_new_states_and_keeps_invariants():
    p = policy(matmul(512, 512, 512), CUDA, seed=7)
    init = p.sample()
    out = p.evolve(init, 64)
    assert 0 < len(out) <= 64 and len({s.text() for s in out}) == len(out)
    for s in out:
        assert p.check(s)[0]
        for sp in splits(s):
            assert sp[4][-1] <= 64 and (sp[3] % math.prod(sp[4]) == 0 or sp[4] in ([2], [4]))
    n = {len(steps(s)) for s in init}
    assert {len(steps(s)) for s in out} <= n


def test_mutation_finds_a_wanted_tile():
    """A model that likes only states with a loop k.1 of extent 2: bred states must contain one, though no parent is."""
    p = policy(matmul(10, 10, 4), CPU4, seed=1)

    def wanted(s):
        return any(x[0] == "k.1" and x[4] == 2 for st in s.stages() for x in st[3])

    p.set_scorer(lambda states: [1.0 if wanted(s) else 0.0 for s in states])
    parents = [s for s in p.sample() if not wanted(s)][:50]
    assert len(parents) == 50
    assert any(wanted(s) for s in p.evolve(parents, 50))


@pytest.mark.some(1)
@pytest.mark.parametrize("target", [CPU4, CUDA])
def test_equal_seed_equal_search(target):
    def run(threads):
        p = policy(conv_bn_relu(1, 14, 14, 32, 64), target, seed=11, threads=threads)
        first = p.round(16)
        for k, (s, _) in enumerate(first):
            p.report(s, 1e-3 / (k + 1), k % 5 != 0)
        return [(s.steps(), score) for s, score in first + p.round(16)]

    one = run(1)
    assert one == run(1) == run(3)
    assert len({s for s, _ in one}) == len(one)


def test_rounds_never_repeat_and_end():
    p = policy(row_sum(2, 2), CPU4, seed=2, evolutionary_search_population=128)
    seen, empty = set(), 0
    for _ in range(400):
        r = p.round(64)
        if not r:
            empty += 1
            if empty == 2:
                break
            continue
        for s, _ in r:
            assert s.text() not in seen
            seen.add(s.text())
    else:
        pytest.fail("a tiny space was never used up")


def test_unsatisfiable_task_ends_with_an_error():
    bad = _core.Target("cuda", (-1, 16, 64, 49152, 2147483647, 1, 8, 32), sm=90)
    with pytest.raises(ValueError, match="no valid program"):
        policy(matmul(512, 512, 512), bad).sample()
    with pytest.raises(ValueError, match="no valid program"):
        policy(winograd(), _core.Target("cuda", (-1, 16, 64, 1, 2147483647, 1024, 8, 32), sm=90)).sample()


def test_preloaded_states_are_not_proposed_again():
    p = policy(matmul(256, 256, 256), CUDA, seed=4)
    first = [s for s, _ in p.round(32)]
    q = policy(matmul(256, 256, 256), CUDA, seed=4)
    for k, s in enumerate(first):
        q.report(s, 1e-4 * (k + 1), True)
    texts = {s.text() for s in first}
    assert not texts & {s.text() for s, _ in q.round(32)}


def test_scores_may_be_anything():
    p = policy(matmul(64, 64, 64), CPU4, seed=1)
    for value in (0.0, -1.0, float("nan"), float("-inf")):
        p.set_scorer(lambda states, v=value: [v] * len(states))
        if value == value and value != float("-inf"):
            assert p.round(8)
        else:
            with pytest.raises(ValueError, match="no valid program"):
                p.sample()
    p.set_scorer(None)
    assert p.round(8)


def test_bad_arguments():
    dag = _core.ComputeDAG(matmul(8, 8, 8))
    for bad in (("tpu", CPU4.hw), ("llvm", (1, 2)), (3,), ("llvm", (-5, *CPU4.hw[1:]))):
        with pytest.raises((ValueError, TypeError)):
            _core.Target(*bad)
    for bad in ("tpu", 0, (0, CPU4.hw, 0, 1, False)):
        with pytest.raises((ValueError, TypeError)):
            _core.Policy(dag, bad)
    with pytest.raises(ValueError):
        _core.Policy(dag, CPU4, {"evolutionary_search_population": 0})
    with pytest.raises(ValueError):
        _core.Policy(dag, CPU4, {}, 1, 0)
    p = _core.Policy(dag, CPU4)
    with pytest.raises(ValueError):
        p.round(0)
    with pytest.raises(TypeError):
        p.evolve([1], 3)
    with pytest.raises(TypeError):
        p.set_scorer(3)


def test_sampler_statistics():
    """Shares of a 512-cubed matrix product (reference simulation: 46.6, 31.2 and 1.2 per cent, 7.9 valid)."""
    p = policy(matmul(512, 512, 512), CUDA, seed=9, search_mode="compatible")
    shares = p.sample_shares(40000)
    assert abs(shares["vthread"] - 0.466) < 0.01
    assert abs(shares["few threads"] - 0.312) < 0.01
    assert abs(shares["threads"] - 0.012) < 0.005
    assert abs(shares["ok"] - 0.079) < 0.006


@pytest.mark.parametrize("population", [512, full(2048)])
def test_rounds_with_a_trained_model_are_reproducible_and_valid(population):
    """The draft estimate picks who is scored; the result is the same for any number of threads."""

    def run(threads):
        p = policy(conv_bn_relu(1, 14, 14, 32, 64), CUDA, seed=11, threads=threads, evolutionary_search_population=population)
        learner = _core.Learner(1)
        task = learner.task(p)
        for k, (s, _) in enumerate(p.round(64)):
            seconds = p.facts(s)["seconds"] * (1 + k % 3)
            learner.add(task, s, seconds)
            p.report(s, seconds, True)
        assert learner.train(1)
        p.set_scorer(learner.scorer(task))
        out = p.round(48)
        assert len(out) == 48 and all(p.check(s)[0] for s, _ in out[:12])
        scored = [learner.score(task, s) for s, _ in out[:40]]
        assert scored == pytest.approx([x for _, x in out[:40]], rel=1e-9)
        return [(s.steps(), score) for s, score in out]

    assert run(1) == run(2)


@pytest.mark.parametrize("target", [CPU4, CUDA], ids=["cpu", "cuda"])
def test_a_measured_candidate_is_made_once(target):
    """From the round that picks it to the model that learns from it."""
    dag = _core.ComputeDAG(matmul(128, 128, 128))
    small = {"sample_init_min_population": 20, "evolutionary_search_population": 100, "evolutionary_search_num_iters": 2}
    p, learner = _core.Policy(dag, target, small, 1, 2), _core.Learner(1)
    number = learner.task(p)
    p.set_scorer(learner.scorer(number))
    p.want_programs(0)
    batch = p.candidates(8)
    tried = p.counts()["replayed"]  # a few are picked twice or break a limit
    assert len(batch) <= tried <= 2 * len(batch)
    for k, c in enumerate(batch):
        p.report(c, 1e-3 / (k + 1), True)
        p.hint(c)
        learner.add(number, c, 1e-3 / (k + 1))
    assert p.counts() == {"replayed": tried, "programs": tried, "traits": tried} and learner.records() == len(batch)
    state = batch[0].state()  # for those who look at it
    assert state.bounded and state.steps() == batch[0].steps()
    learner.add(number, state, 1e-3)
    assert p.counts() == {"replayed": tried + 1, "programs": tried, "traits": tried + 1}
    rows, first, *_ = learner.batch()
    assert (rows[first[0] : first[1]] == rows[first[-2] : first[-1]]).all()


@pytest.mark.parametrize("target", [CPU4, CUDA], ids=["cpu", "cuda"])
def test_memory_of_states_changes_no_result(target):
    """What is known of step lists that come up again is not made again; forgetting it makes no difference."""
    small = {"sample_init_min_population": 20, "evolutionary_search_population": 200, "evolutionary_search_num_iters": 2}
    found, made = {}, {}
    for memory in (0, 1 << 20):
        p, learner = _core.Policy(_core.ComputeDAG(matmul(64, 64, 64)), target, small, 1, 2), _core.Learner(1)
        number, found[memory] = learner.task(p), []
        p.set_scorer(learner.scorer(number))
        p.remember(memory)
        for _ in range(4):
            before, batch = p.counts(), p.candidates(24)
            found[memory] += [(c.steps(), c.score) for c in batch]
            made[memory] = {k: n - before[k] for k, n in p.counts().items()}  # of the last round
            for k, c in enumerate(batch):
                p.report(c, 1e-3 + 1e-5 * k, True)
                learner.add(number, c, 1e-3 + 1e-5 * k)
            learner.train()
    assert found[0] == found[1 << 20]
    assert made[0]["traits"] == made[0]["replayed"] == made[1 << 20]["replayed"]
    assert made[1 << 20]["traits"] < made[0]["traits"] / 2
    with pytest.raises(ValueError, match="-1"):
        p.remember(-1)
