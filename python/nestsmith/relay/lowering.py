"""What operators mean as loops: a primitive function becomes tensor expressions of the operator library.

This is the only place that knows both the graph and the library. Where several definitions exist (direct
convolution, depthwise,
Winograd) the choice depends on the target and the attributes alone, so that extraction and build always agree.
"""

from __future__ import annotations

from .. import te, topi
from ..error import OpNotImplemented
from ..topi.naming import naming, placeholder_name
from .expr import Call, Constant, Tuple, TupleGetItem, Var, post_order
from .op.nn import is_depthwise, pool_axes
from .op.reduce import real_axes
from .op.tensor import BINARY, COMPARE
from .op.transform import layout_shape, parse_layout, slice_ranges
from .passes import PassContext
from .transform.alter_layout import winograd_tile
from .ty import TupleType

__all__ = ["lower_function", "has_loops", "Lowered", "NAMINGS", "NotLowerable", "refusal"]

# (placeholder names, pooling names): the default one first, then that of releases since 0.11.
NAMINGS = (("placeholder", "tensor"), ("p", "pool"))
_COMPUTE = {}


def has_loops(name):
    """Whether the operator `name` becomes loops, rather than being taken apart by passes before."""
    return name in _COMPUTE


class NotLowerable(OpNotImplemented, ValueError):
    """An operator has no definition as loops on this target."""


def _rule(*names):
    def add(f):
        for n in names:
            _COMPUTE[n] = f
        return f

    return add


def _simple(table):
    for name, f in table.items():
        _COMPUTE[name] = f


# Rules take (attrs, inputs, call, target); inputs are tensors, or lists of tensors for tuple arguments.

for _n in (*BINARY, *COMPARE):
    _COMPUTE[_n] = (lambda f: lambda a, x, c, t: f(x[0], x[1]))(getattr(topi, _n))
for _n in (
    "exp log log2 log10 sqrt rsqrt tanh sigmoid erf negative abs floor ceil round trunc sign sin cos "
    "tan sinh cosh asin acos "
    "atan asinh acosh atanh logical_not bitwise_not"
).split():
    _COMPUTE[_n] = (lambda f: lambda a, x, c, t: f(x[0]))(getattr(topi, _n))
for _n in ("exp", "tanh", "erf"):
    _COMPUTE["fast_" + _n] = _COMPUTE[_n]

_simple(
    {
        "copy": lambda a, x, c, t: topi.identity(x[0]),
        "clip": lambda a, x, c, t: topi.clip(x[0], a.a_min, a.a_max),
        "cast": lambda a, x, c, t: topi.cast(x[0], a.dtype),
        "where": lambda a, x, c, t: topi.where(*x),
        "zeros": lambda a, x, c, t: topi.zeros(a.shape, a.dtype),
        "ones": lambda a, x, c, t: topi.ones(a.shape, a.dtype),
        "zeros_like": lambda a, x, c, t: topi.full_like(x[0], 0),
        "ones_like": lambda a, x, c, t: topi.full_like(x[0], 1),
        "nn.relu": lambda a, x, c, t: topi.relu(x[0]),
        "nn.leaky_relu": lambda a, x, c, t: topi.leaky_relu(x[0], a.alpha),
        "reshape": lambda a, x, c, t: topi.reshape(x[0], c.checked_type.shape),
        "transpose": lambda a, x, c, t: topi.transpose(x[0], a.axes),
        "squeeze": lambda a, x, c, t: topi.squeeze(x[0], a.axis),
        "expand_dims": lambda a, x, c, t: topi.expand_dims(x[0], a.axis, a.num_newaxis),
        "concatenate": lambda a, x, c, t: topi.concatenate(x[0], a.axis),
        "stack": lambda a, x, c, t: topi.stack(x[0], a.axis),
        "take": lambda a, x, c, t: topi.take(x[0], x[1], a.axis, a.batch_dims, a.mode),
        "gather": lambda a, x, c, t: topi.gather(x[0], a.axis, x[1]),
        "broadcast_to": lambda a, x, c, t: topi.broadcast_to(x[0], a.shape),
        "tile": lambda a, x, c, t: topi.tile(x[0], a.reps),
        "repeat": lambda a, x, c, t: topi.repeat(x[0], a.repeats, a.axis),
        "reverse": lambda a, x, c, t: topi.flip(x[0], a.axis),
        "nn.softmax": lambda a, x, c, t: topi.nn.softmax(x[0], a.axis),
        "nn.fast_softmax": lambda a, x, c, t: topi.nn.softmax(x[0], a.axis),
        "nn.log_softmax": lambda a, x, c, t: topi.nn.log_softmax(x[0], a.axis),
        "nn.batch_matmul": lambda a, x, c, t: topi.nn.batch_matmul(
            x[0], x[1], None, c.checked_type.dtype, a.transpose_a, a.transpose_b
        ),
    }
)


