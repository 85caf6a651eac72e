"""A tuner that walks downhill: from the best configuration to its neighbours."""

import math
from itertools import combinations

import numpy as np

from ... import check
from ...auto_scheduler.cost import rank, rank_of
from .tuner import Tuner

__all__ = ["DropletTuner"]

BATCH = 16
MOST_NEIGHBOURS = 4096  # of one configuration; beyond, only few digits change at once


def differ(a, b, p_value):
    """Do two samples have different means (Student's test)? Samples of one number always do."""
    if len(a) <= 1 or len(b) <= 1:
        return True
    freedom = len(a) + len(b) - 2
    spread = (np.var(a) * len(a) + np.var(b) * len(b)) / freedom * (1 / len(a) + 1 / len(b))
    if spread == 0:
        return np.mean(a) != np.mean(b)
    return _tails(freedom, (np.mean(a) - np.mean(b)) / math.sqrt(spread)) <= p_value


def _tails(n, t):
    """Probability of a value beyond +-t in Student's distribution with n degrees of freedom, which has closed sums."""
    even, angle, c = n % 2 == 0, math.atan(abs(t) / math.sqrt(n)), n / (n + t * t)
    term = total = 1.0 if even else math.sqrt(c)
    for k in range(1, (n - 2) // 2 + 1 if even else (n - 3) // 2 + 1):
        term *= c * ((2 * k - 1) / (2 * k) if even else 2 * k / (2 * k + 1))
        total += term
    inside = math.sin(angle) * total if even else 2 / math.pi * (angle + (math.sin(angle) * total if n > 1 else 0.0))
    return max(0.0, 1 - inside)


class DropletTuner(Tuner):
    """Measures neighbours of the best configuration and moves when one is better beyond doubt.

    Parameters
    ----------
    task : Task
    start_position : list of int, optional
        Digits of the first configuration; default all 0.
    pvalue : float
        How likely two costs that count as different are the same.

    Raises
    ------
    IndexError, ValueError
        If `start_position` is outside the space or has not a digit per knob, or `pvalue` is no share.
    """

    def __init__(self, task, start_position=None, pvalue=0.05):
        super().__init__(task)
        self.pvalue = check.share("pvalue", pvalue)
        self.dims = self.space.dims
        start = list(start_position) if start_position is not None else [0] * len(self.dims)
        self.best_choice = self.space.knob2point(start), start, [math.inf]
        self.visited, self.next, self.step, self.batch = set(), [], 1, BATCH
        self._add([start])
        self._search()

    @property
    def execution(self):
        """How far neighbours are from the best configuration: the name that TVM gives to `step`."""
        return self.step

    @property
    def total_execution(self):
        """Beyond this distance there are no neighbours."""
        return max(self.dims, default=1)

    def _neighbours(self):
        """Digits of the best one with some of them moved by `step`, all in one direction; few at a time first."""
        made = 0
        for many in range(1, len(self.dims) + 1):
            for moved in combinations(range(len(self.dims)), many):
                for by in (self.step, -self.step):
                    yield [max(0, d + by) % n if i in moved else d
                           for i, (d, n) in enumerate(zip(self.best_choice[1], self.dims))]
                made += 1
                if made >= MOST_NEIGHBOURS:
                    return

    def _add(self, positions):
        for digits in positions:
            index = self.space.knob2point(digits)
            if index not in self.visited and self.space.is_index_valid(index):
                self.visited.add(index)
                self.next.append((index, digits))

    def _search(self):
        """Farther neighbours, until there are any."""
        self._add(self._neighbours())
        while not self.next and self.step < self.total_execution:
            self.step *= 2
            self._add(self._neighbours())

    def has_next(self):
        return bool(self.next)

    def next_batch(self, batch_size):
        batch, self.next = self.next[:batch_size], self.next[batch_size:]
        return [self.space.get(index) for index, _ in batch]

    def update(self, inputs, results):
        moved = False
        for inp, res in zip(inputs, results):
            self.visited.add(inp.config.index)
            if rank_of(res) < rank(self.best_choice[2]) and differ(self.best_choice[2], res.costs, self.pvalue):
                self.best_choice = inp.config.index, self.space.point2knob(inp.config.index), list(res.costs)
                moved = True
        if moved:
            self.next, self.step = [], 1
            self._search()
        elif not self.next:
            self.step *= 2
            self._search()
