"""Indices that come from data: one out of range ends the run with an error that names it, on every front end and target;
negative ones count from the end where the framework says so. Beside PyTorch and onnxruntime."""

import json

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, relay, te, topi
from nestsmith.contrib import graph_executor

torch = pytest.importorskip("torch")
F = torch.nn.functional
X = np.arange(12, dtype="float32").reshape(3, 4)
FAR = [2**31, 2**32 + 1, 2**40, 10**12, -(2**63)]
ROWS = 3
TORCH = {
    "index": lambda x, i: x[i],
    "two indices": lambda x, i: x[i, i],
    "embedding": lambda x, i: F.embedding(i, x),
    "index_select": lambda x, i: torch.index_select(x, 0, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(2, 4)),
    # a kernel that makes equal rows itself has no use for an index
    "index, equal rows": lambda x, i: (x[0].expand(3, 4) + 1)[i],
    "gather, equal rows": lambda x, i: x[0].expand(3, 4).gather(0, i[:, None].expand(2, 4)),
    "take": lambda x, i: torch.take(x[:, 0], i),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i[:, None], 0),
    "scatter": lambda x, i: x.scatter(0, i[:, None], x[:2]),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x[:2]),
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 7.0),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2, :3], i, ignore_index=-2),
}


class Model(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def compiled(model, args, target="llvm"):
    return ns.compile(model, args, target=target, guess=False, verbose=0)


def same(net, reference, args, value):
    """Both give the same, or both raise, and ours names the value."""
    try:
        want = reference(*args)
    except Exception:  # each framework has kinds of its own
        with pytest.raises(RuntimeError, match=rf"index {value} is out of range for .*size \d"):
            net(*args)
    else:
        np.testing.assert_allclose(np.asarray(net(*args)), np.asarray(want), rtol=1e-6)


@pytest.mark.some(6)
@pytest.mark.parametrize("name", TORCH)
def test_pytorch(name):
    model, x = Model(TORCH[name]).eval(), torch.tensor(X)
    net = compiled(model, (x, torch.tensor([0, 1])))
    for v in (ROWS - 1, -1, -2, -ROWS, -ROWS - 1, ROWS, 100, *FAR):
        same(net, model, (x, torch.tensor([0, v])), v)


def onnx_models():
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto
    nodes = {
        "Gather": (h.make_node("Gather", ["x", "i"], ["y"]), [2]),
        "GatherElements": (h.make_node("GatherElements", ["x", "i"], ["y"]), [2, 1]),
        "GatherND": (h.make_node("GatherND", ["x", "i"], ["y"]), [2, 1]),
        "ScatterElements": (h.make_node("ScatterElements", ["x", "i", "u"], ["y"]), [2, 1]),
        "ScatterND": (h.make_node("ScatterND", ["x", "i", "r"], ["y"]), [2, 1]),
        "OneHot": (h.make_node("OneHot", ["i", "depth", "values"], ["y"]), [2]),
    }
    given = {"depth": np.array([3], "int64"), "values": np.array([-1, 5], "float32"), "u": X[:2, :1] + 50, "r": X[:2] + 50}
    for name, (node, shape) in nodes.items():
        inits = [onnx.numpy_helper.from_array(v, k) for k, v in given.items() if k in node.input]
        ins = [h.make_tensor_value_info("x", t.FLOAT, [3, 4])] if "x" in node.input else []
        ins.append(h.make_tensor_value_info("i", t.INT64, shape))
        graph = h.make_graph([node], "g", ins, [h.make_tensor_value_info("y", t.FLOAT, None)], inits)
        yield name, h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), shape


def test_onnx():
    """OneHot takes an index out of range for no class, by the standard; all others refuse it."""
    ort = pytest.importorskip("onnxruntime")
    for _name, model, shape in onnx_models():
        net = compiled(model.SerializeToString(), None)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        given = {"x": X} if len(net.inputs) == 2 else {}
        for v in (2, -1, -3, -4, 3, 1000, 10**12, -(2**63)):
            i = np.array([0, v], "int64").reshape(shape)
            args = (X, i) if given else (i,)
            same(net, lambda *a: session.run(None, {**given, "i": a[-1]})[0], args, v)


def test_onnx_constants_are_checked_at_import():
    onnx = pytest.importorskip("onnx")
    for name, model, shape in onnx_models():
        if name == "OneHot":
            continue
        i = np.array([0, 2**40], "int64").reshape(shape)
        model.graph.initializer.append(onnx.numpy_helper.from_array(i, "i"))
        del model.graph.input[len(model.graph.input) - 1]
        with pytest.raises(ValueError, match="index 1099511627776 is out of range for an axis of size 3"):
            relay.frontend.from_onnx(model)