@_rule("full", "full_like")
def _full(a, x, c, t):
    value = x[-1]
    shape = a.shape if "shape" in a else x[0].shape
    return topi.broadcast_to(topi.cast(value, c.checked_type.dtype), shape)


@_rule("split")
def _split(a, x, c, t):
    s = a.indices_or_sections
    return list(topi.split(x[0], s if isinstance(s, int) else list(s), a.axis))


@_rule("strided_slice")
def _strided_slice(a, x, c, t):
    begin, end, stride = zip(*slice_ranges(a, c.args[0].checked_type.concrete_shape))
    return topi.strided_slice(x[0], list(begin), [e if e >= 0 else -(2**30) for e in end], list(stride))


@_rule("gather_nd")
def _gather_nd(a, x, c, t):
    data, idx = x
    m, rank = c.args[1].checked_type.shape[0], len(c.args[1].checked_type.shape) - 1

    def f(*ax):
        return data(*[idx(k, *ax[:rank]) for k in range(m)], *ax[rank:])

    return topi.util.c_compute(c.checked_type.shape, f, "T_gather_nd", topi.util.INJECTIVE)


@_rule("one_hot")
def _one_hot(a, x, c, t):
    return topi.one_hot(x[0], x[1], x[2], a.depth, a.axis, a.dtype)


@_rule("nn.batch_flatten")
def _flatten(a, x, c, t):
    return topi.nn.flatten(x[0])


@_rule("layout_transform")
def _layout_transform(a, x, c, t):
    return _relayout(x[0], a.src_layout, a.dst_layout)


def _relayout(x, old, new):
    if old == new:
        return x
    src, dst = parse_layout(old), parse_layout(new)
    shape = layout_shape(x.shape, src, dst)
    blocks_out, blocks_in = {k: b for k, b in dst if b}, {k: b for k, b in src if b}

    def f(*ax):
        major = {k: v for (k, b), v in zip(dst, ax) if not b}
        minor = {k: v for (k, b), v in zip(dst, ax) if b}
        full = {k: major[k] * blocks_out[k] + minor[k] if k in minor else major[k] for k in major}
        idx = []
        for k, b in src:
            v = full[k]
            idx.append(te.floormod(v, b) if b else te.floordiv(v, blocks_in[k]) if k in blocks_in else v)
        return x(*idx)

    return topi.util.c_compute(shape, f, "T_layout_trans", topi.util.INJECTIVE)


@_rule("sum", "max", "min", "prod", "all", "any", "mean", "argmax", "argmin")
def _reduce(a, x, c, t):
    axes = real_axes(a, len(c.args[0].checked_type.shape))
    more = {k: True for k in ("finite", "select_last_index") if a.get(k)}
    return getattr(topi, c.op_name)(x[0], axes, a.keepdims, **more)


@_rule("variance")
def _variance(a, x, c, t):
    axes = real_axes(a, len(c.args[0].checked_type.shape))
    return topi.variance(x[0], x[1], axes, a.keepdims, a.unbiased)


