"""Simulated annealing over a configuration space."""

import logging
import random

import numpy as np

from ... import _core, check
from .model_based_tuner import ModelOptimizer

__all__ = ["SimulatedAnnealingOptimizer"]

logger = logging.getLogger("autotvm")


class SimulatedAnnealingOptimizer(ModelOptimizer):
    """Walks many points at once, with the model's score for energy.

    Parameters
    ----------
    task : Task
    n_iter : int
        Rounds at most.
    temp : float or (float, float)
        Temperature, at the beginning and at the end.
    persistent : bool
        Later searches begin where the last one ended.
    parallel_size : int
        Points.
    early_stop : int
        Stop after so many rounds in which nothing better was found.
    log_interval : int
        Accepted, and not used: a search is one line of the log.

    Raises
    ------
    TypeError, ValueError
        If one of the numbers is none, or too small.
    """

    def __init__(self, task, n_iter=500, temp=(1, 0), persistent=True, parallel_size=128, early_stop=50,
                 log_interval=50):
        begin, end = temp if isinstance(temp, (tuple, list)) and len(temp) == 2 else (temp, temp)
        check.number("temp", begin), check.number("temp", end)
        self.task, self.temp, self.n_iter = task, temp, check.integer("n_iter", n_iter, 0)
        self.persistent, self.parallel_size = persistent, check.integer("parallel_size", parallel_size, 1)
        self.early_stop, self.log_interval = check.integer("early_stop", early_stop or int(1e9), 1), log_interval
        self.points = None

    def find_maximums(self, model, num, exclusive):
        space = self.task.config_space
        if self.points is None or not self.persistent:
            self.points = space.draw_ints(self.parallel_size)
        begin, end = self.temp if isinstance(self.temp, (tuple, list)) else (self.temp, self.temp)
        rounds = [0]

        def predict(indices):
            rounds[0] += 1
            return np.asarray(model.predict(indices), np.float64)

        best, self.points = _core.anneal(space._space, predict, self.points, num,
                                         np.fromiter(exclusive, np.int64, len(exclusive)), self.n_iter,
                                         min(self.early_stop, 2**31 - 1), begin, end, random.getrandbits(64))
        logger.debug("SA: %d rounds of %d points, %d found", rounds[0], len(self.points), len(best))
        return best.tolist()
