"""Passes over ``tir.PrimFunc``: the functions of an IRModule, or what ``lower`` gives under ``PassContext(config={"tir.add_lower_pass": ...})``."""

from ..relay.passes import PrimFuncPass, prim_func_pass

__all__ = ["PrimFuncPass", "prim_func_pass"]
