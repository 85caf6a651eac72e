"""Extents of zero: programs that do nothing, but run and leave sums at zero."""

import numpy as np
import pytest

import nestsmith
from nestsmith import te


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_nothing_to_compute(shape):
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a(*i) + 1, name="B")
    f = nestsmith.build(te.create_schedule(b.op), [a, b], target="llvm")
    x = nestsmith.nd.array(np.zeros(shape, "float32"), nestsmith.cpu(0))
    y = nestsmith.nd.array(np.zeros(shape, "float32"), nestsmith.cpu(0))
    f(x, y)
    assert y.numpy().shape == shape


def test_sum_over_nothing():
    a = te.placeholder((0,), name="A")
    k = te.reduce_axis((0, 0), "k")
    b = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")
    f = nestsmith.build(te.create_schedule(b.op), [a, b], target="llvm")
    y = nestsmith.nd.array(np.full((1,), 7, "float32"), nestsmith.cpu(0))
    f(nestsmith.nd.array(np.zeros((0,), "float32"), nestsmith.cpu(0)), y)
    assert y.numpy()[0] == 0


@pytest.mark.parametrize("shape", [(3, 0), (0, 5)])
@pytest.mark.parametrize("producer", ["inlined", "attached", "own kernel"])
def test_fused_gpu_program_of_nothing(shape, producer):
    """Taking a fused axis apart divides by its inner extent, which is zero here."""
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a(*i) + 1, name="B")
    c = te.compute(shape, lambda *i: b(*i) * 2, name="C")
    s = te.create_schedule(c.op)

    def bind(t):
        o, i = s[t].split(s[t].fuse(*t.op.axis), factor=64)
        s[t].bind(o, te.thread_axis("blockIdx.x"))
        s[t].bind(i, te.thread_axis("threadIdx.x"))
        return i

    inner = bind(c)
    if producer == "inlined":
        s[b].compute_inline()
    elif producer == "attached":
        s[b].compute_at(s[c], inner)
    else:
        bind(b)
    nestsmith.lower(s, [a, c])
    device = nestsmith.device("opencl", 0)
    if not device.exist:
        pytest.skip("no OpenCL device")
    f = nestsmith.build(s, [a, c], target="opencl")
    x, y = (nestsmith.nd.array(np.zeros(shape, "float32"), device) for _ in range(2))
    f(x, y)
    assert y.numpy().shape == shape
