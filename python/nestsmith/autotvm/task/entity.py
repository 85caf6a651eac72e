"""What the knobs of a configuration say, and how they are applied to a schedule."""

import dataclasses
import math
from typing import Any

from ... import _core, te

__all__ = ["AnnotateEntity", "OtherOption", "OtherOptionEntity", "ReorderEntity", "SplitEntity"]


class Entity:
    """Base of what a knob says: one value."""

    @property
    def value(self):
        """What it says."""
        (only,) = vars(self).values()
        return only

    def __repr__(self):
        return str(self.value)


@dataclasses.dataclass(repr=False, eq=False)
class SplitEntity(Entity):
    """Sizes of the parts of an axis, outermost first; -1 as the first: whatever remains.

    Attributes
    ----------
    size : list of int
    """

    size: list

    def apply(self, sch, op, axis):
        """Splits ``axis`` of stage ``op``; the new axes, outermost first."""
        out = []
        for i in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, math.prod(self.size[i:]))
            out.append(outer)
        return [*out, axis]


@dataclasses.dataclass(repr=False, eq=False)
class ReorderEntity(Entity):
    """An order of axes.

    Attributes
    ----------
    perm : list of int
        ``perm[i]`` is the old position of the axis at i.
    """

    perm: list

    def apply(self, sch, op, axes):
        """Brings the axes of stage ``op`` into the order and returns it. Positions beyond a shorter list are left out."""
        order = [axes[i] for i in self.perm if i < len(axes)]
        sch[op].reorder(*order)
        return order


@dataclasses.dataclass(repr=False, eq=False)
class AnnotateEntity(Entity):
    """A word for each axis, or (policy ``locate_cache``) numbers of axes.

    Attributes
    ----------
    anns : list of str or of int
    """

    anns: list

    def apply(self, sch, op, axes, axis_lens=None, max_unroll=None, vec_size=None, cfg=None, source=None):
        """Annotates the axes of stage ``op``.

        Parameters
        ----------
        sch : te.Schedule
        op : te.Tensor or te.Operation
        axes : list of te.IterVar
        axis_lens : list of int, optional
            Their lengths, for the limits below.
        max_unroll : int, optional
            A longer axis to unroll is an error of ``cfg``.
        vec_size : list of int, optional
            An axis to vectorise of another length is an error of ``cfg``.
        cfg : ConfigEntity, optional
        source : list of list of te.Tensor, optional
            The i-th list is computed at ``axes[anns[i]]``.

        Returns
        -------
        list of te.IterVar
            ``axes``, the fused ones in the place of their last part.

        Raises
        ------
        ValueError
            For a word that is none, and for a last axis that is to be fused with the next.
        """
        stage = sch[op]
        if source is not None:
            for tensors, at in zip(source, self.anns):
                for t in tensors:
                    sch[t].compute_at(stage, axes[at])
            return axes
        for i, ann in enumerate(self.anns):
            if ann == "unroll":
                if max_unroll and axis_lens[i] > max_unroll:
                    cfg.raise_error("Too large factor for unrolling")
                stage.unroll(axes[i])
            elif ann == "vec":
                if vec_size and axis_lens[i] not in vec_size:
                    cfg.raise_error("Wrong size of lanes in vectorization")
                stage.vectorize(axes[i])
            elif ann == "fuse":
                if i + 1 == len(axes):
                    raise ValueError(f"the last axis, {axes[i]}, cannot be fused with a next one")
                axes[i + 1] = stage.fuse(axes[i], axes[i + 1])
            elif ann not in _core.ANNOTATIONS:
                raise ValueError(f"annotation is {ann!r}; it must be one of {', '.join(_core.ANNOTATIONS)}")
            elif ann != "none":
                stage.bind(axes[i], te.thread_axis(ann))
        return axes


@dataclasses.dataclass(repr=False, eq=False)
class OtherOptionEntity(Entity):
    """A plain value: ``val``."""

    val: Any


OtherOption = OtherOptionEntity
