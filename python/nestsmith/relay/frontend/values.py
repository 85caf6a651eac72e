"""Values of a model that is read: every value is a graph expression, and what depends on constants alone is a constant.

An importer calls one converter per node. If all inputs of the node are constants, the expression that the converter made is
computed with NumPy at once (:func:`folded`), by the same definitions as constant folding uses. So chains like Shape, Gather,
Concat, Reshape vanish while the model is read, and no converter has to know about them.
"""

import collections
import math

import numpy as np

from ... import check
from ...error import OpNotImplemented
from .. import budget
from ..expr import Call, Constant, Expr, Tuple, TupleGetItem, TupleWrapper, Var, children, const
from ..infer import infer_type
from ..passes import PassContext
from ..transform.fold_constant import fold

__all__ = ["Node", "Unsupported", "arange", "array", "dtype_of", "filled", "folded", "integers", "known", "named", "rank_of", "repeated", "shape_of"]


def _typed(e):
    infer_type(e)
    return e.checked_type


def shape_of(e):
    """The shape of an expression as a tuple of ints."""
    return tuple(int(d) for d in _typed(e).concrete_shape)


def rank_of(e):
    return len(_typed(e).shape)


def dtype_of(e):
    return _typed(e).dtype


def known(e):
    """Whether the value is a constant."""
    return isinstance(e, Constant)


def array(value, dtype=None):
    """A constant; integers keep 64 bits unless `dtype` says otherwise."""
    wide = np.asarray(value, "float32" if dtype == "bfloat16" else dtype, order="C")
    c = const(wide, dtype if dtype == "bfloat16" else None)
    budget.hold(c.data)
    return c


