"""Schedules and definitions of operators for synthesis of hardware: those of a CPU; see :mod:`.per_target`."""

from .per_target import of

__getattr__ = of("hls")
