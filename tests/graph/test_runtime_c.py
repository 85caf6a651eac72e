"""The runtime's library and its header, nsrt.h: what a C, C++ or foreign program meets."""

import ctypes
import gzip
import json
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, relay
from nestsmith.contrib import graph_executor

ROOT = pathlib.Path(__file__).parents[2]
HEADER = ROOT / "csrc/rt/nsrt.h"
PROGRAM = r"""
#include "nsrt.h"
#include <stdio.h>
int main(int argc, char **argv) {
  float in[32], out[12];
  nsrt_model *model = NULL;
  nsrt_context *context = NULL;
  for (int i = 0; i < 32; i++) in[i] = (float)i;
  int bad = nsrt_open(argv[argc - 1], &model) || nsrt_context_create(model, NULL, 0, &context) || nsrt_set(context, "x", in, sizeof in) ||
            nsrt_run(context) || nsrt_get(context, 0, out, sizeof out);
  if (bad) fprintf(stderr, "%s\n", nsrt_message());
  else fwrite(out, sizeof out, 1, stdout);
  nsrt_context_free(context);
  nsrt_close(model);
  return bad;
}
"""


LEVELS = ["x86-64-v3", "x86-64-v2"] if platform.machine() == "x86_64" else []


def run(*command, **more):
    """The standard output of a command that succeeds."""
    done = subprocess.run([*map(os.fspath, command)], capture_output=True, check=False, **more)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The prefix where `make install` put the runtime."""
    if not (shutil.which("make") and shutil.which("pkg-config")):
        pytest.skip("needs make and pkg-config")
    to = tmp_path_factory.mktemp("prefix")
    made = subprocess.run(["make", "-s", "-j2", "QUIET=1", f"PY={sys.executable}", "install", f"PREFIX={to}"], cwd=ROOT,
                          capture_output=True, text=True, check=False)  # fmt: skip
    if made.returncode and "cjson" in made.stderr.lower():
        pytest.skip("needs cJSON's sources")
    assert made.returncode == 0, made.stderr
    return to


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(a network's library, its model file, its input, what Python makes of it)"""
    x, w, b = (relay.var(n, shape=s, dtype="float32") for n, s in (("x", (4, 8)), ("w", (3, 8)), ("b", (3,))))
    weights = {"w": np.linspace(-1, 1, 24, dtype="float32").reshape(3, 8), "b": np.linspace(0, 1, 3, dtype="float32")}
    body = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, w), b))
    lib = relay.build(ns.IRModule.from_expr(relay.Function([x, w, b], body)), "llvm", params=weights)
    folder = tmp_path_factory.mktemp("exported")
    paths = [lib.export_library(folder / name) for name in ("net.so", "net.nsm")]
    lib.export_library(folder / "net.nsm", levels=LEVELS)
    data, m = np.arange(32, dtype="float32").reshape(4, 8), graph_executor.GraphModule(lib["default"](ns.cpu(0)))
    m.run(x=data)
    return *paths, data, m.get_output(0).numpy()


@pytest.mark.parametrize("compiler", ["gcc -std=c99 -pedantic", "g++ -std=c++17 -x c++"])
def test_the_header_is_plain_c_and_cplusplus(compiler, tmp_path):
    if not shutil.which(compiler.split()[0]):
        pytest.skip(f"needs {compiler.split()[0]}")
    (tmp_path / "main.c").write_text('#include "nsrt.h"\nint main(void) { return nsrt_version() != NSRT_VERSION; }\n')
    run(*compiler.split(), "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}", "-fsyntax-only", tmp_path / "main.c")


