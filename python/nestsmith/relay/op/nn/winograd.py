"""Winograd's convolution, split into a transform of the weight (done once, while building) and the rest."""

import numpy as np

from .... import _core, topi
from ....numerics import float32_mode, is_float, sum_type
from ....topi.nn.winograd import transform_matrices
from ....topi.util import placed
from ...ty import Any, TensorType
from ..registry import ANCHOR, NEVER, call, register, tensor
from .util import layout_axes, window_out

__all__ = ["contrib_conv2d_winograd_weight_transform", "contrib_conv2d_winograd_without_weight_transform",
           "winograd_matrices"]  # fmt: skip


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
    if dtype == "float32":  # as the runtime makes it where a model file has the original
        made = _core.winograd_weight(np.ascontiguousarray(w, dtype), tuple(map(tuple, g.tolist())))
        return np.frombuffer(made, dtype).reshape(n, n, o, i)
    both = np.kron(g, g).astype(dtype)  # G w G^T as one matrix product
    return np.ascontiguousarray((both @ w.astype(dtype).reshape(o * i, -1).T).reshape(n, n, o, i))


def winograd_matrices(m, r):
    """(A, B, G) with m outputs and r taps, as arrays of float64: shapes (a, m), (a, a), (a, r), a = m + r - 1."""
    return tuple(np.array(matrix, dtype="float64") for matrix in transform_matrices(m, r))


def kind_of(target):
    return target.kind.name if hasattr(target.kind, "name") else str(target.kind)


def is_gpu(target):
    """Whether kernels are bound to blocks and threads on this target."""
    return "gpu" in target.keys


def is_mali(target):
    """Whether the target is an Arm Mali GPU."""
    return "mali" in target.keys or getattr(target, "device_name", "") == "mali"


def transforms_weight(target):
    """Whether the Winograd weight is transformed ahead of time on this target (elsewhere the task contains the
    transform)."""
    return not is_gpu(target) or is_mali(target) or kind_of(target) in ("cuda", "rocm", "vulkan")


def winograd_tile(call, target, config):
    """The output tile of the Winograd form of a convolution call, or None if the direct form is used (spec 08 §5.4). `config`: of
    the PassContext."""
    return forms(call, target, config)[0] or None


DIRECT = 0  # a form; the others are Winograd's output tiles


def forms(call, target, config):
    """The forms that may be the fastest of a convolution call, the most promising first: `DIRECT` and Winograd's output tiles. There is
    more than one where `relay.winograd` is "measured"."""
    a, mode = call.attrs, config.get("relay.winograd", "auto")
    if mode == "never" or float32_mode(config) != "strict" and target.on_tensor_cores("float32"):
        return (DIRECT,)  # its transforms lose bits, and TF32 has few
    if call.op_name != "nn.conv2d" or a.groups != 1 or (a.data_layout, a.kernel_layout) != ("NHWC", "HWIO"):
        return (DIRECT,)
    data, weight = (x.checked_type for x in call.args)
    kh, kw, _, co = weight.shape
    if "float" not in data.dtype or "float" not in weight.dtype:
        return (DIRECT,)
    if sum_type(call.checked_type.dtype) != sum_type(weight.dtype):  # the transformed weight would be less exact
        return (DIRECT,)
    if (kh, kw) != (3, 3) or tuple(a.strides) != (1, 1) or tuple(a.dilation) != (1, 1):
        return (DIRECT,)
    h = data.shape[1]
    if any(isinstance(d, Any) for d in (*data.shape, co)):
        return (DIRECT,)
    if is_mali(target):
        return (4 if h % 4 == 0 else 2,)
    closed = mode in ("fastest", "measured")
    if closed and data.dtype in ("float16", "bfloat16") and target.on_tensor_cores(data.dtype):
        return (DIRECT,)  # tensor cores compute it
    sizes = (*map(int, data.shape), int(co))
    if closed and is_gpu(target):
        lanes = target.has_lane_products and data.dtype == "float32"
        return _near(_costs_on_gpu(*sizes, lanes), mode, _RIVAL_LANES if lanes else _RIVAL)
    if is_gpu(target):
        return (4 if h % 8 == 0 else 2,)
    if "arm_cpu" in target.keys:
        return (DIRECT,)
    if closed:
        return _near(_costs_on_cpu(*sizes, _core.cpu_vector_bytes(target.mcpu)), mode, _RIVAL)
    return (4 if 64 < co < 512 or mode == "always" else DIRECT,)


# How many times the cost of the best form another one may have and be measured all the same: closed forms may be that far off. (Of 24 shapes
# on an H100 the fastest form was said to cost 1.04 times the best one at most.)
_RIVAL, _RIVAL_LANES = 1.15, 1.08


def _near(cost, mode, rival):
    """The forms {form: cost} in the order of their cost: the best one, or all that are near it if they are to be measured."""
    order = sorted(cost, key=cost.get)
    return tuple(f for f in order if mode == "measured" and cost[f] <= rival * cost[order[0]]) or (order[0],)


