"""Random schedules of the extended search over products whose sizes divide nothing, on a GPU: drawn by seeds, built, run, and compared
with the definition value for value.

    python tests/gpu/drawn_schedules.py build DIR [--cases 200] [--arch 90]    # into files; needs NVRTC, but no GPU
    python tests/gpu/drawn_schedules.py run DIR [--part 0/4]                   # loads, runs and compares files alone
    python tests/gpu/drawn_schedules.py sanitize DIR [--logs DIR]              # the same within compute-sanitizer's tools

With --target opencl there are programs without tensor cores for an OpenCL device, to try all this (but sanitize) without a GPU.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

if __name__ == "__main__":
    sys.path[:0] = [str(pathlib.Path(__file__).parents[k] / p) for k, p in ((2, "python"), (1, ""), (1, "search"))]

import numpy as np
from tensor_core_cases import (
    ALLOWED,
    by_lanes,
    by_last_block,
    by_warpgroups,
    defined,
    dense,
    has_step,
    policy,
    ragged,
    types,
    unwritten,
)

import nestsmith as ns
from nestsmith import _core, te, topi
from nestsmith.numerics import from_bfloat16
from nestsmith.runtime.module import OperatorModule
from nestsmith.states import core_state

CHUNK = 25  # cases of a seed
OF_A_SHAPE = 5
CORES = len(os.sched_getaffinity(0))
TOOL_SECONDS = 180  # for a tool with its share of the cases
TOOLS = {"memcheck": ["--padding", "256"], "racecheck": [], "synccheck": []}  # padding: what is read of the next array is found
KINDS = ("warpgroups", "warps", "sums in parts on warps", "lanes", "sums in parts by lanes", "sums of last blocks")
ORDINARY = len(KINDS)  # from here on
KINDS += ("double buffers", "sums in two kernels", "sums over threads", "loops")

Case = collections.namedtuple("Case", "text kind manifest binary arrays")  # arrays: inputs and, last, the definition's result


# ---- drawing ----


def few_sums(rng, dtype):
    """Few sums of many terms, which schedules share among threads or add up in parts: a dense layer, or sums over pixels."""
    if rng.integers(2):
        return dense(*(int(rng.integers(*limits)) for limits in ((2, 9), (2, 9), (200, 700))), dtype)
    n, h, w, c = (int(rng.integers(*limits)) for limits in ((1, 3), (30, 80), (30, 80), (5, 40)))
    x = te.placeholder((n, h, w, c), types(dtype)[0], name="X")
    return [x, topi.sum(x, axis=[1, 2])]


def kind_of(state):
    """The row of KINDS."""
    core = core_state(state)
    names = {s[0] for s in json.loads(core.steps())}
    if by_last_block(state):
        return KINDS[5]
    if by_warpgroups(state):
        return KINDS[0]
    if has_step(state):
        return KINDS[(3 if by_lanes(state) else 1) + ("split 1" not in str(state))]
    if "DB" in names or "RF" in names:
        return KINDS[ORDINARY + ("DB" not in names)]
    over_threads = any(loop[1:3] in ((1, 6), (1, 8)) for stage in core.stages() for loop in stage[3])  # a reduction's, to x or y
    return KINDS[ORDINARY + (2 if over_threads else 3)]


def picked(rng, states):
    """Of one shape: four on tensor cores (by warpgroups, by warps, sums in parts, sums of last blocks) or by lanes, if there are such, one
    kind as good as the other, and others."""
    by_kind = collections.defaultdict(list)
    for k in rng.permutation(len(states)):
        by_kind[kind_of(states[k])].append(states[k])
    ordinary = [KINDS[ORDINARY + k] for k in rng.permutation(4)]
    order = [*(KINDS[k] for k in (0, 5, 2, 3, 4)), *ordinary, *(KINDS[k] for k in (1, 3, 4, 0, -1, 2, 1))]
    found = [(kind, by_kind[kind].pop()) for kind in order if by_kind[kind]]
    ordinary = [x for x in found if x[0] in KINDS[ORDINARY:]]
    cores = [x for x in found if x[0] not in KINDS[ORDINARY:]][: OF_A_SHAPE - 1]
    return (cores + ordinary)[:OF_A_SHAPE]


def drawn(seed, target):
    """(text, kind, state, tensors, engine target) of the cases of a seed."""
    rng, n = np.random.default_rng(seed), 0
    while n < CHUNK:
        index = 13 * seed + n // OF_A_SHAPE + 1  # a policy takes 0 for no seed; 13: every type meets every place of a seed
        dtype, math = ALLOWED[index % len(ALLOWED)]
        tensors = (few_sums if n // OF_A_SHAPE == 4 else ragged)(rng, dtype)
        p = policy(tensors, seed=index, math=math, target=target, warpgroups=2, wide_stores=1, last_blocks=1, double_buffer_prob=0.3)
        for kind, state in picked(rng, p.sample_initial_population())[: CHUNK - n]:
            shapes = " ".join("x".join(map(str, t.shape)) for t in tensors)
            text = f"seed {seed}, case {n}: {kind}, {dtype} (math {math}), {target}, {shapes}\n{core_state(state).steps()}\n{state}"
            yield text, kind, core_state(state), tensors, p.search_task.target.engine(overlap=n % 3)
            n += 1


def built(seed, target):
    """The cases of a seed. Kernels have their names, so that a report tells whose they are."""
    cases = []
    for n, (text, kind, state, tensors, engine) in enumerate(drawn(seed, target)):
        try:
            source, manifest = _core.candidate_source(state, engine, 0, f"seed{seed}_case{n}", 2)  # the second tensor: weights
            cases.append(Case(text, kind, manifest, _core.build(engine, source, 0, "")[0], defined(tensors, seed)))
        except (RuntimeError, ValueError) as e:
            raise AssertionError(f"not built: {e}\n{text}") from e
    return cases


def building(n_cases, target):
    """The seeds' cases as futures, in order; threads share the cores."""
    pool = concurrent.futures.ThreadPoolExecutor(CORES)
    found = [pool.submit(built, seed, target) for seed in range(-(-n_cases // CHUNK))]
    pool.shutdown(wait=False)
    return found


# ---- files ----


def save(case, path):
    words = {"text": case.text, "kind": case.kind, "manifest": case.manifest, "binary": np.frombuffer(case.binary, "uint8")}
    np.savez(path, **words, **{f"array{k}": a for k, a in enumerate(case.arrays)})


def load(path):
    with np.load(path) as f:
        arrays = [f[f"array{k}"] for k in range(sum(name.startswith("array") for name in f.files))]
        return Case(str(f["text"]), str(f["kind"]), str(f["manifest"]), f["binary"].tobytes(), arrays)


# ---- running ----


def device(manifest):
    return ns.device(json.loads(manifest)["target"], 0)


def values(array):
    return from_bfloat16(array) if array.dtype == "uint16" else array


def outcome(case, runs=1):
    """Runs a case in this process. "" if the result is the definition's every time and the inputs are what they were, else what is
    wrong, with the case."""
    try:
        wrong = difference(case, runs)
    except RuntimeError as e:  # the cases after it say so, too, if the device is lost
        wrong = str(e)
    return f"{wrong}: {case.text}" if wrong else ""


def difference(case, runs):
    dev, args = device(case.manifest), json.loads(case.manifest)["args"]
    there = [ns.nd.empty(a.shape, w["dtype"], dev).copyfrom(a) for a, w in zip(case.arrays, args)]
    call = OperatorModule("", case.manifest, case.binary)
    for run in range(runs):
        there[-1].copyfrom(unwritten(case.arrays[-1]))
        call(*there)
        for k, (got, want) in enumerate(zip(there, case.arrays)):
            off = values(got.numpy()) != values(want)
            if off.any():
                where = np.argwhere(off)[0].tolist()
                return f"{args[k]['name']} differs in {off.sum()} of {off.size}, first at {where} (run {run})"
    return ""


def run_files(folder, part):
    """Whether all files of a part are right; says so of each."""
    index, parts = map(int, part.split("/"))
    paths = sorted(pathlib.Path(folder).glob("*.npz"))[index::parts]
    found = []
    for path in paths:
        found.append(outcome(load(path), 2))  # what a launch leaves behind is found by the next one
        print(f"{path.name}: {found[-1] or 'right'}", flush=True)
    print(f"{found.count('')} of {len(paths)} right", flush=True)
    return not any(found)


# ---- sanitizers ----


def sanitizer():
    """compute-sanitizer's path, or None."""
    return shutil.which("compute-sanitizer", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")


def sanitized(tool, folder, log, part="0/1"):
    """(how many errors or hazards the tool counted, None if it did not end; how many cases were right; the text of both)."""
    command = [sanitizer(), "--tool", tool, *TOOLS[tool], "--log-file", str(log), sys.executable, __file__, "run", str(folder), "--part", part]
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        said = p.communicate(timeout=TOOL_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)  # the tool and what it watches
        said = p.communicate()[0] + f"\nlonger than {TOOL_SECONDS} s"
    report = pathlib.Path(log).read_text() if pathlib.Path(log).exists() else ""
    counts = [int(n) for n in re.findall(r"SUMMARY: (\d+) (?:error|hazard)", report)]
    return sum(counts) if counts else None, len(re.findall(r"npz: right$", said, re.M)), f"{report}\n{said}"


def all_sanitized(folder, logs):
    """Runs each tool over all files, in as many processes as there are cores: {tool: (count, right, text)}."""
    parts = max(1, CORES // len(TOOLS))
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        jobs = {
            tool: [pool.submit(sanitized, tool, folder, pathlib.Path(logs, f"{tool}-{k}.log"), f"{k}/{parts}") for k in range(parts)]
            for tool in TOOLS
        }
    found = {}
    for tool, futures in jobs.items():
        counts, right, texts = zip(*(f.result() for f in futures))
        found[tool] = None if None in counts else sum(counts), sum(right), "\n".join(texts)
    return found


def table(found, n):
    return "\n".join(f"{tool}: {count} errors or hazards, {right} of {n} right" for tool, (count, right, _) in found.items())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("build", "run", "sanitize"))
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--cases", type=int, default=200)
    p.add_argument("--arch", type=int, default=90)
    p.add_argument("--target", default="cuda")
    p.add_argument("--part", default="0/1", help="the k-th of n parts")
    p.add_argument("--logs", type=pathlib.Path, help="where the tools' reports go; the folder of the cases otherwise")
    args = p.parse_args()
    if args.what == "build":
        args.folder.mkdir(parents=True, exist_ok=True)
        target = f"cuda -arch=sm_{args.arch}" if args.target == "cuda" else args.target
        cases = [c for f in building(args.cases, target) for c in f.result()][: args.cases]
        for k, case in enumerate(cases):
            save(case, args.folder / f"{k:04d}.npz")
        print(f"{len(cases)} built:", ", ".join(f"{n} {kind}" for kind, n in collections.Counter(c.kind for c in cases).items()))
        return 0
    if args.what == "run":
        return not run_files(args.folder, args.part)
    n = len(list(args.folder.glob("*.npz")))
    found = all_sanitized(args.folder, args.logs or args.folder)
    print(table(found, n))
    return any((count, right) != (0, n) for count, right, _ in found.values())


if __name__ == "__main__":
    sys.exit(main())
