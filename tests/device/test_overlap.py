"""Which launches of a network may begin while the one before ends, as the driver is told: the real executor over a driver that
writes down what it is asked for."""

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

# A chain of three programs, the second of two kernels; `changes` are made to their manifests.
RUN = textwrap.dedent("""
    import json, sys
    import numpy as np
    import nestsmith as ns
    from nestsmith import _core
    programs, n = json.load(open(sys.argv[1])), 3
    target = _core.Target("cuda", sm=90)
    dev = ns.cuda(0).handle()
    load = lambda p: dev.load(_core.build(target, p[0])[0], p[1])
    nodes = [{"op": "null", "name": "x", "inputs": []}]
    nodes += [{"op": "tvm_op", "name": f"k{i}", "attrs": {"func_name": f"f{i}"}, "inputs": [[i, 0, 0]]} for i in range(n)]
    attrs = {"shape": ["list_shape", [[1000]] * (n + 1)], "dltype": ["list_str", ["float32"] * (n + 1)],
             "storage_id": ["list_int", list(range(n + 1))]}
    graph = {"nodes": nodes, "arg_nodes": [0], "heads": [[n, 0, 0]], "node_row_ptr": list(range(n + 2)), "attrs": attrs}
    x = _core.GraphExec(dev, json.dumps(graph), {f"f{i}": load(p) for i, p in enumerate(programs)})
    x.set(0, np.zeros(1000, "float32"))
    for i in range(4):
        print("run", i, file=sys.stderr, flush=True)
        if i == 3:
            x.bind(0, dev.alloc(4000))
        x.run()
    x.run()
    print(x.captured, x.early)
""")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return made_driver(tmp_path_factory.mktemp("driver"), DRIVER)


def run(tmp_path, driver, change=lambda manifests: None, **env):
    """What the launches of the runs were: [before the capture, in captures, when another input was bound ...], captured, early."""
    programs = [program(1), program(2), program(1)]
    manifests = [json.loads(m) for _, m in programs]
    change(manifests)
    (tmp_path / "programs.json").write_text(json.dumps([[s, json.dumps(m)] for (s, _), m in zip(programs, manifests)]))
    r = subprocess.run([sys.executable, "-c", RUN, tmp_path / "programs.json"], capture_output=True, text=True, timeout=PATIENCE,
                       env=dict(os.environ, PYTHONPATH=PACKAGE, NESTSMITH_LIBCUDA=driver, **env))
    assert r.returncode == 0, r.stderr
    runs = [part.split("\n")[1:-1] for part in r.stderr.split("run ")[1:]]
    assert all(line.endswith(" 16,1,1 64") for part in runs for line in part), r.stderr
    return [[line.removesuffix(" 16,1,1 64") for line in part] for part in runs], r.stdout.split()


PLAIN, CAPTURED = ["plain"] * 4, ["captured plain"] * 4
EARLY = ["captured plain"] + ["captured early"] * 3


def test_all_but_the_first_of_a_capture_begin_early(tmp_path, driver):
    """Nor do launches outside of a capture; another capture, of other memory, is made alike."""
    assert run(tmp_path, driver) == ([PLAIN, EARLY, [], PLAIN + EARLY], ["True", "3"])


@pytest.mark.parametrize("env", [{"NESTSMITH_CUDA_OVERLAP": "0"}, {"SM": "80"}])
def test_where_they_may_not(tmp_path, driver, env):
    """Switched off; a program for a newer GPU, compiled again for one that cannot."""
    assert run(tmp_path, driver, **env) == ([PLAIN, CAPTURED, [], PLAIN + CAPTURED], ["True", "0"])


def test_a_driver_without_the_function(tmp_path):
    lacking = made_driver(tmp_path, DRIVER.replace("int cuLaunchKernelEx", "static int absent"), ["cuLaunchKernelEx"])
    assert run(tmp_path, lacking) == ([PLAIN, CAPTURED, [], PLAIN + CAPTURED], ["True", "0"])


@pytest.mark.parametrize("env, tried", [({"EX": "801"}, EARLY[:2]), ({"MAKE": "801"}, EARLY)])
def test_a_capture_that_fails_is_made_again_with_plain_launches(tmp_path, driver, env, tried):
    """Once: later captures do not try."""
    assert run(tmp_path, driver, **env) == ([PLAIN, tried + CAPTURED, [], PLAIN + CAPTURED], ["True", "0"])


def test_a_kernel_that_does_not_wait(tmp_path, driver):
    """As all are in libraries of earlier versions: it begins when the one before has ended, and the one after it may overlap it."""

    def change(manifests):
        del manifests[1]["kernels"][1]["waits"]

    assert run(tmp_path, driver, change)[0][1] == ["captured plain", "captured early", "captured plain", "captured early"]


@pytest.mark.parametrize("constant, env", [(True, {}), (False, {}), (True, {"NESTSMITH_CUDA_OVERLAP": "0"}), (True, {"EX": "801"})])
def test_weights_are_the_first_to_leave_the_cache(tmp_path, driver, constant, env):
    """What no kernel of the network writes is marked in its graph, as far as the GPU can (64 bytes), unless the driver refuses."""

    def change(manifests):
        manifests[2]["args"][0]["constant"] = constant

    marked = "64 bytes of the first" if constant else ""
    early = ["captured plain"] + ["captured early"] * 2 + [f"captured early {marked}".strip()]
    plain = ["captured plain"] * 3 + [f"captured {marked}" if marked else "captured plain"]
    captured = run(tmp_path, driver, change, **env)[0][1]
    if "EX" in env:
        assert captured[-4:] == ["captured plain"] * 4
    else:
        assert captured == (plain if env else early)
