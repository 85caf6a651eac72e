"""Features: against the reference's for sampled states, the published conformance values, and the feature file."""

import hashlib
import json
import math
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "schedule"))
from peer_dags import dag_of, peer_tasks

from nestsmith import _core, te, topi
from nestsmith.auto_scheduler import ComputeDAG, feature
from nestsmith.states import core_state

CUDA = _core.Target("cuda", sm=90, fast_math=0)
CPU = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0), fast_math=0)
NAMES = feature.get_per_store_feature_names()
AT = {n: i for i, n in enumerate(NAMES)}
NETWORKS = sorted({t["network"] for t in peer_tasks()})
SAMPLED = {
    "mlp-NCHW-cuda": 16, "mlp-NCHW-llvm": 16, "mobilenet-NHWC-cuda": 88, "resnet-18-NHWC-cuda": 186,
    "resnet-18-NHWC-llvm": 144,
}  # fmt: skip


def lg(x):
    return math.log2(x + 1)


def close(a, b):
    """Within 1e-5 relative; a 0 must be a 0."""
    return np.abs(a - b) <= 1e-5 * np.abs(b)


def states_of(network):
    """(task, dag, state, rows of the reference) of sampled states of a network and target; no rows: failed there."""
    with np.load(pathlib.Path(__file__).parent.parent / "data" / "peer-features.npz") as f:
        rows, first = f["rows"], f["first"]
        number = {str(k): i for i, k in enumerate(f["key"])}
    for t in (t for t in peer_tasks() if t["network"] == network):
        dag = dag_of(t["key"], tuple(t["stages"]))
        for steps in (json.dumps(s["steps"]) for s in t["states"]):
            i = number.get(hashlib.md5((network + t["key"] + steps).encode()).hexdigest()[:16])
            if i is not None:
                yield t, dag, _core.State(dag, steps), rows[first[i] : first[i + 1]]


def in_slot_order_of(mine, ref):
    """The row with slots in the order in which they fit the reference's best: it leaves the order of ties open."""
    a, b, left = mine[57:147].reshape(5, 18), ref[57:147].reshape(5, 18), set(range(5))
    fit = close(a[:, None], b[None]).sum(-1)
    order = []
    for j in range(5):
        order.append(max(left, key=lambda i: fit[i, j]))
        left.discard(order[-1])
    row = mine.copy()
    row[57:147] = a[order].ravel()
    return row


def differences(mine, ref):
    """Names of the entries that differ; rows are matched by likeness, for their order is open, too."""
    left, bad = [(i, j) for i in range(len(mine)) for j in range(len(ref))], set()
    fit = close(mine[:, None], ref[None]).sum(-1)
    while left:
        i, j = max(left, key=lambda p: fit[p])
        left = [(a, b) for a, b in left if a != i and b != j]
        bad |= {NAMES[k] for k in np.flatnonzero(~close(in_slot_order_of(mine[i], ref[j]), ref[j]))}
    return bad


@pytest.mark.parametrize("network", NETWORKS)
def test_rules_1_equal_the_reference(network):
    target = CUDA if "cuda" in network else CPU
    seen = 0
    for task, _, state, ref in states_of(network):
        _, mine = _core.features(state, target, rules=1, check=True)
        assert len(mine) == len(ref), "a state that the reference refuses must be refused, and no other"
        assert not differences(mine, ref), (task["key"], state.steps_text(), sorted(differences(mine, ref)))
        seen += 1
    assert seen == SAMPLED[network]


def row_of(state, name, target=CPU, **kw):
    names, rows = _core.features(core_state(state), target, **kw)
    return rows[names.index(name)]


def slots(row):
    return row[57:147].reshape(5, 18)


def matmul(n=512):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return ComputeDAG([a, b, c]), a, b, c


