"""Models of strangers: what the standard forbids is one ValueError that names the node, what would take the machine is refused before
memory or time is spent, and no text of a model reaches a terminal as it is."""

import os
import signal
import threading
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nestsmith
from nestsmith import relay
from nestsmith.error import OpNotImplemented

X = (4, 4)
node = helper.make_node


def info(name, shape=None, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def whole(name, *values):
    return numpy_helper.from_array(np.array(values, "int64"), name)


def real(name, value):
    return numpy_helper.from_array(np.asarray(value, "float32"), name)


def model(nodes, weights=(), inputs=None, outputs=("y",), functions=(), opset=18):
    inputs = [info("x", X)] if inputs is None else inputs
    graph = helper.make_graph(list(nodes), "g", inputs, [info(o) for o in outputs], list(weights))
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("d", 1)]
    return helper.make_model(graph, opset_imports=domains, functions=list(functions), ir_version=9)


def then(*nodes, weights=(), kind="float32"):
    """A model that adds what the nodes make of constants, summed up, to its input."""
    last = nodes[-1].output[0]
    tail = [node("Cast", [last], ["c_"], to=TensorProto.FLOAT), node("ReduceSum", ["c_"], ["s_"], keepdims=0), node("Add", ["x", "s_"], ["y"])]
    return model([*nodes, *tail], weights)


def function(name, nodes, inputs=("a",), outputs=("b",)):
    return helper.make_function("d", name, list(inputs), list(outputs), nodes, [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)])


def laughs(depth):
    """Functions of which each calls the next one twice."""
    twice = [[node(f"f{k + 1}", ["a"], ["t"], domain="d"), node(f"f{k + 1}", ["t"], ["b"], domain="d")] for k in range(depth)]
    parts = [function(f"f{k}", nodes) for k, nodes in enumerate(twice)] + [function(f"f{depth}", [node("Neg", ["a"], ["b"])])]
    return model([node("f0", ["x"], ["y"], domain="d")], functions=parts)


def chain(op, count, *more):
    names = ["c", *(f"t{k}" for k in range(count))]
    return [node(op, [names[k], *more], [names[k + 1]]) for k in range(count)]


def branch(nodes, output="o"):
    return helper.make_graph(nodes, "b", [], [info(output)])


def choice(inputs=("c",), condition=True, **branches):
    return model([node("If", list(inputs), ["y"], name="choice", **branches)], [numpy_helper.from_array(np.array(condition), "c")])


def weight(dims, kind=TensorProto.FLOAT, **values):
    t = TensorProto(name="c", data_type=kind, dims=dims, **values)
    return model([node("Add", ["x", "c"], ["y"])], [t])


def conv(inputs=("x", "w"), **attributes):
    return model([node("Conv", list(inputs), ["y"], name="conv", **attributes)], [real("w", np.ones((1, 1, 3, 3)))], [info("x", (1, 1, 8, 8))])


def sparse():
    m = model([node("Add", ["x", "s"], ["y"])])
    m.graph.sparse_initializer.add().values.name = "s"
    return m


relu = node("Relu", ["x"], ["o"])
good = branch([relu])
one = lambda *a, **k: model([node(*a, **k)])  # noqa: E731

