"""Models of Keras and TensorFlow, through the ONNX models that their own exporters make."""

import os
import tempfile

from .onnx import from_onnx

__all__ = ["from_keras", "from_tensorflow", "from_tflite", "from_mxnet"]


def from_keras(model, shape=None, layout="NCHW", *, freeze_params=True, check=False, limits=None):
    """A network from a model of Keras 3, through its ONNX export.

    Parameters
    ----------
    model : keras.Model
    shape : dict of str to tuple of int, optional
        Shapes of inputs whose sizes (the batch, mostly) the model leaves open.
    layout : str
        Taken for scripts that give it; the network has the layout of the model.
    freeze_params, check, limits
        As in :func:`from_onnx`.

    Returns
    -------
    mod : IRModule
    params : dict of str to numpy.ndarray

    Raises
    ------
    ImportError
        If Keras, or a package that its exporter needs, is missing.
    TypeError
        If `model` is none of Keras 3.
    """
    try:
        import keras
    except ImportError as e:
        raise ImportError("models of Keras are exported by Keras 3: pip install keras onnx tf2onnx") from e
    if not isinstance(model, keras.Model) or not hasattr(model, "export"):
        raise TypeError(f"model is {type(model).__name__}; it must be a keras.Model of Keras 3 or newer (this is {keras.__version__})")
    inputs = getattr(model, "inputs", None) or ()  # a class of the user's own may have none
    signature = _signature(keras, model, shape or {}) if inputs else None
    if inputs and keras.config.backend() == "tensorflow":
        return from_onnx(_frozen_keras(keras, model, signature), shape, freeze_params=freeze_params, check=check, limits=limits)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        try:
            model.export(path, format="onnx", verbose=False, input_signature=signature)
        except ImportError as e:
            raise ImportError(f"Keras exports ONNX models with onnx, and tf2onnx or torch by its backend: {e}") from e
        fixed = {i.name: tuple(i.shape) for i in inputs if None not in i.shape}
        return from_onnx(path, {**fixed, **(shape or {})}, freeze_params=freeze_params, check=check, limits=limits)


def _signature(keras, model, shape):
    """What Keras shall export a model for. Its own guess wants a model that was called before."""

    def spec(t):
        given = shape.get(t.name)
        return keras.InputSpec(dtype=t.dtype, shape=tuple(t.shape) if given is None else tuple(given), name=t.name)

    whole = isinstance(model, keras.Sequential)
    return [spec(t) for t in model.inputs] if whole else [keras.tree.map_structure(spec, model.input)]


def _frozen_keras(keras, model, signature):
    """The ONNX model of a Keras model whose backend is TensorFlow. Keras' own export leaves tensors that layers hold outside their
    variables (`Normalization`) as inputs; in a frozen graph they are constants."""
    tf, convert = _tensorflow()
    specs = keras.tree.map_structure(lambda s: tf.TensorSpec(s.shape, s.dtype, s.name), signature)
    f = tf.function(lambda *inputs: model(*inputs, training=False)).get_concrete_function(*specs)
    definition, inputs, outputs = _constants(tf, f)
    proto, _ = convert.from_graph_def(definition, input_names=inputs, output_names=outputs, opset=18)
    return _by_node(proto)


def from_tensorflow(graph, layout="NHWC", shape=None, outputs=None, convert_config=None, *, opset=18, freeze_params=True, check=False, limits=None):
    """A network from TensorFlow, through tf2onnx.

    Parameters
    ----------
    graph : GraphDef, str or os.PathLike
        A frozen graph, the file of one (``.pb``), or the folder of a SavedModel, of which the signature ``serving_default`` is taken.
    layout : str
        Taken for scripts that give it; the network has the layout of the model.
    shape : dict of str to tuple of int, optional
        Shapes of inputs that the graph leaves open.
    outputs : list of str, optional
        Names of a frozen graph's outputs; default: the nodes that nobody reads.
    convert_config : dict, optional
        Taken for scripts that give it.
    opset, freeze_params, check, limits
        The version that tf2onnx writes; the others as in :func:`from_onnx`.

    Returns
    -------
    mod : IRModule
    params : dict of str to numpy.ndarray

    Raises
    ------
    ImportError
        If TensorFlow or tf2onnx is missing.
    ValueError
        If the file or folder holds no such model.
    """
    tf, convert = _tensorflow()
    if isinstance(graph, (str, os.PathLike)):
        path = os.fspath(graph)
        definition, inputs, outputs = _saved_model(tf, path) if os.path.isdir(path) else _frozen(tf, _read(tf, path), outputs)
    else:
        definition, inputs, outputs = _frozen(tf, graph, outputs)
    proto, _ = convert.from_graph_def(definition, input_names=inputs, output_names=outputs, opset=opset,
                                      shape_override=_by_tensor(shape, inputs))  # fmt: skip
    return from_onnx(_by_node(proto), freeze_params=freeze_params, check=check, limits=limits)


