"""benchmarks/measuring.py runs: what it uses of the package is still there. Its figures are for a quiet machine with a GPU."""

import pathlib
import subprocess
import sys

from helpers import PATIENCE

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "measuring.py"
SMALL = "--target llvm --only same,rank --kernels 1 --copies 5 --candidates 8 --rank-tasks 1 --image 32 --min-repeat-ms 1"


def test_tables():
    r = subprocess.run([sys.executable, str(SCRIPT), *SMALL.split()], capture_output=True, text=True, timeout=5 * PATIENCE)
    assert r.returncode == 0 and "[same:" in r.stdout and "[rank:" in r.stdout, r.stdout + r.stderr
