"""Models of other frameworks as networks."""

from . import quantized, sampling  # noqa: F401 - they register converters
from .onnx import from_onnx
from .onnx_ops import converter

__all__ = ["from_onnx", "converter"]
