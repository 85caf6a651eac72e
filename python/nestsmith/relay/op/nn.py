"""Neural-network operators: convolutions, matrix products, pools, normalisations, activations.

Paddings are stored with two values per spatial axis, all begin values first, then all end values (2-D: top, left,
bottom, right); builders accept one number, one per axis, or both.
"""

from __future__ import annotations

import numpy as np

from ..expr import TupleWrapper, const
from ..ty import Any, TensorType, TupleType
from .reduce import softmax_numpy
from .registry import ANCHOR, BROADCAST, ELEMWISE, INJECTIVE, OPAQUE, as_expr, call, norm_axis, register, tensor

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv2d_transpose",
    "dense",
    "matmul",
    "batch_matmul",
    "bias_add",
    "batch_norm",
    "layer_norm",
    "instance_norm",
    "group_norm",
    "l2_normalize",
    "global_avg_pool2d",
    "global_max_pool2d",
    "softmax",
    "log_softmax",
    "relu",
    "leaky_relu",
    "prelu",
    "dropout",
    "batch_flatten",
    "pad",
    "upsampling",
    "depth_to_space",
    "space_to_depth",
    "lrn",
    "fast_softmax",
    "contrib_conv2d_winograd_weight_transform",
    "contrib_conv2d_winograd_without_weight_transform",
]


def _tuple(v, n, what):
    v = (int(v),) * n if isinstance(v, (int, np.integer)) else tuple(int(x) for x in v)
    if len(v) == 1:
        v *= n
    if len(v) != n:
        raise ValueError(f"{what} {v} must have {n} values")
    return v


def _padding(v, n):
    v = (int(v),) * n if isinstance(v, (int, np.integer)) else tuple(int(x) for x in v)
    if len(v) == 1:
        v *= n
    if len(v) == n:
        v += v
    if len(v) != 2 * n:
        raise ValueError(f"padding {v} must be a number, {n} values or {2 * n} values (all begins, then all ends)")
    return v


def _axes(layout, letters):
    pos = [layout.find(c) for c in letters]
    if min(pos) < 0 or len(layout) != len(letters):
        raise ValueError(f"layout {layout!r} must be an order of the letters {letters}")
    return pos


_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def conv_axes(attrs, dims, out_letters="O"):
    """Positions in data layout (N, C, spatial...) and in kernel layout (O, I, spatial...)."""
    sp = _SPATIAL[dims]
    return _axes(attrs.data_layout, "NC" + sp), _axes(attrs.kernel_layout, "OI" + sp)


def _div(n, k):
    return n if isinstance(n, Any) else n // k


def conv_out(n, k, stride, dilation, pads):
    """Extent of a convolved axis; ValueError if the kernel does not fit."""
    if isinstance(n, Any):
        return n
    out = (n + pads - dilation * (k - 1) - 1) // stride + 1
    if out <= 0:
        raise ValueError(f"a kernel of extent {k} (dilation {dilation}) does not fit into {n} + {pads} of padding")
    return out


