"""Tuners: they choose which configurations of a task are measured.

A tuner of one's own is a subclass of `Tuner` with ``next_batch``, ``update`` and ``has_next``.
"""

from .. import callback
from .droplet_tuner import DropletTuner
from .ga_tuner import GATuner
from .index_based_tuner import GridSearchTuner, RandomTuner
from .model_based_tuner import CostModel, ModelBasedTuner, ModelOptimizer
from .sa_model_optimizer import SimulatedAnnealingOptimizer
from .tuner import Tuner
from .xgboost_cost_model import XGBoostCostModel
from .xgboost_tuner import XGBTuner
