"""Scopes of te: what nobody has kept is forgotten, what somebody has kept stays whole."""


import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, auto_scheduler, te, topi


def next_number():
    """The number that the next expression of the session gets: equal ones say that what was between is forgotten."""
    return hash(te.var("probe"))


def product(n=8):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C", attrs={"note": (1, ("a", None), 2.5)})
    return a, b, c


def text(n=8):
    a, b, c = product(n)
    s = te.create_schedule(c.op)
    s[c].split(c.op.axis[0], 4)
    relu = topi.nn.relu(c)
    return str(ns.lower(s, [a, b, c])), str(ns.lower(te.create_schedule(relu.op), [a, b, relu])), c.op.attrs["note"]


def forgets(define):
    """Whether a scope in which define() was called was forgotten."""
    define()  # caches, and the reducers of their types, are made once
    define()
    with te.scratch():
        before = next_number()
    with te.scratch():
        kept = define()
    with te.scratch():
        after = next_number()
    del kept
    return before == after


def test_what_nobody_keeps_is_forgotten():
    wanted = text()
    assert forgets(lambda: text() and None)
    for _ in range(3):
        with te.scratch():
            assert text() == wanted
    assert text() == wanted and wanted[2] == (1, ("a", None), 2.5)


def test_what_makes_a_circle_is_forgotten():
    def define():
        _, _, c = product()

        def visit(op):
            for t in op.input_tensors:
                visit(t.op)
            return c

        visit(c.op)

    assert forgets(define)


@pytest.mark.parametrize(
    "keep",
    [
        lambda a, b, c: c,
        lambda a, b, c: c.op,
        lambda a, b, c: c[1],
        lambda a, b, c: c.op.axis[0],
        lambda a, b, c: c.op.body[0],
        lambda a, b, c: c[1, 2] == a[1, 2],
        lambda a, b, c: te.create_schedule(c.op),
        lambda a, b, c: te.create_schedule(c.op)[c],
        lambda a, b, c: te.create_schedule(c.op)._core.state([a, b, c]),
        lambda a, b, c: _core.ComputeDAG([a, b, c]),
    ],
    ids=["tensor", "operation", "slice", "axis", "expression", "comparison", "schedule", "stage", "state", "dag"],
)
def test_what_somebody_keeps_stays(keep):
    wanted = text()
    with te.scratch():
        kept = keep(*product())
    shown = str(kept)
    for n in (8, 16, 32):
        with te.scratch():
            text(n)
        text(n)
    assert str(kept) == shown
    if isinstance(kept, te.Tensor):
        assert str(ns.lower(te.create_schedule(kept.op), [*kept.op.input_tensors, kept])).count("for (") == 3
    assert not forgets(lambda: keep(*product()))
    assert text() == wanted


def test_reducers_stay():
    with te.scratch():
        largest = te.comm_reducer(lambda x, y: te.max(x, y), lambda t: te.const(-1, dtype=t), name="largest")
        k = te.reduce_axis((0, 4))
        a = te.placeholder((4,), "int32")
        te.compute((1,), lambda i: largest(a[k] + i, axis=k))
        del a, k
    text()
    k, a = te.reduce_axis((0, 4)), te.placeholder((4,), "int32")
    c = te.compute((1,), lambda i: largest(a[k] + i, axis=k))
    out = ns.nd.array(np.zeros(1, "int32"))
    ns.build(te.create_schedule(c.op), [a, c], "llvm")(ns.nd.array(np.array([3, 9, 2, 5], "int32")), out)
    assert out.numpy()[0] == 9


def test_a_schedule_from_before_may_grow():
    a, b, c = product()
    s = te.create_schedule(c.op)
    with te.scratch():
        s[c].unroll(s[c].split(c.op.axis[1], 2)[1])
        s[c].parallel(c.op.axis[0])
    for n in (8, 16, 32):
        with te.scratch():
            text(n)
        text(n)
    assert "parallel" in str(s) and "unroll" in str(s)
    ns.lower(s, [a, b, c])
    assert not forgets(lambda: (s[c].op, te.var("more")) and None)


def test_scopes_inside_of_scopes_are_one():
    with te.scratch():
        with te.scratch():
            *_, c = product()
        text()
        assert c.op.attrs["note"] == (1, ("a", None), 2.5)
        del c
    assert forgets(inner)


def inner():
    with te.scratch():
        text()


def test_exceptions():
    def broken():
        try:
            *_, c = product()
            te.compute((4,), lambda i: c[i, i, i])
        except ValueError as e:
            return str(e)

    assert forgets(lambda: broken() and None)
    with pytest.raises(ValueError) as caught, te.scratch():
        *_, c = product()
        c[0, 0, 0]
    text()
    assert caught.traceback[0].frame.f_locals["c"].op.name == "C"


STEPS = '[["SP", 2, 0, 8, [4], 1], ["AN", 2, 0, 3]]'


def dag_and_program(detached):
    dag = auto_scheduler.ComputeDAG(list(product()))
    if detached:
        dag.detach()
    return dag, program_of(dag)


def program_of(dag):
    return _core.program(_core.State(dag, STEPS), None, ns.target.Target("llvm").engine(), "main")


def test_a_dag_that_let_go_of_its_tensors():
    plain, wanted = dag_and_program(False)
    kept = []
    assert forgets(lambda: kept.append(dag_and_program(True)))
    for dag, program in kept:
        text()
        assert program == wanted == program_of(dag)
        assert str(dag) == str(plain) and dag.workload_key() == plain.workload_key() and dag.flop_ct == plain.flop_ct
        assert [(t.name, t.shape, t.dtype, t.op.is_placeholder) for t in dag.tensors] == [
            (t.name, tuple(t.shape), t.dtype, t.op.is_placeholder) for t in plain.tensors
        ]
        with pytest.raises(TypeError, match="expected a te.Tensor, not TensorFacts"):
            dag.apply_steps_from_state(_core.State(dag, STEPS))