# ---- relay ----
def executor(outputs, inputs, target="llvm", level=3):
    with ns.transform.PassContext(opt_level=level):
        lib = relay.build(ns.IRModule.from_expr(relay.Function(inputs, outputs)), target)
    return graph_executor.GraphModule(lib["default"](ns.device(target if target != "llvm" else "cpu", 0)))


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_relay(target):
    """take keeps its modes: clip and wrap are no errors. gather, gather_nd and take(mode="fast") count nothing from the end."""
    x = relay.var("x", shape=(3, 4))
    for kind in ("int64", "int32", "uint8"):
        i = relay.var("i", shape=(2,), dtype=kind)
        kept = executor(relay.Tuple([relay.take(x, i, 0), relay.take(x, i, 0, mode="wrap")]), [x, i], target)
        checked = {
            "take": relay.take(x, i, 0, mode="fast"),
            "gather": relay.gather(x, 0, relay.broadcast_to(relay.expand_dims(i, 1), (2, 4))),
            "gather_nd": relay.gather_nd(x, relay.expand_dims(i, 0)),
            "padded": relay.take(relay.nn.pad(x, ((1, 1), (0, 0))), i, 0, mode="fast"),
        }
        nets = {k: executor(e, [x, i], target) for k, e in checked.items()}
        for v in (2, 3, 4, 200, -1, *FAR):
            if not np.iinfo(kind).min <= v <= np.iinfo(kind).max:
                continue
            at = np.array([1, v], kind)
            kept.run(x=X, i=at)
            np.testing.assert_array_equal(kept.get_output(0).numpy(), X[np.clip(at.astype("int64"), 0, 2)])
            np.testing.assert_array_equal(kept.get_output(1).numpy(), X[at.astype("int64") % 3])
            for name, net in nets.items():
                data = np.pad(X, ((1, 1), (0, 0))) if name == "padded" else X
                if 0 <= v < len(data):
                    net.run(x=X, i=at)
                    np.testing.assert_array_equal(net.get_output(0).numpy(), data[at])
                else:
                    with pytest.raises(RuntimeError, match=f"index {v} is out of range for axis 0 of .* with size {len(data)}"):
                        net.run(x=X, i=at)
                        net.get_output(0).numpy()


@pytest.mark.parametrize(("target", "level"), [("llvm", 0), ("llvm", 3), ("opencl", 3)])
def test_scatters_of_relay(target, level):
    """They begin with a check; those of scatter_elements and scatter_nd count from the end."""
    x, new = relay.var("x", shape=(3, 4)), relay.const(np.array([-1, -2], "float32"))
    i, pair = relay.var("i", shape=(2,), dtype="int32"), relay.var("pair", shape=(2, 2), dtype="int64")
    outs = [relay.scatter_elements(x, relay.reshape(i, (2, 1)), relay.reshape(new, (2, 1)), 0), relay.scatter_nd(x, pair, new)]
    if target == "llvm":
        rows = relay.const(np.arange(8, dtype="float32").reshape(2, 4))
        outs += [relay.scatter_nd(x, relay.expand_dims(i, 0), rows, "add"), relay.sparse_to_dense(relay.abs(i), (3,), new),
                 relay.sparse_to_dense(relay.transpose(relay.abs(pair)), (3, 4), new)]  # fmt: skip
    net = executor(relay.Tuple(outs), [x, i, pair], target, level)
    at, at2 = np.array([1, -1], "int32"), np.array([[0, -1], [3, 1]])
    want = [X.copy(), X.copy(), X.copy(), np.array([0, -2, 0], "float32"), np.zeros((3, 4), "float32")]
    want[0][at, 0] = want[1][tuple(at2)] = want[4][tuple(np.abs(at2))] = new.data
    want[2][at] += np.arange(8).reshape(2, 4)
    net.run(x=X, i=at, pair=at2)
    for k in range(len(outs)):
        np.testing.assert_array_equal(net.get_output(k).numpy(), want[k])
    good, good2 = np.array([0, 1], "int32"), np.array([[0, 1], [3, 2]])
    for bad, bad2, value in (([0, 3], good2, 3), ([-4, 0], good2, -4), (good, [[0, 3], [0, 0]], 3), (good, [[0, 0], [4, 0]], 4)):
        with pytest.raises(RuntimeError, match=rf"index {value} is out of range for an axis with size [34] \(in T_s"):
            net.run(x=X, i=np.array(bad, "int32"), pair=np.array(bad2))
            net.get_output(0).numpy()


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_relay_constants_are_checked_before_anything_runs(bad):
    x, i = relay.var("x", shape=(3, 4)), relay.const(np.array([0, bad], "int64"))
    for look_up in (lambda: relay.take(x, i, 0, mode="fast"), lambda: relay.gather_nd(x, relay.const(np.array([[0, bad]], "int64")))):
        with pytest.raises(ValueError, match=f"index {bad} is out of range for an axis of size 3"):
            look_up()
    with pytest.raises(ValueError, match=f"index {bad} is out of range for an axis of size 3"):
        executor(relay.check_index(i, 3), [])


