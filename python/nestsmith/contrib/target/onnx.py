"""Export of relay networks to ONNX.

The exported model computes the same function with an implementation that is independent of ours (for example onnxruntime),
which is how the demo checks a compiled network. Convolutions and pools in NHWC are exported as NCHW between transpositions,
because ONNX knows no other layout.
"""

import numpy as np

from ... import relay
from ...relay.expr import Call, Constant, Function, TupleGetItem, Var, post_order
from ...relay.transform.basic import warn_of_unmatched

_OPSET = 17
_UNARY = {"nn.relu": "Relu", "exp": "Exp", "sqrt": "Sqrt", "tanh": "Tanh", "sigmoid": "Sigmoid", "negative": "Neg", "log": "Log"}
_BINARY = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min"}


class _Exporter:
    def __init__(self, params):
        import onnx

        self.onnx, self.helper = onnx, onnx.helper
        self.params = {k: np.asarray(v.numpy() if hasattr(v, "numpy") else v) for k, v in params.items()}
        self.nodes, self.initializers, self.name = [], [], {}

    def fresh(self, base):
        return f"{base}_{len(self.nodes)}_{len(self.initializers)}"

    def emit(self, op, inputs, outputs=1, **attrs):
        names = [self.fresh(op.lower()) + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(self.helper.make_node(op, inputs, names, **attrs))
        return names[0]

    def constant(self, array, base="const"):
        name = self.fresh(base)
        self.initializers.append(self.onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def transpose(self, x, perm):
        return x if list(perm) == sorted(perm) else self.emit("Transpose", [x], perm=list(perm))

    def in_nchw(self, x, layout, body):
        """Runs `body` on x in NCHW and brings the result back."""
        if layout == "NCHW":
            return body(x)
        if layout != "NHWC":
            raise ValueError(f"layout {layout!r} cannot be exported; convert the network to NCHW or NHWC first")
        return self.transpose(body(self.transpose(x, (0, 3, 1, 2))), (0, 2, 3, 1))

    def call(self, e, args):
        op, a = e.op_name, e.attrs
        if op in _UNARY or op in _BINARY:
            return self.emit(_UNARY.get(op) or _BINARY[op], args)
        if op not in _RULES:
            raise ValueError(f"operator {op!r} has no ONNX export; supported: {', '.join(supported())}")
        return _RULES[op](self, e, a, *args)

    def conv2d(self, e, a, x, w):
        layouts = {"OIHW": (0, 1, 2, 3), "HWIO": (3, 2, 0, 1)}
        if a.kernel_layout not in layouts:
            raise ValueError(f"kernel layout {a.kernel_layout!r} cannot be exported; use OIHW or HWIO")
        w = self.transpose(w, layouts[a.kernel_layout])
        attrs = {"strides": list(a.strides), "pads": list(a.padding), "dilations": list(a.dilation), "group": int(a.groups)}
        return self.in_nchw(x, a.data_layout, lambda y: self.emit("Conv", [y, w], **attrs))

    def batch_norm(self, e, a, x, gamma, beta, mean, var):
        t = e.args[0].checked_type
        rank, axis = len(t.shape), a.axis % len(t.shape)
        shape = [1] * rank
        shape[axis] = int(t.shape[axis])
        shape_name = self.constant(np.array(shape, np.int64))
        g, b, m, v = (self.emit("Reshape", [p, shape_name]) for p in (gamma, beta, mean, var))
        eps = self.constant(np.array(a.epsilon, t.dtype))
        y = self.emit("Div", [self.emit("Sub", [x, m]), self.emit("Sqrt", [self.emit("Add", [v, eps])])])
        if a.get("scale", True):
            y = self.emit("Mul", [y, g])
        return self.emit("Add", [y, b]) if a.get("center", True) else y

    def bias_add(self, e, a, x, b):
        rank = len(e.args[0].checked_type.shape)
        shape = [1] * rank
        shape[a.axis % rank] = -1
        return self.emit("Add", [x, self.emit("Reshape", [b, self.constant(np.array(shape, np.int64))])])

    def pool(self, name, a, x, **more):
        attrs = {"kernel_shape": list(a.pool_size), "strides": list(a.strides), "pads": list(a.padding),
                 "ceil_mode": int(a.get("ceil_mode", False)), **more}
        return self.in_nchw(x, a.layout, lambda y: self.emit(name, [y], **attrs))

    def transposition(self, e, a, x):
        axes = a.get("axes") or range(len(e.args[0].checked_type.shape))[::-1]
        return self.transpose(x, [int(i) for i in axes])


# operator -> how it is exported: (exporter, call, its attributes, *names of its arguments) to the name of its result
_RULES = {
    "nn.conv2d": _Exporter.conv2d, "nn.batch_norm": _Exporter.batch_norm, "nn.bias_add": _Exporter.bias_add,
    "transpose": _Exporter.transposition,
    "nn.max_pool2d": lambda s, e, a, x: s.pool("MaxPool", a, x),
    "nn.avg_pool2d": lambda s, e, a, x: s.pool("AveragePool", a, x, count_include_pad=int(a.get("count_include_pad", False))),
    "nn.global_avg_pool2d": lambda s, e, a, x: s.in_nchw(x, a.layout, lambda y: s.emit("GlobalAveragePool", [y])),
    "nn.batch_flatten": lambda s, e, a, x: s.emit("Flatten", [x], axis=1),
    "nn.dense": lambda s, e, a, x, w: s.emit("Gemm", [x, w], transB=1),
    "nn.softmax": lambda s, e, a, x: s.emit("Softmax", [x], axis=int(a.axis)),
    "nn.dropout": lambda s, e, a, x: x,
    "concatenate": lambda s, e, a, *xs: s.emit("Concat", list(xs), axis=int(a.axis)),
    "reshape": lambda s, e, a, x: s.emit("Reshape", [x, s.constant(np.array(list(map(int, e.checked_type.shape)), np.int64))]),
}


def supported():
    """Names of the operators that can be exported, sorted."""
    return sorted([*_UNARY, *_BINARY, *_RULES])


def to_onnx(mod, params, name="main", path=None):
    """The function `name` of `mod` as an ONNX model.

    Parameters
    ----------
    mod : IRModule or relay.Function
    params : dict of str to array
        Values of the parameters; they become initializers. The other variables are the model's inputs.
    name : str
        Function to export.
    path : str, optional
        Where to save the model.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ValueError
        An operator or layout without an export; the message names it.
    """
    func = mod if isinstance(mod, Function) else mod[name]
    x = _Exporter(params or {})
    warn_of_unmatched(x.params, [p.name_hint for p in func.params])
    inputs = []
    for e in post_order(func.body):
        if isinstance(e, Var):
            x.name[id(e)] = e.name_hint
            if e.name_hint in x.params:
                x.initializers.append(x.onnx.numpy_helper.from_array(np.asarray(x.params[e.name_hint], order="C"), e.name_hint))
            else:
                t = e.checked_type
                kind = x.helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype))
                inputs.append(x.helper.make_tensor_value_info(e.name_hint, kind, [int(d) for d in t.shape]))
        elif isinstance(e, Constant):
            x.name[id(e)] = x.constant(e.data)
        elif isinstance(e, Call):
            args = []
            for a in e.args:
                fields = a.fields if isinstance(a, relay.Tuple) else [a]
                args += [x.name[id(f)] for f in fields]
            x.name[id(e)] = x.call(e, args)
        elif isinstance(e, TupleGetItem):
            if e.index != 0:
                raise ValueError(f"field {e.index} of {e.tuple_value!r} has no ONNX export; only the first result is kept")
            x.name[id(e)] = x.name[id(e.tuple_value)]
        elif not isinstance(e, relay.Tuple):
            raise ValueError(f"{type(e).__name__} has no ONNX export")
    out = func.body.checked_type
    kind = x.helper.np_dtype_to_tensor_dtype(np.dtype(out.dtype))
    result = x.helper.make_tensor_value_info("output", kind, [int(d) for d in out.shape])
    x.nodes.append(x.helper.make_node("Identity", [x.name[id(func.body)]], ["output"]))
    graph = x.helper.make_graph(x.nodes, name, inputs, [result], x.initializers)
    model = x.helper.make_model(graph, opset_imports=[x.helper.make_opsetid("", _OPSET)], ir_version=8)
    x.onnx.checker.check_model(model)
    if path is not None:
        x.onnx.save(model, str(path))
    return model
