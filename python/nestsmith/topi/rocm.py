"""Schedules and definitions of operators for ROCm: those of a GPU; see :mod:`.per_target`."""

from .per_target import of

__getattr__ = of("rocm")
