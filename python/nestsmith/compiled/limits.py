"""What a machine can do at most: operations and bytes per second, which layers are held against."""

from __future__ import annotations

import functools

import numpy as np

from .. import te
from ..driver import build
from ..runtime.ndarray import array

__all__ = ["limits", "of_gpu"]

# of the peak of tensor cores
_SHARES = {"float16": 1.0, "bfloat16": 1.0, "tf32": 1 / 2, "float32x3": 1 / 6, "int8": 2.0, "uint8": 2.0}
_LANES = (16, 64)  # independent chains that a loop works on at once: processors differ in what suits them
_DEPTH = 64  # operations of a chain


def limits(target, device):
    """({what products are of: operations}, bytes of main memory) per second of a device, None where they are not known: a GPU's from
    the table of machines, a CPU's measured once per process with two small programs. "": all that is not on tensor cores."""
    if target.kind.name == "cuda":
        return of_gpu(target.engine(sm=device.handle().info().get("sm")))
    operations, moved = _cpu(target.mcpu) if device.device_type == 1 else (None, None)
    return {"": operations}, moved


def of_gpu(engine):
    """`limits` of a CUDA device by the engine's target."""
    of_tensor_cores = {name: share * engine.matrix_peak for name, share in _SHARES.items()} if engine.matrix_peak else {}
    return {"": engine.machine["peak"], **of_tensor_cores}, engine.machine["dram"]


@functools.cache
def _cpu(mcpu):
    target = f"llvm -mcpu={mcpu}" if mcpu else "llvm"
    small, large = 1 << 16, 1 << 24
    chain = min(_seconds(target, small, lanes, _chain) for lanes in _LANES)
    return 2 * _DEPTH * small / chain, 8 * large / _seconds(target, large, _LANES[0], lambda x: x + 1.0)


def _chain(x):
    y = x
    for _ in range(_DEPTH):
        y = y * x + x
    return y


def _seconds(target, n, lanes, formula):
    """Seconds of ``y[i] = formula(x[i])`` on all threads, `lanes` elements at a time, the best of several."""
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: formula(x[i]), name="y")
    schedule = te.create_schedule(y.op)
    outer, inner = schedule[y].split(y.op.axis[0], factor=lanes)
    schedule[y].vectorize(inner)
    schedule[y].parallel(outer)
    f = build(schedule, [x, y], target)
    a, b = array(np.zeros(n, "float32")), array(np.zeros(n, "float32"))
    return f.time_evaluator(f.entry_name, a.device, number=2, repeat=7, min_repeat_ms=5)(a, b).min
