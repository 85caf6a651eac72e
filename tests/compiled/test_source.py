"""A network as source: the folder builds without the package, without a warning, and gives the package's bytes."""

import ctypes
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, relay


def network():
    """Weights, two outputs, a concatenation whose parts kernels write, a reshape, an integer input that is an index."""
    x, i = relay.var("x", shape=(1, 4, 8, 8)), relay.var("odd name", shape=(3,), dtype="int32")
    w = relay.const(np.random.default_rng(1).standard_normal((6, 4, 3, 3)).astype("float32") / 4)
    y = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    z = relay.concatenate([y, relay.exp(x)], axis=1)
    return relay.Function([x, i], relay.Tuple([relay.nn.softmax(relay.reshape(z, (10, 64))), relay.take(z, i, axis=1, mode="clip")]))


def values():
    rng = np.random.default_rng(2)
    return {"x": rng.standard_normal((1, 4, 8, 8)).astype("float32"), "odd name": np.array([1, 0, 9], "int32")}


def ran(folder, given, outputs, *make):
    """The outputs of the folder's program."""
    done = subprocess.run(["make", "-s", *make], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout + done.stderr == "", done.stdout + done.stderr
    listed = subprocess.run(["./network"], cwd=folder, capture_output=True, text=True, check=False).stderr
    assert all(f"input {name}: {v.dtype}" in listed for name, v in given.items()), listed
    names = [f"{k}.bin" for k in range(len(given) + len(outputs))]
    for name, value in zip(names, given.values()):
        value.tofile(folder / name)
    subprocess.run(["./network", *names], cwd=folder, check=True)
    return [np.fromfile(folder / n, o.dtype).reshape(o.shape) for n, o in zip(names[len(given) :], outputs)]


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_it_gives_the_same_bytes(target, tmp_path):
    if target == "opencl" and not ns.device("opencl", 0).exist:
        pytest.skip("no OpenCL device")
    compiled = ns.compile(network(), target=target, guess=False, verbose=0)
    assert compiled.export_source(tmp_path / "net") == str(tmp_path / "net")
    want = compiled(**values())
    got = ran(tmp_path / "net", values(), want, "OPENCL=-l:libOpenCL.so.1")
    assert all(np.array_equal(a, b) for a, b in zip(got, want))
    wrong = subprocess.run(["./network", "0.bin", "none.bin", "a", "b"], cwd=tmp_path / "net", capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "cannot read none.bin" in wrong.stderr


def test_cuda_compiles_without_warnings(tmp_path):
    """The C part with the C compiler, kernels with NVRTC, whose log is empty."""
    if not _core.build_available("cuda")[0]:
        pytest.skip("no NVRTC")
    lib = relay.build(ns.IRModule.from_expr(network()), "cuda -arch=sm_90")
    lib.export_source(tmp_path)
    subprocess.run("cc -std=c11 -Wall -Wextra -Werror -fsyntax-only *.c", shell=True, cwd=tmp_path, check=True)
    made = (tmp_path / "Makefile").read_text()
    files = sorted((tmp_path / "kernels").glob("*.cu"))
    assert len(files) == len(lib.kernels) and all(f"kernels/{f.stem}.cubin" in made for f in files)
    for f in files:
        assert nvrtc_log(f) == "", f.name


def nvrtc_log(path):
    """Warnings of NVRTC, which the engine opens from where it finds it."""
    where = _core.build_available("cuda")[1].partition(" in ")[2]
    found = sorted(pathlib.Path(where).glob("libnvrtc.so.1*")) if where else ["libnvrtc.so"]
    lib, program, n = ctypes.CDLL(os.fspath(found[0])), ctypes.c_void_p(), ctypes.c_size_t()
    assert lib.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None) == 0
    options = [b"--gpu-architecture=sm_90", b"--std=c++17", *(b"--include-path=" + os.fsencode(pathlib.Path(where, d)) for d in (
        "../include", "../../include", "../../../include", "../../cuda_runtime/include"))]  # fmt: skip
    failed = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(n))
    log = ctypes.create_string_buffer(n.value + 1)
    lib.nvrtcGetProgramLog(program, log)
    assert failed == 0, log.value.decode()
    return log.value.decode().strip()


@pytest.mark.full
def test_resnet18(tmp_path):
    mod, params = relay.testing.resnet.get_workload(num_layers=18, batch_size=1)
    compiled = ns.compile((mod, params), target="llvm", guess=False, verbose=0)
    compiled.export_source(tmp_path)
    given = {"data": np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("float32")}
    want = compiled(**given)
    assert np.array_equal(ran(tmp_path, given, [want], f"-j{os.cpu_count()}")[0], want)
    shutil.rmtree(tmp_path)
    relay.build(mod, "cuda -arch=sm_80", params=params).export_source(tmp_path)
    assert all(nvrtc_log(f) == "" for f in (tmp_path / "kernels").glob("*.cu"))
