"""The documents: commands exist, stored notebooks are whole and still run, links and the build are clean."""

import json
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))


def text_of(path):
    """A page, or the Markdown of a notebook."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        return "\n\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown")
    return text


@pytest.mark.parametrize("path", PAGES + NOTEBOOKS, ids=lambda p: p.name)
def test_links_and_files(path):
    text = text_of(path)
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)):
        if "://" not in link:
            assert (path.parent / link).exists(), f"{path.name} links to {link}"
    for name in re.findall(r"`((?:csrc|docs|python|tests|benchmarks|\.ci)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), f"{path.name} names {name}"


def test_every_page_is_in_the_contents():
    listed = re.search(r"```{toctree}(.*?)```", (DOCS / "index.md").read_text(), re.S)[1].split()
    pages = {p.stem for p in [*DOCS.glob("*.md"), *NOTEBOOKS]} - {"index"}
    assert pages == {w for w in listed if w[0] != ":" and not w.isdigit()}


def test_no_page_has_a_name_of_sphinx(tmp_path):
    """Sphinx writes search.html, genindex.html and py-modindex.html itself, over a page of that name; conf.py refuses."""
    runpy.run_path(DOCS / "conf.py")
    (tmp_path / "docs").mkdir()
    conf = shutil.copy(DOCS / "conf.py", tmp_path / "docs")
    for name in ("search.md", "genindex.ipynb", "py-modindex.md"):
        page = tmp_path / "docs" / name
        page.write_text("")
        with pytest.raises(ValueError, match=f"{name}: Sphinx writes a page of its own"):
            runpy.run_path(conf)
        page.unlink()


def test_make_targets():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in PAGES + NOTEBOOKS:
        for line in re.findall(r"(?:`|^)make ([a-z][\w =-]*)", text_of(path), re.M):
            for word in re.split(r"[ ,]+", line.split("#")[0].strip()):
                assert "=" in word or word in targets, f"{path.name}: make {word}"


def test_commands_exist(monkeypatch, capsys):
    """Every ``python -m nestsmith...`` of the pages knows the options that are shown with it."""
    found = set()
    for path in PAGES + NOTEBOOKS:
        joined = re.sub(r"(?<=-m)\n(?=nestsmith)", " ", text_of(path))
        for module, rest in re.findall(r"-m (nestsmith[\w.]*)([^`\n|]*)", joined):
            found.add((module, *sorted(set(re.findall(r"(?<!\w)--?[a-z][\w-]*", rest)))))
    modules = {m for m, *_ in found}
    assert {"nestsmith.doctor", "nestsmith.log", "nestsmith.demo", "nestsmith.auto_scheduler.measure_record"} <= modules
    for module in modules:
        monkeypatch.setattr(sys, "argv", [module, "--help"])
        with pytest.raises(SystemExit) as end:  # in this process, which has imported the package
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        text = capsys.readouterr().out
        assert end.value.code in (0, None), module
        for _, *options in [f for f in found if f[0] == module]:
            assert all(o in text for o in options), (module, options)


def test_log_modes_are_documented():
    from nestsmith.auto_scheduler import log_tools

    page, aliases = (DOCS / "logs.md").read_text(), {"info", "convert"}
    for mode in log_tools.MODES:
        assert mode in aliases or f"| `{mode}" in page, f"docs/logs.md lacks the mode {mode}"
        assert mode in aliases or re.search(rf"^{mode} ", log_tools.__doc__, re.M), f"log_tools lacks the mode {mode}"


def test_dependencies_are_explained():
    """One line for each package that pyproject.toml names, and for each library of the C side."""
    page = (DOCS / "dependencies.md").read_text().lower()
    text = (ROOT / "pyproject.toml").read_text()
    names = set(re.findall(r'"([A-Za-z][\w-]*)>=', text)) | set(re.findall(r'\["(nvidia[\w-]*)"\]', text))
    names |= {"cjson", "openblas", "pocl", "cmocka", "clang-format", "cppcheck"}
    missing = sorted(n for n in names if n.lower() not in page)
    assert not missing, f"docs/dependencies.md does not say why: {', '.join(missing)}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_are_stored_whole(path):
    book = json.loads(path.read_text())
    cells = [c for c in book["cells"] if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1)), "execute it: make notebooks"
    assert not any(o["output_type"] == "error" or o.get("name") == "stderr" for c in cells for o in c["outputs"])
    assert str(ROOT) not in path.read_text() and path.stat().st_size < 400_000


@pytest.mark.full
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_run(path, tmp_path):
    """The code of the notebooks as a script with few trials."""
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    script = "\n".join("".join(c["source"]) for c in cells)
    script = re.sub(r"num_measure_trials=\d+", "num_measure_trials=24", script)
    (tmp_path / "script.py").write_text(script)
    r = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert r.returncode == 0, r.stderr[-3000:]
    assert "largest difference" in r.stdout


@pytest.mark.full
def test_build_is_clean(tmp_path):
    pytest.importorskip("myst_nb", reason="make docs installs what the build needs")
    r = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", str(DOCS), str(tmp_path)], capture_output=True, text=True, timeout=600
    )
    assert r.returncode == 0, r.stderr
    index = (tmp_path / "index.html").read_text()
    for page in ("tutorial-resnet18", "from-tvm", "howto-pytorch", "howto-onnx", "api"):
        assert f'href="{page}.html"' in index
