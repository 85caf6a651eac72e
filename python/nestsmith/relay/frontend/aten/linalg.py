"""Factors of small matrices, column by column: LU, Cholesky, QR, and what they solve. A step is a few operators on all matrices of a batch,
so that the size of a network grows with the number of columns.

Where PyTorch raises for a singular matrix, the result has infinities or NaN.
"""

import math

import numpy as np

from ....error import OpNotImplemented
from ... import op as relay
from .. import common as c
from ..values import along, arange, array, dtype_of, rank_of, shape_of
from .table import aten

_MOST = 64  # columns


def _matrices(x):
    """A tensor (..., n, m) as (batch, n, m)."""
    shape = shape_of(x)
    if min(shape[-2:]) > _MOST:
        raise OpNotImplemented(f"matrices of {shape[-2]} x {shape[-1]} are not supported; factors are made for up to {_MOST} columns")
    return relay.reshape(x, (math.prod(shape[:-2]), *shape[-2:]))


def _back(x, batch):
    return relay.reshape(x, (*batch, *shape_of(x)[1:]))


def _cut(x, axis, k):
    return c.part(x, axis, k, k + 1)


def _rows(n, rank=3, axis=1):
    """The numbers of rows (or of columns: `axis` 2)."""
    return along(arange(n), axis, rank)


def _mask(truth):
    return array(np.asarray(truth, bool))


def _only(truth, x):
    """`x` where it holds, else 0."""
    return relay.where(_mask(truth), x, c.scalar(0, x))


# ---- LU ----


def _lu(a, pivot=True):
    """(LU, rows that are exchanged at each step, the order of all rows) of (batch, n, m)."""
    batch, n, m = shape_of(a)
    order, exchanged = array(np.broadcast_to(arange(n), (batch, n)).copy(), "int32"), []
    for k in range(min(n, m)):
        p = array(np.full((batch, 1), k), "int32")
        if pivot:
            size = relay.abs(relay.squeeze(_cut(a, 2, k), [2]))
            size = relay.where(_mask(_rows(n, 2) >= k), size, c.scalar(-1, a))
            p = relay.expand_dims(relay.cast(relay.argmax(size, [1]), "int32"), 1)
            rows = array(_rows(n, 2), "int32")
            turn = relay.where(_mask(_rows(n, 2) == k), p, relay.where(relay.equal(rows, p), array(k, "int32"), rows))
            a = relay.gather(a, 1, c.expand(relay.expand_dims(turn, 2), (batch, n, m)))
            order = relay.gather(order, 1, turn)
        exchanged.append(p)
        column, top = _cut(a, 2, k), _cut(a, 1, k)
        head = _cut(column, 1, k)
        factor = relay.where(relay.equal(head, c.scalar(0, a)), column, relay.divide(column, head))
        factor = _only(_rows(n) > k, factor)
        a = relay.subtract(a, relay.multiply(factor, _only(_rows(m, 3, 2) > k, top)))
        a = relay.where(_mask((_rows(n) > k) & (_rows(m, 3, 2) == k)), factor, a)
    return a, relay.concatenate(exchanged, 1) if len(exchanged) > 1 else exchanged[0], order


def _diagonal(a):
    return c.diagonal(a, 0, 1, 2)


def _first_zero(lu):
    """The number of the first step whose pivot is 0, counted from 1; 0 if there is none."""
    diagonal = _diagonal(lu)
    steps = array(arange(1, shape_of(diagonal)[1] + 1).reshape(1, -1), "int32")
    never = array(2**30, "int32")
    first = relay.min(relay.where(relay.equal(diagonal, c.scalar(0, lu)), steps, never), [1])
    return relay.where(relay.equal(first, never), array(0, "int32"), first)


def _triangular(t, r, upper, unit=False):
    """The solution x of t x = r."""
    n, parts = shape_of(t)[1], {}
    for i in range(n)[::-1] if upper else range(n):
        x = _cut(r, 1, i)
        x = x if unit else relay.divide(x, _cut(_cut(t, 1, i), 2, i))
        parts[i] = x
        r = relay.subtract(r, relay.multiply(_cut(t, 2, i), x))
    return relay.concatenate([parts[i] for i in range(n)], 1) if n > 1 else parts[0]


def _turned(x):
    return relay.transpose(x, [0, 2, 1])


def _in_order(r, order):
    return relay.gather(r, 1, c.expand(relay.expand_dims(order, 2), shape_of(r)))


def _lu_solved(lu, order, r):
    return _triangular(lu, _triangular(lu, _in_order(r, order), False, True), True)


