"""Tensors, computes, reductions, DAGs and workload keys."""

import pickle

import pytest

import nestsmith as ns
from nestsmith import _core, te, tir, topi
from nestsmith.auto_scheduler.compute_dag import HASH_FUNC, ComputeDAG
from nestsmith.auto_scheduler.workload_registry import (
    flatten_workload_key,
    make_workload_key,
    register_workload,
    register_workload_tensors,
    workload_key_to_tensors,
)
from nestsmith.registry import get_global_func, register_func, remove_global_func


def test_axis_names():
    a = te.placeholder((2, 3, 4), name="A")
    names = lambda t: [v.name for v in t.op.axis]  # noqa: E731
    assert names(te.compute(a.shape, lambda i, j, k: a[i, j, k])) == ["i", "j", "k"]
    assert names(te.compute(a.shape, lambda n, *ix: a(n, *ix))) == ["n", "i0", "i1"]
    assert names(te.compute(a.shape, lambda *ix: a(*ix), varargs_names=["x", "y", "z"])) == ["x", "y", "z"]
    assert te.compute((), lambda: tir.const(0.5)).shape == ()
    assert isinstance(a.op, te.PlaceholderOp) and isinstance(te.compute((1,), lambda i: i).op, te.ComputeOp)
    with pytest.raises(ValueError, match="2 indices"):
        te.compute(a.shape, lambda i, j: a[i, j, 0])


def test_symbolic_shape():
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    dag = _core.ComputeDAG([a, b, c])
    assert dag.text() == "A = PLACEHOLDER [n]\nB = PLACEHOLDER [n]\nC(i) = (A[i] + B[i])\n"
    assert dag.flop_ct == -1
    with pytest.raises(ValueError, match="constant"):
        dag.workload_key()
    with pytest.raises(ValueError, match="constant shapes"):
        ComputeDAG([a, b, c])


def test_operation_attributes():
    a = te.placeholder((4, 8), "float16", "A")
    k = te.reduce_axis((0, 8), "k")
    attrs = {"FLOP": 7, "names": ["i"], "free": [a]}
    c = te.compute((4,), lambda i: te.sum(a[i][k], axis=k), name="C", tag="t", attrs=attrs)
    op = c.op
    assert (op.name, op.tag, op.num_outputs, c.dtype, c.ndim) == ("C", "t", 1, "float16", 1)
    assert op.output(0) == c and op.input_tensors == [a] and op.reduce_axis[0] == k
    assert op.attrs == {"FLOP": 7, "names": ["i"], "free": [a]}
    assert op.axis[0].dom.extent == 4 and k.dom.extent == 8 and k.iter_type == 2
    assert isinstance(c.shape[0], int) and c.shape[0].value == 4
    assert _core.ComputeDAG([a, c]).flop_ct == 7


def test_order_of_several_outputs():
    a, b, c = (te.placeholder((4,), name=n) for n in "ABC")
    d = te.compute((4,), lambda i: a[i] + b[i], name="D")
    e = te.compute((4,), lambda i: a[i] + c[i], name="E")
    assert [o.name for o in _core.ComputeDAG([a, b, c, d, e]).ops] == ["A", "B", "D", "C", "E"]


def test_worked_analysis():
    x, w = te.placeholder((1, 3, 224, 224), name="X"), te.placeholder((64, 3, 7, 7), name="W")
    y = topi.nn.conv2d_nchw(x, w, 2, 3, 1)
    for op in (topi.add, topi.multiply, topi.add):
        y = op(y, te.placeholder((64, 1, 1)))
    dag = _core.ComputeDAG([x, w, topi.relu(y)])
    flags = dag.stages()
    pick = lambda key: {i for i, s in enumerate(flags) if s[key]}  # noqa: E731
    assert [s["name"] for s in flags][3] == "conv2d_nchw"
    assert pick("needs_multi_level_tiling") == {3}
    assert pick("is_simple_access") == set(range(11)) - {3}
    assert pick("is_strictly_inlineable") == {5, 7, 9, 10}
    assert pick("is_output") == {10}
    assert [s["common_outer_iterators"] for s in flags[3:6]] == [{1: 1, 2: 0}, {}, {3: 4, 4: 0}]


