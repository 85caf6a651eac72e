"""Schedules that travel between tasks.

A network often holds one convolution several times with different element-wise tails: bias; bias and relu; bias, shortcut
and relu. These are different tasks, but a schedule of one fits the other: the tail's inner stages are inlined and its last
stage is the output. So what one task has found is worth a look in the others. A task that differs
from another one in its batch size begins with what that one has found.
"""

from nestsmith import _core

from ..states import handle_of

__all__ = ["Relatives", "fitted"]

REDUCTION = 1  # kind of an iterator


def _stages(task):
    """(name, kind of stage, iterators) of each stage of the unscheduled program."""
    out = []
    for name, kind, _, iterators, *_ in _core.State(task.compute_dag, "[]").infer_bounds().stages():
        out.append((name, kind, tuple((it[1], it[-1]) for it in iterators)))
    return out


def _reduces(stages):
    return any(kind == REDUCTION for _, _, its in stages for kind, _ in its)


def fitted(dag, state):
    """The schedule of a state of the same computation in other sizes on `dag`, or None if it does not fit."""
    try:
        return _core.State(dag, handle_of(state).steps(), fit=True)
    except (ValueError, RuntimeError, IndexError):
        return None


class Relatives:
    """Which tasks of a list share their main stages, and step lists carried from one to the other."""

    def __init__(self, tasks):
        self.tasks = list(tasks)
        self._all = [_stages(t) for t in self.tasks]
        self._near = [[j for j in range(len(self.tasks)) if self._prefix(i, j)] for i in range(len(self.tasks))]

    def of(self, i):
        """Numbers of the tasks that a schedule of task i fits."""
        return self._near[i]

    def _prefix(self, i, j):
        """How many leading stages are equal, without the last one; 0 if the tasks are not related."""
        a, b = self._all[i], self._all[j]
        if i == j or a[-1][1:] != b[-1][1:] or self.tasks[i].target.kind.name != self.tasks[j].target.kind.name:
            return 0
        n = 0
        while n < min(len(a), len(b)) - 1 and a[n] == b[n]:
            n += 1
        related = _reduces(a[:n]) and not _reduces(a[n:]) and not _reduces(b[n:])
        return n if related else 0

    def transplant(self, i, j, state):
        """The schedule of a state of task i on task j, or None if it does not fit."""
        try:
            steps = _core.carry_steps(handle_of(state).steps(), len(self._all[i]), self._prefix(i, j), self._tail(i, j))
            return _core.State(self.tasks[j].compute_dag, steps)
        except (ValueError, RuntimeError, IndexError):
            return None

    def _tail(self, i, j):
        """Stage numbers of task j behind the common ones; those that compute, the output last."""
        b = self._all[j]
        return [k for k in range(self._prefix(i, j), len(b)) if b[k][1] == 1]
