"""One row per function of `topi` and way to use it, as in ``relay_rows``; ``call`` gets placeholders."""

import dataclasses

import numpy as np
import operator_wants as w
import relay_nn_rows
import torch.nn.functional as F
from operator_values import ALL, FLOATS, INTS, NUMBERS, In
from operator_wants import of_torch
from relay_rows import WIDER, Row

from nestsmith import topi

nn = topi.nn
ROWS = []


def row(name, call, want, *inputs, **more):
    ROWS.append(Row(name, call, want, tuple(i if isinstance(i, In) else In(i) for i in inputs), **more))


RELAY = {(r.name, r.title): r for r in relay_nn_rows.ROWS}


def like_relay(name, call, title=""):
    """What the operator of relay that has this name (or this behind ``nn.``) must give; only the call is another one."""
    r = RELAY.get((name, title)) or RELAY[f"nn.{name}", title]
    ROWS.append(dataclasses.replace(r, name=name, call=call))


# Functions that take tensors and nothing else: the rows are those of `relay`.
PLAIN = """
    abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil copy copysign cos cosh divide equal erf erfc
    exp expm1 floor floor_divide floor_mod greater greater_equal hypot left_shift less less_equal log log10 log2 logical_and logical_not
    logical_or logical_xor maximum minimum mod multiply negative not_equal power right_shift round round_tf32 rsqrt sigmoid sign sin
    sinh sqrt subtract tan tanh trunc where
""".split()
for r in relay_nn_rows.ROWS:
    if r.name in PLAIN:
        like_relay(r.name, getattr(topi, r.name), r.title)

S = (3, 5, 7)
W = In(S, wide=True)
row("atanh", topi.atanh, np.arctanh, In(S, -0.9, 0.9))
row("check_index", lambda i: topi.check_index(i, 9), lambda i: i.astype("int32"), In(S, 0, 8), types=INTS, only=True)
row("exp2", topi.exp2, np.exp2, S)
row("exp10", topi.exp10, lambda x: 10.0**x, S)
row("log1p", topi.log1p, np.log1p, In(S, -0.5, 3))
for name in ("isnan", "isinf", "isfinite"):
    row(name, getattr(topi, name), getattr(np, name), S, types=NUMBERS if name == "isnan" else FLOATS)
for relu in ("relu", "nn.relu"):
    like_relay(relu, nn.relu if "." in relu else topi.relu)
for leaky in ("leaky_relu", "nn.leaky_relu"):
    like_relay(leaky, lambda x, f=nn.leaky_relu if "." in leaky else topi.leaky_relu: f(x, 0.125))
like_relay("nn.prelu", nn.prelu)
like_relay("clip", lambda x: topi.clip(x, -1.5, 2))
row(
    "clip",
    lambda x: topi.clip(x, -7, 40),
    lambda x: np.clip(x, -7, 40),
    W,
    types=("int32", "int8", "int64", "int16"),
    title="integers",
)
for r in relay_nn_rows.ROWS:
    if r.name == "cast":
        row(
            "cast",
            lambda x, t=r.title[3:]: topi.cast(x, t),
            r.want,
            *r.inputs,
            types=r.types,
            accuracy=1.0,
            title=r.title,
            only=True,
        )
row("identity", topi.identity, np.copy, W, types=ALL)
row("full", lambda x: topi.add(x, topi.full(S, x.dtype, 3)), lambda x: x + 3, W, types=NUMBERS)
row("full_like", lambda x: topi.add(x, topi.full_like(x, 3)), lambda x: x + 3, W, types=NUMBERS)
like_relay("zeros", lambda x: topi.add(x, topi.zeros(S, x.dtype)))
like_relay("ones", lambda x: topi.add(x, topi.ones(S, x.dtype)))
row("scalar_const", lambda x: topi.multiply(x, topi.scalar_const(3, x.dtype)), lambda x: x * 3, W, types=NUMBERS)
row(
    "arange",
    lambda x: topi.add(x, topi.arange(1, 15, 2, x.dtype)),
    lambda x: x + np.arange(1, 15, 2),
    W,
    types=("float32", "int8", "int64"),
)

