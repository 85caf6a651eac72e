"""cuDNN is not used: convolutions are compiled and tuned. `exists` returns False."""

from .. import _absent

__all__ = ["exists"]


def exists():
    """False."""
    return False


def __getattr__(name):
    raise AttributeError(f"{__name__}.{name} is not there: {_absent.WAYS['nestsmith.contrib']}")
