"""Operators of models as graphs of relay's operators: what the importers of ONNX and PyTorch share.

Everything takes and returns expressions; shapes, axes and paddings are Python numbers.
"""

import functools
import math

import numpy as np

from ...error import OpNotImplemented
from ...numerics import is_float
from .. import budget, op as relay
from ..expr import Call
from ..infer import infer_type  # noqa: F401  (as TVM has it here)
from ..op import image, nn
from ..op.lookup import in_range
from ..op.registry import BROADCAST, INJECTIVE
from ..transform.fold_constant import fold
from .values import along, arange, array, dtype_of, filled, known, rank_of, repeated, shape_of

__all__ = ["as_dtype", "cast", "scalar", "round_even", "power", "clip", "reduce", "extreme", "softmax", "layer_norm",
           "gelu", "convolution", "transposed_convolution", "spread", "pool", "matmul", "linear", "attention", "expand",
           "gather", "gather_elements", "triangle", "now", "neutral", "scatter", "scatter_elements", "slice_axes",
           "pad", "resize", "softplus", "log_sigmoid", "log_add_exp", "erf_based", "normalized", "activation"]  # fmt: skip

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def as_dtype(e, dtype):
    """A cast, where one is needed."""
    return e if dtype_of(e) == dtype else relay.cast(e, dtype)


def scalar(value, like):
    """A constant of the type of `like`."""
    return array(value, dtype_of(like))


def summed(parts):
    """The sum of tensors, from the first one on."""
    return functools.reduce(relay.add, parts)


def polynomial(x, coefficients):
    """Horner's rule, from the highest power on."""
    first, *rest = (scalar(k, x) for k in coefficients)
    return functools.reduce(lambda y, k: relay.add(relay.multiply(y, x), k), rest, first)


def cast(x, dtype):
    """Casts as NumPy, ONNX and PyTorch do: numbers other than 0 are true."""
    if dtype == "bool" and dtype_of(x) != "bool":
        return relay.not_equal(x, scalar(0, x))
    return as_dtype(x, dtype)


def power(x, y):
    """x to the y, in the type of x; integers to a fraction are cut toward zero. Known small exponents are products."""
    kind = dtype_of(x)
    e = float(y.numbers.item()) if known(y) and y.data.size == 1 and rank_of(x) >= rank_of(y) else None
    if e in (2.0, 3.0) or (e == 0.5 and is_float(kind)):
        return relay.sqrt(x) if e == 0.5 else relay.multiply(relay.multiply(x, x), x) if e == 3 else relay.multiply(x, x)
    if is_float(kind):
        return relay.power(x, as_dtype(y, kind))
    wide = "float64"
    out = relay.power(relay.cast(x, wide), as_dtype(y, wide))
    return relay.cast(out if is_float(dtype_of(y)) else relay.round(out), kind)


def clip(x, low, high):
    """`x` between two bounds: numbers, expressions or None. Where they cross, the upper one counts."""
    values = [b.numbers.item() if known(b) and b.data.size == 1 else b for b in (low, high)]
    if all(isinstance(v, (int, float)) for v in values):
        return relay.clip(x, min(values), values[1])
    for v, f in zip(values, (relay.maximum, relay.minimum)):
        if v is not None:
            x = f(x, scalar(v, x) if isinstance(v, (int, float)) else v)
    return x


def axes_of(axes, rank):
    """Axes counted from the front; None is all of them."""
    if axes is None:
        return list(range(rank))
    for a in axes:
        if not -rank <= a < max(rank, 1):
            raise ValueError(f"axis {a} is out of range for rank {rank}")
    return [a % rank for a in axes] if rank else []


def reduce(kind, x, axes, keepdims):
    """Sum, mean, max, ... over axes (None: all)."""
    f = getattr(relay, kind)
    return f(x, axis=axes_of(axes, rank_of(x)), keepdims=bool(keepdims)) if rank_of(x) else x


def extreme(kind, x, axes, keepdims):
    """Max or min over axes; of truth values any or all."""
    if dtype_of(x) == "bool":
        kind = "any" if kind == "max" else "all"
    return reduce(kind, x, axes, keepdims)


def softmax(x, axis, log=False):
    return (nn.log_softmax if log else nn.softmax)(x, axis)


