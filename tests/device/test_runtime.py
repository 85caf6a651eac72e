# ruff: noqa: E501
"""Devices, arrays, modules, targets and helpers as users see them."""

import ctypes
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, te
from nestsmith.auto_scheduler.compute_dag import ComputeDAG
from nestsmith.contrib import cc, ndk, tar, utils
from nestsmith.runtime.module import BenchmarkResult, OperatorModule
from nestsmith.target import Target

DEVICES = [ns.cpu(0)] + ([ns.opencl(0)] if ns.opencl(0).exist else []) + ([ns.cuda(0)] if ns.cuda(0).exist else [])
DTYPES = [
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bool",
]


def test_device_names():
    assert ns.device("cuda -keys=cuda,gpu", 1) == ns.cuda(1) == ns.gpu(1) == ns.context("cuda:1")
    assert ns.device("llvm") == ns.cpu() and ns.cl(2) == ns.opencl(2) and repr(ns.cuda(3)) == "cuda(3)"
    assert ns.device("vulkan").device_type == 7 and not ns.device("vulkan").exist
    for bad in ("nothing", "cuda:x", "cuda:1:2", "", None):
        with pytest.raises(ValueError):
            ns.device(bad)
    assert ns.cpu(0).exist and not ns.cpu(5).exist and not ns.cuda(63).exist
    assert ns.cpu().device_name and ns.cpu().multi_processor_count >= 1 and ns.cuda(63).warp_size is None
    assert pickle.loads(pickle.dumps(ns.cuda(2))) == ns.cuda(2)
    with pytest.raises(RuntimeError, match="cuda"):
        ns.nd.empty((1,), device=ns.cuda(63))


