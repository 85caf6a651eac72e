"""te.gradient beside PyTorch's and beside differences."""

import numpy as np
import pytest

import nestsmith
from nestsmith import te, topi

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)


def test_beside_pytorch_in_one_program():
    """Every rule once; the sums of squares of all results give the heads."""
    T, F = torch, torch.nn.functional
    x, w, v = (torch.tensor(RNG.random(s, "float32") + 0.2, requires_grad=True) for s in ((1, 2, 6, 6), (3, 2, 3, 3), (4, 6)))
    X, W, V = (te.placeholder(t.shape, name=n) for t, n in ((x, "x"), (w, "w"), (v, "v")))
    k = te.reduce_axis((0, 6), "k")
    product = te.comm_reducer(lambda a, b: a * b, lambda t: nestsmith.tir.const(1, t), "product")
    cases = [
        (topi.nn.conv2d(X, W, 2, 1, 1), F.conv2d(x, w, stride=2, padding=1), (X, W), (x, w)),
        (topi.nn.conv2d(X, W, 1, 0, 2), F.conv2d(x, w, dilation=2), (X, W), (x, w)),
        (topi.nn.pool2d(X, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "max"), F.max_pool2d(x, 2), (X,), (x,)),
        (topi.nn.softmax(topi.reshape(X, (4, 18))), F.softmax(x.reshape(4, 18), -1), (X,), (x,)),
        (topi.concatenate((topi.transpose(V, (1, 0)), topi.transpose(V * V, (1, 0))), 1), T.cat((v.T, (v * v).T), 1), (V,), (v,)),
        (te.compute((4,), lambda i: product(V[i, k], axis=k)), v.prod(1), (V,), (v,)),
        (te.compute((6, 4), lambda i, j: V[3 - j, 5 - i] / (V[j, i] + 2.0)), v.flip(0, 1).T / (v.T + 2), (V,), (v,)),
        (
            te.compute(V.shape, lambda *i: te.tanh(V(*i)) * te.sigmoid(V(*i)) + te.power(V(*i), 1.5) - te.log(te.sqrt(V(*i)) + te.exp(V(*i)))),
            T.tanh(v) * T.sigmoid(v) + v**1.5 - T.log(T.sqrt(v) + T.exp(v)), (V,), (v,),
        ),
        (
            te.compute(V.shape, lambda i, j: te.max(te.erf(V[i, j]), te.sin(V[0, j])) - te.abs(V[i, j] - 0.7)),
            T.maximum(T.erf(v), T.sin(v[:1])) - (v - 0.7).abs(), (V,), (v,),
        ),
    ]  # fmt: skip
    results, wanted = [], []
    for out, ref, tensors, refs in cases:
        results += te.gradient(out, list(tensors), head=out * 2.0)
        wanted += T.autograd.grad((ref**2).sum(), refs)
    made = [nestsmith.nd.empty([int(s) for s in t.shape]) for t in results]
    run = nestsmith.build(te.create_schedule([t.op for t in results]), [X, W, V, *results])
    run(*[nestsmith.nd.array(t.detach().numpy()) for t in (x, w, v)], *made)
    for got, want in zip(made, wanted):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-4, atol=2e-5)


def test_jacobian_zeros_and_sizes_of_sums():
    a, b = te.placeholder((3,), name="a"), te.placeholder((2, 2), name="b")
    c = te.compute((3,), lambda i: a[2 - i] * a[i], name="c")
    whole, none = te.gradient(c, [a, b])
    x, outs = np.array([1, 2, 4], "float32"), [nestsmith.nd.empty((3, 3)), nestsmith.nd.empty((3, 2, 2))]
    nestsmith.build(te.create_schedule([whole.op, none.op]), [a, whole, none])(nestsmith.nd.array(x), *outs)
    np.testing.assert_allclose(outs[0].numpy(), [[4, 0, 1], [0, 4, 0], [4, 0, 1]])
    assert not outs[1].numpy().any()
    data, weight = te.placeholder((1, 8, 32, 32)), te.placeholder((8, 8, 3, 3))
    conv = topi.nn.conv2d(data, weight, 1, 0, 1)
    (of_data,) = te.gradient(conv, data, head=topi.full_like(conv, 1.0))
    sums = [sorted(int(k.extent) for k in op.reduce_axis) for op in te.specialize.operations([of_data.op]) if op != conv.op and op.reduce_axis]
    assert sums == [[3, 3, 8]]  # channels and kernel, no pixels


def test_what_has_no_derivative():
    a = te.placeholder((3,), name="a")
    bits = te.compute((3,), lambda i: te.fmod(a[i], 2.0), name="bits")
    with pytest.raises(ValueError, match="derivative of fmod"):
        te.gradient(bits, a)
    k = te.reduce_axis((0, 3), "k")
    odd = te.comm_reducer(lambda x, y: x + y * y, lambda t: nestsmith.tir.const(0, t), "odd")
    with pytest.raises(ValueError, match="reduction of r is not known"):
        te.gradient(te.compute((2,), lambda i: odd(a[k], axis=k), name="r"), a)
    with pytest.raises(ValueError, match="made of statements"):
        te.gradient(te.extern((3,), [a], lambda i, o: nestsmith.tir.BufferStore(o[0], i[0][0], [0])), a)
