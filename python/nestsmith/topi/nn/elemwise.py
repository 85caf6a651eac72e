"""Activations in their hand-written form, and small compositions used around convolutions."""

from ... import te, tir
from .. import reduction
from ..broadcast import binary
from ..elemwise import as_type, identity, sqrt
from ..transform import expand_dims, reshape
from ..util import ELEMWISE, const_like, injective, normal_axis, prod, sum_type, unravel

__all__ = ["batch_norm", "bias_add", "flatten", "layer_norm", "leaky_relu", "prelu", "relu", "scale_shift_nchw",
           "scale_shift_nchwc", "scale_shift_nhwc"]  # fmt: skip


@te.tag_scope(ELEMWISE)
def relu(x):
    """``max(x, 0)``; stage ``compute``. In networks the stage is ``T_relu`` (:func:`nestsmith.topi.relu`)."""
    return te.compute(x.shape, lambda *i: te.max(x(*i), tir.const(0, x.dtype)))


@te.tag_scope(ELEMWISE)
def leaky_relu(x, alpha):
    """``x`` where positive, else ``alpha * x``; stage ``compute``."""

    def f(*i):
        v = x(*i)
        return tir.Select(v > const_like(0, v), v, v * const_like(alpha, v))

    return te.compute(x.shape, f)


@te.tag_scope("broadcast")
def prelu(x, slope, axis=1):
    """``x`` where positive, else ``slope[channel] * x``; stage ``compute``."""
    a = normal_axis(axis, len(x.shape))
    return te.compute(x.shape, lambda *i: tir.Select(x(*i) > tir.const(0, x.dtype), x(*i), x(*i) * slope(i[a])))


def flatten(data):
    """[N, ...] to [N, product of the rest]; stage ``tensor``."""
    rest = list(data.shape[1:])

    def f(*ax):
        return data(ax[0], *unravel(ax[1], rest))

    return injective([data.shape[0], prod(rest)], f, "tensor")


def bias_add(data, bias, axis=1):
    """Adds a vector along a dimension: the vector gets trailing dimensions, then ``T_add``."""
    n = len(data.shape)
    a = normal_axis(axis, n)
    if n - a - 1:
        bias = expand_dims(bias, 1, n - a - 1)
    return binary("add", data, bias)


@te.tag_scope("broadcast")
def scale_shift_nchw(x, scale, shift):
    """``x * scale[channel] + shift[channel]`` for [N, C, H, W]."""
    return te.compute(x.shape, lambda b, c, i, j: x(b, c, i, j) * scale(c) + shift(c), name="ScaleShift")


@te.tag_scope("broadcast")
def scale_shift_nhwc(x, scale, shift):
    """``x * scale[channel] + shift[channel]`` for [N, H, W, C]."""
    return te.compute(x.shape, lambda b, i, j, c: x(b, i, j, c) * scale(c) + shift(c), name="ScaleShift")


def _along(v, axis, n):
    return reshape(v, [v.shape[0] if i == axis else 1 for i in range(n)]) if n > 1 else v


def batch_norm(data, gamma, beta, moving_mean, moving_var, axis=1, epsilon=1e-5, center=True, scale=True,
               training=False, momentum=0.1):  # fmt: skip
    """``(x - mean) / sqrt(var + epsilon) * gamma + beta``; the vectors lie along ``axis``.

    ``training``: with the statistics of ``data`` itself, and the given ones move towards them by ``momentum``.

    Returns
    -------
    list of te.Tensor
        The result, and the statistics for the next step.
    """
    dtype, acc, after = data.dtype, sum_type(data.dtype), [identity(moving_mean), identity(moving_var)]
    data, gamma, beta, moving_mean, moving_var = (as_type(t, acc) for t in (data, gamma, beta, moving_mean, moving_var))
    n = len(data.shape)
    a = normal_axis(axis, n)
    if training:
        others = [d for d in range(n) if d != a]
        seen = reduction.mean(data, others)
        spread = reduction.variance(data, _along(seen, a, n), others, False)
        keep, take = (tir.const(v, acc) for v in (1 - momentum, momentum))
        after = [
            as_type(binary("add", binary("multiply", old, keep), binary("multiply", new, take)), dtype)
            for old, new in ((moving_mean, seen), (moving_var, spread))
        ]
        moving_mean, moving_var = seen, spread
    out = binary("divide", binary("subtract", data, _along(moving_mean, a, n)),
                 sqrt(binary("add", _along(moving_var, a, n), tir.const(epsilon, acc))))
    if scale:
        out = binary("multiply", out, _along(gamma, a, n))
    return [as_type(binary("add", out, _along(beta, a, n)) if center else out, dtype), *after]


def layer_norm(data, gamma, beta, axis=-1, epsilon=1e-5):
    """Normalisation over the given dimensions, composed of library stages; gamma and beta have those dimensions, None is left out."""
    dtype, acc = data.dtype, sum_type(data.dtype)
    data, gamma, beta = (None if t is None else as_type(t, acc) for t in (data, gamma, beta))
    axes = sorted({normal_axis(a, len(data.shape)) for a in (axis if isinstance(axis, (tuple, list)) else [axis])})
    mean = reduction.mean(data, axes, True)
    var = reduction.variance(data, mean, axes)
    top = binary("subtract", data, mean)
    out = binary("divide", top, sqrt(binary("add", var, tir.const(epsilon, acc))))
    if gamma is not None:
        out = binary("multiply", out, gamma)
    return as_type(out if beta is None else binary("add", out, beta), dtype)


@te.tag_scope("broadcast")
def scale_shift_nchwc(x, scale, shift):
    """``x * scale[chunk, channel] + shift[chunk, channel]`` for [N, C/b, H, W, b]."""
    return te.compute(x.shape, lambda b, cc, i, j, c: x(b, cc, i, j, c) * scale(cc, c) + shift(cc, c), name="ScaleShift")
