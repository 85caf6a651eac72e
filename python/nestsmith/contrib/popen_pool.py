"""Worker processes for Python functions, by the standard library's pool."""

from __future__ import annotations

import concurrent.futures
import multiprocessing

__all__ = ["PopenPoolExecutor", "PopenWorker"]


class PopenPoolExecutor:
    """A pool of processes.

    Parameters
    ----------
    max_workers : int, optional
    timeout : float, optional
        Seconds after which a result counts as failed; it then raises `TimeoutError`.
    """

    def __init__(
        self,
        max_workers=None,
        timeout=None,
        initializer=None,
        initargs=(),
        maximum_process_uses=None,
        stdout=None,
        stderr=None,
    ):
        method = multiprocessing.get_context("forkserver")
        self._timeout = timeout
        self._pool = concurrent.futures.ProcessPoolExecutor(
            max_workers, mp_context=method, initializer=initializer, initargs=initargs
        )

    def submit(self, fn, *args, **kwargs):
        """Starts `fn`; returns a future."""
        return self._pool.submit(fn, *args, **kwargs)

    def map_with_error_catching(self, fn, iterator):
        """Yields (status, value or exception) for every item."""
        for future in [self._pool.submit(fn, x) for x in iterator]:
            try:
                yield "complete", future.result(self._timeout)
            except concurrent.futures.TimeoutError as e:
                yield "timeout", e
            except Exception as e:  # noqa: BLE001 - whatever the function raised is the item's result
                yield "exception", e

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