def tiled_matmul():
    dag, _, _, c = matmul()
    s = dag.get_init_state()
    i, j, k = s[c].iters
    io, ii = s.split(c, i, [16])
    jo, ji = s.split(c, j, [8])
    s.reorder(c, [io, jo, k, ji, ii])
    s.vectorize(c, ji)
    s.parallel(c, io)
    s.parallel(c, jo)
    s.unroll(c, k)
    return s


# the whole row of the nest above as the successor of the reference tuner publishes it
FULL = [
    0, 27, 27, 0, 0, 0, 0, 0, 29, 29, 0, 0, 0, 0, 0, 0,
    1, 3.169924, 3.169924, 0, 0, 0, 0, 0, 0, 0, 1, 1, 9.002815, 9.002815, 0, 0, 0, 0, 0, 0, 0, 1,
    1.58496, 11.0007, 6.022368, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1,
    1, 0, 0, 29, 20, 27, 14.00009, 1, 0, 0, 4.087463, 7.055283, 3.169925, 26, 17, 24, 11.000704, 9.002815,
    0, 0, 1, 29, 20, 27, 14.00009, 1, 0, 0, 7.011227, 9.250299, 9.002815, 20, 11.000704, 18.000006, 5.044394, 9.002815,
    1, 0, 0, 29, 20, 19.000002, 14.00009, 1, 0, 0, 1, 3.700440, 4.087463, 25, 16.000023, 15.000044, 10.001408, 0,
    *[0] * 36, 3.812599, 4.464822, 4.912349, 5.253426, 5.529086, 5.760430, 5.959752, 6.134849, 6.290977, 6.431846,
    20.000002, 18.000006, 1, 27, 27, 2.584963, 0,
]  # fmt: skip


def test_tiled_matmul():
    row = row_of(tiled_matmul(), "C", rules=1)
    assert np.abs(row - np.array(FULL)).max() < 2e-5
    c = next(s for s in slots(row) if s[2] == 1)
    b = next(s for s in slots(row) if s[0] == 1 and s[17] == 0)
    want = {3: lg(512**3 * 4), 10: lg(8 * 16), 11: lg((8 * 16 + 8 + 16) * 4), 12: lg(512)}
    for k, v in want.items():
        assert c[k] == pytest.approx(v, abs=1e-6), feature._SLOT[k]
    assert b[4] == pytest.approx(lg(512**2 * 4), abs=1e-6)
    assert (row[AT["unroll_num"]], row[AT["vec_num"]]) == (1, 1)
    assert row[AT["parallel_num"]] == pytest.approx(lg(2)) and row[AT["parallel_prod"]] == pytest.approx(
        lg(512 * 512 / 16 / 8), abs=1e-6
    )


def test_fused_copies():
    s = fused_copies()
    _, rows = _core.features(s.state_object, CPU, rules=1)
    found = [s for r in rows for s in slots(r) if s[8] == 1]
    assert (
        len(found) == 1
        and found[0][10] == pytest.approx(1.0, abs=1e-6)
        and found[0][11] == pytest.approx(lg(16), abs=1e-6)
    )


def tiled_gpu_matmul():
    dag, a, b, c = matmul()
    s = dag.get_init_state()
    local = s.cache_write(c, "local")
    i, j, k = s[local].iters
    i0, i1, i2, i3, i4 = s.split(local, i, [1, 16, 32, 1])
    j0, j1, j2, j3, j4 = s.split(local, j, [4, 1, 1, 16])
    k0, k1, k2 = s.split(local, k, [1, 2])
    s.reorder(local, [i0, j0, i1, j1, i2, j2, k0, k1, i3, j3, k2, i4, j4])
    i, j = s[c].iters
    ci = s.split(c, i, [1, 16, 32])
    cj = s.split(c, j, [4, 1, 16])
    s.reorder(c, [ci[0], cj[0], ci[1], cj[1], ci[2], cj[2], ci[3], cj[3]])
    block = s.fuse(c, [ci[0], cj[0]])
    vthread = s.fuse(c, [ci[1], cj[1]])
    thread = s.fuse(c, [ci[2], cj[2]])
    s.bind(c, block, "blockIdx.x")
    s.bind(c, vthread, "vthread")
    s.bind(c, thread, "threadIdx.x")
    s.compute_at(local, c, s[c].iters[2])
    for t in (a, b):
        shared = s.cache_read(t, "shared", [local])
        s.compute_at(shared, local, s[local].iters[6])
        s.split(shared, s.fuse(shared, s[shared].iters), [16])
        s.bind(shared, s[shared].iters[1], "threadIdx.x")
    return dag, s


