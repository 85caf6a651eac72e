"""Operators that are a definition of :mod:`nestsmith.topi` each, and those that are made of others."""

import numpy as np

from ... import check, topi
from ...numerics import is_float
from ..expr import Constant, Expr, Tuple, TupleWrapper, const
from ..ty import TensorType
from . import reduce
from .derived import derive
from .registry import ANCHOR, BROADCAST, ELEMWISE, INJECTIVE, NEVER, OPAQUE, as_expr, call, ints, register, tensor
from .tensor import broadcast_shape, check_type, sqrt
from .transform import reshape

__all__ = ["adv_index", "cast_like", "collapse_sum_like", "collapse_sum_to", "einsum", "fixed_point_multiply",
           "invert_permutation", "isfinite", "isinf", "isnan", "matrix_set_diag", "mean_std", "meshgrid",
           "ndarray_size", "reinterpret", "reverse_reshape", "reverse_sequence", "scatter_elements", "scatter_nd",
           "searchsorted", "segment_sum", "sequence_mask", "sliding_window", "sort", "sparse_to_dense", "strided_set",
           "trilu", "trunc_divide", "trunc_mod", "unique", "unravel_index", "copy_shape_func", "device_copy"]  # fmt: skip


# ---- element by element ----

_TESTS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def _test(name):
    f, evaluate = getattr(topi, name), _TESTS[name]

    def infer(attrs, types):
        return TensorType(tensor(types, 0).shape, "bool")

    register(name, ELEMWISE, infer, lambda attrs, x: evaluate(x), loops=lambda a, x, c, t: f(x[0]))

    def build(data):
        return call(name, [as_expr(data)])

    return topi.util.named(build, name, f"``{name}(data)``: element-wise, of type bool.")


isnan, isinf, isfinite = map(_test, _TESTS)


def _truncated(name, exact, define):
    """A quotient, or its remainder, rounded toward zero."""

    def infer(attrs, types):
        a, b = tensor(types, 0), tensor(types, 1)
        if a.dtype != b.dtype:
            raise ValueError(f"element types differ: {a.dtype} and {b.dtype}; use relay.cast")
        check_type("divide", a.dtype)
        return TensorType(broadcast_shape(a.shape, b.shape), a.dtype)

    register(name, BROADCAST, infer, lambda attrs, a, b: exact(a, b), loops=lambda a, x, c, t: define(*x))

    def build(lhs, rhs):
        return call(name, [as_expr(lhs), as_expr(rhs)])

    return topi.util.named(build, name, f"``{name}(lhs, rhs)``: toward zero, with NumPy broadcasting.")


def _quotient(a, b):
    if not b.all():
        raise NotImplementedError  # not folded: the run raises
    return np.trunc(a / b).astype(a.dtype) if a.dtype.kind == "f" else (np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)).astype(a.dtype)


def _remainder(a, b):
    if not b.all():
        raise NotImplementedError
    return np.fmod(a, b).astype(a.dtype)


def _divide(a, b):
    return topi.trunc(topi.divide(a, b)) if is_float(a.dtype) else topi.divide(a, b)


trunc_divide, trunc_mod = _truncated("trunc_divide", _quotient, _divide), _truncated("trunc_mod", _remainder, topi.mod)

derive("reinterpret", lambda a, x: topi.reinterpret(x[0], a.dtype), ELEMWISE)


def reinterpret(data, dtype):
    """The bits of each element as another type of the same size."""
    return call("reinterpret", [data], dtype=str(dtype))


derive("fixed_point_multiply", lambda a, x: topi.fixed_point_multiply(x[0], a.multiplier, a.shift), ELEMWISE)


def fixed_point_multiply(data, multiplier, shift):
    """``round(data * multiplier / 2^31 * 2^shift)`` of int32."""
    return call("fixed_point_multiply", [data], multiplier=int(multiplier), shift=int(shift))


def cast_like(data, dtype_like):
    """`data` in the element type of another tensor."""
    return call("cast_like", [data, as_expr(dtype_like)])


register("cast_like", ELEMWISE, lambda attrs, types: TensorType(tensor(types, 0).shape, tensor(types, 1).dtype),
         lambda attrs, x, like: x.astype(like.dtype), loops=lambda a, x, c, t: topi.cast(x[0], x[1].dtype))  # fmt: skip


def device_copy(data, src_device, dst_device):
    """`data`: networks run on one device, so there is nothing to copy."""
    return data


def copy_shape_func(attrs, inputs, _):
    """The shape of the first input, for :func:`relay.op.register_shape_func`."""
    return [inputs[0]]


# ---- sums ----

derive("collapse_sum_like", lambda a, x: topi.collapse_sum(x[0], x[1].shape), OPAQUE)
derive("collapse_sum_to", lambda a, x: topi.collapse_sum(x[0], a.shape), OPAQUE)


