"""Library files that are cut, altered or made for another processor: an exception each, and never the end of the process."""

import gzip
import os
import pathlib
import platform
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import nestsmith as ns
from helpers import PATIENCE
from nestsmith import _core, relay, te
from nestsmith.contrib import cc, graph_executor
from nestsmith.runtime import library, load_module

DATA = pathlib.Path(__file__).parents[1] / "data"
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="processors are named for x86-64")
# A compiler that says it used an instruction which no processor has had since 2017. What a process has compiled once it does
# not compile again: each test has a constant of its own.
FOREIGN = "cc -D__XOP__"


def operator(target="llvm", add=1):
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2 + add, name="B")
    return ns.build(te.create_schedule(b.op), [a, b], target)


def network(target="llvm", add=0):
    x, w = (relay.var(n, shape=(64,), dtype="float32") for n in "xw")
    mod = ns.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(x * w) + relay.const(add, "float32")))
    return relay.build(mod, target, params={"w": np.linspace(-1, 1, 64, dtype="float32")})


def result(path):
    """What the operator or network in a file makes of 0, 1, 2, ..."""
    module, x = load_module(path), np.arange(64, dtype="float32")
    if isinstance(module, ns.runtime.OperatorModule):
        out = ns.nd.array(np.zeros(64, "float32"))
        module(ns.nd.array(x), out)
        return out.numpy()
    m = graph_executor.GraphModule(module["default"](ns.cpu(0)))
    m.run(x=x)
    return m.get_output(0).numpy()


WANT = {"operator": np.arange(64, dtype="float32") * 2 + 1}
WANT["network"] = np.maximum(np.arange(64, dtype="float32") * np.linspace(-1, 1, 64, dtype="float32"), 0)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    for name, module in (("operator", operator()), ("network", network())):
        for suffix in (".so", ".tar"):
            module.export_library(folder / (name + suffix))
    return folder


FILES = ["operator.so", "operator.tar", "network.so", "network.tar"]


def damaged(data, rng):
    """Cuts, as an interrupted copy leaves them; changed bits; holes, as after a crash; pieces in the wrong order."""
    n = len(data)
    for k in [0, 1, 4, 63, 64, 511, 512, n // 2, n - 41, n - 1] + [rng.randrange(n) for _ in range(16)]:
        yield f"cut to {k}", data[:k]
    for _ in range(16):
        at, bit = rng.randrange(n), 1 << rng.randrange(8)
        yield f"bit {bit} of byte {at}", data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
    used = [k for k in range(n) if data[k]]
    for _ in range(8):
        at, size = rng.choice(used), rng.choice((16, 512, 4096))
        yield f"{size} zeros at {at}", data[:at] + bytes(len(data[at : at + size])) + data[at + size :]
    for _ in range(4):
        b = rng.choice(used)
        a, c = rng.randrange(b), rng.randrange(b + 1, n)
        if data[a:b] != data[b:c]:
            yield f"{a}:{b} and {b}:{c} exchanged", data[:a] + data[b:c] + data[a:b] + data[c:]
    yield "longer", data + b"\0"
    mark = data.find(b"nestsmith seal")
    yield "seal without a name", data[: mark + 2] + b"?" + data[mark + 3 :]
    yield "no beginning", bytes(1024) + data[1024:]
    yield "no beginning, no seal", bytes(mark + 64) + data[mark + 64 :]


# In a process of its own: what is tested is that it lives.
LOAD = """
    import pathlib, sys
    import nestsmith as ns
    for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        try:
            ns.runtime.load_module(path)
            print(path.name, "was loaded")
        except ValueError as e:
            if not any(w in str(e) for w in ("damaged", "not written by export_library")):
                print(path.name, e)
    print("alive")
"""


def run(code, *arguments, **environment):
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
    )
    assert out.returncode == 0, out
    return out.stdout


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(exported, name, tmp_path):
    files = list(damaged((exported / name).read_bytes(), random.Random(name)))
    for number, (what, wrong) in enumerate(files):
        (tmp_path / f"{number} {what}{os.path.splitext(name)[1]}").write_bytes(wrong)
    assert len(files) >= 50 and run(LOAD, tmp_path) == "alive\n"
    assert np.array_equal(result(exported / name), WANT[name.split(".")[0]])


