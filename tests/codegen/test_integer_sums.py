"""Sums of signed integers in several accumulators side by side. gcc 12 lost half of the terms where the accumulators were signed."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te

N = 16
TERMS = {
    "compared": lambda a, b: te.if_then_else(a == b, 1, 0).astype("int32"),
    "plain": lambda a, b: a,
    "product": lambda a, b: a * b,
}


@pytest.mark.parametrize("lanes", [2, 4])
def test_sums_in_lanes(lanes):
    a, b = te.placeholder((N,), "int32", "a"), te.placeholder((4,), "int32", "b")
    outs, k = [], [te.reduce_axis((0, N), f"k{i}") for i in range(len(TERMS))]
    for axis, (name, term) in zip(k, TERMS.items(), strict=True):
        outs.append(te.compute((4,), lambda i, axis=axis, term=term: te.sum(term(a[axis], b[i]), axis), name))
    s = te.create_schedule([t.op for t in outs])
    for t, axis in zip(outs, k, strict=True):
        part = s.rfactor(t, s[t].split(axis, lanes)[1])
        s[part].compute_at(s[t], s[t].op.axis[0])
        s[part].reorder(s[part].op.reduce_axis[0], s[part].op.axis[0])
        s[part].unroll(s[part].op.axis[0])
    f = ns.build(s, [a, b, *outs], "llvm")
    x, y = np.arange(N, dtype="int32") * 7 // 3 % 4, np.arange(4, dtype="int32")
    got = [ns.nd.array(np.zeros(4, "int32")) for _ in TERMS]
    f(ns.nd.array(x), ns.nd.array(y), *got)
    want = [(x[None] == y[:, None]).sum(1), np.full(4, x.sum()), (x[None] * y[:, None]).sum(1)]
    for name, g, w in zip(TERMS, got, want, strict=True):
        np.testing.assert_array_equal(g.numpy(), w, name)


def test_first_choices():
    """What the search would try first, as nestsmith.compile takes it: a histogram by comparisons."""
    torch = pytest.importorskip("torch")

    class Count(torch.nn.Module):
        def forward(self, x):
            return torch.histc(x, 4, 0, 3)

    x = torch.arange(16.0) * 7 // 3 % 4
    made = ns.compile(Count().eval(), (x,), target="llvm", trials=0, verbose=0)
    assert torch.equal(made(x), torch.histc(x, 4, 0, 3))
