"""Operators of ONNX that models have in places: updates of weights, parts chosen by known conditions, caches, tables of ``ai.onnx.ml``."""

import numpy as np

from .. import op as relay
from ..expr import Tuple
from . import common as c
from .aten.table import ATEN
from .onnx_ops import converter
from .values import along, arange, array, dtype_of, rank_of, shape_of

__all__: list = []


# ---- updates of weights: R, T, then each of X, G and what is kept for all tensors ----


def _tensors(n, kept):
    """(X, G, what is kept...) of each tensor."""
    count = (len(n.inputs) - 2) // (2 + kept)
    return list(zip(*[n.inputs[2 + k * count : 2 + (k + 1) * count] for k in range(2 + kept)]))


def _in_turn(rows):
    """The results of each tensor as ONNX lists them: of all tensors the first ones, then the second ones."""
    return [v for column in zip(*rows) for v in column]


def _regular(n, x, g):
    return relay.add(g, relay.multiply(c.scalar(n.get("norm_coefficient", 0.0), x), x))


@converter("ai.onnx.preview.training::Adagrad")
def _adagrad(n):
    rate, t = n.inputs[:2]
    kind = dtype_of(n.inputs[2])
    late = relay.add(array(1.0, kind), relay.multiply(relay.cast(t, kind), array(n.get("decay_factor", 0.0), kind)))
    step, rows = relay.divide(c.as_dtype(rate, kind), late), []
    for x, g, h in _tensors(n, 1):
        g = _regular(n, x, g)
        h = relay.add(h, relay.multiply(g, g))
        move = relay.divide(relay.multiply(step, g), relay.add(relay.sqrt(h), c.scalar(n.get("epsilon", 0.0), x)))
        rows.append((relay.subtract(x, move), h))
    return _in_turn(rows)


@converter("ai.onnx.preview.training::Adam")
def _adam(n):
    rate, t = n.inputs[:2]
    kind = dtype_of(n.inputs[2])
    a, b = n.get("alpha", 0.9), n.get("beta", 0.999)
    one, late = array(1.0, kind), relay.cast(t, kind)
    left = [relay.subtract(one, relay.power(array(v, kind), late)) for v in (a, b)]
    scale = relay.divide(relay.sqrt(left[1]), left[0])
    rate = c.as_dtype(rate, kind)
    step, rows = relay.where(relay.greater(t, c.scalar(0, t)), relay.multiply(rate, scale), rate), []
    for x, g, v, h in _tensors(n, 2):
        g, s = _regular(n, x, g), lambda w, x=x: c.scalar(w, x)
        v = relay.add(relay.multiply(s(a), v), relay.multiply(s(1 - a), g))
        h = relay.add(relay.multiply(s(b), h), relay.multiply(s(1 - b), relay.multiply(g, g)))
        move = relay.divide(relay.multiply(step, v), relay.add(relay.sqrt(h), s(n.get("epsilon", 0.0))))
        x = relay.subtract(x, move)
        rows.append((relay.multiply(x, s(1 - n.get("norm_coefficient_post", 0.0))), v, h))
    return _in_turn(rows)


@converter("ai.onnx.preview.training::Momentum")
def _momentum(n):
    rate, t = n.inputs[:2]
    rows = []
    for x, g, v in _tensors(n, 1):
        s = lambda w, x=x: c.scalar(w, x)  # noqa: E731
        g, a, b = _regular(n, x, g), s(n.get("alpha")), s(n.get("beta"))
        b = relay.where(relay.greater(t, c.scalar(0, t)), b, s(1.0))  # the first step takes the whole gradient
        v = relay.add(relay.multiply(a, v), relay.multiply(b, g))
        way = relay.add(g, relay.multiply(a, v)) if n.get("mode") == "nesterov" else v
        rows.append((relay.subtract(x, relay.multiply(c.as_dtype(rate, dtype_of(x)), way)), v))
    return _in_turn(rows)


# ---- parts ----


@converter("Compress")
def _compress(n, x):
    """The slices that a condition chooses, which must be known: it decides how many there are."""
    chosen = np.flatnonzero(n.array(1, "condition"))
    if "axis" not in n.attrs:
        x = relay.reshape(x, (-1,))
    axis = n.axis(0, rank_of(x))
    if not len(chosen):
        n.refuse("its condition chooses nothing: tensors without elements are not supported")
    return c.gather(x, array(chosen, "int64"), axis, "Compress", from_end=False)


