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
