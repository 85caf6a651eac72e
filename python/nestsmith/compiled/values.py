"""Arrays of users: NumPy's, PyTorch's and our own, into a network and out of it, without a copy where memory allows."""

from __future__ import annotations

import numpy as np

from ..runtime.ndarray import NDArray, from_dlpack

__all__ = ["dtype_of", "fetch", "finish", "host", "is_tensor", "like", "shape_of", "shared"]

ALIGNMENT = 64  # of memory that programs read and write


def is_tensor(value):
    """Whether a value is a PyTorch tensor; PyTorch need not be installed."""
    return hasattr(value, "data_ptr") and hasattr(value, "detach")


def shape_of(value):
    """The shape of an array of any kind as a tuple of ints."""
    return tuple(int(d) for d in (value.shape if hasattr(value, "shape") else np.shape(value)))


def dtype_of(value):
    """The element type of an array of any kind as text: "float32"."""
    dtype = getattr(value, "dtype", None)
    return str(np.asarray(value).dtype if dtype is None else dtype).removeprefix("torch.")


def _address(value):
    return value.data_ptr() if is_tensor(value) else value.__array_interface__["data"][0]


def shared(value, device):
    """An NDArray on the memory of `value`, if a program on `device` can use that as it is; else None."""
    if isinstance(value, NDArray):
        return value if value.device == device else None
    if is_tensor(value):
        kind = {"cpu": 1, "cuda": 2}.get(value.device.type)
        if (kind, value.device.index or 0) != (device.device_type, device.device_id) or not value.is_contiguous():
            return None
    elif device.device_type != 1 or not value.flags.c_contiguous or not value.flags.writeable:
        return None
    if _address(value) % ALIGNMENT or not value.nbytes:
        return None
    return from_dlpack(value.detach() if is_tensor(value) else value)


def like(example, shape, dtype):
    """An array for an output, of the kind of `example` (a tensor: on its device; else NumPy), whose memory is aligned."""
    if is_tensor(example):
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=example.device)
    kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[begin : begin + size].view(kind).reshape(shape)


def host(value):
    """A value as a NumPy array; bfloat16 as its bits."""
    if not is_tensor(value):
        return value.numpy() if isinstance(value, NDArray) else value
    value = value.detach().cpu().contiguous()
    return from_dlpack(value).numpy() if dtype_of(value) == "bfloat16" else value.numpy()


def finish(tensor):
    """Waits until PyTorch has done what it was told to do on a tensor's device: the network runs on a stream of its own."""
    import torch

    torch.cuda.current_stream(tensor.device).synchronize()


def fetch(runtime, index, out, device):
    """Copies an output of a network into `out`, an array made by `like`."""
    if not out.nbytes if not is_tensor(out) else not out.numel():
        return
    here = shared(out, device) or (from_dlpack(out) if is_tensor(out) else None)
    if here is not None:
        runtime.get_output(index, here)
    else:
        entry = runtime.core.outputs()[index][0]
        runtime.core.get(entry, out)
