"""Judges chunks of the sweep in separate processes, several at a time. A crash is a result as well. A chunk that runs out of time is killed."""

import collections
import contextlib
import faulthandler
import multiprocessing.connection
import os
import pathlib
import pickle
import resource
import signal
import sys
import time
import traceback

from sweep_networks import Chunk

MEMORY = 12 << 30  # that a process may ask for besides what it has: sizes that come from data may be absurd
SECONDS = 900  # of a process

Work = collections.namedtuple("Work", "names kind ways")


class Total:
    """What came of networks: differences, those that a row of the table covers, of how many cases, and how many results were compared
    by type and way."""

    def __init__(self, findings=(), covered=(), n=0, checks=None):
        self.findings, self.covered, self.n, self.checks = list(findings), list(covered), n, collections.Counter(checks or {})

    def add(self, other):
        self.findings += other.findings
        self.covered += other.covered
        self.n += other.n
        self.checks.update(other.checks)
        return self


def _mapped():
    """Bytes of addresses that this process has."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _judge(work, options, send):
    """Judges a chunk; sends the name of each way before it begins and what it found after it."""
    chunk = Chunk(work.names, work.kind, *options)
    send("part", (chunk.findings, [], len(chunk.found), {}))
    for way in work.ways:
        send("stage", way)
        chunk.findings, chunk.covered = [], []
        chunk.judge(way)
        send("part", (chunk.findings, chunk.covered, 0, {(work.kind, way): chunk.counts[way]}))


def _child(pipe, work, options, core):
    """The main function of a process: judges a chunk on one processor, in a separate process group."""
    os.setpgid(0, 0)
    os.sched_setaffinity(0, {core})
    faulthandler.enable()
    if not options[-1].startswith("cuda"):  # whose driver maps as many addresses as the machine has memory
        limit = MEMORY + _mapped()
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        _judge(work, options, lambda *message: pipe.send(message))
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
    pipe.close()


class Process:
    """A chunk that is judged in a child."""

    def __init__(self, context, work, options, core):
        self.work, self.core, self.total, self.failed, self.last = work, core, Total(), None, "making"
        self.pipe, into = context.Pipe(duplex=False)
        self.child = context.Process(target=_child, args=(into, work, options, core))
        self.child.start()
        into.close()

    def hear(self):
        """Takes in a message of the child; false when there are no more."""
        try:
            kind, value = self.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return False
        if kind == "part":
            self.total.add(Total(*value))
        elif kind == "stage":
            self.last = value
        else:
            self.failed = f"failed: {value}"
        return True

    def end(self):
        """Waits for the child, which has closed its pipe or was killed."""
        self.pipe.close()
        self.child.join()
        if self.child.exitcode:
            self.failed = f"died: {signal.Signals(-self.child.exitcode).name if self.child.exitcode < 0 else self.child.exitcode}"

    def kill(self):
        with contextlib.suppress(ProcessLookupError):  # it has ended, or has not come as far as its process group
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.kill()
        while self.hear():
            pass
        self.end()


def _blamed(p):
    """The Total of one operator whose process failed."""
    if p.failed.startswith("died") and p.last == "making":
        print(f"-- {p.work.names[0]}[{p.work.kind}]: PyTorch itself ends the process: {p.failed}", file=sys.stderr)
        return p.total
    what = p.failed.strip().splitlines()[-1]
    return p.total.add(Total([(f"{p.work.names[0]}[{p.work.kind}]", p.last, "", f"PROCESS {what}", p.failed)]))


def judged(works, options, jobs, seconds=None):
    """Judges chunks in `jobs` processes at a time; yields (work, Total) as they end. Where a process fails, the chunk's halves are judged.
    When `seconds` are over nothing new begins, what runs is killed, and of that the ways that were finished count.

    `options` are the seed, the most samples of an operator and the target. PyTorch's database starts the GPU's driver when it is imported,
    and a driver does not work after a fork. So for GPUs each process is spawned."""
    context = multiprocessing.get_context("fork" if options[-1] == "llvm" else "spawn")
    queue, free, running = collections.deque(works), sorted(os.sched_getaffinity(0))[:jobs], {}
    until = time.monotonic() + seconds if seconds else None
    try:
        while (queue or running) and not (until and time.monotonic() >= until):
            while queue and free:
                p = Process(context, queue.popleft(), options, free.pop())
                running[p.pipe] = p
            for pipe in multiprocessing.connection.wait(running, until and max(0, until - time.monotonic())):
                p = running[pipe]
                if p.hear():
                    continue
                p.end()
                del running[pipe]
                free.append(p.core)
                if p.failed and len(p.work.names) > 1:
                    half = len(p.work.names) // 2
                    queue.extendleft(p.work._replace(names=part) for part in (p.work.names[half:], p.work.names[:half]))
                else:
                    yield p.work, _blamed(p) if p.failed else p.total
    finally:
        for p in running.values():
            p.kill()
    yield from ((p.work, p.total) for p in running.values())
