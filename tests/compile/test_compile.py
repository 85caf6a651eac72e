"""The compile stage: what is cached, what a compiler may take, what is known of a program before it runs."""

import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import nestsmith as ns
from helpers import PATIENCE
from nestsmith import _core, auto_scheduler, relay, te
from nestsmith.contrib import graph_executor

CPU = "llvm"
CUDA = _core.Target("cuda", sm=90)
HEAD = 'extern "C" __global__ void __launch_bounds__(256) '


def network():
    x = relay.var("x", shape=(1, 8, 8, 16), dtype="float32")
    w = relay.var("w", shape=(3, 3, 16, 32), dtype="float32")
    d = relay.var("d", shape=(10, 2048), dtype="float32")
    y = relay.nn.relu(
        relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=32, padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")
    )
    y = relay.nn.dense(relay.nn.batch_flatten(y), d)
    mod = ns.IRModule.from_expr(relay.Function([x, w, d], y))
    rng = np.random.default_rng(0)
    params = {
        "w": rng.integers(-2, 3, (3, 3, 16, 32)).astype("float32"),
        "d": rng.integers(-2, 3, (10, 2048)).astype("float32"),
    }
    return mod, params


@pytest.mark.some(1)
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_the_final_build_compiles_nothing_that_was_measured(target, tmp_path, monkeypatch):
    if target == "opencl" and not _core.device_exists(4, 0)[0]:
        pytest.skip("no OpenCL device")
    monkeypatch.setenv("NESTSMITH_CACHE_DIR", "")  # the memory of the process is enough
    done, cc = tmp_path / "done", os.environ.get("CC") or "cc"  # the same compiler all the time: another one compiles anew
    monkeypatch.setenv("CC", compiler(tmp_path / "cc", f'[ -e {done} ] && exit 1\nexec {cc} "$@"'))
    mod, params = network()
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, target)
    log = str(tmp_path / "log.json")
    tuner = auto_scheduler.TaskScheduler(tasks, weights)
    options = auto_scheduler.TuningOptions(
        num_measure_trials=2 * len(tasks), verbose=0, measure_callbacks=[auto_scheduler.RecordToFile(log)],
        runner=auto_scheduler.LocalRunner(timeout=PATIENCE),  # PoCL's compiler runs within it
    )  # fmt: skip
    tuner.tune(options)
    done.touch()
    with (
        auto_scheduler.ApplyHistoryBest(log),
        ns.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}),
    ):
        lib = relay.build(mod, target=target, params=params)
    kernels = lib.get_lib().kernels
    tuned = {n: k for n, k in kernels.items() if k.origin == "tuned"}
    assert len(tuned) == len(tasks)
    if target == "llvm":
        assert all(k.cached for k in tuned.values())
    for name, k in kernels.items():
        assert _core.BUILD_NAME not in k.source and _core.BUILD_NAME not in k.manifest and name in k.source
    m = graph_executor.GraphModule(lib["default"](ns.device(target, 0)))
    data = np.random.default_rng(1).integers(-2, 3, (1, 8, 8, 16)).astype("float32")
    m.set_input("x", data)
    m.run()
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0)))
    conv = sum(padded[:, i : i + 8, j : j + 8] @ params["w"][i, j] for i in range(3) for j in range(3))
    want = np.maximum(conv, 0).reshape(1, -1) @ params["d"].T
    assert np.allclose(m.get_output(0).numpy(), want, atol=1e-2)  # OpenCL: Winograd rounds


