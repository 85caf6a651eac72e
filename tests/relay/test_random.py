"""Random numbers in networks are those of topi.random, whose generator is compared with Python's integers there."""

import numpy as np
import pytest

from nestsmith import relay


def run(*outs):
    mod = relay.Function([], relay.Tuple(list(outs)))
    return [v.numpy() for v in relay.create_executor("graph", target="llvm").evaluate(mod)()]


def test_draws():
    key = relay.random.threefry_key(7)
    assert key.data.dtype == "uint64" and key.data.shape == (10,)
    left, right = relay.random.threefry_split(key)
    after, u = relay.random.uniform(left, (400,), "float32", 2.0, 4.0)
    _, again = relay.random.uniform(after, (400,), "float32", 2.0, 4.0)
    _, n = relay.random.normal(right, (400,), "float32", 1.0, 0.5)
    _, c = relay.random.multinomial(right, relay.const(np.array([0.0, 3.0, 1.0], "float32")), 400)
    u, again, n, c = run(u, again, n, c)
    assert 2 <= u.min() < u.max() < 4 and abs(u.mean() - 3) < 0.1 and not np.array_equal(u, again)
    assert abs(n.mean() - 1) < 0.1 and abs(n.std() - 0.5) < 0.1
    assert set(c) == {1, 2} and abs((c == 1).mean() - 0.75) < 0.1


def test_what_is_no_generator_is_refused():
    with pytest.raises(Exception, match="a generator is uint64"):
        run(relay.random.uniform(relay.const(np.zeros(10, "float32")), (4,))[1])
