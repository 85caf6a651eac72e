"""Random te schedules: what is not refused gives the results of the definitions, bit for bit.

Every program is interpreted after each pass of lowering, with checks of races, bounds, barriers and memory that was never
written, and compared with the unscheduled definitions, once by the interpreter and once by NumPy. Every fifth CPU
program is compiled and run as well, and every 25th GPU program where OpenCL is there (compiling takes ten times as long
as all the rest). A refusal must be one of those below; they name stage and loop. ``NESTSMITH_FUZZ=n`` runs n programs
per target instead of the fixed sample. A failure prints a program that runs by itself.
"""

import os
import random
import re

import numpy as np
import pytest
from te_programs import Program, draw, shortest

import nestsmith as ns
from dag_eval import evaluate
from helpers import check_passes, unlimited
from nestsmith import _core

COMPILED = {"c": 5, "gpu": 25}
SAMPLE = int(os.environ.get("NESTSMITH_FUZZ", "0"))
REFUSED = [
    r"stage \S+(: |, loop \S+ \()",  # loops that are bound or parallel where that cannot be right
    r"stage \S+ is (an argument|computed (at root|inside a kernel|inside the reduction loop))",
    r"stage \d+ \(\S+\) is (an output|computed (at a loop|at loop|inside itself|inside stage))",
    r"cycle: stage \d+ \(\S+\)",
    r"loops of extent \S+ and \S+ are bound to the same thread axis",
    r"two loops bound to \S+ in one kernel have different extents",
    r"a loop or condition stands outside of the GPU kernels",
    r"buffer \S+ is written outside of any GPU kernel",
    r"buffer \S+ in (shared|local) memory is used outside of any kernel",
    r"a barrier would be needed inside a condition",
    r"a reduction across threads stands inside a condition",
]
REFUSED_AT_ONCE = [
    r"axis \S+ (is a reduction|is fused from data and reduction axes): it cannot be vectorized",
    r"axis \S+ is bound to \S+ already",
    r"split of \S+: the axis is bound to a thread already",
    r"stage \S+ has (a reduction|several outputs): it cannot be inlined",
    r"an output stage cannot be double buffered",
    r"rfactor: (axis \S+ of stage \S+ is not a reduction|the domain of \S+ must start at 0|\S+ derives from the data axis)",
    r"(rfactor|cache write): stage \d+ \(\S+\) carries attached stages",
    r"cache write of \S+: loop \S+ mixes data and reduction axes",
    r"cache read: stage \d+ \(\S+\) does not read",
    r"stage \d+ \(\S+\) is stored under a condition, whose loops end here",
]


def arrays(p, seed):
    """Small integers for inputs, NumPy's results for the others."""
    rng, args = np.random.default_rng(seed), p["args"]
    given = {
        t: rng.integers(0 if t.dtype.startswith("u") else -3, 4, [int(n) for n in t.shape]).astype(t.dtype)
        for t in args
        if t.op.is_placeholder
    }
    made = [t for t in args if not t.op.is_placeholder]
    return given | dict(zip(made, evaluate(made, given)))


def finding(p, seed, target, device):
    """What is wrong with the program, or None. Raises ValueError with the reason of a refusal."""
    want, args = arrays(p, seed), list(p["args"])
    blank = [want[t] if t.op.is_placeholder else np.zeros_like(want[t]) for t in args]
    found = check_passes(p["s"]._core, target, [x.copy() for x in blank], args)
    if found:
        return found
    state, got = p["s"]._core.state(args), [x.copy() for x in blank]
    found = _core.interp(state, target, got, stage="program")["findings"]
    found += [f"interpreter: {t.name} differs from NumPy" for t, x in zip(args, got) if not np.array_equal(x, want[t])]
    _core.program(state, None, unlimited(target), "main")
    if device and not found:
        f = ns.build(p["s"], args, "llvm" if target == "c" else "opencl")
        run = [ns.nd.array(x if t.op.is_placeholder else np.full_like(x, 77), device) for t, x in zip(args, blank)]
        f(*run)
        found = [f"compiled: {t.name} differs" for t, x in zip(args, run) if not np.array_equal(x.numpy(), want[t])]
    return found or None


