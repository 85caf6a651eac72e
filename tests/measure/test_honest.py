"""The run stage on a CPU and on PoCL with real parts: finals, audit, canary under load, marks, lock, lanes, spare worker."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import helpers
import nestsmith as ns
from helpers import PATIENCE, endless, wait_until, when
from nestsmith import _core, auto_scheduler, te
from nestsmith.auto_scheduler import cost, log_tools, marks, measure_record as records
from nestsmith.auto_scheduler.measure import MeasureInput, MeasureResult, details

N = 1024
HEAD = "#include <fcntl.h>\n#include <stdint.h>\nint32_t k(void *const *args, void *const *work, void *par, void *pool) {"
HEAD += " const float *x = args[0]; float *y = args[1]; %s return 0; }\n/* %s */\n"
# y = x + 1, so many times over
BODY = "for (volatile int j = 0; j < %d; j++) for (volatile int i = 0; i < 1024; i++) y[i] = x[i] + 1;"
MANIFEST = json.dumps(
    {
        "format": 1,
        "target": "c",
        "entry": "k",
        "args": [
            {"name": t, "dtype": "float32", "shape": [N], "bytes": 4 * N, "align": 64, "read_only": t == "x"} for t in "xy"
        ],
        "work": [],
        "kernels": [{"name": "k", "params": [], "grid": [1, 1, 1], "block": [1, 1, 1]}],
    }
)
X = (np.arange(N) % 7).astype("float32")


def data(exact=False):
    return _core.TaskData([(4 * N, X, False, "float32"), (4 * N, X + 1, True, "float32", exact)])


def policy(min_repeat_ms=2, race=False, timeout=10.0, strict=False):
    return helpers.policy(min_repeat_ms=min_repeat_ms, timeout=timeout, strict=strict, race=race)


def collect(pipe, seconds=2 * PATIENCE):
    out, end = {}, time.time() + seconds
    while pipe.pending() and time.time() < end:
        for tag, r in ((r["tag"], r) for r in pipe.poll(0.2)):
            assert tag not in out
            out[tag] = r
    assert not pipe.pending()
    return out


def task_of(n=64, target="llvm"):
    @auto_scheduler.register_workload(override=True)
    def honest_matmul(n):
        a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        r = te.reduce_axis((0, n), name="k")
        return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]

    return auto_scheduler.SearchTask(func=honest_matmul, args=(n,), target=ns.target.Target(target))


SMALL = {"evolutionary_search_population": 32, "sample_init_min_population": 8}


def tune(tmp_path, trials=24, n=64, **runner):
    log = tmp_path / "log.json"
    tuner = auto_scheduler.TaskScheduler([task_of(n)], callbacks=[])
    tuner.tune(
        auto_scheduler.TuningOptions(
            trials,
            num_measures_per_round=8,
            verbose=0,
            runner=auto_scheduler.LocalRunner(**{"number": 1, "min_repeat_ms": 5, **runner}),
            measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
        ),
        search_policy="sketch.random",
        search_policy_params=dict(SMALL),
    )
    return tuner, log


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(tuner, log) of 24 trials."""
    return tune(tmp_path_factory.mktemp("run"))


@pytest.fixture
def pipeline(closing):
    return lambda: closing(_core.Pipeline("llvm", 1, 0, n_compile=2))


# ---- the race ----


def test_race_of_known_programs(pipeline):
    """Only what comes near the best is timed in full; the rest is stopped; everything comes out once."""
    pipe = pipeline()
    task = pipe.task(data())
    loops = [20, 3000, 60, 21, 1000, 20, 2000, 600]  # 30 times: no other load slows a program down by so much
    for tag, n in enumerate(loops):
        pipe.submit(task, HEAD % (BODY % n, "race"), MANIFEST, tag, policy(race=True))
    got = collect(pipe)
    assert sorted(got) == list(range(len(loops))) and all(r["error"] == 0 for r in got.values())
    full = {loops[t] for t, r in got.items() if r["full"]}
    assert full and max(full) <= 60, full
    assert all(len(r["costs"]) == 1 and r["costs"][0] > 0 for r in got.values())
    assert any(r["cut"] for t, r in got.items() if loops[t] >= 600)
    for tag in range(10, 13):  # the next round meets the incumbent
        pipe.submit(task, HEAD % (BODY % 20, f"again {tag}"), MANIFEST, tag, policy(race=True))
    assert sorted(collect(pipe)) == [10, 11, 12]


