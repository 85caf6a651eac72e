"""Models of other frameworks as networks."""

from . import onnx_more, onnx_signal, quantized, regions, sampling  # noqa: F401 - they register converters
from .onnx import from_onnx
from .onnx_ops import converter
from .others import from_keras, from_mxnet, from_tensorflow, from_tflite
from .pytorch import from_pytorch

__all__ = ["from_onnx", "from_pytorch", "from_keras", "from_tensorflow", "from_tflite", "from_mxnet", "converter"]
