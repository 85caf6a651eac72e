"""Signals in every window of a tuning run: it ends as the signal says, loses no record, leaves nothing, can be gone on with."""

import os
import signal
import sys

import pytest
from interrupted import name_of
from runs import finish, keys_of, launch, launch_windows, left, limit, nobody_left, processes, told_and_kept
from soak import HOW, SECONDS, ended, ignore_hangups, soak_lanes, table

from helpers import full, wait_until

WINDOWS = [
    {"window": "start"},
    {"window": "pre_tune"},
    {"window": "predict", "model": True},  # sampling
    {"window": "predict", "count": 6, "model": True},  # evolving
    {"window": "update", "model": True},  # training
    {"window": "told"},  # a result is there, its record is not
    {"window": "told", "overlap": True},  # and the next round is being searched
    {"window": "write"},  # the log is open, the record is not in it
    {"window": "kept", "again": "write", "batch": 32},  # the second one while the run is closed: of so many, some are not told yet
    {"window": "swallowed"},  # a callback catches everything
    {"window": "objective", "count": 3},
    {"window": "told", "foreign": True},
    {"window": "told", "thread": True},
    {"window": "kept", "signal": "TERM"},  # its handler calls sys.exit
]


@pytest.mark.parametrize("chosen", [WINDOWS[:1] + WINDOWS[6:9] + WINDOWS[13:], full(WINDOWS)], ids=["some", "all"])
def test_every_window(tmp_path, chosen):
    """One process, one log, a run for each window, and one that ends by itself."""
    runs = [{"resume": True, **w} for w in chosen] + [{"resume": True, "trials": 16}]
    runs[0]["handlers"] = ["CHLD", "ALRM", "USR1", "wakeup", "TERM"]
    out, err = finish(launch_windows(tmp_path, *runs), tmp_path)
    rows = [[x.split()[0] for x in part.split("\n")[:-1]] for part in out.split("begin\n")]
    wanted = [["signal", "interrupted", "children"] for _ in chosen]
    wanted[next(i for i, w in enumerate(chosen) if w.get("again"))].insert(0, "signal")
    wanted[-1][1] = "exit"
    before_tune = [wanted.pop(0)]  # "start" comes after "begin", too
    assert rows == [[]] + before_tune + wanted + [["end", "children"]], (out, err)
    assert out.count("children 0\n") == len(runs), "processes were left between two runs"
    assert "end 16\n" in out
    told, kept = told_and_kept(tmp_path)
    keys = keys_of(tmp_path)
    assert told <= {name_of(*k) for k in keys} and kept <= told and len(set(keys)) == len(keys) >= 16


STUCK = """#!/bin/sh
# Says that it is there, stops, and has a child that goes on.
sleep 1000 &
: > {mark}
kill -STOP $$
exec {program} "$@"
"""

BUILD = """
import sys
import nestsmith as ns
from nestsmith import relay, te
a = te.placeholder((8,), name="A")
b = te.compute((8,), lambda i: a[i] + 1, name="B")
mod, params = relay.testing.mlp.get_workload(1)
try:
    if sys.argv[1] == "operator":
        ns.build(te.create_schedule(b.op), [a, b], "llvm")
    else:
        relay.build(mod, "llvm", params=params)
except KeyboardInterrupt:
    print("interrupted")
"""


def heard(p, folder, how):
    """The signal ends the run in good order, and all its processes with it."""
    os.kill(p.pid, getattr(signal, "SIG" + how))
    # a compiler, or a worker that starts, is given up after a minute anyway
    assert ended(p, max(50, limit(5 * SECONDS))), "the signal was not heard"
    _, says, statuses = HOW[how]
    out, err = p.communicate()
    assert p.returncode in statuses and (says is None or says in out), (out, err)
    nobody_left(folder)
    assert left(folder) == [], "what a killed run had, its workers remove"


@pytest.mark.some(4)
@pytest.mark.parametrize("who, how", [("compiler", "INT"), ("compiler", "KILL"), ("worker", "INT"), ("worker", "TERM"),
                                      ("operator", "INT"), ("network", "INT")])  # fmt: skip
def test_beside_a_process_that_hangs(tmp_path, closing, who, how):
    """A compiler, or a worker that starts, was stopped by somebody: the signal is heard, and it goes with the run, or the
    build of an operator or a network."""
    mark, program = tmp_path / "mark", tmp_path / "python-stuck"
    program.write_text(STUCK.format(mark=mark, program=sys.executable if who == "worker" else "cc"))
    program.chmod(0o755)
    env = {"NESTSMITH_PYTHON" if who == "worker" else "CC": str(program)}
    tunes = who in ("compiler", "worker")
    p = closing(launch_windows(tmp_path, {}, env=env) if tunes else launch(tmp_path, ["-c", BUILD, who], env))
    assert wait_until(mark.exists)
    assert len(processes(tmp_path)) >= 3
    heard(p, tmp_path, how)


INTERRUPTED = """
import queue, signal
from nestsmith.auto_scheduler.session import _Batch
signal.signal(signal.SIGALRM, lambda number, frame: None)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
arrived = _Batch(None, None, []).arrived
for _ in range(300):
    try:
        arrived.get(timeout=0.004)
    except queue.Empty:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
print("end")
"""


def test_waiting_for_results_beside_a_timer(tmp_path, closing):
    """A handler that is called all the time does not make a wait endless."""
    out, err = finish(closing(launch(tmp_path, ["-c", INTERRUPTED])), tmp_path)
    assert out == "end\n", err


@pytest.mark.parametrize("how", ["INT", "KILL"])
def test_beside_a_long_reference(tmp_path, closing, how):
    """What candidates must compute takes minutes."""
    p = closing(launch_windows(tmp_path, {"long": True}))
    assert wait_until(lambda: any(" r " in command for _, command in processes(tmp_path)))
    heard(p, tmp_path, how)


def test_a_hangup_that_is_ignored_ends_nothing(tmp_path, closing):
    """As under nohup."""
    more = {"trials": 24, "window": "kept", "signal": "HUP"}
    out, _ = finish(closing(launch_windows(tmp_path, more, prepare=ignore_hangups)), tmp_path)
    assert "signal" in out and "end 24\n" in out and len(keys_of(tmp_path)) == 24


@pytest.mark.full
@pytest.mark.long
def test_soak(tmp_path):
    """200 runs, each ended by a signal, half of them beside processes that are killed and stopped and files that vanish."""
    times, problems, acts, records = soak_lanes(tmp_path / "soak", 200, 1)
    print(table(times), dict(acts), records, sep="\n")
    assert not problems, "\n".join(problems)
    late = sorted(seconds for _, seconds, _ in times)[int(0.95 * len(times))]
    assert late <= limit(SECONDS), table(times)
