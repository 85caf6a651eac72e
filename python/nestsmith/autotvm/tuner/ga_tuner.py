"""A genetic tuner."""

import random

import numpy as np

from ... import _core, check
from ..measure.measure import flops_of
from .tuner import Tuner

__all__ = ["GATuner"]


class GATuner(Tuner):
    """Breeds configurations: children take the first digits of one good parent and the rest of another.

    No configuration is measured twice.

    Parameters
    ----------
    task : Task
    pop_size : int
        Configurations per generation.
    elite_num : int
        The best so far, which take part in breeding always.
    mutation_prob : float
        How likely a digit of a child is replaced.

    Raises
    ------
    AssertionError
        If ``elite_num`` is larger than ``pop_size``.
    TypeError, ValueError
        If a number is none, or too small or large.
    """

    def __init__(self, task, pop_size=100, elite_num=3, mutation_prob=0.1):
        super().__init__(task)
        self.pop_size, self.elite_num = check.integer("pop_size", pop_size, 1), check.integer("elite_num", elite_num, 0)
        self.mutation_prob = check.share("mutation_prob", mutation_prob)
        assert elite_num <= pop_size, f"The number of elites must be less than population size: elite_num is {elite_num}, pop_size {pop_size}"
        self.visited = set()
        self.genes, self.scores, self.elites, self.elite_scores = [], [], [], []
        self.trial_pt = 0
        self._breed([], [])

    def _breed(self, parents, scores):
        """The next generation; it is shorter, in the end empty, where the space has no more."""
        visited = np.fromiter(self.visited, np.int64, len(self.visited))
        left = self.space.range_length - len(self.visited)
        if left <= self.pop_size and len(self.space) == self.space.range_length:
            self.genes = [i for i in range(self.space.range_length) if i not in self.visited] if left else []
        else:
            self.genes = _core.genetic_next(self.space._space, parents, scores, self.pop_size, self.mutation_prob,
                                            visited, random.getrandbits(64)).tolist()
        self.visited.update(self.genes)
        self.scores, self.trial_pt = [], 0

    def _take_over(self, index, score):
        """A result of an earlier run: a parent as any other, and not to be measured again."""
        self.visited.add(index)
        self.elites.append(index)
        self.elite_scores.append(score)
        if index in self.genes[self.trial_pt :]:
            del self.genes[self.genes.index(index, self.trial_pt)]

    def has_next(self):
        return self.trial_pt < len(self.genes)

    def next_batch(self, batch_size):
        out = self.genes[self.trial_pt : self.trial_pt + batch_size]
        self.trial_pt += len(out)
        return [self.space.get(i) for i in out]

    def update(self, inputs, results):
        for inp, res in zip(inputs, results):
            if len(self.scores) < len(self.genes) and inp.config.index == self.genes[len(self.scores)]:
                self.scores.append(flops_of(self.task, res))
            else:
                self._take_over(inp.config.index, flops_of(self.task, res))
        if len(self.scores) < len(self.genes):
            return
        parents, scores = self.genes + self.elites, self.scores + self.elite_scores
        best = sorted(range(len(parents)), key=lambda i: -scores[i])[: self.elite_num]
        self.elites, self.elite_scores = [parents[i] for i in best], [scores[i] for i in best]
        self._breed(parents, scores)
