"""Kernels of a network that begin while the ones before them end give the same bits as those that do not. Skipped without a GPU
of compute capability 9.0."""

import json
import re
import statistics

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, auto_scheduler, relay, transform
from nestsmith.compiled import early

pytestmark = pytest.mark.skipif(
    not ns.cuda(0).exist or _core.device_query(2, 0)["sm"] < 90, reason="no CUDA device of compute capability 9.0: " + (ns.cuda(0).why_not or "")
)
RUNS, LAYERS = 200, 24


def chain():
    """A long chain over few buffers: most kernels write where the one before last has read, blocks read what other blocks wrote."""
    x = start = relay.var("x", shape=(64, 512))
    for k in range(LAYERS):
        x = relay.tanh(relay.nn.dense(x, relay.var(f"w{k}", shape=(512, 512))))
        if k % 3 == 1:
            x = relay.add(relay.reverse(x, axis=0), start)
        if k % 4 == 2:
            x = relay.nn.softmax(x)
    return relay.Function(relay.expr.free_vars(x), x)


def built(function, overlap=True, branches=False):
    rng = np.random.default_rng(0)
    shapes = {v.name_hint: tuple(int(d) for d in v.type_annotation.shape) for v in function.params if v.name_hint != "x"}
    params = {n: rng.normal(0, 0.05, s).astype("float32") for n, s in shapes.items()}
    config = {"relay.backend.use_auto_scheduler": True, "nestsmith.overlap": overlap, "nestsmith.branches": branches}
    with auto_scheduler.dispatcher.FallbackContext(verbose=0), transform.PassContext(
        opt_level=3, config=config
    ):
        return relay.build(ns.IRModule.from_expr(function), target="cuda", params=params)


def kernels(lib):
    """How many a run launches."""
    nodes = json.loads(lib.graph_json_str)["nodes"]
    called = [n["attrs"]["func_name"] for n in nodes if n["op"] == "tvm_op" and n["attrs"]["func_name"] in lib.kernels]
    return sum(len(json.loads(lib.kernels[c].manifest)["kernels"]) for c in called)


def test_the_same_bits(monkeypatch, tmp_path):
    """The network, once as it was built and once from a file."""
    lib = built(chain())
    lib.export_library(str(tmp_path / "net.so"))
    runtime = {}
    for name, value, made in (("plain", "0", lib), ("early", "1", ns.runtime.load_module(str(tmp_path / "net.so")))):
        monkeypatch.setenv("NESTSMITH_CUDA_OVERLAP", value)
        runtime[name] = r = made["default"](ns.cuda(0))
        for _ in range(3):  # without a graph, captured, replayed
            r.set_input("x", np.zeros((64, 512), "float32"))
            r.run()
        assert r.core.captured
    assert runtime["plain"].core.early == 0 and runtime["early"].core.early == kernels(lib) - 1 > 2 * LAYERS
    rng = np.random.default_rng(1)
    for k in range(RUNS):
        x = rng.normal(0, 1, (64, 512)).astype("float32")
        out = []
        for r in runtime.values():
            r.set_input("x", x)
            for _ in range(1 + k % 3):  # graphs that follow each other, too
                r.run()
            out.append(r.get_output(0).numpy())
        assert np.ptp(out[0]) > 0 and out[0].tobytes() == out[1].tobytes(), f"run {k}"


def in_slices(tasks, log):
    """Records, faster than any that was measured, of products by a loop over slices, at half of which the next kernel may begin: how many."""
    recorded = 0
    for task in tasks:
        policy = auto_scheduler.SketchPolicy(task, "analytic", seed=1, verbose=0)
        for state in policy.propose(32):
            if re.search(r"block \d+x\d+x64, .* [234] stages, .*split 1\b", str(state)):
                inp, result = auto_scheduler.MeasureInput(task, state), auto_scheduler.MeasureResult([1e-9], 0, "", 0.1, 0)
                auto_scheduler.save_records(log, [inp], [result])
                recorded += 1
                break
    return recorded


