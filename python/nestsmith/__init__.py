"""nestsmith: an auto-scheduler for neural networks. Submodules are imported when they are first used."""

import functools as _functools
import importlib as _importlib
import pkgutil as _pkgutil

from . import _absent, _load
from ._version import __version__

try:
    from . import _core, nd, runtime, target
    from .error import TVMError
    from .runtime import cl, context, cpu, cuda, device, gpu, num_threads, opencl
    from .runtime.ndarray import NDArray
except ImportError as _error:
    if not _load.asked_by_doctor():
        raise ImportError(_load.explain(_error)) from _error

__all__ = ["NDArray", "TVMError", "cl", "context", "cpu", "cuda", "device", "gpu", "nd", "num_threads", "opencl",
           "runtime", "target"]

_ELSEWHERE = {"register_func": "registry", "get_global_func": "registry", "IRModule": "ir", "container": "runtime",
              "build": "driver", "lower": "driver", "compile": "compiled", "load": "compiled",
              "progress": "auto_scheduler.display"}


@_functools.cache
def _submodules():
    return frozenset(m.name for m in _pkgutil.iter_modules(__path__) if not m.name.startswith("_") or m.name == "_ffi")


def __getattr__(name):
    if name in _ELSEWHERE:
        return getattr(_importlib.import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    if name in _submodules():
        return _importlib.import_module(f"{__name__}.{name}")
    raise _absent.attribute_error(__name__, name)


def __dir__():
    return sorted({*globals(), *_ELSEWHERE, *_submodules()})
