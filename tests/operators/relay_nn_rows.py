"""The rows of ``relay_rows`` that work along axes: reductions, orders, norms, pools and sums of products."""

import numpy as np
import operator_wants as w
import torch.nn.functional as F
from operator_values import FLOATS, INTS, NUMBERS, In
from operator_wants import of_torch
from relay_rows import ROWS, WIDER, S, W, nn, row

from nestsmith import relay

__all__ = ["ROWS"]

# ---- along an axis ----
for name, f in {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}.items():
    row(
        name,
        lambda x, n=name: getattr(relay, n)(x, (0, 2)),
        lambda x, f=f: f(x, (0, 2)),
        In(S, -1.2, 1.3) if name == "prod" else W,
        types=NUMBERS,
    )
    row(
        name,
        lambda x, n=name: getattr(relay, n)(x, 1, True),
        lambda x, f=f: f(x, 1, keepdims=True),
        W,
        types=("float32", "int8"),
        title="keepdims",
    )
row(
    "sum",
    lambda x: relay.sum(x, 1),
    lambda x: x.sum(1),
    In((2, 5000), 1, 1),
    types=("float32", "float16", "bfloat16"),
    title="of 5000",
)
row(
    "mean", lambda x: relay.mean(x, 1), lambda x: w.mean(x, (1,)), In((2, 5000), 20, 40), types=NUMBERS, title="of 5000"
)
row("mean", lambda x: relay.mean(x, (0, 2), True), lambda x: w.mean(x, (0, 2), True), S, types=NUMBERS)
row("variance", lambda x: relay.variance(x, 1), lambda x: w.variance(x, (1,)), In((4, 600)), types=FLOATS)
row(
    "variance",
    lambda x: relay.variance(x, (0, 2), True),
    lambda x: w.variance(x, (0, 2), True),
    S,
    types=INTS,
    title="integers",
)
row(
    "variance",
    lambda x: relay.variance(x, 1),
    lambda x: w.variance(x, (1,)),
    In((4, 600), 900, 1500),
    types=("float16", "float32"),
    title="large",
)
row(
    "variance",
    lambda x, m: relay.variance(x, 1, with_mean=m),
    lambda x, m: ((x - m) ** 2).mean(1),
    (4, 60),
    (4, 1),
    title="given the mean",
)
row(
    "variance",
    lambda x: relay.variance(x, 1, unbiased=True),
    lambda x: x.var(1, ddof=1),
    (4, 60),
    title="unbiased",
    only=True,
)
row(
    "mean_variance",
    lambda x: relay.mean_variance(x, 1).astuple(),
    lambda x: [w.mean(x, (1,)), w.variance(x, (1,))],
    (4, 60),
    types=NUMBERS,
)
row("std", lambda x: relay.std(x, 1), lambda x: x.std(1), In((4, 60), -900, 900))
row("logsumexp", lambda x: relay.logsumexp(x, (1,)), of_torch(lambda x: x.logsumexp(1)), (4, 60))
row(
    "logsumexp",
    lambda x: relay.logsumexp(x, (1,)),
    of_torch(lambda x: x.logsumexp(1)),
    In((2, 70000), -0.5, 0.5),
    types=("float16", "float32"),
    title="of 70000",
)
for name in ("all", "any"):
    row(
        name, lambda x, n=name: getattr(relay, n)(x, 1), lambda x, n=name: getattr(np, n)(x, 1), (9, 3), types=("bool",)
    )
for name in ("argmax", "argmin"):
    row(
        name,
        lambda x, n=name: getattr(relay, n)(x, 1),
        lambda x, n=name: getattr(np, n)(x, 1),
        In(S, -3, 3),
        types=NUMBERS,
    )
    row(
        name,
        lambda x, n=name: getattr(relay, n)(x, keepdims=True),
        lambda x, n=name: getattr(np, n)(x).reshape(1, 1, 1),
        In(S, -3, 3),
        types=("float32", "int8"),
        title="of all",
    )
