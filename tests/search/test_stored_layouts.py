"""Computations of tensors that are stored in another layout than they are written for."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, te

RNG = np.random.default_rng(0)


def _product(weight):
    x, k = te.placeholder((6, 32), name="x"), te.reduce_axis((0, 32), "k")
    return x, te.compute((6, 64), lambda i, j: te.sum(x[i, k] * weight[k, j], axis=k), name="y")


def _run(out, *pairs):
    result = ns.nd.empty([int(s) for s in out.shape])
    ns.build(te.create_schedule(out.op), [*(t for t, _ in pairs), out], "llvm")(*(ns.nd.array(np.ascontiguousarray(a)) for _, a in pairs), result)
    return result.numpy()


def test_reads_are_rewritten_by_the_layout():
    a, w = RNG.random((6, 32), "float32"), RNG.random((32, 64), "float32")
    layouts = {"4j8k16j4k": w.reshape(8, 4, 4, 16).transpose(2, 0, 3, 1), "2k64j16k": w.reshape(2, 16, 64).transpose(0, 2, 1)}
    for layout, stored in layouts.items():
        weight = te.placeholder(stored.shape, name="weight")
        assert auto_scheduler.get_shape_from_rewritten_layout(layout, ["k", "j"]) == [32, 64]
        auto_scheduler.remove_index_check(weight)
        x, y = _product(weight)
        y = auto_scheduler.rewrite_compute_body(y, layout)
        np.testing.assert_allclose(_run(y, (x, a), (weight, stored)), a @ w, 1e-5)
    square = te.placeholder((32, 64), name="square")
    auto_scheduler.remove_index_check(square)
    with pytest.raises(ValueError, match="reads no tensor of remove_index_check"):
        auto_scheduler.rewrite_compute_body(_product(square)[1], "64j32k")


def test_what_cannot_be_rewritten():
    weight = te.placeholder((4, 8, 16, 4), name="weight")
    with pytest.raises(ValueError, match="4 dimension"):
        weight(0, 1)
    auto_scheduler.remove_index_check(weight)
    _, y = _product(weight)
    with pytest.raises(ValueError, match="other axes than k, j"):
        auto_scheduler.rewrite_compute_body(y, "4o8k16j4k")


def test_a_placeholder_gets_another_shape():
    weight = te.placeholder((8, 4, 64), name="weight")
    auto_scheduler.rewrite_tensor_shape(weight, (32, 64))
    assert tuple(weight.shape) == (32, 64)
    a, w = RNG.random((6, 32), "float32"), RNG.random((32, 64), "float32")
    x, y = _product(weight)
    np.testing.assert_allclose(_run(y, (x, a), (weight, w)), a @ w, 1e-5)
    with pytest.raises(ValueError, match="weight is read already"):
        auto_scheduler.rewrite_tensor_shape(weight, (64, 32))
    with pytest.raises(ValueError, match="only the shape of a placeholder"):
        auto_scheduler.rewrite_tensor_shape(y, (64, 6))
