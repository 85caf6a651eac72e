"""Products of matrices by NumPy's BLAS, at TVM's place: calls of a global function, which no schedule changes."""

import numpy as np

from .. import te, tir
from ..registry import register_func

__all__ = ["batch_matmul", "matmul"]


@register_func("tvm.contrib.cblas.matmul", override=True)
def _matmul(a, b, out, transa=False, transb=False):
    a, b = (np.swapaxes(x.numpy(), -1, -2) if t else x.numpy() for x, t in ((a, transa), (b, transb)))
    out.copyfrom(np.matmul(a, b))


def matmul(lhs, rhs, transa=False, transb=False, **kwargs):
    """The product of two matrices.

    Parameters
    ----------
    lhs, rhs : te.Tensor
        [m, k] and [k, n], or with further dimensions in front that are the same.
    transa, transb : bool
        Whether they come transposed.
    kwargs
        Of ``te.extern``.

    Returns
    -------
    te.Tensor
    """
    m, n = lhs.shape[-1 if transa else -2], rhs.shape[-2 if transb else -1]
    call = lambda ins, outs: tir.call_packed("tvm.contrib.cblas.matmul", *ins, *outs, transa, transb)  # noqa: E731
    return te.extern((*list(lhs.shape)[:-2], m, n), [lhs, rhs], call, **{"name": "C", **kwargs})


batch_matmul = matmul
