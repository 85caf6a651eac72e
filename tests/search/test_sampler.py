"""The sampler of the extended mode: valid, without holes, correct programs; the compatible mode stays as it was."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from search_cases import (
    CPU2,
    CUDA,
    MALI,
    conv_bn_relu,
    double_matmul,
    matmul,
    matmul_relu,
    max_pool,
    policy,
    softmax,
    steps,
    winograd,
)

import helpers
from nestsmith import _core, te, topi


def device(threads=1024, shared=49152, vthread=8, warp=32):
    return _core.Target("cuda", (-1, 16, 64, shared, 2147483647, threads, vthread, warp), sm=90)


def odd_conv():
    x, w = te.placeholder((1, 13, 13, 35), name="x"), te.placeholder((3, 3, 35, 55), name="w")
    return [x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1)]


def small_odd_conv():
    x, w = te.placeholder((1, 11, 13, 3), name="x"), te.placeholder((3, 3, 3, 22), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d_nhwc(x, w, 1, 1, 1))]


def strided_conv():
    x, w = te.placeholder((1, 9, 9, 6), name="x"), te.placeholder((3, 3, 6, 32), name="w")
    return [x, w, topi.nn.conv2d_nhwc(x, w, 2, 1, 1)]


def depthwise(c=32, hw=56):
    x, w = te.placeholder((1, c, hw, hw), name="x"), te.placeholder((c, 1, 3, 3), name="w")
    return [x, w, topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)]


def batch_matmul(b=12, n=128, k=64):
    x, y = te.placeholder((b, n, k), name="x"), te.placeholder((b, n, k), name="y")
    return [x, y, topi.nn.batch_matmul(x, y)]


def distances(n, m, k):
    """A product of differences: what is read beyond the end of the sum is zero, what the sum does not run over is not."""
    a, w = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="w")
    z, y = te.placeholder((n,), name="z"), te.placeholder((m,), name="y")
    r = te.reduce_axis((0, k), "r")
    return [a, w, z, y, te.compute((n, m), lambda i, j: te.sum((a[i, r] - z[i]) * (w[r, j] - y[j]), axis=r))]


def first_part(n, m, k):
    """The sum ends before its tensors do."""
    a, w = te.placeholder((n, k + 8), name="a"), te.placeholder((k + 8, m), name="w")
    r = te.reduce_axis((0, k), "r")
    return [a, w, te.compute((n, m), lambda i, j: te.sum(a[i, r] * w[r, j], axis=r))]


def odd_windows(n, m, k):
    """One factor goes on beyond the end of the sum."""
    a, w = te.placeholder((n, k + 24), name="a"), te.placeholder((k, m), name="w")
    r = te.reduce_axis((0, k), "r")
    return [a, w, te.compute((n, m), lambda i, j: te.sum(a[i, r + j // 4] * w[r, j], axis=r))]


WORKLOADS = {
    "matmul": lambda: matmul(512, 512, 512),
    "matmul of a prime": lambda: matmul(1009, 1009, 1009),
    "two products": lambda: double_matmul(512),
    "softmax": lambda: softmax(64, 1000),
    "depthwise": depthwise,
    "conv2d nchw": lambda: conv_bn_relu(1, 28, 28, 64, 64),
    "conv2d with odd extents": odd_conv,
    "batch matmul": batch_matmul,
    "winograd": winograd,
    "max pool": lambda: max_pool(1),
}


def lowered_share(p, count=40):
    states = p.sample()[:count]
    return sum(p.check(s)[0] for s in states) / len(states)


@pytest.mark.some(7)
@pytest.mark.parametrize("name", WORKLOADS)
def test_nearly_all_samples_are_valid(name):
    p = policy(WORKLOADS[name](), CUDA, seed=3)
    shares = p.sample_shares(300)
    assert shares.get("ok", 0) >= 0.9, shares
    assert lowered_share(p) >= 0.9


@pytest.mark.parametrize("index", helpers.rest_full(*range(24), short=(0, 1, 4, 9, 10, 13, 20, 22)))  # one of each kind and size
def test_nearly_all_samples_of_resnet18_are_valid(index):
    p = policy(helpers.resnet18_task(index, "p", "pool"), CUDA, seed=index)
    shares = p.sample_shares(200)
    assert shares.get("ok", 0) >= 0.9, shares
    assert lowered_share(p, 10) >= 0.9


def test_compatible_mode_refuses_as_much_as_the_reference():
    p = policy(matmul(1024, 1024, 1024), CUDA, seed=9, search_mode="compatible")
    shares = p.sample_shares(40000)
    assert abs(shares["vthread"] - 0.524) < 0.01
    assert abs(shares["few threads"] - 0.244) < 0.01
    assert abs(shares["threads"] - 0.022) < 0.005
    assert abs(shares["ok"] - 0.053) < 0.005


@pytest.mark.parametrize("target", [CPU2, CUDA, MALI], ids=["cpu", "cuda", "mali"])
@pytest.mark.parametrize("mode", ["extended", "compatible"])
def test_samples_are_what_their_steps_give(target, mode):
    """A sample is bounded and scored as it was made, without being replayed: its score is that of a state made of its steps."""
    for make in (winograd, lambda: softmax(64, 1000), small_odd_conv):
        dag = _core.ComputeDAG(make())
        few = {"sample_init_min_population": 1, "evolutionary_search_population": 32, "evolutionary_search_num_iters": 0}
        p = policy(dag, target, search_mode=mode, **few)  # by the estimate: no generation follows the samples
        found = p.candidates(16)
        assert found
        for made in found:
            assert made.score == pytest.approx(1e-6 / p.estimate(_core.State(dag, made.steps()).infer_bounds()), rel=1e-12)


def test_unknown_mode():
    with pytest.raises(ValueError, match="search_mode.*'fast'"):
        policy(matmul(8, 8, 8), CUDA, search_mode="fast")
    with pytest.raises(TypeError):
        policy(matmul(8, 8, 8), CUDA, search_mode=3)


def valid_mutants(make, mode):
    p = policy(make(), CUDA, seed=1, search_mode=mode, evolutionary_search_mutation_prob=1.0)
    events = []
    p.set_listener(lambda *a: events.append(a))
    p.evolve(p.sample()[:400], 8)
    kind, generation, _, failed, *_ = [e for e in events if e[0] == 3][-1]
    return 1 - failed / (2048 * generation)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["matmul", "conv2d nchw", "winograd"])
def test_mutants_are_valid(name):
    assert valid_mutants(WORKLOADS[name], "extended") > 0.97
    assert valid_mutants(WORKLOADS[name], "compatible") < 0.95


def test_a_log_of_the_compatible_mode_can_be_evolved():
    """Parents whose steps were made by the other mode, and steps no sketch begins with, are mutated as well."""
    parents = policy(matmul(256, 256, 256), CUDA, seed=1, search_mode="compatible").sample()[:50]
    p = policy(matmul(256, 256, 256), CUDA, seed=2)
    assert len(p.evolve(parents, 32)) == 32
    dag = _core.ComputeDAG(matmul(256, 256, 256))
    own = _core.State(dag, json.dumps([["SP", 2, 0, 256, [32], 1], ["AN", 2, 0, 5], ["AN", 2, 1, 6]]))
    own.infer_bounds()
    assert len(policy(dag, CUDA, seed=2).evolve([own], 8)) > 1


# ---- no holes ----


def factors(extent, n, last):
    """All tuples of n factors of a divisor of the extent, the last at most `last`."""
    if n == 0:
        return [()]
    ends = [f for f in range(1, min(extent, last) + 1) if extent % f == 0]
    return [(*rest, f) for f in ends for rest in factors(extent // f, n - 1, extent)]


def valid_tiles(n, m, k, hw, last=64):
    """All (i, j, k) tuples of a matrix product that the device takes."""
    _, _, _, shared, _, threads, vthread, warp = hw
    out = set()
    for i, j in itertools.product(factors(n, 4, last), factors(m, 4, last)):
        t = i[1] * j[1]
        if i[0] * j[0] > vthread or t > threads or (t < warp and n * m > 2 * warp):
            continue
        for r in factors(k, 2, last):
            if 4 * math.prod(r) * (math.prod(i) + math.prod(j)) <= shared:
                out.add((i, j, r))
    return out


def tiles(states):
    return {tuple(tuple(x[4]) for x in steps(s) if x[0] == "SP")[:3] for s in states}


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.sampled_from([4, 6, 8]), st.sampled_from([3, 4]), st.sampled_from([2, 3]), st.sampled_from([2, 4]))
def test_every_valid_tile_is_drawn(n, m, k, warp):
    hw = device(threads=12, shared=96, vthread=2, warp=warp)
    want = valid_tiles(n, m, k, hw.hw)
    assert want
    p = policy(matmul(n, m, k), hw, seed=n * m + k, evolutionary_search_population=8000)
    got = set()
    for _ in range(8):
        got |= tiles(p.sample())
        if got >= want:
            break
    assert got <= want
    assert got == want, f"{len(got)} of {len(want)} tiles"


def test_whole_warps_are_preferred_and_others_stay_possible():
    p = policy(matmul(960, 960, 64), CUDA, seed=2)
    threads = [p.facts(s)["kernels"][0]["threads"] for s in p.sample()]
    whole = sum(t % 32 == 0 for t in threads) / len(threads)
    assert 0.85 < whole < 1
    assert len(set(threads)) > 15


def test_thread_counts_and_vector_widths_vary():
    counts = {x[4][0] for s in policy(softmax(64, 1024), CUDA, seed=1).sample() for x in steps(s) if x[0] == "SP"}
    assert {32, 64, 128, 256, 512} <= counts
    p = policy(matmul_relu(256, 256, 256), CUDA, seed=1)
    widths = {x[4][0] for s in p.sample() for x in steps(s) if x[0] == "SP" and len(x[4]) == 1}
    assert widths == {1, 2, 4}


def test_tiles_of_rough_extents_go_on_beyond_the_edge():
    """197 tokens have no divisor: tiles of 200, 208, 224 are drawn, and those of 768 divide it as ever."""
    ragged = 0
    for tile in tiles(policy(matmul(197, 768, 197), CUDA, seed=4, lane_products=0).sample()):
        rows, columns, depth = (math.prod(x) for x in tile)
        assert 768 % columns == 0
        assert all(-(-197 // t) * t <= 197 * 5 // 4 for t in (rows, depth) if t <= 197) or 197 in (rows, depth)
        ragged += 197 % rows != 0 and 197 % depth != 0
    assert ragged > 0


# ---- the programs are right ----

def read_twice(n, m, k, two=False):
    """C * max(C, 0), and times another product."""
    a, b, c = matmul(n, m, k)
    d = te.compute((n, m), lambda i, j: te.max(c[i, j], 0.0), name="D")
    if not two:
        return [a, b, te.compute((n, m), lambda i, j: c[i, j] * d[i, j], name="Y")]
    v, r = te.placeholder(tuple(b.shape), name="V"), te.reduce_axis((0, k), name="r")
    e = te.compute((n, m), lambda i, j: te.sum(a[i, r] * v[r, j], axis=[r]), name="E")
    return [a, b, v, te.compute((n, m), lambda i, j: c[i, j] * d[i, j] * e[i, j], name="Y")]


SMALL = {
    "matmul": lambda: matmul(24, 20, 12),
    "matmul + relu": lambda: matmul_relu(16, 32, 10),
    "two products": lambda: double_matmul(8),
    "strided conv": strided_conv,
    "matmul that is read twice": lambda: read_twice(16, 32, 10),
    "two matmuls, one read twice": lambda: read_twice(16, 20, 12, two=True),
    "softmax": lambda: softmax(5, 70),
    "softmax of 3 * 32": lambda: softmax(3, 96),
    "depthwise": lambda: depthwise(4, 6),
    "batch matmul": lambda: batch_matmul(3, 8, 6),
    "matmul of primes": lambda: matmul(37, 23, 29),
    "batch matmul of primes": lambda: batch_matmul(2, 19, 13),
    "conv2d with odd extents": small_odd_conv,
    "differences of primes": lambda: distances(37, 46, 29),
    "part of a sum of primes": lambda: first_part(37, 46, 29),
    "windows of primes": lambda: odd_windows(37, 46, 29),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("name", SMALL)
def test_samples_and_mutants_compute_the_same(name):
    """In the interpreter, with its checks of races, barriers and bounds."""
    tensors = SMALL[name]()
    dag = _core.ComputeDAG(tensors)
    p = policy(dag, device(warp=8), seed=5)
    states = p.sample()
    mutants = p.evolve(states, 6)
    shapes = [[int(x) for x in t.shape] for t in tensors]
    rng = np.random.default_rng(0)
    given_ = [rng.integers(-3, 4, s).astype("float32") for s in shapes[:-1]]
    plain = [*given_, np.zeros(shapes[-1], "float32")]
    _core.interp_dag(dag, plain)
    for s in states[:: max(1, len(states) // 4)] + mutants[:4]:
        out = [*given_, np.full(shapes[-1], np.nan, "float32")]
        report = _core.interp(s, "cuda", out)
        assert not report["findings"], (report["findings"], s.text())
        exact = "softmax" not in name
        assert np.array_equal(out[-1], plain[-1]) if exact else np.allclose(out[-1], plain[-1], rtol=1e-5), s.text()
