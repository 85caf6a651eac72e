"""Names of TVM's runtime and contrib: objects and static libraries, containers, parameter files, the debug executor, helpers."""

import json
import os
import re
import threading

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import relay, runtime, te
from nestsmith.contrib import cc, download, nvcc, pickle_memoize, tar, utils
from nestsmith.contrib.debugger import debug_executor
from nestsmith.runtime.profiling import Report


def add(number, name, target="llvm"):
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + number, name="B")
    return ns.build(te.create_schedule(b.op), [a, b], target, name=name)


def result(function):
    out = ns.nd.empty((16,))
    function(ns.nd.array(np.zeros(16, "float32")), out)
    return out.numpy()[0]


def test_modules_become_one_library(tmp_path):
    one, two, three = (add(float(k), f"add{k}") for k in (1, 2, 3))
    one.save(tmp_path / "one.o")
    two.save(tmp_path / "two.o")
    cc.create_shared(tmp_path / "by_hand.so", [str(tmp_path / "one.o"), str(tmp_path / "two.o")])
    m = ns.runtime.load_module(tmp_path / "by_hand.so")
    assert (result(m["add1"]), result(m["add2"]), result(m)) == (1, 2, 1) and m.type_key == "library"
    three.save(tmp_path / "three.o")
    static = runtime.load_static_library(tmp_path / "three.o", ["add3"])
    assert static.implements_function("add3") and static.is_dso_exportable and not static.is_runnable
    with pytest.raises(RuntimeError, match="linked before it runs"):
        static["add3"]()
    two.import_module(static)
    one.import_module(two)
    for name in ("all.so", "all.tar"):
        one.export_library(tmp_path / name)
        m = ns.runtime.load_module(tmp_path / name)
        assert [result(m[f"add{k}"]) for k in (1, 2, 3)] == [1, 2, 3] and not m.imported_modules and not m.is_dso_exportable
    m.export_library(tmp_path / "again.so")
    assert result(ns.runtime.load_module(tmp_path / "again.so")["add3"]) == 3
    with pytest.raises(RuntimeError, match="no LLVM"):
        one.save(tmp_path / "one.ll")
    cc.create_staticlib(tmp_path / "lib.a", [str(tmp_path / "one.o")])
    assert (tmp_path / "lib.a").read_bytes().startswith(b"!<arch>")


def test_containers():
    assert int(runtime.convert(5)) == 5 and runtime.convert("x") == "x" and isinstance(runtime.convert("x"), runtime.String)
    assert [int(x) for x in runtime.convert([1, 2])] == [1, 2] and runtime.convert(None) is None
    assert runtime.convert({"a": 2.5})["a"].dtype == "float32" and runtime.convert(lambda x: x + 1)(4) == 5
    assert runtime.ShapeTuple([1, 2]) == (1, 2) and te.placeholder((runtime.convert(7),)).shape == (7,)
    with pytest.raises(AttributeError):
        runtime.ShapeTuple(["a"])
    with pytest.raises(ValueError, match="16 elements"):
        ns.nd.empty((16,))._create_view((3, 5))
    a = ns.nd.array(np.arange(16, dtype="float32"))
    view = a._create_view((4, 4))
    a.copyfrom(np.arange(16) * 2)
    np.testing.assert_array_equal(view.numpy(), np.arange(16).reshape(4, 4) * 2)


def test_parameter_files(tmp_path):
    params = {"w": np.arange(6, dtype="float16").reshape(2, 3)}
    runtime.save_param_dict_to_file(params, tmp_path / "p")
    np.testing.assert_array_equal(runtime.load_param_dict_from_file(tmp_path / "p")["w"], params["w"])


def network():
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    dense = relay.nn.dense(x, w)
    halves = relay.split(dense, 2, axis=1)
    weights = {"w": np.arange(32, dtype="float32").reshape(4, 8) % 5}
    body = relay.Tuple([halves[0], relay.nn.softmax(halves[1] + relay.const(1.0))])
    return relay.build(ns.IRModule.from_expr(relay.Function([x, w], body)), "llvm", params=weights), weights["w"]


def test_debug_executor(tmp_path, capsys):
    lib, w = network()
    m = debug_executor.GraphModuleDebug(lib["debug_create"]("default", ns.cpu(0)), [ns.cpu(0)], lib.get_graph_json(), str(tmp_path))
    assert os.listdir(m._dump_path) == ["_tvmdbg_graph_dump.json"]
    x = np.ones((2, 8), "float32")
    with pytest.raises(ValueError, match="never set: x"):
        m.run()
    m.run(x=x, number=1)
    dense = x @ w.T
    np.testing.assert_allclose(m.get_output(0).numpy(), dense[:, :2])
    nodes = m.debug_datum.get_graph_nodes()
    name = next(n["name"] for n in nodes if "dense" in n["name"])
    np.testing.assert_allclose(m.debug_get_output(name).numpy(), dense)
    listed = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    assert [r[0] for r in listed[2:-1]] and {r[0] for r in listed[2:-1]} == {n["name"] for n in nodes if n["op"] != "param"}
    assert abs(sum(float(r[2]) for r in listed[2:-1]) - float(listed[-1][2])) < 0.01
    outputs = runtime.load_param_dict_from_file(os.path.join(m._dump_path, "output_tensors.params"))
    np.testing.assert_allclose(outputs[f"{name}____0"], dense)
    with open(os.path.join(m._dump_path, "_tvmdbg_execution_trace.json")) as f:
        trace = json.load(f)["traceEvents"]
    assert [e["ph"] for e in trace] == ["B", "E"] * len(nodes) and trace == sorted(trace, key=lambda e: e["ts"])
    assert m.run_individual_node(0).mean == 0 and m.run_individual_node(len(nodes) - 1, number=1).mean > 0
    assert len(m.run_individual(1)) == len(nodes)
    for wrong in (len(nodes), -1):
        with pytest.raises(ns.TVMError, match="there is no node"):
            m.run_individual_node(wrong)
    with pytest.raises(ns.TVMError, match="no node"):
        m.debug_get_output("nothing")
    report = m.profile(x=x)
    assert len(report.calls) == sum(n["op"] != "param" for n in nodes)
    again = Report.from_json(report.json())
    assert again.table() == report.table() and "Sum" in report.table() and report.csv().count("\n") == len(report.calls) + 1
    m.exit()
    assert not os.path.exists(m._dump_path)


