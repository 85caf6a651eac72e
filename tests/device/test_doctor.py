"""What the doctor and the errors say when something is missing: each case in a process of its own."""

import os
import subprocess
import sys

import pytest

import nestsmith as ns

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))


def doctor(*args, **env):
    r = subprocess.run(
        [sys.executable, "-m", "nestsmith.doctor", *map(str, args)],
        capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=PACKAGE, **env),
    )
    return r.returncode, {x[9:28].strip(): (x[:9].strip(), x[28:]) for x in r.stdout.splitlines() if len(x) > 28}, r


def test_no_compiler():
    code, rows, r = doctor(CC="no-such-compiler", NESTSMITH_CACHE_DIR="")
    assert code == 1 and rows["C compiler"][0] == "missing" and "apt install gcc" in rows["C compiler"][1]


@pytest.mark.parametrize("library", ["/no/such/library.so", "libm.so.6"])
def test_no_driver_and_no_nvrtc(library):
    code, rows, r = doctor(NESTSMITH_LIBCUDA=library, NESTSMITH_NVRTC=library, NESTSMITH_CACHE_DIR="")
    assert code == 0, "the CPU is enough"
    assert rows["cuda"][0] == rows["NVRTC"][0] == "missing"
    if library.startswith("/"):
        assert "NESTSMITH_LIBCUDA=/no/such" in rows["cuda"][1] and "unset it" in rows["NVRTC"][1]
    else:
        assert "driver is too old: it lacks cu" in rows["cuda"][1] and "install driver 535" in rows["cuda"][1]
        assert "version 11.2 or newer is needed; `pip install" in rows["NVRTC"][1]


def test_errors_name_the_remedy():
    code = "import nestsmith as ns; ns.nd.array([1.0], ns.device('cuda', 0))"
    r = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env=dict(os.environ, PYTHONPATH=PACKAGE, NESTSMITH_LIBCUDA="libm.so.6"),
    )
    assert r.returncode != 0 and "install driver 535 or newer" in r.stderr


def test_log_of_another_gpu(tmp_path):
    line = (
        '{"i": [["[\\"k\\", [1]]", "cuda -keys=cuda,gpu -arch=sm_37", [-1, 16, 64, 49152, 65536, 1024, 8, 32], "", 0,'
        ' []], [[], []]], "r": [[0.1], 0, 1, 1], "v": "v0.6"}\n'
    )
    log = tmp_path / "log.json"
    log.write_text(line)
    _, rows, r = doctor("--log", log, NESTSMITH_CACHE_DIR="")
    assert rows["log"][0] == "low" and ("no such GPU here" in r.stdout or "tune here" in r.stdout)
    log.write_text("")
    assert "no valid record" in doctor("--log", log)[2].stdout
    assert "does not exist" in doctor("--log", tmp_path / "none")[2].stdout
