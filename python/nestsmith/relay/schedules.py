"""Where ``relay.build`` gets schedules from: a provider, which the auto-scheduler installs when it is imported."""

from __future__ import annotations

import logging

from .passes import PassContext

__all__ = ["Provider", "install", "asked"]

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

    def origin(self, target, keys):
        """Where the schedule that `find` gave for a function with these keys comes from: a few words for reports."""
        return "log record"

    def layout(self, target):
        """How tuned programs of a network get their weights, as `_core.candidate_source` takes it."""
        raise NotImplementedError

    def tell(self, mod, params, target, tasks):
        """After a network was built: `tasks` are (keys, whether a schedule was found) of the functions worth tuning."""
        raise NotImplementedError


_installed: list[Provider] = []


def install(provider):
    """Makes `provider` the one that is asked."""
    _installed[:] = [provider]


def asked():
    """The provider, if it may have schedules now; else None."""
    if _installed:
        return _installed[0] if _installed[0].enabled() else None
    if PassContext.current().config.get("relay.backend.use_auto_scheduler", False):
        logger.warning("relay.backend.use_auto_scheduler is set, but nobody has imported nestsmith.auto_scheduler: no schedules")
    return None
