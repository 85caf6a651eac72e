"""TVMScript is not read. Functions that are written in it are refused when they are used, so that files which hold some beside other code
can be imported."""

from . import tir

__all__ = ["tir"]