def test_audit(pipeline):
    """One stopped candidate in fifty is measured in full all the same."""
    pipe = pipeline()
    task = pipe.task(data())
    pipe.submit(task, HEAD % (BODY % 2, "fast"), MANIFEST, 0, policy(race=True))
    collect(pipe)
    for tag in range(1, 120):  # one program, so one compilation
        pipe.submit(task, HEAD % (BODY % 600, "slow"), MANIFEST, tag, policy(race=True))
    got = collect(pipe)
    audited = [t for t, r in got.items() if r["audited"]]
    assert 1 <= len(audited) <= 12, audited
    assert all(got[t]["full"] and got[t]["cut"] for t in audited)
    assert sum(r["cut"] for r in got.values()) >= 60


def test_summary_tells_about_the_measuring(run):
    tuner, _ = run
    text = tuner.measurer.split.text()
    assert "finalists in" in text and "stopped early" in text and "Canary: " in text, text
    s = tuner.measurer.split
    assert s.ran == 24 and s.finals >= 1 and s.finalists >= s.finals and s.checks >= 1


# ---- the canary ----

BUSY = "while True: pass"


def test_canary_notices_other_processes(closing):
    """Another load on the machine in the middle of a run is noticed and what was measured meanwhile is marked or measured
    again."""
    pipe = closing(_core.Session(_core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0)), 1, 0, 1, 1))
    task = task_of(48)
    number = pipe.task(task.compute_dag, task.engine_target())
    state = _core.State(task.compute_dag)
    tag, seen, load = 0, [], []

    def measure(until, seconds):
        nonlocal tag
        end = time.monotonic() + seconds
        while not until() and time.monotonic() < end:
            pipe.submit(number, [state] * 2, tag, policy(20, strict=True))
            tag += 2
            while pipe.pending():
                seen.extend(pipe.poll(0.1))

    def noticed():
        return pipe.stats()["disturbed"] and any(r["disturbed"] or r["redone"] for r in seen)

    measure(lambda: pipe.stats()["checks"] >= 5, PATIENCE)
    for k in range(3):  # a machine that was busy before needs a heavier load to make a difference
        load += [
            closing(subprocess.Popen([sys.executable, "-c", BUSY])) for _ in range(4 * 2**k * (os.cpu_count() or 2))
        ]
        measure(noticed, 40)
        if noticed():
            break
        for p in load:
            p.kill()
        measure(lambda: False, 3)
    stats = pipe.stats()
    assert stats["checks"] >= 3 and stats["disturbed"] >= 1, stats
    assert any(r["disturbed"] or r["redone"] for r in seen) and stats["canary"] > 0
    assert len(seen) == tag and all(r["error"] == 0 for r in seen)


# ---- records ----


