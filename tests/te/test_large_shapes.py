"""Tensors beyond 32 and 64 bits: what cannot be counted is refused with its shape, what can be counted is counted."""

import numpy as np
import pytest

import nestsmith as ns
from helpers import check_passes
from nestsmith import relay, te

HUGE = [
    ((2**40, 2**40), "float32", "elements"),
    ((2**64,), "int8", "elements"),
    ((2**62, 2), "int8", "elements"),
    ((2**61,), "float32", "bytes of float32"),
    ((2**64, 0), "int8", "elements"),
]


@pytest.mark.parametrize(("shape", "dtype", "what"), HUGE)
def test_what_64_bits_cannot_count_is_refused_with_the_shape(shape, dtype, what):
    shown = ", ".join(map(str, shape))
    said = rf"shape \({shown},?\) overflows 64 bits: it has \d+ {what}"
    with pytest.raises(ValueError, match=f"A: {said}"):
        te.placeholder(shape, dtype, name="A")
    with pytest.raises(ValueError, match=f"B: {said}"):
        te.compute(shape, lambda *i: te.const(1, dtype), name="B")
    with pytest.raises(ValueError, match=said):
        relay.TensorType(shape, dtype)
    with pytest.raises(ValueError, match=said):
        relay.var("x", shape=shape, dtype=dtype)


def source(shape, schedule, dtype="int8", target="llvm"):
    a = te.placeholder(shape, dtype, name="A")
    b = te.compute(shape, lambda *i: a[i] + te.const(1, dtype), name="B")
    s = te.create_schedule(b.op)
    schedule(s[b], b.op.axis)
    return ns.build(s, [a, b], target).get_source()


def vector(stage, axes):
    outer, inner = stage.split(stage.fuse(*axes), factor=32)
    stage.parallel(outer)
    stage.vectorize(inner)


SCHEDULES = [
    lambda stage, axes: None,
    lambda stage, axes: stage.fuse(*axes),
    lambda stage, axes: stage.split(axes[0], factor=7),
    lambda stage, axes: stage.tile(axes[0], axes[-1], 4, 8) if len(axes) > 1 else stage.split(axes[0], nparts=7),
    vector,
]


@pytest.mark.parametrize("shape", [(2**33,), (2**16, 2**16), (2**20, 2**20), (2**33, 3), (65536, 65537)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_indices_beyond_32_bits_have_64(shape, schedule):
    """Loops count in 32 bits and `i * 65537 + j` was computed in 32, which overflows at half of the tensor."""
    text = source(shape, schedule)
    accesses = [line for line in text.splitlines() if line.lstrip().startswith(("B[", "*("))]
    assert accesses and "int64_t" in text
    assert not any(f"int32_t {v} = 0" in text for v in ("i0", "i1", "i0_i1_fused", "i0_outer", "i0_i1_fused_outer"))


def test_the_network_of_a_huge_tensor_builds():
    x = relay.var("x", shape=(2**20, 2**20))
    relay.build(ns.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))), "llvm")


def test_a_part_of_a_huge_tensor_is_read_with_64_bits():
    a = te.placeholder((2**17, 2**17), "int8", name="A")
    b = te.compute((10, 5), lambda i, j: a[i * 1000, j], name="B")
    assert "(int64_t)" in ns.build(te.create_schedule(b.op), [a, b], "llvm").get_source()


def test_reductions_whose_fused_loop_needs_64_bits():
    j, k = te.reduce_axis((0, 2**16), name="j"), te.reduce_axis((0, 2**16), name="k")
    b = te.compute((2,), lambda i: te.sum((i + j + k).astype("int64"), axis=[j, k]), name="B")
    s = te.create_schedule(b.op)
    f = s[b].fuse(j, k)
    assert int(te.InferBound(s)[f].extent) == 2**32
    assert "int64_t j_k_fused" in ns.build(s, [b], "llvm").get_source()


def test_loops_beyond_64_bits_are_refused():
    j, k = te.reduce_axis((0, 2**40), name="j"), te.reduce_axis((0, 2**40), name="k")
    b = te.compute((2,), lambda i: te.sum((i + j + k).astype("int64"), axis=[j, k]), name="B")
    s = te.create_schedule(b.op)
    s[b].fuse(j, k)
    with pytest.raises(ValueError, match="stage B: loop j.k.fused would have 1099511627776 x 1099511627776 iterations"):
        te.InferBound(s)


def test_64_bit_axes_give_the_same_numbers():
    """Small extents with 64-bit dimensions, beside 32-bit reduction axes and GPU threads."""
    n, m = te.const(6, "int64"), te.const(5, "int64")
    a, k = te.placeholder((n, m), "int32", name="A"), te.reduce_axis((0, 5), name="k")
    b = te.compute((n,), lambda i: te.sum(a[i, k] * (k + 1), axis=k), name="B")
    x = np.arange(30, dtype="int32").reshape(6, 5)
    s = te.create_schedule(b.op)
    s[b].reorder(k, b.op.axis[0])
    s[b].split(s[b].fuse(k, b.op.axis[0]), factor=4)
    assert check_passes(s._core, "c", [x, np.zeros(6, "int32")], [a, b]) == []
    y = ns.nd.array(np.zeros(6, "int32"))
    ns.build(s, [a, b], "llvm")(ns.nd.array(x), y)
    np.testing.assert_array_equal(y.numpy(), x @ np.arange(1, 6))
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    s[b].bind(k, te.thread_axis("threadIdx.x"))
    assert check_passes(s._core, "cuda", [x, np.zeros(6, "int32")], [a, b]) == []
