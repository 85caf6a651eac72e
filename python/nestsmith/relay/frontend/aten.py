"""Converters of PyTorch's operators: plain functions with the arguments of their schemas, in one table.

Tensors arrive as expressions (known ones as constants), everything else as Python values, element types by our names. A
converter that PyTorch's own type rules concern brings its arguments to one type itself; the importer compares every result with
the shape and the type that PyTorch computed.
"""

from __future__ import annotations

import math

import numpy as np

from ...error import OpNotImplemented
from ...numerics import is_float
from .. import op as relay
from ..expr import Expr
from ..op import nn
from . import common as c
from .recurrent import recurrent
from .values import Node, array, dtype_of, known, rank_of, shape_of

__all__ = ["ATEN", "aten"]

ATEN: dict = {}


def aten(*names):
    """Registers a function for operators of the namespace ``aten``, all overloads or (``"name.overload"``) one."""

    def add(f):
        for name in names:
            ATEN[f"aten::{name}"] = f
        return f

    return add


def _table(rows, make):
    for names, what in rows.items():
        aten(*names.split())(make(what))


# ---- element types ----

_KINDS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def _category(dtype):
    return 0 if dtype == "bool" else 2 if is_float(dtype) else 1


def _result_type(values):
    """PyTorch's rule: among the operands of the highest category, tensors come before tensors without axes, and these before
    Python's numbers."""
    ranked = []
    for v in values:
        if isinstance(v, Expr):
            ranked.append((dtype_of(v), 0 if rank_of(v) else 1))
        else:
            ranked.append(("bool" if isinstance(v, bool) else "int64" if isinstance(v, int) else "float32", 2))
    top = max(_category(d) for d, _ in ranked)
    first = min(level for _, level in ranked)
    have = [d for d, level in ranked if level == first]
    if max(map(_category, have)) < top:
        level = min(level for d, level in ranked if _category(d) == top)
        have = [d for d, at in ranked if at == level and _category(d) == top]
    kinds = set(have)
    if {"float16", "bfloat16"} <= kinds:
        kinds.add("float32")
    if "uint8" in kinds and "int8" in kinds:
        kinds.add("int16")
    return max(kinds, key=_KINDS.index)


def _as(v, dtype):
    if isinstance(v, Expr):
        return c.cast(v, dtype)
    return array(v, dtype)


def _together(*values, real=False):
    """The values as expressions of one type; `real`: a floating one."""
    kind = _result_type(values)
    kind = "float32" if real and not is_float(kind) else kind
    return [_as(v, kind) for v in values]


def _real(x):
    return x if is_float(dtype_of(x)) else relay.cast(x, "float32")


