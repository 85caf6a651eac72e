"""Sums of products over named axes: ``einsum`` as NumPy, ONNX and PyTorch have it, made of products of matrices."""

import math
from collections import Counter

from .. import op as relay
from ..op import nn
from . import common as c
from .values import rank_of, shape_of

__all__ = ["einsum"]


def _terms(equation, ranks):
    """The axes of every operand and of the result, one character each; those of an ellipsis are named from the last one on."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"equation {equation!r} has {len(terms)} operands, {len(ranks)} are given")
    more = 0
    for k, (term, rank) in enumerate(zip(terms, ranks)):
        hidden = rank - len(term.replace("...", ""))
        if hidden < 0 or (hidden and "..." not in term):
            raise ValueError(f"equation {equation!r}: operand {k} has {rank} axes, {term!r} names others")
        more = max(more, hidden)
        terms[k] = term.replace("...", "".join(chr(0x100 + i) for i in range(hidden))[::-1])
    rest = "".join(chr(0x100 + i) for i in range(more))[::-1]
    counts = Counter("".join(terms))
    out = out.replace("...", rest) if arrow else rest + "".join(sorted(k for k in counts if counts[k] == 1 and k not in rest))
    unknown = [k for k in out if k not in counts]
    if unknown or len(set(out)) != len(out):
        raise ValueError(f"equation {equation!r}: the result names {unknown[0] if unknown else 'an axis twice'}")
    return terms, out


def _diagonal(term, x):
    """The elements at which axes of the same name have the same index."""
    for key in [k for k, n in Counter(term).items() if n > 1]:
        while term.count(key) > 1:
            a, b = term.index(key), term.rindex(key)
            x = c.diagonal(x, 0, a, b)
            term = "".join(k for i, k in enumerate(term) if i not in (a, b)) + key
    return term, x


def _alone(term, x, kept):
    """`x` without the axes that are not in `kept`, summed."""
    gone = [a for a, k in enumerate(term) if k not in kept]
    return "".join(k for k in term if k in kept), c.reduce("sum", x, gone, False) if gone else x


def _pair(ta, a, tb, b, kept):
    """The product of two operands, summed over the axes of both that are not in `kept`."""
    (ta, a), (tb, b) = _alone(ta, a, kept | set(tb)), _alone(tb, b, kept | set(ta))
    size = {**dict(zip(ta, shape_of(a))), **dict(zip(tb, shape_of(b)))}
    batch, inner = ([k for k in ta if k in tb and (k in kept) == keep] for keep in (True, False))
    rows, columns = [k for k in ta if k not in tb], [k for k in tb if k not in ta]
    have = "".join([*batch, *rows, *columns])
    if not inner:
        lifted = []
        for term, x in ((ta, a), (tb, b)):
            there = [k for k in have if k in term]
            lifted.append(relay.reshape(relay.transpose(x, [term.index(k) for k in there]), [size[k] if k in term else 1 for k in have]))
        return have, relay.multiply(*lifted)

    def flat(term, x, keys):
        order = [term.index(k) for k in (*batch, *keys, *inner)]
        return relay.reshape(relay.transpose(x, order), [math.prod(size[k] for k in part) for part in (batch, keys, inner)])

    y = nn.batch_matmul(flat(ta, a, rows), flat(tb, b, columns))
    return have, relay.reshape(y, [size[k] for k in have])


def einsum(equation, operands):
    """The operands' product by `equation`: any number of them, ellipses, diagonals, and axes of one element that are as many as
    the others'. Raises ValueError if the equation does not fit."""
    terms, out = _terms(equation, [rank_of(x) for x in operands])
    parts = [_diagonal(t, x) for t, x in zip(terms, operands)]
    size: dict = {}
    for term, x in parts:
        for k, n in zip(term, shape_of(x)):
            if size.setdefault(k, n) != n and 1 not in (n, size[k]):
                raise ValueError(f"equation {equation!r}: an axis has {size[k]} elements and {n}")
            size[k] = max(n, size[k])
    for i, (term, x) in enumerate(parts):
        wide = [a for a, k in enumerate(term) if shape_of(x)[a] != size[k]]
        parts[i] = "".join(k for a, k in enumerate(term) if a not in wide), relay.squeeze(x, wide) if wide else x
    while len(parts) > 1:
        (ta, a), (tb, b), *rest = parts
        parts = [_pair(ta, a, tb, b, set(out).union(*(t for t, _ in rest))), *rest]
    term, x = _alone(*parts[0], set(out))
    return relay.transpose(x, [term.index(k) for k in out]) if len(out) > 1 else x
