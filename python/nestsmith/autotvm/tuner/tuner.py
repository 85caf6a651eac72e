"""The loop that all tuners share: choose, measure, learn, tell the callbacks."""

import contextlib
import functools
import logging
import math
import os
import tempfile
import time
from collections import Counter

from ... import check
from ...auto_scheduler.cost import NOTHING, rank_of
from ..env import GLOBAL_SCOPE
from ..log import as_json, load_from_file
from ..measure import MeasureErrorNo, MeasureInput, create_measure_batch
from ..measure.measure import flops_of
from ..utils import format_si_prefix

__all__ = ["Tuner"]

logger = logging.getLogger("autotvm")

MAX_ERRORS_IN_A_ROW = 150
MOST_TOLD = 300  # characters of an error


def space_of(task):
    """The configurations among which a tuner chooses. Raises TypeError if `task` has none, as those that logs name."""
    space = getattr(task, "config_space", None)
    if space is None:
        raise TypeError(f"task is {task!r}, which has no configurations to choose from; autotvm.task.create(name, args, target) makes one that has")
    return space


def _is_of(space, config):
    """Is a configuration of a log one of the space? A template that has changed since has others under the same indices."""
    if not space.is_index_valid(config.index):
        return False
    own, given = (as_json(c.to_json_dict()["entity"]) for c in (space.get(config.index), config))
    return own == given


def _call_all(calls):
    """Makes every call in order, also where another one raises."""
    with contextlib.ExitStack() as last_in_first_out:
        for call in reversed(calls):
            last_in_first_out.callback(call)


class Tuner:
    """Base of tuners.

    Parameters
    ----------
    task : Task

    Attributes
    ----------
    task : Task
    space : ConfigSpace
        Of the task.
    best_config : ConfigEntity or None
    best_flops : float
        Operations per second of the best.
    best_iter : int
        Number of the trial that was the best, from 0.
    best_measure_pair : tuple or None
        Its (MeasureInput, MeasureResult).
    ttl : int or None
        Trials that are left if nothing better is found.
    n_trial, early_stopping : int
        As given to `tune`.
    """

    def __init__(self, task, **kwargs):
        self.param, self.recorder, self.task = kwargs, None, task
        self.space = space_of(task)
        self.error_ct_threshold = MAX_ERRORS_IN_A_ROW
        self.ttl = self.n_trial = self.early_stopping = None
        self.overlaps = False  # other devices measure: this machine may plan meanwhile
        self.reset()

    # ---- what tuners define ----

    def has_next(self):
        """Is there anything left to measure?"""
        raise NotImplementedError

    def next_batch(self, batch_size):
        """At most ``batch_size`` configurations to measure next."""
        raise NotImplementedError

    def update(self, inputs, results):
        """Learns from measured configurations; may also be called with old records."""

    def load_history(self, data_set, min_seed_records=500):
        """Learns from records of other tasks; what does not learn from them ignores them."""

    def ahead(self, inputs):
        """What can be done while these are measured, as a function that begins with it; None if there is nothing."""

    def end_of_run(self):
        """Called when `tune` ends, in whatever way."""

    # ---- the loop ----

    def tune(self, n_trial, measure_option, early_stopping=None, callbacks=(), si_prefix="G", resume_log=None,
             max_minutes=None):
        """Measures configurations until the trials are used up.

        Parameters
        ----------
        n_trial : int
            Configurations to measure.
        measure_option : dict
            What `measure_option` returns.
        early_stopping : int, optional
            Stop after so many trials without a better one.
        callbacks : list of callable
            Each is called with (tuner, inputs, results) after every batch, also where another one raises.
        si_prefix : str
            Of the FLOPS in debug lines.
        resume_log : str or Path, optional
            Log of an earlier run: its records of this task, for the same target and space, count as trials and are learnt
            from, not measured again.
        max_minutes : float, optional
            Stop after the batch in which so many minutes are over.

        Raises
        ------
        ValueError
            If ``si_prefix`` is unknown, ``n_trial`` is negative or ``max_minutes`` is not above 0.
        TypeError
            If ``n_trial`` or ``early_stopping`` is no number, something in ``callbacks`` cannot be called, or ``measure_option`` is none.
        """
        n_trial = check.integer("n_trial", n_trial, 0)
        if early_stopping is not None:
            check.integer("early_stopping", early_stopping)
        format_si_prefix(0, si_prefix)
        end = math.inf if max_minutes is None else time.monotonic() + 60 * check.number("max_minutes", max_minutes, above=0)
        self.n_trial, self.early_stopping = n_trial, early_stopping or int(1e9)
        old_level, run = logger.level, _Run(self, callbacks, si_prefix)
        measure_batch, finished = None, False
        GLOBAL_SCOPE.in_tuning = True
        try:
            measure_batch = create_measure_batch(self.task, measure_option)
            if resume_log is not None:
                run.replay(resume_log)
            batch_size, self.overlaps = getattr(measure_batch, "n_parallel", 1), getattr(measure_batch, "overlaps", False)
            while run.count < n_trial and not run.stopped and self.has_next():
                configs = self.next_batch(min(batch_size, n_trial - run.count))
                if not configs:
                    break
                inputs = [MeasureInput(self.task.target, self.task, c) for c in configs]
                run.measured(inputs, run.measure(measure_batch, inputs))
                run.stopped = run.stopped or time.monotonic() >= end
                if run.errors_in_row > self.error_ct_threshold:
                    logging.basicConfig()
                    logger.warning("Too many errors happen in the tuning. Switching to debug mode.")
                    logger.setLevel(logging.DEBUG)
                else:
                    logger.setLevel(old_level)
            finished = True
        finally:
            logger.setLevel(old_level)
            GLOBAL_SCOPE.in_tuning = False
            try:
                getattr(measure_batch, "close", bool)()
                self.end_of_run()
            finally:
                run.end(finished)

    def reset(self):
        """Forgets the best configuration."""
        self.best_config, self.best_flops, self.best_iter, self.best_measure_pair = None, 0, 0, None

    def set_error_threshold(self, threshold):
        """After how many failures in a row the ``autotvm`` logger shows everything."""
        self.error_ct_threshold = check.integer("threshold", threshold, 0)


