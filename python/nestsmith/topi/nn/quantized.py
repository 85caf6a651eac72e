"""Quantisation as it is simulated in float32: which type is meant is a number that is known at run time only."""

from ... import te, tir
from ..util import as_const_int, normal_axis

__all__ = ["SQNN_CODE_TO_DTYPE", "SQNN_DISABLE", "SQNN_DTYPE_TO_CODE", "SQNN_INT8", "SQNN_INT32", "SQNN_UINT8",
           "simulated_dequantize", "simulated_quantize"]  # fmt: skip

SQNN_DISABLE, SQNN_INT8, SQNN_UINT8, SQNN_INT32 = 0, 1, 2, 3
SQNN_DTYPE_TO_CODE = {"disable": SQNN_DISABLE, "int8": SQNN_INT8, "uint8": SQNN_UINT8, "int32": SQNN_INT32}
SQNN_CODE_TO_DTYPE = {v: k for k, v in SQNN_DTYPE_TO_CODE.items()}
_RANGES = {SQNN_INT8: (-128, 127), SQNN_UINT8: (0, 255), SQNN_INT32: (-(2**31), 2**31 - 1)}


def _of_channel(t, ax, axis):
    """The element of a parameter, [] or [1] or [channels]."""
    if not len(t.shape):
        return t()
    n, (size,) = ax[axis], t.shape
    if isinstance(size, int):
        return t(0) if as_const_int(size) == 1 else t(n)
    return t(te.indexmod(n, size))


def _code(dtype, names):
    if isinstance(dtype, str):
        if dtype not in SQNN_DTYPE_TO_CODE:
            raise ValueError(f"{names}: the type is one of {', '.join(SQNN_DTYPE_TO_CODE)}, not {dtype!r}")
        return lambda: tir.const(SQNN_DTYPE_TO_CODE[dtype], "int32")
    return dtype if isinstance(dtype, te.Tensor) else lambda: dtype


def simulated_quantize(data, out_dtype, output_scale=None, output_zero_point=None, axis=-1):
    """``round(data / scale) + zero point`` cut to the range of a type, in float32; ``data`` itself where the type's code is 0.

    Parameters
    ----------
    data : te.Tensor
    out_dtype : te.Tensor [], or str
        A code of ``SQNN_DTYPE_TO_CODE``.
    output_scale, output_zero_point : te.Tensor
        One, or one for each position along ``axis``.
    """
    a, code = normal_axis(axis, len(data.shape)), _code(out_dtype, "simulated_quantize")

    def f(*ax):
        x, out = data(*ax), data(*ax)
        scaled = te.round(x / _of_channel(output_scale, ax, a)) + _of_channel(output_zero_point, ax, a).astype(data.dtype)
        for k, (low, high) in _RANGES.items():
            cut = te.max(te.min(scaled, tir.const(float(high), data.dtype)), tir.const(float(low), data.dtype))
            out = tir.Select(tir.EQ(code(), k), cut, out)
        return out

    return te.compute(data.shape, f, name="simulated_quantize", tag="elemwise")


def simulated_dequantize(data, in_dtype, input_scale=None, input_zero_point=None, axis=-1):
    """``(data - zero point) * scale``; ``data`` itself where the type's code is 0. The arguments are those of :func:`simulated_quantize`."""
    a, code = normal_axis(axis, len(data.shape)), _code(in_dtype, "simulated_dequantize")

    def f(*ax):
        x = data(*ax)
        real = (x - _of_channel(input_zero_point, ax, a).astype(data.dtype)) * _of_channel(input_scale, ax, a)
        return tir.Select(tir.EQ(code(), SQNN_DISABLE), x, real)

    return te.compute(data.shape, f, name="simulated_dequantize", tag="elemwise")
