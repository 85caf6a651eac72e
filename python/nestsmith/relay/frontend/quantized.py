"""Products of quantised numbers, as ONNX defines them: integers less their zero points, summed in int32, scaled and rounded once."""

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
    scaled = relay.multiply(relay.cast(total, "float32"), relay.divide(relay.multiply(a, b), y))
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


@converter("com.microsoft::QGemm")
def _gemm(n):
    a, b = _centred(n, 0, 2, -1), _centred(n, 3, 5, -2 if n.get("transB") else -1)
    total = c.matmul(relay.transpose(a, [1, 0]) if n.get("transA") else a, relay.transpose(b, [1, 0]) if n.get("transB") else b)
    total = relay.add(total, n.input(6)) if n.has(6) else total
    first = relay.multiply(_scale(n, 1, 0, 2), array(n.get("alpha", 1.0), "float32"))
    if n.has(7):
        return _requantised(n, total, first, _scale(n, 4, 1, 2), _scale(n, 7, 1, 2), 8)
    return relay.multiply(relay.cast(total, "float32"), relay.multiply(first, _scale(n, 4, 1, 2)))


# ---- onnxruntime's own: real numbers between, rounded once ----


def _real(n, i):
    """Input `i`, with its scale and zero point behind it, as real numbers."""
    return relay.multiply(relay.cast(_centred(n, i, i + 2, -1), "float32"), c.as_dtype(n.input(i + 1), "float32"))


def _quantised(n, y, scale):
    """`y` with the scale at input `scale` and the zero point behind it."""
    return CONVERTERS["QuantizeLinear"](Node("QuantizeLinear", n.name, [y, n.input(scale), n.input(scale + 1)], {}, n.opset))


@converter("com.microsoft::QLinearAdd", "com.microsoft::QLinearMul")
def _elementwise(n):
    return _quantised(n, (relay.add if n.op == "QLinearAdd" else relay.multiply)(_real(n, 0), _real(n, 3)), 6)


_OF_ONE = ("Sigmoid", "LeakyRelu", "Softmax", "AveragePool", "GlobalAveragePool")


@converter(*(f"com.microsoft::QLinear{name}" for name in _OF_ONE))
def _of_one(n):
    """An operator of one tensor. Its set of operators is an attribute where the meaning of an axis depends on it."""
    name, x, last = n.op.removeprefix("QLinear"), _real(n, 0), bool(n.get("channels_last"))
    rank = rank_of(x)
    x = relay.transpose(x, [0, rank - 1, *range(1, rank - 1)]) if last else x
    attrs = {"alpha": 0.01, **n.attrs} if name == "LeakyRelu" else n.attrs
    y = CONVERTERS[name](Node(name, n.name, [x], attrs, n.get("opset", 13)))
    return _quantised(n, relay.transpose(y, [0, *range(2, rank), 1]) if last else y, 3)


@converter("com.microsoft::QLinearConcat")
def _concat(n):
    parts = [_real(n, i) for i in range(2, len(n.inputs), 3)]
    return _quantised(n, relay.concatenate(parts, n.axis(0, rank_of(parts[0]))), 0)


@converter("com.microsoft::QLinearWhere")
def _where(n):
    return _quantised(n, relay.where(n.input(0), _real(n, 1), _real(n, 4)), 7)


for _name in ("QuantizeLinear", "DequantizeLinear"):  # types of 16 bits before opset 21
    CONVERTERS[f"com.microsoft::{_name}"] = CONVERTERS[_name]


@converter("DynamicQuantizeLinear")
def _dynamic(n, x):
    """uint8 with the scale and zero point that the data ask for; 0 is always exact."""
    zero = c.scalar(0, x)
    low, high = relay.minimum(relay.min(x), zero), relay.maximum(relay.max(x), zero)
    scale = relay.divide(relay.subtract(high, low), c.scalar(255, x))
    scale = relay.where(relay.equal(scale, zero), c.scalar(1, x), scale)
    point = relay.cast(relay.clip(c.round_even(relay.divide(relay.negative(low), scale)), 0, 255), "uint8")
    y = relay.add(c.round_even(relay.divide(x, scale)), relay.cast(point, dtype_of(x)))
    return [relay.cast(relay.clip(y, 0, 255), "uint8"), scale, point]
