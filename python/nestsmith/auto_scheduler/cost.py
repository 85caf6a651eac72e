"""What a result is worth: which times count and which of two results is the better one, as the engine says (tune/rounds.c).

A log may come from anywhere. A time that no run can have (none, NaN, infinite, zero, negative, shorter than a clock cycle of any
device) makes its record one without a result: it stays in the log and is never the best.
"""

from nestsmith import _core

__all__ = ["FAILED", "NOTHING", "Cost", "cause_of", "is_quick", "rank", "rank_of", "seconds", "seconds_of"]

FAILED = 1e10  # seconds: stands for "no valid result"
NOTHING = (True, FAILED)  # the rank of what has no valid result: whatever has one goes before it


class Cost(float):
    """A measured time in seconds. Scripts for TVM ask for its ``value``."""

    __slots__ = ()

    value = property(lambda self: float(self), doc="The number.")


rank = _core.rank  # order of the results of a task: those timed in full first, then by time
rank_of = _core.rank_of  # of a MeasureResult


def seconds(costs, error_no=0):
    """Mean of the measured times of a result; `FAILED` if it is a failure or holds a time that no run can have."""
    return rank(costs, error_no)[1]


def seconds_of(res):
    """`seconds` of a MeasureResult."""
    return rank_of(res)[1]


def cause_of(res):
    """Why a result is none, in a word."""
    cause = (getattr(res, "extra", None) or {}).get("cause")
    return cause or ("impossible-time" if res.error_no == 0 else f"error {res.error_no}")


def is_quick(res):
    """Whether a result comes from the quick stage: good enough to rank, not to be shown as a latency."""
    return (getattr(res, "extra", None) or {}).get("stage") == "quick"
