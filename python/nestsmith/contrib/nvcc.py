"""CUDA C to binaries, and what compute capabilities have. NVRTC compiles; a toolkit is not needed."""

import os
import pathlib
import re
import shutil
import subprocess

from ..compiling import compile_source
from ..runtime import cuda
from ..target import Target

__all__ = ["compile_cuda", "find_cuda_path", "get_cuda_version", "get_target_compute_version", "have_bf16",
           "have_cudagraph", "have_fp16", "have_fp8", "have_int8", "have_tensorcore", "parse_compute_version",
           "tvm_callback_cuda_compile"]


def compile_cuda(code, target_format="cubin", arch=None, options=None, path_target=None):
    """The binary of a text in CUDA C.

    Parameters
    ----------
    code : str
    target_format : str
        "cubin"; the driver loads it. Raises ValueError for "ptx" and "fatbin".
    arch : str, optional
        "sm_80"; without it that of the current target, or of the GPU at hand.
    options : list of str, optional
        Must be empty.
    path_target : str, optional
        A file that is written, too.

    Returns
    -------
    bytearray

    Raises
    ------
    TVMError
        With the compiler's messages.
    """
    if target_format != "cubin":
        raise ValueError(f"target_format is {target_format!r}; binaries are made as 'cubin'")
    if options:
        raise ValueError(f"options is {options!r}; programs are compiled with the package's own options")
    if isinstance(arch, (list, tuple)):
        raise ValueError(f"arch is {arch!r}; a binary is made for one architecture, such as 'sm_80'")
    if arch is None:
        arch = "sm_" + "".join(map(str, parse_compute_version(get_target_compute_version(Target.current(allow_none=True)))))
    binary, _ = compile_source(Target(f"cuda -arch={arch}"), code, "compile_cuda")
    if path_target:
        pathlib.Path(path_target).write_bytes(binary)
    return bytearray(binary)


def tvm_callback_cuda_compile(code, target=None):
    """`compile_cuda` for a target."""
    return compile_cuda(code, arch=target.arch if target is not None else None)


def find_cuda_path():
    """The folder of the CUDA toolkit. Raises RuntimeError if there is none."""
    for place in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if place and os.path.isdir(place):
            return place
    nvcc = shutil.which("nvcc")
    if nvcc:
        return os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    raise RuntimeError("no CUDA toolkit was found; set CUDA_PATH. Programs need none: NVRTC compiles them")


def get_cuda_version(cuda_path=None):
    """The release of the CUDA toolkit, such as "12.4". Raises RuntimeError if there is none."""
    nvcc = os.path.join(cuda_path or find_cuda_path(), "bin", "nvcc")
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as e:
        raise RuntimeError(f"cannot run {nvcc}: {e}") from None
    found = re.search(r"release (\d+\.\d+)", said)
    if not found:
        raise RuntimeError(f"{nvcc} --version says no release")
    return found[1]


def parse_compute_version(compute_version):
    """(major, minor) of "8.6". Raises ValueError for other texts."""
    found = re.fullmatch(r"(\d+)\.(\d+)", str(compute_version))
    if not found:
        raise ValueError(f"compute_version is {compute_version!r}; it looks like '8.6'")
    return int(found[1]), int(found[2])


def get_target_compute_version(target=None):
    """The compute capability of a target, such as "8.6": by its arch, else that of the GPU at hand. Raises ValueError if neither is known."""
    target = target or Target.current(allow_none=True)
    found = re.fullmatch(r"sm_(\d+)(\d)[a-z]*", getattr(target, "arch", None) or "")
    if found:
        return f"{found[1]}.{found[2]}"
    if cuda(0).exist:
        return cuda(0).compute_version
    raise ValueError("no CUDA architecture is known: give the target's -arch, such as 'cuda -arch=sm_80'")


def have_fp16(compute_version):
    """Whether this capability computes in float16."""
    return parse_compute_version(compute_version) >= (5, 3)


def have_int8(compute_version):
    """Whether it has products of four bytes (dp4a)."""
    return parse_compute_version(compute_version) >= (6, 1)


def have_bf16(compute_version):
    """Whether it computes in bfloat16."""
    return parse_compute_version(compute_version) >= (8, 0)


def have_fp8(compute_version):
    """Whether it has numbers of 8 bits."""
    return parse_compute_version(compute_version) >= (8, 9)


def have_tensorcore(compute_version=None, target=None):
    """Whether it has tensor cores; by a target's arch, or the GPU at hand, if no capability is given."""
    if compute_version is None:
        try:
            compute_version = get_target_compute_version(target)
        except ValueError:
            return False
    return parse_compute_version(compute_version)[0] >= 7


def have_cudagraph():
    """Whether networks are replayed as CUDA graphs: wherever there is a GPU."""
    return cuda(0).exist
