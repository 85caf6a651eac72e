"""What a machine can do at most: operations, and bytes from each level of its memory, per second. Layers are held against it."""

import functools
from typing import NamedTuple

import numpy as np

from .. import _core, te
from ..driver import build
from ..runtime.ndarray import array

__all__ = ["Limits", "limits", "of_gpu"]

# of the peak of tensor cores
_SHARES = {"float16": 1.0, "bfloat16": 1.0, "tf32": 1 / 2, "float32x3": 1 / 6, "int8": 2.0, "uint8": 2.0}
_STEPS = 1024  # of the sums that measure operations
_READ = 1 << 21  # bytes that are read from small memories in a run: more than it costs to start threads
_LARGE, _MOST = 1 << 24, 1 << 28  # bytes that are read once; that a measurement allocates


class Limits(NamedTuple):
    """operations: {what products are of: operations per second}; "": all that is not on tensor cores. levels: of memory, the nearest
    first: (name, bytes that it holds or 0 for all, bytes per second). Both are empty where nothing is known."""

    operations: dict
    levels: tuple

    def least(self, flops, nbytes, products=""):
        """(least seconds for `flops` operations and `nbytes` bytes, the resource that bounds them). Each level of memory serves
        as many bytes as it holds. (None, "") if no limit is known."""
        if not self.operations or not self.levels:
            return None, ""
        seconds, held, slowest = 0.0, 0, ""
        for name, bytes_, rate in self.levels:
            here = max(0, (min(nbytes, bytes_) if bytes_ else nbytes) - held)
            seconds, held = seconds + here / rate, held + here
            slowest = name if here or not slowest else slowest
        work = flops / self.operations.get(products, self.operations[""])
        return (work, "ops") if work >= seconds else (seconds, slowest)


def limits(target, device):
    """`Limits` of a device: a GPU's from the table of machines, a CPU's measured with small programs, each time anew, and the best
    of all times counts."""
    if target.kind.name == "cuda":
        facts = device.handle().info()
        return of_gpu(target.engine(sm=facts.get("sm")), facts.get("l2_bytes") or 0)
    if device.device_type != 1:
        return Limits({}, ())
    rates = _Cpu.of(target.mcpu).rates()
    known = _core.memory_levels("llvm", 0)
    return Limits({"": rates[0]}, tuple((name, n, rate) for (name, n, _), rate in zip(known, rates[1:])))


def of_gpu(engine, l2_bytes=0):
    """`Limits` of a CUDA device by the engine's target."""
    of_tensor_cores = {name: share * engine.matrix_peak for name, share in _SHARES.items()} if engine.matrix_peak else {}
    return Limits({"": engine.machine["peak"], **of_tensor_cores}, _core.memory_levels(engine, l2_bytes))


class _Cpu:
    """The programs that measure this machine: one for operations and one for each level of memory."""

    def __init__(self, mcpu):
        self._target, threads = f"llvm -mcpu={mcpu}" if mcpu else "llvm", _core.cpu_threads()
        vector = _core.cpu_vector_bytes(mcpu)
        lanes = vector // 4 * (16 if vector > 32 or vector < 32 else 8)  # accumulators: half of the registers
        self._best = []
        self._programs = [self._operations(threads, lanes)]
        below = 0
        for _, nbytes, _ in _core.memory_levels("llvm", 0):
            use = min(max(nbytes // 2, below * 5 // 4) if nbytes else max(4 * below, 1 << 26), _MOST)
            self._programs.append(self._reading(threads, lanes, use))
            below = nbytes

    of = staticmethod(functools.cache(lambda mcpu: _Cpu(mcpu)))

    def rates(self):
        """Per second: operations, then bytes from each level."""
        now = [amount / seconds() for amount, seconds in self._programs]
        self._best = [max(pair) for pair in zip(now, self._best)] or now
        for far in range(len(self._best) - 1, 1, -1):  # what is nearer is no slower
            self._best[far - 1] = max(self._best[far - 1], self._best[far])
        return self._best

    def _operations(self, threads, lanes):
        """Products of numbers in registers, added up."""
        n = 64 * threads * lanes
        x, w = te.placeholder((n,), name="x"), te.placeholder((_STEPS,), name="w")
        k = te.reduce_axis((0, _STEPS), name="k")
        y = te.compute((n,), lambda i: te.sum(w[k] * x[i], axis=k), name="y")
        schedule = te.create_schedule(y.op)
        outer, inner = schedule[y].split(y.op.axis[0], factor=lanes)
        schedule[y].reorder(outer, k, inner)
        return 2 * n * _STEPS, self._timed(schedule, outer, inner, x, w, y)

    def _reading(self, threads, lanes, nbytes):
        """Sums over an array, which is read again and again if it is small; each thread has its part."""
        steps = max(1, nbytes // (threads * lanes * 4))
        again = max(1, _READ // nbytes)
        x = te.placeholder((threads, steps, lanes), name="x")
        r, k = te.reduce_axis((0, again), name="r"), te.reduce_axis((0, steps), name="k")
        y = te.compute((threads, lanes), lambda c, i: te.sum(x[c, k, i], axis=[r, k]), name="y")
        schedule = te.create_schedule(y.op)
        c, i = y.op.axis
        schedule[y].reorder(c, r, k, i)
        return 4 * threads * steps * lanes * again, self._timed(schedule, c, i, x, y)

    def _timed(self, schedule, outer, inner, *tensors):
        y = tensors[-1]
        schedule[y].vectorize(inner)
        schedule[y].parallel(outer)
        f = build(schedule, list(tensors), self._target)

        def seconds():
            arrays = [array(np.zeros([int(n) for n in t.shape], "float32")) for t in tensors]
            large = arrays[0].nbytes > _LARGE
            return f.time_evaluator(f.entry_name, arrays[0].device, number=1, repeat=4 if large else 9, min_repeat_ms=0 if large else 3)(*arrays).min

        return seconds
