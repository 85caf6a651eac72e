"""Stage.transform_layout: tensors with other dimensions, beside NumPy."""

import numpy as np
import pytest

import nestsmith
from nestsmith import te

MAPS = {
    "split": (lambda i, j, k: [i, k // 4, j, k % 4], lambda a: a.reshape(4, 6, 2, 4).transpose(0, 2, 1, 3)),
    "reverse": (lambda *i: i[::-1], lambda a: a.transpose(2, 1, 0)),
    "flat": (lambda i, j, k: [i * 48 + j * 8 + k], lambda a: a.reshape(-1)),
    "last": (lambda *rest, k: [k, *rest], lambda a: a.transpose(2, 0, 1)),
    "digits": (
        lambda i, j, k: [k % 2 * 4 + i, k // 2 % 2, k // 4 * 6 + j],
        lambda a: a.reshape(4, 6, 2, 2, 2).transpose(4, 0, 3, 2, 1).reshape(8, 2, 12),
    ),
}


def test_of_an_input_a_temporary_and_a_result():
    rng = np.random.default_rng(0)
    a, args, tensors, outs = rng.random((4, 6, 8), "float32"), [], [], []
    for name, (fmap, move) in MAPS.items():
        A = te.placeholder((4, 6, 8), name=f"A_{name}")
        B = te.compute(A.shape, lambda i, j, k, A=A: A[i, j, k] + 1, name=f"B_{name}")
        r = te.reduce_axis((0, 8), name="r")
        C = te.compute((4, 6), lambda i, j, B=B, r=r: te.sum(B[i, j, r], axis=r), name=f"C_{name}")
        D = te.compute(A.shape, lambda i, j, k, B=B, C=C: B[i, j, k] * C[i, j], name=f"D_{name}")
        tensors.append((A, B, D))
        args.append((move(a), move((a + 1) * (a + 1).sum(2, keepdims=True))))
        outs.append(fmap)
    s = te.create_schedule([D.op for _, _, D in tensors])
    for (A, B, D), fmap in zip(tensors, outs):
        s[A].transform_layout(fmap)
        s[B].transform_layout(fmap)
        axes = s[D].transform_layout(fmap)
        s[D].split(axes[0], 2)
    again = te.create_schedule([D.op for _, _, D in tensors])
    again.apply_steps(s.steps())
    for sch in (s, again):
        run = nestsmith.build(sch, [t for A, _, D in tensors for t in (A, D)])
        given = [nestsmith.nd.array(np.ascontiguousarray(x)) for x, _ in args]
        made = [nestsmith.nd.empty(want.shape, "float32") for _, want in args]
        run(*[x for pair in zip(given, made) for x in pair])
        for got, (_, want) in zip(made, args):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("fmap", "why"),
    [
        (lambda i, j: [i // 4, j, i % 4], "gaps"),
        (lambda i, j: [i, i], "tell index 1"),
        (lambda i, j: [i], "tell index 1"),
        (lambda i, j: [i * 9 + j], "weights"),
        (lambda i, j: [(i + j) // 2], "single indices"),
        (lambda i, j: [i * j], "something else"),
        (lambda i: [i], "takes 1 indices"),
    ],
)
def test_maps_that_cannot_be_turned_around(fmap, why):
    A = te.placeholder((6, 8), name="A")
    B = te.compute(A.shape, lambda i, j: A[i, j], name="B")
    s = te.create_schedule(B.op)
    with pytest.raises(ValueError, match=why):
        s[B].transform_layout(fmap)
    s[B].split(B.op.axis[0], 2)
    with pytest.raises(ValueError, match="before the loops"):
        s[B].transform_layout(lambda i, j: [j, i])


def test_dimensions_of_the_memory():
    A = te.placeholder((2, 3, 4), name="A")
    B = te.compute(A.shape, lambda i, j, k: A[i, j, k], name="B")
    s = te.create_schedule(B.op)
    s[A].transform_layout(lambda i, j, k: [k, te.AXIS_SEPARATOR, i, j])
    function = nestsmith.lower(s, [A, B])["main"]
    shapes = [[int(d) for d in b.shape] for b in function.memory.values()]
    assert shapes == [[4, 6], [24]]
    function = nestsmith.driver.build_module.schedule_to_module(s, [A, B])["main"]
    assert [[int(d) for d in function.buffer_map[p].shape] for p in function.params] == [[4, 2, 3], [2, 3, 4]]
