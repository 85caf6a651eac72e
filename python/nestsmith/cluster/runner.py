"""The process in which the programs of a session run: the C runner (csrc/runner), on this machine or behind adb or ssh.

It is asked with one JSON object and bytes, answers with one and bytes (csrc/runner/runner.h), and is ended with its whole process
group when it takes longer than it may.
"""

import contextlib
import json
import os
import pathlib
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

from .. import _core
from ..error import TVMError, TVMValueError
from .scratch import Scratch
from .settings import ClusterError, SessionTimeout

__all__ = ["Runner", "RunnerLost", "command_of", "raise_error"]

_LENGTHS = struct.Struct("<IQ")
_HEAD, _PAYLOAD = 4 << 20, 1 << 30  # as in runner.h
_MARGIN = 2.0  # seconds that the runner has to end itself before it is ended
_START = 60.0
_ON_DEVICE = "/data/local/tmp/nestsmith-runner"
_ON_HOST = '"/tmp/nestsmith-runner-$(id -u)"'
# beside what runs, and not into a file or a link that another user has put there
_PUT = f"p={_ON_HOST}; n=$p.$$; umask 077; set -C; cat > $n && chmod 700 $n && mv -f $n $p || {{ rm -f $n; exit 1; }}"
_ERRORS = {"value": TVMValueError, "memory": MemoryError, "io": OSError, "runtime": TVMError, "timeout": SessionTimeout}


class RunnerLost(ClusterError):
    """The runner ended while it had work, or did not start."""


def raise_error(kind, text):
    """Raises what a reply with an error stands for."""
    raise _ERRORS.get(kind, ClusterError)(text)


def _binary():
    """The runner's program for another machine: $NESTSMITH_RUNNER. Raises ClusterError if it is missing."""
    path = os.environ.get("NESTSMITH_RUNNER", "")
    if not path or not os.path.isfile(path):
        raise ClusterError(f"a device behind adb or ssh needs the runner's program (NESTSMITH_RUNNER is {path!r}): "
                           "make runner CROSS=aarch64-linux-gnu- makes it; set NESTSMITH_RUNNER to its path")
    return path


def _call(argv, data=None):
    try:
        done = subprocess.run(argv, input=data, stdin=None if data else subprocess.DEVNULL, capture_output=True, timeout=_START,
                              check=False)  # fmt: skip
    except FileNotFoundError:
        raise ClusterError(f"program {argv[0]!r} is not installed") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{shlex.join(argv)} did not end within {_START:g} s") from None
    if done.returncode:
        text = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise ClusterError(f"{shlex.join(argv)} failed with status {done.returncode}: {text}")


def check_device(device):
    """The parts of "local", "adb:SERIAL" or "ssh:USER@HOST". Raises ValueError for something else."""
    kind, _, where = str(device).partition(":")
    plain = where and not where.startswith("-") and not any(c.isspace() for c in where)
    if device == "local" or (kind in ("adb", "ssh") and plain):
        return kind, where
    raise ValueError(f"--device is {device!r}; it is local, adb:SERIAL or ssh:USER@HOST")


def command_of(device, options=()):
    """The command that starts a runner on a device ("local", "adb:SERIAL", "ssh:USER@HOST"), its program put there before."""
    kind, where = check_device(device)
    if kind == "local":
        worker = pathlib.Path(__file__).parent.parent / "exec" / "worker.py"
        return [sys.executable, "-I", "-S", os.fspath(worker), _core.__file__, "runner", *options]
    program, remote = _binary(), shlex.join([_ON_DEVICE, *options])
    if kind == "adb":
        adb = [*shlex.split(os.environ.get("NESTSMITH_ADB", "adb")), "-s", where]
        _call([*adb, "push", program, _ON_DEVICE])
        _call([*adb, "shell", f"chmod 755 {_ON_DEVICE}"])
        return [*adb, "shell", "-T", f"TMPDIR=/data/local/tmp exec {remote}"]
    ssh = [*shlex.split(os.environ.get("NESTSMITH_SSH", "ssh")), "-o", "BatchMode=yes", where]

    def there(script, *arguments):
        return [*ssh, shlex.join(["sh", "-c", script, *arguments])]  # whatever shell the user has there

    _call(there(_PUT), pathlib.Path(program).read_bytes())
    return there(f'exec {_ON_HOST} "$@"', "sh", *options)


