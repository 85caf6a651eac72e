"""Matrix products: dense, matmul and batch_matmul are one product with other axes.

``[batch..., m, k] x [batch..., k, n] -> [batch..., m, n]``, each operand possibly stored transposed. `dense` has a
weight (n, k), that is a second operand which is transposed and has no batch.
"""

from .... import topi
from ....numerics import sum_type
from ...passes import PassContext
from ...ty import Any, TensorType
from ..registry import ALWAYS, ANCHOR, call, register, tensor
from .util import product_type

__all__ = ["dense", "matmul", "batch_matmul"]


def _equal(a, b):
    return a == b or isinstance(a, Any) or isinstance(b, Any)


def _axes_of(shape, transposed, rows=True):
    """(outer extent, inner extent) of the left (`rows`) or right operand."""
    a, b = shape[-2:]
    return (b, a) if transposed == rows else (a, b)


def _batch(a, b):
    """Extents of the batch axes, where 1 stands for any number. A second operand without batch serves all."""
    if not b:
        return a
    if len(a) != len(b):
        raise ValueError(f"the operands have {len(a)} and {len(b)} batch axes")
    for x, y in zip(a, b):
        if not _equal(x, y) and 1 not in (x, y):
            raise ValueError(f"batches {x} and {y} do not broadcast")
    return tuple(y if x == 1 else x for x, y in zip(a, b))


def _product(transposes, rank=None, least=2, weight=False):
    """The type rule. `transposes(attrs)` says which operands are stored transposed; `rank`: of both operands; `weight`:
    the second operand is one matrix."""

    def infer(attrs, types):
        left, right = transposes(attrs)
        a = tensor(types, 0)
        units = attrs.get("units")
        if len(a.shape) < least:
            raise ValueError(f"the first operand {a} must have rank {least} or more")
        m, ka = _axes_of(a.shape, left) if len(a.shape) > 1 else (None, a.shape[0])
        if types[1] is None and units is not None:
            types[1] = TensorType((units, ka) if right else (ka, units), a.dtype)
        elif types[1] is None and "units" in attrs:
            raise ValueError("the weight has no type: give units")
        b = tensor(types, 1)
        if rank is not None and (len(a.shape) != rank or len(b.shape) != rank):
            raise ValueError(f"both arguments must have rank {rank}")
        if len(b.shape) != 2 if weight else len(b.shape) < 2:
            raise ValueError(f"the second operand {b} must have rank 2" + ("" if weight else " or more"))
        n, kb = _axes_of(b.shape, right, rows=False)
        if not _equal(ka, kb):
            raise ValueError(f"inner extents {ka} and {kb} differ: {a} times {b}")
        rows = () if m is None else (m,)
        return TensorType(_batch(a.shape[:-2], b.shape[:-2]) + rows + (n,), product_type(a, b, attrs.out_dtype))

    return infer


def _numpy(transposes):
    def evaluate(attrs, a, b):
        left, right = transposes(attrs)
        dtype = attrs.out_dtype or str(a.dtype)
        a, b = a.astype(sum_type(dtype)), b.astype(sum_type(dtype))
        a = a.swapaxes(-1, -2) if left else a
        b = b.swapaxes(-1, -2) if right else b
        return (a @ b).astype(dtype)

    return evaluate


def _flags(attrs):
    return bool(attrs.transpose_a), bool(attrs.transpose_b)


def _weight(attrs):
    return False, True


def _dense_loops(a, x, c, target):
    data, weight = x
    dtype = c.checked_type.dtype
    if len(c.args[0].checked_type.shape) == 2:
        return topi.nn.dense(data, weight, None, dtype)
    shape = c.args[0].checked_type.concrete_shape
    flat = topi.nn.dense(topi.reshape(data, (topi.util.prod(shape[:-1]), shape[-1])), weight, None, dtype)
    return topi.reshape(flat, c.checked_type.shape)


register("nn.dense", ANCHOR, _product(_weight, least=1, weight=True), _numpy(_weight), colour=ALWAYS,
         loops=_dense_loops, ranked=True)  # fmt: skip