def test_programs_that_are_cut(tmp_path):
    """The bytes of a program, as containers, the cache and the worker hand them to the device."""
    (tmp_path / "program").write_bytes(operator().binary)
    (tmp_path / "manifest").write_text(operator().manifest)
    code = """
        import pathlib, sys
        from nestsmith import _core
        folder = pathlib.Path(sys.argv[1])
        data, manifest, cpu = (folder / "program").read_bytes(), (folder / "manifest").read_text(), _core.Device(1, 0)
        for n in [*range(0, 200, 7), *range(200, len(data), 199), len(data) - 1]:
            try:
                cpu.load(data[:n], manifest)
                print(n, "was loaded")
            except ValueError as e:
                assert "damaged" in str(e), e
        print(cpu.load(data, manifest) is not None)
    """
    assert run(code, tmp_path) == "True\n"


def test_damaged_cache(tmp_path):
    """An entry of the cache that is cut or altered is made again."""
    code = """
        import pathlib, random, sys
        from nestsmith import _core, target
        source = "#include <stdint.h>\\nint32_t k(void *const *a) { return 0; }\\n"
        cache, engine, rng = sys.argv[1], target.Target("llvm").engine(), random.Random(1)
        whole = _core.build(engine, source, 0, cache)[0]
        entry, = (p for p in pathlib.Path(cache).iterdir() if p.suffix == ".so")
        data = entry.read_bytes()
        for k in range(4):
            at = rng.randrange(len(data))
            entry.write_bytes(data[:at] if k % 2 else data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
            assert _core.build(engine, source, 0, cache)[::2] == (whole, False)
        print(_core.build(engine, source, 0, cache)[2])
    """
    assert run(code, tmp_path, NESTSMITH_CACHE_MEMORY_MB="0") == "True\n"


@x86
@pytest.mark.parametrize("name", ["operator", "network"])
def test_files_of_earlier_versions(name, tmp_path):
    path = tmp_path / f"{name}.so"
    path.write_bytes(gzip.decompress((DATA / f"library-{name}-fbcf384.so.gz").read_bytes()))
    module = load_module(path)
    if name == "operator":
        y = ns.nd.array(np.zeros(8, "float32"))
        module(ns.nd.array(np.arange(8, dtype="float32")), y)
        assert np.array_equal(y.numpy(), np.arange(8) * 2 + 1)
    else:
        m = graph_executor.GraphModule(module["default"](ns.cpu(0)))
        m.run(x=np.ones(4, "float32"))
        assert np.array_equal(m.get_output(0).numpy(), [1, 0, 2, 0])
    folder = tmp_path / "cut"
    folder.mkdir()
    for n in range(0, path.stat().st_size, 487):
        (folder / f"{n}.so").write_bytes(path.read_bytes()[:n])
    assert run(LOAD, folder) == "alive\n"


@x86
@pytest.mark.parametrize("name", ["operator", "network"])
def test_running_needs_no_compiler_rooms(name, tmp_path):
    """A finished program runs with the runtime alone: not with relay, te or the auto-scheduler."""
    path = tmp_path / f"{name}.so"
    path.write_bytes(gzip.decompress((DATA / f"library-{name}-fbcf384.so.gz").read_bytes()))
    code = """
        import sys
        import numpy as np
        import nestsmith as ns
        from nestsmith.contrib import graph_executor
        module = ns.runtime.load_module(sys.argv[1])
        if sys.argv[2] == "network":
            m = graph_executor.GraphModule(module["default"](ns.cpu(0)))
            m.run(x=np.ones(4, "float32"))
            print(m.get_output(0).numpy().tolist())
        else:
            y = ns.nd.array(np.zeros(8, "float32"))
            module(ns.nd.array(np.ones(8, "float32")), y)
            print(y.numpy().tolist())
        rooms = {m.split(".")[1] for m in sys.modules if m.startswith("nestsmith.")}
        print(*sorted(rooms & {"relay", "te", "tir", "topi", "auto_scheduler", "transform", "ir"}))
    """
    want = [1.0, 0.0, 2.0, 0.0] if name == "network" else [3.0] * 8
    assert run(code, path, name) == f"{want}\n\n"


def test_a_library_linked_by_hand(exported, tmp_path):
    """From the objects of an archive: nobody has filled in the seal."""
    objects = library.read_archive(os.fspath(exported / "operator.tar"), os.fspath(tmp_path))
    cc.create_shared(tmp_path / "hand.so", objects)
    assert np.array_equal(result(tmp_path / "hand.so"), WANT["operator"])


def test_a_file_that_changes_later(tmp_path):
    path = tmp_path / "f.so"
    operator().export_library(path)
    f, x, y = load_module(path), ns.nd.array(np.ones(64, "float32")), ns.nd.array(np.zeros(64, "float32"))
    os.truncate(path, 100)
    f(x, y)
    assert (y.numpy() == 3).all()


