"""Boards without Python: the runner for aarch64 under qemu, behind a stand-in for adb that keeps the phone's files in a folder."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from fleet import Fleet

import nestsmith
from helpers import wait_until
from nestsmith import auto_scheduler, nd, relay, rpc, te
from nestsmith.cluster.runner import check_device
from nestsmith.contrib import graph_executor, utils

ROOT = pathlib.Path(__file__).parents[2]
TARGET = "llvm -mtriple=aarch64-linux-gnu"
ADB = r"""#!/bin/bash
[ "$1" = -s ] && [ "$2" = PHONE ] || { echo "device '$2' not found" >&2; exit 1; }
shift 2
mkdir -p "$PHONE_ROOT/data/local/tmp"
case $1 in
push) exec cp "$2" "$PHONE_ROOT$3" ;;
shell)
  shift; [ "$1" = -T ] && shift
  here=${*//\/data\/local\/tmp/$PHONE_ROOT/data/local/tmp}
  exec sh -c "${here/exec /exec qemu-aarch64 -L /usr/aarch64-linux-gnu }" ;;
esac
"""
pytestmark = pytest.mark.skipif(
    not (shutil.which("qemu-aarch64") and shutil.which("aarch64-linux-gnu-gcc") and sys.platform == "linux"),
    reason="needs qemu-aarch64 and aarch64-linux-gnu-gcc (.ci/packages ci)",
)


@pytest.fixture(scope="module")
def phone(tmp_path_factory):
    """Environment of a server whose device is behind adb."""
    made = subprocess.run(["make", "-s", "QUIET=1", "-j2", "runner", "CROSS=aarch64-linux-gnu-"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    program = ROOT / "build/runner-aarch64-linux-gnu/nestsmith-runner"
    assert program.stat().st_size < 1 << 20
    folder = tmp_path_factory.mktemp("phone")
    (folder / "adb").write_text(ADB)
    (folder / "adb").chmod(0o755)
    return {"NESTSMITH_ADB": str(folder / "adb"), "NESTSMITH_RUNNER": str(program), "PHONE_ROOT": str(folder / "root")}


@pytest.fixture(scope="module")
def fleet(phone):
    with Fleet(**phone) as f:
        f.serve("mate10pro", "--device=adb:PHONE")
        yield f


def test_cross_compiled_programs_run_on_the_board(fleet):
    a = te.placeholder((100,), name="A")
    b = te.compute((100,), lambda i: a[i] * 2.0 + 1.0, name="B")
    f = nestsmith.build(te.create_schedule(b.op), [a, b], TARGET, name="twice")
    x, w = relay.var("x", shape=(1, 8)), relay.var("w", shape=(4, 8))
    weights = np.random.default_rng(0).integers(-3, 4, (4, 8)).astype("float32")
    mod = nestsmith.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    lib, tmp = relay.build(mod, target=TARGET, params={"w": weights}), utils.tempdir()
    with rpc.request_remote("mate10pro", "127.0.0.1", fleet.port) as remote:
        assert remote.facts["machine"] == "aarch64"
        dev = remote.cpu(0)
        for name, what in (("f.tar", f), ("net.tar", lib)):
            what.export_library(tmp.relpath(name))
            remote.upload(tmp.relpath(name))
        given, got = nd.array(np.arange(100, dtype="float32"), dev), nd.empty((100,), "float32", dev)
        module = remote.load_module("f.tar")
        module["twice"](given, got)
        np.testing.assert_array_equal(got.numpy(), np.arange(100) * 2 + 1)
        assert min(module.time_evaluator("twice", dev, number=2, repeat=3)(given, got).results) > 0
        net = graph_executor.GraphModule(remote.load_module("net.tar")["default"](dev))
        value = np.arange(8, dtype="float32").reshape(1, 8)
        net.run(x=value)
        np.testing.assert_array_equal(net.get_output(0).numpy(), np.maximum(value @ weights.T, 0))


@auto_scheduler.register_workload
def board_matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def test_candidates_are_raced_and_checked_on_the_board(fleet, tmp_path):
    task = auto_scheduler.SearchTask(func=board_matmul, args=(16,), target=TARGET)
    log = str(tmp_path / "log.json")
    runner = auto_scheduler.RPCRunner("mate10pro", "127.0.0.1", fleet.port, min_repeat_ms=1)
    task.tune(auto_scheduler.TuningOptions(
        num_measure_trials=4, num_measures_per_round=4, runner=runner, verbose=0, builder=auto_scheduler.LocalBuilder(n_parallel=2),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    ))  # fmt: skip
    runner.close()
    lines = [json.loads(line) for line in open(log)]
    assert len(lines) == 4 and all(x["r"][1] == 0 and "class=" in x["v"] for x in lines), lines
    assert any("stage=full" in x["v"] for x in lines)


def test_a_device_that_is_not_there_is_named(fleet, phone):
    """The server says what adb says, and goes on trying."""
    p = fleet.serve("lost", "--device=adb:OTHER", ready=False)
    assert "device 'OTHER' not found" in p.wait("not registered")[0] + p.lines[-1]
    assert p.stop() == 0


@pytest.mark.parametrize("device", ["adb:", "adb:-s x", "ssh:-oProxyCommand=x", "phone", "adb:a b", ""])
def test_devices_are_checked(device):
    with pytest.raises(ValueError, match="adb:SERIAL"):
        check_device(device)


def at_work(folder):
    """Processes whose command names a folder."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if folder.encode() in entry.read_bytes():
                found.append(entry.parent.name)
    return found


def test_nothing_of_the_phone_is_left_running(fleet, phone):
    with rpc.request_remote("mate10pro", "127.0.0.1", fleet.port) as remote:
        assert remote.listdir() == [] and at_work(phone["PHONE_ROOT"])
    assert wait_until(lambda: not at_work(phone["PHONE_ROOT"])), at_work(phone["PHONE_ROOT"])
    assert "nestsmith-runner" in os.listdir(phone["PHONE_ROOT"] + "/data/local/tmp")
