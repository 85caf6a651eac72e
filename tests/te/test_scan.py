"""Recurrences, and functions of plain loops."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te, tir

RNG = np.random.default_rng(0)


def run(outs, inputs, arrays, shapes=None):
    shapes = shapes or [[int(s) for s in t.shape] for t in outs]
    results = [ns.nd.empty(s, t.dtype) for s, t in zip(shapes, outs)]
    ns.build(te.create_schedule([t.op for t in outs]), [*inputs, *outs], "llvm")(*map(ns.nd.array, arrays), *results)
    return [r.numpy() for r in results]


def test_running_sums_of_any_size():
    m, n = te.var("m"), te.var("n")
    x, state = te.placeholder((m, n), name="x"), te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: x[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i])
    res = te.scan(init, update, state, inputs=[x])
    assert isinstance(res.op, te.ScanOp) and tuple(res.shape) == (m, n)
    f = ns.build(te.create_schedule(res.op), [x, res])
    for shape in ((5, 3), (2, 4)):
        a, b = RNG.random(shape, "float32"), ns.nd.empty(shape)
        f(ns.nd.array(a), b)
        np.testing.assert_allclose(b.numpy(), np.cumsum(a, 0), 1e-5)


def test_two_states_with_a_product_between():
    steps, size = 4, 3
    x, w = te.placeholder((steps, size), name="x"), te.placeholder((size, size), name="w")
    h, c = te.placeholder((steps, size), name="h"), te.placeholder((steps, size), name="c")
    k = te.reduce_axis((0, size), "k")
    mixed = te.compute((steps, size), lambda t, i: te.sum(h[t - 1, k] * w[i, k], axis=k), name="mixed")
    new_c = te.compute((steps, size), lambda t, i: c[t - 1, i] * 0.5 + mixed[t, i])
    new_h = te.compute((steps, size), lambda t, i: te.tanh(mixed[t, i] + x[t, i] + c[t - 1, i]))
    first = te.compute((1, size), lambda _, i: x[0, i])
    hs, cs = te.scan([first, te.compute((1, size), lambda *_: 0.0)], [new_h, new_c], [h, c])
    out = te.compute((steps, size), lambda t, i: hs[t, i] + cs[t, i])
    a, b = RNG.random((steps, size), "float32"), RNG.random((size, size), "float32")
    want_h, want_c = [a[0]], [np.zeros(size, "float32")]
    for t in range(1, steps):
        z = b @ want_h[-1]
        want_h.append(np.tanh(z + a[t] + want_c[-1]))
        want_c.append(want_c[-1] * 0.5 + z)
    np.testing.assert_allclose(run([out], [x, w], [a, b])[0], np.array(want_h) + np.array(want_c), 1e-5)


def test_scans_that_make_no_sense():
    x, s = te.placeholder((4, 3), name="x"), te.placeholder((4, 3), name="s")
    init = te.compute((1, 3), lambda _, i: x[0, i])
    with pytest.raises(ValueError, match="must have same length"):
        te.scan([init], [x, x], [s])
    with pytest.raises(ValueError, match="does not read its state"):
        te.scan(init, te.compute((4, 3), lambda t, i: x[t, i]), s)
    with pytest.raises(ValueError, match="update be a te.compute"):
        te.scan(init, x, s)


def test_functions_of_plain_loops():
    a, b = te.placeholder((3, 5), name="a"), te.placeholder((5,), name="b")
    k = te.reduce_axis((0, 5), "k")
    c = te.compute((3, 5), lambda i, j: a[i, j] + b[j], name="c")
    d = te.compute((3,), lambda i: te.max(c[i, k], axis=k), name="d")
    func = te.create_prim_func([a, b, d])
    assert isinstance(func, tir.PrimFunc) and len(func.buffer_map) == 3
    assert ns.ir.structural_equal(func, te.create_prim_func([a, b, d]))
    x, y, z = RNG.random((3, 5), "float32"), RNG.random(5, "float32"), ns.nd.empty((3,))
    ns.build(func, target="llvm")(ns.nd.array(x), ns.nd.array(y), z)
    np.testing.assert_array_equal(z.numpy(), (x + y).max(1))
    with pytest.raises(ValueError, match="is read, but no parameter"):
        te.create_prim_func([a, d])


def _steps(m=6, n=8):
    x, state = te.placeholder((m, n), name="x"), te.placeholder((m, n), name="state")
    shifted = te.compute((m, n), lambda t, i: x[t - 1, i] + 1.0, name="shifted")  # row 0 would read row -1
    init = te.compute((1, n), lambda _, i: x[0, i], name="init")
    twice = te.compute((m, n), lambda t, i: state[t - 1, i] * 2.0, name="twice")
    update = te.compute((m, n), lambda t, i: twice[t, i] + shifted[t, i], name="update")
    return x, shifted, init, twice, update, te.scan(init, update, state, name="states")


def _wanted(x):
    out = [x[0]]
    for t in range(1, len(x)):
        out.append(out[-1] * 2 + x[t - 1] + 1)
    return np.array(out)


def test_stages_of_a_step_are_scheduled():
    x, shifted, init, twice, update, res = _steps()
    a, plain, texts = RNG.random((6, 8), "float32"), te.create_schedule(res.op), []
    s = te.create_schedule(res.op)
    outer, inner = s[update].split(update.op.axis[1], 4)
    s[twice].compute_at(s[update], outer)
    s[update].vectorize(inner)
    s[shifted].parallel(shifted.op.axis[0])
    inlined = te.create_schedule(res.op)
    inlined[twice].compute_inline()
    for sch in (s, plain, inlined, s.copy(), s):
        out = ns.nd.empty((6, 8))
        texts.append(str(ns.lower(sch, [x, res])))
        ns.build(sch, [x, res])(ns.nd.array(a), out)
        np.testing.assert_allclose(out.numpy(), _wanted(a), rtol=1e-6)
    assert texts[0] == texts[3] == texts[4] and len(set(texts)) == 3 and "i.outer" in texts[0] and "i.outer" not in texts[1]
    assert int(te.schedule.InferBound(s)[te.schedule.ScanGetBody(res.op)[0].scan_axis].min) == 1
    with pytest.raises(ValueError, match="one is computed in the steps of a te.scan"):
        s[shifted].compute_at(s[update], outer)
    with pytest.raises(ValueError, match="in the steps of a te.scan"):
        s.cache_write(twice, "global")


def test_of_any_size_stages_of_a_step_are_scheduled():
    m, n = te.var("m"), te.var("n")
    x, _, _, twice, update, res = _steps(m, n)
    s = te.create_schedule(res.op)
    s[twice].compute_at(s[update], s[update].split(update.op.axis[1], 3)[0])
    a, out = RNG.random((5, 7), "float32"), ns.nd.empty((5, 7))
    ns.build(s, [x, res])(ns.nd.array(a), out)
    np.testing.assert_allclose(out.numpy(), _wanted(a), rtol=1e-6)


def test_groups_of_the_stages_of_a_step():
    x, state = te.placeholder((4, 6), name="x"), te.placeholder((4, 6), name="state")
    init = te.compute((1, 6), lambda _, i: x[0, i], name="init")
    first = te.compute((4, 6), lambda t, i: state[t - 1, i] + x[t, i], name="first")
    second = te.compute((4, 6), lambda t, i: first[t, i] * 2, name="second")
    last = te.compute((4, 6), lambda t, i: second[t, i] + 1, name="last")
    res = te.scan(init, last, state)
    s = te.create_schedule(res.op)
    step = s[first].group
    assert step is not None and s[last].group is step and s[init].group is None
    inner = s.create_group(outputs=second, inputs=[state, x])
    assert inner.group is step and s[first].group is inner and s[second].group is inner and s[last].group is step
    inner.compute_at(s[last], last.op.axis[1])
    assert inner.attach_stage == s[last] and s[second].attach_stage == s[last]
    with pytest.raises(ns.TVMError, match="one is computed in the steps of a te.scan"):
        s[second].compute_at(s[init], init.op.axis[0])
    a, b = RNG.random((4, 6), "float32"), ns.nd.empty((4, 6))
    ns.build(s, [x, res])(ns.nd.array(a), b)
    want = [a[0]]
    for row in a[1:]:
        want.append((want[-1] + row) * 2 + 1)
    np.testing.assert_allclose(b.numpy(), want, 1e-6)


@pytest.mark.parametrize("at, apart", [
    (lambda t, i, j: (t - 1, i, j), (1, 1)), (lambda t, i, j: (t - 1, j, i), (0, 0)), (lambda t, i, j: (t - 1, i, 0), (1, 0)),
    (lambda t, i, j: (t - 1, i + 1, j), (0, 1)), (lambda t, i, j: (t - 1, i, i), (0, 0)),
])
def test_axes_that_steps_keep_apart(at, apart):
    x, state = te.placeholder((5, 4, 4), name="x"), te.placeholder((5, 4, 4), name="state")
    init = te.compute((1, 4, 4), lambda _, i, j: x[0, j, i])
    through = te.compute((5, 4, 4), lambda t, j, i: state[at(t, i, j)] + x[t, j, i])
    update = te.compute((5, 4, 4), lambda t, i, j: through[t, j, i] * x[t, i, j])
    op = te.scan(init, update, state).op
    found = te.schedule.ScanFixPointAnalysis(op)
    assert tuple(found[a].value for a in op.spatial_axis_) == apart


def test_scans_are_no_functions_of_plain_loops():
    x, state = te.placeholder((4, 6), name="x"), te.placeholder((4, 6), name="state")
    res = te.scan(te.compute((1, 6), lambda _, i: x[0, i]), te.compute((4, 6), lambda t, i: state[t - 1, i] + x[t, i]), state)
    with pytest.raises(TypeError, match="ScanOp"):
        te.create_prim_func([x, res])


def test_computations_as_json():
    n = te.size_var("n")
    x, state = te.placeholder((n, 6), name="x"), te.placeholder((n, 6), name="state")
    init = te.compute((1, 6), lambda _, i: x[0, i])
    update = te.compute((n, 6), lambda t, i: state[t - 1, i] + x[t, i])
    sums, k = te.scan(init, update, state, name="sums"), te.reduce_axis((0, 6), "k")
    total = te.compute((n,), lambda i: te.sum(sums[i, k], axis=k), name="total", attrs={"numbers": [10, 12], "one": 1, "words": ["a"]})
    back = ns.ir.load_json(ns.ir.save_json(total))
    assert str(back) == str(total) and back != total
    assert back.op.attrs["numbers"][1].value == 12 and str(back.op.attrs) == '{"numbers": [10, 12], "one": 1, "words": ["a"]}'
    again = ns.ir.load_json(ns.ir.save_json(back.op))
    (scan,) = again.input_tensors
    assert isinstance(scan.op, te.ScanOp) and scan.op.name == "sums"
    a, b = RNG.random((3, 6), "float32"), ns.nd.empty((3,))
    (given,) = [op.output(0) for op in te.schedule.PostDFSOrder([again], te.schedule.CreateReadGraph([again])) if op.name == "x"]
    ns.build(te.create_schedule(again), [given, again.output(0)])(ns.nd.array(a), b)
    np.testing.assert_allclose(b.numpy(), np.cumsum(a, 0).sum(1), 1e-5)
    with pytest.raises(TypeError, match="te.extern"):
        ns.ir.save_json(te.extern((6,), [x], lambda i, o: tir.call_packed("f", i[0], o[0])))


def test_schedules_that_remember_what_was_done():
    x, k = te.placeholder((64, 64), name="x"), te.reduce_axis((0, 64), "k")
    y = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="y")
    assert te.create_schedule(y.op).schedule_record == [] and te.create_schedule([]).stages == []
    with ns.transform.PassContext(config={"te.keep_schedule_record": True}):
        s = te.create_schedule(y.op)
    io, ii = s[y].split(y.op.axis[0], 8)
    s[y].reorder(io, k, ii)
    s[y].vectorize(ii)
    s[y].bind(io, te.thread_axis("blockIdx.x"))
    assert s.primitive_record == ["vanilla", "split", "reorder", "vectorize", "bind"]
    records = s.schedule_record
    assert [len(r[y].leaf_iter_vars) for r in records] == [2, 3, 3, 3, 3] and str(records[-1]) == str(s) != str(records[-2])


def test_states_of_different_shapes_are_one_operation():
    x, s1, s2 = te.placeholder((5, 6), name="x"), te.placeholder((5, 6), name="s1"), te.placeholder((5, 3), name="s2")
    first = [te.compute((1, 6), lambda _, i: x[0, i]), te.compute((1, 3), lambda _, i: 0.0)]
    update = [te.compute((5, 6), lambda t, i: s1[t - 1, i] + x[t, i]), te.compute((5, 3), lambda t, i: s2[t - 1, i] + s1[t - 1, 0])]
    r1, r2 = te.scan(first, update, [s1, s2], inputs=[x])
    data, a, b = RNG.random((5, 6), "float32"), ns.nd.empty((5, 6)), ns.nd.empty((5, 3))
    ns.build(te.create_schedule(r1.op), [x, r1, r2])(ns.nd.array(data), a, b)
    sums = np.cumsum(data, 0)
    np.testing.assert_allclose(a.numpy(), sums, 1e-5)
    np.testing.assert_allclose(b.numpy()[1:], np.cumsum(sums[:-1, :1], 0).repeat(3, 1), 1e-5)


@pytest.mark.parametrize("mixed", [False, True])
def test_steps_on_the_threads_of_a_gpu(mixed):
    x, state = te.placeholder((6, 300), name="x"), te.placeholder((6, 300), name="state")
    init = te.compute((1, 300), lambda _, i: x[0, i], name="init")
    update = te.compute((6, 300), lambda t, i: state[t - 1, 299 - i if mixed else i] + x[t, i], name="update")
    res = te.scan(init, update, state)
    s = te.create_schedule(res.op)
    for part in (init, update):
        outer, inner = s[part].split(part.op.axis[1], 64)
        s[part].bind(outer, te.thread_axis("blockIdx.x"))
        s[part].bind(inner, te.thread_axis("threadIdx.x"))
    if mixed:
        with pytest.raises(ValueError, match="steps of update read what other threads have computed"):
            ns.lower(s, [x, res])
        return
    opencl = ns.device("opencl", 0)
    if not opencl.exist:
        pytest.skip("no OpenCL device")
    data, out = RNG.random((6, 300), "float32"), ns.nd.empty((6, 300), "float32", opencl)
    ns.build(s, [x, res], "opencl")(ns.nd.array(data, opencl), out)
    np.testing.assert_allclose(out.numpy(), np.cumsum(data, 0), 1e-5)
