"""Passes of users over the loops that ``lower`` gives."""

import numpy as np

import nestsmith as ns
from nestsmith import relay, te, tir

RNG = np.random.default_rng(0)


@tir.transform.prim_func_pass(opt_level=0)
def doubled(f, mod, ctx):
    store = lambda s: tir.BufferStore(s.buffer, s.value * 2.0, s.indices)  # noqa: E731
    return f.with_body(tir.stmt_functor.ir_transform(f.body, None, store, ["tir.BufferStore"]))


@tir.transform.prim_func_pass(opt_level=0)
class Plus:
    def __init__(self, value):
        self.value = value

    def transform_function(self, f, mod, ctx):
        store = lambda s: tir.BufferStore(s.buffer, s.value + self.value, s.indices)  # noqa: E731
        return f.with_body(tir.stmt_functor.ir_transform(f.body, None, store, ["tir.BufferStore"]))


def test_passes_of_lowering():
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] + 1, name="y")
    s = te.create_schedule(y.op)
    a, b = ns.nd.array(RNG.random(8, "float32")), ns.nd.empty((8,))
    with ns.transform.PassContext(config={"tir.add_lower_pass": [(2, doubled), (1, Plus(3.0))]}):
        low = ns.lower(s, [x, y])
        f = ns.build(s, [x, y], "llvm")
    assert "3f" in str(low) and "*2f" in str(low) and "3f" not in str(ns.lower(s, [x, y]))
    for module in (f, ns.build(low, target="llvm")):
        module(a, b)
        np.testing.assert_allclose(b.numpy(), (a.numpy() + 4) * 2, 1e-6)


def test_passes_over_modules():
    x, v = te.placeholder((8,), name="x"), relay.var("v", shape=(2,))
    y = te.compute((8,), lambda i: x[i] + 1, name="y")
    loops = ns.lower(te.create_schedule(y.op), [x, y])["main"]
    mod = ns.IRModule({"main": relay.Function([v], v), "loops": loops})
    same = relay.transform.function_pass(lambda f, mod, ctx: relay.Function(f.params, relay.exp(f.body)), opt_level=0)
    new = ns.transform.Sequential([doubled, same])(mod)
    assert "*2f" in str(new["loops"]) and "exp" in str(new["main"]) and "*2f" not in str(mod["loops"])
    assert "*2f" in str(doubled(loops))
