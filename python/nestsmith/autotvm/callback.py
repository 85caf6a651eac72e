"""What happens after each measured batch: progress, logs.

A callback is called with (tuner, inputs, results). One that has a method ``end(tuner, count, finished)`` is told when the run
is over.
"""

import contextlib
import logging
import os
import sys
import time

import numpy as np

from .log import encode
from .measure.measure import flops_of
from .utils import format_si_prefix

__all__ = ["Monitor", "log_to_database", "log_to_file", "progress_bar"]

logger = logging.getLogger("autotvm")

QUIET_SECONDS = 5.0  # between two lines where there is no terminal


class log_to_file:  # noqa: N801 (name of the established interface)
    """Writes every result as one line.

    Parameters
    ----------
    file_out : str, Path or file
        A path is opened for each batch and added to.
    protocol : str
        "json". Raises ValueError for "pickle", which is not safe to read.

    Raises
    ------
    FileNotFoundError
        If the path's folder is not there: after the first batch would be late.
    """

    def __init__(self, file_out, protocol="json"):
        if protocol != "json":
            raise ValueError(f"protocol is {protocol!r}; logs are JSON only")
        folder = "" if hasattr(file_out, "write") else os.path.dirname(os.fspath(file_out))
        if folder and not os.path.isdir(folder):
            raise FileNotFoundError(f"file_out is {os.fspath(file_out)!r}, and there is no folder {folder!r}; make it first")
        self.file_out = file_out

    @contextlib.contextmanager
    def _file(self):
        if hasattr(self.file_out, "write"):
            yield self.file_out
        else:
            with open(os.fspath(self.file_out), "a", encoding="utf-8") as f:
                yield f

    def __call__(self, tuner, inputs, results):
        with self._file() as f:
            for inp, res in zip(inputs, results):
                f.write(encode(inp, res) + "\n")
                f.flush()

    def end(self, tuner, count, finished):
        """Notes that a run came to its end, for those who wonder whether to resume it. Readers skip the line."""
        if finished and count:
            with self._file() as f:
                f.write(f"# done {tuner.task.name} trials={count}\n")
                f.flush()


def log_to_database(db):
    """Callback that calls ``db.save(input, result)`` for every result."""

    def save(tuner, inputs, results):
        for inp, res in zip(inputs, results):
            db.save(inp, res)

    return save


class Monitor:
    """Collects the throughput of all trials and when they were measured."""

    def __init__(self):
        self.reset()

    def __call__(self, tuner, inputs, results):
        for inp, res in zip(inputs, results):
            self.scores.append(flops_of(inp.task, res))
            self.timestamps.append(res.timestamp)

    def reset(self):
        """Forgets all."""
        self.scores, self.timestamps = [], []

    def trial_scores(self):
        """Operations per second of each trial, 0 for failures."""
        return np.array(self.scores)

    def trial_timestamps(self):
        """When each was measured, in seconds since the epoch."""
        return np.array(self.timestamps)


class progress_bar:  # noqa: N801 (name of the established interface)
    """One line that shows the last and the best throughput, how many trials are done, and the time.

    Nothing is shown while the logger ``autotvm`` shows debug lines. Where the output is no terminal, there is a line every five
    seconds at most.

    Parameters
    ----------
    total : int
        Trials of the run.
    prefix : str
        Put before the line.
    si_prefix : str
        Unit of the throughput. Raises ValueError if it is unknown.
    """

    def __init__(self, total, prefix="", si_prefix="G"):
        format_si_prefix(0, si_prefix)
        self.total, self.prefix, self.si_prefix = total, prefix, si_prefix
        self.current = self.best = 0.0
        self.done, self.started, self._shown, self._ended = 0, time.time(), 0.0, False
        self._show()

    def __call__(self, tuner, inputs, results):
        self.done += len(inputs)
        self.current = 0.0
        for inp, res in zip(inputs, results):
            self.current = flops_of(inp.task, res) or self.current
        self.best = tuner.best_flops
        self._show()

    def line(self):
        """The text as it stands."""
        current, best = (format_si_prefix(x, self.si_prefix) for x in (self.current, self.best))
        return (f"{self.prefix} Current/Best: {current:7.2f}/{best:7.2f} {self.si_prefix}FLOPS | Progress: "
                f"({self.done}/{self.total}) | {time.time() - self.started:.2f} s")

    def _show(self):
        if logger.isEnabledFor(logging.DEBUG):
            return
        if sys.stdout.isatty():
            sys.stdout.write("\r" + self.line())
        elif self._shown and time.time() - self._shown < QUIET_SECONDS:
            return
        elif 0 < self.done < self.total:  # the last one is said by `end`
            sys.stdout.write(self.line() + "\n")
        self._shown = time.time()
        sys.stdout.flush()

    def end(self, tuner, count, finished):
        """The last line."""
        if self._ended or logger.isEnabledFor(logging.DEBUG):
            return
        self._ended = True
        sys.stdout.write(("\r" if sys.stdout.isatty() else "") + self.line() + " Done.\n")
        sys.stdout.flush()
