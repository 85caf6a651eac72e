"""One row per operator of `relay` and way to use it: how to call it, what it should give, for which element types.

To add an operator, add a row: ``row(name, call, want, inputs...)``, the name being that under ``relay``. ``call`` gets
variables (and ``out_dtype``, if the row lists pairs of types in ``outs``), ``want`` their values as float64 or int64 arrays;
several results are a list. Element types that a row does not list have to be refused by the build, or computed rightly."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch.nn.functional as F
import wants as w
from values import ALL, FLOATS, INTS, NUMBERS, In
from wants import of_torch

from nestsmith import relay

nn = relay.nn
ROWS = []
# (type of the operands, type of the result) where an operator has `out_dtype`
WIDER = (
    ("int8", "int32"), ("uint8", "int32"), ("int16", "int64"), ("int8", "float32"), ("float16", "float32"),
    ("bfloat16", "float32"), ("float32", "float64"), ("float32", "float16"), ("int32", "int8"),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One way to use an operator."""

    name: str
    call: object
    want: object
    inputs: tuple
    types: tuple = FLOATS
    outs: tuple = ()
    accuracy: float = 4.0
    loss: float = 64
    title: str = field(default="")

    def __str__(self):
        return f"{self.name} {self.title}".strip()


def row(name, call, want, *inputs, **more):
    ROWS.append(Row(name, call, want, tuple(i if isinstance(i, In) else In(i) for i in inputs), **more))


S = (3, 5, 7)

# ---- element by element ----
UNARY = {
    "exp": np.exp, "tanh": np.tanh, "sigmoid": of_torch(lambda x: x.sigmoid()), "erf": of_torch(lambda x: x.erf()),
    "sin": np.sin, "cos": np.cos, "sinh": np.sinh, "cosh": np.cosh, "atan": np.arctan, "asinh": np.arcsinh,
    "fast_exp": np.exp, "fast_tanh": np.tanh, "fast_erf": of_torch(lambda x: x.erf()),
}  # fmt: skip
for name, f in UNARY.items():
    row(name, getattr(relay, name), f, S)
for name, f in {"log": np.log, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt}.items():
    row(name, getattr(relay, name), f, In(S, 0.1, 9))
