"""Passes that are classes."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import relay


@relay.transform.function_pass(opt_level=1)
class Times:
    def __init__(self, factor):
        self.factor = factor

    def transform_function(self, func, mod, ctx):
        return relay.Function(func.params, func.body * relay.const(self.factor))


@ns.transform.module_pass(opt_level=0, name="twice")
class Twice:
    def transform_module(self, mod, ctx):
        return Times(2.0)(mod)


def test_objects_are_passes():
    x = relay.var("x", shape=(3,))
    mod = ns.transform.Sequential([Times(factor=3.0), Twice()])(ns.IRModule.from_expr(relay.Function([x], x + relay.const(1.0))))
    with ns.transform.PassContext(opt_level=3):
        out = relay.create_executor("graph", mod).evaluate()(np.arange(3, dtype="float32"))
    np.testing.assert_array_equal(out.numpy(), [6, 12, 18])
    assert "twice" in repr(Twice()) and "Times" in repr(Times(1.0))
    with pytest.raises(TypeError, match="has no method transform_module"):
        ns.transform.module_pass(Times.__wrapped__, opt_level=0)
