"""Converters of ONNX operators: one function each, in one table.

A converter gets a :class:`values.Node`, and its first inputs if it has parameters for them, and gives its results. An input
is an expression, None if the node leaves it out; `n.array(i, what)` is one whose value must be known while the model is read.
"""

import inspect
import math

import numpy as np

from ...numerics import is_float
from .. import budget, op as relay
from ..expr import Expr
from ..op import nn
from . import common as c
from .einsum import einsum
from .pooling import places_of_maxima, unpooled, windows
from .recurrent import recurrent
from .values import along, arange, array, dtype_of, filled, integers, known, rank_of, repeated, shape_of

__all__ = ["CONVERTERS", "converter"]

CONVERTERS: dict = {}


def converter(*names):
    """Registers a function as the converter of ONNX operators.

    Parameters
    ----------
    *names : str
        Names of operators; those of another domain as ``"domain::Name"``. A converter that is there already is replaced.
    """

    def add(f):
        wanted = len([p for p in inspect.signature(f).parameters.values() if p.default is p.empty]) - 1
        CONVERTERS.update(dict.fromkeys(names, (lambda n: f(n, *map(n.input, range(wanted)))) if wanted else f))
        return f

    return add


# ---- element by element ----


def _unary(name, f):
    CONVERTERS[name] = lambda n: f(n.input(0))


for _onnx, _relay in {"Abs": "abs", "Neg": "negative", "Ceil": "ceil", "Floor": "floor", "Sqrt": "sqrt", "Exp": "exp",
                      "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos",
                      "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh",
                      "Atanh": "atanh", "Erf": "erf", "Sigmoid": "sigmoid", "Tanh": "tanh", "Not": "logical_not",
                      "BitwiseNot": "bitwise_not"}.items():  # fmt: skip
    _unary(_onnx, getattr(relay, _relay))
_unary("Erfc", relay.erfc)  # no operator of the standard: tf2onnx leaves it in Keras' gelu
for _onnx in ("Softplus", "Softsign", "Mish"):
    _unary(_onnx, lambda x, f=_onnx: c.activation(f, x))
