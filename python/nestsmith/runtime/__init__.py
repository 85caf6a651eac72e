"""Running programs: devices, arrays, modules, timing."""

from .device import Device, cl, context, cpu, cuda, device, gpu, num_threads, opencl
from .module import BenchmarkResult, Module, OperatorModule, enabled, load_module, system_lib
from .ndarray import NDArray

__all__ = [
    "Device",
    "device",
    "context",
    "cpu",
    "cuda",
    "gpu",
    "opencl",
    "cl",
    "NDArray",
    "Module",
    "OperatorModule",
    "BenchmarkResult",
    "load_module",
    "system_lib",
    "enabled",
    "num_threads",
]

TVMContext = Device
