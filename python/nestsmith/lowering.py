"""The loop program behind a schedule, as text: ``nestsmith.lower(schedule, args)``."""

from __future__ import annotations

from . import _core
from .driver import _state_of

__all__ = ["LoweredFunction", "lower"]


class LoweredFunction:
    """What ``lower`` returns; printing it shows the function.

    Attributes
    ----------
    name : str
        Name of the function.
    script : str
        The text, in the ``primfn`` dialect.
    """

    def __init__(self, name, script):
        self.name, self.script = name, script

    def __str__(self):
        return self.script

    __repr__ = __str__

    def astext(self):
        """The text."""
        return self.script


def lower(sch, args, name="main", binds=None, simple_mode=False):
    """The program a schedule stands for, after flattening and simplification.

    Parameters
    ----------
    sch : te.Schedule or state of the auto-scheduler
        It is not changed.
    args : list of te.Tensor
        Inputs and outputs in the order of the function's parameters. A computed tensor that is listed is written to its
        argument; one that is not listed becomes a temporary. Shapes may be symbolic.
    name : str
        Name of the function, shown as ``global_symbol``.
    simple_mode : bool
        Accepted for compatibility; the text is that of the simple mode.

    Returns
    -------
    LoweredFunction

    Raises
    ------
    ValueError
        If the schedule is illegal, e.g. an attach point does not enclose all readers, or a tensor that is read is
        neither computed nor an argument.
    """
    if binds:
        raise ValueError("binds is not supported: buffers are laid out row by row")
    text = _core.lower_text(_state_of(sch), "primfn", args=list(args))
    return LoweredFunction(name, text.replace('"global_symbol": "main"', f'"global_symbol": "{name}"', 1))
