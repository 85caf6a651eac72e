"""Trackers and servers for tests: real processes on ports that the system chooses, which end with the fleet."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time

from helpers import PATIENCE
from nestsmith import auto_scheduler, te


@auto_scheduler.register_workload
def remote_matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


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
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()

    def stop(self):
        """Ends it as a user does."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(PATIENCE)


class Fleet:
    """A tracker and its servers."""

    def __init__(self, *options, **environment):
        self.options, self.environment, self.servers = options, environment, []
        self.tracker = self.start_tracker(0)
        self.port = int(self.tracker.wait(r"INFO:RPCTracker:bind to .*:(\d+)$")[1])

    def start_tracker(self, port):
        return Process("nestsmith.exec.rpc_tracker", "--host=127.0.0.1", f"--port={port}", *self.options, **self.environment)

    def serve(self, key, *options, ready=True):
        """A server, registered."""
        p = Process("nestsmith.exec.rpc_server", "--host=127.0.0.1", "--port=0", f"--tracker=127.0.0.1:{self.port}", f"--key={key}",
                    *self.options, *options, **self.environment)  # fmt: skip
        p.key = key
        self.servers.append(p)
        return self.ready(p) if ready else p

    def ready(self, p):
        """The server, once it is registered."""
        p.wait(f"INFO:RPCServer:registered as {p.key} with tracker 127.0.0.1:{self.port}")
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
