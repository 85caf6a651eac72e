"""Operations by hand: statements of tir.ir_builder, and calls of global functions."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te, tir


def running_sums(ins, outs):
    ib = tir.ir_builder.create()
    a, b = (ib.buffer_ptr(x) for x in (ins[0], outs[0]))
    n, m = ins[0].shape
    with ib.for_range(0, n, name="i", kind="parallel") as i:
        total = ib.allocate("float32", (1,), name="total")
        total[0] = 0.0
        with ib.for_range(0, m, name="j") as j:
            total[0] = total[0] + a[i, j]
            with ib.if_scope(tir.all(j < 2, i > 0)):
                b[i, j] = total[0]
            with ib.else_scope():
                b[i, j] = total[0] * 2.0
    return ib.get()


def wanted(x):
    out = np.cumsum(x, 1) * np.float32(2)
    out[1:, :2] /= 2
    return out


def run(outs, inputs, arrays):
    results = [ns.nd.empty([int(s) for s in t.shape], t.dtype) for t in outs]
    ns.build(te.create_schedule([t.op for t in outs]), [*inputs, *outs], "llvm")(*map(ns.nd.array, arrays), *results)
    return [r.numpy() for r in results]


X = np.random.default_rng(0).random((4, 6), "float32")


def test_between_others():
    a = te.placeholder(X.shape, name="a")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="b")
    c = te.extern(b.shape, [b], running_sums, name="c")
    assert isinstance(c.op, te.ExternOp) and list(c.op.input_tensors) == [b] and not isinstance(b.op, te.ExternOp)
    d = te.compute(a.shape, lambda i, j: c[i, j] - b[i, j], name="d")
    (got,) = run([d], [a], [X])
    np.testing.assert_allclose(got, wanted(X + 1) - (X + 1), 1e-5)


def test_sizes_that_are_variables():
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="a")
    c = te.extern((n, m), [a], running_sums)
    f = ns.build(te.create_schedule(c.op), [a, c])
    for shape in ((4, 6), (2, 3)):
        out = ns.nd.empty(shape)
        f(ns.nd.array(X[: shape[0], : shape[1]]), out)
        np.testing.assert_allclose(out.numpy(), wanted(X[: shape[0], : shape[1]]), 1e-5)


def test_calls_of_global_functions():
    @ns.register_func("test_extern.scaled", override=True)
    def scaled(x, y, factor, out, more):
        out.copyfrom(x.numpy() * y.numpy() * factor)
        more.copyfrom(x.numpy() - y.numpy())

    a, b = te.placeholder((5,), name="a"), te.placeholder((), name="b")
    call = lambda i, o: tir.call_packed("test_extern.scaled", i[0], i[1].data, 3, *o)  # noqa: E731
    c, d = te.extern([(5,), (5,)], [a, b], call, name="c")
    assert (c.value_index, d.value_index, c.op == d.op) == (0, 1, True)
    e = te.compute((5,), lambda i: c[i] + d[i])
    x, y = np.arange(5, dtype="float32"), np.float32(2)
    np.testing.assert_allclose(run([e], [a, b], [x, y])[0], x * y * 3 + x - y)


def test_without_inputs_and_of_other_types():
    def squares(ins, outs):
        ib = tir.ir_builder.create()
        o = ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8, kind="vectorize") as i:
            o[i] = i * i
        return ib.get()

    c = te.extern((8,), [], squares, dtype="int32")
    np.testing.assert_array_equal(run([c], [], [])[0], np.arange(8) ** 2)


def test_errors():
    a, i = te.placeholder((4,), name="a"), te.placeholder((4,), "int32", name="i")
    with pytest.raises(ValueError, match="Cannot infer output type"):
        te.extern((4,), [a, i], running_sums)
    with pytest.raises(ValueError, match="should return PrimExpr or Stmt"):
        te.extern((4,), [a], lambda i, o: 3)
    with pytest.raises(ValueError, match="expect inputs to be tensor"):
        te.extern((4,), [3], lambda i, o: None)
    buffer, ib = tir.decl_buffer((4, 4), "float32"), tir.ir_builder.create()
    with pytest.raises(ValueError, match="has 2 dimensions, 3 indices"):
        ib.buffer_ptr(buffer)[0, 1, 2]
    with pytest.raises(ValueError, match="data type does not match content type int32 vs float32"):
        ib.buffer_ptr(buffer)[0, 0] = te.var("x")
    with pytest.raises(RuntimeError, match="can only follow an if_scope"):
        ib.else_scope()
    with pytest.raises(ValueError, match="cannot have a While"):
        te_while = te.extern((4,), [a], lambda i, o: tir.While(tir.const(True), tir.BufferStore(o[0], 0.0, [0])))
        ns.build(te.create_schedule(te_while.op), [a, te_while])


def test_a_lowered_schedule_can_be_visited_and_built():
    a = te.placeholder((8, 4), name="a")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="b")
    k = te.reduce_axis((0, 4), "k")
    c = te.compute((8,), lambda i: te.sum(b[i, k], axis=k), name="c")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=2)
    s[b].compute_at(s[c], outer)
    lowered = ns.lower(s, [a, c])
    func, kinds = lowered["main"], []
    tensors = ns.driver.build_module.schedule_to_module(s, [a, c])["main"]
    tir.stmt_functor.post_order_visit(func.body, lambda x: kinds.append(type(x).__name__) if isinstance(x, tir.Stmt) else None)
    assert kinds.count("For") == 5 and kinds.count("Allocate") == 1 and kinds[-1] == "Allocate"
    assert ns.ir.structural_equal(te.schedule.ScheduleOps(s, te.schedule.InferBound(s)), tensors.body, True)
    assert [len(func.memory[b].shape) for b in func.buffer_map.values()] == [1, 1] and [len(b.shape) for b in func.buffer_map.values()] == [2, 1]
    x, out = np.random.default_rng(0).random((8, 4), "float32"), ns.nd.empty((8,))
    ns.build(func, target="llvm")(ns.nd.array(x), out)
    np.testing.assert_allclose(out.numpy(), (x + 1).sum(1), 1e-5)
    doubled = tir.stmt_functor.ir_transform(
        func.body, None, lambda x: tir.BufferStore(x.buffer, x.value * 2.0, x.indices) if x.buffer.name == "b" else None, ["tir.BufferStore"]
    )
    ns.build(func.with_body(doubled), target="llvm")(ns.nd.array(x), out)
    np.testing.assert_allclose(out.numpy(), 2 * (x + 1).sum(1), 1e-5)
    assert te.schedule.PostDFSOrder([c.op], te.schedule.CreateReadGraph([c.op])) == [a.op, b.op, c.op]
    with pytest.raises(KeyError, match="it is called 'main'"):
        lowered["other"]


def test_calls_of_intrinsics_have_their_type():
    x = te.var("x", "int32")
    bits = tir.call_intrin("float32", "tir.reinterpret", x + 2)
    a = te.placeholder((4,), "int32", name="a")
    b = te.compute((4,), lambda i: tir.call_intrin("float32", "tir.reinterpret", a[i] + 2))
    values = np.arange(4, dtype="int32") * 10**8
    assert bits.dtype == "float32" and tir.call_intrin("float32", "tir.exp", bits).op.name == "tir.exp"
    np.testing.assert_array_equal(run([b], [a], [values])[0], (values + 2).view("float32"))
    with pytest.raises(TypeError, match="is float32, not float64"):
        tir.call_intrin("float64", "tir.exp", bits)


def test_stages_around_it_are_scheduled_and_no_other():
    a = te.placeholder(X.shape, name="a")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="b")
    c = te.extern(b.shape, [b], running_sums, name="c")
    d = te.compute(a.shape, lambda i, j: c[i, j] - b[i, j], name="d")
    s = te.create_schedule(d.op)
    s[b].parallel(b.op.axis[0])
    cached = s.cache_read(b, "global", [c])
    s[cached].vectorize(cached.op.axis[1])
    i, _ = s[d].split(d.op.axis[0], 2)
    for change in (lambda: s[c].split(c.op.axis[0], 2), lambda: s[c].compute_at(s[d], i), lambda: s[b].compute_at(s[c], c.op.axis[0])):
        with pytest.raises(ValueError, match="stage c is made of statements"):
            change()
    text, out = str(ns.lower(s, [a, d])), ns.nd.empty(X.shape)
    assert '"parallel"' in text and text.count("b.global") > 2
    ns.build(s, [a, d])(ns.nd.array(X), out)
    np.testing.assert_allclose(out.numpy(), wanted(X + 1) - (X + 1), 1e-5)
    s = te.create_schedule(d.op)
    s[b].compute_inline()
    with pytest.raises(ValueError, match="stage b cannot be inlined: stage c"):
        ns.build(s, [a, d])
    with pytest.raises(ValueError, match="only schedules written by hand"):
        ns.auto_scheduler.ComputeDAG([a, d])


def test_functions_of_c():
    a = te.placeholder((4, 3), name="a")
    call = lambda i, o: tir.call_extern("int64", "memcpy", o[0].access_ptr("w"), i[0].access_ptr("r", offset=3), tir.const(24, "int64"))  # noqa: E731
    c = te.extern((2, 3), [a], call, name="c")
    (got,) = run([c], [a], [X[:, :3]])
    np.testing.assert_array_equal(got, X[1:3, :3])


def test_a_schedule_beside_calls_of_python_is_no_silence():
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] * 2.0, name="b")
    c = te.extern((4,), [b], lambda i, o: tir.call_packed("test_extern.none", i[0], o[0]), name="c")
    s = te.create_schedule(c.op)
    assert 'tvm_call_packed("test_extern.none"' in str(ns.lower(s, [a, c]))
    s[b].vectorize(b.op.axis[0])
    with pytest.warns(UserWarning, match="stage b is scheduled beside"):
        ns.build(s, [a, c])


@pytest.mark.parametrize("number", [0, -1, 2**40, 10**6])
def test_numbers_of_buffers_are_checked(number):
    core, good = ns._core, tir.decl_buffer((2,)).number
    store = ("store", number, tir.const(0.0), [0])
    for ask in (
        lambda: core.stmt_load(number, [0]),
        lambda: core.stmt_buffer_of(number),
        lambda: core.stmt_program(store, (good,), ns.driver.engine_of(ns.target.Target("llvm")), "f"),
        lambda: core.stmt_program(("alloc", number, ("seq",)), (good,), ns.driver.engine_of(ns.target.Target("llvm")), "f"),
        lambda: core.stmt_program(("seq",), (number,), ns.driver.engine_of(ns.target.Target("llvm")), "f"),
    ):
        with pytest.raises(ValueError, match="no buffer has the number"):
            ask()


def test_products_of_a_library_and_conditions():
    from nestsmith.contrib import cblas

    a, b = te.placeholder((3, 6), name="a"), te.placeholder((4, 6), name="b")
    c = cblas.matmul(a, b, transb=True)
    d = te.compute(c.shape, lambda i, j: c[i, j] + 1.0, name="d")
    np.testing.assert_allclose(run([d], [a, b], [X[:3], X])[0], X[:3] @ X.T + 1, 1e-5)
    n = te.var("n")
    assert te.SpecializedCondition.current() is None
    with te.SpecializedCondition(n > 4) as outer, te.SpecializedCondition([n % 8 == 0, n > 0]) as inner:
        assert te.SpecializedCondition.current() is inner and len(inner.clauses) == 2 and len(outer.clauses) == 1
    assert te.SpecializedCondition.current() is None
    with pytest.raises(ValueError, match="is no condition"):
        te.SpecializedCondition(n)


def test_the_text_of_clang():
    from nestsmith.contrib import clang

    if not clang.find_clang(required=False):
        pytest.skip("there is no clang")
    assert "define" in clang.create_llvm('extern "C" int f(int a) { return a + 1; }')
    with pytest.raises(RuntimeError, match="failed:"):
        clang.create_llvm("int f( {")
