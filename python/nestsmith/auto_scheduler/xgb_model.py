"""The comparison model "xgb": trees of the xgboost package with the loss and the parameters of the published reference.

The package only grows the trees; they are handed to the engine, which ranks candidates with them as with its own.
"""

import json

import numpy as np

from nestsmith import _core

from .cost import FAILED
from .hardware import cores
from .learned_model import XGBModel

__all__ = ["PackageModel"]

MIN_RECORDS, ROUNDS = 16, 150
PARAMS = {"max_depth": 10, "gamma": 0.001, "min_child_weight": 0, "eta": 0.2, "base_score": 0.0, "disable_default_eval_metric": 1}


def package():
    """The xgboost module; ImportError with the remedy if it is missing."""
    try:
        import xgboost
    except ImportError as e:
        raise ImportError(
            'cost model "xgb" needs the xgboost package: pip install xgboost (or use "trees", which needs nothing)'
        ) from e
    return xgboost


class PackageModel(XGBModel):
    """Boosted trees of the xgboost package: squared loss of the summed rows, weighted by the label.

    Same methods as `XGBModel`. Raises ImportError if the package is missing.
    """

    def __init__(self, num_warmup_sample=100, seed=None, model_file=None, adaptive_training=False):
        self._xgboost = package()
        super().__init__(num_warmup_sample=num_warmup_sample, seed=seed, model_file=model_file,
                         adaptive_training=adaptive_training)
        self.seed = seed or 43

    def _train(self):
        if self.engine.records() < MIN_RECORDS:
            return False
        rows, first, task, cost = self.engine.batch()
        ok, best = cost < FAILED, np.full(task.max() + 1, np.inf)
        np.minimum.at(best, task[ok], cost[ok])
        label = np.where(ok, best[task] / cost, 0.0)
        count = np.diff(first)
        state = np.repeat(np.arange(len(count)), count)
        weight, times = label[state], count[state]

        def loss(score, _):
            total = np.bincount(state, score, len(count))
            return weight * (total - label)[state], np.maximum(times * weight, 1e-6)

        params = {**PARAMS, "seed": self.seed, "nthread": cores()}
        booster = self._xgboost.train(params, self._xgboost.DMatrix(rows), ROUNDS, obj=loss)
        self.engine.adopt(forest_of(booster, rows.shape[1]))
        return True


def forest_of(booster, n_entries):
    """The trees of an xgboost booster as a `Forest` of the engine."""
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    root, entry, value, left = [], [], [], []
    for tree in model["trees"]:
        root.append(len(entry))
        entry.append(0), value.append(0.0), left.append(0)
        todo = [(0, root[-1])]  # their node, our place; both children of a node lie side by side behind it
        for theirs, ours in todo:
            down, x = tree["left_children"][theirs], np.float32(tree["split_conditions"][theirs])
            if down < 0:
                entry[ours], value[ours] = -1, x
                continue
            entry[ours], left[ours] = tree["split_indices"][theirs], len(entry)
            value[ours] = np.nextafter(x, np.float32(-np.inf))  # they go left below x, we up to the value
            todo += [(down, len(entry)), (tree["right_children"][theirs], len(entry) + 1)]
            entry += [0, 0]
            value += [0.0, 0.0]
            left += [0, 0]
    as_int = [np.array(x, np.int32) for x in (root, entry, left)]
    return _core.Forest.from_nodes(as_int[0], as_int[1], np.array(value, np.float32), as_int[2], n_entries)
