"""What tuning shows in a notebook: a real kernel runs cells, and the outputs are what a saved notebook keeps."""

import base64
import os
import re

import pytest

import nestsmith as ns

nbformat = pytest.importorskip("nbformat", reason="notebooks: pip install nbclient nbformat ipykernel")
nbclient = pytest.importorskip("nbclient", reason="notebooks: pip install nbclient nbformat ipykernel")
pytest.importorskip("ipykernel", reason="notebooks: pip install nbclient nbformat ipykernel")
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))

SETUP = """
import nestsmith
from nestsmith import auto_scheduler, te

@auto_scheduler.register_workload
def matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]

task = auto_scheduler.SearchTask(func=matmul, args=(32,), target="llvm", desc="matmul_32")
options = auto_scheduler.TuningOptions(
    12, num_measures_per_round=3, runner=auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0))
"""
TUNE = "tuner = auto_scheduler.TaskScheduler([task], callbacks=[auto_scheduler.PrintTableInfo()])\ntuner.tune(options)"
WITHOUT = """
import importlib.util
there = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name in ("matplotlib", "ipywidgets") else there(name, *a)
"""


def run(tmp_path, *cells):
    """The cells of an executed notebook."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    old = dict(os.environ)
    os.environ.update(PYTHONPATH=PACKAGE, IPYTHONDIR=str(tmp_path / "ipython"))
    try:
        nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    finally:
        os.environ.clear()
        os.environ.update(old)
    nbformat.validate(book)
    return book.cells


def shown(cell, mime):
    return [o.data[mime] for o in cell.outputs if o.output_type == "display_data" and mime in o.data]


def test_with_matplotlib(tmp_path):
    pytest.importorskip("matplotlib")
    cell = run(tmp_path, SETUP, TUNE)[1]
    (picture,) = shown(cell, "image/png")  # one picture, redrawn in place
    assert base64.b64decode(picture)[1:4] == b"PNG"
    texts = [h for h in shown(cell, "text/html") if "<pre" in h]
    assert texts and all(h.count("<pre") == h.count('<pre style="font-family: monospace; white-space: pre') for h in texts)
    (line,) = [t for t in shown(cell, "text/plain") if t.startswith("[1/1")]
    assert re.match(r"\[1/1 matmul_32\]  trials 12/12  best [\d.]+ ms  failed \d+.*  [\d.]+ s/trial  \d+ s in all", line)
    (table,) = [t for t in shown(cell, "text/plain") if "[ Task Scheduler ]" in t]
    assert "Trials: 12\t" in table and table.count("[ Task Scheduler ]") == 1
    printed = "".join(o.text for o in cell.outputs if o.output_type == "stream")
    assert "Valid: 12/12" in printed and "[ Search ]" not in printed


def test_without_matplotlib(tmp_path):
    cell = run(tmp_path, SETUP, WITHOUT, TUNE)[2]
    (picture,) = [h for h in shown(cell, "text/html") if "<svg" in h]
    assert picture.count("<svg") == 2 and picture.count("best latency (ms)") == 2 and "pip install matplotlib" in picture
    assert not shown(cell, "image/png") and not shown(cell, "application/vnd.jupyter.widget-view+json")


@pytest.mark.full
def test_one_task(tmp_path):
    cell = run(tmp_path, SETUP, "task.tune(options, cost_model='random')")[1]
    assert shown(cell, "image/png") or "<svg" in "".join(shown(cell, "text/html"))
    assert "Best of matmul_32: " in "".join(o.text for o in cell.outputs if o.output_type == "stream")
    assert not any(o.output_type == "error" for o in cell.outputs)


@pytest.mark.full
def test_text_on_demand(tmp_path):
    """The reference's text is there for those who want it, in a notebook too."""
    cell = run(tmp_path, SETUP, "nestsmith.progress('marks')", TUNE)[2]
    printed = "".join(o.text for o in cell.outputs if o.output_type == "stream")
    assert "[ Search ]" in printed and "...***" in printed and not shown(cell, "image/png")
