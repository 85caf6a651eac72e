"""What operators should give, from PyTorch and NumPy in float64 (exact for the integers that are used) and 64-bit integers."""

import numpy as np
import torch
import torch.nn.functional as F


def d(x):
    return torch.from_numpy(np.array(x, "float64"))


def of_torch(f, *more, **kw):
    """``f`` of PyTorch on float64 tensors; integers come back as integers."""

    def want(*arrays):
        out = f(*map(d, arrays), *more, **kw).numpy()
        return out if arrays[0].dtype.kind == "f" or out.dtype.kind != "f" else np.rint(out).astype("int64")

    return want


def truncated(a, b):
    """Integer division rounding toward zero."""
    q = a // b
    return q + ((q * b != a) & ((a < 0) != (b < 0)))


def divide(a, b):
    return a / b if a.dtype.kind == "f" else truncated(a, b)


def mod(a, b):
    return np.fmod(a, b)


def mean(x, axes, keepdims=False):
    n = int(np.prod([x.shape[a] for a in axes]))
    return divide(np.sum(x, axes, keepdims=keepdims), np.asarray(n, x.dtype))


def variance(x, axes, keepdims=False):
    c = x - mean(x, axes, True)
    return mean(c * c, axes, keepdims)


def norm(x, axes, gamma, beta, epsilon=1e-5):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta; gamma and beta broadcast."""
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon) * gamma + beta


def conv(x, w, stride=1, pad=0, dilation=1, groups=1):
    """Convolution of [N, C, spatial...] with [O, I/groups, spatial...]; ``pad``: a number, or (before, after) per dimension."""
    n = x.ndim - 2
    pairs = [(pad, pad)] * n if isinstance(pad, int) else pad
    flat = [p for pair in reversed(pairs) for p in pair]
    f = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    return of_torch(lambda a, b: f(F.pad(a, flat), b, stride=stride, dilation=dilation, groups=groups))(x, w)


def conv_transpose(x, w, stride=1, pad=0, out_pad=0, groups=1):
    return of_torch(F.conv_transpose2d, stride=stride, padding=pad, output_padding=out_pad, groups=groups)(x, w)


def laid_out(f, source, kernel, spatial="HW"):
    """``f`` on [N, C, ...] and [O, I, ...] as a function of arrays in the layouts ``source`` and ``kernel``; the result has the
    layout of the data."""
    plain, k = "NC" + spatial, "OI" + spatial

    def want(x, w):
        y = f(x.transpose([source.index(c) for c in plain]), w.transpose([kernel.index(c) for c in k]))
        return y.transpose([plain.index(c) for c in source])

    return want


def windows(x, size, stride, pad, dilation, ceil, fill):
    """[N, C, spatial...] to [N, C, outputs..., window...]: the windows of a pool, those of ``ceil`` too."""
    n = x.ndim - 2
    pads = [(p, p + (s - 1 if ceil else 0)) for p, s in zip(pad, stride)]
    x = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    out = [(x.shape[2 + i] - (size[i] - 1) * dilation[i] - 1) // stride[i] + 1 for i in range(n)]
    grids = np.ix_(
        *[np.arange(o) * s for o, s in zip(out, stride)], *[np.arange(k) * q for k, q in zip(size, dilation)]
    )
    return x[(slice(None), slice(None), *[grids[i] + grids[n + i] for i in range(n)])]


def max_pool(x, size, stride, pad=None, dilation=None, ceil=False):
    n = x.ndim - 2
    least = -np.inf if x.dtype.kind == "f" else np.iinfo("int64").min
    w = windows(x, size, stride, pad or [0] * n, dilation or [1] * n, ceil, least)
    return w.max(tuple(range(-n, 0)))


def avg_pool(x, size, stride, pad=None, dilation=None, ceil=False, count_pad=False):
    """As in PyTorch: what lies beyond the padding does not count, the padding itself if asked for."""
    n = x.ndim - 2
    pad, dilation = pad or [0] * n, dilation or [1] * n
    axes = tuple(range(-n, 0))
    ones = np.pad(np.ones_like(x), [(0, 0), (0, 0), *[(p, p) for p in pad]], constant_values=1 if count_pad else 0)
    total = windows(x, size, stride, pad, dilation, ceil, 0).sum(axes)
    more = [(0, s - 1 if ceil else 0) for s in stride]
    ones = np.pad(ones, [(0, 0), (0, 0), *more])
    count = windows(ones, size, stride, [0] * n, dilation, False, 0).sum(axes)[: total.shape[0]]
    return divide(total, np.maximum(count, 1))


def adaptive(x, size, kind):
    """Adaptive pooling of [N, C, spatial...]."""
    n = x.ndim - 2
    out = np.empty((*x.shape[:2], *size), x.dtype)
    for at in np.ndindex(*size):
        cut = [slice(a * i // o, -(-(a + 1) * i // o)) for a, i, o in zip(at, x.shape[2:], size)]
        w = x[(slice(None), slice(None), *cut)]
        axes = tuple(range(-n, 0))
        out[(slice(None), slice(None), *at)] = (
            w.max(axes) if kind == "max" else mean(w, tuple(a % w.ndim for a in axes))
        )
    return out


def channels_last(f):
    """``f`` on [N, C, ...] as a function of [N, ..., C]."""
    return lambda x: np.moveaxis(f(np.moveaxis(x, -1, 1)), 1, -1)


def softmax(axis, log=False):
    return of_torch(F.log_softmax if log else F.softmax, axis)


def depth_to_space(x, b, mode):
    n, c, h, w = x.shape
    shape = (n, b, b, c // b**2, h, w) if mode == "DCR" else (n, c // b**2, b, b, h, w)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    return x.reshape(shape).transpose(order).reshape(n, c // b**2, h * b, w * b)


def space_to_depth(x, b):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


def winograd_weight(w, matrices, tile):
    g = np.array(matrices(tile)[2], "float64")
    return np.einsum("ac,oicd,bd->aboi", g, w, g)
