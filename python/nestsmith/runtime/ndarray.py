"""Arrays on devices."""

import numpy as np

from nestsmith import _core
from nestsmith.numerics import stored

from .device import Device, cpu, device as _device

__all__ = ["NDArray", "array", "empty", "from_dlpack", "numpyasarray", "device", "context", "cpu", "cuda", "gpu",
           "opencl"]

from .device import context, cuda, gpu, opencl  # noqa: E402

device = _device

# dtype: (NumPy type, DLPack code, bits)
_DTYPES = {
    **{f"int{b}": (np.dtype(f"int{b}"), 0, b) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (np.dtype(f"uint{b}"), 1, b) for b in (8, 16, 32, 64)},
    **{f"float{b}": (np.dtype(f"float{b}"), 2, b) for b in (16, 32, 64)},
    "bfloat16": (stored("bfloat16"), 4, 16),
    "bool": (np.dtype("bool"), 6, 8),
}
_PAGE_LOCKED = 3  # DLPack's device of memory of the host that CUDA has locked: programs of the CPU use it as any other
_FROM_DLPACK = {(code, bits): name for name, (_, code, bits) in _DTYPES.items()}


def _check_dtype(dtype):
    name = dtype if isinstance(dtype, str) and dtype in _DTYPES else None
    if name is None:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = str(dtype)
    if name not in _DTYPES:
        raise ValueError(f"dtype {name!r} is not supported; supported are {', '.join(_DTYPES)}")
    return name


def _check_shape(shape):
    if isinstance(shape, (int, np.integer)):
        shape = shape,
    out = tuple(int(s) for s in shape)
    if any(s < 0 for s in out):
        raise ValueError(f"shape {out} has a negative extent")
    return out


class NDArray:
    """An array on a device: compact, row-major. Made with `array`, `empty` or `from_dlpack`."""

    __slots__ = "_buffer", "shape", "dtype", "device", "__weakref__"

    def __init__(self, buffer, shape, dtype, device):
        self._buffer, self.shape, self.dtype, self.device = buffer, shape, dtype, device

    ctx = property(lambda self: self.device, doc="Old name of `device`.")
    ndim = property(lambda self: len(self.shape), doc="Number of axes.")
    size = property(lambda self: int(np.prod(self.shape, dtype=np.int64)), doc="Number of elements.")
    nbytes = property(lambda self: self.size * _DTYPES[self.dtype][0].itemsize, doc="Size in bytes.")
    buffer = property(lambda self: self._buffer, doc="The engine's buffer.")

    def numpy(self):
        """A NumPy copy; waits for the device. bfloat16 comes as uint16 bits."""
        out = np.empty(self.shape, _DTYPES[self.dtype][0])
        if out.size:
            self._buffer.download(out)
        return out

    asnumpy = numpy

    def __array__(self, dtype=None, copy=None):
        out = self.numpy()
        return out if dtype is None else out.astype(dtype)

    def copyfrom(self, source):
        """Copies an array of the same shape into this one; another dtype is converted.

        Raises `ValueError` naming both shapes if they differ. Returns self.
        """
        if isinstance(source, NDArray):
            source.copyto(self)
            return self
        want = _DTYPES[self.dtype][0]
        data = np.asarray(source)
        if data.shape != self.shape:
            raise ValueError(f"cannot copy an array of shape {data.shape} into one of shape {self.shape}")
        data = np.ascontiguousarray(data, dtype=want).reshape(self.shape)
        if data.size:
            self._buffer.upload(data)
        return self

    def copyto(self, target, mem_scope=None):
        """Copies to another array (same shape) or to a device (a new array). Returns the target array. Raises TypeError for
        something else and ValueError for another shape.
        """
        if isinstance(target, Device):
            target = uninitialised(self.shape, self.dtype, target)
        if not isinstance(target, NDArray):
            raise TypeError(f"copyto takes an NDArray or a Device, not {type(target).__name__}")
        if target.shape != self.shape:
            raise ValueError(f"cannot copy an array of shape {self.shape} into one of shape {target.shape}")
        if not self.size:
            return target
        if target.dtype == self.dtype and target.device == self.device and target._buffer.nbytes == self._buffer.nbytes:
            target._buffer.copy_from(self._buffer)
            return target
        target._buffer.upload(np.ascontiguousarray(self.numpy().astype(_DTYPES[target.dtype][0], copy=False)))
        return target

    def __setitem__(self, index, value):
        if not (isinstance(index, slice) and index == slice(None)):
            raise ValueError("only the whole array can be assigned, as in x[:] = value; copy with numpy() to change a "
                             "part")
        if isinstance(value, (int, float, bool, np.generic)):
            value = np.full(self.shape, value)
        self.copyfrom(value)

    def __getitem__(self, index):
        return self.numpy()[index]

    def __len__(self):
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def _create_view(self, shape):
        """The same memory under another shape of as many elements. Raises ValueError."""
        shape = _check_shape(shape)
        if bytes_of(shape, self.dtype) != self.nbytes:
            raise ValueError(f"an array of shape {self.shape} cannot be viewed as {shape}: {self.size} elements are not as many")
        return NDArray(self._buffer, shape, self.dtype, self.device)

    def same_as(self, other):
        """Whether both are the same memory."""
        return isinstance(other, NDArray) and self._buffer is other._buffer

    def __dlpack__(self, stream=None, **_):
        """A DLPack capsule that shares the memory."""
        self.device.sync()
        _, code, bits = _DTYPES[self.dtype]
        return self._buffer.dlpack(self.shape, code, bits)

    to_dlpack = __dlpack__

    def __dlpack_device__(self):
        return self.device.device_type, self.device.device_id

    def __repr__(self):
        return f"<nestsmith.nd.NDArray shape={self.shape}, {self.device}>\n{self.numpy()!r}"

    def __str__(self):
        return str(self.numpy())

    def __reduce__(self):
        return _restore, (self.numpy(), self.dtype)


