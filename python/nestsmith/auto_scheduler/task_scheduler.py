"""The task scheduler: shares measuring time among the tasks of a network."""

import contextlib
import logging
import math
import os
import random
import shlex
import shutil
import sys
import threading
import time
from collections.abc import MutableSet

from nestsmith import _core

from .. import check
from ..topi.default_schedule import default_state
from .cost import FAILED, NOTHING, rank_of, seconds_of
from .dispatcher import ApplyHistoryBest
from .display import Progress, short, style
from .holdings import Holdings, place
from .learned_model import XGBModel
from .log_files import no_log
from .measure import MeasureInput
from .models import NAMES, make_cost_model
from .relatives import Relatives, fitted
from .search_policy import NothingFound, PreloadMeasuredStates, SearchPolicy, SketchPolicy
from .search_task import SearchTask, TuningOptions
from .session import Measurer, SearchThread, StopTuning, check_compilers, log_file_of
from .workload_keys import decode_workload_key, size_factor

__all__ = ["TaskScheduler", "TaskSchedulerCallback", "PrintTableInfo", "LogEstimatedLatency", "derive_similarity_tag"]

logger = logging.getLogger("auto_scheduler")

NEVER = 1e20  # trials
STARTS = 4  # schedules of other sizes that a task begins with
FIRST_ROUND = 2  # candidates of a round in a run by the clock, as long as no candidate has told how long one takes


def derive_similarity_tag(dag, log_base=1.618):
    """Tag of tasks that should reach similar throughput; "" if the operators carry none."""
    said = (dict(getattr(op, "attrs", None) or {}).get("auto_scheduler_task_scheduler_tag") for op in dag.ops)
    tag = "".join(f"{value}_" for value in said if value)
    return tag + str(int(math.log(dag.flop_ct + 1) / math.log(log_base))) if tag else ""


def make_search_policies(search_policy, search_policy_params, tasks, num_measures_per_round, verbose,
                         load_model_file=None, load_log_file=None, adaptive_training=False, cost_model=None, seed=None,
                         layers=None):
    """One policy per task. A list of policies is taken as it is; it may be for the first tasks alone, `layers` of them. With a seed a
    log is not preloaded: the scheduler repeats the run that wrote it. Raises ValueError for an unknown name.
    """
    if seed is not None:
        load_log_file = None
    if search_policy == "default":
        search_policy = "sketch.xgb"
    if not isinstance(search_policy, str):
        needed = len(tasks) if layers is None else layers
        assert len(search_policy) in (needed, len(tasks)), f"{len(search_policy)} policies for {needed} tasks"
        return list(search_policy)
    kind, _, model_name = search_policy.partition(".")
    if kind != "sketch" or model_name not in (*NAMES, "learned"):
        names = ", ".join(f"sketch.{n}" for n in NAMES)
        raise ValueError(f"Invalid search policy: {search_policy}; use default, {names} or a list of policies")
    # "sketch.xgb" is the default of published scripts: it means what is best here and needs no package
    chosen = cost_model if cost_model is not None else "auto" if model_name in ("learned", "xgb") else model_name
    model = make_cost_model(chosen, None if seed is None else seed + 1, load_model_file,
                            len(tasks) * num_measures_per_round, adaptive_training=adaptive_training)
    if isinstance(model, XGBModel) and model is not cost_model:
        if load_model_file and os.path.isfile(load_model_file):
            logger.info("load the cost model from %s", load_model_file)
            model.load(load_model_file)
        elif load_log_file:
            logger.info("train the cost model on %s", load_log_file)
            model.update_from_file(load_log_file)
    callbacks = [PreloadMeasuredStates(load_log_file)] if load_log_file else []
    return [
        SketchPolicy(t, model, params=dict(search_policy_params or {}), seed=None if seed is None else seed + 1 + i,
                     verbose=verbose, init_search_callbacks=callbacks)
        for i, t in enumerate(tasks)
    ]


class _Column(list):
    """A number of each task; what is assigned to an item, the engine knows."""

    def __init__(self, rounds, name):
        super().__init__(getattr(rounds, name))
        self._of = rounds, name

    def __setitem__(self, i, value):
        super().__setitem__(i, value)
        setattr(*self._of, list(self))


