"""The package and tests/helpers.py can be imported from every test folder, and by the programs that tests start.

One failure costs one test: what a test has opened with the fixture ``closing`` is closed however the test ends, and what
only the variables of a failed test hold goes with them, although pytest keeps the traceback."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback
import zlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
GIVEN = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
# the package under test: the one that PYTHONPATH names (a build under sanitizers, say), or this checkout's
PACKAGE = next((p for p in GIVEN if os.path.isdir(os.path.join(p, "nestsmith"))), str(ROOT / "python"))
sys.path[:0] = [PACKAGE, str(ROOT / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGE, str(ROOT / "tests"), *GIVEN])
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so shells start what runs in the background; tests send it to themselves
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("NESTSMITH_VERIFY", "1")  # every program is verified after every pass; what is broken ends the process
BEGIN = time.monotonic()


def pytest_addoption(parser):
    parser.addoption("--tenth", type=int, metavar="N", help="a tenth of the tests marked full: number N %% 10, in an order that N decides")
    parser.addoption("--minutes", type=float, metavar="M", help="tests that have not begun after M minutes are skipped")


def mark_the_rest(items):
    """Of a test with the mark ``some(n)``, n cases spread over its list stay in ``make test``; the others become ``full``."""
    families = {}
    for x in items:
        if (mark := x.get_closest_marker("some")) and not x.get_closest_marker("full"):
            families.setdefault((x.parent, x.originalname), (mark.args[0], []))[1].append(x)
    for n, cases in families.values():
        chosen = {round((i + 0.5) * len(cases) / n - 0.5) for i in range(n)}
        for i, x in enumerate(cases):
            if i not in chosen:
                x.add_marker(pytest.mark.full)


@pytest.hookimpl(tryfirst=True)  # before pytest itself leaves out what is `full`
def pytest_collection_modifyitems(config, items):
    """The tenth goes by the names of tests, not by their places: a test that is added moves no other one."""
    mark_the_rest(items)
    n = config.getoption("tenth")
    if n is None:
        return
    digest = {item: zlib.crc32(item.nodeid.encode()) for item in items}
    full = [x for x in items if x.get_closest_marker("full") and not x.get_closest_marker("long")]
    chosen = [x for x in full if digest[x] % 10 == n % 10]
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = sorted(chosen, key=lambda x: zlib.crc32(str(n).encode(), digest[x]))


def pytest_collection_finish():
    """What the modules of tests hold stays: collecting garbage need not look at it, which takes half a second each time."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    minutes = item.config.getoption("minutes")
    if minutes and time.monotonic() > BEGIN + 60 * minutes:
        pytest.skip(f"{minutes:g} minutes are over")


def pytest_configure(config):
    """Without NVRTC the tests that compile kernels for CUDA are skipped; where NESTSMITH_CI is set it has to be there."""
    if config.option.markexpr == "not full":
        os.environ["NESTSMITH_SHORT"] = "1"  # helpers.check_passes
    if not os.environ.get("NESTSMITH_CI"):
        return
    from nestsmith import _core

    there, why = _core.build_available("cuda")
    if not there:
        raise pytest.UsageError(f"NESTSMITH_CI is set, and kernels for CUDA cannot be compiled: {why}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """After the report of a failure is written, its frames let go of sessions, workers and runners."""
    yield
    if call.excinfo is None or call.excinfo.errisinstance(pytest.skip.Exception) or item.config.getoption("usepdb", False):
        return
    e, seen = call.excinfo.value, set()
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        traceback.clear_frames(e.__traceback__)
        for frame, _ in traceback.walk_tb(e.__traceback__):
            frame.f_locals  # noqa: B018 - brings the copy that was made for the report up to date
        e = e.__cause__ or e.__context__
    gc.collect()


def _end(x):
    if isinstance(x, subprocess.Popen):
        x.kill()
        for pipe in (x.stdin, x.stdout, x.stderr):
            if pipe:
                pipe.close()
        x.wait()
    else:
        x.close()


@pytest.fixture
def closing():
    """``closing(x)`` gives x back and closes it (kills it, if it is a process) when the test is over."""
    opened = []

    def later(x):
        opened.append(x)
        return x

    yield later
    for x in reversed(opened):
        _end(x)


@pytest.fixture
def new_children():
    """``new_children(mark="")``: process ids of the children that this process has now and did not have before the test."""
    from helpers import children

    before = children()
    return lambda mark="": sorted(set(children(mark)) - set(before))
