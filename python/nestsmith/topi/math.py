"""Fast approximations, fixed-point numbers and small compositions.

Signatures::

    fast_exp(x), fast_tanh(x), fast_erf(x)      float32: a few operations on vectors; other types: the exact functions
    elemwise_sum(xs)                            T_elemwise_sum
    reinterpret(x, dtype)                       T_reinterpret
    ceil_log2(x)                                of integers and floats
    fixed_point_multiply(x, multiplier, shift), fixed_point_multiply_per_axis(x, y, lshift, rshift, ..., axes)
    collapse_sum(data, target_shape)            expand_like(a, shape_like, axis)
    ndarray_size(array, dtype="int32")          layout_transform(array, src_layout, dst_layout)
    meshgrid(a_tuple, indexing)                 const_vector: nestsmith.topi.utils
"""

from .. import te, tir
from ..tir.layout import bijective_layout
from . import elemwise, reduction
from .util import ELEMWISE, INJECTIVE, c_compute, get_const_tuple, injective, normal_axis, prod

__all__ = ["ceil_log2", "collapse_sum", "elemwise_sum", "expand_like", "fast_erf", "fast_exp", "fast_tanh",
           "fixed_point_multiply", "fixed_point_multiply_per_axis", "layout_transform", "meshgrid", "ndarray_size",
           "reinterpret"]  # fmt: skip


def _clamped(v, low, high):
    return tir.Max(tir.Min(v, tir.const(high, v.dtype)), tir.const(low, v.dtype))


