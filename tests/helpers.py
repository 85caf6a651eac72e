"""What tests of several rooms share: the tuning tasks of ResNet-18, processes, waiting for what happens."""

import functools
import itertools
import os
import pathlib
import re
import subprocess
import threading
import time
import zlib

import numpy as np

from nestsmith import _core, te, topi

# (weight, operators) of the 24 tasks of ResNet-18, NHWC, batch 1, in the order of the published tutorial.
RESNET18 = [
    (1, "conv", 56, 64, 64, 1, 1, ""), (1, "wino", 28, 128, "RBr"), (1, "conv", 56, 64, 128, 1, 2, ""),
    (1, "wino", 14, 256, "Br"), (1, "wino", 28, 128, "Br"), (1, "wino", 7, 512, "R"), (2, "wino", 56, 64, "Br"),
    (1, "wino", 7, 512, "RMBr"), (1, "wino", 14, 256, "RBr"), (1, "softmax",), (1, "gap",), (1, "wino", 7, 512, "Br"),
    (1, "conv", 28, 128, 256, 1, 2, ""), (1, "conv", 14, 256, 512, 3, 2, "Br"), (1, "wino", 28, 128, "R"),
    (1, "conv", 28, 128, 256, 3, 2, "Br"), (1, "wino", 56, 64, "RBr"), (1, "conv", 224, 3, 64, 7, 2, "Br"),
    (1, "wino", 56, 64, "R"), (1, "wino", 14, 256, "R"), (1, "maxpool",), (1, "conv", 14, 256, 512, 1, 2, ""),
    (1, "dense",), (1, "conv", 56, 64, 128, 3, 2, "Br"),
]


class Params:
    """Makes the placeholders of one task and remembers them in order."""

    def __init__(self):
        self.made = []

    def __call__(self, *shape, dtype="float32"):
        t = te.placeholder(shape, dtype, name=topi.placeholder_name(len(self.made)))
        self.made.append(t)
        return t


def _tail(p, y, ops):
    """R adds a residual, M multiplies by and B adds a channel vector, r is relu."""
    channels = y.shape[3]
    for o in ops:
        if o == "R":
            y = topi.add(y, p(*y.shape))
        elif o == "M":
            y = topi.multiply(y, p(1, 1, 1, channels))
        elif o == "B":
            y = topi.add(y, p(1, 1, 1, channels))
        else:
            y = topi.relu(y)
    return y


