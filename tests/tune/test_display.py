"""What a run shows: how much in each mode, the line, the marks, the table."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from types import SimpleNamespace

import pytest

import nestsmith as ns
from nestsmith import auto_scheduler
from nestsmith.auto_scheduler import display
from nestsmith.auto_scheduler.task_scheduler import PrintTableInfo


@pytest.fixture(scope="module")
def network():
    mod, params = ns.relay.testing.mlp.get_workload(batch_size=1, image_shape=(1, 8, 8))
    return auto_scheduler.extract_tasks(mod["main"], params, "llvm")


def run(network, tmp_path, mode, verbose=1, trials=16):
    tuner = auto_scheduler.TaskScheduler(*network, callbacks=[PrintTableInfo()])
    with ns.progress(mode):
        tuner.tune(
            auto_scheduler.TuningOptions(
                trials, num_measures_per_round=2, verbose=verbose,
                runner=auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0),
                measure_callbacks=[auto_scheduler.RecordToFile(tmp_path / f"{mode}.json")],
            ),
            search_policy="sketch.random",
        )
    return tuner


def test_bar_is_short(network, tmp_path, capsys):
    run(network, tmp_path, "bar")
    out = capsys.readouterr().out
    lines = re.findall(r"^\[\d/4 \w+\]  trials +(\d+)/16  best .*  failed \d+.*  [\d.]+ s/trial  ETA .+$", out, re.M)
    assert [int(n) for n in lines] == list(range(2, 17, 2)), "one line per round"
    assert out.count("[ Task Scheduler ]") in (5, 6) and "[ Search ]" not in out  # start, quarters, end
    assert re.search(r"Trials: 16\tUsed time : \d+ s\tNext ID: -", out)
    assert "To go on later:" in out and "--mode distill -i" in out and "Valid: 16/16" in out


def test_marks_look_like_the_reference(network, tmp_path, capsys):
    run(network, tmp_path, "marks", trials=8)
    out = capsys.readouterr().out
    ruler = "-" * 70 + "\n" + "-" * 30
    for name in ("Task Scheduler", "Search", "Measure"):
        assert out.count(f"{ruler}  [ {name} ]\n" + "-" * 70) == 4 + (name == "Task Scheduler")
    assert out.count("Get 2 programs to measure:\n..**\nTime elapsed for measurement: ") == 4


@pytest.mark.parametrize("mode, verbose", [("none", 1), ("auto", 0)])
def test_nothing(network, tmp_path, capsys, mode, verbose):
    run(network, tmp_path, mode, verbose, 4)
    assert capsys.readouterr() == ("", "")


def test_every_result(network, tmp_path, capsys):
    run(network, tmp_path, "marks", 2, 4)
    out = capsys.readouterr().out
    rule = "=" * 50
    shown = re.findall(rf"^{rule}\nNo: (\d+)\tGFLOPS: [\d.]+ / [\d.]+\tresults: MeasureResult\(.*\)\n{rule}\n", out, re.M)
    assert shown == ["1", "2", "3", "4"] and "Placeholder: " in out


def test_mode():
    assert display.style(1) == "text" and display.style(0) == "none"
    with ns.progress("bar"):
        assert display.style(1) == "bar" and display.style(0) == "none"
        with ns.progress("none"):
            assert display.style(2) == "none"
        assert display.style(1) == "bar"
    assert display.style(1) == "text"
    with pytest.raises(ValueError, match="did you mean 'bar'"):
        ns.progress("bars")


def test_marks_and_names():
    assert display.marks([0, 1, 2, 6, 3, 4, 5, 7, 8]) == "..E.E.T.....**E*E*W*T*E"
    assert display.marks([0] * 40) == "." * 32 + "*" * 32 + "\n" + "." * 8 + "*" * 8
    assert display.short("vm_mod_fused_nn_conv2d_add_nn_relu_3,vm_mod_fused_x") == "conv2d_add_relu_3"


def test_rate_and_remaining_time(capsys):
    progress = display.Progress(100, 1)
    assert progress.rate() == (None, None) and "ETA -" in progress.line()
    now = time.time()
    progress.rounds.clear()
    progress.rounds.extend([(now - 1000 + k, 0) for k in range(3)] + [(now - 20 + 5 * k, 10 * k) for k in range(4)])
    progress.done = 40
    per, left = progress.rate()  # the first two rounds are out of the window
    assert per == pytest.approx((now - 5 - (now - 999)) / 30) and left == pytest.approx(60 * per)
    ok, bad = SimpleNamespace(error_no=0), SimpleNamespace(error_no=2, extra={"cause": "compiler-error"})
    for r in (ok, bad, bad):
        progress.result(None, r)
    assert "failed 2 (compiler-error 2)" in progress.line()


def test_table(network):
    tuner = auto_scheduler.TaskScheduler(*network)
    tuner.tic, tuner.ct, tuner.restored, tuner.best_costs[0] = time.time() - 7, 64, 4928, 1e-3
    tuner.task_trials[0] = 64
    wide, narrow = PrintTableInfo.table(tuner, 1), PrintTableInfo.table(tuner, 1, 80)
    assert max(map(len, wide.splitlines()[:-2])) == 113 and max(map(len, narrow.splitlines()[3:-2])) == 49
    assert narrow.splitlines()[:6] == [
        "-" * 70,
        "-" * 30 + "  [ Task Scheduler ]",
        "-" * 70,
        "|  ID  | Latency (ms) | Speed (GFLOPS) | Trials |",
        "-" * 49,
        f"|    0 |        1.000 | {tuner.flop_cts[0] / 1e6:14.2f} |     64 |",
    ]
    assert narrow.splitlines()[6] == "|    1 |            - |              - |      0 |"
    assert re.search(
        r"Estimated total latency: - ms\tTrials: 4992 \(\+64\)\tUsed time : ([7-9]|\d{2,3}) s\tNext ID: 1\t\n"
        "- = no valid measurement yet: 3 of 4 tasks$",
        narrow,
    )


def test_one_task(network, tmp_path, capsys):
    log = tmp_path / "log.json"
    options = auto_scheduler.TuningOptions(4, measure_callbacks=[auto_scheduler.RecordToFile(log)])
    with ns.progress("bar"):
        network[0][0].tune(options, cost_model="random")
    out = capsys.readouterr().out
    assert re.search(r"^Best of dense_add_relu: [\d.]+ ms \([\d.]+ GFLOPS\)  Valid: 4/4  Failed: 0  Saved: ", out, re.M)
    assert "task.apply_best(" in out and "PreloadMeasuredStates(" in out
    more = re.search(r"To go on later: (task.tune.*)", out)[1]
    with ns.progress("none"):
        eval(more, {"task": network[0][0], "options": options, "auto_scheduler": auto_scheduler})  # the line works
    assert len(list(auto_scheduler.load_records(log))) == 8


def test_on_a_terminal(tmp_path, closing):
    """A real pseudo-terminal of 120 columns: one line that is redrawn, the table above it, the summary below."""
    script = """
