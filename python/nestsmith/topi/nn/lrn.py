"""Local response normalisation."""

from ... import te, tir
from ..broadcast import divide
from ..elemwise import as_type
from ..transform import pad
from ..util import c_compute, get_const_int, normal_axis, sum_type


def lrn(data, size, axis=1, alpha=0.0001, beta=0.75, bias=2):
    """``data / (bias + alpha / size * (sum of squares of the size elements around)) ** beta`` along a dimension; zeros lie
    beyond the edges. Of an even ``size`` the extra element lies before."""
    a, size = normal_axis(axis, len(data.shape)), get_const_int(size)
    if size < 1:
        raise ValueError(f"lrn: size is {size}; it must be at least 1")
    acc = sum_type(data.dtype)
    around = [size // 2 if i == a else 0 for i in range(len(data.shape))]
    padded = pad(as_type(data, acc), around, around, tir.const(0, acc), name="pad_data")
    rxs = te.reduce_axis((0, size), "rxs")

    def square(*ax):
        v = padded(*ax[:a], ax[a] + rxs, *ax[a + 1 :])
        return te.sum(v * v, axis=rxs)

    sums = c_compute(data.shape, square)
    scale, power = tir.const(alpha, acc), tir.const(beta, acc)
    mean = lambda *ax: tir.Div(scale * sums(*ax), tir.const(size, acc))  # noqa: E731
    up = c_compute(data.shape, lambda *ax: tir.power(tir.const(bias, acc) + mean(*ax), power))
    return as_type(divide(as_type(data, acc), up), data.dtype)
