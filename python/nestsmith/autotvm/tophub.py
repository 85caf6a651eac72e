"""Reference logs: one file of records per family of devices, ``cuda.log``, ``mali.log``, ...

They are looked for in ``$TOPHUB_LOCATION`` (``NONE``: nowhere), in ``$NESTSMITH_LOG_DIR``, and in the directory ``logs`` beside
this file; nothing is ever downloaded. `context` answers from the file of a target's device, its keys or its kind;
`load_reference_log` gives templates the records from which their fallback configurations are made.
"""

import functools
import logging
import os
import pathlib
from collections import Counter

from ..target import Target
from .history import ApplyHistoryBest
from .log import load_from_file
from .task.dispatcher import DispatchContext

__all__ = ["AUTOTVM_TOPHUB_LOC_VAR", "AUTOTVM_TOPHUB_NONE_LOC", "context", "load_reference_log"]

AUTOTVM_TOPHUB_LOC_VAR = "TOPHUB_LOCATION"
AUTOTVM_TOPHUB_NONE_LOC = "NONE"
LOG_DIR_VAR = "NESTSMITH_LOG_DIR"
_ALIAS = {"webgpu": "opencl", "vulkan": "opencl", "nvptx": "cuda"}

logger = logging.getLogger("autotvm")


class EmptyContext(DispatchContext):
    """Has no configuration for anything."""

    def __init__(self):
        super().__init__()
        self.best_by_targetkey, self.best_by_model = {}, {}

    def _query_inside(self, target, workload):
        return None

    def update(self, target, workload, cfg):
        """Nothing is kept."""


def _folders():
    place = os.environ.get(AUTOTVM_TOPHUB_LOC_VAR, "")
    if place == AUTOTVM_TOPHUB_NONE_LOC:
        return []
    return [p for p in (place, os.environ.get(LOG_DIR_VAR, "")) if p] + [str(pathlib.Path(__file__).parent / "logs")]


def _file_of(backend):
    """The log of a family of devices, or None."""
    backend = _ALIAS.get(backend, backend)
    for folder in _folders():
        path = os.path.join(folder, f"{backend}.log")
        if os.path.isfile(path):
            return path
    return None


def context(target, extra_files=None):
    """A dispatch context that answers from reference logs.

    Parameters
    ----------
    target : Target, str, or list of these
        The names tried for each are its ``device``, its keys and its kind; the first that has a file counts.
    extra_files : list of str, optional
        Further logs.

    Returns
    -------
    DispatchContext
        To be used in a ``with`` statement.
    """
    found = []
    for t in target if isinstance(target, (list, tuple)) else [target]:
        t = Target.canon_target(t)
        found += [path for name in [t.device_name, *t.keys, t.kind.name] if name and (path := _file_of(name))][:1]
    found += extra_files or []
    if not found:
        return EmptyContext()
    logger.info("reference logs: %s", ", ".join(map(str, found)))
    return ApplyHistoryBest(found)


@functools.lru_cache(maxsize=64)
def _records(path, changed, model, workload_name):
    of_task = [(i, r) for i, r in load_from_file(path) if r.error_no == 0 and i.task.name == workload_name]
    count = Counter(i.target.model for i, _ in of_task)
    if not count:
        return ()
    if model not in count:  # the model with most records, the first of equals
        model = count.most_common(1)[0][0]
    return tuple(pair for pair in of_task if pair[0].target.model == model)


def load_reference_log(backend, model, workload_name):
    """The records of a task for a device model; of the model with most records if this one has none.

    Parameters
    ----------
    backend : str
        Family of devices: ``cuda``, ``mali``, ``llvm``, ...
    model : str
        The target's model.
    workload_name : str
        Name of the task.

    Returns
    -------
    list of (MeasureInput, MeasureResult)
        Empty if there is no log.
    """
    path = _file_of(backend)
    return list(_records(path, os.stat(path).st_mtime_ns, model, workload_name)) if path else []
