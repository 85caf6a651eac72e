"""The log tool that proves a log: right records, unknown keys, a compiler that makes wrong programs."""

import os
import subprocess
import sys

import pytest

import nestsmith as ns
from nestsmith import auto_scheduler

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))
WORKLOADS = '''
from nestsmith import auto_scheduler, te

@auto_scheduler.register_workload
def verify_matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]
'''
TUNE = """
import nestsmith, workloads
from nestsmith import auto_scheduler
for n in (16, 24):
    task = auto_scheduler.SearchTask(func=workloads.verify_matmul, args=(n,), target="llvm")
    runner = auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0)
    task.tune(auto_scheduler.TuningOptions(
        4, verbose=0, runner=runner, measure_callbacks=[auto_scheduler.RecordToFile("log.json")]), cost_model="random")
"""


def tool(folder, *args, name="nestsmith.log", **env):
    r = subprocess.run(
        [sys.executable, "-m", name, *map(str, args)], cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": PACKAGE, **env},
    )
    return r.returncode, r.stdout, r.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("verify")
    (path / "workloads.py").write_text(WORKLOADS)
    subprocess.run([sys.executable, "-c", TUNE], cwd=path, check=True, env={**os.environ, "PYTHONPATH": PACKAGE})
    return path


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["nestsmith.log", "nestsmith.auto_scheduler.measure_record"])
def test_right(folder, name):
    code, out, err = tool(folder, "--mode", "verify", "-i", "log.json", "--import", "workloads", name=name)
    assert code == 0 and "2 of 2 best records are right" in out, out + err
    assert out.count("  none  right\n") == 2  # sums of small integers: no difference at all


def test_unknown_keys(folder):
    code, out, _ = tool(folder, "--mode", "verify", "-i", "log.json")
    assert code == 1 and out.count("unknown key\n") == 2 and "--import mymodule" in out and "0 of 2" in out
    code, out, err = tool(folder, "--mode", "verify", "-i", "log.json", "--import", "no_such_module")
    assert code == 1 and "No module named 'no_such_module'" in err
    assert tool(folder, "--mode", "verify", "-i", "none.json")[2] == "nestsmith.log: log file none.json does not exist\n"


def test_wrong_programs(folder):
    """A compiler that takes B for A in every program but the reference."""
    cc = folder / "cc.sh"
    cc.write_text('#!/bin/sh\nfor f; do case "$f" in *.c) grep -q " reference(" "$f" || '
                  'sed -i "s/(args\\[0\\], 64)/(args[1], 64)/" "$f";; esac; done\nexec cc "$@"\n')
    cc.chmod(0o755)
    code, out, err = tool(
        folder, "--mode", "verify", "-i", "log.json", "--import", "workloads", CC=str(cc), NESTSMITH_CACHE_DIR=""
    )
    assert code == 1 and out.count("wrong-answer") == 2 and "0 of 2 best records are right" in out, out + err


def test_no_compiler(folder):
    code, out, err = tool(folder, "--mode", "verify", "-i", "log.json", "--import", "workloads", CC="no-such-compiler")
    assert code == 1 and "candidates for llvm cannot be compiled" in err and "apt install gcc" in err and "Traceback" not in err


def test_network(tmp_path):
    mod, params = ns.relay.testing.mlp.get_workload(1)
    log = tmp_path / "mlp.json"
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, "llvm")
    auto_scheduler.TaskScheduler(tasks, weights, callbacks=[]).tune(
        auto_scheduler.TuningOptions(
            8, verbose=0, runner=auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0),
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
        ),
        search_policy="sketch.random",
    )
    rows = auto_scheduler.log_verify.verify(log, {"name": "mlp"})
    assert [r["verdict"] for r in rows] == ["right"] * 4 and all(r["measured"] > 0 for r in rows)
    assert {r["desc"] for r in rows} == {t.desc for t in tasks}