row("cumsum", lambda x: relay.cumsum(x, 1), lambda x: np.cumsum(x, 1), W, types=NUMBERS)
row(
    "cumsum",
    lambda x: relay.cumsum(x, 1),
    lambda x: np.cumsum(x, 1),
    In((2, 5000), 1, 1),
    types=("float16", "float32"),
    title="of 5000",
)
row("cumprod", lambda x: relay.cumprod(x, 1), lambda x: np.cumprod(x, 1), In((2, 37), 0.9, 1.1), types=("float32", "float16"))
row("cummax", lambda x: relay.cummax(x, 1), lambda x: np.maximum.accumulate(x, 1), In((2, 300)), types=NUMBERS)
row("cummin", lambda x: relay.cummin(x, 1), lambda x: np.minimum.accumulate(x, 1), In((2, 300)), types=NUMBERS)
row(
    "cummax",
    lambda x: relay.cummax(x, 1, "indices", "int32"),
    lambda x: np.maximum.accumulate(np.where(x == np.maximum.accumulate(x, 1), np.arange(300), 0), 1),
    In((2, 300)),
    types=NUMBERS,
    title="places",
)
row("logcumsumexp", lambda x: relay.logcumsumexp(x, 1), lambda x: np.logaddexp.accumulate(x, 1), In((2, 40)))
for source, target in (("int8", "int32"), ("float16", "float32"), ("float32", "float64"), ("int32", "int8")):
    row(
        "cumsum",
        lambda x, t=target: relay.cumsum(x, 1, t),
        lambda x: np.cumsum(x, 1),
        In((2, 300)),
        types=(source,),
        title=f"to {target}",
        only=True,
    )
row(
    "topk",
    lambda x: relay.topk(x, 3, 1).astuple(),
    lambda x: [-np.sort(-x, 1)[:, :3], np.argsort(-x, 1, "stable")[:, :3]],
    S,
    types=NUMBERS,
)
row("argsort", lambda x: relay.argsort(x, 1), lambda x: np.argsort(x, 1, "stable"), S, types=NUMBERS)
row("nn.softmax", lambda x: nn.softmax(x, 1), w.softmax(1), S)
row("nn.softmax", nn.softmax, w.softmax(-1), In((2, 5000), 0, 0.01), title="of 5000")
row("nn.fast_softmax", nn.fast_softmax, w.softmax(-1), S)
row("nn.log_softmax", lambda x: nn.log_softmax(x, 1), w.softmax(1, log=True), S)
row("nn.log_softmax", nn.log_softmax, w.softmax(-1, log=True), In((2, 5000), 0, 0.01), title="of 5000")

# ---- norms ----
X, C = In((2, 6, 5, 4), -300, 300), (6,)
ch = lambda v: v[:, None, None]  # noqa: E731
row(
    "nn.batch_norm",
    lambda x, g, b, m, v: nn.batch_norm(x, g, b, m, v)[0],
    lambda x, g, b, m, v: (x - ch(m)) / np.sqrt(ch(v) + 1e-5) * ch(g) + ch(b),
    X,
    C,
    C,
    In(C, -100, 100),
    In(C, 1, 9),
    accuracy=8,
)
row("nn.layer_norm", nn.layer_norm, lambda x, g, b: w.norm(x, (3,), g, b), X, (4,), (4,))
row(
    "nn.layer_norm",
    lambda x, g, b: nn.layer_norm(x, g, b, axis=1),
    lambda x, g, b: w.norm(x, (1,), ch(g), ch(b)),
    X,
    C,
    C,
    title="axis 1",
)
row("nn.instance_norm", nn.instance_norm, lambda x, g, b: w.norm(x, (2, 3), ch(g), ch(b)), X, C, C)
row(
    "nn.group_norm",
    lambda x, g, b: nn.group_norm(x, g, b, 3),
    lambda x, g, b: w.norm(x.reshape(2, 3, 2, 5, 4), (2, 3, 4), 1, 0).reshape(x.shape) * ch(g) + ch(b),
    X,
    C,
    C,
)
row(
    "nn.l2_normalize", lambda x: nn.l2_normalize(x, 1e-6, (1,)), lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)), X
)
row(
    "nn.lrn",
    lambda x: nn.lrn(x, 5, 1, 2.0, 1e-2, 0.75),
    of_torch(F.local_response_norm, 5, 1e-2, 0.75, 2.0),
    (2, 8, 5, 4),
)
row("nn.dropout", lambda x: nn.dropout(x, 0.5), lambda x: x, S)

