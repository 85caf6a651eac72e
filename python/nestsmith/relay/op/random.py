"""Random numbers from a generator that is a value of the network: see :mod:`nestsmith.topi.random`."""

import numpy as np

from ... import check, topi
from ..expr import TupleWrapper, const
from ..ty import TensorType, TupleType
from .registry import NEVER, OPAQUE, as_expr, call, register, tensor

__all__ = ["multinomial", "normal", "threefry_generate", "threefry_key", "threefry_split", "uniform"]

_KEY = TensorType((10,), "uint64")


def _checked(types):
    found = tensor(types, 0)
    if tuple(found.shape) != (10,) or found.dtype != "uint64":
        raise ValueError(f"a generator is uint64 [10], as threefry_key makes it, not {found}")
    return found


def _register(name, result, loops):
    def infer(attrs, types):
        _checked(types)
        return TupleType([_KEY, result(attrs, types)])

    register(name, OPAQUE, infer, colour=NEVER, loops=lambda a, x, c, t: list(loops(a, x)))


_register("random.threefry_generate", lambda a, t: TensorType(a.shape, "uint64"), lambda a, x: topi.random.threefry_generate(x[0], a.shape))
_register("random.threefry_split", lambda a, t: _KEY, lambda a, x: topi.random.threefry_split(x[0]))
_register("random.uniform", lambda a, t: TensorType(a.shape, a.dtype), lambda a, x: topi.random.uniform(x[0], x[1], x[2], a.shape, a.dtype))
_register("random.normal", lambda a, t: TensorType(a.shape, a.dtype), lambda a, x: topi.random.normal(x[0], x[1], x[2], a.shape, a.dtype))
_register("random.multinomial", lambda a, t: TensorType((*tensor(t, 1).shape[:-1], a.num_samples), "int32"),
          lambda a, x: topi.random.multinomial(x[0], x[1], a.num_samples))  # fmt: skip


def threefry_key(seed):
    """A generator, a constant, that is made of a number: the beginning of all."""
    return const(np.array([0, 0, 0, check.integer("seed", seed), 0, 0, 0, 0, 1 << 63, 0], "uint64"))


def _scalar(x, dtype):
    return as_expr(x) if not isinstance(x, (int, float)) else const(np.asarray(x, dtype))


def _two(name, args, **attrs):
    return TupleWrapper(call(f"random.{name}", args, **attrs), 2)


def threefry_generate(key, shape):
    """(the generator for what is drawn next, random uint64 of a shape)."""
    return _two("threefry_generate", [key], shape=tuple(map(int, shape)))


def threefry_split(key):
    """Two generators whose numbers have nothing to do with each other; `key` is not to be used any more."""
    return _two("threefry_split", [key])


def uniform(key, shape, dtype="float32", low=0.0, high=1.0):
    """(the generator for what is drawn next, numbers from `low` to below `high`, all equally likely)."""
    return _two("uniform", [key, _scalar(low, dtype), _scalar(high, dtype)], shape=tuple(map(int, shape)), dtype=dtype)


def normal(key, shape, dtype="float32", mean=0.0, scale=1.0):
    """(the generator for what is drawn next, numbers of a normal distribution)."""
    return _two("normal", [key, _scalar(mean, dtype), _scalar(scale, dtype)], shape=tuple(map(int, shape)), dtype=dtype)


def multinomial(key, probs, num_samples):
    """(the generator for what is drawn next, int32 [..., num_samples]: classes, each as likely as its weight in the last axis of `probs`)."""
    return _two("multinomial", [key, probs], num_samples=check.integer("num_samples", num_samples))