class _Dead(MutableSet):
    def __init__(self, rounds):
        self._rounds = rounds

    def __iter__(self):
        return (i for i, dead in enumerate(self._rounds.dead) if dead)

    def __len__(self):
        return sum(self._rounds.dead)

    def __contains__(self, i):
        return any(i == k for k in self)

    def add(self, i):
        _Column(self._rounds, "dead")[i] = True

    def discard(self, i):
        _Column(self._rounds, "dead")[i] = False

    def __repr__(self):
        return repr(set(iter(self)))


def _column(name):
    return property(lambda s: _Column(s._rounds, name), lambda s, values: setattr(s._rounds, name, values))


def _of_run(name):
    return property(lambda s: getattr(s._rounds, name), lambda s, value: setattr(s._rounds, name, value))


class TaskScheduler:
    """Tunes several tasks at once, always the one that promises most for the objective.

    Parameters
    ----------
    tasks : list of SearchTask
        One per layer. Their `variants` are tuned, too, behind them in `TaskScheduler.tasks`: the first `TaskScheduler.layers` of these are the
        given ones, `layer_costs` has what the objective is given, the best seconds of each layer, whichever variant has them.
    task_weights : list of int, optional
        How often each task occurs; the objective is then the weighted sum of costs.
    objective_func : callable, optional
        (list of seconds) -> float, to be minimised; the weighted sum by default.
    strategy : "gradient" or "round-robin"
    load_model_file : str, optional
        The cost model is loaded from here if it exists, and saved here after each training.
    load_log_file : str, optional
        Log of an earlier run to go on from.
    alpha : float
        Share of the recent progress in the forecast of the gradient strategy.
    beta : float
        Trust in similar tasks: how many times slower than the best of them a task may stay.
    gamma : float
        Accepted and not used.
    backward_window_size : int
        Rounds that count as recent.
    callbacks : list of TaskSchedulerCallback, optional
        `PrintTableInfo` and `LogEstimatedLatency` by default: the latter writes ``total_latency.tsv`` beside the log.
    seed : int, optional
        Deterministic mode: equal seeds and equal measured times give equal candidates in equal order. A run with a
        `load_log_file` then repeats its searches and takes results from the log as far as it reaches, so that an
        interrupted run ends as the uninterrupted one would have.
    start_from : str or list of str, optional
        Logs (`load_log_file` by default, unless there is a `seed`) to look into for tasks that have no record: their best schedules of
        the same computation in other sizes, those of a network in another batch size for instance, are measured first, and so
        are those that this run has found.

    Raises
    ------
    TypeError
        If `tasks` holds something else.
    ValueError
        If there are more or fewer weights than tasks.
    AssertionError
        If there is no task, or the strategy is unknown.
    """

    def __init__(self, tasks, task_weights=None, objective_func=None, strategy="gradient", load_model_file=None,
                 load_log_file=None, alpha=0.2, beta=2, gamma=0.5, backward_window_size=3, callbacks=None, seed=None,
                 start_from=None):
        self.tasks = list(tasks)
        self.seed, self._learning = seed, []
        for t in self.tasks:
            if not isinstance(t, SearchTask):
                raise TypeError(f"tasks holds {t!r}; it must be a list of SearchTask, as extract_tasks returns")
        assert len(self.tasks) != 0, "No tasks"
        assert strategy in ("gradient", "round-robin"), f"strategy={strategy!r}: expected 'gradient' or 'round-robin'"
        if task_weights is not None and len(task_weights) != len(self.tasks):
            raise ValueError(f"{len(task_weights)} task weights for {len(self.tasks)} tasks")
        self.layers = len(self.tasks)
        self._variant_of = [i for i, t in enumerate(self.tasks) for _ in t.variants]
        self.tasks += [v for t in self.tasks for v in t.variants]
        self.task_weights = task_weights
        if objective_func is not None:
            self.objective_func = objective_func
        elif task_weights:
            self.objective_func = lambda costs: sum(c * w for c, w in zip(costs, task_weights))
        else:
            self.objective_func = sum
        self.strategy, self.load_model_file, self.load_log_file = strategy, load_model_file, load_log_file
        if start_from is None and seed is None:
            start_from = load_log_file
        self.start_from = [start_from] if isinstance(start_from, (str, os.PathLike)) else list(start_from or ())
        self.alpha, self.beta, self.gamma, self.backward_window_size = alpha, beta, gamma, backward_window_size
        self.callbacks = callbacks if callbacks is not None else [PrintTableInfo(), LogEstimatedLatency()]
        self._make_groups()
        groups = [self.tag_to_group_id.get(tag, -1) for tag in self._tags]
        self._rounds = _core.Rounds(self.flop_cts, groups, self._variant_of, random.Random(0 if seed is None else seed))
        self.early_stopping_all = self.early_stopping_task = NEVER
        self._rounds.score(self._compute_score)
        self.tune_option = self.measurer = self.search_policies = None
        self.tic, self.num_measures_per_round = None, None
        self.restored = 0  # trials of an earlier run that the tables count as well
        self.style = "text"  # what the run shows, see `display.style`
        self._relatives, self._shared_best = None, {}
        self._found = {}  # task -> (rank, best state) of this run
        self._stop_asked = threading.Event()
        self._seconds = None
        self.sequential_now_task_idx = self.sequential_now_task_begin_ct = 0

    # What the engine knows of the run and of each task. A list is a copy, but what is assigned to its items counts.
    best_costs, task_cts, task_trials, task_best_cts = map(_column,
                                                           ("best_costs", "task_cts", "task_trials", "task_best_cts"))
    ct, best_ct, cur_score = map(_of_run, ("ct", "best_ct", "cur_score"))
    dead_tasks = property(lambda self: _Dead(self._rounds), doc="Tasks that get no more rounds, as a set.")
    task_costs_history = property(lambda self: self._rounds.history, doc="The best cost after each round of each task.")

    @property
    def layer_costs(self):
        """The best seconds of each layer: of the fastest of its variants."""
        costs = self.best_costs[: self.layers]
        for i, cost in zip(self._variant_of, self.best_costs[self.layers :]):
            costs[i] = min(costs[i], cost)
        return costs

    @property
    def best_score(self):
        """The least objective, None before the first round."""
        score = self._rounds.best_score
        return score if score < math.inf else None

    @property
    def task_tags(self):
        """The similarity tag of each task, "" where it has none or has left its group."""
        return [tag if g >= 0 else "" for tag, g in zip(self._tags, self._rounds.groups)]

    @property
    def group_task_ids(self):
        """The tasks of each group."""
        groups = self._rounds.groups
        return [[i for i, g in enumerate(groups) if g == k] for k in range(len(self.tag_to_group_id))]

    def _make_groups(self):
        self._tags = [derive_similarity_tag(t.compute_dag) for t in self.tasks]
        self.flop_cts = [max(0.0, t.compute_dag.flop_ct) for t in self.tasks]
        self.tag_to_group_id = {tag: k for k, tag in enumerate(dict.fromkeys(filter(None, self._tags)))}

    # ---- the run ----

    def tune(self, tune_option, search_policy="default", search_policy_params=None, adaptive_training=False,
             per_task_early_stopping=None, cost_model=None):
        """Tunes until the trials are used up, nothing is left to try, or early stopping says so.

        Parameters
        ----------
        tune_option : TuningOptions
        search_policy : str or list of SearchPolicy
            "default", "sketch." with the name of a cost model, or one policy per task that was given; their variants are left out then.
        search_policy_params : dict, optional
            Overrides of `SketchPolicy.DEFAULT_PARAMS`.
        adaptive_training : bool
            Train the cost model less often as records become many.
        per_task_early_stopping : int, optional
            A task ends after so many trials without progress.
        cost_model : str or CostModel, optional
            "auto", "trees", "mlp", "trees+mlp", "analytic", "random", "xgb" or an object; overrides the one that `search_policy` names.

        Raises
        ------
        TypeError
            If `tune_option` is no TuningOptions.
        ValueError
            If there are fewer trials than tasks.
        RuntimeError
            If a compiler is missing, or every task ended without a single valid result.
        KeyboardInterrupt
            After Ctrl-C, when running candidates are recorded.
        """
        self._begin(tune_option, per_task_early_stopping)
        try:
            self.search_policies = make_search_policies(
                search_policy, search_policy_params, self.tasks, self.num_measures_per_round,
                tune_option.verbose if self.style == "text" else 0, self.load_model_file,
                None if self.load_log_file and no_log(self.load_log_file) else self.load_log_file, adaptive_training,
                cost_model, self.seed, self.layers,
            )
            self.search_policies += [None] * (len(self.tasks) - len(self.search_policies))
            for i, policy in enumerate(self.search_policies):
                if policy is None:
                    self.dead_tasks.add(i)
            self._first_states(isinstance(search_policy, str))
            for cb in self.callbacks:
                if hasattr(cb, "start"):
                    cb.start(self)
            check_compilers(tune_option, self.tasks)
            self._run(Progress(tune_option.num_measure_trials, tune_option.verbose, self._seconds))
        except KeyboardInterrupt:
            self._ended_by("Interrupted")
            raise
        self._check_any_valid()
        if self.style != "none":
            self._summary()

    def _first_states(self, ours):
        """Gives tasks that have no records what logs know of the same computations in other sizes, and, if the policies are `ours`,
        the default schedule, below which tuning is not to end (extended mode); a user's are asked for what they propose alone."""
        new = [i for i, n in enumerate(self.task_trials) if not n and hasattr(self.search_policies[i], "hint")]
        for i in new if ours else ():
            if self.search_policies[i].params["search_mode"] == "extended":
                self.search_policies[i].hint(default_state(self.tasks[i].compute_dag, self.tasks[i].target), first=True)
        logs = [log for log in self.start_from if log and not no_log(log)]
        known = ApplyHistoryBest(logs) if new and logs else None
        for i in new if known else ():
            task = self.tasks[i]
            for state in known.in_other_sizes(task.target, task.workload_key, task.compute_dag, STARTS, task.math):
                self.search_policies[i].hint(state, first=True)

    def ends_after(self, seconds):
        """Sets a time limit of `seconds` for each later run. None removes the limit. Rounds become smaller if candidates take longer than
        expected, so that each task without a record gets one candidate, if there is time for that."""
        self._seconds = None if seconds is None else check.number("seconds", seconds, 0)

    def stop(self):
        """Ends the run in good order, as Ctrl-C does, but `tune` returns. For other threads: signals do not reach a run
        outside the main thread. A run that has not begun yet ends when it does."""
        self._stop_asked.set()

    def _begin(self, tune_option, per_task_early_stopping):
        """Checks the options and sets the state of a new run, or that of the log to go on with."""
        if not isinstance(tune_option, TuningOptions):
            raise TypeError(f"tune_option is {tune_option!r}; it must be a TuningOptions")
        self.tune_option = tune_option
        self.early_stopping_all, self.early_stopping_task = (
            NEVER if n is None or n < 0 else n for n in (tune_option.early_stopping, per_task_early_stopping)
        )
        self.num_measures_per_round = self._round_size(tune_option)
        self.restored = 0
        self._begin_rounds(self.num_measures_per_round)
        self.tic, self.style = time.time(), style(tune_option.verbose)
        if self.load_log_file and self.seed is None:
            self._restore_status(self.load_log_file, self.num_measures_per_round)

    def _begin_rounds(self, num_measures_per_round):
        self._rounds.begin({
            "alpha": self.alpha, "beta": self.beta, "window": self.backward_window_size,
            "stop_all": self.early_stopping_all, "stop_task": self.early_stopping_task,
            "total": self.tune_option.num_measure_trials, "per_round": num_measures_per_round,
            "round_robin": self.strategy == "round-robin", "ordered": self.seed is not None,
            "devices": self._devices() if self._overlap() else 0,
        })  # fmt: skip

    def _round_size(self, tune_option):
        """Candidates per round: every task without a record gets one round at least."""
        size, needed = tune_option.round_size(self.layers), self.layers
        if size <= 0 and self.load_log_file and self.seed is None:
            held = Holdings.of_log(self.load_log_file)
            needed = max(1, sum(not held.count(names, *self._machine()) for names in self._layer_workloads()))
            size = tune_option.round_size(needed)
        if size <= 0:
            raise ValueError("num_measure_trials is too small. Please set it to a higher value. It should be at least "
                             f"{needed} for this model.")
        return size

    def _run(self, progress):
        """Tunes, with a live line, until something ends the run."""
        with (Measurer(self.tune_option, progress) as self.measurer,
              SearchThread(list(filter(None, self.search_policies)), self.measurer) as search):
            if self.load_log_file and self.seed is not None:
                n = 0 if no_log(self.load_log_file) else self.measurer.recall_from(self.load_log_file)
                keys = {decode_workload_key(key) for key, _ in self.measurer.known}
                if keys.isdisjoint(w for names in self._workloads() for w in names):
                    self._tell_restored(Holdings.of_log(self.load_log_file), 0)
                progress.say(f"TaskScheduler: {n} results of {self.load_log_file} are taken as they come up again")
            elif self.load_log_file:
                ranks = zip(self.tasks, self._rounds.quick, self.best_costs)
                self.measurer.best = {t.workload_key: (quick, c) for t, quick, c in ranks if c < 1e9}
            try:
                with contextlib.suppress(StopTuning):
                    self._loop(search)
                self._table(-1)
            except BaseException as e:
                with contextlib.suppress(Exception):  # the table is shown by callbacks, which may be what failed
                    self._table(-1)
                progress.close()
                if not isinstance(e, KeyboardInterrupt):
                    self._ended_by(f"Ended by {type(e).__name__}")
                raise
            finally:
                progress.close()

    def _check_any_valid(self):
        """RuntimeError if a run ended without a single valid result."""
        nothing = len(self.dead_tasks) == len(self.tasks) or (self.measurer.trials > 0 and self.measurer.valid == 0)
        if all(c >= 1e9 for c in self.layer_costs) and nothing:
            causes = ", ".join(f"{c} {n}" for c, n in self.measurer.causes.most_common(5))
            raise RuntimeError(f"no task has a valid result; failures: {causes or 'nothing could be sampled'}")

    def _devices(self):
        """How many measure at the same time."""
        return max(1, int(getattr(self.tune_option.runner, "devices", 1) or 1))

    def _overlap(self):
        """While a GPU measures, the CPU may search. A CPU that is being timed must be left alone, unless it is one of several
        boards, all of which are to have work."""
        gpus = all(t.target.kind.name not in ("llvm", "c", "cpu") for t in self.tasks)
        return gpus or (hasattr(self.tune_option.runner, "start") and self._devices() > 1)

    def _loop(self, search):
        """Does what the engine says is next. Search and training run in one other thread."""
        m, flying, job = self.measurer, {}, None
        if self._overlap():
            m.prepare(self.tasks)
        try:
            while True:
                if self._stop_asked.is_set() or m.progress.seconds_left() < 0:
                    raise StopTuning
                what, task, n = self._rounds.next(self._compute_score, [b.left for b in flying.values()])
                if what == "land":
                    self._land(search, task, flying.pop(task))
                elif what == "search":
                    n = self._affordable(search, n, flying)
                    self._call("pre_tune", task)
                    m.progress.task(f"{task + 1}/{len(self.tasks)} {short(self.tasks[task].desc)}")
                    job = search.submit(self._search, task, n, self._rounds.planned - n)
                elif what == "stale":
                    m.progress.say(f"Stop early since no performance improvement in the last {self.early_stopping_all} "
                                   "measurement trials.")
                else:
                    self._learning = [f for f in self._learning if not _done(f)]
                    if what == "end" and not self._learning:
                        return
                    m.poll(0.02)
                    if job is not None and job.done():
                        batch, job = job.result(), None
                        self._searched(task, batch, flying)
        except BaseException:  # Ctrl-C, stop(), or an error in a callback, a model or a rule
            search.abandon()
            m.drain()
            raise
        finally:
            self._stop_asked.clear()

    def _affordable(self, search, n, flying):
        """The number of candidates, at most `n`, for which a round has time at the rate of the last rounds. Tasks without a round share
        the time that is left. If there is no time for a round, this waits for the running candidates and raises StopTuning."""
        progress = self.measurer.progress
        if progress.until is None:
            return n
        per, _ = progress.rate()
        if per is None:
            return min(n, FIRST_ROUND)
        left = progress.seconds_left() - per * sum(b.left for b in flying.values())
        if left < per / 2:
            while flying and progress.seconds_left() > 0:
                self.measurer.poll(0.02)
                for task in [t for t, b in flying.items() if not b.left]:
                    self._land(search, task, flying.pop(task))
            raise StopTuning
        waiting = sum(not made and i not in self.dead_tasks for i, made in enumerate(self.task_trials[: self.layers]))
        return max(1, min(n, int(left / per / (2 * waiting if waiting else 1))))  # half of the share: the next trials may be slower

    def _searched(self, task, batch, flying):
        """A round is measured from now on, or there is none: `batch` may say why."""
        if isinstance(batch, str):
            if batch:
                self.measurer.progress.say(f"task {task} ({self.tasks[task].desc}) is given up: {batch}")
            batch = None
        self._rounds.searched(len(batch.inputs) if batch else 0)
        if batch and batch.inputs:
            flying[task] = batch
        else:
            self._count(task, [], [])

    def _search(self, task, n, done):
        """In the search thread: proposes and submits. Returns the batch, or why there is none. What users' rules, models
        and policies raise comes out of the thread as it is."""
        policy = self.search_policies[task]
        begin = time.time()
        try:
            if not self.task_trials[task]:
                self._start_from_run(task)
            if type(policy).continue_search_one_round is not SearchPolicy.continue_search_one_round:
                return "the policy measures by itself"
            policy.begin_round(done, self.tune_option.num_measure_trials)
            states = policy.propose(n)
        except NothingFound as e:
            return str(e)
        finally:
            self.measurer.split.search += time.time() - begin
        return self.measurer.submit(self.tasks[task], policy, [MeasureInput(self.tasks[task], s) for s in states])

    def _learn(self, task, inputs, results):
        """In the search thread: the next search knows these results."""
        begin = time.time()
        self.search_policies[task].learn(inputs, results)
        self._transplant(task, inputs, results)
        self.measurer.split.train += time.time() - begin

    def _start_from_run(self, task):
        """Gives a task what this run has found for the same computation in other sizes."""
        here = self.tasks[task]
        if not hasattr(self.search_policies[task], "hint"):
            return
        for i, (_, state) in sorted(self._found.items()):
            if self.tasks[i].target.kind.name == here.target.kind.name and size_factor(
                decode_workload_key(here.workload_key), decode_workload_key(self.tasks[i].workload_key)
            ):
                carried = fitted(here.compute_dag, state)
                if carried is not None:
                    self.search_policies[task].hint(carried, first=True)

    def _transplant(self, task, inputs, results):
        """Good candidates become proposals for the tasks that differ in what follows the main stage only."""
        best, k = min(((rank_of(r), k) for k, r in enumerate(results)), default=(NOTHING, 0))
        if best < self._found.get(task, (NOTHING,))[0]:
            self._found[task] = best, inputs[k].state
        if self._relatives is None:
            self._relatives = Relatives(self.tasks)
        others = [j for j in self._relatives.of(task) if hasattr(self.search_policies[j], "hint")]
        if not others:
            return
        ok = sorted((seconds_of(r), k) for k, r in enumerate(results) if seconds_of(r) < FAILED)
        if ok and ok[0][0] < self._shared_best.get(task, math.inf):
            self._shared_best[task] = ok[0][0]
        for cost, k in ok[:2]:
            if cost > 1.1 * self._shared_best[task]:
                break
            for j in others:
                state = self._relatives.transplant(task, j, inputs[k].state)
                if state is not None:
                    self.search_policies[j].hint(state)

    def _land(self, search, task, batch):
        """Accounts for a finished round."""
        results = self.measurer.finish(batch)
        self._learning = [f for f in self._learning if not _done(f)]
        self._learning.append(search.submit(self._learn, task, batch.inputs, results))
        self._count(task, batch.inputs, results)

    def _count(self, task, inputs, results):
        """A round is over."""
        self._rounds.take(self._compute_score, task, results)
        cause, progress = self.measurer.hopeless(self.tasks[task]), self.measurer.progress
        if cause:
            progress.say(f"task {task} ({self.tasks[task].desc}) is given up: too many failures in a row ({cause})")
            self.dead_tasks.add(task)
        known, n = sum(c < 1e9 for c in self.layer_costs), self.layers
        progress.set_estimate(*(self.cur_score, "") if known == n else (None, f"{known} of {n} tasks"))
        progress.round_line()
        self._call("post_tune", task)

    def _call(self, what, task):
        for cb in self.callbacks:
            self.measurer.signals.call(getattr(cb, what), self, task)

    def _compute_score(self, costs):
        return self.objective_func(costs)

    # ---- resuming, ending ----

    def _restore_status(self, log_file, num_measures_per_round):
        """Takes rounds, best costs and history from a log."""
        self._begin_rounds(num_measures_per_round)
        held, few = Holdings.of_log(log_file), self.tune_option.num_measure_trials < self.layers
        if held.log:
            mine = {(w, *self._machine()): i for i, names in enumerate(self._workloads()) for w in names}
            # few trials are for the tasks that promise most, not for a first round of each
            self._rounds.resume(self._compute_score, held.log, [mine.get(where, -1) for where in held.groups], few)
            self.restored = sum(self.task_trials)
        self._tell_restored(held, self.restored)

    def _workloads(self):
        """The names of each task, decoded."""
        return [[decode_workload_key(k) for k in t.keys] for t in self.tasks]

    def _layer_workloads(self):
        """The names of each layer: of its task, and of the variants of that."""
        return [[decode_workload_key(k) for k in t.layer_keys] for t in self.tasks[: self.layers]]

    def _machine(self):
        """Kind of target and place of which records count."""
        return self.tasks[0].target.kind.name, place(self.tasks[0])

    def _tell_restored(self, held, used):
        """How much of the log is of use; where nothing is, a warning."""
        trials = self.task_trials[: self.layers]
        for i, n in zip(self._variant_of, self.task_trials[self.layers :]):
            trials[i] += n
        tasks = list(zip(self._layer_workloads(), map(bool, trials)))
        if not used:
            logger.warning("TaskScheduler: nothing to go on from: %s", held.verdict(tasks, *self._machine()))
            return
        known, why = sum(found for _, found in tasks), held.reasons(tasks, *self._machine())
        text = f"Loaded {used} of {held.records} records from {held.sources[0]}, {known} of {len(tasks)} tasks have some"
        if self.style != "none":
            print(f"TaskScheduler: {text}" + (f": {why}" if why else ""), flush=True)
        logger.info("TaskScheduler: %s", text)

    def _table(self, next_task):
        """Has the table printed by the callbacks that print it."""
        for cb in self.callbacks:
            if isinstance(cb, PrintTableInfo):
                cb.show(self, next_task)

    def _ended_by(self, what):
        if self.style == "none":
            return
        log = log_file_of(self.tune_option)
        print(f"{what}." + (f" To go on: TaskScheduler(tasks, task_weights, load_log_file={log!r})" if log else ""),
              flush=True)

    def _summary(self):
        missing = [i for i, c in enumerate(self.layer_costs) if c >= 1e9]
        m = self.measurer
        failed = ", ".join(f"{c} {n}" for c, n in m.causes.most_common(4))
        log, per = log_file_of(self.tune_option), (time.time() - self.tic) / max(1, self.ct)
        print(f"Valid: {m.valid}/{m.trials}  Failed: {m.trials - m.valid}{' (' + failed + ')' if failed else ''}  "
              f"s/trial: {per:.3f}" + (f"  Saved: {log}" if log else ""), flush=True)
        if m.split.text():
            print(m.split.text(), flush=True)
        if missing:
            names = ", ".join(short(self.tasks[i].desc) for i in missing[:4]) + (", ..." if len(missing) > 4 else "")
            print(f"Warning: {len(missing)} of {self.layers} tasks have no valid result ({names}): they keep a "
                  "schedule that was not measured. More trials or more seconds reach them.", flush=True)
        if log:
            print(f"To go on later: auto_scheduler.TaskScheduler(tasks, task_weights, load_log_file={log!r})\nTo keep "
                  f"the best only: python -m nestsmith.log --mode distill -i {shlex.quote(log)}", flush=True)


