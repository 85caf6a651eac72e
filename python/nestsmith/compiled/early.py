"""Which kernels of a tuned network begin while the ones before them end (programmatic dependent launch), by measured time.

A kernel that may begin early waits, in its first statement, for the launch before it: `nestsmith.overlap`. That saves about half a
microsecond between two kernels and costs some of them more, because what other kernels write is then read through another path.
"""

import copy
import json
import statistics

from ..runtime.graph import GraphExecutorFactoryModule

SAVED = 0.5e-6  # seconds between two kernels on an H200
ROUNDS, ROUND_SECONDS, RUNS = 7, 0.01, 20


def _with(lib, kernels):
    """The network with these kernels in place of its own of those names."""
    kernels = {**lib.kernels, **kernels}
    return GraphExecutorFactoryModule(lib.graph_json_str, kernels, lib.params, lib.libmod_name, lib.target, lib.original_names)


def _alone(lib, device):
    """{name of a function: seconds of its kernels, repeated alone}"""
    nodes = json.loads(lib.graph_json_str)["nodes"]
    seconds = lib[lib.libmod_name](device).core.node_times(RUNS)
    return {n["attrs"]["func_name"]: s for n, s in zip(nodes, seconds) if n["op"] != "null"}


def _faster(a, b, device):
    """Does network a take less time than b, in turn?"""
    sides = [lib[lib.libmod_name](device).core for lib in (a, b)]
    number = max(5, int(ROUND_SECONDS / max(side.time(RUNS) for side in sides)))
    seconds = [[side.time(number) for side in sides] for _ in range(ROUNDS)]
    return statistics.median(s[0] for s in seconds) < statistics.median(s[1] for s in seconds)


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
        `lib`, if that is the faster one, or if there is no memory for two.
    """
    twins = {name: p.early for name, p in lib.kernels.items() if p.early}
    if not twins:
        return lib
    try:
        plain, early = (_alone(x, device) for x in (lib, _with(lib, twins)))
        mixed = _with(lib, {name: p for name, p in twins.items() if early[name] < plain[name] + SAVED})
        best = mixed if _faster(mixed, lib, device) else lib
    except MemoryError:
        best = lib
    return _with(best, {name: _alone_standing(p) for name, p in best.kernels.items()})


def _alone_standing(program):
    """The program without the one that it was compared with."""
    out = copy.copy(program)
    out.early = None
    return out