def collapse_sum_like(data, collapse_type):
    """The sum of `data` over the dimensions along which a tensor of the shape of `collapse_type` was broadcast to it."""
    return call("collapse_sum_like", [data, collapse_type])


def collapse_sum_to(data, shape):
    """The sum of `data` over the dimensions along which a tensor of `shape` was broadcast to it."""
    return call("collapse_sum_to", [data], shape=ints(shape))


def mean_std(data, axis=None, keepdims=False, exclude=False):
    """(mean, standard deviation) over `axis`."""
    m, var = reduce.mean_variance(data, axis, keepdims, exclude)
    return TupleWrapper(Tuple([m, sqrt(var)]), 2)


derive("einsum", lambda a, x: topi.einsum(a.equation, *x[0]), ANCHOR)


def einsum(data, equation):
    """The sum of products of a tuple of tensors by index letters: ``"ij,jk->ik"``."""
    return call("einsum", [as_expr(data)], equation=str(equation))


def segment_sum(data, segment_ids, num_segments=None):
    """Sums of the rows of `data` that have the same number in `segment_ids`; `num_segments` (None: the largest of constant numbers, plus
    one) is how many there are."""
    if num_segments is None:
        if not isinstance(segment_ids, Constant):
            raise ValueError("give num_segments: the numbers of the segments are not constant")
        num_segments = int(segment_ids.data.max()) + 1
    t = data.checked_type
    start = const(np.zeros((num_segments, *t.shape[1:]), t.dtype))
    return scatter_nd(start, reshape(segment_ids, (1, -1)), data, "add")


# ---- moving elements ----

derive("adv_index", lambda a, x: topi.adv_index(x[0][0], x[0][1:]))
derive("scatter_elements", lambda a, x: topi.scatter_elements(x[0], x[1], x[2], a.axis, a.reduction), OPAQUE)
derive("scatter_nd", lambda a, x: topi.scatter_nd(x[0], x[1], x[2], a.mode), OPAQUE)
derive("sequence_mask", lambda a, x: topi.sequence_mask(x[0], x[1], a.mask_value, a.axis))
derive("reverse_sequence", lambda a, x: topi.reverse_sequence(x[0], x[1], a.seq_axis, a.batch_axis))
derive("unravel_index", lambda a, x: topi.unravel_index(x[0], x[1]))
derive("invert_permutation", lambda a, x: topi.invert_permutation(x[0]), OPAQUE)
derive("sparse_to_dense", lambda a, x: topi.sparse_to_dense(x[0], a.output_shape, x[1], x[2]), OPAQUE)
derive("matrix_set_diag", lambda a, x: topi.matrix_set_diag(x[0], x[1], (a.k1, a.k2), a.align))
derive("strided_set", lambda a, x: topi.strided_set(*x))
derive("sliding_window", lambda a, x: topi.sliding_window(x[0], a.axis, a.window_shape, a.strides))
derive("trilu", lambda a, x: topi.trilu(x[0], x[1], a.upper))
derive("searchsorted", lambda a, x: topi.searchsorted(x[0], x[1], a.right, a.dtype), OPAQUE)
register("sort", OPAQUE, lambda attrs, types: tensor(types, 0), colour=NEVER, loops=lambda a, x, c, t: topi.sort(x[0], a.axis, a.is_ascend))
derive("unique", lambda a, x: topi.unique(x[0], a.sorted, a.return_counts), OPAQUE)
derive("meshgrid", lambda a, x: topi.meshgrid(x[0], a.indexing))
derive("ndarray_size", lambda a, x: topi.ndarray_size(x[0], a.dtype), OPAQUE, evaluate=lambda attrs, x: np.array(x.size, attrs.dtype))


def adv_index(inputs):
    """``inputs[0][inputs[1], inputs[2], ...]`` of index tensors that broadcast, as NumPy indexes; a negative index is an error."""
    return call("adv_index", [as_expr(inputs)])


def scatter_elements(data, indices, updates, axis=0, reduction="update"):
    """A copy of `data` in which element ``indices[..i..]`` along `axis` is combined with ``updates[..i..]``: update, add, mul, min, max or
    mean."""
    return call("scatter_elements", [data, indices, updates], axis=int(axis), reduction=str(reduction))


def scatter_nd(data, indices, updates, mode="update"):
    """A copy of `data` in which the elements at index tuples (along the first axis of `indices`) are combined with `updates`: update, add,
    mul, min or max."""
    return call("scatter_nd", [data, indices, updates], mode=str(mode))


def sequence_mask(data, valid_length, mask_value=0, axis=0):
    """`data` with `mask_value` from position ``valid_length[batch]`` on along `axis` (0 or 1; the other one is the batch)."""
    return call("sequence_mask", [data, valid_length], mask_value=float(mask_value), axis=int(axis))


