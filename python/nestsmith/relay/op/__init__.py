"""Operator builders; the table itself is in :mod:`.registry`."""

import sys
from typing import TYPE_CHECKING, Any

from ..expr import above
from . import image, nn, order, reduce, tensor, transform
from .order import *  # noqa: F401,F403
from .reduce import *  # noqa: F401,F403
from .registry import Op, get, names
from .tensor import *  # noqa: F401,F403
from .transform import *  # noqa: F401,F403

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # builders are made from tables


__all__ = ["Op", "get", "names", "nn", "image", *tensor.__all__, *transform.__all__, *order.__all__, *reduce.__all__]

above.op = sys.modules[__name__]
