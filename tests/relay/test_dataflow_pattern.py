"""Patterns of dataflow: what they match, rewriting until nothing changes, partitions that keep the function's value."""

import numpy as np
import pytest

from nestsmith import ir, relay
from nestsmith.relay.dataflow_pattern import (
    DFPatternCallback,
    FunctionPattern,
    dominates,
    has_dtype,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite,
    wildcard,
)

x, y, w = (relay.var(n, shape=(4, 4)) for n in "xyw")
rng = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (is_op("add")(is_var("x"), is_var("y")), [x + y, y + x], [x + x, x - y, relay.exp(x)]),
        (is_op("subtract")(is_var("x"), is_var("y")), [x - y], [y - x]),
        (wildcard()(None), [relay.exp(x), x + y], [x]),
        (is_op("exp").optional(lambda p: p) | is_op("log"), [relay.op.get("exp"), relay.op.get("log")], [relay.op.get("tan")]),
        (is_tuple([is_var("x"), wildcard()]), [relay.Tuple([x, y])], [relay.Tuple([y, x]), relay.Tuple([x])]),
        (is_tuple_get_item(is_tuple(None), 1), [relay.TupleGetItem(relay.Tuple([x, y]), 1)], [relay.TupleGetItem(relay.Tuple([x, y]), 0)]),
        (wildcard().has_shape((4, 4)), [x, x + y], [relay.sum(x)]),
        (has_dtype("int8", wildcard()), [relay.cast(x, "int8")], [x]),
        (wildcard().has_type(relay.TensorType((4, 4))), [x], [relay.cast(x, "int8")]),
        (is_op("nn.softmax")(wildcard()).has_attr({"axis": 1}), [relay.nn.softmax(x, 1)], [relay.nn.softmax(x, 0)]),
        (is_expr(relay.const(1.0)), [relay.const(1.0)], [relay.const(2.0), x]),
        (is_if(wildcard(), is_var("x"), is_var("y")), [relay.If(w, x, y)], [relay.If(w, y, x)]),
        (is_let(wildcard(), is_var("x"), wildcard()), [relay.Let(w, x, w)], [relay.Let(w, y, w)]),
        (FunctionPattern(None, is_op("exp")(wildcard())), [relay.Function([x], relay.exp(x))], [relay.Function([x], x)]),
        ((is_var("x") * is_var("y")) / is_var("w"), [x * y / w, x * (y / w), (x / w) * y], [x / y * w]),
    ],
)
def test_match(pattern, yes, no):
    assert all(pattern.match(e) for e in yes) and not any(pattern.match(e) for e in no)


def test_one_pattern_is_one_node():
    p = is_op("exp")(wildcard())
    a, b = relay.exp(x), relay.exp(x)
    assert (p + p).match(a + a) and not (p + p).match(a + b)
    inner, outer = wildcard(), is_op("add")
    assert outer(outer(inner, wildcard()), inner).match(x + (y + x))  # found by backtracking only


def test_dominators():
    unary = wildcard().has_attr({"TOpPattern": 0})(wildcard())
    p = dominates(is_op("nn.dense")(wildcard(), wildcard()), unary, is_op("add")(wildcard(), wildcard()))
    d = relay.nn.dense(x, w)
    assert p.match(relay.exp(relay.tanh(d)) + relay.log(d)) and p.match(d + d)
    assert not p.match(relay.exp(relay.nn.dense(x, w)) + relay.log(d)) and not p.match(relay.exp(x) + d)


class Simplify(DFPatternCallback):
    """x + 0 -> x"""

    def __init__(self, once=False):
        super().__init__(rewrite_once=once)
        self.x = wildcard()
        self.pattern = self.x + is_expr(relay.const(0.0))

    def callback(self, pre, post, node_map):
        return node_map[self.x][0]


def test_rewrite_until_nothing_changes():
    zero = relay.const(0.0)
    assert rewrite(Simplify(), (zero + (x + zero)) + zero) is x
    assert ir.structural_equal(Simplify().rewrite(relay.exp(x + zero) + zero), relay.exp(x))
    assert ir.structural_equal(rewrite([Simplify()], x + y), x + y)

    class Relu(DFPatternCallback):
        def __init__(self):
            super().__init__(rewrite_once=True, require_type=True)
            self.pattern = is_op("exp")(wildcard())

        def callback(self, pre, post, node_map):
            return relay.nn.relu(post)

    assert ir.structural_equal(rewrite(Relu(), relay.exp(x)), relay.nn.relu(relay.exp(x)))


def test_repetitions():
    again = wildcard()
    casts = is_op("cast")(again | is_op("exp")(wildcard()))
    again.redirect_to(casts)
    e = relay.cast(relay.cast(relay.cast(relay.exp(x), "float16"), "float32"), "float64")
    assert casts.match(e) and not casts.match(relay.cast(relay.tanh(x), "int8"))


def test_partition_keeps_the_value():
    p = is_op("tanh")(is_op("add")(is_op("nn.dense")(wildcard(), is_constant()), wildcard()))
    c = relay.const(rng.standard_normal((4, 4)).astype("float32"))
    body = relay.exp(relay.tanh(relay.nn.dense(relay.tanh(relay.nn.dense(x, c) + y), c) + x))
    made = p.partition(relay.Function([x, y], body), {"Composite": "layer"})
    found = []
    relay.analysis.post_order_visit(made, lambda e: found.append(e) if isinstance(e, relay.Function) else None)
    inner = [f for f in found if f.attrs.get("Composite") == "layer"]
    assert len(inner) == 2 and {f.attrs.PartitionedFromPattern for f in inner} == {"nn.dense_add_tanh_"}
    assert all(len(f.params) == 2 for f in inner)  # the weight is a constant inside
    a, b = (rng.standard_normal((4, 4)).astype("float32") for _ in range(2))
    run = relay.create_executor("debug").evaluate
    np.testing.assert_allclose(run(made)(a, b).numpy(), run(relay.Function([x, y], body))(a, b).numpy(), rtol=1e-6)
    assert ir.structural_equal(p.partition(body, check=lambda e: False), body)


def test_no_partition_whose_inside_is_read_elsewhere():
    p = is_op("exp")(is_op("tanh")(wildcard()))
    t = relay.tanh(x)
    assert not isinstance(p.partition(relay.exp(t) + t).args[0].op, relay.Function)
    assert isinstance(p.partition(relay.exp(t) + y).args[0].op, relay.Function)
