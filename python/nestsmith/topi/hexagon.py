"""Schedules and definitions of operators for Hexagon: those of a CPU; see :mod:`.per_target`."""

from .per_target import of

__getattr__ = of("hexagon")
