"""Tuning one task: what `SearchTask.tune` does."""

from . import search_task
from .display import style
from .models import make_cost_model
from .search_policy import SketchPolicy
from .session import Measurer, check_compilers, tune_alone

__all__ = ["tune"]


def tune(task, tuning_options, search_policy=None, adaptive_training=False, cost_model="auto"):
    """See `SearchTask.tune`. Raises TypeError if `tuning_options` is no TuningOptions."""
    if not isinstance(tuning_options, search_task.TuningOptions):
        raise TypeError(f"tuning_options is {tuning_options!r}; it must be a TuningOptions")
    if tuning_options.num_measure_trials > 1:
        check_compilers(tuning_options, [task])
    if search_policy is None:
        model = make_cost_model(cost_model, adaptive_training=adaptive_training)
        text = style(tuning_options.verbose) == "text"
        search_policy = SketchPolicy(task, model, verbose=tuning_options.verbose if text else 0)
    with Measurer(tuning_options) as measurer:
        return tune_alone(search_policy, tuning_options, measurer)


search_task.tuner.tune = tune
