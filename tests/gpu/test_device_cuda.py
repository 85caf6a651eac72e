# ruff: noqa: E501
"""CUDA on a real GPU: memory, launches, timers, graphs, the isolated worker and its recovery from broken kernels.

Skipped without a GPU. Uses its own CUDA sources, so that it depends on nothing above device, build and measure.
"""

import os
import time

import numpy as np
import pytest
from plain_kernel import ADD, N, cubin, manifest, sm

import helpers
import nestsmith as ns
from nestsmith import _core
from nestsmith.runtime.module import OperatorModule

pytestmark = pytest.mark.skipif(not ns.cuda(0).exist, reason="no CUDA device: " + ns.cuda(0).why_not)
GOOD = ADD % "y[i] = x[i] * 2 + 1;"


def test_facts():
    dev = ns.cuda(0)
    assert dev.exist and dev.device_name and dev.warp_size == 32 and dev.max_threads_per_block == 1024
    assert dev.multi_processor_count > 0 and dev.l2_cache_size_bytes > 0 and dev.total_global_memory > 1 << 30
    assert dev.compute_version == f"{sm() // 10}.{sm() % 10}"
    assert dev.max_shared_memory_per_block == 49152
    assert str(ns.target.Target("cuda")).startswith(f"cuda -keys=cuda,gpu -arch=sm_{sm()}")


def test_arrays():
    a = np.random.rand(100, 37).astype("float32")
    x = ns.nd.array(a, ns.cuda())
    assert (x.numpy() == a).all()
    y = x.copyto(ns.nd.empty((100, 37), device=ns.cuda()))
    assert (y.numpy() == a).all() and (y.copyto(ns.cpu()).numpy() == a).all()
    with pytest.raises(MemoryError, match="cannot allocate"):
        ns.nd.empty((1 << 46,), "float32", ns.cuda())


def test_dlpack_with_torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    t = torch.arange(12, device="cuda", dtype=torch.float32).reshape(3, 4)
    x = ns.nd.from_dlpack(t)
    assert (x.numpy() == t.cpu().numpy()).all()
    back = torch.from_dlpack(x)
    back += 1
    torch.cuda.synchronize()
    assert (x.numpy() == np.arange(1, 13).reshape(3, 4)).all()


def test_run_time_and_graph_timing():
    mod = OperatorModule(GOOD, manifest(), cubin(GOOD))
    x = ns.nd.array(np.arange(N, dtype="float32"), ns.cuda())
    y = ns.nd.empty((N,), device=ns.cuda())
    mod(x, y)
    assert (y.numpy() == np.arange(N) * 2 + 1).all()
    r = mod.time_evaluator("k", ns.cuda(), number=200, repeat=5, min_repeat_ms=10)(x, y)
    assert 0.5e-6 < r.median < 50e-6, r  # half a megabyte: a few microseconds, timed as a graph
    flushed = mod.time_evaluator("k", ns.cuda(), number=20, repeat=3, cache_flush_bytes=1)(x, y)
    assert flushed.median > 0
    regs = mod["k"].load(ns.cuda()).regs(0)
    assert regs[0] > 0 and regs[1] == 0


def test_dynamic_shared_memory_above_48_kib():
    source = (
        'extern "C" __global__ void k(const float* x, float* y) { extern __shared__ float s[]; int i = blockIdx.x * 256 + threadIdx.x;'
        " s[threadIdx.x + 15000] = x[i]; __syncthreads(); y[i] = s[255 - threadIdx.x + 15000]; }"
    )
    mod = OperatorModule(source, manifest(dyn=64 << 10), cubin(source))
    a = (np.arange(N) % 7).astype("float32")
    x, y = ns.nd.array(a, ns.cuda()), ns.nd.empty((N,), device=ns.cuda())
    mod(x, y)
    assert (y.numpy().reshape(-1, 256) == a.reshape(-1, 256)[:, ::-1]).all()


def test_too_many_threads_for_the_registers():
    with pytest.raises(RuntimeError, match="threads|k failed"):
        m = OperatorModule(GOOD, manifest(block=2048, grid=32), cubin(GOOD))
        m(ns.nd.empty((N,), device=ns.cuda()), ns.nd.empty((N,), device=ns.cuda()))
        ns.cuda().sync()


