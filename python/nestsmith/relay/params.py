"""Parameter files: dictionaries of arrays as bytes."""

from __future__ import annotations

import numpy as np

from .. import _core

__all__ = ["save_param_dict", "load_param_dict"]


def save_param_dict(params):
    """The bytes of a parameter file for a dictionary name -> array (NDArray or NumPy)."""
    items = []
    for name, value in params.items():
        host = value.numpy() if hasattr(value, "numpy") and not isinstance(value, np.ndarray) else np.asarray(value)
        dtype = str(getattr(value, "dtype", host.dtype))
        shape = host.shape
        host = np.ascontiguousarray(host)
        items.append((str(name), dtype, tuple(shape), host.view(np.uint8).reshape(-1) if host.size else b""))
    return _core.params_write(items)


def load_param_dict(data):
    """The dictionary name -> NumPy array stored in the bytes of a parameter file; ValueError if they are damaged."""
    data = bytes(data)
    out = {}
    for name, dtype, shape, offset, nbytes in _core.params_read(data):
        kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
        out[name] = np.frombuffer(data, kind, nbytes // kind.itemsize, offset).reshape(shape).copy()
    return out