def resnet18_tensors(index):
    """Inputs, then output, of task ``index`` in the current naming."""
    _, kind, *a = RESNET18[index]
    p = Params()
    if kind == "conv":
        hw, ci, co, k, s, ops = a
        y = topi.nn.conv2d_nhwc(p(1, hw, hw, ci), p(k, k, ci, co), s, k // 2, 1)
        y = _tail(p, y, ops)
    elif kind == "wino":
        hw, c, ops = a
        alpha = topi.nn.winograd_tile_size(hw) + 2
        y = topi.nn.conv2d_winograd_nhwc_without_weight_transform(p(1, hw, hw, c), p(alpha, alpha, c, c), 1, 1, 1)
        y = _tail(p, y, ops)
    elif kind == "softmax":
        y = topi.nn.softmax(p(1, 1000))
    elif kind == "gap":
        y = topi.nn.global_pool(p(1, 7, 7, 512), "avg", "NHWC")
    elif kind == "maxpool":
        y = _tail(p, topi.nn.pool2d(p(1, 112, 112, 64), 3, 2, 1, 1, "max", layout="NHWC"), "Br")
    else:
        y = topi.add(topi.nn.dense(p(1, 512), p(1000, 512)), p(1, 1000))
    return [*p.made, y]


@functools.cache
def resnet18_task(index, placeholders="placeholder", pooling="tensor"):
    """ComputeDAG of one task. ``placeholders="p", pooling="pool"`` gives the names of current releases."""
    with topi.naming(placeholders, pooling):
        return _core.ComputeDAG(resnet18_tensors(index))


def resnet18_tasks(placeholders="placeholder", pooling="tensor"):
    """ComputeDAGs of the 24 tasks, by index."""
    return [resnet18_task(i, placeholders, pooling) for i in range(len(RESNET18))]


# ---- parameters; pytest is not there in some of the programs that tests start ----

def full(*values):
    """Values of a parameter (or of several) that are for the exhaustive runs."""
    import pytest

    return pytest.param(*values, marks=pytest.mark.full)


def rest_full(*values, short):
    """Values of a parameter, of which those not in `short` are for the exhaustive runs."""
    return [v if v in short else full(v) for v in values]


def in_turn(*lists):
    """All combinations of values (or tuples of values) of several parameters. In `make test` there are as many as the longest list is
    long: each value occurs, beside the others in turn. The rest is for the exhaustive runs."""
    short = {tuple(i % len(values) for values in lists) for i in range(max(map(len, lists)))}
    found = []
    for places in itertools.product(*(range(len(values)) for values in lists)):
        picked = [values[i] for values, i in zip(lists, places)]
        flat = tuple(x for v in picked for x in (v if isinstance(v, tuple) else (v,)))
        found.append(flat if places in short else full(*flat))
    return found


# ---- programs ----

def unlimited(kind):
    """A target whose GPU can run whatever can be written down for it."""
    most = 2**31 - 1
    return kind if kind == "c" else _core.Target(kind, (-1, most, 64, most, most, most, most, 32))


def _bits(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _equal(got, want, tolerance):
    """Bit by bit but for the sign of zeros, as 0 + x is x; float32 within a part of the largest magnitude if there is a tolerance."""
    a, b = _bits(got), _bits(want)
    floats = got.dtype.kind == "f" or got.dtype.name == "bfloat16"
    if np.all((a == b) | (floats & ((a | b) << 1 == 0))):
        return True
    return bool(tolerance) and got.dtype == "float32" and np.abs(got - want).max() <= tolerance * np.abs(want).max()


def stages(state, target, every=True):
    """The stages at which a program differs from the stage before: its loops, the passes that change it, and its kernels.
    Not every: a third of the passes, which one is decided by the text of the program."""
    text = _core.lower_text(state, "passes", target)
    passes = re.findall("^== (.+)", text, re.M)
    return ("loops", *(passes if every else passes[zlib.crc32(text.encode()) % 3 :: 3]), "program")


def check_passes(schedule, target, arrays, tensors=None, tolerance=0.0):
    """Runs a program after every pass that changes it in the checking interpreter (where tests marked `full` are left out, after
    a third of them); returns what it finds, and which results differ from the evaluation without a schedule. ValueError if the
    schedule is refused.

    schedule: a _core.Schedule, with the tensors that are its arguments, or a _core.State; arrays: one per tensor.
    """
    if isinstance(schedule, _core.Schedule):
        dag, state = _core.ComputeDAG(list(tensors)), schedule.state(list(tensors))
    else:
        dag, state = schedule.dag, schedule
    found, want = [], [x.copy() for x in arrays]

    def plain(values):  # NumPy has no word for the elements of the other types
        return [x.view("uint16") if x.dtype.name == "bfloat16" else x for x in values]

    _core.interp_dag(dag, plain(want))
    for stage in stages(state, target, every=not os.environ.get("NESTSMITH_SHORT")):
        got = [x.copy() for x in arrays]
        for t, x in zip(dag.tensors, got):
            if not t.op.is_placeholder:
                _bits(x)[...] = int("7b" * x.dtype.itemsize, 16)  # a view: x is contiguous
        report = _core.interp(state, target, plain(got), stage=stage, max_steps=50_000_000)
        found += [f"{stage}: {f}" for f in report["findings"][:4]]
        found += [f"{stage}: the result in {t.name} differs from the reference"
                  for t, x, y in zip(dag.tensors, got, want) if not _equal(x, y, tolerance)]  # fmt: skip
    return found


# ---- processes; tests wait for events, with deadlines that only a broken program reaches ----
PATIENCE = 120  # seconds


def children(mark=""):
    """Process ids, with command lines, of this process's children, dead ones too, whose command line has ``mark``."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, IndexError):
            continue
        if parent == str(os.getpid()) and "resource_tracker" not in line and mark in line:
            found[int(entry.name)] = line
    return found


def runs(pid):
    """There is such a process, and it is not a dead one that nobody has asked after."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def processor_seconds(pid):
    """What a process of ours has taken of processors so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def slowness():
    """How much longer than on a usual core a piece of Python takes here and now, in processor time; 1 at least."""

    def took():
        begin = time.thread_time()
        sum(k for k in range(100_000))
        return time.thread_time() - begin

    return max(1.0, min(took() for _ in range(5)) / 5e-3)


def wait_until(happened, seconds=PATIENCE):
    """Whether it happened within so many seconds."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def when(happened, act):
    """Calls ``act`` from another thread as soon as ``happened()``."""
    t = threading.Thread(target=lambda: wait_until(happened) and act(), daemon=True)
    t.start()
    return t


def endless(mark):
    """C statements that make the file ``mark`` and then never end; the program has to include <fcntl.h>."""
    return f'open("{mark}", O_CREAT | O_WRONLY, 0600); for (volatile unsigned i = 0;;) i++;'


def made_driver(folder, source, lacking=()):
    """A libcuda.so.1 in `folder` with all functions that the loader looks for: those of the C text `source`, and others that say
    yes and do nothing. `lacking`: without these. For NESTSMITH_LIBCUDA."""
    header = pathlib.Path(__file__).parents[1] / "csrc/device/cuda_api.h"
    names = set(re.findall(r'F\(\w+, "(cu\w+)"', header.read_text()))
    own = set(re.findall(r"^int (cu\w+)\(", source, re.M))
    assert own < names and len(names) > 30 and names > set(lacking)
    rest = "".join(f"int {n}(void) {{ return 0; }}\n" for n in sorted(names - own - set(lacking)))
    (folder / "driver.c").write_text(source + rest)
    library = str(folder / "libcuda.so.1")
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", library, folder / "driver.c"], check=True)
    return library


def policy(**fields):
    """How a candidate is measured: the engine's RunPolicy, short and checked unless the fields say otherwise."""
    return {"number": 1, "repeat": 1, "min_repeat_ms": 1, "timeout": 10.0, "check": True, **fields}
