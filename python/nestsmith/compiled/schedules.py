"""Schedules for a network: those of logs, those that travel from similar tasks, and those that a tuning run finds."""

import glob
import math
import os
import re

from .. import check
from ..auto_scheduler import ApplyHistoryBestOrSample, LocalRunner, RecordToFile, TaskScheduler, TuningOptions
from ..auto_scheduler.dispatcher import OTHER_SIZES
from ..auto_scheduler.holdings import Holdings, architecture, place
from ..auto_scheduler.log_files import no_log
from ..auto_scheduler.relatives import Relatives
from ..auto_scheduler.workload_keys import decode_workload_key

__all__ = ["BestKnown", "default_log", "known_logs", "log_folder", "tune"]

PER_TASK = 1000  # trials of a task in a run that ends by the clock
TRIALS_A_SECOND = {True: 30, False: 2}  # about: of a GPU beside 16 cores, of 2 cores
FINALIST_MS = {True: 100, False: 40}  # for which a candidate that may be the best one is timed
LEAST_ROUND, LEAST_MS = 4, 20
MS_OF_A_SECOND = 30  # for which a finalist is timed, of each second that a task has


def log_folder():
    """The user's directory of tuning logs: NESTSMITH_LOG_DIR, else nestsmith/logs in XDG_DATA_HOME (~/.local/share). None if
    NESTSMITH_LOG_DIR is empty."""
    folder = os.environ.get("NESTSMITH_LOG_DIR")
    if folder is not None:
        return folder or None
    return os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "nestsmith", "logs")


def default_log(target):
    """The file of the user's directory for records of a target; ValueError if there is no directory."""
    folder = log_folder()
    if folder is None:
        raise ValueError("NESTSMITH_LOG_DIR is empty, so there is no place for records; give log='FILE.json'")
    names = [target.kind.name, *filter(None, architecture(target))]
    return os.path.join(folder, re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(names)) + ".json")


def known_logs(log):
    """The logs to look in: the one that the user names, then those of his directory."""
    folder = log_folder()
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "*.json"))) if folder else []
    own = [os.path.abspath(log)] if log and not no_log(log) else []
    return own + [f for f in found if os.path.abspath(f) not in own and not no_log(f)]


class BestKnown(ApplyHistoryBestOrSample):
    """The best schedule that is known for each task of a network without measuring: its own record; the record of a task of the
    network that differs in its element-wise tail; a record of the same computation in another batch size (a multiple or a part of
    this one), fitted to it; the first choice of the search.

    Parameters
    ----------
    logs : list of str
    tasks : list of SearchTask
    target : Target
    guess : bool
        Whether the search is asked for the tasks that nothing is known of; otherwise they get the default schedule.
    """

    tells = False  # all logs of the user are asked: that most are of other networks is no news

    def __init__(self, logs, tasks, target, guess=True):
        super().__init__(logs)
        self.guess, self._moved = guess, {}
        self._spread(tasks, target)

    def _spread(self, tasks, target):
        """Carries records over to tasks that have none."""
        own = [self._recorded(target, t) for t in tasks]
        if all(own):
            return
        relatives = Relatives(tasks) if any(own) else None
        for i, state in enumerate(own):
            for j in relatives.of(i) if state is not None else ():
                if own[j] is not None or tasks[j].workload_key in self._moved:
                    continue
                carried = relatives.transplant(i, j, state)
                if carried is not None:
                    self.update(target, tasks[j].workload_key, carried)
                    self._moved[tasks[j].workload_key] = f"similar task ({_short(tasks[i])})"
        for task, state in zip(tasks, own):
            if state is None and task.workload_key not in self._moved:
                for near in self.in_other_sizes(target, task.workload_key, task.compute_dag, whole=True):
                    self.update(target, task.workload_key, near)
                    self._moved[task.workload_key] = OTHER_SIZES

    def _recorded(self, target, task):
        for key in task.keys:
            name, args = decode_workload_key(key)
            if self._usable(target.kind.name, name, args):
                return self._look(target, target.kind.name, name, args).state
        return None

    def _sample(self, target, workload_key, dag):
        found = super()._sample(target, workload_key, dag) if self.guess else None
        if found is not None:
            self._moved[workload_key] = "first choice of the search"
        return found

    def rank(self, target, workload_key):
        return None if workload_key in self._moved else super().rank(target, workload_key)

    def origin(self, target, workload_key):
        return self._moved.get(workload_key) or super().origin(target, workload_key)


def _short(task):
    return task.desc.split(",")[0].removeprefix("vm_mod_").removeprefix("fused_")


def tune(tasks, weights, target, trials, log, seconds=None, device=0, verbose=1):
    """Tunes until the log holds `trials` records of these tasks, or `seconds` are over. Records are appended to `log`.

    Returns
    -------
    int
        Trials that were still to be made when it began.
    """
    seconds = None if seconds is None else check.number("tune_seconds", seconds, 0)
    if seconds == math.inf:
        seconds = None
    recorded = _recorded_trials(tasks, target, log)
    have, new = sum(recorded), recorded.count(0)
    left = (trials if trials is not None else PER_TASK * len(tasks)) - have
    if left <= 0 or not tasks:
        if verbose:
            print(f"nestsmith: {log} holds {have} records of this network's tasks, {trials} are wanted: nothing left to tune", flush=True)
        return 0
    if left < new:
        if verbose:
            print(f"nestsmith: {new} tasks have no record in {log}; each gets one trial, {new} instead of {left}", flush=True)
        left = new
    per_round, finalist_ms = pace(left, seconds, len(tasks), "gpu" in target.keys)
    options = TuningOptions(num_measure_trials=left, num_measures_per_round=per_round,
                            runner=LocalRunner(repeat=1, min_repeat_ms=finalist_ms, device=device),
                            measure_callbacks=[RecordToFile(log)], verbose=verbose)
    own = None if no_log(log) else log
    tuner = TaskScheduler(tasks, weights, load_log_file=own, callbacks=None if verbose else [], start_from=known_logs(log))
    tuner.ends_after(seconds)
    tuner.tune(options)
    return left


def pace(trials, seconds, n_tasks, gpu):
    """How a run over so many tasks goes about: (candidates per round, milliseconds for which one that may be the best is timed).

    A run by the clock is to come to every task and to go on with those that promise most. A round is half of what a task's share of
    the seconds has time for, and finals take less of it. (ResNet-18, 18 tasks, 20 s, H100, means of three runs each: 4.2 % above the time
    of a long run with rounds of 64 and finals of 100 ms, 3.1 % with 32 and 30 ms; later, with more forms of the layers to try, 6.2 % with 33 and
    3.2 % with 18.)
    """
    per_round, finalist_ms = TuningOptions(trials).round_size(n_tasks), FINALIST_MS[gpu]
    if seconds is not None:
        share = seconds / n_tasks
        per_round = min(per_round, max(LEAST_ROUND, int(TRIALS_A_SECOND[gpu] * share / 2)))
        finalist_ms = min(finalist_ms, max(LEAST_MS, int(MS_OF_A_SECOND * share)))
    return per_round, finalist_ms


def _recorded_trials(tasks, target, log):
    """How many trials of each task, and its variants, a log holds."""
    held = Holdings.of_log(log)
    names = [[decode_workload_key(k) for k in t.layer_keys] for t in tasks]
    return [held.count(n, target.kind.name, place(t)) for n, t in zip(names, tasks)]
