"""Tensor intrinsics in the place of loops, and called in te.compute, beside NumPy."""

import numpy as np
import pytest

import nestsmith
from nestsmith import te, tir

N = 32
RNG = np.random.default_rng(0)
X, Y = RNG.random((N, N), "float32"), RNG.random((N, N), "float32")


def gemv(m, n, reset=True, update=True, factor=1.0):
    """Rows of a matrix times a vector, by statements; the matrix may lie anywhere. `factor`: it says one thing and does another."""
    w, x, k = te.placeholder((m, n), name="w"), te.placeholder((n,), name="x"), te.reduce_axis((0, n), name="k")
    z = te.compute((m,), lambda i: te.sum(w[i, k] * x[k] * factor if factor != 1.0 else w[i, k] * x[k], axis=k), name="z")

    def part(ins, outs, first, rest):
        ib = tir.ir_builder.create()
        a, b, c = (ib.buffer_ptr(t) for t in (*ins, *outs))
        with ib.for_range(0, m, name="r") as i:
            if first:
                c[i] = 0.0
            if rest:
                with ib.for_range(0, n, name="s") as j:
                    c[i] += a[i, j] * b[j]
        return ib.get()

    def intrinsic(ins, outs):
        return part(ins, outs, True, True), part(ins, outs, True, False) if reset else None, part(ins, outs, False, True) if update else None

    return te.decl_tensor_intrin(z.op, intrinsic, name="gemv")


def product():
    a, b, k = te.placeholder((N, N), name="a"), te.placeholder((N, N), name="b"), te.reduce_axis((0, N), name="k")
    return a, b, k, te.compute((N, N), lambda i, j: te.sum(b[j, k] * a[i, k], axis=k), name="c")


def run(s, args, given):
    out = nestsmith.nd.empty([int(d) for d in args[-1].shape])
    nestsmith.build(s, args)(*map(nestsmith.nd.array, given), out)
    return out.numpy()


def test_products():
    for split, reset in ((0, True), (8, True), (8, False)):
        a, b, k, c = product()
        s = te.create_schedule(c.op)
        cached = s.cache_write(c, "global")
        _, yo, _, yi = s[c].tile(*c.op.axis, 8, 16)
        s[cached].compute_at(s[c], yo)
        (_, j), (k,) = cached.op.axis, cached.op.reduce_axis
        jo, ji = s[cached].split(j, 8)
        if split:
            ko, ki = s[cached].split(k, split)
            s[cached].reorder(jo, ko, ji, ki)
        s[cached].tensorize(ji, gemv(8, split or N, reset))
        s[c].vectorize(yi)
        again = te.create_schedule(c.op)
        again.apply_steps(s.steps())
        for sch in (s, again):
            np.testing.assert_allclose(run(sch, [a, b, c], [X, Y]), X @ Y.T, rtol=1e-5)


def test_addresses_strides_and_first_elements():
    """memcpy of single rows, by C: places and strides of buffers are variables."""
    x = te.placeholder((8,), name="x")
    z = te.compute((8,), lambda i: x[i], name="z")
    step, begin = te.var("step"), te.var("begin")
    source = tir.decl_buffer((8,), "float32", name="source", strides=[step], elem_offset=begin)
    seen = []

    def copy(ins, outs):
        seen.append(ins[0])
        return tir.call_extern("int64", "memcpy", outs[0].access_ptr("w"), ins[0].access_ptr("r"), (step * 32).astype("int64"))

    intrinsic = te.decl_tensor_intrin(z.op, copy, binds={x: source})
    assert seen == [source] and intrinsic.inputs == [x] and intrinsic.buffers[0] is source
    a = te.placeholder((4, 2, 16), name="a")
    c = te.compute((4, 8), lambda i, j: a[i, 1, j + 4], name="c")
    s = te.create_schedule(c.op)
    s[c].tensorize(c.op.axis[1], intrinsic)
    given = RNG.random((4, 2, 16), "float32")
    np.testing.assert_array_equal(run(s, [a, c], [given]), given[:, 1, 4:12])
    text = str(nestsmith.lower(s, [a, c]))
    assert "@tir.call_extern" in text and "(i*32) + 20" in text


def test_called_in_a_compute():
    a, b, k = te.placeholder((N, 4, 8), name="a"), te.placeholder((N // 8, 8, 4, 8), name="b"), te.reduce_axis((0, 4), "k")
    block = gemv(8, 8)
    c = te.compute((N, N // 8, 8), lambda i, j: block(b[j, 0:8, k, 0:8], a[i, k, 0:8], reduce_axis=k), name="c")
    s = te.create_schedule(c.op)
    i, j, _ = c.op.axis
    s[c].reorder(j, i)
    assert "c[" in str(nestsmith.lower(s, [a, b, c])["main"].body)
    np.testing.assert_allclose(run(s, [a, b, c], [X.reshape(N, 4, 8), Y.reshape(N // 8, 8, 4, 8)]).reshape(N, N), X @ Y.T, rtol=1e-5)
    n, x = te.var("n"), te.placeholder((8,), name="x")
    z = te.compute((8,), lambda i: x[i] + n.astype("float32"), name="z")

    def added(ins, outs, scalars):
        ib = tir.ir_builder.create()
        with ib.for_range(0, 8) as i:
            ib.buffer_ptr(outs[0])[i] = ins[0][i] + scalars[0].astype("float32")
        return ib.get()

    plus = te.decl_tensor_intrin(z.op, added, scalar_params=[n])
    with pytest.raises(ValueError, match="takes 1 slices of tensors and 1 scalars"):
        plus(a[0, 0, 0:8])


def test_what_does_not_fit():
    a, b, k, c = product()

    def fails(why, change, error=ValueError):
        s = te.create_schedule(c.op)
        with pytest.raises(error, match=why):
            change(s[c], s)
            nestsmith.lower(s, [a, b, c])

    i, j = c.op.axis

    def split(factor, intrinsic, reorder=False):
        def change(stage, s):
            jo, ji = stage.split(j, factor)
            ko, ki = stage.split(k, 8)
            if reorder:
                stage.reorder(jo, ko, ji, ki)
            stage.tensorize(ji, intrinsic)

        return change

    fails("axis j has 16 values in the loops, 8 in the intrinsic", split(16, gemv(8, N)))
    fails("axis k has 8 values in the loops, 32", split(8, gemv(8, N), True))
    fails("the loops compute .* it computes", split(8, gemv(8, N, factor=2.0)))
    fails("no statement that adds", split(8, gemv(8, 8, update=False), True))
    fails("the extents do not divide", lambda stage, s: stage.tensorize(stage.split(j, 12)[1], gemv(12, N)))
    fails("is no loop of stage c", lambda stage, s: stage.tensorize(te.reduce_axis((0, 2)), gemv(8, N)))
    fails("is tensorize already|carries", lambda stage, s: [stage.tensorize(j, gemv(N, N)) for _ in range(2)])
    s = te.create_schedule(c.op)
    s[c].tensorize(j, gemv(N, N))
    with pytest.raises(ValueError, match="made of statements|written by hand"):
        z = te.compute((N // 8, 8), lambda r: gemv(8, N)(b[r, 0:8], a[0, 0:N]))
        nestsmith.auto_scheduler.ComputeDAG([a, b, z])
    with pytest.raises(TypeError, match="expect a te.compute"):
        te.decl_tensor_intrin(a.op, lambda i, o: None)
    with pytest.raises(ValueError, match="returns a statement, or"):
        te.decl_tensor_intrin(c.op, lambda i, o: None)