def _permutation(order, kind):
    """P of A = P L U."""
    n = shape_of(order)[1]
    return relay.cast(relay.equal(array(_rows(n), "int32"), relay.expand_dims(order, 1)), kind)


def _order_of(exchanged, n):
    """The order of rows after exchanges, (batch, steps), one after the other."""
    batch, steps = shape_of(exchanged)
    order, rows = array(np.broadcast_to(arange(n), (batch, n)).copy(), "int32"), array(_rows(n, 2), "int32")
    for k in range(steps):
        p = _cut(exchanged, 1, k)
        turn = relay.where(_mask(_rows(n, 2) == k), p, relay.where(relay.equal(rows, p), array(k, "int32"), rows))
        order = relay.gather(order, 1, turn)
    return order


def _halves(lu):
    """L and U."""
    _, n, m = shape_of(lu)
    k = min(n, m)
    low, up = c.part(lu, 2, 0, k), c.part(lu, 1, 0, k)
    low = relay.where(_mask(_rows(n) == _rows(k, 3, 2)), c.scalar(1, lu), _only(_rows(n) > _rows(k, 3, 2), low))
    return low, _only(_rows(k) <= _rows(m, 3, 2), up)


def _parity(exchanged, kind):
    steps = array(arange(shape_of(exchanged)[1]).reshape(1, -1), "int32")
    return relay.prod(relay.where(relay.equal(exchanged, steps), array(1.0, kind), array(-1.0, kind)), [1])


def _pivots(exchanged):
    return relay.add(exchanged, array(1, "int32"))


@aten("linalg_lu_factor_ex")
def _lu_factor(a, pivot=True, check_errors=False):
    batch = shape_of(a)[:-2]
    lu, exchanged, _ = _lu(_matrices(a), pivot)
    return [_back(v, batch) for v in (lu, _pivots(exchanged), _first_zero(lu))]


@aten("linalg_lu")
def _lu_of(a, pivot=True):
    batch = shape_of(a)[:-2]
    lu, _, order = _lu(_matrices(a), pivot)
    return [_back(v, batch) for v in (_permutation(order, dtype_of(a)), *_halves(lu))]


@aten("lu_unpack")
def _lu_unpack(lu, pivots, unpack_data=True, unpack_pivots=True):
    batch, kind, n = shape_of(lu)[:-2], dtype_of(lu), shape_of(lu)[-2]
    exchanged = relay.subtract(relay.reshape(pivots, (-1, shape_of(pivots)[-1])), array(1, "int32"))
    low, up = _halves(_matrices(lu))
    return [_back(v, batch) for v in (_permutation(_order_of(exchanged, n), kind), low, up)]


@aten("_linalg_det")
def _det(a):
    batch = shape_of(a)[:-2]
    lu, exchanged, _ = _lu(_matrices(a))
    det = relay.multiply(relay.prod(_diagonal(lu), [1]), _parity(exchanged, dtype_of(a)))
    return [_back(v, batch) for v in (det, lu, _pivots(exchanged))]


@aten("_linalg_slogdet")
def _slogdet(a):
    batch = shape_of(a)[:-2]
    lu, exchanged, _ = _lu(_matrices(a))
    diagonal = _diagonal(lu)
    sign = relay.multiply(relay.prod(relay.sign(diagonal), [1]), _parity(exchanged, dtype_of(a)))
    return [_back(v, batch) for v in (sign, relay.sum(relay.log(relay.abs(diagonal)), [1]), lu, _pivots(exchanged))]


def _right_sides(a, b):
    """(a, b, batch, whether b holds vectors), both with the same batch."""
    vectors = rank_of(b) == 1 or (rank_of(b) == rank_of(a) - 1 and shape_of(b) == shape_of(a)[:-1])
    b = relay.expand_dims(b, rank_of(b)) if vectors else b
    batch = np.broadcast_shapes(shape_of(a)[:-2], shape_of(b)[:-2])
    return *(_matrices(c.expand(v, (*batch, *shape_of(v)[-2:]))) for v in (a, b)), batch, vectors


@aten("_linalg_solve_ex")
def _solve(a, b, left=True, check_errors=False):
    x, r, batch, vectors = _right_sides(a, b)
    lu, exchanged, order = _lu(x if left else _turned(x))
    y = _lu_solved(lu, order, r if left else _turned(r))
    y = y if left else _turned(y)
    y = relay.squeeze(y, [2]) if vectors else y
    own = _lu(_matrices(a)) if left and shape_of(a)[:-2] != tuple(batch) else (lu, exchanged, order)
    ends = [_back(v, shape_of(a)[:-2]) for v in (own[0], _pivots(own[1]), _first_zero(own[0]))]
    return [_back(y, batch), *ends]