@_rule("cumsum")
def _cumsum(a, x, c, t):
    return topi.cumsum(x[0], a.axis, c.checked_type.dtype, a.exclusive)


@_rule("argsort")
def _argsort(a, x, c, t):
    return topi.argsort(x[0], a.axis, a.is_ascend, a.dtype)


@_rule("topk")
def _topk(a, x, c, t):
    out = topi.topk(x[0], a.k, a.axis, a.ret_type, a.is_ascend, a.dtype)
    return out if len(out) > 1 else out[0]


@_rule("shape_of")
def _shape_of(a, x, c, t):
    return topi.shape(x[0], a.dtype)


@_rule("nn.lrn")
def _lrn(a, x, c, t):
    return topi.nn.lrn(x[0], a.size, a.axis, a.alpha, a.beta, a.bias)


@_rule("nn.bias_add")
def _bias_add(a, x, c, t):
    rank = len(c.checked_type.shape)
    n = rank - a.axis % rank - 1
    return topi.add(x[0], topi.expand_dims(x[1], 1, n) if n else x[1])


@_rule("nn.prelu")
def _prelu(a, x, c, t):
    return topi.nn.prelu(x[0], x[1], a.axis)


@_rule("nn.layer_norm")
def _layer_norm(a, x, c, t):
    return topi.nn.layer_norm(x[0], x[1] if a.scale else None, x[2] if a.center else None, a.axis, a.epsilon)


@_rule("nn.pad")
def _pad(a, x, c, t):
    before, after = zip(*a.pad_width)
    value = topi.cast(x[1], x[0].dtype) if a.pad_mode == "constant" else 0.0
    return topi.pad(x[0], list(before), list(after), value, pad_mode=a.pad_mode)


@_rule("nn.mirror_pad")
def _mirror_pad(a, x, c, t):
    before, after = zip(*a.pad_width)
    return topi.nn.mirror_pad(x[0], list(before), list(after), a.mode)


@_rule("image.resize2d")
def _resize2d(a, x, c, t):
    return topi.image.resize2d(
        x[0],
        a.roi,
        a.size,
        a.layout,
        a.method,
        a.coordinate_transformation_mode,
        a.rounding_method,
        a.cubic_alpha,
        a.cubic_exclude,
        a.extrapolation_value,
        a.out_dtype or None,
    )


@_rule("nn.upsampling")
def _upsampling(a, x, c, t):
    return topi.nn.upsampling(x[0], a.scale_h, a.scale_w, a.layout, a.method, a.align_corners)


@_rule("nn.depth_to_space")
def _depth_to_space(a, x, c, t):
    return topi.nn.depth_to_space(x[0], a.block_size, a.layout, a.mode)


@_rule("nn.space_to_depth")
def _space_to_depth(a, x, c, t):
    return topi.nn.space_to_depth(x[0], a.block_size, a.layout)


# ---- convolutions and matrix products: sums are formed in the type of the result ---------------------------------


# A product of few elements and a long sum leaves most of a GPU idle. In parts of the sum there is as much to do at the same time as
# in a product of so many elements; a shorter part would be over before its tiles are loaded, and adding up would take longer.
_FEW_ELEMENTS, _ENOUGH_ELEMENTS, _LEAST_PART, _MOST_PARTS = 200_000, 640_000, 384, 8


