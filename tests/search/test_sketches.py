"""Sketches: texts of the reference for whole networks, and the facts that its unit tests assert."""

import gzip
import json
import pathlib

import pytest
from peer_dags import dag_of
from search_cases import (
    CPU2,
    CPU4,
    CPU16,
    CUDA,
    MALI,
    ask,
    conv_bn_relu,
    double_matmul,
    matmul,
    matmul_relu,
    max_pool,
    policy,
    row_min,
    row_sum,
    scalar_sum,
    sketches,
    softmax,
    steps,
    where,
    winograd,
)

from nestsmith import _core, te, topi

PEER = json.loads(
    gzip.decompress((pathlib.Path(__file__).parent.parent / "data" / "peer-sketches.json.gz").read_bytes())
)


@pytest.mark.parametrize("network", sorted(n for n in PEER if n.startswith("resnet")))
def test_texts_equal_the_reference(network):
    target = CUDA if network.endswith("cuda") else CPU2
    for task in PEER[network]:
        stages = tuple(line.split("(")[0] for line in task["text"].splitlines() if "PLACEHOLDER" not in line)
        got = sketches(dag_of(task["key"], stages), target, search_mode="compatible")
        assert [s.text() for s in got] == [s[1] for s in task["sketches"]], (network, task["index"])


def tiled(s, *stages):
    return all(ask(s, "tiled", i) for i in stages)


def test_matmul_cpu():
    s = sketches(matmul(512, 512, 512), CPU4)
    assert len(s) == 3
    assert tiled(s[0], 2)
    for k in (1, 2):
        assert ask(s[k], "cache_write", 2) and tiled(s[k], 2) and where(s[k], 2) == 2
    assert s[1].text() != s[2].text()


def test_small_matmul_cpu_has_rfactor():
    s = sketches(matmul(8, 8, 512), CPU4)
    assert len(s) == 5
    assert ask(s[0], "rfactor", 2) and ask(s[1], "rfactor", 2) and s[0].text() != s[1].text()
    assert tiled(s[2], 2)
    assert ask(s[3], "cache_write", 2) and where(s[3], 2) == 2 and where(s[4], 2) == 2 and s[3].text() != s[4].text()


def test_double_matmul():
    s = sketches(double_matmul(512), CPU4)
    assert len(s) == 9 and tiled(s[8], 5)
    g = sketches(double_matmul(512), CUDA, lane_products=0)
    assert len(g) == 1 and where(g[0], 5) == 0 and where(g[0], 6) == 2
    more = sketches(double_matmul(512), CUDA)  # either product by lanes
    assert sorted(s.text().count(".shared") for s in more) == [0.5 * g[0].text().count(".shared")] * 2 + [g[0].text().count(".shared")]


def test_conv_cpu():
    s = sketches(conv_bn_relu(), CPU4)
    assert len(s) == 3
    for x in s:
        assert not tiled(x, 1) and tiled(x, 3) and [where(x, i) for i in (5, 7, 9)] == [1, 1, 1]
    for x in s[:2]:
        assert where(x, 3) == 2 and tiled(x, 10)
    assert where(s[2], 3) == 0 and not tiled(s[2], 10)


LANES = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, -1]  # numbers of a product by lanes: its terms, warpgroups and stores are given


def test_conv_cuda():
    s, lanes = sketches(conv_bn_relu(), CUDA)
    assert steps(lanes) == [["CI", 9], ["CI", 7], ["CI", 5], ["CI", 1], ["CA", 3, 10, 3], ["MM", 10, LANES]]
    assert [x.text() for x in sketches(conv_bn_relu(), CUDA, lane_products=0)] == [s.text()]
    assert ask(s, "cache_read", 1) and ask(s, "cache_read", 3)
    assert where(s, 1) == 1 and where(s, 2) == 2 and where(s, 4) == 2
    assert tiled(s, 5) and where(s, 5) == 2 and [where(s, i) for i in (7, 9, 11)] == [1, 1, 1] and tiled(s, 12)


