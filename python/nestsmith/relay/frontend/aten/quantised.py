"""Operators of models that PyTorch has quantised by export (PT2E): integers with scales and zero points, of tensors, channels or rows."""

from ... import op as relay
from .. import common as c
from ..values import array, rank_of, shape_of
from .table import ATEN

__all__: list = []


def _decomposed(*names):
    def add(f):
        for name in names:
            ATEN[f"quantized_decomposed::{name}"] = f
        return f

    return add


def _float(v, axis=None, rank=0):
    """A scale or zero point as float32 that broadcasts with a tensor: a number, a tensor of one element, or one for each index of `axis`."""
    if isinstance(v, (int, float)):
        return array(v, "float32")
    v = c.as_dtype(v, "float32")
    if axis is None:
        return relay.reshape(v, ()) if rank_of(v) == 1 and shape_of(v) == (1,) else v
    return relay.reshape(v, (-1, *[1] * (rank - axis % rank - 1)))


def _quantise(x, scale, zero, low, high, dtype, zero_first=False):
    x = relay.multiply(c.as_dtype(x, "float32"), relay.divide(array(1.0, "float32"), scale))
    x = c.round_even(relay.add(x, zero)) if zero_first else relay.add(c.round_even(x), zero)
    return relay.cast(c.clip(x, low, high), dtype)


def _dequantise(x, scale, zero, dtype):
    return c.as_dtype(relay.multiply(relay.subtract(relay.cast(x, "float32"), zero), scale), dtype or "float32")


@_decomposed("quantize_per_tensor")
def _of_tensor(x, scale, zero, low, high, dtype):
    return _quantise(x, _float(scale), _float(zero), low, high, dtype)


@_decomposed("dequantize_per_tensor")
def _from_tensor(x, scale, zero, low, high, dtype, out_dtype=None):
    return _dequantise(x, _float(scale), _float(zero), out_dtype)


@_decomposed("quantize_per_channel")
def _of_channels(x, scales, zeros, axis, low, high, dtype):
    scales, zeros = (_float(v, axis, rank_of(x)) for v in (scales, zeros))
    return _quantise(x, scales, zeros, low, high, dtype)


@_decomposed("dequantize_per_channel")
def _from_channels(x, scales, zeros, axis, low, high, dtype, out_dtype=None):
    scales, zeros = (_float(0 if v is None else v, None if v is None else axis, rank_of(x)) for v in (scales, zeros))
    return _dequantise(x, scales, zeros, out_dtype)


@_decomposed("quantize_per_token")
def _of_rows(x, scales, zeros, low, high, dtype):
    return _quantise(x, _float(scales), _float(zeros), low, high, dtype, zero_first=True)


@_decomposed("dequantize_per_token")
def _from_rows(x, scales, zeros, low, high, dtype, out_dtype):
    return _dequantise(x, _float(scales), _float(zeros), out_dtype)


def _range(low, high, least, bottom, top):
    """Scale, at least `least`, and zero point for numbers from `low` to `high`. 0 is among them, and is exact."""
    zero = array(0.0, "float32")
    low, high = relay.minimum(c.as_dtype(low, "float32"), zero), relay.maximum(c.as_dtype(high, "float32"), zero)
    scale = relay.maximum(relay.divide(relay.subtract(high, low), array(float(top - bottom), "float32")), array(least, "float32"))
    point = relay.subtract(array(float(bottom), "float32"), c.round_even(relay.divide(low, scale)))
    return scale, c.clip(point, bottom, top)


@_decomposed("choose_qparams")
def _choose(x, bottom, top, least, dtype):
    scale, point = _range(relay.min(x), relay.max(x), least, bottom, top)
    return [relay.reshape(relay.cast(scale, "float64"), (1,)), relay.reshape(relay.cast(point, "int64"), (1,))]


@_decomposed("choose_qparams_symmetric")
def _choose_symmetric(x, bottom, top, least, dtype):
    low, high = (c.as_dtype(v, "float32") for v in (relay.min(x), relay.max(x)))
    most = relay.maximum(relay.negative(relay.minimum(low, array(0.0, "float32"))), high)
    scale = relay.maximum(relay.divide(most, array((top - bottom) / 2, "float32")), array(least, "float32"))
    return [relay.reshape(relay.cast(scale, "float64"), (1,)), array([128 if dtype == "uint8" else 0], "int64")]
