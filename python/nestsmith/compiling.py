"""From the text of a program to its binary."""

import os

from . import _core, check
from .error import TVMError

__all__ = ["compile_source"]


def compile_source(target, source, name, of_steps=False, cache_dir=None, engine=None, stop=None):
    """Compile a program's text, or find its binary in the cache.

    Parameters
    ----------
    target : Target
    source : str
    name : str
        The function, for messages.
    of_steps : bool
        Its schedule is a list of steps, which may come from a stranger's log: a C compiler gets less time for it.
    cache_dir : str, optional
    engine : _core.Target, optional
        The engine's part of `target`, if it is not `target.engine()`.
    stop : _core.Stop, optional
        Ends the compiler, from another thread.

    Returns
    -------
    binary : bytes
        A shared library, a cubin, or OpenCL's own binary.
    cached : bool
        Whether the cache had it.

    Raises
    ------
    TVMError
        If the compiler is missing, fails, or takes longer than the limit ``compile_record`` or ``compile`` of
        `_core.limits` (``NESTSMITH_BUILD_TIMEOUT`` in place of both; 0: none). It names the function.
    ValueError
        If ``NESTSMITH_BUILD_TIMEOUT`` is no number.
    """
    limit = "compile_record" if of_steps and target.kind.device_type == 1 else "compile"
    seconds, asked = float(_core.limits()[limit][0]), os.environ.get("NESTSMITH_BUILD_TIMEOUT")
    if asked:
        limit = "NESTSMITH_BUILD_TIMEOUT"
        try:
            seconds = check.number(limit, float(asked), -1)
        except ValueError:
            raise ValueError(f"{limit} is {asked!r}; it must be a number of seconds, 0 for no limit") from None
    try:
        binary, _, cached = _core.build(engine or target.engine(), source, seconds, cache_dir, target.cross_compiler, stop)
    except TVMError as e:
        if isinstance(e, ValueError):
            raise
        if not str(e).startswith("timed out"):
            raise TVMError(f"{name}: {e}") from None
        why = "its schedule comes from steps, as in a log: without the record it gets the default one; " if of_steps else ""
        raise TVMError(f"{name}: compiling took longer than {seconds:g} s of processor time (limit {limit!r}); "
                       f"{why}set NESTSMITH_BUILD_TIMEOUT to more seconds to wait longer") from None
    return binary, cached
