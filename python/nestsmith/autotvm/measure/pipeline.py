"""Measuring batches of configurations with the engine: builds and runs overlap.

`Pipeline` is for a `LocalBuilder` and a runner that hands artifacts to the engine's runners (`LocalRunner`, or one that runs them
elsewhere: only `EngineRunner.engine` differs).
"""

import time

from ...auto_scheduler.cost import NOTHING, rank_of
from ...auto_scheduler.search_task import TuningOptions
from ...auto_scheduler.session import Measurer, check_compilers
from .measure import MeasureResult
from .program import Programs, failure

__all__ = ["Pipeline", "result_of"]

CPU = 1  # type of device


def trimmed(costs):
    """Without the smallest and the largest, if there are more than two."""
    costs = sorted(costs)
    return tuple(costs[1:-1] if len(costs) > 2 else costs)


def result_of(res):
    """The engine's result as a MeasureResult of a configuration."""
    if res.error_no:
        return failure(res.error_no, RuntimeError(res.error_msg), res.all_cost, res.timestamp, extra=res.extra)
    return MeasureResult(trimmed(res.costs), 0, res.all_cost, res.timestamp, res.extra)


class Pipeline:
    """Called with a list of MeasureInput it returns their MeasureResults; `meanwhile`, if given, is called once they are on their
    way: it should return soon.

    Parameters
    ----------
    task : autotvm.task.Task
    builder : LocalBuilder
    runner : EngineRunner

    Attributes
    ----------
    n_parallel : int
        How many inputs a batch should have.
    overlaps : bool
        What this machine does while a batch is measured disturbs no times: they are another device's.
    arrived : list
        Of the last batch: a result, or None for what was not measured because the run ended.
    """

    def __init__(self, task, builder, runner):
        self.n_parallel, self.check = builder.n_parallel, runner.check
        options = TuningOptions(builder=builder.engine, runner=runner.engine, verbose=0)
        check_compilers(options, [task])
        self._programs = Programs(task, builder.build_kwargs.get("check_gpu"), runner.ref_input)
        self._measurer = Measurer(options)
        # whoever runs them elsewhere compares everything: a second run would travel once more
        self._measurer.check = self.check == "all" or (self.check == "best" and not self._measurer.local)
        self.overlaps = runner.overlaps or task.target.kind.device_type != CPU
        self._best, self.arrived = NOTHING, []

    def close(self):
        """Ends the processes."""
        self._measurer.close()

    def __call__(self, inputs, meanwhile=None):
        results = self.arrived = [None] * len(inputs)
        programs = [self._programs.try_of(i, time.time) for i in inputs]
        groups = {}  # of one search task each
        for i, p in enumerate(programs):
            if isinstance(p, MeasureResult):
                results[i] = p
            else:
                groups.setdefault(id(p.task), []).append(i)
        with self._measurer.signals:
            self._measure(programs, groups.values(), results, meanwhile)
            if self.check == "best" and self._measurer.local:
                self._verify(programs, results)
        return results

    def _measure(self, programs, groups, results, meanwhile):
        batches = []
        try:
            for group in groups:
                first = programs[group[0]].task
                batches.append((self._measurer.submit(first, None, [programs[i] for i in group]), group))
            if meanwhile is not None:
                meanwhile()
            for batch, _ in batches:
                self._measurer.wait(batch)
        finally:
            for batch, group in batches:
                for i, r in zip(group, batch.results):
                    results[i] = None if r is None else result_of(r)

    def _verify(self, programs, results):
        """Runs what would become the best once more and compares its results; what is wrong there has failed."""
        ranks = [rank_of(r) for r in results]
        for i in sorted(range(len(results)), key=ranks.__getitem__):
            if ranks[i] >= self._best:
                return
            p = programs[i]
            again = self._measurer.wait(self._measurer.submit(p.task, None, [p], verify=True))[0]
            if not again.error_no:
                self._best = ranks[i]
                return
            results[i] = result_of(again)
