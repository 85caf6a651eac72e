"""Who runs measurements of a runner whose ``executor`` is set: an object with ``submit``, as of `concurrent.futures`."""

from concurrent.futures import TimeoutError  # noqa: A004 - TVM's name

__all__ = ["ExecutionError", "Executor", "Future", "FutureError", "TimeoutError"]


class FutureError(RuntimeError):
    """Base of errors of futures."""


class ExecutionError(RuntimeError):
    """A call has failed, and nothing says why."""


class Future:
    """Base of what `Executor.submit` returns; a `concurrent.futures.Future` will do."""

    def done(self):
        """Whether the call has ended."""
        raise NotImplementedError

    def get(self, timeout=None):
        """What the call returned. Raises `TimeoutError` after `timeout` seconds."""
        raise NotImplementedError


class Executor:
    """Base of executors."""

    def submit(self, func, *args, **kwargs):
        """Starts ``func(*args, **kwargs)`` and returns its future."""
        raise NotImplementedError
