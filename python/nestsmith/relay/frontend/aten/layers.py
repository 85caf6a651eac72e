"""Layers of networks: products, windows, normalisations, resizing, recurrence."""

import math

from ....error import OpNotImplemented
from ....numerics import is_float
from ... import op as relay
from ...expr import Expr
from ...op import nn
from .. import common as c
from ..pooling import adaptive_windows, places_of_maxima, unpooled, windows
from ..recurrent import recurrent
from ..sampling import grid_sample
from ..values import Node, array, dtype_of, filled, rank_of, shape_of
from .promotion import Types
from .table import ATEN, aten, per_axis, scaled, with_axis

# ---- products ----


@aten("linear")
def _linear(x, weight, bias=None):
    if rank_of(weight) == 1:
        y = c.matmul(x, weight)
        return y if bias is None else relay.add(y, bias)
    if rank_of(x) == 1:
        return relay.squeeze(c.linear(relay.expand_dims(x, 0), weight, bias), [0])
    return c.linear(x, weight, bias)


aten("matmul", "mm", "bmm", "dot", "mv")(c.matmul)


@aten("addmm", "baddbmm")
def _addmm(bias, a, b, beta=1, alpha=1):
    if alpha == 1 and beta in (0, 1):  # as a layer with a bias
        y = c.matmul(a, b)
        return y if beta == 0 else relay.add(y, bias)
    return _added(bias, c.matmul(a, b, _sum_type(a)), beta, alpha, dtype_of(a))


def _sum_type(x):
    """The type of a product that is scaled and added to before it is rounded."""
    return "float32" if dtype_of(x) in ("float16", "bfloat16") else dtype_of(x)


def _added(bias, product, beta, alpha, kind):
    y = scaled(product, alpha)
    return c.as_dtype(y if beta == 0 else relay.add(y, scaled(c.as_dtype(bias, dtype_of(y)), beta)), kind)


@aten("addmv")
def _addmv(bias, a, v, beta=1, alpha=1):
    return _added(bias, c.matmul(a, v, _sum_type(a)), beta, alpha, dtype_of(a))


@aten("addbmm")
def _addbmm(bias, a, b, beta=1, alpha=1):
    return _added(bias, c.reduce("sum", c.matmul(a, b, _sum_type(a)), [0], False), beta, alpha, dtype_of(a))


@aten("_trilinear")
def _trilinear(a, b, w, expand1, expand2, expand3, sumdim, unroll_dim=1):
    """The sum over some axes of a product of three; over those that the third has not before it joins, as PyTorch does."""
    a, b, w = (_with_axes(x, places) for x, places in ((a, expand1), (b, expand2), (w, expand3)))
    first, rest = (sorted(d for d in sumdim if (d in expand3) == early) for early in (True, False))
    product = relay.multiply(a, b)
    product = c.reduce("sum", product, first, True) if first else product
    product = relay.multiply(product, w)
    product = c.reduce("sum", product, rest, True) if rest else product
    return relay.squeeze(product, list(sumdim)) if sumdim else product


def _with_axes(x, places):
    for place in sorted(places):
        x = relay.expand_dims(x, place)
    return x


aten("outer")(lambda a, b: ATEN["aten::mul"](relay.expand_dims(a, 1), relay.expand_dims(b, 0)))


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
    dilation = per_axis(dilation, dims)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, shape_of(weight)[2:])]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
        if pads[:dims] != pads[dims:]:
            lead = [0] * (rank_of(x) - dims)
            x, pads = c.pad(x, [*lead, *pads[:dims]], [*lead, *pads[dims:]]), [0] * 2 * dims
    else:
        pads = per_axis(0 if padding == "valid" else padding, dims) * 2
    return _batched(x, dims, lambda v: c.convolution(v, weight, bias, per_axis(stride, dims), pads, dilation, groups))


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    dims = rank_of(weight) - 2
    stride, padding, more, dilation = (per_axis(v, dims) for v in (stride, padding, output_padding, dilation))
    return _batched(x, dims, lambda v: c.transposed_convolution(v, weight, bias, stride, padding * 2, dilation, groups, more))