def arange(start, stop=None, step=1, dtype=None):
    """NumPy's `arange`, charged to the budget of the import before it is made."""
    start, stop = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("a range with step 0")
    count = (stop - start) / step if isinstance(stop - start, float) or isinstance(step, float) else -((start - stop) // step)
    if not math.isfinite(count):
        raise ValueError(f"a range from {start} to {stop} in steps of {step} has no end")
    budget.room((max(math.ceil(count), 0),), "int64")
    return np.arange(start, stop, step, dtype)


def filled(shape, value, dtype=None):
    """NumPy's `full`, charged to the budget of the import before it is made."""
    dtype = np.dtype(np.asarray(value).dtype if dtype is None else dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return np.full(budget.room(shape, dtype), value, dtype)


def repeated(x, shape):
    """`x` broadcast to `shape` in memory, charged to the budget of the import before it is made."""
    x = np.asarray(x)  # of a number
    return np.broadcast_to(x, budget.room(tuple(shape), x.dtype)).copy()


def along(numbers, axis, rank):
    """`numbers` along one of `rank` axes."""
    return np.reshape(numbers, [-1 if a == axis else 1 for a in range(rank)])


def integers(x):
    """The integers of an array, flat, as Python numbers."""
    return [int(v) for v in np.asarray(x).ravel()]


def folded(e, inputs):
    """`e`, computed now if what it reads of `inputs` are constants: a type or a shape is known of all."""
    if isinstance(e, TupleWrapper):
        e = list(e)
    if isinstance(e, (list, tuple)):
        return [folded(f, inputs) for f in e]
    infer_type(e)
    return e if _reads(e, {id(i): known(i) for i in inputs if i is not None}) else fold(e)


def _reads(e, inputs):
    """Whether an expression reads a value that is not known; `inputs`: by the id of each, whether it is."""
    if all(inputs.values()):
        return False
    seen, todo = set(), [e]
    while todo:
        e = todo.pop()
        if id(e) in inputs:
            if not inputs[id(e)]:
                return True
        elif id(e) not in seen:
            seen.add(id(e))
            if isinstance(e, Var):
                return True
            todo += children(e)
    return False


class Node:
    """What a converter sees of a node.

    Attributes
    ----------
    op, name : str
        The operator and what messages call the node.
    inputs : list of Expr or None
        An input that was left out is None.
    attrs : dict
        Numbers, strings, lists of them and NumPy arrays.
    opset : int
        Version of the operator set that the model was written for.
    outputs : int
        How many results somebody reads.
    """

    def __init__(self, op, name, inputs, attrs, opset=0, outputs=1):
        self.op, self.name, self.inputs, self.attrs, self.opset, self.outputs = op, name, list(inputs), attrs, opset, outputs

    def __str__(self):
        return f"{self.op} {self.name!r}" if self.name else self.op

    def get(self, name, default=None):
        return self.attrs.get(name, default)

    def axis(self, default, rank, name="axis"):
        """The attribute `name` as an axis of a tensor of `rank`, counted from the front."""
        axis = self.get(name, default)
        if not -rank <= axis < rank:
            raise ValueError(f"{name} is {axis}; the tensor has {rank} axes")
        return axis % rank

    def numbers(self, name, count, default):
        """The attribute `name`, a list of `count` integers."""
        v = list(self.get(name, [default] * count))
        if len(v) != count:
            raise ValueError(f"{name} has {len(v)} numbers; there must be {count}")
        return v

    def has(self, i):
        """Whether input `i` was given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def input(self, i, default=None):
        return self.inputs[i] if self.has(i) else default

    def array(self, i, what):
        """The numbers of input `i`, which must be known when the model is read; None if it was left out."""
        if not self.has(i):
            return None
        if not known(self.inputs[i]):
            raise OpNotImplemented(f"{self}: its {what} is computed from the data of the model, so that shapes are not "
                                   "known before it runs. Export the model with fixed shapes, or give the input it "
                                   "depends on as a constant")  # fmt: skip
        return self.inputs[i].numbers

    def ints(self, i, name):
        """Integers that are an attribute in old models and input `i` in new ones; None if there are none."""
        if name in self.attrs:
            return integers(self.attrs[name])
        x = self.array(i, name)
        return None if x is None else integers(x)

    def refuse(self, why):
        """Raises OpNotImplemented: this use of the operator is not supported."""
        raise OpNotImplemented(f"{self}: {why}")


class Unsupported:
    """Collects what cannot be imported, so that all of it is said at once."""

    def __init__(self, source, remedy):
        self.source, self.remedy, self.nodes = source, remedy, collections.defaultdict(list)

    def add(self, op, name):
        self.nodes[op].append(name)

    def check(self):
        """Raises OpNotImplemented if there is anything."""
        if self.nodes:
            lines = []
            for op, names in sorted(self.nodes.items()):
                some = ", ".join(map(str, names[:3])) + ", ..." * (len(names) > 3)
                lines.append(f"  {op}: {len(names)} node{'s' * (len(names) > 1)} ({some})")
            raise OpNotImplemented(
                f"this {self.source} uses {len(lines)} operator{'s' * (len(lines) > 1)} that nestsmith does not have:\n"
                + "\n".join(lines)
                + "\nNothing was imported. Take these parts out of the model (post-processing is better done outside), or "
                + self.remedy
            )


def named(results, label):
    """`results` of a converter; the calls in them that are new know the node of the model that they come from."""
    filled = PassContext.current().config.get("relay.frontend.fill_span", True)
    todo, label = [r for r in results if isinstance(r, Expr)], check.printable(label, lines=False) if filled else ""
    while todo:
        e = todo.pop()
        if e.span is None and isinstance(e, (Call, Tuple, TupleGetItem)):
            budget.node()
            e.span = label
            todo += e.args if isinstance(e, Call) else e.fields if isinstance(e, Tuple) else [e.tuple_value]
    return results


def as_list(result):
    """The results of a converter, one per output."""
    if isinstance(result, TupleWrapper):
        return list(result)
    return [result] if isinstance(result, Expr) else list(result)
