"""The machine's description on a real GPU: the driver's values are the table's, and the blocks that we say fit on a multiprocessor are
those of the driver's own calculation."""

import ctypes

import pytest
from plain_kernel import sm

import nestsmith as ns
from nestsmith import _core, te

pytestmark = pytest.mark.skipif(not ns.cuda(0).exist, reason="no CUDA device: " + ns.cuda(0).why_not)
KERNEL = """extern "C" __global__ void __launch_bounds__(%d) k(const float *x, float *y) {
  __shared__ float s[%d];
  float r[%d];
  for (int i = 0; i < %d; i++) r[i] = x[threadIdx.x + i * blockDim.x];
  s[threadIdx.x %% %d] = r[0];
  __syncthreads();
  float v = s[(threadIdx.x + 1) %% %d];
  for (int i = 0; i < %d; i++) v += r[i] * x[i + blockIdx.x];
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}"""


@pytest.fixture(scope="module")
def driver():
    cu = ctypes.CDLL("libcuda.so.1")
    assert cu.cuInit(0) == 0
    context = ctypes.c_void_p()
    assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cu.cuCtxSetCurrent(context) == 0
    yield cu
    cu.cuDevicePrimaryCtxRelease(0)


def blocks_of_the_driver(cu, binary, name, threads):
    module, function, n = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    assert cu.cuModuleLoadData(ctypes.byref(module), binary) == 0
    assert cu.cuModuleGetFunction(ctypes.byref(function), module, name.encode()) == 0
    got = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(n), function, ctypes.c_int(threads), ctypes.c_size_t(0))
    assert got == 0
    cu.cuModuleUnload(module)
    return n.value


def test_blocks_that_fit_are_the_drivers(driver):
    target = _core.Target("cuda", sm=sm())
    seen = set()
    for threads in (32, 64, 96, 128, 256, 512, 1024):
        for shared in (32, 1024, 4096, 11000):
            for values in (1, 8, 24, 48, 96):
                source = KERNEL % (threads, shared, values, values, shared, shared, values)
                binary = _core.build(target, source)[0]
                report = _core.build_report(target, binary)
                want = blocks_of_the_driver(driver, binary, "k", threads)
                assert report["blocks"] == want, (threads, shared, values, report, want)
                seen.add(want)
    assert len(seen) > 6


def test_the_drivers_values_are_the_tables(driver):
    """Another number is no error of ours, but the table's row should then be mended."""
    here = _core.Target("cuda", sm=sm()).machine
    for key, attribute in (("max_blocks", 106), ("regs", 82), ("shared_bytes", 81), ("shared_reserve", 111), ("sms", 16)):
        v = ctypes.c_int()
        assert driver.cuDeviceGetAttribute(ctypes.byref(v), attribute, 0) == 0
        assert here[key] == v.value, key
    v = ctypes.c_int()
    assert driver.cuDeviceGetAttribute(ctypes.byref(v), 39, 0) == 0
    assert here["max_warps"] * 32 == v.value


def test_programs_of_the_search_fit_as_the_driver_says(driver):
    n = 256
    a, b, k = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B"), te.reduce_axis((0, n), name="k")
    dag = _core.ComputeDAG([a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])
    target = _core.Target("cuda", sm=sm())
    for state, _ in _core.Policy(dag, target, {"sample_init_min_population": 20}, 1, 1).round(10):
        source, _ = _core.candidate_source(state, target, 0, "fit")
        binary = _core.build(target, source)[0]
        report = _core.build_report(target, binary)
        assert report["blocks"] == blocks_of_the_driver(driver, binary, "fit_kernel0", report["threads"])