# ---- moving data ----
like_relay("broadcast_to", lambda x: topi.broadcast_to(x, (2, 3, 5, 7)))
like_relay("reshape", lambda x: topi.reshape(x, (5, -1)))
like_relay("transpose", lambda x: topi.transpose(x, (2, 0, 1)))
like_relay("expand_dims", lambda x: topi.expand_dims(x, 1, 2))
like_relay("squeeze", lambda x: topi.squeeze(x, 1))
like_relay("concatenate", lambda x, y: topi.concatenate([x, y], 1))
like_relay("stack", lambda x, y: topi.stack([x, y], -1))
like_relay("split", lambda x: topi.split(x, (2, 3), 1))
like_relay("strided_slice", lambda x: topi.strided_slice(x, (0, -1), (3, -5), (2, -2)))
like_relay("tile", lambda x: topi.tile(x, (2, 1, 3)))
like_relay("repeat", lambda x: topi.repeat(x, 3, 1))
like_relay("flip", lambda x: topi.flip(x, 1))
for pad in ("pad", "nn.pad"):
    like_relay(pad, lambda x, f=nn.pad if "." in pad else topi.pad: f(x, (0, 1, 0), (0, 2, 1), 3))
for mode in ("SYMMETRIC", "REFLECT"):
    like_relay("nn.mirror_pad", lambda x, m=mode: nn.mirror_pad(x, (0, 1, 0), (0, 2, 1), m), title=mode)
for mode in ("DCR", "CRD"):
    like_relay("nn.depth_to_space", lambda x, m=mode: nn.depth_to_space(x, 2, mode=m), title=mode)
like_relay("nn.space_to_depth", lambda x: nn.space_to_depth(x, 2))
like_relay("nn.upsampling", lambda x: nn.upsampling(x, 2, 3))
row(
    "image.resize2d",
    lambda x, out_dtype=None: topi.image.resize2d(x, None, (9, 7), out_dtype=out_dtype),
    lambda x: of_torch(F.interpolate, (9, 7), mode="bilinear")(x.astype("float64")),
    (2, 3, 5, 6),
    outs=(("float16", "float32"), ("int8", "float32")),
    only=True,
)
row("shape", topi.shape, lambda x: np.array(S), S, types=("float32",))
row("nn.flatten", nn.flatten, lambda x: x.reshape(3, -1), W, types=ALL)
for index in ("int32", "uint8"):
    I = In((2, 4), -2 if index[0] == "i" else 0, 6, dtype=index)  # noqa: E741
    row(
        "take",
        lambda x, i: topi.take(x, i, 1),
        lambda x, i: np.take(x, np.clip(i, 0, 4), 1),
        W,
        I,
        types=ALL,
        title=index,
    )
    like_relay("take", lambda x, i: topi.take(x, i, mode="wrap"), title=f"wrap {index}")
    like_relay("gather", lambda x, i: topi.gather(x, 1, i), title=index)
row(
    "one_hot",
    lambda i: topi.one_hot(i, 5, -1, 6),
    lambda i: np.where(i[..., None] == np.arange(6), 5.0, -1.0),
    In(S, -1, 7),
    types=("int32", "int8"),
)

# ---- along an axis ----
for name in ("sum", "prod", "max", "min"):
    like_relay(name, lambda x, n=name: getattr(topi, n)(x, (0, 2)))
like_relay("sum", lambda x: topi.sum(x, 1), title="of 5000")
row("mean", lambda x: topi.mean(x, 1), lambda x: w.mean(x, (1,)), In((2, 5000), 20, 40), types=NUMBERS)
row(
    "variance",
    lambda x, m: topi.variance(x, m, 1),
    lambda x, m: w.mean((x - m) ** 2, (1,), True),
    (4, 60),
    (4, 1),
    types=NUMBERS,
)
for name in ("all", "any"):
    like_relay(name, lambda x, n=name: getattr(topi, n)(x, 1))
for name in ("argmax", "argmin"):
    like_relay(name, lambda x, n=name: getattr(topi, n)(x, 1))
    row(
        name,
        lambda x, n=name: getattr(topi, n)(x, 1, select_last_index=True),
        lambda x, n=name: 4 - getattr(np, n)(x[:, ::-1], 1),
        In(S, -3, 3),
        types=NUMBERS,
        title="last",
    )
for prefix in ("", "nn."):
    lib = nn if prefix else topi
    like_relay(f"{prefix}softmax", lambda x, f=lib.softmax: f(x, 1))
    like_relay(f"{prefix}log_softmax", lambda x, f=lib.log_softmax: f(x, 1))
    like_relay(f"{prefix}softmax", lib.softmax, title="of 5000")

