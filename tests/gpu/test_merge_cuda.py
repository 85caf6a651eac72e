"""Chains of small kernels as one launch give the same bits as their kernels one after the other. Skipped without a GPU whose blocks can
wait for each other in clusters."""

import json
import statistics

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, relay, transform
from nestsmith.compiled import early
from nestsmith.relay import merging

pytestmark = pytest.mark.skipif(
    not ns.cuda(0).exist or not _core.can_merge(_core.Target("cuda", sm=_core.device_query(2, 0)["sm"])),
    reason="no CUDA device with clusters of blocks: " + (ns.cuda(0).why_not or ""),
)
RUNS, SIZE, CHANNELS, SQUEEZED, GATES = 60, 14, 480, 20, 6


def pointwise(x, w, channels):
    return relay.nn.conv2d(x, w, channels=channels, kernel_size=(1, 1), data_layout="NHWC", kernel_layout="HWIO")


def gated():
    """Squeeze-and-excite blocks, one after the other, then global pooling and a dense layer."""
    x = start = relay.var("x", shape=(1, SIZE, SIZE, CHANNELS))
    for k in range(GATES):
        small = pointwise(relay.nn.global_avg_pool2d(x, layout="NHWC"), relay.var(f"a{k}", shape=(1, 1, CHANNELS, SQUEEZED)), SQUEEZED)
        large = pointwise(relay.nn.relu(small), relay.var(f"b{k}", shape=(1, 1, SQUEEZED, CHANNELS)), CHANNELS)
        x = relay.add(relay.multiply(relay.tanh(x), relay.sigmoid(large)), start)
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(x, layout="NHWC"))
    out = relay.nn.dense(pooled, relay.var("c", shape=(10, CHANNELS)))
    return relay.Function(relay.expr.free_vars(out), out)


def model():
    function, rng = gated(), np.random.default_rng(0)
    shapes = {v.name_hint: v.type_annotation.concrete_shape for v in function.params if v.name_hint != "x"}
    return ns.IRModule.from_expr(function), {n: rng.normal(0, 0.3, s).astype("float32") for n, s in shapes.items()}


def data(n, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 1, (1, SIZE, SIZE, CHANNELS)).astype("float32") for _ in range(n)]


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    """As `compile` builds it, before anything is chosen: kernels with programs that begin early, too."""
    kept, patch = [], pytest.MonkeyPatch()
    patch.setattr(early, "chosen", lambda lib, *_: kept.append(lib) or lib)
    log = str(tmp_path_factory.mktemp("merge") / "log.json")
    with patch.context():
        ns.compile(model(), target="cuda", trials=64, log=log, verbose=0)
    patch.undo()
    kept[0].log = log
    return kept[0]


def kernels(lib):
    """How many a run launches."""
    called = [n["attrs"]["func_name"] for n in json.loads(lib.graph_json_str)["nodes"] if n["op"] == "tvm_op"]
    return sum(len(json.loads(lib.kernels[c].manifest)["kernels"]) for c in called if c in lib.kernels)


def results(network, choice, values):
    """What the network gives for each value, its graph replayed; graphs that follow each other, too."""
    network._take(choice)
    core, out, got = network.core, np.zeros((1, 10), "float32"), []
    (x,) = (d[0] for n, d in core.inputs() if n == "x")
    for i, value in enumerate(values):
        core.set(x, value)
        for _ in range(1 + i % 3):
            core.run()
        core.get(core.outputs()[0][0], out)
        got.append(out.tobytes())
    assert core.captured and len(set(got)) == len(values)
    return got


@pytest.mark.parametrize("most", [8, 32, 64, 256])
def test_the_same_bits(lib, most):
    """All chains merged, of kernels without turns and with many; plain launches, those that begin early, and let the next one begin."""
    found = merging.chains(lib, most)
    made = merging.programs(found, lib)
    other = merging.merged(lib, {c: at for c, at in found.items() if c in made}, made)
    networks, values = [early._Network(x, ns.cuda(0)) for x in (lib, other)], data(RUNS)
    want = results(networks[0], networks[0].all_alike(0), values)
    for k in range(3):
        assert results(networks[1], networks[1].all_alike(k), values) == want
        assert (networks[1].core.early > 0) == (k > 0)
    times = [[statistics.median(n.seconds(n.all_alike(k)) for _ in range(9)) for n in networks] for k in range(3)]
    told = [f"{what} {one * 1e6:.1f} to {two * 1e6:.1f} us" for what, (one, two) in zip(("plain", "early", "next at once"), times)]
    print(f"kernels of at most {most} blocks: {len(made)} chains, {kernels(lib)} to {kernels(other)} launches: {', '.join(told)}")
    assert most < 256 or kernels(other) < kernels(lib)


def test_each_chain_alone(lib):
    places = merging.candidates(lib)
    made, values = merging.programs(places, lib), data(6)
    assert made
    plain = early._Network(lib, ns.cuda(0))
    choice = plain.all_alike(1)
    want = results(plain, choice, values)
    for chain in made:
        one = early._Network(merging.merged(lib, {chain: places[chain]}, made), ns.cuda(0))
        its = early._alike(one, choice)[-1]
        assert results(one, its, values) == want
        seconds = [statistics.median(n.seconds(c) for _ in range(9)) for n, c in ((plain, choice), (one, its))]
        print(f"{len(places[chain])} times {' + '.join(chain.functions)}: {seconds[0] * 1e6:.2f} to {seconds[1] * 1e6:.2f} us")


def test_many_launches_in_a_row(lib):
    """Clusters find room while kernels before and behind them run, thousands of times."""
    found = merging.chains(lib, 64)
    made = merging.programs(found, lib)
    network = early._Network(merging.merged(lib, found, made), ns.cuda(0))
    (value,) = data(1)
    (want,) = results(network, network.all_alike(0), [value])
    network._take(network.all_alike(1))
    for _ in range(5000):
        network.core.run()
    out = np.zeros((1, 10), "float32")
    network.core.get(network.core.outputs()[0][0], out)
    assert out.tobytes() == want


@pytest.mark.parametrize("asked", [None, False])
def test_compile_merges_where_that_is_faster(lib, asked, tmp_path):
    (value,) = data(1)
    with transform.PassContext(config={"nestsmith.merge": False}):
        plain = ns.compile(model(), target="cuda", log=lib.log, verbose=0)
    with transform.PassContext(config={} if asked is None else {"nestsmith.merge": asked}):
        chosen = ns.compile(model(), target="cuda", log=lib.log, verbose=0)
    for _ in range(3):
        assert plain(value).tobytes() == chosen(value).tobytes()
    assert not any("merged" in name for name in plain.lib.kernels)
    assert asked is None or set(chosen.lib.kernels) == set(plain.lib.kernels)
    assert not any(p.early or p.state for name, p in chosen.lib.kernels.items() if "merged" in name)
    seconds = [statistics.median(m.runtime.core.time(100) for _ in range(9)) for m in (plain, chosen)]
    merged = sum("merged" in name for name in chosen.lib.kernels)
    print(f"compile: {seconds[0] * 1e6:.1f} to {seconds[1] * 1e6:.1f} us, {merged} merged programs, {kernels(chosen.lib)} launches")
    assert seconds[1] < seconds[0] * 1.05
    chosen.lib.export_library(str(tmp_path / "net.so"))
    again = ns.runtime.load_module(str(tmp_path / "net.so"))["default"](ns.cuda(0))
    again.set_input("x", value)
    for _ in range(3):
        again.run()
    assert again.get_output(0).numpy().tobytes() == plain(value).tobytes()
