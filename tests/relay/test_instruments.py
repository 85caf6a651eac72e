"""Instruments of passes, kinds of passes, and passes that keep the value of a function in another form."""

import numpy as np
import pytest

from nestsmith import IRModule, ir, relay, transform
from nestsmith.instrument import DumpIR, PassInstrument, PassTimingInstrument, pass_instrument
from nestsmith.relay import transform as T

rng = np.random.default_rng(0)
x = relay.var("x", shape=(3, 4))


def net():
    y = relay.exp(x)
    return relay.Function([x], relay.add(y, relay.If(relay.less(relay.sum(x), relay.const(0.0)), relay.tanh(y), relay.negative(y))))


def value(func, a):
    return relay.create_executor("debug").evaluate(func)(a).numpy()


def test_order_of_events():
    events = []

    @pass_instrument
    class Watch:
        def __init__(self, name, skip=""):
            self.name, self.skip = name, skip

        def enter_pass_ctx(self):
            events.append(f"{self.name} enters")

        def exit_pass_ctx(self):
            events.append(f"{self.name} leaves")

        def should_run(self, mod, info):
            return info.name != self.skip

        def run_before_pass(self, mod, info):
            events.append(f"{self.name} before {info.name}")

        def run_after_pass(self, mod, info):
            events.append(f"{self.name} after {info.name}")

    mod = IRModule.from_expr(net())
    with transform.PassContext(instruments=[Watch("a"), Watch("b", "FoldConstant")]):
        T.FoldConstant()(T.InferType()(mod))
    assert events == [f"{name} {what}" for what in ("enters", "before InferType", "after InferType", "leaves") for name in "ab"]
    assert isinstance(Watch("a"), PassInstrument)


def test_an_instrument_that_fails():
    events = []

    class Fine(PassInstrument):
        def exit_pass_ctx(self):
            events.append("leaves")

    class Broken(PassInstrument):
        def enter_pass_ctx(self):
            raise RuntimeError("no")

    context = transform.PassContext(instruments=[Fine(), Broken(), Fine()])
    with pytest.raises(RuntimeError, match="no"):
        with context:
            pass
    assert events == ["leaves"] and context.instruments == [] and transform.PassContext.current() is not context


def test_timing_and_dumps(tmp_path):
    timing = PassTimingInstrument()
    with transform.PassContext(opt_level=3, instruments=[timing, DumpIR(tmp_path, refresh=True)]):
        transform.Sequential([T.InferType(), T.FoldConstant()])(IRModule.from_expr(net()))
        lines = timing.render().splitlines()
    assert [line.split(":")[0] for line in lines] == ["sequential", "  InferType", "  FoldConstant"] and timing.render() == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000_InferType.ir", "001_FoldConstant.ir", "002_sequential.ir"]
    assert "@main" in (tmp_path / "000_InferType.ir").read_text()


def test_kinds_of_passes(capsys):
    @transform.module_pass(opt_level=3)
    def nothing(mod, ctx):
        return mod

    assert isinstance(nothing, transform.ModulePass) and isinstance(T.function_pass(lambda f, m, c: f, 1, "f"), transform.FunctionPass)
    info = transform.PassInfo(2, "name", ["InferType"])
    assert (info.opt_level, info.name, info.required) == (2, "name", ["InferType"])
    transform.PrintIR("here")(IRModule.from_expr(net()))
    assert "PrintIR(here)" in capsys.readouterr().err
    assert transform.PassContext.list_configs()["relay.backend.use_auto_scheduler"]["type"] == "IntImm"


@pytest.mark.parametrize("form", [T.ToANormalForm, T.ToGraphNormalForm, lambda: transform.Sequential([T.ToANormalForm(), T.ToGraphNormalForm()])])
def test_normal_forms_keep_the_value(form):
    a = rng.standard_normal((3, 4)).astype("float32")
    made = form()(IRModule.from_expr(net()))["main"]
    for b in (a, np.abs(a)):
        np.testing.assert_allclose(value(made, b), value(net(), b), rtol=1e-6)


def test_a_normal_form_names_every_value():
    made = T.ToANormalForm()(IRModule.from_expr(relay.Function([x], relay.exp(relay.tanh(x)) + x)))["main"]
    lines = [line.strip() for line in made.astext().splitlines()][2:-1]
    assert sum(line.startswith("let ") for line in lines) == 3
    assert relay.analysis.well_formed(made)


def test_legalize_and_fast_math():
    f = relay.Function([x], relay.exp(relay.nn.relu(x)))
    with relay.testing.TempOpAttr("nn.relu", "FTVMLegalize", lambda attrs, inputs, types: relay.maximum(inputs[0], relay.const(0.0))):
        made = T.Legalize()(IRModule.from_expr(f))["main"]
    assert ir.structural_equal(made, relay.Function([x], relay.exp(relay.maximum(x, relay.const(0.0)))))
    assert ir.structural_equal(T.FastMath()(IRModule.from_expr(f))["main"], relay.Function([x], relay.fast_exp(relay.nn.relu(x))))
    with transform.PassContext(opt_level=3, required_pass=["FastMath"]):
        assert "fast_exp" in relay.optimize(IRModule.from_expr(f), "llvm")[0].astext()


def test_inline_of_marked_functions():
    a, b = relay.var("a", shape=(2,)), relay.var("b", shape=(2,))
    mod = IRModule()
    twice, other, self_call = (relay.GlobalVar(n) for n in ("twice", "other", "forever"))
    mod[twice] = relay.Function([a], a + a, attrs={"Inline": 1})
    mod[other] = relay.Function([b], relay.exp(b))
    mod[self_call] = relay.Function([b], self_call(b), relay.TensorType((2,)), attrs={"Inline": 1})
    v = relay.var("v", shape=(2,))
    mod["main"] = relay.Function([v], twice(other(v)))
    out = T.Inline()(mod)
    e = other(v)
    assert [gv.name_hint for gv in out.functions] == ["other", "forever", "main"] and ir.structural_equal(out["main"], relay.Function([v], e + e))


def test_equal_calls_that_are_skipped():
    f = relay.Function([x], relay.add(relay.exp(x), relay.exp(x)))
    one, two = T.EliminateCommonSubexpr(), T.EliminateCommonSubexpr(lambda e: getattr(e, "op_name", "") == "exp")
    y = relay.exp(x)
    assert ir.structural_equal(one(IRModule.from_expr(f))["main"], relay.Function([x], y + y))
    assert ir.structural_equal(two(IRModule.from_expr(f))["main"], f)


def test_forms_of_users_in_alter_op_layout():
    f = relay.Function([x], relay.nn.relu(relay.exp(x)))
    with relay.testing.TempOpAttr("exp", "FTVMAlterOpLayout", lambda attrs, inputs, types, out: relay.exp(inputs[0] * relay.const(2.0))):
        made = T.AlterOpLayout()(IRModule.from_expr(f))["main"]
    assert ir.structural_equal(made, relay.Function([x], relay.nn.relu(relay.exp(x * relay.const(2.0)))))
    with relay.testing.TempOpAttr("exp", "FTVMAlterOpLayout", lambda attrs, inputs, types, out: None):
        assert ir.structural_equal(T.AlterOpLayout()(IRModule.from_expr(f))["main"], f)
    with relay.testing.TempOpAttr("exp", "FTVMAlterOpLayout", lambda attrs, inputs, types, out: relay.transpose(inputs[0])):
        with pytest.raises(ValueError, match="layout_transform"):
            T.AlterOpLayout()(IRModule.from_expr(f))
