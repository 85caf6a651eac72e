"""What a forked child must not take over from its parent: thread pools, child processes, locks that other threads hold.

The engine looks after its own (`csrc/base/fork.c`); this is for objects of Python.
"""

from __future__ import annotations

import os
import weakref

_known: weakref.WeakSet = weakref.WeakSet()


def renew(obj):
    """In every forked child `obj._forked()` is called, before any other code runs. Returns `obj`."""
    _known.add(obj)
    return obj


def _in_child():
    for obj in list(_known):
        obj._forked()


os.register_at_fork(after_in_child=_in_child)
