"""Schedules and definitions of operators for Intel's GPUs; see :mod:`.per_target`."""

from .per_target import of

__getattr__ = of("intel_graphics")
