"""One row per operator of `relay` and way to use it: how to call it, what it should give, for which element types.

To add an operator, add a row: ``row(name, call, want, inputs...)``, the name being that under ``relay``. ``call`` gets
variables (and ``out_dtype``, if the row lists pairs of types in ``outs``), ``want`` their values as float64 or int64 arrays;
several results are a list. Element types that a row does not list have to be refused by the build, or computed rightly."""

from dataclasses import dataclass, field

import numpy as np
import operator_wants as w
import torch.nn.functional as F
from operator_values import ALL, FLOATS, INTS, NUMBERS, In
from operator_wants import of_torch

from nestsmith import relay
from nestsmith.numerics import to_tf32
from nestsmith.relay.op import lookup

nn = relay.nn
ROWS = []
# (type of the operands, type of the result) where an operator has `out_dtype`
WIDER = (
    ("int8", "int32"),
    ("uint8", "int32"),
    ("int16", "int64"),
    ("int8", "float32"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float32", "float64"),
    ("float32", "float16"),
    ("int32", "int8"),
)


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
    only: bool = False  # other element types are not tried: the row means something else there

    def __str__(self):
        return f"{self.name} {self.title}".strip()


def row(name, call, want, *inputs, **more):
    ROWS.append(Row(name, call, want, tuple(i if isinstance(i, In) else In(i) for i in inputs), **more))


S = (3, 5, 7)

# ---- element by element ----
UNARY = {
    "exp": np.exp, "tanh": np.tanh, "sigmoid": of_torch(lambda x: x.sigmoid()), "erf": of_torch(lambda x: x.erf()),
    "sin": np.sin, "cos": np.cos, "sinh": np.sinh, "cosh": np.cosh, "atan": np.arctan, "asinh": np.arcsinh,
    "expm1": np.expm1, "exp2": np.exp2, "erfc": of_torch(lambda x: x.erfc()),
    "fast_exp": np.exp, "fast_tanh": np.tanh, "fast_erf": of_torch(lambda x: x.erf()),
}  # fmt: skip
for name, f in UNARY.items():
    row(name, getattr(relay, name), f, S)
for name, f in {"log": np.log, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt}.items():
    row(name, getattr(relay, name), f, In(S, 0.1, 9))
row("log1p", relay.log1p, np.log1p, In(S, -0.5, 9))
row("rsqrt", relay.rsqrt, lambda x: 1 / np.sqrt(x), In(S, 0.1, 9))
row("tan", relay.tan, np.tan, In(S, -1, 1))
for name, f in {"asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh}.items():
    row(name, getattr(relay, name), f, In(S, -0.9, 0.9))
row("acosh", relay.acosh, np.arccosh, In(S, 1.1, 9))
for name, f in {"floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc}.items():
    row(name, getattr(relay, name), f, In(S, -9, 9, wide=True), types=NUMBERS)
row("round_tf32", relay.round_tf32, to_tf32, S, types=("float32",), accuracy=0, loss=0)
for name, f in {"abs": np.abs, "negative": np.negative, "sign": np.sign, "copy": np.copy}.items():
    row(name, getattr(relay, name), f, In(S, wide=True), types=NUMBERS)
row("logical_not", relay.logical_not, np.logical_not, S, types=("bool",))
row("bitwise_not", relay.bitwise_not, np.invert, In(S, wide=True), types=INTS, only=True)
row("bitwise_not", relay.bitwise_not, np.logical_not, S, types=("bool",), title="bool", only=True)
row("nn.relu", nn.relu, lambda x: np.maximum(x, 0), In(S, wide=True), types=NUMBERS)
row("nn.leaky_relu", lambda x: nn.leaky_relu(x, 0.125), lambda x: np.where(x > 0, x, x * 0.125), S)
row("clip", lambda x: relay.clip(x, -1.5, 2), lambda x: np.clip(x, -1.5, 2), S)
row(
    "clip",
    lambda x: relay.clip(x, -7, 40),
    lambda x: np.clip(x, -7, 40),
    In(S, wide=True),
    types=("int32", "int64", "int8", "int16"),
    title="integers",
)
for source, target in (
    ("float32", "float16"), ("float32", "int32"), ("float64", "float32"), ("int32", "int8"), ("int8", "uint8"), ("int64", "int32"),
    ("uint8", "int32"), ("int32", "float32"), ("uint8", "float16"), ("bool", "float32"), ("float32", "bool"), ("float32", "bfloat16"),
    ("bfloat16", "float32"), ("float16", "int8"), ("uint32", "int64"), ("int32", "uint64"), ("int16", "bfloat16"),
):  # fmt: skip
    row(
        "cast",
        lambda x, t=target: relay.cast(x, t),
        lambda x, t=target: x if t.startswith(("f", "bf")) else x != 0 if t == "bool" else np.trunc(x),
        In(S, wide=not target.startswith(("f", "bf"))),
        types=(source,),
        only=True,
        title=f"to {target}",
        accuracy=1.0,
    )

# ---- two operands ----
A, B = (3, 1, 7), (5, 7)
for name, f in {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}.items():
    row(name, getattr(relay, name), f, In(A, wide=True), In(B, wide=True), types=NUMBERS)
row("divide", relay.divide, w.divide, In(A, wide=True), In(B, 0.5, 9), types=NUMBERS)
row(
    "divide",
    relay.divide,
    w.divide,
    In(A, wide=True),
    In(B, -9, -1.5),
    types=("float32", "int32", "int64", "int8", "int16"),
    title="by negative numbers",
)
row(
    "floor_divide",
    relay.floor_divide,
    lambda a, b: np.floor(a / b) if a.dtype.kind == "f" else a // b,
    In(A, -9, 9),
    In(B, 1, 3),
    types=NUMBERS,
)
row(
    "floor_divide",
    relay.floor_divide,
    lambda a, b: a // b,
    In(A, wide=True),
    In(B, -9, -2),
    types=("int32", "int64", "int8", "int16"),
    title="by negative numbers",
)
row("mod", relay.mod, w.mod, In(A, -9, 9), In(B, 2.25, 2.25), types=FLOATS)
row("mod", relay.mod, w.mod, In(A, wide=True), In(B, 1, 9), types=INTS, title="integers")
row("floor_mod", relay.floor_mod, np.mod, In(A, -9, 9), In(B, 2.25, 2.25), types=FLOATS)
row("floor_mod", relay.floor_mod, np.mod, In(A, wide=True), In(B, 1, 9), types=INTS, title="integers")
row(
    "floor_mod",
    relay.floor_mod,
    np.mod,
    In(A, wide=True),
    In(B, -9, -2),
    types=("int32", "int64", "int8", "int16"),
    title="by negative numbers",
)
row("power", relay.power, np.power, In(A, 0.5, 3), In(B, -2, 2))
for name, f in {"atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign}.items():
    row(name, getattr(relay, name), f, A, B)
for first in (False, True):
    row(
        "check_index", lambda i, first=first: lookup.check_index(i, 9, first=first), lambda i: i.astype("int32"), In(S, 0, 8), types=INTS,
        title="by a kernel of its own" if first else "", only=True,
    )  # fmt: skip
for name, f in {"left_shift": np.left_shift, "right_shift": np.right_shift}.items():
    row(name, getattr(relay, name), f, In(A, wide=True), In(B, 0, 6), types=INTS)
for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    row(name, getattr(relay, name), getattr(np, name), In(A, wide=True), In(B, wide=True), types=INTS)
for name in ("logical_and", "logical_or", "logical_xor"):
    row(name, getattr(relay, name), getattr(np, name), A, B, types=("bool",))
for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    row(name, getattr(relay, name), getattr(np, name), In(A, -2, 2), In(B, -2, 2), types=NUMBERS)
row(
    "where",
    relay.where,
    lambda c, x, y: np.where(c, x, y),
    In((7,), dtype="bool"),
    In(A, wide=True),
    In(B, wide=True),
    types=ALL,
)
row(
    "nn.bias_add",
    lambda x, b: nn.bias_add(x, b, -2),
    lambda x, b: x + b[:, None],
    In(S, wide=True),
    In((5,), wide=True),
    types=NUMBERS,
)
row("nn.prelu", nn.prelu, lambda x, a: np.where(x > 0, x, x * a[:, None]), S, (5,))

# ---- constants and shapes ----
row("full", lambda x: relay.add(x, relay.full(2, S, "float32")), lambda x: x + 2, S, types=("float32",))
row("full_like", lambda x: relay.add(x, relay.full_like(x, relay.const(2.0))), lambda x: x + 2, S, types=("float32",))
for name, v in (("zeros", 0), ("ones", 1)):
    row(
        name,
        lambda x, n=name: relay.add(x, getattr(relay, n)(S, x.type_annotation.dtype)),
        lambda x, v=v: x + v,
        In(S, wide=True),
        types=NUMBERS,
    )
    row(
        f"{name}_like",
        lambda x, n=name: relay.add(x, getattr(relay, n + "_like")(x)),
        lambda x, v=v: x + v,
        In(S, wide=True),
        types=NUMBERS,
    )
row("arange", lambda x: relay.add(x, relay.arange(1, 15, 2)), lambda x: x + np.arange(1, 15, 2), S, types=("float32",))
row("shape_of", relay.shape_of, lambda x: np.array(S), S, types=("float32", "int8"))

# ---- moving data ----
W = In(S, wide=True)
row("reshape", lambda x: relay.reshape(x, (5, -1)), lambda x: x.reshape(5, -1), W, types=ALL)
row(
    "reshape_like",
    lambda x: relay.reshape_like(x, relay.var("like", shape=(15, 7))),
    lambda x: x.reshape(15, 7),
    W,
    types=("float32",),
)
row("nn.batch_flatten", nn.batch_flatten, lambda x: x.reshape(3, -1), W, types=ALL)
row("transpose", lambda x: relay.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), W, types=ALL)
row(
    "concatenate",
    lambda x, y: relay.concatenate([x, y], 1),
    lambda x, y: np.concatenate([x, y], 1),
    W,
    In((3, 2, 7), wide=True),
    types=ALL,
)
row("stack", lambda x, y: relay.stack([x, y], -1), lambda x, y: np.stack([x, y], -1), W, W, types=ALL)
row("split", lambda x: relay.split(x, (2, 3), 1).astuple(), lambda x: np.split(x, (2, 3), 1), W, types=ALL)
row(
    "strided_slice",
    lambda x: relay.strided_slice(x, (0, -1), (3, -5), (2, -2)),
    lambda x: x[0:3:2, -1:-5:-2],
    W,
    types=ALL,
)
row(
    "slice_like",
    lambda x: relay.slice_like(x, relay.var("like", shape=(2, 4, 7))),
    lambda x: x[:2, :4],
    W,
    types=("float32",),
)
row("expand_dims", lambda x: relay.expand_dims(x, 1, 2), lambda x: x[:, None, None], W, types=ALL)
row("squeeze", lambda x: relay.squeeze(x, (1,)), lambda x: x[:, 0], In((3, 1, 7), wide=True), types=ALL)
row(
    "broadcast_to",
    lambda x: relay.broadcast_to(x, (2, 3, 5, 7)),
    lambda x: np.broadcast_to(x, (2, 3, 5, 7)),
    In((3, 1, 7), wide=True),
    types=ALL,
)
row(
    "broadcast_to_like",
    lambda x: relay.broadcast_to_like(x, relay.var("like", shape=S)),
    lambda x: np.broadcast_to(x, S),
    In((3, 1, 7), wide=True),
    types=("float32",),
)
row("tile", lambda x: relay.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), W, types=ALL)
row("repeat", lambda x: relay.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1), W, types=ALL)
for name in ("reverse", "flip"):
    row(name, lambda x: relay.reverse(x, 1), lambda x: x[:, ::-1], W, types=ALL)
row(
    "layout_transform",
    lambda x: relay.layout_transform(x, "NCHW", "NHWC4c"),
    lambda x: x.reshape(2, 3, 4, 5, 6).transpose(0, 3, 4, 1, 2),
    In((2, 12, 5, 6), wide=True),
    types=ALL,
)
row(
    "layout_transform",
    lambda x: relay.layout_transform(x, "NHWC4c", "NCHW"),
    lambda x: x.transpose(0, 3, 4, 1, 2).reshape(2, 12, 5, 6),
    In((2, 5, 6, 3, 4), wide=True),
    types=("float16", "int8"),
    title="back",
)
for index in ("int32", "int64", "uint8", "int8"):
    I = In((2, 4), -2 if index.startswith("i") else 0, 6, dtype=index)  # noqa: E741
    row(
        "take",
        lambda x, i: relay.take(x, i, 1),
        lambda x, i: np.take(x, np.clip(i, 0, 4), 1),
        W,
        I,
        types=ALL,
        title=f"clip {index}",
    )
    row(
        "take",
        lambda x, i: relay.take(x, i, mode="wrap"),
        lambda x, i: np.take(x, i % 105),
        W,
        I,
        types=("float32",),
        title=f"wrap {index}",
    )
    I = In((2, 4), 0, 6, dtype=index)  # noqa: E741
    row(
        "gather",
        lambda x, i: relay.gather(x, 1, i),
        lambda x, i: np.take_along_axis(x, i, 1),
        In((2, 7), wide=True),
        I,
        types=ALL,
        title=index,
    )
    row(
        "gather_nd",
        relay.gather_nd,
        lambda x, i: x[i[0], i[1]],
        In((7, 7, 3), wide=True),
        I,
        types=("float32", "int8"),
        title=index,
    )
row(
    "one_hot",
    lambda i: relay.one_hot(i, relay.const(5.0), relay.const(-1.0), 6, -1, "float32"),
    lambda i: np.where(i[..., None] == np.arange(6), 5.0, -1.0),
    In(S, -1, 7),
    types=("int32", "int64", "uint8", "int8"),
)
row(
    "one_hot",
    lambda i: relay.one_hot(i, relay.const(5), relay.const(0), 6, 1, "int8"),
    lambda i: np.moveaxis(np.where(i[..., None] == np.arange(6), 5, 0), -1, 1),
    In(S, 0, 5),
    types=("int32",),
    title="integers, axis 1",
)
row(
    "nn.pad",
    lambda x: nn.pad(x, ((0, 0), (1, 2), (0, 1)), 3),
    lambda x: np.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=3),
    W,
    types=NUMBERS,
)
for mode in ("edge", "reflect"):
    row(
        "nn.pad",
        lambda x, m=mode: nn.pad(x, ((0, 0), (1, 2), (0, 1)), pad_mode=m),
        lambda x, m=mode: np.pad(x, ((0, 0), (1, 2), (0, 1)), m),
        W,
        types=NUMBERS,
        title=mode,
    )
