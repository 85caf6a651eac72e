"""Matrix products. Both operands are converted to ``out_dtype`` (default: the type of the first one) before they are
multiplied, 16-bit floats to float32."""

from ... import te
from ..elemwise import as_type
from ..util import sum_type

__all__ = ["batch_matmul", "dense", "matmul", "matmul_in_parts"]


def _same_length(a, b, what):
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise ValueError(f"{what}: the operands have {a} and {b} elements along the summed dimension")


def matmul(tensor_a, tensor_b, bias=None, out_dtype=None, transpose_a=False, transpose_b=False):
    """[M, K] times [K, N] (transposed operands: [K, M], [N, K]), plus ``bias`` [N]."""
    if len(tensor_a.shape) != 2 or len(tensor_b.shape) != 2:
        raise ValueError(f"matmul takes two matrices, not shapes {tensor_a.shape} and {tensor_b.shape}")
    out_dtype = out_dtype or tensor_a.dtype
    acc = sum_type(out_dtype)
    m, ka = reversed(tensor_a.shape) if transpose_a else tensor_a.shape
    n, kb = tensor_b.shape if transpose_b else reversed(tensor_b.shape)
    _same_length(ka, kb, "matmul")
    k = te.reduce_axis((0, ka), "k")

    def f(i, j):
        a = tensor_a(k, i) if transpose_a else tensor_a(i, k)
        b = tensor_b(j, k) if transpose_b else tensor_b(k, j)
        return te.sum(a.astype(acc) * b.astype(acc), axis=k)

    letters = "NT"[bool(transpose_a)] + "NT"[bool(transpose_b)]
    mat = product = te.compute((m, n), f, name=f"T_matmul_{letters}", tag="dense" if letters == "NT" else "matmul",
                               attrs={"layout_free_placeholders": [tensor_b]})  # fmt: skip
    if bias is not None:
        mat = te.compute((m, n), lambda i, j: product(i, j) + bias(j).astype(acc), tag="broadcast")
    return as_type(mat, out_dtype)


def matmul_in_parts(tensor_a, tensor_b, parts):
    """[M, K] times [K, N], where the K products are added up in so many parts of the same length (which divides K), side by side,
    and then the parts."""
    (m, length), n = tensor_a.shape, tensor_b.shape[1]
    _same_length(length, tensor_b.shape[0], "matmul")
    if length % parts:
        raise ValueError(f"matmul: {parts} parts of a sum of {length} have different lengths")
    step, acc = length // parts, sum_type(tensor_a.dtype)
    k = te.reduce_axis((0, step), "k")
    part = te.compute(
        (parts, m, n),
        lambda p, i, j: te.sum(tensor_a(i, p * step + k).astype(acc) * tensor_b(p * step + k, j).astype(acc), axis=k),
        name="T_matmul_part", tag="matmul",
    )  # fmt: skip

    def whole(i, j):
        total = part(0, i, j)
        for p in range(1, parts):
            total = total + part(p, i, j)
        return total

    return as_type(te.compute((m, n), whole, name="T_matmul_NN", tag="broadcast"), tensor_a.dtype)


def dense(data, weight, bias=None, out_dtype=None, **_):
    """``data`` [M, K] times the transpose of ``weight`` [N, K], plus ``bias`` [N]."""
    return matmul(data, weight, bias, out_dtype, False, True)


def batch_matmul(tensor_a, tensor_b, oshape=None, out_dtype=None, transpose_a=False, transpose_b=True, **_):
    """Products of matrices [B, M, K] and [B, N, K] (the default is a transposed second operand). A batch of 1 is used
    for all. ``oshape`` overrides the shape of the output."""
    if len(tensor_a.shape) != 3 or len(tensor_b.shape) != 3:
        raise ValueError(f"batch_matmul takes tensors of rank 3, not shapes {tensor_a.shape} and {tensor_b.shape}")
    out_dtype = out_dtype or tensor_a.dtype
    acc = sum_type(out_dtype)
    xb, yb = tensor_a.shape[0], tensor_b.shape[0]
    m, ka = tensor_a.shape[:0:-1] if transpose_a else tensor_a.shape[1:]
    n, kb = tensor_b.shape[1:] if transpose_b else tensor_b.shape[:0:-1]
    _same_length(ka, kb, "batch_matmul")
    one_a, one_b = isinstance(xb, int) and xb == 1, isinstance(yb, int) and yb == 1
    if not one_a and not one_b and isinstance(xb, int) and isinstance(yb, int) and xb != yb:
        raise ValueError(f"batch_matmul: the batches {xb} and {yb} differ and none of them is 1")
    k = te.reduce_axis((0, ka), "k")

    def f(b, i, j):
        ba, bb = 0 if one_a else b, 0 if one_b else b
        x = tensor_a(ba, k, i) if transpose_a else tensor_a(ba, i, k)
        y = tensor_b(bb, j, k) if transpose_b else tensor_b(bb, k, j)
        return te.sum(x.astype(acc) * y.astype(acc), axis=k)

    letters = "NT"[bool(transpose_a)] + "NT"[bool(transpose_b)]
    mat = te.compute(oshape or (yb if one_a else xb, m, n), f, name=f"T_batch_matmul_{letters}", tag="batch_matmul",
                     attrs={"layout_free_placeholders": [tensor_b]})  # fmt: skip
    return as_type(mat, out_dtype)
