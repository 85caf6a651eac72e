"""The published tutorial, run as it is on the CPU with the fewest trials: prints, log and result."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import nestsmith as ns
from nestsmith import auto_scheduler

HERE = pathlib.Path(__file__).parent
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))


@pytest.mark.full
def test_seed_004(tmp_path):
    env = {**os.environ, "PYTHONPATH": PACKAGE, "SEED_TARGET": "llvm", "SEED_TRIALS": "24"}
    r = subprocess.run(
        [sys.executable, str(HERE / "seed004.py")], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=900
    )
    assert r.returncode == 0, r.stderr[-3000:]
    out = r.stdout
    heads = re.findall(r"^========== Task (\d+)  \(workload key: (\[\".*\])\) ==========$", out, re.M)
    assert [int(n) for n, _ in heads] == list(range(24))
    assert len({k for _, k in heads}) == 24
    order = ["Extract tasks...", "Begin tuning...", "[ Task Scheduler ]", "Compile...", "Evaluate inference"]
    assert sorted(order, key=out.index) == order
    assert "Execution time summary:" in out[out.index(order[-1]) :]
    log = tmp_path / "resnet-18-NHWC-B1-llvm.json"
    records = list(auto_scheduler.load_records(str(log)))
    assert len(records) == 24 and {i.task.workload_key for i, _ in records} == {k for _, k in heads}
    assert sum(res.error_no == 0 for _, res in records) >= 20


def test_the_first_part_of_seed_004(tmp_path):
    """Up to the task list, which is what the tutorial prints first."""
    text = (HERE / "seed004.py").read_text()
    script = text[: text.index("def run_tuning")]
    assert "extract_tasks" in script
    env = {**os.environ, "PYTHONPATH": PACKAGE, "SEED_TARGET": "llvm"}
    out = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=120, check=True
    ).stdout
    assert out.startswith('Extract tasks...\n========== Task 0  (workload key: ["')
    assert out.count("========== Task ") == 24