for _onnx in ("Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "LeakyRelu", "ThresholdedRelu"):
    CONVERTERS[_onnx] = lambda n: c.activation(n.op, n.input(0), n.get("alpha"), n.get("gamma", n.get("beta")))
_unary("Reciprocal", lambda x: relay.divide(c.scalar(1, x), x))
_unary("Round", relay.round)
_unary("Sign", lambda x: relay.where(relay.not_equal(x, x), x, relay.sign(x)) if is_float(dtype_of(x)) else relay.sign(x))  # relay: of NaN 0
_unary("Identity", lambda x: x)
_unary("Relu", lambda x: nn.relu(x))
_unary("IsNaN", lambda x: relay.not_equal(x, x))


def _broadcast(names, f):
    """Operators of two broadcast inputs, or of any number of them; old models say on which axis the second one begins."""

    def convert(n):
        x = n.input(0)
        for y in n.inputs[1:]:
            if n.opset < 7 and n.get("broadcast") and "axis" in n.attrs:
                y = relay.expand_dims(y, rank_of(y), rank_of(x) - n.get("axis") - rank_of(y))
            x = f(n, x, y)
        return x

    converter(*names)(convert)


for _onnx, _relay in {"Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "logical_and", "Or": "logical_or",
                      "Xor": "logical_xor", "Div": "divide", "Greater": "greater", "GreaterOrEqual": "greater_equal",
                      "Less": "less", "LessOrEqual": "less_equal", "BitwiseAnd": "bitwise_and",
                      "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Max": "maximum", "Min": "minimum",
                      "Sum": "add"}.items():  # fmt: skip
    _broadcast([_onnx], lambda n, x, y, f=getattr(relay, _relay): f(x, y))
_broadcast(["PRelu"], lambda n, x, y: relay.where(relay.less(x, c.scalar(0, x)), relay.multiply(x, y), x))


def _modulo(n, x, y):
    """The rest has the sign of the divisor; with `fmod` that of the dividend."""
    return relay.mod(x, y) if n.get("fmod") else relay.floor_mod(x, y)


def _shift(n, x, y):
    """Bits that leave the number are gone, however far it is shifted."""
    left, bits = n.get("direction") == "LEFT", int(dtype_of(x).lstrip("uint"))
    f = relay.left_shift if left else relay.right_shift
    if known(y) and (y.data < bits).all() and (y.data >= 0).all():
        return f(x, y)
    far = relay.greater_equal(y, c.scalar(bits, y))
    far = far if dtype_of(y).startswith("u") else relay.logical_or(far, relay.less(y, c.scalar(0, y)))
    rest = c.scalar(0, x) if left or dtype_of(x).startswith("u") else relay.right_shift(x, c.scalar(bits - 1, x))
    return relay.where(far, rest, f(x, relay.where(far, c.scalar(0, y), y)))


_broadcast(["Mod"], _modulo)
_broadcast(["BitShift"], _shift)


@converter("Equal")
def _equal(n):
    x, y = n.inputs
    return relay.logical_not(relay.logical_xor(x, y)) if dtype_of(x) == "bool" else relay.equal(x, y)


converter("Mean")(lambda n, x: relay.divide(c.summed(n.inputs), c.scalar(len(n.inputs), x)))
converter("Pow")(lambda n: c.power(*n.inputs))


@converter("IsInf")
def _isinf(n, x):
    up, down = (relay.equal(x, c.scalar(inf, x)) for inf in (math.inf, -math.inf))
    if not n.get("detect_negative", 1):
        return up if n.get("detect_positive", 1) else relay.logical_and(up, down)
    return relay.logical_or(up, down) if n.get("detect_positive", 1) else down


@converter("Clip")
def _clip(n):
    return c.clip(n.input(0), *(n.input(i + 1) if n.has(i + 1) else n.attrs.get(name) for i, name in enumerate(("min", "max"))))


@converter("Shrink")
def _shrink(n, x):
    lambd, bias = n.get("lambd", 0.5), n.get("bias", 0.0)
    s = lambda v: c.scalar(v, x)  # noqa: E731
    high = relay.where(relay.greater(x, s(lambd)), relay.subtract(x, s(bias)), s(0))
    return relay.where(relay.less(x, s(-lambd)), relay.add(x, s(bias)), high)


converter("Gelu", "com.microsoft::Gelu")(lambda n: c.gelu(n.input(0), n.get("approximate", "none") == "tanh"))


@converter("com.microsoft::FastGelu")
def _fast_gelu(n):
    return c.gelu(relay.add(n.input(0), n.input(1)) if n.has(1) else n.input(0), True)


@converter("Where")
def _where(n):
    cond, x, y = n.inputs
    return relay.where(cond, x, y)


@converter("Dropout")
def _dropout(n):
    if n.has(2) and n.array(2, "training_mode").item():
        n.refuse("it is in training mode; export the model in evaluation mode")
    x = n.input(0)
    return [x, relay.full(array(True), shape_of(x), "bool")] if n.outputs > 1 else x


converter("Cast")(lambda n: c.cast(n.input(0), n.get("to")))
converter("CastLike")(lambda n: c.cast(n.input(0), dtype_of(n.input(1))))


# ---- products and windows ----


converter("MatMul")(lambda n: c.matmul(*n.inputs))
converter("MatMulInteger")(lambda n: c.matmul(*(_centred(n, i, i + 2, -1 if i else -2) for i in (0, 1))))


def _centred(n, i, zero, axis):
    """Input `i` as int32 less its zero point, which is one number or one for each index along `axis`."""
    x = relay.cast(n.input(i), "int32")
    if not n.has(zero):
        return x
    z = relay.cast(n.input(zero), "int32")
    if rank_of(z) == 1 and shape_of(z) != (1,):
        z = relay.expand_dims(z, 1, -axis - 1) if axis != -1 else z
    return relay.subtract(x, z)


@converter("Gemm")
def _gemm(n, a, b):
    if n.get("transA"):
        a = relay.transpose(a, [1, 0])
    if not n.get("transB"):
        b = relay.transpose(b, [1, 0])
    alpha, beta = n.get("alpha", 1.0), n.get("beta", 1.0)
    if alpha != 1:
        a = relay.multiply(a, c.scalar(alpha, a))
    y = nn.dense(a, b, units=shape_of(b)[0])
    if not n.has(2) or beta == 0:
        return y
    bias = n.input(2)
    return relay.add(y, bias if beta == 1 else relay.multiply(bias, c.scalar(beta, bias)))


def _windows(n, x, size):
    """Strides, pads (begins, then ends), dilations of a node with windows."""
    dims = len(size)
    if rank_of(x) != dims + 2:
        raise ValueError(f"data with {rank_of(x)} axes and windows of {dims}; data have two axes more than windows")
    strides, dilation = n.numbers("strides", dims, 1), n.numbers("dilations", dims, 1)
    auto, pads = n.get("auto_pad", "NOTSET"), n.numbers("pads", 2 * dims, 0)
    if n.op.startswith("Conv") and list(n.get("kernel_shape", size)) != list(size):
        raise ValueError(f"kernel_shape is {n.get('kernel_shape')}; the weights have {list(size)}")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max((-(-e // s) - 1) * s + d * (k - 1) + 1 - e, 0) for e, s, d, k in zip(shape_of(x)[2:], strides, dilation, size)]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        pads = small + large if auto == "SAME_UPPER" else large + small
    elif auto == "VALID":
        pads = [0] * 2 * dims
    return strides, pads, dilation


@converter("Conv")
def _conv(n, x, w):
    strides, pads, dilation = _windows(n, x, shape_of(w)[2:])
    dims = len(strides)
    if rank_of(x) - 2 != dims or dims not in (1, 2, 3):
        n.refuse(f"convolutions have one to three spatial axes, not {rank_of(x) - 2}")
    if n.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER") and any(pads):
        x, pads = c.pad(x, [0, 0, *pads[:dims]], [0, 0, *pads[dims:]]), [0] * 2 * dims
    return c.convolution(x, w, n.input(2), strides, pads, dilation, n.get("group", 1))


@converter("ConvInteger")
def _conv_integer(n):
    x, w = _centred(n, 0, 2, -1), _centred(n, 1, 3, -rank_of(n.input(1)))
    strides, pads, dilation = _windows(n, x, shape_of(w)[2:])
    return c.convolution(x, w, None, strides, pads, dilation, n.get("group", 1))


@converter("ConvTranspose")
def _conv_transpose(n, x, w):
    size = shape_of(w)[2:]
    dims = len(size)
    strides, dilation = n.numbers("strides", dims, 1), n.numbers("dilations", dims, 1)
    more, pads = n.numbers("output_padding", dims, 0), n.numbers("pads", 2 * dims, 0)
    auto, want = n.get("auto_pad", "NOTSET"), n.get("output_shape")
    if want is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        want = want[-dims:] if want is not None else [e * s for e, s in zip(shape_of(x)[2:], strides)]
        total = [s * (e - 1) + o + (k - 1) * d + 1 - g
                 for s, e, o, k, d, g in zip(strides, shape_of(x)[2:], more, size, dilation, want)]  # fmt: skip
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = small + large if auto == "SAME_UPPER" else large + small
    return c.transposed_convolution(x, w, n.input(2), strides, pads, dilation, n.get("group", 1), more)


@converter("MaxPool", "AveragePool")
def _pool(n, x):
    size = list(n.get("kernel_shape"))
    if len(size) not in (1, 2, 3):
        n.refuse(f"pooling has one to three spatial axes, not {len(size)}")
    strides, pads, dilation = _windows(n, x, size)
    kind, ceil = "max" if n.op == "MaxPool" else "avg", bool(n.get("ceil_mode"))
    y = c.pool(kind, x, size, strides, pads, dilation, ceil, bool(n.get("count_include_pad")))
    if n.outputs == 1:
        return y
    at = windows(shape_of(x)[2:], size, strides, pads, dilation, ceil)
    return [y, relay.add(places_of_maxima(x, at, bool(n.get("storage_order"))), _first_places(shape_of(x)))]


def _first_places(shape):
    """The flat place of the first element of each map of NC* data."""
    first = arange(shape[0] * shape[1]).reshape(*shape[:2], *[1] * (len(shape) - 2)) * math.prod(shape[2:])
    return array(first, "int64")


@converter("MaxUnpool")
def _max_unpool(n, x, index):
    size = list(n.get("kernel_shape"))
    strides, pads, _ = _windows(n, x, size)
    dims, given = len(size), n.array(2, "output_shape")
    made = [(e - 1) * s - pads[i] - pads[i + dims] + k for i, (e, s, k) in enumerate(zip(shape_of(x)[2:], strides, size))]
    index = relay.subtract(index, _first_places((*shape_of(x)[:2], *made)))  # those of the map alone
    if given is None:
        return unpooled(x, index, made, "MaxUnpool")
    want = integers(given)
    y = unpooled(x, index, made, "MaxUnpool")
    return c.pad(y, [0] * len(want), [w - h for w, h in zip(want, shape_of(y))])


@converter("LpPool")
def _lp_pool(n, x):
    size = list(n.get("kernel_shape"))
    strides, pads, dilation = _windows(n, x, size)
    p = n.get("p", 2)
    y = relay.power(relay.abs(x), c.scalar(p, x)) if p != 2 else relay.multiply(x, x)
    y = c.pool("avg", y, size, strides, pads, dilation, bool(n.get("ceil_mode")), True)
    return _root(relay.multiply(y, c.scalar(math.prod(size), x)), p)


def _root(x, p):
    return relay.sqrt(x) if p == 2 else x if p == 1 else relay.power(x, c.scalar(1 / p, x))


@converter("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(n, x):
    axes = list(range(2, rank_of(x)))
    if n.op == "GlobalLpPool":
        p = n.get("p", 2)
        y = relay.abs(x)
        return _root(relay.sum(relay.power(y, c.scalar(p, x)) if p != 1 else y, axes, keepdims=True), p)
    kind = "avg" if n.op == "GlobalAveragePool" else "max"
    if len(axes) == 2:
        return getattr(nn, f"global_{kind}_pool2d")(x)
    return (relay.mean if kind == "avg" else relay.max)(x, axes, keepdims=True)


# ---- normalisations ----


@converter("BatchNormalization")
def _batch_norm(n):
    if n.get("training_mode") or (n.opset < 7 and not n.get("is_test", 0)):
        return _batch_norm_in_training(n)
    x = n.input(0)
    return nn.batch_norm(x, *(c.as_dtype(v, dtype_of(x)) for v in n.inputs[1:5]), epsilon=n.get("epsilon", 1e-5))[0]


def _batch_norm_in_training(n):
    """By the statistics of the data, and the running ones that follow: variances without correction."""
    x, scale, bias, mean, var = n.inputs[:5]
    if n.opset < 14:
        n.refuse("it is in training mode; export the model in evaluation mode")
    axes = [a for a in range(rank_of(x)) if a != 1]
    wide = x if dtype_of(x) in ("float32", "float64") else relay.cast(x, "float32")
    mine, spread = relay.mean(wide, axes, keepdims=True), relay.variance(wide, axes, keepdims=True)
    y = relay.multiply(relay.subtract(wide, mine), relay.rsqrt(relay.add(spread, c.scalar(n.get("epsilon", 1e-5), spread))))
    lift = lambda v: c.as_dtype(relay.reshape(v, (-1, *[1] * (rank_of(x) - 2))), dtype_of(y))  # noqa: E731
    y = relay.add(relay.multiply(y, lift(scale)), lift(bias))
    keep = n.get("momentum", 0.9)

    def follows(old, new):
        new = relay.multiply(relay.squeeze(new, axes), c.scalar(1 - keep, new))
        return relay.add(relay.multiply(old, c.scalar(keep, old)), c.as_dtype(new, dtype_of(old)))

    return [c.as_dtype(y, dtype_of(x)), follows(mean, mine), follows(var, spread)]


@converter("InstanceNormalization")
def _instance_norm(n):
    return nn.instance_norm(*n.inputs, axis=1, epsilon=n.get("epsilon", 1e-5))


@converter("GroupNormalization")
def _group_norm(n):
    x, scale, bias = n.inputs
    groups, channels = n.get("num_groups"), shape_of(x)[1]
    if shape_of(scale) != (channels,):  # until version 20 there was one number per group
        scale, bias = (relay.repeat(v, channels // groups, 0) for v in (scale, bias))
    return nn.group_norm(x, scale, bias, groups, axis=1, epsilon=n.get("epsilon", 1e-5))


@converter("LayerNormalization", "RMSNormalization", "com.microsoft::SimplifiedLayerNormalization", "SimplifiedLayerNormalization")
def _layer_norm(n, x):
    rank = rank_of(x)
    axes = list(range(n.axis(-1, rank), rank))
    if n.op == "LayerNormalization":
        y = c.layer_norm(x, axes, n.input(1), n.input(2), n.get("epsilon", 1e-5))
        if n.outputs == 1:
            return y
        wide = c.as_dtype(x, "float32")
        mean = relay.mean(wide, axes, keepdims=True)
        rest = relay.subtract(wide, mean)
        square = relay.mean(relay.multiply(rest, rest), axes, keepdims=True)
        return [y, mean, relay.rsqrt(relay.add(square, c.scalar(n.get("epsilon", 1e-5), square)))]
    return relay.multiply(c.normalized(x, axes, n.get("epsilon", 1e-5), mean=False), n.input(1))


@converter("MeanVarianceNormalization")
def _mean_variance_norm(n, x):
    """The standard's definition, where the variance is a difference of two large numbers, loses all digits beside an offset."""
    axes = [a % rank_of(x) for a in n.get("axes", [0, 2, 3])]
    _, rest = c.centred(x, axes)
    spread = relay.sqrt(relay.mean(relay.multiply(rest, rest), axes, keepdims=True))
    return relay.divide(rest, relay.add(spread, c.scalar(1e-9, spread)))


@converter("com.microsoft::SkipLayerNormalization")
def _skip_layer_norm(n):
    x = relay.add(n.input(0), n.input(1))
    x = relay.add(x, n.input(4)) if n.has(4) else x
    return c.layer_norm(x, [rank_of(x) - 1], n.input(2), n.input(3), n.get("epsilon", 1e-12))


@converter("LRN")
def _lrn(n):
    return nn.lrn(n.input(0), n.get("size"), 1, alpha=n.get("alpha", 1e-4), beta=n.get("beta", 0.75), bias=n.get("bias", 1.0))


@converter("LpNormalization")
def _lp_norm(n, x):
    kind = "l1" if n.get("p", 2) == 1 else "l2"
    size = _REDUCE["ReduceL1" if kind == "l1" else "ReduceL2"](x, [n.axis(-1, rank_of(x))], True)
    return relay.divide(x, relay.where(relay.equal(size, c.scalar(0, x)), c.scalar(1, x), size))


@converter("Softmax", "LogSoftmax")
def _softmax(n, x):
    log = n.op == "LogSoftmax"
    rank, shape = rank_of(x), shape_of(x)
    axis = n.axis(-1 if n.opset >= 13 else 1, rank)
    if n.opset >= 13 or axis == rank - 1:
        return c.softmax(x, axis, log)
    return relay.reshape(c.softmax(relay.reshape(x, (math.prod(shape[:axis]), -1)), 1, log), shape)


@converter("Hardmax")
def _hardmax(n, x):
    rank, shape = rank_of(x), shape_of(x)
    axis = n.axis(-1 if n.opset >= 13 else 1, rank)
    y = x if n.opset >= 13 else relay.reshape(x, (math.prod(shape[:axis]), -1))
    at = axis if n.opset >= 13 else 1
    best = relay.argmax(y, at, keepdims=True)
    index = array(along(arange(shape_of(y)[at]), at, rank_of(y)), dtype_of(best))
    return relay.reshape(relay.cast(relay.equal(index, best), dtype_of(x)), shape)


# ---- reductions ----

_REDUCE = {
    "ReduceSum": lambda x, a, k: c.reduce("sum", x, a, k),
    "ReduceMean": lambda x, a, k: c.reduce("mean", x, a, k),
    "ReduceProd": lambda x, a, k: c.reduce("prod", x, a, k),
    "ReduceMax": lambda x, a, k: c.extreme("max", x, a, k),
    "ReduceMin": lambda x, a, k: c.extreme("min", x, a, k),
    "ReduceL1": lambda x, a, k: c.reduce("sum", relay.abs(x), a, k),
    "ReduceL2": lambda x, a, k: relay.sqrt(c.reduce("sum", relay.multiply(x, x), a, k)),
    "ReduceSumSquare": lambda x, a, k: c.reduce("sum", relay.multiply(x, x), a, k),
    "ReduceLogSum": lambda x, a, k: relay.log(c.reduce("sum", x, a, k)),
    "ReduceLogSumExp": lambda x, a, k: relay.logsumexp(x, c.axes_of(a, rank_of(x)), k),
}


@converter(*_REDUCE)
def _reduce(n, x):
    axes = n.ints(1, "axes")
    if not axes and n.get("noop_with_empty_axes"):
        return {"ReduceL1": relay.abs, "ReduceL2": relay.abs, "ReduceSumSquare": lambda v: relay.multiply(v, v),
                "ReduceLogSum": relay.log}.get(n.op, lambda v: v)(x)  # fmt: skip
    return _REDUCE[n.op](x, axes or None, bool(n.get("keepdims", 1)))


@converter("ArgMax", "ArgMin")
def _arg(n, x):
    axis = n.get("axis", 0)
    f = relay.argmax if n.op == "ArgMax" else relay.argmin
    y = f(x, axis, keepdims=bool(n.get("keepdims", 1)), select_last_index=bool(n.get("select_last_index", 0)))
    return relay.cast(y, "int64")


@converter("CumSum", "CumProd")
def _running(n, x):
    (axis,) = c.axes_of([n.array(1, "axis").item()], rank_of(x))
    x = relay.reverse(x, axis) if n.get("reverse") else x
    f = relay.cumsum if n.op == "CumSum" else relay.cumprod
    y = f(x, axis, exclusive=bool(n.get("exclusive")))
    return relay.reverse(y, axis) if n.get("reverse") else y


@converter("TopK")
def _topk(n, x):
    k = n.get("k") if n.opset < 10 else n.array(1, "k").item()
    if k < 0:
        raise ValueError(f"k is {k}; it must not be negative")
    values, at = relay.topk(x, int(k), n.get("axis", -1), "both", not n.get("largest", 1), "int64")
    return [values, at]


# ---- shapes ----


@converter("Shape")
def _shape(n):
    return array(shape_of(n.input(0))[slice(n.get("start", 0), n.get("end"))], "int64")


converter("Size")(lambda n: array(math.prod(shape_of(n.input(0))), "int64"))


@converter("Reshape")
def _reshape(n):
    return relay.reshape(n.input(0), n.ints(1, "shape"), allowzero=bool(n.get("allowzero")))


@converter("Flatten")
def _flatten(n, x):
    axis = n.get("axis", 1)
    shape = shape_of(x)
    if not -len(shape) <= axis <= len(shape):
        raise ValueError(f"{n}: axis is {axis}; it must be from {-len(shape)} to {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    if axis == 1 and len(shape) > 1:
        return nn.batch_flatten(x)
    return relay.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))


@converter("Transpose")
def _transpose(n):
    perm = n.get("perm")
    return relay.transpose(n.input(0), list(perm) if perm is not None else None)


@converter("Squeeze")
def _squeeze(n, x):
    axes = n.ints(1, "axes")
    return relay.squeeze(x, axes) if axes else relay.squeeze(x) if 1 in shape_of(x) and axes is None else x


@converter("Unsqueeze")
def _unsqueeze(n, x):
    axes = n.ints(1, "axes")
    axes = c.axes_of(axes, rank_of(x) + len(axes))
    if len(set(axes)) < len(axes):
        raise ValueError(f"axes {axes} have one twice")
    for a in sorted(axes):
        x = relay.expand_dims(x, a)
    return x


@converter("Concat")
def _concat(n):
    axis = n.get("axis", 1)
    parts = [x for x in n.inputs if 0 not in shape_of(x)]
    if not parts:
        return array(np.concatenate([filled(shape_of(x), 0.0) for x in n.inputs], axis), dtype_of(n.input(0)))
    return relay.concatenate(parts, axis) if len(parts) > 1 else parts[0]


@converter("Split")
def _split(n, x):
    axis = n.axis(0, rank_of(x))
    extent, lengths = shape_of(x)[axis], n.ints(1, "split")
    if lengths is None:
        parts = n.get("num_outputs", n.outputs)
        each = -(-extent // parts)
        lengths = [min(each, extent - i * each) for i in budget.times(parts)]
        if lengths[-1] < 0:
            raise ValueError(f"{n}: {extent} elements in {parts} parts of {each} leave less than nothing for the last; give their lengths")
    if sum(lengths) != extent or min(lengths) < 0:
        raise ValueError(f"parts of {lengths} along an axis of {extent} elements")
    return x if len(lengths) == 1 else relay.split(x, [int(v) for v in np.cumsum(lengths)[:-1]], axis)


@converter("Slice")
def _slice(n, x):
    starts, ends = n.ints(1, "starts"), n.ints(2, "ends")
    axes, steps = n.ints(3, "axes"), n.ints(4, "steps")
    axes = c.axes_of(axes, rank_of(x)) if axes is not None else list(range(len(starts)))
    steps = steps or [1] * len(starts)
    if known(x):
        cut = [slice(None)] * rank_of(x)
        for a, b, e, s in zip(axes, starts, ends, steps):
            cut[a] = slice(b, e if not (s < 0 and e < -x.data.shape[a]) else None, s)
        return array(x.numbers[tuple(cut)], dtype_of(x))
    return c.slice_axes(x, axes, starts, ends, steps)


converter("Expand")(lambda n, x: c.expand(x, np.broadcast_shapes(shape_of(x), tuple(integers(n.array(1, "shape"))))))
converter("Tile")(lambda n: relay.tile(n.input(0), integers(n.array(1, "repeats"))))


@converter("Pad")
def _pad(n, x):
    rank = rank_of(x)
    amounts, mode = n.ints(1, "pads"), n.get("mode", "constant")
    axes = c.axes_of(integers(n.array(3, "axes")) if n.has(3) else None, rank)
    half = len(amounts) // 2
    begins, ends = [0] * rank, [0] * rank
    for i, a in enumerate(axes):
        begins[a], ends[a] = amounts[i], amounts[half + i]
    value = n.array(2, "constant_value")
    value = n.get("value", 0.0) if value is None else value.item() if value.size else 0.0
    if dtype_of(x) == "bool":
        return relay.cast(c.pad(relay.cast(x, "int8"), begins, ends, mode, int(value)), "bool")
    return c.pad(x, begins, ends, mode, value)


converter("Gather")(lambda n, x: c.gather(x, n.input(1), n.axis(0, rank_of(x))))
converter("GatherElements")(lambda n: c.gather_elements(n.input(0), n.input(1), n.axis(0, rank_of(n.input(0)))))


@converter("GatherND")
def _gather_nd(n, x, index):
    batch = n.get("batch_dims", 0)
    shape, depth = shape_of(x), shape_of(index)[-1]
    if batch + depth > len(shape):
        raise ValueError(f"{n}: indices of {depth} parts behind {batch} axes of batches; the data have {len(shape)} axes")
    columns = [c.now(relay.squeeze(c.part(index, rank_of(index) - 1, k, k + 1), [-1])) for k in range(depth)]
    columns = [c.wrapped(column, shape[batch + k], "gather") for k, column in enumerate(columns)]
    rank = rank_of(columns[0])
    for b in range(batch):
        columns.insert(b, c.expand(array(along(arange(shape[b]), b, rank), "int32"), shape_of(columns[-1])))
    return relay.gather_nd(x, relay.stack(columns, 0))


@converter("ScatterElements", "Scatter")
def _scatter_elements(n):
    x, index, new = n.inputs
    return c.scatter_elements(x, index, new, n.axis(0, rank_of(x)), n.get("reduction", "none"))


@converter("ScatterND")
def _scatter_nd(n):
    x, index, new = n.inputs
    shape, places = shape_of(x), shape_of(index)
    depth = places[-1]
    if depth > len(shape):
        raise ValueError(f"{n}: indices of {depth} parts; the data have {len(shape)} axes")
    block = math.prod(shape[depth:])
    parts = []
    for k in range(depth):
        column = c.now(relay.squeeze(c.part(index, len(places) - 1, k, k + 1), [-1]))
        stride = array(math.prod(shape[k + 1 :]), "int32")
        parts.append(relay.multiply(c.wrapped(column, shape[k], "scatter", first=True), stride))
    at = relay.add(relay.reshape(c.summed(parts), (-1, 1)), array(arange(block).reshape(1, -1), "int32"))
    return c.scatter(x, c.now(at), new, n.get("reduction", "none"))


@converter("OneHot")
def _one_hot(n):
    depth = int(n.array(1, "depth").item())
    off, on = n.array(2, "values")
    index = n.input(0)
    if dtype_of(index).startswith("float"):
        there = relay.less_equal(relay.abs(index), c.scalar(depth, index))  # others, and NaN, are no integers that C defines
        index = relay.where(there, relay.cast(index, "int64"), array(depth, "int64"))
    index = relay.where(relay.less(index, c.scalar(0, index)), relay.add(index, c.scalar(depth, index)), index)
    kind = dtype_of(n.input(2))
    return relay.one_hot(index, array(on, kind), array(off, kind), depth, n.get("axis", -1), kind)


@converter("Range")
def _range(n):
    start, stop, step = (n.array(i, w) for i, w in enumerate(("start", "limit", "delta")))
    return array(arange(start.item(), stop.item(), step.item()), dtype_of(n.input(0)))


@converter("Constant")
def _constant(n):
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        if name in n.attrs:
            kind = "int64" if "int" in name else "float32" if "float" in name else None
            v = n.attrs[name]
            return v if isinstance(v, Expr) else array(v, kind)
    n.refuse("a constant that is neither a tensor nor numbers")


@converter("ConstantOfShape")
def _constant_of_shape(n):
    value = n.get("value", np.zeros(1, "float32"))
    value = value if isinstance(value, Expr) else array(value)
    return array(filled(integers(n.array(0, "shape")), value.numbers.item(), value.numbers.dtype), dtype_of(value))


@converter("EyeLike")
def _eye_like(n, x):
    kind = n.get("dtype", dtype_of(x))
    budget.room(shape_of(x), "float64")
    return array(np.eye(*shape_of(x), k=n.get("k", 0)), kind)


@converter("Trilu")
def _trilu(n, x):
    return c.triangle(x, int(n.array(1, "k").item()) if n.has(1) else 0, bool(n.get("upper", 1)))


converter("DepthToSpace")(lambda n: nn.depth_to_space(n.input(0), n.get("blocksize"), mode=n.get("mode", "DCR")))


@converter("SpaceToDepth")
def _space_to_depth(n, x):
    b = n.get("blocksize")
    if n.get("mode", "DCR") == "DCR":
        return nn.space_to_depth(x, b)
    count, channels, height, width = shape_of(x)
    x = relay.reshape(x, (count, channels, height // b, b, width // b, b))
    return relay.reshape(relay.transpose(x, [0, 1, 3, 5, 2, 4]), (count, channels * b * b, height // b, width // b))


@converter("ReverseSequence")
def _reverse_sequence(n, x):
    lengths = n.array(1, "sequence_lens")
    time, batch = n.get("time_axis", 0), n.get("batch_axis", 1)
    at = repeated(arange(shape_of(x)[time]), (len(lengths), shape_of(x)[time]))
    for row, m in zip(at, lengths):
        row[:m] = row[:m][::-1]
    lift = [1] * rank_of(x)
    lift[time], lift[batch] = at.shape[1], at.shape[0]
    at = at.T if time < batch else at
    return relay.gather(x, time, array(repeated(at.reshape(lift), shape_of(x)), "int32"))


@converter("Upsample")
def _upsample(n, x):
    scales = n.get("scales") if n.opset < 9 else n.array(1, "scales").tolist()
    sizes = [int(math.floor(k * s)) for k, s in zip(shape_of(x), scales)]
    mode = n.get("mode", "nearest")
    return c.resize(x, sizes, scales, "linear" if mode in ("linear", "bilinear") else mode, "asymmetric", "floor")


@converter("Resize")
def _resize(n, x):
    shape, old = shape_of(x), n.opset < 11
    scales = n.array(1 if old else 2, "scales")
    sizes = None if old else n.array(3, "sizes")
    axes = c.axes_of(n.get("axes"), len(shape))
    full_scales, full_sizes = [1.0] * len(shape), list(shape)
    if sizes is not None and sizes.size:
        ratio = [s / shape[a] for a, s in zip(axes, sizes)]
        policy = n.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = (min if policy == "not_larger" else max)(ratio)
            sizes, ratio = [int(math.floor(one * shape[a] + 0.5)) for a in axes], [one] * len(axes)
        for a, s, r in zip(axes, sizes, ratio):
            full_scales[a], full_sizes[a] = float(r), int(s)
    else:
        for a, s in zip(axes, scales):
            full_scales[a], full_sizes[a] = float(s), int(math.floor(shape[a] * float(s)))
    roi = None
    if n.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        given = n.array(1, "roi")
        roi = [(0.0, 1.0)] * len(shape)
        for i, a in enumerate(axes):
            roi[a] = float(given[i]), float(given[len(axes) + i])
    mode = n.get("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    rounding = n.get("nearest_mode", "floor" if old else "round_prefer_floor")
    return c.resize(x, full_sizes, full_scales, n.get("mode", "nearest"), mode, rounding, n.get("cubic_coeff_a", -0.75),
                    bool(n.get("exclude_outside")), roi, n.get("extrapolation_value", 0.0), bool(n.get("antialias")))  # fmt: skip


# ---- whole blocks ----


converter("RNN", "LSTM", "GRU")(lambda n: recurrent(n))


@converter("QuantizeLinear")
def _quantize(n):
    x, scale, zero = _scaled(n)
    kind = n.get("output_dtype", "uint8") if zero is None else dtype_of(zero)
    if kind not in ("uint8", "int8", "uint16", "int16"):
        n.refuse(f"quantised values of type {kind} are not supported")
    y = c.round_even(relay.divide(relay.cast(x, "float32"), relay.cast(scale, "float32")))
    y = relay.cast(y, "int32")
    y = y if zero is None else relay.add(y, relay.cast(zero, "int32"))
    info = np.iinfo(kind)
    return relay.cast(relay.clip(y, info.min, info.max), kind)


@converter("DequantizeLinear")
def _dequantize(n):
    x, scale, zero = _scaled(n)
    if is_float(dtype_of(x)):
        raise ValueError(f"{n}: its input holds {dtype_of(x)}; it must hold integers")
    y = relay.cast(x, "int32")
    y = y if zero is None else relay.subtract(y, relay.cast(zero, "int32"))
    return c.as_dtype(relay.multiply(relay.cast(y, dtype_of(scale)), scale), n.get("output_dtype", dtype_of(scale)))


def _scaled(n):
    """The data, and scale and zero point so that they broadcast with it."""
    x = n.input(0)
    if n.get("block_size"):
        n.refuse("scales of blocks are not supported")

    def lift(v):
        if v is None or rank_of(v) == 0:
            return v
        if shape_of(v) == (1,):  # of the whole tensor, whatever the axis
            return relay.reshape(v, ())
        after = rank_of(x) - n.axis(1, rank_of(x)) - 1
        return relay.expand_dims(v, 1, after) if after else v

    return x, lift(n.input(1)), lift(n.input(2))


converter("Einsum")(lambda n: einsum(n.get("equation"), n.inputs))
