"""Tensor expressions: describe what is computed.

>>> n = te.var("n")
>>> A = te.placeholder((n,), name="A")
>>> B = te.compute(A.shape, lambda i: A[i] * 2, name="B")
"""

import importlib

from .. import _absent
from .._core import ComputeDAG as _ComputeDAG, ComputeOp, Operation, PlaceholderOp, Tensor, TensorSlice
from ..tir import IterVar, Range, const
from ..tir.op import *  # noqa: F403
from .extern import ExternOp, extern, extern_primfunc
from .operation import compute, placeholder, reduce_axis, size_var, thread_axis, var, with_attrs
from .scan import ScanOp, create_prim_func, scan
from .schedule import AXIS_SEPARATOR, InferBound, Schedule, Stage, create_schedule
from .scope import scratch
from .tag import SpecializedCondition, tag_scope

_SUBMODULES = ("autodiff", "hybrid", "tensor", "tensor_intrin")
_THERE = {"HybridOp": "hybrid", "gradient": "autodiff", "decl_tensor_intrin": "tensor_intrin"}


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _THERE:
        return getattr(importlib.import_module(f"{__name__}.{_THERE[name]}"), name)
    raise _absent.attribute_error(__name__, name)
