"""Operator builders; the table itself is in :mod:`.registry`."""

import sys
import typing

from ..expr import Call, Constant, Expr, Tuple, TupleWrapper, above, const  # noqa: F401  (as TVM has them here)
from . import (annotation, blocks, image, lookup, more, nn, op, order, pieces, random, reduce, repetition, tensor,
               transform, vision)  # fmt: skip
from .blocks import *  # noqa: F401,F403
from .lookup import *  # noqa: F401,F403
from .more import *  # noqa: F401,F403
from .op import *  # noqa: F401,F403
from .order import *  # noqa: F401,F403
from .pieces import *  # noqa: F401,F403
from .reduce import *  # noqa: F401,F403
from .registry import Op, get, names
from .repetition import *  # noqa: F401,F403
from .tensor import *  # noqa: F401,F403
from .transform import *  # noqa: F401,F403

if typing.TYPE_CHECKING:

    def __getattr__(name): ...  # builders are made from tables


_BUILDERS = (op, more, tensor, transform, pieces, lookup, repetition, blocks, order, reduce)
__all__ = ["Op", "get", "names", "nn", "image", "vision", *(name for module in _BUILDERS for name in module.__all__)]

above.op = sys.modules[__name__]
