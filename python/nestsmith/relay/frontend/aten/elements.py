"""Element by element: functions of one operand and of several."""

import math

import numpy as np

from ....error import OpNotImplemented
from ....numerics import is_float
from ... import op as relay
from ...expr import Expr
from ...op import nn
from .. import common as c
from ..values import dtype_of, known, rank_of, shape_of
from .moving import split_sizes
from .promotion import PAIR, REAL, STEPS, Types, constant, fitting, is_single, promoted, result_type
from .table import ATEN, aten, each

# ---- element by element ----

for _n in ("abs", "neg:negative", "floor", "ceil", "trunc"):
    _aten, _, _ours = _n.partition(":")
    aten(_aten)(lambda x, f=getattr(relay, _ours or _aten): f(x))
for _n in ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "erfc:erfc special_erfc", "sin",
           "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh"):  # fmt: skip
    _n, _, _aten = _n.partition(":")
    aten(*(_aten or _n).split(), types=REAL)(lambda x, f=getattr(relay, _n): f(x))
each({
    "relu": nn.relu,
    "relu6": lambda x: relay.clip(x, 0, 6),
    "sign sgn": lambda x: x if dtype_of(x) == "bool" else relay.sign(x),
    "square": lambda x: relay.multiply(x, x) if dtype_of(x) != "bool" else relay.cast(x, "int64"),
    "isnan": lambda x: relay.not_equal(x, x),
    "isinf": lambda x: relay.equal(relay.abs(x), c.scalar(np.inf, x)) if is_float(dtype_of(x)) else relay.not_equal(x, x),
    "isfinite": lambda x: relay.less(relay.abs(x), c.scalar(np.inf, x)) if is_float(dtype_of(x)) else relay.equal(x, x),
    "logical_not": lambda x: relay.logical_not(c.cast(x, "bool")),
    "bitwise_not": lambda x: relay.logical_not(x) if dtype_of(x) == "bool" else relay.bitwise_not(x),
    "alias clone contiguous detach lift_fresh lift_fresh_copy positive": lambda x, *_, **__: x,
})
each({
    "silu": lambda x: c.activation("Silu", x),
    "mish": lambda x: c.activation("Mish", x),
    "selu": lambda x: c.activation("Selu", x, 1.6732632423543772848, 1.0507009873554804934),  # ONNX has these as float32
    "hardsigmoid": lambda x: _hard_sigmoid(x),
    "hardswish": lambda x: relay.multiply(x, _hard_sigmoid(x)),
    "log_sigmoid": lambda x: c.log_sigmoid(x),
    "special_ndtr": lambda x: relay.multiply(relay.erfc(relay.multiply(x, c.scalar(-math.sqrt(0.5), x))), c.scalar(0.5, x)),
    "softsign": lambda x: c.activation("Softsign", x),
    "angle": lambda x: _angle(x),
}, types=STEPS)
each({"reciprocal": lambda x: relay.divide(c.scalar(1, x), x),
      "signbit": lambda x: relay.less(relay.copysign(c.scalar(1, x), x), c.scalar(0, x))}, types=REAL)  # fmt: skip


def _hard_sigmoid(x):
    """Not x / 6 + 0.5, which loses what is left of x near -3."""
    return relay.multiply(relay.clip(relay.add(x, c.scalar(3, x)), 0, 6), c.scalar(1 / 6, x))


def _angle(x):
    zero = c.scalar(0, x)
    return relay.where(relay.less(x, zero), c.scalar(math.pi, x), relay.where(relay.not_equal(x, x), x, zero))


@aten("dropout", "feature_dropout", "alpha_dropout", "native_dropout")
def _dropout(x, p, train):
    if train and p:
        raise OpNotImplemented("it is in training mode; call model.eval() before exporting")
    return x


aten("gelu", types=STEPS)(lambda x, approximate="none": c.gelu(x, approximate == "tanh"))


@aten("elu", types=Types("x", "alpha scale input_scale", wide="alpha scale input_scale", steps=True))
def _elu(x, alpha=1.0, scale=1.0, input_scale=1.0):
    if input_scale != 1:
        raise OpNotImplemented(f"input_scale={input_scale} is not supported")
    y = c.activation("Elu", x, alpha)
    return relay.multiply(y, c.scalar(scale, y)) if scale != 1 else y