def test_marks_round_trip(tmp_path):
    task = task_of(16)
    inp = MeasureInput(task, _core.State(task.compute_dag))
    extra = {"stage": "quick", "blocks": 3, "spread": 0.0123, "l2": "mixed", "regs": 40, "disturbed": True}
    line = records.dump_record_to_string(inp, MeasureResult([1e-5], 0, "", 0.3, 1700000000, extra))
    parsed = json.loads(line)
    assert sorted(parsed) == ["i", "r", "v"]  # TVM's reader refuses other keys, and reads "v" without looking at it
    assert parsed["v"] == "v0.6 stage=quick n=3 sd=0.012 l2=mixed regs=40 disturbed"
    res = records.load_record_from_string(line)[1]
    assert cost.is_quick(res) and res.extra["blocks"] == 3 and res.extra["disturbed"] and not res.extra["full"]
    assert records.dump_record_to_string(*records.load_record_from_string(line)) == line
    failed = MeasureResult([1e10], 4, 'worker died\n"signal" 11', 0.3, 1700000000, {"stage": "quick", "cause": "worker-died"})
    line = records.dump_record_to_string(inp, failed)
    res = records.load_record_from_string(line)[1]
    assert res.extra["cause"] == "worker-died" and res.error_msg == 'worker died "signal" 11'
    assert records.dump_record_to_string(*records.load_record_from_string(line)) == line
    plain = records.dump_record_to_string(inp, MeasureResult([1e-5], 0, "", 0.3, 1700000000))
    assert plain.endswith('"v": "v0.6"}\n') and not cost.is_quick(records.load_record_from_string(plain)[1])
    for strange in ("v0.6 n=x y=1 z", "v0.6  ", "v0.5 stage=quick", "nonsense"):
        assert isinstance(marks.read_marks(strange), dict)


def test_full_results_come_first(tmp_path):
    """A quick time is good enough to rank with, not to win with."""
    task, log = task_of(16), tmp_path / "log.json"
    state = _core.State(task.compute_dag)
    rows = [(1e-6, {"stage": "quick"}), (3e-6, {"stage": "full", "n": 15}), (2e-6, {"stage": "quick"})]
    records.save_records(
        log, [MeasureInput(task, state)] * 3, [MeasureResult([c], 0, "", 0.1, 1700000000, e) for c, e in rows]
    )
    assert records.load_best_record(str(log))[1].costs == [3e-6]
    best = auto_scheduler.ApplyHistoryBest(str(log)).best["llvm"]
    (entry,) = next(iter(next(iter(best.values())).values()))
    assert entry.rank == (False, 3e-6)
    tuner = auto_scheduler.TaskScheduler([task], callbacks=[])
    counted = [tuner._rounds.better(0, r) for _, r in records.load_records(str(log))]
    assert counted == [True, True, False] and tuner.best_costs[0] == 3e-6
    log_tools.distill(str(log), str(tmp_path / "kept.json"))
    kept = [r.costs for _, r in records.load_records(str(tmp_path / "kept.json"))]
    assert kept == [[3e-6]] and log_tools.best(str(log)) == (tmp_path / "kept.json").read_text().splitlines(keepends=True)


def test_log_of_a_run_has_marks(run, tmp_path):
    tuner, log = run
    stages = [res.extra["stage"] for _, res in records.load_records(str(log)) if res.error_no == 0]
    assert "full" in stages and len(list(records.load_records(str(log)))) == 24
    best = min(np.mean(r.costs) for _, r in records.load_records(str(log)) if r.error_no == 0 and not cost.is_quick(r))
    assert tuner.best_costs[0] == pytest.approx(best)
    out = subprocess.run(
        [sys.executable, "-m", "nestsmith.log", "--mode", "strip", "-i", str(log), "-o", str(tmp_path / "plain.json")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert {json.loads(x)["v"] for x in open(tmp_path / "plain.json")} == {"v0.6"}, out
    again = auto_scheduler.TaskScheduler([task_of()], load_log_file=str(log), callbacks=[])
    again.tune(
        auto_scheduler.TuningOptions(1, num_measures_per_round=1, verbose=0, runner=auto_scheduler.LocalRunner(min_repeat_ms=1)),
        search_policy="sketch.random",
        search_policy_params=dict(SMALL),
    )
    assert again.best_costs[0] <= best


class Closes:
    """A number that closes something when it is read."""

    def __init__(self, what):
        self.what = what

    def __float__(self):
        self.what.close()
        return 0.0

    def __index__(self):
        self.what.close()
        return 0


@pytest.mark.parametrize("call", ["poll", "incumbent", "cold", "submit"])
def test_an_argument_that_closes_the_session(call):
    """Reading arguments runs Python: what the session is then is asked behind them."""
    llvm = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0))
    s, a = _core.Session(llvm, 1, 0, 1, 1), te.placeholder((8,), name="A")
    dag = _core.ComputeDAG([a, te.compute((8,), lambda i: a[i] + 1, name="B")])
    task = s.task(dag, llvm)

    def states():
        yield _core.State(dag)
        s.close()

    arguments = {"poll": [Closes(s)], "incumbent": [Closes(s), 1.0], "cold": [Closes(s), 0, 0], "submit": [task, states(), 0, {}]}
    with pytest.raises(ValueError, match="the session is closed"):
        getattr(s, call)(*arguments[call])