def _parts_of_sum(call, k):
    """Into how many parts the sums of `k` products are taken apart that a call consists of; 1: not at all."""
    types = [call.checked_type, *(e.checked_type for e in call.args)]
    elements = topi.util.prod(types[0].concrete_shape)
    if not PassContext.current().config.get("relay.parts_of_sums") or any(t.dtype != "float32" for t in types) or elements > _FEW_ELEMENTS:
        return 1
    fits = (p for p in range(_MOST_PARTS, 1, -1) if k % p == 0 and k // p >= _LEAST_PART and elements * p <= _ENOUGH_ELEMENTS)
    return next(fits, 1)


def _is_pointwise(call):
    """Whether a convolution in NHWC is the product of all pixels with a matrix."""
    a = call.attrs
    plain = a.groups == 1 and set(a.strides) == {1} and not any(a.padding)
    return plain and (a.data_layout, a.kernel_layout) == ("NHWC", "HWIO") and call.args[1].checked_type.concrete_shape[:2] == (1, 1)


@_rule("nn.conv2d")
def _conv2d(a, x, c, target):
    data, weight = x
    strides, padding, dilation = list(a.strides), list(a.padding), list(a.dilation)
    dtype = c.checked_type.dtype
    if _is_pointwise(c):
        ci, co = weight.shape[2:]
        parts = _parts_of_sum(c, ci)
        if parts > 1:
            pixels = topi.reshape(data, (topi.util.prod(data.shape[:3]), ci))
            product = topi.nn.matmul_in_parts(pixels, topi.reshape(weight, (ci, co)), parts)
            return topi.reshape(product, (*data.shape[:3], co))
    tile = winograd_tile(c, target, PassContext.current().config) if target is not None else None
    if tile:  # only where the weight is not transformed ahead of time
        return topi.nn.conv2d_winograd_nhwc(data, weight, strides, padding, dilation, dtype)
    depthwise = is_depthwise(c)
    if depthwise and (a.data_layout, a.kernel_layout) == ("NCHW", "OIHW"):
        return topi.nn.depthwise_conv2d_nchw(data, weight, strides, padding, dilation, dtype)
    if depthwise and (a.data_layout, a.kernel_layout) == ("NHWC", "HWOI"):
        return topi.nn.depthwise_conv2d_nhwc(data, weight, strides, padding, dilation, out_dtype=dtype)
    return topi.nn.conv(data, weight, strides, padding, dilation, a.groups, a.data_layout, a.kernel_layout, dtype)


@_rule("nn.contrib_conv2d_NCHWc")
def _conv2d_blocked(a, x, c, target):
    data = _relayout(x[0], a.data_layout, "NCHW")
    window, dtype = (list(a.strides), list(a.padding), list(a.dilation)), c.checked_type.dtype
    if is_depthwise(c):
        out = topi.nn.depthwise_conv2d_nchw(data, x[1], *window, dtype)
    else:
        out = topi.nn.conv(data, x[1], *window, a.groups, "NCHW", "OIHW", dtype)
    return _relayout(out, "NCHW", a.out_layout)


@_rule("nn.conv1d", "nn.conv3d")
def _conv(a, x, c, target):
    return topi.nn.conv(
        x[0],
        x[1],
        list(a.strides),
        list(a.padding),
        list(a.dilation),
        a.groups,
        a.data_layout,
        a.kernel_layout,
        c.checked_type.dtype,
    )


@_rule("nn.contrib_conv2d_winograd_without_weight_transform")
def _winograd(a, x, c, target):
    return topi.nn.conv2d_winograd_nhwc_without_weight_transform(
        x[0], x[1], list(a.strides), list(a.padding), list(a.dilation), c.checked_type.dtype, bool(a.get("by_rows"))
    )


@_rule("nn.contrib_conv2d_winograd_weight_transform")
def _winograd_weight(a, x, c, target):
    return topi.nn.conv2d_winograd_weight_transform(x[0], a.tile_size)


@_rule("nn.conv2d_transpose")
def _conv2d_transpose(a, x, c, target):
    return topi.nn.conv2d_transpose(
        x[0],
        x[1],
        list(a.strides),
        list(a.padding),
        list(a.dilation),
        a.groups,
        a.data_layout,
        a.kernel_layout,
        c.checked_type.dtype,
        list(a.output_padding),
    )


@_rule("nn.matmul")
def _matmul(a, x, c, target):
    """Of two matrices, of all rows of a tensor with one matrix, or of batches, where an extent of 1 serves all."""
    left, right = (t.checked_type.concrete_shape for t in c.args)
    out = c.checked_type.concrete_shape
    flags = a.transpose_a, a.transpose_b
    if len(left) == len(right) == 2:
        parts = 1 if any(flags) else _parts_of_sum(c, left[1])
        if parts > 1:
            return topi.nn.matmul_in_parts(*x, parts)
        return topi.nn.matmul(*x, None, c.checked_type.dtype, *flags)
    if len(right) == 2 and not a.transpose_a:
        rows = topi.reshape(x[0], (topi.util.prod(left[:-1]), left[-1]))
        return topi.reshape(topi.nn.matmul(rows, x[1], None, c.checked_type.dtype, *flags), out)
    batch = out[:-2]

    def batches(t, shape):
        if shape[:-2] not in ((), batch):
            t = topi.broadcast_to(t, (*batch, *shape[-2:]))
        return topi.reshape(t, (topi.util.prod(batch) if shape[:-2] else 1, *shape[-2:]))

    product = topi.nn.batch_matmul(batches(x[0], left), batches(x[1], right), None, c.checked_type.dtype, *flags)
    return topi.reshape(product, out)


@_rule("nn.dense")
def _dense(a, x, c, target):
    data, weight = x
    dtype = c.checked_type.dtype
    if len(c.args[0].checked_type.shape) == 2:
        return topi.nn.dense(data, weight, None, dtype)
    shape = c.args[0].checked_type.concrete_shape
    flat = topi.nn.dense(topi.reshape(data, (topi.util.prod(shape[:-1]), shape[-1])), weight, None, dtype)
    return topi.reshape(flat, c.checked_type.shape)


# ---- pools ---------------------------------------------------------------------------------------------------------

_POOL = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}
_ADAPTIVE = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}


