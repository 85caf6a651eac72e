"""Networks: expressions, operators, passes, test networks and the build."""

from . import expr, op, ty
from .expr import *  # noqa: F401,F403
from .op import image, nn
from .op import *  # noqa: F401,F403
from .ty import Any, FuncType, TensorType, TupleType, scalar_type
from . import testing, transform