def _restore(data, dtype):
    return uninitialised(data.shape, dtype).copyfrom(data)


def empty(shape, dtype="float32", device=None, mem_scope=None):
    """An array of zeros: memory that nobody has written to is not shown. Raises `ValueError` for a bad shape or dtype,
    `MemoryError` when the device is full."""
    out = uninitialised(shape, dtype, device)
    if out.size:
        out._buffer.fill(0)
    return out


def bytes_of(shape, dtype):
    """Size of an array. Raises ValueError for a bad shape or dtype."""
    return int(np.prod([int(s) for s in shape], dtype=object)) * _DTYPES[_check_dtype(dtype)][0].itemsize


def uninitialised(shape, dtype="float32", device=None):
    """As `empty`, for a caller that writes all of the array before anyone sees it. Raises MemoryError for a size that no
    memory has."""
    device = cpu(0) if device is None else _device(device)
    shape, dtype = _check_shape(shape), _check_dtype(dtype)
    nbytes = bytes_of(shape, dtype)
    if nbytes >= 2**62:
        raise MemoryError(f"an array of shape {shape} and dtype {dtype} does not fit into any memory")
    return NDArray(device.handle().alloc(nbytes), shape, dtype, device)


def array(arr, device=None, mem_scope=None):
    """An array with a copy of anything NumPy can convert; its dtype is kept. Raises ValueError for a dtype
    that devices do not have.
    """
    device = cpu(0) if device is None else _device(device)
    if isinstance(arr, NDArray):
        return arr.copyto(uninitialised(arr.shape, arr.dtype, device))
    if hasattr(arr, "detach") and hasattr(arr, "cpu"):  # a torch tensor, which may need both before NumPy may look at it
        arr = arr.detach().cpu()
    data = np.asarray(arr)
    if data.dtype.name not in _DTYPES:
        raise ValueError(f"cannot make an array of {data.dtype}; supported are {', '.join(_DTYPES)}")
    return uninitialised(data.shape, data.dtype.name, device).copyfrom(data)


def numpyasarray(arr):
    """A CPU array from a NumPy array (a copy: programs need aligned memory)."""
    return array(arr)


def from_dlpack(source):
    """An array that shares the memory of a DLPack capsule or of an object with ``__dlpack__`` (PyTorch, CuPy, JAX ...).

    Raises `ValueError` if the tensor is not contiguous or its type is not supported.
    """
    if hasattr(source, "__dlpack__"):
        where = source.__dlpack_device__()
        capsule = source.__dlpack__(stream=1) if int(where[0]) == 2 else source.__dlpack__()
    else:
        capsule = source
        where = _core.dlpack_device(capsule)
    dev = Device(1, 0) if int(where[0]) == _PAGE_LOCKED else Device(int(where[0]), int(where[1]))
    buffer, shape, code, bits = _core.from_dlpack(capsule, dev.handle())
    if (code, bits) not in _FROM_DLPACK:
        raise ValueError(f"the DLPack type (code {code}, {bits} bits) is not supported")
    return NDArray(buffer, shape, _FROM_DLPACK[code, bits], dev)
