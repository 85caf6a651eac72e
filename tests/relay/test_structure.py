"""Structural equality and hashes of networks, executors, walks as classes and analyses: against identity, NumPy and counts by hand."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import IRModule, ir, relay, te
from nestsmith.relay import analysis
from nestsmith.relay.op import registry
from nestsmith.relay.testing import run_infer_type, run_opt_pass

rng = np.random.default_rng(0)


def _net(name="x", shape=(2, 3), scale=2.0, shared=True):
    x = relay.var(name, shape=shape)
    y = relay.nn.relu(x * relay.const(scale))
    z = y if shared else relay.nn.relu(x * relay.const(scale))
    return relay.Function([x], relay.add(y, z))


def test_equal_structure_whatever_the_names():
    a, b = _net("x"), _net("y")
    assert ir.structural_equal(a, b) and ir.structural_hash(a) == ir.structural_hash(b)
    assert ir.structural_equal(IRModule.from_expr(a), IRModule.from_expr(b))
    for other in (_net(shape=(3, 2)), _net(scale=3.0), _net(shared=False), a.with_attr("k", 1), a.body):
        assert not ir.structural_equal(a, other) and ir.structural_hash(a) != ir.structural_hash(other)


def test_free_variables_are_compared_by_identity_unless_they_are_mapped():
    a, b = _net("x").body, _net("y").body
    assert ir.structural_equal(a, a) and not ir.structural_equal(a, b)
    assert ir.structural_equal(a, b, map_free_vars=True)
    assert not ir.structural_equal(a, _net(shape=(1, 3)).body, map_free_vars=True)
    with pytest.raises(ValueError, match=r"lhs at <root>.op.*\n.*exp|<root>.op"):
        ir.assert_structural_equal(relay.exp(relay.var("x", shape=())), relay.log(relay.var("x", shape=())), True)
    assert ir.get_first_structural_mismatch(_net(), _net(scale=1.0))[0] == "<root>.body.args[0].args[0].args[1].data"


def test_a_long_chain_is_compared_without_recursion():
    def chain(n):
        x = y = relay.var("x", shape=(2,))
        for _ in range(n):
            y = relay.tanh(y)
        return relay.Function([x], y)

    assert ir.structural_equal(chain(3000), chain(3000)) and not ir.structural_equal(chain(3000), chain(3001))


def test_named_dimensions():
    n, m = te.var("n"), te.var("m")
    T = relay.TensorType
    assert T((n, 3)) == T((n, 3)) != T((m, 3))
    assert T((n + 1 - 1, 4)) == T((n, 4)) and T((n * 4 // 2,)) == T((n * 2,))
    x = relay.var("x", T((n, 8, 6)))
    assert run_infer_type(relay.transpose(relay.nn.relu(x), (2, 0, 1))).checked_type == T((6, n, 8))
    assert run_infer_type(relay.concatenate([x, x], 1)).checked_type == T((n, 16, 6))


@pytest.mark.parametrize("kind", ["debug", "graph", "vm", "aot"])
def test_executors(kind):
    x = rng.standard_normal((2, 3)).astype("float32")
    f = _net()
    want = 2 * np.maximum(2 * x, 0)
    executor = relay.create_executor(kind)
    np.testing.assert_allclose(executor.evaluate(f)(x).numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(executor.evaluate(f)(x=x).numpy(), want, rtol=1e-6)
    assert executor.evaluate(relay.const(2) + relay.const(3)).numpy() == 5
    v = f.params[0]
    np.testing.assert_allclose(executor.evaluate(f.body, {v: x}).numpy(), want, rtol=1e-6)
    with pytest.raises(ValueError, match="'x'"):
        executor.evaluate(f)()
    with pytest.raises(ValueError, match="takes 1 arguments"):
        executor.evaluate(f)(x, x)
    with pytest.raises(ValueError, match="Tensor"):
        executor.evaluate(f)(x.T)


def test_what_is_decided_at_run_time_is_evaluated_node_by_node():
    """A sum 1 + ... + n by recursion, closures over values, sizes that are known when the function is called, references."""
    n, mod = relay.var("n", shape=(), dtype="int32"), IRModule()
    total = relay.GlobalVar("total")
    below = relay.add(n, relay.Call(total, [n - relay.const(1)]))
    mod[total] = relay.Function([n], relay.If(relay.equal(n, relay.const(0)), n, below), relay.scalar_type("int32"))
    x = relay.var("x", shape=(), dtype="int32")
    mod["main"] = relay.Function([x], relay.Call(total, [x]))
    for kind in ("debug", "vm"):
        assert relay.create_executor(kind, mod=mod).evaluate()(10).numpy() == 55
    d = relay.var("d", shape=(relay.Any(), 3))
    f = relay.Function([d], relay.sum(relay.exp(d), 0))
    for rows in (2, 5):
        a = rng.random((rows, 3), "float32")
        np.testing.assert_allclose(relay.create_executor("vm").evaluate(f)(a).numpy(), np.exp(a).sum(0), rtol=1e-5)
    r = relay.var("r")
    swap = relay.Let(r, relay.RefCreate(relay.const(1)), relay.Let(relay.var("_"), relay.RefWrite(r, relay.const(7)), relay.RefRead(r)))
    assert relay.create_executor("debug").evaluate(swap).numpy() == 7


def test_tuples_and_parameters_of_executors():
    x, w = relay.var("x", shape=(2, 4)), relay.var("w", shape=(3, 4))
    mod = IRModule.from_expr(relay.Function([x, w], relay.Tuple([relay.nn.dense(x, w), relay.Tuple([x])])))
    a, b = rng.random((2, 4), "float32"), rng.random((3, 4), "float32")
    y, (z,) = relay.create_executor("graph", mod=mod, params={"w": b}, device=ns.cpu(0), target="llvm").evaluate()(a)
    np.testing.assert_allclose(y.numpy(), a @ b.T, rtol=1e-5)
    np.testing.assert_array_equal(z.numpy(), a)


def test_walks_as_classes():
    class Calls(relay.ExprVisitor):
        found = 0

        def visit_call(self, call):
            super().visit_call(call)
            self.found += 1

    class Doubled(relay.ExprMutator):
        def visit_constant(self, const):
            return relay.const(const.data * 2)

    f, seen = _net(), Calls()
    seen.visit(f)
    assert seen.found == 3
    assert relay.ExprMutator().visit(f) is f
    assert ir.structural_equal(Doubled().visit(f), _net(scale=np.float32(4.0)))
    with pytest.raises(NotImplementedError, match="visit_function"):
        relay.ExprFunctor().visit(f)
    t = relay.FuncType([relay.TensorType((1, 2)), relay.TupleType([relay.RefType(relay.scalar_type())])], relay.scalar_type("int8"))
    assert ir.structural_equal(relay.TypeMutator().visit(t), t)


def test_analyses():
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(6, 4, 3, 3))
    y = relay.nn.conv2d(x, w, kernel_size=(3, 3), padding=(1, 1))
    z = relay.nn.dense(relay.nn.batch_flatten(y), relay.var("v", shape=(5, 384)))
    f = relay.Function(analysis.free_vars(z), z)
    assert [v.name_hint for v in analysis.bound_vars(f)] == [v.name_hint for v in analysis.all_vars(f)] == ["x", "w", "v"]
    assert analysis.get_total_mac_number(f) == 64 * 6 * 36 + 5 * 384
    assert analysis.list_op_freqs(IRModule.from_expr(f)) == {"nn.conv2d": 1, "nn.batch_flatten": 1, "nn.dense": 1}
    assert analysis.count_layers(f, ["nn.conv2d", "nn.dense"]) == 2
    assert analysis.all_dtypes(f) == {"float32"}
    assert analysis.check_constant(relay.const(1) + relay.const(2)) and not analysis.check_constant(y)
    names = []
    analysis.post_order_visit(z, lambda e: names.append(getattr(e, "op_name", getattr(e, "name_hint", ""))))
    assert names.index("x") < names.index("nn.conv2d") < names.index("nn.dense") and names.count("x") == 1
    a = rng.random((1, 4, 8, 8), "float32")
    first = analysis.extract_intermdeiate_expr(IRModule.from_expr(relay.Function([x], relay.exp(relay.nn.relu(x)))), 0)
    np.testing.assert_array_equal(relay.create_executor("debug", mod=first).evaluate()(a).numpy(), a)


def test_well_formed():
    x, one = relay.Var("x"), relay.const(1)
    let = relay.Let(x, one, x)
    assert analysis.well_formed(let) and not analysis.well_formed(relay.Let(x, one, let))
    assert not analysis.well_formed(relay.Tuple([let, relay.Let(x, one, x)]))
    assert not analysis.well_formed(relay.Tuple([let, x]))


def test_blocks_are_built_statement_by_statement():
    x = relay.var("x", shape=(), dtype="int32")
    sb = relay.ScopeBuilder()
    with sb.if_scope(relay.less(x, relay.const(0))):
        sb.ret(sb.let("y", relay.negative(x)))
    with sb.else_scope():
        sb.ret(x)
    f = relay.create_executor("debug").evaluate(relay.Function([x], sb.get()))
    assert f(-3).numpy() == 3 and f(4).numpy() == 4
    with pytest.raises(RuntimeError, match="no result"):
        relay.ScopeBuilder().get()


def test_operators_of_the_user(monkeypatch):
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))  # other tests look at all operators
    op = relay.op.register("test_structure.twice", "twice the argument")
    op.set_num_inputs(1)
    op.add_type_rel("Identity")
    relay.op.register_pattern(op.name, relay.op.OpPattern.ELEMWISE)
    relay.op.register_compute(op.name, lambda attrs, inputs, out_type: [te.compute(inputs[0].shape, lambda *i: inputs[0](*i) * 2)])
    x = relay.var("x", shape=(5,))
    f = relay.Function([x], relay.exp(relay.Call(op, [x])))
    a = rng.random(5, "float32")
    np.testing.assert_allclose(relay.create_executor("graph").evaluate(f)(a).numpy(), np.exp(2 * a), rtol=1e-5)
    assert op.get_attr("TOpPattern") == 0 and op.num_inputs == 1 and op.description == "twice the argument"
    ir.register_op_attr("exp", "test_structure", 3)
    with relay.testing.TempOpAttr("exp", "test_structure", 4):
        assert relay.op.get("exp").get_attr("test_structure") == 4
    assert relay.op.get("exp").get_attr("test_structure") == 3 and relay.op.get("log").get_attr("test_structure") is None
    assert run_opt_pass(f, relay.transform.InferType()).checked_type.ret_type == relay.TensorType((5,))


def test_json_of_networks():
    n = te.size_var("n")
    x, w = relay.var("x", relay.TensorType((n, 4))), relay.const(rng.random((3, 4), "float32"))
    f = relay.Function([x], relay.If(relay.const(True), relay.nn.dense(x, w), relay.nn.dense(x, w)), attrs={"Inline": 1, "names": ["a", "b"]})
    objects = [f, IRModule.from_expr(_net()), relay.FuncType([x.checked_type], relay.TupleType([relay.RefType(relay.scalar_type())])),
               {"list": [relay.const(np.int8([1, 2])), 3, "text", None]}, relay.Let(x, w, relay.RefRead(relay.RefCreate(x)))]  # fmt: skip
    for o in objects:
        again = ir.load_json(ir.save_json(o))
        assert ir.structural_equal(again, o, map_free_vars=True) and ir.structural_hash(again, True) == ir.structural_hash(o, True)
    shared = ir.load_json(ir.save_json(_net()))
    assert shared.body.args[0] is shared.body.args[1]
    span = ir.load_json(ir.save_json(relay.Span(relay.SourceName("s"), 1, 2, 3, 4)))
    assert span == relay.Span("s", 1, 2, 3, 4)
    deep = relay.var("d", shape=(2,))
    for _ in range(3000):
        deep = relay.tanh(deep)
    assert ir.structural_equal(ir.load_json(ir.save_json(deep)), deep, True)
    with pytest.raises(ValueError, match="json_str"):
        ir.load_json("[]")
    with pytest.raises(TypeError, match="object"):
        ir.save_json(object())


def test_tile_size_of_3d_winograd():
    from nestsmith.topi.cuda.conv3d_winograd import _infer_tile_size

    sizes = [_infer_tile_size(te.placeholder((1, 4, 3, h, 5)), None) for h in (8, 16, 7)]
    assert sizes == [4, 4, 2]


def test_walks_over_declarations_of_types():
    seen = []

    class Names(relay.TypeVisitor):
        def visit_type_var(self, tv):
            seen.append(tv.name_hint)

    data = relay.TypeData(relay.GlobalTypeVar("List"), [relay.TypeVar("a")], [])
    Names().visit(relay.TupleType([data, relay.TypeVar("b")]))
    assert seen == ["a", "b"]
    ir.assert_structural_equal(relay.TypeMutator().visit(data), data, map_free_vars=True)
    assert not ir.structural_equal(data, relay.TypeData(relay.GlobalTypeVar("Tree"), [relay.TypeVar("a")], []), map_free_vars=True)
