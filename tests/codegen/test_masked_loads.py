"""Neighbouring reads under conditions that depend on data. gcc 12 and 13 use the wrong mask where they vectorise the loop around them."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import te


@pytest.mark.parametrize("how", ("vectorize", "unroll"))
def test_lanes_under_conditions_of_their_own(how):
    cases, args, data = [], [], []
    for name, dtype, lanes in (("a", "float64", 2), ("b", "float64", 4), ("c", "float32", 3), ("d", "int64", 2)):
        p, v = te.placeholder((24 * lanes,), "int32", f"p{name}"), te.placeholder((24 * lanes,), dtype, f"v{name}")
        t = te.compute(p.shape, lambda i, p=p, v=v, d=dtype: te.if_then_else(p[i] == 3, v[i], te.const(1, d)), f"t{name}")
        u = te.compute((24,), lambda i, t=t, lanes=lanes: sum((t[i * lanes + k] for k in range(lanes)), te.const(0, t.dtype)), f"u{name}")
        cases.append((t, u, lanes))
        args += [p, v, u]
        data.append((np.arange(24 * lanes, dtype="int32") % 7, (np.arange(24 * lanes) + 2).astype(dtype)))
    s = te.create_schedule([u.op for _, u, _ in cases])
    for t, _, lanes in cases:
        _, inner = s[t].split(t.op.axis[0], lanes)
        getattr(s[t], how)(inner)
    out = [ns.nd.array(np.zeros(24, v.dtype)) for _, v in data]
    ns.build(s, args, "llvm")(*[a for (p, v), o in zip(data, out) for a in (ns.nd.array(p), ns.nd.array(v), o)])
    for (p, v), o, (_, _, lanes) in zip(data, out, cases):
        np.testing.assert_array_equal(o.numpy(), np.where(p == 3, v, 1).reshape(24, lanes).sum(1))
