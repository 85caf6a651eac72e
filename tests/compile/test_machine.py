"""One description of the machine: occupancy against the toolkit's own calculator for every architecture, and the parts of the
engine that ask it agree."""

import glob
import json
import math
import re
import subprocess
import sysconfig

import pytest

import nestsmith as ns
from nestsmith import _core, te

ARCHITECTURES = (70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)

# The toolkit's header takes a device's properties, which we give it from our table, and knows the rest (blocks per
# multiprocessor, units in which registers and shared memory are given out) by the capability alone.
PROGRAM = r"""
#include <stdio.h>
#include "cuda_occupancy.h"
int main(void) {
  int sm, sms, warps, regs_sm, shared_sm, reserve, threads, regs, shared;
  while (scanf("%d %d %d %d %d %d %d %d %d", &sm, &sms, &warps, &regs_sm, &shared_sm, &reserve, &threads, &regs, &shared) == 9) {
    cudaOccDeviceProp p = {0};
    p.computeMajor = sm / 10, p.computeMinor = sm % 10, p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = warps * 32, p.regsPerBlock = 65536, p.regsPerMultiprocessor = regs_sm, p.warpSize = 32;
    p.sharedMemPerBlock = 48 << 10, p.sharedMemPerMultiprocessor = shared_sm, p.numSms = sms;
    p.sharedMemPerBlockOptin = shared_sm - 1024, p.reservedSharedMemPerBlock = reserve;
    cudaOccFuncAttributes f = {0};
    f.maxThreadsPerBlock = 1024, f.numRegs = regs, f.maxDynamicSharedSizeBytes = shared, f.numBlockBarriers = 1;
    f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    cudaOccDeviceState s = {0};
    s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult r;
    int e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, threads, shared);
    printf("%d\n", e ? -e : r.activeBlocksPerMultiprocessor);
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def calculator(tmp_path_factory):
    places = [sysconfig.get_paths()["purelib"] + "/nvidia/*/include", "/usr/local/cuda*/include", "/usr/include"]
    found = [h for p in places for h in sorted(glob.glob(p + "/cuda_occupancy.h"))]
    if not found:
        pytest.skip("no cuda_occupancy.h: it comes with the CUDA toolkit and with the package nvidia-cuda-runtime")
    where = tmp_path_factory.mktemp("occupancy")
    (where / "main.c").write_text(PROGRAM)
    include = ["-I", found[0].rsplit("/", 1)[0]]
    subprocess.run(["cc", "-O1", "-fgnu89-inline", *include, "-o", where / "main", where / "main.c"], check=True)
    return where / "main"


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_blocks_that_fit_are_the_toolkits(calculator, sm):
    target = _core.Target("cuda", sm=sm)
    m = target.machine
    assert m["sm"] == sm
    cases = [
        (threads, regs, shared)
        for threads in (1, 32, 33, 96, 128, 250, 256, 384, 512, 768, 1024)
        for regs in (16, 24, 32, 33, 40, 48, 64, 80, 96, 128, 168, 200, 255)
        for shared in (0, 1, 1000, 4096, 12345, 30000, 40 << 10, 48 << 10, m["shared_bytes"] // 2, m["shared_bytes"] - 1024)
    ]
    about = [m[k] for k in ("sm", "sms", "max_warps", "regs", "shared_bytes", "shared_reserve")]
    lines = "\n".join(" ".join(map(str, (*about, *c))) for c in cases)
    out = subprocess.run([calculator], input=lines, capture_output=True, text=True, check=True).stdout
    want = [int(x) for x in out.split()]
    assert len(want) == len(cases)
    got = [_core.gpu_occupancy(target, *c)[0] for c in cases]
    assert [(c, g, w) for c, g, w in zip(cases, got, want) if g != w] == []


def test_a_capability_between_the_rows_is_like_the_one_before():
    rows = {sm: _core.Target("cuda", sm=sm).machine for sm in (*ARCHITECTURES, 88, 101, 130)}
    for sm, like in ((88, 87), (101, 100), (130, 121)):
        assert {**rows[sm], "sm": 0} == {**rows[like], "sm": 0}
    assert _core.Target("cuda").sm == 90 and _core.Target("opencl").sm == 0 and _core.Target("llvm").machine is None


def product():
    n = 128
    a, b, k = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B"), te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


@pytest.mark.some(8)
@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_sampler_checker_generator_report_and_estimate_agree(sm):
    """What the sampler draws keeps the limits by the checker's and by the estimate's count, with tight limits too; launch bounds ask for
    no more blocks than fit by the occupancy that the estimate and the report use."""
    hw = list(_core.Target("cuda").hw)
    hw[3], hw[5] = 12 << 10, 256  # shared bytes, threads
    target = _core.Target("cuda", hw, sm=sm)
    dag = _core.ComputeDAG(product())
    policy = _core.Policy(dag, target, {"sample_init_min_population": 16}, 3, 1)
    there = _core.build_sm_range()
    states = policy.sample()[:8]
    for at, s in enumerate(states):
        verdict, facts = _core.gpu_check(s, target), policy.facts(s.infer_bounds())
        assert verdict["ok"] and facts["invalid"] is None, (verdict, facts)
        assert verdict["threads"] <= 256 and verdict["shared_bytes"] <= 12 << 10
        source, manifest = _core.candidate_source(s, target)
        bounds = [(int(t), int(b)) for t, b in re.findall(r"__launch_bounds__\((\d+), (\d+)\)", source)]
        sizes = [(math.prod(k["block"]), math.prod(k["grid"])) for k in json.loads(manifest)["kernels"]]
        assert (facts["kernels"][0]["threads"], facts["kernels"][0]["blocks"]) == sizes[0] and len(facts["kernels"]) == 1
        # where blocks that share a sum of a product by lanes form no clusters, and the last does not, a second kernel adds up
        shared = re.search(r"by lanes.* split ([248]|16)\b", s.text()) and not re.search("__cluster_dims__|ns_last_block", source)
        assert len(bounds) == len(sizes) == 1 + bool(shared) and max(t for t, _ in bounds) == verdict["threads"]
        for (threads, blocks), (block, grid) in zip(bounds, sizes):
            assert threads == block
            fits = _core.gpu_occupancy(target, threads, 1, 0)[0]
            assert blocks == max(1, min(-(-grid // target.machine["sms"]), fits))
        if at == 0 and there and there[0] <= sm <= there[1]:
            try:
                binary = _core.build(target, source)[0]
            except RuntimeError as e:
                pytest.skip(f"NVRTC makes no code for sm_{sm}: {str(e).splitlines()[0]}")
            report = _core.build_report(target, binary)
            again = _core.gpu_occupancy(target, report["threads"], report["regs"], report["shared_bytes"])
            assert (report["blocks"], report["occupancy"]) == again[:2] and report["blocks"] >= 1
    refused = _core.gpu_check(states[0], _core.Target("cuda", [*hw[:3], 64, *hw[4:]], sm=sm))
    assert not refused["ok"] and refused["why"] == "shared memory per block"


def test_cores_of_a_task_are_the_threads_of_its_kernels(monkeypatch):
    for n in ("1", "3"):
        monkeypatch.setenv("NESTSMITH_NUM_THREADS", n)
        code = (
            "import nestsmith as ns; from nestsmith import auto_scheduler as a;"
            "print(a.HardwareParams(target='llvm').num_cores, ns.runtime.num_threads(), ns._core.cpu_threads())"
        )
        out = subprocess.run([ns_python(), "-c", code], capture_output=True, text=True, check=True).stdout
        assert out.split() == [n] * 3
    monkeypatch.delenv("NESTSMITH_NUM_THREADS")
    assert ns.auto_scheduler.HardwareParams(target="llvm").num_cores == _core.cpu_threads()


def ns_python():
    import sys

    return sys.executable


def test_targets_are_values():
    t = _core.Target("cuda", sm=86, fast_math=0)
    assert t == _core.Target("cuda", t.hw, sm=86, fast_math=0) and len({t, _core.Target("cuda", sm=86, fast_math=0)}) == 1
    assert t != _core.Target("cuda", sm=86) and t != "cuda"
    import pickle

    assert pickle.loads(pickle.dumps(t)) == t
    assert json.loads(json.dumps(dict(zip(_core.HW_FIELDS, t.hw))))["warp_size"] == 32
    for wrong in ({"fast_math": 3}, {"mali": "x", "nothing": 1}, {"fast_math": 0.5}):
        with pytest.raises((ValueError, TypeError)):
            _core.Target("cuda", **wrong)
