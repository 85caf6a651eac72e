"""Element by element: functions of one operand and of several."""

from __future__ import annotations

import math

import numpy as np

from ....error import OpNotImplemented
from ....numerics import is_float
from ... import op as relay
from ...expr import Expr
from ...op import nn
from .. import common as c
from ..values import array, dtype_of, known, rank_of, shape_of
from .moving import split_sizes
from .table import ATEN, as_type, aten, each, real, result_type, together

# ---- element by element ----

for _n in ("abs", "neg:negative", "floor", "ceil", "trunc"):
    _aten, _, _ours = _n.partition(":")
    aten(_aten)(lambda x, f=getattr(relay, _ours or _aten): f(x))
for _n in ("exp", "log", "log2", "log10", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos",
           "atan", "asinh", "acosh", "atanh"):  # fmt: skip
    aten(_n)(lambda x, f=getattr(relay, _n): f(real(x)))
each(
    {
        "relu": nn.relu,
        "relu6": lambda x: relay.clip(x, 0, 6),
        "silu": lambda x: c.activation("Silu", x),
        "mish": lambda x: c.activation("Mish", x),
        "selu": lambda x: c.activation("Selu", x),
        "hardsigmoid": lambda x: c.activation("HardSigmoid", x, 1 / 6, 0.5),
        "hardswish": lambda x: c.activation("HardSwish", x),
        "log_sigmoid": lambda x: relay.negative(c.softplus(relay.negative(x))),
        "softsign": lambda x: c.activation("Softsign", x),
        "sign sgn": lambda x: x if dtype_of(x) == "bool" else relay.sign(x),
        "signbit": lambda x: relay.less(_copysign(c.scalar(1, real(x)), x), c.scalar(0, real(x))),
        "square": lambda x: relay.multiply(x, x) if dtype_of(x) != "bool" else relay.cast(x, "int64"),
        "reciprocal": lambda x: relay.divide(c.scalar(1, real(x)), real(x)),
        "log1p": lambda x: relay.log(relay.add(c.scalar(1, real(x)), real(x))),
        "expm1": lambda x: relay.subtract(relay.exp(real(x)), c.scalar(1, real(x))),
        "exp2": lambda x: relay.exp(relay.multiply(real(x), c.scalar(math.log(2), real(x)))),
        "erfc special_erfc": lambda x: relay.subtract(c.scalar(1, real(x)), relay.erf(real(x))),
        "angle": lambda x: relay.where(relay.less(x, c.scalar(0, x)), c.scalar(math.pi, real(x)), relay.multiply(real(x), c.scalar(0, real(x)))),
        "isnan": lambda x: relay.not_equal(x, x),
        "isinf": lambda x: relay.equal(relay.abs(x), c.scalar(np.inf, x)) if is_float(dtype_of(x)) else relay.not_equal(x, x),
        "isfinite": lambda x: relay.less(relay.abs(x), c.scalar(np.inf, x)) if is_float(dtype_of(x)) else relay.equal(x, x),
        "logical_not": lambda x: relay.logical_not(c.cast(x, "bool")),
        "bitwise_not": lambda x: relay.logical_not(x) if dtype_of(x) == "bool" else relay.bitwise_not(x),
        "alias clone contiguous detach lift_fresh lift_fresh_copy positive": lambda x, *_, **__: x,
    },
    lambda f: f,
)


@aten("dropout", "feature_dropout", "alpha_dropout", "native_dropout")
def _dropout(x, p, train):
    if train and p:
        raise OpNotImplemented("it is in training mode; call model.eval() before exporting")
    return x


@aten("gelu")
def _gelu(x, approximate="none"):
    return c.gelu(x, approximate == "tanh")


@aten("elu")
def _elu(x, alpha=1.0, scale=1.0, input_scale=1.0):
    if input_scale != 1:
        raise OpNotImplemented(f"input_scale={input_scale} is not supported")
    y = c.activation("Elu", x, alpha)
    return relay.multiply(y, c.scalar(scale, y)) if scale != 1 else y


@aten("celu")
def _celu(x, alpha=1.0):
    return c.activation("Celu", x, alpha)


@aten("leaky_relu")
def _leaky(x, slope=0.01):
    return nn.leaky_relu(x, slope)


