"""Tuners that learn a model of the costs and measure what it likes."""

import concurrent.futures

import numpy as np

from ... import _core, check
from ..env import GLOBAL_SCOPE
from ..history import pairs_of
from ..measure.measure import flops_of
from .tuner import Tuner

__all__ = ["CostModel", "ModelOptimizer", "ModelBasedTuner"]

LAST = 4  # a plan's last batch has at most one of so many parts of it
EXPLORE = 0.05  # share of a plan that is random
LEAST_FLOPS = 1e-6  # less: nothing has worked yet


class CostModel:
    """Base of models that tell good configurations from bad ones."""

    def fit(self, xs, ys, plan_size):
        """Learns from indices ``xs`` with throughputs ``ys``; the best ``plan_size`` matter most."""
        raise NotImplementedError

    def fit_log(self, records, plan_size, min_seed_records=500):
        """Learns from records of similar tasks; False if there are too few."""
        raise NotImplementedError

    def predict(self, xs, output_margin=False):
        """Scores of indices, as an array; higher is better."""
        raise NotImplementedError

    def load_basemodel(self, base_model):
        """Starts from what another model says."""
        raise NotImplementedError

    def spawn_base_model(self):
        """A new model of the same kind."""
        raise NotImplementedError

    def close(self):
        """Ends what the model has started; called at the end of a run."""


class ModelOptimizer:
    """Base of what finds the configurations that a model likes."""

    def find_maximums(self, model, num, exclusive):
        """At most ``num`` indices that ``model`` scores best and that are not in ``exclusive``, best first."""
        raise NotImplementedError


class ModelBasedTuner(Tuner):
    """Measures what a model likes, in plans of ``plan_size``; after each the model learns again. Where another device than this
    machine's processor measures, it learns and plans while the last batch of a plan is measured, from the results before it.

    Parameters
    ----------
    task : Task
    cost_model : CostModel
    model_optimizer : ModelOptimizer
    plan_size : int
    diversity_filter_ratio : float, optional
        The plan is chosen out of so many times as many candidates, so that they differ. Raises AssertionError below 1.
    """

    def __init__(self, task, cost_model, model_optimizer, plan_size, diversity_filter_ratio=None):
        super().__init__(task)
        self.target, self.plan_size = task.target, check.integer("plan_size", plan_size, 1)
        self.cost_model, self.model_optimizer = cost_model, model_optimizer
        self.diversity_filter_ratio = diversity_filter_ratio
        assert not diversity_filter_ratio or diversity_filter_ratio >= 1, (
            f"Diversity filter ratio must be larger than one, not {diversity_filter_ratio}"
        )
        self.visited, self.trials, self.trial_pt = set(), [], 0
        self.xs, self.ys, self.flops_max, self.train_ct = [], [], 0.0, 0
        self._pool = self._planned = None

    def end_of_run(self):
        if self._pool is not None:  # what it plans nobody wants any more
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._planned = None
        getattr(self.cost_model, "close", bool)()

    def has_next(self):
        """Asks a filter of the space for a few configurations, not for all."""
        return len(self.visited) < self.space.range_length and bool(self.space.draw_ints(1, to_exclude=self.visited))

    def next_batch(self, batch_size):
        if self.overlaps:
            batch_size = min(batch_size, self._until_planning())
        out = []
        while len(out) < batch_size and self.has_next():
            while self.trial_pt < len(self.trials) and not self._open(self.trials[self.trial_pt]):
                self.trial_pt += 1
            if self.trial_pt >= len(self.trials) - int(EXPLORE * self.plan_size):
                index = self.space.get_rand_index(to_exclude=self.visited)
            else:
                index = self.trials[self.trial_pt]
            self.visited.add(index)
            out.append(self.space.get(index))
        return out

    def _open(self, index):
        return index not in self.visited and self.space.is_index_valid(index)

    # ---- planning while the last batch of a plan is measured ----

    def _until_planning(self):
        """How many configurations a batch may have so that a plan's last one is its own: small, since the next plan is made
        without its results, and all of the plan, since who plans and who draws at random take turns."""
        left, last = self.plan_size * (self.train_ct + 1) - len(self.xs), max(1, self.plan_size // LAST)
        if left <= 0:  # nothing has worked yet, or a log held several plans: every batch may be the last one
            return self.plan_size
        return left - last if left > last else left

    def ahead(self, inputs):
        due = len(self.xs) + len(inputs) >= self.plan_size * (self.train_ct + 1)
        return self._begin_to_plan if due and len(inputs) * LAST <= self.plan_size and self.flops_max > LEAST_FLOPS else None

    def _begin_to_plan(self):
        self._pool = self._pool or concurrent.futures.ThreadPoolExecutor(1)
        self._planned = self._pool.submit(self._learn_and_plan, list(self.xs), list(self.ys), set(self.visited))

    def _learn_and_plan(self, xs, ys, visited):
        self.cost_model.fit(xs, ys, self.plan_size)
        return self._plan(self.cost_model, visited)

    def update(self, inputs, results):
        for inp, res in zip(inputs, results):
            flops = flops_of(self.task, res)
            self.xs.append(inp.config.index)
            self.ys.append(flops)
            self.visited.add(inp.config.index)
            self.flops_max = max(self.flops_max, flops)
        if len(self.xs) < self.plan_size * (self.train_ct + 1) or self.flops_max <= LEAST_FLOPS:
            return
        planned, self._planned = self._planned, None
        self.trials = planned.result() if planned else self._learn_and_plan(self.xs, self.ys, self.visited)
        self.trial_pt = 0
        self.train_ct += 1

    def _plan(self, model, visited):
        """The configurations that a model likes best, filled up with random ones."""
        ratio = self.diversity_filter_ratio
        found = list(self.model_optimizer.find_maximums(model, int(self.plan_size * (ratio or 1)), visited))
        if ratio:
            at = _core.pick_diverse(self.space._space, found, np.zeros(len(found)), self.plan_size)
            found = [found[i] for i in at]
        wanted = self.plan_size - len(found)
        return found + self.space.draw_ints(wanted, to_exclude=visited.union(found)) if wanted > 0 else found

    def load_history(self, data_set, min_seed_records=500):
        """Learns from records of tasks with the same name.

        Parameters
        ----------
        data_set : str, pathlib.Path, open text file, or iterable of (MeasureInput, MeasureResult)
            As for `apply_history_best`: a log, or for example what `record.load_from_file` gives.
        min_seed_records : int
            With fewer good ones nothing is learnt.

        Raises
        ------
        TypeError
            If it is none of these.
        FileNotFoundError
            If there is no such log.
        """
        check.integer("min_seed_records", min_seed_records, 0)
        GLOBAL_SCOPE.in_tuning = True  # templates see what they see when they are tuned
        try:
            base = self.cost_model.spawn_base_model()
            if not base.fit_log(pairs_of(data_set), self.plan_size, min_seed_records):
                return
            if not self.trials:
                self.trials, self.trial_pt = self._plan(base, self.visited), 0
            self.cost_model.load_basemodel(base)
        finally:
            GLOBAL_SCOPE.in_tuning = False
