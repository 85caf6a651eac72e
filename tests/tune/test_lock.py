"""No call of the engine keeps the interpreter lock for long: other Python threads go on while a run searches, compiles,
measures and learns. What is measured is the processor time that a call takes in the thread that makes it: long work goes
on in threads of the engine's own (csrc/py/py_run.c). Other programs on the machine do not change it.
"""

import collections
import itertools
import statistics
import sys
import threading
import time

import pytest
from matmuls import options, small, tasks_of

from helpers import slowness
from nestsmith import _core, auto_scheduler

USUAL, MOST = 1e-3, 1e-2  # seconds of the middle call and of the longest one, on a usual core
FREE = {"Session.close"}  # lets go of the lock and stays in its thread


class Meter:
    """Processor time of each call of the engine, by name, in this thread and in those that begin later."""

    def __init__(self):
        self.calls, self._open = collections.defaultdict(list), threading.local()

    def __enter__(self):
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *exc):
        sys.setprofile(None)
        threading.setprofile(None)

    def _event(self, frame, event, arg):
        if event not in ("c_call", "c_return", "c_exception"):
            return
        owner = getattr(arg, "__self__", None)
        if owner is not _core and type(owner).__module__ != "nestsmith._core" and not isinstance(owner, _core.ComputeDAG):
            return
        begun = self._open.__dict__.setdefault("begun", [])
        if event == "c_call":
            begun.append(time.thread_time())
        elif begun:
            self.calls[arg.__qualname__].append(time.thread_time() - begun.pop())

    def made(self, maker, *args, **kwargs):
        """A call of a constructor, which raises no event."""
        begin = time.thread_time()
        out = maker(*args, **kwargs)
        self.calls[maker.__name__].append(time.thread_time() - begin)
        return out


def calls_of_a_run(log):
    """(processor time of the middle call and of the longest one by name, how far another thread has counted meanwhile)."""
    meter, counts, ended = Meter(), itertools.count(), threading.Event()
    beside = threading.Thread(target=lambda: [next(counts) for _ in iter(ended.is_set, True)])
    with pytest.MonkeyPatch.context() as m:
        for name in ("Policy", "Session", "Learner"):
            m.setattr(_core, name, lambda *a, _make=getattr(_core, name), **k: meter.made(_make, *a, **k))
        beside.start()
        try:
            with meter:
                scheduler = auto_scheduler.TaskScheduler(tasks_of(64, 128), seed=1)
                scheduler.tune(options(64, 32, log), search_policy_params=small())
        finally:
            ended.set()
            beside.join()
    return {name: (statistics.median(t), max(t)) for name, t in meter.calls.items()}, next(counts)


def test_nothing_of_a_run_holds_the_lock(tmp_path):
    """What takes long does so in every run. A host that has its processors do something else meanwhile hits any call, and its
    guest may count that as processor time."""
    suspects = None
    for run in range(3):
        calls, counted = calls_of_a_run(tmp_path / f"{run}.json")
        for name in ("Policy", "Policy.candidates", "Learner.add", "Learner.train", "Session.submit", "Session.poll"):
            assert calls.get(name), f"{name} was not called"
        assert counted > 1000
        times = slowness()
        long = {name: t for name, t in calls.items() if name not in FREE and (t[0] > USUAL * times or t[1] > MOST * times)}
        suspects = long if suspects is None else {name: t for name, t in suspects.items() if name in long}
        if not suspects:
            break
    assert not suspects, suspects
