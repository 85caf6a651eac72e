"""Leak check: where labels are shuffled inside tasks, nothing can be learnt, unless the test records leak into training.

Labels of all records are shuffled before the split, so that the order to be predicted is independent of everything the
model may know. The accuracy of one folding scatters by 0.005; the mean over shufflings by 0.0024 or less.
"""

import numpy as np
import pytest
from test_forest import load_pilot, pick

from nestsmith import _core


def shuffled(data, rng):
    """The data with costs permuted inside each task."""
    rows, first, task, cost = data
    cost = cost.copy()
    for t in np.unique(task):
        at = np.flatnonzero(task == t)
        cost[at] = cost[rng.permutation(at)]
    return rows, first, task, cost


def leak_check(data, train, shufflings, by_task=True, sample=None, leak=False, seed=2):
    """Mean pairwise accuracy on held-out records with shuffled labels, and its standard error.

    by_task: whole tasks are held out, else a quarter of the records of each. sample: records to train on. leak: the
    held-out records are trained on, too (what the check must find).
    """
    rng, got = np.random.default_rng(seed), []
    for _ in range(shufflings):
        part, fold_of = shuffled(data, rng), rng.integers(0, 4, len(data[2]))
        for fold in range(4):
            held = np.isin(data[2], [2 * fold, 2 * fold + 1]) if by_task else fold_of == fold
            use = np.flatnonzero(held if leak else ~held)
            score = train(*pick(part, use if sample is None else rng.choice(use, sample, replace=False))).score
            test = pick(part, np.flatnonzero(held))
            got.append(_core.model_metrics(*test, score(test[0], test[1]))["pairwise"])
    return float(np.mean(got)), float(np.std(got) / np.sqrt(len(got)))


MODELS = {
    "trees": lambda *a: _core.Forest.train(*a, trees=25),
    "network": lambda *a: _core.Network.train(*a, steps=25, hidden=32),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("by_task", [True, False])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_shuffled_labels_teach_nothing(name, by_task):
    mean, error = leak_check(load_pilot(), MODELS[name], 4, by_task, sample=400)
    print(f"{name}: {mean:.4f} +- {error:.4f}")
    assert error < 0.004 and abs(mean - 0.5) <= 0.01


def test_a_leak_is_found():
    mean, _ = leak_check(load_pilot(), MODELS["trees"], 1, by_task=False, leak=True)
    assert mean > 0.55