@_rule(*(f"nn.{k}_pool{d}d" for k in ("max", "avg") for d in (1, 2, 3)))
def _pool(a, x, c, target):
    kind, dims = c.op_name[3:6], int(c.op_name[-2])
    return _POOL[dims](
        x[0],
        list(a.pool_size),
        list(a.strides),
        list(a.dilation),
        list(a.padding),
        kind,
        a.ceil_mode,
        a.layout,
        a.get("count_include_pad", True),
    )


@_rule(
    *(f"nn.adaptive_{k}_pool{d}d" for k in ("max", "avg") for d in (1, 2, 3)),
    "nn.global_avg_pool2d",
    "nn.global_max_pool2d",
)
def _adaptive(a, x, c, target):
    dims, kind = int(c.op_name[-2]), "max" if "max" in c.op_name else "avg"
    shape = c.checked_type.concrete_shape
    size = [shape[p] for p in pool_axes(a.get("out_layout") or a.layout, dims)]
    return _ADAPTIVE[dims](x[0], size, kind, a.layout)


# ---- functions -----------------------------------------------------------------------------------------------------


class Lowered:
    """A primitive function as tensors.

    `params`: placeholders in the order of the function's parameters (tuples flattened); `outputs`: results; `io`:
    placeholders in
    the order in which a walk from the outputs meets them, then the outputs (the tensor list of the DAG).
    """

    __slots__ = ("params", "outputs", "io")

    def __init__(self, params, outputs):
        self.params, self.outputs = params, outputs
        self.io = _inputs_of(outputs) + outputs


def _inputs_of(outputs):
    order, seen, stack = [], set(), list(reversed(outputs))
    while stack:
        t = stack.pop()
        if t.op in seen:
            continue
        seen.add(t.op)
        if t.op.is_placeholder:
            order.append(t)
        else:
            stack.extend(reversed(list(t.op.input_tensors)))
    return order


def _placeholder(t, name):
    return te.placeholder(t.concrete_shape, t.dtype, name=name)


def _value(t, name):
    """A placeholder of a type, or one per field of a tuple."""
    return [_placeholder(f, name) for f in t.fields] if isinstance(t, TupleType) else _placeholder(t, name)