def test_tuple_reduction():
    a = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    argmax = te.comm_reducer(
        lambda x, y: (tir.Select(x[1] >= y[1], x[0], y[0]), tir.Select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (tir.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    p, v = te.compute((4,), lambda i: argmax((k.var, a[i, k]), axis=k), name="T")
    assert (p.dtype, v.dtype, p.op.num_outputs) == ("int32", "float32", 2)
    assert "T(i).v1 select((x_1 >= y_1), x_1, y_1)= (k,A[i, k])" in _core.ComputeDAG([a, p, v]).text()


def test_other_combiner_text():
    a = te.placeholder((4, 8), name="A")
    assert "A_red(ax0)reduce(x*y)\n" in _core.ComputeDAG([a, topi.prod(a, 1)]).text()


def same_names(a, k):
    return te.compute((4,), lambda *i: te.sum(a[i[0], k], axis=k), varargs_names=["k"])


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda a, k: a[0, 1, 2], ValueError, "3 indices"),
        (lambda a, k: a(0), ValueError, "1 indices"),
        (lambda a, k: a[0.5, 1], TypeError, "integer"),
        (lambda a, k: a[0:2, 1] + 1, TypeError, "strided_slice"),
        (lambda a, k: te.compute((4,), lambda i: a), TypeError, "index it"),
        (lambda a, k: te.compute((4,), lambda i: 1 + te.sum(a[i, k], axis=k)), ValueError, "whole body"),
        (lambda a, k: te.placeholder((-1,)), ValueError, "negative"),
        (lambda a, k: te.placeholder((2**40, 2**40)), ValueError, "overflow"),
        (lambda a, k: te.placeholder((1,), "float99"), ValueError, "float99"),
        (lambda a, k: _core.ComputeDAG([]), ValueError, "at least one"),
        (lambda a, k: _core.ComputeDAG([a]), ValueError, "placeholders only"),
        (lambda a, k: _core.ComputeDAG([1]), TypeError, "Tensor"),
        (lambda a, k: te.compute((4,), lambda i: (a[i, 0], te.sum(a[i, k], axis=k))), ValueError, "all bodies"),
        (lambda a, k: _core.ComputeDAG([same_names(a, k)]), ValueError, "two iterators"),
        (lambda a, k: topi.add(a, te.placeholder((3, 3))), ValueError, "broadcast"),
        (lambda a, k: topi.reshape(a, (5, 5)), ValueError, "numbers of elements"),
        (lambda a, k: te.thread_axis(), ValueError, "tag"),
    ],
)
def test_errors(make, error, words):
    a = te.placeholder((4, 8), name="A")
    with pytest.raises(error, match=words):
        make(a, te.reduce_axis((0, 8), "k"))


def test_whole_tensor_arithmetic():
    a, b = te.placeholder((4, 8), name="A"), te.placeholder((8,), name="B")
    assert _core.ComputeDAG([a + b]).text().endswith("T_add(ax0, ax1) = (A[ax0, ax1] + B[ax1])\n")
    assert (a + b).op.tag == "broadcast" and (a * 2).op.tag == "elemwise"
    assert str((a * 2).op.body[0]) == "(A[ax0, ax1]*2f)" and str((2.0 / a).op.body[0]) == "(2f/A[ax0, ax1])"
    assert str((-a).op.body[0]) == "(A[ax0, ax1]*-1f)"
    with pytest.raises(TypeError):
        a + "x"


def test_tag_scopes_do_not_nest():
    with te.tag_scope("a"):
        assert te.compute((1,), lambda i: i).op.tag == "a"
        with pytest.raises(ValueError, match="nest"):
            with te.tag_scope("b"):
                pass
    assert te.compute((1,), lambda i: i).op.tag == ""


@register_workload("te_tests.matmul")
def matmul(n, m, k, extra=None):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "k")
    return a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")


