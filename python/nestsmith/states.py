"""States come as the engine's own or as what users work with."""

from __future__ import annotations

__all__ = ["core_state", "handle_of"]


def core_state(state):
    """The engine's State behind the auto-scheduler's State; anything else as it is."""
    return getattr(state, "state_object", state)


def handle_of(state):
    """What the engine takes where only the steps of a state matter: the candidate of a search, or as `core_state`."""
    return getattr(state, "handle", state)