def outcome(lines, seed, target, device):
    """What is wrong with the program that the lines make; None if nothing is, or if it is refused as it should be."""
    try:
        return finding(Program(lines), seed, target, device)
    except ValueError as e:
        return None if any(re.match(r, str(e)) for r in REFUSED) else f"refused: {e}"
    except Exception as e:  # noqa: BLE001 - an internal error is a finding too
        return f"{type(e).__name__}: {e}"


def fails_when(p, seed, target, device, found):
    kind = re.sub(r"\d+", "#", str(found))[:40]
    lines = shortest(p.lines, lambda x: re.sub(r"\d+", "#", str(outcome(x, seed, target, device)))[:40] == kind)
    text = "\n".join(["from nestsmith import te, tir", *lines])
    return f"seed {seed}, target {target}: {outcome(lines, seed, target, device)}\n{text}"


def opencl():
    try:
        return ns.opencl(0) if ns.opencl(0).exist else None
    except RuntimeError:
        return None


def run_many(seeds, gpu):
    every, device = COMPILED["gpu" if gpu else "c"], opencl() if gpu else ns.cpu(0)
    refused = accepted = 0
    for n, seed in enumerate(seeds):
        p = draw(seed, gpu)
        for line, why in p.refused:
            assert any(re.match(r, why) for r in REFUSED_AT_ONCE), f"seed {seed}: {line}: {why}\n{p.text()}"
        target = ("cuda", "opencl")[seed % 2] if gpu else "c"
        on = device if n % every == 0 else None
        if on and gpu:
            target = "opencl"
        try:
            found = finding(p, seed, target, on)
            accepted += 1
        except ValueError as e:
            assert any(re.match(r, str(e)) for r in REFUSED), f"seed {seed}: {e}\n{p.text()}"
            found, refused = None, refused + 1
        except Exception as e:  # noqa: BLE001
            found = f"{type(e).__name__}: {e}"
        if found:
            pytest.fail(fails_when(p, seed, target, on, found), pytrace=False)
    assert accepted > refused * (0.7 if gpu else 5), f"{refused} of {accepted + refused} programs are refused"


@pytest.mark.some(1)
@pytest.mark.parametrize("chunk", range(4))
def test_random_programs_on_the_cpu(chunk):
    n = SAMPLE or 200
    run_many(range(chunk * n // 4, (chunk + 1) * n // 4), gpu=False)


@pytest.mark.some(1)
@pytest.mark.parametrize("chunk", range(2))
def test_random_programs_on_gpus(chunk):
    n = SAMPLE or 100
    run_many(range(chunk * n // 2, (chunk + 1) * n // 2), gpu=True)


@pytest.mark.full
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("chunk", range(10))
def test_five_thousand_random_programs(chunk, gpu):
    run_many(range(1000 + chunk * 250, 1250 + chunk * 250), gpu)


def test_a_failure_is_found_and_shortened():
    """The interpreter is told that a program is right which is not: the report names it and keeps the lines that matter."""
    lines = [
        "A = te.placeholder((6,), 'int32', name='A')",
        "k = te.reduce_axis((0, 6), name='k')",
        "B = te.compute((1,), lambda i: te.sum(A[k], axis=k), name='B')",
        "s = te.create_schedule(B.op)",
        "s[B].split(s[B].op.axis[0], factor=1)",
        "s[B].parallel(s[B].op.reduce_axis[0])",
        "args = [A, B]",
    ]
    with pytest.raises(ValueError, match="runs over a reduction axis"):
        finding(Program(lines), 0, "c", None)
    p = Program(lines)
    got = [np.arange(6, dtype="int32"), np.zeros(1, "int32")]
    assert _core.interp(p["s"]._core.state(list(p["args"])), "c", got, stage="loops")["findings"]
    kept = shortest(lines, lambda x: "parallel" in Program(x).text())
    assert kept == [x for x in lines if "split" not in x]


def test_drawing_is_reproducible():
    for seed in random.Random(1).sample(range(10**6), 5):
        for gpu in (False, True):
            p = draw(seed, gpu)
            assert p.lines == draw(seed, gpu).lines
            assert str(Program(p.lines)["s"]) == str(p["s"])
