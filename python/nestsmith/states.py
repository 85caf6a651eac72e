"""States come as the engine's own or as what users work with."""

from __future__ import annotations

__all__ = ["core_state"]


def core_state(state):
    """The engine's State behind the auto-scheduler's State; anything else as it is."""
    return getattr(state, "state_object", state)