row("rsqrt", relay.rsqrt, lambda x: 1 / np.sqrt(x), In(S, 0.1, 9))
row("tan", relay.tan, np.tan, In(S, -1, 1))
for name, f in {"asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh}.items():
    row(name, getattr(relay, name), f, In(S, -0.9, 0.9))
row("acosh", relay.acosh, np.arccosh, In(S, 1.1, 9))
for name, f in {"floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc}.items():
    row(name, getattr(relay, name), f, In(S, -9, 9, wide=True), types=NUMBERS)
for name, f in {"abs": np.abs, "negative": np.negative, "sign": np.sign, "copy": np.copy}.items():
    row(name, getattr(relay, name), f, In(S, wide=True), types=NUMBERS)
row("logical_not", relay.logical_not, np.logical_not, S, types=("bool",))
row("bitwise_not", relay.bitwise_not, np.invert, In(S, wide=True), types=INTS)
row("nn.relu", nn.relu, lambda x: np.maximum(x, 0), In(S, wide=True), types=NUMBERS)
row("nn.leaky_relu", lambda x: nn.leaky_relu(x, 0.125), lambda x: np.where(x > 0, x, x * 0.125), S)
row("clip", lambda x: relay.clip(x, -1.5, 2), lambda x: np.clip(x, -1.5, 2), S)
row("clip", lambda x: relay.clip(x, -7, 40), lambda x: np.clip(x, -7, 40), In(S, wide=True), types=("int32", "int64", "int8", "int16"), title="integers")
for source, target in (
    ("float32", "float16"), ("float32", "int32"), ("float64", "float32"), ("int32", "int8"), ("int8", "uint8"), ("int64", "int32"),
    ("uint8", "int32"), ("int32", "float32"), ("uint8", "float16"), ("bool", "float32"), ("float32", "bool"), ("float32", "bfloat16"),
    ("bfloat16", "float32"), ("float16", "int8"), ("uint32", "int64"), ("int32", "uint64"), ("int16", "bfloat16"),
):  # fmt: skip
    row("cast", lambda x, t=target: relay.cast(x, t), lambda x, t=target: x if t.startswith(("f", "bf")) else x != 0 if t == "bool" else np.trunc(x),
        In(S, wide=not target.startswith(("f", "bf"))), types=(source,), title=f"to {target}", accuracy=1.0)  # fmt: skip

# ---- two operands ----
A, B = (3, 1, 7), (5, 7)
for name, f in {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}.items():
    row(name, getattr(relay, name), f, In(A, wide=True), In(B, wide=True), types=NUMBERS)
row("divide", relay.divide, w.divide, In(A, wide=True), In(B, 0.5, 9), types=NUMBERS)
row("divide", relay.divide, w.divide, In(A, wide=True), In(B, -9, -1.5), types=("float32", "int32", "int64", "int8", "int16"), title="by negative numbers")
row("floor_divide", relay.floor_divide, lambda a, b: np.floor(a / b) if a.dtype.kind == "f" else a // b, In(A, -9, 9), In(B, 1, 3), types=NUMBERS)
row("floor_divide", relay.floor_divide, lambda a, b: a // b, In(A, wide=True), In(B, -9, -2), types=("int32", "int64", "int8", "int16"), title="by negative numbers")
row("mod", relay.mod, w.mod, In(A, -9, 9), In(B, 2.25, 2.25), types=FLOATS)
row("mod", relay.mod, w.mod, In(A, wide=True), In(B, 1, 9), types=INTS, title="integers")
row("floor_mod", relay.floor_mod, np.mod, In(A, -9, 9), In(B, 2.25, 2.25), types=FLOATS)
row("floor_mod", relay.floor_mod, np.mod, In(A, wide=True), In(B, 1, 9), types=INTS, title="integers")
row("floor_mod", relay.floor_mod, np.mod, In(A, wide=True), In(B, -9, -2), types=("int32", "int64", "int8", "int16"), title="by negative numbers")
row("power", relay.power, np.power, In(A, 0.5, 3), In(B, -2, 2))
for name, f in {"left_shift": np.left_shift, "right_shift": np.right_shift}.items():
    row(name, getattr(relay, name), f, In(A, wide=True), In(B, 0, 6), types=INTS)
for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    row(name, getattr(relay, name), getattr(np, name), In(A, wide=True), In(B, wide=True), types=INTS)
for name in ("logical_and", "logical_or", "logical_xor"):
    row(name, getattr(relay, name), getattr(np, name), A, B, types=("bool",))
for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    row(name, getattr(relay, name), getattr(np, name), In(A, -2, 2), In(B, -2, 2), types=NUMBERS)
row("where", relay.where, lambda c, x, y: np.where(c, x, y), In((7,), dtype="bool"), In(A, wide=True), In(B, wide=True), types=ALL)
row("nn.bias_add", lambda x, b: nn.bias_add(x, b, -2), lambda x, b: x + b[:, None], In(S, wide=True), In((5,), wide=True), types=NUMBERS)
row("nn.prelu", nn.prelu, lambda x, a: np.where(x > 0, x, x * a[:, None]), S, (5,))

# ---- constants and shapes ----
row("full", lambda x: relay.add(x, relay.full(2, S, "float32")), lambda x: x + 2, S, types=("float32",))
row("full_like", lambda x: relay.add(x, relay.full_like(x, relay.const(2.0))), lambda x: x + 2, S, types=("float32",))
for name, v in (("zeros", 0), ("ones", 1)):
    row(name, lambda x, n=name: relay.add(x, getattr(relay, n)(S, x.type_annotation.dtype)), lambda x, v=v: x + v, In(S, wide=True), types=NUMBERS)
    row(f"{name}_like", lambda x, n=name: relay.add(x, getattr(relay, n + "_like")(x)), lambda x, v=v: x + v, In(S, wide=True), types=NUMBERS)
row("arange", lambda x: relay.add(x, relay.arange(1, 15, 2)), lambda x: x + np.arange(1, 15, 2), S, types=("float32",))
row("shape_of", relay.shape_of, lambda x: np.array(S), S, types=("float32", "int8"))

# ---- moving data ----
W = In(S, wide=True)
row("reshape", lambda x: relay.reshape(x, (5, -1)), lambda x: x.reshape(5, -1), W, types=ALL)
row("reshape_like", lambda x: relay.reshape_like(x, relay.var("like", shape=(15, 7))), lambda x: x.reshape(15, 7), W, types=("float32",))
row("nn.batch_flatten", nn.batch_flatten, lambda x: x.reshape(3, -1), W, types=ALL)
row("transpose", lambda x: relay.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), W, types=ALL)
row("concatenate", lambda x, y: relay.concatenate([x, y], 1), lambda x, y: np.concatenate([x, y], 1), W, In((3, 2, 7), wide=True), types=ALL)
row("stack", lambda x, y: relay.stack([x, y], -1), lambda x, y: np.stack([x, y], -1), W, W, types=ALL)
row("split", lambda x: relay.split(x, (2, 3), 1).astuple(), lambda x: np.split(x, (2, 3), 1), W, types=ALL)
row("strided_slice", lambda x: relay.strided_slice(x, (0, -1), (3, -5), (2, -2)), lambda x: x[0:3:2, -1:-5:-2], W, types=ALL)
row("slice_like", lambda x: relay.slice_like(x, relay.var("like", shape=(2, 4, 7))), lambda x: x[:2, :4], W, types=("float32",))
row("expand_dims", lambda x: relay.expand_dims(x, 1, 2), lambda x: x[:, None, None], W, types=ALL)
row("squeeze", lambda x: relay.squeeze(x, (1,)), lambda x: x[:, 0], In((3, 1, 7), wide=True), types=ALL)
row("broadcast_to", lambda x: relay.broadcast_to(x, (2, 3, 5, 7)), lambda x: np.broadcast_to(x, (2, 3, 5, 7)), In((3, 1, 7), wide=True), types=ALL)
row("broadcast_to_like", lambda x: relay.broadcast_to_like(x, relay.var("like", shape=S)), lambda x: np.broadcast_to(x, S), In((3, 1, 7), wide=True), types=("float32",))
row("tile", lambda x: relay.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), W, types=ALL)
row("repeat", lambda x: relay.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1), W, types=ALL)
for name in ("reverse", "flip"):
    row(name, lambda x: relay.reverse(x, 1), lambda x: x[:, ::-1], W, types=ALL)
row("layout_transform", lambda x: relay.layout_transform(x, "NCHW", "NHWC4c"), lambda x: x.reshape(2, 3, 4, 5, 6).transpose(0, 3, 4, 1, 2), In((2, 12, 5, 6), wide=True), types=ALL)
row("layout_transform", lambda x: relay.layout_transform(x, "NHWC4c", "NCHW"), lambda x: x.transpose(0, 3, 4, 1, 2).reshape(2, 12, 5, 6), In((2, 5, 6, 3, 4), wide=True), types=("float16", "int8"), title="back")
for index in ("int32", "int64", "uint8", "int8"):
    I = In((2, 4), -2 if index.startswith("i") else 0, 6, dtype=index)  # noqa: E741
    row("take", lambda x, i: relay.take(x, i, 1), lambda x, i: np.take(x, np.clip(i, 0, 4), 1), W, I, types=ALL, title=f"clip {index}")
    row("take", lambda x, i: relay.take(x, i, mode="wrap"), lambda x, i: np.take(x, i % 105), W, I, types=("float32",), title=f"wrap {index}")
    I = In((2, 4), 0, 6, dtype=index)  # noqa: E741
    row("gather", lambda x, i: relay.gather(x, 1, i), lambda x, i: np.take_along_axis(x, i, 1), In((2, 7), wide=True), I, types=ALL, title=index)
    row("gather_nd", relay.gather_nd, lambda x, i: x[i[0], i[1]], In((7, 7, 3), wide=True), I, types=("float32", "int8"), title=index)
row("one_hot", lambda i: relay.one_hot(i, relay.const(5.0), relay.const(-1.0), 6, -1, "float32"), lambda i: np.where(i[..., None] == np.arange(6), 5.0, -1.0), In(S, -1, 7), types=("int32", "int64", "uint8", "int8"))
row("one_hot", lambda i: relay.one_hot(i, relay.const(5), relay.const(0), 6, 1, "int8"), lambda i: np.moveaxis(np.where(i[..., None] == np.arange(6), 5, 0), -1, 1), In(S, 0, 5), types=("int32",), title="integers, axis 1")
row("nn.pad", lambda x: nn.pad(x, ((0, 0), (1, 2), (0, 1)), 3), lambda x: np.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=3), W, types=NUMBERS)
for mode in ("edge", "reflect"):
    row("nn.pad", lambda x, m=mode: nn.pad(x, ((0, 0), (1, 2), (0, 1)), pad_mode=m), lambda x, m=mode: np.pad(x, ((0, 0), (1, 2), (0, 1)), m), W, types=NUMBERS, title=mode)