# In floating-point operations of a product at full speed: a byte of a weight, which comes from memory, and an element that the
# transforms (by rows) write and read; of ResNet-18's layers on two cores with AVX-512 (vectors of 64 bytes), and with AVX2, which
# computes half as fast beside the same memory. And what makes up for what is not known.
_COSTS, _COSTS_NARROW, _WORTH = (5.5, 25), (3.6, 12), 0.8


def _costs_on_cpu(n, h, w, ci, co, vector_bytes):
    """What each form takes on a CPU: products, weights that are read once, tiles that are written and read between the transforms."""

    of_byte, of_element = _COSTS if vector_bytes == 64 else _COSTS_NARROW

    def operations(points, places, weights, moved):
        return 2 * points * places * ci * co + 4 * of_byte * weights * ci * co + of_element * moved

    cost = {DIRECT: _WORTH * operations(9, n * h * w, 9, 0)}
    for m in (4, 2):
        a, places = (m + 2) ** 2, n * -(-h // m) * -(-w // m)
        cost[m] = operations(a, places, a, a * places * (ci + co))
    return cost


# Microseconds on a GPU: of a kernel, a product, a term that one thread adds up, a weight; of Winograd's form (three kernels, by the tile; the
# products between its transforms) also of an element that the transforms write and read, and what it costs more beyond so many, which the
# second-level cache does not hold. By loops: fitted on an H200 to the best of 14 candidates at 24 shapes (7x7 to 112x112 pixels, 16 to 512
# channels; float32). With products by lanes (float32 from compute capability 7.0 on), and the last transform in the kernel that writes the
# layer: on an H100 to the best of 20 candidates of 72 forms at 24 shapes, with cold weights, batches of 1 and 8; the mean error is 4 % of the
# direct form and 5 % of the others, and the form that they say is the fastest one at 23 shapes, 5 % slower at the other.
_DIRECT_LOOPS, _WINOGRAD_LOOPS = (1.8, 0.64e-7, 4.75e-3, 2.15e-6), ({4: 6.8, 2: 6.8}, 0.64e-7, 4.75e-3, 2.15e-6, 3.58e-6, 0)
_DIRECT_LANES, _WINOGRAD_LANES = (3.0, 0.467e-7, 0.85e-3, 0), ({4: 5.6, 2: 4.3}, 0.455e-7, 0, 0.884e-6, 1.70e-6, 0.98e-6)
_HELD = 10e6


def _costs_on_gpu(n, h, w, ci, co, lanes):
    """What each form takes on a GPU."""
    kernel, product, term, weight = _DIRECT_LANES if lanes else _DIRECT_LOOPS
    cost = {DIRECT: kernel + product * 9 * n * h * w * ci * co + term * 9 * ci + weight * 9 * ci * co}
    kernels, product, term, weight, element, spilled = _WINOGRAD_LANES if lanes else _WINOGRAD_LOOPS
    for m in (4, 2):
        a, places = (m + 2) ** 2, n * -(-h // m) * -(-w // m)
        moved = a * places * (ci + co)
        cost[m] = kernels[m] + product * a * places * ci * co + term * ci + weight * a * ci * co + element * moved
        cost[m] += spilled * max(0, moved - _HELD)
    return cost


def _wino_infer(attrs, types):
    t, w = _float_tensor(types, 0), _float_tensor(types, 1)
    n, _, h, ww = (t.shape[p] for p in layout_axes(attrs.data_layout, "NCHW"))
    co = w.shape[2]
    pads = [attrs.padding[0] + attrs.padding[2], attrs.padding[1] + attrs.padding[3]]
    out = layout_axes(attrs.get("out_layout") or attrs.data_layout, "NCHW")
    extents = (n, co, window_out(h, 3, 1, 1, pads[0]), window_out(ww, 3, 1, 1, pads[1]))
    return TensorType(placed([0] * 4, out, extents), attrs.out_dtype or t.dtype)


register("nn.contrib_conv2d_winograd_weight_transform", ANCHOR, _wino_weight_infer, _wino_weight_numpy, colour=NEVER,
         loops=lambda a, x, c, target: topi.nn.conv2d_winograd_weight_transform(x[0], a.tile_size))  # fmt: skip


def _winograd_loops(a, x, c, target):
    window = list(a.strides), list(a.padding), list(a.dilation)
    return topi.nn.conv2d_winograd_nhwc_without_weight_transform(*x, *window, c.checked_type.dtype, bool(a.get("by_rows")))


register("nn.contrib_conv2d_winograd_without_weight_transform", ANCHOR, _wino_infer, colour=NEVER,
         loops=_winograd_loops, ranked=True)  # fmt: skip


def contrib_conv2d_winograd_weight_transform(weight, tile_size):
    """OIHW weight -> [tile+k-1, tile+k-1, O, I]; float32 if the weight has 16-bit floats."""
    return call("nn.contrib_conv2d_winograd_weight_transform", [weight], tile_size=int(tile_size))


def contrib_conv2d_winograd_without_weight_transform(data, weight, tile_size, **attrs):
    """Winograd convolution whose weight is already transformed; other attributes as conv2d."""
    return call("nn.contrib_conv2d_winograd_without_weight_transform", [data, weight], tile_size=int(tile_size),
                **attrs)  # fmt: skip
