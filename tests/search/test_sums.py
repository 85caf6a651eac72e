"""Sums of many elements into few results on GPUs: blocks share them, or a first kernel adds up parts (extended mode)."""

import json

import numpy as np
import pytest
from search_cases import CPU4, CUDA, MALI, policy, row_sum, scalar_sum, softmax

import nestsmith as ns
from nestsmith import _core, auto_scheduler, te, topi
from nestsmith.target import Target
from nestsmith.topi.default_schedule import default_state

OPENCL = _core.Target("opencl", (-1, 16, 64, 49152, 2147483647, 1024, 8, 32))
SMALL = dict(evolutionary_search_population=60, sample_init_min_population=20, evolutionary_search_num_iters=1)


def pool(n, h, w, c, layout="NHWC", kind="avg"):
    x = te.placeholder((n, h, w, c) if layout == "NHWC" else (n, c, h, w), name="x")
    return [x, topi.nn.global_pool(x, kind, layout)]


def reduced(reduction, shape, axis, keepdims=False, then=None):
    x = te.placeholder(shape, name="x")
    y = reduction(x, axis, keepdims)
    return [x, then(y) if then else y]


def kinds(state):
    return [s[0] for s in state.step_tuples()]


def in_parts(state):
    return "RF" in kinds(state)


def shared(state):
    """Has a sum a column of threads?"""
    return any(axis[1:3] == (1, 8) for stage in state.stages() for axis in stage[3])


# ---- sketches ----


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_pools_of_large_maps_get_two_sketches_more(kind):
    columns, parts, plain = policy(pool(1, 112, 112, 32, kind=kind), CUDA).sketches()
    assert shared(columns) and not in_parts(columns)
    assert shared(parts) and in_parts(parts)
    assert kinds(plain) == []


def test_where_terms_are_neighbours_a_row_of_threads_shares_them():
    row, plain = policy(pool(1, 28, 28, 240, "NCHW"), CUDA).sketches()
    assert not shared(row) and any(axis[1:3] == (1, 6) for stage in row.stages() for axis in stage[3])
    assert kinds(plain) == []


@pytest.mark.parametrize(
    ("tensors", "target", "params"),
    [
        (lambda: pool(1, 112, 112, 32), CUDA, {"search_mode": "compatible"}),
        (lambda: pool(1, 112, 112, 32), CPU4, {}),
        (lambda: pool(1, 112, 112, 32), MALI, {}),
        (lambda: pool(1, 5, 5, 32), CUDA, {}),  # few terms
        (lambda: pool(64, 56, 56, 4096), CUDA, {}),  # many results
        (lambda: softmax(64, 1024), CUDA, {}),
        (lambda: row_sum(64, 1024), CUDA, {}),
        (lambda: scalar_sum(1024), CUDA, {}),
    ],
)
def test_elsewhere_there_are_none(tensors, target, params):
    for s in policy(tensors(), target, **params).sketches():
        assert not shared(s) and ("RF" not in kinds(s) or target is not CUDA)


def test_one_long_sum_is_made_in_parts():
    asked = policy(scalar_sum(1 << 20), CUDA).sketches()
    assert [in_parts(s) for s in asked] == [False, True, False]
    assert not any(in_parts(s) for s in policy(scalar_sum(1 << 20), CUDA, search_mode="compatible").sketches())


def test_one_reader_joins_the_blocks_of_one_of_its_sums():
    for s in policy(both(topi.max, topi.sum, (5, 90, 12), 1), CUDA).sketches():
        joined = [stage for stage in s.stages() if stage[2] == 2]
        assert len(joined) < 2 or not shared(s)


def test_a_product_is_not_tiled_into_a_reader_that_has_joined_a_sum():
    a, w, x = te.placeholder((64, 128)), te.placeholder((96, 128)), te.placeholder((64, 512, 96))
    asked = policy([a, w, x, topi.add(topi.nn.dense(a, w), topi.sum(x, 1))], CUDA).sketches()
    assert [shared(s) for s in asked] == [False, False, True] and "CHW" in kinds(asked[2])


