"""Candidates that misbehave, and a campaign that lets many of them loose on a pipeline.

    python tests/faults.py 5000 cpu      # a table of what was injected and what was reported
    python tests/faults.py 5000 opencl

A candidate adds 1 to a vector; each kind of fault does it wrongly in its own way. While they run, other threads kill
and stop workers and compilers, and delete and damage the files of the cache. Results go to a log on a disk that is
full now and then. In the end every candidate must have come out once with the right verdict, the good ones with the
right answer, the log must hold every record once and its best must be a good one, and nothing may be left behind.
"""

import collections
import contextlib
import fcntl
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

import numpy as np

import helpers
from helpers import PATIENCE, children
from nestsmith import _core
from nestsmith.auto_scheduler import MeasureInput, MeasureResult, RecordReader, RecordToFile, load_best_record
from nestsmith.auto_scheduler.measure_record import RecordState, RecordTask

N = 1024
TIMEOUT = 0.4  # seconds of those that do not end by themselves
BUILD_TIMEOUT = 8  # of processor time; four times as much on the clock

C_HEAD = """{mark}
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static int wire(void) {{ /* the socket to the tuner */
  for (int i = 3; i < 256; i++) {{
    int t; socklen_t n = sizeof t;
    if (!getsockopt(i, SOL_SOCKET, SO_TYPE, &t, &n) && t == SOCK_SEQPACKET) return i;
  }}
  return -1;
}}
static int deep(volatile int *p) {{ volatile int a[1000]; a[0] = *p; return a[0] < 0 ? 0 : deep(a) + 1; }}
int32_t k(void *const *args, void *const *work, void *par, void *pool) {{
  float *x = args[0]; float *y = args[1]; {body} return 0;
}}
"""
GOOD = "for (int i = 0; i < 1024; i++) y[i] = x[i] + 1;"
SLOW = "for (volatile int j = 0; j < 20; j++) for (volatile int i = 0; i < 1024; i++) y[i] = x[i] + 1;"
MISALIGNED = """
#if defined(__x86_64__)
  __asm__ volatile("movaps %%xmm0, 4(%0)" : : "r"(y) : "memory");
#else
  __builtin_trap();
#endif
"""
DIED, REFUSED, WRONG = (4, "worker-died"), (3, "compiler-error"), (5, "wrong-answer")
LATE = (7, "run-timeout")
# kind: (how often, text, what may be reported). A kind whose name begins with "cc:" is for the compiler.
CPU = {
    "good": (18, GOOD, {(0, "")}),
    "slow": (4, SLOW, {(0, "")}),
    "illegal address": (6, "*(volatile int *)8 = 1;", {DIED}),
    "write to code": (4, "*(volatile char *)(uintptr_t)&k = 1;", {DIED}),
    "misaligned access": (5, MISALIGNED, {DIED}),
    "illegal instruction": (4, "__builtin_trap();", {DIED}),
    "division by zero": (4, "volatile int z = 0, a = 7; y[0] = a / z;", {DIED}),
    "abort": (5, "abort();", {DIED}),
    "stack overflow": (5, "volatile int a = 1; y[0] = deep(&a);", {DIED}),
    "exit": (4, "_exit(0);", {DIED}),
    "exit with handlers": (3, "exit(3);", {DIED}),
    "killed": (4, "kill(getpid(), SIGKILL);", {DIED}),
    "error code": (5, "return 5;", {(4, "launch-failure")}),
    "no output": (5, "", {WRONG}),
    "wrong output": (6, "for (int i = 0; i < 1024; i++) y[i] = x[i] + (i != 77);", {WRONG}),
    "not a number": (5, "for (int i = 0; i < 1024; i++) y[i] = x[i] / 0.0f - x[i] / 0.0f;", {WRONG}),
    "partial output": (6, "for (int i = 0; i < 1023; i++) y[i] = x[i] + 1;", {WRONG}),
    "write behind the end": (6, "for (int i = 0; i < 1030; i++) y[i] = x[i % 1024] + 1;", {WRONG}),
    "overwritten inputs": (4, "for (int i = 0; i < 1024; i++) y[i] = 7, x[i] = 3;", {WRONG}),
    "garbage message": (4, "char b[700]; memset(b, 0x5a, sizeof b); send(wire(), b, sizeof b, 0);" + GOOD, {DIED}),
    "short message": (4, "uint16_t b[4] = {4, 2, 900, 0}; send(wire(), b, sizeof b, 0);" + GOOD, {DIED}),
    "empty answer": (4, "uint16_t b[4] = {0, 2, 0, 0}; send(wire(), b, sizeof b, 0);" + GOOD, {DIED}),
    "closed connection": (3, "for (int i = 3; i < 256; i++) close(i);" + GOOD, {DIED}),
    "endless loop": (1, "for (volatile unsigned i = 0;;) i++;", {LATE}),
    "endless sleep": (0.5, "for (;;) pause();", {LATE}),
    "stopped": (0.5, "kill(getpid(), SIGSTOP);", {LATE}),
    "cc: syntax": (2, "this is not C", {(2, "compiler-error")}),
    "cc: killed": (2, GOOD, {(2, "out-of-memory")}),
    "cc: no file": (2, GOOD, {(2, "disk-full")}),
    "cc: not a program": (4, GOOD, {REFUSED}),
    "cc: half a program": (4, GOOD, {REFUSED, DIED}),
    "cc: without the entry": (4, "}} int32_t other(void) {{ float *x = 0, *y = 0; y = x;", {REFUSED}),
    "cc: endless": (0.3, GOOD, {(6, "compiler-timeout")}),
    "cc: endless output": (0.3, GOOD, {(6, "compiler-timeout")}),
}
COMPILER = """#!/bin/sh
for a; do case $a in */program.c) source=$a;; */program.so) out=$a;; esac; done
read -r mark < "$source"
case $mark in
"// cc: killed") kill -9 $$;;
"// cc: no file") exit 0;;
"// cc: not a program") echo no program > "$out"; exit 0;;
"// cc: half a program") cc "$@" && head -c 5000 "$out" > "$out.half" && mv "$out.half" "$out"; exit 0;;
"// cc: endless") sleep 600 & sleep 600;;
"// cc: endless output") yes error: no;;
esac
exec cc "$@"
"""

