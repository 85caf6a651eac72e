"""TVMScript is not read. Functions that are written in it are refused when they are used, so that files which hold some beside other code
can be imported."""

from . import tir

__all__ = ["ir_module", "tir"]

ir_module = tir.prim_func  # takes a class and refuses its uses