def test_pooling_and_reductions():
    (s,) = sketches(max_pool(1), CPU4)
    assert s.text() == policy(max_pool(1), CPU4).sketches()[0].text() and _n_steps(s) == 0
    (g,) = sketches(max_pool(0), CUDA)
    assert _n_steps(g) <= 1
    r = sketches(row_min(), CPU4)
    assert (
        len(r) == 3
        and ask(r[0], "rfactor", 1)
        and ask(r[1], "rfactor", 1)
        and r[0].text() != r[1].text()
        and _n_steps(r[2]) == 0
    )
    r = sketches(row_min(), CUDA)
    assert len(r) == 2 and ask(r[0], "cross_thread", 1) and _n_steps(r[1]) == 0
    assert len(sketches(scalar_sum(128), CPU4)) == 3 and len(sketches(scalar_sum(128), CUDA)) == 2


def _n_steps(state):
    try:
        return len(steps(state))
    except ValueError:  # open sizes cannot be written
        return 99


@pytest.mark.parametrize("shape", [(1, 1024), (1, 12, 128, 128)])
def test_softmax_cpu(shape):
    s = sketches(softmax(*shape), CPU4)
    assert len(s) == 9
    for i in range(3):
        for j in range(3):
            x = s[3 * i + j]
            if j < 2:
                assert ask(x, "rfactor", 1)
            if i < 2:
                assert ask(x, "rfactor", 4 if j < 2 else 3)
    assert _n_steps(s[8]) == 0


@pytest.mark.parametrize("shape", [(2, 1024), (1, 12, 128, 128)])
def test_softmax_cuda(shape):
    s = sketches(softmax(*shape), CUDA)
    assert len(s) == 4
    assert ask(s[0], "cross_thread", 1) and ask(s[0], "cross_thread", 3)
    assert ask(s[1], "cross_thread", 3) and not ask(s[1], "cross_thread", 1)
    assert ask(s[2], "cross_thread", 1) and not ask(s[2], "cross_thread", 3)
    assert where(s[3], 2) == 1


def test_softmax_cuda_steps():
    s = sketches(softmax(64, 1024), CUDA)
    assert steps(s[0]) == [
        ["SP", 4, 1, 1024, [32], 1],
        ["AN", 4, 2, 6],
        ["FSP", 3, 1, 0, 1],
        ["AN", 3, 2, 6],
        ["CA", 3, 4, 0],
        ["CI", 2],
        ["FSP", 1, 1, 0, 1],
        ["AN", 1, 2, 6],
        ["CA", 1, 4, 0],
    ]
    assert steps(s[1]) == steps(s[0])[:6]
    assert steps(s[2]) == [["CI", 2], ["SP", 1, 1, 1024, [32], 1], ["AN", 1, 2, 6]]
    assert steps(s[3]) == [["CI", 2]]


def test_winograd():
    s = sketches(winograd(), CPU4)
    assert len(s) == 3
    for x in s:
        assert not tiled(x, 1) and not tiled(x, 2) and where(x, 3) == 1 and tiled(x, 4, 6)
    assert where(s[0], 7) == 1 and tiled(s[0], 8) and not tiled(s[0], 9)
    for x in s[1:]:
        assert ask(x, "cache_write", 6) and where(x, 6) == 2 and where(x, 8) == 1 and tiled(x, 9) and not tiled(x, 10)
    assert s[1].text() != s[2].text()
    (g,) = sketches(winograd(), CUDA, lane_products=0)
    (lanes,) = sketches(winograd(), CUDA)
    assert ".shared" in g.text() and ".shared" not in lanes.text() and "bgemm = ..." in lanes.text()  # no loops in tiles
    assert [where(g, i) for i in (1, 2, 3, 5, 7, 9)] == [1, 2, 1, 2, 2, 0]
    assert tiled(g, 4, 8, 12) and where(g, 8) == 2 and where(g, 11) == 2  # the last transform in the kernel that reads it
    assert ask(g, "cache_read", 4) and ask(g, "cache_read", 6) and ask(g, "cache_write", 8)


def test_matmul_cuda():
    s, lanes = sketches(matmul(512, 512, 512), CUDA)
    assert steps(lanes) == [["MM", 2, LANES]]
    assert [x.text() for x in sketches(matmul(512, 512, 512), CUDA, lane_products=0)] == [s.text()]
    assert ask(s, "cache_read", 0) and ask(s, "cache_read", 2) and where(s, 1) == 2 and where(s, 3) == 2
    assert ask(s, "cache_write", 4) and tiled(s, 4, 5) and where(s, 4) == 2
    s = sketches(matmul(8, 8, 1024), CUDA)
    assert len(s) == 3 and ask(s[0], "cross_thread", 2) and tiled(s[1], 4, 5)
    assert steps(s[0]) == [["SP", 2, 2, 1024, [32], 1], ["AN", 2, 3, 6]] and steps(s[2]) == [["MM", 2, LANES]]


