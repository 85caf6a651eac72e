"""Trackers and servers for tests: real processes on ports that the system chooses, which end with the fleet."""

import contextlib
import itertools
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from helpers import PATIENCE
from nestsmith import auto_scheduler, rpc, te
from nestsmith.cluster.tls import make_tls


@auto_scheduler.register_workload
def remote_matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


SWIFT = """
from nestsmith.cluster import client, engine, ledger, server, tracker
ledger.RENEW_SECONDS = client.RENEW_SECONDS = client.SILENT_SECONDS = engine.LOST_SECONDS = server.LOST_SECONDS = 4.0
engine._SETTINGS["distributed.scheduler.worker-ttl"], tracker.BEAT_SECONDS = "4s", 1.0
"""  # for a sitecustomize.py: whoever is silent is lost after 4 s instead of 30


STILL = """
from nestsmith.cluster import client, ledger, server, tracker
tracker.TICK_SECONDS = server.LOST_SECONDS = ledger.RENEW_SECONDS = 3600.0
client.RENEW_SECONDS = client.SILENT_SECONDS = client.TELL_SECONDS = 3600.0
"""  # the same: nothing happens because time goes by


OLDER = "import nestsmith\nnestsmith.__version__ = '0.0.9'\n"  # the same, for a server of another version


WITNESS = '''
import contextlib, fcntl, json, os, time
from nestsmith.cluster import bench

PLACE, DEVICE = os.environ["WITNESS_PLACE"], os.environ.get("WITNESS_DEVICE", "")
make, run, close = bench.Bench.__init__, bench.Bench._run, bench.Bench.close

def note(**what):
    fd = os.open(f"{PLACE}/{DEVICE}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (json.dumps(what) + "\\n").encode())
    os.close(fd)

def made(self, *args, **kwargs):
    make(self, *args, **kwargs)
    self.witness = -1

def ran(self, line, number, m, limit):
    begin = time.monotonic()
    try:
        return run(self, line, number, m, limit)
    finally:
        note(pid=os.getpid(), begin=begin, end=time.monotonic(), items=len(m["items"]))

def measured(self, m, limit=None):
    if self.witness < 0:  # before its processes are started: they hold the lock as well
        self.witness = os.open(f"{PLACE}/{DEVICE}.lock", os.O_RDWR | os.O_CREAT)
        os.set_inheritable(self.witness, True)
        try:
            fcntl.flock(self.witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            note(pid=os.getpid(), twice=m["task"])
    return measure(self, m, limit)

def closed(self):
    close(self)
    if self.witness >= 0:
        os.close(self.witness)
    self.witness = -1

measure = bench.Bench.measure
bench.Bench.__init__, bench.Bench._run, bench.Bench.measure, bench.Bench.close = made, ran, measured, closed
'''  # the same, for a server: a device is locked from the first measurement of a session until the last of its processes has ended


class Witness:
    """What servers that were started with its `environment` say of their devices, each under its own name."""

    def __init__(self, folder):
        self.place, code = folder / "devices", folder / "code"
        self.place.mkdir(parents=True)
        code.mkdir()
        (code / "sitecustomize.py").write_text(WITNESS)
        self.environment = {"PYTHONPATH": os.pathsep.join([str(code), os.environ["PYTHONPATH"]]), "WITNESS_PLACE": str(self.place)}

    def check(self):
        """Fails if a device was in two hands, or two of its measurements overlap; returns how many there were."""
        spans = 0
        for path in self.place.iterdir():
            if path.suffix == ".lock":
                continue
            said = [json.loads(line) for line in path.read_text().splitlines()]
            assert not [x for x in said if "twice" in x], (path.name, said)
            times = sorted((x["begin"], x["end"]) for x in said)
            assert all(a[1] <= b[0] for a, b in zip(times, times[1:])), (path.name, times)
            spans += len(times)
        return spans


