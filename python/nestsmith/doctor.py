"""What is installed, what is missing, and the command that mends it: ``python -m nestsmith.doctor``."""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time

from nestsmith import __version__, _load

try:
    from nestsmith import _core
except ImportError as e:  # what the doctor is asked about in the first place
    _WHY = _load.explain(e)
else:
    _WHY = ""

__all__ = ["main", "findings"]


def _gib(n):
    return f"{n / 2**30:.1f} GiB"


def _compiler():
    ok, text = _core.build_available("llvm")
    if not ok:
        return "missing", "C compiler", text
    start = time.time()
    try:
        _core.build("llvm", f"int doctor_{os.getpid()};", 30, "")
    except (RuntimeError, OSError) as e:
        return ("broken", "C compiler",
                f"{text} does not compile: {str(e).splitlines()[0]}; reinstall it (`apt install gcc libc6-dev`)")
    return ("ok", "C compiler",
            f"{text} ({shutil.which(text.split()[0]) or text}), {time.time() - start:.2f} s for an empty program")


def _nvrtc():
    ok, text = _core.build_available("cuda")
    if not ok:
        return "missing", "NVRTC", text
    lo, hi = _core.build_sm_range()
    start = time.time()
    try:
        _core.build(_core.Target("cuda", sm=lo), 'extern "C" __global__ void k(float *x) { x[0] = 1; }', 0, "")
    except RuntimeError as e:
        return ("broken", "NVRTC",
                f"{text} does not compile: {str(e).splitlines()[0]}; reinstall it (`pip install nvidia-cuda-nvrtc`)")
    facts = _core.device_query(2, 0)
    version = re.search(r"NVRTC (\d+)", text)
    if facts and version and facts["driver_version"] // 1000 < int(version.group(1)):
        driver = f"{facts['driver_version'] // 1000}.{facts['driver_version'] % 1000 // 10}"
        return ("low", "NVRTC",
                f"{text} is newer than the driver's CUDA {driver}, which may refuse its programs; update the driver or "
                f"`pip install nvidia-cuda-nvrtc-cu{driver.split('.')[0]}` and unset CUDA_HOME")
    if facts and facts["sm"] > hi:
        return ("low", "NVRTC",
                f"{text} knows up to sm_{hi}, the GPU is sm_{facts['sm']}: programs are made by the driver; install a "
                "newer NVRTC")
    return "ok", "NVRTC", f"{text}, sm_{lo} to sm_{hi}, {time.time() - start:.2f} s for a small kernel"


def _devices(kind, name, hint):
    rows = []
    for i in range(64):
        facts = _core.device_query(kind, i)
        if facts is None:
            break
        arch = f"sm_{facts['sm']}, " if facts["sm"] else ""
        text = f"{facts['name']}, {arch}{facts['multiprocessors']} multiprocessors, {_gib(facts['total_bytes'])}"
        rows.append(("ok", f"{name} {i}", text))
    if rows:
        return rows
    why = _core.device_exists(kind, 0)[1]
    return [("missing", name, why + (hint if "not installed" in why else ""))]


def _program(kind):
    """Compiles, runs and times ``2 x + 1`` on device 0 of a kind: (median seconds, spread of the repeats)."""
    import numpy as np

    import nestsmith as ns
    from nestsmith import te

    n = 1 << 20
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] * 2.0 + 1.0, name="y")
    schedule = te.create_schedule(y.op)
    if kind == "llvm":
        outer, inner = schedule[y].split(y.op.axis[0], factor=1024)
        schedule[y].parallel(outer)
        schedule[y].vectorize(schedule[y].split(inner, factor=16)[1])
    else:
        outer, inner = schedule[y].split(y.op.axis[0], factor=64)
        schedule[y].bind(outer, te.thread_axis("blockIdx.x"))
        schedule[y].bind(inner, te.thread_axis("threadIdx.x"))
    f = ns.build(schedule, [x, y], kind)
    dev = ns.device(kind, 0)
    data = np.arange(n, dtype="float32")
    a, b = ns.nd.array(data, dev), ns.nd.array(np.zeros(n, "float32"), dev)
    f(a, b)
    if not np.array_equal(b.numpy(), data * 2 + 1):
        raise RuntimeError("a small program gives a wrong result; do not trust this device")
    times = sorted(f.time_evaluator("default_function", dev, number=1, repeat=9, min_repeat_ms=3)(a, b).results)
    return times[4], (times[7] - times[1]) / times[4]


