"""Contexts that answer from tuning logs.

>>> with autotvm.apply_history_best("tuned.log"):  # doctest: +SKIP
...     lib = relay.build(mod, target, params=params)
"""

import io
import logging
import os
from collections import Counter

from .. import check
from ..auto_scheduler.cost import NOTHING, rank_of, seconds_of
from .log import load_from_buffer, load_from_file
from .measure.measure import MeasureInput
from .task.dispatcher import DispatchContext
from .task.space import FallbackConfigEntity
from .task.task import MissingTask

__all__ = ["ApplyGraphBest", "ApplyHistoryBest", "pairs_of"]

logger = logging.getLogger("autotvm")

_GENERIC = ("gpu",)  # keys of targets that have nothing in common but being a GPU


def pairs_of(records):
    """The (MeasureInput, MeasureResult) pairs of whatever a log may be given as.

    Parameters
    ----------
    records : None, str, pathlib.Path, open text file, or iterable
        An iterable gives pairs, or anything else of this list.

    Yields
    ------
    (MeasureInput, MeasureResult)

    Raises
    ------
    TypeError
        If it is none of these.
    """
    if records is None:
        return
    if isinstance(records, (str, bytes, os.PathLike)):
        yield from load_from_file(os.fsdecode(records))
    elif isinstance(records, io.TextIOBase):
        yield from load_from_buffer(records)
    elif isinstance(records, tuple) and len(records) == 2 and isinstance(records[0], MeasureInput):
        yield records
    else:
        try:
            items = iter(records)
        except TypeError:
            raise TypeError(f"records is {records!r}; it must be a log file or pairs of (MeasureInput, MeasureResult)") from None
        for r in items:
            yield from pairs_of(r)


class ApplyHistoryBest(DispatchContext):
    """Answers with the fastest recorded configuration, as `auto_scheduler.ApplyHistoryBest` ranks results: times that no run can have
    (below 0.1 ns) and failures never count, and quick times only where there are no others.

    A record counts for every key of its target (``mali``, ``opencl``, ``gpu``), and before that for its model. The key
    ``gpu``, which all GPUs share, counts only for tasks whose name ends in it.

    Parameters
    ----------
    records : None, str, pathlib.Path, open text file, or iterable
        Logs, pairs of (MeasureInput, MeasureResult), or lists of these.

    Attributes
    ----------
    best_by_targetkey, best_by_model : dict
        (key or model, workload) -> (MeasureInput, MeasureResult)
    """

    def __init__(self, records):
        super().__init__()
        self.best_by_targetkey, self.best_by_model, self._best_user_defined = {}, {}, {}
        self.load(records)

    def load(self, records):
        """Adds records. See the constructor."""
        count, missing = 0, Counter()
        for inp, res in pairs_of(records):
            count += 1
            if isinstance(inp.task.func, MissingTask):
                missing[inp.task.name] += 1
            if res.error_no != 0:
                continue
            workload = inp.task.workload
            for key in inp.target.keys:
                self._keep(self.best_by_targetkey, (key, workload), inp, res)
            model = inp.target.model if inp.target.model != "unknown" else res.extra.get("device", "unknown")
            if model != "unknown":
                self._keep(self.best_by_model, (model, workload), inp, res)
        logger.debug("Finish loading %d records", count)
        if missing:
            logger.warning("%d of %d records are of templates that nobody has registered, which is done by importing "
                           "the module that defines them: %s", missing.total(), count, check.some(missing))

    @staticmethod
    def _keep(best, key, inp, res):
        if rank_of(res) < (rank_of(best[key][1]) if key in best else NOTHING):
            best[key] = inp, res

    def _query_inside(self, target, workload):
        if target is None:
            raise RuntimeError("Need a target context to find the history best. Hint: if your target is llvm, use "
                               "`with nestsmith.target.Target('llvm'):`")
        for key, best in self._places(target):
            if (key, workload) in self._best_user_defined:
                return self._best_user_defined[key, workload]
            if (key, workload) not in best or (key in _GENERIC and not workload[0].endswith(f".{key}")):
                continue
            inp, res = best[key, workload]
            inp.config.cost = seconds_of(res)
            if key in _GENERIC:
                logger.info("%s: the configuration comes from another device, %s", workload[0], inp.target)
            return inp.config
        return None

    def _places(self, target):
        """(name, records filed under such names) for the names of a target, the closest first."""
        if target.model != "unknown":
            yield target.model, self.best_by_model
        for key in target.keys:
            yield key, self.best_by_targetkey

    def update(self, target, workload, cfg):
        """Makes ``cfg`` the answer for a workload on the target's model and keys; it counts as the fastest."""
        cfg.cost = 0
        for key, _ in self._places(target):
            if key not in _GENERIC or key == target.keys[0]:
                self._best_user_defined[key, workload] = cfg


class ApplyGraphBest(DispatchContext):
    """Answers the n-th query with the n-th record, as a graph tuner writes them, later ones by target and workload.

    `relay.build`, which asks in an order of its own, gives all operators of one workload its first record.

    Parameters
    ----------
    records : str, pathlib.Path, open text file, or iterable
        As for `ApplyHistoryBest`.
    """

    def __init__(self, records):
        super().__init__()
        self._records = list(pairs_of(records))
        self._first = {}
        for inp, _ in self._records:
            self._first.setdefault(inp.task.workload, inp.config)
        self._counter, self._global_cfg_dict = 0, {}

    def _query_inside(self, target, workload):
        if self._counter < len(self._records):
            inp, _ = self._records[self._counter]
            if workload is not None and inp.task.workload != workload:
                raise ValueError(f"record {self._counter + 1} of the graph is for {inp.task.workload}, asked for is "
                                 f"{workload}; is it the log of this network?")
            self._counter += 1
            self.update(target, inp.task.workload, inp.config)
            inp.config.workload = inp.task.workload
            return inp.config
        key = str(target), workload
        if key not in self._global_cfg_dict:
            self.warn_once(f"Config for target={target}, workload={workload} is missing in ApplyGraphBest context. A "
                           "fallback configuration is used, which may bring great performance regression.")
            self._global_cfg_dict[key] = FallbackConfigEntity()
        return self._global_cfg_dict[key]

    def _lookup_inside(self, target, workload):
        return self._global_cfg_dict.get((str(target), workload), self._first.get(workload))

    def update(self, target, workload, cfg):
        self._global_cfg_dict[str(target), workload] = cfg
