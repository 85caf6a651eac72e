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

from matmuls import options, small, tasks_of

from nestsmith import _core, auto_scheduler

USUAL, MOST = 1e-3, 1e-2  # seconds of the middle call and of the longest one
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


def test_nothing_of_a_run_holds_the_lock(tmp_path, monkeypatch):
    meter, counts, ended = Meter(), itertools.count(), threading.Event()
    beside = threading.Thread(target=lambda: [next(counts) for _ in iter(ended.is_set, True)])
    for name in ("Policy", "Session", "Learner"):
        monkeypatch.setattr(_core, name, lambda *a, _make=getattr(_core, name), **k: meter.made(_make, *a, **k))
    beside.start()
    try:
        with meter:
            scheduler = auto_scheduler.TaskScheduler(tasks_of(64, 128), seed=1)
            scheduler.tune(options(96, 48, tmp_path / "log.json"), search_policy_params=small())
    finally:
        ended.set()
        beside.join()
    for name in ("Policy", "Policy.candidates", "Learner.add", "Learner.train", "Session.submit", "Session.poll"):
        assert meter.calls[name], f"{name} was not called"
    held = {name: (statistics.median(t), max(t)) for name, t in meter.calls.items() if name not in FREE}
    long = {name: t for name, t in held.items() if t[0] > USUAL or t[1] > MOST}
    assert not long, long
    assert next(counts) > 1000