def compiler(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_files_that_the_compiler_is_told_to_read_count_in_the_cache(tmp_path):
    """With CC="cc -include FILE" a changed file makes another program; each is asked for by a process of its own."""
    header, cached = tmp_path / "one.h", []
    script = "import sys; from nestsmith import _core; "
    script += "print(_core.build('llvm', 'int x = N;', 60.0, sys.argv[1], 'cc -include ' + sys.argv[2])[2])"
    for text in ("#define N 1\n", "#define N 1\n", "#define N 20\n"):
        header.write_text(text)
        os.utime(header, (1, 1))
        command = [sys.executable, "-c", script, str(tmp_path / "cache"), str(header)]
        cached.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert cached == ["False\n", "True\n", "False\n"]


def test_the_limit_of_a_compiler_is_processor_time(tmp_path):
    """Waiting does not count (the machine is busy with other things), up to four times the limit; computing does."""
    (tmp_path / "made.so").write_bytes(_core.build(CPU, "int x;")[0])
    copies = f'while [ "$1" != -o ]; do shift; done; exec cp {tmp_path}/made.so "$2"'  # the time of a real one depends on the machine
    binary, seconds, _ = _core.build(CPU, "int x;", 2.5, "", compiler(tmp_path / "waits", "sleep 3; " + copies))
    assert binary[:4] == b"\x7fELF" and seconds > 3
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="timed out"):
        _core.build(CPU, "int x;", 0.5, "", compiler(tmp_path / "sleeps", "sleep 600"))
    assert 2 <= time.monotonic() - begin < PATIENCE
    used = os.times().children_user
    with pytest.raises(RuntimeError, match="timed out"):
        _core.build(CPU, "int x;", 1.0, "", compiler(tmp_path / "spins", "while :; do :; done"))
    assert os.times().children_user - used < 4


def test_why_a_compiler_was_killed(tmp_path):
    """The signal is the same whether time or memory ran out; only the one who set the limit can tell."""
    spins = "trap '' XCPU; while :; do :; done"  # the second signal ends it
    with pytest.raises(RuntimeError, match="timed out.*longer than 1 s"):
        _core.build(CPU, "int x;", 1.0, "", compiler(tmp_path / "spins", spins))
    driver = f"sh -c \"{spins}\"; echo 'cc: fatal error: Killed signal terminated program cc1'; exit 1"
    with pytest.raises(RuntimeError, match="timed out"):
        _core.build(CPU, "int x;", 1.0, "", compiler(tmp_path / "driver", driver))
    with pytest.raises(RuntimeError, match="was killed.*out of memory"):
        _core.build(CPU, "int x;", 9.0, "", compiler(tmp_path / "killed", "kill -9 $$"))
    with pytest.raises(RuntimeError, match="was killed.*out of memory"):
        _core.build(CPU, "int x;", 9.0, "", compiler(tmp_path / "part", "echo " + driver.split("; echo ")[1]))
    with pytest.raises(RuntimeError, match="signal 11") as e:
        _core.build(CPU, "int x;", 9.0, "", compiler(tmp_path / "crashes", "kill -11 $$"))
    assert "memory" not in str(e.value)


def test_the_memory_of_the_process(tmp_path, monkeypatch):
    monkeypatch.setenv("NESTSMITH_CACHE_DIR", "")
    source = f"int test_{time.time_ns()};"
    first, _, cached = _core.build(CPU, source)
    assert not cached
    second, _, cached = _core.build(CPU, source)
    assert cached and second == first
    assert not _core.build(CPU, source, 0, "")[2]  # no cache was asked for
    assert not _core.build(_core.Target("llvm", fast_math=2), source)[2]  # other flags


def test_another_compiler_in_the_same_process_compiles_anew(tmp_path, monkeypatch):
    """What CC says now decides, also for a program that the memory of the process holds; a file that it names may change, too."""
    monkeypatch.setenv("NESTSMITH_CACHE_DIR", "")
    cc, wrapper = os.environ.get("CC") or "cc", tmp_path / "compiler"
    source = f"int test_{time.time_ns()} = VALUE;"
    made = []

    def build():
        binary, _, cached = _core.build(CPU, source)
        assert cached == (binary in made)
        made.append(binary)

    for value in (1, 2, 1):
        monkeypatch.setenv("CC", f"{cc} -DVALUE={value}")
        build()
    for value in (3, 40):
        monkeypatch.setenv("CC", compiler(wrapper, f'exec {cc} -DVALUE={value} "$@"'))
        build()
        build()
    assert len(set(made)) == 4


