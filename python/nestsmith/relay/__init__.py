"""Networks: expressions, operators, passes, test networks and the build."""

from . import expr, op, testing, transform, ty
from .expr import *  # noqa: F401,F403
from .op import *  # noqa: F401,F403
from .op import image, nn
from .params import load_param_dict, save_param_dict
from .ty import Any, FuncType, TensorType, TupleType, scalar_type


def __getattr__(name):
    # The build needs the target and the runtime; graphs alone do not.
    if name in ("build_module", "build", "optimize", "frontend"):
        import importlib

        if name == "frontend":
            from nestsmith import _submodule

            return _submodule(__name__, name)
        module = importlib.import_module(".build_module", __name__)
        return module if name == "build_module" else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
