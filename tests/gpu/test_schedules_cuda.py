"""500 random schedules of the extended search over ragged products give the definition's bits on a GPU, and compute-sanitizer has
nothing to say about 200 of them (``NESTSMITH_SANITIZED``: so many). ``NESTSMITH_SANITIZER_LOGS``: a folder for its reports."""

import concurrent.futures
import os
import pathlib

import drawn_schedules as d
import numpy as np
import pytest
from plain_kernel import ADD, N, cubin, manifest, sm

import nestsmith as ns
from nestsmith import _core, te
from nestsmith.target import Target

SEEDS = 20  # 25 cases each
SANITIZED = int(os.environ.get("NESTSMITH_SANITIZED", "200"))
needs_gpu = pytest.mark.skipif(not ns.cuda(0).exist, reason="no CUDA device: " + ns.cuda(0).why_not)
needs_sanitizer = pytest.mark.skipif(not d.sanitizer(), reason="no compute-sanitizer")
# what each tool has to find: a store behind the array, what another warp may not have stored yet, a barrier that not all come to
PLANTED = {
    "memcheck": "y[i + 1] = x[i];",
    "racecheck": "__shared__ float s[256]; s[threadIdx.x] = x[i]; y[i] = s[255 - threadIdx.x];",
    "synccheck": "__shared__ float s[256]; if (threadIdx.x < 200) { s[threadIdx.x] = x[i]; __syncthreads(); } y[i] = s[threadIdx.x % 200];",
}


def test_all_kinds_are_drawn():
    drawn = [x for seed in range(5) for x in d.drawn(seed, "cuda -arch=sm_90")]
    assert len(drawn) == 5 * d.CHUNK and {kind for _, kind, *_ in drawn} == set(d.KINDS)
    assert {str(tensors[0].dtype) for *_, tensors, _ in drawn} == {"float16", "bfloat16", "float32", "int8", "uint8"}
    assert [x[0] for x in d.drawn(1, "cuda -arch=sm_90")] == [x[0] for x in drawn if x[0].startswith("seed 1,")]


def test_what_differs_is_said(tmp_path):
    """A case from a file, on the CPU; and the same with one element of the result, or an input, other than it is."""
    x = te.placeholder((5, 7), name="X")
    tensors = [x, te.compute((5, 7), lambda i, j: x[i, j] + 1.0, name="Y")]
    target = Target("llvm").engine()
    source, text = _core.candidate_source(_core.State(_core.ComputeDAG(tensors)), target, 0, "f")
    d.save(d.Case("seed 3", "loops", text, _core.build(target, source)[0], d.defined(tensors)), tmp_path / "0.npz")
    case = d.load(tmp_path / "0.npz")
    assert d.outcome(case, 2) == "" and d.run_files(tmp_path, "0/1")
    case.arrays[1][2, 3] += 1
    assert d.outcome(case).startswith("Y differs in 1 of 35, first at [2, 3] (run 0): seed 3")
    d.save(case, tmp_path / "1.npz")
    assert not d.run_files(tmp_path, "0/1") and d.run_files(tmp_path, "0/2") and not d.run_files(tmp_path, "1/2")


@pytest.fixture(scope="module")
def cases():
    """Of each seed a future; all are built while the first ones run."""
    futures = d.building(SEEDS * d.CHUNK, f"cuda -arch=sm_{sm()}")
    yield futures
    for future in futures:
        future.cancel()  # those that nobody waited for


@needs_gpu
@pytest.mark.parametrize("seed", range(SEEDS))
def test_bits_are_the_definitions(seed, cases):
    wrong = [text for text in (d.outcome(case, 2) for case in cases[seed].result()) if text]
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def reports(cases, tmp_path_factory):
    """What each tool says of the drawn schedules, {tool: (count, right, text)}, and of what it has to find."""
    folder = tmp_path_factory.mktemp("cases")
    logs = pathlib.Path(os.environ.get("NESTSMITH_SANITIZER_LOGS", folder))
    built = [case for future in cases[: -(-SANITIZED // d.CHUNK)] for case in future.result()]
    for k, case in enumerate(built[:SANITIZED]):
        d.save(case, folder / f"{k:04d}.npz")
    for tool, body in PLANTED.items():
        (folder / tool).mkdir()
        x = np.arange(N, dtype="float32")
        d.save(d.Case("planted", "planted", manifest(), cubin(ADD % body), [x, x]), folder / tool / "0.npz")
    with concurrent.futures.ThreadPoolExecutor(len(PLANTED)) as pool:
        planted = {tool: pool.submit(d.sanitized, tool, folder / tool, logs / f"{tool}-planted.log") for tool in PLANTED}
        found = d.all_sanitized(folder, logs)
    print("\n" + d.table(found, SANITIZED))
    return found, {tool: future.result() for tool, future in planted.items()}


@needs_gpu
@needs_sanitizer
@pytest.mark.parametrize("tool", d.TOOLS)
def test_sanitizers_are_silent(tool, reports):
    count, right, text = reports[0][tool]
    assert (count, right) == (0, SANITIZED), text[:20000]


@needs_gpu
@needs_sanitizer
@pytest.mark.parametrize("tool", d.TOOLS)
def test_sanitizers_find_what_they_have_to(tool, reports):
    count, _, text = reports[1][tool]
    assert count, text[:5000]