def _programs():
    """A program of each back end that has a device: does it run, and do its times repeat."""
    for number, kind in ((1, "llvm"), (2, "cuda"), (4, "opencl")):
        if not _core.device_exists(number, 0)[0] or not _core.build_available(kind)[0]:
            continue
        name = "cpu" if kind == "llvm" else kind
        try:
            seconds, spread = _program(kind)
        except (RuntimeError, OSError, ValueError) as e:
            yield "broken", f"program on {name}", str(e).splitlines()[0]
            continue
        text = f"compiles, runs, gives the right result; {seconds * 1e6:.0f} us, repeats differ by {spread * 100:.0f} %"
        if spread > 0.25:
            yield "low", f"program on {name}", text + ": other programs run (see `top`); tune when they are done"
        else:
            yield "ok", f"program on {name}", text


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
    text = f"{_gib(total)}, {_gib(free * size)} free"
    return ("ok", "memory", text) if total > 4 * 2**30 else ("low", "memory", text + "; tuning a large network wants 4 GiB")


def _cache():
    path = os.environ.get("NESTSMITH_CACHE_DIR")
    if path == "":
        return "ok", "cache", "switched off (NESTSMITH_CACHE_DIR is empty)"
    path = path or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "nestsmith")
    there = path
    while not os.path.exists(there):
        there = os.path.dirname(there) or "/"
    if not os.path.isdir(there) or not os.access(there, os.W_OK):
        return "broken", "cache", f"{path} cannot be written; set NESTSMITH_CACHE_DIR to a directory of yours"
    st = os.stat(there)
    if there == path and (st.st_uid != os.geteuid() or st.st_mode & 0o022):  # as the engine decides
        return ("broken", "cache",
                f"{path} is not used, for its programs are executed: it belongs to another user, or others may write "
                f"it (`chmod go-w {path}`); or set NESTSMITH_CACHE_DIR to a directory of yours")
    free = shutil.disk_usage(there).free
    if free < 2**30:
        return ("low", "cache",
                f"{path}: {_gib(free)} free; compiled programs want up to 2 GiB (limit them with NESTSMITH_CACHE_MB)")
    return "ok", "cache", f"{path}, {_gib(free)} free"


def _smi(*query):
    """Lines of the driver's own tool, each split at commas; none if it is missing or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        done = subprocess.run([tool, *query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return []
    if done.returncode != 0:
        return []
    return [[x.strip() for x in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def _clocks():
    """Clocks, free memory and power state of the GPUs."""
    fields = "index,clocks.sm,clocks.max.sm,memory.free,memory.total,temperature.gpu,clocks_throttle_reasons.active"
    for row in _smi(f"--query-gpu={fields}"):
        if len(row) != 7:
            continue
        index, now, top, free, total, degrees, reasons = row
        text = f"{now} of {top} MHz, {free} of {total} MiB free, {degrees} C"
        try:
            slowed, little = int(reasons, 16) & ~1, int(free) < 2048  # bit 0: the GPU is idle
        except ValueError:
            slowed, little = 0, False
        if little:
            yield "low", f"clock, GPU {index}", text + ": memory may run out while tuning; `nvidia-smi` lists who holds it"
        elif slowed:
            yield "low", f"clock, GPU {index}", text + ": the clock is held down (`nvidia-smi -q -d PERFORMANCE` says why); times will vary"
        else:
            yield "ok", f"clock, GPU {index}", text


def _load_average():
    """Whether other programs use the processor."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0]
    if load > 0.5 * cores + 0.5:
        return "low", "load", f"{load:.1f} on {cores} cores: other programs run (see `top`); times on the CPU are noisy until they end"
    return "ok", "load", f"{load:.1f} on {cores} cores"


def _users():
    """Processes that use a GPU."""
    listed = _smi("--query-compute-apps=pid,process_name,used_memory")
    rows = [f"{r[0]} {', '.join(r[1:])} MiB" for r in listed if r[0] != str(os.getpid())]
    if rows:
        yield ("low", "GPU in use",
               f"by process {'; '.join(rows[:4])}: timings are noisy and memory may run out; stop it, wait, or choose "
               "another GPU with CUDA_VISIBLE_DEVICES")