# A product of few elements and a long sum leaves most of a GPU idle. In parts of the sum there is as much to do at the same time as
# in a product of so many elements; a shorter part would be over before its tiles are loaded, and adding up would take longer.
_FEW_ELEMENTS, _ENOUGH_ELEMENTS, _LEAST_PART, _MOST_PARTS = 200_000, 640_000, 384, 8
_LANES_FROM = 4  # rows, from which on there are products by lanes, which add up in parts themselves (csrc/search/tensor.c)


def parts_of_sum(call, k, target):
    """Into how many parts the sums of `k` products are taken apart that a call consists of; 1: not at all."""
    types = [call.checked_type, *(e.checked_type for e in call.args)]
    elements = topi.util.prod(types[0].concrete_shape)
    rows = elements // max(1, types[0].concrete_shape[-1])
    if (not PassContext.current().config.get("relay.parts_of_sums") or any(t.dtype != "float32" for t in types)
        or elements > _FEW_ELEMENTS or (target is not None and target.has_lane_products and rows >= _LANES_FROM)):  # fmt: skip
        return 1
    fits = (p for p in range(_MOST_PARTS, 1, -1)
            if k % p == 0 and k // p >= _LEAST_PART and elements * p <= _ENOUGH_ELEMENTS)  # fmt: skip
    return next(fits, 1)


def _matmul_loops(a, x, c, target):
    """Of two matrices, of all rows of a tensor with one matrix, or of batches, where an extent of 1 serves all."""
    left, right = (t.checked_type.concrete_shape for t in c.args)
    out = c.checked_type.concrete_shape
    flags = a.transpose_a, a.transpose_b
    if len(left) == len(right) == 2:
        parts = 1 if any(flags) else parts_of_sum(c, left[1], target)
        if parts > 1:
            return topi.nn.matmul_in_parts(*x, parts)
        return topi.nn.matmul(*x, None, c.checked_type.dtype, *flags)
    if len(right) == 2 and not a.transpose_a:
        rows = topi.reshape(x[0], (topi.util.prod(left[:-1]), left[-1]))
        return topi.reshape(topi.nn.matmul(rows, x[1], None, c.checked_type.dtype, *flags), out)
    batch = out[:-2]

    def batches(t, shape):
        if shape[:-2] not in ((), batch):
            t = topi.broadcast_to(t, (*batch, *shape[-2:]))
        return topi.reshape(t, (topi.util.prod(batch) if shape[:-2] else 1, *shape[-2:]))

    product = topi.nn.batch_matmul(batches(x[0], left), batches(x[1], right), None, c.checked_type.dtype, *flags)
    return topi.reshape(product, out)


register("nn.matmul", ANCHOR, _product(_flags), _numpy(_flags), colour=ALWAYS, loops=_matmul_loops, ranked=False)
register("nn.batch_matmul", ANCHOR, _product(_flags, rank=3), _numpy(_flags), colour=ALWAYS, ranked=False,
         loops=lambda a, x, c, t: topi.nn.batch_matmul(x[0], x[1], None, c.checked_type.dtype, a.transpose_a,
                                                       a.transpose_b))  # fmt: skip


def dense(data, weight, units=None, out_dtype=""):
    """``data @ weight.T``; weight is (units, in)."""
    return call("nn.dense", [data, weight], units=None if units is None else int(units), out_dtype=out_dtype)


def matmul(tensor_a, tensor_b, units=None, out_dtype="", transpose_a=False, transpose_b=False):
    """Matrix product with optional transposes."""
    return call("nn.matmul", [tensor_a, tensor_b], units=None if units is None else int(units), out_dtype=out_dtype,
                transpose_a=bool(transpose_a), transpose_b=bool(transpose_b))  # fmt: skip


def batch_matmul(tensor_a, tensor_b, out_dtype="", transpose_a=False, transpose_b=True):
    """Product of batches of matrices; by default the second operand is transposed."""
    return call("nn.batch_matmul", [tensor_a, tensor_b], out_dtype=out_dtype, transpose_a=bool(transpose_a),
                transpose_b=bool(transpose_b))  # fmt: skip