def from_tflite(model, shape_dict=None, dtype_dict=None, *, opset=18, freeze_params=True, check=False, limits=None):
    """A network from a TFLite file, through tf2onnx.

    Parameters
    ----------
    model : str, os.PathLike or bytes
        The file, or what is in it.
    shape_dict : dict of str to tuple of int, optional
        Shapes of inputs that the file leaves open.
    dtype_dict : dict, optional
        Taken for scripts that give it; the file says the types.
    opset, freeze_params, check, limits
        As in :func:`from_tensorflow`.

    Returns
    -------
    mod : IRModule
    params : dict of str to numpy.ndarray

    Raises
    ------
    ImportError
        If TensorFlow or tf2onnx is missing.
    """
    _, convert = _tensorflow()
    if not isinstance(model, (bytes, bytearray)):
        proto, _ = convert.from_tflite(os.fspath(model), opset=opset)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.tflite")
            with open(path, "wb") as f:
                f.write(model)
            proto, _ = convert.from_tflite(path, opset=opset)
    return from_onnx(proto, shape_dict, freeze_params=freeze_params, check=check, limits=limits)


def from_mxnet(symbol, shape=None, dtype="float32", arg_params=None, aux_params=None):
    """MXNet is retired and not imported.

    Parameters
    ----------
    symbol, shape, dtype, arg_params, aux_params
        As in TVM.

    Raises
    ------
    NotImplementedError
        Always, with the way to go.
    """
    raise NotImplementedError("MXNet is retired, and nestsmith does not import its models. Export the model from MXNet "
                              "1.9 with mx.onnx.export_model(symbol, params, [shape], dtype, 'model.onnx') and read "
                              "the file with relay.frontend.from_onnx; networks of gluon's model zoo have the same "
                              "architectures in torchvision (relay.frontend.from_pytorch)")  # fmt: skip


def _tensorflow():
    try:
        import tensorflow as tf
        from tf2onnx import convert
    except ImportError as e:
        raise ImportError(f"models of TensorFlow are read by TensorFlow and tf2onnx: pip install tensorflow tf2onnx ({e})") from e
    return tf, convert


def _read(tf, path):
    definition = tf.compat.v1.GraphDef()
    with open(path, "rb") as f:
        text = f.read()
    try:
        definition.ParseFromString(text)
    except Exception as e:  # protobuf's own kind
        raise ValueError(f"{path} is no frozen graph of TensorFlow: {e}") from e
    return definition


def _frozen(tf, definition, outputs):
    """A graph definition with the names of its input and output tensors."""
    nodes = {n.name: n for n in definition.node}
    read = {i.split(":")[0].lstrip("^") for n in definition.node for i in n.input}
    inputs = [f"{n}:0" for n, node in nodes.items() if node.op == "Placeholder"]
    ends = outputs or [n for n, node in nodes.items() if n not in read and node.op not in ("Const", "NoOp", "Placeholder")]
    if not inputs or not ends:
        raise ValueError("the graph has no inputs (Placeholder) or no outputs; give a frozen graph, and names with outputs=[...]")
    missing = [n for n in ends if n.split(":")[0] not in nodes]
    if missing:
        raise ValueError(f"outputs names {missing[0]!r}, which is no node of the graph")
    return definition, inputs, [n if ":" in n else f"{n}:0" for n in ends]


def _saved_model(tf, path):
    loaded = tf.saved_model.load(path)
    if "serving_default" not in loaded.signatures:
        raise ValueError(f"{path} has the signatures {sorted(loaded.signatures)}; serving_default is needed")
    return _constants(tf, loaded.signatures["serving_default"])


def _constants(tf, f):
    """The frozen graph of a concrete function, with the names of its input and output tensors."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    f = convert_variables_to_constants_v2(f)
    inputs = [t.name for t in f.inputs if t.dtype != tf.resource]
    return f.graph.as_graph_def(), inputs, [t.name for t in f.outputs]


def _by_node(proto):
    """The model with its inputs under the names of nodes, as TensorFlow's users know them: ``x`` instead of ``x:0``."""
    names = {i.name: i.name.split(":")[0] for i in proto.graph.input}
    if len(set(names.values())) == len(names):
        for i in proto.graph.input:
            i.name = names[i.name]
        for node in proto.graph.node:
            for k, name in enumerate(node.input):
                node.input[k] = names.get(name, name)
    return proto


def _by_tensor(shape, inputs):
    """Shapes by the names of tensors; those of nodes are taken, too."""
    out = {}
    for name, dims in (shape or {}).items():
        tensor = name if ":" in name else f"{name}:0"
        if tensor not in inputs:
            raise ValueError(f"shape names {name!r}, but the model's inputs are {', '.join(i.split(':')[0] for i in inputs)}")
        out[tensor] = [int(d) for d in dims]
    return out or None
