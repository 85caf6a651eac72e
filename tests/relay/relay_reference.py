"""An evaluator of relay graphs that shares nothing with the compiler: convolutions and pools are PyTorch's, the rest
NumPy."""

import numpy as np
import torch
import torch.nn.functional as F

from nestsmith.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var, post_order
from nestsmith.relay.op.nn import conv_axes, winograd_matrices

_SP = {1: "W", 2: "HW", 3: "DHW"}


def _t(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def _pad(x, padding, n, value=0.0):
    p = []
    for k in reversed(range(n)):
        p += [padding[k], padding[k + n]]
    return F.pad(x, p, value=value)


def _conv(a, x, w, dims, transposed=False):
    dpos, kpos = conv_axes(a, dims)
    order = "NC" + _SP[dims]
    if transposed:  # torch wants I, O/groups, spatial
        w = w.transpose([kpos[1], kpos[0], *kpos[2:]])
    else:
        channels = x.shape[dpos[1]]
        depthwise = a.groups > 1 and a.groups == channels == w.shape[kpos[0]]
        w = w.transpose(kpos)
        if depthwise:
            w = w.reshape(w.shape[0] * w.shape[1], 1, *w.shape[2:])
    x = _t(x.transpose(dpos))
    if transposed:
        fn = F.conv_transpose2d
        h, v = a.padding[:2], a.padding[2:]
        assert tuple(h) == tuple(v)
        y = fn(
            x,
            _t(w),
            stride=a.strides,
            padding=tuple(h),
            output_padding=a.output_padding,
            groups=a.groups,
            dilation=a.dilation,
        )
    else:
        fn = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[dims]
        y = fn(_pad(x, a.padding, dims), _t(w), stride=a.strides, dilation=a.dilation, groups=a.groups)
    out = a.out_layout or a.data_layout
    return y.numpy().transpose([order.index(c) for c in out])


def _winograd(a, x, u):
    """The direct convolution with the weight that the transformed one stands for."""
    g = winograd_matrices(a.tile_size, 3)[2]
    inv = np.linalg.pinv(g)
    w = np.einsum("ae,enoc,bn->abco", inv, u.astype("float64"), inv).astype(x.dtype)
    return _conv(type(a)(a, kernel_layout="HWIO"), x, w, 2)


def _pool(a, x, dims, kind):
    pos = [a.layout.find(c) for c in _SP[dims]]
    rest = [i for i in range(x.ndim) if i not in pos]
    y = _t(x.transpose(rest + pos))
    lead = y.shape[: len(rest)]
    y = y.reshape(1, -1, *y.shape[len(rest) :]) if len(rest) != 2 else y
    if kind == "max":
        fn = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[dims]
        y = fn(_pad(y, a.padding, dims, -np.inf), a.pool_size, a.strides, dilation=a.dilation, ceil_mode=a.ceil_mode)
    else:
        fn = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[dims]
        y = fn(
            y, a.pool_size, a.strides, a.padding[:dims], ceil_mode=a.ceil_mode, count_include_pad=a.count_include_pad
        )
    y = y.reshape(*lead, *y.shape[-dims:]).numpy()
    return y.transpose(np.argsort(rest + pos))


def _adaptive(a, x, dims, kind):
    pos = [a.layout.find(c) for c in _SP[dims]]
    rest = [i for i in range(x.ndim) if i not in pos]
    fn = getattr(F, f"adaptive_{kind}_pool{dims}d")
    y = fn(_t(x.transpose(rest + pos)), a.get("output_size") or (1,) * dims).numpy()
    return y.transpose(np.argsort(rest + pos))


def _batch_norm(a, x, gamma, beta, mean, var):
    shape = [-1] + [1] * (x.ndim - a.axis % x.ndim - 1)
    s = 1 / np.sqrt(var + a.epsilon)
    s = s * gamma if a.scale else s
    t = -mean * s + (beta if a.center else 0)
    return [(x * s.reshape(shape) + t.reshape(shape)).astype(x.dtype), mean, var]


def _norm(a, x, gamma, beta, axes, shape):
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + a.epsilon)
    return (y * gamma.reshape(shape) + beta.reshape(shape)).astype(x.dtype)


def _special(e, v):
    a, name = e.attrs, e.op_name
    if name in ("nn.conv1d", "nn.conv2d", "nn.conv3d"):
        return _conv(a, *v, int(name[7]))
    if name == "nn.conv2d_transpose":
        return _conv(a, *v, 2, True)
    if name == "nn.contrib_conv2d_winograd_without_weight_transform":
        return _winograd(a, *v)
    if name.startswith("nn.adaptive_"):
        return _adaptive(a, v[0], int(name[-2]), name[12:15])
    if name.startswith("nn.global_"):
        return _adaptive(a, v[0], 2, name[10:13])
    if name.startswith(("nn.max_pool", "nn.avg_pool")):
        return _pool(a, v[0], int(name[-2]), name[3:6])
    if name == "nn.batch_norm":
        return _batch_norm(a, *v)
    if name == "nn.dropout":
        return [v[0], np.ones_like(v[0])]
    if name == "nn.layer_norm":
        axis = a.axis % v[0].ndim
        return _norm(a, *v, (axis,), [-1] + [1] * (v[0].ndim - axis - 1))
    if name == "nn.instance_norm":
        axis = a.axis % v[0].ndim
        axes = tuple(i for i in range(v[0].ndim) if i not in (0, axis))
        return _norm(a, *v, axes, [-1] + [1] * (v[0].ndim - axis - 1))
    return None


def evaluate(func, inputs):
    """Value of a function for `inputs` (parameter name -> array): an array, or a list for a tuple."""
    env = {id(p): np.asarray(inputs[p.name_hint]) for p in func.params}
    return _evaluate(func.body, env)


def _evaluate(body, env):
    for e in post_order(body):
        if id(e) in env:
            continue
        if isinstance(e, Constant):
            env[id(e)] = e.data
        elif isinstance(e, Tuple):
            env[id(e)] = [env[id(f)] for f in e.fields]
        elif isinstance(e, TupleGetItem):
            env[id(e)] = env[id(e.tuple_value)][e.index]
        elif isinstance(e, Call) and isinstance(e.op, Function):
            env[id(e)] = _evaluate(e.op.body, {id(p): env[id(a)] for p, a in zip(e.op.params, e.args)})
        elif isinstance(e, Call):
            v = [env[id(a)] for a in e.args]
            out = _special(e, v)
            env[id(e)] = e.op.evaluate(e.attrs, *v) if out is None else out
        elif isinstance(e, (Function, Var)):
            continue
        elif isinstance(e, (Let, If)):
            raise NotImplementedError(type(e).__name__)
    return env[id(body)]


def relative_error(got, want):
    """Largest difference relative to the largest value."""
    got, want = np.asarray(got, "float64"), np.asarray(want, "float64")
    assert got.shape == want.shape, f"{got.shape} is not {want.shape}"
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))
