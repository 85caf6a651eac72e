"""How the kernels of a tuned network follow each other on a GPU, by measured time: which of them begin while the ones before them end
(programmatic dependent launch), which small ones are one launch, and whether some run beside others.

A kernel that may begin early waits for the launch before it: `nestsmith.overlap`. That saves about half a microsecond between two
kernels and costs some of them more, because what other kernels write is then read through another path. One that lets the next kernel
begin when half of its own work is done hides how that begins: its first weights are there when its turn comes. But blocks that
come early may lie unevenly on the multiprocessors. So every kernel has up to three programs, and what is fastest in the network is
kept.

Chains of small kernels may be one launch: `nestsmith.merge`. That saves the microsecond between two of them, but they have few
multiprocessors then, and what was done by many blocks is done in turns. Each chain is tried alone; those that help are taken, the most
helpful first.

Kernels that need nothing of each other may run side by side: `nestsmith.branches`. Few kernels of one image fill a GPU, but those that
do only come into each other's way.
"""

import copy
import logging
import math
import statistics
import time

from ..relay import merging
from ..relay.graph_codegen import side_by_side

logger = logging.getLogger("nestsmith")

ROUNDS, ROUND_SECONDS, WARM = 5, 3e-3, 3
SECONDS = 5.0  # for single kernels, after all alike
BETTER = 0.998  # a kernel stays as it is unless the network takes less than this of its time
MARGIN = 0.995  # so does the network


def _turns(sides):
    """Medians of seconds that functions take, in turn."""
    seconds = [[side() for side in sides] for _ in range(ROUNDS)]
    return [statistics.median(s) for s in zip(*seconds)]


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


def _alike(network, choice):
    """Choices for a network with merged kernels: what it has of `choice`, and any of the programs for each merged one."""
    known = {name: choice[name] for name in network.versions if name in choice}
    most = max((len(v) for name, v in network.versions.items() if name not in known), default=1)
    new = [name for name in network.versions if name not in known]
    return [{**known, **{name: min(k, len(network.versions[name]) - 1) for name in new}} for k in range(most)]


def _beside(network, choice, lib, load):
    """(seconds of a run of a network, of that of `lib` with merged kernels, this network, its choice). One that does not run takes forever."""
    try:
        other = load(lib)
        choices = _alike(other, choice)
        now, *then = _turns([lambda: network.seconds(choice), *(lambda c=c: other.seconds(c) for c in choices)])
    except (MemoryError, RuntimeError, ValueError) as err:
        logger.warning("small kernels were not merged: %s", err)
        return 0.0, math.inf, None, None
    return now, min(then), other, choices[then.index(min(then))]


def _helpful(gains, places):
    """{chain: places} of the chains that save time, the most first, where none before has taken a node."""
    out, taken = {}, set()
    for chain in sorted(gains, key=gains.get, reverse=True):
        free = [calls for calls in places[chain] if taken.isdisjoint(calls)]
        taken.update(*free)
        out |= {chain: free} if free else {}
    return out


def _with_chains(lib, network, choice, load):
    """(network's library, network, its choice) with the chains merged that make a run faster. `load`: a library -> its `_Network`."""
    places, gains = merging.candidates(lib), {}
    made = merging.programs(places, lib)
    end = time.monotonic() + SECONDS
    for chain in made:
        if time.monotonic() > end:
            logger.info("some of %d chains of small kernels were not tried: %.0f s were over", len(made), SECONDS)
            break
        now, then, *_ = _beside(network, choice, merging.merged(lib, {chain: places[chain]}, made), load)
        if then < BETTER * now:
            gains[chain] = now - then
    if gains:
        best = merging.merged(lib, _helpful(gains, places), made)
        now, then, other, its = _beside(network, choice, best, load)
        if then < MARGIN * now:
            return best, other, its
    return lib, network, choice


def _found(lib, device, branches, merge):
    """(graph, {name of a function: its program}) of the fastest network."""
    network = _Network(lib, device)
    choice = network.best()
    if merge:
        lib, network, choice = _with_chains(lib, network, choice, lambda other: _Network(other, device))
    text = lib.graph_json_str
    beside = side_by_side(text) if branches else None
    if beside:
        other = _Network(lib.with_kernels(beside, lib.kernels), device)
        its = other.best([choice]) if other.core.beside else choice
        now, then = _turns([lambda: network.seconds(choice), lambda: other.seconds(its)])
        if other.core.beside and then < MARGIN * now:
            text, choice = beside, its
    return text, {name: network.versions[name][k] for name, k in choice.items()}


def chosen(lib, device, branches=False, merge=False):
    """The network with early kernels, with small ones merged, and with kernels side by side, where that is faster.

    Parameters
    ----------
    lib : GraphExecutorFactoryModule
        Built with the setting ``relay.early_twins``: its programs have `early`, the same in other ways, where the GPU can.
    device : Device
        Where it is measured.
    branches : bool
        Whether kernels may run side by side.
    merge : bool
        Whether small kernels that follow each other may be one launch.

    Returns
    -------
    GraphExecutorFactoryModule
        With the programs and the graph of `lib` if these are no slower, or if they cannot be compared, for want of memory for both, say.
    """
    text, kernels = lib.graph_json_str, lib.kernels
    if not branches and not merge and not any(p.early for p in kernels.values()):
        return lib
    try:
        text, kernels = _found(lib, device, branches, merge) if kernels else (text, kernels)
    except (MemoryError, RuntimeError, ValueError) as err:  # what was tuned for hours is there, whatever happens to the comparison
        logger.warning("kernels were not compared with those that begin early, are merged, or run side by side: %s", err)
    return lib.with_kernels(text, {name: _alone_standing(p) for name, p in kernels.items()})


def _alone_standing(program):
    """The program without those that it was compared with, and without what others are made of."""
    out = copy.copy(program)
    out.early, out.state = (), None
    return out