# ---- pools ----
POOLED = {1: (2, 4, 11), 2: (2, 4, 11, 10), 3: (1, 2, 6, 7, 5)}
for n, shape in POOLED.items():
    size, stride, pad = [3, 2, 3][:n], [2, 1, 2][:n], [1, 0, 1][:n]
    for ceil in (False, True):
        row(
            f"nn.max_pool{n}d",
            lambda x, n=n, k=size, s=stride, p=pad, c=ceil: getattr(nn, f"max_pool{n}d")(
                x, k, s, padding=p, ceil_mode=c
            ),
            lambda x, k=size, s=stride, p=pad, c=ceil: w.max_pool(x, k, s, p, None, c),
            In(shape, wide=True),
            types=NUMBERS,
            title=f"ceil {ceil}",
        )
        for count in (False, True):
            row(
                f"nn.avg_pool{n}d",
                lambda x, n=n, k=size, s=stride, p=pad, c=ceil, i=count: getattr(nn, f"avg_pool{n}d")(
                    x, k, s, padding=p, ceil_mode=c, count_include_pad=i
                ),
                lambda x, k=size, s=stride, p=pad, c=ceil, i=count: w.avg_pool(x, k, s, p, None, c, i),
                In(shape),
                types=NUMBERS,
                title=f"ceil {ceil} padding counts {count}",
            )
    for kind in ("max", "avg"):
        for sizes in ([1] * n, [2, 5, 1][:n], [4, 3, 2][:n]):
            row(
                f"nn.adaptive_{kind}_pool{n}d",
                lambda x, n=n, k=kind, s=sizes: getattr(nn, f"adaptive_{k}_pool{n}d")(x, tuple(s)),
                lambda x, k=kind, s=sizes: w.adaptive(x, s, k),
                In(shape),
                types=NUMBERS,
                title=f"to {sizes}",
            )
row(
    "nn.max_pool2d",
    lambda x: nn.max_pool2d(x, (3, 3), dilation=(2, 2), layout="NHWC"),
    w.channels_last(lambda x: w.max_pool(x, [3, 3], [1, 1], None, [2, 2])),
    (2, 9, 8, 4),
    types=NUMBERS,
    title="dilated NHWC",
)
row(
    "nn.avg_pool2d",
    lambda x: nn.avg_pool2d(x, (3, 3), layout="NHWC"),
    w.channels_last(lambda x: w.avg_pool(x, [3, 3], [1, 1])),
    (2, 9, 8, 4),
    types=NUMBERS,
    title="NHWC",
)
row("nn.global_avg_pool2d", nn.global_avg_pool2d, lambda x: w.mean(x, (2, 3), True), (2, 4, 9, 8), types=NUMBERS)
row(
    "nn.global_avg_pool2d",
    nn.global_avg_pool2d,
    lambda x: w.mean(x, (2, 3), True),
    In((1, 1, 270, 260), 20, 40),
    types=NUMBERS,
    title="large map",
)
row(
    "nn.global_max_pool2d",
    lambda x: nn.global_max_pool2d(x, "NHWC"),
    lambda x: x.max((1, 2), keepdims=True),
    (2, 9, 8, 4),
    types=NUMBERS,
)

# ---- sums of products ----
for lead in ((6,), (2, 3), (2, 1, 3)):
    row(
        "nn.dense",
        lambda x, y, out_dtype="": nn.dense(x, y, out_dtype=out_dtype),
        lambda x, y: x @ y.T,
        (*lead, 40),
        (12, 40),
        types=NUMBERS,
        outs=WIDER,
        title=f"rank {len(lead) + 1}",
    )