import nestsmith
from nestsmith import auto_scheduler, relay
mod, params = relay.testing.mlp.get_workload(batch_size=1, image_shape=(1, 8, 8))
tuner = auto_scheduler.TaskScheduler(*auto_scheduler.extract_tasks(mod["main"], params, "llvm"), callbacks=[auto_scheduler.PrintTableInfo()])
runner = auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0)
with nestsmith.progress("bar"):
    tuner.tune(auto_scheduler.TuningOptions(16, num_measures_per_round=2, runner=runner), search_policy="sketch.random")
"""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    package = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))
    env = {**os.environ, "PYTHONPATH": package, "TERM": "xterm"}
    command = [sys.executable, "-c", script]
    child = closing(subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=env))
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    assert child.wait(300) == 0, text.decode()
    out = text.decode().replace("\r\n", "\n")
    drawn = [p for p in re.split(r"[\r\n]", out) if "/16 |" in p]
    assert len(drawn) > 5 and all(len(p) <= 120 for p in drawn)
    assert re.match(r"\[\d/4 \w+\] 16/16 \|█{12}\| best [\d.]+ ms, failed \d+.*, [\d.]+ s/trial, [\d.]+ (s|min|h) in all", drawn[-1].strip())
    assert out.count("[ Task Scheduler ]") in (5, 6) and "Valid: 16/16" in out