@pytest.mark.parametrize("dev", DEVICES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_array_round_trip(dev, dtype):
    a = (np.random.rand(3, 5, 2) * 100).astype(dtype)
    x = ns.nd.array(a, dev)
    assert x.shape == (3, 5, 2) and x.dtype == dtype and x.device == x.ctx == dev
    assert (x.numpy() == a).all() and x.asnumpy().dtype == a.dtype
    assert (ns.nd.array(a.transpose(2, 0, 1), dev).numpy() == a.transpose(2, 0, 1)).all()
    assert (x.copyto(ns.cpu()).numpy() == a).all()
    y = ns.nd.empty(a.shape, dtype, dev)
    x.copyto(y)
    assert (y.numpy() == a).all()


def test_array_rules():
    x = ns.nd.empty((2, 3))
    x[:] = np.arange(6.0).reshape(2, 3)
    assert x.dtype == "float32" and (x.numpy() == np.arange(6).reshape(2, 3)).all()
    x[:] = 4
    assert (x.numpy() == 4).all()
    with pytest.raises(ValueError, match="whole array"):
        x[0] = 1
    with pytest.raises(ValueError, match=r"\(3, 2\).*\(2, 3\)"):
        x.copyfrom(np.zeros((3, 2)))
    with pytest.raises(ValueError):
        ns.nd.empty((-1,))
    with pytest.raises(ValueError, match="dtype"):
        ns.nd.empty((1,), "complex64")
    with pytest.raises(ValueError):
        ns.nd.array(np.array(["text"]))
    assert ns.nd.array(np.zeros((0, 4))).numpy().shape == (0, 4) and ns.nd.array(5.0).numpy() == 5.0
    assert ns.nd.empty((3,), "bfloat16").numpy().dtype == np.uint16
    y = pickle.loads(pickle.dumps(ns.nd.array(np.arange(3, dtype="int64"))))
    assert y.dtype == "int64" and (y.numpy() == np.arange(3)).all()
    with pytest.raises(MemoryError):
        ns.nd.empty((1 << 50,))
    with pytest.raises(MemoryError):
        ns.nd.empty((1 << 62, 8))


def test_dlpack():
    a = ns.nd.array(np.arange(6, dtype="float32").reshape(2, 3))
    b = np.from_dlpack(a)
    assert (b == a.numpy()).all()
    x = ns.nd.from_dlpack(a.to_dlpack())
    x[:] = 9
    assert (a.numpy() == 9).all() and (b == 9).all()
    del a, x
    assert (b == 9).all()
    for dtype in DTYPES:
        assert np.from_dlpack(ns.nd.empty((2,), dtype)).dtype == dtype
    torch = pytest.importorskip("torch")
    t = torch.arange(12.0).reshape(3, 4)
    n = ns.nd.from_dlpack(t)
    t[0, 0] = 7
    assert n.numpy()[0, 0] == 7 and (torch.from_dlpack(n) == t).all()
    with pytest.raises(ValueError, match="contiguous"):
        ns.nd.from_dlpack(t.T)


class PageLocked:
    """An array as PyTorch hands out memory of the host that CUDA has locked: on DLPack's device 3, here or in the tensor, too."""

    def __init__(self, array, also_in_tensor):
        self.array, self.also_in_tensor = array, also_in_tensor

    def __dlpack_device__(self):
        return 3, 0

    def __dlpack__(self, **_):
        capsule = self.array.__dlpack__()
        address = ctypes.pythonapi.PyCapsule_GetPointer
        address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        device = ctypes.c_int32.from_address(address(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p))
        assert device.value == 1
        device.value = 3 if self.also_in_tensor else 1
        return capsule


@pytest.mark.parametrize("also_in_tensor", [False, True])
def test_dlpack_of_page_locked_memory(also_in_tensor):
    a = np.arange(6, dtype="float32")
    b = ns.nd.from_dlpack(PageLocked(a, also_in_tensor))
    a[0] = 7
    assert b.device == ns.cpu(0) and b.numpy()[0] == 7


def matmul():
    a, b = te.placeholder((64, 32), name="A"), te.placeholder((32, 48), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((64, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return _core.State(ComputeDAG([a, b, c])), [a, b, c]


def arrays(dev=ns.cpu(0)):
    a, b = (np.random.randint(0, 5, s).astype("float32") for s in ((64, 32), (32, 48)))
    return a @ b, [ns.nd.array(a, dev), ns.nd.array(b, dev), ns.nd.empty((64, 48), device=dev)]


def test_build_run_time():
    state, args = matmul()
    want, x = arrays()
    mod = ns.build(state, args, "llvm", name="mm")
    mod(*x)
    assert (x[2].numpy() == want).all() and mod.implements_function("mm") and mod["mm"] is mod.entry_func
    for wrong, error in (((x[0],), ValueError), ((x[1], x[0], x[2]), ValueError), ((1, 2, 3), TypeError)):
        with pytest.raises(error):
            mod(*wrong)
    r = mod.time_evaluator(mod.entry_name, ns.cpu(), number=3, repeat=4, min_repeat_ms=2)(*x)
    assert len(r.results) == 4 and 0 < r.min <= r.median <= r.max < 1
    assert (
        mod.time_evaluator("mm", ns.cpu(), number=1, cache_flush_bytes=1, f_preproc="cache_flush_cpu_non_first_arg")(
            *x
        ).mean
        > 0
    )
    with pytest.raises(AttributeError, match="nothing"):
        mod["nothing"]
    with pytest.raises(ValueError):
        mod.get_function(3)
    with pytest.raises(ValueError):
        mod.time_evaluator("mm", ns.cpu(), number=0)
    assert "int32_t mm(" in mod.get_source()
    with Target("c"):
        x[2][:] = 0
        ns.build(state, [args[2], args[0], args[1]])(x[2], x[0], x[1])  # the caller's order counts
    assert (x[2].numpy() == want).all()


@pytest.mark.parametrize("dev", DEVICES, ids=str)
def test_te_schedule(dev):
    _, (a, b, c) = matmul()
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    if dev.device_type == 1:
        io, ii = s[c].split(i, factor=8)
        s[c].parallel(io)
        s[c].vectorize(j)
        target = "llvm"
    else:
        s[c].bind(i, te.thread_axis("blockIdx.x"))
        s[c].bind(j, te.thread_axis("threadIdx.x"))
        target = "cuda" if dev.device_type == 2 else "opencl"
    mod = ns.build(s, [b, c, a], target, name="mm")
    want, x = arrays(dev)
    mod(x[1], x[2], x[0])
    assert (x[2].numpy() == want).all()
    assert mod.time_evaluator("mm", dev, number=2)(x[1], x[2], x[0]).mean > 0
    if dev.device_type != 1:
        assert "mm" in mod.imported_modules[0].get_source() and mod.get_source() == ""
        with pytest.raises(ValueError, match="threads"):
            wide = te.create_schedule(c.op)
            f = wide[c].fuse(*wide[c].op.axis)
            wide[c].bind(f, te.thread_axis("threadIdx.x"))
            ns.build(wide, [a, b, c], Target("cuda -arch=sm_90"))


@pytest.mark.parametrize("name", ["lib.so", "lib.tar"])
def test_export_and_load(tmp_path, name):
    state, args = matmul()
    path = str(tmp_path / name)
    ns.build(state, args, "llvm").export_library(path)
    want, x = arrays()
    ns.runtime.load_module(path)(*x)
    assert (x[2].numpy() == want).all()
    code = f"import nestsmith as ns; print(ns.runtime.load_module({path!r}).entry_func.manifest['entry'])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "default_function"
    )


def test_export_rules(tmp_path, monkeypatch):
    state, args = matmul()
    mod = ns.build(state, args)
    mod.export_library(str(tmp_path / "a.so"), cc.create_shared)
    mod.export_library(str(tmp_path / "b.so"), fcompile=cc.cross_compiler("gcc"))
    with pytest.raises(RuntimeError, match="no-such-gcc"):
        mod.export_library(str(tmp_path / "c.so"), cc.cross_compiler("no-such-gcc"))
    for v in ("NESTSMITH_NDK_CC", "TVM_NDK_CC"):
        monkeypatch.delenv(v, raising=False)
    with pytest.raises(RuntimeError, match="NDK_CC"):
        mod.export_library(str(tmp_path / "d.so"), ndk.create_shared)
    with pytest.raises(ValueError, match="no such file"):
        ns.runtime.load_module(str(tmp_path / "none.so"))
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ValueError):
        ns.runtime.load_module(str(tmp_path / "text.so"))


def test_cuda_program_compiles_without_a_gpu():
    if not _core.build_available("cuda")[0]:
        pytest.skip("no NVRTC")
    source = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = 1; }'
    binary, _, _ = _core.build(_core.Target("cuda", sm=90), source)
    assert binary[:4] == b"\x7fELF"
    with pytest.raises(RuntimeError, match="undefined"):
        _core.build(_core.Target("cuda", sm=90), source.replace("= 1", "= y"))
    with pytest.raises(ValueError, match="sm_35"):
        _core.build(_core.Target("cuda", sm=35), source)


def test_benchmark_text():
    r = BenchmarkResult([0.0100003, 0.0099944, 0.0100327, 0.0099738])
    head, row = str(r).split("\n")[1:]
    assert head == " mean (ms)   median (ms)    max (ms)     min (ms)     std (ms)  "
    assert row == "  10.0003       9.9974      10.0327       9.9738       0.0211   " + " " * 15
    assert repr(r).startswith("BenchmarkResult(min=") and r.std == np.std(r.results)


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("cuda -arch=sm_86", "cuda -keys=cuda,gpu -arch=sm_86 -max_num_threads=1024 -thread_warp_size=32"),
        (
            "cuda -arch sm_80 -model=a100",
            "cuda -keys=cuda,gpu -arch=sm_80 -max_num_threads=1024 -model=a100 -thread_warp_size=32",
        ),
        (
            "cuda --arch=sm_80 -libs=cudnn,cublas",
            "cuda -keys=cuda,gpu -arch=sm_80 -libs=cudnn,cublas -max_num_threads=1024 -thread_warp_size=32",
        ),
        ("opencl -device=mali", "opencl -keys=mali,opencl,gpu -device=mali -max_num_threads=256 -thread_warp_size=1"),
        (
            "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+fp16",
            "llvm -keys=cpu -mattr=+neon,+fp16 -mtriple=aarch64-linux-gnu",
        ),
        ("llvm -keys=arm_cpu,cpu -system-lib", "llvm -keys=arm_cpu,cpu -system-lib=1"),
        ("llvm -model='my board'", "llvm -keys=cpu -model='my board'"),
        ('{"kind": "c", "keys": ["cpu"], "mcpu": "x"}', "c -keys=cpu -mcpu=x"),
    ],
)
def test_target_text(text, canonical):
    t = Target(text)
    assert str(t) == canonical and str(Target(canonical)) == canonical and Target(t.export()) == t
    assert pickle.loads(pickle.dumps(t)) == t and Target(json.dumps(t.export())) == t


