"""The published tutorials, run as they are on the CPU with the fewest trials: prints, log and result."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from fleet import Fleet

import nestsmith as ns
from helpers import full
from nestsmith import auto_scheduler, autotvm

HERE = pathlib.Path(__file__).parent
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))


def script(seed, folder, *edits):
    """The tutorial in a folder of the test's, with parts of it replaced so that less is measured."""
    text = (HERE / seed).read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / seed).write_text(text)
    return str(folder / seed)


SHORTER = [
    ("def run_tuning():", "tasks, task_weights = tasks[:3], task_weights[:3]\n\ndef run_tuning():"),
    ("min_repeat_ms=300", "min_repeat_ms=10"), ("min_repeat_ms=500", "min_repeat_ms=20"),
]  # fmt: skip


@pytest.mark.parametrize("seed,tuned,edits", [("seed004.py", 3, SHORTER), full("seed003.py", 24, ()), full("seed004.py", 24, ())])
def test_seed(tmp_path, seed, tuned, edits):
    env = {**os.environ, "PYTHONPATH": PACKAGE, "SEED_TARGET": "llvm", "SEED_TRIALS": str(tuned)}
    r = subprocess.run(
        [sys.executable, script(seed, tmp_path, *edits)], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=900
    )
    assert r.returncode == 0, r.stderr[-3000:]
    out = r.stdout
    heads = re.findall(r"^========== Task (\d+)  \(workload key: (\[\".*\])\) ==========$", out, re.M)
    assert [int(n) for n, _ in heads] == list(range(24))
    assert len({k for _, k in heads}) == 24
    order = ["Extract tasks...", "Begin tuning...", "[ Task Scheduler ]", "Compile...", "Evaluate inference"]
    assert sorted(order, key=out.index) == order
    tail = out[out.index(order[-1]) :]
    if seed == "seed004.py":
        assert "Execution time summary:\n mean (ms)   median (ms)    max (ms)     min (ms)     std (ms)  \n" in tail
    else:
        assert re.search(r"^Mean inference time \(std dev\): [\d.]+ ms \([\d.]+ ms\)$", tail, re.M)
    log = tmp_path / "resnet-18-NHWC-B1-llvm.json"
    records = list(auto_scheduler.load_records(str(log)))
    assert len(records) == tuned and {i.task.workload_key for i, _ in records} == {k for _, k in heads[:tuned]}
    assert sum(res.error_no == 0 for _, res in records) >= tuned * 5 // 6


def _canonical(program):
    """A printed program without what the reference takes from addresses: the order of its buffers and, with it, the
    numbers of the strides."""
    head, body = program.split("  buffer_map", 1)
    signature, buffers = head.split("  buffers = {", 1)
    rows = sorted(re.sub(r"[\]}),]*$", "", b.strip().replace(": int32", "")) for b in buffers.strip().splitlines())
    names = dict.fromkeys(re.findall(r"stride(?:_\d+)?", body))
    rename = {old: f"s{k}" for k, old in enumerate(names)}

    def one(text):
        return re.sub(r"stride(?:_\d+)?", lambda m: rename.get(m[0], "unused"), text)

    return signature + one("\n".join(rows)) + one(body)


def test_seed_001(tmp_path):
    """Fragments of expressions and schedules: the four printed programs are those of the tutorial."""
    out = subprocess.run(
        [sys.executable, str(HERE / "seed001.py")], cwd=tmp_path, env={**os.environ, "PYTHONPATH": PACKAGE}, text=True,
        capture_output=True, timeout=300, check=True,
    ).stdout
    ours = [_canonical(p) for p in re.findall(r"^primfn\(.*?^}$", out, re.M | re.S)]
    theirs = [_canonical(p) for p in re.findall(r"^primfn\(.*?^}$", (HERE / "seed001.out").read_text(), re.M | re.S)]
    assert len(ours) == 9 and len(theirs) == 4
    assert [ours[k] for k in (1, 5, 6, 8)] == theirs


def test_the_first_part_of_seed_004(tmp_path):
    """Up to the task list, which is what the tutorial prints first."""
    text = (HERE / "seed004.py").read_text()
    script = text[: text.index("def run_tuning")]
    assert "extract_tasks" in script
    env = {**os.environ, "PYTHONPATH": PACKAGE, "SEED_TARGET": "llvm"}
    out = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=300, check=True
    ).stdout
    assert out.startswith('Extract tasks...\n========== Task 0  (workload key: ["')
    assert out.count("========== Task ") == 24


@pytest.mark.parametrize("tasks", [full(2), full(16)])
def test_seed_002(tmp_path, tasks):
    """Templates for a mobile GPU: a tracker and a server on this machine, whose device is PoCL, stand for the board. Its compiler's time
    counts as the program's: five seconds are enough for few candidates where the machine is busy."""
    if not ns.device("opencl", 0).exist:
        pytest.skip(ns.device("opencl", 0).why_not)
    fleet = Fleet()
    try:
        fleet.serve("rk3399")
        env = {**os.environ, "PYTHONPATH": PACKAGE, "SEED_PORT": str(fleet.port), "SEED_TRIALS": "2", "SEED_TIMEOUT": "60", "SEED_REPEAT": "3"}
        r = subprocess.run(
            [sys.executable, script("seed002.py", tmp_path, ("tune_tasks(tasks, ", f"tune_tasks(tasks[:{tasks}], "))], cwd=tmp_path, env=env,
            text=True, capture_output=True, timeout=1800,
        )
    finally:
        fleet.close()
    assert r.returncode == 0, r.stderr[-3000:]
    order = ["Extract tasks...", "Tuning...", "Compile...", "Upload...", "Evaluate inference time cost..."]
    assert sorted(order, key=r.stdout.index) == order
    assert re.search(r"^Mean inference time \(std dev\): [\d.]+ ms \([\d.]+ ms\)$", r.stdout, re.M)
    done = re.findall(rf"\[Task +(\d+)/ *{tasks}\]  Current/Best: +[\d.]+/ +[\d.]+ GFLOPS \| Progress: \(2/2\) \| [\d.]+ s Done\.", r.stdout)
    assert [int(n) for n in done] == list(range(1, tasks + 1))
    log = tmp_path / "rk3399.resnet-18.log"
    records = list(autotvm.record.load_from_file(str(log)))
    workloads = [inp.task.workload for inp, _ in records]
    assert records or tasks < 16  # of few candidates none may be in time on a busy machine
    assert len(set(workloads)) == len(workloads) and all(res.error_no == 0 for _, res in records)
    assert not (tmp_path / "rk3399.resnet-18.log.tmp").exists()
