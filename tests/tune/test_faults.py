"""Whole tuning runs in another process, with faults: bad programs, a bad compiler, killed processes, full disks,
interrupts. After each the log must parse, and neither a process nor a temporary file may be left."""

import os
import random
import signal
import stat
import subprocess
import sys
import time

import pytest
from runs import TORN, TUNER, finish, nobody_left, records, surroundings, tuner, wait_for_records, went_on

from helpers import PATIENCE, wait_until
from nestsmith import auto_scheduler

_started = []


def start(*arguments, **more):
    """runs.tuner; the process ends with the test."""
    _started.append(tuner(*arguments, **more))
    return _started[-1]


@pytest.fixture(autouse=True)
def ended(closing):
    """What a test has started does not outlive it."""
    yield
    while _started:
        closing(_started.pop())


COMPILER = r"""#!/bin/bash
# Every third candidate gets a fault; the rest compiles as it is.
edit() { sed -i -E "0,/^(.*int32_t [a-z0-9_]+\(void \*const \*args.*\{)/s##\1 $1#" "$source"; }
for a; do [[ $a == *.c ]] && source=$a; done
if [[ -n $source ]] && grep -qE '@NAME@' "$source"; then
  n=0; until mkdir "$COUNT/$n" 2>/dev/null; do n=$((n + 1)); done # several compile at once
  case $((n % 9)) in
    2) edit "close(open(\"$COUNT/hangs\", O_CREAT | O_WRONLY, 0600)); for (volatile unsigned i = 0;;) i++;";;
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
    p = start(tmp_path, 18, env={"CC": str(cc), "COUNT": str(tmp_path / "count")})
    out, _ = finish(p, tmp_path)
    errors = [e for _, e in records(tmp_path)]
    kinds = auto_scheduler.MeasureErrorNo
    assert len(errors) == 18 and "end 18" in out
    assert {kinds.COMPILE_HOST, kinds.RUNTIME_DEVICE, kinds.RUN_TIMEOUT} <= set(errors), (out, errors)
    assert errors.count(0) >= 10


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
    extra = """
opt.runner.timeout = 3600
from nestsmith.auto_scheduler.session import Measurer
def told(self, drain=Measurer.drain):
    print("draining", flush=True)
    drain(self)
Measurer.drain = told
"""
    p = start(tmp_path, 400, extra=extra, env={"CC": str(cc), "COUNT": str(tmp_path / "count")})
    assert p.stdout.readline().strip() == "begin"
    assert wait_until((tmp_path / "count" / "hangs").exists)
    os.kill(p.pid, signal.SIGINT)
    while p.stdout.readline().strip() != "draining":
        assert p.poll() is None
    os.kill(p.pid, signal.SIGINT)
    p.communicate(timeout=PATIENCE)  # the candidate hangs for an hour
    nobody_left(tmp_path)


@pytest.mark.parametrize("times", [pytest.param(2, marks=pytest.mark.full), pytest.param(20, marks=pytest.mark.full)])
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
        before = went_on(tmp_path, before)
        assert len(before) == (len(records(tmp_path)) if before else 0)
    assert before


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.full)])
def test_killed_in_mid_write(tmp_path, times):
    """kill -9 while a batch is being written: half a last line is read over, nothing else is lost, resuming works."""
    extra = TORN + 'import random; tear("log.json", random.Random(int(os.environ["SEED"])), 5)'
    before = []
    for k in range(times):
        p = start(tmp_path, 4000, *["resume"] * (k > 0), extra=extra, env={"SEED": str(100 * times + k)})
        _, err = p.communicate(timeout=3 * PATIENCE)
        assert p.returncode == -signal.SIGKILL, err[-3000:]
        nobody_left(tmp_path)
        before = went_on(tmp_path, before)
    out, _ = finish(start(tmp_path, 16, "resume"), tmp_path)
    found = went_on(tmp_path, before)
    assert "end 16" in out and len(found) == len(before) + 16
    lines = (tmp_path / "log.json").read_text().splitlines()
    assert len(lines) - len(found) <= times


@pytest.mark.full
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


def test_a_process_without_standard_streams(tmp_path):
    """A service may have closed them: what it opens gets their numbers, and none of that is lost in its children."""
    code = TUNER.replace("EXTRA", "sys.stdout = sys.stderr = open('told', 'w')")
    command = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', sys.executable, "-c", code, "2"]
    p = subprocess.run(command, cwd=tmp_path, env=surroundings(tmp_path), timeout=PATIENCE)
    assert (p.returncode, len(records(tmp_path))) == (0, 2), (tmp_path / "told").read_text()