def test_gpu_matmul():
    _, s = tiled_gpu_matmul()
    names, rows = _core.features(s.state_object, CUDA, rules=1)
    assert set(names) == {"A.shared", "B.shared", "C.local", "C"}
    for n, row in zip(names, rows):
        got = [
            row[AT[k]]
            for k in ("is_gpu", "blockIdx_x_len", "threadIdx_x_len", "threadIdx_y_len", "blockIdx_z_len", "vthread_len")
        ]
        assert got == pytest.approx([1, lg(8), lg(16), 1, 1, lg(4)], abs=1e-6), n


def test_flat_matmul():
    n, s = 128, flat_matmul()
    names, rows = _core.features(s.state_object, CPU, rules=1, log=False)
    assert len(names) == 1
    row = rows[0]
    assert row[AT["float_mad"]] == 0 and row[AT["float_addsub"]] == n**3 and row[AT["float_mul"]] == n**3
    assert [row[AT[f"B{i}.unique_bytes"]] for i in range(3)] == [n * n * 4] * 3


def test_dense():
    n = 128
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    _, rows = _core.features(
        ComputeDAG([a, b, topi.nn.dense(a, b)]).get_init_state().state_object, CPU, rules=1, log=False
    )
    total = rows.sum(0)
    assert total[AT["float_addsub"]] >= n**3 and total[AT["float_mul"]] >= n**3
    assert sum(total[AT[f"B{i}.unique_bytes"]] for i in range(4)) > 2 * n * n * 4


def test_scalar_read():
    p = te.placeholder((), dtype="int8", name="p")
    t = te.compute((768,), lambda i: p(), name="T")
    row = row_of(ComputeDAG([p, t]).get_init_state(), "T", rules=1, log=False)
    assert row[AT["B0.stride"]] == 1 and row[AT["B1.stride"]] == 1


def test_worked_example():
    s = worked_example()
    row = row_of(s, "C", rules=1)
    want = {
        1: 18.000006,
        2: 18.000006,
        8: 20.000001,
        9: 20.000001,
        16: 1,
        17: 3.169925,
        26: 1,
        30: 1,
        38: 1,
        39: 2.321928,
        48: 1,
        57: 1,
        64: 1,
        60: 20.000001,
        61: 14.000088,
        62: 15.000044,
        63: 8.005625,
        67: 1,
        68: 3.700440,
        69: 3.169925,
        70: 17.000011,
        71: 11.000704,
        72: 12.000352,
        73: 5.044394,
        74: 0,
        75: 1,
        82: 1,
        80: 14.000088,
        85: 3.169925,
        86: 6.108524,
        87: 4.087463,
        92: 1,
        95: 1,
        100: 1,
        103: 7.011227,
        104: 9.250298,
        105: 6.022368,
        109: 2.321928,
        147: 2.125685,
        148: 2.505109,
        156: 3.544321,
        157: 9.002815,
        158: 12.000352,
        159: 5.044394,
        160: 13.000176,
        161: 18.000006,
        162: 2.584963,
        163: 4.087463,
    }
    for at, v in want.items():
        assert row[at] == pytest.approx(v, abs=1e-5), (at, NAMES[at])
    row = row_of(s, "D", rules=1)
    for at, v in {
        4: 12.000352,
        8: 13.000176,
        9: 13.000176,
        67: lg(128),
        68: lg(4608),
        69: lg(2),
        147: 0.169925,
        157: lg(16384),
        159: 1,
    }.items():
        assert row[at] == pytest.approx(v, abs=1e-5), (at, NAMES[at])
    row = row_of(s, "D", rules=2)  # the initial store is not recorded
    assert row[68] == pytest.approx(lg(4096), abs=1e-5) and row[69] == 1


