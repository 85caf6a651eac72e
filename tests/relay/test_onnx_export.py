"""Export to ONNX, checked by running the exported model."""

import numpy as np
import pytest

from nestsmith import relay
from nestsmith.contrib.target.onnx import supported, to_onnx

onnxruntime = pytest.importorskip("onnxruntime")


def run(model, **inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def test_convolution_nhwc_is_exact_on_small_integers():
    rng = np.random.default_rng(0)
    x, w = relay.var("x", shape=(1, 6, 5, 3)), relay.var("w", shape=(3, 3, 3, 4))
    f = relay.Function([x, w], relay.nn.relu(relay.nn.conv2d(x, w, padding=1, channels=4, kernel_size=3, data_layout="NHWC", kernel_layout="HWIO")))
    xv, wv = (rng.integers(-4, 5, s).astype("float32") for s in ((1, 6, 5, 3), (3, 3, 3, 4)))
    padded = np.pad(xv, ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(padded[:, i : i + 6, j : j + 5] @ wv[i, j] for i in range(3) for j in range(3))
    assert (run(to_onnx(f, {"w": wv}), x=xv) == np.maximum(want, 0)).all()


def test_resnet_is_a_distribution():
    mod, params = relay.testing.resnet.get_workload(num_layers=18, batch_size=1, layout="NHWC", image_shape=(224, 224, 3))
    out = run(to_onnx(mod, params), data=np.ones((1, 224, 224, 3), "float32"))
    assert out.shape == (1, 1000) and abs(out.sum() - 1) < 1e-5


def test_unsupported_operator_is_named():
    x = relay.var("x", shape=(2, 3))
    with pytest.raises(ValueError, match="'erf' has no ONNX export"):
        to_onnx(relay.Function([x], relay.erf(x)), {})
    assert "nn.conv2d" in supported()