def normalized(x, axes, epsilon, mean=True):
    """(x - mean) / sqrt(variance + epsilon) over `axes`, in float32 at least; without `mean` it is divided by the root of the mean
    square."""
    kind = dtype_of(x)
    y = as_dtype(x, "float32") if kind in ("float16", "bfloat16") else x
    if mean:
        y = relay.subtract(y, relay.mean(y, axes, keepdims=True))
    square = relay.mean(relay.multiply(y, y), axes, keepdims=True)
    return as_dtype(relay.multiply(y, relay.rsqrt(relay.add(square, scalar(epsilon, square)))), kind)


def centred(x, axes):
    """The mean over axes, which stay, and x less the mean. The mean of large numbers rounds; that of the rest says by how much."""
    mean = relay.mean(x, axes, keepdims=True)
    rest = relay.subtract(x, mean)
    return mean, relay.subtract(rest, relay.mean(rest, axes, keepdims=True))


def layer_norm(x, axes, weight, bias, epsilon):
    """Normalised over `axes`, which are the last ones, then scaled and shifted (None: neither)."""
    rank = rank_of(x)
    if list(axes) == [rank - 1] and weight is not None and bias is not None:
        return nn.layer_norm(x, weight, bias, axis=-1, epsilon=epsilon)
    y = normalized(x, list(axes), epsilon)
    y = y if weight is None else relay.multiply(y, weight)
    return y if bias is None else relay.add(y, bias)


def erf_based(x):
    """1 + erf(x / sqrt(2))."""
    return relay.add(scalar(1, x), relay.erf(relay.divide(x, scalar(math.sqrt(2), x))))


def gelu(x, tanh=False):
    """x times the normal distribution's probability of less than x, or its approximation by tanh."""
    if not tanh:
        return relay.multiply(relay.multiply(scalar(0.5, x), x), erf_based(x))
    cube = relay.multiply(relay.multiply(x, x), x)
    inner = relay.multiply(scalar(math.sqrt(2 / math.pi), x), relay.add(x, relay.multiply(scalar(0.044715, x), cube)))
    return relay.multiply(relay.multiply(scalar(0.5, x), x), relay.add(scalar(1, x), relay.tanh(inner)))


def round_even(x):
    """The nearest whole number; halves go to the even one."""
    floor, half = relay.floor(x), scalar(0.5, x)
    rest, halved = relay.subtract(x, floor), relay.multiply(floor, half)
    odd = relay.not_equal(relay.floor(halved), halved)
    up = relay.logical_or(relay.greater(rest, half), relay.logical_and(relay.equal(rest, half), odd))
    return relay.where(up, relay.add(floor, scalar(1, x)), floor)


def softplus(x, beta=1.0):
    """log(1 + exp(beta x)) / beta, without overflow: max(x, 0) + log(1 + exp(-|beta x|)) / beta (min, for a negative beta)."""
    y = relay.multiply(x, scalar(beta, x)) if beta != 1 else x
    tail = relay.log1p(relay.exp(relay.negative(relay.abs(y))))
    head = relay.minimum(x, scalar(0, x)) if beta < 0 else nn.relu(x)
    return relay.add(head, relay.divide(tail, scalar(beta, x)) if beta != 1 else tail)


def log_sigmoid(x):
    """log(sigmoid(x)): 0.0, not -0.0, of large numbers."""
    return relay.subtract(relay.minimum(x, scalar(0, x)), relay.log1p(relay.exp(relay.negative(relay.abs(x)))))


def log_add_exp(x, y):
    """log(exp(x) + exp(y)), without overflow: of two equal infinities that infinity."""
    most = relay.maximum(x, y)
    tail = relay.log1p(relay.exp(relay.negative(relay.abs(relay.subtract(x, y)))))
    return relay.where(relay.equal(relay.abs(most), scalar(np.inf, x)), most, relay.add(most, tail))


