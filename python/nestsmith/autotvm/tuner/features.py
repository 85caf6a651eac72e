"""What models see of configurations: rows of numbers."""

import concurrent.futures
import logging
import multiprocessing
import signal

import numpy as np

from ... import _core, forks, te
from ...auto_scheduler.hardware import cores
from ...states import core_state
from ..measure.program import state_of
from ..task.space import OtherOptionEntity

__all__ = ["KINDS", "FeatureCache", "Features", "row_of"]

logger = logging.getLogger("autotvm")

CURVE_POINTS = 20
KINDS = "itervar", "knob", "curve"
NOTHING = np.zeros(0, np.float32)  # the row of what cannot be lowered
ALONE = 16  # so many configurations are not worth another process
CHUNK = 16
LIFE = 4096  # configurations that a process lowers: what templates keep ends with it


def row_of(task, config, kind, target=None):
    """The features of one configuration. Raises what its template or lowering raises.

    Parameters
    ----------
    task : Task
    config : ConfigEntity
    kind : "itervar", "knob" or "curve"
    target : Target, optional
        Default the task's; tasks of a log have none.

    Returns
    -------
    array of float32
    """
    target = target or task.target
    if kind == "knob":
        return config.get_flatten_feature()
    with te.scratch():
        loops = _core.loop_vector(core_state(state_of(task, config, target)[1]), None, target.engine(), kind, CURVE_POINTS)
    plain = [config[n].val for n in config if isinstance(config[n], OtherOptionEntity)]
    return np.concatenate([loops, np.array([v if isinstance(v, (int, float)) else 0 for v in plain], np.float32)])


def _try_row(task, kind, index):
    with te.scratch():  # ends when an exception has been dropped
        try:
            return row_of(task, task.config_space.get(index), kind)
        except Exception as e:  # noqa: BLE001 - a configuration that cannot be lowered is one to avoid
            logger.debug("no features of configuration %d: %s", index, e)
            return NOTHING


class FeatureCache:
    """Features by index, of all models of one tuner.

    Parameters
    ----------
    size : int
        The cache is emptied when it holds so many.
    """

    def __init__(self, size=100_000):
        self.size, self.rows = size, {}

    def clear(self):
        """Forgets all."""
        self.rows.clear()


_given: list = []  # in a worker: the task and the kind of features


def _start(task, kind):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tuner says when to end
    _given[:] = [task, kind]


def _work(indices):
    return [_try_row(*_given, i) for i in indices]


class _Workers:
    """Forked processes that lower configurations, each `LIFE` of them."""

    def __init__(self, task, kind):
        self._how = task, kind
        forks.renew(self)._forked()

    def _forked(self):
        self._pool, self._left = None, 0

    def rows(self, indices):
        """A row per index; an empty one where the process of a chunk died."""
        out = []
        for k in range(0, len(indices), LIFE * cores()):
            chunks = [indices[i : i + CHUNK] for i in range(k, min(k + LIFE * cores(), len(indices)), CHUNK)]
            pool = self._ready(sum(map(len, chunks)))
            for chunk, job in [(c, pool.submit(_work, c)) for c in chunks]:
                try:
                    out += job.result()
                except concurrent.futures.process.BrokenProcessPool:
                    logger.warning("a process that lowers configurations died; %d of them have no features", len(chunk))
                    out += [NOTHING] * len(chunk)
                    self._left = 0
        return out

    def _ready(self, n):
        if self._left < n:
            self.close()
            self._pool = concurrent.futures.ProcessPoolExecutor(cores(), multiprocessing.get_context("fork"),
                                                                initializer=_start, initargs=self._how)
            self._left = LIFE * cores()
        self._left -= n
        return self._pool

    def close(self):
        """Ends the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._forked()


class Features:
    """Rows of the configurations of one task, by index, as wide as the widest seen so far.

    Parameters
    ----------
    task : Task
    kind : "itervar", "knob" or "curve"
    cache : FeatureCache

    Attributes
    ----------
    width : int
        Shorter rows are filled up with zeros.
    failed : int
        Configurations without features; their rows are zeros.
    """

    def __init__(self, task, kind, cache):
        self.task, self.kind, self.cache = task, kind, cache
        self.width = self.failed = 0
        self._workers = _Workers(task, kind) if "fork" in multiprocessing.get_all_start_methods() else None

    def close(self):
        """Ends the processes that were started; they start again when needed."""
        if self._workers:
            self._workers.close()

    def rows(self, indices):
        """Array (indices, width) of float32."""
        if self.kind == "knob":
            out = _core.space_features(self.task.config_space._space, indices)
            self.width = out.shape[1]
            return out
        indices = np.asarray(indices).tolist()
        if len(self.cache.rows) + len(indices) > self.cache.size:
            self.cache.clear()
        known = self.cache.rows
        new = list(dict.fromkeys(i for i in indices if i not in known))
        rows = self._workers.rows(new) if self._workers and len(new) > ALONE else [_try_row(self.task, self.kind, i) for i in new]
        self.failed += sum(not len(r) for r in rows)
        known.update(zip(new, rows))
        return self.stack([known[i] for i in indices])

    def stack(self, rows):
        """Rows of any length as one array."""
        self.width = max([self.width, *(len(r) for r in rows)])
        out = np.zeros((len(rows), self.width), np.float32)
        for to, r in zip(out, rows):
            to[: len(r)] = r
        return out
