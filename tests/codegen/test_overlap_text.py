"""Kernels that begin while the one before ends: the wait at their beginning, in text, manifest and binary."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
from tensor_core_cases import by_warpgroups, dense, has_step, policy

import nestsmith as ns
from nestsmith import _core, relay, te, transform
from nestsmith.compiled.build import _context
from nestsmith.states import core_state

WAIT = "griddepcontrol.wait;"


def two_kernels(n=1024):
    """The second one reads one element at an address that does not depend on the thread: the load that ptxas likes to begin with."""
    a, w = te.placeholder((n,), name="A"), te.placeholder((1,), name="W")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[0] * w[0], name="C")
    s = te.create_schedule(c.op)
    for t in (b, c):
        block, thread = s[t].split(t.op.axis[0], 64)
        s[t].bind(block, te.thread_axis("blockIdx.x"))
        s[t].bind(thread, te.thread_axis("threadIdx.x"))
    return s, [a, w, c]


def made_for(target, overlap=True):
    s, tensors = two_kernels()
    source, manifest = _core.program(s._core, tensors, ns.target.Target(target).engine(overlap=overlap), "f")[:2]
    return source, json.loads(manifest)


@pytest.mark.parametrize("arch, waits", [("70", False), ("80", False), ("89", False), ("90", True), ("100", True), ("120", True)])
def test_text_and_manifest(arch, waits):
    source, manifest = made_for(f"cuda -arch=sm_{arch}")
    assert [k.get("waits", False) for k in manifest["kernels"]] == [waits] * 2
    assert source.count(WAIT) == source.count("griddepcontrol") == 2 * waits
    heads = re.findall(r"\) \{\n(.*?const int blockIdx_x)", source, re.S)
    assert len(heads) == 2 and all((WAIT in h) == waits for h in heads)  # nothing comes before it
    for kernel in source.split('extern "C"')[1:] if waits else ():
        names = re.findall(r"\*\s*(?:__restrict__)?\s*(\w+)[,)]", kernel.split("{")[0])
        assert names and all(f'"l"({n})' in kernel for n in names)


def test_none_without_the_option():
    """Text and manifest are those with it, less the wait."""
    source, manifest = made_for("cuda -arch=sm_90", overlap=False)
    waiting, told = made_for("cuda -arch=sm_90")
    for k in told["kernels"]:
        assert k.pop("waits")
    assert "griddepcontrol" not in source and manifest == told
    assert re.sub(r"#if __CUDA_ARCH__ >= 900\n[^\n]*griddepcontrol[^\n]*\n#endif\n", "", waiting) == source


@pytest.mark.skipif(not _core.build_available("cuda")[0], reason="no NVRTC")
@pytest.mark.parametrize("asked", [None, False, True])
def test_networks_wait_where_asked(asked):
    x = relay.var("x", shape=(4, 8))
    mod = ns.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.tanh(x))))
    target = ns.target.Target("cuda -arch=sm_90")
    config = {} if asked is None else {"nestsmith.overlap": asked}
    with transform.PassContext(opt_level=3, config=config):
        built = [relay.build(mod, target=target)]
        with _context(None, target, "float32"):  # what ns.compile builds in
            built.append(relay.build(mod, target=target))
    for k in [k for lib in built for k in lib.kernels.values()]:
        kernels = json.loads(k.manifest)["kernels"]
        assert kernels and k.source.count(WAIT) == sum("waits" in j for j in kernels) == len(kernels) * bool(asked)


def _dense_network():
    x, w = relay.var("x", shape=(4, 64)), relay.var("w", shape=(32, 64))
    mod = ns.IRModule.from_expr(relay.Function([x, w], relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, w)))))
    return mod, {"w": np.ones((32, 64), "float32")}


@pytest.mark.skipif(not _core.build_available("cuda")[0], reason="no NVRTC")
def test_weights_may_be_read_before_the_wait():
    """They are no operands of it, and only they."""
    mod, params = _dense_network()
    with transform.PassContext(opt_level=3, config={"nestsmith.overlap": True}):
        lib = relay.build(mod, target=ns.target.Target("cuda -arch=sm_90"), params=params)
    left_out = []
    for k in lib.kernels.values():
        manifest = json.loads(k.manifest)
        for text, kernel in zip(k.source.split('extern "C"')[1:], manifest["kernels"]):
            names = re.findall(r"\*\s*(?:__restrict__)?\s*(\w+)[,)]", text.split("{")[0])
            waited = re.findall(r'"l"\((\w+)\)', text)
            assert len(names) == len(kernel["params"]) and waited == [n for n in names if n in waited]
            left_out += [manifest["args"][p["index"]]["shape"] for n, p in zip(names, kernel["params"]) if n not in waited]
    assert left_out == [[32, 64]]


@pytest.mark.skipif(not _core.build_available("cuda")[0], reason="no NVRTC")
@pytest.mark.parametrize("arch, waits", [("80", False), ("90", True)])
def test_twins_differ_by_the_wait_alone(arch, waits):
    mod, params = _dense_network()
    target, built = ns.target.Target(f"cuda -arch=sm_{arch}"), {}
    for key in ("relay.early_twins", "nestsmith.overlap"):
        with transform.PassContext(opt_level=3, config={key: True}):
            built[key] = relay.build(mod, target=target, params=params).kernels
    for name, both in built["relay.early_twins"].items():
        alone = built["nestsmith.overlap"][name]
        assert WAIT not in both.source and len(both.early) == 2 * waits and alone.early == ()
        for twin in both.early:  # without slices there is nothing to begin at half of
            assert twin.early == () and twin.source == both.early[0].source
        for twin in both.early[:1]:
            assert all(getattr(twin, k) == getattr(alone, k) for k in ("name", "source", "manifest", "binary"))


@pytest.mark.parametrize(
    "asked, tuned, twins, overlap",
    [(None, True, True, False), (None, False, False, False), (False, True, False, False), (True, True, False, True)],
)
def test_both_are_made_of_tuned_networks_unless_asked_for(asked, tuned, twins, overlap):
    with transform.PassContext(config={} if asked is None else {"nestsmith.overlap": asked}):
        for kind in ("cuda -arch=sm_90", "llvm"):
            config = _context(None, ns.target.Target(kind), "float32", early=tuned).config
            assert (config["relay.early_twins"], config["nestsmith.overlap"]) == (twins and kind != "llvm", overlap)


def test_other_targets_do_not_wait():
    source, manifest = made_for("opencl")
    assert "griddepcontrol" not in source and not any("waits" in k for k in manifest["kernels"])


def disassembler():
    try:
        import triton
    except ImportError:
        return shutil.which("nvdisasm")
    here = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    return str(here) if os.access(here, os.X_OK) else shutil.which("nvdisasm")


@pytest.mark.some(3)
@pytest.mark.skipif(not _core.build_available("cuda")[0], reason="no NVRTC")
@pytest.mark.parametrize("sm", [80, 90, 100, 120])
def test_compiled_for_each(sm, tmp_path):
    """Whatever it was made for: a library is compiled again on another GPU. No access comes before the wait in the binary."""
    source, _ = made_for("cuda -arch=sm_90")
    path = tmp_path / "f.cubin"
    path.write_bytes(_core.build(_core.Target("cuda", sm=sm), source)[0])
    tool = disassembler()
    if not tool:
        pytest.skip("no nvdisasm: compiled, but not looked at")
    text = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout
    kernels = re.split(r"\.section\s+\.text\.f_kernel", text)[1:]
    assert len(kernels) == 2
    for kernel in kernels:
        before, wait, after = kernel.partition("ACQBULK")
        access = r"\b(LDG|STG|LD|ST|LDGSTS|ATOMG|RED)[. ]"
        assert bool(wait) == (sm >= 90) and re.search(access, after if wait else before)
        assert not wait or not re.search(access, before)


@pytest.mark.some(1)
@pytest.mark.skipif(not _core.build_available("cuda")[0], reason="no NVRTC")
@pytest.mark.skipif(not disassembler(), reason="no nvdisasm")
@pytest.mark.parametrize("dtype, math", [("float16", None), ("float32", "strict")])
def test_compiled_nothing_but_copies_of_weights_comes_before_the_wait(dtype, math, tmp_path):
    """Of products that let the next launch begin: nor does that come before it."""
    target, seen = _core.Target("cuda", sm=90, overlap=2), 0
    for s in [s for s in policy(dense(33, 64, 512, dtype), math=math).sample_initial_population() if has_step(s) and not by_warpgroups(s)][:6]:
        path = tmp_path / "f.cubin"
        path.write_bytes(_core.build(target, _core.candidate_source(core_state(s), target, 0, "f", 2)[0])[0])
        text = subprocess.run([disassembler(), "-c", path], capture_output=True, text=True, check=True).stdout
        for kernel in re.split(r"\.section\s+\.text\.f_kernel", text)[1:]:
            before, wait, after = kernel.partition("ACQBULK")
            accesses = set(re.findall(r"\b(LDG|STG|LD|ST|LDGSTS|ATOMG|RED)[. ]", before))
            assert wait and accesses <= {"LDGSTS"} and "PREEXIT" not in before
            seen += bool(accesses) and "PREEXIT" in after
    assert seen > 2
