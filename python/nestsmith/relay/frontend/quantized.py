"""Products of quantised numbers, as ONNX defines them: integers less their zero points, summed in int32, scaled and rounded once."""

from __future__ import annotations

from .. import op as relay
from . import common as c
from .onnx_ops import CONVERTERS, _centred, _windows, converter
from .values import Node, array, dtype_of, rank_of, shape_of

__all__: list = []


def _scale(n, i, axis, rank):
    """Scale `i`: a number, or one for each index of `axis` of the result."""
    s = c.as_dtype(n.input(i), "float32")
    if rank_of(s) == 0 or shape_of(s) == (1,):
        return relay.reshape(s, ())
    return relay.expand_dims(s, 1, rank - axis - 1) if axis < rank - 1 else s


def _requantised(n, total, a, b, y, zero):
    """int32 sums with scales `a` and `b` in the type, scale and zero point of the result."""
    factor = relay.divide(relay.multiply(a, b), y)
    scaled = relay.multiply(relay.cast(total, "float32"), factor)
    return CONVERTERS["QuantizeLinear"](Node("QuantizeLinear", n.name, [scaled, array(1.0, "float32"), n.input(zero)], {}, n.opset))


@converter("QLinearMatMul")
def _matmul(n):
    a, b = _centred(n, 0, 2, -2), _centred(n, 3, 5, -1)
    total = c.matmul(a, b)
    rank = rank_of(total)
    return _requantised(n, total, _scale(n, 1, rank - 2, rank), _scale(n, 4, rank - 1, rank), _scale(n, 6, rank - 1, rank), 7)


@converter("QLinearConv")
def _conv(n):
    x, w = _centred(n, 0, 2, -1), _centred(n, 3, 5, -rank_of(n.input(3)))
    strides, pads, dilation = _windows(n, x, shape_of(w)[2:])
    total = c.convolution(x, w, n.input(8), strides, pads, dilation, n.get("group", 1))
    rank = rank_of(total)
    return _requantised(n, total, _scale(n, 1, 1, rank), _scale(n, 4, 1, rank), _scale(n, 6, 1, rank), 7)


@converter("com.microsoft::QLinearAdd", "com.microsoft::QLinearMul")
def _elementwise(n):
    real = [relay.multiply(relay.cast(_centred(n, i, i + 2, -1), "float32"), c.as_dtype(n.input(i + 1), "float32")) for i in (0, 3)]
    y = (relay.add if n.op == "QLinearAdd" else relay.multiply)(*real)
    return CONVERTERS["QuantizeLinear"](Node("QuantizeLinear", n.name, [y, n.input(6), n.input(7)], {}, n.opset))


@converter("DynamicQuantizeLinear")
def _dynamic(n):
    """uint8 with the scale and zero point that the data ask for; 0 is always exact."""
    x = n.input(0)
    zero = c.scalar(0, x)
    low, high = relay.minimum(relay.min(x), zero), relay.maximum(relay.max(x), zero)
    scale = relay.divide(relay.subtract(high, low), c.scalar(255, x))
    scale = relay.where(relay.equal(scale, zero), c.scalar(1, x), scale)
    point = relay.cast(relay.clip(c.round_even(relay.divide(relay.negative(low), scale)), 0, 255), "uint8")
    y = relay.add(c.round_even(relay.divide(x, scale)), relay.cast(point, dtype_of(x)))
    return [relay.cast(relay.clip(y, 0, 255), "uint8"), scale, point]
