"""Element by element and along one axis: relu and its kin, softmax, dropout (nothing at inference)."""

import numpy as np

from .... import topi
from ....numerics import is_float
from ...expr import Tuple, TupleWrapper
from ...ty import TupleType
from ..layout import follow
from ..reduce import softmax_numpy
from ..registry import ANCHOR, ELEMWISE, FOLLOW, NEVER, OPAQUE, call, norm_axis, register, tensor
from ..tensor import ones_like

__all__ = ["softmax", "fast_softmax", "log_softmax", "relu", "leaky_relu", "dropout"]


def _same(attrs, types):
    t = tensor(types, 0)
    if "axis" in attrs:
        norm_axis(attrs.axis, len(t.shape))
    return t


def _of_floats(attrs, types):
    t = tensor(types, 0)
    if not is_float(t.dtype):
        raise ValueError(f"the argument is {t.dtype}, which has no value for the slope; use relay.cast")
    return t


# Without a rule of layout: the reduced axis stays where the network has it, innermost as a rule.
for _name, _loops in {"softmax": topi.nn.softmax, "fast_softmax": topi.nn.softmax, "log_softmax": topi.nn.log_softmax}.items():
    register(f"nn.{_name}", ANCHOR, _same,
             lambda attrs, x, log=_name == "log_softmax": softmax_numpy(x, attrs.axis, log=log), colour=NEVER,
             loops=lambda a, x, c, t, loops=_loops: loops(x[0], a.axis), ranked=False)  # fmt: skip
register("nn.relu", ELEMWISE, _same, lambda attrs, x: np.maximum(x, x.dtype.type(0)),
         loops=lambda a, x, c, t: topi.relu(x[0]))  # fmt: skip
register("nn.leaky_relu", ELEMWISE, _of_floats, lambda attrs, x: np.where(x > 0, x, x * x.dtype.type(attrs.alpha)),
         loops=lambda a, x, c, t: topi.leaky_relu(x[0], a.alpha))  # fmt: skip


def softmax(data, axis=-1):
    """``exp(x - max) / sum`` along `axis`."""
    return call("nn.softmax", [data], axis=int(axis))


def fast_softmax(data, axis=-1):
    """softmax with a fast exponential."""
    return call("nn.fast_softmax", [data], axis=int(axis))


def log_softmax(data, axis=-1):
    """Logarithm of the softmax."""
    return call("nn.log_softmax", [data], axis=int(axis))


def relu(data):
    """``max(data, 0)``"""
    return call("nn.relu", [data])


def leaky_relu(data, alpha=0.01):
    """data where positive, else ``alpha * data``."""
    return call("nn.leaky_relu", [data], alpha=float(alpha))


register("nn.dropout", OPAQUE, lambda attrs, types: TupleType([tensor(types, 0), tensor(types, 0)]), layout=follow,
         colour=FOLLOW, apart=lambda call: Tuple([call.args[0], ones_like(call.args[0])]))  # fmt: skip


def dropout(data, rate=0.5):
    """Nothing at inference; removed by SimplifyInference."""
    return TupleWrapper(call("nn.dropout", [data], rate=float(rate)), 2)[0]
