"""How far products of float32x3 are off on a GPU, beside plain float32 on the same data: what the tests and a table hold against float64."""

import collections
import functools

import drawn_schedules as d
import numpy as np
from plain_kernel import sm
from tensor_core_cases import errors, policy, tiles

import nestsmith as ns
from nestsmith import _core, te, topi
from nestsmith.runtime.module import OperatorModule
from nestsmith.states import core_state

SUMS = (32, 72, 500, 4096)  # terms of each
ROWS, COLUMNS = 256, 192  # results
PLAIN = "lanes"  # one sum of each result, term by term, in float32
OF_A_KIND = 2

# of a schedule: its kind, itself, and (largest, root of the mean of squares) of its errors
Row = collections.namedtuple("Row", "k kind schedule errors")


def on_gpu(state, target, arrays):
    """The result of a program, which begins as zeros, and its inputs."""
    source, manifest = _core.candidate_source(state, target, 0, "three_terms", 2)
    there = [ns.nd.array(x, ns.cuda(0)) for x in (*arrays, np.zeros((ROWS, COLUMNS), "float32"))]
    OperatorModule("", manifest, _core.build(target, source, 0, "")[0])(*there)
    return there[-1].numpy()


@functools.cache
def rows(k, run=on_gpu, arch=None):
    """Of sums of k products of normal numbers: NumPy's float32, and some schedules of each kind that the search draws on this GPU."""
    a, b = te.placeholder((ROWS, k), name="A"), te.placeholder((COLUMNS, k), name="B")
    p = policy([a, b, topi.nn.dense(a, b)], seed=k, math="float32x3", target=f"cuda -arch=sm_{arch or sm()}")
    drawn = collections.defaultdict(list)
    for state in p.sample_initial_population():
        if "teams" not in str(state):  # of lanes, which add up parts
            drawn[d.kind_of(state)].append(core_state(state))
    rng = np.random.default_rng(k)
    data = [rng.standard_normal((n, k), "float32") for n in (ROWS, COLUMNS)]
    found = [Row(k, "NumPy", "", errors(data[0] @ data[1].T, *data)[:2])]
    for kind in (PLAIN, *d.KINDS[:3]):
        for state in drawn[kind][:OF_A_KIND]:
            found.append(Row(k, kind, tiles(state.text()), errors(run(state, p.search_task.target.engine(), data), *data)[:2]))
    return found


def plain(k, **how):
    """(largest, root of the mean of squares) of the errors of strict float32."""
    return next(r.errors for r in rows(k, **how) if r.kind == PLAIN)
