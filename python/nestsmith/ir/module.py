"""Modules of functions."""

from ..relay.module import IRModule

__all__ = ["IRModule"]