for mode in ("SYMMETRIC", "REFLECT"):
    row("nn.mirror_pad", lambda x, m=mode: nn.mirror_pad(x, ((0, 0), (1, 2), (0, 1)), m), lambda x, m=mode: np.pad(x, ((0, 0), (1, 2), (0, 1)), m.lower()), W, types=NUMBERS, title=mode)
for mode in ("DCR", "CRD"):
    row("nn.depth_to_space", lambda x, m=mode: nn.depth_to_space(x, 2, mode=m), lambda x, m=mode: w.depth_to_space(x, 2, m), In((2, 8, 3, 4), wide=True), types=ALL, title=mode)
row("nn.space_to_depth", lambda x: nn.space_to_depth(x, 2), lambda x: w.space_to_depth(x, 2), In((2, 3, 4, 6), wide=True), types=ALL)
row("nn.upsampling", lambda x: nn.upsampling(x, 2, 3), lambda x: x.repeat(2, 2).repeat(3, 3), In((2, 3, 4, 5), wide=True), types=NUMBERS)
row("nn.upsampling", lambda x: nn.upsampling(x, 2, 2, method="bilinear", align_corners=True), of_torch(F.interpolate, scale_factor=2, mode="bilinear", align_corners=True), (2, 3, 4, 5), title="bilinear")
for method, mode, more in (("linear", "bilinear", {"align_corners": False}), ("cubic", "bicubic", {"align_corners": False}), ("nearest_neighbor", "nearest", {})):
    row("image.resize2d",
        lambda x, m=method, out_dtype="": relay.image.resize2d(x, (9, 7), method=m, coordinate_transformation_mode="asymmetric" if m[0] == "n" else "half_pixel", rounding_method="floor" if m[0] == "n" else "", cubic_alpha=-0.75, out_dtype=out_dtype),
        of_torch(F.interpolate, (9, 7), mode=mode, **more), (2, 3, 5, 6), outs=(("float16", "float32"),), title=method)  # fmt: skip

