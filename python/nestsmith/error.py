"""Exceptions, under the names that TVM gives them.

What the engine raises is a `TVMError`. It is a RuntimeError, as in TVM; where an argument, a schedule or a file is at fault
it is a `TVMValueError`, which is a ValueError as well. TypeError, IndexError, OSError, MemoryError and KeyboardInterrupt
come as themselves. Names of TVM that nothing here raises (of operator attributes) are there for the `except`
clauses of scripts.
"""

from __future__ import annotations

from ._core import InternalError, TVMError, TVMValueError

__all__ = [
    "DiagnosticError",
    "ImportMismatch",
    "InternalError",
    "OpAttributeInvalid",
    "OpAttributeRequired",
    "OpAttributeUnImplemented",
    "OpError",
    "OpNotImplemented",
    "RPCError",
    "RPCSessionTimeoutError",
    "TVMError",
    "TVMValueError",
]


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