def _horner(x, coefficients):
    out = tir.const(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        out = out * x + tir.const(c, x.dtype)
    return out


def fast_exp_of(v):
    """2^n e^f with n whole and |f| <= ln(2)/2; a polynomial of Cephes (S. Moshier, expf)."""
    v = _clamped(v, -88.3762626647949, 88.3762626647949)
    n = te.floor(v * tir.const(1.4426950408889634, v.dtype) + tir.const(0.5, v.dtype))
    f = v - n * tir.const(0.6931471805599453, v.dtype)
    y = _horner(f, [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1])
    y = y * f * f + f + tir.const(1.0, v.dtype)
    two_to_n = tir.reinterpret("float32", tir.shift_left(n.astype("int32") + 127, tir.const(23)))
    return tir.Max(two_to_n * y, v)


def _fast_tanh(v):
    """A quotient of polynomials, odd over even, on -9 .. 9 (as Eigen's ptanh)."""
    v = _clamped(v, -9.0, 9.0)
    s = v * v
    p = v * _horner(s, [-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
                        1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03])  # fmt: skip
    q = _horner(s, [1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03])
    return p / q


def _fast_erf(v):
    """A quotient of polynomials, odd over even, on -4 .. 4 (as Eigen's erf)."""
    v = _clamped(v, -4.0, 4.0)
    s = v * v
    p = v * _horner(s, [-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
                        -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02])  # fmt: skip
    q = _horner(s, [-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02])
    return p / q


def _fast(x, approximate, exact, name):
    if x.dtype != "float32":
        return exact(x)
    return c_compute(x.shape, lambda *ax: approximate(x(*ax)), name, ELEMWISE)


def fast_exp(x):
    """``exp`` with a relative error of about 1e-6; infinite nowhere."""
    return _fast(x, fast_exp_of, elemwise.exp, "T_fast_exp")


def fast_tanh(x):
    """``tanh`` with a relative error of about 1e-6."""
    return _fast(x, _fast_tanh, elemwise.tanh, "T_fast_tanh")


def fast_erf(x):
    """``erf`` with an error of about 1e-6."""
    return _fast(x, _fast_erf, elemwise.erf, "T_fast_erf")


def elemwise_sum(xs):
    """The sum of tensors of one shape; ``ValueError`` for an empty list."""
    if not xs:
        raise ValueError("elemwise_sum: at least one tensor is needed")

    def f(*ax):
        out = xs[0](*ax)
        for x in xs[1:]:
            out = out + x(*ax)
        return out

    return c_compute(xs[0].shape, f, "T_elemwise_sum", ELEMWISE)


def reinterpret(x, dtype):
    """The bits of each element read as ``dtype``, of the same size."""
    return c_compute(x.shape, lambda *ax: tir.reinterpret(dtype, x(*ax)), "T_reinterpret", ELEMWISE)


def ceil_log2(x):
    """The logarithm to base 2, rounded up."""
    if x.dtype.startswith(("float", "bfloat")):
        return elemwise.ceil(elemwise.log2(x))
    bits = int(x.dtype.lstrip("uint"))

    def f(*ax):
        v = x(*ax)
        return (tir.const(bits, "int32") - tir.clz(v - tir.const(1, v.dtype)).astype("int32")).astype(x.dtype)

    return c_compute(x.shape, f, "T_ceil_log2", ELEMWISE)


def fixed_point_multiply(x, multiplier, shift):
    """``round(x * multiplier / 2^31 * 2^shift)`` of int32, halves away from minus infinity; ``multiplier`` in Q31."""
    return c_compute(x.shape, lambda *ax: tir.q_multiply_shift(x(*ax), multiplier, 31, shift), "T_fixed_point_multiply", ELEMWISE)


def fixed_point_multiply_per_axis(x, y, lshift, rshift, is_lshift_required, is_rshift_required, axes):
    """As :func:`fixed_point_multiply` with a multiplier ``y`` and shifts for each position along ``axes``."""

    def f(*ax):
        at = [ax[normal_axis(a, len(ax))] for a in axes]
        return tir.q_multiply_shift_per_axis(x(*ax), y(*at), lshift(*at), rshift(*at), tir.const(31),
                                             tir.const(bool(is_lshift_required)), tir.const(bool(is_rshift_required)))  # fmt: skip

    return c_compute(x.shape, f, "T_fixed_point_multiply_per_axis", ELEMWISE)


def collapse_sum(data, target_shape):
    """The sum of ``data`` over the dimensions along which ``target_shape`` was broadcast."""
    shape, want = get_const_tuple(data.shape), get_const_tuple(target_shape)
    lead = len(shape) - len(want)
    axes = [*range(lead), *[lead + i for i, (s, w) in enumerate(zip(shape[lead:], want)) if w == 1 and s != 1]]
    for s, w in zip(shape[lead:], want):
        if w not in (1, s):
            raise ValueError(f"collapse_sum: shape {shape} does not come from {want} by broadcasting")
    if not axes:
        return data
    total = reduction.sum(data, axes, True)
    return injective(want, lambda *ax: total(*[0] * lead, *ax), "T_collapse_sum") if lead else total


def expand_like(a, shape_like, axis):
    """``a`` repeated along new dimensions ``axis``, so that it has the shape of ``shape_like``."""
    n = len(shape_like.shape)
    axes = sorted(normal_axis(i, n) for i in (axis if isinstance(axis, (tuple, list)) else [axis]))
    if len(axes) + len(a.shape) != n and not (len(a.shape) == 1 and len(axes) == n):
        raise ValueError(f"expand_like: {len(a.shape)} dimensions and new axes {axes} do not make {n}")
    if len(axes) == n:
        return injective(shape_like.shape, lambda *ax: a(0), "T_expand_like")
    return injective(shape_like.shape, lambda *ax: a(*[i for d, i in enumerate(ax) if d not in axes]), "T_expand_like")


def ndarray_size(array, dtype="int32"):
    """The number of elements as a tensor without dimensions."""
    n = prod(get_const_tuple(array.shape))
    return injective([], lambda: tir.const(n, dtype) if isinstance(n, int) else n.astype(dtype), "ndarray_size")


def layout_transform(array, src_layout, dst_layout, schedule_rule="None"):
    """``array`` in another layout, e.g. from NCHW to NCHW8c. Where an extent is no multiple of the factor, what is added is 0.

    Raises ValueError if the layouts have different axes.
    """
    if src_layout == dst_layout:
        return array
    mapping = bijective_layout(src_layout, dst_layout)
    shape, old = get_const_tuple(mapping.forward_shape(array.shape)), get_const_tuple(array.shape)
    back = get_const_tuple(mapping.backward_shape(shape))

    def f(*ax):
        at = mapping.backward_index(list(ax))
        fits = [i < s for i, s, b in zip(at, old, back) if not bool(s == b)]
        return te.if_then_else(te.all(*fits), array(*at), tir.const(0, array.dtype)) if fits else array(*at)

    attrs = {"schedule_rule": schedule_rule, "src_layout": src_layout, "dst_layout": dst_layout}
    return c_compute(shape, f, "T_layout_trans", INJECTIVE, attrs)


def meshgrid(a_tuple, indexing):
    """For vectors (or scalars) a list of tensors, one for each: its elements along its own dimension, repeated along those of the others.
    ``indexing``: ``"ij"``, or ``"xy"`` with the first two dimensions exchanged."""
    if indexing not in ("ij", "xy"):
        raise ValueError(f'meshgrid: indexing is "ij" or "xy", not {indexing!r}')
    place = list(range(len(a_tuple)))
    if indexing == "xy" and len(place) > 1:
        place[0], place[1] = 1, 0
    shape = [1] * len(place)
    for t, p in zip(a_tuple, place):
        shape[p] = t.shape[0] if len(t.shape) else 1
    return [injective(shape, lambda *ax, t=t, p=p: t(ax[p]) if len(t.shape) else t(), "T_meshgrid")
            for t, p in zip(a_tuple, place)]  # fmt: skip


