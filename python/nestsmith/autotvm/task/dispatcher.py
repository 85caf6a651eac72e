"""Which configuration a template gets: a stack of contexts, the innermost is asked first.

The outermost one is `FallbackContext`: it has a `FallbackConfigEntity` for everything and warns once for each. The contexts
that answer from logs are in `autotvm.history`.
"""

import logging

from ... import check
from ..env import GLOBAL_SCOPE
from .space import FallbackConfigEntity

__all__ = ["ApplyConfig", "ApplyFixedConfig", "DispatchContext", "FallbackContext", "clear_fallback_cache"]

logger = logging.getLogger("autotvm")

class DispatchContext(check.Nested):
    """Base of contexts; `DispatchContext.current` is the innermost one."""

    warning_messages: set = set()

    def query(self, target, workload):
        """The configuration of this context, or of the next one that has an answer.

        Parameters
        ----------
        target : Target
        workload : tuple
            Name of the task and its arguments.

        Returns
        -------
        ConfigSpace
        """
        found = self._query_inside(target, workload)
        return self._old_ctx.query(target, workload) if found is None else found

    def lookup(self, target, workload):
        """What `query` answers, for who asks several times about one operator: no context counts it."""
        found = self._lookup_inside(target, workload)
        return self._old_ctx.lookup(target, workload) if found is None else found

    def _lookup_inside(self, target, workload):
        return self._query_inside(target, workload)

    def update(self, target, workload, cfg):
        """Makes ``cfg`` the answer of this context for a workload."""
        raise NotImplementedError

    def _query_inside(self, target, workload):
        raise NotImplementedError

    @classmethod
    def warn_once(cls, message):
        """Says something that is the same for many programs."""
        if message not in cls.warning_messages:
            cls.warning_messages.add(message)
            logger.warning("%s", message)


class ApplyConfig(DispatchContext):
    """Answers everything with one configuration, which may be a space that collects knobs."""

    def __init__(self, config):
        super().__init__()
        self._config, self.workload = config, None

    def _query_inside(self, target, workload):
        self.workload = workload
        return self._config

    def update(self, target, workload, cfg):
        """Replaces the configuration."""
        self.workload, self._config = workload, cfg


class ApplyFixedConfig(DispatchContext):
    """Answers with the first configuration of a task; the schedules named get a low cost, so that they are preferred.

    Parameters
    ----------
    tasks : list of Task
    schedule_names : str or list of str
        Names of tasks.
    """

    def __init__(self, tasks, schedule_names):
        super().__init__()
        self._tasks = list(tasks)
        self._schedule_names = [schedule_names] if isinstance(schedule_names, str) else list(schedule_names)
        self.workload = None

    def _query_inside(self, target, workload):
        self.workload = workload
        for task in self._tasks:
            if task.name == workload[0]:
                config = task.config_space.get(0)
                config.cost = 1e-6 if task.name in self._schedule_names else 100000
                return config
        raise RuntimeError(f"workload {workload} is of none of the tasks {[t.name for t in self._tasks]}")

    def update(self, target, workload, cfg):
        """Does nothing but note the workload: the configuration is fixed."""
        self.workload = workload


class FallbackContext(DispatchContext):
    """The outermost context: a fallback configuration per target and workload."""

    def __init__(self):
        super().__init__()
        self.memory = {}

    def _query_inside(self, target, workload):
        key = str(target), workload
        if key not in self.memory:
            if not GLOBAL_SCOPE.silent:
                self.warn_once(f"Cannot find config for target={target}, workload={workload}. A fallback configuration "
                               "is used, which may bring great performance regression.")
            self.memory[key] = FallbackConfigEntity()
        return self.memory[key]

    def clear_cache(self, target, workload):
        """Forgets the configuration of a workload."""
        self.memory.pop((str(target), workload), None)

    def update(self, target, workload, cfg):
        self.memory[str(target), workload] = cfg


DispatchContext.current = FallbackContext()


def clear_fallback_cache(target, workload):
    """Forgets what the outermost context made for a workload, so that it is made again.

    Parameters
    ----------
    target : Target
    workload : tuple
    """
    contexts = check.entered(DispatchContext.current)
    next(c for c in contexts if isinstance(c, FallbackContext)).clear_cache(target, workload)
