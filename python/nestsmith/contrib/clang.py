"""C to LLVM's text by the system's clang, at TVM's place."""

import os
import pathlib
import shutil
import subprocess

from .utils import tempdir

__all__ = ["create_llvm", "find_clang"]


def find_clang(required=True):
    """Paths of clang, newest first. Raises RuntimeError if there is none and `required` is true."""
    names = ["clang", *[f"clang-{v}" for v in range(25, 3, -1)]]
    found = [p for p in map(shutil.which, names) if p]
    if not found and required:
        raise RuntimeError("cannot find clang; install it, or compile C with nestsmith.contrib.cc")
    return found


def create_llvm(inputs, output=None, options=None, cc=None):
    """The text of LLVM of a C source.

    Parameters
    ----------
    inputs : str or list of str
        Sources, or files.
    output : str, optional
        Where it is written, too.
    options : list of str, optional
        Further arguments of clang.
    cc : str, optional
        Which clang.

    Returns
    -------
    str

    Raises
    ------
    RuntimeError
        With the compiler's output if it fails, or if there is no clang.
    """
    cc = cc or find_clang()[0]
    folder = tempdir()
    output = output or folder.relpath("output.ll")
    files = []
    for i, text in enumerate([inputs] if isinstance(inputs, str) else inputs):
        files.append(text if os.path.isfile(text) else folder.relpath(f"input{i}.cc"))
        if files[-1] != text:
            pathlib.Path(files[-1]).write_text(text, encoding="utf-8")
    run = subprocess.run([cc, "-S", "-emit-llvm", *(options or []), "-o", output, *files], capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{cc} failed:\n{run.stdout}{run.stderr}")
    return pathlib.Path(output).read_text(encoding="utf-8")