@pytest.mark.parametrize("n", [4, 5])
def test_many_sums_in_one_program_have_the_sketches_of_the_compatible_mode(n):
    """Each would multiply them, and all that a sketch leaves open is drawn."""
    xs = [te.placeholder((56, 56, 96)) for _ in range(n)]
    total = sum((topi.sum(x, (0, 1)) for x in xs[1:]), topi.sum(xs[0], (0, 1)))
    p = policy([*xs, total], CUDA)
    assert len(p.sketches()) == (4**n if n == 4 else 2**n)
    assert p.sample_shares(100) == {"ok": 1.0}


# ---- sizes ----


def test_all_samples_and_mutants_are_valid():
    p = policy(pool(1, 56, 56, 96), CUDA, seed=3, evolutionary_search_mutation_prob=1.0)
    assert p.sample_shares(300) == {"ok": 1.0}
    events = []
    p.set_listener(lambda *a: events.append(a))
    bred = p.evolve(p.sample(), 200)
    kind, generation, _, failed, *_ = [e for e in events if e[0] == 3][-1]
    assert failed / (2048 * generation) < 0.01
    assert len(bred) == 200 and all(p.check(s)[0] for s in bred)


def sizes(state):
    return tuple(tuple(s[4]) for s in json.loads(state.steps()) if s[0] == "SP")


