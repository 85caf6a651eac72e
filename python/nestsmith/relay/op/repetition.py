"""Operators that repeat elements: broadcast_to, tile, repeat."""

import numpy as np

from ... import topi
from ..ty import TensorType
from . import layout as layouts
from .registry import BROADCAST, call, ints, norm_axis, register, tensor
from .tensor import broadcast_shape

__all__ = ["broadcast_to", "broadcast_to_like", "tile", "repeat"]


def _broadcast_to_infer(attrs, types):
    t = tensor(types, 0)
    shape = tuple(attrs.shape)
    if broadcast_shape(t.shape, shape) != shape:
        raise ValueError(f"{t} does not broadcast to {shape}")
    return TensorType(shape, t.dtype)


register("broadcast_to", BROADCAST, _broadcast_to_infer, lambda attrs, x: np.array(np.broadcast_to(x, attrs.shape)),
         layout=layouts.permuted("shape"), loops=lambda a, x, c, t: topi.broadcast_to(x[0], a.shape))  # fmt: skip


def broadcast_to(data, shape):
    """Broadcasts to `shape`."""
    return call("broadcast_to", [data], shape=ints(shape))


def broadcast_to_like(data, broadcast_type):
    """Broadcasts to the shape of another tensor."""
    return broadcast_to(data, broadcast_type.checked_type.concrete_shape)


def _tile_infer(attrs, types):
    t = tensor(types, 0)
    r = max(len(t.shape), len(attrs.reps))
    shape = (1,) * (r - len(t.shape)) + t.shape
    reps = (1,) * (r - len(attrs.reps)) + tuple(attrs.reps)
    return TensorType([a * b for a, b in zip(shape, reps)], t.dtype)


register("tile", BROADCAST, _tile_infer, lambda attrs, x: np.tile(x, attrs.reps), layout=layouts.permuted("reps"),
         loops=lambda a, x, c, t: topi.tile(x[0], a.reps))  # fmt: skip


def tile(data, reps):
    """Repeats the whole tensor `reps` times per axis."""
    return call("tile", [data], reps=ints(reps))


def _repeat_infer(attrs, types):
    t = tensor(types, 0)
    axis = norm_axis(attrs.axis, len(t.shape))
    return TensorType([d * attrs.repeats if i == axis else d for i, d in enumerate(t.shape)], t.dtype)


register("repeat", BROADCAST, _repeat_infer, lambda attrs, x: np.repeat(x, attrs.repeats, attrs.axis),
         layout=layouts.along_axis, loops=lambda a, x, c, t: topi.repeat(x[0], a.repeats, a.axis))  # fmt: skip


def repeat(data, repeats, axis):
    """Repeats each element along `axis`."""
    return call("repeat", [data], repeats=int(repeats), axis=int(axis))
