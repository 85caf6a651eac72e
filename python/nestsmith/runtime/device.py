"""Devices: where arrays live and programs run."""

from __future__ import annotations

import os
import threading

from nestsmith import _core

from ..error import TVMError

__all__ = ["Device", "device", "context", "cpu", "cuda", "gpu", "opencl", "cl", "num_threads"]

_TYPES = {"llvm": 1, "c": 1, "cpu": 1, "stackvm": 1, "ext_dev": 1, "hybrid": 1, "composite": 1, "cuda": 2, "nvptx": 2,
          "gpu": 2, "cl": 4, "opencl": 4, "sdaccel": 4, "aocl": 4, "aocl_sw_emu": 4, "vulkan": 7, "metal": 8, "vpi": 9,
          "rocm": 10}
_NAMES = {1: "cpu", 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 9: "vpi", 10: "rocm"}
_open: dict[tuple[int, int], _core.Device] = {}
_lock = threading.Lock()


def _new_lock():
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)  # another thread of the parent may hold it


def _reported(name, doc):
    """A property of devices: something that the driver says."""
    return property(lambda self: self._fact(name), doc=doc)


class Device:
    """A device by type and number. Made with `device`, `cpu`, `cuda` or `opencl`; the device itself is opened when
    needed.

    Properties are read live and are None where the driver cannot say.

    Parameters
    ----------
    device_type : int
        1 CPU, 2 CUDA, 4 OpenCL.
    device_id : int

    Raises
    ------
    ValueError
        If the number is negative.
    """

    __slots__ = "device_type", "device_id"

    def __init__(self, device_type, device_id=0):
        self.device_type, self.device_id = int(device_type), int(device_id)
        if self.device_id < 0:
            raise ValueError(f"device number {device_id} is negative")

    def handle(self):
        """The engine's device, opened once per process. Raises `TVMError` saying what is missing."""
        key = self.device_type, self.device_id
        with _lock:
            if key not in _open:
                if self.device_type not in (1, 2, 4):
                    raise TVMError(f"{self}: {_NAMES.get(self.device_type, 'this')} devices are not supported; "
                                   "supported are cpu, cuda and opencl")
                _open[key] = _core.Device(*key)
            return _open[key]

    def _fact(self, name):
        facts = _core.device_query(self.device_type, self.device_id)
        return (facts[name] or None) if facts else None

    @property
    def exist(self):
        """Whether the device is there. Never raises."""
        return _core.device_exists(self.device_type, self.device_id)[0]

    @property
    def why_not(self):
        """What was looked for and where, if the device does not exist; else ""."""
        return _core.device_exists(self.device_type, self.device_id)[1]

    @property
    def compute_version(self):
        """CUDA: "9.0" and the like; else None."""
        sm = self._fact("sm")
        return f"{sm // 10}.{sm % 10}" if sm else None

    @property
    def max_thread_dimensions(self):
        """Limits of the block's extents [x, y, z]."""
        return self._fact("max_dims") and list(self._fact("max_dims"))

    device_name = _reported("name", 'Name that the driver gives, e.g. "NVIDIA H100".')
    warp_size = _reported("warp_size", "Threads that run in lock step.")
    max_threads_per_block = _reported("max_threads_per_block", "Limit of threads per block.")
    max_shared_memory_per_block = _reported("max_shared_per_block", "Bytes of static shared memory per block.")
    multi_processor_count = _reported("multiprocessors", "Multiprocessors (CPU: threads that programs use).")
    max_clock_rate = _reported("clock_khz", "Clock in kHz.")
    l2_cache_size_bytes = _reported("l2_bytes", "Size of the last-level cache.")
    total_global_memory = _reported("total_bytes", "Bytes of memory of the device.")
    api_version = _reported("driver_version", "Version of the driver's interface.")
    driver_version = api_version

    def sync(self, stream=None):
        """Waits until the device has done all it was given."""
        if self.device_type != 1:
            self.handle().sync()

    def __eq__(self, other):
        return isinstance(other, Device) and (self.device_type, self.device_id) == (other.device_type, other.device_id)

    def __hash__(self):
        return hash((self.device_type, self.device_id))

    def __repr__(self):
        return f"{_NAMES.get(self.device_type, self.device_type)}({self.device_id})"

    def __reduce__(self):
        return Device, (self.device_type, self.device_id)


def device(dev_type, dev_id=0):
    """The device of a name ("cuda", "cpu", "opencl", ...), "cuda:1", or a whole target string, of which the first
    word counts.

    Raises `ValueError` for an unknown name or a malformed number.
    """
    if isinstance(dev_type, Device):
        return dev_type
    if isinstance(dev_type, int):
        return Device(dev_type, dev_id)
    if hasattr(dev_type, "kind"):
        return Device(dev_type.kind.device_type, dev_id)
    if not isinstance(dev_type, str) or not dev_type.strip():
        raise ValueError(f'a device is named by a string such as "cuda" or "cpu", not {dev_type!r}')
    name, *number = dev_type.split()[0].split(":")
    if number:
        if len(number) > 1 or not number[0].isdigit():
            raise ValueError(f'{dev_type!r} is not a device; write for example "cuda:1"')
        dev_id = int(number[0])
    if name not in _TYPES:
        raise ValueError(f"unknown device {name!r}; names are {', '.join(sorted(_TYPES))}")
    return Device(_TYPES[name], dev_id)


context = device


def cpu(dev_id=0):
    """The CPU."""
    return Device(1, dev_id)


def cuda(dev_id=0):
    """An NVIDIA GPU."""
    return Device(2, dev_id)


def gpu(dev_id=0):
    """Old name of `cuda`."""
    return Device(2, dev_id)


def opencl(dev_id=0):
    """An OpenCL device; GPUs come first."""
    return Device(4, dev_id)


cl = opencl


def num_threads():
    """Threads that CPU programs use: NESTSMITH_NUM_THREADS, TVM_NUM_THREADS, OMP_NUM_THREADS, or the physical cores."""
    facts = _core.device_query(1, 0)
    return facts["multiprocessors"] if facts else os.cpu_count() or 1
