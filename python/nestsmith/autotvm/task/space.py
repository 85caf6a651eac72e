"""Configuration spaces: what a template may choose.

A template asks its ``cfg`` for knobs (`define_split`, `define_reorder`, `define_annotate`, `define_knob`) and reads what was
chosen as ``cfg[name]``. The same calls collect the knobs when ``cfg`` is a `ConfigSpace`, and do nothing when it is a
`ConfigEntity`, one point of it.

>>> cfg = ConfigSpace()
>>> _ = cfg.define_split("tile_x", 64, num_outputs=2)
>>> cfg.define_knob("unroll", [False, True])
>>> len(cfg), cfg.get(9)
(14, [('tile_x', [-1, 4]), ('unroll', True)],None,9)

The engine holds the space as numbers; objects of entities are made when somebody looks at them.
"""

from __future__ import annotations

import logging
import math
import random
from collections import namedtuple
from collections.abc import Sequence

import numpy as np

from ... import _core
from ...check import did_you_mean, integer
from ...error import TVMValueError
from ...tir import Expr, IterVar, as_const_int
from .entity import AnnotateEntity, OtherOption, OtherOptionEntity, ReorderEntity, SplitEntity

__all__ = ["AnnotateEntity", "AnnotateSpace", "Axis", "ConfigEntity", "ConfigSpace", "FallbackConfigEntity",
           "InstantiationError", "OtherOption", "OtherOptionEntity", "OtherOptionSpace", "ReorderEntity",
           "ReorderSpace", "SplitEntity", "SplitSpace", "TransformSpace", "VirtualAxis", "get_factors", "get_pow2s"]

logger = logging.getLogger("autotvm")

Axis = namedtuple("Axis", ["space", "index"])
Axis.__doc__ = "Output number ``index`` of a transform, as later knobs refer to it."


class InstantiationError(ValueError):
    """A configuration that a template finds to be invalid (``cfg.raise_error``)."""


def get_factors(n):
    """The divisors of n, ascending."""
    return _core.divisors(n)


def get_pow2s(n):
    """The powers of two up to n, ascending."""
    return [1 << k for k in range(integer("n", n, 1).bit_length())]


def _rng_seed():
    """Seed of one random operation: it follows ``random.seed``."""
    return random.getrandbits(64)


# ---- axes ----


class VirtualAxis:
    """An axis of a known length that no schedule has yet.

    Parameters
    ----------
    var : int, te.IterVar or VirtualAxis
        Its length, or the axis that has it. Raises TypeError for anything else.
    name : str, optional
    """

    name_ct = 0

    def __init__(self, var, name=None):
        if name is None:
            name = f"axis_{VirtualAxis.name_ct}"
            VirtualAxis.name_ct += 1
        self.name, self.num_output = name, 1
        if isinstance(var, VirtualAxis):
            self.length = var.length
        elif isinstance(var, IterVar):
            self.name, self.length = var.var.name, -1 if var.dom is None else as_const_int(var.dom.extent, f"the length of {var}")
        elif isinstance(var, Expr) or hasattr(var, "__index__"):
            self.length = as_const_int(var, "the length of an axis")
        else:
            raise TypeError(f"axis is {var!r}; it must be a length, an axis of a stage or a VirtualAxis")

    def __repr__(self):
        return f"vaxis({self.name})"


def _position(axes, x, name):
    for i, a in enumerate(axes):
        if a is x or (type(a) is type(x) and bool(a == x)):
            return i
    raise ValueError(f"knob {name!r}: {x!r} is none of its axes")


# ---- the choices of one knob ----


class TransformSpace(Sequence):
    """The entities of one knob, in the order of its digit.

    Attributes
    ----------
    num_output : int
        Axes after the transform.
    """

    entity: type

    def __init__(self, space, name, axes, policy, num_output):
        self._space, self.name, self.ins, self.policy, self.num_output = space, name, axes, policy, num_output
        self._at = self._define(space)

    def _define(self, space):
        """Defines the knob in the engine; its number there."""
        raise NotImplementedError

    def __len__(self):
        return self._space.dims[self._at]

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"knob {self.name!r} has {n} entities, no number {index}")
        return self._entity(self._space.entity(self._at, index % n))

    def _entity(self, numbers):
        return self.entity(list(numbers))

    entities = property(lambda self: list(self), doc="All of them, as a list.")

    @staticmethod
    def get_num_output(axes, policy, **kwargs):
        """Axes after the transform, without making it."""
        return len(axes)


