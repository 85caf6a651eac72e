"""Fourier transforms as products with known matrices. A complex tensor is a pair of its real and its imaginary part; the imaginary part
may be None, which is 0.

A small transform is one product with the matrix of its cosines and sines. A larger one, of length a * b, is transforms of length a,
products with known factors, and transforms of length b (Cooley and Tukey 1965). A length with a large prime factor becomes a
convolution, for which a power of 2 will do (Bluestein 1970).
"""

import math

import numpy as np

from .. import budget, op as relay
from . import common as c
from .values import array, dtype_of, rank_of, shape_of

__all__ = ["inverse_real", "padded", "plus", "product", "real_spectrum", "transform"]

_SMALL = 64  # the longest transform that is one product
_MATRIX = 512  # the longest of a prime length that is one


def plus(a, b):
    """The sum of two expressions, each of which may be None."""
    return a if b is None else b if a is None else relay.add(a, b)


def product(a, b):
    """The product of two pairs."""
    (ar, ai), (br, bi) = a, b
    if ai is None and bi is None:
        return relay.multiply(ar, br), None
    if bi is None:
        return relay.multiply(ar, br), relay.multiply(ai, br)
    if ai is None:
        return relay.multiply(ar, br), relay.multiply(ar, bi)
    return (relay.subtract(relay.multiply(ar, br), relay.multiply(ai, bi)),
            relay.add(relay.multiply(ar, bi), relay.multiply(ai, br)))  # fmt: skip


def _angles(rows, columns, n, sign):
    """exp(sign i 2 pi rows columns / n): whole products are reduced first, so that angles of large lengths are exact."""
    turns = np.outer(np.asarray(rows, "int64"), np.asarray(columns, "int64")) % n
    budget.room(turns.shape, "float64")
    return np.exp(sign * 2j * math.pi * turns / n)


def _times(pair, matrix):
    """Products of the last axis, (..., columns), with a known complex matrix (rows, columns)."""
    re, im = pair
    rows, columns = matrix.shape
    kind = dtype_of(re)
    table = np.concatenate([matrix.real, matrix.imag])
    if im is not None:
        re = relay.concatenate([re, im], rank_of(re) - 1)
        table = np.concatenate([table, np.concatenate([-matrix.imag, matrix.real])], 1)
    y = c.linear(re, array(table, kind))
    axis = rank_of(y) - 1
    return tuple(c.part(y, axis, k * rows, (k + 1) * rows) for k in (0, 1))


def _shaped(pair, shape):
    return tuple(None if v is None else relay.reshape(v, shape) for v in pair)


def _turned(pair, order):
    return tuple(None if v is None else relay.transpose(v, order) for v in pair)


def _factor(n):
    """The largest factor of n up to _SMALL, 1 for a prime above."""
    return max(a for a in range(1, _SMALL + 1) if n % a == 0)


def _along_last(pair, sign):
    """The transform along the last axis, without a scale."""
    shape = shape_of(pair[0])
    n = shape[-1]
    if n <= _SMALL:
        return _times(pair, _angles(range(n), range(n), n, sign))
    a = _factor(n)
    if a == 1:
        return _times(pair, _angles(range(n), range(n), n, sign)) if n <= _MATRIX else _by_convolution(pair, sign)
    b, rank = n // a, len(shape)
    swap = [*range(rank - 1), rank, rank - 1]
    pair = _turned(_shaped(pair, (*shape[:-1], a, b)), swap)  # (..., b, a): element i * b + j at (j, i)
    pair = _times(pair, _angles(range(a), range(a), a, sign))
    kind, twist = dtype_of(pair[0]), _angles(range(b), range(a), n, sign)
    pair = product(pair, (array(twist.real, kind), array(twist.imag, kind)))
    pair = _along_last(_turned(pair, swap), sign)  # (..., a, b): result k + a * m at (k, m)
    return _shaped(_turned(pair, swap), shape)


def _by_convolution(pair, sign):
    """2 j k = j^2 + k^2 - (k - j)^2: the transform is a product, a convolution and a product with chirps."""
    kind, n = dtype_of(pair[0]), shape_of(pair[0])[-1]
    size = 1 << (2 * n - 1).bit_length()
    squares = np.arange(n, dtype="int64") ** 2 % (2 * n)
    chirp = np.exp(sign * 1j * math.pi * squares / n)
    filter_ = np.zeros(size, "complex128")
    filter_[:n] = chirp.conj()
    filter_[size - n + 1 :] = chirp.conj()[:0:-1]
    known = lambda v: (array(v.real.copy(), kind), array(v.imag.copy(), kind))  # noqa: E731
    y = padded(product(pair, known(chirp)), -1, size)
    y = product(_along_last(y, -1), known(np.fft.fft(filter_) / size))
    y = _along_last(y, 1)
    axis = rank_of(y[0]) - 1
    return product(tuple(c.part(v, axis, 0, n) for v in y), known(chirp))


def padded(pair, axis, size):
    """A pair cut, or filled up with zeros, to a size along an axis."""

    def fit(v):
        rank = rank_of(v)
        at = axis % rank
        more = size - shape_of(v)[at]
        return c.pad(v, [0] * rank, [more if a == at else 0 for a in range(rank)])

    return tuple(None if v is None else fit(v) for v in pair)


def _moved(pair, axis, f):
    """`f` of a pair whose axis is the last one meanwhile."""
    rank = rank_of(pair[0])
    axis %= rank
    order = [*(a for a in range(rank) if a != axis), axis]
    if axis == rank - 1:
        return f(pair)
    return _turned(f(_turned(pair, order)), np.argsort(order).tolist())


def transform(pair, axis, inverse=False):
    """The transform along one axis, without a scale."""
    return _moved(pair, axis, lambda v: _along_last(v, 1 if inverse else -1))


def real_spectrum(x, axis, inverse=False):
    """The first n // 2 + 1 values of the transform of a real tensor."""
    n, sign = shape_of(x)[axis], 1 if inverse else -1

    def half(v):
        if n <= _SMALL:
            return _times(v, _angles(range(n // 2 + 1), range(n), n, sign))
        return tuple(c.part(w, rank_of(w) - 1, 0, n // 2 + 1) for w in _along_last(v, sign))

    return _moved((x, None), axis, half)


def inverse_real(pair, axis, size):
    """The real tensor of which a pair holds the first size // 2 + 1 values of the transform; without a scale."""

    def whole(v):
        have = size // 2 + 1
        re, im = padded(v, -1, have)
        im = relay.zeros_like(re) if im is None else im
        if size <= _SMALL:
            turn = _angles(range(size), range(have), size, 1)
            twice = np.where((np.arange(have) == 0) | (2 * np.arange(have) == size), 1, 2)
            table = np.concatenate([turn.real * twice, -turn.imag * twice], 1)
            return c.linear(relay.concatenate([re, im], rank_of(re) - 1), array(table, dtype_of(re))), None
        at = np.arange(size)
        mirror = np.where(at < have, at, size - at)
        sign = array(np.where(at < have, 1.0, -1.0), dtype_of(re))
        axis_ = rank_of(re) - 1
        full = relay.take(re, array(mirror, "int32"), axis=axis_), relay.multiply(relay.take(im, array(mirror, "int32"), axis=axis_), sign)
        return _along_last(full, 1)[0], None

    return _moved(pair, axis, whole)[0]