aten("celu", types=Types("x", "alpha", wide="alpha", steps=True))(lambda x, alpha=1.0: c.activation("Celu", x, alpha))
aten("leaky_relu", types=Types("x", "slope", wide="slope"))(lambda x, slope=0.01: nn.leaky_relu(x, slope))


@aten("prelu", "_prelu_kernel")
def _prelu(x, weight):
    if not rank_of(x):
        weight = relay.reshape(weight, ())
    if rank_of(weight) == 1 and rank_of(x) > 2:
        weight = relay.expand_dims(weight, 1, rank_of(x) - 2)
    return relay.where(relay.less(x, c.scalar(0, x)), relay.multiply(x, weight), x)


@aten("rrelu")
def _rrelu(x, low=1 / 8, high=1 / 3, training=False):
    """In evaluation mode: the mean of the bounds is the slope."""
    if training:
        raise OpNotImplemented("rrelu in training mode draws numbers: compile the model in evaluation mode (model.eval())")
    return relay.where(relay.less(x, c.scalar(0, x)), relay.multiply(x, c.scalar((low + high) / 2, x)), x)


aten("rrelu_with_noise")(lambda x, noise, *given: _rrelu(x, *given))
aten("rrelu_with_noise_functional")(lambda x, noise, *given: [_rrelu(x, *given), noise])


@aten("hardtanh")
def _hardtanh(x, low=-1.0, high=1.0):
    return _clamp(x, *((low, high) if is_float(dtype_of(x)) else (int(low), int(high))))


@aten("threshold", types=Types("x", "threshold value", fits="threshold value"))
def _threshold(x, threshold, value):
    return relay.where(relay.less_equal(x, c.scalar(threshold, x)), c.scalar(value, x), x)


@aten("softplus", types=Types("x", "beta threshold", wide="beta threshold", steps=True))
def _softplus(x, beta=1.0, threshold=20.0):
    y = c.softplus(x, beta)
    return y if beta * threshold >= 20 else relay.where(relay.greater(relay.multiply(x, c.scalar(beta, x)), c.scalar(threshold, x)), x, y)


