"""Tuners that go through the space without learning anything."""

from .tuner import Tuner

__all__ = ["IndexBaseTuner", "GridSearchTuner", "RandomTuner"]


class IndexBaseTuner(Tuner):
    """Base of tuners that go through a range of indices.

    Parameters
    ----------
    task : Task
    range_idx : tuple of int, optional
        First and last index; default the whole space. Raises AssertionError if it is not within the space, TypeError if it is no pair.
    """

    def __init__(self, task, range_idx=None):
        super().__init__(task)
        try:
            first, last = (0, self.space.range_length - 1) if range_idx is None else range_idx
        except (TypeError, ValueError):
            raise TypeError(f"range_idx is {range_idx!r}; it must be a pair, the first and the last index") from None
        assert 0 <= first <= last < self.space.range_length, (f"range_idx {range_idx} must be two indices in order "
                                                              f"within 0..{self.space.range_length - 1}")
        self.begin_idx, self.end_idx = first, last + 1
        self.visited, self._left = set(), None

    @property
    def range_length(self):
        """Number of indices of the range, allowed or not."""
        return self.end_idx - self.begin_idx

    @property
    def visited_max(self):
        """Allowed indices of the range; a filter is asked for each of them."""
        return self.space.subrange_length(self.begin_idx, self.end_idx)

    def _next_index(self):
        """The next index to measure, None: there are no more."""
        raise NotImplementedError

    def has_next(self):
        while self._left is None or self._left in self.visited:
            self._left = self._next_index()
            if self._left is None:
                return False
        return True

    def next_batch(self, batch_size):
        out = []
        while len(out) < batch_size and self.has_next():
            self.visited.add(self._left)
            out.append(self.space.get(self._left))
            self._left = None
        return out

    def update(self, inputs, results):
        self.visited.update(i.config.index for i in inputs)


class GridSearchTuner(IndexBaseTuner):
    """All configurations in the order of their indices."""

    def __init__(self, task, range_idx=None):
        super().__init__(task, range_idx)
        self._at = self.begin_idx - 1

    @property
    def index(self):
        """The index that is measured next, None after the last one."""
        return self._left if self.has_next() else None

    def _next_index(self):
        found = self.space.get_next_index(self._at, start=self.begin_idx, end=self.end_idx)
        if found is not None:
            self._at = found
        return found


class RandomTuner(IndexBaseTuner):
    """Random configurations, each once."""

    def __init__(self, task, range_idx=None):
        super().__init__(task, range_idx)
        self._shuffle = self.space.shuffle(self.begin_idx, self.end_idx)

    def _next_index(self):
        return next(self._shuffle, None)
