"""Passes over modules and the context that configures them."""

from .relay.passes import Pass, PassContext, Sequential, function_pass, module_pass

__all__ = ["PassContext", "Pass", "Sequential", "module_pass", "function_pass"]