def test_an_exported_network_tells_as_well(tmp_path):
    x, i = relay.var("x", shape=(3, 4)), relay.var("i", shape=(2,), dtype="int64")
    lib = relay.build(ns.IRModule.from_expr(relay.Function([x, i], relay.gather_nd(x, relay.expand_dims(i, 0)))), "llvm")
    lib.export_library(str(tmp_path / "net.so"))
    net = graph_executor.GraphModule(ns.runtime.load_module(str(tmp_path / "net.so"))["default"](ns.cpu(0)))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="index 77 is out of range"):
            net.run(x=X, i=np.array([0, 77]))
        net.run(x=X, i=np.array([0, 2]))
        np.testing.assert_array_equal(net.get_output(0).numpy(), X[[0, 2]])


# ---- expressions ----
def lookup(kind, body=None, n=5):
    a, b = te.placeholder((n, 4), name="A"), te.placeholder((3,), kind, name="B")
    body = body or (lambda i, j: a[b[i], j])
    return a, b, te.compute((3, 4), lambda i, j: body(i, j) if body.__code__.co_argcount == 2 else body(a, b, i, j), name="C")


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_reads_of_te(target):
    a, b, c = lookup("int32")
    s = te.create_schedule(c.op)
    if target == "llvm":
        s[c].parallel(c.op.axis[0])
        s[c].vectorize(c.op.axis[1])
    else:
        s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
        s[c].bind(c.op.axis[1], te.thread_axis("threadIdx.x"))
    f, dev = ns.build(s, [a, b, c], target), ns.device("cpu" if target == "llvm" else target, 0)
    data = ns.nd.array(np.arange(20, dtype="float32").reshape(5, 4), dev)
    for v in (4, 5, -1, 2**31 - 1, -(2**31), 3):
        out, at = ns.nd.empty((3, 4), "float32", dev), np.array([2, v, 0], "int32")
        if 0 <= v < 5:
            f(data, ns.nd.array(at, dev), out)
            np.testing.assert_array_equal(out.numpy(), data.numpy()[at])
            continue
        with pytest.raises(RuntimeError, match=f"index {v} is out of range for axis 0 of 'A' with size 5"):
            f(data, ns.nd.array(at, dev), out)
            out.numpy()


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_the_interpreter_checks_programs(target):
    dag = _core.ComputeDAG(list(lookup("int64")))
    state = _core.State(dag)
    if target != "c":
        state.apply("AN", 2, 0, 5)
        state.apply("AN", 2, 1, 7)
    for v, bad in ((4, False), (10**12, True)):
        data = [np.arange(20, dtype="float32").reshape(5, 4), np.array([0, v, 1]), np.zeros((3, 4), "float32")]
        found = _core.interp(state, target, data, stage="program")["findings"]
        assert [f"index {v} is out of range" in f for f in found] == [True] * bad
        with pytest.raises(ValueError, match=str(v)) if bad else np.errstate():
            _core.interp_dag(dag, data)


def test_what_is_guarded_or_proved_needs_no_check():
    """A guarded read is checked where it happens; a clip, a remainder or a narrow type is its own proof."""
    _, b, c = (t := lookup("int64", lambda a, b, i, j: te.if_then_else(te.all(b[i] >= 0, b[i] < 5), a[b[i], j], 0.0)))
    f = ns.build(te.create_schedule(c.op), list(t), "llvm")
    data, out = np.arange(20, dtype="float32").reshape(5, 4), ns.nd.empty((3, 4))
    f(ns.nd.array(data), ns.nd.array(np.array([10**12, 1, -1])), out)
    np.testing.assert_array_equal(out.numpy(), [np.zeros(4), data[1], np.zeros(4)])
    for kind, n, body in (
        ("int64", 5, lambda a, b, i, j: a[te.min(te.max(b[i], 0), 4), j]),
        ("int32", 5, lambda a, b, i, j: a[te.floormod(b[i], 5), j]),
        ("uint8", 256, lambda a, b, i, j: a[b[i], j]),
    ):
        t = lookup(kind, body, n)
        text = ns.build(te.create_schedule(t[2].op), list(t), "llvm").get_source()
        assert "ns_index" not in text, kind


def test_an_axis_without_elements_has_no_index():
    t = lookup("int64", n=0)
    with pytest.raises(ValueError, match="axis 0 of 'A', which has no elements"):
        ns.build(te.create_schedule(t[2].op), list(t), "llvm")


def test_texts_and_keys_do_not_show_it():
    x, i = te.placeholder((5, 4), name="x"), te.placeholder((3, 4), "int64", name="i")
    assert "index" not in str(_core.ComputeDAG([x, i, topi.gather(x, 0, i)])).replace("index_", "")


def test_manifests_name_the_sites():
    f = ns.build(te.create_schedule((t := lookup("int64"))[2].op), list(t), "llvm")
    assert json.loads(f.manifest)["indices"]["sites"] == [{"stage": "C", "of": "A", "axis": 0, "size": 5}]
