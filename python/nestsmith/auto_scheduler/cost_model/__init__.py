"""Cost models, in TVM's places: `cost_model` has the base and simple ones, `xgb_model` the learned one."""

from .cost_model import AnalyticModel, CostModel, PythonBasedModel, RandomModel

__all__ = ["AnalyticModel", "CostModel", "PythonBasedModel", "RandomModel"]