@converter("TensorScatter")
def _tensor_scatter(n, cache, update, first):
    """An update written into a cache along an axis, from a place on that is given for each row of the batch."""
    axis = n.axis(-2, rank_of(cache))
    size, count = shape_of(cache)[axis], shape_of(update)[axis]
    ring = n.get("mode", "linear") == "circular"
    if first is None:
        first = array(np.zeros(shape_of(cache)[0], "int64"))
    first = c.wrapped(first, size if ring else size - count + 1, "TensorScatter", from_end=False)
    place = array(along(arange(size), axis, rank_of(cache)), "int32")
    place = relay.subtract(place, relay.reshape(first, (-1, *[1] * (rank_of(cache) - 1))))
    place = relay.where(relay.less(place, array(0, "int32")), relay.add(place, array(size, "int32")), place) if ring else place
    there = relay.logical_and(relay.greater_equal(place, array(0, "int32")), relay.less(place, array(count, "int32")))
    shape = tuple(size if a == axis else d for a, d in enumerate(shape_of(update)))
    new = relay.gather(update, axis, c.expand(relay.clip(place, 0, count - 1), shape))
    return relay.where(there, new, cache)


converter("Det")(lambda n, x: ATEN["aten::_linalg_det"](x)[0])


# ---- ai.onnx.ml ----


@converter("ai.onnx.ml::Binarizer")
def _binarizer(n, x):
    return relay.cast(relay.greater(x, c.scalar(n.get("threshold", 0.0), x)), dtype_of(x))


@converter("ai.onnx.ml::ArrayFeatureExtractor")
def _array_feature_extractor(n, x, at):
    """Columns by index: of the last axis."""
    y = c.gather(x, relay.reshape(at, (-1,)), rank_of(x) - 1, "ArrayFeatureExtractor", from_end=False)
    return relay.expand_dims(y, 0) if rank_of(x) == 1 else y


# ---- sequences, which are tuples ----


def _place(n, i, count):
    """The place that input `i` says among `count` of them; the last one if it is left out."""
    at = n.array(i, "position")
    at = count - 1 if at is None else int(at)
    if not -count <= at < count:
        raise ValueError(f"position {at} in a sequence of {count}")
    return at % count


@converter("SequenceEmpty", "SequenceConstruct")
def _sequence(n):
    return Tuple(n.inputs)


@converter("SequenceLength")
def _sequence_length(n):
    return array(len(n.input(0)), "int64")


@converter("SequenceAt")
def _sequence_at(n):
    return n.input(0)[_place(n, 1, len(n.input(0)))]


@converter("SequenceInsert", "SequenceErase")
def _sequence_changed(n):
    fields, insert = list(n.input(0)), n.op == "SequenceInsert"
    at = _place(n, 1 + insert, len(fields) + insert)
    fields[at : at + (not insert)] = [n.input(1)] if insert else []
    return Tuple(fields)


@converter("SplitToSequence")
def _split_to_sequence(n):
    x = n.input(0)
    axis, lengths = n.axis(0, rank_of(x)), n.array(1, "split")
    extent = shape_of(x)[axis]
    if lengths is None or not lengths.ndim:
        each = 1 if lengths is None else int(lengths)
        ends = list(range(each, extent, each)) if each > 0 else n.refuse(f"parts of {each} elements")
    else:
        ends = np.cumsum(lengths).tolist()
        if min(lengths) < 1 or ends.pop() != extent:
            raise ValueError(f"parts of {lengths.tolist()} along an axis of {extent} elements")
    parts = list(relay.split(x, ends, axis)) if ends else [x]
    return Tuple([relay.squeeze(p, [axis]) for p in parts] if lengths is None and not n.get("keepdims", 1) else parts)


@converter("ConcatFromSequence")
def _concat_from_sequence(n):
    parts = list(n.input(0))
    if not n.get("new_axis", 0):
        return relay.concatenate(parts, n.get("axis")) if len(parts) > 1 else parts[0]
    return relay.stack(parts, n.get("axis"))
