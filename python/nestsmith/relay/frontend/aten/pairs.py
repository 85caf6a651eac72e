"""Complex tensors: pairs of a real and an imaginary part, each an expression. A network has real inputs and outputs; between them an
operator on complex tensors becomes operators on their parts.

Converters of this table get what those of ``ATEN`` get, with a :class:`Pair` where PyTorch has a complex tensor.
"""

import math

import numpy as np

from ....error import OpNotImplemented
from ....numerics import is_float
from ... import op as relay
from ...expr import Expr
from .. import common as c, spectrum
from ..values import array, dtype_of, rank_of, shape_of
from .promotion import result_type
from .table import ATEN, aten

__all__ = ["PAIRS", "Pair"]


class Pair:
    """A complex tensor: expressions of one shape and one type."""

    __slots__ = ("re", "im")

    def __init__(self, re, im):
        self.re, self.im = re, im


PAIRS: dict = {}


def pairs(*names):
    def add(f):
        PAIRS.update({f"aten::{n}": f for n in names})
        return f

    return add


def made(*names):
    """Of real tensors a complex one: rows of both tables."""

    def add(f):
        return pairs(*names)(aten(*names)(f))

    return add


def _whole(x):
    return Pair(x, relay.zeros_like(x))


def _part(v, name):
    """An argument with `name`, "re" or "im", of all pairs in it."""
    if isinstance(v, Pair):
        return getattr(v, name)
    return [_part(w, name) for w in v] if isinstance(v, (list, tuple)) else v


def _joined(re, im):
    if isinstance(re, Expr):
        return Pair(re, im)
    return [_joined(a, b) for a, b in zip(re, im)]


def _operands(*values):
    """Tensors and numbers as pairs of one type."""
    tensors = [v.re if isinstance(v, Pair) else v for v in values if isinstance(v, (Pair, Expr))]
    kind = result_type([*tensors, *(abs(v) if isinstance(v, complex) else v for v in values if not isinstance(v, (Pair, Expr)))])
    kind = kind if is_float(kind) else "float32"
    out = []
    for v in values:
        if isinstance(v, Pair):
            out.append(Pair(c.as_dtype(v.re, kind), c.as_dtype(v.im, kind)))
        elif isinstance(v, Expr):
            out.append(Pair(c.as_dtype(v, kind), None))
        else:
            v = complex(v)
            out.append(Pair(array(v.real, kind), array(v.imag, kind) if v.imag else None))
    return out


def _full(re, im, like=None):
    """A pair whose parts have one shape; an imaginary part that is None is 0."""
    shape = np.broadcast_shapes(shape_of(re), () if im is None else shape_of(im), () if like is None else like)
    re = c.expand(re, shape)
    return Pair(re, relay.zeros_like(re) if im is None else c.expand(im, shape))


# ---- the way in and out ----


@made("view_as_complex")
def _view_as_complex(x):
    last = rank_of(x) - 1
    return Pair(*(c.element(x, last, k) for k in (0, 1)))


@made("complex")
def _complex(re, im):
    return _full(re, im)


@made("polar")
def _polar(size, angle):
    return _full(relay.multiply(size, relay.cos(angle)), relay.multiply(size, relay.sin(angle)))


pairs("view_as_real", "_view_as_real_physical")(lambda x: relay.stack([x.re, x.im], rank_of(x.re)))
pairs("real")(lambda x: x.re)
pairs("imag")(lambda x: x.im)
pairs("_conj", "_conj_physical", "conj_physical", "conj")(lambda x: Pair(x.re, relay.negative(x.im)))
pairs("resolve_conj", "resolve_neg", "_neg_view", "positive")(lambda x: x)
PAIRS["aten::_neg_view"] = lambda x: Pair(relay.negative(x.re), relay.negative(x.im))
for _n in ("real", "conj_physical", "_conj", "resolve_conj", "resolve_neg", "_conj_physical"):
    aten(_n)(lambda x: x)
pairs("abs")(lambda x: relay.hypot(x.re, x.im))
pairs("angle")(lambda x: relay.atan2(x.im, x.re))
pairs("isnan")(lambda x: relay.logical_or(relay.not_equal(x.re, x.re), relay.not_equal(x.im, x.im)))
pairs("neg")(lambda x: Pair(relay.negative(x.re), relay.negative(x.im)))


@pairs("to.dtype", "_to_copy", "to.dtype_layout", "to.device")
def _to(x, *args, dtype=None, **_):
    dtype = next((a for a in args if isinstance(a, str)), dtype)
    if dtype is None:
        return x
    if dtype not in _PARTS:
        return c.cast(x.re, dtype)  # PyTorch drops what is imaginary, too
    return Pair(*(c.as_dtype(v, _PARTS[dtype]) for v in ((x.re, x.im) if isinstance(x, Pair) else (x, relay.zeros_like(x)))))


