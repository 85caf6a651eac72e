"""Schedules and states come as the engine's own or as what users work with."""

import threading

from . import _core

__all__ = ["contexts", "core_state", "handle_of", "loops_of"]

_local = threading.local()


def contexts():
    """The PassContexts that this thread is in, the innermost last."""
    if not hasattr(_local, "stack"):
        _local.stack = []
    return _local.stack


def core_state(state):
    """The engine's State or Schedule behind a state of the auto-scheduler or a schedule of te; anything else (one of the
    engine, what a record holds) as it is."""
    for inner in (getattr(state, "state_object", None), getattr(state, "_core", None)):
        if isinstance(inner, _core.StateBase):
            return inner
    return state


def loops_of(schedule):
    """As `core_state`, for what is to be compiled: a TypeError if it is neither schedule nor state."""
    state = core_state(schedule)
    if not isinstance(state, _core.StateBase):
        raise TypeError(f"cannot build {type(schedule).__name__}; expected a schedule made with te.create_schedule or "
                        "by the auto-scheduler")
    return state


def handle_of(state):
    """What the engine takes where only the steps of a state matter: the candidate of a search, or the state itself."""
    return getattr(state, "handle", state)
