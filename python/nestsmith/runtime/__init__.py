"""Running programs: devices, arrays, modules, timing."""

import importlib as _importlib
import os
import sys

from .. import _absent
from . import graph, ndarray, params, profiling
from .device import Device, cl, context, cpu, cuda, device, gpu, num_threads, opencl
from .module import BenchmarkResult, Module, OperatorModule, enabled, load_module, load_static_library, system_lib
from .ndarray import NDArray
from .params import load_param_dict, load_param_dict_from_file, save_param_dict, save_param_dict_to_file
from .profiling import Report

__all__ = ["BenchmarkResult", "Device", "Module", "NDArray", "OperatorModule", "Report", "cl", "context", "cpu", "cuda",
           "device", "enabled", "gpu", "load_module", "load_param_dict", "load_param_dict_from_file",
           "load_static_library", "ndarray", "num_threads", "opencl", "params", "profiling", "save_param_dict",
           "save_param_dict_to_file", "system_lib"]

TVMContext = Device


def __getattr__(name):
    if name == "container" or name in ("ADT", "PackedFunc", "ShapeTuple", "String", "const", "convert", "convert_to_object"):
        module = _importlib.import_module(".container", __name__)  # running programs needs no expressions
        return module if name == "container" else getattr(module, name)
    raise _absent.attribute_error(__name__, name)


# Where pip put NVIDIA's wheels: the engine looks there for NVRTC, in worker processes too.
for _path in sys.path:
    if "NESTSMITH_SITE" not in os.environ and os.path.isdir(os.path.join(_path, "nvidia")):
        os.environ["NESTSMITH_SITE"] = os.path.abspath(_path)