@aten("convolution")
def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed:
        return _conv_transpose(x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(x, weight, bias, stride, padding, dilation, groups)


@aten("_convolution")
def _convolution_of_scripts(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *flags_of_cudnn):
    return _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _pool(kind, dims):
    def windows(x, size, stride, padding, dilation, ceil_mode, include=False, divisor=None):
        size = per_axis(size, dims)
        stride = per_axis(stride, dims) if stride not in (None, [], ()) else size
        pads = per_axis(padding, dims) * 2
        return _batched(x, dims, lambda v: c.pool(kind, v, size, stride, pads, per_axis(dilation, dims), ceil_mode, include, divisor))

    def highest(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        return windows(x, kernel_size, stride, padding, dilation, ceil_mode)

    def average(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        return windows(x, kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)

    return highest if kind == "max" else average


def _adaptive(kind, dims):
    def convert(x, output_size):
        size = per_axis(output_size, dims)
        if dims == 2 and size == [1, 1]:
            return _batched(x, dims, getattr(nn, f"global_{kind}_pool2d"))
        return _batched(x, dims, lambda v: getattr(nn, f"adaptive_{kind}_pool{dims}d")(v, size))

    return convert


def _max_windows(shape, size, stride=None, padding=0, dilation=1, ceil_mode=False):
    dims = len(shape)
    size = per_axis(size, dims)
    stride = per_axis(stride, dims) if stride not in (None, [], ()) else size
    return windows(shape, size, stride, per_axis(padding, dims) * 2, per_axis(dilation, dims), ceil_mode)


def _adaptive_places(shape, size):
    return adaptive_windows(shape, per_axis(size, len(shape)))


def _with_places(pool, dims, where):
    """A max pool and the flat places of the maxima."""

    def convert(x, *args, **kwargs):
        return [pool(x, *args, **kwargs), _batched(x, dims, lambda v: places_of_maxima(v, where(shape_of(v)[2:], *args, **kwargs)))]

    return convert


def _unpool(dims):
    def convert(x, indices, output_size, stride=None, padding=None):
        size = list(output_size)
        return unpooled(x, indices, size, "max_unpool") if rank_of(x) == dims + 2 else relay.squeeze(
            unpooled(relay.expand_dims(x, 0), relay.expand_dims(indices, 0), size, "max_unpool"), [0])  # fmt: skip

    return convert


for _d in (2, 3):
    aten(f"max_unpool{_d}d")(_unpool(_d))
for _d in (1, 2, 3):
    for _k in ("max", "avg"):
        aten(f"{_k}_pool{_d}d")(_pool(_k, _d))
        aten(f"adaptive_{_k}_pool{_d}d")(_adaptive(_k, _d))
    # These also give the places of the maxima, which are left out again where nobody reads them.
    aten(f"max_pool{_d}d_with_indices")(_with_places(ATEN[f"aten::max_pool{_d}d"], _d, _max_windows))
    aten(f"adaptive_max_pool{_d}d")(_with_places(_adaptive("max", _d), _d, _adaptive_places))
aten("_adaptive_avg_pool2d")(ATEN["aten::adaptive_avg_pool2d"])
aten("_adaptive_avg_pool3d")(ATEN["aten::adaptive_avg_pool3d"])


# ---- normalisations ----


@aten("batch_norm")
def _batch_norm(x, weight, bias, mean, var, training, momentum, eps, cudnn=False):
    if training and mean is not None:
        raise OpNotImplemented("it is in training mode; call model.eval() before exporting")
    if training:
        return _batch_statistics(x, weight, bias, None, None, momentum, eps)[0]
    shape = shape_of(mean)
    weight = array(filled(shape, 1.0), dtype_of(mean)) if weight is None else weight
    bias = array(filled(shape, 0.0), dtype_of(mean)) if bias is None else bias
    return nn.batch_norm(x, *(c.as_dtype(v, dtype_of(x)) for v in (weight, bias, mean, var)), epsilon=eps)[0]


def _batch_statistics(x, weight, bias, mean, var, momentum, eps):
    """Batch norm by the statistics of its data: the result, their mean, 1 / deviation, and the running statistics that follow."""
    shape, kind = shape_of(x), dtype_of(x)
    axes = [a for a in range(len(shape)) if a != 1]
    wide = c.as_dtype(x, "float32") if kind in ("float16", "bfloat16") else x
    mine, rest = c.centred(wide, axes)
    spread = relay.mean(relay.multiply(rest, rest), axes, keepdims=True)
    scale = relay.rsqrt(relay.add(spread, c.scalar(eps, spread)))
    y = relay.multiply(rest, scale)
    for v, f in ((weight, relay.multiply), (bias, relay.add)):
        if v is not None:
            y = f(y, c.as_dtype(relay.expand_dims(v, 1, len(shape) - 2) if len(shape) > 2 else v, dtype_of(y)))
    count = math.prod(shape[a] for a in axes)
    flat = [relay.squeeze(v, axes) for v in (mine, scale, scaled(spread, count / max(count - 1, 1)))]

    def follows(old, new):
        return None if old is None else relay.add(scaled(c.as_dtype(old, dtype_of(new)), 1 - momentum), scaled(new, momentum))

    return [*(c.as_dtype(v, kind) for v in (y, flat[0], flat[1])), follows(mean, flat[0]), follows(var, flat[2])]


@aten("_native_batch_norm_legit_functional")
def _batch_norm_functional(x, weight, bias, mean, var, training, momentum, eps):
    if training:
        return _batch_statistics(x, weight, bias, mean, var, momentum, eps)
    nothing = array([], dtype_of(x))
    return [_batch_norm(x, weight, bias, mean, var, False, momentum, eps), nothing, nothing, *(c.as_dtype(v, _sum_type(x)) for v in (mean, var))]


@aten("_native_batch_norm_legit.no_stats")
def _batch_norm_without(x, weight, bias, training, momentum, eps):
    return _batch_statistics(x, weight, bias, None, None, momentum, eps)[:3]


@aten("_native_batch_norm_legit_no_training")
def _native_batch_norm(x, weight, bias, mean, var, momentum, eps):
    return [_batch_norm(x, weight, bias, mean, var, False, momentum, eps), None, None]


def _affine(x, weight, bias, make):
    """``make(weight, bias)`` with those that are missing made."""
    shape = (shape_of(x)[1],)
    kind = dtype_of(x)
    return make(array(filled(shape, 1.0), kind) if weight is None else weight, array(filled(shape, 0.0), kind) if bias is None else bias)


@aten("instance_norm")
def _instance_norm(x, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn=False):
    if not use_input_stats:
        return _batch_norm(x, weight, bias, mean, var, False, momentum, eps)
    return _affine(x, weight, bias, lambda w, b: nn.instance_norm(x, w, b, axis=1, epsilon=eps))


@aten("group_norm")
def _group_norm(x, num_groups, weight=None, bias=None, eps=1e-5, cudnn=False):
    return _affine(x, weight, bias, lambda w, b: nn.group_norm(x, w, b, num_groups, axis=1, epsilon=eps))


@aten("native_group_norm")
def _native_group_norm(x, weight, bias, n, channels, size, groups, eps):
    parts = relay.reshape(x, (n, groups, -1))
    return [_group_norm(x, groups, weight, bias, eps), *(relay.squeeze(v, [2]) for v in _statistics(parts, [2], eps))]


def _statistics(x, axes, eps):
    """The mean and 1 / deviation over axes, which stay."""
    var = relay.variance(x, axes, keepdims=True)
    return relay.mean(x, axes, keepdims=True), relay.rsqrt(relay.add(var, c.scalar(eps, var)))


def _last(x, shape):
    return list(range(rank_of(x) - len(shape), rank_of(x)))


@aten("layer_norm")
def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn=False):
    return c.layer_norm(x, _last(x, normalized_shape), weight, bias, eps)


@aten("native_layer_norm")
def _native_layer_norm(x, normalized_shape, weight, bias, eps):
    return [_layer_norm(x, normalized_shape, weight, bias, eps), *_statistics(x, _last(x, normalized_shape), eps)]


def _smallest_step(x):
    """Epsilon of the type in which PyTorch computes."""
    return 2.0**-52 if dtype_of(x) == "float64" else 2.0**-23


@aten("rms_norm")
def _rms_norm(x, normalized_shape, weight=None, eps=None):
    y = c.normalized(x, _last(x, normalized_shape), _smallest_step(x) if eps is None else eps, mean=False)
    return y if weight is None else relay.multiply(y, weight)


@aten("softmax", "_softmax")
@with_axis
def _softmax(x, dim, dtype=None, log=False):
    kind = dtype if isinstance(dtype, str) else dtype_of(x)
    return c.softmax(c.as_dtype(x, kind), dim, log)


@aten("log_softmax", "_log_softmax")
def _log_softmax(x, dim, dtype=None):
    return _softmax(x, dim, dtype, True)


# ---- losses ----


@aten("poisson_nll_loss", types=Types("x target", "eps", real=True, wide="eps", steps=True))
def _poisson_nll_loss(x, target, log_input, full, eps, reduction):
    """In float32 from end to end, for its terms cancel: PyTorch's reductions are none, mean and sum."""
    s = lambda v: c.scalar(v, x)  # noqa: E731
    if log_input:
        loss = relay.subtract(relay.exp(x), relay.multiply(target, x))
    else:
        loss = relay.subtract(x, relay.multiply(target, relay.log(relay.add(x, s(eps)))))
    if full:
        root = relay.multiply(s(0.5), relay.log(relay.multiply(s(2 * math.pi), target)))
        stirling = relay.add(relay.subtract(relay.multiply(target, relay.log(target)), target), root)
        loss = relay.add(loss, relay.where(relay.less_equal(target, s(1)), s(0), stirling))
    return c.reduce(("", "mean", "sum")[reduction], loss, None, False) if reduction else loss


# ---- images ----


def _resize(x, output_size, scales, method, mode, rounding="floor", **more):
    shape = shape_of(x)
    dims = len(shape) - 2
    scales = [None] * dims if scales is None else list(scales)
    size = list(output_size) if output_size is not None else [math.floor(n * s) for n, s in zip(shape[2:], scales)]
    if mode == "align_corners":
        scales = [None] * dims
    real = [o / n if s is None else s for n, o, s in zip(shape[2:], size, scales)]
    return c.resize(x, [*shape[:2], *size], [1.0, 1.0, *real], method, mode, rounding, **more)


def _interpolation(method, dims, antialias=False):
    # PyTorch's smoothing is that of PIL: only what is inside the image counts, and cubic weights are flatter.
    smoothing = {"antialias": True, "exclude": True, "cubic": -0.5} if antialias else {}

    def nearest(x, output_size, scales=None, *more):
        return _resize(x, output_size, _given(scales, more, dims), "nearest", "asymmetric")

    def smooth(x, output_size, align_corners, scales=None, *more):
        if not is_float(dtype_of(x)):  # of which PyTorch rounds with fixed-point weights
            raise OpNotImplemented(f"resizing {dtype_of(x)} by {method} is not supported; cast it to float32 before, and round after it")
        if antialias and align_corners:
            raise OpNotImplemented("smoothing while resizing with align_corners is not supported")
        return _resize(x, output_size, _given(scales, more, dims), method, "align_corners" if align_corners else "half_pixel", **smoothing)

    return nearest if method == "nearest" else smooth


def _given(scales, more, dims):
    """Scales: a list, or one argument per axis."""
    return scales if isinstance(scales, (list, tuple)) or (scales is None and not more) else [scales, *more]


for _d, _method in {1: "linear", 2: "bilinear", 3: "trilinear"}.items():
    aten(f"upsample_{_method}{_d}d")(_interpolation("linear", _d))
    aten(f"upsample_nearest{_d}d")(_interpolation("nearest", _d))
aten("upsample_bicubic2d")(_interpolation("cubic", 2))
aten("_upsample_bilinear2d_aa")(_interpolation("linear", 2, True))
aten("_upsample_bicubic2d_aa")(_interpolation("cubic", 2, True))


_SAMPLED, _BEYOND = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners):
    wide = _sum_type(x)  # a position that is rounded to 16 bits may have another neighbour
    y = grid_sample(c.as_dtype(x, wide), c.as_dtype(grid, wide), _SAMPLED[interpolation_mode], _BEYOND[padding_mode], align_corners)
    return c.as_dtype(y, dtype_of(x))


# ---- recurrent layers ----

_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}  # PyTorch's gates in the order of ONNX


