"""Models of the ONNX standard's tests become networks that compute what the standard says."""

import io
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_node_tests import cases, run

import nestsmith
from helpers import full
from nestsmith import relay
from nestsmith.contrib.graph_executor import GraphModule
from nestsmith.error import ImportMismatch, OpNotImplemented

# What the standard tests and we refuse, by the operator of the test or by what the message says.
REFUSED = (
    "operator that nestsmith does not have",
    "operators that nestsmith does not have",
    "element type",
    "sequences and optional values",
    "is no tensor",
    "computed from the data of the model",
    "in training mode",
    "without elements",
    "is not supported",
    "are not supported",
)


def verdicts(chosen):
    out = [run(c) for c in chosen]
    wrong = [r for r in out if r[2] != "ok" and not (r[2].startswith("refused") and any(w in r[2] for w in REFUSED))]
    assert not wrong, wrong
    return sum(r[2] == "ok" for r in out)


@pytest.mark.parametrize("step,least", [(384, 3), full(96, 12)])
def test_a_part_of_the_standard(step, least):
    assert verdicts(cases()[::step]) >= least


@pytest.mark.full
@pytest.mark.parametrize("first", [12, 24, 36, 48, 60, 72, 84])
def test_other_parts_of_the_standard(first):
    assert verdicts(cases()[first::96]) >= 12


SOME = ("loop11", "scan9_sum", "dft", "stft", "maxpool_with_argmax_2d_precomputed_strides", "maxunpool_export_with_output_shape",
        "tensorscatter_circular",
        "roialign_aligned_true", "basic_deform_conv_with_padding", "compress_0", "adam_multiple", "batchnorm_example_training_mode")  # fmt: skip


def test_some_of_the_standard():
    chosen = [c for c in cases() if c[0].removeprefix("test_") in SOME]
    assert len(chosen) == len(SOME) and verdicts(chosen) == len(SOME)