def _unexpected(name, kwargs):
    for k in kwargs:
        raise TypeError(f"knob {name!r}: no argument {k!r} is known for this policy")


class SplitSpace(TransformSpace):
    """Ways to split an axis of length ``product``. Raises TypeError for an axis without a length."""

    entity = SplitEntity

    def __init__(self, space, name, axes, policy, num_outputs, max_factor=1 << 31, no_tail=None, candidate=None, **kwargs):
        axis = axes[0]
        if not isinstance(axis, VirtualAxis):
            raise TypeError(f"knob {name!r} splits {axis!r}, whose length is not known; split an axis, or give its length")
        self.product, self._candidate = axis.length, candidate
        self._limits = integer("max_factor", max_factor, 1), no_tail is False or (no_tail is None and policy != "factors")
        accept = kwargs.pop("filter", None)
        _unexpected(name, kwargs)
        args = name, axes, policy, integer("num_outputs", num_outputs, 1)
        if accept is not None:  # tried in a space of its own: a filter that raises leaves the real one alone
            super().__init__(_core.Space(), *args)
            kept = [bool(accept(e)) for e in self]
        super().__init__(space, *args)
        if accept is not None:
            space.keep(self._at, kept)

    def _define(self, space):
        if self.policy != "candidate":
            most, tails = self._limits
            order = ()
            if self.policy == "verbose" and self.product > 0:  # the reference's order is that of a set
                order = tuple(set(get_factors(self.product)) | set(get_pow2s(self.product)))
            return space.split(self.name, self.product, self.num_output, self.policy, min(most, 2**63 - 1), tails, order)
        rows = [tuple(integer("a size", x) for x in row) for row in self._candidate or ()]
        return space.table(self.name, "sp", self.num_output, rows)

    def __repr__(self):
        return f"Split(policy={self.policy}, product={self.product}, num_outputs={self.num_output}) len={len(self)}"

    @staticmethod
    def get_num_output(axes, policy, **kwargs):
        return kwargs["num_outputs"]


def _merged(chains):
    """One list: the head of the chain with the most left, again and again."""
    chains, out = [list(c) for c in chains], []
    while any(chains):
        out.append(max(chains, key=len).pop(0))
    return out


class ReorderSpace(TransformSpace):
    """Orders of axes."""

    entity = ReorderEntity

    def __init__(self, space, name, axes, policy, given=None, **kwargs):
        self._given, self._kwargs = axes if given is None else given, kwargs
        super().__init__(space, name, axes, policy, len(axes))
        del self._given, self._kwargs  # axes of one schedule: the space outlives it

    def _define(self, space):
        n = len(self.ins)
        if self.policy in ("identity", "all"):
            return space.permute(self.name, n, 0, n if self.policy == "all" else 0)
        if self.policy == "interval_all":
            return space.permute(self.name, n, *self._argument("interval"))
        if self.policy == "candidate":
            orders = self._argument("candidate")
        elif self.policy == "interleave":
            spatial, reduce = self._argument("spatial"), self._argument("reduce")
            orders = [_merged(c[:-1] for c in spatial) + _merged([*([c[-1]] for c in spatial), *reduce])]
        elif self.policy == "interleave_cuda":
            spatial, reduce = self._argument("spatial"), self._argument("reduce")
            orders = [_merged(c[:-1] for c in spatial) + _merged(reduce) + [c[-1] for c in spatial]]
        else:
            raise ValueError(f"knob {self.name!r}: a reordering has no policy {self.policy!r}; there are identity, "
                             "all, interval_all, candidate, interleave, interleave_cuda")
        return space.table(self.name, "re", n, [self._order(o) for o in orders])

    def _argument(self, name):
        if name not in self._kwargs:
            raise TypeError(f"knob {self.name!r}: policy {self.policy!r} needs the argument {name!r}")
        return self._kwargs[name]

    def _order(self, axes):
        order = tuple(_position(self._given, x, self.name) for x in axes)
        if sorted(order) != list(range(len(self.ins))):
            raise ValueError(f"knob {self.name!r}: the order {list(axes)!r} does not have each of its axes once")
        return order

    def __repr__(self):
        return f"Reorder(policy={self.policy}) len={len(self)}"


