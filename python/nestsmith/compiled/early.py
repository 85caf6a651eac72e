"""Which kernels of a tuned network begin while the ones before them end (programmatic dependent launch), by measured time.

A kernel that may begin early waits for the launch before it: `nestsmith.overlap`. That saves about half a microsecond between two
kernels and costs some of them more, because what other kernels write is then read through another path. One that lets the next kernel
begin when half of its own work is done hides how that begins: its first weights are there when its turn comes. But blocks that
come early may lie unevenly on the multiprocessors. So every kernel has up to three programs, and what is fastest in the network is
kept.
"""

import copy
import logging
import statistics
import time

from ..runtime.graph import GraphExecutorFactoryModule

logger = logging.getLogger("nestsmith")

ROUNDS, ROUND_SECONDS, WARM = 5, 3e-3, 3
SECONDS = 5.0  # for single kernels, after all alike
BETTER = 0.998  # a kernel stays as it is unless the network takes less than this of its time
MARGIN = 0.995  # so does the network


class _Network:
    """A network on a device, whose kernels change. A choice is {name of a function: number of its program}."""

    def __init__(self, lib, device):
        self.versions = {}
        for name, p in lib.kernels.items():
            seen = {p.source: p}
            for twin in p.early:
                seen.setdefault(twin.source, twin)
            if len(seen) > 1:
                self.versions[name] = list(seen.values())
        self.core, handle = lib[lib.libmod_name](device).core, device.handle()
        self._loaded = {n: [handle.load(p.binary, p.manifest) for p in v] for n, v in self.versions.items()}
        self._now = dict.fromkeys(self.versions, 0)
        self.core.time(WARM)
        self._number = max(3, int(ROUND_SECONDS / self.core.time(WARM)))

    def _take(self, choice):
        for name, k in choice.items():
            if self._now[name] != k:
                self.core.use(name, self._loaded[name][k])
                self._now[name] = k
        self.core.time(WARM)  # the first two runs make the graph

    def all_alike(self, k):
        """Program k of every kernel, or its last one."""
        return {name: min(k, len(v) - 1) for name, v in self.versions.items()}

    def early(self, choice):
        """How many kernels begin early; 0 if launches are plain ones: NESTSMITH_CUDA_OVERLAP, NESTSMITH_CUDA_GRAPH, or the driver cannot."""
        self._take(choice)
        return self.core.early

    def compare(self, choices):
        """Seconds of a run by each choice, in turn."""
        seconds = [[] for _ in choices]
        for _ in range(ROUNDS):
            for choice, out in zip(choices, seconds):
                self._take(choice)
                out.append(self.core.time(self._number))
        return [statistics.median(out) for out in seconds]

    def best(self):
        """The choice with the fastest run, kernel by kernel, each beside what is best so far."""
        alike = [self.all_alike(k) for k in range(1 + max(map(len, self.versions.values())))]
        if not self.early(alike[1]):
            return alike[0]
        times = self.compare(alike)
        best, end = alike[times.index(min(times))], time.monotonic() + SECONDS
        for name, versions in self.versions.items():
            for k in range(len(versions)):
                if k == best[name] or time.monotonic() > end:
                    continue
                other = {**best, name: k}
                now, then = self.compare([best, other])
                if then < BETTER * now:
                    best = other
        plain, now = self.compare([alike[0], best])
        return best if now < MARGIN * plain else alike[0]


def chosen(lib, device):
    """The network with early kernels where they are faster.

    Parameters
    ----------
    lib : GraphExecutorFactoryModule
        Built with the setting ``relay.early_twins``: its programs have `early`, the same with waits, where the GPU can.
    device : Device
        Where it is measured.

    Returns
    -------
    GraphExecutorFactoryModule
        `lib`, if that is no slower, or if they cannot be compared, for want of memory for both, say.
    """
    if not any(p.early for p in lib.kernels.values()):
        return lib
    kernels = dict(lib.kernels)
    try:
        network = _Network(lib, device)
        kernels.update((name, network.versions[name][k]) for name, k in network.best().items())
    except (MemoryError, RuntimeError) as err:  # what was tuned for hours is there, whatever happens to the comparison
        logger.warning("kernels were not compared with those that begin early: %s", err)
    kernels = {name: _alone_standing(p) for name, p in kernels.items()}
    return GraphExecutorFactoryModule(lib.graph_json_str, kernels, lib.params, lib.libmod_name, lib.target, lib.original_names)


def _alone_standing(program):
    """The program without those that it was compared with."""
    out = copy.copy(program)
    out.early = ()
    return out
