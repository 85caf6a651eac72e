"""What a result is worth: the one place that says which times count and which of two results is the better one.

A log may come from anywhere. A time that no run can have (none, NaN, infinite, zero, negative, below `SHORTEST`) makes its
record one without a result: it stays in the log and is never the best.
"""

from __future__ import annotations

__all__ = ["FAILED", "NOTHING", "SHORTEST", "cause_of", "is_quick", "rank", "rank_of", "seconds", "seconds_of"]

FAILED = 1e10  # seconds: stands for "no valid result"
SHORTEST = 1e-10  # seconds: less than a clock cycle of any device
NOTHING = (True, FAILED)  # the rank of what has no valid result: whatever has one goes before it


def seconds(costs, error_no=0):
    """Mean of the measured times of a result; `FAILED` if it is a failure or holds a time that no run can have."""
    try:
        costs = [float(c) for c in costs]
    except (TypeError, ValueError, OverflowError):
        return FAILED
    if error_no != 0 or not costs or not all(SHORTEST <= c < FAILED for c in costs):
        return FAILED
    return sum(costs) / len(costs)


def rank(costs, error_no=0, quick=False):
    """Order of the results of a task: those timed in full first, then by time. The smallest is the best; what has no
    valid result has the rank `NOTHING`."""
    cost = seconds(costs, error_no)
    return (bool(quick), cost) if cost < FAILED else NOTHING


def seconds_of(res):
    """`seconds` of a MeasureResult."""
    return seconds(res.costs, res.error_no)


def rank_of(res):
    """`rank` of a MeasureResult."""
    return rank(res.costs, res.error_no, is_quick(res))


def cause_of(res):
    """Why a result is none, in a word."""
    cause = (getattr(res, "extra", None) or {}).get("cause")
    return cause or ("impossible-time" if res.error_no == 0 else f"error {res.error_no}")


def is_quick(res):
    """Whether a result comes from the quick stage: good enough to rank, not to be shown as a latency."""
    return (getattr(res, "extra", None) or {}).get("stage") == "quick"
