"""Workload keys: what is in one, and how far two workloads are apart."""

import functools
import re
from fractions import Fraction

from .. import check

__all__ = ["decode_workload_key", "calc_workload_dis_factor", "size_factor"]


def _scalars(x):
    for e in x:
        if isinstance(e, (list, tuple)):
            yield from _scalars(e)
        else:
            yield e


@functools.lru_cache(maxsize=4096)  # a log repeats the keys of its tasks
def decode_workload_key(key):
    """(hash or name, tuple of all scalars) of a key; nested and flat lists of shapes give the same tuple. What is no
    JSON list that begins with a name and holds scalars is a name by itself: (key, None)."""
    try:
        parts = check.json_of("workload key", key)
    except (TypeError, ValueError):
        return key, None
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        return key, None
    scalars = tuple(_scalars(parts[1:]))
    return (key, None) if any(isinstance(s, dict) for s in scalars) else (parts[0], scalars)


_HASH = re.compile("[0-9a-f]{32}")  # the name of a workload that is no registered function


def calc_workload_dis_factor(wanted, recorded):
    """How much larger the wanted workload is than a recorded one of the same computation; infinite if unrelated.

    Both are pairs as :func:`decode_workload_key` gives them. The factor is 1 for equal workloads.
    """
    inf = float("inf")
    (name, args), (name2, args2) = wanted, recorded
    if name != name2 or (args is None) != (args2 is None):
        return inf
    if args is None:
        return 1.0
    if len(args) != len(args2):
        return inf
    factor = 1.0
    for w, r in zip(args, args2):
        if isinstance(w, int) and not isinstance(w, bool) and isinstance(r, int) and w != 0 and r != 0:
            if w % r or w // r < 1:
                return inf
            factor *= w / r
        elif w != r:
            return inf
    return factor


def size_factor(wanted, recorded):
    """The one factor, a Fraction, by which all sizes differ in which two workloads differ, as those of a network in two batch sizes do;
    None if they are equal or differ otherwise. Both are pairs as :func:`decode_workload_key` gives them. Hashes do not count: sizes are a
    part of what most are made of."""
    (name, args), (name2, args2) = wanted, recorded
    if name != name2 and not (_HASH.fullmatch(name) and _HASH.fullmatch(name2)):
        return None
    if args is None or args2 is None or len(args) != len(args2):
        return None
    pairs = {(w, r) for w, r in zip(args, args2) if w != r}
    if not all(type(x) is int and x > 0 for pair in pairs for x in pair):
        return None
    factors = {Fraction(w, r) for w, r in pairs}
    return factors.pop() if len(factors) == 1 else None