@aten("glu", types=STEPS)
def _glu(x, dim=-1):
    a, b = split_sizes(x, [shape_of(x)[dim] // 2] * 2, dim)
    return relay.multiply(a, relay.sigmoid(b))


@aten("round", types=Types("x", steps=True))
def _round(x, decimals=0):
    if not decimals:
        return relay.round(x)
    there, back = (c.scalar(10.0 ** abs(decimals), x) for _ in range(2))
    if decimals < 0:
        return relay.multiply(relay.round(relay.divide(x, there)), back)
    return relay.divide(relay.round(relay.multiply(x, there)), back)


# ---- two operands ----


_SCALED = Types("x y", "alpha", steps="alpha", fits="alpha")


def _of_two(f):
    return lambda x, y: f(x, y)


def _scaled(f):
    return lambda x, y, alpha=1: f(x, y if alpha == 1 else relay.multiply(y, c.scalar(alpha, y)))


def _truth(f):
    return lambda x, y: f(c.cast(x, "bool"), c.cast(y, "bool"))


def _bits(logical, bitwise):
    return lambda x, y: (logical if dtype_of(x) == "bool" else bitwise)(x, y)


def _compare(f):
    def convert(x, y):
        if dtype_of(x) == "bool":
            x, y = relay.cast(x, "int8"), relay.cast(y, "int8")
        return f(x, y)

    return convert


def _logical(f, of_truth):
    """`f`, of truth values another operator."""
    return lambda x, y: (of_truth if dtype_of(x) == "bool" else f)(x, y)


each({"add": _logical(relay.add, relay.logical_or), "sub subtract": relay.subtract}, _scaled, _SCALED)
each({"mul multiply": _logical(relay.multiply, relay.logical_and)}, _of_two, Types("x y", wide="y"))
each({"maximum": _logical(relay.maximum, relay.logical_or), "minimum": _logical(relay.minimum, relay.logical_and)}, _of_two, PAIR)
each({"eq": relay.equal, "ne": relay.not_equal, "lt": relay.less, "le": relay.less_equal, "gt": relay.greater,
        "ge": relay.greater_equal}, _compare, PAIR)  # fmt: skip
each({"logical_and": relay.logical_and, "logical_or": relay.logical_or, "logical_xor": relay.logical_xor}, _truth, PAIR)
for _n in ("and", "or", "xor"):
    aten(f"bitwise_{_n}", f"__{_n}__", types=PAIR)(_bits(getattr(relay, f"logical_{_n}"), getattr(relay, f"bitwise_{_n}")))


aten("rsub")(lambda x, y, alpha=1: ATEN["aten::sub"](y, x, alpha))


@aten("div", "divide", "true_divide")
def _div(x, y, rounding_mode=None):
    if rounding_mode is None:
        return _true_quotient(x, y)
    # Of two tensors PyTorch rounds the quotient to 16 bits before it is cut.
    return (_whole_quotient if rounding_mode == "floor" or is_single(y) else _cut_quotient)(x, y, rounding_mode)


_true_quotient = promoted(lambda x, y: relay.divide(x, y), Types("x y", real=True, wide="y"))


def _whole(x, y, rounding_mode):
    if rounding_mode == "floor":
        return relay.floor_divide(x, y)
    return relay.trunc(relay.divide(x, y)) if is_float(dtype_of(x)) else relay.divide(x, y)


_whole_quotient, _cut_quotient = promoted(_whole, Types("x y", wide="y", steps=True)), promoted(_whole, PAIR)


aten("floor_divide")(lambda x, y: _div(x, y, "floor"))
aten("remainder", types=Types("x y", steps=True))(lambda x, y: relay.floor_mod(x, y))
aten("fmod", types=Types("x y", steps=True))(lambda x, y: relay.mod(x, y))


@aten("pow", types=Types("x y", steps=True, fits="y"))
def _pow(x, y):
    if is_float(dtype_of(x)):
        return c.power(x if rank_of(x) or not known(x) else c.expand(x, shape_of(y)), y)
    return _whole_power(x, y)


def _whole_power(x, y):
    """Integers to integers: products of the squares x, x^2, x^4, ... that the bits of y ask for. Of negative powers only those of 1
    and -1 are whole; the others are 0."""
    kind, one = dtype_of(x), c.scalar(1, x)
    if kind == "bool":
        return relay.logical_or(x, relay.logical_not(y))
    exponent = int(y.numbers.item()) if known(y) and y.data.size == 1 else None
    if exponent is not None and exponent < 0:
        raise ValueError(f"integers to the power {exponent}: PyTorch has none of integers to negative powers")
    out, square = None, x
    for bit in range(int(exponent).bit_length() if exponent is not None else np.iinfo(kind).bits - (kind[0] != "u")):
        if exponent is None:
            odd = relay.not_equal(relay.bitwise_and(y, c.scalar(1 << bit, y)), c.scalar(0, y))
            factor = relay.where(odd, square, one)
        else:
            factor = square if exponent >> bit & 1 else None
        out = factor if out is None else out if factor is None else relay.multiply(out, factor)
        square = c.now(relay.multiply(square, square))
    if exponent is not None:
        return c.expand(one, shape_of(x)) if out is None else out
    if kind[0] == "u":
        return out
    odd = relay.not_equal(relay.bitwise_and(y, one), c.scalar(0, y))
    sign = relay.where(odd, x, one)
    unit = relay.equal(relay.abs(x), one)
    return relay.where(relay.less(y, c.scalar(0, y)), relay.where(unit, sign, c.scalar(0, x)), out)


@aten("clamp", "clip")
def _clamp(x, min=None, max=None):
    kind = result_type([v for v in (x, min, max) if v is not None])
    return _clamped(x, _bound(min, kind, -1), _bound(max, kind, 1))


def _bound(v, kind, side):
    """A bound of integers, None if it lies beyond all of them; an error if all of them lie beyond it."""
    if v is None or isinstance(v, Expr) or kind == "bool" or is_float(kind):
        return v
    limits = np.iinfo(kind)
    if v > limits.max if side < 0 else v < limits.min:
        raise ValueError(f"{'min' if side < 0 else 'max'}={v} is beyond {kind}, which reaches from {limits.min} to {limits.max}")
    return None if (v < limits.min if side < 0 else v > limits.max) else v


_clamped = promoted(lambda x, min, max: c.clip(x, min, max), Types("x min max", fits="min max"))


aten("clamp_min")(lambda x, min: _clamp(x, min))
aten("clamp_max")(lambda x, max: _clamp(x, None, max))


@aten("where")
def _where(condition, x, y):
    kind = result_type([x, y])
    if not is_float(kind):  # PyTorch refuses integers that do not fit, and not floats
        x, y = (v if isinstance(v, Expr) else fitting(v, kind, "a choice of where") for v in (x, y))
    return _chosen(c.cast(condition, "bool"), x, y)


_chosen = promoted(lambda condition, x, y: relay.where(condition, x, y), PAIR)


@aten("masked_fill")
def _masked_fill(x, mask, value):
    value = c.cast(value, dtype_of(x)) if isinstance(value, Expr) else constant(value, dtype_of(x), "value")
    return relay.where(c.cast(mask, "bool"), value, x)


@aten("lerp", types=Types("x y weight", wide="weight", steps=True))
def _lerp(x, y, weight):
    """From the nearer end, so that a weight of 1 gives it exactly."""
    gap, one = relay.subtract(y, x), c.scalar(1, x)
    first = relay.add(x, relay.multiply(weight, gap))
    last = relay.subtract(y, relay.multiply(gap, relay.subtract(one, weight)))
    if known(weight) and weight.data.size == 1:
        return first if abs(weight.numbers.item()) < 0.5 else last
    return relay.where(relay.less(relay.abs(weight), c.scalar(0.5, weight)), first, last)


_PRODUCT = Types("x a b", "value", wide="value", steps=True, fits="value")


@aten("addcmul", types=_PRODUCT)
def _addcmul(x, a, b, value=1):
    a = a if value == 1 else relay.multiply(c.scalar(value, a), a)
    return relay.add(x, relay.multiply(a, b))


@aten("addcdiv", types=_PRODUCT)
def _addcdiv(x, a, b, value=1):
    a = a if value == 1 else relay.multiply(c.scalar(value, a), a)
    return relay.add(x, relay.divide(a, b))


@aten("to.dtype", "to.prim_dtype", "type_as", "to.other")
def _to(x, dtype, *_, **__):
    return c.cast(x, dtype_of(dtype) if isinstance(dtype, Expr) else dtype)


aten("to.device")(lambda x, device, dtype, *_, **__: c.cast(x, dtype))
aten("to.dtype_layout", "_to_copy")(lambda x, *_, dtype=None, **__: x if dtype is None else c.cast(x, dtype))


def _times_log(log):
    """x log(y), 0 where x is 0, whatever y is but for NaN."""

    def convert(x, y):
        zero = c.scalar(0, x)
        out = relay.where(relay.equal(x, zero), zero, relay.multiply(x, log(y)))
        return relay.where(relay.not_equal(y, y), y, out)

    return convert


each({
    "atan2 arctan2": relay.atan2,
    "hypot": relay.hypot,
    "copysign": relay.copysign,
    "logaddexp": c.log_add_exp,
    "xlogy special_xlogy": _times_log(relay.log),
    "special_xlog1py": _times_log(relay.log1p),
}, lambda f: lambda x, y: f(x, y), Types("x y", real=True, steps=True))


aten("ldexp", types=Types("x y", real=True, steps=True))(lambda x, y: relay.multiply(x, relay.exp2(y)))


def _but_nan(f):
    """An extreme of two that leaves a NaN out."""

    def convert(x, y):
        if not is_float(dtype_of(x)):
            return f(x, y)
        return relay.where(relay.not_equal(x, x), y, relay.where(relay.not_equal(y, y), x, f(x, y)))

    return convert


each({"fmax": ATEN["aten::maximum"], "fmin": ATEN["aten::minimum"]}, _but_nan, PAIR)


def _shift(f):
    def convert(x, y):
        """Of more bits than there are, and of less than none, nothing is left but the sign of what goes right."""
        zero, most = c.scalar(0, y), c.scalar(int(dtype_of(x).lstrip("uint")) - 1, y)
        beyond = relay.logical_or(relay.less(y, zero), relay.greater(y, most))
        out = f(x, relay.where(beyond, most, y))
        return out if f is relay.right_shift else relay.where(beyond, c.scalar(0, out), out)

    return convert


each({"bitwise_left_shift __lshift__": relay.left_shift, "bitwise_right_shift __rshift__": relay.right_shift}, _shift, PAIR)
