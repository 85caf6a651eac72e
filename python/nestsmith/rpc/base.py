"""Keys of connections."""

import secrets

from ..error import RPCError

__all__ = ["RPCError", "random_key", "split_random_key"]


def random_key(prefix, cmap=None):
    """``prefix:number`` with a number that nobody guesses; none of `cmap`."""
    while True:
        key = f"{prefix}:{secrets.randbits(62)}"
        if not cmap or key not in cmap:
            return key


def split_random_key(key):
    """(prefix, number) of what `random_key` returned."""
    prefix, _, number = key.rpartition(":")
    return prefix, number