def test_every_program_of_a_network_gives_the_same_bits(monkeypatch, tmp_path):
    """Without waits, with them, and where the next kernel begins at half: all alike, and drawn kernel by kernel."""
    function, kept, rng = chain(), [], np.random.default_rng(0)
    params = {v.name_hint: rng.normal(0, 0.05, (512, 512)).astype("float32") for v in function.params if v.name_hint != "x"}
    how = {"target": "cuda", "log": str(tmp_path / "log.json"), "verbose": 0}
    model = ns.IRModule.from_expr(function), params
    assert in_slices(ns.compile(model, target="cuda", guess=False, verbose=0).tasks, how["log"]) == 1  # all layers are one task
    monkeypatch.setattr(early, "chosen", lambda lib, *_: kept.append(lib) or lib)
    ns.compile(model, **how)
    network = early._Network(kept[0], ns.cuda(0))
    assert any(len(v) == 3 for v in network.versions.values())
    core, out = network.core, np.zeros((64, 512), "float32")
    (x,) = (d[0] for n, d in core.inputs() if n == "x")
    choices = [network.all_alike(k) for k in range(3)] + [{n: int(rng.integers(len(v))) for n, v in network.versions.items()} for _ in range(5)]
    data, want = [rng.normal(0, 1, out.shape).astype("float32") for _ in range(RUNS // 8)], []
    for k, choice in enumerate(choices):
        assert (network.early(choice) > 0) == (k > 0)
        for i, value in enumerate(data):
            core.set(x, value)
            for _ in range(1 + i % 3):
                core.run()
            core.get(core.outputs()[0][0], out)
            want += [out.tobytes()] * (k == 0)
            assert np.ptp(out) > 0 and out.tobytes() == want[i], f"choice {k}, run {i}"


def beside():
    """Blocks of four branches of different lengths, joined; what one reads others read too, and memory is used again and again."""
    x = relay.var("x", shape=(64, 512))
    for k in range(6):
        ends = []
        for b in range(4):
            y = x
            for i in range(1 + (b + k) % 3):
                y = relay.nn.dense(y, relay.var(f"w{k}_{b}_{i}", shape=(128, 512 if i == 0 else 128)))
                y = relay.nn.softmax(y) if (b + i) % 4 == 3 else relay.tanh(y)
            ends.append(y)
        x = relay.add(relay.concatenate(ends, axis=1), x)
    return relay.Function(relay.expr.free_vars(x), x)


@pytest.mark.parametrize("overlap", [False, True])
def test_branches_side_by_side_give_the_same_bits(overlap):
    runtime = {}
    for branches in (False, True):
        runtime[branches] = r = built(beside(), overlap, branches)["default"](ns.cuda(0))
        assert json.loads(r.graph_json).get("branches", False) == branches
    rng = np.random.default_rng(1)
    for k in range(RUNS):
        x, out = rng.normal(0, 1, (64, 512)).astype("float32"), []
        for r in runtime.values():
            r.set_input("x", x)
            for _ in range(1 + k % 3):
                r.run()
            out.append(r.get_output(0).numpy())
        assert np.ptp(out[0]) > 0 and out[0].tobytes() == out[1].tobytes(), f"run {k}"
    assert all(r.core.captured for r in runtime.values()) and (runtime[True].core.early > 0) == overlap
    seconds = {b: statistics.median(r.core.time(50) for _ in range(9)) for b, r in runtime.items()}
    print(f"one after the other {seconds[False] * 1e6:.1f} us, side by side {seconds[True] * 1e6:.1f}")


@pytest.mark.parametrize("asked", [None, False])
def test_compile_takes_branches_where_they_are_faster(asked, tmp_path):
    function, rng = beside(), np.random.default_rng(0)
    params = {v.name_hint: rng.normal(0, 0.05, v.type_annotation.concrete_shape).astype("float32") for v in function.params if v.name_hint != "x"}
    with transform.PassContext(config={} if asked is None else {"nestsmith.branches": asked}):
        m = ns.compile((ns.IRModule.from_expr(function), params), target="cuda", trials=24, log=str(tmp_path / "log.json"), verbose=0)
    assert json.loads(m.lib.graph_json_str).get("branches", False) == (asked is None)
    assert np.isfinite(m(rng.normal(0, 1, (64, 512)).astype("float32"))).all()


def test_kernels_begin_early_where_that_is_faster(tmp_path):
    """`compile` chooses among programs with waits and without; whatever it chooses computes the same."""
    log = str(tmp_path / "log.json")
    function = chain()
    rng = np.random.default_rng(0)
    params = {v.name_hint: rng.normal(0, 0.05, (512, 512)).astype("float32") for v in function.params if v.name_hint != "x"}
    mod = ns.IRModule.from_expr(function)
    with transform.PassContext(config={"nestsmith.overlap": False}):
        plain = ns.compile((mod, params), target="cuda", trials=16, log=log, verbose=0)
    chosen = ns.compile((mod, params), target="cuda", log=log, verbose=0)
    x = rng.normal(0, 1, (64, 512)).astype("float32")
    for _ in range(3):
        assert plain(x).tobytes() == chosen(x).tobytes()
    waits = [k["waits"] for p in chosen.lib.kernels.values() for k in json.loads(p.manifest)["kernels"] if k.get("waits")]
    assert not any(p.early for p in chosen.lib.kernels.values()) and (chosen.runtime.core.early > 0) == bool(waits)
    seconds = [statistics.median(m.runtime.core.time(100) for _ in range(9)) for m in (plain, chosen)]
    print(f"early launches: {seconds[0] * 1e6:.1f} to {seconds[1] * 1e6:.1f} us, {chosen.runtime.core.early} kernels")
    assert seconds[1] < seconds[0] * 1.05