# policy -> [(least number of axes, words of the last ones)]
_BINDINGS = {
    "bind_gpu": [(6, "blockIdx.z blockIdx.y blockIdx.x threadIdx.z threadIdx.y threadIdx.x"),
                 (4, "blockIdx.y blockIdx.x threadIdx.y threadIdx.x"), (2, "blockIdx.x threadIdx.x")],
    "bind_gpu_virtual": [
        (9, "blockIdx.z blockIdx.y blockIdx.x vthread vthread vthread threadIdx.z threadIdx.y threadIdx.x"),
        (6, "blockIdx.y blockIdx.x vthread vthread threadIdx.y threadIdx.x"), (3, "blockIdx.x vthread threadIdx.x"),
    ],
}


class AnnotateSpace(TransformSpace):
    """Words for axes, or (``locate_cache``) places among them."""

    entity = AnnotateEntity

    def __init__(self, space, name, axes, policy, num_anchor=None, **kwargs):
        self._num_anchor = num_anchor
        _unexpected(name, kwargs)
        super().__init__(space, name, axes, policy, len(axes))

    def _define(self, space):
        n = len(self.ins)
        if self.policy == "locate_cache":
            return space.anchors(self.name, n, integer("num_anchor", self._num_anchor, 0))
        for least, words in _BINDINGS.get(self.policy, ()):
            if n >= least:
                return space.table(self.name, "an", n, [("fuse",) * (n - least) + tuple(words.split())])
        words = tuple(str(self.policy).replace("try", "none").split("_"))
        if self.policy in _BINDINGS:
            raise ValueError(f"knob {self.name!r}: policy {self.policy!r} does not fit {n} axes")
        if any(w not in ("none", "unroll", "vec") for w in words):
            raise ValueError(f"knob {self.name!r}: an annotation has no policy {self.policy!r}; there are try, none, unroll "
                             "and vec (joined by _), bind_gpu, bind_gpu_virtual, locate_cache")
        return space.words(self.name, n, words)

    def __repr__(self):
        return f"Annotate(policy={self.policy}) len={len(self)}"


class OtherOptionSpace(TransformSpace):
    """Plain values."""

    entity = OtherOptionEntity

    def __init__(self, space, name, axes, policy, candidate):
        self._values = list(candidate)
        super().__init__(space, name, axes, policy, 0)

    def _define(self, space):
        return space.other(self.name, [_as_number(v, i) for i, v in enumerate(self._values)])

    def _entity(self, numbers):
        return OtherOptionEntity(self._values[numbers[0]])

    def __repr__(self):
        return f"OtherOption({self._values_text()}) len={len(self)}"

    def _values_text(self):
        return "[" + ", ".join(str(v) for v in self._values) + "]"

    @staticmethod
    def get_num_output(axes, policy, **kwargs):
        return 0


def _as_number(value, place):
    """A plain value as features see it: what is no number counts as its place in the list."""
    try:
        return float(value) if not isinstance(value, str) else float(place)
    except (TypeError, ValueError, OverflowError):
        return float(place)


# ---- configurations ----


