"""The executor's engine part: storage plan, parameter file, graph file and a network put together by hand."""

import json

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, relay, te, topi
from nestsmith.target import Target
from nestsmith.topi.default_schedule import default_state

NULL, CALL, NOP, JOIN = 0, 1, 2, 3


def test_plan_of_branches():
    """B and C read A only: none takes memory that the other one's branch has given back, D, behind both, may."""
    nodes = [(NULL, [], 1), (CALL, [0], 1), (CALL, [1], 1), (CALL, [2], 1), (CALL, [1], 1), (CALL, [4], 1), (CALL, [3, 5], 1)]
    chain, beside = (_core.graph_plan(nodes, [64] * 7, [6], branches)[0] for branches in (False, True))
    assert chain[4] == chain[2]  # the second branch takes what the first one has left
    assert not {beside[k] for k in (2, 3)} & {beside[k] for k in (4, 5)} and beside[6] in beside[1:6]


def test_plan_example():
    nodes = [
        (NULL, [], 1),
        (NULL, [], 1),
        (CALL, [0, 1], 1),
        (NULL, [], 1),
        (CALL, [2, 3], 1),
        (NULL, [], 1),
        (CALL, [4, 5], 1),
    ]
    assert _core.graph_plan(nodes, [64] * 7, [6])[0] == [0, 1, 2, 3, 4, 5, 2]


@pytest.mark.parametrize("seed", range(30))
def test_plan_never_overwrites_what_is_still_read(seed):
    rng = np.random.default_rng(seed)
    nodes, sizes, made = [(NULL, [], 1)], [int(rng.integers(1, 4000))], 1
    for _ in range(40):
        kind = NOP if rng.random() < 0.2 else CALL
        count = 1 if kind == NOP else int(rng.integers(1, 3))
        reads = [
            int(rng.integers(max(0, made - 6), made)) for _ in range(1 if kind == NOP else int(rng.integers(1, 4)))
        ]
        nodes.append((kind, reads, count))
        sizes += [sizes[reads[0]]] if kind == NOP else [int(rng.integers(1, 4000)) for _ in range(count)]
        made += count
    heads = [made - 1, int(rng.integers(0, made))]
    ids, total = _core.graph_plan(nodes, sizes, heads)
    assert all(total[i] >= s for i, s in zip(ids, sizes))
    held = {}  # storage -> value whose bytes it holds; reshapes are the value of their input
    value, entry = {}, 0
    for kind, reads, count in nodes:
        for r in reads:
            assert held[ids[r]] == value[r], f"value {r} was overwritten before it was read"
        outs = range(entry, entry + count)
        if kind == CALL:
            assert not {ids[o] for o in outs} & {ids[r] for r in reads} and len({ids[o] for o in outs}) == count
        for o in outs:
            value[o] = value[reads[0]] if kind == NOP else o
            held[ids[o]] = value[o]
        entry += count
    for h in heads:
        assert held[ids[h]] == value[h]


@pytest.mark.parametrize("seed", range(30))
def test_plan_of_branches_holds_in_any_order(seed):
    """Nodes run in an order drawn among those that have all they read; nothing is overwritten that somebody still reads."""
    rng = np.random.default_rng(seed)
    nodes, sizes = [(NULL, [], 1)], [64]
    for k in range(1, 40):
        kind = NOP if rng.random() < 0.2 else CALL
        reads = sorted({int(rng.integers(max(0, k - 8), k)) for _ in range(1 if kind == NOP else int(rng.integers(1, 4)))})
        nodes.append((kind, reads, 1))
        sizes.append(sizes[reads[0]] if kind == NOP else int(rng.integers(1, 4000)))
    heads = [len(nodes) - 1]
    ids, total = _core.graph_plan(nodes, sizes, heads, True)
    assert len(total) <= len(nodes) and all(total[i] >= s for i, s in zip(ids, sizes))
    for _ in range(10):
        held, value, done = {}, {}, set()
        while len(done) < len(nodes):
            k = int(rng.choice([k for k in range(len(nodes)) if k not in done and done.issuperset(nodes[k][1])]))
            for r in nodes[k][1]:
                assert held[ids[r]] == value[r], f"value {r} was overwritten before node {k} read it"
            value[k] = value[nodes[k][1][0]] if nodes[k][0] == NOP else k
            held[ids[k]] = value[k]
            done.add(k)
        assert held[ids[heads[0]]] == value[heads[0]]


