"""FillChannels: a last convolution makes whole vectors of classes.

SqueezeNet's classifier is a 1x1 convolution to 1000 channels, of which the mean over all pixels follows. Tiles of 16 channels do not
divide them, and those that do (8, 20, 40) leave lanes empty. With eight channels more, whose weights are zeros, every tile is whole; the
classes are taken out of the means, which are few.
"""

import numpy as np

from .. import op, passes
from ..expr import Call, Constant, count_refs, rewrite, with_children
from ..infer import infer_type
from .expansions import is_plain
from .moves import static_shape

__all__ = ["FillChannels"]

VECTOR = 16  # channels in the widest vectors of CPUs, of 64 bytes
MOST = 1 / 16  # of its channels may be added to a convolution
_BETWEEN = ("add", "nn.bias_add", "nn.relu", "clip")


def _filled(e, more):
    """A constant with `more` zeros at the end of its last axis; one value for all channels stays as it is."""
    if e.data.ndim == 0 or e.data.shape[-1] == 1:
        return e
    return Constant(np.pad(e.data, [(0, 0)] * (e.data.ndim - 1) + [(0, more)]), e.checked_type.dtype)


def _chain(mean, readers):
    """The operators from a convolution whose channels can be filled to the mean over its pixels, exclusive; else none."""
    chain, e = [], mean.args[0]
    while isinstance(e, Call) and readers[id(e)] == 1:
        chain.append(e)
        if e.op_name == "nn.conv2d":
            whole = static_shape(e) is not None and static_shape(e)[3] == static_shape(mean)[3]
            return chain[::-1] if is_plain(e) and whole and isinstance(e.args[1], Constant) else []
        if e.op_name not in _BETWEEN or e.attrs.get("axis", 3) not in (-1, 3) or not all(isinstance(x, Constant) for x in e.args[1:]):
            break
        e = e.args[0]
    return []


def _missing(mean):
    shape = static_shape(mean)
    if mean.attrs.layout != "NHWC" or shape is None or mean.checked_type.dtype != "float32":
        return 0
    more = -shape[3] % VECTOR
    return more if more <= MOST * shape[3] else 0


@passes.makes_function_pass(opt_level=3)
def FillChannels(func, mod, ctx):
    """The pass, for CPUs. It wants weights to be constants already."""
    infer_type(func)
    readers = count_refs(func)
    inputs = {}  # what a convolution reads now

    def visit(old, new):
        if not isinstance(new, Call) or new.op_name not in ("nn.conv2d", "nn.global_avg_pool2d"):
            return new
        if new.op_name == "nn.conv2d":
            inputs[id(old)] = new.args[0]
            return new
        more = _missing(old)
        chain = _chain(old, readers) if more else []
        if not chain:
            return new
        e = inputs[id(chain[0])]
        for part in chain:
            e = with_children(part, [e, *(_filled(x, more) for x in part.args[1:])])
            if part is chain[0]:
                e = Call(part.op, e.args, part.attrs.with_(channels=static_shape(part)[3] + more), part.type_args, part.span)
        return op.strided_slice(with_children(new, [e]), [0] * 4, list(static_shape(old)))

    return rewrite(func, visit)
