"""What candidates have to compute, of tasks that are large enough for all cores, beside NumPy."""

import numpy as np
import pytest

from nestsmith import _core, te, tir, topi


def computed(tensors, **how):
    """Inputs and the result, as arrays."""
    data = _core.reference_data(_core.ComputeDAG(tensors), **how)
    return [np.frombuffer(d, t.dtype).reshape([int(n) for n in t.shape]) for d, t in zip(data, tensors)]


def dense(m, n, k, dtype="float32"):
    a, b = te.placeholder((m, k), dtype, name="A"), te.placeholder((n, k), dtype, name="B")
    return [a, b, topi.nn.dense(a, b)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_product(dtype):
    a, b, c = computed(dense(301, 512, 640, dtype))
    want = a.astype("float64") @ b.astype("float64").T
    if dtype == "float16":  # its sums round
        np.testing.assert_allclose(c, want, atol=0.01 * np.abs(want).max())
    else:
        assert (c == want).all()


def test_operations_one_behind_the_other():
    x, w = te.placeholder((1, 34, 30, 30), name="X"), te.placeholder((96, 34, 3, 3), name="W")
    y = topi.nn.relu(topi.nn.conv2d_nchw(x, w, 1, 1, 1))
    total = topi.sum(y, axis=[0, 1, 2, 3])
    a, b, c = computed([x, w, total])
    padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
    conv = sum(np.einsum("ihw,oi->ohw", padded[0, :, dy : dy + 30, dx : dx + 30], b[:, :, dy, dx]) for dy in range(3) for dx in range(3))
    assert c.shape == () and abs(c - np.maximum(conv, 0).sum(dtype="float64")) <= 1e-6 * c


def test_sums_that_round_stay_in_order():
    tensors = dense(300, 400, 500)
    rng = np.random.default_rng(1)
    given = [rng.random((300, 500), "float32"), rng.random((400, 500), "float32")]
    a, b, c = computed(tensors, inputs=[g.tobytes() for g in given] + [None])
    once, twice = np.zeros((300, 400)), np.zeros((300, 400), "float32")  # a multiply-add rounds once or twice
    for k in range(500):
        x, y = given[0][:, k : k + 1], given[1][:, k]
        once = (x.astype("float64") * y.astype("float64") + once).astype("float32").astype("float64")
        twice = twice + x * y
    assert (a == given[0]).all() and ((c == once).all() or (c == twice).all())


def test_of_many_exponentials():
    x = te.placeholder((2000, 3000), name="X")
    a, c = computed([x, topi.nn.softmax(x)])
    e = np.exp(a - a.max(-1, keepdims=True))
    np.testing.assert_allclose(c, e / e.sum(-1, keepdims=True), rtol=1e-4)


def test_infinities_are_there():
    """A sum over what is left of a maximum with borders of minus infinity: the compiler must not take them for absent."""
    x = te.placeholder((400, 600, 4), name="X")
    padded = te.compute((402, 600, 4), lambda i, j, k: te.if_then_else(te.all(i >= 1, i < 401), x[i - 1, j, k], -tir.infinity("float32")), name="P")
    r = te.reduce_axis((0, 3), name="r")
    top = te.compute((400, 600, 4), lambda i, j, k: te.max(padded[i + r, j, k], axis=r), name="M")
    far = te.compute((400, 600, 4), lambda i, j, k: te.if_then_else(top[i, j, k] > -tir.infinity("float32"), top[i, j, k], 0.0), name="F")
    a, c = computed([x, far])
    rows = np.pad(a, ((1, 1), (0, 0), (0, 0)), constant_values=-np.inf)
    assert (c == np.maximum(np.maximum(rows[:-2], rows[1:-1]), rows[2:])).all()
