"""Programs that are timed as in a network: copies of them take turns. The real engine over a driver that writes down what it is asked
for; copies are told apart by the functions that it gives."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from launch_cases import DRIVER, PACKAGE, program

from helpers import PATIENCE, made_driver
from nestsmith import _core

pytestmark = pytest.mark.skipif(not _core.build_available("cuda")[0], reason="no NVRTC")

# Programs are numbered from 1 as they are loaded. FAIL: the number of the load that fails.
COPIES = r"""
static long loads, freed;
int cuModuleLoadData(void **m, const void *image) { *m = (void *)++loads; return loads == env("FAIL", 0) ? 2 : 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) { *f = m; return 0; }
int cuModuleUnload(void *m) { fprintf(stderr, "freed %ld\n", (long)m); return 0; }
int cuEventElapsedTime(float *ms, void *a, void *b) { *ms = 0.001; return 0; }
"""

RUN = textwrap.dedent("""
    import json, sys
    import numpy as np
    import nestsmith as ns
    from nestsmith import _core
    programs = json.load(open(sys.argv[1]))
    dev = ns.cuda(0).handle()
    modules = {f"f{i}": dev.load(_core.build(_core.Target("cuda", sm=90), p[0])[0], p[1]) for i, p in enumerate(programs)}
    nodes = [{"op": "null", "name": "x", "inputs": []}]
    nodes += [{"op": "tvm_op", "name": "n", "attrs": {"func_name": "f0"}, "inputs": [[0, 0, 0]]}]
    attrs = {"shape": ["list_shape", [[1000]] * 2], "dltype": ["list_str", ["float32"] * 2], "storage_id": ["list_int", [0, 1]]}
    graph = {"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2], "attrs": attrs}
    x = _core.GraphExec(dev, json.dumps(graph), modules)
    x.set(0, np.zeros(1000, "float32"))
    for weights in json.loads(sys.argv[2]):
        print("times", file=sys.stderr, flush=True)
        try:
            x.node_times(20, *([] if weights is None else [weights]))
        except RuntimeError as e:
            print("failed", file=sys.stderr, flush=True)
    print("end", file=sys.stderr, flush=True)
""")


def told(tmp_path, *weights, **env):
    """Per measurement the programs whose launches were captured, and those that were freed."""
    plain = 'return launch("plain", (unsigned[]){gx, gy, gz}, (unsigned[]){bx});'
    source = DRIVER.replace(plain, 'return capturing ? fprintf(stderr, "run %ld\\n", (long)f), 0 : 0;')
    assert source != DRIVER
    driver = made_driver(tmp_path, source + COPIES)
    (tmp_path / "case.json").write_text(json.dumps([program(1)]))
    words = [sys.executable, "-c", RUN, tmp_path / "case.json", json.dumps(weights)]
    r = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE,
                       env=dict(os.environ, PYTHONPATH=PACKAGE, NESTSMITH_LIBCUDA=driver, **env))
    assert r.returncode == 0, r.stderr
    parts = r.stderr.split("end\n")[0].split("times\n")[1:]
    return [tuple([int(x.split()[1]) for x in p.splitlines() if x.startswith(word)] for word in ("run", "freed")) for p in parts]


@pytest.mark.parametrize("weights", [[0], []])
def test_copies_take_turns(tmp_path, weights):
    """With weights and without; they are given back, and loaded again for the next measurement."""
    (first, gone), (second, _) = told(tmp_path, weights, weights)
    assert first.pop() == 1  # the whole network, which is captured once and timed beside its kernels
    assert first == [1 + k % 4 for k in range(len(first))] and len(first) >= 20 and sorted(gone) == [2, 3, 4]
    assert second == [1 if k % 4 == 0 else 4 + k % 4 for k in range(len(second))] and len(second) == len(first)


def test_a_copy_that_cannot_be_loaded(tmp_path):
    """The measurement fails or does without; what was loaded of it is given back."""
    ((runs, gone),) = told(tmp_path, [0], FAIL="4")
    assert sorted(gone) == [2, 3] and set(runs) <= {1}
