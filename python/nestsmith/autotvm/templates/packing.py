"""Weights in the order in which a template reads them.

Where a weight is packed depends on who asks. While a template is tuned the packed weight is an argument, so that packing is
not timed. When a network is built, weights that are constants are packed once, ahead of time (:class:`Ahead` says which,
and keeps what is to be done). Everywhere else packing is one more stage of the program.
"""

from __future__ import annotations

import contextvars

from ... import te
from ...numerics import sum_type
from ...relay.packing import Packing
from ...topi.util import get_const_tuple
from ..env import GLOBAL_SCOPE

__all__ = ["Ahead", "packed"]

_asked: contextvars.ContextVar = contextvars.ContextVar("nestsmith_ahead", default=None)


class Ahead:
    """``with Ahead() as ahead:`` weights among the tensors ``ahead.constants`` are packed before the program runs.

    Attributes
    ----------
    constants : set of te.Tensor
    made : dict
        From the tensor that is read instead to (the weight, what brings its data into that form).
    """

    def __init__(self):
        self.constants, self.made = set(), {}

    def __enter__(self):
        self._token = _asked.set(self)
        return self

    def __exit__(self, *exc):
        _asked.reset(self._token)


def packed(weight, shape, body, axes, name, winograd=None):
    """A weight in another layout.

    Parameters
    ----------
    weight : te.Tensor
    shape : tuple of int
        The packed shape.
    body : callable
        An element of the packed weight, as in :func:`te.compute`.
    axes : tuple of int
        The same for data: dimension k of the packed weight counts within dimension ``axes[k]``, outer parts first.
    name : str
        The stage that packs.
    winograd : int, optional
        The weight [CO, CI, r, r] is transformed for output tiles of this size first; `axes` are those of [a, a, CO, CI].

    Returns
    -------
    te.Tensor
        Computed, or an argument.
    """
    ahead, dtype = _asked.get(), weight.dtype if winograd is None else sum_type(weight.dtype)
    # "kernel" is a word of OpenCL C.
    if GLOBAL_SCOPE.in_tuning:
        return te.placeholder(shape, dtype, name=f"{name}_autotvm")
    if ahead is not None and weight in ahead.constants:
        argument = te.placeholder(shape, dtype, name=f"{name}_packed")
        ahead.made[argument] = weight, Packing(get_const_tuple(weight.shape), shape, axes, winograd)
        return argument
    return te.compute(shape, body, name=name)