# what: (model, words of the message)
DAMAGED = {
    "a branch is missing": (choice(then_branch=good), "choice.*lacks its attribute 'else_branch'"),
    "no condition": (choice((), then_branch=good, else_branch=good), "choice.*0 inputs"),
    "a branch that is a number": (choice(then_branch=3, else_branch=4), "choice.*wrong type"),
    "a branch without its output": (choice(then_branch=branch([relu], "p"), else_branch=good), "then_branch.*'p' is an output"),
    "a condition of two": (choice(condition=[True, False], then_branch=good, else_branch=good), "choice.*2 elements"),
    "a branch that reads nothing": (choice(then_branch=branch([node("Relu", ["z"], ["o"])]), else_branch=good), "reads 'z', which nothing"),
    "two makers": (model([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"], name="n")]), "Neg 'n' makes 'y'"),
    "an input that is made": (model([node("Relu", ["x"], ["x"]), node("Neg", ["x"], ["y"])]), "makes 'x'"),
    "one input twice": (model([node("Relu", ["x"], ["y"])], inputs=[info("x", X), info("x", (2,))]), "'x' is there twice"),
    "one weight twice": (model([node("Add", ["x", "c"], ["y"])], [real("c", 1), real("c", 2)]), "'c' is there twice"),
    "a cycle": (model([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["b"], ["y"])]), "Add 'a' reads 'b'.*order"),
    "no output": (model([node("Relu", ["x"], ["y"])], outputs=()), "no outputs"),
    "an output that nothing makes": (model([node("Relu", ["x"], ["z"])]), "'y' is an output"),
    "five inputs": (one("Relu", ["x"] * 5, ["y"]), "Relu 'y' has 5 inputs"),
    "no inputs": (one("Relu", [], ["y"]), "Relu 'y' has 0 inputs"),
    "an input without name": (one("Relu", [""], ["y"]), "Relu 'y' lacks input 0"),
    "five outputs": (one("Relu", ["x"], ["y", "a", "b", "c", "d"]), "Relu 'y' has 5 outputs"),
    "an attribute of no use": (one("Relu", ["x"], ["y"], size=3), "Relu 'y' has the attribute 'size'"),
    "an attribute of another type": (one("Softmax", ["x"], ["y"], axis="zero"), "'axis' of Softmax 'y' has the wrong type"),
    "a word that means nothing": (conv(auto_pad='SAME_UPPER";system(1)'), "'auto_pad' of Conv 'conv' is"),
    "bytes that are no text": (conv(auto_pad=b"\xff\xfe"), "'auto_pad' of Conv 'conv' is"),
    "a switch that is neither on nor off": (model([node("Mod", ["x", "x"], ["y"], fmod=2)]), "'fmod' of Mod 'y' is 2"),
    "a parameter without a value": (one("Elu", ["x"], ["y"], alpha=float("nan")), "Elu 'y': Elu has the parameters nan"),
    "an axis before the first": (one("Flatten", ["x"], ["y"], axis=-9), "Flatten 'y': axis is -9"),
    "indices of more parts than there are axes": (
        model([node("GatherND", ["x", "i"], ["y"])], inputs=[info("x", X), info("i", (2, 2**40), TensorProto.INT64)]), "GatherND 'y': indices of"
    ),
    "scales for what has a scale": (one("DequantizeLinear", ["x", "x"], ["y"]), "DequantizeLinear 'y': its input holds float32"),
    "a definition that does not fit": (
        model([node("Attention", ["x", "k", "k"], ["y"], q_num_heads=4, kv_num_heads=1, left_window_size=2)],
              inputs=[info("x", (2, 4, 32, 2)), info("k", (2, 6, 8))], opset=25), "Attention 'y': nothing makes its output"
    ),
    "a stride of 0": (conv(strides=[0, 0]), "'strides' of Conv 'conv' is 0"),
    "one stride for two axes": (conv(strides=[2]), "Conv 'conv': strides has 1"),
    "three pads for two axes": (conv(pads=[1, 1, 1]), "Conv 'conv': pads has 3"),
    "another window than the weights'": (conv(kernel_shape=[5, 5]), "Conv 'conv': kernel_shape is"),
    "negative groups": (conv(group=-1), "'group' of Conv 'conv' is -1"),
    "an axis that is not there": (one("Softmax", ["x"], ["y"], axis=2**40), "Softmax 'y': axis is"),
    "an axis of a running sum": (model([node("CumSum", ["x", "a"], ["y"])], [whole("a", 2**40)]), "CumSum 'y': axis"),
    "a negative count": (model([node("TopK", ["x", "k"], ["y", "z"])], [whole("k", -4)]), "TopK 'y': k is -4"),
    "parts that are too small": (model([node("Split", ["x", "k"], ["y", "z"])], [whole("k", 1, 2)]), "Split 'y': parts"),
    "a range without end": (then(node("Range", ["a", "b", "c"], ["r"]), weights=[whole("a", 0), whole("b", 9), whole("c", 0)]), "Range"),
    "negative dimensions": (weight([-1], raw_data=b"abcd"), r"'c' has the shape \(-1,\)"),
    "more axes than arrays have": (weight([1] * 65, raw_data=b"abcd"), "'c' has 65 axes"),
    "more values than there are": (weight([1 << 29], raw_data=b"abcd"), "'c'.*cannot be read"),
    "no such element type": (weight([1], 99, raw_data=b"abcd"), "'c': there is no element type 99"),
    "sparse weights": (sparse(), "sparse"),
    "a file beside a model without a path": (
        weight([1], data_location=TensorProto.EXTERNAL, external_data=[onnx.StringStringEntryProto(key="location", value="secret.bin")]),
        "'c' are in a file",
    ),
    "a function that calls itself": (
        model([node("f", ["x"], ["y"], domain="d")], functions=[function("f", [node("f", ["a"], ["b"], domain="d")])]),
        "'f' of the model calls itself",
    ),
    "a function with too many inputs": (
        model([node("f", ["x", "x"], ["y"], domain="d")], functions=[function("f", [node("Neg", ["a"], ["b"])])]),
        "f 'y' has 2 inputs",
    ),
}  # fmt: skip
SHAPE = lambda *dims: [whole("s", *dims)]  # noqa: E731
BOMBS = {
    "constants": (then(node("ConstantOfShape", ["s"], ["e"]), weights=SHAPE(1 << 15, 1 << 16)), "ConstantOfShape 'e'.*'bytes'"),
    "broadcasting": (then(node("Expand", ["c", "s"], ["e"]), weights=[real("c", [1]), *SHAPE(1 << 16, 1 << 16)]), "Expand 'e'.*'bytes'"),
    "ranges": (
        then(node("Range", ["a", "b", "c"], ["r"]), weights=[whole("a", 0), whole("b", 10**12), whole("c", 1)]), "Range 'r'.*'bytes'"
    ),
    "tiles of tiles": (then(*chain("Tile", 40, "r"), weights=[real("c", [1, 2]), whole("r", 2)]), "Tile 't.*'bytes'"),
    "units": (then(node("ConstantOfShape", ["s"], ["e"]), node("EyeLike", ["e"], ["i"]), weights=SHAPE(1 << 14, 1 << 13)), "'bytes'"),
    "states of a recurrent layer": (
        model(
            [node("LSTM", ["x", "w", "w"], ["y"], hidden_size=2**40)], [real("w", np.ones((1, 16, 4)))], [info("x", (5, 1, 4))]
        ),
        "LSTM 'y'.*'bytes'",
    ),
    "parts": (one("Split", ["x"], ["y"], num_outputs=2**31), "Split 'y': 21474836.*'nodes'"),
    "functions of functions": (laughs(30), "3221225471 nodes.*'nodes'"),
    "axes": (model([node("Relu", ["x"], ["y"])], inputs=[info("x", (1,) * 100000)]), "input 'x' has 100000 axes"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_models(what):
    m, words = DAMAGED[what]
    with pytest.raises(ValueError, match=f"(?s){words}") as e:
        relay.frontend.from_onnx(m)
    assert not isinstance(e.value, UnicodeError)


@pytest.mark.parametrize("what", BOMBS)
def test_models_that_stand_for_more_than_a_machine_has(what):
    m, words = BOMBS[what]
    begin = time.process_time()
    with pytest.raises(ValueError, match=f"(?s){words}"):
        relay.frontend.from_onnx(m)
    assert time.process_time() - begin < 5


def test_limits_are_given_by_keyword_and_environment(monkeypatch):
    m = then(node("ConstantOfShape", ["s"], ["e"]), weights=SHAPE(1 << 16))
    relay.frontend.from_onnx(m)
    with pytest.raises(ValueError, match="limit 'bytes'.*NESTSMITH_IMPORT_BYTES"):
        relay.frontend.from_onnx(m, limits={"bytes": 1e5})
    with pytest.raises(ValueError, match="limit 'nodes'"):
        nestsmith.compile(m, target="llvm", limits={"nodes": 2}, verbose=0)
    with pytest.raises(ValueError, match="limit 'seconds'"):
        relay.frontend.from_onnx(m, limits={"seconds": 1e-9})
    monkeypatch.setenv("NESTSMITH_IMPORT_BYTES", "100000")
    with pytest.raises(ValueError, match="limit 'bytes'"):
        relay.frontend.from_onnx(m)
    relay.frontend.from_onnx(m, limits={"bytes": 1e6})
    monkeypatch.setenv("NESTSMITH_IMPORT_BYTES", "much")
    with pytest.raises(ValueError, match="NESTSMITH_IMPORT_BYTES is 'much'"):
        relay.frontend.from_onnx(m)
    with pytest.raises(ValueError, match="limits has 'time'"):
        relay.frontend.from_onnx(m, limits={"time": 3})


def test_values_that_are_gone_do_not_count():
    """A chain of large values needs two of them at a time."""
    m = then(*chain("Neg", 20), weights=[real("c", np.ones(1 << 16))])
    relay.frontend.from_onnx(m, limits={"bytes": 1 << 18})


def test_weights_may_be_larger_than_the_limit():
    m = model([node("Gemm", ["x", "w"], ["y"], transB=0)], [real("w", np.ones((4, 1 << 14)))])
    relay.frontend.from_onnx(m, limits={"bytes": 1000})


def test_the_limit_holds_for_pytorch():
    torch = pytest.importorskip("torch")

    class Bomb(torch.nn.Module):
        def forward(self, x):
            return x + torch.ones(1 << 15, 1 << 16).sum()

    with torch.device("meta"), pytest.raises(ValueError, match="limit 'bytes'"):
        program = torch.export.export(Bomb(), (torch.ones(2),))
        relay.frontend.from_pytorch(program, example_inputs=(torch.ones(2),))


def test_an_import_can_be_interrupted():
    many = [node("Shape", ["x"], ["t0"]), *(node("Add", [f"t{k}", "t0"], [f"t{k + 1}"]) for k in range(60000))]
    m = model([*many, node("Cast", ["t60000"], ["f"], to=1), node("ReduceSum", ["f"], ["s"], keepdims=0), node("Add", ["x", "s"], ["y"])])
    begin = []
    timer = threading.Timer(0.5, lambda: (begin.append(time.monotonic()), os.kill(os.getpid(), signal.SIGINT)))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        relay.frontend.from_onnx(m)
    assert time.monotonic() - begin[0] < 5  # a busy machine


def test_code_that_knows_no_budget_is_given_up_in_time():
    from nestsmith.relay import budget

    with budget.importing({"seconds": 0.2}), pytest.raises(ValueError, match="limit 'seconds'"):
        budget.computed_in_time(lambda: time.sleep(3))
    with budget.importing():
        assert budget.computed_in_time(lambda: 7) == 7
        with pytest.raises(KeyError):
            budget.computed_in_time(lambda: {}["x"])


def test_large_values_are_left_to_the_program():
    """Passes do not compute what would take memory or minutes: the program does."""
    from nestsmith.relay.transform.fold_constant import fold

    c = relay.const(np.ones((1, 1), "float32"))
    big = relay.broadcast_to(c, (1 << 14, 1 << 14))
    nestsmith.relay.transform.InferType()(nestsmith.IRModule.from_expr(big))
    assert not isinstance(fold(big), relay.Constant)


EVIL = "Re\x1b[31m\x07\r\u202e"


@pytest.mark.parametrize(
    "m",
    [
        one(EVIL, ["x"], ["y"]),
        one("Relu", ["x"], ["y"], domain=EVIL),
        model([node("Softmax", ["x"], ["y"], axis=9, name=EVIL)]),
        model([node("Relu", ["x"], [EVIL])]),
        conv(auto_pad=EVIL),
        conv((EVIL, "w")),
        model([node("Relu", [EVIL], ["y"])], inputs=[info(EVIL, ("N\x1b[2J", 4))]),
        then(node("ConstantOfShape", ["s"], ["e"], name=EVIL), weights=SHAPE(1 << 15, 1 << 16)),
    ],
)
def test_no_control_characters_in_messages(m):
    with pytest.raises((ValueError, OpNotImplemented)) as e:
        relay.frontend.from_onnx(m)
    assert all(c.isprintable() or c == "\n" for c in str(e.value)), repr(str(e.value))


def test_no_control_characters_in_what_is_printed(capsys):
    names = [EVIL, "a\nb"]
    m = model([node("Relu", [names[0]], [names[1]], name=EVIL)], inputs=[info(names[0], X)], outputs=[names[1]])
    network = nestsmith.compile(m, target="llvm", verbose=2, guess=False)
    x = np.arange(-8, 8, dtype="float32").reshape(X)
    np.testing.assert_array_equal(network(**{EVIL: x}), np.maximum(x, 0))
    with pytest.raises((ValueError, TypeError)) as e:
        network(x, x)
    printed = f"{network}{network.report()}{e.value}{capsys.readouterr().out}"
    assert all(c.isprintable() or c == "\n" for c in printed), repr(printed)


def test_functions_of_the_model_are_taken_apart():
    """Attributes with defaults, overloads, functions in functions and in branches, a function that hides an operator."""
    scaled = helper.make_function(
        "d", "scaled", ["a", "unused"], ["b"],
        [helper.make_node("Constant", [], ["k"]), node("Mul", ["a", "k"], ["b"])], [helper.make_opsetid("", 18)], ["by"],
    )  # fmt: skip
    scaled.node[0].attribute.add(name="value_float", ref_attr_name="by", type=onnx.AttributeProto.FLOAT)
    outer = function("outer", [node("scaled", ["a"], ["t"], domain="d", by=3.0), node("Relu", ["t"], ["b"])])
    hidden = helper.make_function("", "Relu", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 18)])
    inside = branch([node("outer", ["x"], ["p"], domain="d"), node("Add", ["p", "x"], ["o"])])
    m = model(
        [node("If", ["c"], ["z"], then_branch=inside, else_branch=good), node("scaled", ["z"], ["y"], domain="d", by=0.5)],
        [numpy_helper.from_array(np.array(True), "c")], functions=[scaled, outer, hidden],
    )  # fmt: skip
    x = np.arange(-8, 8, dtype="float32").reshape(X)
    network = nestsmith.compile(m, target="llvm", verbose=0, guess=False)
    np.testing.assert_array_equal(network(x), (-(3 * x) + x) / 2)


def test_missing_operators_of_functions_are_named():
    m = model([node("f", ["x"], ["y"], domain="d")], functions=[function("f", [node("Nothing", ["a"], ["b"], name="n")])])
    with pytest.raises(OpNotImplemented, match="Nothing: 1 node .n in y"):
        relay.frontend.from_onnx(m)
