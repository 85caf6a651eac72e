"""How the kernels of a tuned network follow each other on a GPU, by measured time: which of them begin while the ones before them end
(programmatic dependent launch), and whether some run beside others.

A kernel that may begin early waits for the launch before it: `nestsmith.overlap`. That saves about half a microsecond between two
kernels and costs some of them more, because what other kernels write is then read through another path. One that lets the next kernel
begin when half of its own work is done hides how that begins: its first weights are there when its turn comes. But blocks that
come early may lie unevenly on the multiprocessors. So every kernel has up to three programs, and what is fastest in the network is
kept.

Kernels that need nothing of each other may run side by side: `nestsmith.branches`. Few kernels of one image fill a GPU, but those that
do only come into each other's way.
"""

import copy
import logging
import statistics
import time

from ..relay.graph_codegen import side_by_side
from ..runtime.graph import GraphExecutorFactoryModule

logger = logging.getLogger("nestsmith")

ROUNDS, ROUND_SECONDS, WARM = 5, 3e-3, 3
SECONDS = 5.0  # for single kernels, after all alike
BETTER = 0.998  # a kernel stays as it is unless the network takes less than this of its time
MARGIN = 0.995  # so does the network


def _turns(sides):
    """Medians of seconds that functions take, in turn."""
    return [statistics.median(s) for s in zip(*[[side() for side in sides] for _ in range(ROUNDS)])]


class _Network:
    """A network on a device, whose kernels change. A choice is {name of a function: number of its program}."""

    def __init__(self, lib, device):
        self.versions = {}
        for name, p in lib.kernels.items():
            seen = {p.source: p}
            for twin in p.early:
                seen.setdefault(twin.source, twin)
            self.versions[name] = list(seen.values())
        self.core, handle = lib[lib.libmod_name](device).core, device.handle()
        self._loaded = {n: [handle.load(p.binary, p.manifest) for p in v] for n, v in self.versions.items() if len(v) > 1}
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

    def seconds(self, choice):
        """Of a run."""
        self._take(choice)
        return self.core.time(self._number)

    def compare(self, choices):
        """Seconds of a run by each choice, in turn."""
        return _turns([lambda c=c: self.seconds(c) for c in choices])

    def _each_beside(self, best, end):
        """Every other program of every kernel beside `best`, one after the other, until the time `end`: the choice that is best then."""
        trials = [(name, k) for name, v in sorted(self.versions.items(), key=lambda v: -len(v[1])) for k in range(len(v))]
        for i, (name, k) in enumerate(trials):
            if time.monotonic() > end:
                logger.info("%d of %d programs of single kernels were not tried: %.0f s were over", len(trials) - i, len(trials), SECONDS)
                break
            other = {**best, name: k}
            now, then = self.compare([best, other]) if k != best[name] else (0, 0)
            if then < BETTER * now:
                best = other
        return best

    def best(self, also=()):
        """The choice with the fastest run, kernel by kernel, each beside what is best so far. It begins with what is best of all alike
        and of the choices `also`."""
        alike = [self.all_alike(k) for k in range(max(map(len, self.versions.values())))]
        if len(alike) == 1 or not self.early(alike[1]):
            return alike[0]
        begin = [*alike, *also]
        times = self.compare(begin)
        best, last = begin[times.index(min(times))], None
        end = time.monotonic() + SECONDS
        while best != last and time.monotonic() < end:  # what one kernel wants depends on what the others do
            best, last = self._each_beside(best, end), best
        plain, now = self.compare([alike[0], best])
        return best if now < MARGIN * plain else alike[0]


def _with(lib, kernels, text):
    """The network with these kernels and that graph."""
    return GraphExecutorFactoryModule(text, kernels, lib.params, lib.libmod_name, lib.target, lib.original_names, lib.forms)


def _found(lib, device, branches):
    """(graph, {name of a function: its program}) of the fastest network."""
    network, text = _Network(lib, device), lib.graph_json_str
    choice = network.best()
    beside = side_by_side(text) if branches else None
    if beside:
        other = _Network(_with(lib, lib.kernels, beside), device)
        its = other.best([choice]) if other.core.beside else choice
        now, then = _turns([lambda: network.seconds(choice), lambda: other.seconds(its)])
        if other.core.beside and then < MARGIN * now:
            text, choice = beside, its
    return text, {name: network.versions[name][k] for name, k in choice.items()}


def chosen(lib, device, branches=False):
    """The network with early kernels, and with kernels side by side, where that is faster.

    Parameters
    ----------
    lib : GraphExecutorFactoryModule
        Built with the setting ``relay.early_twins``: its programs have `early`, the same in other ways, where the GPU can.
    device : Device
        Where it is measured.
    branches : bool
        Whether kernels may run side by side.

    Returns
    -------
    GraphExecutorFactoryModule
        With the programs and the graph of `lib` if these are no slower, or if they cannot be compared, for want of memory for both, say.
    """
    text, kernels = lib.graph_json_str, lib.kernels
    if not branches and not any(p.early for p in kernels.values()):
        return lib
    try:
        text, kernels = _found(lib, device, branches) if kernels else (text, kernels)
    except (MemoryError, RuntimeError, ValueError) as err:  # what was tuned for hours is there, whatever happens to the comparison
        logger.warning("kernels were not compared with those that begin early, or side by side: %s", err)
    return _with(lib, {name: _alone_standing(p) for name, p in kernels.items()}, text)


def _alone_standing(program):
    """The program without those that it was compared with."""
    out = copy.copy(program)
    out.early = ()
    return out
