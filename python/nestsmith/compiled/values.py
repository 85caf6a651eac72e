"""Arrays of users: NumPy's, PyTorch's and our own, into a network and out of it, without a copy where memory allows."""

import functools
import sys

import numpy as np

from ..numerics import stored
from ..runtime.ndarray import NDArray, from_dlpack

__all__ = ["REMEDY", "dtype_of", "finish", "holds", "host", "is_tensor", "lies_in", "maker", "shape_of", "shared", "target", "unusual"]

ALIGNMENT = 64  # of memory that programs read and write


def is_tensor(value):
    """Whether a value is a PyTorch tensor; PyTorch need not be installed."""
    return hasattr(value, "data_ptr") and hasattr(value, "detach")


# Tensors of PyTorch without a place in memory for each element, and what to do.
REMEDY = {"a nested tensor": "pad it, to_padded_tensor(0.0)", "a sparse tensor": "give to_dense()",
          "a tensor of the device meta": "it has no values; make it on a real device",
          "a quantized tensor": "give dequantize() or int_repr()"}


def unusual(value):
    """Which of `REMEDY` a value is, or None."""
    if not is_tensor(value):
        return None
    if value.is_nested:
        return "a nested tensor"
    if value.is_quantized:
        return "a quantized tensor"
    if value.is_meta:
        return "a tensor of the device meta"
    return "a sparse tensor" if value.layout is not sys.modules["torch"].strided else None


def shape_of(value):
    """The shape of an array of any kind as a tuple of ints."""
    return tuple(int(d) for d in (value.shape if hasattr(value, "shape") else np.shape(value)))


def dtype_of(value):
    """The element type of an array of any kind as text: "float32"."""
    dtype = getattr(value, "dtype", None)
    return str(np.asarray(value).dtype if dtype is None else dtype).removeprefix("torch.")


def holds(value, dtype):
    """Whether the elements of an array are of the type `dtype` of an input; bfloat16, which NumPy lacks, may come as its bits."""
    got = dtype_of(value)
    return got == dtype or got == stored(dtype).name


def _address(value):
    if isinstance(value, NDArray):
        return value.buffer.address
    return value.data_ptr() if is_tensor(value) else value.__array_interface__["data"][0]


def shared(value, device):
    """An NDArray on the memory of `value`, if a program on `device` can use that as it is; else None."""
    if isinstance(value, NDArray):
        usable = value.device == device and (device.device_type != 1 or _address(value) % ALIGNMENT == 0)
        return value if usable else None
    if is_tensor(value):
        if not _lies_on(value, device) or not value.is_contiguous():
            return None
    elif device.device_type != 1 or not value.flags.c_contiguous or not value.flags.writeable:
        return None
    if _address(value) % ALIGNMENT or not value.nbytes:
        return None
    return from_dlpack(value.detach() if is_tensor(value) else value)


def lies_in(value, buffer):
    """Whether an array of an input's shape and type is just what `buffer`, a Buffer in memory of the host, lends the network."""
    if buffer is None or isinstance(value, NDArray):
        return False
    if is_tensor(value):
        return value.is_cpu and value.is_contiguous() and value.data_ptr() == buffer.address
    return value.flags.c_contiguous and _address(value) == buffer.address


def _lies_on(tensor, device):
    kind = {"cpu": 1, "cuda": 2}.get(tensor.device.type)
    return (kind, tensor.device.index or 0) == (device.device_type, device.device_id)


def maker(example, shape, dtype, device):
    """A function that makes arrays for an output of a network on `device`, whose memory is aligned. If `example` is a tensor:
    tensors, on the network's device if `example` is there, else in memory of the host; otherwise NumPy's."""
    if is_tensor(example):
        import torch

        where = example.device if _lies_on(example, device) else torch.device("cpu")
        return functools.partial(torch.empty, shape, dtype=getattr(torch, dtype), device=where)
    kind = stored(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize

    def make():
        memory = np.empty(size + ALIGNMENT, np.uint8)
        begin = -memory.__array_interface__["data"][0] % ALIGNMENT
        return memory[begin : begin + size].view(kind).reshape(shape)

    return make


def _bits(tensor):
    """A tensor in memory of the host as an array on the same memory; bfloat16, which NumPy lacks, as its bits."""
    try:
        return tensor.numpy()
    except TypeError:
        import torch

        return tensor.view(torch.int16).numpy()


def host(value):
    """A value as a compact NumPy array; bfloat16 as its bits."""
    if is_tensor(value):
        return _bits(value.detach().cpu().contiguous())
    return value.numpy() if isinstance(value, NDArray) else np.ascontiguousarray(value)


def finish(given):
    """Waits until PyTorch has done what it was told to do on the GPUs of tensors: the network runs on a stream of its own."""
    for device in {v.device for v in given if is_tensor(v) and v.device.type == "cuda"}:
        import torch

        torch.cuda.current_stream(device).synchronize()


def target(out, device):
    """What an output of a network on `device` is copied into, so that it lies in `out`, an array that `maker` made."""
    if not is_tensor(out):
        return out
    return _bits(out) if out.is_cpu else shared(out, device).buffer