def test_target_rules():
    t = Target("nvidia/geforce-rtx-3070", host="llvm -mcpu=x")
    assert (t.kind.name, t.keys, t.arch, t.tag, t.host.mcpu) == (
        "cuda",
        ["cuda", "gpu"],
        "sm_86",
        "nvidia/geforce-rtx-3070",
        "x",
    )
    assert (t.max_num_threads, t.thread_warp_size, t.model, t.libs) == (1024, 32, "unknown", [])
    assert t.engine() == ns._core.Target("cuda", sm=86) and Target("cuda -arch=sm_90a").engine().sm == 90
    for bad, what in (
        ("cude", "cuda"),
        ("cuda -arhc=sm_80", "arch"),
        ("", "empty"),
        ("llvm -num-cores=many", "integer"),
        ("llvm -mcpu='x", "quote"),
        ("-mcpu=x", "kind"),
        ("llvm stray", "option"),
        ("cuda -arch=90", "sm_90"),
        ("{bad", "JSON"),
        ("llvm -mcpu=a -mcpu=b", "twice"),
    ):
        with pytest.raises(ValueError, match=what):
            Target(bad)
    with pytest.raises(TypeError):
        Target(3)
    assert Target.current() is None
    with pytest.raises(ValueError):
        Target.current(allow_none=False)
    with t, Target("c") as inner:
        assert Target.current() is inner
    target, host = Target.canon_target_and_host("cuda -arch=sm_80", "llvm")
    assert host.kind.name == "llvm" and target.host == host and Target.canon_target(None) is None
    assert ns.target.arm_cpu("rk3399").keys == ["arm_cpu", "cpu"] and ns.target.mali().device_name == "mali"
    assert set(Target.list_kinds()) == {"c", "cuda", "llvm", "opencl"}
    assert Target.from_device(ns.cpu()).kind.name == "llvm"
    if ns.opencl().exist:
        assert Target("opencl -from_device=0").max_num_threads >= 1