_PARTS = {"complex64": "float32", "complex128": "float64"}

# ---- both parts alike ----

_ALIKE = """view reshape _unsafe_view _reshape_alias flatten unflatten permute transpose swapaxes t numpy_T unsqueeze squeeze expand broadcast_to
expand_as repeat tile repeat_interleave.self_int slice narrow select split_with_sizes split chunk unbind diagonal unfold flip roll alias clone
contiguous detach lift_fresh lift_fresh_copy triu tril sum mean cumsum index_select index gather take as_strided constant_pad_nd pad movedim"""
_LIFTED = "cat concat concatenate stack slice_scatter select_scatter diagonal_scatter copy index_put index_add index_copy scatter scatter_add"


def _alike(name, lift):
    def convert(*args, **kwargs):
        if lift:
            args = [_lifted(a) for a in args]
        made = [ATEN[f"aten::{name}"](*_part(list(args), p), **{k: _part(v, p) for k, v in kwargs.items()}) for p in ("re", "im")]
        return _joined(*(list(m) if not isinstance(m, Expr) else m for m in made))

    return convert


def _lifted(v):
    """Floats beside complex tensors as such; integers are indices."""
    if isinstance(v, (list, tuple)):
        return [_lifted(w) for w in v]
    return _whole(v) if isinstance(v, Expr) and is_float(dtype_of(v)) else v


for _n in _ALIKE.split():
    if f"aten::{_n}" in ATEN:
        pairs(_n)(_alike(_n, False))
for _n in _LIFTED.split():
    pairs(_n)(_alike(_n, True))


@pairs("expand_as")
def _expand_as(x, other):
    shape = shape_of(other.re if isinstance(other, Pair) else other)
    return _full(c.expand(x.re, shape), c.expand(x.im, shape)) if isinstance(x, Pair) else c.expand(x, shape)


@pairs("where")
def _where(condition, x, y):
    x, y = (_full(v.re, v.im) for v in _operands(x, y))
    return Pair(*(relay.where(c.cast(condition, "bool"), a, b) for a, b in ((x.re, y.re), (x.im, y.im))))


@pairs("fill", "masked_fill")
def _fill(x, *args):
    *mask, value = args
    value, x = _operands(value, x)
    parts = [(a, relay.zeros_like(b) if a is None else a, b) for a, b in ((value.re, x.re), (value.im, x.im))]
    if mask:
        return Pair(*(relay.where(c.cast(mask[0], "bool"), v if a is not None else c.scalar(0, b), b) for a, v, b in parts))
    return Pair(*(c.expand(v, shape_of(b)) for _, v, b in parts))


# ---- arithmetic ----


@pairs("add", "sub", "subtract", "rsub")
def _add(x, y, alpha=1):
    return _sum_of(x, y, alpha, relay.add)


def _sum_of(x, y, alpha, f):
    if alpha != 1:
        y = _mul(y, alpha) if isinstance(y, (Pair, Expr)) else y * alpha
    x, y = _operands(x, y)
    im = f(x.im, y.im) if x.im is not None and y.im is not None else x.im if y.im is None else y.im if f is relay.add else relay.negative(y.im)
    return _full(f(x.re, y.re), im)


PAIRS["aten::sub"] = PAIRS["aten::subtract"] = lambda x, y, alpha=1: _sum_of(x, y, alpha, relay.subtract)
PAIRS["aten::rsub"] = lambda x, y, alpha=1: _sum_of(y, x, alpha, relay.subtract)


@pairs("mul", "multiply")
def _mul(x, y):
    x, y = _operands(x, y)
    return _full(*spectrum.product((x.re, x.im), (y.re, y.im)))


@pairs("square")
def _square(x):
    return _mul(x, x)


@pairs("div", "divide", "true_divide")
def _div(x, y, rounding_mode=None):
    """By the larger part of the divisor (Smith 1962), so that squares do not overflow."""
    x, y = _operands(x, y)
    if y.im is None:
        return _full(relay.divide(x.re, y.re), None if x.im is None else relay.divide(x.im, y.re))
    x, y = _full(x.re, x.im), _full(y.re, y.im)
    wide = relay.greater_equal(relay.abs(y.re), relay.abs(y.im))
    big, small = relay.where(wide, y.re, y.im), relay.where(wide, y.im, y.re)
    ratio = relay.divide(small, big)
    under = relay.add(big, relay.multiply(small, ratio))
    (a, b), (p, q) = (x.re, x.im), (relay.multiply(x.re, ratio), relay.multiply(x.im, ratio))
    re = relay.where(wide, relay.add(a, q), relay.add(p, b))
    im = relay.where(wide, relay.subtract(b, p), relay.subtract(q, a))
    return _full(relay.divide(re, under), relay.divide(im, under))


