"""Progress lines, logs, monitors: what users see of a run."""

import io
import json
import logging
import re
import sys
import time

import pytest
from tuning_spaces import computed, make

from nestsmith import autotvm
from nestsmith.autotvm.tuner import GridSearchTuner

FLOP = 2.0 * 128**3
LINE = re.compile(r"^\[Task  1/17\]  Current/Best: ( *\d+\.\d\d)/( *\d+\.\d\d) GFLOPS \| Progress: \((\d+)/(\d+)\) \| \d+\.\d\d s")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(out, costs, monkeypatch, batch=2, **bar):
    monkeypatch.setattr(sys, "stdout", out)
    task = make("grid64", 0)
    callbacks = [autotvm.callback.progress_bar(len(costs), prefix="[Task  1/17] ", **bar)]
    GridSearchTuner(task).tune(len(costs), computed(lambda c: costs[c.index], batch=batch), callbacks=callbacks)
    monkeypatch.undo()
    return out.getvalue()


def test_a_terminal_has_one_line_that_changes(monkeypatch):
    text = run(Terminal(), [FLOP / 25.3e9, FLOP / 39.12e9, FLOP / 5e9, None], monkeypatch)
    assert text.endswith(" Done.\n") and text.count("\n") == 1
    lines = text[: -len(" Done.\n")].split("\r")
    assert lines[0] == "" and len(lines) == 5  # at the beginning, after each batch, at the end
    shown = [LINE.match(x).groups() for x in lines[1:]]
    assert all(LINE.fullmatch(x) for x in lines[1:])
    assert shown == [("   0.00", "   0.00", "0", "4"), ("  39.12", "  39.12", "2", "4"), ("   5.00", "  39.12", "4", "4"),
                     ("   5.00", "  39.12", "4", "4")]  # fmt: skip


def test_elsewhere_lines_are_few(monkeypatch):
    text = run(io.StringIO(), [1e-3] * 40, monkeypatch)
    lines = text.splitlines()
    assert "\r" not in text and len(lines) < 10 and lines[-1].endswith(" s Done.")
    assert LINE.match(lines[-1]).groups()[2:] == ("40", "40")


def test_nothing_is_shown_beside_debug_lines(monkeypatch, caplog):
    with caplog.at_level(logging.DEBUG, "autotvm"):
        assert run(Terminal(), [1e-3] * 2, monkeypatch) == ""


def test_the_bar_ends_also_after_an_error(monkeypatch):
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    bar = autotvm.callback.progress_bar(4)
    with pytest.raises(ZeroDivisionError):
        GridSearchTuner(make("grid64", 0)).tune(4, computed(lambda c: 1 / 0), callbacks=[bar])
    bar.end(None, 0, False)
    monkeypatch.undo()
    assert out.getvalue().count(" Done.\n") == 1


def test_the_last_state_is_said_once(monkeypatch):
    monkeypatch.setattr(autotvm.callback, "QUIET_SECONDS", 0.0)
    lines = run(io.StringIO(), [1e-3] * 4, monkeypatch).splitlines()
    assert len(lines) == 2 and "(2/4)" in lines[0] and "(4/4)" in lines[1] and lines[1].endswith(" Done.")


def test_units_of_the_bar():
    with pytest.raises(ValueError, match="si_prefix is 'Q'"):
        autotvm.callback.progress_bar(1, si_prefix="Q")
    bar = autotvm.callback.progress_bar(3, "x", "M")
    assert bar.line().startswith("x Current/Best:    0.00/   0.00 MFLOPS | Progress: (0/3) | ")


@pytest.mark.parametrize("kind", ["path", "text", "file"])
def test_logs(kind, tmp_path):
    path = tmp_path / "log.json"
    out = {"path": path, "text": str(path), "file": open(path, "w")}[kind]
    costs = [1e-3, None, 2e-3]
    GridSearchTuner(make("grid64", 0)).tune(3, computed(lambda c: costs[c.index], batch=2), callbacks=[autotvm.callback.log_to_file(out)])
    lines = path.read_text().splitlines()
    assert lines[-1] == "# done tests/grid64 trials=3" and len(lines) == 4
    records = [json.loads(x) for x in lines[:-1]]
    assert [r["result"][:2] for r in records] == [[[1e-3], 0], [[1e9], 4], [[2e-3], 0]]
    assert [r["config"]["index"] for r in records] == [0, 1, 2]
    assert len(list(autotvm.record.load_from_file(path))) == 3
    with pytest.raises(ValueError, match="protocol is 'pickle'"):
        autotvm.callback.log_to_file(path, protocol="pickle")
    with pytest.raises(FileNotFoundError, match="no folder .*missing"):
        autotvm.callback.log_to_file(path.parent / "missing" / "log.json")


def test_a_database_and_a_monitor():
    class Database:
        saved = []

        def save(self, inp, res):
            self.saved.append((inp.config.index, res.error_no))

    db, monitor, costs, before = Database(), autotvm.callback.Monitor(), [1e-3, None, 2e-3], time.time()
    GridSearchTuner(make("grid64", 0)).tune(
        3, computed(lambda c: costs[c.index], batch=2), callbacks=[autotvm.callback.log_to_database(db), monitor]
    )
    assert db.saved == [(0, 0), (1, 4), (2, 0)]
    assert monitor.trial_scores().tolist() == [FLOP / 1e-3, 0, FLOP / 2e-3]
    assert all(before <= t <= time.time() for t in monitor.trial_timestamps())
    monitor.reset()
    assert len(monitor.trial_scores()) == len(monitor.trial_timestamps()) == 0


@pytest.mark.parametrize("wrong", ["3", 2.5])
def test_early_stopping_that_is_no_number_is_told_before_the_run(wrong):
    with pytest.raises(TypeError, match="early_stopping is"):
        GridSearchTuner(make("grid64", 0)).tune(3, computed(lambda c: 1.0), early_stopping=wrong)