def test_helpers(tmp_path):
    d = utils.tempdir()
    path = d.temp_dir
    open(d.relpath("a"), "w").close()
    assert d.listdir() == ["a"] and d.path == path
    tar.tar(str(tmp_path / "x.tar"), [d.relpath("a")])
    tar.untar(str(tmp_path / "x.tar"), str(tmp_path))
    assert (tmp_path / "a").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a").write_text("")
    with pytest.raises(ValueError, match="same name"):
        tar.tar(str(tmp_path / "y.tar"), [d.relpath("a"), str(tmp_path / "b" / "a")])
    del d
    assert not os.path.exists(path)
    with pytest.raises(RuntimeError, match="status"):
        cc.create_shared(str(tmp_path / "x.so"), [str(tmp_path / "missing.o")])


def test_doctor(capsys):
    from nestsmith import doctor

    assert doctor.main([]) == 0
    out = capsys.readouterr().out
    assert "ready for: CPU" in out and "C compiler" in out


def test_buffers_refuse_nonsense():
    dev = _core.Device(1, 0)
    b = dev.alloc(64)
    with pytest.raises(ValueError):
        b.upload(bytes(63))
    with pytest.raises((BufferError, TypeError)):
        b.download(bytes(64))
    with pytest.raises(ValueError):
        dev.alloc(-1)
    with pytest.raises(ValueError):
        dev.load(b"x", "{}")
    with pytest.raises(TypeError):
        _core.Buffer()
    with pytest.raises(TypeError):
        b.copy_from(3)
    with pytest.raises(ValueError):
        _core.from_dlpack(3, dev)
    for bad in ((), (9, 0, 0), (0, 0), "x"):
        with pytest.raises((TypeError, ValueError)):
            _core.build(bad, "int x;")
    with pytest.raises(ValueError):
        _core.TaskData([(5, b"1234", False, "int8")])