class ConfigSpace:
    """All configurations of a template, numbered from 0.

    Attributes
    ----------
    space_map : dict
        Name of a knob -> its `TransformSpace`, in order of definition; the first knob's digit changes fastest.
    flop : float
        What the template said by `add_flop`.
    code_hash : str or None
    cost : float or None
        Mean seconds, for configurations from a log.
    is_fallback : bool
        Nobody tuned this one.
    """

    is_fallback = False

    def __init__(self):
        self.space_map, self._entity_map, self._collect, self._core_space = {}, {}, True, None
        self._length, self._filter, self.errors, self.code_hash = None, None, [], None
        self.flop, self.cost = 0, None

    @property
    def _space(self):
        if self._core_space is None:
            self._core_space = _core.Space()
        return self._core_space

    # ---- what templates call ----

    @staticmethod
    def axis(var):
        """A `VirtualAxis` of a length, or of the length of an axis."""
        return VirtualAxis(var)

    reduce_axis = axis

    def define_split(self, name, axis, policy="factors", **kwargs):
        """Defines a knob that splits an axis.

        Parameters
        ----------
        name : str
        axis : int, te.IterVar or VirtualAxis
        policy : str
            ``factors`` (divisors of the length), ``power2``, ``verbose`` (both), or ``candidate``.
        **kwargs
            ``num_outputs``: axes after splitting, at least 2 (1 for ``candidate``). ``max_factor``: no inner size is larger.
            ``no_tail``: inner sizes must divide the length, by default only for ``factors``. ``filter``: takes a
            `SplitEntity` and says whether it is allowed. ``candidate``: for this policy the list of sizes.

        Returns
        -------
        list of Axis
            One per output. Raises ValueError if no choice is left, TypeError for an axis without a length.
        """
        return self._add_new_transform(SplitSpace, name, [axis], policy, **kwargs)

    def define_reorder(self, name, axes, policy, **kwargs):
        """Defines a knob that orders axes; returns them as a list of Axis.

        ``policy``: ``identity``, ``all``, ``interval_all`` (``interval=(begin, end)``), ``candidate`` (``candidate=`` a list
        of orders), ``interleave`` or ``interleave_cuda`` (``spatial=``, ``reduce=``: lists of chains of axes).
        """
        if self._collects(name):
            kwargs["given"] = axes
        return self._add_new_transform(ReorderSpace, name, axes, policy, **kwargs)

    def define_annotate(self, name, axes, policy, **kwargs):
        """Defines a knob that annotates axes; returns them as a list of Axis.

        ``policy``: words out of ``try`` (or ``none``), ``unroll`` and ``vec`` joined by ``_``, each axis has one of them and
        at most one axis ``vec``; ``bind_gpu``, ``bind_gpu_virtual``; ``locate_cache`` (``num_anchor=``).
        """
        return self._add_new_transform(AnnotateSpace, name, axes, policy, **kwargs)

    def define_knob(self, name, candidate):
        """Defines a knob of plain values: ``cfg[name].val`` is one of ``candidate``."""
        self._add_new_transform(OtherOptionSpace, name, [], None, candidate=candidate)

    def add_flop(self, flop):
        """Adds to the operations of the task; a template that calls this is not counted otherwise."""
        self.flop += float(flop)

    def raise_error(self, msg):
        """Notes that this configuration is invalid: it will not be built."""
        self.errors.append(InstantiationError(msg))

    def valid(self):
        """True if nobody has called `raise_error`."""
        return not self.errors

    def _collects(self, name):
        return self._collect and not (self.is_fallback and name in self._entity_map)

    def _add_new_transform(self, kind, name, axes, policy, **kwargs):
        if not self._collects(name):
            mark = object()
            return [Axis(mark, i) for i in range(kind.get_num_output(axes, policy, **kwargs))]
        virtual = [x if isinstance(x, (VirtualAxis, Axis)) else self.axis(x) for x in axes]
        space = kind(self._space, name, virtual, policy, **kwargs)
        self.space_map[name] = space
        self._entity_map[name] = space[0]
        self._length = None
        return [Axis(space, i) for i in range(space.num_output)]

    # ---- combinations ----

    def multi_filter(self, filter):
        """Allows only the configurations for which ``filter(entities)`` is true; ``entities``: name of a knob -> entity.

        It is asked when somebody looks at an index, and once for each index by ``len``.
        """
        if self._collect:
            self._filter = filter
            self._space.filter(self._allowed)
            self._length = None

    def _allowed(self, digits):
        return self._filter({n: s[d] for (n, s), d in zip(self.space_map.items(), digits)})

    def clear_cache(self):
        """Forgets what the filter has said."""
        if self._filter is not None:
            self._space.filter(self._allowed)
        self._length = None

    @property
    def range_length(self):
        """Number of indices: the product of the numbers of choices."""
        return self._space.range

    dims = property(lambda self: list(self._space.dims), doc="Number of choices of each knob.")

    def __len__(self):
        if self._length is None:
            self._length = self.subrange_length(0, self.range_length)
        return self._length

    def subrange_length(self, start, end):
        """Allowed indices in [start, end). Raises ValueError for a range that is not within the space."""
        if not 0 <= start <= end <= self.range_length:
            raise ValueError(f"range ({start}, {end}) is not within (0, {self.range_length})")
        return self._space.count(start, end)

    def is_index_valid(self, index):
        """Is it an index of the space, and allowed?"""
        return 0 <= integer("index", index) < self.range_length and self._space.allows(index)

    def get_next_index(self, index, n=1, start=None, end=None):
        """The n-th allowed index after ``index`` (before it for n < 0) in [start, end), None if there is none."""
        end = self.range_length if end is None else end
        found = self._space.next(index, integer("n", n), start or 0, end)
        return None if found < 0 else found

    def get_rand_index(self, start=None, end=None, to_exclude=None):
        """A random allowed index in [start, end) that is not in ``to_exclude``. Raises ValueError if there is none."""
        end = self.range_length if end is None else end
        found = self._space.draw(1, start or 0, end, to_exclude, _rng_seed())
        if not found:
            raise ValueError(f"no index of ({start or 0}, {end}) is left: all are excluded or not allowed")
        return found[0]

    def sample_ints(self, m):
        """``m`` different allowed indices at random (array of int64). Raises ValueError if there are not so many."""
        found = self.draw_ints(m)
        if len(found) < m:
            raise ValueError(f"m is {m}; the space has {len(found)} configurations")
        return np.array(found, dtype=np.int64)

    def draw_ints(self, m, to_exclude=None):
        """At most ``m`` different allowed indices at random that are not in ``to_exclude``, as a list: fewer if there are no
        more."""
        return self._space.draw(integer("m", m, 0), 0, self.range_length, to_exclude, _rng_seed())

    def shuffle(self, start=None, end=None):
        """An iterator over all allowed indices in [start, end) in random order; memory grows with what was taken."""
        return _core.Shuffle(self._space, start or 0, self.range_length if end is None else end, _rng_seed())

    def random_walk(self, point):
        """An allowed index near ``point``: some of its digits changed at random; ``point`` if it is the only one."""
        return self._space.walk(point, _rng_seed())

    def point2knob(self, point):
        """The digits of an index, as a list. Raises IndexError outside the space."""
        return list(self._space.digits(point))

    def knob2point(self, knob):
        """The index of digits. Raises IndexError for a digit beyond its knob."""
        return self._space.index(tuple(integer("a digit", k) for k in knob))

    def get(self, index):
        """The `ConfigEntity` with this index. Raises IndexError outside the space or if the filter does not allow it."""
        index = integer("index", index)
        if not 0 <= index < self.range_length:
            raise IndexError(f"Index out of range: size {self.range_length}, got index {index}")
        if not self.is_index_valid(index):
            raise IndexError(f"Index does not correspond to the multi-filter condition, got index {index}. Use "
                             "is_index_valid to pre-check")
        entities = {n: s[d] for (n, s), d in zip(self.space_map.items(), self._space.digits(index))}
        return ConfigEntity(index, self.code_hash, entities, self.errors)

    def __iter__(self):
        return iter(self._entity_map)

    def __contains__(self, name):
        return name in self._entity_map

    def __getitem__(self, name):
        if name in self._entity_map:
            return self._entity_map[name]
        raise KeyError(f"no knob {name!r} is defined{did_you_mean(name, self._entity_map)}")

    def __repr__(self):
        lines = [f"  {i:2d} {name}: {space}\n" for i, (name, space) in enumerate(self.space_map.items())]
        return f"ConfigSpace (len={len(self)}, range_length={self.range_length}, space_map=\n{''.join(lines)})"


