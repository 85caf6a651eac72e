"""TVM's place for the learned model."""

from ..learned_model import XGBModel

__all__ = ["XGBModel"]
