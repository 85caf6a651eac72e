"""What is tried of ONNX: the operators on the inputs of the standard's own tests, with numbers that programs get wrong, against onnxruntime
and, where that has no such operator, the standard's evaluator; in float64 by that evaluator."""

import collections
import random
import warnings
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
import torch
from onnx_node_tests import cases as node_tests, known_inputs, plain
from sweep_cases import fill, silent
from sweep_exact import EXACT_ONNX
from sweep_values import TYPES

from nestsmith import relay
from nestsmith.error import OpNotImplemented


@dataclass
class OnnxCase:
    """A model of one operator; what it knows of its inputs is a constant of it."""

    name: str
    kind: str
    model: object
    together: bool = True
    fills: list = field(default_factory=list)  # (name, tensors)
    mod: object = None
    params: dict = None
    session: object = None
    outputs: int = 0

    def __str__(self):
        return f"onnx.{self.name}[{self.kind}]"

    def __post_init__(self):
        self.names = [i.name for i in self.model.graph.input]
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        try:
            self.session = onnxruntime.InferenceSession(self.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:
            self.session = None

    def run(self, tensors):
        feeds = {n: t.numpy() for n, t in zip(self.names, tensors)}
        self._refuse(self.model.graph.node[0].op_type, tensors)
        if self.session:
            found = self.session.run(None, feeds)
        else:  # the evaluator computes in float64 where a number of its own is one
            types = (onnx.helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type) for o in self.model.graph.output)
            found = [np.asarray(x).astype(t, copy=False) for x, t in zip(self._evaluated(feeds), types)]
        return tuple(torch.from_numpy(np.array(x)) for x in found)

    @staticmethod
    def _refuse(op, tensors):
        """Errors where the standard says nothing: onnxruntime and the evaluator give anything, or end."""
        if op in ("Div", "Mod") and not tensors[1].is_floating_point() and bool((tensors[1] == 0).any()):
            raise ZeroDivisionError("integer division by zero")
        if op == "RoiAlign" and bool(((tensors[2] < 0) | (tensors[2] >= len(tensors[0]))).any()):
            raise IndexError("a region of an image that is not there")

    def taken_apart(self, tensors):
        """The standard's evaluator has a say beside onnxruntime."""
        feeds = {n: t.numpy() for n, t in zip(self.names, tensors)}
        try:
            return tuple(torch.from_numpy(np.array(x)) for x in self._evaluated(feeds))
        except Exception:
            return None

    def script(self, tensors):
        """A program that shows a case by itself."""
        text = lambda t: f"np.array({t.flatten().tolist()!r}, {str(t.dtype)[6:]!r}).reshape({tuple(t.shape)})"  # noqa: E731
        feeds = ", ".join(f"{n!r}: {text(t)}" for n, t in zip(self.names, tensors))
        lines = ["import numpy as np, onnx, onnxruntime, nestsmith", "from numpy import inf, nan"]
        lines += [f"model = {self.model.SerializeToString()!r}", f"feeds = {{{feeds}}}"]
        lines += ["print(onnxruntime.InferenceSession(model).run(None, feeds))"]
        return "\n".join([*lines, "print(nestsmith.compile(model, feeds, target='llvm', guess=False)(**feeds))"])

    def _evaluated(self, feeds):
        from onnx.reference import ReferenceEvaluator

        with np.errstate(all="ignore"):
            return ReferenceEvaluator(self.model).run(None, feeds)

    def wide(self, tensors):
        if self.name.split(".")[0] in EXACT_ONNX:
            return (EXACT_ONNX[self.name.split(".")[0]](self.model.graph.node[0], *(t.double() for t in tensors)),)
        feeds = {n: t.double().numpy() if t.dtype.is_floating_point else t.numpy() for n, t in zip(self.names, tensors)}
        try:
            return tuple(torch.from_numpy(np.array(x)) for x in self._evaluated(feeds))
        except Exception:
            return None


def operators():
    """{operator: its tests}, without those that are the standard's definitions by other operators."""
    found = collections.defaultdict(list)
    for name, text, sets, _, _ in node_tests():
        if "_expanded" in name or not sets:
            continue
        model = onnx.load_model_from_string(text)
        inputs = [plain(x) for x in sets[0][0]]
        wants = [plain(x) for x in sets[0][1]]
        if len(model.graph.node) == 1 and all(x is not None and str(x.dtype) in TYPES and x.dtype.kind in "fiub" for x in (*inputs, *wants)):
            found[model.graph.node[0].op_type].append((name, model, inputs))
    return dict(sorted(found.items()))


def made(name, tests, seed, most):
    """Cases of an operator, and why there are none."""
    found, refused = [], []
    chosen = random.Random(seed).sample(tests, min(most, len(tests)))
    for test, model, inputs in chosen:
        frozen = known_inputs(model, inputs)
        names = [i.name for i in frozen.graph.input]
        given = [torch.from_numpy(np.array(x)) for i, x in zip(model.graph.input, inputs) if i.name in names]
        if not given:
            continue
        kind = next((k for k, t in TYPES.items() for x in given if x.dtype == t), None)
        case = OnnxCase(f"{name}.{test.removeprefix('test_')}", kind, frozen)
        with silent(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                case.run(given)
                case.mod, case.params = relay.frontend.from_onnx(frozen, {n: tuple(t.shape) for n, t in zip(names, given)})
            except OpNotImplemented as e:
                refused.append(" ".join(str(e).split())[:160])
                continue
            except Exception as e:
                refused.append(f"{type(e).__name__}: {e}")
                continue
        case.fills = fill(str(case), kind, given, seed)
        if "Quantize" in name or "QLinear" in name:  # scales are positive numbers
            scales = [i for i, n in enumerate(names) if "scale" in n]
            case.fills = [(f, [given[i] if i in scales else t for i, t in enumerate(ts)]) for f, ts in case.fills]
        found.append(case)
    return found, refused
