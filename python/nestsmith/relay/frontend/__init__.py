"""Models of other frameworks as networks."""

from .onnx import from_onnx
from .onnx_ops import converter

__all__ = ["from_onnx", "converter"]