class Runner:
    """A running runner.

    Parameters
    ----------
    device : str
        "local", "adb:SERIAL" or "ssh:USER@HOST".

    Raises
    ------
    RunnerLost
        If it does not start.
    """

    def __init__(self, device="local"):
        self._made, self._errors = None, tempfile.TemporaryFile()
        self._ended = threading.Lock()  # taken once
        self._turn = threading.Lock()  # answers come in the order of the requests: one after the other
        command = command_of(device)
        if device == "local":  # a directory that is removed however the runner ends
            self._made = Scratch("session")
            command += ["--dir", self._made.path]
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                                       bufsize=0, start_new_session=True, env=environment)
        try:
            self.facts = self.ask({"op": "hello"}, limit=_START)[0]
        except BaseException:
            self.kill()
            raise

    pid = property(lambda self: self._child.pid, doc="Of the local process.")

    def kill(self):
        """Ends it with all it started, and removes its files."""
        if self._ended.acquire(blocking=False):  # a number that was waited for may be another process's soon
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        for f in (self._child.stdin, self._child.stdout, self._errors):
            with contextlib.suppress(OSError):
                f.close()
        if self._made:
            self._made.close()

    def _last_words(self):
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 500))
        return self._errors.read().decode(errors="replace").strip()

    def _lost(self):
        try:
            status = self._child.wait(1.0)
            how = f"signal {-status}, {signal.strsignal(-status)}" if status < 0 else f"exit status {status}"
        except subprocess.TimeoutExpired:
            how = "closed its connection"
        words = self._last_words()
        return RunnerLost(f"the program's process ended ({how})" + (f": {words}" if words else ""))

    def _pump(self, write, want, end):
        """Writes and reads until `want` bytes have come."""
        out, source, sink = bytearray(), self._child.stdout, self._child.stdin
        view = memoryview(write)
        os.set_blocking(sink.fileno(), False)
        while len(out) < want or view:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            readable, writable, _ = select.select([source], [sink] if view else [], [], min(left, 1.0))
            try:
                if writable:
                    view = view[os.write(sink.fileno(), view[: 1 << 16]) :]
                if readable:
                    got = os.read(source.fileno(), min(1 << 20, max(want - len(out), 1)))
                    if not got:
                        raise self._lost()
                    out += got
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._lost() from None
        return bytes(out)

    def ask(self, request, payload=b"", limit=None):
        """(reply, bytes) to a request; (fields of JSON, bytes) in, the same out. Threads take turns. Ctrl-C ends the runner: the
        answer that it has begun would be taken for that of the next request.

        Raises
        ------
        SessionTimeout
            After `limit` seconds; the runner is ended.
        RunnerLost
            If it ended.
        ValueError, MemoryError, OSError, TVMError
            What the runner says.
        """
        seconds = float(limit or 86400)
        head = json.dumps({**request, "limit_ms": int(seconds * 1e3) + 1}).encode()
        if len(head) > _HEAD or len(payload) > _PAYLOAD:
            raise TVMValueError(f"a request of {len(head) + len(payload)} bytes is too large for one message")
        with self._turn:
            reply, data = self._talk(request, _LENGTHS.pack(len(head), len(payload)) + head + bytes(payload), seconds)
        if "error" in reply:
            raise_error(reply["error"], str(reply.get("msg", "")))
        return reply, data

    def _talk(self, request, frame, seconds):
        """The answer to a frame. A runner that does not answer as it should is ended."""
        if self._child.stdin.closed:
            raise RunnerLost("the program's process was ended, and what was in it is gone")
        end = time.monotonic() + seconds + _MARGIN
        try:
            n_head, n = _LENGTHS.unpack(self._pump(frame, _LENGTHS.size, end))
            if n_head > _HEAD or n > _PAYLOAD:
                raise RunnerLost("the program's process answers nonsense")
            return json.loads(self._pump(b"", n_head, end)), self._pump(b"", n, end)
        except (ValueError, UnicodeDecodeError):
            self.kill()
            raise RunnerLost("the program's process answers nonsense") from None
        except TimeoutError:
            self.kill()
            raise SessionTimeout(f"{request.get('op')} took longer than {seconds:g} s") from None
        except RunnerLost:
            if self._child.poll() == 124:
                self.kill()
                raise SessionTimeout(f"{request.get('op')} took longer than {seconds:g} s") from None
            self.kill()
            raise
        except BaseException:
            self.kill()
            raise