for mode in ("SYMMETRIC", "REFLECT"):
    row(
        "nn.mirror_pad",
        lambda x, m=mode: nn.mirror_pad(x, ((0, 0), (1, 2), (0, 1)), m),
        lambda x, m=mode: np.pad(x, ((0, 0), (1, 2), (0, 1)), m.lower()),
        W,
        types=NUMBERS,
        title=mode,
    )
for mode in ("DCR", "CRD"):
    row(
        "nn.depth_to_space",
        lambda x, m=mode: nn.depth_to_space(x, 2, mode=m),
        lambda x, m=mode: w.depth_to_space(x, 2, m),
        In((2, 8, 3, 4), wide=True),
        types=ALL,
        title=mode,
    )
row(
    "nn.space_to_depth",
    lambda x: nn.space_to_depth(x, 2),
    lambda x: w.space_to_depth(x, 2),
    In((2, 3, 4, 6), wide=True),
    types=ALL,
)
row(
    "nn.upsampling",
    lambda x: nn.upsampling(x, 2, 3),
    lambda x: x.repeat(2, 2).repeat(3, 3),
    In((2, 3, 4, 5), wide=True),
    types=NUMBERS,
)
row(
    "nn.upsampling",
    lambda x: nn.upsampling(x, 2, 2, method="bilinear", align_corners=True),
    of_torch(F.interpolate, scale_factor=2, mode="bilinear", align_corners=True),
    (2, 3, 4, 5),
    title="bilinear",
    only=True,  # integers are cut, which shows where floats differ by a rounding: "integers" below
)
for method, mode, more in (
    ("linear", "bilinear", {"align_corners": False}),
    ("cubic", "bicubic", {"align_corners": False}),
    ("nearest_neighbor", "nearest", {}),
):
    row(
        "image.resize2d",
        lambda x, m=method, out_dtype="": relay.image.resize2d(
            x,
            (9, 7),
            method=m,
            coordinate_transformation_mode="asymmetric" if m[0] == "n" else "half_pixel",
            rounding_method="floor" if m[0] == "n" else "",
            cubic_alpha=-0.75,
            out_dtype=out_dtype,
        ),
        of_torch(F.interpolate, (9, 7), mode=mode, **more),
        (2, 3, 5, 6),
        outs=(("float16", "float32"),),
        title=method,
        only=method != "nearest_neighbor",
    )
row(
    "image.resize2d",
    lambda x: relay.image.resize2d(x, (10, 12)),
    lambda x: np.trunc(of_torch(F.interpolate, (10, 12), mode="bilinear")(x.astype("float64"))),
    (2, 3, 5, 6),
    types=INTS,
    title="integers",
    only=True,
)