def _done(future):
    """Whether a background job has ended; raises what it raised."""
    return future.done() and (future.result() or True)


class TaskSchedulerCallback:
    """Called around each round of a task: one of those that the scheduler was given or, behind them in its `tasks`, a variant."""

    def pre_tune(self, task_scheduler, task_id):
        """Before a round of task `task_id`."""

    def post_tune(self, task_scheduler, task_id):
        """After a round of task `task_id`."""


class PrintTableInfo(TaskSchedulerCallback):
    """Prints the table of all tasks before each round, and at the end.

    Where the run shows a bar only (`nestsmith.progress`), the table appears at the start, after each quarter of the
    trials and at the end.
    """

    WIDE = 61  # of the column with the task's description
    FULL = 113  # characters of a line with that column

    def __init__(self):
        self._next_at = 0.0

    def start(self, task_scheduler):
        """Before the first round."""
        self._next_at = 0.0

    def pre_tune(self, task_scheduler, task_id):
        """Prints the table if it is due."""
        s = task_scheduler
        if s.style == "bar":
            if s.ct < self._next_at:
                return
            quarter = max(1, s.tune_option.num_measure_trials / 4)
            self._next_at = (s.ct // quarter + 1) * quarter
        self.show(s, task_id)

    def show(self, task_scheduler, task_id):
        """Prints the table now. `task_id` is the next task, -1 if there is none."""
        s = task_scheduler
        if s.style == "none":
            return
        text = self.table(s, task_id, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
        if s.measurer is not None:
            s.measurer.progress.table(text)
        else:
            print(text)

    @classmethod
    def table(cls, s, task_id, columns=None):
        """The table as text; without descriptions if there are fewer than 113 columns."""
        full = columns is None or columns >= cls.FULL
        wide = cls.WIDE
        rule = "-" * (cls.FULL if full else 49)
        out = ["-" * 70, "-" * 30 + "  [ Task Scheduler ]", "-" * 70]
        head = f"|{'Task Description':^{wide + 2}}" if full else ""
        out.append(f"|  ID  {head}| Latency (ms) | Speed (GFLOPS) | Trials |")
        out.append(rule)
        for i, task in enumerate(s.tasks):
            cost = s.best_costs[i]
            latency = f"{1e3 * cost:.3f}" if cost < 1e9 else "-"
            flop = task.compute_dag.flop_ct
            speed = f"{flop / cost / 1e9:.2f}" if cost < 1e9 and flop > 0 else "-"
            desc = task.desc if len(task.desc) <= wide else task.desc[: wide - 2] + ".."
            what = f"| {desc:>{wide}} " if full else ""
            out.append(f"| {i:4d} {what}| {latency:>12} | {speed:>14} | {s.task_trials[i]:6d} |")
        out.append(rule)
        none = sum(c >= 1e9 for c in s.layer_costs)
        total = f"{s.cur_score * 1e3:.3f}" if not none else "-"
        trials = f"{s.restored + s.ct} (+{s.ct})" if s.restored else f"{s.ct}"
        out.append(f"Estimated total latency: {total} ms\tTrials: {trials}\tUsed time : {time.time() - s.tic:.0f} "
                   f"s\tNext ID: {task_id if task_id >= 0 else '-'}\t")
        if none and s.ct:
            out.append(f"- = no valid measurement yet: {none} of {s.layers} tasks")
        return "\n".join(out)


class LogEstimatedLatency(TaskSchedulerCallback):
    """Appends one line per round to a file: elapsed seconds, estimated latency, trials.

    If the file cannot be written, tuning goes on and one warning says so.

    Parameters
    ----------
    log_file : str, optional
        Started anew by each run that does not go on from a log. Default: ``total_latency.tsv`` beside the log of the run
        (`RecordToFile`); a run without a log writes none.
    """

    def __init__(self, log_file=None):
        self.log_file = log_file if log_file is None else os.fspath(log_file)
        self._told = False

    def _write(self, task_scheduler, mode, text):
        path, log = self.log_file, log_file_of(task_scheduler.tune_option)
        if path is None and log is not None:
            path = os.path.join(os.path.dirname(log), "total_latency.tsv")
        if path is None or (mode == "w" and not os.path.exists(path)):
            return
        try:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            with open(path, mode, encoding="utf-8") as f:
                f.write(text)
        except OSError as e:
            if not self._told:
                logger.warning("%s cannot be written (%s): the estimated latency of the rounds is not kept; "
                               "LogEstimatedLatency(file) among the scheduler's callbacks chooses another file", path,
                               e.strerror or e)
            self._told = True

    def start(self, task_scheduler):
        """Before the first round."""
        self._told = False
        if not task_scheduler.load_log_file:
            self._write(task_scheduler, "w", "")

    def post_tune(self, task_scheduler, task_id):
        """Appends a line."""
        s = task_scheduler
        total = f"{s.cur_score * 1e3:.3f}" if all(c < 1e9 for c in s.layer_costs) else "N/A"
        seconds = f"{time.time() - s.tic:.0f}"
        self._write(s, "a", f"ElapsedTime(s)\t{seconds}\tEstimatedLatency(ms)\t{total}\tTrials\t{s.ct}\n")
