"""Where ``relay.build`` gets schedules from.

A provider, which the auto-scheduler installs when it is imported, has schedules for what operators are defined as. Templates,
which autotvm installs, define an operator anew, each in its way, and bring the schedule along.
"""

import logging
from typing import Any, NamedTuple

from .passes import PassContext

__all__ = ["Provider", "Templates", "Implementation", "install", "asked", "templates"]

logger = logging.getLogger("nestsmith")


class Provider:
    """What the build asks."""

    def enabled(self):
        """Whether there may be schedules for anybody now."""
        raise NotImplementedError

    def find(self, target, variants, name):
        """A schedule for a function of a network.

        Parameters
        ----------
        target : Target
        variants : list of list of te.Tensor
            Inputs and outputs of the function, once per naming that releases have had; the first is today's.
        name : str
            What the function is called.

        Returns
        -------
        keys : list of str
            Its workload keys, by naming.
        found : State, steps, or None
        """
        raise NotImplementedError

    def rank(self, target, variants):
        """What the records of a function are worth beside those of functions that compute the same: the smaller the better. None if there
        are none. `variants`: as in `find`."""
        raise NotImplementedError

    def origin(self, target, keys):
        """Where the schedule that `find` gave for a function with these keys comes from: a few words for reports."""
        return "log record"

    def layout(self, target):
        """How tuned programs of a network get their weights, as `_core.candidate_source` takes it."""
        raise NotImplementedError

    def tell(self, mod, params, target, tasks):
        """After a network was built: `tasks` are (keys, whether a schedule was found) of the functions worth tuning."""
        raise NotImplementedError


class Implementation(NamedTuple):
    """A function of a network by a template.

    Attributes
    ----------
    lowered : lowering.Lowered
        Its tensors.
    schedule : te.Schedule
    packed : dict
        Inputs that are not the function's own, but made of a constant ahead of time: from the tensor to (the parameter's
        tensor, how its data is packed).
    origin : str
        Where the schedule comes from: a few words for reports.
    """

    lowered: Any
    schedule: Any
    packed: dict
    origin: str


class Templates:
    """What the build asks for other definitions of operators."""

    def enabled(self):
        """Whether there may be records for anybody now."""
        raise NotImplementedError

    def prefers(self, call, target):
        """Whether a call of an operator, as it stands, gets a template: passes leave it alone then."""
        raise NotImplementedError

    def block(self, call, target):
        """How many channels lie together in what the template of a convolution in NCHW computes; 0 if it has none, or computes
        NCHW."""
        raise NotImplementedError

    def implement(self, func, target, constant):
        """A function of a network by the template that was the fastest for its operator.

        Parameters
        ----------
        func : relay.Function
        target : Target
        constant : frozenset of int
            The parameters, tuples taken apart, that are constants in every call.

        Returns
        -------
        Implementation, or None if there is no record for it
        """
        raise NotImplementedError

    def tell(self, target, functions):
        """After a network was built: `functions` are (relay.Function, whether a template was used)."""
        raise NotImplementedError


_installed: list[Provider] = []
_templates: list[Templates] = []


def install(provider):
    """Makes `provider`, a :class:`Provider` or :class:`Templates`, the one of its kind that is asked."""
    (_templates if isinstance(provider, Templates) else _installed)[:] = [provider]


def templates():
    """The templates, if there may be records for them now; else None."""
    return next((t for t in _templates if t.enabled()), None)


def asked():
    """The provider, if it may have schedules now; else None."""
    if _installed:
        return _installed[0] if _installed[0].enabled() else None
    if PassContext.current().config.get("relay.backend.use_auto_scheduler", False):
        logger.warning("relay.backend.use_auto_scheduler is set, but nobody has imported nestsmith.auto_scheduler: no schedules")
    return None
