"""The name of :mod:`graph_executor` in older releases."""

from .graph_executor import GraphModule, create

__all__ = ["create", "GraphModule"]
