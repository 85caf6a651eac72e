"""The ONNX standard's own tests of operators, each imported, built for the CPU and run. As a module: the tests and how one is run."""

import functools
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

import nestsmith
from nestsmith import relay
from nestsmith.contrib.graph_executor import GraphModule
from nestsmith.error import OpNotImplemented


@functools.cache
def cases():
    """(name, model as bytes, data sets, relative and absolute tolerance) of every test of operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    return [(c.name, c.model.SerializeToString(), c.data_sets, c.rtol, c.atol) for c in found]


def plain(x):
    """A test's value as an array; None if it is no tensor."""
    if isinstance(x, onnx.TensorProto):
        x = numpy_helper.to_array(x)
    return np.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else None


def run(case):
    """(name, operator, verdict): "ok", "refused: why" or "wrong: why"."""
    name, text, sets, rtol, atol = case
    model = onnx.load_model_from_string(text)
    op = model.graph.node[0].op_type
    try:
        for inputs, want in sets:
            inputs, want = ([plain(x) for x in v] for v in (inputs, want))
            if any(x is None for x in (*inputs, *want)):
                return name, op, "refused: sequences and optional values"
            shapes = {i.name: x.shape for i, x in zip(model.graph.input, inputs)}
            frozen = known_inputs(model, inputs)
            shapes = {k: v for k, v in shapes.items() if k in {i.name for i in frozen.graph.input}}
            mod, params = relay.frontend.from_onnx(frozen, shapes)
            with nestsmith.transform.PassContext(opt_level=1):
                lib = relay.build(mod, target="llvm", params=params)
            g = GraphModule(lib["default"](nestsmith.cpu()))
            for i, x in zip(model.graph.input, inputs):
                if i.name in shapes:
                    g.set_input(i.name, x)
            g.run()
            for k, w in enumerate(want):
                got = g.get_output(k).numpy()
                if got.dtype == "uint16" and w.dtype.name == "bfloat16":
                    got = got.view(w.dtype)
                if got.dtype != w.dtype:
                    return name, op, f"wrong: type {got.dtype}, not {w.dtype}"
                if got.shape != w.shape:
                    return name, op, f"wrong: shape {got.shape}, not {w.shape}"
                # the standard's tolerance is that of float32; numbers of 16 bits may be some of their own steps apart
                wide = max(rtol, {"float16": 2.0**-8, "bfloat16": 2.0**-5}.get(w.dtype.name, 0))
                if op == "DFT":  # what is 0 is 2e-7 in the standard's own result, beside 5: errors of sums follow their largest terms
                    atol = max(atol, 2.0**-23 * np.abs(w).max())
                np.testing.assert_allclose(got.astype("float64"), w.astype("float64"), rtol=wide, atol=atol)
        return name, op, "ok"
    except OpNotImplemented as e:
        return name, op, "refused: " + " ".join(str(e).splitlines()[:2])[:200]
    except AssertionError as e:
        return name, op, "wrong: " + " ".join(str(e).split())[:150]
    except Exception as e:
        return name, op, f"error: {type(e).__name__}: {str(e)[:200]}"


# Inputs that say how an operator works, not what it works on: shapes are fixed when a model is read, so that the test's value becomes
# a constant of the model, as exporters write it.
KNOWN = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 2, 3), "Resize": (1, 2, 3), "Upsample": (1,),
    "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "TopK": (1,), "OneHot": (1, 2), "Range": (0, 1, 2), "ConstantOfShape": (0,),
    "CumSum": (1,), "CumProd": (1,), "Trilu": (1,), "ReverseSequence": (1,), "Dropout": (1, 2), "CenterCropPad": (1,), "AffineGrid": (1,),
    "RNN": (4,), "LSTM": (4,), "GRU": (4,), "Clip": (), "BlackmanWindow": (0,), "HannWindow": (0,), "HammingWindow": (0,),
    "MelWeightMatrix": (0, 1, 2, 3, 4), "DFT": (1, 2), "STFT": (1, 3), "MaxUnpool": (2,), "Col2Im": (1, 2), "BitShift": (),
    "Loop": (0, 1), "Compress": (1,),
}  # fmt: skip


def known_inputs(model, inputs):
    """The model with what KNOWN names as its constants."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    g, known = copy.graph, set()
    names = [i.name for i in g.input]
    for node in g.node:
        places = KNOWN.get(node.op_type, ())
        if node.op_type.startswith("Reduce"):
            places = (1,)
        known |= {x for k, x in enumerate(node.input) if k in places and x in names}
    for x in known:
        k = names.index(x)
        g.initializer.append(numpy_helper.from_array(inputs[k], x))
    keep = [i for i in g.input if i.name not in known]
    del g.input[:]
    g.input.extend(keep)
    return copy


