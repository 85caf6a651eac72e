"""Element-wise and broadcasting operators, comparisons, constants and casts."""

import math
import typing

import numpy as np

from ... import topi
from ...numerics import clip_bounds, is_float, to_tf32
from ..expr import Constant, Expr, const
from ..ty import Any, TensorType
from .layout import broadcast
from .registry import BROADCAST, ELEMWISE, FOLLOW, NEVER, OPAQUE, as_expr, call, ints, register, tensor

__all__ = ["cast", "where", "full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "clip", "copy", "shape_of", "arange"]

if typing.TYPE_CHECKING:

    def __getattr__(name): ...  # builders are made from tables


def broadcast_shape(a, b):
    """NumPy broadcasting of two shapes; ValueError if they do not fit."""
    out = []
    for i in range(max(len(a), len(b))):
        x = a[len(a) - 1 - i] if i < len(a) else 1
        y = b[len(b) - 1 - i] if i < len(b) else 1
        if x == y or y == 1:
            out.append(x)
        elif x == 1:
            out.append(y)
        elif isinstance(x, Any) or isinstance(y, Any):
            out.append(y if isinstance(x, Any) else x)
        else:
            raise ValueError(f"shapes {tuple(a)} and {tuple(b)} do not broadcast")
    return tuple(reversed(out))


# Operators of truth values alone, of integers and truth values, and of numbers alone; those of floats follow below.
_LOGICAL = {"logical_and", "logical_or", "logical_xor", "logical_not", "all", "any"}
_INTEGRAL = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift"}
_NUMERIC = {"subtract", "divide", "power", "floor_divide", "mod", "floor_mod", "left_shift", "right_shift", "negative",
            "abs", "sign"}  # fmt: skip


def check_type(name, dtype):
    """Raises ValueError if an operator does not take this element type: the build would fail, after the tuning."""
    if name == "round_tf32" and dtype != "float32":
        raise ValueError(f"{name} takes float32, not {dtype}; use relay.cast")
    if name in _REAL and not is_float(dtype):
        raise ValueError(f"{name} takes floats, not {dtype}; use relay.cast")
    if name in _INTEGRAL and is_float(dtype):
        raise ValueError(f"{name} takes integers, not {dtype}; use relay.cast")
    if name in _LOGICAL and dtype != "bool":
        raise ValueError(f"{name} takes bool, not {dtype}; compare with 0 first, or use the bitwise operator")
    if name in _NUMERIC and dtype == "bool":
        raise ValueError(f"{name} takes numbers, not bool; use relay.cast or a logical operator")


def _binary_infer(name, result=None):
    def infer(attrs, types):
        a, b = tensor(types, 0), tensor(types, 1)
        if a.dtype != b.dtype:
            raise ValueError(f"element types differ: {a.dtype} and {b.dtype}; use relay.cast")
        check_type(name, a.dtype)
        return TensorType(broadcast_shape(a.shape, b.shape), result or a.dtype)

    return infer


def np_divide(a, b):
    """The quotient of arrays of one type; of integers rounded toward zero, exact at 64 bits too."""
    if np.issubdtype(a.dtype, np.floating):
        return a / b
    q = a // b
    return q + ((q * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def _floor_mod(a, b):
    """As compiled: the exact remainder with the sign of the divisor; a remainder of 0 keeps the sign of the dividend, as in PyTorch."""
    if not np.issubdtype(a.dtype, np.floating):
        return np.mod(a, b)
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def _of_numpy(names):
    return {name: getattr(np, name) for name in names.split()}


BINARY = {**_of_numpy("add subtract multiply power maximum minimum floor_divide hypot copysign left_shift right_shift logical_and logical_or "
                      "logical_xor bitwise_and bitwise_or bitwise_xor"),
          "divide": np_divide, "mod": np.fmod, "floor_mod": _floor_mod, "atan2": np.arctan2}  # fmt: skip
COMPARE = _of_numpy("equal not_equal less less_equal greater greater_equal")


def _same(attrs, types):
    return tensor(types, 0)


_erf, _erfc = (np.vectorize(f, otypes=[np.float64]) for f in (math.erf, math.erfc))


def _np_sigmoid(x):
    return (1 / (1 + np.exp(-x))).astype(x.dtype)


UNARY = {
    **_of_numpy("exp exp2 expm1 log log1p log2 log10 sqrt tanh negative abs floor ceil round trunc sin cos tan sinh cosh logical_not"),
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": _np_sigmoid, "erf": _erf, "erfc": _erfc, "round_tf32": to_tf32, "bitwise_not": np.invert,
    "sign": lambda x: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype),  # of not-a-number 0, as compiled and in PyTorch
}  # fmt: skip
_FAST = {"fast_exp": np.exp, "fast_tanh": np.tanh, "fast_erf": _erf}
_OF_INTEGERS_TOO = {"negative", "abs", "floor", "ceil", "round", "trunc", "sign", "logical_not", "bitwise_not"}
_REAL = {"power", "atan2", "hypot", "copysign", *_FAST, *UNARY} - _OF_INTEGERS_TOO
_EXACT_OR_BOUNDED = {"sqrt", "rsqrt", "tanh", "sigmoid", "fast_tanh", "atan2", "copysign"}
_UNARY_DOC = "``{0}(data)``: element-wise {0}; shape and element type of the argument."


def _colour(name):
    """Functions of floats that grow or cancel soon leave the range of float16, or its digits."""
    return NEVER if name in _REAL - _EXACT_OR_BOUNDED else FOLLOW


_QUOTIENTS = ("divide", "floor_divide", "mod", "floor_mod")


def _wide(x, name=""):
    """Float16 as float32, in which programs compute: a function of several steps rounds once. For functions whose results round,
    float32 as float64: NumPy's are off by up to 3 units."""
    if name in _REAL - {"sqrt"} and x.dtype in (np.float16, np.float32):
        return x.astype("float64")
    return x.astype("float32") if x.dtype == np.float16 else x


def _make_binary(name, fn, result=None):
    def ev(attrs, a, b):
        if name in _QUOTIENTS and b.dtype.kind in "iu" and not b.all():
            raise NotImplementedError  # not folded: it is an error, which the run raises
        with np.errstate(all="ignore"):
            return np.asarray(fn(_wide(a, name), _wide(b, name))).astype(result or a.dtype)

    f = getattr(topi, name)
    register(name, BROADCAST, _binary_infer(name, result), ev, layout=broadcast, colour=_colour(name),
             loops=lambda a, x, c, t: f(x[0], x[1]))  # fmt: skip

    def build(lhs, rhs):
        return call(name, [as_expr(lhs), as_expr(rhs)])

    return topi.util.named(build, name, f"``{name}(lhs, rhs)`` with NumPy broadcasting; both arguments have one element type.")


def _make_unary(name, fn):
    def ev(attrs, x):
        with np.errstate(all="ignore"):
            return np.asarray(fn(_wide(x, name))).astype(x.dtype)

    def infer(attrs, types):
        t = tensor(types, 0)
        check_type(name, t.dtype)
        return t

    f = getattr(topi, name.removeprefix("fast_"))
    register(name, ELEMWISE, infer, ev, colour=_colour(name), loops=lambda a, x, c, t: f(x[0]))

    def build(data):
        return call(name, [as_expr(data)])

    return topi.util.named(build, name, _UNARY_DOC.format(name))


for _n, _f in BINARY.items():
    globals()[_n] = _make_binary(_n, _f)
for _n, _f in COMPARE.items():
    globals()[_n] = _make_binary(_n, _f, "bool")
for _n, _f in UNARY.items():
    globals()[_n] = _make_unary(_n, _f)
__all__ += [*BINARY, *COMPARE, *UNARY]
for _n, _f in _FAST.items():
    globals()[_n] = _make_unary(_n, _f)
    __all__.append(_n)

register("copy", ELEMWISE, _same, lambda attrs, x: x.copy(), loops=lambda a, x, c, t: topi.identity(x[0]))
register("clip", ELEMWISE, _same, lambda attrs, x: np.clip(x, *clip_bounds(attrs.a_min, attrs.a_max, str(x.dtype))),
         loops=lambda a, x, c, t: topi.clip(x[0], a.a_min, a.a_max))  # fmt: skip
register("cast", ELEMWISE, lambda attrs, types: TensorType(tensor(types, 0).shape, attrs.dtype),
         lambda attrs, x: x.astype(attrs.dtype), loops=lambda a, x, c, t: topi.cast(x[0], a.dtype))  # fmt: skip


def copy(data):
    """A copy of the tensor."""
    return call("copy", [data])


def clip(data, a_min, a_max):
    """Element-wise ``max(min(data, a_max), a_min)``."""
    return call("clip", [data], a_min=float(a_min), a_max=float(a_max))


def cast(data, dtype):
    """Converts the element type."""
    return call("cast", [data], dtype=str(dtype))


def _where_infer(attrs, types):
    c, a, b = (tensor(types, i) for i in range(3))
    if a.dtype != b.dtype:
        raise ValueError(f"element types differ: {a.dtype} and {b.dtype}")
    return TensorType(broadcast_shape(broadcast_shape(a.shape, b.shape), c.shape), a.dtype)


register("where", BROADCAST, _where_infer, lambda attrs, c, a, b: np.where(c, a, b), layout=broadcast,
         loops=lambda a, x, c, t: topi.where(*x))  # fmt: skip


def where(condition, x, y):
    """`x` where `condition` is true, else `y`, with broadcasting."""
    return call("where", [condition, x, y])


def _full_loops(a, x, c, t):
    value = x[-1]
    shape = a.shape if "shape" in a else x[0].shape
    return topi.broadcast_to(topi.cast(value, c.checked_type.dtype), shape)


register("full", ELEMWISE, lambda attrs, types: TensorType(attrs.shape, attrs.dtype or tensor(types, 0).dtype),
         lambda attrs, v: np.full(attrs.shape, v, attrs.dtype or v.dtype), loops=_full_loops, ranked=False)  # fmt: skip
register("full_like", ELEMWISE, _same, lambda attrs, x, v: np.full_like(x, v), loops=_full_loops)
for _name, _value in (("zeros", 0), ("ones", 1)):
    register(_name, ELEMWISE, lambda attrs, types: TensorType(attrs.shape, attrs.dtype),
             lambda attrs, value=_value: np.full(attrs.shape, value, attrs.dtype),
             loops=lambda a, x, c, t, name=_name: getattr(topi, name)(a.shape, a.dtype), ranked=False)  # fmt: skip
    register(f"{_name}_like", ELEMWISE, _same, lambda attrs, x, value=_value: np.full_like(x, value),
             loops=lambda a, x, c, t, value=_value: topi.full_like(x[0], value))  # fmt: skip


def full(fill_value, shape=(), dtype=""):
    """A tensor of `shape` filled with the scalar `fill_value`."""
    if not isinstance(fill_value, Expr):
        fill_value = const(fill_value, dtype or None)
    return call("full", [fill_value], shape=ints(shape), dtype=dtype)


def zeros(shape, dtype):
    """Zeros of the given shape and element type."""
    return call("zeros", [], shape=ints(shape), dtype=dtype)


def ones(shape, dtype):
    """Ones of the given shape and element type."""
    return call("ones", [], shape=ints(shape), dtype=dtype)


def full_like(data, fill_value):
    """A tensor like `data` filled with a scalar."""
    return call("full_like", [data, as_expr(fill_value)])


def zeros_like(data):
    """Zeros like `data`."""
    return call("zeros_like", [data])


def ones_like(data):
    """Ones like `data`."""
    return call("ones_like", [data])


register("shape_of", OPAQUE, lambda attrs, types: TensorType((len(tensor(types, 0).shape),), attrs.dtype),
         colour=FOLLOW, loops=lambda a, x, c, t: topi.shape(x[0], a.dtype), ranked=False)  # fmt: skip


def shape_of(data, dtype="int32"):
    """The shape of `data` as a rank-1 integer tensor."""
    return call("shape_of", [data], dtype=dtype)


def arange(start, stop=None, step=None, dtype="float32"):
    """Evenly spaced values. All bounds must be numbers (or constants), so the result is a constant."""
    vals = [start, stop, step]
    if any(isinstance(v, Expr) and not isinstance(v, Constant) for v in vals):
        raise ValueError("arange with bounds computed at run time is not supported")
    start, stop, step = (v.data.item() if isinstance(v, Constant) else v for v in vals)
    if stop is None:
        start, stop = 0, start
    return const(np.arange(start, stop, 1 if step is None else step, dtype=dtype))
