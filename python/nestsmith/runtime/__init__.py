"""Running programs: devices, arrays, modules, timing."""

import os
import sys

from . import graph
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

# Where pip put NVIDIA's wheels: the engine looks there for NVRTC, in worker processes too.
for _path in sys.path:
    if "NESTSMITH_SITE" not in os.environ and os.path.isdir(os.path.join(_path, "nvidia")):
        os.environ["NESTSMITH_SITE"] = os.path.abspath(_path)
