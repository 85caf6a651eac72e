"""The examples of README.md and docs/from-tvm.md run as they stand, and the table of results is that of docs/results."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = {name: re.search(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S)[1] for name in ("README.md", "docs/from-tvm.md")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path):
    done = subprocess.run([sys.executable, "-c", EXAMPLES[name]], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "median (ms)" in done.stdout and (tmp_path / "mlp.json").stat().st_size > 0


def test_the_table_of_results_is_up_to_date():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "docs" / "readme.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = script.PAGE.read_text()
    assert script.page(text) == text, "run: python docs/readme.py"
    assert text.count("| NVIDIA H100 |") > 5
