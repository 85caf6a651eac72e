"""Models of Keras and TensorFlow, where these are installed; they are no part of the test group, being as large as all of it."""

import numpy as np
import pytest

import nestsmith
from nestsmith import relay
from nestsmith.contrib.graph_executor import GraphModule

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
keras = pytest.importorskip("keras", reason="Keras is not installed")
pytest.importorskip("tf2onnx", reason="tf2onnx is not installed")
SHAPE = (1, 16, 16, 3)


@pytest.fixture(scope="module")
def model():
    k = keras.layers
    return keras.Sequential(
        [keras.Input(SHAPE[1:], batch_size=1, name="image"), k.Conv2D(4, 3, padding="same", activation="relu"), k.BatchNormalization(),
         k.MaxPooling2D(), k.DepthwiseConv2D(3), k.GlobalAveragePooling2D(), k.Dense(5, activation="softmax")]
    )  # fmt: skip


def frozen(model):
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    f = tf.function(lambda image: model(image)).get_concrete_function(tf.TensorSpec(SHAPE, name="image"))
    return f, convert_variables_to_constants_v2(f).graph.as_graph_def()


def ways(model, folder):
    f, graph = frozen(model)
    model.export(str(folder / "saved"), verbose=False)
    (folder / "graph.pb").write_bytes(graph.SerializeToString())
    tensorflow = relay.frontend.from_tensorflow
    yield relay.frontend.from_keras(model, check=True)
    yield tensorflow(folder / "saved", shape={"image": SHAPE})
    yield tensorflow(graph)
    yield tensorflow(folder / "graph.pb")
    yield relay.frontend.from_tflite(tf.lite.TFLiteConverter.from_concrete_functions([f]).convert())


def test_each_way(model, tmp_path):
    x = np.random.default_rng(0).random(SHAPE, "float32")
    want = model.predict(x, verbose=0)
    for mod, params in ways(model, tmp_path):
        assert [p.name_hint for p in mod["main"].params] == ["image"]
        g = GraphModule(relay.build(mod, target="llvm", params=params)["default"](nestsmith.cpu()))
        g.run(image=x)
        np.testing.assert_allclose(g.get_output(0).numpy(), want, rtol=1e-5, atol=1e-6)


def several():
    """A functional model of two inputs that nobody has called, of which sizes are open."""
    k = keras.layers
    a, b = keras.Input((None, None, 3), name="image"), keras.Input((4,), name="more")
    norm = k.Normalization(axis=-1, mean=[0.5, 0.25, 0.75], variance=[1.5, 2.0, 0.5])  # which keeps these outside its variables
    y = k.GlobalAveragePooling2D()(k.Conv2DTranspose(4, 3, strides=2, padding="same")(norm(a)))
    return keras.Model({"image": a, "more": b}, [k.Dense(3)(k.Concatenate()([y, b])), k.Activation("gelu")(b)])


class Own(keras.Model):
    """A class of one's own; Keras knows its inputs once it was called."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return self.dense(x)


def test_models_that_nobody_has_called():
    model, shapes = several(), {"image": (2, 9, 8, 3), "more": (2, 4)}
    values = {k: np.random.default_rng(0).random(s, "float32") for k, s in shapes.items()}
    mod, params = relay.frontend.from_keras(model, shapes)
    g = GraphModule(relay.build(mod, target="llvm", params=params)["default"](nestsmith.cpu()))
    g.run(**values)
    for k, want in enumerate(model.predict(values, verbose=0)):
        np.testing.assert_allclose(g.get_output(k).numpy(), want, rtol=1e-5, atol=1e-6)


def test_a_class_of_ones_own():
    model = Own()
    with pytest.raises(ValueError, match="not yet been built"):
        relay.frontend.from_keras(model)
    x = np.random.default_rng(0).random((2, 5), "float32")
    want = keras.ops.convert_to_numpy(model(x))
    with pytest.raises(ValueError, match="give its sizes with shape={'args_0'"):
        relay.frontend.from_keras(model)
    mod, params = relay.frontend.from_keras(model, {"args_0": x.shape})
    g = GraphModule(relay.build(mod, target="llvm", params=params)["default"](nestsmith.cpu()))
    g.set_input(0, x)
    g.run()
    np.testing.assert_allclose(g.get_output(0).numpy(), want, rtol=1e-5, atol=1e-6)


def test_errors(model, tmp_path):
    with pytest.raises(TypeError, match="keras.Model"):
        relay.frontend.from_keras("model.h5")
    (tmp_path / "bad.pb").write_bytes(b"\xff\xff nonsense")
    with pytest.raises(ValueError, match="no frozen graph"):
        relay.frontend.from_tensorflow(tmp_path / "bad.pb")
    graph = frozen(model)[1]
    with pytest.raises(ValueError, match="outputs names 'nowhere'"):
        relay.frontend.from_tensorflow(graph, outputs=["nowhere"])
    with pytest.raises(ValueError, match="shape names 'data', but the model's inputs are image"):
        relay.frontend.from_tensorflow(graph, shape={"data": SHAPE})