like_relay("argsort", lambda x: topi.argsort(x, None, 1, dtype="int32"))
row(
    "argsort",
    lambda x: topi.argsort(x, None, 1, False, "int64"),
    lambda x: np.argsort(-x, 1, "stable"),
    S,
    types=("float32", "int8", "float16"),
    title="descending",
)
like_relay("topk", lambda x: topi.topk(x, 3, 1, dtype="int32"))
like_relay("cumsum", lambda x: topi.cumsum(x, 1))
like_relay("cumprod", lambda x: topi.cumprod(x, 1))
like_relay("cummax", lambda x: topi.cummax(x, 1))
like_relay("cummin", lambda x: topi.cummin(x, 1))
like_relay("logcumsumexp", lambda x: topi.logcumsumexp(x, 1))
row(
    "cumsum",
    lambda x: topi.cumsum(x, 1, exclusive=True),
    lambda x: np.cumsum(x, 1) - x,
    In((2, 300)),
    types=("float32", "float16", "int8"),
    title="exclusive",
)

# ---- norms and compositions ----
X, C = In((2, 6, 5, 4), -300, 300), (6,)
ch = lambda v: v[:, None, None]  # noqa: E731
like_relay("nn.batch_norm", lambda *x: nn.batch_norm(*x)[0])
like_relay("nn.layer_norm", nn.layer_norm)
like_relay("nn.bias_add", lambda x, b: nn.bias_add(x, b, -2))
row(
    "nn.scale_shift_nchw",
    nn.scale_shift_nchw,
    lambda x, s, b: x * ch(s) + ch(b),
    (2, 6, 5, 4),
    C,
    C,
    types=NUMBERS,
    accuracy=16,
)
row(
    "nn.scale_shift_nhwc",
    nn.scale_shift_nhwc,
    lambda x, s, b: x * s + b,
    (2, 5, 4, 6),
    C,
    C,
    types=NUMBERS,
    accuracy=16,
)

like_relay("nn.lrn", lambda x: nn.lrn(x, 5, 1, 1e-2, 0.75, 2.0))

# ---- pools ----
for n, shape in relay_nn_rows.POOLED.items():
    size, stride, pad = [3, 2, 3][:n], [2, 1, 2][:n], [1, 0, 1][:n]
    pool, adaptive = getattr(nn, f"pool{n}d"), getattr(nn, "adaptive_pool" if n == 2 else f"adaptive_pool{n}d")
    row(
        f"nn.pool{n}d",
        lambda x, f=pool, k=size, s=stride, p=pad: f(x, k, s, 1, p, "max", True),
        lambda x, k=size, s=stride, p=pad: w.max_pool(x, k, s, p, None, True),
        In(shape, wide=True),
        types=NUMBERS,
        title="max",
    )
    for count in (False, True):
        row(
            f"nn.pool{n}d",
            lambda x, f=pool, k=size, s=stride, p=pad, c=count: f(x, k, s, 1, p, "avg", True, count_include_pad=c),
            lambda x, k=size, s=stride, p=pad, c=count: w.avg_pool(x, k, s, p, None, True, c),
            In(shape),
            types=NUMBERS,
            title=f"avg {count}",
        )
    for kind in ("max", "avg"):
        name = "nn.adaptive_pool" if n == 2 else f"nn.adaptive_pool{n}d"
        row(
            name,
            lambda x, f=adaptive, k=kind, s=[4, 3, 2][:n]: f(x, s, k),
            lambda x, k=kind, s=[4, 3, 2][:n]: w.adaptive(x, s, k),
            In(shape),
            types=NUMBERS,
            title=kind,
        )
for kind in ("max", "avg"):
    row(
        "nn.global_pool",
        lambda x, k=kind: nn.global_pool(x, k),
        lambda x, k=kind: w.adaptive(x, [1, 1], k),
        (2, 4, 9, 8),
        types=NUMBERS,
        title=kind,
    )