def test_an_argument_that_closes_the_pipeline():
    pipe = _core.Pipeline("llvm", 1, 0, n_compile=1)
    with pytest.raises(ValueError, match="the pipeline is closed"):
        pipe.poll(Closes(pipe))


# ---- several tuners, several devices ----

HOLDER = """
    import sys, time
    from nestsmith import _core
    s = _core.Session(_core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0)), 1, lock=2)
    print("held", flush=True)
    sys.stdin.readline()
    s.close()
"""


@pytest.fixture
def holder(closing, tmp_path, monkeypatch):
    """A process that holds the CPU until its standard input is closed."""
    monkeypatch.setenv("NESTSMITH_LOCK_DIR", str(tmp_path / "locks"))
    code = [sys.executable, "-c", textwrap.dedent(HOLDER)]
    p = closing(subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    assert p.stdout.readline() == "held\n"
    return p


def test_lock_names_its_holder(tmp_path, holder, closing):
    """A second tuner on a device fails or waits, and says who holds it; the lock goes with its holder."""
    target, p = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0)), holder
    with pytest.raises(RuntimeError, match=f"another process tunes on this device: process {p.pid} of user"):
        _core.Session(target, 1, lock=2)
    task = task_of(16)
    s = closing(_core.Session(target, 1, lock=1))
    number = s.task(task.compute_dag, task.engine_target())
    s.submit(number, [_core.State(task.compute_dag)], 0, policy(1, race=True))
    out, said = [], []
    assert wait_until(lambda: out.extend(s.poll(0.1)) or said.append(s.notice()) or any(said))
    assert out == [] and f"process {p.pid}" in said[-1] and "taking turns" in said[-1]
    os.kill(p.pid, signal.SIGKILL)  # no clean end is needed
    p.wait()
    assert wait_until(lambda: out.extend(s.poll(0.2)) or not s.pending())
    assert len(out) == 1 and out[0]["error"] == 0 and s.stats()["waited_s"] > 0.1
    assert all(os.path.getsize(tmp_path / "locks" / f) < 1024 for f in os.listdir(tmp_path / "locks"))


def test_local_runner_keeps_to_the_lock(holder, closing, caplog):
    """`LocalRunner.run` without a tuner waits for its turn as well and says for whom, or refuses."""
    task = task_of(16)
    inputs = [MeasureInput(task, _core.State(task.compute_dag))]
    built = auto_scheduler.LocalBuilder().build(inputs, 0)
    refuses = closing(auto_scheduler.LocalRunner(busy="fail"))
    with pytest.raises(RuntimeError, match=f"another process tunes on this device: process {holder.pid} of user"):
        refuses.run(inputs, built, 0)
    runner, out = closing(auto_scheduler.LocalRunner(busy="turns", min_repeat_ms=1)), []
    t = threading.Thread(target=lambda: out.extend(runner.run(inputs, built, 0)), daemon=True)
    t.start()
    t.join(1.5)  # long enough for a run on an idle machine
    assert out == [] and t.is_alive()
    assert wait_until(lambda: caplog.messages) and len(caplog.messages) == 1
    assert f"used by another tuner, process {holder.pid} of user" in caplog.messages[0]
    holder.stdin.close()  # the holder ends
    t.join(PATIENCE)
    assert [r.error_no for r in out] == [0]
    other = closing(auto_scheduler.LocalRunner(busy="turns", min_repeat_ms=1))  # nobody keeps the device between its runs
    assert other.run(inputs, built, 0)[0].error_no == 0 and runner.run(inputs, built, 0)[0].error_no == 0