def _dense(k):
    x, w, b = te.placeholder((1, k), name="X"), te.placeholder((1000, k), name="W"), te.placeholder((1, 1000), name="B")
    return [x, w, b, topi.add(topi.nn.dense(x, w), b)]


def _batch_matmul():
    x, w = te.placeholder((12, 128, 64), name="X"), te.placeholder((12, 128, 64), name="W")
    return [x, w, topi.nn.batch_matmul(x, w)]


def _depthwise():
    x, w = te.placeholder((1, 112, 112, 32), name="X"), te.placeholder((3, 3, 32, 1), name="W")
    return [x, w, topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1)]


def _global_pool():
    x = te.placeholder((1, 7, 7, 512), name="X")
    i, j = te.reduce_axis((0, 7), name="i"), te.reduce_axis((0, 7), name="j")
    s = te.compute((1, 1, 1, 512), lambda n, a, b, c: te.sum(x[n, i, j, c], axis=[i, j]), name="S")
    return [x, te.compute((1, 1, 1, 512), lambda *v: s(*v) * 0.02, name="M")]


def _chain():
    x = te.placeholder((64, 64), name="X")
    a = te.compute((64, 64), lambda i, j: x[i, j] + 1.0, name="P")
    b = te.compute((64, 64), lambda i, j: te.exp(a[i, j]), name="Q")
    return [x, te.compute((64, 64), lambda i, j: b[i, j] * 2.0, name="R")]


def _scale_shift():
    x, a, b = (
        te.placeholder((1, 64, 56, 56), name="X"),
        te.placeholder((64,), name="S"),
        te.placeholder((64,), name="T"),
    )
    return [x, a, b, te.compute((1, 64, 56, 56), lambda n, c, h, w: x[n, c, h, w] * a[c] + b[c], name="Y")]


@pytest.mark.parametrize(
    "make, cpu, gpu",
    [
        (lambda: _dense(512), 3, 1),
        (lambda: _dense(2048), 3, 2),
        (_batch_matmul, 3, 1),
        (_depthwise, 3, 1),
        (_global_pool, 3, 2),
        (_chain, 1, 1),
        (_scale_shift, 2, 1),
        (lambda: row_sum(128, 4096), 3, 2),
        (lambda: matmul_relu(512, 512, 512), 3, 1),
    ],
)
def test_counts(make, cpu, gpu):
    found = (len(sketches(make(), target, search_mode="compatible")) for target in (CPU4, CUDA))
    assert tuple(found) == (cpu, gpu)


def test_fused_relu_comes_first_on_cpu():
    s = sketches(matmul_relu(512, 512, 512), CPU4)
    assert [where(x, 2) for x in s] == [2, 2, 0]


def _gate(transposed=False):
    """A product times its own sigmoid; `transposed`: the sigmoid times another element."""
    a, b, c = matmul(64, 64, 64)
    d = te.compute((64, 64), lambda i, j: te.sigmoid(c[i, j]), name="S")
    out = te.compute((64, 64), lambda i, j: c[i, j] * d[i, j], name="Y")
    other = te.compute((64, 64), lambda i, j: c[j, i] * d[i, j], name="Y")
    return [a, b, other if transposed else out]


def _two_sums():
    """Two products, of which one is read twice by what reads both."""
    a, b, c = matmul(64, 64, 64)
    v, k = te.placeholder((64, 64), name="V"), te.reduce_axis((0, 64), name="k2")
    e = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * v[k, j], axis=[k]), name="E")
    return [a, b, v, te.compute((64, 64), lambda i, j: c[i, j] * te.sigmoid(c[i, j]) * e[i, j], name="Y")]


