"""Benchmarks run: what they use of the package is still there. Their figures are for a quiet machine with a GPU."""

import pathlib
import subprocess
import sys

import pytest

from helpers import PATIENCE
from nestsmith import _core

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "measuring.py"
SMALL = "--target llvm --only same,rank --kernels 1 --copies 5 --candidates 8 --rank-tasks 1 --image 32 --min-repeat-ms 1"


@pytest.mark.full
def test_tables():
    r = subprocess.run([sys.executable, str(SCRIPT), *SMALL.split()], capture_output=True, text=True, timeout=5 * PATIENCE)
    assert r.returncode == 0 and "[same:" in r.stdout and "[rank:" in r.stdout, r.stdout + r.stderr


@pytest.mark.full
@pytest.mark.skipif(not _core.device_exists(4, 0)[0], reason="no OpenCL device (pocl-opencl-icd)")
def test_the_public_log():
    script = str(SCRIPT.parent / "public_log.py")
    r = subprocess.run([sys.executable, script, "--device", "opencl", "--tasks", "0"], capture_output=True, text=True, timeout=5 * PATIENCE)
    assert r.returncode == 0 and "wrong 0" in r.stdout, r.stdout + r.stderr
