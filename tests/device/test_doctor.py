"""What the doctor and the errors say when something is missing: each case in a process of its own."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

import nestsmith as ns
from helpers import PATIENCE, made_driver

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))


def doctor(*args, before=(), **env):
    r = subprocess.run(
        [*before, sys.executable, "-m", "nestsmith.doctor", *map(str, args)],
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


# ---- a driver that answers as we like: the real loader, the real worker, no GPU ----


def tool(folder, name, text):
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A libcuda.so.1 with all functions that the loader wants. Environment: CUINIT, its answer; VERSION, CUDA version
    of the driver; CONTEXT, the answer to making a context."""
    return made_driver(tmp_path_factory.mktemp("driver"), """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int first;
static int env(const char *n, int v) { return getenv(n) ? atoi(getenv(n)) : v; }
int cuInit(unsigned f) { /* in a forked child CUDA_ERROR_NOT_INITIALIZED, as the real one */
  if (!first) first = getpid();
  return first == getpid() ? env("CUINIT", 0) : 3;
}
int cuDriverGetVersion(int *v) { *v = env("VERSION", 13000); return 0; }
int cuGetErrorName(int r, const char **s) { *s = "CUDA_ERROR_TEST"; return 0; }
int cuGetErrorString(int r, const char **s) { *s = "as the test says"; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "Test GPU"); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = 8ull << 30; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : a == 76 ? 0 : 64; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)8; return env("CONTEXT", 46); }
""")


@pytest.mark.parametrize("code, words", [
    (100, "no GPU is visible: check `nvidia-smi` and CUDA_VISIBLE_DEVICES"),
    (803, "driver and kernel module differ in version: restart the machine"),
])
def test_driver_without_gpu(driver, code, words):
    status, rows, _ = doctor(NESTSMITH_LIBCUDA=driver, CUINIT=str(code), NESTSMITH_CACHE_DIR="")
    assert status == 0 and rows["cuda"][0] == "missing" and words in rows["cuda"][1]


def test_cuda_in_a_forked_child(driver):
    """What the parent has opened, and opening it again, is refused with the remedy; the parent goes on."""
    code = textwrap.dedent("""
        import os, signal
        from nestsmith import _core
        dev = _core.Device(2, 0)
        dev.sync()
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            for act in (dev.sync, lambda: _core.Device(2, 0)):
                try:
                    act()
                    os._exit(1)
                except RuntimeError as e:
                    if "in use before this process was forked" not in str(e) or "spawn" not in str(e):
                        os._exit(2)
            del dev
            os._exit(0)
        print(os.waitpid(pid, 0)[1], dev.sync())
    """)
    env = dict(os.environ, PYTHONPATH=PACKAGE, NESTSMITH_LIBCUDA=driver, CONTEXT="0")
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, env=env)
    assert r.stdout == "0 None\n", r


def test_gpu_held_by_another_process(driver, tmp_path):
    """Exclusively: the driver refuses a context. Shared: its tool lists the process, the clock and the memory."""
    tool(tmp_path, "nvidia-smi", """case "$1" in
--query-compute-apps*) echo "4711, /usr/bin/train, 70000";;
--query-gpu*) echo "0, 345, 1980, 1000, 81559, 66, ${REASONS:-0x0000000000000000}";;
esac
""")
    path = f"{tmp_path}:{os.environ['PATH']}"
    _, rows, r = doctor(NESTSMITH_LIBCUDA=driver, PATH=path, NESTSMITH_CACHE_DIR="")
    assert rows["cuda 0"] == ("ok", "Test GPU, sm_90, 64 multiprocessors, 8.0 GiB")
    assert rows["worker on cuda"][0] == "broken" and "another process uses the GPU exclusively" in rows["worker on cuda"][1]
    assert "CUDA_VISIBLE_DEVICES" in rows["worker on cuda"][1]
    assert rows["GPU in use"][0] == "low" and "process 4711 /usr/bin/train, 70000 MiB" in rows["GPU in use"][1]
    assert rows["clock, GPU 0"][0] == "low" and "345 of 1980 MHz, 1000 of 81559 MiB free" in rows["clock, GPU 0"][1]
    assert "CUDA" not in r.stdout.splitlines()[-1]
    tool(tmp_path, "nvidia-smi", 'case "$1" in --query-gpu*) echo "0, 345, 1980, 80000, 81559, 66, $REASONS";; esac\n')
    for reasons, status in (("0x0000000000000001", "ok"), ("0x0000000000000020", "low")):
        rows = doctor(NESTSMITH_LIBCUDA=driver, PATH=path, NESTSMITH_CACHE_DIR="", REASONS=reasons)[1]
        assert rows["clock, GPU 0"][0] == status and "GPU in use" not in rows
    tool(tmp_path, "nvidia-smi", "exit 9\n")  # as where the kernel module is missing
    assert "clock, GPU 0" not in doctor(NESTSMITH_LIBCUDA=driver, PATH=path, NESTSMITH_CACHE_DIR="")[1]