def activation(name, x, alpha=None, beta=None):
    """An activation by its name in ONNX, with its parameters there."""
    s = lambda v: scalar(v, x)  # noqa: E731
    pos = lambda y: nn.relu(y)  # noqa: E731
    if not all(math.isfinite(v) for v in (alpha, beta) if v is not None):
        raise ValueError(f"{name} has the parameters {alpha} and {beta}; they must be finite")
    if name in ("Elu", "Selu", "Celu"):
        a = {"Elu": 1.0, "Selu": 1.67326319217681884765625, "Celu": 1.0}[name] if alpha is None else alpha
        arg = relay.divide(x, s(a)) if name == "Celu" else x
        y = relay.where(relay.greater(x, s(0)), x, relay.multiply(s(a), relay.expm1(arg)))
        return relay.multiply(y, s(1.05070102214813232421875 if beta is None else beta)) if name == "Selu" else y
    if name in ("HardSigmoid", "HardSwish"):
        a, b = (0.2, 0.5) if name == "HardSigmoid" else (1 / 6, 0.5)
        y = relay.add(relay.multiply(x, s(a if alpha is None else alpha)), s(b if beta is None else beta))
        y = relay.clip(y, 0, 1)
        return relay.multiply(x, y) if name == "HardSwish" else y
    table = {
        "Relu": lambda: pos(x),
        "Tanh": lambda: relay.tanh(x),
        "Sigmoid": lambda: relay.sigmoid(x),
        "LeakyRelu": lambda: nn.leaky_relu(x, 0.01 if alpha is None else alpha),
        "ThresholdedRelu": lambda: relay.where(relay.greater(x, s(1.0 if alpha is None else alpha)), x, s(0)),
        "Softplus": lambda: softplus(x),
        "Softsign": lambda: relay.divide(x, relay.add(s(1), relay.abs(x))),
        "Mish": lambda: relay.multiply(x, relay.tanh(softplus(x))),
        "Silu": lambda: relay.multiply(x, relay.sigmoid(x)),
        "Affine": lambda: relay.add(relay.multiply(x, s(1.0 if alpha is None else alpha)), s(beta or 0.0)),
        "ScaledTanh": lambda: relay.multiply(s(alpha or 1.0), relay.tanh(relay.multiply(s(beta or 1.0), x))),
    }
    if name not in table:
        raise ValueError(f"there is no activation {name!r}; there are {', '.join(sorted(table))}, Elu, Selu, Celu, HardSigmoid, HardSwish")
    return table[name]()


# ---- windows ----


def convolution(x, w, bias, strides, pads, dilation, groups):
    """A convolution of NC* data with OI* weights over one, two or three axes; `pads` are the begins, then the ends."""
    dims = rank_of(x) - 2
    shape = shape_of(w)
    y = getattr(nn, f"conv{dims}d")(x, w, strides=strides, padding=pads, dilation=dilation, groups=groups,
                                    channels=shape[0], kernel_size=shape[2:])  # fmt: skip
    return y if bias is None else nn.bias_add(y, bias)