# ---- along an axis ----
for name, f in {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}.items():
    row(name, lambda x, n=name: getattr(relay, n)(x, (0, 2)), lambda x, f=f: f(x, (0, 2)), In(S, -1.2, 1.3) if name == "prod" else W, types=NUMBERS)
    row(name, lambda x, n=name: getattr(relay, n)(x, 1, True), lambda x, f=f: f(x, 1, keepdims=True), W, types=("float32", "int8"), title="keepdims")
row("sum", lambda x: relay.sum(x, 1), lambda x: x.sum(1), In((2, 5000), 1, 1), types=("float32", "float16", "bfloat16"), title="of 5000")
row("mean", lambda x: relay.mean(x, 1), lambda x: w.mean(x, (1,)), In((2, 5000), 20, 40), types=NUMBERS, title="of 5000")
row("mean", lambda x: relay.mean(x, (0, 2), True), lambda x: w.mean(x, (0, 2), True), S, types=NUMBERS)
row("variance", lambda x: relay.variance(x, 1), lambda x: w.variance(x, (1,)), In((4, 600)), types=FLOATS)
row("variance", lambda x: relay.variance(x, (0, 2), True), lambda x: w.variance(x, (0, 2), True), S, types=INTS, title="integers")
row("variance", lambda x: relay.variance(x, 1), lambda x: w.variance(x, (1,)), In((4, 600), 900, 1500), types=("float16", "float32"), title="large")
row("variance", lambda x, m: relay.variance(x, 1, with_mean=m), lambda x, m: ((x - m) ** 2).mean(1), (4, 60), (4, 1), title="given the mean")
row("mean_variance", lambda x: relay.mean_variance(x, 1).astuple(), lambda x: [x.mean(1), x.var(1)], (4, 60))
row("std", lambda x: relay.std(x, 1), lambda x: x.std(1), In((4, 60), -900, 900))
row("logsumexp", lambda x: relay.logsumexp(x, (1,)), of_torch(lambda x: x.logsumexp(1)), (4, 60))
row("logsumexp", lambda x: relay.logsumexp(x, (1,)), of_torch(lambda x: x.logsumexp(1)), In((2, 70000), -0.5, 0.5), types=("float16", "float32"), title="of 70000")
for name in ("all", "any"):
    row(name, lambda x, n=name: getattr(relay, n)(x, 1), lambda x, n=name: getattr(np, n)(x, 1), (9, 3), types=("bool",))
