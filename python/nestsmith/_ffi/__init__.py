"""TVM's place for global functions and the base of errors."""

from ..registry import get_global_func, list_global_func_names, register_func, remove_global_func
from . import base, registry

__all__ = ["base", "get_global_func", "list_global_func_names", "register_func", "registry", "remove_global_func"]
