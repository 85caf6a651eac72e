"""Reduction loops whose extents depend on data axes, as in pools to a given size: every legal schedule gives the values of
PyTorch; one that would need an extent before it is known is refused."""

import numpy as np
import pytest
import torch

import nestsmith as ns
from nestsmith import te, topi


def nothing(s, st, d, r):
    pass


def fuse(s, st, d, r):
    st.fuse(*r)


def split(s, st, d, r):
    st.split(r[1], 2)


def split_in_parts(s, st, d, r):
    st.split(r[0], nparts=2)


def fuse_and_split(s, st, d, r):
    st.split(st.fuse(*r), factor=3)


def split_and_fuse(s, st, d, r):
    outer, _ = st.split(r[1], 2)
    st.fuse(r[0], outer)


def reorder(s, st, d, r):
    st.reorder(d[0], d[1], d[3], r[1], d[2], r[0])


def split_data(s, st, d, r):
    outer, inner = st.split(d[3], 3)
    st.reorder(outer, d[2], inner, r[1], r[0])


def parallel(s, st, d, r):
    st.parallel(st.fuse(*d))


def vectorize(s, st, d, r):
    st.vectorize(d[3])


LEGAL = [nothing, fuse, split, split_in_parts, fuse_and_split, split_and_fuse, reorder, split_data, parallel, vectorize]


def pool(how):
    a = te.placeholder((1, 2, 13, 11), name="A")
    b = topi.nn.adaptive_pool(a, (6, 4), "max")
    s = te.create_schedule(b.op)
    how(s, s[b], b.op.axis, b.op.reduce_axis)
    return s, [a, b]


def run(how, target="llvm"):
    x = np.random.default_rng(0).normal(size=(1, 2, 13, 11)).astype("float32")
    dev = ns.device(target, 0)
    out = ns.nd.empty((1, 2, 6, 4), device=dev)
    ns.build(*pool(how), target)(ns.nd.array(x, dev), out)
    want = torch.nn.functional.adaptive_max_pool2d(torch.from_numpy(x), (6, 4)).numpy()
    np.testing.assert_array_equal(out.numpy(), want)


@pytest.mark.parametrize("how", LEGAL)
def test_legal_schedules(how):
    run(how)


def threads_across_a_window(s, st, d, r):
    st.bind(st.fuse(*d), te.thread_axis("blockIdx.x"))
    st.bind(st.split(st.fuse(*r), 4)[1], te.thread_axis("threadIdx.x"))


def test_threads_across_a_window():
    dev = ns.opencl(0)
    if not dev.exist:
        pytest.skip(dev.why_not)
    run(threads_across_a_window, "opencl")


def window_before_its_axis(s, st, d, r):
    st.reorder(d[0], d[1], d[2], r[0], r[1], d[3])


def window_before_a_part_of_its_axis(s, st, d, r):
    outer, inner = st.split(d[3], 3)
    st.reorder(outer, r[0], r[1], inner)


def factored(s, st, d, r):
    s.rfactor(st.op.output(0), r[0])


@pytest.mark.parametrize(
    ("how", "what"),
    [
        (window_before_its_axis, "rv1 depends on a data axis whose loop lies inside it"),
        (window_before_a_part_of_its_axis, "rv1 depends on a data axis"),
        (factored, "rfactor: the extent of rv0 depends on the data axis ax2"),
    ],
)
def test_schedules_that_are_refused(how, what):
    with pytest.raises(ValueError, match=what):
        ns.lower(*pool(how))