@pytest.mark.parametrize("seed", range(20))
def test_plan_keeps_concatenations_from_their_first_part_to_their_last_reader(seed):
    rng = np.random.default_rng(seed)
    nodes, sizes, free, waiting = (
        [(NULL, [], 1)],
        [64],
        [0],
        [],
    )  # values that others may read; parts that were not joined yet
    for _ in range(50):
        reads = [int(rng.choice(free[-5:])) for _ in range(int(rng.integers(1, 3)))]
        if len(waiting) >= 2 and rng.random() < 0.5:
            nodes.append((JOIN, waiting, 1))
            sizes.append(sum(sizes[p] for p in waiting))
            waiting = []
        else:
            nodes.append((CALL, reads, 1))
            sizes.append(int(rng.integers(1, 4000)))
            if rng.random() < 0.4:
                waiting = [*waiting, len(nodes) - 1]
                continue
        free.append(len(nodes) - 1)
    heads = [free[-1]]
    ids, total = _core.graph_plan(nodes, sizes, heads)
    assert all(total[i] >= s for i, s in zip(ids, sizes)) and any(kind == JOIN for kind, _, _ in nodes)
    whole = {p: i for i, (kind, reads, _) in enumerate(nodes) if kind == JOIN for p in reads}
    held = {}
    for i, (kind, reads, _) in enumerate(nodes):
        for r in reads:
            assert held[ids[r]] == whole.get(r, r), f"value {r} was overwritten before it was read"
        if kind == CALL:
            assert ids[i] not in {ids[r] for r in reads}
        if i in whole and held.get(ids[i]) == whole[i]:
            continue  # another part is there already
        held[ids[i]] = whole.get(i, i)
    assert all(held[ids[h]] == h for h in heads)


@pytest.mark.parametrize(
    "nodes,sizes,heads",
    [
        ([(CALL, [0], 1)], [4], [0]),
        ([(NULL, [], 1)], [4, 4], [0]),
        ([(NULL, [], 1)], [4], [1]),
        ([(NULL, [], 1), (NOP, [0, 0], 1)], [4, 4], [1]),
        ([(NULL, [], 1), (JOIN, [0], 1)], [4, 4], [1]),
        ([(NULL, [], 1), (CALL, [0], 1), (JOIN, [], 1)], [4, 4, 4], [1]),
        ([(NULL, [], 1), (CALL, [0], 1), (JOIN, [1, 1], 1)], [4, 4, 8], [2]),
        ([(NULL, [], 1), (CALL, [0], 1), (JOIN, [1], 1)], [4, 4, 4], [1]),
        ([(NULL, [], 1), (CALL, [0], 1), (JOIN, [1], 1), (CALL, [1], 1)], [4, 4, 4, 4], [3]),
        ([(NULL, [], 1), (CALL, [0], 1), (JOIN, [1], 2)], [4, 4, 4, 4], [2]),
        ([(NULL, [], -1)], [4], [0]),
        ([(CALL, [-1], 1)], [4], [0]),
    ],
)
def test_plan_refuses_nonsense(nodes, sizes, heads):
    with pytest.raises(ValueError):
        _core.graph_plan(nodes, sizes, heads)


DTYPES = "float32 float16 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()


def test_parameter_file():
    rng = np.random.default_rng(0)
    params = {f"w_{d}": rng.integers(0, 2, (3, 2)).astype(d) for d in DTYPES}
    params.update(scalar=np.float32(2.5), empty=np.zeros((0, 4), "float32"), nd=ns.nd.array(np.ones((2, 2), "float32")))
    data = relay.save_param_dict(params)
    assert data[:8] == bytes.fromhex("b79c04054f8de5f7") and int.from_bytes(data[16:24], "little") == len(params)
    back = relay.load_param_dict(data)
    assert list(back) == list(params)
    for name, value in params.items():
        want = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        assert back[name].dtype == want.dtype and back[name].shape == want.shape and np.array_equal(back[name], want)


def test_damaged_parameter_files():
    data = relay.save_param_dict({"w": np.arange(6, dtype="float32")})
    for n in range(0, len(data), 3):
        with pytest.raises(ValueError):
            relay.load_param_dict(data[:n])
    for i in range(0, len(data) - 24, 2):
        broken = bytearray(data)
        broken[i] ^= 0xFF
        try:
            relay.load_param_dict(bytes(broken))
        except (ValueError, MemoryError, UnicodeDecodeError):
            pass


def twice(name="twice", shape=(4, 8)):
    x = te.placeholder(shape, name="x")
    dag = _core.ComputeDAG([x, topi.add(topi.multiply(x, 2.0), 1.0)])
    target = Target("llvm")
    from nestsmith.relay.build_module import _engine_target

    source, manifest = _core.candidate_source(default_state(dag, target), _engine_target(target), 0, name)
    device = ns.cpu(0).handle()
    return device.load(_core.build(target.engine(), source)[0], manifest)


def graph(**changes):
    g = {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "tvm_op", "name": "a", "attrs": {"func_name": "twice"}, "inputs": [[0, 0, 0]]},
            {"op": "tvm_op", "name": "b", "attrs": {"func_name": "twice"}, "inputs": [[1, 0, 0]]},
        ],
        "arg_nodes": [0],
        "heads": [[2, 0, 0]],
        "node_row_ptr": [0, 1, 2, 3],
        "attrs": {
            "shape": ["list_shape", [[4, 8]] * 3],
            "dltype": ["list_str", ["float32"] * 3],
            "storage_id": ["list_int", [0, 1, 2]],
        },
    }
    g.update(changes)
    return json.dumps(g)


