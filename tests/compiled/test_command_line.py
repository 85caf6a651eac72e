"""``python -m nestsmith tune, run, inspect``: what they write, what they print, and one line for each mistake."""

import re
import subprocess
import sys

import numpy as np
import pytest
import small_models as s

import nestsmith
from nestsmith import auto_scheduler, relay
from nestsmith.__main__ import COMMANDS, main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(s.convolutions("n").SerializeToString())
    np.save(tmp_path / "x.npy", np.random.default_rng(3).standard_normal((1, 3, 16, 16)).astype("float32"))
    return tmp_path


SHAPE = ["--shape", "x:1x3x16x16"]
TUNE = ["tune", "net.onnx", "--target", "llvm", "--trials", "8", "--out", "net.tar", *SHAPE]


def test_tune_run_inspect(folder, capsys):
    assert main(TUNE) == 0
    out = capsys.readouterr().out
    assert "net.tar" in out and "one run:" in out
    assert sum(1 for _ in auto_scheduler.load_records("net.json")) == 8
    assert main([*TUNE, "--quiet"]) == 0  # goes on where it ended: nothing to do
    assert capsys.readouterr().out == "" and sum(1 for _ in auto_scheduler.load_records("net.json")) == 8
    assert main(["run", "net.tar", "--input", "x=x.npy", "--out", "y.npy", "--benchmark"]) == 0
    assert "Execution time" in capsys.readouterr().out
    assert s.close(np.load("y.npy"), s.reference(s.convolutions("n"), x=np.load("x.npy"))[0])
    assert main(["run", "net.tar", "--input", "x.npy", "--out", "y.npz"]) == 0
    assert np.array_equal(np.load("y.npz")["output_0"], np.load("y.npy"))
    capsys.readouterr()
    assert main(["inspect", "net.tar"]) == 0
    out = capsys.readouterr().out
    assert "input x: float32[1, 3, 16, 16]" in out and "log record" in out
    assert main(["inspect", "net.onnx", *SHAPE, "--target", "llvm", "--log", "net.json"]) == 0
    out = capsys.readouterr().out
    assert "4 tasks for llvm" in out and out.count("has a schedule") == 4
    assert main(["inspect", "net.json"]) == 0
    assert "trials" in capsys.readouterr().out


def test_numbers_of_16_bits_are_shown_as_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x = relay.var("x", shape=(64,), dtype="bfloat16")
    compiled = nestsmith.compile(relay.Function([x], relay.abs(x)), target="llvm", guess=False, verbose=0)
    compiled.export("net.tar")
    assert main(["run", "net.tar"]) == 0
    low, high = re.search(r"output 0: bfloat16\[64\], (\S+) to (\S+)\n", capsys.readouterr().out).groups()
    assert 0 <= float(low) < 0.5 < float(high) < 10


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["tune", "none.onnx"], "none.onnx: there is no such file"),
        (["tune", "."], "it is a directory"),
        (["tune", "net.onnx", "--target", "llvm", "--trials", "8"], "--shape NAME:1x3x224x224"),
        (["tune", "net.onnx", "--shape", "x"], "--shape 'x': write --shape NAME:1x3x224x224"),
        (["tune", "net.onnx", "--target", "cudo"], "unknown target 'cudo'"),
        (["tune", "net.onnx", "--trials", "-1"], "--trials -1"),
        (["tune", "net.onnx", "--out", "net.zip"], "must end in .tar or .so"),
        (["tune", "net.onnx", "--out", "no/net.tar"], "there is no directory"),
        (["tune", "x.npy", "--target", "llvm"], "x.npy holds arrays of NumPy, no model"),
        (["run", "none.tar"], "there is no such file"),
        (["run", "net.onnx", "--target", "llvm", *SHAPE, "--input", "z=x.npy"], "the network takes x"),
        (["run", "net.onnx", "--target", "llvm", *SHAPE, "--input", "x=none.npy"], "--input none.npy"),
        (["run", "net.onnx", "--target", "llvm", *SHAPE, "--out", "y.npy"], "no value for x"),
        (["inspect", "net.tar"], "there is no such file"),
    ],
)
def test_mistakes_are_one_line(folder, capsys, command, words):
    assert main(command) == 1
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1 and err.startswith(f"nestsmith {command[0]}: ")


def test_files_are_told_by_content(folder, capsys):
    torch = pytest.importorskip("torch")

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.line(x) * 2

    model, x = Twice().eval(), torch.randn(2, 4)
    torch.export.save(torch.export.export(model, (x,)), "program.bin.pt2")
    (folder / "program.bin.pt2").rename("program")
    torch.save(model.state_dict(), "weights.onnx")
    torch.jit.trace(model, (x,)).save("script.pt")
    network = nestsmith.compile("program", target="llvm", verbose=0)
    assert s.close(network(x), model(x).detach().numpy()) and network.name == "program"
    network.export("library.so")
    network.export("archive.tar")
    for name, other in (("library.so", "library.onnx"), ("archive.tar", "archive.so")):
        (folder / name).rename(other)
        assert np.array_equal(nestsmith.load(other)(x), network(x))
        capsys.readouterr()
        assert main(["inspect", other]) == 0 and "input x: float32[2, 4]" in capsys.readouterr().out
    for name, words in (
        ("weights.onnx", "holds weights of PyTorch, or a pickled model, no model: the file does not say what is computed: load them into"),
        ("script.pt", "holds a TorchScript program, no model: load it with torch.jit.load"),
        ("library.onnx", "holds a compiled network"),
        ("archive.so", "holds an archive"),
    ):
        with pytest.raises(ValueError, match=words):
            nestsmith.compile(name)
        assert main(["tune", name, "--target", "llvm"]) == 1 and words.partition(",")[0] in capsys.readouterr().err
    for name in ("net2.onnx", "net.pt", "net.json"):
        with pytest.raises(ValueError, match=r"is written as a shared library \(.so\) or an archive"):
            network.export(name)


def test_wrong_usage(capsys):
    for command in (["tune"], ["tune", "net.onnx", "--layout", "x"]):
        with pytest.raises(SystemExit) as e:
            main(command)
        assert e.value.code == 2


def test_tools_are_subcommands(capsys):
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"nestsmith {nestsmith.__version__}\n"
    assert main(["--help"]) == 0 and main([]) == 2
    text = capsys.readouterr().out
    assert all(text.count(f"\n  {name} ") == 2 for name in COMMANDS) and "Exit status" in text
    assert main(["tuen"]) == 2 and "there is no command 'tuen'" in capsys.readouterr().err
    for name in COMMANDS:
        with pytest.raises(SystemExit) as e:
            main([name, "--help"])
        assert e.value.code == 0 and capsys.readouterr().out.startswith("usage: "), name


def test_help_imports_little():
    code = "import sys; from nestsmith.__main__ import main\n{}\nassert not [m for m in sys.modules if m in ('nestsmith.relay', 'nestsmith.te')]"
    for call in ("main(['--help'])", "try: main(['tune', '--help'])\nexcept SystemExit: pass"):
        subprocess.run([sys.executable, "-c", code.format(call)], check=True, capture_output=True)