CL_HEAD = """// {mark}
__kernel void k(__global float *x, __global float *y) {{ int i = get_global_id(0); {body} }}
"""
CL_GOOD = "y[i] = x[i] + 1;"
OPENCL = {
    "good": (18, CL_GOOD, {(0, "")}),
    "slow": (4, "for (volatile int j = 0; j < 2000; j++) y[i] = x[i] + 1;", {(0, "")}),
    "illegal address": (6, "*(volatile __global int *)(8 + 4 * (i & 1)) = 1;", {DIED}),
    "far address": (5, "y[i + (1L << 45)] = 1;", {DIED}),
    "misaligned access": (5, "*(volatile __global float8 *)((__global char *)y + 4) = (float8)(1);", {DIED, WRONG}),
    "illegal instruction": (5, "__builtin_trap();", {DIED}),
    "stack overflow": (4, "volatile float a[1 << 24]; a[i] = x[i]; y[i] = a[(i * 7) % 1024] + a[i];", {DIED}),
    "shared-memory overflow": (
        5, "__local float s[1 << 24]; s[i % 64] = x[i]; barrier(1); y[i] = s[(i + 1) % 64];",
        {(3, "compiler-error"), (3, "shared-memory-limit"), (4, "shared-memory-limit"), (4, "register-limit"),
         (4, "out-of-memory"), DIED},
    ),
    "no output": (5, "", {WRONG}),
    "wrong output": (6, "y[i] = x[i] + (i != 77);", {WRONG}),
    "not a number": (5, "y[i] = nan((uint)i);", {WRONG}),
    "partial output": (6, "if (i < 1023) y[i] = x[i] + 1;", {WRONG}),
    "write behind the end": (6, "y[i] = x[i] + 1; y[i + 6] = x[i] + 1;", {WRONG}),
    "overwritten inputs": (4, "y[i] = 7; x[i] = 3;", {WRONG}),
    "endless loop": (1, "for (volatile int j = 0;; j++) {{}}", {LATE}),
    "cc: syntax": (5, "this is not OpenCL", {REFUSED}),
    "cc: without the entry": (4, "}} __kernel void other(__global float *x) {{ int i = 0; x[i] = 1;", {REFUSED}),
}


def fill(device, kind, text):
    """The source of a candidate."""
    source = text
    if device == "cpu":
        return C_HEAD.format(mark="// " + kind, body=source.format() if "}}" in source else source).replace(
            "int32_t k(void *const *args", "int32_t unused(void *const *args"
            if kind == "cc: without the entry" else "int32_t k(void *const *args")
    source = CL_HEAD.format(mark=kind, body=source.format() if "}}" in source else source)
    return source.replace("void k(", "void unused(") if kind == "cc: without the entry" else source