@aten("linalg_inv_ex")
def _inverse(a, check_errors=False):
    batch, n = shape_of(a)[:-2], shape_of(a)[-1]
    lu, _, order = _lu(_matrices(a))
    eye = array(np.broadcast_to(np.eye(n), shape_of(lu)).copy(), dtype_of(a))
    return [_back(_lu_solved(lu, order, eye), batch), _back(_first_zero(lu), batch)]


@aten("linalg_lu_solve")
def _lu_solve(lu, pivots, b, left=True, adjoint=False):
    n = shape_of(lu)[-1]
    pivots = c.expand(pivots, (*np.broadcast_shapes(shape_of(lu)[:-2], shape_of(b)[:-2]), n))
    a, r, batch, _ = _right_sides(lu, b)
    order = _order_of(relay.subtract(relay.reshape(pivots, (-1, n)), array(1, "int32")), n)
    r = r if left else _turned(r)
    if adjoint == left:  # A^T = U^T L^T P^T
        y = _triangular(_turned(a), _triangular(_turned(a), r, False), True, True)
        y = relay.gather(y, 1, c.expand(relay.expand_dims(relay.argsort(order, 1, True, "int32"), 2), shape_of(y)))
    else:
        y = _lu_solved(a, order, r)
    return _back(y if left else _turned(y), batch)


@aten("linalg_solve_triangular")
def _solve_triangular(a, b, upper, left=True, unitriangular=False):
    a, b, batch, _ = _right_sides(a, relay.expand_dims(b, 0) if rank_of(b) == 1 else b)
    if left:
        return _back(_triangular(a, b, upper, unitriangular), batch)
    return _back(_turned(_triangular(_turned(a), _turned(b), not upper, unitriangular)), batch)


@aten("triangular_solve")
def _solve_triangular_of_old(b, a, upper=True, transpose=False, unitriangular=False):
    x, r, batch, _ = _right_sides(a, b)
    y = _triangular(_turned(x) if transpose else x, r, upper != transpose, unitriangular)
    return [_back(y, batch), _back(x, batch)]


# ---- Cholesky ----


def _cholesky(a):
    """(L, the number of the first step whose pivot is not positive)"""
    n, columns = shape_of(a)[1], []
    failed, never = [], array(2**30, "int32")
    for k in range(n):
        head = _cut(_cut(a, 1, k), 2, k)
        failed.append(relay.where(relay.greater(head, c.scalar(0, a)), never, array(k + 1, "int32")))
        column = _only(_rows(n) >= k, relay.divide(_cut(a, 2, k), relay.sqrt(head)))
        columns.append(column)
        a = relay.subtract(a, relay.multiply(column, _turned(column)))
    first = relay.squeeze(relay.min(relay.concatenate(failed, 1) if n > 1 else failed[0], [1]), [1])
    info = relay.where(relay.equal(first, never), array(0, "int32"), first)
    return relay.concatenate(columns, 2) if n > 1 else columns[0], info


@aten("linalg_cholesky_ex")
def _cholesky_ex(a, upper=False, check_errors=False):
    batch, x = shape_of(a)[:-2], _matrices(a)
    low, info = _cholesky(_turned(x) if upper else x)
    return [_back(_turned(low) if upper else low, batch), _back(info, batch)]


aten("cholesky")(lambda a, upper=False: _cholesky_ex(a, upper)[0])


@aten("cholesky_solve")
def _cholesky_solve(b, a, upper=False):
    t, r, batch, _ = _right_sides(a, b)
    low = _turned(t) if upper else t
    return _back(_triangular(_turned(low), _triangular(low, r, False), True), batch)


@aten("cholesky_inverse")
def _cholesky_inverse(a, upper=False):
    n = shape_of(a)[-1]
    return _cholesky_solve(array(np.broadcast_to(np.eye(n), shape_of(a)).copy(), dtype_of(a)), a, upper)


# ---- QR ----