class _Run:
    """One call of `Tuner.tune`: what was measured so far."""

    def __init__(self, tuner, callbacks, si_prefix):
        self.tuner, self.prefix = tuner, si_prefix
        self.callbacks = [callbacks] if callable(callbacks) else list(callbacks or ())
        for c in self.callbacks:
            if not callable(c):
                raise TypeError(f"callbacks: {c!r} cannot be called; a callback is a function of (tuner, inputs, results)")
        self.count, self.errors_in_row, self.errors, self.stopped = 0, 0, [], False

    def measure(self, measure_batch, inputs):
        """The results of a batch. Where the run is ended meanwhile, what was measured reaches the callbacks."""
        more = self.tuner.overlaps and self.count + len(inputs) < self.tuner.n_trial
        ahead = self.tuner.ahead(inputs) if more else None
        try:
            return measure_batch(inputs) if ahead is None else measure_batch(inputs, ahead)
        except BaseException:
            pairs = [(i, r) for i, r in zip(inputs, getattr(measure_batch, "arrived", ())) if r is not None]
            if pairs:
                self._call_back([i for i, _ in pairs], [r for _, r in pairs])
            raise

    def replay(self, log):
        """Takes the records of an earlier run as measured by this one."""
        task = self.tuner.task
        found = [(i, r) for i, r in load_from_file(log) if i.task.workload == task.workload and str(i.target) == str(task.target)]
        pairs = [(i, r) for i, r in found if _is_of(task.config_space, i.config)]
        if len(pairs) < len(found):
            logger.warning("%d records of %s in %s are of another space than the template has now and do not count",
                           len(found) - len(pairs), task.name, log)  # fmt: skip
        if pairs:
            logger.info("%d records of %s are taken from %s", len(pairs), task.name, log)
            self.measured([i for i, _ in pairs], [r for _, r in pairs], call_back=False)

    def measured(self, inputs, results, call_back=True):
        """Notes what came out of a batch, and passes it on."""
        t = self.tuner
        for k, (inp, res) in enumerate(zip(inputs, results)):
            flops = flops_of(t.task, res)
            if res.error_no == MeasureErrorNo.NO_ERROR:
                self.errors_in_row = 0
                shown = res
            else:
                self.errors_in_row += 1
                shown = "\n".join(dict.fromkeys(str(c) for c in res.costs))
                self.errors.append(shown)
            if rank_of(res) < (rank_of(t.best_measure_pair[1]) if t.best_measure_pair else NOTHING):
                t.best_flops, t.best_config, t.best_measure_pair, t.best_iter = flops, inp.config, (inp, res), self.count + k
            logger.debug("No: %d\t%sFLOPS: %.2f/%.2f\tresult: %s\t%s", self.count + k + 1, self.prefix,
                         format_si_prefix(flops, self.prefix), format_si_prefix(t.best_flops, self.prefix), shown,
                         inp.config)
        self.count += len(results)
        t.ttl = min(t.early_stopping + t.best_iter, t.n_trial) - self.count
        try:
            t.update(inputs, results)
        finally:  # Ctrl-C while a model learns loses no record
            if call_back:
                self._call_back(inputs, results)
        if self.count >= t.best_iter + t.early_stopping:
            logger.debug("Early stopped. Best iter: %d.", t.best_iter)
            self.stopped = True

    def _call_back(self, inputs, results):
        _call_all([functools.partial(c, self.tuner, inputs, results) for c in self.callbacks])

    def end(self, finished):
        """Tells the callbacks that the run is over, and where the errors are if nothing worked."""
        _call_all([functools.partial(c.end, self.tuner, self.count, finished) for c in self.callbacks if hasattr(c, "end")])
        if not self.count or len(self.errors) < self.count:
            return
        handle, name = tempfile.mkstemp(prefix="nestsmith_tuning_errors_", suffix=".log", text=True)
        with os.fdopen(handle, "w") as f:
            f.write("\n".join(self.errors))
        (most, times), = Counter(e.rstrip().rpartition("\n")[2] for e in self.errors).most_common(1)
        logger.warning("Could not find any valid schedule for task %s. A file containing the errors has been written "
                       "to %s.\n%d of %d: %s", self.tuner.task, name, times, self.count, most[:MOST_TOLD])