def test_workload_keys():
    key = make_workload_key("te_tests.matmul", (8, 16, 32))
    assert key == '["te_tests.matmul", 8, 16, 32]'
    dag = ComputeDAG(key)
    assert dag.flop_ct == 2 * 8 * 16 * 32 and str(pickle.loads(pickle.dumps(dag))) == str(dag)
    t = te.placeholder((3, 4), "int8")
    nested = make_workload_key("te_tests.matmul", (8, [1, (2, None)], True, t))
    assert nested == '["te_tests.matmul", 8, [1, [2, null]], true, ["TENSOR", [3, 4], "int8"]]'
    whole = dag.workload_key()
    assert register_workload_tensors(whole, dag.tensors) == whole
    assert workload_key_to_tensors(whole) == dag.tensors
    assert flatten_workload_key('["h", [1, 2], [3]]') == flatten_workload_key('["h", 1, 2, 3]')


def test_a_body_that_is_no_function():
    with pytest.raises(TypeError, match="fcompute is 5; it must be a function of the indices"):
        te.compute((3,), 5)


def test_workload_errors():
    with pytest.raises(RuntimeError, match="override"):
        register_workload("te_tests.matmul", lambda: None)
    with pytest.raises(ValueError, match="function or a name"):
        register_workload(3)
    with pytest.raises(ValueError, match="not registered"):
        make_workload_key("te_tests.nobody", ())
    with pytest.raises(ValueError, match="part of a workload key"):
        make_workload_key("te_tests.matmul", (object(),))
    for bad in ("", "3", "[]", "{}", '["te_tests.nobody", 1]'):
        with pytest.raises(ValueError):
            ComputeDAG(bad)


def test_hash_function_can_be_replaced():
    register_func(HASH_FUNC, lambda text: len(text))
    try:
        assert ComputeDAG('["te_tests.matmul", 2, 2, 2]').workload_key() == "[63, [2, 2], [2, 2], [2, 2]]"
        with pytest.raises(ValueError, match="override"):
            register_func(HASH_FUNC, lambda text: 1)
    finally:
        remove_global_func(HASH_FUNC)
    with pytest.raises(ValueError, match="register_func"):
        get_global_func(HASH_FUNC)


def test_parameters_with_default_values_are_no_axes():
    """`x=x` keeps the x of this round of a loop."""
    x = te.placeholder((4, 4), name="A")
    for n in range(3):
        x = te.compute((4, 4), lambda i, j, x=x: x[i, j] + 1, name=f"C{n}")
    assert x.op.input_tensors[0].op.name == "C1" and [a.var.name for a in x.op.axis] == ["i", "j"]
    with pytest.raises(ValueError, match="takes 3 indices, the shape has 2"):
        te.compute((4, 4), lambda i, j, k: 1)


def test_what_a_compute_may_be_made_of():
    """The first two were computed: sixteen times the sum, and 0. The others reached the C compiler or a broken program."""
    a = te.placeholder((8, 16), name="A")
    k, empty = te.reduce_axis((0, 16), name="k"), te.reduce_axis((0, -1), name="k")
    with pytest.raises(ValueError, match="reduces over axis k twice"):
        te.compute((8,), lambda i: te.sum(a[i, k], axis=[k, k]))
    with pytest.raises(ValueError, match="axis k of extent -1; it must not be negative"):
        te.compute((8,), lambda i: te.sum(a[i, empty], axis=empty))
    for dtype in ("float32x4", "handle"):
        with pytest.raises(TypeError, match="elements of type .*must be numbers"):
            te.placeholder((3,), dtype)
    with pytest.raises(TypeError, match="int32x4.*must be numbers"):
        te.compute((3,), lambda i: i.astype("int32x4"))
    v = te.var("v")
    for body in (lambda i: a[i, v], lambda i: a[i, 0] * v.astype("float32"), lambda i: a[i, k]):
        c = te.compute((8,), body, name="c")
        with pytest.raises(ValueError, match="compute 'c' uses the variable [vk], which is none of its axes"):
            ns.build(te.create_schedule(c.op), [a, c], "llvm")
    c = te.compute((8,), lambda i: tir.Let(v, i + 1, a[i, v]), name="c")
    ns.build(te.create_schedule(c.op), [a, c], "llvm")