def _householder(a):
    """(R and the reflectors below it, the factor of each reflector), as LAPACK's geqrf."""
    _, n, m = shape_of(a)
    factors = []
    for k in range(min(n, m)):
        column = _only(_rows(n) >= k, _cut(a, 2, k))
        head = _cut(column, 1, k)
        rest = relay.sum(_only(_rows(n) > k, relay.multiply(column, column)), [1], keepdims=True)
        length = relay.sqrt(relay.add(relay.multiply(head, head), rest))
        none = relay.equal(rest, c.scalar(0, a))
        beta = relay.where(none, head, relay.negative(relay.copysign(length, head)))
        safe = relay.where(none, c.scalar(1, a), beta)
        tau = relay.where(none, c.scalar(0, a), relay.divide(relay.subtract(beta, head), safe))
        v = relay.divide(column, relay.where(none, c.scalar(1, a), relay.subtract(head, beta)))
        v = relay.where(_mask(_rows(n) == k), c.scalar(1, a), _only(_rows(n) > k, v))
        turned = relay.subtract(a, relay.multiply(relay.multiply(tau, v), relay.sum(relay.multiply(v, a), [1], keepdims=True)))
        a = relay.where(_mask(_rows(m, 3, 2) > k), turned, a)
        here = _rows(m, 3, 2) == k
        a = relay.where(_mask(here & (_rows(n) == k)), beta, relay.where(_mask(here & (_rows(n) > k)), v, a))
        factors.append(relay.squeeze(tau, [2]))
    return a, relay.concatenate(factors, 1) if len(factors) > 1 else factors[0]


def _reflected(a, tau, x, forward):
    """H1 ... Hk x, or its transpose Hk ... H1 x where it goes `forward`."""
    n = shape_of(a)[1]
    order = range(shape_of(tau)[1])
    for k in order if forward else order[::-1]:
        v = relay.where(_mask(_rows(n) == k), c.scalar(1, a), _only(_rows(n) > k, _cut(a, 2, k)))
        t = relay.expand_dims(_cut(tau, 1, k), 2)
        x = relay.subtract(x, relay.multiply(relay.multiply(t, v), relay.sum(relay.multiply(v, x), [1], keepdims=True)))
    return x


def _orthogonal(a, tau, columns):
    batch, n, _ = shape_of(a)
    eye = array(np.broadcast_to(np.eye(n, columns), (batch, n, columns)).copy(), dtype_of(a))
    return _reflected(a, tau, eye, False)


@aten("geqrf")
def _geqrf(a):
    batch = shape_of(a)[:-2]
    return [_back(v, batch) for v in _householder(_matrices(a))]


@aten("linalg_qr")
def _qr(a, mode="reduced"):
    batch, (n, m) = shape_of(a)[:-2], shape_of(a)[-2:]
    h, tau = _householder(_matrices(a))
    size = n if mode == "complete" else min(n, m)
    r = _only(_rows(size) <= _rows(m, 3, 2), c.part(h, 1, 0, size))
    return [None if mode == "r" else _back(_orthogonal(h, tau, size), batch), _back(r, batch)]


@aten("linalg_householder_product")
def _householder_product(a, tau):
    return _back(_orthogonal(_matrices(a), relay.reshape(tau, (-1, shape_of(tau)[-1])), shape_of(a)[-1]), shape_of(a)[:-2])


@aten("ormqr")
def _ormqr(a, tau, other, left=True, transpose=False):
    x, h, t = _matrices(other), _matrices(a), relay.reshape(tau, (-1, shape_of(tau)[-1]))
    y = _reflected(h, t, x, transpose) if left else _turned(_reflected(h, t, _turned(x), not transpose))
    return _back(y, shape_of(other)[:-2])


@aten("linalg_matrix_exp")
def _matrix_exp(a):
    """Scaled by a power of 2 to a norm of 1, a series of 19 terms, and as many squares as halvings, in float64. NaN of infinities."""
    kind, n, most = dtype_of(a), shape_of(a)[-1], 20
    s = lambda v: array(float(v), "float64")  # noqa: E731
    x = relay.cast(_matrices(a), "float64")
    norm = relay.max(relay.sum(relay.abs(x), [1], keepdims=True), [2], keepdims=True)
    halvings = relay.minimum(relay.maximum(relay.ceil(relay.log2(norm)), s(0)), s(most))
    halvings = relay.where(relay.less(norm, s(np.inf)), halvings, s(np.nan))
    x = relay.multiply(x, relay.exp2(relay.negative(halvings)))
    powers = [array(np.broadcast_to(np.eye(n), shape_of(x)).copy(), "float64"), x]
    for _ in range(3):
        powers.append(c.matmul(powers[-1], x))
    y = None
    for k in (16, 12, 8, 4, 0):  # four terms at a time, by Horner's rule in x^4
        part = None
        for i in range(4):
            term = relay.divide(powers[i], s(math.factorial(k + i)))
            part = term if part is None else relay.add(part, term)
        y = part if y is None else relay.add(c.matmul(y, powers[4]), part)
    for k in range(most):
        y = relay.where(relay.less(s(k), halvings), c.matmul(y, y), y)
    return relay.cast(_back(y, shape_of(a)[:-2]), kind)
