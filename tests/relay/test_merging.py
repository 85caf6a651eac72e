"""Networks in which chains of small kernels are one launch: which there are, their graph and its memory, run by the interpreter."""

import json

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, relay
from nestsmith.relay import merging
from nestsmith.runtime import load_module
from nestsmith.transform import PassContext

TARGET = ns.target.Target("cuda -arch=sm_90")
CHANNELS, SIZE = 64, 16


def gate(x, k, also=None):
    """Squeeze and excite: what it pools is read by `also` of others, too."""
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(x, layout="NHWC"))
    small = relay.nn.relu(relay.nn.dense(pooled, relay.var(f"a{k}", shape=(12, CHANNELS))))
    large = relay.sigmoid(relay.nn.dense(small, relay.var(f"b{k}", shape=(CHANNELS, 12))))
    if also is not None:
        also.append(pooled)
    return relay.multiply(x, relay.reshape(large, (1, 1, 1, CHANNELS)))


def network():
    """Three gates, whose functions are the same; the second one's data are read again at the end, the third ends the network. One
    kernel has nothing to do with the others."""
    x = relay.var("x", shape=(1, SIZE, SIZE, CHANNELS))
    kept = []
    y = gate(relay.tanh(x), 0)
    y = gate(relay.tanh(y), 1, kept)
    z = relay.multiply(relay.tanh(y), relay.reshape(kept[0], (1, 1, 1, CHANNELS)))
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(z, layout="NHWC"))
    out = relay.Tuple([relay.nn.relu(relay.nn.dense(pooled, relay.var("a2", shape=(12, CHANNELS)))), kept[0], z, relay.exp(x)])
    return relay.Function(relay.expr.free_vars(out), out)


def built(merge, target=TARGET, branches=False):
    function, rng = network(), np.random.default_rng(0)
    shapes = {v.name_hint: v.type_annotation.concrete_shape for v in function.params if v.name_hint != "x"}
    params = {n: rng.normal(0, 0.3, s).astype("float32") for n, s in shapes.items()}
    with PassContext(opt_level=3, config={"nestsmith.merge": merge, "nestsmith.branches": branches}):
        return relay.build(ns.IRModule.from_expr(function), target=target, params=params)


@pytest.fixture(scope="module")
def plain():
    return built(False)


def calls(lib):
    return [n["attrs"]["func_name"] for n in json.loads(lib.graph_json_str)["nodes"] if n["op"] == "tvm_op" and n["attrs"]["func_name"] != "__nop"]


def run(lib, data, chains=()):
    """The outputs, by the interpreter, in the memory that was planned. `chains`: {name of a function: (chain, states of its parts)}."""
    g, engine, rng = json.loads(lib.graph_json_str), TARGET.engine(), np.random.default_rng(5)
    row, attrs = g["node_row_ptr"], {k: v[1] for k, v in g["attrs"].items()}
    of = [int(np.prod(s)) * np.dtype(t).itemsize for s, t in zip(attrs["shape"], attrs["dltype"])]
    sizes = [max(n for n, s in zip(of, attrs["storage_id"]) if s == k) for k in range(max(attrs["storage_id"]) + 1)]
    storage = [rng.integers(0, 60, n).astype("uint8") for n in sizes]  # as others left it

    def value(e):
        return storage[attrs["storage_id"][e]][: of[e]].view(attrs["dltype"][e]).reshape(attrs["shape"][e])

    for i, node in enumerate(g["nodes"]):
        if node["op"] == "null":
            value(row[i])[:] = data if node["name"] == "x" else np.asarray(lib.params[node["name"]])
            continue
        name = node["attrs"]["func_name"]
        arrays = [value(row[k] + out) for k, out, *_ in node["inputs"]] + [value(e) for e in range(row[i], row[i + 1])]
        assert node["attrs"]["num_inputs"] == str(len(node["inputs"])) and node["attrs"]["num_outputs"] == str(row[i + 1] - row[i])
        if name in chains:
            chain, states = chains[name]
            parts = [(s, 0, 0, w) for s, w in zip(states, chain.wiring)]
            findings = _core.merged_interp(parts, engine, chain.tensors, arrays)
        elif name == "__nop":
            findings = [] if arrays[0].ctypes.data == arrays[1].ctypes.data else ["a reshape with memory of its own"]
        else:
            findings = _core.interp(lib.kernels[name].state, engine, arrays)["findings"]
        assert not findings, findings
    return [value(row[k] + out).copy() for k, out, *_ in g["heads"]]


