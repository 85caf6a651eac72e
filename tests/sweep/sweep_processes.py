"""Chunks of the sweep in processes of their own, several at a time: a crash is a result as well, and no chunk outlives the time that is given."""

import collections
import io
import os
import pathlib
import pickle
import resource
import selectors
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
    """Bytes of addresses that this process has; a driver of GPUs takes many times the machine's memory."""
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


class Process:
    """A chunk that is judged in a child, which has one processor and a process group of its own."""

    def __init__(self, work, options, core):
        self.work, self.core, self.read, self.since = work, core, bytearray(), time.monotonic()
        self.fd, into = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            self._child(os.fdopen(into, "wb"), options)
        os.close(into)

    def _child(self, pipe, options):
        def send(kind, value):
            pickle.dump((kind, value), pipe)
            pipe.flush()

        code = 1
        try:
            os.setpgid(0, 0)
            os.sched_setaffinity(0, {self.core})
            limit = MEMORY + _mapped()
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            try:
                _judge(self.work, options, send)
            except BaseException:
                send("failed", traceback.format_exc())
            code = 0
        finally:
            os._exit(code)

    def kill(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended, or has not come as far as its process group
        os.kill(self.pid, signal.SIGKILL)

    def end(self):
        """(Total of the ways that were finished, how the process failed or None, the last stage that it reached)."""
        os.close(self.fd)
        _, status = os.waitpid(self.pid, 0)
        total, failed, last, messages = Total(), None, "making", io.BytesIO(self.read)
        while True:
            try:
                kind, value = pickle.load(messages)
            except (EOFError, pickle.UnpicklingError):
                break
            if kind == "part":
                total.add(Total(*value))
            elif kind == "stage":
                last = value
            else:
                failed = f"failed: {value}"
        if os.WIFSIGNALED(status):
            failed = f"died: {signal.Signals(os.WTERMSIG(status)).name}"
        elif os.WEXITSTATUS(status):
            failed = f"died: status {os.WEXITSTATUS(status)}"
        return total, failed, last


def _blamed(work, total, failed, last):
    """The Total of one operator whose process failed."""
    if failed.startswith("died") and last == "making":
        print(f"-- {work.names[0]}[{work.kind}]: PyTorch itself ends the process: {failed}", file=sys.stderr)
        return total
    what = failed.strip().splitlines()[-1]
    return total.add(Total([(f"{work.names[0]}[{work.kind}]", last, "", f"PROCESS {what}", failed)]))


def judged(works, options, jobs, seconds=None):
    """Judges chunks in `jobs` processes at a time; yields (work, Total) as they end. Where a process fails, the chunk's halves are judged.
    When `seconds` are over nothing new begins, what runs is killed, and of that the ways that were finished count."""
    queue, cores, begin = collections.deque(works), sorted(os.sched_getaffinity(0))[:jobs], time.monotonic()
    free, running, left = cores[::-1], selectors.DefaultSelector(), lambda: None if seconds is None else seconds - (time.monotonic() - begin)
    try:
        while queue or running.get_map():
            while queue and free:
                p = Process(queue.popleft(), options, free.pop())
                running.register(p.fd, selectors.EVENT_READ, p)
            for key, _ in running.select(left()):
                data, p = os.read(key.fd, 1 << 16), key.data
                p.read += data
                if data:
                    continue
                running.unregister(p.fd)
                free.append(p.core)
                total, failed, last = p.end()
                if failed and len(p.work.names) > 1:
                    half = len(p.work.names) // 2
                    queue.extendleft(p.work._replace(names=part) for part in (p.work.names[half:], p.work.names[:half]))
                else:
                    yield p.work, _blamed(p.work, total, failed, last) if failed else total
            if seconds is not None and left() <= 0:
                break
    finally:
        rest = [key.data for key in running.get_map().values()]
        for p in rest:
            p.kill()
    for p in rest:
        while data := os.read(p.fd, 1 << 16):
            p.read += data
        yield p.work, p.end()[0]
