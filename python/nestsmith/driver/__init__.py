"""Compiling operators: ``nestsmith.build`` and ``nestsmith.lower`` are `build_module`'s."""

from ..compiling import compile_source
from .build_module import LoweredFunction, build, engine_of, lower

__all__ = ["LoweredFunction", "build", "compile_source", "engine_of", "lower"]
