"""Layouts: the order of a tensor's axes as text, such as ``NCHW`` or ``NCHW16c`` (16 channels innermost)."""

import re

from .expr import const

__all__ = ["BijectiveLayout", "Layout", "bijective_layout", "layout"]


class Layout:
    """The axes of a tensor: capital letters, and small ones with a factor in front for the inner part of a split axis.

    Raises ValueError for text that is no layout.
    """

    def __init__(self, name, dtype="int32"):
        self.name, self.dtype = name, dtype
        self.axes, rest = [], name
        for count, letter in re.findall(r"(\d*)([A-Za-z])", name):
            self.axes.append((letter, int(count) if count else None))
            rest = rest[len(count) + 1 :]
        letters = [a for a, _ in self.axes]
        bad = rest or len(set(letters)) != len(letters) or any(a.islower() != bool(f) for a, f in self.axes)
        if bad or any(a.islower() and a.upper() not in letters for a in letters):
            raise ValueError(f"layout {name!r}: each axis is a capital letter, its inner part its factor and the small letter: NCHW16c")

    def __len__(self):
        return len(self.axes)

    def __str__(self):
        return self.name

    def __repr__(self):
        return f'layout("{self.name}")'

    def __contains__(self, axis):
        return any(a == axis for a, _ in self.axes)

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexError(f"Layout index {index} of {self.name}, which has {len(self)} axes")
        return self.axes[index][0]

    def __eq__(self, other):
        return isinstance(other, Layout) and self.name == other.name

    def __hash__(self):
        return hash(self.name)

    def index_of(self, axis):
        """The position of an axis; -1 if there is none."""
        return next((i for i, (a, _) in enumerate(self.axes) if a == axis), -1)

    def factor_of(self, axis):
        """The factor by which an axis is split (its capital or small letter); -1 if it is not."""
        found = [f for a, f in self.axes if a == axis.lower()]
        return found[0] if found else -1


class BijectiveLayout:
    """The mapping between two layouts of the same axes. Raises ValueError if they have other ones."""

    def __init__(self, src_layout, dst_layout):
        self.src_layout, self.dst_layout = layout(src_layout), layout(dst_layout)
        primal = [{a.upper() for a, _ in x.axes} for x in (self.src_layout, self.dst_layout)]
        if primal[0] != primal[1] or not primal[0]:
            raise ValueError(f"layouts {src_layout} and {dst_layout} have different axes")

    @staticmethod
    def _index(source, target, index):
        if len(index) != len(source):
            raise ValueError(f"layout {source} needs {len(source)} indices, not {len(index)}")
        whole = {}
        for axis in {a.upper() for a, _ in source.axes}:
            outer, inner = index[source.index_of(axis)], source.index_of(axis.lower())
            whole[axis] = outer * source.factor_of(axis) + index[inner] if inner >= 0 else outer
        out = []
        for axis, factor in target.axes:
            value, split = whole[axis.upper()], target.factor_of(axis)
            out.append(value if split < 0 else value % split if factor else value // split)
        return [const(v) for v in out]

    @staticmethod
    def _shape(source, target, shape):
        if len(shape) != len(source):
            raise ValueError(f"layout {source} needs {len(source)} dimensions, not {len(shape)}")
        out = []
        for axis, factor in target.axes:
            outer = shape[source.index_of(axis.upper())]
            size = outer if source.factor_of(axis) < 0 else outer * source.factor_of(axis)
            split = target.factor_of(axis)
            out.append(factor if factor else size if split < 0 else (size + (split - 1)) // split)
        return [const(v) for v in out]

    def forward_index(self, index):
        """The index in the second layout of an element with this index in the first."""
        return self._index(self.src_layout, self.dst_layout, index)

    def backward_index(self, index):
        """The index in the first layout of an element with this index in the second."""
        return self._index(self.dst_layout, self.src_layout, index)

    def forward_shape(self, shape):
        """The shape in the second layout."""
        return self._shape(self.src_layout, self.dst_layout, shape)

    def backward_shape(self, shape):
        """The shape in the first layout."""
        return self._shape(self.dst_layout, self.src_layout, shape)


def layout(layout_str, dtype="int32"):
    """A :class:`Layout` from text."""
    return layout_str if isinstance(layout_str, Layout) else Layout(layout_str, dtype)


def bijective_layout(src_layout, dst_layout):
    """The :class:`BijectiveLayout` between two layouts."""
    return BijectiveLayout(src_layout, dst_layout)


