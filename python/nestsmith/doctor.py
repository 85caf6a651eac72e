"""What is installed, what is missing, and the command that mends it: ``python -m nestsmith.doctor``."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import time

from nestsmith import _core

__all__ = ["main", "findings"]


def _gib(n):
    return f"{n / 2**30:.1f} GiB"


def _compiler():
    ok, text = _core.build_available((0, 0, 1))
    if not ok:
        return "missing", "C compiler", text
    start = time.time()
    try:
        _core.build((0, 0, 1), f"int doctor_{os.getpid()};", 30, "")
    except (RuntimeError, OSError) as e:
        return (
            "broken",
            "C compiler",
            f"{text} does not compile: {str(e).splitlines()[0]}; reinstall it (`apt install gcc libc6-dev`)",
        )
    return (
        "ok",
        "C compiler",
        f"{text} ({shutil.which(text.split()[0]) or text}), {time.time() - start:.2f} s for an empty program",
    )


def _nvrtc():
    ok, text = _core.build_available((1, 0, 1))
    if not ok:
        return "missing", "NVRTC", text
    lo, hi = _core.build_sm_range()
    start = time.time()
    try:
        _core.build((1, lo, 1), 'extern "C" __global__ void k(float *x) { x[0] = 1; }', 0, "")
    except RuntimeError as e:
        return (
            "broken",
            "NVRTC",
            f"{text} does not compile: {str(e).splitlines()[0]}; reinstall it (`pip install nvidia-cuda-nvrtc-cu12`)",
        )
    facts = _core.device_query(2, 0)
    version = re.search(r"NVRTC (\d+)", text)
    if facts and version and facts["driver_version"] // 1000 < int(version.group(1)):
        driver = f"{facts['driver_version'] // 1000}.{facts['driver_version'] % 1000 // 10}"
        return (
            "low",
            "NVRTC",
            f"{text} is newer than the driver's CUDA {driver}, which may refuse its programs; update the driver or "
            f"`pip install nvidia-cuda-nvrtc-cu{driver.split('.')[0]}` and unset CUDA_HOME",
        )
    if facts and facts["sm"] > hi:
        return (
            "low",
            "NVRTC",
            f"{text} knows up to sm_{hi}, the GPU is sm_{facts['sm']}: programs are made by the "
            "driver; install a newer NVRTC",
        )
    return "ok", "NVRTC", f"{text}, sm_{lo} to sm_{hi}, {time.time() - start:.2f} s for a small kernel"


def _devices(kind, name, hint):
    rows = []
    for i in range(64):
        facts = _core.device_query(kind, i)
        if facts is None:
            break
        arch = f"sm_{facts['sm']}, " if facts["sm"] else ""
        rows.append(
            (
                "ok",
                f"{name} {i}",
                f"{facts['name']}, {arch}{facts['multiprocessors']} multiprocessors, {_gib(facts['total_bytes'])}",
            )
        )
    return rows or [("missing", name, f"{_core.device_exists(kind, 0)[1]}{hint}")]


def _workers():
    for kind, name in ((1, "cpu"), (2, "cuda"), (4, "opencl")):
        if not _core.device_exists(kind, 0)[0]:
            continue
        start = time.time()
        try:
            worker = _core.Worker(kind, 0)
        except RuntimeError as e:
            yield "broken", f"worker on {name}", str(e).splitlines()[0]
        else:
            yield "ok", f"worker on {name}", f"starts in {time.time() - start:.2f} s"
            worker.close()


def _memory():
    pages, free, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    total = pages * size
    status = "ok" if total > 4 * 2**30 else "low"
    return (
        status,
        "memory",
        f"{_gib(total)}, {_gib(free * size)} free" + ("" if status == "ok" else "; tuning a large network wants 4 GiB"),
    )


def _cache():
    path = os.environ.get("NESTSMITH_CACHE_DIR")
    if path == "":
        return "ok", "cache", "switched off (NESTSMITH_CACHE_DIR is empty)"
    path = path or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "nestsmith")
    there = path
    while not os.path.exists(there):
        there = os.path.dirname(there) or "/"
    if not os.access(there, os.W_OK):
        return "broken", "cache", f"{path} cannot be written; set NESTSMITH_CACHE_DIR to a directory of yours"
    free = shutil.disk_usage(there).free
    if free < 2**30:
        return (
            "low",
            "cache",
            f"{path}: {_gib(free)} free; compiled programs want up to 2 GiB (limit them with NESTSMITH_CACHE_MB)",
        )
    return "ok", "cache", f"{path}, {_gib(free)} free"


def findings():
    """All findings as (status, subject, text); status is "ok", "missing", "broken" or "low"."""
    facts = _core.device_query(1, 0)
    rows = [
        ("ok", "python", f"{platform.python_version()} ({sys.executable}), {platform.system()} {platform.machine()}"),
        ("ok", "cpu", f"{facts['name']}, programs use {facts['multiprocessors']} threads"),
        _memory(),
        _compiler(),
        _nvrtc(),
    ]
    rows += _devices(
        2, "cuda", "; install the driver from your distribution (`apt install nvidia-driver`) and try `nvidia-smi`"
    )
    rows += _devices(4, "opencl", "")
    rows += list(_workers())
    rows.append(_cache())
    return rows


def main(argv=None):
    """Prints the findings. Returns 0 if programs can be compiled and run on the CPU at least, else 1."""
    rows = findings()
    for status, subject, text in rows:
        print(f"{status:8s} {subject:18s} {text}")
    state = {subject: status for status, subject, _ in rows}
    usable = [
        n
        for n, parts in (
            ("CPU", ("C compiler", "worker on cpu")),
            ("CUDA", ("NVRTC", "worker on cuda")),
            ("OpenCL", ("worker on opencl",)),
        )
        if all(state.get(p) in ("ok", "low") for p in parts)
    ]
    print("\nready for: " + (", ".join(usable) or "nothing yet; see the lines above"))
    return 0 if "CPU" in usable else 1


if __name__ == "__main__":
    sys.exit(main())
