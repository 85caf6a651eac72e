"""Linking for Android with the NDK's compiler."""

import os

from . import cc

__all__ = ["create_shared"]


def _compiler():
    for name in ("NESTSMITH_NDK_CC", "TVM_NDK_CC"):
        if os.environ.get(name):
            return os.environ[name]
    raise RuntimeError("set NESTSMITH_NDK_CC to the NDK's compiler, e.g. "
                       ".../toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android28-clang")


def create_shared(output, objects, options=None):
    """Links objects into a shared library for Android. Raises `RuntimeError` if NESTSMITH_NDK_CC (or TVM_NDK_CC) is
    not set."""
    cc.create_shared(output, objects, options, cc=_compiler())


create_shared.output_format = "so"  # type: ignore[attr-defined]
create_shared.compiler = _compiler  # type: ignore[attr-defined]