# ---- sums of products ----
for prefix in ("", "nn."):
    lib = nn if prefix else topi
    row(
        f"{prefix}dense",
        lambda x, y, f=lib.dense, out_dtype=None: f(x, y, None, out_dtype),
        lambda x, y: x @ y.T,
        (6, 40),
        (12, 40),
        types=NUMBERS,
        outs=WIDER,
    )
    row(
        f"{prefix}matmul",
        lambda x, y, f=lib.matmul, out_dtype=None: f(x, y, None, out_dtype, True, False),
        lambda x, y: x.T @ y,
        (40, 6),
        (40, 12),
        types=NUMBERS,
        outs=WIDER,
    )
    row(
        f"{prefix}batch_matmul",
        lambda x, y, f=lib.batch_matmul, out_dtype=None: f(x, y, None, out_dtype),
        lambda x, y: x @ y.swapaxes(1, 2),
        (3, 6, 40),
        (1, 12, 40),
        types=NUMBERS,
        outs=WIDER,
    )
row("nn.matmul_in_parts", lambda x, y: nn.matmul_in_parts(x, y, 4), lambda x, y: x @ y, (6, 40), (40, 12), types=NUMBERS)
row(
    "nn.dense",
    lambda x, y, b, out_dtype=None: nn.dense(x, y, b, out_dtype),
    lambda x, y, b: x @ y.T + b,
    (6, 40),
    (12, 40),
    (12,),
    types=NUMBERS,
    outs=WIDER,
    title="with a bias",
)
row(
    "dense",
    topi.dense,
    lambda x, y: x @ y.T,
    In((2, 4100), 1, 1),
    In((3, 4100), 1, 1),
    types=("float16", "bfloat16", "float32"),
    title="long sums",
)


def conv_row(name, call, want, shape, weight, types=NUMBERS, outs=WIDER, **more):
    """``call`` gets (data, kernel, ``out_dtype=``)."""
    row(f"nn.{name}", call, want, In(shape), In(weight), types=types, outs=outs, **more)