def test_the_library_shows_its_interface_alone_and_needs_the_c_library_alone(installed):
    so, archive = installed / "lib/libnestsmith_rt.so", installed / "lib/libnestsmith_rt.a"
    for flags, path in ((["-D"], so), (["-g"], archive)):
        lines = run("nm", *flags, "--defined-only", path).decode().splitlines()
        names = {line.split()[-1] for line in lines if len(line.split()) == 3}
        assert {"nsrt_open", "nsrt_run"} <= names and all(n.startswith("nsrt_") for n in names)
        declared = {n for n in names if f" {n}(" in HEADER.read_text() or f"*{n}(" in HEADER.read_text()}
        assert declared == names
    needed = [line.split("[")[1].split("]")[0] for line in run("readelf", "-d", so).decode().splitlines() if "(NEEDED)" in line]
    assert {n.split(".")[0] for n in needed} <= {"libc", "libm", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert so.stat().st_size <= 200_000


@pytest.mark.parametrize("how", ["shared", "static"])
def test_a_c_program_gives_the_bytes_of_python(installed, exported, how, tmp_path):
    path, model, _, want = exported
    (tmp_path / "main.c").write_text(PROGRAM)
    flags = run("pkg-config", "--cflags", "--libs", "nestsmith_rt", env={**os.environ, "PKG_CONFIG_PATH": f"{installed}/lib/pkgconfig"})
    link = flags.decode().split() if how == "shared" else [f"-I{installed}/include", installed / "lib/libnestsmith_rt.a", "-ldl", "-lpthread", "-lm"]
    run("cc", "-std=c99", "-Wall", "-Werror", "main.c", *link, "-o", "main", cwd=tmp_path)
    env = {**os.environ, "LD_LIBRARY_PATH": f"{installed}/lib"}
    assert run("./main", path, cwd=tmp_path, env=env) == want.tobytes()
    assert np.allclose(np.frombuffer(run("./main", model, cwd=tmp_path, env=env), "float32").reshape(4, 3), want, 1e-6)
    for cpu in ("Nehalem", "Haswell") if shutil.which("qemu-x86_64") and platform.machine() == "x86_64" else ():
        out = run("qemu-x86_64", "-cpu", cpu, "./main", model, cwd=tmp_path, env=env)
        assert np.allclose(np.frombuffer(out, "float32").reshape(4, 3), want, 1e-6)


def test_ctypes_runs_a_network(installed, exported):
    path, _, data, want = exported
    rt = ctypes.CDLL(os.fspath(installed / "lib/libnestsmith_rt.so"))
    rt.nsrt_message.restype = ctypes.c_char_p

    def call(name, *args):
        if getattr(rt, f"nsrt_{name}")(*args):
            raise RuntimeError(rt.nsrt_message().decode())

    model, context, out = ctypes.c_void_p(), ctypes.c_void_p(), np.empty_like(want)
    call("open", os.fsencode(path), ctypes.byref(model))
    call("context_create", model, None, ctypes.c_size_t(0), ctypes.byref(context))
    call("set", context, b"x", data.ctypes, ctypes.c_size_t(data.nbytes))
    call("run", context)
    call("get", context, 0, out.ctypes, ctypes.c_size_t(out.nbytes))
    assert np.array_equal(out, want)
    with pytest.raises(RuntimeError, match="no input 'y'; its inputs are 'x', its outputs 'output_0'"):
        call("set", context, b"y", data.ctypes, ctypes.c_size_t(data.nbytes))
    rt.nsrt_context_free(context)
    rt.nsrt_close(model)


def test_the_runtime_package_runs_networks(installed, exported, tmp_path, monkeypatch):
    """What the wheel nestsmith-runtime holds: arrays by place and by name, from threads, and errors that say what is wrong."""
    shutil.copytree(ROOT / "runtime/nestsmith_runtime", tmp_path / "nestsmith_runtime")
    shutil.copyfile(installed / "lib/libnestsmith_rt.so", tmp_path / "nestsmith_runtime/libnestsmith_rt.so")
    monkeypatch.syspath_prepend(tmp_path)
    import nestsmith_runtime

    path, model, data, want = exported
    network = nestsmith_runtime.load(path)
    assert network.inputs == {"x": ((4, 8), np.dtype("float32"))} and network.outputs == {"output_0": ((4, 3), np.dtype("float32"))}
    assert np.array_equal(network(data), want) and np.array_equal(network(x=data), want)
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(out, want) for out in pool.map(network, [data] * 20))
    assert [function for _, function, _ in network.profile(2)] and np.allclose(nestsmith_runtime.load(model, threads=1)(data), want, 1e-6)
    for call, error, words in (
        (lambda: network(data[:2]), ValueError, r"'x' must be of shape \(4, 8\) and type float32; it is of shape \(2, 8\)"),
        (lambda: network(data.astype("float64")), ValueError, "type float32; it is of shape .* and type float64"),
        (lambda: network(y=data), TypeError, r"takes 1 inputs \(x\), 1 were given: y"),
        (lambda: network(), TypeError, "0 were given"),
        (lambda: network.replace("w", data), ValueError, "no weight 'w'"),
        (lambda: nestsmith_runtime.load(tmp_path / "gone.nsm"), nestsmith_runtime.NetworkError, "gone.nsm"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_a_model_file_is_read_by_python(exported):
    _, path, data, want = exported
    assert np.allclose(ns.load(path)(data), want, 1e-6)
    m = graph_executor.GraphModule(ns.runtime.load_module(path)["default"](ns.cpu(0)))
    m.run(x=data)
    assert np.allclose(m.get_output(0).numpy(), want, 1e-6)
    with open(path, "rb") as f:
        whole = f.read()
    for at in (9, 40, 4096, len(whole) - 1):
        with pytest.raises(ValueError, match="is damaged|version"):
            _core.container_read(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], "it")
    with pytest.raises(ValueError, match="it is damaged: its end is missing"):
        _core.container_read(whole[:-1], "it")


@pytest.mark.skipif(not LEVELS, reason="levels are x86's")
def test_the_best_level_is_chosen(exported):
    programs = _core.container_read(pathlib.Path(exported[1]).read_bytes(), "it")[4]
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    for *_, binary in programs:
        offset, size = _core.object_variable(binary, "nestsmith_isa")
        assert (b" avx2" in binary[offset : offset + size]) == (" avx2 " in flags and " fma " in flags)


@pytest.fixture(scope="module")
def tiles():
    """(a network of a convolution in Winograd's form, its input, its output by NumPy): the fixture of tests/data, too."""
    x, w = relay.var("x", shape=(1, 6, 6, 4), dtype="float32"), relay.var("w", shape=(3, 3, 4, 20), dtype="float32")
    weight = np.sin(np.arange(720, dtype="float32")).reshape(3, 3, 4, 20)
    conv = relay.nn.conv2d(x, w, padding=(1, 1), kernel_size=(3, 3), channels=20, data_layout="NHWC", kernel_layout="HWIO")
    with ns.transform.PassContext(opt_level=3, config={"relay.winograd": "always"}):
        lib = relay.build(ns.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(conv))), "llvm", params={"w": weight})
    data = np.cos(np.arange(144, dtype="float32")).reshape(1, 6, 6, 4)
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(padded[:, i : i + 6, j : j + 6] @ weight[i, j] for i in range(3) for j in range(3))
    return lib, data, np.maximum(want, 0)


