"""Networks that onnxruntime has quantised, in both of its formats."""

import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")

import nestsmith  # noqa: E402

SHAPE = (2, 3, 8, 8)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last, self.pool = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Linear(16, 6), torch.nn.AvgPool2d(2)

    def forward(self, x):
        y = torch.cat([torch.sigmoid(self.conv(x)), torch.nn.functional.leaky_relu(self.conv(x), 0.1)], 1)
        y = self.pool(y)
        return torch.softmax(self.last(torch.nn.functional.adaptive_avg_pool2d(y * 0.5 + y, 1).flatten(1)), 1)


class Samples:
    def __init__(self):
        rng = np.random.default_rng(1)
        self.rest = iter([{"x": rng.standard_normal(SHAPE, "float32")} for _ in range(4)])

    def get_next(self):
        return next(self.rest, None)


def compare(path, *inputs):
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    want = want.run(None, {i.name: x for i, x in zip(want.get_inputs(), inputs, strict=True)})[0]
    got = nestsmith.compile(str(path), target="llvm", trials=0, verbose=0, guess=False)(*inputs)
    assert got.dtype == want.dtype
    return got, want


@pytest.mark.some(1)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
def test_networks(tmp_path, kind, per_channel):
    """Operators on integers: to the bit. Pairs of conversions, which onnxruntime fuses as it likes: one step of the last softmax."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    torch.manual_seed(1)
    x = torch.randn(SHAPE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Net().eval(), (x,), str(tmp_path / "a.onnx"), dynamo=False, input_names=["x"], opset_version=17)
    for form, most in ((quantization.QuantFormat.QOperator, 0), (quantization.QuantFormat.QDQ, 1 / 255)):
        path = tmp_path / f"{form}.onnx"
        types = {"activation_type": quantization.QuantType[kind], "weight_type": quantization.QuantType.QInt8}
        quantization.quantize_static(str(tmp_path / "a.onnx"), str(path), Samples(), form, per_channel=per_channel, **types)
        got, want = compare(path, x.numpy())
        assert np.abs(got - want).max() <= most * 1.001


def test_single_operators(tmp_path):
    """A choice; a product without a scale of its result; conversions to 16 bits of an old set of operators."""
    h, own = onnx.helper, "com.microsoft"
    of = lambda name, a: onnx.numpy_helper.from_array(np.array(a), name)  # noqa: E731
    given = [("c", 9, [3, 4]), ("a", 2, [3, 4]), ("b", 2, [3, 4]), ("w", 3, [4, 5]), ("f", 1, [3, 4])]
    s = [of(n, np.float32(v)) for n, v in (("s", 0.25), ("t", 0.5), ("r", 0.125))]
    z = [of("z", np.uint8(3)), of("y", np.uint8(130)), of("n", np.int8(-2)), of("m", np.uint16(700)), of("bias", np.arange(5, dtype="int32"))]
    nodes = [
        h.make_node("QLinearWhere", ["c", "a", "s", "z", "b", "t", "y", "r", "z"], ["where"], domain=own),
        h.make_node("QGemm", ["a", "s", "z", "w", "t", "n", "bias"], ["product"], domain=own, alpha=0.5),
        h.make_node("QuantizeLinear", ["f", "r", "m"], ["q"], domain=own),
        h.make_node("DequantizeLinear", ["q", "r", "m"], ["there and back"], domain=own),
    ]
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 255, (2, 3, 4), "uint8")
    values = {"c": a > b, "a": a, "b": b, "w": rng.integers(-128, 127, (4, 5), "int8"), "f": rng.standard_normal((3, 4), "float32") * 9}
    for out, kind, shape in (("where", 2, [3, 4]), ("product", 1, [3, 5]), ("there and back", 1, [3, 4])):
        last = next(k for k, n in enumerate(nodes) if out in n.output)
        mine = nodes[last - 1 : last + 1] if out == "there and back" else nodes[last : last + 1]
        read = [(n, t, d) for n, t, d in given if any(n in m.input for m in mine)]
        infos = [h.make_tensor_value_info(n, t, d) for n, t, d in read]
        graph = h.make_graph(mine, "one", infos, [h.make_tensor_value_info(out, kind, shape)], [*s, *z])
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(own, 1)], ir_version=8)
        onnx.save(model, str(tmp_path / "one.onnx"))
        got, want = compare(tmp_path / "one.onnx", *(values[n] for n, _, _ in read))
        np.testing.assert_array_equal(got, want, out)
