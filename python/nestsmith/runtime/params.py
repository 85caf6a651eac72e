"""Parameter files: dictionaries of arrays as bytes; names and shapes of tensors as TVM's types."""

import pathlib

import numpy as np

from .. import _core, check
from ..numerics import Array, stored

__all__ = ["ShapeTuple", "String", "load_param_dict", "load_param_dict_from_file", "save_param_dict", "save_param_dict_to_file"]


class String(str):
    """A text."""

    __slots__ = ()


class ShapeTuple(tuple):
    """A shape: a tuple of integers. Raises TypeError for others."""

    __slots__ = ()

    def __new__(cls, shape):
        return super().__new__(cls, [s.__index__() for s in shape])


def save_param_dict(params):
    """The bytes of a parameter file, a bytearray, for a dictionary name (str) -> array (NDArray or NumPy)."""
    return bytearray(bytes_of(params))


def bytes_of(params):
    items = []
    for name, value in params.items():
        host = value.numpy() if hasattr(value, "numpy") and not isinstance(value, np.ndarray) else np.asarray(value)
        dtype, flat = str(getattr(value, "dtype", host.dtype)), np.ascontiguousarray(host).reshape(-1)
        items.append((check.text("params: a name", name), dtype, tuple(host.shape), flat.view(np.uint8) if host.size else b""))
    return _core.params_write(items)


def load_param_dict(data):
    """The dictionary name -> NumPy array stored in the bytes of a parameter file; ValueError if they are damaged."""
    data = bytes(data)
    try:
        return arrays_at(data, _core.params_read(data))
    except UnicodeDecodeError as e:
        raise ValueError(f"parameter file: the name {e.object!r} is no UTF-8; is the file damaged?") from None


def arrays_at(data, rows):
    """The dictionary name -> NumPy array of what the engine tells of bytes: (name, dtype, shape, offset, bytes) each;
    bytes in place of an offset are the array's."""
    out = {}
    for name, dtype, shape, at, nbytes in rows:
        kind = stored(dtype)
        source, offset = (at, 0) if isinstance(at, bytes) else (data, at)
        out[name] = np.frombuffer(source, kind, nbytes // kind.itemsize, offset).reshape(shape).copy().view(Array)
    return out


def save_param_dict_to_file(params, path):
    """Writes a parameter file; see `save_param_dict`."""
    pathlib.Path(path).write_bytes(bytes_of(params))


def load_param_dict_from_file(path):
    """The dictionary of a parameter file; see `load_param_dict`."""
    return load_param_dict(pathlib.Path(path).read_bytes())