def manifest(device):
    """What the tuner says about a program."""
    rows = [{"name": t, "dtype": "float32", "shape": [N], "bytes": 4 * N, "align": 64, "read_only": t == "x"}
            for t in "xy"]  # fmt: skip
    params = [{"kind": "arg", "index": i, "read_only": i == 0} for i in range(2)] if device == "opencl" else []
    shape = ([N // 64, 1, 1], [64, 1, 1]) if device == "opencl" else ([1, 1, 1], [1, 1, 1])
    kernel = {"name": "k", "params": params, "grid": shape[0], "block": shape[1]}
    return json.dumps({"format": 1, "target": "opencl" if device == "opencl" else "c", "entry": "k", "args": rows,
                       "work": [], "kernels": [kernel]})  # fmt: skip


class Vandal(threading.Thread):
    """Kills workers and compilers, deletes and damages what is in the cache."""

    ACTS = ("worker killed", "worker killed", "compiler killed", "cache file deleted", "cache file damaged",
            "cache file cut", "cache deleted")  # fmt: skip

    def __init__(self, seed, cache, others=()):
        """``others``: processes to leave alone."""
        super().__init__(daemon=True)
        self.others = others
        self.rng, self.cache, self.end, self.done = random.Random(seed), cache, threading.Event(), collections.Counter()

    def run(self):
        while not self.end.wait(self.rng.uniform(0.2, 1.0)):
            act = self.rng.choice(self.ACTS)
            try:
                self.done[act] += getattr(self, "on_" + act.split()[0])(act.split()[-1])
            except OSError:
                pass

    def victims(self, mark):
        """Processes that it may kill whose command has ``mark``."""
        return [pid for pid in children(mark) if pid not in self.others]

    def harm(self, mark, how):
        for pid in self.victims(mark):
            if how == "paused":
                return self.pause(pid)
            os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            return 1
        return 0

    def on_worker(self, how):
        return self.harm("worker.py", how)

    def on_compiler(self, how):
        return self.harm(" -shared ", how)

    def on_cache(self, how):
        names = [f for f in os.listdir(self.cache) if f[0] != "."]
        if how == "removed":
            shutil.rmtree(self.cache)
            return 1
        if not names:
            return 0
        path = os.path.join(self.cache, self.rng.choice(names))
        if how == "deleted":
            os.unlink(path)
            return 1
        with open(path, "r+b") as f:
            size = os.path.getsize(path)
            if how == "cut":
                f.truncate(size // 2)
            else:
                f.seek(size // 3)
                f.write(b"\0" * 16)
        return 1


class Log:
    """The results as records of a log whose disk is full now and then."""

    def __init__(self, folder, seed):
        self.real, self.path = os.path.join(folder, "real.json"), os.path.join(folder, "log.json")
        self.rng, self.full, self.refused = random.Random(seed), True, 0
        self.swap()
        self.out = RecordToFile(self.path)
        self.task = RecordTask('["faults", [1024]]', "llvm", (2, 64, 64, 0, 0, 0, 0, 0), "", 0, [])

    def swap(self):
        self.full = not self.full
        if os.path.lexists(self.path):
            os.unlink(self.path)
        os.symlink("/dev/full" if self.full else self.real, self.path)

    def add(self, tag, kind, result):
        if self.rng.random() < 0.05:
            self.swap()
        self.refused += self.full
        state = RecordState(json.dumps([["PR", 0, tag, kind]]))
        error = result["error"]
        self.out([None], [MeasureInput(self.task, state)],
                 [MeasureResult([1e10] if error else result["costs"], error, "", 0.1, time.time())])  # fmt: skip

    def close(self):
        if self.full:
            self.swap()
        self.out.flush()

    def check(self, done):
        found = {}
        for inp, res in RecordReader(self.path):
            (step,) = inp.state.transform_steps
            assert step[2] not in found, f"record {step[2]} stands twice in the log"
            found[step[2]] = (step[3], res.error_no)
        assert found == done, "lost or changed records"
        if any(e == 0 for _, e in done.values()):
            best, _ = load_best_record(self.path)
            assert best.state.transform_steps[0][3] == "good", "a wrong winner"


def submit_all(pipe, device, n, rng):
    """Sends n candidates of random kinds; their kinds by tag."""
    kinds = CPU if device == "cpu" else OPENCL
    x = (np.arange(N) % 7).astype("float32")
    task = pipe.task(_core.TaskData([(4 * N, x, False, "float32"), (4 * N, x + 1, True, "float32")]))
    names = rng.choices(list(kinds), [w for w, _, _ in kinds.values()], k=n)
    says = manifest(device)
    for tag, name in enumerate(names):
        endless = LATE in kinds[name][2]
        policy = helpers.policy(timeout=TIMEOUT if endless else 60.0)
        pipe.submit(task, fill(device, name, kinds[name][1]), says, tag, policy)
    return dict(enumerate(names))


@contextlib.contextmanager
def environment(**values):
    """These variables for a while; the workers inherit them."""
    old = {k: os.environ.get(k) for k in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for k, v in old.items():
            os.environ.pop(k) if v is None else os.environ.update({k: v})


def campaign(device, n, seed, folder, vandal=True):
    """Runs n candidates; returns (Counter of (kind, error, cause), Counter of the vandal's acts, records refused)."""
    folder = str(folder)
    with environment(TMPDIR=os.path.join(folder, "tmp"), POCL_CACHE_DIR=os.path.join(folder, "pocl")):
        return run(device, n, seed, folder, vandal)


def run(device, n, seed, folder, vandal):
    """`campaign`, with its environment set."""
    cache, temp = os.path.join(folder, "cache"), os.path.join(folder, "tmp")
    for d in (cache, temp, os.path.join(folder, "pocl")):
        os.makedirs(d, mode=0o700, exist_ok=True)
    before, shared = set(children()), set(os.listdir("/dev/shm"))
    cc = os.path.join(folder, "cc")
    with open(cc, "w") as f:
        f.write(COMPILER)
    os.chmod(cc, 0o755)
    target = "llvm" if device == "cpu" else "opencl"
    descriptors = len(os.listdir("/proc/self/fd"))
    pipe = _core.Pipeline(target, 1 if device == "cpu" else 4, 0, n_compile=2, build_timeout=BUILD_TIMEOUT,
                          cache_dir=cache, cc=cc)  # fmt: skip
    log, enemy = Log(folder, seed), Vandal(seed, cache, before)
    if vandal:
        enemy.start()
    try:
        names, done, seen, odd = measure(pipe, device, n, seed, log)
    finally:
        enemy.end.set()
        if vandal:
            enemy.join()
        pipe.close()
        log.close()
    check_end(names, done, odd, enemy, log)
    assert set(children()) <= before, "left processes"
    assert len(os.listdir("/proc/self/fd")) <= descriptors, "left descriptors"
    assert not [f for d in os.listdir(temp) for f in os.listdir(os.path.join(temp, d))], "left temporary files"
    assert not [f for f in os.listdir(cache) if f.startswith(".tmp-")], "left unfinished cache files"
    if os.path.exists(os.path.join(cache, ".lock")):
        with open(os.path.join(cache, ".lock")) as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if someone still holds it
    assert not [f for f in set(os.listdir("/dev/shm")) - shared if "nestsmith" in f], "left shared memory"
    return seen, enemy.done, log.refused


def measure(pipe, device, n, seed, log):
    """Sends n candidates and takes their results: (kinds by tag, results by tag, how often what came, what is odd)."""
    kinds, names = CPU if device == "cpu" else OPENCL, submit_all(pipe, device, n, random.Random(seed))
    done, seen, odd, limit = {}, collections.Counter(), [], time.monotonic() + 30 * n + 2 * PATIENCE
    while pipe.pending() and time.monotonic() < limit:
        for tag, r in ((r["tag"], r) for r in pipe.poll(0.2)):
            assert tag not in done, f"{tag} came out twice"
            kind, got = names[tag], (r["error"], r["cause"])
            done[tag] = (kind, r["error"])
            log.add(tag, kind, r)
            if got in kinds[kind][2]:
                seen[kind, got] += 1
            else:
                odd.append((tag, kind, *got, r["msg"][:200]))
                seen[kind, (*got, "killed from outside")] += 1
    return names, done, seen, odd


def check_end(names, done, odd, enemy, log):
    """Every candidate came out; what deviates was killed from outside and says so."""
    assert sorted(done) == sorted(names), "a candidate was lost"
    by_kill = [o for o in odd if "signal 9" in o[4] or "worker died" in o[4]]
    assert odd == by_kill, [o for o in odd if o not in by_kill][:20]
    assert len(by_kill) <= enemy.done["worker killed"] + enemy.done["compiler killed"], (by_kill, enemy.done)
    log.check(done)


def main(n, device):
    """Runs a campaign in parts of 250 and prints the table."""
    logging.getLogger("auto_scheduler").setLevel(logging.ERROR)
    seen, acts, refused, begin = collections.Counter(), collections.Counter(), 0, time.time()
    for part in range(0, n, 250):
        with tempfile.TemporaryDirectory() as folder:
            s, a, r = campaign(device, min(250, n - part), 1000 + part, folder)
        seen, acts, refused = seen + s, acts + a, refused + r
        print(f"{device}: {part + 250} of {n}, {time.time() - begin:.0f} s", flush=True)
    kinds = {}
    for (kind, got), k in seen.items():
        kinds.setdefault(kind, []).append(f"{k} x {'/'.join(map(str, filter(None, got))) or 'valid'}")
    faults = sum(k for (kind, _), k in seen.items() if kind not in ("good", "slow"))
    for kind in CPU if device == "cpu" else OPENCL:
        print(f"{kind:24} {', '.join(kinds.get(kind, ['-']))}")
    print(f"{device}: {sum(seen.values())} candidates, {faults} of them faulty; also {dict(acts)}; "
          f"{refused} records came while the disk was full; {time.time() - begin:.0f} s")  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
