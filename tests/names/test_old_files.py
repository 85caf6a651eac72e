"""Files of TVM's releases: graphs and parameters of exported networks, tuning logs of every version, Tophub's logs, libraries."""

import json
import struct
import subprocess

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, autotvm, relay, te
from nestsmith.contrib import graph_executor

LIST_MAGIC, ARRAY_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F


def params_file(arrays, device=(1, 0), flag=0):
    """A parameter file as TVM v0.8 to v0.19 write it: written here by hand, field by field."""
    codes = {"i": 0, "u": 1, "f": 2}
    out = struct.pack("<QQQ", LIST_MAGIC, 0, len(arrays))
    for name in arrays:
        out += struct.pack("<Q", len(name)) + name.encode()
    out += struct.pack("<Q", len(arrays))
    for a in arrays.values():
        kind = (flag, 8, 1) if a.dtype == bool and flag else (1, 1, 1) if a.dtype == bool else (codes[a.dtype.kind], 8 * a.itemsize, 1)
        out += struct.pack("<QQii", ARRAY_MAGIC, 0, *device) + struct.pack("<iBBH", a.ndim, *kind)
        out += struct.pack(f"<{a.ndim}q", *a.shape) + struct.pack("<q", a.nbytes) + a.tobytes()
    return out


ARRAYS = {"w": np.arange(32, dtype="float32").reshape(4, 8), "half": np.ones((2, 3), "float16"), "n": np.array(7, "int64"),
          "b": np.array([1, -2], "int8"), "mask": np.array([True, False])}  # fmt: skip


@pytest.mark.parametrize("device", [(1, 0), (2, 1)])
def test_parameters(device):
    """Whatever device they were saved on."""
    found = relay.load_param_dict(params_file(ARRAYS, device))
    assert found.keys() == ARRAYS.keys()
    for name, want in ARRAYS.items():
        np.testing.assert_array_equal(np.asarray(found[name].numpy() if hasattr(found[name], "numpy") else found[name]), want)
        assert str(found[name].dtype) == str(want.dtype)
        assert type(found[name].numpy()) is np.ndarray
    assert isinstance(relay.save_param_dict(found), bytearray)
    with pytest.raises(ValueError):
        relay.load_param_dict(params_file(ARRAYS)[:-1])


def network():
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    mod = ns.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    return relay.build(mod, "llvm")


def as_of(release, text):
    """A graph as that release writes it: fields of nodes that ours lacks or has besides."""
    graph = json.loads(text)
    for node in graph["nodes"]:
        if node["op"] == "tvm_op":
            ours = node["attrs"]
            node["attrs"] = {k: ours[k] for k in ("num_outputs", "num_inputs", "flatten_data", "func_name")}
            if release >= 9:
                node["attrs"]["hash"] = "a16df9bbcc75bcdb"
            if release >= 14:
                node["attrs"]["src_layout"] = "OIHW"
    if release < 9:
        graph["attrs"].pop("device_index", None)
    return json.dumps(graph, indent=2)


@pytest.mark.parametrize("release", [8, 9, 14, 19])
def test_graphs(release):
    lib, x = network(), np.ones((2, 8), "float32")
    m = graph_executor.create(as_of(release, lib.get_graph_json()), lib.get_lib(), ns.cpu(0))
    m.load_params(params_file({"w": ARRAYS["w"]}))
    m.run(x=x)
    np.testing.assert_allclose(m.get_output(0).numpy(), x @ ARRAYS["w"].T)


def test_a_graph_of_other_programs_is_refused_in_a_sentence():
    lib = network()
    text = lib.get_graph_json().replace("tvmgen_default_fused_nn_dense_nn_relu", "tvmgen_default_fused_nn_conv2d")
    with pytest.raises(ValueError, match="tvmgen_default_fused_nn_conv2d"):
        graph_executor.create(text, lib.get_lib(), ns.cpu(0))


@auto_scheduler.register_workload
def old_matmul(n):
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


TASKS = {  # how a task was written
    "v0.1": [["old_matmul", 32], "llvm"],
    "v0.2": [["old_matmul", 32], "llvm", [2, 64, 64, 0, 0, 0, 0, 0]],
    "v0.3": [["old_matmul", 32], "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0]],
    "v0.4": [["old_matmul", 32], "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], ""],
    "v0.5": [["old_matmul", 32], "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], "", 1],
    "v0.6": [["old_matmul", 32], "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], "", 1, []],
}


@pytest.mark.parametrize("version", TASKS)
def test_tuning_logs(version, tmp_path):
    key, *rest = TASKS[version]
    steps = [["SP", 2, 0, 32, [4], 1], ["AN", 2, 0, 3]]
    line = {"i": [[json.dumps(key), *rest], [[], steps]], "r": [[0.001], 0, 0.5, 1585564852], "v": version}
    log = tmp_path / "log.json"
    log.write_text(json.dumps(line) + "\n")
    (inp, res), = auto_scheduler.load_records(str(log))
    assert res.costs == [0.001] and [list(s) for s in inp.state.transform_steps] == steps
    task = auto_scheduler.SearchTask(func=old_matmul, args=(32,), target="llvm")
    sch, args = task.apply_best(str(log))
    a, out = np.ones((32, 32), "float32"), ns.nd.empty((32, 32))
    ns.build(sch, args, "llvm")(ns.nd.array(a), ns.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), np.full((32, 32), 32))


TOPHUB = {
    "input": ["llvm -keys=cpu -model=i7", "dense_nopack.x86", [["TENSOR", [1, 64], "float32"], ["TENSOR", [32, 64], "float32"], None, "float32"], {}],
    "config": {"index": 3, "code_hash": None, "entity": [["tile_y", "sp", [-1, 1]], ["tile_x", "sp", [-1, 8]], ["tile_k", "sp", [-1, 16]]]},
    "result": [[1e-05], 0, 1.5, 1579000000.0], "version": 0.2, "tvm_version": "0.7.dev1",
}  # fmt: skip


def test_tophub_logs(tmp_path, monkeypatch):
    """Records of a line each, of several targets; found in the folder that TOPHUB_LOCATION names."""
    other = {**TOPHUB, "input": ["cuda -keys=cuda,gpu -model=t4", *TOPHUB["input"][1:]]}
    (tmp_path / "llvm.log").write_text("".join(json.dumps(r) + "\n" for r in (TOPHUB, other)))
    monkeypatch.setenv("TOPHUB_LOCATION", str(tmp_path))
    best = autotvm.tophub.context("llvm").best_by_targetkey
    assert {k for k, _ in best} == {"cpu", "cuda", "gpu"}
    (pair,) = (v for (k, _), v in best.items() if k == "cpu")
    assert pair[0].config["tile_x"].size == [-1, 8] and pair[1].costs == (1e-05,)
    old = tmp_path / "old.log"
    old.write_text(json.dumps({"i": ["llvm", "x", [], {}, ["x"], {"i": 1}], "r": [[1], 0, 1, 1], "v": 0.1}) + "\n")
    assert list(autotvm.record.load_from_file(old)) == []  # with a warning: other choices under other names


def test_libraries_of_tvm_are_refused_in_a_sentence(tmp_path):
    source = tmp_path / "lib.c"
    source.write_text("int __tvm_module_ctx; int __tvm_main__(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "lib.so", source], check=True)
    with pytest.raises(ValueError, match="was compiled by TVM and needs TVM's runtime; build the network again with relay.build"):
        ns.runtime.load_module(tmp_path / "lib.so")