def test_weights_are_made_where_the_file_is_loaded(tiles, installed, tmp_path):
    """Originals, from which the runtime makes the same bytes as the build: a smaller file, equal results in Python and C."""
    lib, data, want = tiles
    weight = lib.params["p0"]
    original, (matrix, *_) = lib.forms["p0"]
    assert weight.nbytes == 4 * original.nbytes and original.shape == (20, 4, 3, 3) and len(matrix) == 6
    stored, made = (lib.export_library(tmp_path / f"{how}.nsm", forms=how) for how in ("stored", "made"))
    assert os.path.getsize(stored) - os.path.getsize(made) > weight.nbytes - original.nbytes - 4096
    results = [ns.load(path)(data) for path in (stored, made)]
    assert np.allclose(results[0], want, 1e-4, 1e-4) and np.array_equal(*results)
    again = ns.runtime.load_module(made)
    assert np.array_equal(again.params["p0"], weight)
    rt = ctypes.CDLL(os.fspath(installed / "lib/libnestsmith_rt.so"))
    model, context, out = ctypes.c_void_p(), ctypes.c_void_p(), np.empty_like(want)
    for name, *args in (("open", os.fsencode(made), ctypes.byref(model)), ("context_create", model, None, ctypes.c_size_t(0), ctypes.byref(context)),
                        ("set", context, b"x", data.ctypes, ctypes.c_size_t(data.nbytes)), ("run", context),
                        ("get", context, 0, out.ctypes, ctypes.c_size_t(out.nbytes))):  # fmt: skip
        assert getattr(rt, f"nsrt_{name}")(*args) == 0
    rt.nsrt_context_free(context)
    rt.nsrt_close(model)
    assert np.array_equal(out, results[0])
    with pytest.raises(ValueError, match="only model files"):
        lib.export_library(tmp_path / "net.so", forms="made")
    with pytest.raises(ValueError, match="forms 'packed' is unknown"):
        lib.export_library(tmp_path / "net.nsm", forms="packed")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_programs_and_contexts_hold_no_descriptors(exported, tiles):
    """Descriptors are used again while programs are loaded: each network still runs its own."""
    before = len(os.listdir("/proc/self/fd"))
    first = graph_executor.GraphModule(ns.runtime.load_module(exported[1])["default"](ns.cpu(0)))
    second = [graph_executor.GraphModule(tiles[0]["default"](ns.cpu(0))) for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) <= before
    first.run(x=exported[2])
    for m in second:
        m.run(x=tiles[1])
        assert np.allclose(m.get_output(0).numpy(), tiles[2], 1e-4, 1e-4)
    assert np.allclose(first.get_output(0).numpy(), exported[3], 1e-6)


@pytest.mark.parametrize("taps,points", [(3, 4), (3, 6), (5, 8)])
def test_the_transform_of_weights(taps, points):
    g = np.linspace(-1, 2, points * taps).reshape(points, taps)
    windows = np.random.default_rng(taps).random((37, taps, taps), "float32")
    made = np.frombuffer(_core.winograd_weight(windows, tuple(map(tuple, g.tolist()))), "float32").reshape(points, points, 37)
    assert np.allclose(made, np.einsum("px,nxy,qy->pqn", g, windows.astype("float64"), g), 1e-6, 1e-6)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="its programs are for these processors")
