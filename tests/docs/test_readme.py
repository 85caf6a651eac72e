"""The README's example runs as it stands."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_example(tmp_path):
    text = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "median (ms)" in done.stdout and (tmp_path / "mlp.json").stat().st_size > 0
