"""Helpers shared by the operators: shapes, paddings, computes with the axis names of library stages."""

from .. import te
from ..numerics import is_float, mean_type, sum_type  # noqa: F401
from ..tir import EQ, And, Select, const
from ..tir.expr import as_const_int

ELEMWISE, BROADCAST, INJECTIVE = "elemwise", "broadcast", "injective"
COMM_REDUCE, COMM_REDUCE_IDX = "comm_reduce", "comm_reduce_idx"


def c_compute(shape, f, name="tensor", tag="", attrs=None):
    """A compute whose axes are called ``ax0, ax1, ...``."""
    shape = list(shape)
    names = [f"ax{i}" for i in range(len(shape))]
    if not shape:
        return te.compute((), lambda: f(), name=name, tag=tag, attrs=attrs)
    return te.compute(shape, lambda *ax: f(*ax), name=name, tag=tag, attrs=attrs, varargs_names=names)


def injective(shape, f, name):
    """A compute with the tag ``injective``: every element is made of one element of each tensor."""
    return c_compute(shape, f, name, INJECTIVE)


def named(f, name, doc):
    """A function made for a row of a table, under its name and with its docstring."""
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return f


def get_const_int(value):
    """A Python integer from an int or a literal; ``ValueError`` for anything symbolic."""
    return as_const_int(value)


def get_const_tuple(shape):
    """A tuple with literals as ints; symbolic dimensions stay as they are."""
    out = []
    for s in shape:
        try:
            out.append(as_const_int(s))
        except ValueError:
            out.append(s)
    return tuple(out)


def prod(values):
    """Product, starting from the integer 1."""
    out = 1
    for v in values:
        out = out * v
    return out


def tuple_of(value, n, what):
    """``value`` as a tuple of ``n`` integers; a single integer is repeated."""
    if not isinstance(value, (tuple, list)) and hasattr(value, "__index__"):
        return (as_const_int(value),) * n
    value = tuple(as_const_int(v) for v in value)
    if len(value) == 1:
        value *= n
    if len(value) != n:
        raise ValueError(f"{what} takes 1 or {n} integers, not {value}")
    return value


def get_pads(padding, kernel):
    """(before, after) per spatial dimension from ``"SAME"``, ``"VALID"``, one number, one per dimension, or first all
    the amounts before and then all the amounts after. ``kernel`` is the dilated window."""
    n = len(kernel)
    if isinstance(padding, str):
        if padding == "VALID":
            return (0,) * n, (0,) * n
        if padding == "SAME":
            before = tuple(k // 2 for k in kernel)
            return before, tuple(k - 1 - b for k, b in zip(kernel, before))
        raise ValueError(f'padding is "SAME", "VALID" or integers, not {padding!r}')
    if isinstance(padding, (tuple, list)) and len(padding) == 2 * n and n * 2 != n:
        padding = tuple(as_const_int(p) for p in padding)
        return padding[:n], padding[n:]
    both = tuple_of(padding, n, "padding")
    return both, both


def get_pad_tuple(padding, kernel):
    """(top, left, bottom, right) of a two-dimensional window."""
    before, after = get_pads(padding, tuple(as_const_int(k) for k in kernel))
    return (*before, *after)


def normal_axis(axis, ndim, what="axis"):
    """A dimension number in 0 .. ndim-1 from one that may be negative."""
    a = as_const_int(axis)
    if not -ndim <= a < ndim:
        raise ValueError(f"{what} {a} is out of range for {ndim} dimension(s)")
    return a % ndim if ndim else 0


def layout_axes(layout, letters):
    """Positions of dimensions in a layout; digits of packed layouts such as NCHW4c do not count."""
    plain = [c for c in layout if not c.isdigit()]
    if any(c not in plain for c in letters):
        raise ValueError(f"layout {layout!r} lacks one of the dimensions {letters}")
    return [plain.index(c) for c in letters]


def in_layout(values, positions):
    """`values`, one per letter of some order, in the order of a layout with these positions (:func:`layout_axes`)."""
    return placed(values, positions, values)


def placed(values, positions, new):
    """`values` with new ones at some positions."""
    out = list(values)
    for p, v in zip(positions, new):
        out[p] = v
    return out


def ravel(indices, shape):
    """Row-major position of a multi-dimensional index."""
    flat = indices[0]
    for i, s in zip(indices[1:], list(shape)[1:]):
        flat = flat * s + i
    return flat


def position(indices, shape):
    """Row-major position of a multi-dimensional index, 0 of an empty one."""
    flat = const(0, "int32")
    for i, s in zip(indices, shape):
        flat = flat * s + i
    return flat


def unravel(flat, shape):
    """Multi-dimensional index of a row-major position; every dimension gets its modulo, the first too."""
    out = []
    for s in reversed(list(shape)):
        out.append(te.floormod(flat, s))
        flat = te.floordiv(flat, s)
    return out[::-1]


def const_like(value, expr):
    """A literal in the type of ``expr``. Raises ValueError if it is a fraction and the type has none."""
    if not is_float(expr.dtype) and value != int(value):
        raise ValueError(f"{value} is no value of type {expr.dtype}; cast the tensor to a float type first")
    return const(value, expr.dtype)


def const_table(rows, columns, element, dtype, name, attrs):
    """A stage of known numbers: one select per element, the last element outermost."""

    def f(i, j):
        now = const(0.0, dtype)
        for r in range(rows):
            for c in range(columns):
                here = And(EQ(te.indexmod(i, rows), r), EQ(te.indexmod(j, columns), c))
                now = Select(here, const(element(r, c), dtype), now)
        return now

    return te.compute((rows, columns), f, name=name, attrs=attrs)


def all_of(conditions):
    """Conditions joined to the left by and; None if there are none."""
    return te.all(*conditions) if conditions else None
