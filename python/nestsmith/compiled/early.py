"""Which kernels of a tuned network begin while the ones before them end (programmatic dependent launch), by measured time.

A kernel that may begin early waits, in its first statement, for the launch before it: `nestsmith.overlap`. That saves about half a
microsecond between two kernels and costs some of them more, because what other kernels write is then read through another path.
"""

import copy
import json
import logging
import statistics

from ..runtime.graph import GraphExecutorFactoryModule

logger = logging.getLogger("nestsmith")

SAVED = 0.5e-6  # seconds between two kernels on an H200
ROUNDS, ROUND_SECONDS, RUNS = 7, 0.01, 20
MARGIN = 0.995  # what is not faster by so much stays as it is


def _with(lib, kernels):
    """The network with these kernels in place of its own of those names."""
    kernels = {**lib.kernels, **kernels}
    return GraphExecutorFactoryModule(lib.graph_json_str, kernels, lib.params, lib.libmod_name, lib.target, lib.original_names)


def _alone(lib, device):
    """{name of a function: seconds of its kernels, each repeated alone}"""
    nodes = json.loads(lib.graph_json_str)["nodes"]
    seconds = lib[lib.libmod_name](device).kernel_seconds(RUNS)
    return {n["attrs"]["func_name"]: s for n, s in zip(nodes, seconds) if n["op"] != "null"}


def _faster(a, b, device):
    """Does network a, of which kernels begin early, take less time than b, in turn?"""
    sides = [lib[lib.libmod_name](device).core for lib in (a, b)]
    number = max(5, int(ROUND_SECONDS / max(side.time(RUNS) for side in sides)))
    if not sides[0].early:  # launched plainly: NESTSMITH_CUDA_OVERLAP, NESTSMITH_CUDA_GRAPH, or the driver cannot
        return False
    seconds = [[side.time(number) for side in sides] for _ in range(ROUNDS)]
    return statistics.median(s[0] for s in seconds) < MARGIN * statistics.median(s[1] for s in seconds)


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
    twins = {name: p.early for name, p in lib.kernels.items() if p.early}
    if not twins:
        return lib
    try:
        plain, early = (_alone(x, device) for x in (lib, _with(lib, twins)))
        better = {name: p for name, p in twins.items() if early[name] < plain[name] + SAVED}
        mixed = _with(lib, better)
        best = mixed if better and _faster(mixed, lib, device) else lib
    except (MemoryError, RuntimeError) as err:  # what was tuned for hours is there, whatever happens to the comparison
        logger.warning("kernels were not compared with those that begin early: %s", err)
        best = lib
    return _with(best, {name: _alone_standing(p) for name, p in best.kernels.items()})


def _alone_standing(program):
    """The program without the one that it was compared with."""
    out = copy.copy(program)
    out.early = None
    return out