def test_two_tuners_take_turns(tmp_path, monkeypatch, closing):
    """Neither gets far ahead of the other while both have work. Counted, not timed; both have what they need (workers,
    compiled programs) before the first turn."""
    monkeypatch.setenv("NESTSMITH_LOCK_DIR", str(tmp_path))
    target, task = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0)), task_of(16)
    sessions = [closing(_core.Session(target, 1, 0, 1, 1, lock=1)) for _ in range(2)]
    numbers = [s.task(task.compute_dag, task.engine_target()) for s in sessions]
    state = _core.State(task.compute_dag)

    def submit(n, tag, ms):
        for s, number in zip(sessions, numbers):
            s.submit(number, [state] * n, tag, policy(ms, timeout=30.0, strict=True))

    def ran(k):
        sessions[k].poll(0.01)
        return sessions[k].stats()["ran"]

    submit(1, 0, 1)
    assert wait_until(lambda: [ran(0), ran(1)] == [1, 1])
    submit(28, 1, 100)
    assert wait_until(lambda: ran(0) == 29 or ran(1) == 29)
    ahead = 0 if ran(0) == 29 else 1
    assert ran(1 - ahead) > 8  # asked last: a machine that is slow to ask sees more


# what each of two workers does first: it waits until the other one has come here as well
MEET = """
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void meet(void) {
  static int met;
  char path[4096];
  snprintf(path, sizeof path, "%s/%%d", (int)getpid());
  for (int k = 0; !met && k < 60000; k++, usleep(1000)) {
    close(open(path, O_CREAT | O_WRONLY, 0600));
    DIR *d = opendir("%s");
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    met = n >= 4; /* "." and ".." */
  }
  if (!met) abort();
}
"""
MEETING = r"""#!/bin/bash
for a; do [[ $a == *.c ]] && sed -i -E 's/^(.*int32_t [a-z0-9_]+\(void \*const \*args.*\{)/\1 meet();/' "$a"; done
exec cc -include HEADER "$@"
"""


def test_two_lanes(tmp_path, closing):
    """Several devices measure side by side; here the same one twice."""
    there = tmp_path / "there"
    there.mkdir()
    (tmp_path / "meet.h").write_text(MEET % (there, there))
    cc = tmp_path / "cc"
    cc.write_text(MEETING.replace("HEADER", str(tmp_path / "meet.h")))
    cc.chmod(0o755)
    target = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0))
    pipe = closing(_core.Session(target, 1, [0, 0], 1, 1, cache_dir="", cc=str(cc)))
    task = task_of(32)
    number = pipe.task(task.compute_dag, task.engine_target())
    pipe.submit(number, [_core.State(task.compute_dag)] * 12, 0, policy(20, timeout=100.0, strict=True))
    out = []
    assert wait_until(lambda: out.extend(pipe.poll(0.1)) or not pipe.pending())
    assert sorted(r["tag"] for r in out) == list(range(12)) and all(r["error"] == 0 for r in out), out
    assert len(list(there.iterdir())) == 2
    stats = pipe.stats()
    assert stats["devices"] == 2 and stats["run_s"] > 12 * 0.02
    tuner, _ = tune(tmp_path, 8, device=[0, 0])
    assert tuner.measurer.split.devices == 2 and tuner.best_costs[0] < 1
    with pytest.raises(ValueError, match="empty list"):
        auto_scheduler.LocalRunner(device=[])
    with pytest.raises(ValueError, match="lists 0 devices"):
        _core.Session(_core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0)), 1, [])


@pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL: " + str(ns.opencl(0).why_not))
def test_two_opencl_lanes():
    task = task_of(32, "opencl")
    options = auto_scheduler.TuningOptions(
        8, num_measures_per_round=8, verbose=0, runner=auto_scheduler.LocalRunner(device=[0, 0], min_repeat_ms=2, timeout=60)
    )
    tuner = auto_scheduler.TaskScheduler([task], callbacks=[])
    tuner.tune(options, search_policy="sketch.random", search_policy_params=dict(SMALL))
    assert tuner.measurer.valid >= 1 and tuner.measurer.split.devices == 2


# ---- workers ----


def endless_program(mark):
    """Binary of a program that makes the file ``mark`` and never ends."""
    return _core.build("llvm", HEAD % (endless(mark), "endless"))[0]


def test_spare_takes_over(tmp_path, closing, new_children):
    """The death of a worker costs its candidate, not the start of another one: that one is ready."""
    worker, task, mark = closing(_core.Worker(1, 0)), data(), tmp_path / "runs"
    binary = _core.build("llvm", HEAD % (BODY % 1, "spare"))[0]
    assert worker.run(0, task, binary, MANIFEST, policy())["error"] == 0
    assert wait_until(lambda: len(new_children("worker.py")) == 2)  # the other one is on its way
    before, both = worker.pid, new_children("worker.py")
    assert before in both
    when(mark.exists, lambda: os.kill(before, signal.SIGKILL))
    r = worker.run(0, task, endless_program(mark), MANIFEST, policy(timeout=PATIENCE))
    assert r["error"] == 4 and r["cause"] == "worker-died"
    assert [worker.pid] == [p for p in both if p != before]
    assert worker.run(0, task, binary, MANIFEST, policy())["error"] == 0
    assert wait_until(lambda: len(new_children("worker.py")) == 2)
    after = new_children("worker.py")
    assert worker.pid in after and before not in after
    worker.close()
    assert new_children("worker.py") == []


def test_frozen_worker_is_found(tmp_path, closing, new_children):
    """A worker that gives no sign of life does not hold the tuner until the user's limit."""
    worker, task, mark = closing(_core.Worker(1, 0)), data(), tmp_path / "runs"
    when(mark.exists, lambda: os.kill(worker.pid, signal.SIGSTOP))
    r = worker.run(0, task, endless_program(mark), MANIFEST, policy(timeout=PATIENCE))
    assert r["error"] == 4 and "no sign of life" in r["msg"] and r["seconds"] < PATIENCE, r
    worker.close()
    assert new_children("worker.py") == []


def test_interrupt_ends_a_hanging_candidate(closing):
    """The first Ctrl-C ends a run within about a second, although a candidate hangs."""
    code = textwrap.dedent("""
        import os, signal, sys, threading, time
        sys.path.insert(0, HERE)
        import test_honest as t
        from nestsmith import _core, auto_scheduler
        from nestsmith.auto_scheduler import session
        from nestsmith.auto_scheduler.measure import MeasureInput
        task = t.task_of(768)  # a second for each run, timed for longer than anybody waits
        options = auto_scheduler.TuningOptions(2, verbose=0, runner=auto_scheduler.LocalRunner(timeout=600, min_repeat_ms=500000))
        m = session.Measurer(options)
        state = _core.State(task.compute_dag)
        def interrupt():
            global t0
            t0 = time.time()
            os.kill(os.getpid(), signal.SIGINT)
        try:
            b = m.submit(task, None, [MeasureInput(task, state)])
            threading.Timer(4, interrupt).start()
            m.wait(b)
        except KeyboardInterrupt:
            print("interrupted", time.time() - t0, flush=True)
    """).replace("HERE", repr(os.path.dirname(__file__)))
    p = closing(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True))
    line = p.stdout.readline().split()
    assert p.wait(PATIENCE) == 0
    assert line[0] == "interrupted" and float(line[1]) < PATIENCE, line  # 1 s on a machine that is not busy


