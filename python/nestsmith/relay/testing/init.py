"""Parameter values of the test networks: reproducible, filled by the end of the parameter's name."""

import math

import numpy as np

from ... import nd
from ..module import IRModule
from ..transform import InferType

__all__ = ["create_workload", "Initializer", "Xavier", "HeNormal", "Constant"]


class Initializer:
    """Fills an array in place by the end of its name: weight, bias, gamma, beta, mean, var."""

    _FILL = {"bias": 0.0, "beta": 0.0, "mean": 0.0, "gamma": 1.0, "var": 1.0}

    def __call__(self, desc, arr):
        if desc.endswith("weight"):
            self._init_weight(desc, arr)
            return
        for end, value in self._FILL.items():
            if desc.endswith(end):
                arr[...] = value
                return
        raise ValueError(f"no rule for the parameter {desc!r}: its name must end with weight, bias, gamma, beta, mean "
                         "or var")  # fmt: skip

    def _init_weight(self, name, arr):
        raise NotImplementedError


class Xavier(Initializer):
    """Uniform in (-s, s), s from the mean of fan-in and fan-out, dimensions taken in stored order."""

    def __init__(self, rnd_type="uniform", factor_type="avg", magnitude=3):
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def _init_weight(self, name, arr):
        shape = arr.shape
        if len(shape) < 2:
            raise ValueError(f"weight {name!r} of shape {shape} needs at least two dimensions")
        hw = float(np.prod(shape[2:])) if len(shape) > 2 else 1.0
        fan_in, fan_out = shape[1] * hw, shape[0] * hw
        factors = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}
        s = math.sqrt(self.magnitude / (hw if "depthwise" in name else factors[self.factor_type]))
        arr[...] = np.random.uniform(-s, s, size=shape) if self.rnd_type == "uniform" else np.random.normal(0, s, size=shape)


class HeNormal(Initializer):
    """Normal with deviation sqrt(2 / fan-in), `kernel_layout` telling which dimension of a convolution's weight is the
    output (He et al. 2015). Activations keep their size through any depth, so the network's output shows wrong kernels;
    under Xavier it shrinks to nothing and softmax flattens the rest."""

    def __init__(self, kernel_layout="OIHW"):
        self.out_axis = kernel_layout.index("O")

    def _init_weight(self, name, arr):
        outputs = arr.shape[0] if arr.ndim == 2 else arr.shape[self.out_axis]
        arr[...] = np.random.normal(0, math.sqrt(2 * outputs / arr.size), size=arr.shape)


class Constant(Initializer):
    """Every weight element is 1 / number of elements."""

    def _init_weight(self, name, arr):
        arr[...] = 1.0 / arr.size


def create_workload(net, initializer=None, seed=0):
    """(module, parameters) of a function: types inferred, parameters (name -> array) filled with NumPy's generator
    seeded by `seed`."""
    mod = InferType()(IRModule.from_expr(net))
    np.random.seed(seed)
    initializer = initializer or Xavier()
    params = {}
    for p in mod["main"].params:
        if p.name_hint == "data":
            continue
        t = p.checked_type
        # NumPy has no bfloat16: such parameters come as float32, and binding them converts.
        value = np.zeros(t.concrete_shape, "float32" if t.dtype == "bfloat16" else t.dtype)
        initializer(p.name_hint, value)
        params[p.name_hint] = _array(value)
    return mod, params


def _array(value):
    return nd.array(value)