def _axes(dim):
    """An argument `dim` as a list; None for all axes."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return [dim] if isinstance(dim, int) else list(dim)


def _per_axis(v, n):
    v = [v] if isinstance(v, int) else list(v)
    return v * n if len(v) == 1 else v


def _s(value, like):
    return c.scalar(value, like)


# ---- element by element ----

for _n in ("abs", "neg:negative", "floor", "ceil", "trunc", "sign"):
    _aten, _, _ours = _n.partition(":")
    aten(_aten)(lambda x, f=getattr(relay, _ours or _aten): f(x))
for _n in ("exp", "log", "log2", "log10", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos",
           "atan", "asinh", "acosh", "atanh"):  # fmt: skip
    aten(_n)(lambda x, f=getattr(relay, _n): f(_real(x)))
_table(
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
        "square": lambda x: relay.multiply(x, x),
        "reciprocal": lambda x: relay.divide(_s(1, _real(x)), _real(x)),
        "log1p": lambda x: relay.log(relay.add(_s(1, x), x)),
        "expm1": lambda x: relay.subtract(relay.exp(x), _s(1, x)),
        "isnan": lambda x: relay.not_equal(x, x),
        "isinf": lambda x: relay.equal(relay.abs(x), _s(np.inf, x)) if is_float(dtype_of(x)) else relay.not_equal(x, x),
        "isfinite": lambda x: relay.less(relay.abs(x), _s(np.inf, x)) if is_float(dtype_of(x)) else relay.equal(x, x),
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
    return relay.multiply(y, _s(scale, y)) if scale != 1 else y


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
    return relay.where(relay.less(x, _s(0, x)), relay.multiply(x, weight), x)


@aten("hardtanh")
def _hardtanh(x, low=-1.0, high=1.0):
    return relay.clip(x, low, high)


@aten("threshold")
def _threshold(x, threshold, value):
    return relay.where(relay.greater(x, _s(threshold, x)), x, _s(value, x))


@aten("softplus")
def _softplus(x, beta=1.0, threshold=20.0):
    y = c.softplus(x, beta)
    return y if beta * threshold >= 20 else relay.where(relay.greater(relay.multiply(x, _s(beta, x)), _s(threshold, x)), x, y)


@aten("glu")
def _glu(x, dim=-1):
    a, b = _split_sizes(x, [shape_of(x)[dim] // 2] * 2, dim)
    return relay.multiply(a, relay.sigmoid(b))


@aten("round")
def _round(x, decimals=0):
    if decimals:
        raise OpNotImplemented("rounding to decimals is not supported")
    return c.round_even(x)


# ---- two operands ----


def _arithmetic(f):
    def convert(x, y, alpha=1):
        x, y = _together(x, y)
        return f(x, y if alpha == 1 else relay.multiply(y, _s(alpha, y)))

    return convert


def _truth(f):
    return lambda x, y: f(*(c.cast(v, "bool") for v in _together(x, y)))


def _bits(logical, bitwise):
    def convert(x, y):
        x, y = _together(x, y)
        return (logical if dtype_of(x) == "bool" else bitwise)(x, y)

    return convert


def _compare(f):
    def convert(x, y):
        x, y = _together(x, y)
        if dtype_of(x) == "bool":
            x, y = relay.cast(x, "int8"), relay.cast(y, "int8")
        return f(x, y)

    return convert


_table({"add": relay.add, "sub subtract": relay.subtract}, _arithmetic)
_table({"mul multiply": relay.multiply, "maximum": relay.maximum, "minimum": relay.minimum}, _arithmetic)
_table({"eq": relay.equal, "ne": relay.not_equal, "lt": relay.less, "le": relay.less_equal, "gt": relay.greater,
        "ge": relay.greater_equal}, _compare)  # fmt: skip
_table({"logical_and": relay.logical_and, "logical_or": relay.logical_or, "logical_xor": relay.logical_xor}, _truth)
for _n in ("and", "or", "xor"):
    aten(f"bitwise_{_n}", f"__{_n}__")(_bits(getattr(relay, f"logical_{_n}"), getattr(relay, f"bitwise_{_n}")))


@aten("rsub")
def _rsub(x, y, alpha=1):
    return ATEN["aten::sub"](y, x if alpha == 1 else relay.multiply(x, _s(alpha, x)))


@aten("div", "divide", "true_divide")
def _div(x, y, rounding_mode=None):
    x, y = _together(x, y, real=rounding_mode is None)
    if rounding_mode == "floor":
        return relay.floor(relay.divide(x, y)) if is_float(dtype_of(x)) else relay.floor_divide(x, y)
    out = relay.divide(x, y)
    return relay.trunc(out) if rounding_mode == "trunc" and is_float(dtype_of(x)) else out


@aten("floor_divide")
def _floor_divide(x, y):
    return _div(x, y, "floor")


@aten("remainder")
def _remainder(x, y):
    return relay.floor_mod(*_together(x, y))


@aten("fmod")
def _fmod(x, y):
    return relay.mod(*_together(x, y))


@aten("pow")
def _pow(x, y):
    kind = _result_type([x, y])
    if not is_float(kind) and not isinstance(y, int):
        raise OpNotImplemented("integers to the power of tensors are not supported")
    x = _as(x, kind)
    y = y if isinstance(y, Expr) else array(y, "float32" if is_float(kind) else kind)
    return c.power(x if rank_of(x) or not known(x) else c.expand(x, shape_of(y)), y)


@aten("clamp", "clip")
def _clamp(x, min=None, max=None):
    kind = _result_type([v for v in (x, min, max) if v is not None])
    bounds = [_as(v, kind) if isinstance(v, Expr) else v for v in (min, max)]
    return c.clip(_as(x, kind), *bounds)


@aten("clamp_min")
def _clamp_min(x, min):
    return _clamp(x, min)


@aten("clamp_max")
def _clamp_max(x, max):
    return _clamp(x, None, max)


@aten("where")
def _where(condition, x, y):
    x, y = _together(x, y)
    return relay.where(condition, x, y)


@aten("masked_fill")
def _masked_fill(x, mask, value):
    return relay.where(mask, _as(value, dtype_of(x)), x)


@aten("lerp")
def _lerp(x, y, weight):
    return relay.add(x, relay.multiply(_as(weight, dtype_of(x)), relay.subtract(y, x)))


@aten("addcmul")
def _addcmul(x, a, b, value=1):
    return relay.add(x, relay.multiply(_s(value, x), relay.multiply(a, b)))


@aten("addcdiv")
def _addcdiv(x, a, b, value=1):
    return relay.add(x, relay.divide(relay.multiply(_s(value, x), a), b))


@aten("to.dtype", "to.prim_dtype", "type_as", "to.other")
def _to(x, dtype, *_, **__):
    return c.cast(x, dtype_of(dtype) if isinstance(dtype, Expr) else dtype)


@aten("to.device")
def _to_device(x, device, dtype, *_, **__):
    return c.cast(x, dtype)


@aten("to.dtype_layout", "_to_copy")
def _to_layout(x, *_, dtype=None, **__):
    return x if dtype is None else c.cast(x, dtype)


# ---- products ----


@aten("linear")
def _linear(x, weight, bias=None):
    if rank_of(x) == 1:
        return relay.squeeze(c.linear(relay.expand_dims(x, 0), weight, bias), [0])
    return c.linear(x, weight, bias)


aten("matmul", "mm", "bmm", "dot", "mv")(c.matmul)


def _scaled(x, factor):
    return x if factor == 1 else relay.multiply(x, _s(factor, x))


@aten("addmm", "baddbmm")
def _addmm(bias, a, b, beta=1, alpha=1):
    y = _scaled(c.matmul(a, b), alpha)
    return y if beta == 0 else relay.add(y, _scaled(bias, beta))


@aten("outer")
def _outer(a, b):
    return relay.multiply(relay.expand_dims(a, 1), relay.expand_dims(b, 0))


@aten("scaled_dot_product_attention")
def _attention(q, k, v, mask=None, dropout=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout:
        raise OpNotImplemented("it drops values out; call model.eval() before exporting")
    return c.attention(q, k, v, mask, is_causal, scale)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention(q, k, v, dropout=0.0, is_causal=False, attn_mask=None, scale=None):
    return [_attention(q, k, v, attn_mask, dropout, is_causal, scale), None]


# ---- windows ----


def _batched(x, dims, f):
    """``f(x)``, which takes NC* data, also of data without the axis N."""
    return f(x) if rank_of(x) == dims + 2 else relay.squeeze(f(relay.expand_dims(x, 0)), [0])


@aten("conv1d", "conv2d", "conv3d")
def _conv(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    dims = rank_of(weight) - 2
    dilation = _per_axis(dilation, dims)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, shape_of(weight)[2:])]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
        if pads[:dims] != pads[dims:]:
            x, pads = c.pad(x, [0, 0, *pads[:dims]], [0, 0, *pads[dims:]]), [0] * 2 * dims
    else:
        pads = _per_axis(0 if padding == "valid" else padding, dims) * 2
    return _batched(x, dims, lambda v: c.convolution(v, weight, bias, _per_axis(stride, dims), pads, dilation, groups))


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    dims = rank_of(weight) - 2
    stride, padding, more, dilation = (_per_axis(v, dims) for v in (stride, padding, output_padding, dilation))
    return _batched(x, dims, lambda v: c.transposed_convolution(v, weight, bias, stride, padding * 2, dilation, groups, more))


@aten("convolution")
def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed:
        return _conv_transpose(x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(x, weight, bias, stride, padding, dilation, groups)


def _pool(kind, dims):
    def windows(x, size, stride, padding, dilation, ceil_mode, include):
        size = _per_axis(size, dims)
        stride = _per_axis(stride, dims) if stride not in (None, [], ()) else size
        pads = _per_axis(padding, dims) * 2
        return _batched(x, dims, lambda v: c.pool(kind, v, size, stride, pads, _per_axis(dilation, dims), ceil_mode, include))

    def highest(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        return windows(x, kernel_size, stride, padding, dilation, ceil_mode, False)

    def average(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        y = windows(x, kernel_size, stride, padding, 1, ceil_mode, count_include_pad or divisor_override is not None)
        if divisor_override is None:
            return y
        if ceil_mode:
            raise OpNotImplemented("divisor_override together with ceil_mode is not supported")
        return relay.multiply(y, _s(math.prod(_per_axis(kernel_size, dims)) / divisor_override, y))

    return highest if kind == "max" else average


def _adaptive(kind, dims):
    def convert(x, output_size):
        size = _per_axis(output_size, dims)
        if dims == 2 and size == [1, 1]:
            return _batched(x, dims, getattr(nn, f"global_{kind}_pool2d"))
        return _batched(x, dims, lambda v: getattr(nn, f"adaptive_{kind}_pool{dims}d")(v, size))

    return convert


for _d in (1, 2, 3):
    for _k in ("max", "avg"):
        aten(f"{_k}_pool{_d}d")(_pool(_k, _d))
        aten(f"adaptive_{_k}_pool{_d}d")(_adaptive(_k, _d))
    # These also give the places of the maxima, which most networks do not read.
    aten(f"max_pool{_d}d_with_indices")(lambda *a, f=ATEN[f"aten::max_pool{_d}d"], **k: [f(*a, **k), None])
    aten(f"adaptive_max_pool{_d}d")(lambda *a, f=_adaptive("max", _d): [f(*a), None])
aten("_adaptive_avg_pool2d")(ATEN["aten::adaptive_avg_pool2d"])
aten("_adaptive_avg_pool3d")(ATEN["aten::adaptive_avg_pool3d"])


# ---- normalisations ----


@aten("batch_norm")
def _batch_norm(x, weight, bias, mean, var, training, momentum, eps, cudnn=False):
    if training:
        raise OpNotImplemented("it is in training mode; call model.eval() before exporting")
    shape = shape_of(mean)
    weight = array(np.ones(shape), dtype_of(mean)) if weight is None else weight
    bias = array(np.zeros(shape), dtype_of(mean)) if bias is None else bias
    return nn.batch_norm(x, *(c.as_dtype(v, dtype_of(x)) for v in (weight, bias, mean, var)), epsilon=eps)[0]


@aten("_native_batch_norm_legit_no_training")
def _native_batch_norm(x, weight, bias, mean, var, momentum, eps):
    return [_batch_norm(x, weight, bias, mean, var, False, momentum, eps), None, None]


def _affine(x, weight, bias, make):
    """``make(weight, bias)`` with those that are missing made."""
    shape = (shape_of(x)[1],)
    kind = dtype_of(x)
    return make(array(np.ones(shape), kind) if weight is None else weight, array(np.zeros(shape), kind) if bias is None else bias)


@aten("instance_norm")
def _instance_norm(x, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn=False):
    if not use_input_stats:
        return _batch_norm(x, weight, bias, mean, var, False, momentum, eps)
    return _affine(x, weight, bias, lambda w, b: nn.instance_norm(x, w, b, axis=1, epsilon=eps))


@aten("group_norm")
def _group_norm(x, num_groups, weight=None, bias=None, eps=1e-5, cudnn=False):
    return _affine(x, weight, bias, lambda w, b: nn.group_norm(x, w, b, num_groups, axis=1, epsilon=eps))


def _last(x, shape):
    return list(range(rank_of(x) - len(shape), rank_of(x)))


@aten("layer_norm")
def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn=False):
    return c.layer_norm(x, _last(x, normalized_shape), weight, bias, eps)


@aten("native_layer_norm")
def _native_layer_norm(x, normalized_shape, weight, bias, eps):
    return [_layer_norm(x, normalized_shape, weight, bias, eps), None, None]


@aten("rms_norm")
def _rms_norm(x, normalized_shape, weight=None, eps=None):
    y = c.normalized(x, _last(x, normalized_shape), 2**-23 if eps is None else eps, mean=False)
    return y if weight is None else relay.multiply(y, weight)


@aten("softmax", "_softmax")
def _softmax(x, dim, dtype=None, log=False):
    kind = dtype if isinstance(dtype, str) else dtype_of(x)
    return c.softmax(c.as_dtype(x, kind), dim, log)


@aten("log_softmax", "_log_softmax")
def _log_softmax(x, dim, dtype=None):
    return _softmax(x, dim, dtype, True)


# ---- reductions ----


def _summed(x, dtype):
    kind = dtype_of(x) if is_float(dtype_of(x)) else "int64"
    return c.cast(x, dtype or kind)


@aten("sum")
def _sum(x, dim=None, keepdim=False, dtype=None):
    return c.reduce("sum", _summed(x, dtype), _axes(dim), keepdim)


@aten("prod")
def _prod(x, dim=None, keepdim=False, dtype=None):
    return c.reduce("prod", _summed(x, dtype), _axes(dim), keepdim)


@aten("mean")
def _mean(x, dim=None, keepdim=False, dtype=None):
    return c.reduce("mean", c.cast(x, dtype or dtype_of(x)), _axes(dim), keepdim)


@aten("amax")
def _amax(x, dim=None, keepdim=False):
    return c.extreme("max", x, _axes(dim), keepdim)


@aten("amin")
def _amin(x, dim=None, keepdim=False):
    return c.extreme("min", x, _axes(dim), keepdim)


@aten("any")
def _any(x, dim=None, keepdim=False):
    return c.reduce("any", c.cast(x, "bool"), _axes(dim), keepdim)


@aten("all")
def _all(x, dim=None, keepdim=False):
    return c.reduce("all", c.cast(x, "bool"), _axes(dim), keepdim)


def _most(kind):
    where = getattr(relay, f"arg{kind}")

    def place(x, dim=None, keepdim=False):
        y = relay.reshape(x, (-1,)) if dim is None else x
        at = where(y, 0 if dim is None else dim, keepdims=keepdim and dim is not None)
        return relay.cast(relay.reshape(at, (1,) * rank_of(x)) if keepdim and dim is None else at, "int64")

    def both(x, dim=None, keepdim=False):
        """Of a tensor its extreme, of an axis extremes and places, of two tensors the larger or smaller."""
        if isinstance(dim, Expr):
            return ATEN[f"aten::{kind}imum"](x, dim)
        if dim is None:
            return c.extreme(kind, x, None, False)
        return [c.extreme(kind, x, [dim], keepdim), place(x, dim, keepdim)]

    aten(kind)(both)
    aten(f"arg{kind}")(place)


_most("max")
_most("min")


def _spread(x, dim, correction, unbiased, keepdim):
    """The variance over axes; of a sample if `correction` is 1."""
    if isinstance(dim, bool):  # the overload var(x, unbiased)
        dim, unbiased = None, dim
    if isinstance(unbiased, bool):
        correction = int(unbiased)
    axes = c.axes_of(_axes(dim), rank_of(x))
    count = math.prod(shape_of(x)[a] for a in axes)
    correction = 1 if correction is None else correction
    y = relay.variance(x, axes, keepdims=keepdim)
    return _scaled(y, count / (count - correction)) if correction else y


@aten("var")
def _var(x, dim=None, unbiased=None, keepdim=False, correction=None):
    return _spread(x, dim, correction, unbiased, keepdim)


@aten("std")
def _std(x, dim=None, unbiased=None, keepdim=False, correction=None):
    return relay.sqrt(_spread(x, dim, correction, unbiased, keepdim))


@aten("var_mean")
def _var_mean(x, dim=None, unbiased=None, keepdim=False, correction=None):
    return [_spread(x, dim, correction, unbiased, keepdim), _mean(x, None if isinstance(dim, bool) else dim, keepdim)]


@aten("linalg_vector_norm", "norm")
def _norm(x, ord=2, dim=None, keepdim=False, dtype=None):
    x, axes = c.cast(x, dtype or dtype_of(x)), _axes(dim)
    ord = 2 if ord is None else float(ord)
    if ord == 2:
        return relay.sqrt(c.reduce("sum", relay.multiply(x, x), axes, keepdim))
    if ord in (1, np.inf, -np.inf):
        return c.reduce({1: "sum", np.inf: "max", -np.inf: "min"}[ord], relay.abs(x), axes, keepdim)
    return relay.power(c.reduce("sum", relay.power(relay.abs(x), _s(ord, x)), axes, keepdim), _s(1 / ord, x))


@aten("logsumexp")
def _logsumexp(x, dim, keepdim=False):
    return relay.logsumexp(x, c.axes_of(_axes(dim), rank_of(x)), keepdim)


@aten("cumsum")
def _cumsum(x, dim, dtype=None):
    return relay.cumsum(_summed(x, dtype), dim % rank_of(x))


@aten("topk")
def _topk(x, k, dim=-1, largest=True, sorted=True):
    return relay.topk(x, k, dim, "both", not largest, "int64")


@aten("sort")
def _sort(x, dim=-1, descending=False):
    return relay.topk(x, shape_of(x)[dim], dim, "both", not descending, "int64")


aten("sort.stable")(lambda x, stable=None, dim=-1, descending=False: _sort(x, dim, descending))


@aten("argsort")
def _argsort(x, dim=-1, descending=False):
    return relay.argsort(x, dim, not descending, "int64")


# ---- moving data ----


@aten("view", "reshape", "_unsafe_view", "view_copy", "_reshape_alias")
def _view(x, size, *_):
    if isinstance(size, str):
        raise OpNotImplemented("a view of the bits as another type is not supported")
    return x if tuple(size) == shape_of(x) else relay.reshape(x, tuple(size), allowzero=True)


@aten("flatten")
def _flatten(x, start_dim=0, end_dim=-1):
    shape = shape_of(x)
    if not shape:
        return relay.reshape(x, (1,))
    first, last = start_dim % len(shape), end_dim % len(shape)
    if first == 1 and last == len(shape) - 1:
        return nn.batch_flatten(x) if len(shape) > 2 else x
    return _view(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@aten("unflatten")
def _unflatten(x, dim, sizes):
    shape, at = shape_of(x), dim % rank_of(x)
    return _view(x, (*shape[:at], *sizes, *shape[at + 1 :]))


@aten("permute")
def _permute(x, dims):
    order = [d % rank_of(x) for d in dims]
    return x if order == sorted(order) else relay.transpose(x, order)


@aten("transpose", "swapaxes", "swapdims")
def _transpose(x, a=0, b=1):
    order = list(range(rank_of(x)))
    if order:
        order[a], order[b] = order[b], order[a]
    return _permute(x, order)


@aten("t", "numpy_T")
def _t(x):
    return _permute(x, range(rank_of(x))[::-1])


@aten("unsqueeze")
def _unsqueeze(x, dim):
    return relay.expand_dims(x, dim % (rank_of(x) + 1))


@aten("squeeze")
def _squeeze(x, dim=None):
    shape = shape_of(x)
    gone = [a for a in c.axes_of(_axes(dim), len(shape)) if shape[a] == 1]
    return relay.squeeze(x, gone) if gone else x


@aten("expand", "expand_copy", "broadcast_to")
def _expand(x, size, implicit=False):
    shape = (1,) * (len(size) - rank_of(x)) + shape_of(x)
    return c.expand(x, [n if s == -1 else s for n, s in zip(shape, size)])


@aten("expand_as")
def _expand_as(x, other):
    return c.expand(x, shape_of(other))


@aten("repeat", "tile")
def _repeat(x, repeats):
    return relay.tile(x, list(repeats))


@aten("repeat_interleave.self_int")
def _repeat_interleave(x, repeats, dim=None, output_size=None):
    return relay.repeat(relay.reshape(x, (-1,)) if dim is None else x, repeats, 0 if dim is None else dim % rank_of(x))


@aten("cat", "concat", "concatenate")
def _cat(tensors, dim=0):
    tensors = [t for t in tensors if shape_of(t) != (0,)]
    tensors = _together(*tensors)
    return relay.concatenate(tensors, dim) if len(tensors) > 1 else tensors[0]


@aten("stack")
def _stack(tensors, dim=0):
    return relay.stack(_together(*tensors), dim)


@aten("slice")
def _slice(x, dim=0, start=None, end=None, step=1):
    return c.slice_axes(x, [dim % rank_of(x)], [start], [end], [step])


@aten("narrow")
def _narrow(x, dim, start, length):
    start = start + shape_of(x)[dim] if start < 0 else start
    return _slice(x, dim, start, start + length)


@aten("select")
def _select(x, dim, index):
    axis = dim % rank_of(x)
    at = index % shape_of(x)[axis]
    return relay.squeeze(c.slice_axes(x, [axis], [at], [at + 1], [1]), [axis])


@aten("split_with_sizes")
def _split_sizes(x, sizes, dim=0):
    if len(sizes) == 1:
        return [x]
    return list(relay.split(x, [int(v) for v in np.cumsum(sizes)[:-1]], dim % rank_of(x)))


@aten("split")
def _split(x, size, dim=0):
    if not isinstance(size, int):
        return _split_sizes(x, size, dim)
    extent = shape_of(x)[dim]
    return _split_sizes(x, [min(size, extent - i) for i in range(0, extent, size)], dim)


@aten("chunk")
def _chunk(x, chunks, dim=0):
    return _split(x, -(-shape_of(x)[dim] // chunks), dim)


@aten("unbind")
def _unbind(x, dim=0):
    return [_select(x, dim, i) for i in range(shape_of(x)[dim])]


@aten("flip")
def _flip(x, dims):
    for d in dims:
        x = relay.reverse(x, d % rank_of(x))
    return x


@aten("roll")
def _roll(x, shifts, dims=()):
    shape, dims = shape_of(x), _axes(dims)
    if dims is None:
        return relay.reshape(_roll(relay.reshape(x, (-1,)), shifts, [0]), shape)
    for s, d in zip(_per_axis(shifts, len(dims)), dims):
        axis = d % len(shape)
        s %= shape[axis]
        if s:
            a, b = _split_sizes(x, [shape[axis] - s, s], axis)
            x = relay.concatenate([b, a], axis)
    return x


_PAD = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@aten("pad")
def _pad(x, pad, mode="constant", value=None):
    rank = rank_of(x)
    begins, ends = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        begins[rank - 1 - i], ends[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return c.pad(x, begins, ends, _PAD[mode], value or 0)


aten("constant_pad_nd")(lambda x, pad, value=0: _pad(x, pad, "constant", value))
for _d in (1, 2, 3):
    aten(f"reflection_pad{_d}d")(lambda x, pad: _pad(x, pad, "reflect"))
    aten(f"replication_pad{_d}d")(lambda x, pad: _pad(x, pad, "replicate"))


@aten("pixel_shuffle")
def _pixel_shuffle(x, factor):
    return nn.depth_to_space(x, factor, mode="CRD")


@aten("triu")
def _triu(x, diagonal=0):
    return c.triangle(x, diagonal, True)


@aten("tril")
def _tril(x, diagonal=0):
    return c.triangle(x, diagonal, False)


@aten("fill")
def _fill(x, value):
    return c.expand(_as(value, dtype_of(x)), shape_of(x))


@aten("copy")
def _copy(x, source, non_blocking=False):
    return c.expand(c.cast(source, dtype_of(x)), shape_of(x))


@aten("zero")
def _zero(x):
    return _fill(x, 0)


# ---- by index ----


@aten("embedding")
def _embedding(weight, indices, *_):
    return c.gather(weight, indices, 0)


@aten("index_select")
def _index_select(x, dim, index):
    return c.gather(x, index, dim % rank_of(x))


@aten("gather")
def _gather(x, dim, index, sparse_grad=False):
    return c.gather_elements(x, index, dim % rank_of(x))


def _indices(x, indices):
    """(axes, index tensors): where they are, with known masks as the places of what they choose."""
    axes, out = [], []
    for i in indices:
        if i is None:
            axes.append(None)
            continue
        if dtype_of(i) in ("bool", "uint8"):
            if not known(i):
                raise OpNotImplemented("a mask that is computed from the data of the model decides how many elements there are")
            found = np.nonzero(i.data)
            axes += [True] * len(found)
            out += [array(f, "int64") for f in found]
        else:
            axes.append(True)
            out.append(i)
    return [a for a, there in enumerate(axes) if there], out


def _places(x, axes, index):
    """The flat place within the indexed axes `axes` of x for each element of the broadcast indices."""
    shape, at = shape_of(x), None
    for k, (a, i) in enumerate(zip(axes, index)):
        i = c.wrapped(i, shape[a])
        stride = math.prod(shape[b] for b in axes[k + 1 :])
        i = i if stride == 1 else relay.multiply(i, array(stride, "int32"))
        at = i if at is None else relay.add(at, i)
    return c.now(at)


@aten("index")
def _index(x, indices):
    axes, index = _indices(x, indices)
    if len(axes) == 1:
        return c.gather(x, index[0], axes[0])
    rest = [a for a in range(rank_of(x)) if a not in axes]
    shape = shape_of(x)
    at = _places(x, axes, index)
    y = relay.reshape(_permute(x, [*axes, *rest]), (math.prod(shape[a] for a in axes), *(shape[a] for a in rest)))
    y = relay.take(y, at, axis=0)
    if axes != list(range(axes[0], axes[0] + len(axes))) or not axes[0]:
        return y
    k, before = rank_of(at), axes[0]
    return _permute(y, [*range(k, k + before), *range(k), *range(k + before, rank_of(y))])


@aten("index_put")
def _index_put(x, indices, values, accumulate=False):
    axes, index = _indices(x, indices)
    if axes != list(range(len(axes))):
        raise OpNotImplemented("indices of other axes than the first ones are not supported")
    rest = shape_of(x)[len(axes) :]
    at, block = _places(x, axes, index), math.prod(rest)
    values = c.expand(values, (*shape_of(at), *rest))
    if block > 1:
        at = relay.add(relay.multiply(relay.reshape(at, (-1, 1)), array(block, "int32")), array(np.arange(block).reshape(1, -1), "int32"))
    return c.scatter(x, c.now(at), values, "add" if accumulate else "none")


@aten("scatter")
def _scatter(x, dim, index, src, reduction="none"):
    src, shape = _as(src, dtype_of(x)), shape_of(index)
    if rank_of(src):  # what lies beyond the index is not used
        src = c.slice_axes(src, range(len(shape)), [0] * len(shape), shape, [1] * len(shape))
    return c.scatter_elements(x, index, c.expand(src, shape), dim % rank_of(x), reduction)


aten("scatter_add")(lambda x, dim, index, src: _scatter(x, dim, index, src, "add"))


@aten("slice_scatter")
def _slice_scatter(x, src, dim=0, start=None, end=None, step=1):
    axis = dim % rank_of(x)
    at = np.arange(shape_of(x)[axis])[slice(start, end, step)]
    lift = [-1 if a == axis else 1 for a in range(rank_of(x))]
    index = array(np.broadcast_to(at.reshape(lift), shape_of(src)).copy(), "int64")
    return c.scatter_elements(x, index, src, axis)


@aten("select_scatter")
def _select_scatter(x, src, dim, index):
    axis = dim % rank_of(x)
    at = index % shape_of(x)[axis]
    return _slice_scatter(x, relay.expand_dims(src, axis), axis, at, at + 1)


# ---- images ----


def _resize(x, output_size, scales, method, mode, rounding="floor"):
    shape = shape_of(x)
    dims = len(shape) - 2
    scales = [None] * dims if scales is None else list(scales)
    size = list(output_size) if output_size is not None else [math.floor(n * s) for n, s in zip(shape[2:], scales)]
    if mode == "align_corners":
        scales = [None] * dims
    real = [o / n if s is None else s for n, o, s in zip(shape[2:], size, scales)]
    return c.resize(x, [*shape[:2], *size], [1.0, 1.0, *real], method, mode, rounding)


def _interpolation(method, dims):
    def nearest(x, output_size, scales=None, *more):
        return _resize(x, output_size, _given(scales, more, dims), "nearest", "asymmetric")

    def smooth(x, output_size, align_corners, scales=None, *more):
        if not is_float(dtype_of(x)):  # of which PyTorch rounds with fixed-point weights
            raise OpNotImplemented(f"resizing {dtype_of(x)} by {method} is not supported; cast it to float32 before, and round after it")
        return _resize(x, output_size, _given(scales, more, dims), method, "align_corners" if align_corners else "half_pixel")

    return nearest if method == "nearest" else smooth


def _given(scales, more, dims):
    """Scales: a list, or one argument per axis."""
    return scales if isinstance(scales, (list, tuple)) or (scales is None and not more) else [scales, *more]


for _d, _method in {1: "linear", 2: "bilinear", 3: "trilinear"}.items():
    aten(f"upsample_{_method}{_d}d")(_interpolation("linear", _d))
    aten(f"upsample_nearest{_d}d")(_interpolation("nearest", _d))
aten("upsample_bicubic2d")(_interpolation("cubic", 2))


# ---- recurrent layers ----

_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}  # PyTorch's gates in the order of ONNX


def _recurrent(op, activations=None):
    def convert(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        states = list(hx) if op == "LSTM" else [hx]
        if train and dropout and num_layers > 1:
            raise OpNotImplemented("it drops values out; call model.eval() before exporting")
        ways, each = 1 + bidirectional, 4 if has_biases else 2
        if len(params) != num_layers * ways * each:
            raise OpNotImplemented("projections of recurrent layers are not supported")
        flat = rank_of(x) == 2
        x = relay.expand_dims(x, 1) if flat else relay.transpose(x, [1, 0, 2]) if batch_first else x
        states = [relay.expand_dims(s, 1) if flat else s for s in states]
        lasts = [[] for _ in states]
        size = shape_of(params[1])[1]
        for layer in range(num_layers):
            mine = [params[(layer * ways + d) * each :][:each] for d in range(ways)]
            w, r = (relay.stack([_gates(op, p[k]) for p in mine], 0) for k in (0, 1))
            both = [relay.concatenate([_gates(op, p[2]), _gates(op, p[3])], 0) for p in mine] if has_biases else None
            first = [c.slice_axes(s, [0], [layer * ways], [layer * ways + ways], [1]) for s in states]
            inputs = [x, w, r, relay.stack(both, 0) if both else None, None, *first]
            attrs = {"hidden_size": size, "linear_before_reset": 1, "direction": "bidirectional" if bidirectional else "forward"}
            if activations:
                attrs["activations"] = [activations] * ways
            y, *ends = recurrent(Node(op, f"layer {layer}", [c.now(i) if isinstance(i, Expr) else i for i in inputs], attrs))
            x = relay.reshape(relay.transpose(y, [0, 2, 1, 3]), (*shape_of(x)[:2], ways * size))
            for all_ends, e in zip(lasts, ends):
                all_ends.append(e)
        ends = [relay.concatenate(e, 0) if len(e) > 1 else e[0] for e in lasts]
        x = relay.squeeze(x, [1]) if flat else relay.transpose(x, [1, 0, 2]) if batch_first else x
        return [x, *(relay.squeeze(e, [1]) if flat else e for e in ends)]

    return convert


def _gates(op, v):
    size = shape_of(v)[0] // len(_ORDER[op])
    if len(_ORDER[op]) == 1:
        return v
    return relay.concatenate([c.slice_axes(v, [0], [g * size], [g * size + size], [1]) for g in _ORDER[op]], 0)


aten("lstm.input")(_recurrent("LSTM"))
aten("gru.input")(_recurrent("GRU"))
aten("rnn_tanh.input")(_recurrent("RNN", "Tanh"))
aten("rnn_relu.input")(_recurrent("RNN", "Relu"))
