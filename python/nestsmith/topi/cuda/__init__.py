"""Schedules and definitions of operators for CUDA GPUs; see :mod:`..per_target`."""

from ..per_target import of

__getattr__ = of("cuda")
