"""Passes over modules and the context that configures them."""

from .relay.passes import Pass, PassContext, PrintIR, Sequential, function_pass, module_pass

__all__ = ["Pass", "PassContext", "PrintIR", "Sequential", "function_pass", "module_pass"]
