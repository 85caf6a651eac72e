"""Sums of products over named dimensions: ``einsum``, ``tensordot`` and ``matmul``."""

import re

from .. import te, tir
from .broadcast import broadcast_shape
from .elemwise import as_type
from .util import as_const_int, c_compute, get_const_tuple, placed, sum_type

__all__ = ["einsum", "matmul", "tensordot"]

_MATMUL, _EINSUM = "matmul", "einsum"


def tensordot(a, b, axes=2):
    """The sum of products over the last ``axes`` dimensions of ``a`` and the first of ``b``, or over two lists of dimensions."""
    if isinstance(axes, (tuple, list)):
        left, right = ([v] if isinstance(v, int) else list(v) for v in axes)
    else:
        n = as_const_int(axes)
        left, right = list(range(len(a.shape) - n, len(a.shape))), list(range(n))
    if len(left) != len(right):
        raise ValueError(f"tensordot: {len(left)} dimensions of a and {len(right)} of b")
    left, right = [v % len(a.shape) for v in left], [v % len(b.shape) for v in right]
    free_a, free_b = ([d for d in range(len(t.shape)) if d not in own] for t, own in ((a, left), (b, right)))
    ks, acc = [te.reduce_axis((0, a.shape[d]), f"k{i}") for i, d in enumerate(left)], sum_type(a.dtype)

    def index(ax, n, own):
        free = iter(ax)
        return [next(free) if i is None else i for i in placed([None] * n, own, ks)]

    def f(*ax):
        x = a(*index(ax[: len(free_a)], len(a.shape), left)).astype(acc)
        y = b(*index(ax[len(free_a) :], len(b.shape), right)).astype(acc)
        return te.sum(x * y, axis=ks) if ks else x * y

    shape = [*[a.shape[d] for d in free_a], *[b.shape[d] for d in free_b]]
    return as_type(c_compute(shape, f, "T_tensordot", _MATMUL), a.dtype)


def matmul(a, b, transp_a=False, transp_b=False):
    """The product of two matrices, each transposed if asked for. ``nestsmith.topi.nn.matmul`` adds a bias."""
    x, y = (0 if transp_a else 1), (1 if transp_b else 0)
    k, acc = te.reduce_axis((0, a.shape[x]), "k"), sum_type(a.dtype)

    def f(i, j):
        left, right = (a(k, i) if transp_a else a(i, k)), (b(j, k) if transp_b else b(k, j))
        return te.sum(left.astype(acc) * right.astype(acc), axis=k)

    return as_type(te.compute((a.shape[1 - x], b.shape[1 - y]), f, name="T_matmul", tag=_MATMUL), a.dtype)


def _labels(subscripts, operands):
    """(labels of each operand, labels of the result): letters, and numbers for the dimensions of ellipses, from the last one on."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"einsum: {subscripts!r} speaks of {len(terms)} operands, not of {len(operands)}")

    def read(term, dots):
        if not re.fullmatch(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*", term):
            raise ValueError(f"einsum: {term!r} of {subscripts!r} is no list of letters with at most one ellipsis")
        before, ellipsis, after = term.partition("...")
        return [*before, *(range(dots, 0, -1) if ellipsis else ()), *after]

    found = []
    for term, t in zip(terms, operands):
        dots = len(t.shape) - len(term.replace("...", ""))
        labels = read(term, dots)
        if len(labels) != len(t.shape):
            raise ValueError(f"einsum: {term!r} does not name the {len(t.shape)} dimensions of an operand of shape {tuple(t.shape)}")
        found.append(labels)
    most = max((v for labels in found for v in labels if isinstance(v, int)), default=0)
    if arrow:
        return found, read(right, most)
    letters = [v for labels in found for v in labels if isinstance(v, str)]
    return found, [*range(most, 0, -1), *sorted(v for v in set(letters) if letters.count(v) == 1)]


def einsum(subscripts, *operands):
    """Einstein's summation, as ``numpy.einsum``: e.g. ``einsum("bij,bjk->bik", a, b)``; ellipses broadcast.

    Raises ValueError for text that does not fit the operands.
    """
    found, out = _labels(subscripts, operands)
    extent: dict = {}
    for labels, t in zip(found, operands):
        for v, s in zip(labels, get_const_tuple(t.shape)):
            try:
                extent[v] = broadcast_shape((extent[v],), (s,))[0] if v in extent else s
            except ValueError as e:
                raise ValueError(f"einsum: the extents {extent[v]} and {s} of {v!r} in {subscripts!r} differ") from e
    if any(v not in extent for v in out) or len(set(out)) != len(out):
        raise ValueError(f"einsum: the result of {subscripts!r} must name dimensions of the operands, each once")
    dtype = operands[0].dtype
    acc = sum_type(dtype)
    summed = [v for v in extent if v not in out]
    ks = {v: te.reduce_axis((0, extent[v]), f"k{i}") for i, v in enumerate(summed)}

    def index(at, v, s):
        if isinstance(s, int) and s == 1:
            return 0
        if isinstance(s, int) or bool(s == extent[v]):
            return at[v]
        return te.if_then_else(tir.EQ(s, 1), 0, at[v].var if v in ks else at[v])  # an extent that is only known at run time may be 1

    def f(*ax):
        at, product = {**dict(zip(out, ax)), **ks}, None
        for labels, t in zip(found, operands):
            x = t(*[index(at, v, s) for v, s in zip(labels, get_const_tuple(t.shape))]).astype(acc)
            product = x if product is None else product * x
        return te.sum(product, axis=list(ks.values())) if ks else product

    return as_type(c_compute([extent[v] for v in out], f, "T_einsum", _EINSUM), dtype)