def test_driver_older_than_the_compiler(driver):
    _, rows, _ = doctor(NESTSMITH_LIBCUDA=driver, VERSION="11040", NESTSMITH_CACHE_DIR="")
    if rows["NVRTC"][0] == "missing":
        pytest.skip("needs an NVRTC: pip install nvidia-cuda-nvrtc")
    assert rows["NVRTC"][0] == "low" and "newer than the driver's CUDA 11.4" in rows["NVRTC"][1]
    assert "update the driver or `pip install nvidia-cuda-nvrtc-cu11`" in rows["NVRTC"][1]


# ---- compilers, disks ----


def test_path_without_compiler(tmp_path):
    env = {k: v for k, v in os.environ.items() if k != "CC"}
    r = subprocess.run(
        [sys.executable, "-m", "nestsmith.doctor"], capture_output=True, text=True,
        env={**env, "PYTHONPATH": PACKAGE, "PATH": str(tmp_path), "NESTSMITH_CACHE_DIR": ""},
    )
    assert r.returncode == 1 and 'no C compiler: "cc" is not in PATH; install gcc (`apt install gcc' in r.stdout
    assert "program on cpu" not in r.stdout
    assert "\nrun       yes" in r.stdout and "\nbuild     no" in r.stdout and "\ntune      no" in r.stdout
    assert "\n  build CPU, tune CPU: C compiler: install gcc (`apt install gcc" in r.stdout


def test_compiler_that_fails(tmp_path):
    cc = tool(tmp_path, "cc", 'echo "fatal error: stdint.h: No such file or directory" >&2; exit 1\n')
    code, rows, _ = doctor(CC=str(cc), NESTSMITH_CACHE_DIR="")
    assert code == 1 and rows["C compiler"][0] == "broken" and "reinstall it (`apt install gcc libc6-dev`)" in rows["C compiler"][1]
    assert rows["program on cpu"][0] == "broken"


def test_compiler_that_makes_wrong_programs(tmp_path):
    cc = tool(tmp_path, "cc", """for f; do case "$f" in *.c) sed -i 's/1\\.0f/2.0f/g' "$f";; esac; done
exec cc "$@"
""")
    code, rows, _ = doctor(CC=str(cc), NESTSMITH_CACHE_DIR="")
    assert code == 1 and rows["program on cpu"][0] == "broken" and "wrong result" in rows["program on cpu"][1]


def test_full_disk(tmp_path):
    """A small file system of our own, filled to the last byte."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs user namespaces (`unshare -rm`)")
    mount = f"mount -t tmpfs -o size=1m none {tmp_path} && (cat /dev/zero > {tmp_path}/fill 2>/dev/null; cd {tmp_path} && exec \"$@\")"
    before = ("unshare", "-rm", "sh", "-c", mount, "sh")
    _, rows, r = doctor(before=before, NESTSMITH_CACHE_DIR=str(tmp_path / "cache"))
    assert rows["cache"][0] == "low" and "0.0 GiB free" in rows["cache"][1] and "NESTSMITH_CACHE_MB" in rows["cache"][1], r.stderr
    assert rows["folder"][0] == "low" and "df -h ." in rows["folder"][1]
    assert rows["program on cpu"][0] in ("ok", "low"), "programs still compile and run"


def test_cache_that_may_not_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    _, rows, _ = doctor(NESTSMITH_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert rows["cache"][0] == "broken" and "set NESTSMITH_CACHE_DIR to a directory of yours" in rows["cache"][1]