def test_all_numbers_of_parts_are_drawn():
    found = {sizes(s)[0][0] for s in policy(pool(1, 28, 28, 96), CUDA, seed=2).sample() if in_parts(s)}
    assert found == {d for d in range(2, 784 // 2 + 1) if 784 % d == 0}
    rough = {sizes(s)[0][0] for s in policy(pool(1, 257, 1, 512), CUDA, seed=2).sample() if in_parts(s)}
    assert rough == {8, 16, 32, 64}, "257 is a prime"


# ---- the programs are right ----

PROGRAMS = {
    "pool": lambda: pool(1, 13, 13, 10),
    "pool of odd extents": lambda: pool(1, 17, 19, 7),
    "pool of a batch": lambda: pool(3, 9, 9, 6),
    "pool of channels first": lambda: pool(1, 17, 19, 7, "NCHW"),
    "pool in parts": lambda: pool(1, 64, 64, 16),
    "pool of odd extents in parts": lambda: pool(1, 83, 83, 10),
    "largest": lambda: pool(1, 17, 19, 7, kind="max"),
    "largest in parts": lambda: pool(2, 83, 61, 7, kind="max"),
    "largest of channels first": lambda: pool(2, 11, 7, 3, "NCHW", "max"),
    "mean of columns": lambda: reduced(topi.mean, (323, 11), 0),
    "long rows": lambda: reduced(topi.mean, (5, 16411), 1),
    "sum of all": lambda: scalar_sum(1 << 16),
    "sum, kept": lambda: reduced(topi.sum, (2, 64, 3, 10), (1, 2), True),
    "sum, then relu": lambda: reduced(topi.sum, (101, 12), 0, then=topi.nn.relu),
    "sum of squares": lambda: squares((257, 6)),
    "place of the largest": lambda: reduced(topi.argmax, (90, 14), 0),
    "mean and largest": lambda: both(topi.mean, topi.max, (1, 13, 9, 8), (1, 2), True),
    "mean and largest in parts": lambda: both(topi.mean, topi.max, (1, 67, 61, 16), (1, 2), True),
    "largest and sum of a batch": lambda: both(topi.max, topi.sum, (5, 90, 12), 1),
}


def both(first, second, shape, *axis):
    """Two reductions that one operation reads."""
    x = te.placeholder(shape, name="x")
    return [x, topi.add(first(x, *axis), second(x, *axis))]


def squares(shape):
    x = te.placeholder(shape, name="x")
    return [x, topi.sum(topi.multiply(x, x), 0)]


def programs(dag, target):
    p = policy(dag, target, seed=5, **SMALL)
    drawn = p.sample()
    kinds_of = {}
    for s in (*drawn, *p.evolve(drawn, 8)):
        kinds_of.setdefault((in_parts(s), shared(s)), []).append(s)
    return [some[len(some) // 2] for some in kinds_of.values()]


def data_of(tensors):
    """Small integers, whose sums are exact in any order, and what comes out."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, [int(d) for d in tensors[0].shape]).astype("float32")
    out = np.zeros([int(d) for d in tensors[1].shape], tensors[1].dtype)
    _core.interp_dag(_core.ComputeDAG(tensors), [x, out])
    return x, out


@pytest.mark.parametrize("name", PROGRAMS)
def test_samples_and_mutants_compute_the_same(name):
    """In the interpreter, with its checks of races, barriers and bounds, and on OpenCL where there is a device."""
    tensors = PROGRAMS[name]()
    x, want = data_of(tensors)
    dev = ns.opencl(0)
    for target in (CUDA, OPENCL):
        states = programs(_core.ComputeDAG(tensors), target)
        assert states and (target is OPENCL or any(in_parts(s) for s in states) == (x.size >= 1 << 16))
        for s in states:
            out = np.full_like(want, 77)
            kind = "cuda" if target is CUDA else "opencl"
            assert _core.interp(s, kind, [x, out], max_steps=50_000_000)["findings"] == [], s.text()
            assert np.array_equal(out, want), s.text()
        for s in states[::4] if dev.exist and target is OPENCL else ():
            at = [ns.nd.array(v, dev) for v in (x, np.zeros_like(want))]
            ns.build(s, target="opencl")(*at)
            assert np.array_equal(at[1].numpy(), want), s.text()


def test_the_compiler_takes_them():
    there, why = _core.build_available(CUDA)
    if not there:
        pytest.skip(why)
    for name in ("pool of odd extents in parts", "largest of channels first", "place of the largest"):
        for s in programs(_core.ComputeDAG(PROGRAMS[name]()), CUDA)[::3]:
            source, _ = _core.candidate_source(s, CUDA, 0)
            assert _core.build_report(CUDA, _core.build(CUDA, source, 0, "")[0])["local_bytes"] == 0


# ---- what the estimate thinks of them ----


def best(tensors):
    """The ten states that a round without measurements begins with, and what their kernels are like."""
    dag = _core.ComputeDAG(tensors)
    p = policy(dag, CUDA, seed=1, states_per_tiling_in_batch=0)
    states = [_core.State(dag, c.steps()).infer_bounds() for c in p.candidates(10)]
    return states, [p.facts(s)["kernels"] for s in states]


def test_the_best_for_a_large_map_are_two_kernels_that_read_whole_lines():
    states, kernels = best(pool(1, 112, 112, 32))
    assert [in_parts(s) and shared(s) for s in states].count(True) >= 8 and in_parts(states[0])
    for two in (k for s, k in zip(states, kernels) if in_parts(s)):
        assert len(two) == 2 and two[0]["read_coalescing"] == 1 and two[0]["blocks"] * two[0]["threads"] >= 4096


@pytest.mark.parametrize("size", [(56, 56, 96), (28, 28, 240), (14, 14, 480), (7, 7, 1280)])
def test_the_best_for_smaller_maps_are_one_kernel(size):
    states, kernels = best(pool(1, *size))
    assert all(shared(s) and not in_parts(s) for s in states)
    assert all(len(k) == 1 and k[0]["threads"] >= 128 for k in kernels)


def test_some_of_both_kinds_are_measured():
    """Nobody knows how well the estimate compares them."""
    dag = _core.ComputeDAG(pool(1, 28, 28, 240))
    p = policy(dag, CUDA, seed=1)
    rounds = [[in_parts(_core.State(dag, c.steps())) for c in p.candidates(8)].count(True) for _ in range(3)]
    assert rounds == [0, 1, 1]


def test_a_batch_holds_each_size_once():
    p = policy(pool(1, 28, 28, 240), CUDA, seed=1, states_per_tiling_in_batch=1)
    dag = _core.ComputeDAG(pool(1, 28, 28, 240))
    drawn = [sizes(_core.State(dag, c.steps())) for c in p.candidates(8)]
    assert len(set(drawn)) == 8


# ---- without tuning ----


@pytest.mark.parametrize("name", [*PROGRAMS, "softmax"])
@pytest.mark.parametrize("kind", ["cuda -arch=sm_90", "opencl"])
def test_default_schedules_share_long_sums(name, kind):
    tensors = softmax(5, 300) if name == "softmax" else PROGRAMS[name]()
    x, want = data_of(tensors)
    state = default_state(_core.ComputeDAG(tensors), Target(kind))
    codes = {s[3] for s in json.loads(state.steps()) if s[0] == "AN"}
    columns = 8 in codes
    assert columns or any(axis[1:3] == (1, 6) for stage in state.stages() for axis in stage[3])
    assert columns == (name not in ("softmax", "long rows", "sum of all") and "channels first" not in name)
    out = np.full_like(want, 77)
    assert _core.interp(state, kind.split()[0], [x, out], max_steps=50_000_000)["findings"] == []
    assert np.allclose(out, want, rtol=1e-5, atol=0) if name == "softmax" else np.array_equal(out, want)


@pytest.mark.parametrize(
    "tensors",
    [
        lambda: pool(1, 5, 5, 32),  # few terms
        lambda: pool(64, 28, 28, 512),  # many results
        lambda: reduced(topi.sum, (100, 1009), 0),  # one result at a time would read a line for each term
    ],
)
def test_default_schedules_of_others_have_a_thread_for_each_result(tensors):
    state = default_state(_core.ComputeDAG(tensors()), Target("cuda -arch=sm_90"))
    assert not any(axis[1] == 1 and axis[2] for stage in state.stages() for axis in stage[3])


READERS = {"as it is": lambda y: y, "cast": lambda y: topi.cast(y, "int64"), "summed": lambda y: topi.sum(topi.cast(y, "float32"))}


@pytest.mark.parametrize("kind", ["cuda -arch=sm_90", "opencl", "llvm"])
def test_default_schedules_of_results_without_loops(kind):
    """Reductions to a single number and of sizes 0 and 1, tuple reducers too, and what reads them."""
    for reduction in (topi.sum, topi.max, topi.prod, topi.mean, topi.argmax):
        for shape, axis in (((), None), ((1,), 0), ((5,), None), ((1, 1), (0, 1)), ((1, 7), 0), ((3, 4), None), ((0, 3), 0), ((2, 0), 0)):
            if reduction is topi.argmax and shape == (0, 3):
                continue  # of nothing there is no largest
            for reader in READERS.values():
                tensors = reduced(reduction, shape, axis, then=reader)
                x, want = data_of(tensors)
                out = np.full_like(want, 77)
                state = default_state(_core.ComputeDAG(tensors), Target(kind))
                assert _core.interp(state, kind.split()[0], [x, out])["findings"] == [], (reduction, shape, axis)
                assert np.array_equal(out, want, equal_nan=True), (reduction, shape, axis)


def norm(shape):
    x = te.placeholder(shape, name="x")
    centred = te.compute(shape, lambda *i: x(*i) * 2.0, name="twice")
    return [x, topi.nn.softmax(topi.sqrt(centred * centred + 1.0), -1)]


@pytest.mark.parametrize(
    ("tensors", "sums"),
    [
        (lambda: softmax(96, 128), 2),
        (lambda: [x := te.placeholder((2, 5, 8, 64), name="x"), topi.nn.softmax(x)], 2),
        (lambda: [x := te.placeholder((80, 72), name="x"), topi.nn.log_softmax(x)], 2),
        (lambda: norm((70, 40)), 2),
        (lambda: softmax(5, 1024), 0),  # few rows
        (lambda: softmax(100, 31), 0),  # no whole vectors
        (lambda: [x := te.placeholder((64, 64), name="x"), topi.nn.softmax(x, 0)], 0),  # columns
        (lambda: [x := te.placeholder((64, 64), name="x"), topi.sum(x, 1)], 0),  # nothing but the sums
        (lambda: [x := te.placeholder((64, 64), name="x"), topi.transpose(topi.nn.softmax(x))], 0),  # its rows are no rows of the result
    ],
)
def test_default_schedules_of_cpus_share_sums_among_lanes_row_by_row(tensors, sums):
    """Every stage of a softmax inside one parallel loop, and the interpreter finds the same numbers as the compiled program."""
    x, out = tensors = tensors()
    dag = _core.ComputeDAG(tensors)
    state = default_state(dag, Target("llvm"))
    steps = json.loads(state.steps())
    assert [s[0] for s in steps].count("RF") == sums
    if sums:
        assert [s[3] for s in steps if s[0] == "AN"].count(3) == 1
    data = np.random.default_rng(1).normal(size=[int(n) for n in x.shape]).astype("float32") * 3
    got, run = np.full([int(n) for n in out.shape], 77, "float32"), np.full([int(n) for n in out.shape], 77, "float32")
    assert _core.interp(state, "llvm", [data, run], max_steps=50_000_000)["findings"] == []
    array = ns.nd.array(got)
    ns.build(te.create_schedule(out.op), tensors, "llvm")(ns.nd.array(data), array)  # every stage by itself, nothing in lanes
    want = array.numpy()
    ns.build(*auto_scheduler.ComputeDAG(tensors).apply_steps_from_state(state), "llvm")(ns.nd.array(data), array)
    near = 1e-6 * max(1, np.abs(want).max())  # terms cancel
    assert np.allclose(array.numpy(), want, rtol=2e-6, atol=near) and np.allclose(run, want, rtol=2e-6, atol=near)


def heads(shape, of, order, then):
    x = te.placeholder(shape, name="x")
    return [x, topi.reshape(topi.transpose(topi.reshape(x, of), order), then)]


@pytest.mark.parametrize(
    ("tensors", "beside", "across"),
    [
        (lambda: heads((128, 768), (1, 128, 12, 64), (0, 2, 3, 1), (12, 64, 128)), 1, True),
        (lambda: heads((64, 96), (64, 96), (1, 0), (96, 64)), 0, True),
        (lambda: [x := te.placeholder((2, 24, 40, 32), name="x"), topi.transpose(x, (0, 3, 1, 2))], 1, True),
        (lambda: [x := te.placeholder((64, 80), name="x"), topi.nn.relu(topi.transpose(x) * 2.0)], 0, True),
        (lambda: heads((128, 768), (1, 128, 12, 64), (0, 2, 1, 3), (12, 128, 64)), 2, False),  # vectors as they lie
        (lambda: [x := te.placeholder((32, 16), name="x"), topi.transpose(x)], 0, False),  # tiny
        (lambda: [x := te.placeholder((71, 67), name="x"), topi.transpose(x)], 0, False),  # no whole vectors
        (lambda: [x := te.placeholder((64, 96), name="x"), topi.transpose(x) + topi.reshape(x, (96, 64))], -1, False),  # reads two
        (lambda: [x := te.placeholder((64, 96), name="x"), topi.sum(x, 0)], -1, False),
    ],
)
def test_default_schedules_of_cpus_transpose_while_lines_are_near(tensors, beside, across):
    x, out = tensors = tensors()
    dag = _core.ComputeDAG(tensors)
    assert dag.stages()[len(dag.ops) - 1]["beside"] == beside
    state = default_state(dag, Target("llvm"))
    assert ([s[0] for s in json.loads(state.steps())].count("SP") == 2) == across
    data = np.random.default_rng(1).normal(size=[int(n) for n in x.shape]).astype("float32")
    got, want = (ns.nd.array(np.full([int(n) for n in out.shape], 77, "float32")) for _ in range(2))
    ns.build(te.create_schedule(out.op), tensors, "llvm")(ns.nd.array(data), want)
    ns.build(*auto_scheduler.ComputeDAG(tensors).apply_steps_from_state(state), "llvm")(ns.nd.array(data), got)
    assert np.allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    run = np.full([int(n) for n in out.shape], 77, "float32")
    assert _core.interp(state, "llvm", [data, run], max_steps=50_000_000)["findings"] == []
    assert np.allclose(run, want.numpy(), rtol=1e-5, atol=1e-6)
