"""The state of template tuning that templates see."""

from __future__ import annotations

__all__ = ["AutotvmGlobalScope", "GLOBAL_SCOPE", "reset_global_scope"]


class AutotvmGlobalScope:
    """What templates and dispatch look at.

    Attributes
    ----------
    in_tuning : bool
        A tuner is at work: templates take packed weights as given.
    silent : bool
        No warnings about operators that nobody tuned.
    """

    current: AutotvmGlobalScope | None = None

    def __init__(self):
        self._old = AutotvmGlobalScope.current
        AutotvmGlobalScope.current = self
        self.in_tuning, self.silent = False, False

    def deep_copy(self, global_scope):
        """Takes over the settings of another scope, e.g. that of the process that started this one."""
        self._old = AutotvmGlobalScope.current
        self.in_tuning, self.silent = global_scope.in_tuning, global_scope.silent


GLOBAL_SCOPE = AutotvmGlobalScope()


def reset_global_scope(global_scope):
    """Makes the settings of ``global_scope`` those of this process."""
    GLOBAL_SCOPE.deep_copy(global_scope)
    AutotvmGlobalScope.current = GLOBAL_SCOPE
