"""Facts on the build, and helpers of tests."""

import platform

from ._version import __version__
from .runtime import cpu, cuda, enabled, opencl
from .testing.utils import FrontendTestModule

__all__ = ["FrontendTestModule", "describe", "libinfo"]


def libinfo():
    """What is built in, under the names of TVM's build options; "ON" or "OFF"."""
    here = {"USE_LLVM": enabled("llvm"), "USE_CUDA": enabled("cuda"), "USE_OPENCL": enabled("opencl"), "USE_RPC": True, "USE_PROFILER": True,
            "USE_GRAPH_EXECUTOR": True, "USE_RELAY_DEBUG": True}  # fmt: skip
    return {"TVM_VERSION": __version__, **{name: "ON" if yes else "OFF" for name, yes in here.items()}}


def describe():
    """Prints what a report of a fault should say: the release, Python, the machine, its devices."""
    print(f"nestsmith {__version__}, Python {platform.python_version()}, {platform.platform()}")
    for dev in (cpu(0), cuda(0), opencl(0)):
        print(f"{dev}: {dev.device_name if dev.exist else 'not there'}")
    for name, value in libinfo().items():
        print(f"{name}: {value}")
