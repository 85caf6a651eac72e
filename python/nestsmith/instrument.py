"""What watches passes: the names of :mod:`nestsmith.ir.instrument`."""

from .ir.instrument import *  # noqa: F401,F403
