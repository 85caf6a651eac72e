"""Which kernels of a network run side by side, as the driver is told: the real executor over a driver that writes down what it is asked
for."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from launch_cases import DRIVER, PACKAGE, program

from helpers import PATIENCE, made_driver
from nestsmith import _core, te
from nestsmith.relay.graph_codegen import side_by_side
from nestsmith.target import Target

pytestmark = pytest.mark.skipif(not _core.build_available("cuda")[0], reason="no NVRTC")

# Launches of a capture are numbered from 1; "behind 1 2" is what the next one was told to come behind.
CAPTURES = r"""
static long last;
static void *const *at_last;
int cuStreamGetCaptureInfo_v2(void *q, int *s, unsigned long long *id, void **g, void *const **nodes, size_t *n) {
  static void *one[1];
  one[0] = (void *)++last;
  return *nodes = one, *n = 1, 0;
}
int cuStreamUpdateCaptureDependencies(void *q, void *const *nodes, size_t n, unsigned flags) {
  fprintf(stderr, "behind");
  for (size_t i = 0; i < n; i++) fprintf(stderr, " %ld", (long)nodes[i]);
  fprintf(stderr, "\n");
  return flags != 1 || env("BESIDE", 0);
}
"""

# Two branches, of one kernel and of two, behind f0; f3 joins them. Runs without a graph, captures, replays.
RUN = textwrap.dedent("""
    import json, sys
    import numpy as np
    import nestsmith as ns
    from nestsmith import _core
    graph, programs, share = json.load(open(sys.argv[1]))
    dev = ns.cuda(0).handle()
    load = lambda p: dev.load(_core.build(_core.Target("cuda", sm=90), p[0])[0], p[1])
    x = _core.GraphExec(dev, graph, {f"f{i}": load(p) for i, p in enumerate(programs)})
    x.set(0, np.zeros(1000, "float32"))
    if share:
        room = dev.alloc(4000)
        x.bind(0, room)
        x.bind(x.outputs()[0][0], room)
    for i in range(3):
        print("run", i, file=sys.stderr, flush=True)
        x.run()
    print(x.captured, x.early, x.beside)
""")


def joined():
    a, b = (te.placeholder((1000,), name=n) for n in "AB")
    c = te.compute((1000,), lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    block, thread = s[c].split(c.op.axis[0], 64)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    return _core.program(s._core, [a, b, c], Target("cuda -arch=sm_90").engine(overlap=1), "f")[:2]


def diamond(kernels):
    """The graph file; of `kernels` the names of the functions of x, two branches and what joins them."""
    reads = [[], [0], [1], [1], [2, 3]]
    nodes = [{"op": "null", "name": "x", "inputs": []}]
    for f, ins in zip(kernels, reads[1:]):
        nodes.append({"op": "tvm_op", "name": f"n{len(nodes)}", "attrs": {"func_name": f}, "inputs": [[k, 0, 0] for k in ins]})
    attrs = {"shape": ["list_shape", [[1000]] * 5], "dltype": ["list_str", ["float32"] * 5], "storage_id": ["list_int", list(range(5))]}
    return json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[4, 0, 0]], "node_row_ptr": list(range(6)), "attrs": attrs})


def told(tmp_path, kernels=("f0", "f0", "f1", "f2"), share=False, graph=side_by_side, lacking=(), **env):
    """What the driver was told in the run that was captured, and what the executor says."""
    driver = made_driver(tmp_path, DRIVER if lacking else DRIVER + CAPTURES, lacking)
    (tmp_path / "case.json").write_text(json.dumps([graph(diamond(kernels)), [program(1), program(2), joined()], share]))
    r = subprocess.run([sys.executable, "-c", RUN, tmp_path / "case.json"], capture_output=True, text=True, timeout=PATIENCE,
                       env=dict(os.environ, PYTHONPATH=PACKAGE, NESTSMITH_LIBCUDA=driver, **env))
    assert r.returncode == 0, r.stderr
    return [line.removesuffix(" 16,1,1 64") for line in r.stderr.split("run 1\n")[1].split("run 2")[0].splitlines()], r.stdout.split()


EARLY, PLAIN = "captured early", "captured plain"
CHAIN = [PLAIN] + [EARLY] * 4


def test_branches_come_behind_what_they_read(tmp_path):
    """A kernel behind a single one may begin early, one behind two or none may not."""
    want = ["behind", PLAIN, "behind 1", EARLY, "behind 1", EARLY, EARLY, "behind 2 3", PLAIN, "behind 4"]
    lines, said = told(tmp_path)
    assert [" ".join([line.split()[0], *sorted(line.split()[1:])]) if line.startswith("behind") else line for line in lines] == want
    assert said == ["True", "3", "True"]


def test_programs_with_workspaces_wait_for_themselves(tmp_path):
    """f1 keeps what is between its kernels in memory of its own, which both branches would use."""
    lines, _ = told(tmp_path, ("f0", "f1", "f1", "f2"))
    assert [line for line in lines if line.startswith("behind")] == ["behind", "behind 1", "behind 2", "behind 3", "behind 4"]


@pytest.mark.parametrize(
    "how", [{"share": True}, {"graph": str}, {"NESTSMITH_CUDA_BRANCHES": "0"}, {"lacking": ["cuStreamUpdateCaptureDependencies"]}, {"BESIDE": "1"}]
)
def test_where_they_run_one_after_the_other(tmp_path, how):
    """Memory of the caller for two values; not asked for; switched off; a driver without the function, or that fails."""
    lines, said = told(tmp_path, **how)
    assert [line for line in lines if not line.startswith("behind")] == CHAIN and said == ["True", "4", "False"]
    assert any(line.startswith("behind") for line in lines) == ("BESIDE" in how)


def test_memory_that_is_used_again_is_waited_for(tmp_path):
    """The second branch begins with x and writes where the first one has read: as a plan for a chain may have it."""

    def of_a_chain(text):
        g = json.loads(text)
        g["nodes"][3]["inputs"] = [[0, 0, 0]]
        g["attrs"]["storage_id"][1] = [0, 1, 2, 1, 3]
        return json.dumps({**g, "branches": True})

    lines, _ = told(tmp_path, ("f0", "f0", "f0", "f2"), graph=of_a_chain)
    assert [line for line in lines if line.startswith("behind")] == ["behind", "behind 1", "behind 2", "behind 3", "behind 4"]


def test_early_launches_alone_may_fail(tmp_path):
    """Kernels run side by side then nevertheless."""
    lines, said = told(tmp_path, EX="801")
    assert said == ["True", "0", "True"] and EARLY not in lines[-9:]


def test_a_chain_has_no_branches():
    chain = json.loads(diamond(["f0", "f0", "f1", "f2"]))
    chain["nodes"][3]["inputs"] = [[2, 0, 0]]
    assert side_by_side(json.dumps(chain)) is None