@pytest.mark.parametrize("name", ["net.so", "net.tar"])
def test_an_export_that_fails_leaves_what_was_there(name, tmp_path, monkeypatch):
    path = tmp_path / name
    operator().export_library(str(path))
    before = path.read_bytes()

    def full(path):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(library, "seal", full)
    with pytest.raises(OSError, match="No space left"):
        operator(add=3).export_library(str(path))
    assert path.read_bytes() == before and os.listdir(tmp_path) == [name]


def test_exported_operators_are_the_tuned_programs(tmp_path):
    """Compiled with the same flags: for this processor, or for the one that the target names."""
    for target in ("llvm", "llvm -mcpu=x86-64") if platform.machine() == "x86_64" else ("llvm",):
        f = operator(target)
        f.export_library(tmp_path / "f.so")
        notes = []
        for image in (f.binary, library.read(tmp_path / "f.so").image):
            at, size = _core.object_variable(image, "nestsmith_isa")
            notes.append(image[at : at + size])
        assert notes[0] == notes[1] and (("x86-64" in target) == (notes[0] == b"\0"))


# ---- other processors ----
def refusal(act, *words):
    with pytest.raises(ns.TVMError) as caught:
        act()
    assert not isinstance(caught.value, ValueError) and all(w in str(caught.value) for w in words), caught.value


NEEDS = "needs a processor with xop, which this one lacks", "-mcpu=x86-64-v"


@x86
@pytest.mark.parametrize("make", [operator, network])
def test_a_library_for_another_processor(make, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", FOREIGN)
    module, path = make("llvm -mcpu=x86-64", 11), os.fspath(tmp_path / "foreign.so")
    module.export_library(path)
    monkeypatch.delenv("CC")
    refusal(lambda: load_module(path), "foreign.so", *NEEDS)
    if make is operator:  # also where nothing was exported
        refusal(lambda: module(*(ns.nd.array(np.zeros(64, "float32")) for _ in range(2))), *NEEDS)
    else:
        refusal(lambda: module["default"](ns.cpu(0)), *NEEDS)


@x86
def test_a_network_is_compiled_again_where_that_helps(tmp_path, monkeypatch, caplog):
    """Its target names no processor, and its file has the sources."""
    path = os.fspath(tmp_path / "foreign.so")
    monkeypatch.setenv("CC", FOREIGN)
    network(add=12).export_library(path)
    monkeypatch.delenv("CC")
    assert np.array_equal(result(path), WANT["network"] + 12)
    assert "foreign.so' was made for another processor; its programs are compiled again" in caplog.text
    monkeypatch.setenv("CC", "no-such-compiler")
    refusal(lambda: load_module(path), "foreign.so", *NEEDS)


@x86
def test_a_known_processor():
    """The names of the compiler, without a trick; where the processor has everything there is nothing to refuse."""
    missing = "avx512_fp16" not in pathlib.Path("/proc/cpuinfo").read_text()
    module = operator("llvm -mcpu=sapphirerapids")
    x, y = (ns.nd.array(np.zeros(64, "float32")) for _ in range(2))
    if missing:
        refusal(lambda: module(x, y), "avx512fp16", "-mcpu=x86-64-v")
    else:
        module(x, y)


@x86
def test_tuning_for_another_processor_is_refused_at_the_start(monkeypatch):
    monkeypatch.setenv("CC", FOREIGN)
    engine = ns.target.Target("llvm -mcpu=x86-64").engine()
    refusal(lambda: _core.Session(engine, 1), "-mcpu=x86-64 needs a processor with xop")


def test_another_machine(exported, tmp_path):
    data = bytearray((exported / "operator.so").read_bytes())
    for number, name in ((183, "aarch64"), (62, "x86_64"), (40, "arm")):
        if name == platform.machine():
            continue
        data[18:20] = number.to_bytes(2, "little")
        (tmp_path / f"{name}.so").write_bytes(data)
        library.seal(tmp_path / f"{name}.so")
        refusal(lambda path=tmp_path / f"{name}.so": load_module(path), f"was made for {name}, this machine is")


def test_no_library_at_all(tmp_path):
    (tmp_path / "text.so").write_text("no library")
    (tmp_path / "text.tar").write_text("no archive")
    for path, words in (("text.so", "no shared object"), ("text.tar", "no archive"), (_core.__file__, "nestsmith_blob")):
        with pytest.raises(ValueError, match=words):
            load_module(tmp_path / path)


def test_cut_parameter_files():
    data = relay.save_param_dict({"w": np.arange(64, dtype="float32"), "b": np.zeros((2, 3), "int8")})
    for n in range(len(data)):
        with pytest.raises(ValueError):
            relay.load_param_dict(data[:n])
