"""Operator builders; the table itself is in :mod:`.registry`."""

from . import image, nn, reduce, tensor, transform
from .reduce import *  # noqa: F401,F403
from .registry import Op, get, names
from .tensor import *  # noqa: F401,F403
from .transform import *  # noqa: F401,F403

__all__ = ["Op", "get", "names", "nn", "image", *tensor.__all__, *transform.__all__, *reduce.__all__]
