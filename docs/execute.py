"""Executes the notebooks of this folder in place: ``python docs/execute.py [NAME.ipynb ...]`` (or ``make notebooks``).

Files that a notebook writes go to a temporary folder. What a machine prints differently each time (temporary paths,
times of execution) is taken out, so that a second run changes figures only.
"""

import os
import pathlib
import sys
import tempfile
import time

import nbclient
import nbformat

HERE = pathlib.Path(__file__).resolve().parent


def execute(path):
    """Runs one notebook; raises nbclient's error with the cell that failed."""
    book, begin = nbformat.read(path, as_version=4), time.time()
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            book, timeout=1500, kernel_name="python3", resources={"metadata": {"path": folder}}, record_timing=False,
            on_cell_executed=lambda cell, cell_index, **_: print(f"  cell {cell_index}, {time.time() - begin:.0f} s", flush=True),
        )
        client.execute()
        text = nbformat.writes(book).replace(os.path.realpath(folder), "/tmp/tutorial") + "\n"
    book = nbformat.reads(text, as_version=4)
    for cell in book.cells:
        for out in cell.get("outputs", []):
            out.get("metadata", {}).pop("execution", None)
    book.metadata = {"kernelspec": book.metadata["kernelspec"], "language_info": {"name": "python"}}
    nbformat.write(book, path)


def main(names):
    """Executes the named notebooks, all by default."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "python"), os.environ.get("PYTHONPATH", "")])
    for path in [HERE / n for n in names] or sorted(HERE.glob("*.ipynb")):
        print(f"executing {path.name}", flush=True)
        execute(path)


if __name__ == "__main__":
    main([pathlib.Path(a).name for a in sys.argv[1:]])
