"""Compiling operators: ``nestsmith.build`` and ``nestsmith.lower`` are `build_module`'s."""

from .build_module import LoweredFunction, build, engine_of, lower

__all__ = ["LoweredFunction", "build", "engine_of", "lower"]
