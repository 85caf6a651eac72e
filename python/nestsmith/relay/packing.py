"""How the data of a constant weight is brought, once and ahead of time, into the form in which a kernel reads it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import _core
from .expr import Attrs
from .op import get

__all__ = ["Packing", "relayout"]


def relayout(data, old, new, axes):
    """`data` of shape `old` as a tuned kernel reads it: dimension k of shape `new` counts within dimension `axes[k]` of
    the original, outer parts first. Where the parts cover more than the original there are zeros."""
    data = np.ascontiguousarray(data)
    return np.frombuffer(_core.relayout(data, old, new, axes), data.dtype).reshape(new)


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