def _folder():
    try:
        here, free = os.getcwd(), shutil.disk_usage(".").free
    except OSError as e:
        return "low", "folder", f"the working directory cannot be used ({e.strerror}): change to another one"
    if not os.access(".", os.W_OK):
        return "low", "folder", f"{here} may not be written: give RecordToFile a path of yours"
    if free < 2**28:
        return "low", "folder", f"{here}: {_gib(free)} free; logs need room: see `df -h .` and delete something"
    return "ok", "folder", f"{here}, {_gib(free)} free"


def log_findings(path):
    """Whether a tuning log fits the devices of this machine; rows as in :func:`findings`."""
    from collections import Counter

    from nestsmith.auto_scheduler.measure_record import RecordReader, no_log
    from nestsmith.target import Target

    if no_log(path):
        return [("missing", "log", f"{path} {no_log(path)}; tune first, or check the path")]
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
    rows = [
        ("ok", "nestsmith", f"{__version__} ({os.path.dirname(os.path.abspath(__file__))})"),
        ("ok", "python", f"{platform.python_version()} ({sys.executable}), {platform.system()} {platform.machine()}"),
    ]
    if _WHY:
        return [*rows, ("broken", "engine", _WHY), _memory(), _load_average(), _cache(), _folder()]
    facts = _core.device_query(1, 0)
    rows += [("ok", "cpu", f"{facts['name']}, programs use {facts['multiprocessors']} threads"), _memory(),
             _load_average(), _compiler(), _nvrtc()]
    rows += _devices(2, "cuda",
                     ": `apt install nvidia-driver`, in a container `docker run --gpus all`; then try `nvidia-smi`")
    rows += _devices(4, "opencl", "")
    return [*rows, *_workers(), *_programs(), *_clocks(), *_users(), _cache(), _folder()]


# What is done with a device, and the findings that it takes, in the order of the checks.
_DEVICES = {"CPU": ("cpu", "C compiler"), "CUDA": ("cuda 0", "NVRTC"), "OpenCL": ("opencl 0", "opencl 0")}


def _summary(rows):
    """Prints what works on which device and what the rest wants. Returns the devices of each use."""
    state = {subject: (status, text) for status, subject, text in rows}
    works, wanted = {"run": [], "build": [], "tune": []}, {}
    for name, (device, compiler) in _DEVICES.items():
        low = name.lower()
        for use, parts in (("run", [device]), ("build", [compiler]), ("tune", [device, compiler, f"worker on {low}", f"program on {low}"])):
            lacking = [p for p in parts if state.get(p, ("missing",))[0] not in ("ok", "low")]
            if not lacking:
                works[use].append(name)
            else:
                found = next((p for p in (lacking[0], lacking[0].split()[0], "engine") if p in state), lacking[0])
                text = state.get(found, ("", "see above"))[1]
                wanted.setdefault(f"{found}: {text.partition('; ')[2] or text}", []).append(f"{use} {name}")
    print("\n" + " " * 10 + "".join(f"{name:8s}" for name in _DEVICES).rstrip())
    for use, names in works.items():
        print(f"{use:10s}" + "".join(f"{'yes' if name in names else 'no':8s}" for name in _DEVICES).rstrip())
    for text, uses in wanted.items():
        print(f"  {', '.join(uses)}: {text}")
    print("\nready for: " + (", ".join(works["tune"]) or "running networks" * bool(works["run"]) or "nothing yet; see the lines above"))
    return works


def main(argv=None):
    """Prints the findings. Returns 0 if programs can be compiled and run on the CPU at least, else 1."""
    parser = argparse.ArgumentParser(prog="nestsmith doctor", description=__doc__)
    parser.add_argument("--log", action="append", default=[], help="also look whether this tuning log fits the devices")
    logs = parser.parse_args(argv).log
    rows = findings()
    for path in logs if not _WHY else ():
        rows += log_findings(path)
    for status, subject, text in rows:
        print(f"{status:8s} {subject:18s} {text}")
    usable = _summary(rows)
    return 0 if "CPU" in usable["tune"] else 1


if __name__ == "__main__":
    sys.exit(main())
