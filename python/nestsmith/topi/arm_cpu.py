"""Schedules and definitions of operators for ARM CPUs; see :mod:`.per_target`."""

from .per_target import of

__getattr__ = of("arm_cpu")
