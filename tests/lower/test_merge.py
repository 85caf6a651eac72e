"""Programs that follow each other as one launch: the interpreter says that it computes what they do one after the other, to the bit."""

import json
import re

import numpy as np
import pytest
from tensor_core_cases import dense, has_step
from tensor_core_cases import policy as of_tensor_cores

import nestsmith as ns
from nestsmith import _core, auto_scheduler, te, topi
from nestsmith.compiling import compile_source
from nestsmith.states import core_state

TARGET = ns.target.Target("cuda -arch=sm_90")
ENGINE = TARGET.engine()


def pool(channels):
    x = te.placeholder((1, 6, 6, channels), name="x")
    return [x, topi.nn.global_pool(x, "avg", layout="NHWC")]


def layer(inputs, outputs, f):
    x, w = te.placeholder((1, inputs), name="x"), te.placeholder((outputs, inputs), name="w")
    return [x, w, f(topi.nn.dense(x, w))]


def drawn(tensors, seed, n):
    """Schedules of a function as the search begins with them."""
    task = auto_scheduler.SearchTask(compute_dag=auto_scheduler.ComputeDAG(tensors), workload_key="a part", target=TARGET)
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.AnalyticModel(), seed=seed, verbose=0)
    return [core_state(s) for s in policy.sample_initial_population()][:n]


def kernels(state):
    """(blocks, threads) of each, and whether it has barriers."""
    text = _core.lower_text(state, "kernels", ENGINE)
    sizes = re.findall(r"^kernel \S+ grid (\d+) (\d+) (\d+) block (\d+) (\d+) (\d+)", text, re.M)
    return [(np.prod([int(v) for v in s[:3]]), np.prod([int(v) for v in s[3:]])) for s in sizes], "sync" in text


SQUEEZE = (pool(64), layer(64, 24, topi.nn.relu), layer(24, 64, topi.sigmoid))
WIRING = ((0, 3), (3, 1, 4), (4, 2, 5))  # data, weights, weights; what each gives


def arrays(rng):
    shapes = [(1, 6, 6, 64), (24, 64), (64, 24), (1, 1, 1, 64), (1, 24), (1, 64)]
    return [rng.normal(size=s).astype("float32") for s in shapes]


def one_after_the_other(states, data):
    for state, wiring in zip(states, WIRING):
        assert not _core.interp(state, ENGINE, [data[k] for k in wiring])["findings"]


def chains():
    """Of three functions, drawn: seldom alike in blocks and threads."""
    return list(zip(*(drawn(f, 7, 12) for f in SQUEEZE)))


def as_parts(states, constant=(0, 0, 0), wiring=WIRING):
    return [(s, 0, c, w) for s, c, w in zip(states, constant, wiring)]


WEIGHTS = (0, 0b10, 0b10)  # constants, as the parts count their tensors


def test_it_computes_what_they_do_one_after_the_other():
    seen, rng = set(), np.random.default_rng(0)
    for states in chains():
        had = [kernels(s) for s in states]
        sizes = [k for ks, _ in had for k in ks]
        blocks, threads = max(b for b, _ in sizes), max(t for _, t in sizes)
        data = arrays(rng)
        want = [a.copy() for a in data]
        one_after_the_other(states, want)
        data[3][:], data[4][:], data[5][:] = 7, 7, 7
        try:
            findings = _core.merged_interp(as_parts(states), ENGINE, 6, data)
        except ValueError as err:
            assert "exchange values" in str(err) and any(t % 32 for _, t in sizes)
            seen.add("refused")
            continue
        assert not findings and [a.tobytes() for a in data] == [a.tobytes() for a in want]
        manifest = json.loads(_core.merged_source(as_parts(states), ENGINE, 6, "f")[1])
        (kernel,) = manifest["kernels"]
        assert kernel["grid"] == [1, 1, min(8, blocks)] and kernel["block"] == [threads, 1, 1]
        assert [a["read_only"] for a in manifest["args"]] == [True] * 3 + [False] * 3
        seen |= {"turns"} if blocks > 8 else {"no turns"}
        seen |= {"some threads, with barriers" for ks, barriers in had if barriers and any(t < threads for _, t in ks)}
        seen |= {"more kernels than functions"} if len(sizes) > 3 else set()
    assert seen >= {"turns", "no turns", "some threads, with barriers", "more kernels than functions"}, seen


def test_indices_of_several_dimensions():
    """Blocks and threads of a schedule by hand, along all axes, become one number."""
    x = te.placeholder((4, 6, 10), name="x")
    y = te.compute((4, 6, 10), lambda i, j, k: x[i, j, k] * 2.0 + i + 10 * j + 100 * k, name="y")
    dag = _core.ComputeDAG([x, y])
    # stage 1: splits of three axes, and their six loops bound
    steps = [["SP", 1, 2, 10, [5], 1], ["SP", 1, 1, 6, [3], 1], ["SP", 1, 0, 4, [2], 1], ["RE", 1, [0, 2, 4, 1, 3, 5]]]
    steps += [["AN", 1, k, a] for k, a in enumerate((5, 7, 9, 10, 8, 6))]  # blocks x, y, z; threads z, y, x
    state = _core.State(dag, json.dumps(steps))
    (size,), _ = kernels(state)
    assert size == (8, 30)
    parts = [(state, 0, 0, (0, 1)), (state, 0, 0, (1, 2))]
    data = [np.random.default_rng(0).normal(size=(4, 6, 10)).astype("float32") for _ in range(3)]
    want = [a.copy() for a in data]
    assert not _core.merged_interp(parts, ENGINE, 3, data)
    for k in (0, 1):
        assert not _core.interp(state, ENGINE, want[k : k + 2])["findings"]
    assert [a.tobytes() for a in data] == [a.tobytes() for a in want]


