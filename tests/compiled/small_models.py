"""Models for the tests of one call and one command: small, and with reference results."""

import numpy as np
import onnx
import onnx.reference
from onnx import helper, numpy_helper


def weights(rng, name, *shape):
    scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.5
    return numpy_helper.from_array((rng.standard_normal(shape) * scale).astype("float32"), name)


def convolutions(batch=1, names=("first", "second"), second_tail="Relu"):
    """Two convolutions, a pool and a product on ``x`` [batch, 3, 16, 16]; `batch` may be a name."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], name=names[0]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], name=names[1]),
        helper.make_node(second_tail, ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "w3"], ["y"], transB=1),
    ]
    tensors = [weights(rng, "w1", 16, 3, 3, 3), weights(rng, "b1", 16), weights(rng, "w2", 16, 16, 3, 3), weights(rng, "w3", 10, 16)]
    return model(nodes, {"x": [batch, 3, 16, 16]}, ["y"], tensors)


def model(nodes, inputs, outputs, tensors=(), dtype=onnx.TensorProto.FLOAT):
    """A ModelProto; `inputs` maps names to shapes."""
    ins = [helper.make_tensor_value_info(n, dtype, s) for n, s in inputs.items()]
    outs = [helper.make_tensor_value_info(n, dtype, None) for n in outputs]
    return helper.make_model(helper.make_graph(nodes, "g", ins, outs, list(tensors)), opset_imports=[helper.make_opsetid("", 17)])


def reference(proto, **inputs):
    """What the standard's own implementation computes."""
    return onnx.reference.ReferenceEvaluator(proto).run(None, inputs)


def close(got, want):
    """Whether two outputs are equal within 1e-5 of the largest value."""
    return np.abs(np.asarray(got) - want).max() <= 1e-5 * np.abs(want).max()
