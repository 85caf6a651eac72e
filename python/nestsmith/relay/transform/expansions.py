"""Expansions: a 1x1 convolution that only a depthwise convolution reads, as the inverted bottlenecks of MobileNet have it, or a
first one, which reads an image.

What lies between the two is several times as large as what goes in and what comes out, and leaves the caches on a CPU. As one kernel
a tile of it is made right before the windows read it (`csrc/search/chain.c`).
"""

from ..expr import Call, Constant, Var
from ..op.nn.convolution import is_depthwise
from .moves import static_shape

__all__ = ["brings_image", "expanded_by", "is_plain", "is_pointwise", "reads_image"]

_BETWEEN = ("add", "nn.bias_add", "nn.relu", "clip", "multiply")
_LANES = 8  # channels that come in such groups fill vectors
_IMAGE = 4  # channels that an image has, at most


def _kernel(call):
    return tuple(static_shape(call.args[1])[i] for i in (0, 1))


def _wants_tiles(call):
    """Whether a call is a depthwise convolution that the search makes from tiles of what it reads."""
    if not isinstance(call, Call) or call.op_name != "nn.conv2d" or static_shape(call) is None:
        return False
    a = call.attrs
    if (a.data_layout, a.kernel_layout) != ("NHWC", "HWOI") or a.out_layout not in ("", "NHWC") or not is_depthwise(call):
        return False
    taps = _kernel(call)
    same = static_shape(call)[3] == static_shape(call.args[0])[3]  # one result per channel
    return same and static_shape(call)[3] % _LANES == 0 and 1 < taps[0] * taps[1] <= 49 and any(int(p) for p in a.padding)


def is_plain(call):
    """Whether a convolution is one of all channels, in NHWC with weights in HWIO."""
    a = call.attrs
    return (a.data_layout, a.kernel_layout, a.groups) == ("NHWC", "HWIO", 1) and a.out_layout in ("", "NHWC")


def is_pointwise(call):
    """Whether a convolution, of known shapes, is one of all channels at single pixels."""
    return static_shape(call) is not None and is_plain(call) and _kernel(call) == (1, 1)


def reads_image(call, most=3):
    """Whether a call is a convolution in NHWC, of so many taps along a side at most, whose data have so few channels as an image."""
    if call.op_name != "nn.conv2d" or static_shape(call) is None or not is_plain(call):
        return False
    return static_shape(call.args[0])[3] <= _IMAGE and max(_kernel(call)) <= most


def brings_image(e):
    """Whether an expression brings an input of the network into another layout."""
    return isinstance(e, Call) and e.op_name == "layout_transform" and isinstance(e.args[0], Var)


def _expands(call):
    """Whether a call is a convolution whose results are many and cost little each: some are computed twice, where tiles meet."""
    few = is_pointwise(call) or reads_image(call)
    return few and static_shape(call.args[0])[3] < static_shape(call)[3]


def expanded_by(value, reader, same_group):
    """The convolution that makes `value`, what `reader`, a depthwise convolution, reads as its data; else None. In between there
    may be biases, factors and activations; `same_group(a, b)`: whether two expressions are in one kernel already."""
    if not _wants_tiles(reader) or reader.args[0] is not value or value.checked_type.dtype != "float32":
        return None
    e = value
    while isinstance(e, Call) and e.op_name in _BETWEEN:
        if not all(isinstance(x, (Constant, Var)) or not same_group(x, e) for x in e.args[1:]) or not same_group(e.args[0], e):
            return None
        e = e.args[0]
    return e if isinstance(e, Call) and e.op_name == "nn.conv2d" and _expands(e) else None
