"""Networks as text: what is printed is read back as the same structure; text as TVM prints it; errors with their place."""

import numpy as np
import pytest

from nestsmith import IRModule, ir, relay
from nestsmith.error import DiagnosticError

rng = np.random.default_rng(0)


@pytest.mark.parametrize("name", ["mlp", "dqn", "dcgan", "squeezenet", "mobilenet", "resnet", "densenet", "lstm"])
def test_networks_survive(name):
    mod, _ = getattr(relay.testing, name).get_workload(*{"lstm": (2, 4), "mlp": (1,), "dqn": (1,), "dcgan": (1,)}.get(name, ()))
    text = mod.astext()
    again = relay.parse(text)
    ir.assert_structural_equal(again, mod)
    assert again.astext() == text


def _samples():
    x, y, c = relay.var("x", shape=(1, 4, 6, 6)), relay.var("y"), relay.var("c", shape=(), dtype="bool")
    array = relay.const(rng.standard_normal((2, 3)).astype("float32"))
    r, f = relay.var("r"), relay.Function([x], relay.nn.relu(x), attrs={"Primitive": 1, "name": "a b"})
    yield relay.nn.conv2d(x, y, channels=8, kernel_size=(3, 3), padding=(1, 2), groups=2)
    yield relay.concatenate([x, relay.exp(x)], 1)
    yield relay.split(x, 2, 1)[1]
    yield relay.strided_slice(x, [0, 1], [1, 3], axes=[0, 1])
    yield relay.clip(relay.cast(x, "float64"), -np.inf, 1e-9)
    yield relay.nn.batch_norm(x, *[relay.var(n) for n in "abde"], epsilon=1e-3)[0]
    yield relay.mean(x, (1, 2), True) + relay.nn.softmax(x, 1) * relay.const(0.1)
    yield relay.add(array, relay.add(array, relay.const(np.float16([1, 2]).astype("float32")[:1])))
    yield relay.If(c, relay.Let(r, relay.exp(x), r + r), x)
    yield relay.Let(r, relay.RefCreate(x), relay.Let(relay.var("_"), relay.RefWrite(r, x), relay.RefRead(r)))
    yield relay.Call(f, [relay.exp(y)])
    numbers = (3, "int64"), (2.5, "float16"), (True, "bool"), (7, "int8"), (-1, "int32"), (1 / 3, "float32")
    yield relay.Tuple([relay.const(v, d) for v, d in numbers])
    yield relay.topk(x, 2, ret_type="both").astuple()
    yield relay.image.resize2d(x, (12, 12), layout="NCHW")


@pytest.mark.parametrize("k", range(14))
def test_expressions_survive(k):
    e = list(_samples())[k]
    again = relay.parse_expr(e.astext())
    ir.assert_structural_equal(again, e, map_free_vars=True)
    assert again.astext() == e.astext()


def test_what_is_printed():
    x, y = relay.var("x", shape=(2, 3)), relay.var("1")
    assert relay.Function([x, y], relay.nn.softmax(x + y)).astext() == (
        '#[version = "0.0.5"]\nfn (%x: Tensor[(2, 3), float32], %v1) {\n  %0 = add(%x, %v1);\n  nn.softmax(%0)\n}\n'.rstrip("\n")
    )
    typed = relay.transform.InferType()(IRModule.from_expr(relay.exp(x) * relay.const(2.0)))
    assert "multiply(%0, 2f /* ty=float32 */) /* ty=Tensor[(2, 3), float32] */" in str(typed)
    assert "/* here */" in typed.astext(annotate=lambda e: "here" if isinstance(e, relay.Call) else "")
    assert "metadata" not in str(relay.const([1, 2])) and "metadata" in relay.const([1, 2]).astext()


TEXT = """
#[version = "0.0.5"]
def @twice(%x: Tensor[(4), float32] /* ty=Tensor[(4), float32] */) -> Tensor[(4), float32] {
  /* a comment /* in a comment */ */
  %x + %x   // by an operator
}

def @main(%x: Tensor[(4), float32], %n: int32) {
  %0 = @twice(%x) /* ty=Tensor[(4), float32] span=a:1:2 */;
  %1 = (%0, nn.bias_add(%x, meta[relay.Constant][0], axis=0));
  let %f = fn (%a: Tensor[(4), float32], Inline=1) { negative(%a) * 2f - -1.5f };
  if (%n == 3 * (1 + 1)) { %f(%1.0) } else { %1.1 }
}
"""


def test_text_of_users():
    bias = np.arange(4, dtype="float32")
    mod = relay.parse(TEXT, init_meta_table={"relay.Constant": [relay.const(bias)]})
    x = rng.random(4, "float32")
    run = relay.create_executor("debug", mod=mod).evaluate()
    np.testing.assert_allclose(run(x, 6).numpy(), -2 * x * 2 + 1.5, rtol=1e-6)
    np.testing.assert_allclose(run(x, 5).numpy(), x + bias, rtol=1e-6)
    ir.assert_structural_equal(relay.fromtext(mod.astext()), mod)
    more = relay.parse("def @main(%x: Tensor[(4), float32]) { @twice(%x) }", init_module=IRModule({"twice": mod["twice"]}))
    np.testing.assert_array_equal(relay.create_executor("vm", mod=more).evaluate()(x).numpy(), x + x)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("add(%x, %y)", "from_string:1:5: %x is not defined"),
        ("add(1f,\n 2f", "expected"),
        ("let @x = 1; ()", "expected a variable"),
        ("meta[relay.Constant][2]", "no relay.Constant number 2"),
        ("nn.conv2dd(1f)", "nn.conv2d"),
        ("32768i16", "too large for int16"),
        ("1e39f", "too large for float32"),
        ("fn (%x: Tensor[(2), complex64]) { %x }", "complex64"),
        ("/* open", "no end"),
        ("if (True) { let %x = 1; %x } else { %x }", "%x is not defined"),
        ("$", "begins nothing"),
        ('#[version = "9.0"] ()', "version 9.0"),
        ("type List[A] { Nil }", "algebraic"),
    ],
)
def test_errors_name_the_place(text, words):
    with pytest.raises(DiagnosticError) as e:
        relay.parse_expr(text)
    assert words in str(e.value)


def test_spans():
    x = relay.var("x", shape=(2,))
    mod = relay.transform.AnnotateSpans()(IRModule.from_expr(relay.exp(relay.tanh(x))))
    assert (mod["main"].body.span.line, mod["main"].body.args[0].span.line) == (4, 3)
    call = relay.Call(relay.op.get("exp"), [x], {}, None, relay.Span(relay.SourceName("layer"), 1, 1, 2, 3))
    assert "span=layer:1:2" in call.astext()
