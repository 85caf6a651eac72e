"""The tuner that learns with boosted trees."""

from .model_based_tuner import ModelBasedTuner, ModelOptimizer
from .sa_model_optimizer import SimulatedAnnealingOptimizer
from .xgboost_cost_model import XGBoostCostModel

__all__ = ["XGBTuner"]


class XGBTuner(ModelBasedTuner):
    """Boosted trees rank the configurations, simulated annealing finds those that they rank best.

    Parameters
    ----------
    task : Task
    plan_size : int
        Trials between two trainings.
    feature_type : "itervar", "knob" or "curve"
        What trees see: the loops of the lowered program, the configuration itself (fast), or how reuse grows over the loops
        (comparable between operators).
    loss_type : "rank", "reg" or "rank-binary"
        Trees learn the order of the configurations, or their throughput; "rank-binary" stops training by good and bad alone.
    num_threads : int, optional
        For training.
    optimizer : "sa" or ModelOptimizer
    diversity_filter_ratio : float, optional
        Choose plans out of so many times as many candidates, so that they differ.
    log_interval : int
        Accepted for scripts that give it.
    cost_model : "trees" or "xgb"
        "xgb" trains with the xgboost package, which must be installed.

    Raises
    ------
    ValueError
        If one of the words is unknown.
    """

    def __init__(self, task, plan_size=64, feature_type="itervar", loss_type="rank", num_threads=None, optimizer="sa",
                 diversity_filter_ratio=None, log_interval=50, cost_model="trees"):
        model = XGBoostCostModel(task, feature_type=feature_type, loss_type=loss_type, num_threads=num_threads,
                                 log_interval=log_interval // 2, package=cost_model)
        if optimizer == "sa":
            optimizer = SimulatedAnnealingOptimizer(task, log_interval=log_interval)
        if not isinstance(optimizer, ModelOptimizer):
            raise ValueError(f"optimizer is {optimizer!r}; it must be 'sa' or a ModelOptimizer such as SimulatedAnnealingOptimizer")
        super().__init__(task, model, optimizer, plan_size, diversity_filter_ratio)
