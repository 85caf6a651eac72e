"""Applying passes to expressions, and values of networks of any types."""

import numpy as np

from ... import nd
from ..expr import Function
from ..module import IRModule
from ..passes import Pass
from ..transform import InferType

__all__ = ["run_opt_pass", "run_infer_type", "rand"]


def run_opt_pass(expr, opt_pass, import_prelude=False):
    """`expr` after a pass: a function as a function, anything else as the body of one over its free variables."""
    if not isinstance(opt_pass, Pass):
        raise TypeError(f"opt_pass is {opt_pass!r}; it must be a pass")
    main = opt_pass(IRModule.from_expr(expr))["main"]
    return main if isinstance(expr, Function) else main.body


def run_infer_type(expr):
    """`expr` with all types inferred."""
    return run_opt_pass(expr, InferType())


def rand(dtype="float32", *shape):
    """An array (:class:`nestsmith.nd.NDArray`) of random numbers between 0 and 1."""
    return nd.array(np.random.rand(*shape).astype(dtype))
