"""What is installed, what is missing, and the command that mends it: ``python -m nestsmith.doctor``."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
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


def _users():
    """Processes that use a GPU, as the driver's own tool tells them."""
    tool = shutil.which("nvidia-smi")
    if tool is None or _core.device_query(2, 0) is None:
        return
    try:
        text = subprocess.run(
            [tool, "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return
    rows = [r for r in text.splitlines() if r.strip() and r.split(",")[0].strip() != str(os.getpid())]
    if rows:
        yield (
            "low",
            "GPU in use",
            f"by {'; '.join(r.strip() for r in rows[:4])}: timings are noisy and memory may run out; stop it, wait, "
            "or choose another GPU with CUDA_VISIBLE_DEVICES",
        )


def _folder():
    free = shutil.disk_usage(".").free
    if not os.access(".", os.W_OK):
        return "low", "folder", f"{os.getcwd()} may not be written: give RecordToFile a path of yours"
    if free < 2**28:
        return "low", "folder", f"{os.getcwd()}: {_gib(free)} free; logs need room: see `df -h .` and delete something"
    return "ok", "folder", f"{os.getcwd()}, {_gib(free)} free"


def log_findings(path):
    """Whether a tuning log fits the devices of this machine; rows as in :func:`findings`."""
    from collections import Counter

    from nestsmith.auto_scheduler.measure_record import RecordReader
    from nestsmith.target import Target

    if not os.path.isfile(path):
        return [("missing", "log", f"{path} does not exist; tune first, or check the path")]
    targets = Counter(fields[1] for fields in RecordReader(path)._fields() if fields[8] == 0)
    if not targets:
        return [("low", "log", f"{path} holds no valid record; tune longer")]
    facts, rows = _core.device_query(2, 0), []
    for text, n in targets.items():
        target = Target(text)
        arch, here = str(target.attrs.get("arch") or ""), f"sm_{facts['sm']}" if facts else ""
        if target.kind.name != "cuda":
            rows.append(("ok", "log", f"{n} valid records for {text}"))
        elif not here:
            rows.append(("low", "log", f"{n} valid records for {text}, but there is no such GPU here"))
        elif arch and arch != here:
            rows.append(("low", "log", f"{n} valid records for {arch}, the GPU here is {here}: they run, slowly; "
                         "tune here with another log file"))
        else:
            rows.append(("ok", "log", f"{n} valid records for {text}"))
    return rows


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
    rows += list(_users())
    rows.append(_cache())
    rows.append(_folder())
    return rows


def main(argv=None):
    """Prints the findings. Returns 0 if programs can be compiled and run on the CPU at least, else 1."""
    parser = argparse.ArgumentParser(prog="python -m nestsmith.doctor", description=__doc__)
    parser.add_argument("--log", action="append", default=[], help="also look whether this tuning log fits the devices")
    rows = findings()
    for path in parser.parse_args(argv).log:
        rows += log_findings(path)
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
