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


def _submodule(package, name):
    """A module of a package; one that TVM has and we do not have yet is named as such."""
    full = f"{package}.{name}"
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as e:
        if e.name != full:
            raise
        raise ModuleNotFoundError(f"{full} is not there yet; docs/from-tvm.md says what is, and what to do", name=full) from None


def __getattr__(name):
    if name in _SUBMODULES:
        return _submodule(__name__, name)
    if name in _ELSEWHERE:
        module = importlib.import_module(f"{__name__}.{_ELSEWHERE[name]}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
