"""Classes of tensors and of the operations that make them, at TVM's place."""

from .._core import ComputeOp, EqualOp, Operation, PlaceholderOp, Tensor, TensorSlice  # noqa: F401
from .extern import ExternOp  # noqa: F401
from .scan import ScanOp  # noqa: F401