CASES = [
    ("good", GOOD, 0, ""),
    ("wrong", ADD % "y[i] = x[i] * 2 + (i != 777);", 5, "wrong-answer"),
    ("illegal address", ADD % "y[i + (1LL << 40)] = 1;", 4, "illegal-address"),
    ("good after that", GOOD, 0, ""),
    ("misaligned", ADD % "*(float4 *)(y + 1) = make_float4(1, 2, 3, x[i]);", 4, "misaligned-address"),
    ("trap", ADD % 'asm("trap;"); y[i] = x[i];', 4, "launch-failure"),
    ("endless", ADD % "for (volatile int j = 0; x[0] == 0;) j++; y[i] = 0;", 7, "run-timeout"),
    ("outside", ADD % "y[i] = x[i] * 2 + 1; if (i == 0) y[%d] = 1;" % (N + 5), 5, "wrong-answer"),
    ("not a cubin", None, 3, None),
    ("good at the end", GOOD, 0, ""),
]


def test_worker_survives_everything():
    a = (np.arange(N) % 7).astype("float32")
    task = _core.TaskData([(4 * N, a, False, "float32"), (4 * N, a * 2 + 1, True, "float32")])
    worker = _core.Worker(2, 0)
    for name, source, error, cause in CASES:
        binary = cubin(source) if source else b"\x7fELF nonsense"
        start = time.time()
        r = worker.run(0, task, binary, manifest(), helpers.policy(number=3, repeat=2, min_repeat_ms=20, timeout=3.0))
        print(
            f"{name:16s} error {r['error']} {r['cause']:18s} {time.time() - start:5.2f} s  costs {r['costs']} regs {r['regs']} {r['msg'][:100]}"
        )
        assert r["error"] == error, (name, r)
        assert cause is None or r["cause"] == cause, (name, r)
        if error == 0:
            assert r["full"] and len(r["costs"]) == 2 and 0.5e-6 < min(r["costs"]) < 100e-6
    pid = worker.pid
    worker.close()
    assert not os.path.exists(f"/proc/{pid}")


def test_same_program_fifty_times():
    """A/A: one program measured as if it were many candidates; the spread of the full results stays small."""
    a = (np.arange(N) % 7).astype("float32")
    task = _core.TaskData([(4 * N, a, False, "float32"), (4 * N, a * 2 + 1, True, "float32")])
    worker, binary = _core.Worker(2, 0), cubin(GOOD)
    start = time.time()
    runs = [worker.run(0, task, binary, manifest(), helpers.policy(number=3, min_repeat_ms=20)) for _ in range(50)]
    wall = time.time() - start
    full = np.array([r["costs"][0] for r in runs])
    quick = np.array([r["quick"] for r in runs])
    print(
        f"full: median {np.median(full) * 1e6:.2f} us, spread {full.std() / full.mean():.2%}; quick: {np.median(quick) * 1e6:.2f} us, "
        f"spread {quick.std() / quick.mean():.2%}; {wall / 50 * 1e3:.1f} ms per candidate"
    )
    assert full.std() / full.mean() < 0.05
    worker.close()


def test_pipeline_overlaps_compiling_and_measuring():
    a = (np.arange(N) % 7).astype("float32")
    pipe = _core.Pipeline(_core.Target("cuda", sm=sm()), 2, 0, n_compile=4, cache_dir="")
    t = pipe.task(_core.TaskData([(4 * N, a, False, "float32"), (4 * N, a * 2 + 1, True, "float32")]))
    start = time.time()
    for i in range(24):
        pipe.submit(
            t,
            ADD % f"float v = {i}.0f; y[i] = x[i] * 2 + 1 + v - {i}.0f;",
            manifest(),
            i,
            helpers.policy(number=3, min_repeat_ms=20),
        )
    done = []
    while pipe.pending():
        done += pipe.poll(0.2)
    wall = time.time() - start
    assert sorted(d["tag"] for d in done) == list(range(24)) and all(d["error"] == 0 for d in done), done
    print(
        f"24 candidates in {wall:.2f} s; compiling took {sum(d['build_seconds'] for d in done):.2f} s, running {sum(d['seconds'] for d in done):.2f} s"
    )
    pipe.close()
