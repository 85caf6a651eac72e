"""Fuzzed ONNX graphs: an exception of a clear kind or a network, whose results are those of onnxruntime or the standard's evaluator."""

import os
import pathlib
import subprocess
import sys

import pytest

from helpers import full

HERE = pathlib.Path(__file__).parent


def run(count, seed, compare, tmp_path, seconds):
    env = {**os.environ, "NESTSMITH_CACHE_DIR": str(tmp_path)}
    program = [sys.executable, str(HERE / "onnx_graphs.py"), *map(str, (count, seed, compare))]
    r = subprocess.run(program, capture_output=True, text=True, env=env, timeout=seconds)
    print(r.stdout)
    assert r.returncode == 0, (r.stdout + r.stderr)[-4000:]


@pytest.mark.parametrize("count,compare", [(30, 1), full(100, 2)])
def test_some_graphs(tmp_path, count, compare):
    run(count, 7, compare, tmp_path, 600)


@pytest.mark.full
@pytest.mark.long
def test_graphs(tmp_path):
    run(100_000, 1, 2000, tmp_path, 7200)
