"""The README's examples run as they stand."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.mark.parametrize("text", EXAMPLES, ids=["one call", "in steps"])
def test_example(text, tmp_path):
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "median (ms)" in done.stdout and (tmp_path / "mlp.json").stat().st_size > 0
