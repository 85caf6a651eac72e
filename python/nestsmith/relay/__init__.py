"""Networks: expressions, operators, passes, test networks and the build."""

import importlib as _importlib
import typing as _typing

from .. import _absent
from ..runtime.params import load_param_dict, save_param_dict
from . import expr, frontend, op, testing, transform, ty
from .expr import *  # noqa: F401,F403
from .op import *  # noqa: F401,F403
from .op import image, nn
from .ty import Any, FuncType, TensorType, TupleType, scalar_type

_LATE = ("build_module", "build", "optimize")  # the build needs the target and the runtime; graphs alone do not


if _typing.TYPE_CHECKING:
    from . import build_module
    from .build_module import build, optimize
else:

    def __getattr__(name):
        if name in _LATE:
            module = _importlib.import_module(".build_module", __name__)
            return module if name == "build_module" else getattr(module, name)
        raise _absent.attribute_error(__name__, name)


def __dir__():
    return sorted({*globals(), *_LATE})