def _recurrent(op, activations=None):
    def convert(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        states = list(hx) if op == "LSTM" else [hx]
        if train and dropout and num_layers > 1:
            raise OpNotImplemented("it drops values out; call model.eval() before exporting")
        ways, each = 1 + bidirectional, 4 if has_biases else 2
        projected = len(params) == num_layers * ways * (each + 1)
        each += projected
        flat = rank_of(x) == 2
        x = relay.expand_dims(x, 1) if flat else relay.transpose(x, [1, 0, 2]) if batch_first else x
        states = [relay.expand_dims(s, 1) if flat else s for s in states]
        lasts = [[] for _ in states]
        size = shape_of(params[1])[0] // len(_ORDER[op])
        width = shape_of(params[1])[1]
        for layer in range(num_layers):
            mine = [params[(layer * ways + d) * each :][:each] for d in range(ways)]
            w, r = (relay.stack([_gates(op, p[k]) for p in mine], 0) for k in (0, 1))
            both = [relay.concatenate([_gates(op, p[2]), _gates(op, p[3])], 0) for p in mine] if has_biases else None
            first = [c.part(s, 0, layer * ways, layer * ways + ways) for s in states]
            inputs = [x, w, r, relay.stack(both, 0) if both else None, None, *first]
            if projected:  # a ninth input, which ONNX does not have
                inputs += [None, relay.stack([p[-1] for p in mine], 0)]
            attrs = {"hidden_size": size, "linear_before_reset": 1, "direction": "bidirectional" if bidirectional else "forward"}
            if activations:
                attrs["activations"] = [activations] * ways
            y, *ends = recurrent(Node(op, f"layer {layer}", [c.now(i) if isinstance(i, Expr) else i for i in inputs], attrs))
            x = relay.reshape(relay.transpose(y, [0, 2, 1, 3]), (*shape_of(x)[:2], ways * width))
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
    return relay.concatenate([c.part(v, 0, g * size, g * size + size) for g in _ORDER[op]], 0)


aten("lstm.input")(_recurrent("LSTM"))
aten("gru.input")(_recurrent("GRU"))
aten("rnn_tanh.input")(_recurrent("RNN", "Tanh"))
aten("rnn_relu.input")(_recurrent("RNN", "Relu"))
