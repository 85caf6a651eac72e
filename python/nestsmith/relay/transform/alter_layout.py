"""AlterOpLayout: replaces convolutions by the form the target wants and gives per-channel constants full rank.

The replacements are Winograd for 3x3, stride-1 convolutions in NHWC, and blocks of channels where templates for CPUs are used (see
:mod:`.blocks`). Afterwards every value has a layout that is
known (it
comes from a convolution, a pool, ...) or not. Where a broadcasting operator meets a value of known layout and one of
lower rank, the latter gets leading axes of extent 1: [C] becomes [1, 1, 1, C].
"""

from __future__ import annotations

from ...numerics import math_mode, sum_type
from .. import op, schedules
from .. import passes as _t
from ..expr import Call, Tuple, TupleGetItem, rewrite, with_children
from ..infer import infer_type
from ..op import nn
from ..op.tensor import BINARY, COMPARE
from ..ty import Any
from .blocks import blocked

__all__ = ["AlterOpLayout", "winograd_tile"]

_SOURCES = {
    "nn.conv1d",
    "nn.conv2d",
    "nn.conv3d",
    "nn.conv2d_transpose",
    "nn.contrib_conv2d_winograd_without_weight_transform",
    "nn.dense",
    "nn.upsampling",
    "image.resize2d",
    "nn.batch_norm",
    "layout_transform",
    *(
        f"nn.{k}_pool{d}d"
        for k in ("max", "avg", "adaptive_max", "adaptive_avg", "global_max", "global_avg")
        for d in (1, 2, 3)
    ),
}
_UNKNOWN = {
    "reshape",
    "nn.batch_flatten",
    "nn.softmax",
    "nn.log_softmax",
    "take",
    "gather",
    "gather_nd",
    "expand_dims",
    "nn.matmul",
    "nn.batch_matmul",
    "full",
    "zeros",
    "ones",
    "one_hot",
    "shape_of",
    "stack",
    "nn.fast_softmax",
}
_BROADCAST = {*BINARY, *COMPARE}


def _kind(target):
    return target.kind.name if hasattr(target.kind, "name") else str(target.kind)


def is_gpu(target):
    """Whether kernels are bound to blocks and threads on this target."""
    return "gpu" in target.keys


def is_mali(target):
    """Whether the target is an Arm Mali GPU."""
    return "mali" in target.keys or getattr(target, "device_name", "") == "mali"


def winograd_tile(call, target, config):
    """The output tile of the Winograd form of a convolution call, or None if the direct form is used (spec 08 §5.4). `config`: of
    the PassContext."""
    a, mode = call.attrs, config.get("relay.winograd", "auto")
    if (
        mode == "never"
        or (math_mode(config) != "strict" and target.has_tensor_cores)  # its transforms lose bits, and TF32 has few
        or call.op_name != "nn.conv2d"
        or a.groups != 1
        or a.data_layout != "NHWC"
        or a.kernel_layout != "HWIO"
    ):
        return None
    data, weight = (x.checked_type for x in call.args)
    kh, kw, _, co = weight.shape
    if "float" not in data.dtype or "float" not in weight.dtype:
        return None
    if sum_type(call.checked_type.dtype) != sum_type(weight.dtype):  # the transformed weight would be less exact
        return None
    if (kh, kw) != (3, 3) or tuple(a.strides) != (1, 1) or tuple(a.dilation) != (1, 1):
        return None
    h = data.shape[1]
    if any(isinstance(d, Any) for d in data.shape):
        return None
    if is_mali(target):
        return 4 if h % 4 == 0 else 2
    if mode == "fastest" and target.has_tensor_cores and data.dtype in ("float16", "bfloat16"):
        return None  # tensor cores compute it
    if is_gpu(target):
        return 4 if h % 8 == 0 else 2
    if "arm_cpu" in target.keys:
        return None
    if mode == "fastest":
        return _fastest_tile(*map(int, data.shape), int(co))
    return 4 if 64 < co < 512 or mode == "always" else None


# In floating-point operations of a product at full speed: a byte of a weight, which comes from memory, and an element that the
# transforms (by rows) write and read; of ResNet-18's layers on two cores with AVX-512. And what makes up for what is not known.
_WEIGHT_BYTE, _ELEMENT, _WORTH = 5.5, 25, 0.8


def _fastest_tile(n, h, w, ci, co):
    """The output tile for which Winograd's form takes clearly less than the direct one on a CPU, or None: products, weights
    that are read once, tiles that are written and read between the transforms."""

    def operations(points, places, weights, moved):
        return 2 * points * places * ci * co + 4 * _WEIGHT_BYTE * weights * ci * co + _ELEMENT * moved

    best, tile = _WORTH * operations(9, n * h * w, 9, 0), None
    for m in (4, 2):
        a, places = (m + 2) ** 2, n * -(-h // m) * -(-w // m)
        cost = operations(a, places, a, a * places * (ci + co))
        if cost < best:
            best, tile = cost, m
    return tile


def transforms_weight(target):
    """Whether the Winograd weight is transformed ahead of time on this target (elsewhere the task contains the
    transform)."""
    return not is_gpu(target) or is_mali(target) or _kind(target) in ("cuda", "rocm", "vulkan")


def _winograd(call, tile, by_rows):
    weight = op.transpose(call.args[1], (3, 2, 0, 1))
    a = dict(call.attrs, out_layout=call.attrs.out_layout or "NHWC")
    if by_rows:
        a["by_rows"] = True
    new = nn.contrib_conv2d_winograd_without_weight_transform(
        call.args[0], nn.contrib_conv2d_winograd_weight_transform(weight, tile), tile, **a
    )
    new.span = call.span
    return new


def expand_ranks(func):
    """The second half of the pass: per-channel operands get the rank of the value they meet."""
    known: dict[int, bool] = {}

    def visit(old, new):
        k = False
        if isinstance(new, Call) and new.op_name:
            name = new.op_name
            flags = [known.get(id(a), False) for a in new.args]
            if name in _SOURCES:
                k = True
            elif name in _UNKNOWN:
                k = False
            else:
                k = any(flags)
            if name in _BROADCAST and k:
                t = [a.checked_type for a in new.args]
                r = [len(x.shape) for x in t]
                if r[0] != r[1]:
                    hi = 0 if r[0] > r[1] else 1
                    if flags[hi] and any(isinstance(d, Any) or d != 1 for d in t[1 - hi].shape):
                        args = list(new.args)
                        args[1 - hi] = op.expand_dims(args[1 - hi], 0, abs(r[0] - r[1]))
                        new = with_children(new, args)
        elif isinstance(new, Tuple):
            k = any(known.get(id(f), False) for f in new.fields)
        elif isinstance(new, TupleGetItem):
            k = known.get(id(new.tuple_value), False)
        known[id(new)] = k
        keep.append(new)
        return new

    keep: list = []
    infer_type(func)
    return rewrite(func, visit)


def AlterOpLayout(target):
    """The pass for a target."""

    @_t.function_pass(opt_level=3, name="AlterOpLayout")
    def run(func, mod, ctx):
        templates = schedules.templates()
        infer_type(func)

        def visit(old, new):
            if isinstance(new, Call) and transforms_weight(target) and not (templates and templates.prefers(old, target)):
                tile = winograd_tile(new, target, ctx.config) if new.op_name == "nn.conv2d" else None
                if tile:
                    return _winograd(new, tile, ctx.config.get("relay.winograd") == "fastest" and not is_gpu(target))
            return new

        func = rewrite(func, visit)
        if templates and not schedules.asked():
            func = blocked(func, lambda call: templates.block(call, target))
        return expand_ranks(func)

    return run
