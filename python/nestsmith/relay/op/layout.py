"""How operators follow when the data that they work on is laid out anew.

A network says of each value in which order its axes stand. :class:`..transform.ConvertLayout` lets convolutions have
another order, and what lies between them follows: an operator whose `register` call names a rule of this file (or one of
its own) takes its data as it comes and adapts its attributes. One without a rule gets its arguments back as the network
has them.

A rule is a function ``rule(call, has, want)``. `has(e)` is the :class:`Layout` that the value `e` has by now, None if
it lies as the network says, a list with one entry per field for a tuple. `want` is what the user asks for this operator, or
None. The rule answers with a :class:`Plan`, or None: "as the network says".
"""

import typing

from ..ty import TensorType, TupleType

__all__ = ["Layout", "Plan", "AS_IT_IS", "layout", "follow", "broadcast", "along_axis", "along_axes", "concatenate",
           "permuted"]  # fmt: skip

AS_IT_IS = object()  # in a plan: any layout of this argument will do


class Layout:
    """Axes in the order of the network (`old`) and as they lie (`new`), one letter each. Only the order counts: two layouts
    are equal if they permute alike."""

    __slots__ = ("old", "new")

    def __init__(self, old, new):
        self.old, self.new = old, new

    @property
    def places(self):
        """For each axis as it lies its number in the network."""
        return tuple(self.old.index(c) for c in self.new)

    def axis(self, number):
        """Where the axis lies that has this number (perhaps negative) in the network."""
        return self.new.index(self.old[number % len(self.old)])

    def moved(self, items):
        """Items per axis of the network in the order in which the axes lie."""
        return tuple(items[p] for p in self.places)

    def named(self, letters):
        """The same order with other letters for the axes of the network."""
        return Layout(letters, "".join(self.moved(letters)))

    def without(self, axes):
        """What is left when axes (numbers in the network) are taken away."""
        gone = {self.old[a] for a in axes}
        return layout(*("".join(c for c in s if c not in gone) for s in (self.old, self.new)))

    def __eq__(self, other):
        return isinstance(other, Layout) and self.places == other.places

    def __hash__(self):
        return hash(self.places)

    def __repr__(self):
        return f"{self.old}->{self.new}"


def layout(old, new):
    """The Layout of two orders of the same letters, None if they are equal."""
    return Layout(old, new) if old != new else None


class Plan(typing.NamedTuple):
    """What an operator does with its data laid out anew: in which layout it wants each argument, what layout its result
    has (a list for several), changed attributes. `make(args)` builds something else than the call, of `args` in place of
    those of the call."""

    wants: typing.Sequence
    result: typing.Any
    attrs: dict = {}
    make: typing.Callable | None = None
    args: typing.Sequence | None = None


def rank_of(e):
    t = e.checked_type
    return len(t.shape) if isinstance(t, TensorType) else None


def first(call, has):
    """The layout of the first argument, if it is a tensor."""
    at = has(call.args[0]) if call.args else None
    return at if isinstance(at, Layout) else None


def results(call, at):
    """`at` for the result, or for each of several that has as many axes: the first one of a batch norm alone is a map."""
    t = call.checked_type
    if isinstance(t, TupleType):
        return [at if len(f.shape) == len(at.old) else None for f in t.fields]
    return at


def with_data(call, at, **attrs):
    """The plan of an operator that takes its first argument as it comes and the others as the network says."""
    return Plan([at, *[None] * (len(call.args) - 1)], results(call, at), attrs)


def follow(call, has, want):
    """Element by element."""
    at = first(call, has)
    return at and with_data(call, at)


def broadcast(call, has, want):
    """NumPy broadcasting: everybody goes along with the first argument of full rank that lies anew."""
    ranks = [rank_of(a) for a in call.args]
    rank = max(ranks)
    at = next((has(a) for a, r in zip(call.args, ranks) if r == rank and has(a)), None)
    if at is None:
        return None

    def wants(a):
        if any(d != 1 for d in a.checked_type.shape):
            return at
        return AS_IT_IS

    return Plan([wants(a) for a in call.args], at)


def along_axis(call, has, want):
    """Along the one axis that the attribute `axis` names."""
    at = first(call, has)
    if at is None or call.attrs.axis is None:
        return None
    return with_data(call, at, axis=at.axis(call.attrs.axis))


def along_axes(call, has, want):
    """Along the axes that the attribute `axis` names (None: all)."""
    at, axes = first(call, has), call.attrs.axis
    if at is None:
        return None
    return with_data(call, at, axis=axes and tuple(at.axis(a) for a in axes))


def permuted(name):
    """The rule of an operator whose attribute `name` has one item per axis."""

    def rule(call, has, want):
        at = first(call, has)
        if at is None or len(call.attrs[name]) != len(at.old):
            return None
        return with_data(call, at, **{name: at.moved(call.attrs[name])})

    return rule


def concatenate(call, has, want):
    """Of a tuple: everybody goes along with the first field that lies anew."""
    fields = has(call.args[0])
    at = next((f for f in fields if f), None) if isinstance(fields, list) else None
    return at and Plan([[at] * len(fields)], at, {"axis": at.axis(call.attrs.axis)})
