"""Definitions that are needed for a moment."""

import contextlib
import gc

from .. import _core

__all__ = ["scratch"]


@contextlib.contextmanager
def scratch():
    """What is defined inside is forgotten at the end of the ``with`` statement, if no object of it is left.

    Otherwise nothing is, and what te defines stays for the life of the process: a tuner, which runs a template thousands of
    times, would take more and more memory. Objects that outlive the block (in variables, caches, the traceback of an
    exception) stay valid, and all that was defined beside them. A block inside of another one is a part of it.

    >>> from nestsmith import te
    >>> with te.scratch():
    ...     x = te.placeholder((4,))
    ...     print(te.compute((4,), lambda i: x[i] + 1.0))
    ...     del x
    Tensor(compute, shape=(4,), dtype=float32)
    """
    mine = _core.te_scope_begin()
    try:
        yield
    finally:
        if mine:
            if _core.te_scope_alive():
                gc.collect(1)  # functions that call themselves hold what they see until then
            _core.te_scope_end()
