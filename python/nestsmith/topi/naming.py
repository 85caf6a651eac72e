"""Stage names changed between releases of the operator library; logs are keyed by names, so both sets are available.

Two independent parts: how placeholders of extracted subgraphs are called (``"placeholder"``: all ``placeholder``;
``"p"``: ``p0, p1, ...``) and how pooling stages are called (``"tensor"``: all ``tensor``; ``"pool"``: ``pool_max``,
``pool_sum``, ...).
"""

import contextlib
import contextvars

_PLACEHOLDERS, _POOLING = ("placeholder", "p"), ("tensor", "pool")
_state: contextvars.ContextVar = contextvars.ContextVar("nestsmith_naming", default=("placeholder", "tensor"))


@contextlib.contextmanager
def naming(placeholders=None, pooling=None):
    """``with naming(placeholders="p", pooling="pool"):`` the names of current releases. None keeps a part as it is."""
    old = _state.get()
    new = (placeholders or old[0], pooling or old[1])
    if new[0] not in _PLACEHOLDERS or new[1] not in _POOLING:
        raise ValueError(f"naming: placeholders is one of {_PLACEHOLDERS}, pooling one of {_POOLING}, not {new}")
    token = _state.set(new)
    try:
        yield
    finally:
        _state.reset(token)


def placeholder_name(number):
    """Name of parameter ``number`` of an extracted subgraph."""
    return "placeholder" if _state.get()[0] == "placeholder" else f"p{number}"


def pool_name(name):
    """Name of a pooling stage; ``name`` is the one of current releases, e.g. ``pool_max``."""
    return "tensor" if _state.get()[1] == "tensor" else name
