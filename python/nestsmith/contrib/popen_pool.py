"""Worker processes for Python functions, by the standard library's pool."""

import concurrent.futures
import contextlib
import enum
import multiprocessing
import os
import pathlib
import signal
from collections import namedtuple

__all__ = ["MapResult", "PopenPoolExecutor", "PopenWorker", "StatusKind", "kill_child_processes"]

MapResult = namedtuple("MapResult", ["status", "value"])


class StatusKind(enum.IntEnum):
    """What became of an item of `PopenPoolExecutor.map_with_error_catching`."""

    RUNNING, COMPLETE, EXCEPTION, TIMEOUT = range(4)


def _children(pid):
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, task.read_text().split())


def kill_child_processes(pid=None, sig=signal.SIGKILL):
    """Ends the children of a process, and theirs; without a number those of this one."""
    for child in list(_children(os.getpid() if pid is None else pid)):
        kill_child_processes(child, sig)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, sig)


class PopenPoolExecutor:
    """A pool of processes.

    Parameters
    ----------
    max_workers : int, optional
    timeout : float, optional
        Seconds after which a result counts as failed; it then raises `TimeoutError`.
    """

    def __init__(self, max_workers=None, timeout=None, initializer=None, initargs=(), maximum_process_uses=None,
                 stdout=None, stderr=None):
        method = multiprocessing.get_context("forkserver")
        self._timeout = timeout
        self._pool = concurrent.futures.ProcessPoolExecutor(max_workers, mp_context=method, initializer=initializer,
                                                            initargs=initargs)

    def submit(self, fn, *args, **kwargs):
        """Starts `fn`; returns a future."""
        return self._pool.submit(fn, *args, **kwargs)

    def map_with_error_catching(self, fn, iterator):
        """Yields a `MapResult` of status and value or exception for every item."""
        for future in [self._pool.submit(fn, x) for x in iterator]:
            try:
                yield MapResult(StatusKind.COMPLETE, future.result(self._timeout))
            except concurrent.futures.TimeoutError as e:
                yield MapResult(StatusKind.TIMEOUT, e)
            except Exception as e:  # noqa: BLE001 - whatever the function raised is the item's result
                yield MapResult(StatusKind.EXCEPTION, e)

    def __del__(self):
        self._pool.shutdown(wait=False, cancel_futures=True)


class PopenWorker(PopenPoolExecutor):
    """A pool of one process with `send` and `recv`."""

    def __init__(self, *args, **kwargs):
        super().__init__(1, *args, **kwargs)
        self._future = None

    def send(self, fn, args=(), kwargs=None, timeout=None):
        """Starts a call."""
        self._timeout = timeout
        self._future = self.submit(fn, *args, **(kwargs or {}))

    def recv(self):
        """The result of the call started last."""
        return self._future.result(self._timeout)