@pytest.mark.parametrize("target", [CPU4, CUDA])
def test_a_result_that_is_read_twice_is_finished_in_its_tile(target):
    """The reference fuses a reader only if each value on the way has one: activations such as GELU and SiLU become loops of their own."""
    def fused(mode):
        return [where(s, [x[0] for x in s.stages()].index("C")) == 2 for s in sketches(_gate(), target, search_mode=mode)]

    assert not any(fused("compatible"))
    assert fused("extended") == ([True, True] if target is CUDA else [True, True, False])
    if target is CUDA:  # the second one is a product by lanes, which is one kernel whoever reads it
        assert steps(sketches(_gate(), target)[1]) == [["CI", 3], ["CA", 2, 4, 1], ["MM", 4, LANES]]
    transposed = [[s.text() for s in sketches(_gate(True), target, search_mode=m)] for m in ("compatible", "extended")]
    assert transposed[0] == transposed[1]


@pytest.mark.parametrize("target", [CPU4, CUDA])
def test_of_two_sums_one_is_finished_in_the_tile_of_the_other(target):
    """Only one can lead the reader's loops; the other one keeps what it adds up in a cache of its own."""
    made = [[x[0] for x in s.stages()] for s in sketches(_two_sums(), target)]
    assert target is not CUDA or all("C.local" in names or "E.local" in names for names in made)
    assert any("C.local" in names for names in made)
    policy(_two_sums(), target).sample()


def test_mali_has_no_shared_memory():
    for s in sketches(conv_bn_relu(), MALI):
        assert ".shared" not in s.text()


def test_wide_reduction_sixteen_cores():
    assert len(sketches(row_min(8, 8), CPU16)) == 1


def test_custom_rule():
    p = policy(matmul(512, 512, 512), CPU4)

    def check(state, stage):
        return 2 if state.stages()[stage][0] == "C" else 0

    def apply(state, stage):
        split = state.copy()
        split.apply("SP", stage, 0, 512, [8, 2], 1)
        return [[state.copy(), -1], [split, -1]]

    p.add_rule(check, apply)
    s = p.sketches()
    assert len(s) == 2
    assert [x[4] for x in s[0].stages()[2][3]] == [512, 512, 512]
    assert [x[4] for x in s[1].stages()[2][3]] == [32, 8, 2, 512, 512]


def test_custom_rule_errors_reach_the_caller():
    p = policy(matmul(64, 64, 64), CPU4)
    p.add_rule(lambda s, i: 2, lambda s, i: 1 // 0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        p.sketches()
    p = policy(matmul(64, 64, 64), CPU4)
    p.add_rule(lambda s, i: 2, lambda s, i: [[1, 2]])
    with pytest.raises((RuntimeError, TypeError)):
        p.sketches()


def test_bad_structure():
    with pytest.raises(ValueError, match="letters"):
        policy(matmul(64, 64, 64), CPU4, cpu_multi_level_tiling_structure="SSXR").sketches()


def matrix_by_vector(rows, n, k):
    x, w = te.placeholder((rows, k), name="x"), te.placeholder((n, k), name="w")
    return [x, w, topi.add(topi.nn.dense(x, w), te.placeholder((rows, n), name="b"))]


def test_the_threads_of_a_block_share_a_sum_that_reads_a_matrix_once():
    """Of a matrix times a vector there is one more sketch, where it is asked for; what is read again is tiled."""
    asked, tensors = {"thread_sums": 1}, matrix_by_vector(1, 4096, 512)
    shared, tiles = policy(tensors, CUDA, **asked).sketches()
    assert ask(shared, "cross_thread", 2) and where(shared, 2) == 0 and tiled(tiles, 4)  # behind two caches
    compatible = policy(tensors, CUDA, search_mode="compatible", **asked)
    assert [s.text() for s in compatible.sketches()] == [s.text() for s in sketches(tensors, CUDA)] == [tiles.text()]
    assert len(policy(matrix_by_vector(2, 4096, 512), CUDA, **asked).sketches()) == 1
    assert [s.text() for s in policy(tensors, CPU4, **asked).sketches()] == [s.text() for s in sketches(tensors, CPU4)]


def test_many_consumers_of_one_input():
    """An input read by a tiled and by an untiled stage is not cached."""
    a, b, c = matmul(128, 128, 128)
    d = te.compute((128, 128), lambda i, j: c[i, j] + a[i, j], name="D")
    e = te.compute((128, 128), lambda i, j: d[i, j] + a[j, i], name="E")
    for t in (CPU4, CUDA):
        assert len(sketches([a, b, e], t)) >= 1
    assert _core.ComputeDAG([a, b, e]) is not None
