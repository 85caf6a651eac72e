"""Where memory runs out there is an exception, not a dead process."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, resource
from nestsmith import _core, te
a = te.placeholder((64, 64), name="A")
dag = _core.ComputeDAG([a, te.compute((64, 64), lambda i, j: a[j, i] + 1, name="B")])
page = resource.getpagesize()
used = int(open("/proc/self/statm").read().split()[0]) * page

def child(extra):
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20) + extra, resource.RLIM_INFINITY))
    states = []
    try:
        while True:
            states.append(_core.State(dag))
    except MemoryError:
        return 0

for i in range(64):  # each time another allocation fails
    pid = os.fork()
    if pid == 0:
        os._exit(child(i * page))
    status = os.waitpid(pid, 0)[1]
    assert status == 0, (i, status)
"""


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer itself takes terabytes of addresses")
def test_states_until_memory_ends():
    r = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr[-500:]


PYTHON_MEMORY = """
import _testcapi
import numpy as np
from nestsmith import _core, te

def product():
    a, b = te.placeholder((32, 32), name="A"), te.placeholder((32, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    return [a, b, te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]

args = product()
cpu = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0))
dag = _core.ComputeDAG(args)
state = _core.State(dag, '[["SP",2,0,32,[4],1],["AN",2,0,3]]')
line = ('{"i": [["[\\\\"k\\\\"]", "llvm", [8, 64, 64, 0, 0, 0, 0, 0], "", 0, []], [[], [["AN", 2, 0, 1]]]], '
        '"r": [[1e-5], 0, 0.3, 17], "v": "v0.6"}')
data = _core.params_write([("w", "float32", (2, 3), np.zeros((2, 3), "float32"))])
i = te.var("i")

def schedule():
    c = args[2]
    s = te.create_schedule(c.op)
    (x, y), (k,) = s[c].op.axis, s[c].op.reduce_axis
    xo, xi = s[c].split(x, factor=4)
    yo, yi = s[c].split(y, factor=8)
    s[c].reorder(xo, yo, xi, k, yi)
    s[c].vectorize(yi)
    s.cache_write(c, "local")
    return str(s)

calls = {
    "te schedules": schedule,
    "expressions": lambda: _core.expr_bin("Add", i, _core.expr_const(2, "int32")),
    "variables": lambda: _core.expr_var("n", "int32", False),
    "ComputeDAG": lambda: _core.ComputeDAG(args),
    "DAG as text": lambda: (dag.text(), dag.workload_key(), str(args[2])),
    "State": lambda: _core.State(dag),
    "state as text": lambda: (state.text(), state.steps(), state.python(), state.step_tuples()),
    "stages": lambda: state.stages(),
    "copies": lambda: (state.copy(), state.infer_bounds()),
    "records": lambda: _core.record_text(*[(8, 64, 64, 0, 0, 0, 0, 0) if i == 2 else x
                                           for i, x in enumerate(_core.record_parse(line))]),
    "source": lambda: _core.candidate_source(state, cpu),
    "parameters": lambda: _core.params_read(data),
    "parameter files": lambda: _core.params_write([("w", "float32", (2, 3), np.zeros((2, 3), "float32"))]),
    "storage": lambda: _core.graph_plan([(0, [], 1), (1, [0], 1)], [64, 64], [1]),
    "containers": lambda: _core.container_read(
        _core.container_write("n", "llvm", "{}", b"", [("f", "source", "{}", None)], ["x"]), "a file"),
    "Target": lambda: _core.Target("cuda", sm=90),
    "limits": lambda: _core.limits(),
    "features": lambda: _core.features(state, cpu),
}

def fails_at(call, n):  # did the n-th allocation of Python's own fail, and was that noticed?
    _testcapi.set_nomemory(n, n + 1)
    try:
        call()
    except MemoryError:
        return True
    finally:
        _testcapi.remove_mem_hooks()
    return False

for name, call in calls.items():
    call()
    n = quiet = failed = 0
    while quiet < 30:  # Python does without some allocations: only many calls in a row that succeed are the end
        noticed = fails_at(call, n)
        failed += noticed
        quiet = 0 if noticed else quiet + 1
        n += 1
    assert failed, name
    call()
"""


def test_every_allocation_of_python_in_turn():
    pytest.importorskip("_testcapi", reason="this Python cannot make its allocations fail")
    r = subprocess.run([sys.executable, "-X", "faulthandler", "-c", PYTHON_MEMORY], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr[-1000:]
