"""Timing: the one implementation behind ``time_evaluator`` and ``benchmark`` of operators and networks, on this machine and in
sessions. The arguments mean what they mean in TVM."""

import time

import numpy as np

from .. import check
from ..registry import get_global_func

__all__ = ["BenchmarkResult", "evaluator", "time_calls"]

FLUSH = "cache_flush_cpu_non_first_arg"
_GROWTH = 1.618  # of a block that was too short, at least
_MOST = 1_000_000  # runs of a block that has to grow


class BenchmarkResult:
    """Result of a timing: `results` holds one mean time in seconds per repeat; `mean`, `median`, `min`, `max`, `std`
    are over them."""

    def __init__(self, results):
        self.results = tuple(float(r) for r in results)
        values = np.array(self.results) if self.results else np.array([np.nan])
        self.mean, self.std = float(values.mean()), float(values.std())
        self.median, self.min, self.max = float(np.median(values)), float(values.min()), float(values.max())

    def __repr__(self):
        return (f"BenchmarkResult(min={self.min}, mean={self.mean}, median={self.median}, max={self.max}, "
                f"std={self.std}, results={self.results})")

    def __str__(self):
        head = " ".join(f"{t:^12}" for t in ("mean (ms)", "median (ms)", "max (ms)", "min (ms)", "std (ms)"))
        row = " ".join(f"{1e3 * v:^12.4f}" for v in (self.mean, self.median, self.max, self.min, self.std))
        return f"Execution time summary:\n{head}\n{row}" + " " * 15


def _preparation(f_preproc):
    """(whether it flushes caches, the function to call before each repeat or None) of TVM's ``f_preproc``."""
    if f_preproc in ("", None):
        return False, None
    if f_preproc == FLUSH:
        return True, None
    found = get_global_func(f_preproc, allow_missing=True) if isinstance(f_preproc, str) else f_preproc
    if not callable(found):
        raise ValueError(f"f_preproc {f_preproc!r} is unknown; it is {FLUSH!r}, or a function that register_func has registered")
    return False, found


def evaluator(start, block, number=10, repeat=1, min_repeat_ms=0, limit_zero_time_iterations=100,
              cooldown_interval_ms=0, repeats_to_cooldown=1, cache_flush_bytes=0, f_preproc=""):
    """A callable that times something and returns a `BenchmarkResult`.

    Parameters
    ----------
    start : callable
        ``start(args)`` runs it once or twice: wrong arguments raise before anything is timed, and the first run's set-up is not timed.
    block : callable
        ``block(args, number, flush)``: mean seconds of ``number`` runs; flush: caches are emptied before each run.
    number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown, cache_flush_bytes, f_preproc
        See `Module.time_evaluator`.

    Raises
    ------
    TypeError, ValueError
        That names the argument.
    """
    number, repeat = check.integer("number", number, 1), check.integer("repeat", repeat, 1)
    zeros = check.integer("limit_zero_time_iterations", limit_zero_time_iterations, 1)
    every = check.integer("repeats_to_cooldown", repeats_to_cooldown, 1)
    pause, goal = (
        _milliseconds(name, value)
        for name, value in (("cooldown_interval_ms", cooldown_interval_ms), ("min_repeat_ms", min_repeat_ms))
    )
    flushes, prepare = _preparation(f_preproc)
    flush = check.integer("cache_flush_bytes", cache_flush_bytes, 0) > 0 or flushes

    def evaluate(*args):
        start(args)
        results, runs = [], number
        for i in range(repeat):
            if prepare is not None:
                prepare(*args)
            seconds, runs = _one_repeat(lambda n: block(args, n, flush), runs, goal, zeros)
            results.append(seconds)
            if pause > 0 and i % every == 0:
                time.sleep(pause)
        return BenchmarkResult(results)

    return evaluate


def time_calls(call, device, number, flush):
    """Mean seconds of `number` calls; flush: caches are emptied before each."""
    total = 0.0
    for runs in (1,) * number if flush else (number,):
        if flush:
            device.handle().flush()
        device.sync()
        start = time.perf_counter()
        for _ in range(runs):
            call()
        device.sync()
        total += time.perf_counter() - start
    return total / number


def _milliseconds(name, value):
    seconds = 1e-3 * check.number(name, value)
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{name} is {value!r}; it must be a number of milliseconds of at least 0")
    return seconds


def _one_repeat(block, number, goal, zeros):
    """(seconds per run, runs of the last block). A repeat is one block of `number` runs; where that is shorter than `goal`, larger ones
    follow and are added up."""
    total, runs, none = 0.0, 0, 0
    while True:
        seconds = block(number)
        total, runs, none = total + seconds * number, runs + number, none + (seconds <= 0)
        if total >= goal or none >= zeros:
            return total / runs, number
        if seconds > 0:
            number = int(min(max((goal - total) / seconds + 1, number * _GROWTH), max(_MOST, number)))
