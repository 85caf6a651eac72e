"""A log whose disk is full: one warning, no lost record, one line when it is over."""

import gc
import glob
import logging
import os
import subprocess
import sys
import time

import pytest

from nestsmith.auto_scheduler import MeasureInput, MeasureResult, RecordReader, RecordToFile
from nestsmith.auto_scheduler.measure_record import RecordState, RecordTask

TASK = RecordTask('["full", [8]]', "llvm", (2, 64, 64, 0, 0, 0, 0, 0), "", 0, [])


def batch(out, *numbers):
    inputs = [MeasureInput(TASK, RecordState(f'[["PR", 0, {n}, "x"]]')) for n in numbers]
    out(None, inputs, [MeasureResult([0.5], 0, "", 0.1, time.time())] * len(numbers))


def written(path):
    return [inp.state.transform_steps[0][2] for inp, _ in RecordReader(str(path))]


@pytest.fixture
def full(tmp_path):
    log = tmp_path / "log.json"
    log.symlink_to("/dev/full")
    return log


def test_one_warning_and_one_line_when_it_is_over(full, caplog):
    caplog.set_level(logging.INFO, "auto_scheduler")
    out, other = RecordToFile(str(full)), RecordToFile(str(full))
    for n in range(4):
        batch(out, 2 * n, 2 * n + 1)
    batch(other, 100)
    (line,) = caplog.messages
    assert "No space left" in line and "kept in memory" in line and str(full) in line
    with pytest.raises(OSError, match="8 records"):
        out.flush()
    full.unlink()
    batch(out, 8)
    batch(other, 101)
    assert [m for m in caplog.messages[1:]] == [
        f"{full} can be written again: {n} records were written late" for n in (8, 1)
    ]
    assert written(full) == [*range(9), 100, 101]
    full.unlink()
    full.symlink_to("/dev/full")
    batch(out, 9)
    assert len(caplog.messages) == 4 and "kept in memory" in caplog.messages[-1]
    full.unlink()
    out.flush()
    assert written(full) == [9]


def test_records_outlive_the_object_that_holds_them(full):
    out = RecordToFile(str(full))
    batch(out, 1, 2)
    del out
    gc.collect()
    (held,) = [o for o in RecordToFile._holding if o.filename == str(full)]
    full.unlink()
    held.close()
    assert written(full) == [1, 2] and held not in RecordToFile._holding


def test_full_until_the_end_of_the_process(full, tmp_path):
    code = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_full_disk import *
batch(RecordToFile({str(full)!r}), 5, 6, 7)
"""
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                       env={**os.environ, "TMPDIR": str(tmp_path)})  # fmt: skip
    (rest,) = glob.glob(str(tmp_path / "log.json.rest-*.json"))
    assert r.returncode == 0 and "3 records could not be written" in r.stderr and rest in r.stderr, r.stderr
    assert written(rest) == [5, 6, 7]
