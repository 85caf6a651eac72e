"""The last transform of a Winograd layer in the kernel that reads it: which readers take it in, and that their tiles are right."""

import numpy as np
import pytest
from tensor_core_cases import defined, policy, unwritten

from helpers import full, in_turn
from nestsmith import _core, te, topi
from nestsmith.states import core_state


def layer(size, tile, reader, ci=8, co=12, batch=1, dtype="float32"):
    """A convolution in tiles, its bias, and what reads it."""
    x, w = te.placeholder((batch, size, size, ci), dtype, name="X"), te.placeholder((tile + 2, tile + 2, co, ci), name="W")
    b, r = te.placeholder((1, 1, 1, co), dtype, name="B"), te.placeholder((batch, size, size, co), dtype, name="R")
    y = topi.add(topi.nn.conv2d_winograd_nhwc_without_weight_transform(x, w, 1, 1, 1, dtype), b)
    if reader == "plain":
        return [x, w, b, y]
    if reader == "residual":
        return [x, w, b, r, topi.nn.relu(topi.add(y, r))]
    if reader == "a line below":
        return [x, w, b, te.compute(y.shape, lambda n, h, w, c: te.if_then_else(h < size - 1, y[n, h + 1, w, c], te.const(0, dtype)), name="below")]
    if reader == "the greatest of a batch":
        k = te.reduce_axis((0, 2), "k")
        return [x, w, b, te.compute((batch // 2, size, size, co), lambda n, h, w, c: te.max(y[n * 2 + k, h, w, c], axis=k), name="greatest")]
    window, stride, padding, dilation, kind = {
        "pool": (2, 2, 0, 1, "max"), "windows that overlap": (3, 2, 1, 1, "max"), "padded": (2, 2, 1, 1, "max"),
        "dilated": (2, 2, 0, 2, "max"), "mean": (2, 2, 0, 1, "avg"),
    }[reader]  # fmt: skip
    return [x, w, b, topi.nn.pool2d(topi.nn.relu(y), (window,) * 2, (stride,) * 2, (dilation,) * 2, (padding,) * 4, kind, layout="NHWC")]


def kernels(state):
    return _core.candidate_source(core_state(state), _core.Target("cuda", sm=90), 0)[0].count("__global__ void")


READERS = [  # the reader, tile, size and kernels
    ("plain", 4, 12, 3), ("residual", 2, 7, 3), ("pool", 4, 14, 3), ("windows that overlap", 2, 8, 4), ("padded", 2, 8, 4), ("dilated", 2, 8, 4),
    ("mean", 2, 8, 4), ("a line below", 2, 8, 4), ("the greatest of a batch", 2, 8, 4),
]  # fmt: skip
LARGER = [("residual", 4, 14, 3), ("pool", 4, 12, 3), ("pool", 2, 10, 3), ("windows that overlap", 4, 12, 4), ("padded", 4, 12, 4)]
WAYS = [(1, "float16"), (1, "float32"), (0, "float32")]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "reader,tile,size,count,by_lanes,dtype",
    in_turn(READERS, WAYS) + [full(*x, *way) for x in LARGER for way in WAYS],
)
def test_tiles_are_read_whole_where_they_can_be(reader, tile, size, count, by_lanes, dtype):
    tensors = layer(size, tile, reader, batch=2, dtype=dtype)
    p, want = policy(tensors, lane_products=by_lanes), defined(tensors)
    drawn = p.sample_initial_population()
    chosen = drawn[:2] + p.evolutionary_search(drawn, 32)[:1]
    assert len(chosen) == 3
    for s in chosen:
        assert kernels(s) == count
        right(s, want)


def right(state, want):
    data = [*want[:-1], unwritten(want[-1])]
    report = _core.interp(core_state(state), _core.Target("cuda", sm=90, overlap=2), data, stage="program", constant=2)
    assert report["findings"] == []
    np.testing.assert_array_equal(data[-1], want[-1])


@pytest.mark.some(1)
@pytest.mark.parametrize("by_lanes", [0, 1])
def test_what_a_pool_leaves_out_is_no_tile(by_lanes):
    """Of eleven lines a pool reads ten: products that nobody reads are not computed, so the layer is a kernel of its own, and loops make the
    products, for the step of a product computes all of a stage."""
    tensors = layer(11, 2, "pool")
    p, want = policy(tensors, lane_products=by_lanes), defined(tensors)
    for s in p.sample_initial_population()[:4]:
        assert kernels(s) == 4
        right(s, want)


def test_the_compatible_mode_has_the_kernels_of_the_reference():
    s = policy(layer(12, 4, "residual"), search_mode="compatible").sample_initial_population()[0]
    assert kernels(s) == 4
