"""Schedules and definitions of operators for targets in general; see :mod:`.per_target`."""

from .per_target import of

__getattr__ = of("generic")
