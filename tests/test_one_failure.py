"""A test that fails with processes open costs one test: they are gone before the next one begins."""

import subprocess
import sys

from helpers import PATIENCE

FAILS = """
import pytest
from helpers import children, wait_until
from nestsmith import _core, auto_scheduler

def test_fails():
    worker, more = _core.Worker(1, 0), {"pipe": _core.Pipeline("llvm", 1, 0)}
    more["itself"] = more  # a cycle
    assert not wait_until(lambda: children("worker.py")), "there are some"

def test_fails_while_it_handles_an_error():
    try:
        worker = _core.Worker(1, 0)
        raise ValueError
    except ValueError:
        assert False

def test_in_a_fixture(closing):
    closing(_core.Worker(1, 0))
    assert len(children("worker.py")) <= 2  # and none of the tests before
    raise KeyError

def test_is_alone(new_children):
    assert not children("worker.py") and new_children() == []
"""


def test_one_failure_costs_one_test(tmp_path):
    (tmp_path / "test_it.py").write_text(FAILS)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", "--color=no", "."]
    r = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=5 * PATIENCE)
    assert r.stdout.splitlines()[-1].startswith("3 failed, 1 passed"), r.stdout
    assert "KeyError" in r.stdout and "there are some" in r.stdout
