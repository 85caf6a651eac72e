"""Installing: the version, the archive of the sources, and what is said where the engine cannot be loaded.

That the archive builds, and the wheel works in an environment of its own, is `.ci/install`."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile

import pytest

import nestsmith as ns

ROOT = pathlib.Path(__file__).parents[1]


def python(*args, path, **more):
    env = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=env, timeout=300, **more)


def test_the_archive_of_the_sources_is_whole(tmp_path):
    """Everything that builds the package is in it, headers too, under the version that the package says."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a clone")
    files = [f for f in listed.stdout.split("\0") if f and not f.startswith(("tests/data", "docs/", "benchmarks/")) and (ROOT / f).exists()]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    r = python("-c", "import setuptools.build_meta as b; print(b.build_sdist('dist'))", path="", cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    with tarfile.open(tmp_path / "dist" / r.stdout.split()[-1]) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    assert r.stdout.split()[-1] == f"nestsmith-{ns.__version__}.tar.gz"
    needed = {f for f in files if f.startswith(("csrc/", "python/"))} | {"pyproject.toml", "setup.py", "README.md", "LICENSE"}
    assert not needed - names and sum(f.endswith(".h") for f in needed) > 30
    assert not [n for n in names if n.startswith("tests/")]


def test_sources_name_all_that_they_lack(tmp_path):
    """On a bare machine one message lists everything, with one command."""
    shutil.copyfile(ROOT / "setup.py", tmp_path / "setup.py")
    code = "import sysconfig, sys, runpy; path = sysconfig.get_path; " \
           "sysconfig.get_path = lambda name, *a, **k: '/nonexistent' if name == 'include' else path(name, *a, **k); " \
           "import os.path; there = os.path.isdir; os.path.isdir = lambda p: 'cjson' not in str(p) and there(p); " \
           "sys.argv = ['setup.py', '-q', 'build_ext']; runpy.run_path('setup.py')"  # fmt: skip
    bare = {"PATH": "", "CC": "no-such-cc", "HOME": str(tmp_path)}
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=bare, cwd=tmp_path, timeout=300)
    assert r.returncode == 1 and r.stderr.splitlines()[-1] == (
        "nestsmith is built from sources here and needs a C compiler (build-essential), Python.h (python3-dev), cJSON (libcjson-dev): "
        "apt-get install build-essential python3-dev libcjson-dev"), r.stderr  # fmt: skip


@pytest.fixture
def copy(tmp_path):
    """A copy of the package without its engine."""
    folder = tmp_path / "nestsmith"
    shutil.copytree(pathlib.Path(ns.__file__).parent, folder, ignore=shutil.ignore_patterns("_core*.so", "__pycache__"))
    return folder


def engine_that_needs(folder, library):
    """An extension that is linked with a library which is then gone, as where a system package is missing."""
    (folder / "a.c").write_text("int gone(void) { return 1; }")
    (folder / "b.c").write_text("int gone(void); int PyInit__core(void) { return gone(); }")
    target = folder / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    build = ["cc", "-shared", "-fPIC", "-o"]
    subprocess.run([*build, library, "a.c", f"-Wl,-soname,{library}"], cwd=folder, check=True)
    subprocess.run([*build, target, "b.c", f"./{library}"], cwd=folder, check=True)
    (folder / library).unlink()


def without_engine(folder):
    """Nothing is built."""


def for_another_python(folder):
    (folder / "_core.cpython-27m-x86_64-linux-gnu.so").write_bytes(b"")


def broken(folder):
    (folder / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"no ELF file")


@pytest.mark.parametrize("hide, words", [
    (without_engine, "engine of nestsmith is not built"),
    (for_another_python, "was built for another Python (_core.cpython-27m-x86_64-linux-gnu.so), this is"),
    (broken, "engine of nestsmith cannot be loaded"),
    (lambda f: engine_that_needs(f, "libcjson.so.77"), "needs the library libcjson.so.77 (cJSON), which is not installed: apt-get install libcjson1"),
    (lambda f: engine_that_needs(f, "libsomething.so.77"), "needs the library libsomething.so.77, which is not installed"),
])  # fmt: skip
def test_an_engine_that_cannot_be_loaded(copy, hide, words):
    """`import nestsmith` says what is missing and how to get it; the doctor says the same in a line and goes on."""
    hide(copy)
    r = python("-c", "import nestsmith", path=copy.parent)
    assert r.returncode == 1 and r.stderr.splitlines()[-1].startswith("ImportError: ") and words in r.stderr.splitlines()[-1]
    remedy = r.stderr.splitlines()[-1].removeprefix("ImportError: ")
    assert "apt-get install" in remedy or "make ext" in remedy
    assert python("-m", "nestsmith", "--version", path=copy.parent).stdout == f"nestsmith {ns.__version__}\n"
    for flags in (["-m", "nestsmith.doctor"], ["-m", "nestsmith", "doctor"], ["-mnestsmith.doctor", "--log", "log.json"]):
        r = python(*flags, path=copy.parent)
        assert r.returncode == 1 and r.stderr == "", r.stderr
        rows = [line.split(None, 2) for line in r.stdout.splitlines()]
        assert ["broken", "engine", remedy] in rows and rows[0][:2] == ["ok", "nestsmith"]
        assert rows[0][2] == f"{ns.__version__} ({copy})" and "ready for: nothing yet" in r.stdout
        assert {"memory", "cache", "folder"} <= {row[1] for row in rows if row}


def test_numpy_is_named(copy, tmp_path):
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('No module named numpy', name='numpy')")
    for file in pathlib.Path(ns.__file__).parent.glob("_core*.so"):
        shutil.copyfile(file, copy / file.name)
    r = python("-c", "import nestsmith", path=copy.parent)
    assert r.returncode == 1 and "ImportError: " in r.stderr.splitlines()[-1] and "numpy" in r.stderr.splitlines()[-1].lower()


@pytest.mark.full
def test_a_type_checker_finds_misspelt_names(tmp_path):
    """Attributes that are made when they are asked for do not hide what is not there."""
    pytest.importorskip("mypy", reason="pip install mypy")
    (tmp_path / "user.py").write_text(
        "import nestsmith as tvm\nfrom nestsmith import auto_scheduler, relay\n"
        "mod, params = relay.testing.mlp.get_workload(1)\nlib = relay.build(mod, 'llvm', params=params)\n"
        "raise tvm.TVMError(tvm.__version__)\n"
    )
    (tmp_path / "wrong.py").write_text("from nestsmith import auto_scheduler, relay\nauto_scheduler.TaskShceduler\nrelay.buidl\n")
    package = pathlib.Path(ns.__file__).parents[1]
    flags = ["-m", "mypy", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache")]
    env = {**os.environ, "MYPYPATH": str(package)}
    good, bad = (subprocess.run([sys.executable, *flags, f], cwd=tmp_path, capture_output=True, text=True, env=env)
                 for f in ("user.py", "wrong.py"))  # fmt: skip
    assert good.returncode == 0, good.stdout + good.stderr
    assert bad.stdout.count("has no attribute") == 2 and '"TaskShceduler"' in bad.stdout and '"buidl"' in bad.stdout
