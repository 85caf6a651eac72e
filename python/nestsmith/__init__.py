"""nestsmith: an auto-scheduler for neural networks. Submodules are imported when they are first used."""

import importlib

from . import nd, runtime, target
from .driver import build
from .runtime import cl, context, cpu, cuda, device, gpu, num_threads, opencl
from .runtime.ndarray import NDArray

__all__ = [
    "NDArray",
    "build",
    "cl",
    "context",
    "cpu",
    "cuda",
    "device",
    "gpu",
    "nd",
    "num_threads",
    "opencl",
    "runtime",
    "target",
]

_SUBMODULES = {
    "te",
    "tir",
    "topi",
    "relay",
    "auto_scheduler",
    "autotvm",
    "contrib",
    "transform",
    "ir",
    "rpc",
    "error",
    "tag",
    "demo",
    "doctor",
    "driver",
}
_ELSEWHERE = {
    "register_func": "registry",
    "get_global_func": "registry",
    "IRModule": "ir",
    "lower": "lowering",
    "progress": "auto_scheduler.display",
}


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _ELSEWHERE:
        module = importlib.import_module(f"{__name__}.{_ELSEWHERE[name]}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
