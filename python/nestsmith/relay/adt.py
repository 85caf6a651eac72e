"""TVM's place of what declares algebraic data types."""

from .ty import TypeData

__all__ = ["TypeData"]
