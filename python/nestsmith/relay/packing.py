"""How the data of a constant weight is brought, once and ahead of time, into the form in which a kernel reads it."""

import math
from typing import NamedTuple

import numpy as np

from .. import _core
from .expr import Attrs
from .op import get
from .op.nn.winograd import winograd_matrices

__all__ = ["AHEAD", "IN_KERNEL", "Packing", "form_of", "relayout", "rewrites"]

AHEAD, IN_KERNEL = 2, 1  # of LayoutRewriteOption: REWRITE_FOR_PRE_TRANSFORMED, INSERT_TRANSFORM_STAGE
_ENOUGH_READS = 16  # of an element, for which it is worth being copied first


def relayout(data, old, new, axes):
    """`data` of shape `old` as a tuned kernel reads it: dimension k of shape `new` counts within dimension `axes[k]` of
    the original, outer parts first. Where the parts cover more than the original there are zeros."""
    data = np.ascontiguousarray(data)
    return np.frombuffer(_core.relayout(data, old, new, axes), data.dtype).reshape(new)


def rewrites(option, dag, constant, target):
    """The layout rewrite option of one program of a network whose option is `option`: weights that are `constant` (positions among the
    tensors of `dag`) are packed ahead of time; a matrix that the network computes is packed by the kernel that multiplies with
    it, if it reads each element often enough; on GPUs, where a kernel has no place for that, it is read as it lies."""
    if option != AHEAD:
        return option
    free = [t for op in dag.ops for t in (op.attrs or {}).get("layout_free_placeholders", ())]
    where = [k for k, t in enumerate(dag.tensors) if t in free]
    if all(k in constant for k in where):
        return option
    if "gpu" in target.keys:
        return 0
    elements = sum(math.prod(int(d) for d in dag.tensors[k].shape) for k in where)
    return IN_KERNEL if dag.flop_ct >= 2 * _ENOUGH_READS * elements else 0


class Packing(NamedTuple):
    """``Packing(...)(data)`` is the packed array.

    Attributes
    ----------
    old, new : tuple of int
        Shapes before and after.
    axes : tuple of int
        What each dimension of `new` counts within: see :func:`relayout`.
    winograd : int or None
        The weight [CO, CI, r, r] is transformed for output tiles of this size first: `old` is [CO, CI, r, r] and `axes` are
        those of [a, a, CO, CI].
    """

    old: tuple
    new: tuple
    axes: tuple
    winograd: int | None = None

    def __call__(self, data):
        old = self.old
        if self.winograd is not None:
            transform = get("nn.contrib_conv2d_winograd_weight_transform")
            data = transform.evaluate(Attrs(tile_size=self.winograd), data)
            old = data.shape
        return relayout(data, old, self.new, self.axes)


def form_of(constant, packing):
    """(the original of a constant, how its value is made of that: (rows of Winograd's G or (), shape before the layout, axes, shape)); the
    form is () where the original is no smaller, or where the runtime cannot make the value."""
    weight, tile = constant.original or (constant.data, None)
    shape = constant.data.shape
    if packing is not None and packing.winograd is not None:
        tile, shape = packing.winograd, (packing.winograd + packing.old[2] - 1,) * 2 + tuple(packing.old[:2])
    size = math.prod(packing.new if packing is not None else shape)
    if weight.dtype != "float32" or weight.size >= size:
        return weight, ()
    matrix = winograd_matrices(tile, weight.shape[2])[2].tolist() if tile else ()
    new, axes = (packing.new, packing.axes) if packing is not None else (shape, range(len(shape)))
    return weight, (tuple(map(tuple, matrix)), tuple(shape), tuple(axes), tuple(new))
