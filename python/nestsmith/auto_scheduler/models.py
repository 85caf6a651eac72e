"""Cost models by name."""

from .cost_model import AnalyticModel, CostModel, RandomModel
from .learned_model import BlendModel, NetworkModel, XGBModel
from .xgb_model import PackageModel

__all__ = ["NAMES", "make_cost_model"]

NAMES = "auto", "trees", "xgb", "mlp", "trees+mlp", "analytic", "random"


def make_cost_model(model="auto", seed=None, model_file=None, num_warmup_sample=100, adaptive_training=False):
    """The cost model of a name; an object is returned as it is.

    Parameters
    ----------
    model : CostModel or str
        "auto" or "trees": boosted trees; "mlp": a network; "trees+mlp": both added up; "analytic": no learning;
        "random"; "xgb": trees of the xgboost package, with the loss and parameters of the published reference.
    seed : int, optional
    model_file : str, optional
        Where a learning model is saved after each training.
    num_warmup_sample, adaptive_training :
        Accepted for compatibility.

    Returns
    -------
    CostModel

    Raises
    ------
    ValueError
        For an unknown name.
    TypeError
        For anything that is neither a name nor a `CostModel`.
    ImportError
        For "xgb" where the package is missing.
    """
    if isinstance(model, CostModel):
        return model
    if not isinstance(model, str):
        raise TypeError(f"cost model: expected a CostModel or one of {', '.join(NAMES)}, got {type(model).__name__}")
    if model == "analytic":
        return AnalyticModel()
    if model == "random":
        return RandomModel(seed)
    if model not in NAMES:
        raise ValueError(f"cost model {model!r} is unknown; the names are {', '.join(NAMES)}")
    cls = {"mlp": NetworkModel, "trees+mlp": BlendModel, "xgb": PackageModel}.get(model, XGBModel)
    return cls(num_warmup_sample=num_warmup_sample, seed=seed, model_file=model_file,
               adaptive_training=adaptive_training)
