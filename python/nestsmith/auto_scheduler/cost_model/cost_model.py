"""Cost models: what ranks candidates before they are measured.

A model is attached to the search of a task with `scorer(task)`, which gives what the engine calls for each batch of
states: ``None`` (the engine's own analytic estimate), a capsule (a model inside the engine) or a Python callable that
takes a list of states and returns one number per state, higher is better.

Wherever a model is asked for (``cost_model=`` of tuning, ``program_cost_model=`` of a policy) an object or a name is
taken: "auto" (what is best by default: trees), "trees", "mlp", "trees+mlp", "analytic", "random"; "xgb" uses the xgboost
package, which has to be installed.
"""

import math
import random

import numpy as np

from nestsmith import _core

from ...states import core_state
from ..cost import seconds_of
from ..search_task import recover_measure_input

__all__ = ["CostModel", "AnalyticModel", "RandomModel", "PythonBasedModel"]



class CostModel:
    """Base of all cost models, users' own included: those implement `predict`, and `update` if they learn."""

    def scorer(self, task, engine=None):
        """What the engine-side search `engine` of `task` calls to score states: by default a call of `predict`."""

        def score(states):
            return _scores(self, self.predict(task, [_wrapped(task, s) for s in states]), len(states))

        return score

    def update(self, inputs, results):
        """Learns from measurements: equally long lists of `MeasureInput` and `MeasureResult`."""

    def cancel(self):
        """Makes a running `update` in another thread end soon, where that is possible."""

    def predict(self, task, states):
        """Scores of states of one task: floats, higher is better, ``-inf`` for a state that cannot be built."""
        raise NotImplementedError(f"{type(self).__name__} must implement predict(task, states)")

    def predict_stages(self, task, states):
        """Scores of states and of their stages in one list: first one score per state, then for each state the number
        of its stages and a score for each. Optional."""
        raise NotImplementedError(f"{type(self).__name__} does not score stages")

    def save(self, file_name):
        """Writes what was learnt to a file."""
        raise NotImplementedError(f"{type(self).__name__} cannot be saved")

    def load(self, file_name):
        """Reads what `save` wrote."""
        raise NotImplementedError(f"{type(self).__name__} cannot be loaded")

    def evaluate(self, inputs, results):
        """How well the model orders measured candidates.

        Returns a dict of means over tasks: ``pairwise`` (share of pairs in the right order; pairs closer than 2 % are
        left out), ``top1``, ``top5`` (best throughput among the first, relative to the best), ``a_peak32``,
        ``recall30``.
        """
        number, states, costs, task_of = {}, {}, [], []
        for k, (inp, res) in enumerate(zip(inputs, results)):
            inp = recover_measure_input(inp, rebuild_state=True)
            key = inp.task.workload_key, str(inp.task.target)
            task_of.append(number.setdefault(key, len(number)))
            states.setdefault(key, (inp.task, []))[1].append((k, inp.state))
            costs.append(seconds_of(res))
        scores = np.zeros(len(costs))
        for task, items in states.values():
            scores[[k for k, _ in items]] = self.predict(task, [s for _, s in items])
        n = len(costs)
        rows, first = np.zeros((n, 1), np.float32), np.arange(n + 1, dtype=np.int32)
        return _core.model_metrics(rows, first, np.array(task_of, np.int32), np.array(costs), scores)


class AnalyticModel(CostModel):
    """The engine's closed-form estimate (a roofline with corrections). Needs no data and does not learn."""

    def scorer(self, task, engine=None):
        """None: the engine's own estimate."""
        return None

    def predict(self, task, states):
        """Millions of runs per second by the estimate."""
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
        """A scorer inside the engine: equal states get equal scores."""
        return _core.random_scorer(self._random.getrandbits(60))

    def predict(self, task, states):
        policy, rnd = task.engine_policy(), self._random
        return [rnd.random() if policy.facts(_bounded(task, s))["invalid"] is None else -math.inf for s in states]


class PythonBasedModel(CostModel):
    """Base of models written by users, under the name that published scripts know: implement `update` and `predict`."""


def _scores(model, values, n):
    """What a user's `predict` returned for `n` states, as floats; an error that names the model if it is no score each."""
    what = f"{type(model).__name__}.predict"
    try:
        if np.iscomplexobj(values):
            raise TypeError("complex numbers have no order")
        scores = [float(v) for v in values]
    except (TypeError, ValueError) as e:
        facts = [f"{k} {getattr(values, k)}" for k in ("shape", "dtype") if hasattr(values, k)]
        got = type(values).__name__ + (f" ({', '.join(facts)})" if facts else "")
        raise TypeError(f"{what} returned a {got}; it must return one number for each state, {n} here: {e}") from e
    if len(scores) != n:
        raise ValueError(f"{what} returned {len(scores)} scores for {n} states; it must return one number for each")
    wrong = [i for i, v in enumerate(scores) if math.isnan(v) or v == math.inf]
    if wrong:
        raise ValueError(f"{what} returned {scores[wrong[0]]} for {len(wrong)} of {n} states, the first is number "
                         f"{wrong[0]}; scores are finite, or -inf for a state that cannot be built")
    return scores


def _wrapped(task, state):
    """The form of a state that users work with."""
    return task.compute_dag.wrap_state(state) if isinstance(state, _core.State) else state


def _bounded(task, state):
    """The engine's state with the ranges of all loops."""
    return core_state(state).infer_bounds()
