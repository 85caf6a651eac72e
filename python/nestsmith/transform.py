"""Passes over modules and the context that configures them."""

from .relay.passes import (
    FunctionPass,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    function_pass,
    module_pass,
)

__all__ = ["FunctionPass", "ModulePass", "Pass", "PassContext", "PassInfo", "PrintIR", "Sequential", "function_pass", "module_pass"]
