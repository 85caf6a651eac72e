"""Texts and manifests from Python; C texts are compiled and run against NumPy."""

import ctypes
import json
import shutil
import subprocess

import numpy as np
import pytest

from nestsmith import _core, te


def dense(n=6, m=40, k=8):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((n, m), lambda i, j: te.max(c[i, j], te.const(0.0, "float32")), name="D")
    return _core.ComputeDAG([a, b, d])


def bound(dag):
    """Every stage a kernel of its own."""
    state = _core.State(dag)
    for stage in (3, 2):
        state.apply("FU", stage, [0, 1])
        state.apply("SP", stage, 0, 240, [32], 1)
        state.apply("AN", stage, 0, 5)
        state.apply("AN", stage, 1, 6)
    return state


def aligned(shape):
    raw = np.zeros(int(np.prod(shape)) * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + int(np.prod(shape)) * 4].view(np.float32).reshape(shape)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_c_text_runs(tmp_path):
    state = _core.State(dense())
    state.apply("AN", 3, 0, 3)
    state.apply("AN", 3, 1, 2)
    state.apply("CA", 2, 3, 0)
    source, manifest = _core.program(state, None, "c", "my_dense")
    m = json.loads(manifest)
    assert m["format"] == 1 and m["target"] == "c" and m["entry"] == "my_dense" and len(m["kernels"]) == 1
    assert [(a["name"], a["shape"], a["bytes"], a["read_only"]) for a in m["args"]] == [
        ("A", [6, 8], 192, True),
        ("B", [8, 40], 1280, True),
        ("D", [6, 40], 960, False),
    ]
    (tmp_path / "p.c").write_text(source)
    flags = ["-O2", "-Wall", "-Wno-unused", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", tmp_path / "p.so", tmp_path / "p.c", "-lm"], check=True)
    rng = np.random.default_rng(1)
    x = [aligned(a["shape"]) for a in m["args"]]
    for v in x[:2]:
        v[:] = rng.integers(-4, 5, v.shape)
    work = [aligned((w["bytes"] // 4,)) for w in m["work"]]
    pointers = [(ctypes.c_void_p * max(len(v), 1))(*[a.ctypes.data for a in v]) for v in (x, work)]
    assert ctypes.CDLL(str(tmp_path / "p.so")).my_dense(*pointers, None, None) == 0
    np.testing.assert_array_equal(x[2], np.maximum(x[0] @ x[1], 0))


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_kernels_and_manifest_agree(target):
    source, manifest = _core.program(bound(dense()), None, target, "f")
    m = json.loads(manifest)
    assert m["entry"] == "f" and [k["name"] for k in m["kernels"]] == ["f_kernel0", "f_kernel1"]
    assert all(k["name"] + "(" in source for k in m["kernels"])
    assert [k["grid"] for k in m["kernels"]] == [[8, 1, 1]] * 2 and [k["block"] for k in m["kernels"]] == [
        [32, 1, 1]
    ] * 2
    assert [w["bytes"] for w in m["work"]] == [960]
    assert {"kind": "work", "index": 0, "read_only": False} in m["kernels"][0]["params"]
    assert {"kind": "work", "index": 0, "read_only": True} in m["kernels"][1]["params"]
    assert {"kind": "arg", "index": 2, "read_only": False} in m["kernels"][1]["params"]


def test_an_unbound_stage_is_no_gpu_program():
    with pytest.raises(ValueError, match="bind"):
        _core.program(_core.State(dense()), None, "cuda", "main")


def test_fast_math_chooses_the_approximate_functions():
    a = te.placeholder((64,), name="A")
    dag = _core.ComputeDAG([a, te.compute((64,), lambda i: te.exp(a[i]), name="E")])
    state = _core.State(dag)
    state.apply("AN", 1, 0, 6)
    assert "__expf(" in _core.program(state, None, _core.Target("cuda", fast_math=1), "main")[0]
    precise = _core.program(state, None, _core.Target("cuda", fast_math=0), "main")[0]
    assert "expf(" in precise and "__expf" not in precise
    assert "exp(" in _core.program(state, None, "opencl", "main")[0]
