"""te.hybrid: functions in a part of Python, beside themselves run with NumPy."""

import numpy as np
import pytest

import nestsmith
from nestsmith import te

SIZES = [3, 5]


@te.hybrid.script
def running(a, table, n):
    """Conditions, scalars in memory, captured numbers, lists, all kinds of loops."""
    out = output_tensor((a.shape[0], 5), a.dtype)  # noqa: F821
    counts = output_tensor((3,), "int32")  # noqa: F821
    rows = allocate((5,), a.dtype)  # noqa: F821
    three = 3.0
    for i in parallel(a.shape[0]):  # noqa: F821
        total = 0.0
        for j in range(1, SIZES[1]):
            rows[j] = a[i, j] * table[1][1]
            total += rows[j] + float32(i)  # noqa: F821
            if 1 <= j < n and not (i == 1 and j == 2):
                out[i, j] = total / three
            elif i == 0 or j > 3:
                out[i, j] = max(total, 0.5)
            else:
                out[i, j] = -1.0 if a[i, j] < 0.5 else sqrt(a[i, j])  # noqa: F821
        out[i, 0] = total
    for k in const_range(len(table)):  # noqa: F821
        counts[k] = table[k][0] * (k + 1)
    for k in unroll(1):  # noqa: F821
        counts[k + 2] = popcount(7)  # noqa: F821
    return out, counts


@te.hybrid.script
def outer(a, b):
    c = output_tensor((a.shape[0], b.shape[0]), a.dtype)  # noqa: F821
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            assert i >= 0, "never"
            c[i, j] = a[i] * b[j]
    return c


@te.hybrid.script
def of_outer(a, b):
    c = outer(a, b)
    d = output_tensor(c.shape, c.dtype)  # noqa: F821
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            d[i, j] = c[i, j] + i * j
    return d


def run(outs, inputs, arrays, sch=None):
    made = [nestsmith.nd.empty([int(s) for s in t.shape], t.dtype) for t in outs]
    nestsmith.build(sch or te.create_schedule([t.op for t in outs]), [*inputs, *outs])(*map(nestsmith.nd.array, arrays), *made)
    return [m.numpy() for m in made]


A = np.random.default_rng(0).random((2, 5), "float32")
X, Y = np.arange(4, dtype="float32"), np.arange(6, dtype="float32") + 2


def test_as_tensors_and_as_python():
    a = te.placeholder(A.shape, name="a")
    table = [[1, 2], [3, 4], [5, 6]]
    outs = running(a, table[:2], 3)
    assert isinstance(outs[0].op, te.HybridOp) and isinstance(outs[0].op.body, nestsmith.tir.ProducerRealize) and outs[0].op.inputs == [a]
    want = running(A, table[:2], 3)
    for got, w in zip(run(outs, [a], [A]), want):
        np.testing.assert_allclose(got, w, rtol=1e-6)
    x, y = te.placeholder((4,), name="x"), te.placeholder((6,), name="y")
    np.testing.assert_allclose(run([of_outer(x, y)], [x, y], [X, Y])[0], of_outer(X, Y))


def test_a_plain_nest_is_scheduled_between_others():
    x, y = te.placeholder((4,), name="x"), te.placeholder((6,), name="y")
    z = te.compute((4,), lambda i: x[i] + 1.0, name="z")
    c = outer(z, y)
    d = te.compute(c.shape, lambda i, j: c[i, j] * 2.0, name="d")
    s = te.create_schedule(d.op)
    i, j = c.op.axis
    s[c].fuse(*s[c].split(i, 2)), s[c].vectorize(j)
    assert isinstance(c.op, te.HybridOp) and isinstance(c.op.body, nestsmith.tir.For)
    np.testing.assert_allclose(run([d], [x, y], [X, Y], s)[0], np.outer(X + 1, Y) * 2)


def test_sizes_that_are_variables():
    n, m = te.size_var("n"), te.var("m")
    x, y = te.placeholder((n,), name="x"), te.placeholder((m,), name="y")
    d = of_outer(x, y)
    f = nestsmith.build(te.create_schedule(d.op), [n, x, y, d])
    out = nestsmith.nd.empty((4, 6))
    f(4, nestsmith.nd.array(X), nestsmith.nd.array(Y), out)
    np.testing.assert_allclose(out.numpy(), of_outer(X, Y))


def test_a_schedule_as_such_a_function(tmp_path):
    a, k = te.placeholder(A.shape, name="a"), te.reduce_axis((0, 5), "k")
    b = te.compute((2,), lambda i: te.sum(te.exp(a[i, k]), axis=k), name="b.x")
    c = te.compute((2,), lambda i: te.if_then_else(i > 0, te.max(b[i], 1.0), b[i].astype("int32").astype("float32")), name="c")
    s = te.create_schedule(c.op)
    s[b].split(k, 2)
    made = te.hybrid.build(s, [a], [c], "f")
    want = np.exp(A).sum(1)
    want[0] = int(want[0])
    np.testing.assert_allclose(made(A), want, rtol=1e-6)
    made.save(tmp_path / "f")
    again = te.hybrid.HybridModule()
    with pytest.raises(ValueError, match="without source"):
        again(A)
    again.load(tmp_path / "f.py")
    assert again.name == "f" and again.get_source() == made.get_source()
    t = again(a)
    np.testing.assert_allclose(run([t], [a], [A])[0], want, rtol=1e-6)


def _bad(body):
    return te.hybrid.HybridModule("\n".join(["def f(a):", *("    " + line for line in body.split("\n"))]))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("while True: pass", "While is no statement"),
        ("b = output_tensor((2,), 'float32')\nfor i in a:\n    b[0] = 1.0\nreturn b", "loops are"),
        ("b = output_tensor((2,), 'float32')\nb[0] = zzz\nreturn b", "zzz is not known"),
        ("b = output_tensor((2,), 'float32')\nb[0] = a[0, 0, 0]\nreturn b", "indices|dimensions"),
        ("for i in const_range(a[0, 0]):\n    pass", "numbers that are known"),
        ("b = output_tensor((2,), 'float32')\nfor i in range(2):\n    b[i] = [1, 2][i]\nreturn b", "indexed by numbers that are known"),
        ("return a", "output_tensor has not made"),
        ("pass", "returns nothing"),
        ("b = output_tensor((2,), 'float32')\nb[0] = [x for x in 'ab']\nreturn b", "ListComp"),
    ],
)
def test_what_such_functions_may_not_have(body, why):
    with pytest.raises((ValueError, TypeError), match=why):
        _bad(body)(te.placeholder((2, 5), name="a"))