for name in ("argmax", "argmin"):
    row(name, lambda x, n=name: getattr(relay, n)(x, 1), lambda x, n=name: getattr(np, n)(x, 1), In(S, -3, 3), types=NUMBERS)
    row(name, lambda x, n=name: getattr(relay, n)(x, keepdims=True), lambda x, n=name: getattr(np, n)(x).reshape(1, 1, 1), In(S, -3, 3), types=("float32", "int8"), title="of all")
row("cumsum", lambda x: relay.cumsum(x, 1), lambda x: np.cumsum(x, 1), W, types=NUMBERS)
row("cumsum", lambda x: relay.cumsum(x, 1), lambda x: np.cumsum(x, 1), In((2, 5000), 1, 1), types=("float16", "float32"), title="of 5000")
for source, target in (("int8", "int32"), ("float16", "float32"), ("float32", "float64"), ("int32", "int8")):
    row("cumsum", lambda x, t=target: relay.cumsum(x, 1, t), lambda x: np.cumsum(x, 1), In((2, 300)), types=(source,), title=f"to {target}")
row("topk", lambda x: relay.topk(x, 3, 1).astuple(), lambda x: [-np.sort(-x, 1)[:, :3], np.argsort(-x, 1, "stable")[:, :3]], S, types=NUMBERS)
row("argsort", lambda x: relay.argsort(x, 1), lambda x: np.argsort(x, 1, "stable"), S, types=NUMBERS)
row("nn.softmax", lambda x: nn.softmax(x, 1), w.softmax(1), S)
row("nn.softmax", nn.softmax, w.softmax(-1), In((2, 5000), 0, 0.01), title="of 5000")
row("nn.fast_softmax", nn.fast_softmax, w.softmax(-1), S)
row("nn.log_softmax", lambda x: nn.log_softmax(x, 1), w.softmax(1, log=True), S)
row("nn.log_softmax", nn.log_softmax, w.softmax(-1, log=True), In((2, 5000), 0, 0.01), title="of 5000")

# ---- norms ----
X, C = In((2, 6, 5, 4), -300, 300), (6,)
ch = lambda v: v[:, None, None]  # noqa: E731
row("nn.batch_norm", lambda x, g, b, m, v: nn.batch_norm(x, g, b, m, v)[0], lambda x, g, b, m, v: (x - ch(m)) / np.sqrt(ch(v) + 1e-5) * ch(g) + ch(b), X, C, C, In(C, -100, 100), In(C, 1, 9), accuracy=8)
row("nn.layer_norm", nn.layer_norm, lambda x, g, b: w.norm(x, (3,), g, b), X, (4,), (4,))
row("nn.layer_norm", lambda x, g, b: nn.layer_norm(x, g, b, axis=1), lambda x, g, b: w.norm(x, (1,), ch(g), ch(b)), X, C, C, title="axis 1")
row("nn.instance_norm", nn.instance_norm, lambda x, g, b: w.norm(x, (2, 3), ch(g), ch(b)), X, C, C)
row("nn.group_norm", lambda x, g, b: nn.group_norm(x, g, b, 3), lambda x, g, b: w.norm(x.reshape(2, 3, 2, 5, 4), (2, 3, 4), 1, 0).reshape(x.shape) * ch(g) + ch(b), X, C, C)
row("nn.l2_normalize", lambda x: nn.l2_normalize(x, 1e-6, (1,)), lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)), X)
row("nn.lrn", lambda x: nn.lrn(x, 5, 1, 2.0, 1e-2, 0.75), of_torch(F.local_response_norm, 5, 1e-2, 0.75, 2.0), (2, 8, 5, 4))
row("nn.dropout", lambda x: nn.dropout(x, 0.5), lambda x: x, S)