def relu(x):
    from nestsmith import tir

    return tir.max(x, tir.const(0.0, "float32"))


def test_threads_give_identical_bytes():
    states = [s for _, _, s, _ in states_of("resnet-18-NHWC-llvm")][:60]
    one = _core.feature_batch(states, CPU, threads=1)
    two = _core.feature_batch(states, CPU, threads=2)
    assert one[0].tobytes() == two[0].tobytes() and one[1].tobytes() == two[1].tobytes()


def test_rules_2_are_finite_and_leave_out_constant_stores():
    for network in NETWORKS:
        for _, _, state, _ in states_of(network):
            _, rows = _core.features(state, CUDA if "cuda" in network else CPU)
            assert np.isfinite(rows).all() and len(rows) >= 1
    names, _ = _core.features(tiled_matmul().state_object, CPU)
    assert names == ("C",)


def test_rows_need_no_initial_values_that_are_literals():
    """The search does not even make them; a program that is checked for the limits of a GPU has them."""
    x, k = te.placeholder((64, 32), name="x"), te.reduce_axis((0, 32), name="k")
    y = te.compute((64,), lambda i: te.sum(x[i, k], axis=[k], init=x[i, 0]), name="y")
    index_of_largest = [x, topi.argmax(x, axis=1)]  # initial values of several sums at once are stored from variables
    states = [(_core.State(_core.ComputeDAG(outs), "[]"), CPU) for outs in ([x, y], index_of_largest)]  # where what is read counts as touched
    for network in NETWORKS:
        states += [(s, CUDA if "cuda" in network else CPU) for _, _, s, _ in states_of(network)]
    compared = 0
    for state, target in states:
        (names, rows), (all_names, all_rows) = (_core.features(state, target, check=c) for c in (False, True))
        if len(all_rows):  # else it breaks a limit
            compared += 1
            assert names == all_names and rows.tobytes() == all_rows.tobytes()
    assert compared > 200


def test_bad_arguments():
    state = tiled_matmul().state_object
    with pytest.raises(ValueError, match="rules=3"):
        _core.features(state, CPU, rules=3)
    with pytest.raises(TypeError):
        _core.features(1, CPU)
    with pytest.raises(TypeError, match="target"):
        _core.features(state, 5)
    with pytest.raises(TypeError, match=r"states\[1\]"):
        _core.feature_batch([state, 7], CPU)


