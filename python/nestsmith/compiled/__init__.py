"""One call from a user's model to a network that runs: ``nestsmith.compile``."""

from .build import compile, machine_target
from .module import CompiledModule, load

__all__ = ["CompiledModule", "compile", "load", "machine_target"]