def test_the_disk_cache_is_read_by_another_process(tmp_path, monkeypatch):
    import subprocess
    import sys

    monkeypatch.setenv("NESTSMITH_CACHE_DIR", str(tmp_path))
    source = f"int test_{time.time_ns()};"
    assert not _core.build(CPU, source)[2]
    code = f"from nestsmith import _core; print(_core.build('llvm', {source!r})[2])"
    env = dict(os.environ, PYTHONPATH=str(pathlib.Path(ns.__file__).parents[1]))
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert out.stdout == "True\n"


# ---- what a cubin says (NVRTC needs no GPU) ----


def cubin(body, head=HEAD):
    there, why = _core.build_available(CUDA)
    if not there:
        pytest.skip(why)
    return _core.build(CUDA, head + body, 0, "")[0]


def test_report_of_a_cubin():
    body = "k(float *x) { __shared__ float s[2048]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[0] = s[255 - threadIdx.x]; }"
    r = _core.build_report(CUDA, cubin(body))
    assert r["kernels"] == 1 and r["shared_bytes"] == 8192 and r["threads"] == 256 and r["local_bytes"] == 0
    assert 4 <= r["regs"] <= 40 and r["blocks"] == 8 and r["occupancy"] == 1
    r = _core.build_report(CUDA, cubin(body), 100 * 1024)  # dynamic shared memory decides
    assert r["blocks"] == 2 and r["occupancy"] == 0.25
    assert _core.build_report(CPU, b"anything") is None
    binary = cubin(body)
    for cut in range(0, len(binary), max(1, len(binary) // 200)):
        _core.build_report(CUDA, binary[:cut])


def test_a_killed_compiler_leaves_no_file(tmp_path, new_children):
    there, why = _core.build_available(CUDA)
    if not there:
        pytest.skip(why)
    compiler = _core.Compiler()
    assert compiler.run(CUDA, HEAD + "k(float *x) { x[0] = 1; }", 300, str(tmp_path), None)[0] == 0
    (pid,) = new_children("worker.py")
    (tmp_path / f".tmp-{pid}-half").write_bytes(b"what it was writing")
    (tmp_path / ".tmp-1-other").write_bytes(b"what somebody else writes")
    os.kill(pid, signal.SIGKILL)
    code, _, text, *_ = compiler.run(CUDA, HEAD + "k(float *x) { x[0] = 2; }", 300, str(tmp_path), None)
    assert code == 2 and "worker died" in text
    assert [f.name for f in tmp_path.glob(".tmp-*")] == [".tmp-1-other"]
    assert compiler.run(CUDA, HEAD + "k(float *x) { x[0] = 2; }", 300, str(tmp_path), None)[0] == 0


SPILLS = """k(float *x) { float a[1024]; for (int i = 0; i < 1024; i++) a[i] = x[i * 7 + threadIdx.x];
  for (int i = 0; i < 1024; i++) x[i] = a[(int)x[i] & 1023]; }"""


def test_programs_that_live_in_local_memory_are_not_run():
    binary = cubin(SPILLS)
    assert _core.build_report(CUDA, binary)["local_bytes"] >= 4096


def test_names_are_put_into_cubins():
    binary = cubin(f"{_core.BUILD_NAME}_kernel0(float *x) {{ x[0] = 1; }}")
    named = _core.build_rename(binary, "tvmgen_default_fused_add")
    assert len(named) == len(binary) and b"ns_program" not in named
    assert b"\0tvmgen_default_fused_add_kernel0\0" in named
    assert _core.build_report(CUDA, named) == _core.build_report(CUDA, binary)


@auto_scheduler.register_workload
def build_test_matmul():
    a, b = ns.te.placeholder((64, 64), name="a"), ns.te.placeholder((64, 64), name="b")
    k = ns.te.reduce_axis((0, 64), name="k")
    return [a, b, ns.te.compute((64, 64), lambda i, j: ns.te.sum(a[i, k] * b[k, j], axis=k), name="c")]


def test_print_best_reports_what_a_program_takes(tmp_path):
    there, why = _core.build_available(CUDA)
    if not there:
        pytest.skip(why)
    task = auto_scheduler.SearchTask(func=build_test_matmul, args=(), target=ns.target.Target("cuda -arch=sm_90"))
    state = _core.Policy(task.compute_dag, task.engine_target(), {}, 1, 1).round(1)[0][0]
    inp = auto_scheduler.MeasureInput(task, state)
    res = auto_scheduler.MeasureResult([1e-3], 0, "", 0.1, 1)
    auto_scheduler.save_records(str(tmp_path / "log"), [inp], [res])
    text = task.print_best(str(tmp_path / "log"), "report")
    assert text.startswith("kernels 1; the most of each: ") and "occupancy" in text
    cpu = auto_scheduler.SearchTask(func=build_test_matmul, args=(), target="llvm")
    with pytest.raises(ValueError, match="report"):
        cpu._report(state)


# ---- the processor of a target ----


@ns.auto_scheduler.register_workload
def vector_plus_one(n):
    a = te.placeholder((n,), name="A")
    return [a, te.compute((n,), lambda i: a[i] + 1, name="B")]


def flags_of(tmp_path, target):
    """What the C compiler is called with."""
    seen = tmp_path / "seen"
    cc = compiler(tmp_path / "cc", f'echo "$@" > {seen}; exec cc "$@"')
    _core.build(target, "int x;", 20, "", cc)
    return seen.read_text().split()


def test_the_processor_of_a_target_reaches_the_compiler(tmp_path):
    x86 = platform.machine() in ("x86_64", "i686")
    name, option = ("x86-64-v2", "-march=") if x86 else ("generic", "-mcpu=")
    assert ns.target.Target(f"llvm -mcpu={name}").engine() == _core.Target("llvm", cpu=name)
    assert option + name in flags_of(tmp_path, _core.Target("llvm", cpu=name))
    if platform.machine() == "x86_64":  # the name that LLVM has for any of them
        assert "-march=x86-64" in flags_of(tmp_path, _core.Target("llvm", cpu="generic"))
    for native in ("llvm", _core.Target("llvm", cpu=""), _core.Target("llvm", cpu="native")):
        assert "-march=native" in flags_of(tmp_path, native)


def test_a_processor_that_the_compiler_does_not_know(tmp_path):
    with pytest.raises(RuntimeError, match="does not know the processor 'pentium-99' of the target"):
        _core.build(_core.Target("llvm", cpu="pentium-99"), "int x;")
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    with pytest.raises(RuntimeError, match="does not know the processor 'pentium-99'"):
        ns.build(te.create_schedule(b.op), [a, b], "llvm -mcpu=pentium-99")
    task = ns.auto_scheduler.create_task(vector_plus_one, (8,), "llvm -mcpu=pentium-99")
    with pytest.raises(RuntimeError, match="candidates for llvm cannot be compiled: .* 'pentium-99'"):
        task.tune(ns.auto_scheduler.TuningOptions(4, verbose=0))  # at once, not as the result of every candidate
    for bad in ("a b", "x" * 32, "-mcpu=;"):
        with pytest.raises(ValueError, match="no name of a processor"):
            _core.Target("llvm", cpu=bad)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 processors")
def test_programs_for_another_processor():
    """Vectors are as wide as its registers; the program is another one and right."""
    n = 64
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name="C")
    s = te.create_schedule(c.op)
    s[c].reorder(k, s[c].op.axis[1])
    s[c].vectorize(s[c].op.axis[1])
    x = np.arange(n * n, dtype="float32").reshape(n, n) % 7
    widths = {}
    for name in ("x86-64", "haswell", "skylake-avx512"):
        source = ns.build(s, [a, b, c], f"llvm -mcpu={name}").get_source()
        widths[name] = max(map(int, re.findall(r"vector_size\((\d+)\)", source)))
    assert widths == {"x86-64": 16, "haswell": 32, "skylake-avx512": 64}
    f = ns.build(s, [a, b, c], "llvm -mcpu=x86-64")
    out = ns.nd.array(np.zeros((n, n), "float32"))
    f(ns.nd.array(x), ns.nd.array(x.T.copy()), out)
    assert (out.numpy() == x @ x.T).all()
