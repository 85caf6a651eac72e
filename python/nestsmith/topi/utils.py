"""Helpers of those who write operators and schedules, by TVM's names."""

from .. import te, tir
from ..arith import Analyzer
from ..target import Target
from ..tir.layout import bijective_layout, layout
from .util import const_table, get_const_int, get_const_tuple, prod, ravel, unravel

__all__ = ["InvalidShapeError", "ceil_div", "const_matrix", "const_vector", "equal_const_int", "get_const_float",
           "get_const_int", "get_const_tuple", "get_float_tuple", "get_max_power2_factor", "get_shape",
           "is_empty_shape", "is_target", "make_idx", "nchw_pack_layout", "nchw_xc_layout", "prod", "ravel_index",
           "simplify", "swap", "traverse_inline", "unpack_NCHWc_to_nchw", "unravel_index", "within_index"]  # fmt: skip



class InvalidShapeError(ValueError):
    """A shape that an operator cannot have."""


def traverse_inline(s, final_op, callback):
    """Inlines what is computed element by element behind ``final_op`` in schedule ``s`` and calls ``callback(op)`` of each operation once,
    consumers first."""
    seen = set()

    def visit(op):
        if op in seen:
            return
        seen.add(op)
        if op.tag in ("elemwise", "broadcast") or (op.tag or "").startswith("injective"):
            if op not in s.outputs:
                s[op].compute_inline()
            for t in op.input_tensors:
                if isinstance(t.op, te.ComputeOp):
                    visit(t.op)
        callback(op)

    visit(final_op)


def simplify(expr):
    """The simplified expression; what is no expression stays."""
    return Analyzer().simplify(expr) if isinstance(expr, tir.PrimExpr) else expr


def equal_const_int(expr, value):
    """Whether ``expr`` is an integer, or simplifies to one, and equals ``value``."""
    expr = simplify(expr)
    if isinstance(expr, tir.PrimExpr) and expr.kind != "IntImm":
        return False
    return get_const_int(expr) == value


def get_const_float(expr):
    """A Python float from a number or a literal. Raises ValueError for anything else."""
    if isinstance(expr, (int, float)):
        return float(expr)
    expr = simplify(expr)
    if expr.kind not in ("FloatImm", "IntImm"):
        raise ValueError(f"Expect value to be constant float, not {expr}")
    return float(expr.value)


def get_float_tuple(values):
    """A tuple of floats from numbers and literals."""
    return tuple(get_const_float(v) for v in values)


def const_vector(vector, name="const_vector"):
    """A tensor of the elements of an array with one dimension."""
    (n,), dtype = vector.shape, str(vector.dtype)

    def f(i):
        now = tir.const(0.0, dtype)
        for k in range(n):
            now = tir.Select(tir.EQ(te.indexmod(i, n), k), tir.const(vector[k].item(), dtype), now)
        return now

    return te.compute((n,), f, name=name)


def const_matrix(matrix, name="const_matrix"):
    """A tensor of the elements of an array with two dimensions."""
    rows, columns = matrix.shape
    return const_table(rows, columns, lambda r, c: matrix[r][c].item(), str(matrix.dtype), name, {"const_matrix": True})


def get_max_power2_factor(n, max_value=None):
    """The largest power of two that divides ``n`` and is no larger than ``max_value``."""
    x = 1
    while n % 2 == 0 and (max_value is None or max_value >= x * 2):
        x, n = x * 2, n // 2
    return x


def get_shape(src_shape, src_layout, dst_layout):
    """A shape in another layout, e.g. (1, 16, 8, 8) in NCHW as (1, 4, 8, 8, 4) in NCHW4c."""
    if src_layout == dst_layout:
        return get_const_tuple(src_shape)
    source, target = (layout(t) if isinstance(t, str) else t for t in (src_layout, dst_layout))
    if len(src_shape) != len(source):
        raise ValueError(f"shape {tuple(src_shape)} has {len(src_shape)} dimensions, layout {source} has {len(source)}")
    mapping = bijective_layout(source, target)
    where = [get_const_int(i) for i in mapping.forward_index(list(range(len(source))))]
    if sorted(where) != list(range(len(source))):
        return get_const_tuple(mapping.forward_shape(src_shape))
    return get_const_tuple([src_shape[i] for i in where])


def ravel_index(indices, shape):
    """Row-major position of a multi-dimensional index."""
    return ravel(list(indices), shape)


def unravel_index(idx, shape):
    """Multi-dimensional index of a row-major position."""
    return unravel(idx, shape)


def within_index(b, e, s, i):
    """Whether index ``i`` is one of the slice ``b:e:s``."""
    below, above = tir.Select(s < 0, i <= e, i < b), tir.Select(s < 0, i > b, i >= e)
    return tir.Select(tir.Or(below, above), tir.const(False), tir.EQ(te.truncmod(tir.Select(s < 0, b - i, i - b), te.abs(s)), 0))


def make_idx(b, e, s, z, i):
    """The position in the slice ``b:e:s`` of an axis of extent ``z`` that index ``i`` has; 88 where it has none."""
    below, above = tir.Select(s < 0, i <= e, i < b), tir.Select(s < 0, i > b, i >= e)
    b = tir.Select(z < b, z - 1, b)
    place = tir.if_then_else(s < 0, te.truncdiv(b - i, te.abs(s)), te.truncdiv(i - b, s))
    return tir.if_then_else(tir.Or(below, above), 88, place)


def is_empty_shape(shape):
    """Whether a tensor of that shape has no elements."""
    return any(isinstance(d, int) and d == 0 for d in get_const_tuple(shape))


def ceil_div(a, b):
    """Quotient rounded up."""
    return te.indexdiv(a + (b - 1), b)


def swap(arr, axis):
    """The numbers 0, 1, ... of a list's elements with those of ``axis`` and the last one exchanged."""
    order = list(range(len(arr)))
    order[axis], order[-1] = order[-1], order[axis]
    return order


def is_target(names):
    """Whether the target in scope has one of these keys."""
    target = Target.current(allow_none=False)
    return any(n in target.keys for n in ([names] if isinstance(names, str) else names))


def nchw_pack_layout(layout_info):
    """Whether a layout is NCHW with packed N and C, such as NCHW1n4c."""
    return layout_info[:4] == "NCHW" and "c" in layout_info and "n" in layout_info


def nchw_xc_layout(layout_info):
    """Whether a layout is NCHW with packed C, such as NCHW8c."""
    return layout_info[:4] == "NCHW" and "c" in layout_info and layout_info[4:-1].isnumeric()


def unpack_NCHWc_to_nchw(packed_out, out_dtype):  # noqa: N802 (name of the established interface)
    """[N, C/b, H, W, b] as [N, C, H, W]."""
    n, chunks, h, w, b = get_const_tuple(packed_out.shape)
    return te.compute((n, chunks * b, h, w),
                      lambda n, c, h, w: packed_out[n, te.indexdiv(c, b), h, w, te.indexmod(c, b)].astype(out_dtype),
                      name="output_unpack", tag="injective,unpack_nchwc")  # fmt: skip