# kind in a record -> class
_KINDS = {"sp": SplitEntity, "re": ReorderEntity, "an": AnnotateEntity, "ot": OtherOptionEntity}
_KIND_OF = {cls: kind for kind, cls in _KINDS.items()}


class ConfigEntity(ConfigSpace):
    """One configuration: ``cfg[name]`` is the entity of each knob.

    Parameters
    ----------
    index : int
        Its number in the space it comes from.
    code_hash : str or None
        Version of the template.
    entity_map : dict
        Name of a knob -> entity.
    constraints : list
        What `raise_error` has noted for the space.
    """

    def __init__(self, index, code_hash, entity_map, constraints):
        super().__init__()
        self.index, self.code_hash = index, code_hash
        self._collect, self._entity_map, self._constraints = False, entity_map, constraints

    def get_flatten_feature(self):
        """The numbers of all entities as one array of float32: sizes, positions, one-hot words, values."""
        out = []
        for e in self._entity_map.values():
            if isinstance(e, AnnotateEntity):
                out += [float(word == w) for word in e.anns for w in _core.ANNOTATIONS]
            else:
                value = e.value
                out += value if isinstance(value, (list, tuple)) else [value]
        return np.array(out, dtype=np.float32)

    def get_other_option(self):
        """The plain values: {name: value}."""
        return {n: e.val for n, e in self._entity_map.items() if isinstance(e, OtherOptionEntity)}

    def to_json_dict(self):
        """As records hold it: index, code_hash and the list of [name, kind, value]."""
        entity = [[name, _KIND_OF[type(e)], e.value] for name, e in self._entity_map.items()]
        return {"index": int(self.index), "code_hash": self.code_hash, "entity": entity}

    @staticmethod
    def from_json_dict(json_dict):
        """The configuration of a record. Raises ValueError that names what is wrong."""
        entities = {}
        try:
            index, code_hash, items = (json_dict[k] for k in ("index", "code_hash", "entity"))
        except (KeyError, TypeError):
            raise ValueError("config: it must have index, code_hash and entity") from None
        if not isinstance(items, list):
            raise ValueError("config: entity must be a list of [name, kind, value]")
        for item in items:
            if not (isinstance(item, (list, tuple)) and len(item) == 3 and isinstance(item[0], str)):
                raise ValueError(f"config: {item!r} is no [name, kind, value]")
            name, kind, value = item
            if not isinstance(kind, str) or kind not in _KINDS:
                raise ValueError(f"config: knob {name!r} is of kind {kind!r}; there are {', '.join(_KINDS)}")
            entities[name] = _KINDS[kind](_checked(name, kind, value))
        if not isinstance(index, int) or isinstance(index, bool):
            raise ValueError(f"config: index is {index!r}; it must be an integer")
        return (ConfigEntity if entities else _NoEntities)(index, code_hash, entities, [])

    def __len__(self):
        return 1

    def __repr__(self):
        return f"{list(self._entity_map.items())},{self.code_hash},{self.index}"