# ---- pools ----
P = {1: (2, 4, 11), 2: (2, 4, 11, 10), 3: (1, 2, 6, 7, 5)}
for n, shape in P.items():
    size, stride, pad = [3, 2, 3][:n], [2, 1, 2][:n], [1, 0, 1][:n]
    for ceil in (False, True):
        row(f"nn.max_pool{n}d", lambda x, n=n, k=size, s=stride, p=pad, c=ceil: getattr(nn, f"max_pool{n}d")(x, k, s, padding=p, ceil_mode=c),
            lambda x, k=size, s=stride, p=pad, c=ceil: w.max_pool(x, k, s, p, None, c), In(shape, wide=True), types=NUMBERS, title=f"ceil {ceil}")  # fmt: skip
        for count in (False, True):
            row(f"nn.avg_pool{n}d", lambda x, n=n, k=size, s=stride, p=pad, c=ceil, i=count: getattr(nn, f"avg_pool{n}d")(x, k, s, padding=p, ceil_mode=c, count_include_pad=i),
                lambda x, k=size, s=stride, p=pad, c=ceil, i=count: w.avg_pool(x, k, s, p, None, c, i), In(shape), types=NUMBERS, title=f"ceil {ceil} padding counts {count}")  # fmt: skip
    for kind in ("max", "avg"):
        for sizes in ([1] * n, [2, 5, 1][:n], [4, 3, 2][:n]):
            row(f"nn.adaptive_{kind}_pool{n}d", lambda x, n=n, k=kind, s=sizes: getattr(nn, f"adaptive_{k}_pool{n}d")(x, tuple(s)),
                lambda x, k=kind, s=sizes: w.adaptive(x, s, k), In(shape), types=NUMBERS, title=f"to {sizes}")  # fmt: skip
row("nn.max_pool2d", lambda x: nn.max_pool2d(x, (3, 3), dilation=(2, 2), layout="NHWC"), w.channels_last(lambda x: w.max_pool(x, [3, 3], [1, 1], None, [2, 2])), (2, 9, 8, 4), types=NUMBERS, title="dilated NHWC")
row("nn.avg_pool2d", lambda x: nn.avg_pool2d(x, (3, 3), layout="NHWC"), w.channels_last(lambda x: w.avg_pool(x, [3, 3], [1, 1])), (2, 9, 8, 4), types=NUMBERS, title="NHWC")
row("nn.global_avg_pool2d", nn.global_avg_pool2d, lambda x: w.mean(x, (2, 3), True), (2, 4, 9, 8), types=NUMBERS)
row("nn.global_avg_pool2d", nn.global_avg_pool2d, lambda x: w.mean(x, (2, 3), True), In((1, 1, 270, 260), 20, 40), types=NUMBERS, title="large map")
row("nn.global_max_pool2d", lambda x: nn.global_max_pool2d(x, "NHWC"), lambda x: x.max((1, 2), keepdims=True), (2, 9, 8, 4), types=NUMBERS)

# ---- sums of products ----
for lead in ((6,), (2, 3), (2, 1, 3)):
    row("nn.dense", lambda x, y, out_dtype="": nn.dense(x, y, out_dtype=out_dtype), lambda x, y: x @ y.T, (*lead, 40), (12, 40), types=NUMBERS, outs=WIDER, title=f"rank {len(lead) + 1}")
row("nn.dense", lambda x, y: nn.dense(x, y), lambda x, y: x @ y.T, In((2, 4100), 1, 1), In((3, 4100), 1, 1), types=("float16", "bfloat16", "float32"), title="long sums")
for ta in (False, True):
    for tb in (False, True):
        p, q = ((40, 6) if ta else (6, 40)), ((12, 40) if tb else (40, 12))
        turned = lambda x, y, a=ta, b=tb: (x.swapaxes(-1, -2) if a else x) @ (y.swapaxes(-1, -2) if b else y)  # noqa: E731
        row("nn.matmul", lambda x, y, a=ta, b=tb, out_dtype="": nn.matmul(x, y, out_dtype=out_dtype, transpose_a=a, transpose_b=b), turned, p, q, types=NUMBERS, outs=WIDER, title=f"{ta} {tb}")
        row("nn.batch_matmul", lambda x, y, a=ta, b=tb, out_dtype="": nn.batch_matmul(x, y, out_dtype, a, b), turned, (3, *p), (1 if ta else 3, *q), types=NUMBERS, outs=WIDER, title=f"{ta} {tb}")


def conv_row(name, layouts, shape, weight, want, types=NUMBERS, outs=WIDER, title="", loss=64, **attrs):
    """A row of a convolution: ``shape`` and ``weight`` in the layouts of the call."""

    def call(x, y, out_dtype=""):
        return getattr(nn, name)(x, y, data_layout=layouts[0], kernel_layout=layouts[1], out_dtype=out_dtype, **attrs)

    row(f"nn.{name}", call, want, In(shape), In(weight), types=types, outs=outs, title=title or " ".join(layouts), loss=loss)


