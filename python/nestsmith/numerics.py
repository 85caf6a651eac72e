"""In which types results are formed; the page on numerics says it in full. Both the operator library and the passes over
networks go by these rules."""

import math
from typing import NamedTuple

import numpy as np

from . import _core

__all__ = ["LAYOUTS", "MATH_MODES", "PRECISIONS", "MathMode", "clip_bounds", "float32_mode", "from_bfloat16", "is_byte_product",
           "is_float", "math_mode", "mean_type", "mode_fits", "needed_math", "stored", "sum_type", "to_bfloat16",
           "to_tf32", "tolerance", "unfit"]


class MathMode(NamedTuple):
    """How products may be computed.

    Attributes
    ----------
    tensor_cores : int
        The search parameter of this name, where the user gives none.
    compared : str
        The row of `_core.tolerances` by which float32 results are compared.
    single : str
        What is allowed of products of float32: the mode that allows this alone.
    half_sums : bool
        Whether products of float16 whose sums become float16 may be added up in float16.
    """

    tensor_cores: int
    compared: str
    single: str
    half_sums: bool = False


_HALF_SUMS = "fp16_accumulation"
# From the strictest on, by what is allowed of float32.
_SINGLES = {"strict": MathMode(1, "float32", "strict"), "float32x3": MathMode(3, "float32", "float32x3"), "tf32": MathMode(2, "tf32", "tf32")}


def _with_half_sums(mode):
    return _HALF_SUMS if mode == "strict" else f"{mode}+{_HALF_SUMS}"


MATH_MODES = {**_SINGLES, **{_with_half_sums(m): row._replace(half_sums=True) for m, row in _SINGLES.items()}}
# And the mode of the float32 that is left.
LAYOUTS = "auto", "keep", "NHWC", "NCHW"  # of nestsmith.compile
PRECISIONS = {"float32": "strict", "float32x3": "float32x3", "tf32": "tf32", "float16": "strict", "bfloat16": "strict"}


def math_mode(config, target=None):
    """The mode that the configuration of a PassContext (a dictionary) allows, where a target is given of what its tensor cores do."""
    single = float32_mode(config) if target is None or target.on_tensor_cores("float32") else "strict"
    half_sums = config.get(f"nestsmith.allow_{_HALF_SUMS}") and (target is None or target.on_tensor_cores("float16"))
    return _with_half_sums(single) if half_sums else single


def float32_mode(config):
    """What it allows of products of float32: "strict", "float32x3" or "tf32"."""
    return next((m for m in ("tf32", "float32x3") if config.get(f"nestsmith.allow_{m}")), "strict")


def mode_fits(mode, allowed):
    """Whether what was found in one mode may be used where another is allowed: what is strict may be used anywhere."""
    if mode not in MATH_MODES:
        return False
    order, row, most = list(_SINGLES), MATH_MODES[mode], MATH_MODES[allowed]
    return order.index(row.single) <= order.index(most.single) and row.half_sums <= most.half_sums


def unfit(mode):
    """What a schedule does that needs the mode, in words."""
    row = MATH_MODES[mode]
    does = ["multiplies float32 on tensor cores, in TF32"] * (row.single != "strict") + ["adds products of float16 up in float16"] * row.half_sums
    return " and ".join(does)


def needed_math(dag, steps):
    """The mode that the steps (JSON text) of a schedule need: their record may have lost its mark."""
    return _core.State(dag, steps).math() if '"MM"' in steps else "strict"


def tolerance(precision):
    """How far results computed in a precision of `nestsmith.compile` may be off, of themselves and of their mean size."""
    mode = MATH_MODES[PRECISIONS[precision]]
    return _core.tolerances()[mode.compared if precision in MATH_MODES or precision == "float32" else precision]


def is_float(dtype):
    """Whether `dtype` (a string) is a floating-point type."""
    return dtype.startswith(("float", "bfloat"))


def stored(dtype):
    """The NumPy type of arrays that hold values of `dtype`: of bfloat16, which NumPy lacks, their bits."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def sum_type(dtype):
    """The type in which sums and products of many `dtype` values are formed: float32 for floats of 16 bits, as PyTorch
    does; else the type itself (integers wrap, and a wrapped sum does not depend on the order)."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def is_byte_product(data, weight, out_dtype):
    """Whether products of such types (strings) are of integers of 8 bits, added up in int32: tensor cores compute them exactly."""
    return {data, weight} <= {"int8", "uint8"} and out_dtype == "int32"


def mean_type(dtype):
    """The type in which means of `dtype` values are formed. As :func:`sum_type`, but integers get 64 bits: a mean has the
    size of the values, the sum that it is made of has not."""
    if is_float(dtype):
        return sum_type(dtype)
    return "uint64" if dtype.startswith("u") else "int64"


def clip_bounds(low, high, dtype):
    """Bounds as literals of `dtype`. Of integers they are rounded toward zero, and no further away than the type reaches: clipping
    int8 to (0, 255) cuts the negative numbers off."""
    if is_float(dtype):
        return float(low), float(high)
    bits = int(dtype.lstrip("uint"))
    least, most = (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return tuple(int(min(max(v, least), most)) if math.isfinite(v) else (least if v < 0 else most) for v in (low, high))


def to_bfloat16(x):
    """The bits (uint16) of an array's nearest bfloat16 values, ties to even; a NaN stays one."""
    x = np.asarray(x, "float32")
    bits = np.asarray(x, order="C").view("uint32").astype("uint64")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded).astype("uint16")


def to_tf32(x):
    """The nearest values of 11 bits of a float32 array, ties away from zero, as `cvt.rna.tf32.f32` and the intrinsic `round_tf32` give
    them. Infinities stay, so does what is not a number; what is nearer to 2^128 than to the largest such value becomes infinite."""
    x = np.asarray(x, "float32", order="C")
    rounded = ((x.view("uint32") + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view("float32")
    return np.where(np.isfinite(x), rounded, x)


def from_bfloat16(bits):
    """The float32 values of bfloat16 bits."""
    return (np.asarray(bits, order="C").astype("uint32") << 16).view("float32")


class Array(np.ndarray):
    """An array that has the methods of an NDArray by which its values are read."""

    def numpy(self):
        return self.view(np.ndarray)

    asnumpy = numpy

    def __array_wrap__(self, made, context=None, return_scalar=False):
        return made[()] if return_scalar else made.view(np.ndarray)
