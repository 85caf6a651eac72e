"""What functions of te.hybrid call, for NumPy arrays: such a function that is called with arrays runs as Python."""

import importlib
import math

import numpy as np

__all__ = ["HYBRID_GLOBALS", "emulated"]


class bind:  # noqa: N801 (names of the established interface)
    """``for i in bind("threadIdx.x", n)``: one after the other."""

    def __init__(self, tag, ext):
        self.ext = ext

    def __iter__(self):
        return iter(range(self.ext))


def allocate(shape, dtype="float32", scope="global"):
    """Memory for what is computed between."""
    return np.zeros(tuple(int(s) for s in shape), dtype)


def max_num_threads(allow_none=True):
    """Threads of a block."""
    current = importlib.import_module("nestsmith.target").Target.current()
    if current is None and not allow_none:
        raise ValueError("max_num_threads needs a target: with nestsmith.target.Target(...)")
    return int(current.max_num_threads) if current is not None else 1024


HYBRID_GLOBALS = {
    "unroll": range, "vectorize": range, "parallel": range, "const_range": range, "bind": bind,
    "allocate": allocate, "output_tensor": lambda shape, dtype: allocate(shape, dtype),
    "sqrt": np.sqrt, "rsqrt": lambda x: np.ones_like(x) / np.sqrt(x), "log": np.log, "tanh": np.tanh, "power": np.power, "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "popcount": lambda x: int(x).bit_count(), "round": round, "likely": lambda x: x,
    **{t: np.dtype(t).type for t in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64")},
    "ceil_div": lambda a, b: (a + b - 1) // b, "floor": math.floor, "ceil": math.ceil, "max_num_threads": max_num_threads,
}  # fmt: skip


def emulated(func, args):
    """Runs it as Python: the names that it calls are among its globals meanwhile."""
    scope = func.__globals__
    before = {k: scope[k] for k in HYBRID_GLOBALS if k in scope}
    scope.update({k: v for k, v in HYBRID_GLOBALS.items() if k not in before})
    try:
        return func(*args)
    finally:
        for k in HYBRID_GLOBALS:
            if k not in before:
                scope.pop(k, None)