def test_feature_file(tmp_path):
    path = tmp_path / "f.bin"
    rows = [np.random.default_rng(i).random((i + 1, 164), np.float32) for i in range(3)] + [
        np.zeros((1, 164), np.float32)
    ]
    f = feature.FeatureFile(path, state_entries=2)
    f.add_task(0, "key", "llvm", 5)
    f.add([0, 0], rows[:2], [[1.0, 3.0], [2.0]], state_vectors=[[1, 2], [3, 4]], step_hashes=[7, 2**63])
    feature.FeatureFile(path).add([0, 1], rows[2:], [[1e10], []], state_vectors=[[5, 6], [7, 8]])
    got = feature.FeatureFile(path).read()
    assert (got["rows"] == np.concatenate(rows[:3])).all() and got["first"].tolist() == [0, 1, 3, 6, 6]
    assert got["costs"].tolist() == [2.0, 2.0, 1e10, 1e10] and got["status"].tolist() == [0, 0, 3, 1]
    assert (
        got["hash"].tolist() == [7, 2**63, 0, 0]
        and got["state"][2].tolist() == [5, 6]
        and got["tasks"][0]["flops"] == 5
    )
    assert got["segments"].tolist() == [1, 2, 3, 0]
    feature.FeatureFile(path).export_text(tmp_path / "f.txt")
    lines = [json.loads(x) for x in (tmp_path / "f.txt").read_text().splitlines()]
    assert [len(x["rows"]) for x in lines] == [1, 2, 3, 0] and lines[1]["hash"] == "8000000000000000"
    assert lines[0]["rows"][0]["float_addsub"] == pytest.approx(float(rows[0][0, 1]), abs=1e-6)
    assert lines[3]["status"] == 1 and lines[2]["state"] == {"0": 5.0, "1": 6.0}
    raw = path.read_bytes()
    path.write_bytes(raw[:-3])
    with pytest.raises(ValueError, match="cut off or damaged"):
        feature.FeatureFile(path).read()
    path.write_bytes(raw[:300] + b"x" + raw[301:])
    with pytest.raises(ValueError, match="not a feature|rules|CRC|version"):
        path.write_bytes(raw[:-40] + b"x" + raw[-39:])
        feature.FeatureFile(path).read()
    with pytest.raises(ValueError, match="rules"):
        path.write_bytes(raw)
        feature.FeatureFile(path, rules=1)


def worked_example():
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((64, 64), lambda i, j: relu(c[i, j]), name="D")
    s = ComputeDAG([a, b, d]).get_init_state()
    i, j = s[d].iters
    i0, i2 = s.split(d, i, [16])
    j0, j2 = s.split(d, j, [8])
    s.reorder(d, [i0, j0, i2, j2])
    s.compute_at(c, d, j0)
    ci, cj, ck = s[c].iters
    s.reorder(c, [ck, ci, cj])
    s.pragma(d, i0, "auto_unroll_max_step$16")
    s.parallel(d, s[d].iters[0])
    s.vectorize(d, j2)
    s.vectorize(c, cj)
    return s


def fused_copies():
    a = te.placeholder((64, 32), name="A")
    b = te.compute((64, 32), lambda i, j: a[i, j], name="B")
    c = te.compute((64, 32), lambda i, j: b[i, j], name="C")
    s = ComputeDAG([a, c]).get_init_state()
    s.compute_at(b, c, s[c].iters[1])
    return s


