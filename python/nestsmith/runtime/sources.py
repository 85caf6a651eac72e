"""A network as C, CUDA C or OpenCL C: a folder that builds without nestsmith."""

import os
import pathlib
import shlex
import shutil

from .. import _core
from ..contrib.cc import compiler_for, machine
from .params import load_param_dict, save_param_dict

__all__ = ["export_source"]

_FIXED = pathlib.Path(__file__).with_name("source")
_MAKE = """# {title}
# Build: make
# Run: ./network INPUT.bin ... OUTPUT.bin ...
# ./network without arguments lists the inputs and outputs.

CC = {cc}
CFLAGS = -std=c11 -O2 -Wall -Wextra
{settings}
OBJECTS = network.o main.o device.o{objects}
network: $(OBJECTS){programs}
\t$(CC) -o $@ $(OBJECTS) {link}
%.o: %.c network.h
\t$(CC) $(CFLAGS) -c -o $@ $<
{rule}clean:
\trm -f network *.o kernels/*.o kernels/*.cubin
"""


def _for_c(target, kernels, cc):
    arch = machine(cc)
    flags = _core.cc_flags(target.engine(), cc, None if arch == os.uname().machine else arch)[2:]  # without -x c
    flags = shlex.join(f for f in flags if f not in ("-w", "-pipe", "-fPIC"))
    return {"settings": f"OPENMP = -fopenmp\nCFLAGS += $(OPENMP)\nKERNEL_FLAGS = {flags}", "link": "$(OPENMP) -lm",
            "objects": "".join(f" kernels/{k.name}.o" for k in kernels),
            "rule": "kernels/%.o: kernels/%.c\n\t$(CC) $(KERNEL_FLAGS) -c -o $@ $<\n"}  # fmt: skip


def _for_cuda(target, kernels, cc):
    sm = str(target.attrs.get("arch") or "sm_80").removeprefix("sm_")
    fast = " --use_fast_math" if target.attrs.get("fast_math") == "aggressive" else ""
    wide = "".join(f"\nkernels/{k.name}.cubin: SM = {sm}a" for k in kernels if "wgmma" in k.source)
    return {"settings": f"NVCC = nvcc\nNVCC_FLAGS = -std=c++17{fast}\nSM = {sm}{wide}", "link": "-L/usr/local/cuda/lib64/stubs -lcuda",
            "programs": "".join(f" kernels/{k.name}.cubin" for k in kernels),
            "rule": "kernels/%.cubin: kernels/%.cu\n\t$(NVCC) $(NVCC_FLAGS) -arch=sm_$(SM) -cubin -o $@ $<\n"}  # fmt: skip


def _for_opencl(target, kernels, cc):
    return {"settings": "OPENCL = -lOpenCL", "link": "$(OPENCL)"}


_LANGUAGES = {1: ("c", "c", _for_c), 2: ("cuda", "cu", _for_cuda), 4: ("opencl", "cl", _for_opencl)}


def export_source(lib, folder):
    """Writes a network into a folder as source: see `GraphExecutorFactoryModule.export_source`."""
    folder, kernels = pathlib.Path(folder), list(lib.kernels.values())
    device, suffix, parts = _LANGUAGES[lib.target.kind.device_type]
    cc = compiler_for(lib.target, None) if device == "c" else "cc"
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    (folder / "network.c").write_text(_core.network_source(lib.to_bytes(True)))
    for name, to in (("network.h", "network.h"), ("main.c", "main.c"), (f"device_{device}.c", "device.c")):
        shutil.copyfile(_FIXED / name, folder / to)
    head = "#pragma nv_diag_suppress 177, 550  // indices and values that a kernel does not use\n" if device == "cuda" else ""
    for k in kernels:
        (folder / "kernels" / f"{k.name}.{suffix}").write_text(head + k.source)
    with open(folder / "weights.bin", "wb") as f:
        f.writelines(v.tobytes() for v in load_param_dict(save_param_dict(lib.get_params())).values())
    words = {"objects": "", "programs": "", "rule": "", **parts(lib.target, kernels, cc)}
    (folder / "Makefile").write_text(_MAKE.format(title=lib.libmod_name, cc=cc, **words))
    return str(folder)