def _scalar(constant):
    if constant.data.ndim:
        raise NotLowerable("a tensor constant inside a fused function")
    return topi.scalar_const(constant.numbers.item(), constant.checked_type.dtype)


def _apply(call, inputs, target, instead=None):
    """What a call means. The type of a call promises shapes and element types; a definition that gives others must not get
    into a network, where memory of equal size would hide it."""
    rule, a = _COMPUTE.get(call.op_name), call.attrs
    if rule is None:
        raise NotLowerable(f"operator {call.op_name} has no definition as loops")
    try:
        out = instead(call, inputs) if instead is not None else None
        if out is None:
            out = rule(a, inputs, call, target)
    except NotLowerable:
        raise
    except ValueError as err:
        raise NotLowerable(f"operator {call.op_name}: {err}") from err
    layout = a.get("data_layout") or a.get("layout")
    if a.get("out_layout") and a.out_layout != layout and call.op_name != "nn.contrib_conv2d_NCHWc":  # that sees to it itself
        out = _relayout(out, layout, a.out_layout)
    t = call.checked_type
    want = [(f.shape, f.dtype) for f in (t.fields if isinstance(t, TupleType) else [t])]
    got = [(topi.util.get_const_tuple(o.shape), o.dtype) for o in (out if isinstance(out, list) else [out])]
    if got != want:
        raise NotLowerable(f"operator {call.op_name} has no definition of type {t}; the nearest one gives {got}")
    return out


def _lower(func, target, instead):
    env, params = {}, []
    for i, p in enumerate(func.params):
        env[id(p)] = _value(p.checked_type, placeholder_name(i))
        params += env[id(p)] if isinstance(env[id(p)], list) else [env[id(p)]]
    for e in post_order(func.body):
        if isinstance(e, Var):
            continue
        if isinstance(e, Constant):
            env[id(e)] = _scalar(e)
        elif isinstance(e, Tuple):
            env[id(e)] = [env[id(f)] for f in e.fields]
        elif isinstance(e, TupleGetItem):
            env[id(e)] = env[id(e.tuple_value)][e.index]
        elif isinstance(e, Call):
            env[id(e)] = _apply(e, [env[id(a)] for a in e.args], target, instead)
        else:
            raise NotLowerable(f"a {type(e).__name__} inside a fused function")
    out = env[id(func.body)]
    outputs, taken = [], set(params)
    for t in out if isinstance(out, list) else [out]:
        if t in taken:
            t = topi.identity(t)
        taken.add(t)
        outputs.append(t)
    return Lowered(params, outputs)


def lower_function(func, target, names=NAMINGS[0], instead=None):
    """The tensors of a primitive function; NotLowerable if an operator has no definition, ValueError on unknown
    shapes. `instead`: (call, inputs) -> another definition of a call, or None for the usual one."""
    with naming(placeholders=names[0], pooling=names[1]):
        return _lower(func, target, instead)


def refusal(failed, target):
    """What to raise when some of a network's functions did not become loops; `failed`: pairs of a kernel (of
    :mod:`.extract`) and its error. Names every operator without a definition, how often it is called, and why: each call is
    tried alone, so that all are found at once."""
    found: dict = {}
    for k, _ in failed:
        for e in post_order(k.func.body):
            if not isinstance(e, Call):
                continue
            try:
                inputs = [_scalar(a) if isinstance(a, Constant) else _value(a.checked_type, "x") for a in e.args]
                _apply(e, inputs, target)
            except ValueError as err:
                calls, why = found.get(e.op_name, (0, str(err)))
                found[e.op_name] = calls + k.count, why
    lines = [f"{name}, {n} call{'s'[: n > 1]}: {why}" for name, (n, why) in found.items()]
    lines = lines or [f"{k.name}: {err}" for k, err in failed]
    told = "the network cannot be built, what follows has no definition as loops:"
    return NotLowerable(f"{told} {lines[0]}" if len(lines) == 1 else "\n  ".join([told, *lines]))