row(
    "nn.dense",
    lambda x, y: nn.dense(x, y),
    lambda x, y: x @ y.T,
    In((2, 4100), 1, 1),
    In((3, 4100), 1, 1),
    types=("float16", "bfloat16", "float32"),
    title="long sums",
)
for ta in (False, True):
    for tb in (False, True):
        p, q = ((40, 6) if ta else (6, 40)), ((12, 40) if tb else (40, 12))
        turned = lambda x, y, a=ta, b=tb: (x.swapaxes(-1, -2) if a else x) @ (y.swapaxes(-1, -2) if b else y)  # noqa: E731
        row(
            "nn.matmul",
            lambda x, y, a=ta, b=tb, out_dtype="": nn.matmul(x, y, out_dtype=out_dtype, transpose_a=a, transpose_b=b),
            turned,
            p,
            q,
            types=NUMBERS,
            outs=WIDER,
            title=f"{ta} {tb}",
        )
        row(
            "nn.batch_matmul",
            lambda x, y, a=ta, b=tb, out_dtype="": nn.batch_matmul(x, y, out_dtype, a, b),
            turned,
            (3, *p),
            (1 if ta else 3, *q),
            types=NUMBERS,
            outs=WIDER,
            title=f"{ta} {tb}",
        )


def conv_row(name, layouts, shape, weight, want, types=NUMBERS, outs=WIDER, title="", loss=64, **attrs):
    """A row of a convolution: ``shape`` and ``weight`` in the layouts of the call."""

    def call(x, y, out_dtype=""):
        return getattr(nn, name)(x, y, data_layout=layouts[0], kernel_layout=layouts[1], out_dtype=out_dtype, **attrs)

    row(
        f"nn.{name}",
        call,
        want,
        In(shape),
        In(weight),
        types=types,
        outs=outs,
        title=title or " ".join(layouts),
        loss=loss,
    )


conv_row("conv1d", ("NCW", "OIW"), (2, 4, 11), (6, 4, 3), lambda x, y: w.conv(x, y, 2, 1), strides=2, padding=1)
conv_row("conv1d", ("NWC", "WIO"), (2, 11, 4), (3, 4, 6), w.laid_out(w.conv, "NWC", "WIO", "W"))
conv_row(
    "conv2d",
    ("NCHW", "OIHW"),
    (2, 4, 9, 8),
    (6, 4, 3, 3),
    lambda x, y: w.conv(x, y, (2, 1), [(1, 0), (2, 1)]),
    strides=(2, 1),
    padding=(1, 2, 0, 1),
)
conv_row(
    "conv2d",
    ("NCHW", "OIHW"),
    (2, 4, 9, 8),
    (6, 2, 3, 3),
    lambda x, y: w.conv(x, y, 1, 1, 2, 2),
    padding=1,
    dilation=2,
    groups=2,
    title="2 groups, dilated",
)
conv_row(
    "conv2d",
    ("NCHW", "OIHW"),
    (2, 4, 9, 8),
    (4, 2, 3, 3),
    lambda x, y: w.conv(x, y.reshape(8, 1, 3, 3), 1, 1, 1, 4),
    padding=1,
    groups=4,
    title="depthwise NCHW",
)
conv_row(
    "conv2d",
    ("NHWC", "HWOI"),
    (2, 9, 8, 4),
    (3, 3, 4, 2),
    w.laid_out(lambda x, y: w.conv(x, y.reshape(8, 1, 3, 3), 1, 1, 1, 4), "NHWC", "HWOI"),
    padding=1,
    groups=4,
    title="depthwise NHWC",
)
conv_row(
    "conv2d",
    ("NHWC", "HWIO"),
    (2, 9, 8, 4),
    (3, 3, 4, 6),
    w.laid_out(lambda x, y: w.conv(x, y, 2, 1), "NHWC", "HWIO"),
    padding=1,
    strides=2,
)
conv_row(
    "conv2d",
    ("NHWC", "HWIO"),
    (1, 8, 8, 4),
    (3, 3, 4, 70),
    w.laid_out(lambda x, y: w.conv(x, y, 1, 1), "NHWC", "HWIO"),
    padding=1,
    title="70 channels: Winograd",
    loss=1024,
)
conv_row("conv2d", ("HWNC", "HWOI"), (9, 8, 2, 4), (3, 3, 6, 4), w.laid_out(w.conv, "HWNC", "HWOI"))
conv_row(
    "conv3d",
    ("NCDHW", "OIDHW"),
    (1, 3, 5, 6, 7),
    (4, 3, 3, 2, 3),
    lambda x, y: w.conv(x, y, (1, 2, 1), 1),
    strides=(1, 2, 1),
    padding=1,
)
conv_row("conv3d", ("NDHWC", "DHWIO"), (1, 5, 6, 7, 3), (3, 2, 3, 3, 4), w.laid_out(w.conv, "NDHWC", "DHWIO", "DHW"))
for groups in (1, 2):
    conv_row(
        "conv2d_transpose",
        ("NCHW", "IOHW"),
        (2, 4, 5, 6),
        (4, 3, 3, 4),
        lambda x, y, g=groups: w.conv_transpose(x, y, 2, 1, 1, g),
        strides=(2, 2),
        padding=(1, 1),
        output_padding=(1, 1),
        groups=groups,
        title=f"{groups} groups",
    )
