"""Operator builders; the table itself is in :mod:`.registry`."""

from . import reduce, tensor, transform
from .registry import Op, get, names
from .tensor import *  # noqa: F401,F403
from .transform import *  # noqa: F401,F403
from .reduce import *  # noqa: F401,F403
from . import image, nn

__all__ = ["Op", "get", "names", "nn", "image", *tensor.__all__, *transform.__all__, *reduce.__all__]