def flat_matmul(n=128):
    a, b = te.placeholder((n * n,), name="A"), te.placeholder((n * n,), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute(
        (n * n,), lambda i: te.sum(a[te.indexdiv(i, n) * n + k] * b[te.indexmod(i, n) * n + k], axis=k), name="C"
    )
    s = ComputeDAG([a, b, c]).get_init_state()
    s.split(c, s[c].iters[0], [n])
    return s


PROGRAMS = {
    "worked_example": worked_example,
    "matmul_512": tiled_matmul,
    "fusion_64_32": fused_copies,
    "flat_matmul_128": flat_matmul,
}


@pytest.mark.parametrize("rules", [1, 2])
@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_rows_of_an_independent_extractor(program, rules):
    """Every entry of four programs, as a second implementation of both rule sets computes them."""
    path = pathlib.Path(__file__).parent.parent / "data" / "feature-programs.json"
    want = json.loads(path.read_text())[f"{program}/{rules}"]
    names, rows = _core.features(PROGRAMS[program]().state_object, CPU, rules=rules)
    assert sorted(names) == sorted(want)
    for name, row in zip(names, rows):
        got = {k: float(v) for k, v in zip(NAMES, row) if v}
        if program == "flat_matmul_128":  # a buffer that is allocated here is an argument there
            got = {k: v for k, v in got.items() if not k.startswith("alloc_")}
        assert sorted(got) == sorted(want[name]), name
        bad = {k: (v, want[name][k]) for k, v in got.items() if abs(v - want[name][k]) > 1e-5 * max(1, v)}
        assert not bad, (name, bad)


def test_packed_block():
    rng = np.random.default_rng(3)
    rows = [rng.random((n, 164), np.float32) for n in (2, 1, 5)] + [np.zeros((1, 164), np.float32)]
    raw = feature.pack_feature(rows, [1.0, 0.5, 0.25, 0], [0, 0, 1, 1])
    assert np.frombuffer(raw, "<i4", 7).tolist() == [4, 329, 165, 821, 0, 4, 4]
    got, labels, tasks = feature.unpack_feature(raw)
    assert all((a == b).all() for a, b in zip(got, rows)) and labels.tolist() == [1, 0.5, 0.25, 0]
    assert tasks.tolist() == [0, 0, 1, 1]
    got, labels, tasks = feature.unpack_feature(bytearray(feature.pack_feature(rows)))
    assert len(got) == 4 and len(labels) == len(tasks) == 0
    for bad in (b"", raw[:9], raw[:-4], raw + b"1234", b"\xff" * 64, raw[:28] + b"\0\0\x80\x40" + raw[32:]):
        with pytest.raises(ValueError, match="block|rows"):
            feature.unpack_feature(bad)
    with pytest.raises(ValueError, match="features\\[0\\]"):
        feature.pack_feature([np.zeros((1, 3))])
    with pytest.raises(ValueError, match="2 numbers for 4 states"):
        feature.pack_feature(rows, [1, 2])


def test_states_that_cannot_run():
    """One row of zeros for scripts, no row and the score -inf inside: states that the reference refuses, too."""
    t, dag, state, ref = next(x for x in states_of("resnet-18-NHWC-cuda") if len(x[3]) == 0)
    good = next(x for x in states_of("resnet-18-NHWC-cuda") if len(x[3]) and x[0]["key"] == t["key"])[2]
    rows, first = _core.feature_batch([state, good, state], CUDA, rules=1)
    assert first[1] == 0 and first[2] == first[3] == len(rows) > 0
    got = feature._unpack(rows, first)
    assert [len(x) for x in got] == [1, len(rows), 1] and not got[0].any() and not got[2].any() and got[1].any(1).all()
    learner, policy = _core.Learner(1, "trees"), _core.Policy(dag, CUDA)
    number = learner.task(policy)
    for trained in (False, True):
        assert learner.score(number, state.infer_bounds()) == -math.inf
        assert learner.score(number, good.infer_bounds()) > 0 and learner.ready() == trained
        for k in range(20 * (not trained)):
            learner.add(number, good, 1e-3 / (k + 1))
        learner.train(1)


def test_warps_of_a_gpu_matmul():
    """Sectors and banks of the first warp (16 threads), worked out by hand from the schedule."""
    dag, s = tiled_gpu_matmul()
    policy = _core.Policy(dag, CUDA)
    v = policy.vector(s.state_object.infer_bounds())
    assert len(v) == 48 and v[0] == pytest.approx(lg(8)) and v[1] == pytest.approx(lg(16))
    assert v[3] == pytest.approx(lg(4)) and v[4] == pytest.approx(lg(4 * (512 * 2 + 2 * 64)), abs=1e-5)
    assert v[17] == 0.5  # half of the lanes
    # A is copied in pieces of two floats from rows of 512: 8 sectors where 2 would do; B in runs of 16 floats
    assert v[18] == 0.25 and 0.25 < v[19] < 1
    # neighbours write rows that are 32 x 512 floats apart: 16 sectors where 2 would do
    assert v[20] == v[21] == 0.125
    # rows of the tile of A that neighbours read are 64 floats apart: one bank; all read the same element of B
    assert v[24] == pytest.approx(lg(16), abs=1e-5) and lg(1) < v[25] < lg(16)
    assert v[26] == v[27] == 1  # the copies write consecutive words
    assert v[32] == pytest.approx(lg(2 * 256 * 2), abs=1e-5) and v[47] == 1  # two tiles, 256 times, before and after
    assert policy.facts(s.state_object.infer_bounds())["seconds"] == pytest.approx((2 ** v[41] - 1) / 1e9, rel=1e-4)


# What differs between two kernels of a matrix product (tile of a block and of a warp, terms, then what they share), and entries of the
# vector that have to tell; besides these, the estimate always does.
MATRIX = [
    ("stages", (3, 4), ((64, 64, 32), (32, 32), 1), {}, {4, 33}),  # shared bytes; stages
    ("stages", (2, 3), ((32, 32, 32), (16, 32), 0), {}, {4, 33}),
    ("split", (1, 2), ((64, 64, 32), (32, 32), 1), {}, {0, 32, 37}),  # blocks, barriers, slices of a block
    ("split", (2, 16), ((32, 32, 32), (16, 32), 0), {}, {0, 32, 37}),
    ("teams", (1, 2), ((32, 32, 32), (16, 32), 0), {}, {1, 2}),  # threads, warps
    ("teams", (2, 4), ((32, 32, 32), (16, 32), 0), {"split": 4}, {1, 2}),
    ("warpgroups", (0, 1), ((64, 64, 32), (64, 64), 1), {}, {1, 2, 39}),  # registers of sums and fragments, too
    ("warpgroups", (1, 2), ((64, 64, 32), (64, 64), 1), {}, set()),
    ("last", (0, 1), ((64, 64, 32), (32, 32), 1), {"split": 4}, {4, 44}),  # a cluster has room for others' sums; bytes in memory
    ("last", (0, 1), ((64, 64, 32), (32, 32), 1), {"split": 16}, {44}),  # a second kernel would add them up
    ("last", (0, 1), ((32, 32, 32), (16, 32), 0), {"split": 4, "teams": 2}, {4, 44}),
]


@pytest.mark.parametrize("what, pair, tile, shared, tell", MATRIX)
def test_matrix_kernels_are_told_apart(what, pair, tile, shared, tell):
    """States that differ in one number of the step alone have different vectors; 34 is 1 on tensor cores, 0 by lanes."""
    (block, warp, terms), n, deep = tile, 256, 1024
    a, b = te.placeholder((n, deep), name="A"), te.placeholder((deep, n), name="B")
    k = te.reduce_axis((0, deep), name="k")
    dag = _core.ComputeDAG([a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])
    policy, vectors = _core.Policy(dag, CUDA), []
    for value in pair:
        own = {"stages": 3, "split": 1, "warpgroups": 0, "teams": 1, "last": 0} | shared | {what: value}
        numbers = [own["stages"], 0, own["split"], terms, own["warpgroups"], 0, own["teams"], own["last"]]
        state = _core.State(dag, json.dumps([["MM", 2, [*block, *warp, *numbers]]]))
        v = policy.vector(state.infer_bounds())
        assert v[34] == (terms > 0) and v[35] == v[36] == 1 and v[40] == 0
        assert v[37] == v[32] == pytest.approx(lg(deep / block[2] / own["split"]))
        assert v[38] == pytest.approx(lg(2 * block[0] * block[1] / 4 / (block[0] + block[1])))
        vectors.append(np.array(v))
    differ = set(np.flatnonzero(vectors[0] != vectors[1]).tolist())
    assert differ >= tell | {41}


@pytest.mark.parametrize("rank", [60, 66])
def test_axes_that_are_not_told_apart_make_no_vectors(rank):
    """The estimate of unrolled code looks for a loop over the innermost axis; of axes behind the sixtieth it knows none."""

    def seconds(rank):
        shape = (1, 16, *[1] * (rank - 3), 32)
        a = te.placeholder(shape, name="a")
        b = te.compute(shape, lambda *i: a(*i) + 1, name="b")
        dag = ComputeDAG([a, b])
        state = dag.get_init_state()
        state.unroll(b, state.stages[1].iters[rank - 1])
        return _core.Policy(dag, CPU).facts(state.state_object.infer_bounds())["seconds"]

    assert seconds(rank) == seconds(3)