def some_chain(blocks):
    """One whose largest kernel has at least, or at most, so many blocks."""
    for states in chains():
        most = max(b for s in states for b, _ in kernels(s)[0])
        if blocks(most):
            return states
    raise AssertionError("no such chain")


def test_text():
    states = some_chain(lambda most: most > 1)
    source, manifest = _core.merged_source(as_parts(states, WEIGHTS), TARGET.engine(overlap=2), 6, "f")
    waits = re.findall(r'asm volatile\("barrier\.cluster\.arrive\.release;\\n" "barrier\.cluster\.wait\.acquire;" ::(.*) : "memory"\);', source)
    count = sum(len(kernels(s)[0]) for s in states)
    names = [p["name"] for p in json.loads(manifest)["args"]]
    head = re.search(r"f_kernel0\((.*?)\)", source)[1].split(", ")
    written = [p.split()[-1].lstrip("*") for p in head if not p.startswith("const ")]
    assert len(waits) == count - 1 and len(names) == 6
    assert all(set(re.findall(r'"l"\((\w+)\)', w)) == set(written) for w in waits)
    assert source.count("griddepcontrol.wait") == source.count("griddepcontrol.launch_dependents") == 1
    assert "__cluster_dims__(1, 1, " in source and json.loads(manifest)["kernels"][0]["waits"]
    assert [a.get("constant", False) for a in json.loads(manifest)["args"]] == [False, True, True, False, False, False]


@pytest.mark.parametrize(("overlap", "there"), [(0, [2, 0, 0]), (1, [2, 1, 0]), (2, [2, 1, 1])])
def test_what_comes_first(overlap, there):
    """The weights of all kernels but the first are asked for, then the launch waits, then the next one may begin."""
    parts, engine = as_parts(some_chain(lambda most: most > 1), WEIGHTS), TARGET.engine(overlap=overlap)
    order = ["ns_prefetch_range(&", "griddepcontrol.wait", "launch_dependents", "barrier.cluster"]
    body = _core.merged_source(parts, engine, 6, "f")[0].split("f_kernel0(")[1]
    assert [body.count(t) for t in order[:3]] == there
    places = [body.index(t) for t in order if t in body]
    assert places == sorted(places) and "if ((blockIdx_z < 1) && (threadIdx_x < 1))" in body
    assert set(re.findall(r"ns_prefetch_range\(&\w+\[0\], (\d+)\)", body)) == {str(24 * 64 * 4)}
    data = arrays(np.random.default_rng(3))
    want = [a.copy() for a in data]
    one_after_the_other([s for s, *_ in parts], want)
    assert not _core.merged_interp(parts, engine, 6, data)
    assert [a.tobytes() for a in data] == [a.tobytes() for a in want]


def test_what_is_asked_for():
    """Constants of all parts but the first. What one of them writes is none, whatever another says."""
    states = some_chain(lambda most: most > 1)

    def prefetches(constant, first=0):
        wiring = (WIRING, ((0, 1, 3), (3, 2, 4)))[first]
        source, _ = _core.merged_source(as_parts(states[first:], constant, wiring), TARGET.engine(overlap=1), 6 - first, "f")
        return source.count("ns_prefetch_range(&")

    assert prefetches(WEIGHTS) == prefetches((0, 0b11, 0b11)) == 2
    assert prefetches((0, 0b10, 0)) == 1 and prefetches((1, 0, 0)) == 0
    assert prefetches((0b10, 0b10), 1) == 1


def test_one_block_needs_no_cluster():
    x = te.placeholder((32,), name="x")
    dag = _core.ComputeDAG([x, te.compute((32,), lambda i: x[31 - i] + 1.0, name="y")])
    state = _core.State(dag, json.dumps([["SP", 1, 0, 32, [32], 1], ["AN", 1, 0, 5], ["AN", 1, 1, 6]]))
    source, _ = _core.merged_source([(state, 0, 0, (0, 1)), (state, 0, 0, (1, 2))], ENGINE, 3, "f")
    assert "cluster" not in source and source.count('asm volatile("barrier.sync 0;" :: "l"') == 1


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_it_compiles(overlap):
    engine = TARGET.engine(overlap=overlap)
    for states in (some_chain(lambda most: 1 < most <= 8), some_chain(lambda most: most > 8)):
        source, _ = _core.merged_source(as_parts(states, WEIGHTS), engine, 6, "f")
        assert "ns_prefetch_range" in source and len(compile_source(TARGET, source, "f", engine=engine)[0]) > 1000


def test_what_cannot_be_merged():
    states = some_chain(lambda most: most > 1)
    for target in ("cuda -arch=sm_80", "cuda -arch=sm_120", "opencl"):
        engine = ns.target.Target(target).engine()
        assert not _core.can_merge(engine)
        with pytest.raises(ValueError, match="clusters of blocks"):
            _core.merged_source(as_parts(states), engine, 6, "f")
    assert _core.can_merge(ENGINE)
    matrix = next(s for s in of_tensor_cores(dense(64, 64, 64, "float32"), math="tf32", target=TARGET).sample_initial_population() if has_step(s))
    with pytest.raises(ValueError, match="instructions of tensor cores"):
        _core.merged_source([(core_state(matrix), 0, 0, (0, 1, 2))], ENGINE, 3, "f")
    for wiring, message in (((6, 3), "does not exist"), ((0, 0), "not what another kernel has"), ((0,), "has 2 arguments, not 1")):
        with pytest.raises(ValueError, match=message):
            _core.merged_source([(states[0], 0, 0, wiring)], ENGINE, 2, "f")
    with pytest.raises(ValueError, match="nobody's"):
        _core.merged_source([(states[0], 0, 0, (0, 1))], ENGINE, 3, "f")
