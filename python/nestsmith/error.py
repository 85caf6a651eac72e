"""Exceptions, under the names that TVM gives them.

What the engine raises is a `TVMError`. It is a RuntimeError, as in TVM; where an argument, a schedule or a file is at fault
it is a `TVMValueError`, which is a ValueError as well, where types are,
a `TVMTypeError`, a TypeError. IndexError, OSError, MemoryError and KeyboardInterrupt
come as themselves. Names of TVM that nothing here raises (of operator attributes) are there for the `except`
clauses of scripts.
"""

import builtins

from ._core import InternalError, TVMError, TVMTypeError, TVMValueError

__all__ = ["DiagnosticError", "ImportMismatch", "InternalError", "OpAttributeInvalid", "OpAttributeRequired",
           "OpAttributeUnImplemented", "OpError", "OpNotImplemented", "RPCError", "RPCSessionTimeoutError", "TVMError",
           "TVMTypeError", "TVMValueError"]


class DiagnosticError(TVMValueError):
    """The types of a network do not fit together."""


class ImportMismatch(TVMValueError):
    """A node of an imported network computes something else than in the framework that it comes from."""


class OpError(TVMError):
    """An operator of a network cannot be compiled."""


class OpNotImplemented(OpError, NotImplementedError):
    """An operator has no definition."""


class OpAttributeRequired(OpError, AttributeError):
    """An operator lacks an attribute."""


class OpAttributeInvalid(OpError, AttributeError):
    """An attribute of an operator has a bad value."""


class OpAttributeUnImplemented(OpError, NotImplementedError):
    """An attribute of an operator has a value that is not supported."""


class RPCError(TVMError):
    """A remote machine failed."""


class RPCSessionTimeoutError(RPCError, TimeoutError):
    """A remote machine did not answer in time."""


_REGISTERED: dict = {}


def register_error(func_name=None, cls=None):
    """Registers an exception class, by which a remote function's error of that name is raised again; also a decorator,
    ``@register_error`` or ``@register_error("Name")``."""
    if isinstance(func_name, type):
        func_name, cls = func_name.__name__, func_name

    def register(kind):
        _REGISTERED[func_name or kind.__name__] = kind
        return kind

    return register(cls) if cls is not None else register


def registered_error(name):
    """The class registered under a name, one of this module, or a builtin error; TVMError for other names."""
    found = _REGISTERED.get(name) or globals().get(name) or getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else TVMError
