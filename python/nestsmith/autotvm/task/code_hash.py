"""Versions of templates: a hash of the text of a function, which records carry."""

import functools
import inspect
import zlib

__all__ = ["attach_code_hash", "attach_code_hash_to_arg"]


def _attach(schedule_of):
    def decorate(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            out = f(*args, **kwargs)
            schedule_of(args).code_hash = hex(zlib.crc32(inspect.getsource(f).encode()))[2:]
            return out

        return wrapper

    return decorate


def attach_code_hash(s):
    """Decorator that notes the hash of the function's text as ``code_hash`` of the schedule ``s``.

    Parameters
    ----------
    s : te.Schedule

    Returns
    -------
    callable
        A decorator.
    """

    return _attach(lambda args: s)


def attach_code_hash_to_arg(arg_idx=1):
    """Decorator that notes the hash of the function's text as ``code_hash`` of its argument number ``arg_idx``, a schedule.

    Parameters
    ----------
    arg_idx : int

    Returns
    -------
    callable
        A decorator.
    """

    return _attach(lambda args: args[arg_idx])
