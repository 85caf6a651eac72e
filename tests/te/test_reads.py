"""Reads that certainly leave their tensor are refused where the loops of a schedule, or a task, are made from them; guarded reads, reads that
depend on data, and elements that nobody needs are not."""

import pytest

import nestsmith
from nestsmith import _core, te, tir, topi
from nestsmith.autotvm.task.task import compute_flop
from nestsmith.te.schedule import InferBound


def reading(body, shape=(8,), n=(8,)):
    """Loops of B, which reads A of the given shape."""
    a = te.placeholder(shape, name="A")
    return InferBound(te.create_schedule(te.compute(n, lambda *i: body(a, *i), name="B").op))


K = te.reduce_axis((0, 3), name="k")


@pytest.mark.parametrize(
    ("body", "shape", "n", "said"),
    [
        (lambda a, i: a[i + 1], (8,), (8,), "dimension 0 takes values from 1 to 8, but the dimension has extent 8"),
        (lambda a, i: a[i - 1], (8,), (8,), "from -1 to 6"),
        (lambda a, i: a[i * 2 + 2], (8,), (4,), "from 2 to 8"),
        (lambda a, i: a[7 - i], (8,), (9,), "from -1 to 7"),
        (lambda a, i: te.sum(a[i + K], axis=K), (8,), (7,), "from 0 to 8"),
        (lambda a, i: a[te.min(i, 9)], (8,), (12,), "from 0 to 9"),
        (lambda a, i: a[i % 9], (8,), (12,), "from 0 to 8"),
        (lambda a, i: a[i // 6, i % 6], (2, 6), (13,), "dimension 0 takes values from 0 to 2"),
        (lambda a, i, j: a[j, i], (4, 5), (4, 5), "dimension 0 takes values from 0 to 4"),
        (lambda a, i: te.max(a[i], 0.0) * a[i + 1], (8,), (8,), "from 1 to 8"),
    ],
)
def test_certain_reads_out_of_bounds_are_refused(body, shape, n, said):
    with pytest.raises(ValueError, match=f"compute 'B' reads tensor A out of bounds: index .*{said}.*te.if_then_else"):
        reading(body, shape, n)


@pytest.mark.parametrize(
    ("body", "shape", "n"),
    [
        (lambda a, i: te.if_then_else(i >= 1, a[i - 1], 0.0), (8,), (8,)),
        (lambda a, i: tir.Select(i >= 1, a[i - 1], te.const(0.0)), (8,), (8,)),
        (lambda a, i: te.sum(a[i + K], axis=K, where=i + K < 8), (8,), (7,)),
        (lambda a, i: te.if_then_else(te.all(i < 7, a[i + 1] > 0.0), a[i], 0.0), (8,), (8,)),
        (lambda a, i: a[i - i + 8], (8,), (8,)),  # correlated: not looked into
        (lambda a, i: a[te.min(i, 7)], (8,), (12,)),
        (lambda a, i: a[i % 8], (8,), (12,)),
        (lambda a, i: a[i // 6, i % 6], (2, 6), (12,)),
        (lambda a, i: a[a[i].astype("int32") + 100], (8,), (8,)),  # depends on data
        (lambda a, i: a[i + 1], (8,), (0,)),  # of nothing
    ],
)
def test_what_is_not_certain_is_let_pass(body, shape, n):
    reading(body, shape, n)


def test_symbolic_extents_are_let_pass():
    n = te.var("n")
    reading(lambda a, i: a[i + 1], (n,), (n,))


@pytest.mark.parametrize(("read", "n", "ok"), [
    (lambda b, i: b[i], 8, True),  # the element that cannot be computed is not needed
    (lambda b, i: te.if_then_else(i < 8, b[i], 0.0), 9, True),
    (lambda b, i: b[i], 9, False),
    (lambda b, i: b[8 - i], 9, False),
])  # fmt: skip
def test_intermediate_tensors_count_as_far_as_they_are_needed(read, n, ok):
    a = te.placeholder((8,), name="A")
    b = te.compute((9,), lambda i: a[i], name="B")
    c = te.compute((n,), lambda i: read(b, i), name="C")
    s = te.create_schedule(c.op)
    if ok:
        InferBound(s)
        return
    with pytest.raises(ValueError, match="compute 'B' reads tensor A"):
        InferBound(s)
    s[b].compute_inline()
    for make in (nestsmith.lower, nestsmith.build):
        with pytest.raises(ValueError, match="compute 'B' reads tensor A"):
            make(s, [a, c])


def test_operations_may_be_counted():
    a = te.placeholder((8,), name="A")
    b = te.compute((9,), lambda i: a[i] * 2.0 + 1.0, name="B")
    assert compute_flop(te.create_schedule(b.op)) == 18


def test_tasks_are_checked_too():
    a = te.placeholder((8,), name="A")
    with pytest.raises(ValueError, match="compute 'B' reads tensor A out of bounds"):
        _core.ComputeDAG([a, te.compute((8,), lambda i: a[i + 1], name="B")])


def test_operators_read_inside():
    x, w = te.placeholder((1, 7, 7, 4), name="X"), te.placeholder((3, 3, 4, 8), name="W")
    for t in (
        topi.nn.conv2d_nhwc(x, w, 2, 1, 1),
        topi.nn.pool2d(x, 3, 2, 1, 1, "max", layout="NHWC"),
        topi.nn.softmax(topi.reshape(x, (7, 28))),
    ):
        InferBound(te.create_schedule(t.op))
