"""Schedules and definitions of operators for x86 CPUs; see :mod:`.per_target`."""

from .per_target import of

__getattr__ = of("x86")
