"""Whole tuning runs in another process, with faults: bad programs, a bad compiler, killed processes, full disks,
interrupts. After each the log must parse, and neither a process nor a temporary file may be left."""

import json
import os
import pathlib
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time

import pytest

import nestsmith as ns
from helpers import PATIENCE, wait_until
from nestsmith import auto_scheduler

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))

TUNER = f"""
import os, signal, sys, time
sys.path[:0] = [{os.path.dirname(os.path.abspath(__file__))!r}, {PACKAGE!r}]
from test_scheduler import options, small, tasks_of
from nestsmith import auto_scheduler
trials, resume = int(sys.argv[1]), sys.argv[2:] == ["resume"]
tuner = auto_scheduler.TaskScheduler(tasks_of(32, 48), load_log_file="log.json" if resume else None, callbacks=[])
opt = options(trials, 8, "log.json")
opt.runner.timeout = 4
EXTRA
try:
    print("begin", flush=True)
    tuner.tune(opt, search_policy="sketch.random", search_policy_params=small())
except KeyboardInterrupt:
    print("interrupted")
print("end", tuner.ct, dict(tuner.measurer.causes), flush=True)
"""


def start(folder, trials, *words, extra="", env=()):
    """A tuner of its own process group, session and folders for temporary files and compiled programs."""
    for name in ("tmp", "cache"):
        (folder / name).mkdir(exist_ok=True)
    settings = {**os.environ, "TMPDIR": str(folder / "tmp"), "NESTSMITH_CACHE_DIR": str(folder / "cache"), **dict(env)}
    script = TUNER.replace("EXTRA", textwrap.dedent(extra))
    p = subprocess.Popen([sys.executable, "-c", script, str(trials), *words], cwd=folder, env=settings, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    _started.append(p)
    return p


_started = []


@pytest.fixture(autouse=True)
def ended(closing):
    """What a test has started does not outlive it."""
    yield
    while _started:
        closing(_started.pop())


def processes(folder):
    """Processes that work for the tuner of this folder (its TMPDIR tells), as (pid, command)."""
    mark, out = f"TMPDIR={folder / 'tmp'}".encode(), []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark in (entry / "environ").read_bytes()
                and "Z" != (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            ):
                out.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except (OSError, IndexError):
            continue
    return out


def nobody_left(folder):
    assert wait_until(lambda: not processes(folder)), processes(folder)


def temporary_files(folder):
    return sorted(
        str(p.relative_to(folder)) for p in (folder / "tmp").rglob("*") if not p.is_dir() or p.parent != folder / "tmp"
    )


def records(folder):
    """(key, error number) of the log's lines; every line must be whole."""
    return [(r["i"][0][0], r["r"][1]) for r in map(json.loads, (folder / "log.json").read_text().splitlines())]


def finish(p, folder, timeout=3 * PATIENCE):
    """Standard output and error of a run that ended in good order."""
    out, err = p.communicate(timeout=timeout)
    assert p.returncode == 0, err[-3000:]
    nobody_left(folder)
    assert temporary_files(folder) == []
    return out, err


def wait_for_records(folder, n, p):
    log = folder / "log.json"
    wait_until(lambda: p.poll() is not None or (log.exists() and log.read_text().count("\n") >= n), 2 * PATIENCE)
    if p.poll() is not None or not log.exists() or log.read_text().count("\n") < n:
        pytest.fail(f"no {n} records in time: " + str(p.communicate() if p.poll() is not None else ""))


COMPILER = r"""#!/bin/bash
# Every third candidate gets a fault; the rest compiles as it is.
edit() { sed -i -E "0,/^(.*int32_t [a-z0-9_]+\(void \*const \*args.*\{)/s##\1 $1#" "$source"; }
for a; do [[ $a == *.c ]] && source=$a; done
if [[ -n $source ]] && grep -qE '@NAME@' "$source"; then
  n=0; until mkdir "$COUNT/$n" 2>/dev/null; do n=$((n + 1)); done # several compile at once
  case $((n % 9)) in
    2) edit "close(open(\"$COUNT/hangs\", O_CREAT | O_WRONLY, 0600)); for (volatile int i = 0;;) i++;";;
    5) edit '*(volatile int *)8 = 1;';;
    8) echo "$source:1:1: error: injected" >&2; exit 1;;
  esac
fi
exec cc -include fcntl.h -include unistd.h "$@"
"""


def test_bad_programs_and_a_failing_compiler(tmp_path):
    """Endless loops, illegal addresses and compiler errors among good candidates."""
    cc = tmp_path / "faulty-cc"
    cc.write_text(COMPILER.replace("@NAME@", "int32_t ns_program_"))
    cc.chmod(cc.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "count").mkdir()
    p = start(tmp_path, 27, env={"CC": str(cc), "COUNT": str(tmp_path / "count")})
    out, _ = finish(p, tmp_path)
    errors = [e for _, e in records(tmp_path)]
    kinds = auto_scheduler.MeasureErrorNo
    assert len(errors) == 27 and "end 27" in out
    assert {kinds.COMPILE_HOST, kinds.RUNTIME_DEVICE, kinds.RUN_TIMEOUT} <= set(errors), (out, errors)
    assert errors.count(0) >= 16


def test_a_killed_worker_costs_one_candidate(tmp_path):
    extra = """
    import pathlib
    class Kill:
        done = 0
        def callback(self, policy, inputs, results):
            if self.done == 0:
                self.done = 1
                for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                    try:
                        mine = int((entry.parent / "stat").read_text().rsplit(")", 1)[1].split()[1]) == os.getpid()
                        if mine and b"worker" in entry.read_bytes():
                            os.kill(int(entry.parent.name), signal.SIGKILL)
                            print("killed", flush=True)
                    except OSError:
                        pass
    opt.measure_callbacks.append(Kill())
    """
    out, _ = finish(start(tmp_path, 32, extra=extra), tmp_path)
    errors = [e for _, e in records(tmp_path)]
    assert "killed" in out and "end 32" in out
    assert len(errors) == 32 and sum(e != 0 for e in errors) <= 2


def test_ctrl_c(tmp_path):
    p = start(tmp_path, 4000)
    wait_for_records(tmp_path, 10, p)
    before = len(records(tmp_path))
    os.kill(p.pid, signal.SIGINT)
    out, _ = finish(p, tmp_path)
    assert "interrupted" in out
    assert before <= len(records(tmp_path)) < before + 1000  # of 4000: it did not go on


def test_ctrl_c_while_a_candidate_hangs(tmp_path):
    """A second Ctrl-C does not wait for the candidate that runs."""
    cc = tmp_path / "faulty-cc"
    cc.write_text(COMPILER.replace("@NAME@", "int32_t ns_program_").replace("n % 9", "2"))
    cc.chmod(0o755)
    (tmp_path / "count").mkdir()
    p = start(tmp_path, 400, extra="opt.runner.timeout = 3600", env={"CC": str(cc), "COUNT": str(tmp_path / "count")})
    assert p.stdout.readline().strip() == "begin"
    assert wait_until((tmp_path / "count" / "hangs").exists)
    os.kill(p.pid, signal.SIGINT)
    time.sleep(1)
    os.kill(p.pid, signal.SIGINT)
    p.communicate(timeout=PATIENCE)  # the candidate hangs for an hour
    nobody_left(tmp_path)


def keys_of(folder):
    """(workload key, steps) of every record that is whole."""
    return [(i.task.workload_key, i.state.steps()) for i, _ in auto_scheduler.load_records(str(folder / "log.json"))]


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.full)])
def test_ctrl_c_at_random_moments(tmp_path, times):
    """Again and again on one log: it parses, nothing is left, and each run goes on where the last one stopped."""
    rng, before = random.Random(times), []
    for k in range(times):
        p = start(tmp_path, 4000, *["resume"] * (k > 0))
        assert p.stdout.readline().strip() == "begin", p.communicate()
        if k == times - 1 and not before:  # a slow machine has not come to its first record yet
            wait_for_records(tmp_path, 1, p)
        time.sleep(rng.uniform(0, 3))
        os.kill(p.pid, signal.SIGINT)
        out, _ = finish(p, tmp_path)
        assert "interrupted" in out
        found = keys_of(tmp_path) if (tmp_path / "log.json").exists() else []
        assert found[: len(before)] == before and len(set(found)) == len(found), "lost or measured again"
        assert len(found) == (len(records(tmp_path)) if found else 0)
        before = found
    assert before


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.full)])
def test_killed_in_mid_write(tmp_path, times):
    """kill -9 while a batch is being written: half a last line is read over, nothing else is lost, resuming works."""
    extra = """
    import random
    real, rng = os.write, random.Random(int(os.environ["SEED"]))
    count = rng.randrange(1, 5)
    def torn(fd, data):
        global count
        if os.readlink(f"/proc/self/fd/{fd}").endswith("log.json"):
            count -= 1
            if count == 0:
                real(fd, data[:rng.randrange(1, len(data))])
                os.kill(os.getpid(), signal.SIGKILL)
        return real(fd, data)
    os.write = torn
    """
    before = []
    for k in range(times):
        p = start(tmp_path, 4000, *["resume"] * (k > 0), extra=extra, env={"SEED": str(100 * times + k)})
        _, err = p.communicate(timeout=3 * PATIENCE)
        assert p.returncode == -signal.SIGKILL, err[-3000:]
        nobody_left(tmp_path)
        found = keys_of(tmp_path)
        assert found[: len(before)] == before and len(set(found)) == len(found), "lost or measured again"
        before = found
    for entry in (tmp_path / "tmp").rglob("*"):
        os.utime(entry, (time.time() - 600,) * 2)
    out, _ = finish(start(tmp_path, 16, "resume"), tmp_path)
    found = keys_of(tmp_path)
    assert "end 16" in out and found[: len(before)] == before and len(set(found)) == len(found) == len(before) + 16
    lines = (tmp_path / "log.json").read_text().splitlines()
    assert len(lines) - len(found) <= times