def reverse_sequence(data, seq_lengths, seq_axis=1, batch_axis=0):
    """`data` with the first ``seq_lengths[b]`` elements along `seq_axis` reversed for each b of `batch_axis`."""
    return call("reverse_sequence", [data, as_expr(seq_lengths)], seq_axis=int(seq_axis), batch_axis=int(batch_axis))


def unravel_index(indices, shape):
    """The multi-dimensional indices of places in a tensor whose extents are `shape`."""
    return call("unravel_index", [indices, as_expr(shape)])


def invert_permutation(data):
    """The permutation that undoes `data`."""
    return call("invert_permutation", [data])


def sparse_to_dense(sparse_indices, output_shape, sparse_values, default_value=0):
    """A tensor of `default_value` with `sparse_values` at `sparse_indices`."""
    value = default_value if isinstance(default_value, Expr) else const(default_value, sparse_values.checked_type.dtype)
    return call("sparse_to_dense", [sparse_indices, sparse_values, value], output_shape=ints(output_shape))


def matrix_set_diag(data, diagonal, k=0, align="RIGHT_LEFT"):
    """`data` with its diagonals `k` (a number, or the lowest and the highest) replaced; `align`: where shorter ones stand in `diagonal`."""
    low, high = (k, k) if isinstance(k, int) else k if len(k) > 1 else (k[0], k[0])
    return call("matrix_set_diag", [data, diagonal], k1=int(low), k2=int(high), align=str(align))


def strided_set(data, v, begin, end, strides=None):
    """`data` with the elements of a slice set to those of `v`; `begin`, `end` and `strides` are tensors or lists."""
    begin, end = (x if isinstance(x, Expr) else const(list(x)) for x in (begin, end))
    steps = strides if isinstance(strides, Expr) else const(list(strides or [1] * begin.checked_type.shape[0]))
    return call("strided_set", [data, v, begin, end, steps])


def sliding_window(data, axis, window_shape, strides):
    """Windows of `data` over the dimensions from `axis` on: [..., number of windows ..., window ...]."""
    return call("sliding_window", [data], axis=int(axis), window_shape=ints(window_shape), strides=ints(strides))


def trilu(data, k, upper=True):
    """The upper or lower triangle of matrices from diagonal `k` on; zeros elsewhere."""
    return call("trilu", [data, k if isinstance(k, Expr) else const(k, "int32")], upper=bool(upper))


def searchsorted(sorted_sequence, values, right=False, dtype="int32"):
    """How many elements of the sorted last dimension are smaller than each value (`right`: or equal)."""
    return call("searchsorted", [sorted_sequence, values], right=bool(right), dtype=str(dtype))


def sort(data, axis=-1, is_ascend=1):
    """The elements along `axis` in order."""
    return call("sort", [data], axis=int(axis), is_ascend=bool(is_ascend))


def unique(data, is_sorted=True, return_counts=False):
    """The different elements of a vector of n elements: [elements, where each is first, for each of `data` which one it is, how many there
    are, with `return_counts` how often each is there]. The first n of the results are there, of which those count that there are."""
    return TupleWrapper(call("unique", [data], sorted=bool(is_sorted), return_counts=bool(return_counts)), 5 if return_counts else 4)


def meshgrid(data, indexing="ij"):
    """For vectors a tensor each: its elements along its own dimension, repeated along those of the others."""
    data = as_expr(data)
    size = len(data.fields) if isinstance(data, Tuple) else len(data.checked_type.fields)
    return TupleWrapper(call("meshgrid", [data], indexing=check_indexing(indexing)), size)


def check_indexing(indexing):
    check.one_of_names("indexing", indexing, ("ij", "xy"))
    return indexing


def ndarray_size(data, dtype="int32"):
    """The number of elements, as a tensor without dimensions."""
    return call("ndarray_size", [data], dtype=str(dtype))


def _from_the_end(attrs, x):
    """The shape of reshape, its codes read from the last dimension on."""
    old, out, k = list(x[0].shape)[::-1], [], 0
    for d in reversed(attrs.newshape):
        if d == -3:
            out.append(old[k] * old[k + 1])
        elif d in (0, -1):
            out.append(old[k] if d == 0 else -1)
        else:
            out.append(d)
        k += 2 if d == -3 else 1
    if -1 in out:
        at, total = out.index(-1), int(np.prod([int(n) for n in old]))
        out[at] = total // max(1, int(np.prod([int(n) for i, n in enumerate(out) if i != at])))
    return topi.reshape(x[0], [int(n) for n in reversed(out)])


derive("contrib_reverse_reshape", _from_the_end, INJECTIVE, ranked=False)


def reverse_reshape(data, newshape):
    """Another shape; the codes of :func:`reshape` (0: copy, -1: infer, -3: merge two) are read from the last dimension on."""
    return call("contrib_reverse_reshape", [data], newshape=ints((newshape,) if isinstance(newshape, int) else newshape))


