"""Errors and kinds of strings."""

import numpy as _np

from ..error import TVMError, register_error

__all__ = ["TVMError", "integer_types", "numeric_types", "py_str", "register_error", "string_types"]

string_types, integer_types, numeric_types = (str,), (int, _np.int32), (float, int, _np.float32, _np.int32)


def py_str(x):
    """Bytes as text."""
    return x.decode("utf-8")