def _conv_infer(dims, transposed=False):
    def infer(attrs, types):
        t = tensor(types, 0)
        if len(t.shape) != dims + 2:
            raise ValueError(f"the data must have rank {dims + 2}")
        dpos, kpos = conv_axes(attrs, dims)
        n, c, *sp = (t.shape[p] for p in dpos)
        groups = attrs.groups
        if groups < 1 or (not isinstance(c, Any) and c % groups):
            raise ValueError(f"{c} input channels do not divide into {groups} groups")
        if types[1] is None:
            if attrs.channels is None or attrs.kernel_size is None:
                raise ValueError("the weight has no type: give channels and kernel_size")
            o, i = (attrs.channels // groups, c) if transposed else (attrs.channels, c // groups)
            if not transposed and groups > 1 and groups == c and "I" in attrs.kernel_layout:
                o, i = (c, attrs.channels // groups)
            w = [0] * (dims + 2)
            for p, d in zip(kpos, (o, i, *attrs.kernel_size)):
                w[p] = d
            types[1] = TensorType(w, t.dtype)
        w = tensor(types, 1)
        if len(w.shape) != dims + 2:
            raise ValueError(f"the weight must have rank {dims + 2}")
        o, i, *ks = (w.shape[p] for p in kpos)
        if transposed:
            co, ci = o * groups, i
        elif groups > 1 and groups == c and o == c:
            co, ci = o * i, c  # depthwise: I is the channel multiplier
        else:
            co, ci = o, i * groups
        if not isinstance(c, Any) and ci != c:
            raise ValueError(
                f"the weight {w} (layout {attrs.kernel_layout}) is for {ci} input channels, the data has {c}"
            )
        if attrs.channels is not None and attrs.channels != co:
            raise ValueError(f"channels={attrs.channels}, but the weight gives {co}")
        if attrs.kernel_size is not None and tuple(attrs.kernel_size) != tuple(ks):
            raise ValueError(f"kernel_size={tuple(attrs.kernel_size)}, but the weight has {tuple(ks)}")
        pads = [attrs.padding[k] + attrs.padding[k + dims] for k in range(dims)]
        if transposed:
            osp = [
                (x - 1) * s + d * (k - 1) + 1 - p + op
                for x, s, d, k, p, op in zip(sp, attrs.strides, attrs.dilation, ks, pads, attrs.output_padding)
            ]
        else:
            osp = [conv_out(x, k, s, d, p) for x, k, s, d, p in zip(sp, ks, attrs.strides, attrs.dilation, pads)]
        shape = [0] * (dims + 2)
        layout = attrs.out_layout or attrs.data_layout
        for p, d in zip(_axes(layout, "NC" + _SPATIAL[dims]), (n, co, *osp)):
            shape[p] = d
        return TensorType(shape, attrs.out_dtype or t.dtype)

    return infer


def _conv(
    dims,
    name,
    data,
    weight,
    strides,
    padding,
    dilation,
    groups,
    channels,
    kernel_size,
    data_layout,
    kernel_layout,
    out_layout,
    out_dtype,
    **more,
):
    ks = None if kernel_size is None else _tuple(kernel_size, dims, "kernel_size")
    return call(
        name,
        [data, weight],
        strides=_tuple(strides, dims, "strides"),
        padding=_padding(padding, dims),
        dilation=_tuple(dilation, dims, "dilation"),
        groups=int(groups),
        channels=None if channels is None else int(channels),
        kernel_size=ks,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_layout=out_layout,
        out_dtype=out_dtype,
        **more,
    )


for _d in (1, 2, 3):
    register(f"nn.conv{_d}d", ANCHOR, _conv_infer(_d))
register("nn.conv2d_transpose", ANCHOR, _conv_infer(2, True))


def conv1d(
    data,
    weight,
    strides=1,
    padding=0,
    dilation=1,
    groups=1,
    channels=None,
    kernel_size=None,
    data_layout="NCW",
    kernel_layout="OIW",
    out_layout="",
    out_dtype="",
):
    """1-D convolution."""
    return _conv(
        1,
        "nn.conv1d",
        data,
        weight,
        strides,
        padding,
        dilation,
        groups,
        channels,
        kernel_size,
        data_layout,
        kernel_layout,
        out_layout,
        out_dtype,
    )


def conv2d(
    data,
    weight,
    strides=(1, 1),
    padding=(0, 0),
    dilation=(1, 1),
    groups=1,
    channels=None,
    kernel_size=None,
    data_layout="NCHW",
    kernel_layout="OIHW",
    out_layout="",
    out_dtype="",
):
    """2-D convolution. With `channels` and `kernel_size` an untyped weight variable gets its shape from here."""
    return _conv(
        2,
        "nn.conv2d",
        data,
        weight,
        strides,
        padding,
        dilation,
        groups,
        channels,
        kernel_size,
        data_layout,
        kernel_layout,
        out_layout,
        out_dtype,
    )


def conv3d(
    data,
    weight,
    strides=(1, 1, 1),
    padding=(0, 0, 0),
    dilation=(1, 1, 1),
    groups=1,
    channels=None,
    kernel_size=None,
    data_layout="NCDHW",
    kernel_layout="OIDHW",
    out_layout="",
    out_dtype="",
):
    """3-D convolution."""
    return _conv(
        3,
        "nn.conv3d",
        data,
        weight,
        strides,
        padding,
        dilation,
        groups,
        channels,
        kernel_size,
        data_layout,
        kernel_layout,
        out_layout,
        out_dtype,
    )


def conv2d_transpose(
    data,
    weight,
    strides=(1, 1),
    padding=(0, 0),
    dilation=(1, 1),
    channels=None,
    kernel_size=None,
    groups=1,
    data_layout="NCHW",
    kernel_layout="IOHW",
    out_layout="",
    output_padding=(0, 0),
    out_dtype="",
):
    """2-D transposed convolution."""
    return _conv(
        2,
        "nn.conv2d_transpose",
        data,
        weight,
        strides,
        padding,
        dilation,
        groups,
        channels,
        kernel_size,
        data_layout,
        kernel_layout,
        out_layout,
        out_dtype,
        output_padding=_tuple(output_padding, 2, "output_padding"),
    )


# ---- Winograd: the convolution split into a transform of the weight and the rest -----------------------------------


def _wino_weight_infer(attrs, types):
    w = tensor(types, 0)
    o, i, kh, kw = w.shape
    return TensorType((attrs.tile_size + kh - 1, attrs.tile_size + kw - 1, o, i), w.dtype)


def _wino_weight_numpy(attrs, w):
    g = winograd_matrices(attrs.tile_size, w.shape[2])[2]
    n, (o, i) = g.shape[0], w.shape[:2]
    both = np.kron(g, g).astype(w.dtype)  # G w G^T as one matrix product
    return np.ascontiguousarray((both @ w.reshape(o * i, -1).T).reshape(n, n, o, i).astype(w.dtype))


def winograd_matrices(m, r):
    """(A, B, G) of the Cook-Toom construction with m outputs and r taps: shapes (a, m), (a, a), (a, r), a = m + r -
    1."""
    points = [0.0, -1.0, 1.0, 0.5, -2.0, -0.5, 2.0, 0.25, -4.0]
    n = m + r - 1
    if n - 1 > len(points):
        raise ValueError(f"tile {m} with {r} taps is too large")
    pts = points[: n - 1]
    f = np.array([np.prod([a - b for k, b in enumerate(pts) if k != i]) for i, a in enumerate(pts)] + [1.0])
    scale = f.copy()
    scale[0] = abs(scale[0])
    vander = lambda cols: np.array([[a**j for j in range(cols)] for a in pts] + [[0.0] * (cols - 1) + [1.0]])  # noqa: E731
    poly = np.zeros((n - 1, n - 1))
    for i in range(n - 1):
        p = np.array([1.0])
        for k, b in enumerate(pts):
            if k != i:
                p = np.convolve(p, [-b, 1.0])
        poly[:, i] = p / f[i]
    t = np.concatenate([np.eye(n - 1), np.array([[-(a ** (n - 1))] for a in pts])], 1)
    b0 = np.concatenate([poly @ t, [[0.0] * (n - 1) + [1.0]]], 0)
    return vander(m), b0 * scale, vander(r) / scale[:, None]


def _wino_infer(attrs, types):
    t, w = tensor(types, 0), tensor(types, 1)
    dpos = _axes(attrs.data_layout, "NCHW")
    n, _, h, ww = (t.shape[p] for p in dpos)
    co = w.shape[2]
    pads = [attrs.padding[0] + attrs.padding[2], attrs.padding[1] + attrs.padding[3]]
    shape = [0] * 4
    for p, d in zip(dpos, (n, co, conv_out(h, 3, 1, 1, pads[0]), conv_out(ww, 3, 1, 1, pads[1]))):
        shape[p] = d
    return TensorType(shape, attrs.out_dtype or t.dtype)


register("nn.contrib_conv2d_winograd_weight_transform", ANCHOR, _wino_weight_infer, _wino_weight_numpy)
register("nn.contrib_conv2d_winograd_without_weight_transform", ANCHOR, _wino_infer)


def contrib_conv2d_winograd_weight_transform(weight, tile_size):
    """OIHW weight -> [tile+k-1, tile+k-1, O, I]."""
    return call("nn.contrib_conv2d_winograd_weight_transform", [weight], tile_size=int(tile_size))


def contrib_conv2d_winograd_without_weight_transform(data, weight, tile_size, **attrs):
    """Winograd convolution whose weight is already transformed; other attributes as conv2d."""
    return call(
        "nn.contrib_conv2d_winograd_without_weight_transform", [data, weight], tile_size=int(tile_size), **attrs
    )


# ---- matrix products -----------------------------------------------------------------------------------------------


def _dense_infer(attrs, types):
    t = tensor(types, 0)
    if types[1] is None:
        if attrs.units is None:
            raise ValueError("the weight has no type: give units")
        types[1] = TensorType((attrs.units, t.shape[-1]), t.dtype)
    w = tensor(types, 1)
    if len(w.shape) != 2 or w.shape[1] != t.shape[-1] and not isinstance(t.shape[-1], Any):
        raise ValueError(f"the weight {w} must be (units, {t.shape[-1]})")
    return TensorType(t.shape[:-1] + (w.shape[0],), attrs.out_dtype or t.dtype)


register("nn.dense", ANCHOR, _dense_infer, lambda attrs, x, w: (x @ w.T).astype(attrs.out_dtype or x.dtype))


def dense(data, weight, units=None, out_dtype=""):
    """``data @ weight.T``; weight is (units, in)."""
    return call("nn.dense", [data, weight], units=None if units is None else int(units), out_dtype=out_dtype)


def _matmul_infer(attrs, types):
    a = tensor(types, 0)
    ka = a.shape[-2] if attrs.transpose_a else a.shape[-1]
    m = a.shape[-1] if attrs.transpose_a else a.shape[-2]
    if types[1] is None and attrs.units is not None:
        types[1] = TensorType((attrs.units, ka) if attrs.transpose_b else (ka, attrs.units), a.dtype)
    b = tensor(types, 1)
    n, kb = (b.shape[-2], b.shape[-1]) if attrs.transpose_b else (b.shape[-1], b.shape[-2])
    if not isinstance(ka, Any) and not isinstance(kb, Any) and ka != kb:
        raise ValueError(f"inner extents {ka} and {kb} differ")
    return TensorType(a.shape[:-2] + (m, n), attrs.out_dtype or a.dtype)


def _np_matmul(attrs, a, b):
    a = a.swapaxes(-1, -2) if attrs.transpose_a else a
    b = b.swapaxes(-1, -2) if attrs.transpose_b else b
    return (a @ b).astype(attrs.out_dtype or a.dtype)


register("nn.matmul", ANCHOR, _matmul_infer, _np_matmul)


def matmul(tensor_a, tensor_b, units=None, out_dtype="", transpose_a=False, transpose_b=False):
    """Matrix product with optional transposes."""
    return call(
        "nn.matmul",
        [tensor_a, tensor_b],
        units=None if units is None else int(units),
        out_dtype=out_dtype,
        transpose_a=bool(transpose_a),
        transpose_b=bool(transpose_b),
    )


def _batch_matmul_infer(attrs, types):
    a, b = tensor(types, 0), tensor(types, 1)
    if len(a.shape) != 3 or len(b.shape) != 3:
        raise ValueError("both arguments must have rank 3")
    ba, bb = a.shape[0], b.shape[0]
    if not isinstance(ba, Any) and not isinstance(bb, Any) and ba != bb and 1 not in (ba, bb):
        raise ValueError(f"batches {ba} and {bb} do not broadcast")
    k, m = (a.shape[1], a.shape[2]) if attrs.transpose_a else (a.shape[2], a.shape[1])
    k2, n = (b.shape[2], b.shape[1]) if attrs.transpose_b else (b.shape[1], b.shape[2])
    if k != k2 and not isinstance(k, Any) and not isinstance(k2, Any):
        raise ValueError(f"inner extents {k} and {k2} differ")
    return TensorType((bb if ba == 1 else ba, m, n), attrs.out_dtype or a.dtype)


register("nn.batch_matmul", ANCHOR, _batch_matmul_infer, _np_matmul)


def batch_matmul(tensor_a, tensor_b, out_dtype="", transpose_a=False, transpose_b=True):
    """Product of batches of matrices; by default the second operand is transposed."""
    return call(
        "nn.batch_matmul",
        [tensor_a, tensor_b],
        out_dtype=out_dtype,
        transpose_a=bool(transpose_a),
        transpose_b=bool(transpose_b),
    )


# ---- bias and normalisation ----------------------------------------------------------------------------------------


def _bias_infer(attrs, types):
    t = tensor(types, 0)
    axis = norm_axis(attrs.axis, len(t.shape))
    if types[1] is None:
        types[1] = TensorType((t.shape[axis],), t.dtype)
    b = tensor(types, 1)
    if len(b.shape) != 1 or b.shape[0] != t.shape[axis] and not isinstance(t.shape[axis], Any):
        raise ValueError(f"the bias {b} must be ({t.shape[axis]},)")
    return t


def channel(v, rank, axis):
    """A per-channel NumPy vector shaped to broadcast along `axis`."""
    return v.reshape([-1] + [1] * (rank - axis % rank - 1))


register("nn.bias_add", BROADCAST, _bias_infer, lambda attrs, x, b: x + channel(b, x.ndim, attrs.axis))


def bias_add(data, bias, axis=1):
    """Adds a vector along `axis`."""
    return call("nn.bias_add", [data, bias], axis=int(axis))


def _norm_infer(n_vec, tuple_out=False):
    def infer(attrs, types):
        t = tensor(types, 0)
        axis = norm_axis(attrs.axis, len(t.shape))
        vec = TensorType((t.shape[axis],), t.dtype)
        for i in range(1, n_vec + 1):
            if types[i] is None:
                types[i] = vec
            elif types[i].shape != vec.shape:
                raise ValueError(f"argument {i} must be ({t.shape[axis]},)")
        return TupleType([t, vec, vec]) if tuple_out else t

    return infer


register("nn.batch_norm", ANCHOR, _norm_infer(4, True))
register("nn.layer_norm", OPAQUE, _norm_infer(2))
register("nn.instance_norm", OPAQUE, _norm_infer(2))
register("nn.group_norm", OPAQUE, _norm_infer(2))
register("nn.l2_normalize", OPAQUE, lambda attrs, types: tensor(types, 0))


def batch_norm(data, gamma, beta, moving_mean, moving_var, axis=1, epsilon=1e-5, center=True, scale=True):
    """Batch normalisation; three results (data, mean, variance). Rewritten to multiply and add for inference."""
    out = call(
        "nn.batch_norm",
        [data, gamma, beta, moving_mean, moving_var],
        axis=int(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )
    return TupleWrapper(out, 3)


def layer_norm(data, gamma, beta, axis=-1, epsilon=1e-5, center=True, scale=True):
    """Normalises over one axis."""
    return call(
        "nn.layer_norm",
        [data, gamma, beta],
        axis=int(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


def instance_norm(data, gamma, beta, axis=1, epsilon=1e-5, center=True, scale=True):
    """Normalises over all axes except batch and channel."""
    return call(
        "nn.instance_norm",
        [data, gamma, beta],
        axis=int(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


def group_norm(data, gamma, beta, num_groups, axis=1, epsilon=1e-5, center=True, scale=True):
    """Normalises over groups of channels."""
    return call(
        "nn.group_norm",
        [data, gamma, beta],
        num_groups=int(num_groups),
        axis=int(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


def l2_normalize(data, eps, axis=None):
    """``data / sqrt(max(sum(data**2, axis), eps))``"""
    return call("nn.l2_normalize", [data], eps=float(eps), axis=None if axis is None else tuple(axis))


# ---- pools ---------------------------------------------------------------------------------------------------------

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def pool_axes(layout, dims):
    """Positions of the pooled axes in `layout`."""
    pos = [layout.find(c) for c in _SPATIAL[dims]]
    if min(pos) < 0:
        raise ValueError(f"layout {layout!r} must contain {_SPATIAL[dims]}")
    return pos


def _pool_infer(dims):
    def infer(attrs, types):
        t = tensor(types, 0)
        if len(t.shape) != len(attrs.layout):
            raise ValueError(f"layout {attrs.layout} needs rank {len(attrs.layout)}")
        shape = list(t.shape)
        for k, p in enumerate(pool_axes(attrs.layout, dims)):
            pads = attrs.padding[k] + attrs.padding[k + dims] + (attrs.strides[k] - 1 if attrs.ceil_mode else 0)
            shape[p] = conv_out(shape[p], attrs.pool_size[k], attrs.strides[k], attrs.dilation[k], pads)
        return TensorType(shape, t.dtype)

    return infer


def _adaptive_infer(dims):
    def infer(attrs, types):
        t = tensor(types, 0)
        shape = list(t.shape)
        size = attrs.get("output_size")
        for k, p in enumerate(pool_axes(attrs.layout, dims)):
            shape[p] = 1 if size is None else (shape[p] if size[k] is None else size[k])
        return TensorType(shape, t.dtype)

    return infer


def _make_pool(kind, dims):
    name = f"nn.{kind}_pool{dims}d"
    register(name, ANCHOR, _pool_infer(dims))

    def build(
        data,
        pool_size=(1,) * dims,
        strides=(1,) * dims,
        dilation=(1,) * dims,
        padding=(0,) * dims,
        layout=_LAYOUT[dims],
        out_layout="",
        ceil_mode=False,
        count_include_pad=False,
    ):
        more = {"count_include_pad": bool(count_include_pad)} if kind == "avg" else {}
        return call(
            name,
            [data],
            pool_size=_tuple(pool_size, dims, "pool_size"),
            strides=_tuple(strides, dims, "strides"),
            dilation=_tuple(dilation, dims, "dilation"),
            padding=_padding(padding, dims),
            layout=layout,
            out_layout=out_layout,
            ceil_mode=bool(ceil_mode),
            **more,
        )

    build.__name__ = build.__qualname__ = f"{kind}_pool{dims}d"
    build.__doc__ = f"{'Largest element' if kind == 'max' else 'Mean'} of each window of a {dims}-D map."
    return build


def _make_adaptive(kind, dims):
    name = f"nn.adaptive_{kind}_pool{dims}d"
    register(name, ANCHOR, _adaptive_infer(dims))

    def build(data, output_size=None, layout=_LAYOUT[dims], out_layout=""):
        size = (
            (1,) * dims
            if output_size is None
            else (output_size,) * dims
            if isinstance(output_size, int)
            else tuple(output_size)
        )
        return call(name, [data], output_size=size, layout=layout, out_layout=out_layout)

    build.__name__ = build.__qualname__ = f"adaptive_{kind}_pool{dims}d"
    build.__doc__ = f"Pools a {dims}-D map to `output_size`: window i of m covers floor(i*n/m) to ceil((i+1)*n/m)."
    return build


for _d in (1, 2, 3):
    for _k in ("max", "avg"):
        globals()[f"{_k}_pool{_d}d"] = _make_pool(_k, _d)
        globals()[f"adaptive_{_k}_pool{_d}d"] = _make_adaptive(_k, _d)
        __all__ += [f"{_k}_pool{_d}d", f"adaptive_{_k}_pool{_d}d"]
register("nn.global_avg_pool2d", ANCHOR, _adaptive_infer(2))
register("nn.global_max_pool2d", ANCHOR, _adaptive_infer(2))


def global_avg_pool2d(data, layout="NCHW", out_layout=""):
    """Mean over the spatial axes, which stay with extent 1."""
    return call("nn.global_avg_pool2d", [data], layout=layout, out_layout=out_layout)


def global_max_pool2d(data, layout="NCHW", out_layout=""):
    """Maximum over the spatial axes, which stay with extent 1."""
    return call("nn.global_max_pool2d", [data], layout=layout, out_layout=out_layout)


# ---- activations ---------------------------------------------------------------------------------------------------


def _same(attrs, types):
    t = tensor(types, 0)
    if "axis" in attrs:
        norm_axis(attrs.axis, len(t.shape))
    return t


register("nn.softmax", ANCHOR, _same, lambda attrs, x: softmax_numpy(x, attrs.axis))
register("nn.fast_softmax", ANCHOR, _same, lambda attrs, x: softmax_numpy(x, attrs.axis))
register("nn.log_softmax", ANCHOR, _same, lambda attrs, x: np.log(softmax_numpy(x, attrs.axis)))
register("nn.relu", ELEMWISE, _same, lambda attrs, x: np.maximum(x, x.dtype.type(0)))
register("nn.leaky_relu", ELEMWISE, _same, lambda attrs, x: np.where(x > 0, x, x * x.dtype.type(attrs.alpha)))


def softmax(data, axis=-1):
    """``exp(x - max) / sum`` along `axis`."""
    return call("nn.softmax", [data], axis=int(axis))


def fast_softmax(data, axis=-1):
    """softmax with a fast exponential."""
    return call("nn.fast_softmax", [data], axis=int(axis))


def log_softmax(data, axis=-1):
    """Logarithm of the softmax."""
    return call("nn.log_softmax", [data], axis=int(axis))


def relu(data):
    """``max(data, 0)``"""
    return call("nn.relu", [data])


def leaky_relu(data, alpha=0.01):
    """data where positive, else ``alpha * data``."""
    return call("nn.leaky_relu", [data], alpha=float(alpha))


def _prelu_infer(attrs, types):
    return _bias_infer(attrs, types)


register(
    "nn.prelu", BROADCAST, _prelu_infer, lambda attrs, x, a: np.where(x > 0, x, x * channel(a, x.ndim, attrs.axis))
)


def prelu(data, alpha, axis=1):
    """data where positive, else ``alpha * data`` with one alpha per channel."""
    return call("nn.prelu", [data, alpha], axis=int(axis))


register("nn.dropout", OPAQUE, lambda attrs, types: TupleType([tensor(types, 0), tensor(types, 0)]))


def dropout(data, rate=0.5):
    """Nothing at inference; removed by SimplifyInference."""
    return TupleWrapper(call("nn.dropout", [data], rate=float(rate)), 2)[0]


def _flatten_infer(attrs, types):
    t = tensor(types, 0)
    n = 1
    for d in t.shape[1:]:
        n = d if isinstance(d, Any) else n * d
    return TensorType((t.shape[0], n), t.dtype)


register("nn.batch_flatten", INJECTIVE, _flatten_infer, lambda attrs, x: x.reshape(x.shape[0], -1))


def batch_flatten(data):
    """[n, product of the other dimensions]"""
    return call("nn.batch_flatten", [data])


def _pad_infer(attrs, types):
    t = tensor(types, 0)
    if len(attrs.pad_width) != len(t.shape):
        raise ValueError(f"pad_width {attrs.pad_width} must have one pair per axis of {t}")
    return TensorType([d if isinstance(d, Any) else d + a + b for d, (a, b) in zip(t.shape, attrs.pad_width)], t.dtype)


def _np_pad(attrs, x, v):
    mode = {
        "constant": {"mode": "constant", "constant_values": v},
        "edge": {"mode": "edge"},
        "reflect": {"mode": "reflect"},
    }
    return np.pad(x, attrs.pad_width, **mode[attrs.pad_mode])


register("nn.pad", INJECTIVE, _pad_infer, _np_pad)


def pad(data, pad_width, pad_value=0, pad_mode="constant"):
    """Pads each axis by (before, after); pad_mode constant, edge or reflect."""
    if pad_mode not in ("constant", "edge", "reflect"):
        raise ValueError(f"pad_mode {pad_mode!r}; use 'constant', 'edge' or 'reflect'")
    width = tuple((int(a), int(b)) for a, b in pad_width)
    return call(
        "nn.pad",
        [data, as_expr(pad_value) if not isinstance(pad_value, (int, float)) else const(float(pad_value))],
        pad_width=width,
        pad_mode=pad_mode,
    )


def _upsampling_infer(attrs, types):
    t = tensor(types, 0)
    shape = list(t.shape)
    for p, s in zip(pool_axes(attrs.layout, 2), (attrs.scale_h, attrs.scale_w)):
        shape[p] = int(round(shape[p] * s))
    return TensorType(shape, t.dtype)


register("nn.upsampling", INJECTIVE, _upsampling_infer)


def upsampling(data, scale_h=1, scale_w=1, layout="NCHW", method="nearest_neighbor", align_corners=False):
    """Enlarges a map by factors."""
    return call(
        "nn.upsampling",
        [data],
        scale_h=scale_h,
        scale_w=scale_w,
        layout=layout,
        method=method,
        align_corners=bool(align_corners),
    )


def _d2s(sign):
    def infer(attrs, types):
        t = tensor(types, 0)
        _, c, h, w = (t.shape[p] for p in _axes(attrs.layout, "NCHW"))
        b = attrs.block_size
        c, h, w = (c // (b * b), h * b, w * b) if sign > 0 else (c * b * b, h // b, w // b)
        shape = list(t.shape)
        for p, d in zip(_axes(attrs.layout, "NCHW")[1:], (c, h, w)):
            shape[p] = d
        return TensorType(shape, t.dtype)

    return infer


register("nn.depth_to_space", INJECTIVE, _d2s(1))
register("nn.space_to_depth", INJECTIVE, _d2s(-1))


def depth_to_space(data, block_size, layout="NCHW", mode="DCR"):
    """Moves channel blocks into the spatial axes."""
    return call("nn.depth_to_space", [data], block_size=int(block_size), layout=layout, mode=mode)


def space_to_depth(data, block_size, layout="NCHW"):
    """Moves spatial blocks into the channel axis."""
    return call("nn.space_to_depth", [data], block_size=int(block_size), layout=layout)


register("nn.lrn", OPAQUE, lambda attrs, types: tensor(types, 0))


def lrn(data, size=5, axis=1, bias=2.0, alpha=1e-5, beta=0.75):
    """Local response normalisation."""
    return call(
        "nn.lrn", [data], size=int(size), axis=int(axis), bias=float(bias), alpha=float(alpha), beta=float(beta)
    )
