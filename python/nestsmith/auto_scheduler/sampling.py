"""Schedules for what no record has: the search's first choice."""

import logging

from ..topi.default_schedule import default_state
from .cost_model import AnalyticModel
from .dispatcher import ApplyHistoryBest
from .search_policy import SketchPolicy
from .search_task import SearchTask, TuningOptions
from .session import default_model

__all__ = ["ApplyHistoryBestOrSample"]

logger = logging.getLogger("auto_scheduler")


class ApplyHistoryBestOrSample(ApplyHistoryBest):
    """Like `ApplyHistoryBest` with compatible records; a miss is filled by the search's first choice.

    Parameters
    ----------
    records : see `ApplyHistoryBest`
    sample_simple_workloads : bool
        Also for workloads without a reduction.
    cost_model_file : str, optional
        Model that ranks the samples; the analytic estimate if missing.
    num_measure : int
        Candidates to measure; -1: none.
    """

    def __init__(self, records, sample_simple_workloads=False, cost_model_file=None, num_measure=-1):
        self.sample_simple_workloads, self.num_measure = sample_simple_workloads, num_measure
        self.cost_model_file = cost_model_file
        super().__init__(records, include_compatible=True)

    def query(self, target, workload_key, has_complex_op, dag, func_name):
        if has_complex_op or self.sample_simple_workloads:
            found = self._query_inside(target, workload_key, func_name)
            if found is None:
                found = self._sample(target, workload_key, dag)
                if found is not None:
                    self.update(target, workload_key, found)
            if found is not None:
                return found
        return super().query(target, workload_key, has_complex_op, dag, func_name)

    def _sample(self, target, workload_key, dag):
        task = SearchTask(compute_dag=dag, workload_key=workload_key, target=target)
        for seed in (1, 2, 3):  # the same choice every time: its programs are in the cache of binaries then
            model = AnalyticModel()
            if self.cost_model_file:
                model = default_model()
                model.load(self.cost_model_file)
            policy = SketchPolicy(task, model, {"eps_greedy": 0.01, "evolutionary_search_num_iters": 0}, seed, verbose=0)
            if "cpu" in task.target.keys:  # the default schedule is chosen where nothing that was drawn is estimated to be faster
                policy.hint(default_state(dag, task.target))
            try:
                state = task.tune(TuningOptions(num_measure_trials=max(1, self.num_measure), verbose=0),
                                  search_policy=policy)
            except (ValueError, RuntimeError) as e:
                logger.info("no sample for %s: %s", workload_key, e)
                return None
            if state is not None:
                return state
        return None