class Link:
    """A network between whoever connects to `port` and the port `to` of this machine. While it is cut, it takes nothing and gives
    nothing, and tells nobody."""

    def __init__(self, to):
        self.to, self._flows, self._ends = to, threading.Event(), []
        self._flows.set()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self._begin(self._accept)

    def _begin(self, body, *args):
        def run():
            with contextlib.suppress(OSError):  # an end is closed
                body(*args)

        threading.Thread(target=run, daemon=True).start()

    def _accept(self):
        while True:
            here = self._door.accept()[0]
            self._ends.append(here)
            self._begin(self._join, here)

    def _join(self, here):
        self._flows.wait()
        there = socket.create_connection(("127.0.0.1", self.to))
        self._ends.append(there)
        self._begin(self._carry, there, here)
        self._carry(here, there)

    def _carry(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                self._flows.wait()
                sink.sendall(data)
        finally:
            self._flows.wait()
            for s in (source, sink):
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self._flows.clear()

    def mend(self):
        """What was on its way arrives now."""
        self._flows.set()

    def close(self):
        self.mend()
        for s in [self._door, *self._ends]:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()


class Process:
    """A command whose lines on the standard error are events."""

    def __init__(self, *argv, **environment):
        self.child = subprocess.Popen(
            [sys.executable, "-m", *argv], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        self.lines, self._new = [], queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stderr:
            self._new.put(line.rstrip())
        self._new.put(None)

    def wait(self, pattern, seconds=PATIENCE):
        """The match of the next line that has the pattern."""
        end = time.monotonic() + seconds
        while True:
            line = self._new.get(timeout=max(0.01, end - time.monotonic()))
            assert line is not None, f"ended before {pattern!r}: {self.lines}"
            self.lines.append(line)
            found = re.search(pattern, line)
            if found:
                return found

    def close(self):
        left = semaphores([self.child.pid, *descendants(self.child.pid)])  # whoever would remove them is killed, too
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()
        for path in left:
            path.unlink(missing_ok=True)

    def stop(self):
        """Ends it as a user does."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(PATIENCE)


_numbers = itertools.count()  # of devices


class Fleet:
    """A tracker and its servers."""

    def __init__(self, *options, **environment):
        self.options, self.environment, self.servers = options, environment, []
        self.tracker = self.start_tracker(0)
        self.port = int(self.tracker.wait(r"INFO:RPCTracker:bind to .*:(\d+)$")[1])

    def start_tracker(self, port):
        return Process("nestsmith.exec.rpc_tracker", "--host=127.0.0.1", f"--port={port}", *self.options, **self.environment)

    def serve(self, key, *options, ready=True, port=None, device=None):
        """A server, registered; `port`: by which it reaches the tracker; `device`: its name for a `Witness`."""
        device = device or f"{key}{next(_numbers)}"
        p = Process("nestsmith.exec.rpc_server", "--host=127.0.0.1", "--port=0", f"--tracker=127.0.0.1:{port or self.port}", f"--key={key}",
                    *self.options, *options, **self.environment, WITNESS_DEVICE=device)  # fmt: skip
        p.key, p.device = key, device
        self.servers.append(p)
        return self.ready(p) if ready else p

    def ready(self, p):
        """The server, once it is registered."""
        p.wait(f"INFO:RPCServer:registered as {p.key} with tracker 127.0.0.1:")
        return p

    def man(self, *keys):
        """Starts what is missing of one server for each key; ends what is too many."""
        wanted, kept, fresh = list(keys), [], []
        for p in self.servers:
            if p.child.poll() is None and p.key in wanted:
                wanted.remove(p.key)
                kept.append(p)
            else:
                p.close()
        self.servers = kept
        fresh = [self.serve(k, ready=False) for k in wanted]
        for p in fresh:
            self.ready(p)
        self.servers.sort(key=lambda p: p.key)

    def close(self):
        for p in [*self.servers, self.tracker]:
            p.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def manned(*keys):
    """A fixture of a module: a tracker and a server for each key."""

    @pytest.fixture(scope="module")
    def fleet():
        with Fleet() as f:
            f.man(*keys)
            yield f

    return fleet


def certificates(root):
    """Directories of a team, of strangers, and of one whose time is over."""
    for name in ("team", "stranger", "expired"):
        make_tls(root / name)
    for f in ("cert.pem", "key.pem"):
        os.unlink(root / "expired" / f)
    for f in ("ca.pem", "ca-key.pem"):
        shutil.copy(root / "team" / f, root / "expired" / f)
    make_tls(root / "expired", days=-1)
    return root


def counts(fleet, key):
    """(total, free, pending) of a key."""
    tracker = rpc.connect_tracker("127.0.0.1", fleet.port)
    q = tracker.summary()["queue_info"].get(key, {"total": 0, "free": 0, "pending": 0})
    tracker.close()
    return q["total"], q["free"], q["pending"]


def semaphores(pids):
    """Files of the named semaphores that processes of Python's multiprocessing use."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= set(re.findall(r"/dev/shm/sem\.mp-\S+", pathlib.Path(f"/proc/{pid}/maps").read_text()))
    return [pathlib.Path(p) for p in found]


def descendants(pid):
    """Processes below one, nearest first."""
    found, parents = [], {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    todo = [pid]
    while todo:
        below = parents.get(todo.pop(0), [])
        found += below
        todo += below
    return found


def board(server):
    """The process of the server that holds the device."""
    for pid in descendants(server.child.pid):
        try:
            if b"spawn_main" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        except OSError:
            continue
    raise AssertionError("the server has no worker process")


CLIENT = """
import sys
from nestsmith import rpc
remote = rpc.connect_tracker("127.0.0.1", int(sys.argv[1])).request(sys.argv[2])
print("have", flush=True)
try:
    while True:
        remote.listdir()
except rpc.RPCError as e:
    print(e, flush=True)
"""


def client(fleet, key, port=None):
    """Another process that has a device, and says why when it has it no more; `port`: by which it reaches the tracker."""
    p = subprocess.Popen([sys.executable, "-c", CLIENT, str(port or fleet.port), key], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "have\n"
    return p