# ---- comparing ----


def test_exact_outputs(closing):
    """A difference below the tolerance is found where every order of operations is exact."""
    a = te.placeholder((64, 64), name="A")
    k = te.reduce_axis((0, 64), name="k")
    total = te.compute((64,), lambda i: te.sum(a[i, k], axis=k), name="S")
    square = te.compute((64,), lambda i: total[i] * total[i] * 0.5, name="Q")
    root = te.compute((64,), lambda i: te.sqrt(total[i]), name="R")
    divided = te.compute((64,), lambda i: total[i] / 3, name="D")
    short = te.compute((64,), lambda i: te.round_tf32(total[i]), name="T")
    dag = auto_scheduler.ComputeDAG
    exact = lambda *out: _core.reference_exact(dag([a, *out]))[1:]  # noqa: E731
    assert exact(total) == [True] and exact(square) == [True] and exact(root) == [False] and exact(divided) == [False]
    assert exact(short) == [True]
    at = te.compute((64,), lambda i: te.if_then_else(i < 9, total[i], 0.0), name="P")
    sign = te.compute((64,), lambda i: te.if_then_else(total[i] > 0.1, total[i], 0.0), name="G")
    doubt = te.compute((64,), lambda i: te.if_then_else(te.exp(total[i]) > 0.1, total[i], 0.0), name="E")
    assert exact(at) == [True] and exact(sign) == [True] and exact(doubt) == [False]
    h = te.placeholder((64, 4096), dtype="float16", name="H")
    r = te.reduce_axis((0, 4096), name="r")
    long = te.compute((64,), lambda i: te.sum(h[i, r], axis=r), name="L")  # 3 * 4096 needs more than 11 bits
    assert _core.reference_exact(dag([h, long])) == [False, False]
    worker = closing(_core.Worker(1, 0))
    nearly = _core.build("llvm", HEAD % ("for (int i = 0; i < 1024; i++) y[i] = (x[i] + 1) * 1.000001f;", "near"))[0]
    assert worker.run(0, data(False), nearly, MANIFEST, policy())["error"] == 0
    r = worker.run(1, data(True), nearly, MANIFEST, policy())
    assert r["error"] == 5 and "exactly" in r["msg"]


def test_wrong_arguments():
    with pytest.raises(TypeError, match="expected a tuple"):
        _core.TaskData([7])
    for bad in ({"l2": "warm"}, {"busy": "maybe"}, {"mode": "quick"}, {"device": -1}):
        with pytest.raises(ValueError):
            auto_scheduler.LocalRunner(**bad)
    names = "cause quick full runs regs shared_bytes max_error blocks spread redone cut audited disturbed"
    assert details(dict.fromkeys(names.split(), 0))["stage"] == "quick"


def test_pool_in_a_forked_child():
    """A forked child may end the thread pool that it inherited without its threads."""
    code = textwrap.dedent("""
        import os, sys, gc
        import numpy as np, nestsmith as ns
        from nestsmith import te
        a = te.placeholder((4096,), name="A")
        b = te.compute((4096,), lambda i: a[i] + 1, name="B")
        s = te.create_schedule(b.op)
        s[b].parallel(b.op.axis[0])
        f = ns.build(s, [a, b], "llvm")
        x, y = ns.nd.array(np.zeros(4096, "float32")), ns.nd.array(np.zeros(4096, "float32"))
        f(x, y)
        pid = os.fork()
        if pid == 0:
            f(x, y)
            del f, x, y
            gc.collect()
            sys.exit(0)
        print(os.waitpid(pid, 0)[1])
    """)
    env = {**os.environ, "NESTSMITH_NUM_THREADS": "2"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, env=env)
    assert out.stdout == "0\n", out
