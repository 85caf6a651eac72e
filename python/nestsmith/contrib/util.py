"""Old name of `nestsmith.contrib.utils`."""

from .utils import TempDirectory, tempdir  # noqa: F401
