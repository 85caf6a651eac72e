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
        self.servers.append(p)
        if ready:
            p.wait(f"INFO:RPCServer:registered as {key} with tracker 127.0.0.1:{self.port}")
        return p

    def close(self):
        for p in [*self.servers, self.tracker]:
            p.close()