def _loop(trips):
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "x"], ["h2"]), helper.make_node("Identity", ["c"], ["c2"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_tensor_value_info("h", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("c2", TensorProto.BOOL, []), helper.make_tensor_value_info("h2", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    return model([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], {"x": [2]}, {"y": None}, trips)


def test_loops():
    mod, _ = relay.frontend.from_onnx(_loop({"n": np.array(3, "int64")}))
    assert sum(isinstance(e, relay.Call) for e in relay.expr.post_order(mod["main"].body)) == 3
    with pytest.raises(ValueError, match="nodes"):
        relay.frontend.from_onnx(_loop({"n": np.array(10**12, "int64")}), limits={"nodes": 1000})
    given = _loop({})
    given.graph.input.append(helper.make_tensor_value_info("n", TensorProto.INT64, []))
    with pytest.raises(OpNotImplemented, match="trip count is computed from the data"):
        relay.frontend.from_onnx(given)


@pytest.mark.full
@pytest.mark.long
def test_the_whole_standard():
    assert verdicts(cases()) >= 1560


def model(nodes, inputs, outputs, weights=(), opset=17):
    """A model over float32 inputs {name: shape}; weights are {name: array}."""
    info = lambda d: [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in d.items()]  # noqa: E731
    init = [numpy_helper.from_array(np.asarray(v), k) for k, v in dict(weights).items()]
    graph = helper.make_graph(nodes, "g", info(inputs), info(outputs), init)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def small():
    w = np.arange(2 * 3 * 3 * 3, dtype="float32").reshape(2, 3, 3, 3) % 5 - 2
    nodes = [helper.make_node("Conv", ["x", "conv.weight"], ["y"], name="conv", pads=[1, 1, 1, 1])]
    return model(nodes, {"x": ["N", 3, 8, 8]}, {"y": None}, {"conv.weight": w}), w


def without_versions():
    """A file whose last field was cut off."""
    proto = small()[0]
    del proto.opset_import[:]
    return proto.SerializeToString()


def outputs(mod, params, **inputs):
    lib = relay.build(mod, target="llvm", params=params)
    g = GraphModule(lib["default"](nestsmith.cpu()))
    for k, v in inputs.items():
        g.set_input(k, v)
    g.run()
    return [g.get_output(i).numpy() for i in range(g.get_num_outputs())]


def test_weights_keep_their_names(tmp_path):
    proto, w = small()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    x = np.random.default_rng(0).integers(-3, 4, (1, 3, 8, 8)).astype("float32")
    mod, params = relay.frontend.from_onnx(path, {"x": x.shape}, freeze_params=False)
    assert list(params) == ["conv.weight"] and (params["conv.weight"] == w).all()
    assert [p.name_hint for p in mod["main"].params] == ["x", "conv.weight"]
    frozen, none = relay.frontend.from_onnx(proto.SerializeToString(), {"x": x.shape})
    assert none == {} and [p.name_hint for p in frozen["main"].params] == ["x"]
    a, b = outputs(mod, params, x=x), outputs(frozen, none, x=x)
    assert (a[0] == b[0]).all()
    assert len(nestsmith.auto_scheduler.extract_tasks(frozen["main"], none, "llvm")[0]) == 1


def test_weights_beside_the_file(tmp_path):
    proto, w = small()
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    _, params = relay.frontend.from_onnx(str(tmp_path / "m.onnx"), {"x": (1, 3, 8, 8)}, freeze_params=False)
    assert (params["conv.weight"] == w).all()
    (tmp_path / "weights.bin").unlink()
    with pytest.raises((ValueError, FileNotFoundError), match="weights.bin"):
        relay.frontend.from_onnx(str(tmp_path / "m.onnx"), {"x": (1, 3, 8, 8)})


def test_shapes_that_are_computed_vanish():
    """What exporters write for x.reshape(x.size(0), -1)."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    mod, _ = relay.frontend.from_onnx(model(nodes, {"x": [2, 3, 4]}, {"y": None}, weights))
    assert str(mod).count("reshape(") == 1 and "shape_of" not in str(mod) and "take" not in str(mod)
    assert mod["main"].body.checked_type.concrete_shape == (2, 12)


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"shape": None}, ValueError, r"the shape of input 'x' is \(N, 3, 8, 8\).*shape={'x'"),
        ({"shape": {"x": (1, 4, 8, 8)}}, ValueError, r"shape\['x'\] is \(1, 4, 8, 8\), but the model says"),
        ({"shape": {"data": (1, 3, 8, 8)}}, ValueError, r"shape names \['data'\], but the model's inputs are \['x'\]"),
        ({"shape": {"x": 3}}, TypeError, r"shape\['x'\] is 3; it must be a tuple of integers"),
        ({"shape": [1, 3, 8, 8]}, TypeError, r"shape is \[1, 3, 8, 8\]; it must be a dictionary"),
        ({"shape": {"x": (-1, 3, 8, 8)}}, ValueError, r"shape\['x'\] is -1; it must be at least 0"),
        ({"model": b""}, ValueError, "is no readable ONNX model: it has no graph"),
        ({"model": without_versions()}, ValueError, "does not say the version of its operators"),
        ({"model": model([], {"x": [1, 3, 8, 8]}, {})}, ValueError, "has no outputs"),
        ({"model": b"\x00garbage"}, ValueError, "is no readable ONNX model"),
        ({"opset": 0}, ValueError, "opset is 0; it must be at least 1"),
        ({"opset": "17"}, TypeError, "opset"),
        ({"model": 7}, TypeError, "must be a path, bytes or an onnx.ModelProto"),
        ({"model": "nowhere.onnx"}, FileNotFoundError, "nowhere.onnx"),
    ],
)
def test_bad_models(change, kind, text):
    arguments = {"model": small()[0], "shape": {"x": (1, 3, 8, 8)}, **change}
    with pytest.raises(kind, match=text):
        relay.frontend.from_onnx(**arguments)


def test_open_sizes_are_bound_by_their_names():
    """A size that the model calls by a name is one size for all inputs that have it, given as such or with one of them."""
    proto = model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["batch", "n", 3], "b": ["batch", "n", 1]}, {"y": None})
    for shape in ({"batch": 4, "n": 2}, {"a": (4, 2, 3)}, {"batch": 4, "b": (4, 2, 1)}, {"batch": (4,), "n": (2,)}):
        mod, _ = relay.frontend.from_onnx(proto, shape)
        assert [p.checked_type.concrete_shape for p in mod["main"].params] == [(4, 2, 3), (4, 2, 1)]
    none, _ = relay.frontend.from_onnx(proto, {"batch": 0, "n": 2})
    assert [p.checked_type.concrete_shape for p in none["main"].params] == [(0, 2, 3), (0, 2, 1)]
    for shape, kind, text in (
        ({"batch": 4}, ValueError, r"'a' is \(4, n, 3\) in the model; give.*shape={'a': \(...\)} or, for all inputs, shape={'n': ...}"),
        ({"batch": 4, "a": (5, 2, 3)}, ValueError, r"shape\['a'\] is \(5, 2, 3\), but the model says \(4, 'n', 3\)"),
        ({"batch": 0, "a": (5, 2, 3)}, ValueError, r"shape\['a'\] is \(5, 2, 3\), but the model says \(0, 'n', 3\)"),
        ({"size": 4}, ValueError, r"\['size'\], but the model's inputs are \['a', 'b'\] and its open sizes \['batch', 'n'\]"),
        ({"batch": -1}, ValueError, r"shape\['batch'\] is -1"),
    ):
        with pytest.raises(kind, match=text):
            relay.frontend.from_onnx(proto, shape)


@pytest.mark.parametrize("written", [0, -1])
def test_sizes_that_exporters_write_for_open_ones(written):
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [written, 3]}, {"y": None})
    mod, _ = relay.frontend.from_onnx(proto, {"x": (4, 3)})
    assert mod["main"].params[0].checked_type.concrete_shape == (4, 3)
    with pytest.raises(ValueError, match=r"shape\['x'\] is \(4, 2\), but the model says"):
        relay.frontend.from_onnx(proto, {"x": (4, 2)})


def test_what_is_known_is_computed_whatever_the_operator():
    """Operators without a converter, and those whose shapes follow from data, are values if what they read is known; so is what reads
    no more of the data than their type."""
    nodes = [
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("ConstantOfShape", ["size"], ["ones"], value=numpy_helper.from_array(np.array([1]))),
        helper.make_node("NonZero", ["ones"], ["places"]),
        helper.make_node("Unique", ["repeated"], ["values", "", "", "counts"]),
        helper.make_node("CastLike", ["half", "x"], ["pad"]),
        helper.make_node("Pad", ["x", "widths", "pad"], ["padded"]),
        helper.make_node("Cast", ["values"], ["scale"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["padded", "scale"], ["y"]),
        helper.make_node("Identity", ["places"], ["z"]),
        helper.make_node("Identity", ["counts"], ["n"]),
    ]
    weights = {"repeated": np.array([7, 5, 7]), "half": np.float64(0.5), "widths": np.array([0, 1])}
    proto = model(nodes, {"x": [1]}, {"y": None, "z": None, "n": None}, weights)
    y, z, n = outputs(*relay.frontend.from_onnx(proto), x=np.array([2], "float32"))
    assert (y.tolist(), z.tolist(), n.tolist()) == ([10.0, 3.5], [[0]], [1, 2])


@pytest.mark.parametrize(
    ("op", "text"),
    [("Bernoulli", "RandomUniformLike"), ("RandomNormalLike", "RandomNormalLike: 1 node"), ("Optional", "'it' makes values that are")],
)
def test_known_values_that_are_no_constants(op, text):
    """Random numbers differ from run to run, and optional values are no tensors."""
    proto = model([helper.make_node(op, ["w"], ["y"], name="it")], {"x": [1]}, {"y": None}, {"w": np.full(3, 0.5, "float32")})
    with pytest.raises(OpNotImplemented, match=text):
        relay.frontend.from_onnx(proto)


def test_what_tf2onnx_leaves_of_gelu():
    x = numbers(9) * 3
    got = outputs(*relay.frontend.from_onnx(model([helper.make_node("Erfc", ["x"], ["y"])], {"x": [9]}, {"y": None})), x=x)[0]
    np.testing.assert_allclose(got, [math.erfc(v) for v in x], atol=1e-6)


@pytest.mark.parametrize("attributes", [{}, {"reverse": 1}, {"exclusive": 1}, {"exclusive": 1, "reverse": 1}])
@pytest.mark.parametrize("extent", [1, 5])
def test_running_products(attributes, extent):
    x = numbers(2, extent, 3)
    node = helper.make_node("CumProd", ["x", "axis"], ["y"], **attributes)
    got = outputs(*relay.frontend.from_onnx(model([node], {"x": x.shape}, {"y": None}, {"axis": np.array(1)}, 26)), x=x)[0]
    turned = x[:, ::-1] if "reverse" in attributes else x
    want = np.cumprod(turned, 1)
    want = np.concatenate([np.ones_like(want[:, :1]), want[:, :-1]], 1) if "exclusive" in attributes else want
    np.testing.assert_allclose(got, want[:, ::-1] if "reverse" in attributes else want, rtol=1e-5)


def run_both(nodes, inputs, weights=(), opset=17, dtype=None):
    """(nestsmith's, onnxruntime's) results ``y`` of nodes on arrays."""
    import onnxruntime

    proto = model(nodes, {k: v.shape for k, v in inputs.items()}, {"y": None}, weights, opset)
    for i, v in zip(proto.graph.input, inputs.values()):
        i.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(v.dtype)
    proto.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or next(iter(inputs.values())).dtype))
    proto.ir_version = 10
    want = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(["y"], inputs)[0]
    got = outputs(*relay.frontend.from_onnx(proto), **inputs)[0]
    assert got.dtype == want.dtype and got.shape == want.shape
    return got, want


def test_sequences():
    """They are tuples: made, cut out of tensors, changed, counted, joined."""
    at, node = {k: np.array(v) for k, v in {"zero": 0, "last": -1, "three": 3, "parts": [1, 3]}.items()}, helper.make_node
    nodes = [
        node("SplitToSequence", ["x", "three"], ["a"]),  # 3, 3 and 1 rows
        node("SplitToSequence", ["x", "parts"], ["b"], axis=1),
        node("SplitToSequence", ["x"], ["columns"], axis=1, keepdims=0),
        node("SequenceErase", ["a", "zero"], ["c"]),
        node("SequenceEmpty", [], ["none"]),
        node("SequenceInsert", ["none", "x"], ["d"]),
        node("SequenceAt", ["b", "last"], ["e"]),
        node("SequenceInsert", ["d", "e", "zero"], ["f"]),
        node("ConcatFromSequence", ["c"], ["rows"], axis=0),
        node("ConcatFromSequence", ["f"], ["wide"], axis=1),
        node("ConcatFromSequence", ["columns"], ["turned"], axis=0, new_axis=1),
        node("SequenceLength", ["a"], ["count"]),
        node("Cast", ["count"], ["n"], to=1),
        node("Transpose", ["turned"], ["back"]),
        node("Concat", ["wide", "back"], ["g"], axis=1),
        node("SequenceConstruct", ["g", "g"], ["twice"]),
        node("ConcatFromSequence", ["twice"], ["h"], axis=1),
        node("ReduceSum", ["rows"], ["sum"]),
        node("Add", ["h", "sum"], ["i"]),
        node("Add", ["i", "n"], ["y"]),
    ]
    np.testing.assert_allclose(*run_both(nodes, {"x": numbers(7, 4)}, at), rtol=1e-5)
    outside = [*nodes[4:6], node("SequenceAt", ["d", "three"], ["y"])]
    with pytest.raises(ValueError, match="position 3 in a sequence of 1"):
        relay.frontend.from_onnx(model(outside, {"x": [2]}, {"y": None}, at))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def test_activations_of_recurrent_layers_take_their_parameters_in_turn():
    weights = {"w": numbers(2, 4, 3), "r": numbers(2, 4, 4, seed=1)}
    node = helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=4, direction="bidirectional", activations=["LeakyRelu", "Elu"],
                            activation_alpha=[0.1, 0.7])  # fmt: skip
    np.testing.assert_allclose(*run_both([node], {"x": numbers(3, 2, 3, seed=2)}, weights), rtol=1e-5, atol=1e-5)
    weights = {"w": numbers(1, 12, 3), "r": numbers(1, 12, 3, seed=1)}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=3, activations=["HardSigmoid", "Tanh", "LeakyRelu"],
                            activation_alpha=[0.3, 0.05], activation_beta=[0.4])  # fmt: skip
    np.testing.assert_allclose(*run_both([node], {"x": numbers(3, 2, 3, seed=2)}, weights), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "x", "weights", "attributes"),
    [
        ("Clip", numbers(9), {"low": np.float32(1), "high": np.float32(-1)}, {}),
        ("Pow", np.array([4, 9, 14]), {"exponent": np.float32(0.5)}, {}),
        ("Resize", np.arange(48, dtype="uint8").reshape(1, 3, 4, 4) * 5, {"": 0, " ": 0, "sizes": np.array([1, 3, 7, 9])}, {"mode": "linear"}),
        ("Resize", numbers(1, 3, 9, 7), {"": 0, " ": 0, "sizes": np.array([1, 3, 4, 12])}, {"mode": "linear", "antialias": 1}),
        ("Resize", numbers(1, 3, 9, 16), {"": 0, " ": 0, "sizes": np.array([1, 3, 4, 5])}, {"mode": "cubic", "antialias": 1, "exclude_outside": 1}),
        ("Concat", numbers(0, 3), {"b": numbers(0, 4)}, {"axis": 1}),
        ("QuantizeLinear", numbers(9) * 50, {"scale": np.float32(0.5)}, {"output_dtype": TensorProto.INT8}),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)  # fmt: skip
def test_rare_uses(op, x, weights, attributes):
    names = ["" if not k.strip() else k for k in weights]
    dtype = "int8" if "output_dtype" in attributes else x.dtype
    node = helper.make_node(op, ["x", *names], ["y"], **attributes)
    opset = {"QuantizeLinear": 21, "Resize": 18}.get(op, 17)
    got, want = run_both([node], {"x": x}, {k: v for k, v in weights.items() if k.strip()}, opset, dtype)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1 if got.dtype == "uint8" else 1e-5)  # a rounding moves the cut


def test_known_values_of_bfloat16_are_numbers():
    """NumPy has none: constants of it are kept as bits."""
    bf16 = lambda name, *v: helper.make_tensor(name, TensorProto.BFLOAT16, [len(v)] if len(v) > 1 else [], v)  # noqa: E731
    constant = lambda name, *v: helper.make_node("Constant", [], [name], value=bf16(name, *v))  # noqa: E731
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.BFLOAT16),
        constant("low", -0.5), constant("high", 1.5), constant("four", 1.0, 2.0, 3.0, 4.0),
        helper.make_node("Clip", ["a", "low", "high"], ["b"]),
        helper.make_node("Slice", ["four", "one", "three"], ["two_three"]),
        helper.make_node("Mul", ["b", "two_three"], ["c"]),
        helper.make_node("Pad", ["c", "amounts", "low"], ["d"]),
        helper.make_node("Add", ["d", "weight"], ["e"]),
        helper.make_node("Cast", ["e"], ["y"], to=TensorProto.FLOAT),
    ]  # fmt: skip
    weights = {"one": np.array([1]), "three": np.array([3]), "amounts": np.array([0, 1])}
    proto = model(nodes, {"x": [2]}, {"y": None}, weights)
    proto.graph.initializer.append(bf16("weight", 0.25, 0.5, 1.0))
    for freeze in (True, False):
        mod, params = relay.frontend.from_onnx(proto, freeze_params=freeze)
        assert outputs(mod, params, x=np.array([-3, 9], "float32"))[0].tolist() == [-0.75, 5.0, 0.5]


def test_everything_that_is_missing_is_said_at_once():
    nodes = [
        helper.make_node("NonMaxSuppression", ["x", "x"], ["a"], name="nms"),
        helper.make_node("Mystery", ["a"], ["b"], name="first", domain="custom"),
        helper.make_node("Mystery", ["b"], ["y"], name="second", domain="custom"),
    ]
    with pytest.raises(OpNotImplemented) as e:
        relay.frontend.from_onnx(model(nodes, {"x": [1, 2, 4]}, {"y": None}))
    assert "2 operators" in str(e.value) and "custom::Mystery: 2 nodes (first, second)" in str(e.value)
    assert "NonMaxSuppression: 1 node (nms)" in str(e.value)


def branching(then, other, condition=True):
    """y = then(x) or other(x), each a list of nodes from x to "out"."""
    graph = lambda nodes, name: helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)])  # noqa: E731
    node = helper.make_node("If", ["c"], ["y"], name="way", then_branch=graph(then, "t"), else_branch=graph(other, "e"))
    return model([node], {"x": [3]}, {"y": None}, {"c": np.array(condition)})


def test_everything_that_is_missing_in_branches_is_said_at_once():
    mystery = lambda a, b, name: helper.make_node("Mystery", [a], [b], name=name, domain="custom")  # noqa: E731
    two = [mystery("x", "a", "first"), helper.make_node("NonMaxSuppression", ["a", "a"], ["b"], name="nms"), mystery("b", "out", "second")]
    good, inner = [helper.make_node("Neg", ["x"], ["out"])], branching(two, two).graph.node[0]
    inner.output[0], inner.name = "out", "inside"
    for proto in (branching(two, good), branching(good, two, False), branching([inner], good)):
        with pytest.raises(OpNotImplemented) as e:
            relay.frontend.from_onnx(proto)
        assert "2 operators" in str(e.value) and "NonMaxSuppression: " in str(e.value) and "custom::Mystery: " in str(e.value)
        assert "(first, second)" in str(e.value) or "first in a branch of If inside" in str(e.value)
    with pytest.raises(OpNotImplemented, match=r"Mystery: 4 nodes \(first in a branch of If way, second in a branch of If way, "):
        proto = branching(two, two)
        proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
        del proto.graph.initializer[:]
        relay.frontend.from_onnx(proto)  # before the condition is asked for, which nobody knows
    x = np.array([1, 2, 3], "float32")
    assert outputs(*relay.frontend.from_onnx(branching(two, good, False)), x=x)[0].tolist() == [-1, -2, -3]  # never taken


def test_what_a_branch_knows_is_known_behind_it():
    """Unique has no converter: it is computed if its input does not depend on the data, as after an If that makes constants."""
    three = lambda *v: [helper.make_node("Constant", [], ["out"], value=numpy_helper.from_array(np.array(v, "float32")))]  # noqa: E731
    behind = [helper.make_node("Unique", ["y"], ["u"], name="uni"), helper.make_node("ReduceMax", ["u"], ["m"], keepdims=0),
              helper.make_node("Add", ["x", "m"], ["z"])]  # fmt: skip

    def extended(proto):
        proto.graph.node.extend(behind)
        proto.graph.output[0].name = "z"
        return relay.frontend.from_onnx(proto)

    x = np.array([1, 2, 3], "float32")
    for condition, most in ((True, 7), (False, 9)):
        assert outputs(*extended(branching(three(7, 5, 7), three(9, 9, 9), condition)), x=x)[0].tolist() == (x + most).tolist()
    data = [helper.make_node("Neg", ["x"], ["out"])]
    with pytest.raises(OpNotImplemented, match=r"1 operator that .*\n  Unique: 1 node \(uni\)"):
        extended(branching(data, data))


@pytest.mark.parametrize(("said", "given", "text"), [(99, None, "the model says version 99 of its operators.*knows versions 1 to"),
                                                     (17, 99, "opset is 99; the installed onnx")])  # fmt: skip
def test_versions_that_nobody_knows(said, given, text):
    proto = model([helper.make_node("Neg", ["x"], ["y"])], {"x": [3]}, {"y": None}, opset=said)
    with pytest.raises(ValueError, match=text):
        relay.frontend.from_onnx(proto, opset=given)
    newest = onnx.defs.onnx_opset_version()
    mod, params = relay.frontend.from_onnx(proto, opset=newest)  # also instead of a version that is too new
    assert outputs(mod, params, x=np.array([1, 2, 3], "float32"))[0].tolist() == [-1, -2, -3]


def test_a_users_converter():
    @relay.frontend.converter("custom::Twice")
    def twice(n):
        return relay.add(n.input(0), n.input(0))

    nodes = [helper.make_node("Twice", ["x"], ["y"], domain="custom")]
    mod, params = relay.frontend.from_onnx(model(nodes, {"x": [3]}, {"y": None}))
    assert outputs(mod, params, x=np.array([1, 2, 3], "float32"))[0].tolist() == [2, 4, 6]


def test_data_that_decide_shapes_are_named():
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="flatten")]
    proto = model(nodes, {"x": [2, 3]}, {"y": None})
    proto.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [1]))
    with pytest.raises(OpNotImplemented, match="Reshape 'flatten': its shape is computed from the data"):
        relay.frontend.from_onnx(proto)


def test_a_network_of_pytorchs_exporter():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        torch.nn.Conv2d(8, 8, 3, groups=8), torch.nn.Hardswish(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(8, 5), torch.nn.GELU(), torch.nn.LayerNorm(5),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 17, 17)
    f = io.BytesIO()
    torch.onnx.export(net, (x,), f, dynamo=False, input_names=["x"])
    mod, params = relay.frontend.from_onnx(f.getvalue())
    got = outputs(mod, params, x=x.numpy())[0]
    np.testing.assert_allclose(got, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_nodes_are_compared(monkeypatch):
    proto, _ = small()
    proto.graph.node.append(helper.make_node("Relu", ["y"], ["z"], name="act"))
    proto.graph.output[0].name = "z"
    shape, x = {"x": (1, 3, 8, 8)}, np.ones((1, 3, 8, 8), "float32")
    for given in (True, [x], {"x": x}):
        relay.frontend.from_onnx(proto, shape, check=given)
    with pytest.raises(ValueError, match="check gives 2 inputs, the model has x"):
        relay.frontend.from_onnx(proto, shape, check=[x, x])
    with pytest.raises(ValueError, match="check names the inputs data, the model has x"):
        relay.frontend.from_onnx(proto, shape, check={"data": x})
    monkeypatch.setitem(relay.frontend.onnx_ops.CONVERTERS, "Relu", lambda n: relay.abs(n.input(0)))
    with pytest.raises(ImportMismatch, match="Relu 'act' computes something else than in onnxruntime: its largest error"):
        relay.frontend.from_onnx(proto, shape, check=True)


def test_weights_of_another_type_are_refused():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="last")]
    proto = model(nodes, {"x": [2, 3]}, {"y": None}, {"w": np.ones((3, 4))})
    with pytest.raises(ValueError, match="MatMul 'last': its inputs are float32 and float64, where the standard wants one type"):
        relay.frontend.from_onnx(proto)


def test_parts_that_do_not_fit():
    split = helper.make_node("Split", ["x"], list("abcde"), num_outputs=5)
    with pytest.raises(ValueError, match="7 elements in 5 parts of 2"):
        relay.frontend.from_onnx(model([split], {"x": [7]}, {k: None for k in "abcde"}, opset=18))
