"""What is measured and what comes out."""

import enum
from collections import namedtuple

from ...auto_scheduler.cost import FAILED, seconds_of
from ...auto_scheduler.measure import MeasureErrorNo as _Numbers

__all__ = ["BuildResult", "MeasureErrorNo", "MeasureInput", "MeasureResult", "flops_of"]


class MeasureInput(namedtuple("MeasureInput", ["target", "task", "config"])):
    """A candidate.

    Attributes
    ----------
    target : Target
    task : autotvm.task.Task
    config : ConfigEntity
    """

    __slots__ = ()


class BuildResult(namedtuple("BuildResult", ["filename", "arg_info", "error", "time_cost"])):
    """A built candidate.

    Attributes
    ----------
    filename : str or None
        Where it is.
    arg_info : tuple of (shape, dtype)
        Of its arguments.
    error : None or (str, Exception)
        Traceback and exception if it could not be built.
    time_cost : float
        Seconds.
    """

    __slots__ = ()


class MeasureResult(namedtuple("MeasureResult", ["costs", "error_no", "all_cost", "timestamp"])):
    """The result of a candidate.

    Attributes
    ----------
    costs : tuple of float
        Seconds, one per repeat; (traceback, exception) if it failed.
    error_no : int
        0, or a `MeasureErrorNo`.
    all_cost : float
        Seconds for building and running it.
    timestamp : float
        When it ended, in seconds since 1970.
    extra : dict
        Details that a record keeps beside the result: device, driver, how it was measured. Not a part of the tuple.
    """

    def __new__(cls, costs, error_no, all_cost, timestamp, extra=None):
        self = super().__new__(cls, costs, error_no, all_cost, timestamp)
        self.extra = dict(extra or {})
        return self

    def __reduce__(self):
        return MeasureResult, (*self, self.extra)


def flops_of(task, result):
    """Operations per second of a result, 0 if it failed or holds a time that no run can have."""
    seconds = seconds_of(result)
    return task.flop / seconds if seconds < FAILED else 0.0


# Numbers of what can go wrong; those of the auto-scheduler.
MeasureErrorNo = enum.IntEnum("MeasureErrorNo", {n: v for n, v in vars(_Numbers).items() if n.isupper()})  # type: ignore[misc]
