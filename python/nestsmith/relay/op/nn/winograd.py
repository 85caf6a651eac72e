"""Winograd's convolution, split into a transform of the weight (done once, while building) and the rest."""

from __future__ import annotations

import numpy as np

from ....numerics import is_float, sum_type
from ....topi.nn.winograd import transform_matrices
from ...ty import TensorType
from ..registry import ANCHOR, NEVER, call, register, tensor
from .util import layout_axes, window_out

__all__ = [
    "contrib_conv2d_winograd_weight_transform",
    "contrib_conv2d_winograd_without_weight_transform",
    "winograd_matrices",
]


def _float_tensor(types, i):
    t = tensor(types, i)
    if not is_float(t.dtype):
        raise ValueError(f"argument {i} is {t.dtype}, but the transforms are made of fractions; use nn.conv2d")
    return t


def _wino_weight_infer(attrs, types):
    w = _float_tensor(types, 0)
    o, i, kh, kw = w.shape
    return TensorType((attrs.tile_size + kh - 1, attrs.tile_size + kw - 1, o, i), sum_type(w.dtype))


def _wino_weight_numpy(attrs, w):
    g = winograd_matrices(attrs.tile_size, w.shape[2])[2]
    n, (o, i) = g.shape[0], w.shape[:2]
    dtype = sum_type(str(w.dtype))
    both = np.kron(g, g).astype(dtype)  # G w G^T as one matrix product
    return np.ascontiguousarray((both @ w.astype(dtype).reshape(o * i, -1).T).reshape(n, n, o, i))


def winograd_matrices(m, r):
    """(A, B, G) with m outputs and r taps, as arrays of float64: shapes (a, m), (a, a), (a, r), a = m + r - 1."""
    return tuple(np.array(matrix, dtype="float64") for matrix in transform_matrices(m, r))


def _wino_infer(attrs, types):
    t, w = _float_tensor(types, 0), _float_tensor(types, 1)
    n, _, h, ww = (t.shape[p] for p in layout_axes(attrs.data_layout, "NCHW"))
    co = w.shape[2]
    pads = [attrs.padding[0] + attrs.padding[2], attrs.padding[1] + attrs.padding[3]]
    shape = [0] * 4
    out = layout_axes(attrs.get("out_layout") or attrs.data_layout, "NCHW")
    for p, d in zip(out, (n, co, window_out(h, 3, 1, 1, pads[0]), window_out(ww, 3, 1, 1, pads[1]))):
        shape[p] = d
    return TensorType(shape, attrs.out_dtype or t.dtype)


register("nn.contrib_conv2d_winograd_weight_transform", ANCHOR, _wino_weight_infer, _wino_weight_numpy, colour=NEVER)
register("nn.contrib_conv2d_winograd_without_weight_transform", ANCHOR, _wino_infer, colour=NEVER)


def contrib_conv2d_winograd_weight_transform(weight, tile_size):
    """OIHW weight -> [tile+k-1, tile+k-1, O, I]; float32 if the weight has 16-bit floats."""
    return call("nn.contrib_conv2d_winograd_weight_transform", [weight], tile_size=int(tile_size))


def contrib_conv2d_winograd_without_weight_transform(data, weight, tile_size, **attrs):
    """Winograd convolution whose weight is already transformed; other attributes as conv2d."""
    return call(
        "nn.contrib_conv2d_winograd_without_weight_transform", [data, weight], tile_size=int(tile_size), **attrs
    )