def test_a_model_file_of_the_first_version(tiles, tmp_path):
    """A file with several processors and weights that are made, as the version that introduced them wrote it."""
    (tmp_path / "net.nsm").write_bytes(gzip.decompress((ROOT / "tests/data/model-1.nsm.gz").read_bytes()))
    assert np.allclose(ns.load(tmp_path / "net.nsm")(tiles[1]), tiles[2], 1e-4, 1e-4)


def test_what_a_model_file_is_not_for(tmp_path):
    x = relay.var("x", shape=(4,), dtype="float32")
    lib = relay.build(ns.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))), "llvm")
    with pytest.raises(ValueError, match="levels: 'x86-64-v9' is none of x86-64-v4, x86-64-v3, x86-64-v2, aarch64"):
        lib.export_library(tmp_path / "net.nsm", levels=["x86-64-v9"])
    with pytest.raises(ValueError, match="is for one processor; only model files"):
        lib.export_library(tmp_path / "net.so", levels=["x86-64-v2"])
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc") or platform.machine() == "aarch64", reason="needs a cross compiler")
def test_the_triple_of_a_target_is_enough(tmp_path):
    x = relay.var("x", shape=(4,), dtype="float32")
    mod = ns.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    net = ns.compile(mod, target="llvm -mtriple=aarch64-linux-gnu")
    assert list(net.inputs) == ["x"] and net.outputs == [((4,), "float32")]
    with pytest.raises(ns.TVMError, match=r"compiled for aarch64-linux-gnu, this machine is x86_64: export\(path\)"):
        net(np.zeros(4, "float32"))
    for name in ("net.so", "net.nsm"):
        net.export(tmp_path / name)
        with pytest.raises(ns.TVMError, match="was made for aarch64, this machine is x86_64"):
            ns.load(tmp_path / name)
    assert (tmp_path / "net.so").read_bytes()[18] == 183  # EM_AARCH64
    with pytest.raises(ns.TVMError, match="was made for aarch64"):
        relay.build(mod, "llvm -mtriple=aarch64-linux-gnu")["default"](ns.cpu(0))


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("qemu-aarch64") or not shutil.which("aarch64-linux-gnu-gcc"), reason="needs qemu and a cross compiler")
def test_one_model_file_runs_on_both_machines(tmp_path):
    made = ["make", "-s", "-j2", "QUIET=1", f"PY={sys.executable}", "install", f"PREFIX={tmp_path}", "CROSS=aarch64-linux-gnu-"]
    run(*made, cwd=ROOT)
    x, w = relay.var("x", shape=(4, 8), dtype="float32"), relay.var("w", shape=(3, 8), dtype="float32")
    weights = {"w": np.linspace(-1, 1, 24, dtype="float32").reshape(3, 8)}
    lib = relay.build(ns.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w)))), "llvm", params=weights)
    lib.export_library(tmp_path / "net.nsm", levels=[*LEVELS, "aarch64"])
    (tmp_path / "main.c").write_text(PROGRAM)
    run("aarch64-linux-gnu-gcc", "main.c", "-Iinclude", "lib/libnestsmith_rt.a", "-ldl", "-lpthread", "-lm", "-o", "main", cwd=tmp_path)
    out = run("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "./main", "net.nsm", cwd=tmp_path)
    data = np.arange(32, dtype="float32").reshape(4, 8)
    want = np.maximum(data @ weights["w"].T, 0)
    assert np.allclose(np.frombuffer(out, "float32").reshape(4, 3), want, 1e-5, 1e-5)
    assert np.allclose(ns.load(tmp_path / "net.nsm")(data), want, 1e-5, 1e-5)


def test_the_format_is_as_its_page_says(exported):
    """docs/model-file.md: header, sections, description."""
    data = exported[1] if isinstance(exported[1], bytes) else pathlib.Path(exported[1]).read_bytes()
    magic, version, sections, length = struct.unpack_from("<8sIIQ", data)
    assert (magic, version, sections, length) == (b"NSMODEL\n", 1, 4, len(data))
    table = [struct.unpack_from("<QQQ", data, 32 + 24 * i) for i in range(sections)]
    assert all(begin % 4096 == 0 for begin, _, _ in table)
    (about, n, _), (texts, _, _), (code, _, _), (weights, _, _) = table
    said = json.loads(data[about : about + n])
    assert set(said) == {"name", "target", "graph", "weights", "forms", "kernels", "inputs"}
    assert json.loads(data[texts : texts + said["graph"]])["nodes"]
    name, source, manifest, *binaries = said["kernels"][0]
    at = texts + said["graph"] + source
    assert json.loads(data[at : at + manifest])["entry"] == name and len(binaries) == max(1, len(LEVELS))
    assert data[code : code + 4] == b"\x7fELF" and all(len(w) >= 2 for w in said["weights"]) and weights % 64 == 0