def test_debug_executor_of_python_functions():
    graph = {"nodes": [{"op": "null", "name": "x", "inputs": []},
                       {"op": "tvm_op", "name": "double", "inputs": [[0, 0, 0]], "attrs": {"func_name": "f", "num_inputs": "1", "num_outputs": "1"}}],
             "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2],
             "attrs": {"shape": ["list_shape", [[3], [3]]], "dltype": ["list_str", ["float32"] * 2], "storage_id": ["list_int", [0, 1]]}}  # fmt: skip
    functions = ns.testing.FrontendTestModule()
    functions["f"] = lambda x, out: out.copyfrom(2 * x.numpy())
    m = debug_executor.create(json.dumps(graph), functions, ns.cpu(0))
    m.set_input(x=np.arange(3, dtype="float32"))
    m.module.run()
    np.testing.assert_array_equal(m.get_output(0).numpy(), [0, 2, 4])


def test_memoize(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls, factor = [], 3

    @pickle_memoize.memoize("names.test")
    def compute(x, y=1):
        return factor * x + y

    def counted(x):
        calls.append(x)
        return x

    with pytest.raises(ValueError, match="numbers, texts"):
        pickle_memoize.memoize("names.other")(counted)
    assert (compute(2), compute(2), compute(2, y=5)) == (7, 7, 11)
    (cache,) = (c for k, c in pickle_memoize.Cache.cache_by_key.items() if k.startswith("names.test"))
    assert len(cache.cache) == 2
    cache.save()
    assert len(pickle_memoize.Cache("names.test.compute.pkl", False).cache) == 2
    cache.path.write_bytes(b"damaged")
    assert pickle_memoize.Cache("names.test.compute.pkl", False).cache == {}


def test_files(tmp_path):
    (tmp_path / "source").write_text("content")
    url = (tmp_path / "source").as_uri()
    download.download(url, tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").read_text() == "content"
    (tmp_path / "source").write_text("other text")
    download.download(url, tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").read_text() == "content"
    download.download(url, tmp_path / "a" / "b", overwrite=True)
    assert (tmp_path / "a" / "b").read_text() == "other text" and os.listdir(tmp_path / "a") == ["b"]
    with pytest.raises(OSError, match="put the file at"):
        download.download((tmp_path / "none").as_uri(), tmp_path / "c", retries=0)
    with pytest.raises(ValueError, match="path below"):
        download.download_testdata(url, "../../x", "data")
    with pytest.raises(ValueError, match="begins with http"):
        download.download("gopher://x", tmp_path / "c")
    with utils.tempdir() as t:
        (tmp_path / "x.o").write_text("x")
        tar.tar(t.relpath("x.tar"), [str(tmp_path / "x.o")])
        out = tar.normalize_file_list_by_unpacking_tars(t, [t.relpath("x.tar"), "y.o"])
        assert [os.path.basename(p) for p in out] == ["x.o", "y.o"] and os.path.isfile(out[0])
        held, order = utils.filelock(t.relpath("lock")), []
        other = threading.Thread(target=lambda: (utils.filelock(t.relpath("lock")).release(), order.append("other")))
        other.start()
        order.append("first")
        held.release()
        other.join()
        assert order == ["first", "other"]
    assert utils.which("sh") and utils.is_source_path("a.cu") and not utils.is_source_path("a.o")


def test_capabilities():
    sm80 = ns.target.Target("cuda -arch=sm_80")
    assert nvcc.get_target_compute_version(sm80) == "8.0" and nvcc.have_tensorcore(target=sm80) and nvcc.have_bf16("8.0")
    assert not nvcc.have_fp8("8.6") and not nvcc.have_tensorcore("6.1") and nvcc.have_int8("6.1") and not nvcc.have_fp16("5.2")
    with pytest.raises(ValueError, match="looks like"):
        nvcc.parse_compute_version("sm_80")
    with pytest.raises(ValueError, match="cubin"):
        nvcc.compile_cuda("", target_format="ptx")
    if ns.runtime.enabled("cuda"):
        assert nvcc.compile_cuda('extern "C" __global__ void f(float *x) { x[0] = 1; }', arch="sm_80")[:4] == b"\x7fELF"


def test_support(capsys):
    assert ns.support.libinfo()["USE_LLVM"] == "ON"
    ns.support.describe()
    assert ns.__version__ in capsys.readouterr().out


def test_driver():
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1, name="B")
    assert result(ns.driver.build_module.build(te.create_schedule(b.op), [a, b], "llvm")) == 1 and ns.driver.build is ns.build


def test_libraries_that_are_not_used():
    from nestsmith.contrib import cudnn

    assert not cudnn.exists()
    with pytest.raises(AttributeError, match="compiled, not taken from libraries"):
        cudnn.conv_forward  # noqa: B018