def transposed_convolution(x, w, bias, strides, pads, dilation, groups, output_padding):
    """The transposed convolution of NC* data with IO* weights. One axis goes by way of two; three axes and dilations by a
    convolution of the data with zeros between its elements."""
    dims, shape = rank_of(x) - 2, shape_of(w)
    if dims <= 2 and all(d == 1 for d in dilation):
        one = [1] * (2 - dims)
        zero = [0] * (2 - dims)
        if dims == 1:
            x, w = relay.expand_dims(x, 2), relay.expand_dims(w, 2)
        y = nn.conv2d_transpose(x, w, strides=[*one, *strides], padding=[*zero, *pads[:dims], *zero, *pads[dims:]],
                                groups=groups, channels=shape[1] * groups, kernel_size=[*one, *shape[2:]],
                                output_padding=[*zero, *output_padding])  # fmt: skip
        y = relay.squeeze(y, [2]) if dims == 1 else y
    else:
        x = spread(x, strides)
        full = [(k - 1) * d for k, d in zip(shape[2:], dilation)]
        lo = [f - p for f, p in zip(full, pads[:dims])]
        x = pad(x, [0, 0, *lo], [0, 0, *[f - p + o for f, p, o in zip(full, pads[dims:], output_padding)]])
        w = relay.reverse(w, 2) if dims == 1 else w
        for a in range(2, 2 + dims) if dims > 1 else ():
            w = relay.reverse(w, a)
        w = relay.reshape(w, (groups, shape[0] // groups, *shape[1:]))
        w = relay.transpose(w, [0, 2, 1, *range(3, 3 + dims)])
        w = relay.reshape(w, (groups * shape[1], shape[0] // groups, *shape[2:]))
        y = convolution(x, w, None, [1] * dims, [0] * 2 * dims, dilation, groups)
    return y if bias is None else nn.bias_add(y, bias)


def spread(x, strides):
    """Zeros between the elements of the spatial axes: s - 1 of them."""
    for axis, s in enumerate(strides, 2):
        if s == 1:
            continue
        shape = list(shape_of(x))
        x = relay.expand_dims(x, axis + 1)
        x = nn.pad(x, [(0, s - 1 if a == axis + 1 else 0) for a in range(len(shape) + 1)])
        x = relay.reshape(x, [*shape[:axis], shape[axis] * s, *shape[axis + 1 :]])
        x = slice_axes(x, [axis], [0], [shape[axis] * s - s + 1], [1])
    return x


def out_extent(n, k, s, d, p, ceil, begin):
    """How many windows there are. With `ceil` a last window that begins beyond the data and its left padding does not count."""
    room = n + p - d * (k - 1) - 1
    out = (-(-room // s) if ceil else room // s) + 1
    return out - 1 if ceil and (out - 1) * s >= n + begin else out


def _window_sums(x, size, strides, pads, dilation, want):
    """Sums over windows of NC* data in the type of `x`, one axis after the other; `want` windows along each."""
    dims = len(size)
    x = pad(x, [0, 0, *pads[:dims]], [0, 0, *pads[dims:]])
    for i, axis in enumerate(range(2, 2 + dims)):
        at = arange(want[i]).reshape(-1, 1) * strides[i] + arange(size[i]) * dilation[i]
        x = relay.sum(relay.take(x, array(at, "int32"), axis=axis), axis + 1)
    return x


def pool(kind, x, size, strides, pads, dilation, ceil=False, count_include_pad=False, divisor=None):
    """Max or average pooling of NC* data over one, two or three axes; averages are sums divided by `divisor`, if it is given, whatever
    the windows cover. Averages of integers are cut toward zero."""
    dims = rank_of(x) - 2
    shape = shape_of(x)[2:]
    pads = list(pads)
    if any(p < 0 for p in pads):
        raise ValueError(f"a pool with pads {pads}; they must not be negative")
    want = [out_extent(n, *z, pads[i] + pads[i + dims], ceil, pads[i]) for i, (n, *z) in enumerate(zip(shape, size, strides, dilation))]
    spare = [(o - 1) * s + d * (k - 1) + 1 - n - pads[i] - pads[i + dims]
             for i, (o, s, d, k, n) in enumerate(zip(want, strides, dilation, size, shape))]  # fmt: skip
    if kind == "max":
        for i in range(dims):
            pads[dims + i] += max(spare[i], 0)
        return getattr(nn, f"max_pool{dims}d")(x, size, strides, dilation, pads)
    if divisor is None and max(spare) <= 0:
        return getattr(nn, f"avg_pool{dims}d")(x, size, strides, dilation, pads, count_include_pad=count_include_pad)
    count = _counts(shape, size, strides, pads, dilation, want, spare, count_include_pad) if divisor is None else divisor
    for i in range(dims):
        pads[dims + i] += max(spare[i], 0)
    if not is_float(dtype_of(x)):  # a part of a mean that is cut says nothing about the sum
        return relay.divide(_window_sums(x, size, strides, pads, dilation, want), scalar(count, x))
    y = getattr(nn, f"avg_pool{dims}d")(x, size, strides, dilation, pads, count_include_pad=True)
    return relay.multiply(y, scalar(math.prod(size) / count, y))


def _counts(shape, size, strides, pads, dilation, want, spare, count_include_pad):
    """How many elements each window averages. What overhangs is never counted."""
    dims = len(size)
    whole = filled([n + pads[i] + pads[i + dims] + max(spare[i], 0) for i, n in enumerate(shape)], 0.0)
    ones = whole[tuple(slice(n + pads[i] + pads[i + dims]) for i, n in enumerate(shape))]
    ones[...] = float(count_include_pad)
    ones[tuple(slice(pads[i], pads[i] + n) for i, n in enumerate(shape))] = 1
    count = whole
    for i in range(dims):
        at = [arange(want[i]) * strides[i] + d * dilation[i] for d in budget.times(size[i])]
        count = sum(np.take(count, a, axis=i) for a in at)
    return count


# ---- products ----


def linear(x, w, bias=None, kind=""):
    """x times the transposed `w` (outputs, inputs), over the last axis of x; `kind` as for :func:`matmul`."""
    shape = shape_of(x)
    if not shape[-1]:  # sums of nothing
        y = relay.zeros((*shape[:-1], shape_of(w)[0]), kind or dtype_of(x))
        return y if bias is None else relay.add(y, bias)
    y = x if len(shape) == 2 else relay.reshape(x, (-1, shape[-1]))
    y = nn.dense(y, w, units=shape_of(w)[0], out_dtype=kind)
    y = y if len(shape) == 2 else relay.reshape(y, (*shape[:-1], shape_of(w)[0]))
    return y if bias is None else relay.add(y, bias)


def matmul(a, b, kind=""):
    """The product of NumPy's matmul; `kind` is the type of the result where it is not that of the operands."""
    ra, rb = rank_of(a), rank_of(b)
    kind = "" if kind == dtype_of(a) else kind
    if ra == 1 and rb == 1:
        product = relay.multiply(as_dtype(a, kind), as_dtype(b, kind)) if kind else relay.multiply(a, b)
        return relay.sum(product, 0)
    if ra == 1:
        return relay.squeeze(matmul(relay.expand_dims(a, 0), b, kind), [-2])
    if rb == 1:
        return relay.squeeze(matmul(a, relay.expand_dims(b, 1), kind), [-1])
    if rb == 2:
        return linear(a, relay.transpose(b, [1, 0]), None, kind)
    sa, sb = shape_of(a), shape_of(b)
    batch = np.broadcast_shapes(sa[:-2], sb[:-2])
    if not sa[-1]:
        return relay.zeros((*batch, sa[-2], sb[-1]), kind or dtype_of(a))
    x = relay.reshape(expand(a, (*batch, *sa[-2:])), (-1, *sa[-2:]))
    swap = [*range(rb - 2), rb - 1, rb - 2]
    y = relay.reshape(expand(relay.transpose(b, swap), (*batch, sb[-1], sb[-2])), (-1, sb[-1], sb[-2]))
    return relay.reshape(nn.batch_matmul(x, y, kind), (*batch, sa[-2], sb[-1]))


def attention(q, k, v, mask=None, causal=False, scale=None):
    """softmax(q k^T scale + mask) v over the last two axes; a mask of truth values says what is looked at. A row that looks at nothing
    (all of its mask is False, or minus infinity) is 0, as in PyTorch. Fewer heads of k and v than of q are shared by groups."""
    sq, sk, sv = shape_of(q), shape_of(k), shape_of(v)
    if len(sq) == 4 and sq[1] != sk[1]:
        k, v = relay.repeat(k, sq[1] // sk[1], 1), relay.repeat(v, sq[1] // sv[1], 1)
    batch = np.broadcast_shapes(sq[:-2], shape_of(k)[:-2])
    flat = lambda x: relay.reshape(expand(x, (*batch, *shape_of(x)[-2:])), (-1, *shape_of(x)[-2:]))  # noqa: E731
    scale = scalar(1 / math.sqrt(sq[-1]) if scale is None else scale, q)
    first = dtype_of(q) == "float16"  # which may not hold products that are not scaled yet
    scores = nn.batch_matmul(flat(relay.multiply(q, scale) if first else q), flat(k))
    scores = relay.reshape(scores, (*batch, sq[-2], sk[-2]))
    scores = scores if first else relay.multiply(scores, scale)
    if causal:
        mask = array(np.tril(filled((sq[-2], sk[-2]), True)))
    looks = mask
    if mask is not None and dtype_of(mask) == "bool":
        scores = relay.where(mask, scores, scalar(-np.inf, scores))
    elif mask is not None:
        scores = relay.add(scores, mask)
        if known(mask):
            looks = array(mask.data.max(-1, keepdims=True) > -np.inf)
        else:
            looks = relay.greater(reduce("max", mask, [-1], True), scalar(-np.inf, mask))
    shares = softmax(scores, -1)  # NaN in rows that look at nothing
    if looks is not None and not (known(looks) and looks.data.any(-1).all()):
        shares = relay.where(looks, shares, scalar(0, shares))
    y = nn.batch_matmul(relay.reshape(shares, (-1, sq[-2], sk[-2])), flat(v), transpose_b=False)
    return relay.reshape(y, (*batch, sq[-2], sv[-1]))


# ---- moving data ----


def expand(x, shape):
    """Broadcast to `shape`."""
    return x if shape_of(x) == tuple(shape) else relay.broadcast_to(x, tuple(shape))


def wrapped(index, extent, what, from_end=True, first=False):
    """The indices that operator `what` is given, as int32; `from_end`: negative ones count from the end. One out of range is an error:
    ValueError now if it is known, else RuntimeError at the end of the run. `first`: they are checked by a kernel of their own."""
    if known(index):
        return array(in_range(index.data, extent, from_end), "int32")
    return relay.check_index(index, extent, from_end, what, first)


def gather(x, index, axis, what="gather", from_end=True):
    """Slices of `x` along `axis`."""
    return relay.take(x, wrapped(index, shape_of(x)[axis], what, from_end, _alike(x, axis)), axis=axis)


def _alike(x, axis):
    """Whether all slices of what is computed along `axis` are one: a kernel that computes it, too, would not look at an index."""
    behind = rank_of(x) - axis

    def of(e):
        if rank_of(e) < behind or shape_of(e)[-behind] == 1:
            return True
        return isinstance(e, Call) and getattr(e.op, "pattern", INJECTIVE) <= BROADCAST and all(map(of, e.args))

    return isinstance(x, Call) and of(x)


def gather_elements(x, index, axis, what="gather", from_end=True):
    """One element of `x` for each of `index`, which says where along `axis`."""
    index = wrapped(index, shape_of(x)[axis], what, from_end, _alike(x, axis))
    cut = [a for a, (m, k) in enumerate(zip(shape_of(index), shape_of(x))) if a != axis and m != k]
    if cut:
        x = slice_axes(x, cut, [0] * len(cut), [shape_of(index)[a] for a in cut], [1] * len(cut))
    return relay.gather(x, axis, index)


def diagonal(x, offset=0, first=0, second=1):
    """The elements at equal places of two axes, the second `offset` further; they lie along a new last axis."""
    shape, (a, b) = shape_of(x), axes_of([first, second], rank_of(x))
    rows, columns = max(-offset, 0), max(offset, 0)
    many = min(shape[a] - rows, shape[b] - columns)
    x = slice_axes(x, [a, b], [rows, columns], [rows + many, columns + many], [1, 1])
    rest = [i for i in range(len(shape)) if i not in (a, b)]
    x = relay.reshape(relay.transpose(x, [*rest, a, b]), (*(shape[i] for i in rest), many * many))
    return slice_axes(x, [len(rest)], [0], [many * many], [many + 1])


def triangle(x, k, upper):
    """The elements of the last two axes on and above (below) diagonal `k`, the others 0."""
    mask = (np.triu if upper else np.tril)(filled(shape_of(x)[-2:], True), k)
    if known(x):
        return array(np.where(mask, x.numbers, 0), dtype_of(x))
    return relay.logical_and(x, array(mask)) if dtype_of(x) == "bool" else relay.where(array(mask), x, scalar(0, x))


def now(e):
    """The value of an expression of constants, else the expression."""
    dtype_of(e)
    return fold(e)


_COMBINE = {
    "add": ("sum", relay.add, 0),
    "mul": ("prod", relay.multiply, 1),
    "max": ("max", relay.maximum, -np.inf),
    "min": ("min", relay.minimum, np.inf),
}


def scatter(x, at, new, reduction="none"):
    """`x` with the elements of `new` at the flat places `at`: the last of several there, or all of them combined with what is there.

    Places that are known become one gather. Others are compared with every place, which takes a step per pair of places.
    """
    shape, count, total = shape_of(x), math.prod(shape_of(new)), math.prod(shape_of(x))
    flat, new = relay.reshape(x, (total,)), relay.reshape(new, (count,))
    places = at.data.ravel() if known(at) else None
    if places is not None and (reduction == "none" or len(np.unique(places)) == count):
        source = filled((total,), -1)
        source[places] = arange(count)
        got = relay.take(new, array(np.maximum(source, 0), "int32"), axis=0)
        if reduction != "none":
            got = _COMBINE[reduction][1](flat, got)
        return relay.reshape(relay.where(array(source >= 0), got, flat), shape)
    here = relay.equal(relay.reshape(at, (1, count)), array(arange(total).reshape(-1, 1), "int32"))
    if reduction == "none":
        order = array(arange(1, count + 1).reshape(1, -1), "int32")
        last = relay.max(relay.where(here, order, array(0, "int32")), 1)
        got = relay.take(new, relay.maximum(relay.subtract(last, array(1, "int32")), array(0, "int32")), axis=0)
        return relay.reshape(relay.where(relay.greater(last, array(0, "int32")), got, flat), shape)
    kind, combine, _ = _COMBINE[reduction]
    nothing = scalar(neutral(reduction, dtype_of(x)), x)
    return relay.reshape(combine(flat, reduce(kind, relay.where(here, relay.reshape(new, (1, count)), nothing), [1], False)), shape)


def neutral(reduction, dtype):
    """What changes nothing in a combination of :func:`scatter`."""
    value = _COMBINE[reduction][2]
    if is_float(dtype) or not np.isinf(value):
        return value
    return np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min


def _scatter_lines(x, index, new, axis, reduction):
    """:func:`scatter_elements` for computed indices, which are compared with the places of their own line alone."""
    shape, extent = shape_of(x), shape_of(index)[axis]
    lift = lambda n, a: array(along(arange(n), a, len(shape) + 1), "int32")  # noqa: E731
    here = relay.equal(relay.expand_dims(index, axis), lift(shape[axis], axis))
    if reduction != "none":
        kind, combine, _ = _COMBINE[reduction]
        nothing = scalar(neutral(reduction, dtype_of(x)), x)
        return combine(x, reduce(kind, relay.where(here, relay.expand_dims(new, axis), nothing), [axis + 1], False))
    order = relay.add(lift(extent, axis + 1), array(1, "int32"))
    last = relay.max(relay.where(here, order, array(0, "int32")), axis + 1)
    got = relay.gather(new, axis, relay.maximum(relay.subtract(last, array(1, "int32")), array(0, "int32")))
    return relay.where(relay.greater(last, array(0, "int32")), got, x)


def scatter_elements(x, index, new, axis, reduction="none", what="scatter", from_end=True):
    """`x` with one element replaced (or combined) for each of `index`, which says where along `axis`."""
    shape, places = shape_of(x), shape_of(index)
    if not known(index) and all(a == axis or m == n for a, (m, n) in enumerate(zip(places, shape))):
        return _scatter_lines(x, wrapped(index, shape[axis], what, from_end, first=True), new, axis, reduction)
    strides = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    base = sum(along(arange(p), a, len(shape)) * strides[a] for a, p in enumerate(places) if a != axis)
    at = relay.multiply(wrapped(index, shape[axis], what, from_end, first=True), array(strides[axis], "int32"))
    at = relay.add(at, array(repeated(base, places), "int32"))
    return scatter(x, now(at), new, reduction)


def slice_axes(x, axes, starts, ends, steps):
    """NumPy's slices along some axes, in constants of any size."""
    shape = shape_of(x)
    ranges = [range(n) for n in shape]
    for a, b, e, s in zip(axes, starts, ends, steps):
        if s == 0:
            raise ValueError("a slice with step 0")
        ranges[a] = range(shape[a])[slice(b, e if not (s < 0 and e < -shape[a]) else None, s)]
    if all(r == range(n) for r, n in zip(ranges, shape)):
        return x
    if any(len(r) == 0 for r in ranges):
        raise OpNotImplemented(f"a slice of {shape} that has no elements: tensors without elements are not supported")
    big = [r.stop if r.stop >= 0 else -n - 1 for r, n in zip(ranges, shape)]
    return relay.strided_slice(x, [r.start for r in ranges], big, [r.step for r in ranges])


def part(x, axis, begin, end):
    """A slice along one axis."""
    return slice_axes(x, [axis], [begin], [end], [1])


def element(x, axis, i):
    """What lies at place `i` of an axis, which goes."""
    return relay.squeeze(part(x, axis, i, i + 1), [axis])


def pad(x, begins, ends, mode="constant", value=0):
    """Padding; negative amounts cut off."""
    shape = shape_of(x)
    if mode == "edge" and any(v < 0 for v in (*begins, *ends)):  # which may leave of an axis what is filled in alone
        for axis, (n, b, e) in enumerate(zip(shape, begins, ends)):
            x = relay.take(x, array(np.clip(arange(-b, n + e), 0, n - 1), "int32"), axis=axis)
        return x
    if any(v < 0 for v in (*begins, *ends)):
        cut = [(max(-b, 0), n - max(-e, 0)) for n, b, e in zip(shape, begins, ends)]
        x = slice_axes(x, range(len(shape)), [b for b, _ in cut], [e for _, e in cut], [1] * len(shape))
    width = [(max(b, 0), max(e, 0)) for b, e in zip(begins, ends)]
    if not any(map(any, width)):
        return x
    if mode == "constant":  # the operator's numbers are float32
        return nn.pad(x, width, value if float(np.float32(value)) == value else scalar(value, x))
    if mode in ("edge", "reflect") and all(max(w) < max(n, 2) for w, n in zip(width, shape_of(x))):
        return nn.pad(x, width, pad_mode=mode)
    for axis, (b, e) in enumerate(width):
        if b or e:
            at = np.pad(arange(shape_of(x)[axis]), (b, e), mode=mode)
            x = relay.take(x, array(at, "int32"), axis=axis)
    return x


# ---- running values ----


def running(values, axis, combine):
    """For each place along `axis`, `combine` of all up to it; `values` are tensors that go together. In log2 n steps, each of which
    adds what lies as far before as is summed up by then."""
    extent, step = shape_of(values[0])[axis], 1
    while step < extent:
        heads = [part(v, axis, 0, step) for v in values]
        before = [part(v, axis, 0, extent - step) for v in values]
        after = [part(v, axis, step, extent) for v in values]
        values = [relay.concatenate([h, v], axis) for h, v in zip(heads, combine(before, after))]
        step *= 2
    return values


# ---- resizing ----


def _positions(n, out, scale, mode, roi):
    """Where in the input the outputs of an axis lie."""
    i = arange(out, dtype=np.float64)
    if mode == "align_corners":
        return i * (n - 1) / (scale * n - 1) if out > 1 else i * 0.0
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_crop_and_resize":
        span = (roi[1] - roi[0]) * (n - 1)
        return roi[0] * (n - 1) + i * span / (out - 1) if out > 1 else (roi[0] + roi[1]) / 2 * (n - 1) + i
    if mode == "pytorch_half_pixel" and out == 1:
        return i * 0.0
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - out / (scale * n)) + (i + 0.5) / scale - 0.5
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise ValueError(f"coordinate_transformation_mode {mode!r} is not supported")
    return (i + 0.5) / scale - 0.5


def _nearest(x, how):
    # As the standard's reference: what is a hair's breadth beside the middle of two pixels counts as the middle.
    if how == "round_prefer_floor":
        return np.ceil(x - 0.5)
    return {"round_prefer_ceil": lambda: np.floor(x + 0.5), "floor": lambda: np.floor(x), "ceil": lambda: np.ceil(x)}[how]()


def _near(method, d, a):
    """The weight of a pixel at the distance `d`; `a` is the slope of cubic weights."""
    if method == "linear":
        return np.clip(1 - d, 0, 1)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _neighbours(method, at, scale, cubic, antialias):
    """Pairs of the neighbours of each position and their weights; with `antialias` a position of a smaller image has all those
    that it stands for."""
    reach, low = {"linear": 1, "cubic": 2}[method], np.floor(at)
    scale = min(scale, 1.0) if antialias else 1.0
    first = math.floor(-reach / scale) + 1
    pairs = [(low + k, _near(method, np.abs(low + k - at) * scale, cubic)) for k in range(first, 2 - first)]
    return _whole(pairs) if scale < 1 else pairs


def _whole(pairs):
    """The pairs with weights whose sum is 1."""
    total = sum(w for _, w in pairs)
    return [(i, w / total) for i, w in pairs]


def resize(x, sizes, scales, method, mode="half_pixel", rounding="round_prefer_floor", cubic=-0.75, exclude=False,
           roi=None, beyond=0.0, antialias=False):  # fmt: skip
    """Each axis to its size, by the positions that ONNX defines. The two image axes of NCHW data at whole scales are one operator;
    everything else is a gather and a sum of products with known weights per axis. Integers are cut toward zero."""
    shape = shape_of(x)
    if method != "nearest" and not is_float(kind := dtype_of(x)):
        y = resize(relay.cast(x, "float32"), sizes, scales, method, mode, rounding, cubic, exclude, roi, beyond, antialias)
        return relay.cast(clip(y, np.iinfo(kind).min, np.iinfo(kind).max), kind)
    exact = all(round(n * s) == o and abs(n * s - o) < 1e-6 for n, s, o in zip(shape, scales, sizes))
    plain = len(shape) == 4 and sizes[:2] == list(shape[:2]) and exact and mode in ("half_pixel", "align_corners", "asymmetric")
    plain = plain and not antialias
    if plain and method != "cubic" and not (method == "nearest" and mode != "asymmetric"):
        return image.resize2d(x, sizes[2:], method={"nearest": "nearest_neighbor"}.get(method, method),
                              coordinate_transformation_mode=mode,
                              rounding_method=rounding if method == "nearest" else "")  # fmt: skip
    for axis, (n, o, s) in enumerate(zip(shape, sizes, scales)):
        if n == o and s == 1 and mode != "tf_crop_and_resize":
            continue
        at = _positions(n, o, s, mode, roi[axis] if roi else None)
        outside = (at < 0) | (at > n - 1) if mode == "tf_crop_and_resize" else filled(o, 0, bool)
        if method == "nearest":
            pairs = [(_nearest(at, rounding), filled(o, 1.0))]
        else:
            pairs = _neighbours(method, at, s, cubic, antialias)
        if exclude and method != "nearest" and (antialias or method == "cubic"):
            pairs = _whole([(i, np.where((i < 0) | (i >= n), 0, w)) for i, w in pairs])
        parts = []
        for i, w in pairs:
            y = relay.take(x, array(np.clip(i, 0, n - 1), "int32"), axis=axis)
            parts.append(y if method == "nearest" else relay.multiply(y, array(along(w, axis, len(shape)), dtype_of(x))))
        x = summed(parts)
        if outside.any():
            x = relay.where(array(along(outside, axis, len(shape))), scalar(beyond, x), x)
    return x
