"""Sizes and numbers that are known at the call only."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te, topi


def array(*shape):
    return ns.nd.array(np.random.default_rng(sum(shape)).random(shape, "float32"))


def test_a_size():
    n = te.var("n")
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    c = te.compute((n,), lambda i: a[i] + b[i], name="c")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=8)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    f = ns.build(s, [a, b, c], "llvm", name="add")
    for k in (16, 7, 16):
        x, y, z = array(k), array(k), ns.nd.empty((k,))
        f(x, y, z)
        np.testing.assert_array_equal(z.numpy(), x.numpy() + y.numpy())
    assert f.time_evaluator("add", ns.cpu(), number=1)(x, y, z).mean > 0
    with pytest.raises(ValueError, match="n is 16 elsewhere, not 7"):
        f(x, array(7), z)
    with pytest.raises(TypeError, match="takes 3 arguments, 2 were given"):
        f(x, y)
    with pytest.raises(ValueError, match="sizes are variables"):
        f.export_library("add.so")


def test_numbers_sums_and_sizes_beside_each_other():
    n, scale, shift = te.var("n"), te.var("scale", "float32"), te.var("shift")
    a = te.placeholder((n, 4), name="a")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((4,), lambda i: te.sum(a[k, i], axis=k))
    out = te.compute((4,), lambda i: total[i] * scale + shift.astype("float32"))
    f = ns.build(te.create_schedule(out.op), [a, scale, shift, n, out])
    for size, factor in ((3, 2.0), (5, 0.5)):
        x, y = array(size, 4), ns.nd.empty((4,))
        f(x, factor, 3, size, y)
        np.testing.assert_allclose(y.numpy(), x.numpy().sum(0) * np.float32(factor) + 3, 1e-5)


def test_a_product_of_any_size():
    m, n, k = (te.var(v) for v in "mnk")
    a, b = te.placeholder((m, k), name="a"), te.placeholder((n, k), name="b")
    c = topi.nn.dense(a, b)
    f = ns.build(topi.x86.schedule_dense_nopack([c]), [a, b, c])
    x, y, z = array(3, 5), array(4, 5), ns.nd.empty((3, 4))
    f(x, y, z)
    np.testing.assert_allclose(z.numpy(), x.numpy() @ y.numpy().T, 1e-5)


def test_a_slice_whose_numbers_are_tensors():
    a = te.placeholder((5, 6), name="a")
    begin, end, strides = (te.placeholder((2,), "int64", name=n) for n in ("begin", "end", "strides"))
    out = topi.strided_slice(a, begin, end, strides)
    f = ns.build(topi.generic.schedule_injective([out]), [a, begin, end, strides, out])
    x = array(5, 6)
    for b, e, s in (((1, 0), (4, 6), (2, 1)), ((4, -1), (1, 2), (-1, -2))):
        want = x.numpy()[b[0] : e[0] : s[0], b[1] : e[1] : s[1]]
        y = ns.nd.empty(want.shape)
        f(x, *(ns.nd.array(np.array(v, "int64")) for v in (b, e, s)), y)
        np.testing.assert_array_equal(y.numpy(), want)


def test_inlining_by_class():
    a = te.placeholder((4, 5), name="a")
    b = te.compute((4, 5), lambda i, j: a[i, j] * 2.0, name="b")
    c = te.compute((5, 4), lambda i, j: b[j, i] + 1.0, name="c")
    d = te.compute((5, 4), lambda i, j: c[i, j] + 1.0, name="d")
    for inline, inlined in (("AutoInlineElemWise", [b]), ("AutoInlineInjective", [b, c])):
        s = te.create_schedule(d.op)
        getattr(te.schedule, inline)(s)
        assert [t for t in (b, c) if s[t].attach_type == 2] == inlined, inline
        x, y = array(4, 5), ns.nd.empty((5, 4))
        ns.build(s, [a, d])(x, y)
        np.testing.assert_allclose(y.numpy(), x.numpy().T * 2 + 2)


def test_groups_of_stages():
    a = te.placeholder((8, 6), name="a")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="b")
    c = te.compute(a.shape, lambda i, j: b[i, j] * 2.0, name="c")
    d = te.compute(a.shape, lambda i, j: c[i, j] - b[i, j], name="d")
    s = te.create_schedule(d.op)
    inner = s.create_group(outputs=c, inputs=b)
    outer = s.create_group(outputs=c, inputs=b, include_inputs=True)
    assert s[c].group is inner and inner.group is outer and s[b].group is outer and s[d].group is None
    assert s.groups == [inner, outer] and (inner.num_child_stages, outer.num_child_stages) == (1, 2)
    outer.compute_at(s[d], d.op.axis[0])
    assert outer.attach_stage == s[d] == s[b].attach_stage == s[c].attach_stage
    x, y = array(8, 6), ns.nd.empty((8, 6))
    ns.build(s, [a, d])(x, y)
    np.testing.assert_allclose(y.numpy(), x.numpy() + 1, 1e-6)