@pytest.mark.parametrize("branches", [False, True])
def test_the_network_computes_what_it_did(plain, branches):
    found = merging.chains(plain)
    made = merging.programs(found, plain)
    lib = built(True, branches=branches)
    assert json.loads(lib.graph_json_str).get("branches", False) == branches
    data = np.random.default_rng(1).normal(size=(1, SIZE, SIZE, CHANNELS)).astype("float32")
    want = run(plain, data)
    got = run(lib, data, {made[c].name: (c, [plain.kernels[f].state for f in c.functions]) for c in found})
    assert len(want) == 4 and all(np.ptp(a) > 0 for a in want)
    assert [a.tobytes() for a in got] == [a.tobytes() for a in want]


def test_chains(plain):
    """Functions that occur again in the same way are one chain; a large kernel ends it."""
    found = merging.chains(plain)
    names = {tuple(f.removeprefix("tvmgen_default_fused_") for f in c.functions): len(at) for c, at in found.items()}
    gates = [n for f, n in names.items() if len(f) == 3 and "dense_sigmoid" in f[2]]
    assert gates == [2] and sum(names.values()) == 3, names
    graph = merging._Graph(plain.graph_json_str)
    for chain, places in found.items():
        for nodes in places:
            again, inputs, outputs = graph.chain(nodes)
            assert again == chain and len(inputs) == chain.inputs and len(inputs) + len(outputs) == chain.tensors
    assert not merging.chains(plain, 0)
    # larger kernels take turns: all of the network is a single chain then
    assert max(len(c.functions) for c in merging.chains(plain, 1000)) == len(calls(plain))
    both = merging.candidates(plain)
    assert set(found) <= set(both) and all(set(found[c]) <= set(both[c]) for c in found)


def test_the_graph(plain):
    lib = built(True)
    names = calls(lib)
    merged = [n for n in names if "merged" in n]
    assert len(merged) == 3 and len(set(merged)) == 2 and len(names) == len(calls(plain)) - 5
    assert set(lib.kernels) == set(names)  # programs that nobody calls are gone
    nodes = json.loads(lib.graph_json_str)["nodes"]
    for node in nodes:
        if node["op"] == "tvm_op" and "merged" in node["attrs"]["func_name"]:
            manifest = json.loads(lib.kernels[node["attrs"]["func_name"]].manifest)
            assert len(manifest["kernels"]) == 1 and len(manifest["args"]) == sum(int(node["attrs"][k]) for k in ("num_inputs", "num_outputs"))
            assert float(node["attrs"]["flops"]) > 0 and node["attrs"]["schedule"] == "default"
    assert len({n["name"] for n in nodes}) == len(nodes)


def test_it_is_exported(plain, tmp_path):
    lib = built(True)
    lib.export_library(str(tmp_path / "net.so"))
    again = load_module(str(tmp_path / "net.so"))
    assert again.graph_json_str == lib.graph_json_str and set(again.kernels) == set(lib.kernels)
    assert all(again.kernels[n].binary == p.binary and again.kernels[n].manifest == p.manifest for n, p in lib.kernels.items())


def test_elsewhere_there_are_none():
    for target in ("cuda -arch=sm_80", "llvm"):
        lib = built(True, target)
        assert not merging.chains(lib) and not any("merged" in n for n in calls(lib))


def test_programs_that_wait(plain):
    """Where parts of a chain have programs that begin early, so has the chain."""
    function, rng = network(), np.random.default_rng(0)
    params = {v.name_hint: rng.normal(size=v.type_annotation.concrete_shape).astype("float32") for v in function.params if v.name_hint != "x"}
    for config, waits, twins in (({"relay.early_twins": True}, False, 2), ({"nestsmith.overlap": True}, True, 0)):
        with PassContext(opt_level=3, config=config):
            lib = relay.build(ns.IRModule.from_expr(function), target=TARGET, params=params)
        for program in merging.programs(merging.chains(lib), lib).values():
            told = [any(k.get("waits") for k in json.loads(p.manifest)["kernels"]) for p in (program, *program.early)]
            assert told == [waits, *[True] * twins]
            assert ["launch_dependents" in p.source for p in (program, *program.early)] == [False, *[False, True][:twins]]