def test_killed_tuner_and_resume(tmp_path):
    """kill -9 in mid-run, then a torn last line: nobody survives, and the next run goes on from what is there."""
    p = start(tmp_path, 4000)
    wait_for_records(tmp_path, 20, p)
    p.kill()
    p.communicate()
    nobody_left(tmp_path)
    log = tmp_path / "log.json"
    whole = log.read_text()
    n = len(records(tmp_path))
    log.write_text(whole[: whole.rindex('"r"')])  # as if killed in mid-write
    for entry in (tmp_path / "tmp").rglob("*"):
        os.utime(entry, (time.time() - 600,) * 2)
    out, _ = finish(start(tmp_path, 16, "resume"), tmp_path)
    assert "end 16" in out
    broken = [i for i, line in enumerate(log.read_text().splitlines()) if not line.endswith("}")]
    assert broken == [n - 1]
    found = list(auto_scheduler.load_records(str(log)))
    assert len(found) == n - 1 + 16
    assert len({(i.task.workload_key, i.state.steps()) for i, _ in found}) == len(found), "measured again"


def test_full_disk(tmp_path):
    """The log cannot be written for a while: the run goes on; the records are written as soon as there is room."""
    log = tmp_path / "log.json"
    log.symlink_to("/dev/full")
    extra = """
    class MakeRoom:
        calls = 0
        def callback(self, policy, inputs, results):
            self.calls += 1
            if self.calls == 2:
                os.unlink("log.json")
    opt.measure_callbacks.append(MakeRoom())
    """
    out, err = finish(start(tmp_path, 16, extra=extra, env={"NESTSMITH_CACHE_DIR": "/proc/no-room"}), tmp_path)
    assert "No space left" in err and "end 16" in out
    assert len(records(tmp_path)) == 16
