"""Whole tuning runs in processes of their own: starting them, what they leave, and who disturbs them. Shared by
test_faults.py, test_resume.py and test_signals.py."""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

import nestsmith as ns
from faults import Vandal
from helpers import PATIENCE, wait_until
from nestsmith import auto_scheduler

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(ns.__file__)))
HERE = os.path.dirname(os.path.abspath(__file__))

TUNER = f"""
import os, signal, sys, time
sys.path[:0] = [{HERE!r}, {PACKAGE!r}]
from matmuls import options, small, tasks_of
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

# Kills the process in the middle of one of its first `most` writes to the log.
TORN = """
import os, random, signal
def tear(log, rng, most):
    real, left = os.write, rng.randrange(1, most)
    def torn(fd, data):
        nonlocal left
        if os.readlink(f"/proc/self/fd/{fd}") == os.path.abspath(log):
            left -= 1
            if left == 0:
                real(fd, data[:rng.randrange(1, len(data))])
                os.kill(os.getpid(), signal.SIGKILL)
        return real(fd, data)
    os.write = torn
"""


def surroundings(folder, env=()):
    """The environment of a run that keeps all it makes in `folder`, by which `processes` knows what belongs to it."""
    for name in ("tmp", "cache"):
        (folder / name).mkdir(exist_ok=True, mode=0o700)
    own = {"TMPDIR": folder / "tmp", "NESTSMITH_CACHE_DIR": folder / "cache", "NESTSMITH_LOCK_DIR": folder / "locks"}
    path = os.pathsep.join([PACKAGE, HERE, os.path.dirname(HERE)])  # whatever folder it runs in
    return {**os.environ, "PYTHONPATH": path, **{k: str(v) for k, v in own.items()}, **dict(env)}


def default_signals():
    """In the child before exec: whoever runs the tests in the background has them ignore Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def launch(folder, command, env=(), prepare=default_signals, out=subprocess.PIPE, err=subprocess.PIPE):
    """Starts a run in a session of its own."""
    return subprocess.Popen([sys.executable, *map(str, command)], cwd=folder, env=surroundings(folder, env), text=True,
                            stdout=out, stderr=err, start_new_session=True, preexec_fn=prepare)  # fmt: skip


def launch_windows(folder, *runs, **more):
    """Starts interrupted.py."""
    return launch(folder, [os.path.join(HERE, "interrupted.py"), json.dumps(runs)], **more)


def tuner(folder, trials, *words, extra="", env=()):
    """Starts the run TUNER with `extra` in it."""
    script = TUNER.replace("EXTRA", textwrap.dedent(extra))
    return launch(folder, ["-c", script, trials, *words], env)


# ---- what is left of a run ----


def processes(folder):
    """Processes that work for the run of this folder, dead ones apart, as (pid, command): its TMPDIR tells, or that they are in it, for
    one that is just starting another program has no environment."""
    mark, place, out = f"TMPDIR={folder / 'tmp'}".encode(), os.path.realpath(folder), []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (
                os.readlink(entry / "cwd") == place or mark in (entry / "environ").read_bytes()
            ) and "Z" != (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]:
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


def held_locks(folder):
    """The lock files that somebody holds, and the half-written files of the cache."""
    out = [str(p) for p in (folder / "cache").glob(".tmp-*")]
    for path in [*(folder / "locks").glob("*"), *(folder / "cache").glob(".lock")]:
        with open(path) as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                out.append(str(path))
    return out


def left(folder):
    """Files and locks that a run left; [] is as it should be."""
    shared = [f for f in os.listdir("/dev/shm") if "nestsmith" in f]
    return temporary_files(folder) + held_locks(folder) + shared


def records(folder):
    """(key, error number) of the log's lines; every line must be whole."""
    return [(r["i"][0][0], r["r"][1]) for r in map(json.loads, (folder / "log.json").read_text().splitlines())]


def keys_of(folder):
    """(workload key, steps) of every record that is whole."""
    if not (folder / "log.json").exists():
        return []
    return [(i.task.workload_key, i.state.steps()) for i, _ in auto_scheduler.load_records(str(folder / "log.json"))]


def went_on(folder, before):
    """The log's keys: those of `before` are all there, and nothing was measured twice."""
    found = keys_of(folder)
    assert found[: len(before)] == before and len(set(found)) == len(found), "lost or measured again"
    return found


def finish(p, folder, timeout=3 * PATIENCE):
    """Standard output and error of a run that ended in good order."""
    out, err = p.communicate(timeout=timeout)
    assert p.returncode == 0, err[-3000:]
    nobody_left(folder)
    assert left(folder) == []
    return out, err


def told_and_kept(folder):
    """Records, by name, that the callback before and the one after the log were told about."""
    out = []
    for name in ("told", "kept"):
        path = folder / name
        out.append(set(path.read_text().split("\n")[:-1]) if path.exists() else set())
    return out


def limit(seconds):
    """So many seconds of an idle machine."""
    return seconds * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def wait_for_records(folder, n, p):
    log = folder / "log.json"
    wait_until(lambda: p.poll() is not None or (log.exists() and log.read_text().count("\n") >= n), 2 * PATIENCE)
    if p.poll() is not None or not log.exists() or log.read_text().count("\n") < n:
        pytest.fail(f"no {n} records in time: " + str(p.communicate() if p.poll() is not None else ""))


# ---- a hostile neighbour ----


class Neighbour(Vandal):
    """A vandal (faults.py) for a run in another process, which it stops and wakes as well."""

    ACTS = (
        *Vandal.ACTS, "worker stopped", "worker paused", "compiler stopped", "tuner paused", "cache removed",
        "temporary files removed", "signal SIGCHLD", "signal SIGWINCH", "log touched",
    )  # fmt: skip

    def __init__(self, seed, folder, pid):
        super().__init__(seed, str(folder / "cache"))
        self.folder, self.pid = folder, pid

    def victims(self, mark):
        return [pid for pid, command in processes(self.folder) if mark in command and pid != self.pid]

    def pause(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.end.wait(self.rng.uniform(0.05, 1.5))
        os.kill(pid, signal.SIGCONT)
        return 1

    def on_compiler(self, how):
        return self.harm(self.rng.choice((" -shared ", "cc1")), how)

    def on_tuner(self, _):
        return self.pause(self.pid)

    def on_signal(self, name):
        os.kill(self.pid, getattr(signal, name))
        return 1

    def on_temporary(self, _):
        shutil.rmtree(self.folder / "tmp" / f"nestsmith-{os.getuid()}", ignore_errors=True)
        return 1

    def on_log(self, _):
        os.utime(self.folder / "log.json")
        return 1