A, K, H = (2, 4, 9, 8), (6, 4, 3, 3), (2, 9, 8, 4)
nhwc = lambda f: w.laid_out(f, "NHWC", "HWIO")  # noqa: E731
pad1 = lambda x, y: w.conv(x, y, 1, 1)  # noqa: E731
deep = lambda x, y: w.conv(x, y.reshape(8, 1, 3, 3), 1, 1, 1, 4)  # noqa: E731
conv_row(
    "conv",
    lambda x, y, out_dtype=None: nn.conv(x, y, 2, (1, 0, 2, 1), 1, 1, "NCHW", "OIHW", out_dtype),
    lambda x, y: w.conv(x, y, 2, [(1, 2), (0, 1)]),
    A,
    K,
)
conv_row("conv2d", lambda x, y, out_dtype=None: nn.conv2d(x, y, 1, 1, 1, out_dtype=out_dtype), pad1, A, K)
conv_row("conv2d_nchw", lambda x, y, out_dtype=None: nn.conv2d_nchw(x, y, 1, 1, 1, out_dtype), pad1, A, K)
conv_row(
    "conv2d_nhwc", lambda x, y, out_dtype=None: nn.conv2d_nhwc(x, y, 1, 1, 1, out_dtype), nhwc(pad1), H, (3, 3, 4, 6)
)
conv_row(
    "conv2d_hwcn",
    lambda x, y, out_dtype=None: nn.conv2d_hwcn(x, y, 1, 1, 1, out_dtype),
    w.laid_out(pad1, "HWCN", "HWIO"),
    (9, 8, 4, 2),
    (3, 3, 4, 6),
)
conv_row(
    "group_conv2d_nchw",
    lambda x, y, out_dtype=None: nn.group_conv2d_nchw(x, y, 1, 1, 1, 2, out_dtype),
    lambda x, y: w.conv(x, y, 1, 1, 1, 2),
    A,
    (6, 2, 3, 3),
)
conv_row(
    "group_conv2d_nhwc",
    lambda x, y, out_dtype=None: nn.group_conv2d_nhwc(x, y, 1, 1, 1, 2, out_dtype),
    nhwc(lambda x, y: w.conv(x, y, 1, 1, 1, 2)),
    H,
    (3, 3, 2, 6),
)
conv_row(
    "conv1d_ncw",
    lambda x, y, out_dtype=None: nn.conv1d_ncw(x, y, 2, 1, 1, out_dtype),
    lambda x, y: w.conv(x, y, 2, 1),
    (2, 4, 11),
    (6, 4, 3),
)
conv_row(
    "conv1d_nwc",
    lambda x, y, out_dtype=None: nn.conv1d_nwc(x, y, 1, 0, 1, out_dtype),
    w.laid_out(w.conv, "NWC", "WIO", "W"),
    (2, 11, 4),
    (3, 4, 6),
)
conv_row(
    "conv3d_ncdhw",
    lambda x, y, out_dtype=None: nn.conv3d_ncdhw(x, y, 1, 1, 1, 1, out_dtype),
    pad1,
    (1, 3, 5, 6, 7),
    (4, 3, 3, 3, 3),
)
conv_row(
    "conv3d_ndhwc",
    lambda x, y, out_dtype=None: nn.conv3d_ndhwc(x, y, 1, 0, 1, 1, out_dtype),
    w.laid_out(w.conv, "NDHWC", "DHWIO", "DHW"),
    (1, 5, 6, 7, 3),
    (3, 2, 3, 3, 4),
)
conv_row(
    "depthwise_conv2d_nchw",
    lambda x, y, out_dtype=None: nn.depthwise_conv2d_nchw(x, y, 1, 1, 1, out_dtype),
    deep,
    A,
    (4, 2, 3, 3),
)
conv_row(
    "depthwise_conv2d_nhwc",
    lambda x, y, out_dtype=None: nn.depthwise_conv2d_nhwc(x, y, 1, 1, 1, "HWOI", out_dtype),
    w.laid_out(deep, "NHWC", "HWOI"),
    H,
    (3, 3, 4, 2),
)
conv_row(
    "depthwise_conv2d_nhwc",
    lambda x, y, out_dtype=None: nn.depthwise_conv2d_nhwc(x, y, 1, 1, 1, "HWIO", out_dtype),
    w.laid_out(deep, "NHWC", "HWIO"),
    H,
    (3, 3, 2, 4),
    types=("float32",),
    outs=(("float16", "float32"),),
    title="HWIO",
)
conv_row(
    "conv2d_transpose_nchw",
    lambda x, y, out_dtype=None: nn.conv2d_transpose_nchw(x, y, 2, 1, out_dtype, 1),
    lambda x, y: w.conv_transpose(x, y, 2, 1, 1),
    (2, 4, 5, 6),
    (4, 3, 3, 4),
)
conv_row(
    "group_conv2d_transpose_nchw",
    lambda x, y, out_dtype=None: nn.group_conv2d_transpose_nchw(x, y, 2, 1, out_dtype, 1, 2),
    lambda x, y: w.conv_transpose(x, y, 2, 1, 1, 2),
    (2, 4, 5, 6),
    (4, 3, 3, 4),
)
conv_row(
    "conv2d_transpose",
    lambda x, y, out_dtype=None: nn.conv2d_transpose(x, y, 2, 1, 1, 1, "NHWC", "HWIO", out_dtype, 1),
    w.laid_out(lambda x, y: w.conv_transpose(x, y.swapaxes(0, 1), 2, 1, 1), "NHWC", "HWIO"),
    (2, 5, 6, 4),
    (3, 4, 4, 3),
)
SMALL_FLOATS = (("float16", "float32"), ("bfloat16", "float32"), ("float32", "float16"))
conv_row(
    "conv2d_winograd_nhwc",
    lambda x, y, out_dtype=None: nn.conv2d_winograd_nhwc(x, y, 1, 1, 1, out_dtype),
    nhwc(pad1),
    (1, 8, 8, 4),
    (3, 3, 4, 6),
    FLOATS,
    SMALL_FLOATS,
    loss=1024,
)
conv_row(
    "conv2d_winograd_nhwc_without_weight_transform",
    lambda x, y, out_dtype=None: nn.conv2d_winograd_nhwc_without_weight_transform(
        x, nn.conv2d_winograd_weight_transform(y, 4), 1, 1, 1, out_dtype
    ),
    lambda x, y: pad1(x.transpose(0, 3, 1, 2), y).transpose(0, 2, 3, 1),
    (1, 8, 8, 4),
    (6, 4, 3, 3),
    FLOATS,
    SMALL_FLOATS,
    loss=1024,
)
row(
    "nn.conv2d_winograd_weight_transform",
    lambda k: nn.conv2d_winograd_weight_transform(k, 4),
    lambda k: w.winograd_weight(k, lambda t: relay_nn_rows.nn.winograd_matrices(t, 3), 4),
    (8, 5, 3, 3),
)