def _checked(name, kind, value):
    """The value of an entity in a record, of the types that its kind has."""
    if kind == "ot":
        return value
    number = (int,) if kind != "an" else (int, str)
    if not isinstance(value, (list, tuple)) or not all(isinstance(x, number) and not isinstance(x, bool) for x in value):
        raise ValueError(f"config: knob {name!r} of kind {kind!r} has the value {value!r}; it must be a list of numbers")
    return list(value)


class FallbackConfigEntity(ConfigSpace):
    """What a template gets if nobody tuned it: first entities, until it puts others there."""

    is_fallback = True

    def fallback_split(self, name, constraints):
        """Chooses the sizes of a split, innermost first: the largest divisor of what remains within each limit.

        Parameters
        ----------
        name : str
            A knob of `define_split`.
        constraints : list of int
            A limit per size, outermost first; -1: none. Raises TVMValueError if even 1 exceeds one.
        """
        space = self.space_map.get(name)
        if not isinstance(space, SplitSpace):
            raise ValueError(f"{name!r} is no knob that splits an axis{did_you_mean(name, self.space_map)}")
        if len(constraints) != space.num_output:
            raise ValueError(f"constraints are {list(constraints)}; {name!r} has {space.num_output} sizes")
        left, size = space.product, []
        for limit in reversed(constraints):
            fitting = [f for f in get_factors(left) if limit == -1 or f <= limit]
            if not fitting:
                raise TVMValueError(f"Cannot find feasible fallback split entity for node: {name}: limit {limit} allows none")
            size.insert(0, fitting[-1])
            left //= fitting[-1]
        self._entity_map[name] = SplitEntity(size)

    def fallback_with_reference_log(self, ref_log):
        """Takes the configuration of a log whose splits fit best: their sizes as limits, other knobs as they are.

        Parameters
        ----------
        ref_log : iterable of (MeasureInput, MeasureResult)
            Records of the same template, for other shapes.
        """
        splits = {n: set(get_factors(s.product)) for n, s in self.space_map.items() if isinstance(s, SplitSpace)}
        best, best_score = None, 0.0
        for inp, _ in ref_log:
            recorded = {n: abs(math.prod(inp.config[n].size)) for n in splits}
            score = sum(len(own.intersection(get_factors(recorded[n]))) / len(own) for n, own in splits.items())
            if score > best_score:
                best, best_score = inp.config, score
        if best is None:
            return
        for name in self.space_map:
            if name in splits:
                self.fallback_split(name, [-1, *best[name].size[1:]])
            else:
                self._entity_map[name] = best[name]

    def __setitem__(self, name, entity):
        """Puts an entity in a knob's place."""
        self._entity_map[name] = entity

    def __repr__(self):
        return f"{list(self._entity_map.items())},{self.code_hash}"


class _NoEntities(ConfigEntity, FallbackConfigEntity):
    """The configuration of a record without entities: right for a template without knobs, as good as none for others."""

    is_fallback = False

    def _add_new_transform(self, kind, name, axes, policy, **kwargs):
        if not self._collect:
            logger.warning("a record without entities is ignored: its template has knobs, the first is %r", name)
            self._collect = self.is_fallback = True
        return super()._add_new_transform(kind, name, axes, policy, **kwargs)