conv_row(
    "conv2d_transpose",
    ("NHWC", "HWIO"),
    (2, 5, 6, 4),
    (3, 4, 4, 3),
    w.laid_out(lambda x, y: w.conv_transpose(x, y.swapaxes(0, 1), 2, 1, 1), "NHWC", "HWIO"),
    strides=(2, 2),
    padding=(1, 1),
    output_padding=(1, 1),
)
row(
    "nn.matmul",
    lambda x, y, out_dtype="": nn.matmul(x, y, out_dtype=out_dtype),
    np.matmul,
    (2, 3, 6, 40),
    (1, 3, 40, 12),
    types=NUMBERS,
    outs=WIDER,
    title="batches",
)
row(
    "nn.contrib_conv2d_winograd_weight_transform",
    lambda k: nn.contrib_conv2d_winograd_weight_transform(k, 4),
    lambda k: w.winograd_weight(k, lambda t: nn.winograd_matrices(t, 3), 4),
    (8, 5, 3, 3),
)
row(
    "nn.contrib_conv2d_winograd_without_weight_transform",
    lambda x, k, out_dtype="": nn.contrib_conv2d_winograd_without_weight_transform(
        x,
        nn.contrib_conv2d_winograd_weight_transform(k, 4),
        4,
        strides=(1, 1),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=1,
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_layout="NHWC",
        out_dtype=out_dtype,
    ),
    lambda x, k: w.conv(x.transpose(0, 3, 1, 2), k, 1, 1).transpose(0, 2, 3, 1),
    (1, 8, 8, 5),
    (8, 5, 3, 3),
    outs=(("float16", "float32"), ("float32", "float16")),
    loss=1024,
)
row(
    "nn.contrib_conv2d_nchwc",
    lambda x, k, out_dtype="": nn.contrib_conv2d_nchwc(
        x, k, padding=(1, 1), strides=(2, 1), data_layout="NCHW4c", out_layout="NCHW2c", out_dtype=out_dtype
    ),
    lambda x, k: w.conv(x.transpose(0, 1, 4, 2, 3).reshape(1, 8, 7, 6), k, (2, 1), 1)
    .reshape(1, 3, 2, 4, 6)
    .transpose(0, 1, 3, 4, 2),
    (1, 2, 7, 6, 4),
    (6, 8, 3, 3),
    outs=(("float16", "float32"), ("int8", "int32")),
)