conv_row("conv1d", ("NCW", "OIW"), (2, 4, 11), (6, 4, 3), lambda x, y: w.conv(x, y, 2, 1), strides=2, padding=1)
conv_row("conv1d", ("NWC", "WIO"), (2, 11, 4), (3, 4, 6), w.laid_out(w.conv, "NWC", "WIO", "W"))
conv_row("conv2d", ("NCHW", "OIHW"), (2, 4, 9, 8), (6, 4, 3, 3), lambda x, y: w.conv(x, y, (2, 1), [(1, 0), (2, 1)]), strides=(2, 1), padding=(1, 2, 0, 1))
conv_row("conv2d", ("NCHW", "OIHW"), (2, 4, 9, 8), (6, 2, 3, 3), lambda x, y: w.conv(x, y, 1, 1, 2, 2), padding=1, dilation=2, groups=2, title="2 groups, dilated")
conv_row("conv2d", ("NCHW", "OIHW"), (2, 4, 9, 8), (4, 2, 3, 3), lambda x, y: w.conv(x, y.reshape(8, 1, 3, 3), 1, 1, 1, 4), padding=1, groups=4, title="depthwise NCHW")
conv_row("conv2d", ("NHWC", "HWOI"), (2, 9, 8, 4), (3, 3, 4, 2), w.laid_out(lambda x, y: w.conv(x, y.reshape(8, 1, 3, 3), 1, 1, 1, 4), "NHWC", "HWOI"), padding=1, groups=4, title="depthwise NHWC")
conv_row("conv2d", ("NHWC", "HWIO"), (2, 9, 8, 4), (3, 3, 4, 6), w.laid_out(lambda x, y: w.conv(x, y, 2, 1), "NHWC", "HWIO"), padding=1, strides=2)
conv_row("conv2d", ("NHWC", "HWIO"), (1, 8, 8, 4), (3, 3, 4, 70), w.laid_out(lambda x, y: w.conv(x, y, 1, 1), "NHWC", "HWIO"), padding=1, title="70 channels: Winograd", loss=1024)
conv_row("conv2d", ("HWNC", "HWOI"), (9, 8, 2, 4), (3, 3, 6, 4), w.laid_out(w.conv, "HWNC", "HWOI"))
conv_row("conv3d", ("NCDHW", "OIDHW"), (1, 3, 5, 6, 7), (4, 3, 3, 2, 3), lambda x, y: w.conv(x, y, (1, 2, 1), 1), strides=(1, 2, 1), padding=1)
conv_row("conv3d", ("NDHWC", "DHWIO"), (1, 5, 6, 7, 3), (3, 2, 3, 3, 4), w.laid_out(w.conv, "NDHWC", "DHWIO", "DHW"))
for groups in (1, 2):
    conv_row("conv2d_transpose", ("NCHW", "IOHW"), (2, 4, 5, 6), (4, 3, 3, 4), lambda x, y, g=groups: w.conv_transpose(x, y, 2, 1, 1, g), strides=(2, 2), padding=(1, 1), output_padding=(1, 1), groups=groups, title=f"{groups} groups")
row("nn.contrib_conv2d_winograd_weight_transform", lambda k: nn.contrib_conv2d_winograd_weight_transform(k, 4),
    lambda k: w.winograd_weight(k, lambda t: nn.winograd_matrices(t, 3), 4), (8, 5, 3, 3))  # fmt: skip
row("nn.contrib_conv2d_winograd_without_weight_transform",
    lambda x, k, out_dtype="": nn.contrib_conv2d_winograd_without_weight_transform(
        x, nn.contrib_conv2d_winograd_weight_transform(k, 4), 4, strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1),
        groups=1, data_layout="NHWC", kernel_layout="HWIO", out_layout="NHWC", out_dtype=out_dtype),
    lambda x, k: w.conv(x.transpose(0, 3, 1, 2), k, 1, 1).transpose(0, 2, 3, 1), (1, 8, 8, 5), (8, 5, 3, 3),
    outs=(("float16", "float32"), ("float32", "float16")), loss=1024)  # fmt: skip
assert math.prod(S) == 105
