"""Converters of PyTorch's operators: plain functions with the arguments of their schemas, in one table.

Tensors arrive as expressions (known ones as constants), everything else as Python values, element types by our names. Where
a row has `types` (:class:`promotion.Types`), its operands have been brought to one type by PyTorch's rules. The importer compares
every result with the shape and the type that PyTorch computed.
"""

from . import choosing, elements, layers, linalg, moving, quantised, reductions, special
from .pairs import PAIRS, Pair
from .table import ATEN, aten

__all__ = ["ATEN", "PAIRS", "Pair", "aten", "choosing", "elements", "layers", "linalg", "moving", "quantised", "reductions", "special"]