pairs("reciprocal")(lambda x: _div(1.0, x))


@pairs("pow")
def _pow(x, y):
    if isinstance(x, Pair) and isinstance(y, (int, float)) and float(y).is_integer() and 1 <= y <= 16:
        out = x
        for _ in range(int(y) - 1):
            out = _mul(out, x)
        return out
    raise OpNotImplemented("powers of complex tensors are supported for whole exponents from 1 to 16")


@pairs("exp")
def _exp(x):
    size = relay.exp(x.re)
    return Pair(relay.multiply(size, relay.cos(x.im)), relay.multiply(size, relay.sin(x.im)))


@pairs("log")
def _log(x):
    return Pair(relay.log(relay.hypot(x.re, x.im)), relay.atan2(x.im, x.re))


@pairs("sgn")
def _sgn(x):
    size = relay.hypot(x.re, x.im)
    size = relay.where(relay.equal(size, c.scalar(0, size)), c.scalar(1, size), size)
    return Pair(relay.divide(x.re, size), relay.divide(x.im, size))


@pairs("eq")
def _eq(x, y):
    x, y = (_full(v.re, v.im) for v in _operands(x, y))
    return relay.logical_and(relay.equal(x.re, y.re), relay.equal(x.im, y.im))


pairs("ne")(lambda x, y: relay.logical_not(_eq(x, y)))


@pairs("matmul", "mm", "bmm", "mv", "dot")
def _matmul(x, y):
    x, y = _operands(x, y)
    parts = [[None if a is None or b is None else c.matmul(a, b) for b in (y.re, y.im)] for a in (x.re, x.im)]
    (rr, ri), (ir, ii) = parts
    return _full(rr if ii is None else relay.subtract(rr, ii), spectrum.plus(ri, ir))


pairs("vdot")(lambda x, y: _matmul(Pair(x.re, relay.negative(x.im)) if isinstance(x, Pair) else x, y))


@pairs("linear")
def _linear(x, weight, bias=None):
    y = _matmul(x, PAIRS["aten::t"](weight) if isinstance(weight, Pair) else relay.transpose(weight, [1, 0]))
    return y if bias is None else _add(y, bias)


@pairs("addmm", "baddbmm")
def _addmm(bias, a, b, beta=1, alpha=1):
    return _add(_mul(_matmul(a, b), alpha) if alpha != 1 else _matmul(a, b), _mul(bias, beta) if beta != 1 else bias)


@pairs("linalg_vector_norm", "norm")
def _norm(x, *args, **kwargs):
    return ATEN["aten::linalg_vector_norm"](relay.hypot(x.re, x.im), *args, **{k: v for k, v in kwargs.items() if k != "dtype"})


# ---- transforms: scales are none (0), 1 / sqrt(n) (1) or 1 / n (2) ----


def _scaled(values, count, scale):
    if not scale:
        return values
    by = 1 / math.sqrt(count) if scale == 1 else 1 / count
    return [relay.multiply(v, c.scalar(by, v)) for v in values]


def _count(shape, dims):
    return math.prod(shape[d] for d in dims)


@made("_fft_r2c")
def _r2c(x, dim, normalization, onesided):
    *others, last = dim
    size = _count(shape_of(x), dim)
    if onesided:
        out = spectrum.real_spectrum(x, last % rank_of(x))
    else:
        out = spectrum.transform((x, None), last)
    for d in others:
        out = spectrum.transform(out, d)
    return Pair(*_scaled(out, size, normalization))


@pairs("_fft_c2c")
def _c2c(x, dim, normalization, forward):
    out, size = (x.re, x.im), _count(shape_of(x.re), dim)
    for d in dim:
        out = spectrum.transform(out, d, not forward)
    return Pair(*_scaled(out, size, normalization))


@pairs("_fft_c2r")
def _c2r(x, dim, normalization, last_dim_size):
    *others, last = dim
    out = (x.re, x.im)
    for d in others:
        out = spectrum.transform(out, d, True)
    size = _count(shape_of(x.re), others) * last_dim_size
    return _scaled([spectrum.inverse_real(out, last % rank_of(x.re), last_dim_size)], size, normalization)[0]
