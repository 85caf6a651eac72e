"""Timing of many launches on OpenCL, of which at most 64 wait in the driver at a time."""

import numpy as np

import nestsmith
from nestsmith import nd, te


def add_twice(n=64):
    """A program of one kernel or, where the sum is rounded in between, of two."""
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[n - 1 - i] * 2.0, name="C")
    return a, b, c


def test_every_number_of_launches_is_timed_and_leaves_the_right_result():
    d = nestsmith.opencl(0)
    for inline in (True, False):
        a, b, c = add_twice()
        s = te.create_schedule(c.op)
        if inline:
            s[b].compute_inline()
        else:
            s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
        s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
        f = nestsmith.build(s, [a, c], "opencl", name="f")
        x, y = nd.array(np.arange(64, dtype="float32"), d), nd.empty((64,), "float32", d)
        for number in (1, 2, 63, 64, 65, 128, 129, 300):
            times = f.time_evaluator("f", d, number=number, repeat=2)(x, y).results
            assert len(times) == 2 and all(0 < t < 60 for t in times)
        np.testing.assert_array_equal(y.numpy(), (np.arange(64)[::-1] + 1) * 2)
