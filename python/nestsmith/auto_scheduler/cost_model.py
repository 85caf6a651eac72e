"""Cost models: what ranks candidates before they are measured.

A model is attached to the search of a task with `scorer(task)`, which gives what the engine calls for each batch of
states: ``None`` (the engine's own analytic estimate), a capsule (a model inside the engine) or a Python callable that
takes a list of states and returns one number per state, higher is better.
"""

from __future__ import annotations

import math
import random

__all__ = ["CostModel", "AnalyticModel", "RandomModel", "PythonBasedModel"]


class CostModel:
    """Base of all cost models."""

    def scorer(self, task, engine=None):
        """What the engine-side search `engine` of `task` calls to score states; ``None``: the analytic estimate."""
        return None

    def update(self, inputs, results):
        """Learns from measurements: equally long lists of `MeasureInput` and `MeasureResult`."""

    def predict(self, task, states):
        """Scores of states of one task: floats, higher is better, ``-inf`` for a state that cannot be built."""
        raise NotImplementedError


class AnalyticModel(CostModel):
    """The engine's closed-form estimate (a roofline with corrections). Needs no data and does not learn."""

    def predict(self, task, states):
        policy = task.engine_policy()
        out = []
        for s in states:
            f = policy.facts(_bounded(task, s))
            bad = f["invalid"] is not None or not f["seconds"] > 0 or math.isinf(f["seconds"])
            out.append(-math.inf if bad else 1e-6 / f["seconds"])
        return out


class RandomModel(CostModel):
    """Random scores. States that break a limit of the device still get ``-inf``.

    Parameters
    ----------
    seed : int, optional
        Seed of the scores; random by default.
    """

    def __init__(self, seed=None):
        self._random = random.Random(seed)

    def scorer(self, task, engine=None):
        policy, rnd = engine or task.engine_policy(), self._random

        def score(states):
            return [rnd.random() if policy.facts(s)["invalid"] is None else -math.inf for s in states]

        return score

    def predict(self, task, states):
        return self.scorer(task)([_bounded(task, s) for s in states])


class PythonBasedModel(CostModel):
    """Base of models written by users: implement `update` and `predict`."""

    def scorer(self, task, engine=None):
        def score(states):
            values = [float(v) for v in self.predict(task, states)]
            if len(values) != len(states):
                raise ValueError(
                    f"{type(self).__name__}.predict returned {len(values)} scores for {len(states)} states"
                )
            return values

        return score

    def predict_stages(self, task, states):
        """Scores per stage; optional."""
        raise NotImplementedError


def _bounded(task, state):
    return task.compute_dag.infer_bound_from_state(state)
