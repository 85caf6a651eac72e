"""Arrays on devices; the same as `nestsmith.runtime.ndarray`."""

from .runtime.ndarray import *  # noqa: F403
from .runtime.ndarray import NDArray, array, empty, from_dlpack, numpyasarray  # noqa: F401