def test_a_graph_put_together_by_hand():
    x = _core.GraphExec(ns.cpu(0).handle(), graph(), {"twice": twice()})
    assert x.inputs() == [("x", (0, (4, 8), "float32"))] and x.outputs() == [(2, (4, 8), "float32")]
    data, out = np.arange(32, dtype="float32").reshape(4, 8), np.empty((4, 8), "float32")
    x.set(0, data)
    x.run()
    x.get(2, out)
    assert np.array_equal(out, (data * 2 + 1) * 2 + 1)
    assert (
        x.time(3) > 0
        and [t > 0 for t in x.node_times(3)[0]] == [False, True, True]
        and not x.captured
        and x.bytes == 3 * 128
    )
    for bad in (lambda: x.set(9, data), lambda: x.get(-1, out)):
        with pytest.raises(IndexError):
            bad()
    for bad in (lambda: x.set(0, data[:2]), lambda: x.set(0, data[:, ::2]), lambda: x.time(0), lambda: x.bind(0, data)):
        with pytest.raises((ValueError, BufferError)):
            bad()
    with pytest.raises(TypeError):
        x.set(0, "text")


@pytest.mark.parametrize(
    "changes,what",
    [
        ({"nodes": 3}, "nodes"),
        ({"heads": [[7, 0, 0]]}, "node number"),
        ({"heads": [[2, 1, 0]]}, "output number"),
        ({"arg_nodes": [1]}, "no input"),
        ({"node_row_ptr": [0, 1, 2]}, "node_row_ptr"),
        ({"node_row_ptr": [0, 1, 1, 3]}, "ascend"),
        ({"attrs": {}}, "shape"),
        (
            {"attrs": {"shape": ["", [[4, 8]] * 3], "dltype": ["", ["float33"] * 3], "storage_id": ["", [0, 1, 2]]}},
            "dtype",
        ),
        (
            {"attrs": {"shape": ["", [[4, 9]] * 3], "dltype": ["", ["float32"] * 3], "storage_id": ["", [0, 1, 2]]}},
            "bytes",
        ),
        (
            {
                "attrs": {
                    "shape": ["", [[1 << 40, 1 << 40]] * 3],
                    "dltype": ["", ["float32"] * 3],
                    "storage_id": ["", [0, 1, 2]],
                }
            },
            "large",
        ),
        (
            {"attrs": {"shape": ["", [[4, 8]] * 3], "dltype": ["", ["float32"] * 3], "storage_id": ["", [0, 1, -2]]}},
            "storage_id",
        ),
    ],
)
def test_broken_graph_files(changes, what):
    with pytest.raises(ValueError, match=what):
        _core.GraphExec(ns.cpu(0).handle(), graph(**changes), {"twice": twice()})


def test_missing_and_wrong_functions():
    device = ns.cpu(0).handle()
    with pytest.raises(ValueError, match="twice"):
        _core.GraphExec(device, graph(), {})
    with pytest.raises(TypeError):
        _core.GraphExec(device, graph(), {"twice": 3})
    with pytest.raises(ValueError, match="JSON"):
        _core.GraphExec(device, "no json", {})


@pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL device")
def test_another_program_for_a_function():
    """An executor takes programs of the same tensors while it is there, and nothing else."""
    dev, target = ns.opencl(0).handle(), Target("opencl")

    def program(change, shape=(4, 8)):
        x = te.placeholder(shape, name="X")
        made = change(x)
        source, manifest = _core.candidate_source(default_state(_core.ComputeDAG([x, made]), target), target.engine(), 0, "twice")
        return dev.load(_core.build(target.engine(), source)[0], manifest)

    x = _core.GraphExec(dev, graph(), {"twice": program(lambda t: topi.add(t, t))})
    data, out = np.arange(32, dtype="float32").reshape(4, 8), np.zeros((4, 8), "float32")
    x.set(0, data)

    def result():
        for _ in range(2):
            x.run()
        x.get(x.outputs()[0][0], out)
        return out

    assert (result() == data * 4).all()  # two nodes
    x.use("twice", program(lambda t: topi.multiply(t, t)))
    assert (result() == data**4).all()
    with pytest.raises(ValueError, match="tensor 0 has 128 bytes"):
        x.use("twice", program(lambda t: topi.add(t, t), (4, 9)))
    with pytest.raises(ValueError, match="no node of the network calls thrice"):
        x.use("thrice", program(lambda t: topi.add(t, t)))
    assert (result() == data**4).all()


def test_programs_of_a_network_on_a_cpu_stay():
    x = _core.GraphExec(ns.cpu(0).handle(), graph(), {"twice": twice()})
    with pytest.raises(ValueError, match="cannot be changed: compile it again"):
        x.use("twice", twice())
