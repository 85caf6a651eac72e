"""In which types results are formed; the page on numerics says it in full. Both the operator library and the passes over
networks go by these rules."""

from __future__ import annotations

__all__ = ["is_float", "sum_type", "mean_type"]


def is_float(dtype):
    """Whether `dtype` (a string) is a floating-point type."""
    return dtype.startswith(("float", "bfloat"))


def sum_type(dtype):
    """The type in which sums and products of many `dtype` values are formed: float32 for floats of 16 bits, as PyTorch
    does; else the type itself (integers wrap, and a wrapped sum does not depend on the order)."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def mean_type(dtype):
    """The type in which means of `dtype` values are formed. As :func:`sum_type`, but integers get 64 bits: a mean has the
    size of the values, the sum that it is made of has not."""
    if is_float(dtype):
        return sum_type(dtype)
    return "uint64" if dtype.startswith("u") else "int64"