@aten("prelu", "_prelu_kernel")
def _prelu(x, weight):
    if rank_of(weight) == 1 and rank_of(x) > 2:
        weight = relay.expand_dims(weight, 1, rank_of(x) - 2)
    return relay.where(relay.less(x, c.scalar(0, x)), relay.multiply(x, weight), x)


@aten("hardtanh")
def _hardtanh(x, low=-1.0, high=1.0):
    return relay.clip(x, low, high)


@aten("threshold")
def _threshold(x, threshold, value):
    return relay.where(relay.greater(x, c.scalar(threshold, x)), x, c.scalar(value, x))


@aten("softplus")
def _softplus(x, beta=1.0, threshold=20.0):
    y = c.softplus(x, beta)
    return y if beta * threshold >= 20 else relay.where(relay.greater(relay.multiply(x, c.scalar(beta, x)), c.scalar(threshold, x)), x, y)


@aten("glu")
def _glu(x, dim=-1):
    a, b = split_sizes(x, [shape_of(x)[dim] // 2] * 2, dim)
    return relay.multiply(a, relay.sigmoid(b))


@aten("round")
def _round(x, decimals=0):
    if not decimals:
        return c.round_even(x)
    there, back = (c.scalar(10.0 ** abs(decimals), x) for _ in range(2))
    if decimals < 0:
        return relay.multiply(c.round_even(relay.divide(x, there)), back)
    return relay.divide(c.round_even(relay.multiply(x, there)), back)


# ---- two operands ----


def _arithmetic(f):
    def convert(x, y, alpha=1):
        x, y = together(x, y)
        return f(x, y if alpha == 1 else relay.multiply(y, c.scalar(alpha, y)))

    return convert


def _truth(f):
    return lambda x, y: f(*(c.cast(v, "bool") for v in together(x, y)))


def _bits(logical, bitwise):
    def convert(x, y):
        x, y = together(x, y)
        return (logical if dtype_of(x) == "bool" else bitwise)(x, y)

    return convert


def _compare(f):
    def convert(x, y):
        x, y = together(x, y)
        if dtype_of(x) == "bool":
            x, y = relay.cast(x, "int8"), relay.cast(y, "int8")
        return f(x, y)

    return convert


each({"add": relay.add, "sub subtract": relay.subtract}, _arithmetic)
each({"mul multiply": relay.multiply, "maximum": relay.maximum, "minimum": relay.minimum}, _arithmetic)
each({"eq": relay.equal, "ne": relay.not_equal, "lt": relay.less, "le": relay.less_equal, "gt": relay.greater,
        "ge": relay.greater_equal}, _compare)  # fmt: skip
each({"logical_and": relay.logical_and, "logical_or": relay.logical_or, "logical_xor": relay.logical_xor}, _truth)
for _n in ("and", "or", "xor"):
    aten(f"bitwise_{_n}", f"__{_n}__")(_bits(getattr(relay, f"logical_{_n}"), getattr(relay, f"bitwise_{_n}")))


@aten("rsub")
def _rsub(x, y, alpha=1):
    return ATEN["aten::sub"](y, x if alpha == 1 else relay.multiply(x, c.scalar(alpha, x)))


@aten("div", "divide", "true_divide")
def _div(x, y, rounding_mode=None):
    x, y = together(x, y, real=rounding_mode is None)
    if rounding_mode == "floor":
        return relay.floor(relay.divide(x, y)) if is_float(dtype_of(x)) else relay.floor_divide(x, y)
    out = relay.divide(x, y)
    return relay.trunc(out) if rounding_mode == "trunc" and is_float(dtype_of(x)) else out


@aten("floor_divide")
def _floor_divide(x, y):
    return _div(x, y, "floor")


@aten("remainder")
def _remainder(x, y):
    return relay.floor_mod(*together(x, y))


@aten("fmod")
def _fmod(x, y):
    return relay.mod(*together(x, y))


@aten("pow")
def _pow(x, y):
    kind = result_type([x, y])
    if not is_float(kind) and not isinstance(y, int):
        raise OpNotImplemented("integers to the power of tensors are not supported")
    x = as_type(x, kind)
    y = y if isinstance(y, Expr) else array(y, "float32" if is_float(kind) else kind)
    return c.power(x if rank_of(x) or not known(x) else c.expand(x, shape_of(y)), y)


@aten("clamp", "clip")
def _clamp(x, min=None, max=None):
    kind = result_type([v for v in (x, min, max) if v is not None])
    bounds = [as_type(v, kind) if isinstance(v, Expr) else v for v in (min, max)]
    return c.clip(as_type(x, kind), *bounds)


@aten("clamp_min")
def _clamp_min(x, min):
    return _clamp(x, min)


@aten("clamp_max")
def _clamp_max(x, max):
    return _clamp(x, None, max)


@aten("where")
def _where(condition, x, y):
    x, y = together(x, y)
    return relay.where(condition, x, y)


@aten("masked_fill")
def _masked_fill(x, mask, value):
    return relay.where(mask, as_type(value, dtype_of(x)), x)


@aten("lerp")
def _lerp(x, y, weight):
    return relay.add(x, relay.multiply(as_type(weight, dtype_of(x)), relay.subtract(y, x)))


@aten("addcmul")
def _addcmul(x, a, b, value=1):
    return relay.add(x, relay.multiply(c.scalar(value, x), relay.multiply(a, b)))


@aten("addcdiv")
def _addcdiv(x, a, b, value=1):
    return relay.add(x, relay.divide(relay.multiply(c.scalar(value, x), a), b))


@aten("to.dtype", "to.prim_dtype", "type_as", "to.other")
def _to(x, dtype, *_, **__):
    return c.cast(x, dtype_of(dtype) if isinstance(dtype, Expr) else dtype)


@aten("to.device")
def _to_device(x, device, dtype, *_, **__):
    return c.cast(x, dtype)


@aten("to.dtype_layout", "_to_copy")
def _to_layout(x, *_, dtype=None, **__):
    return x if dtype is None else c.cast(x, dtype)


@aten("atan2", "arctan2")
def _atan2(y, x):
    y, x = together(y, x, real=True)
    zero, half = c.scalar(0, x), c.scalar(math.pi / 2, x)
    turn = relay.where(relay.less(y, zero), c.scalar(-math.pi, x), c.scalar(math.pi, x))
    at = relay.atan(relay.divide(y, x))
    at = relay.where(relay.less(x, zero), relay.add(at, turn), at)
    return relay.where(relay.equal(x, zero), relay.multiply(relay.sign(y), half), at)


@aten("hypot")
def _hypot(x, y):
    x, y = together(x, y)
    return relay.sqrt(relay.add(relay.multiply(x, x), relay.multiply(y, y)))


@aten("copysign")
def _copysign(x, y):
    x, y = together(x, y, real=True)
    zero, size = c.scalar(0, y), relay.abs(x)
    told = relay.where(relay.equal(y, zero), relay.divide(c.scalar(1, y), y), y)  # the sign of a zero
    return relay.where(relay.less(told, zero), relay.negative(size), size)


@aten("ldexp")
def _ldexp(x, y):
    x, y = together(x, y, real=True)
    return relay.multiply(x, ATEN["aten::exp2"](y))


def _but_nan(f):
    """An extreme of two that leaves a NaN out."""

    def convert(x, y):
        x, y = together(x, y)
        return relay.where(relay.not_equal(x, x), y, relay.where(relay.not_equal(y, y), x, f(x, y)))

    return convert


each({"fmax": relay.maximum, "fmin": relay.minimum}, _but_nan)


def _shift(f):
    def convert(x, y):
        """Of more bits than there are, and of less than none, nothing is left but the sign of what goes right."""
        x, y = together(x, y)
        zero, most = c.scalar(0, y), c.scalar(int(dtype_of(x).lstrip("uint")) - 1, y)
        beyond = relay.logical_or(relay.less(y, zero), relay.greater(y, most))
        out = f(x, relay.where(beyond, most, y))
        return out if f is relay.right_shift else relay.where(beyond, c.scalar(0, out), out)

    return convert


each({"bitwise_left_shift __lshift__": relay.left_shift, "bitwise_right_shift __rshift__": relay.right_shift}, _shift)
