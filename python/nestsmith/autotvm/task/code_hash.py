"""Versions of templates: a hash of the text of a function, which records carry."""

import functools
import inspect
import zlib

__all__ = ["attach_code_hash", "attach_code_hash_to_arg"]


def _hash_of(f):
    return hex(zlib.crc32(inspect.getsource(f).encode()))[2:]


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

    def decorate(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            out = f(*args, **kwargs)
            s.code_hash = _hash_of(f)
            return out

        return wrapper

    return decorate


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

    def decorate(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            out = f(*args, **kwargs)
            args[arg_idx].code_hash = _hash_of(f)
            return out

        return wrapper

    return decorate