def test_a_mali_has_limits_of_its_own():
    """Those of this host's OpenCL device say nothing of a board."""
    a = te.placeholder((1024,), name="a")
    b = te.compute((1024,), lambda i: a[i] + 1, name="b")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], 512)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    with pytest.raises(ValueError, match="the schedule cannot run on this GPU: threads"):
        ns.build(s, [a, b], "opencl -device=mali")
    ns.build(s, [a, b], "opencl -device=mali -max_num_threads=512 -max_threads_per_block=512")


@pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL device")
def test_a_group_with_more_memory_than_the_device_has_is_an_error():
    """A program made for another device. PoCL would end the process."""
    n = ns.opencl(0).max_shared_memory_per_block // 4 + 256
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + a[n - 1 - i], name="b")
    s = te.create_schedule(b.op)
    kept = s.cache_read(a, "shared", [b])
    block, row = s[b].split(b.op.axis[0], nparts=1)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    thread, _ = s[b].split(row, nparts=4)
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    s[kept].compute_at(s[b], block)
    dev = ns.opencl(0)
    arrays = ns.nd.array(np.ones(n, "float32"), dev), ns.nd.empty((n,), "float32", dev)
    limits = (-1, 16, 64, 1 << 30, 2**31 - 1, 4096, 1 << 30, 1)
    source, manifest = _core.program(s._core, [a, b], Target("opencl").engine(limits), "f")
    module = OperatorModule(source, manifest, source.encode(), "opencl")
    with pytest.raises(ns.TVMError, match=rf"{4 * n} bytes of local memory in a group; the device has {4 * n - 1024}"):
        module(*arrays)


@pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL device")
def test_threads_that_ask_for_opencl_at_once():
    """Loaders and drivers begin to live at the first question; without turns most of these processes end by a signal."""
    code = (
        "import threading\nfrom nestsmith import _core\ngo = threading.Barrier(4)\n"
        "def ask():\n    go.wait()\n    assert _core.device_query(4, 0)\n"
        "ts = [threading.Thread(target=ask) for _ in range(4)]\n[t.start() for t in ts]\n[t.join() for t in ts]\n"
    )
    for _ in range(4):
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_workspaces_begin_as_zeros():
    """And stay what a run has left there: a program may count in them from launch to launch."""
    source = """#include <stdint.h>
    __attribute__((visibility("default"))) int32_t f(void *const *args, void *const *work, void *par, void *pool) {
      float *y = args[0], *n = work[0];
      for (int i = 0; i < 4096; i++) y[i] = n[i]++;
      return 0;
    }"""
    array = {"dtype": "float32", "bytes": 4 * 4096, "align": 64}
    kernel = {"name": "f", "params": [], "grid": [1, 1, 1], "block": [1, 1, 1], "dyn_shared_bytes": 0}
    manifest = {"format": 1, "target": "c", "entry": "f", "sm": 0, "work": [{**array, "name": "n"}], "kernels": [kernel]}
    manifest["args"] = [{**array, "name": "y", "shape": [4096], "read_only": False}]
    binary = _core.build(Target("llvm").engine(), source)[0]
    y = ns.nd.empty((4096,), device=ns.cpu())
    for _ in range(4):
        dirty = [ns.nd.array(np.full(4096, np.nan, "float32"), ns.cpu()) for _ in range(8)]
        del dirty
        call = OperatorModule("", json.dumps(manifest), binary)
        for run in range(3):
            call(y)
            assert (y.numpy() == run).all()
