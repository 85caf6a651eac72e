"""What tensor cores multiply as TF32 is rounded to 11 bits once, where it is made.

Programs for warpgroups read factors where they lie in shared memory, and their unit cuts the lower bits off: all products get a little too
small, layer after layer (docs/numerics.md). So constants are rounded at compile time, and what a layer reads by the operator
``round_tf32`` behind whatever computes it, which fusion makes part of that kernel. All who read the value get it rounded. What only
moves rounded values, or chooses from them (a relu, the highest of a window), is rounded already. Values that no kernel of
the network could round on its way (an input that is read as it comes, the result of a reduction) stay as they are.
"""

import numpy as np

from ...numerics import to_tf32
from .. import op
from ..expr import Call, Constant, Tuple, TupleGetItem, children, post_order, rewrite
from ..infer import infer_type
from ..op.nn.convolution import is_depthwise
from ..op.registry import ANCHOR, BROADCAST, ELEMWISE, INJECTIVE
from ..ty import TensorType
from .moves import PRODUCTS, RESHAPES, is_move

__all__ = ["round_factors"]

# What these read is rounded instead: a reshape is no kernel, products take moves in, and the highest of a window would be rounded by a
# kernel of its own.
_POOLS = ("nn.global_max_pool2d", *(f"nn.{a}max_pool{n}d" for a in ("", "adaptive_") for n in (1, 2, 3)))
_MOVES = ("layout_transform", "concatenate", "stack", "split", "nn.pad", *_POOLS)
# And these give rounded values of rounded ones.
_CHOICES = ("nn.relu", "maximum", "minimum", "negative", "abs", "copy", "broadcast_to", "repeat", "tile", "reverse", "nn.depth_to_space",
            "nn.space_to_depth")  # fmt: skip
_HOSTS = (ELEMWISE, BROADCAST, INJECTIVE, ANCHOR)  # an element-wise operator behind them is part of their kernel


def _multiplies(e):
    """Whether tensor cores may compute a call as a product of float32."""
    if not isinstance(e, Call) or e.op_name not in ("nn.conv2d", *PRODUCTS):
        return False
    if e.op_name == "nn.conv2d" and is_depthwise(e):
        return False
    return all(a.checked_type.dtype == "float32" for a in e.args)


def _moves(e):
    return is_move(e) or isinstance(e, (Tuple, TupleGetItem)) or (isinstance(e, Call) and e.op_name in _MOVES)


def _is_float32(e):
    return isinstance(e.checked_type, TensorType) and e.checked_type.dtype == "float32"


class _Places:
    """Which values are to be rounded so that an expression is."""

    def __init__(self):
        self.memo = {}

    def of(self, e):
        """A list of constants and calls, or None if there is no place."""
        if id(e) not in self.memo:
            self.memo[id(e)] = self._find(e)
        return self.memo[id(e)]

    def _find(self, e):
        if isinstance(e, Constant):
            return [e] if _is_float32(e) else []
        if _moves(e):
            found = [self.of(c) for c in children(e)]
            if None not in found:
                return sum(found, [])
        host = isinstance(e, Call) and e.op_name and _is_float32(e) and e.op_name not in (*RESHAPES, *_POOLS)
        return [e] if host and e.op.pattern in _HOSTS else None


def _needed(order, wanted):
    """Of the ids of values to be rounded those that are not rounded already, for what they are made of is."""
    rounded, out = set(), set()

    def is_rounded(e):
        return np.array_equal(e.data, to_tf32(e.data), equal_nan=True) if isinstance(e, Constant) else id(e) in rounded

    for e in order:
        chooses = _moves(e) or (isinstance(e, Call) and e.op_name in _CHOICES)
        kept = chooses and all(map(is_rounded, children(e)))
        if id(e) in wanted and not kept:
            out.add(id(e))
        if id(e) in wanted or kept:
            rounded.add(id(e))
    return out


def round_factors(func):
    """A function whose products of float32 read rounded factors."""
    infer_type(func)
    order, places = post_order(func.body), _Places()
    wanted = {id(e) for layer in filter(_multiplies, order) for factor in layer.args for e in places.of(factor) or ()}
    needed = _needed(order, wanted)

    def visit(old, new):
        if id(old) not in needed:
            return new
        rounded = Constant(to_tf32(new.data)) if isinstance(new, Constant) else op.round_tf32(new)
        rounded.span = new.span
        return rounded

    return rewrite(func, visit)
