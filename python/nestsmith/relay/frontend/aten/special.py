"""Special functions: of gamma, of errors, of Bessel. They are computed in float64, for which the series have terms enough, and rounded
once; their sources stand beside them."""

import math

import numpy as np

from ....numerics import is_float
from ... import op as relay
from .. import common as c
from ..values import array, dtype_of
from .promotion import Types, default_float
from .table import ATEN, aten, each


def _wide(f):
    """`f`, of float64, for all types of floats; of others as floats."""

    def convert(x, *more):
        kind = dtype_of(x) if is_float(dtype_of(x)) else default_float()
        return c.as_dtype(f(c.as_dtype(x, "float64"), *more), kind)

    return convert


_EULER_GAMMA = 0.5772156649015329

# Lanczos (1964), g = 7: the coefficients of Godfrey (2001).
_LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
            12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)  # fmt: skip


def _log_gamma_of_more_than_half(x):
    y = relay.subtract(x, c.scalar(1, x))
    terms = [relay.divide(c.scalar(a, x), relay.add(y, c.scalar(k, x))) for k, a in enumerate(_LANCZOS[1:], 1)]
    series = c.summed([c.scalar(_LANCZOS[0], x), *terms])
    t = relay.add(y, c.scalar(7.5, x))
    power = relay.subtract(relay.multiply(relay.add(y, c.scalar(0.5, x)), relay.log(t)), t)
    return c.summed([c.scalar(0.5 * math.log(2 * math.pi), x), power, relay.log(series)])


def _zeta_less_one(k):
    """Riemann's zeta function of k, less 1: its terms below 99, and Euler's formula for the others."""
    n = 99.0
    tail = n ** (1 - k) / (k - 1) + n**-k / 2 + k * n ** (-k - 1) / 12 - k * (k + 1) * (k + 2) * n ** (-k - 3) / 720
    return math.fsum([*(float(i) ** -k for i in range(2, 99)), tail])


# Abramowitz and Stegun 6.1.33, of gamma(2 + z): from the highest power on.
_NEAR_TWO = [(-1) ** k * _zeta_less_one(k) / k for k in range(28, 1, -1)] + [1 - _EULER_GAMMA, 0.0]


def _log_gamma_about_two(x):
    """From 0.5 to 2.5, with the zeros at 1 and 2: by the series about 2."""
    first = relay.less(x, c.scalar(1.5, x))
    z = relay.subtract(x, relay.where(first, c.scalar(1, x), c.scalar(2, x)))
    out = c.polynomial(z, _NEAR_TWO)
    return relay.where(first, relay.subtract(out, relay.log1p(z)), out)


def _reflected(x):
    """(whether x is below a half, 1 - x there and x elsewhere, how far x is from a whole number)"""
    below = relay.less(x, c.scalar(0.5, x))
    return below, relay.where(below, relay.subtract(c.scalar(1, x), x), x), relay.subtract(x, relay.round(x))


@aten("lgamma", "special_gammaln")
@_wide
def _lgamma(x):
    below, y, part = _reflected(x)
    low = relay.less(y, c.scalar(5.5, x))
    near, far = relay.where(low, y, c.scalar(1, x)), relay.where(low, c.scalar(6, x), y)
    factors = c.scalar(1, x)
    for k in (2.5, 3.5, 4.5):  # down to what is below 2.5
        more = relay.greater_equal(y, c.scalar(k, x))
        near = relay.where(more, relay.subtract(near, c.scalar(1, x)), near)
        factors = relay.where(more, relay.multiply(factors, relay.subtract(y, c.scalar(k - 1.5, x))), factors)
    out = relay.where(low, relay.add(_log_gamma_about_two(near), relay.log(factors)), _log_gamma_of_more_than_half(far))
    # log(sin(pi part) / pi), in two parts, for the smallest numbers have no sines
    size = relay.abs(part)
    angle = relay.multiply(relay.maximum(size, c.scalar(1e-300, x)), c.scalar(math.pi, x))
    sine = relay.add(relay.log(size), relay.log(relay.divide(relay.sin(angle), angle)))
    out = relay.where(below, relay.negative(relay.add(sine, out)), out)
    pole = relay.logical_and(relay.less_equal(x, c.scalar(0, x)), relay.equal(size, c.scalar(0, x)))
    return relay.where(relay.logical_or(pole, relay.equal(relay.abs(x), c.scalar(np.inf, x))), c.scalar(np.inf, x), out)


# B(2k) / 2k of the asymptotic series, Abramowitz and Stegun 6.3.18.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


@aten("digamma", "special_psi", "special_digamma")
@_wide
def _digamma(x):
    one, zero = c.scalar(1, x), c.scalar(0, x)
    below, y, part = _reflected(x)
    steps = c.summed([relay.divide(one, relay.add(y, c.scalar(k, x))) for k in range(10)])
    z = relay.add(y, c.scalar(10, x))
    square = relay.divide(one, relay.multiply(z, z))
    tail = relay.multiply(square, c.polynomial(square, _DIGAMMA[::-1]))
    out = relay.subtract(relay.log(z), c.summed([relay.divide(c.scalar(0.5, x), z), tail, steps]))
    angle = relay.multiply(part, c.scalar(math.pi, x))
    out = relay.where(below, relay.subtract(out, relay.divide(c.scalar(math.pi, x), relay.tan(angle))), out)
    pole = relay.logical_and(relay.equal(part, zero), relay.less(x, zero))
    out = relay.where(relay.logical_or(pole, relay.equal(x, c.scalar(-np.inf, x))), c.scalar(np.nan, x), out)
    out = relay.where(relay.equal(x, c.scalar(np.inf, x)), x, out)
    return relay.where(relay.equal(x, zero), relay.copysign(c.scalar(np.inf, x), relay.negative(x)), out)


# Giles, "Approximating the erfinv function" (GPU Computing Gems, 2010), single precision.
_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
_EDGE = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)


def _erfinv_of(x):
    one, five = c.scalar(1, x), c.scalar(5, x)
    w = relay.negative(relay.log(relay.multiply(relay.subtract(one, x), relay.add(one, x))))
    inner = c.polynomial(relay.subtract(w, c.scalar(2.5, x)), _CENTRE)
    outer = c.polynomial(relay.subtract(relay.sqrt(relay.maximum(w, five)), c.scalar(3, x)), _EDGE)
    y = relay.multiply(relay.where(relay.less(w, five), inner, outer), x)
    for _ in range(2):  # Newton
        slope = relay.multiply(c.scalar(2 / math.sqrt(math.pi), x), relay.exp(relay.negative(relay.multiply(y, y))))
        y = relay.subtract(y, relay.divide(relay.subtract(relay.erf(y), x), slope))
    y = relay.where(relay.equal(relay.abs(x), one), relay.copysign(c.scalar(np.inf, x), x), y)
    return relay.where(relay.greater(relay.abs(x), one), c.scalar(np.nan, x), y)


@aten("erfinv", "special_erfinv")
@_wide
def _erfinv(x):
    rest, near = relay.subtract(c.scalar(1, x), relay.abs(x)), c.scalar(1e-4, x)
    edge = relay.logical_and(relay.less(rest, near), relay.greater(rest, c.scalar(0, x)))
    return relay.where(edge, relay.copysign(_erfc_inverse(relay.clip(rest, 5e-324, 1e-4)), x), _erfinv_of(x))


def _erfcx_of(x):
    """exp(x^2) erfc(x): a continued fraction (7.1.14) from 4 on."""
    near = relay.minimum(x, c.scalar(4, x))
    low = relay.multiply(relay.exp(relay.multiply(near, near)), relay.erfc(near))
    far, fraction = relay.maximum(x, c.scalar(4, x)), None
    for k in range(30, 0, -1):
        under = far if fraction is None else relay.add(far, fraction)
        fraction = relay.divide(c.scalar(k / 2, x), under)
    high = relay.divide(c.scalar(1 / math.sqrt(math.pi), x), relay.add(far, fraction))
    return relay.where(relay.greater(x, c.scalar(4, x)), high, low)


def _erfc_inverse(q):
    """z of erfc(z) = q <= 0.04: Newton's steps on the logarithm of erfc, from the first terms of its asymptotic series."""
    wanted, steep = relay.log(q), c.scalar(-2 / math.sqrt(math.pi), q)
    under = relay.multiply(relay.negative(wanted), c.scalar(math.pi, q))
    z = relay.sqrt(relay.subtract(relay.negative(wanted), relay.multiply(c.scalar(0.5, q), relay.log(under))))
    for _ in range(3):
        tail = _erfcx_of(z)  # erfc itself is not precise where it is subnormal
        miss = relay.subtract(relay.subtract(relay.log(tail), relay.multiply(z, z)), wanted)
        z = relay.subtract(z, relay.divide(miss, relay.divide(steep, tail)))
    return z


@aten("special_ndtri")
@_wide
def _ndtri(x):
    """The quantiles of the normal distribution; near 0 and 1 by those of erfc."""
    s = lambda v: c.scalar(v, x)  # noqa: E731
    root = relay.multiply(_erfinv_of(relay.subtract(relay.multiply(x, s(2)), s(1))), s(math.sqrt(2)))
    upper = relay.greater(x, s(0.5))
    far = relay.minimum(relay.where(upper, relay.subtract(s(1), x), x), s(0.02))
    z = _erfc_inverse(relay.multiply(relay.maximum(far, s(5e-324)), s(2)))
    z = relay.multiply(z, s(math.sqrt(2)))
    close = relay.logical_and(relay.less(far, s(0.02)), relay.greater(far, s(0)))
    y = relay.where(close, relay.where(upper, z, relay.negative(z)), root)
    return relay.where(relay.less(x, s(0)), s(np.nan), y)


def _bessel(order):
    """exp(-|x|) times the modified Bessel function: its power series up to 24, the asymptotic series (9.7.1) above."""
    split, few = 24.0, 28
    power = [1.0 / (math.factorial(k) * math.factorial(k + order)) for k in range(60)]
    far, term = [1.0], 1.0
    for k in range(1, few):
        term *= -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k)
        far.append(term)

    def scaled(x):
        a = relay.abs(x)
        near, much = relay.minimum(a, c.scalar(split, x)), relay.maximum(a, c.scalar(split, x))
        half = relay.multiply(near, c.scalar(0.5, x))
        low = relay.multiply(c.polynomial(relay.multiply(half, half), power[::-1]), relay.exp(relay.negative(near)))
        low = relay.multiply(low, half) if order else low
        root = relay.multiply(c.scalar(math.sqrt(2 * math.pi), x), relay.sqrt(much))
        high = relay.divide(c.polynomial(relay.divide(c.scalar(1, x), much), far[::-1]), root)
        y = relay.where(relay.greater(a, c.scalar(split, x)), high, low)
        y = relay.where(relay.less(x, c.scalar(0, x)), relay.negative(y), y) if order else y  # 0.0 of -0.0, as PyTorch's
        return relay.where(relay.not_equal(x, x), x, y)

    return scaled


def _grown(scaled):
    """`scaled` times exp(|x|), in two steps: the product may be finite where exp(|x|) is not."""

    def convert(x):
        half = relay.exp(relay.multiply(relay.abs(x), c.scalar(0.5, x)))
        return relay.multiply(relay.multiply(scaled(x), half), half)

    return convert


for _order in (0, 1):
    aten(f"special_i{_order}e")(_wide(_bessel(_order)))
    aten(*(["i0", "special_i0"] if not _order else ["special_i1"]))(_wide(_grown(_bessel(_order))))


each({"special_modified_bessel_i0": ATEN["aten::i0"], "special_modified_bessel_i1": ATEN["aten::special_i1"]})


@aten("special_spherical_bessel_j0")
@_wide
def _spherical_bessel_j0(x):
    near = relay.less(relay.abs(x), c.scalar(1e-4, x))
    series = relay.subtract(c.scalar(1, x), relay.divide(relay.multiply(x, x), c.scalar(6, x)))
    far = relay.where(relay.equal(relay.abs(x), c.scalar(np.inf, x)), c.scalar(0, x), relay.divide(relay.sin(x), x))
    return relay.where(near, series, far)


def _hankel(order, x):
    """P, Q, cosine and sine of the Bessel functions of large arguments, 9.2.5 to 9.2.10, both times sqrt(2 / pi x)."""
    one, term, p, q = c.scalar(1, x), 1.0, [], []
    for k in range(29):
        (q if k % 2 else p).append(term * (-1) ** (k // 2))
        term *= (4 * order**2 - (2 * k + 1) ** 2) / (8 * (k + 1))
    z = relay.divide(one, x)
    square = relay.multiply(z, z)
    scale = relay.sqrt(relay.multiply(c.scalar(1 / math.pi, x), z))
    # cos and sin of x - pi / 4 or x - 3 pi / 4, times sqrt(2): x less the angle would lose digits
    cosine, sine = relay.multiply(scale, relay.cos(x)), relay.multiply(scale, relay.sin(x))
    both, less = relay.add(sine, cosine), relay.subtract(sine, cosine)
    turned = (less, relay.negative(both)) if order else (both, less)
    return c.polynomial(square, p[::-1]), relay.multiply(z, c.polynomial(square, q[::-1])), *turned


_FAR = 20.0  # from where on the asymptotic series are taken
_POINTS = 28  # of a quarter of the circle: J of the order 4 * 28 - 56 is nothing below _FAR


def _of_angles(order, a, weight):
    """The mean over the points of a quarter circle of cos(a sin t) or, of order 1, sin(a sin t) sin t, times a weight: Bessel's integral
    (9.1.18), whose sum over points of equal distance converges faster than any power."""
    terms = []
    for j in range(_POINTS):
        t = (j + 0.5) * math.pi / 2 / _POINTS
        angle = relay.multiply(a, c.scalar(math.sin(t), a))
        value, factor = (relay.sin(angle), math.sin(t)) if order else (relay.cos(angle), 1.0)
        terms.append(relay.multiply(value, c.scalar(factor * weight(t) / _POINTS, a)))
    return c.summed(terms)


def _bessel_j(order):
    def convert(x):
        a = relay.abs(x)
        low = _of_angles(order, relay.minimum(a, c.scalar(_FAR, x)), lambda t: 1.0)
        p, q, cosine, sine = _hankel(order, relay.maximum(a, c.scalar(_FAR, x)))
        high = relay.subtract(relay.multiply(p, cosine), relay.multiply(q, sine))
        y = relay.where(relay.less(a, c.scalar(_FAR, x)), low, high)
        if order:  # 0.0 of both infinities
            y = relay.where(relay.logical_and(relay.less(x, c.scalar(0, x)), relay.not_equal(y, c.scalar(0, x))), relay.negative(y), y)
            y = relay.where(relay.less(a, c.scalar(1e-12, x)), relay.multiply(x, c.scalar(0.5, x)), y)
        return relay.where(relay.not_equal(x, x), x, y)

    return convert


def _neumann(t):
    """The weights that make of J's integrals the sum of (-1)^k J(2k) / k, 9.1.88."""
    return sum((-1) ** k * math.cos(2 * k * t) / k for k in range(1, _POINTS))


def _log_of_half(x):
    """log(x / 2), also of the smallest number, whose half is 0."""
    return relay.subtract(relay.log(x), c.scalar(math.log(2), x))


def _bessel_y(order):
    """Neumann's series, of order 1 its derivative, and Hankel's."""

    def convert(x):
        s = lambda v: c.scalar(v, x)  # noqa: E731
        near = relay.minimum(x, s(_FAR))
        log = relay.add(_log_of_half(near), s(_EULER_GAMMA))
        j, series = _of_angles(order, near, lambda t: 1.0), _of_angles(order, near, _neumann)
        low = relay.subtract(relay.multiply(log, j), relay.multiply(s(2), series))
        if order:
            low = relay.subtract(low, relay.divide(_of_angles(0, near, lambda t: 1.0), near))
        low = relay.multiply(low, s(2 / math.pi))
        p, q, cosine, sine = _hankel(order, relay.maximum(x, s(_FAR)))
        high = relay.add(relay.multiply(p, sine), relay.multiply(q, cosine))
        y = relay.where(relay.less(x, s(_FAR)), low, high)
        return relay.where(relay.equal(x, s(0)), s(-np.inf), relay.where(relay.less(x, s(0)), s(np.nan), y))

    return convert


def _harmonic(k):
    return sum(1 / i for i in range(1, k + 1)) - _EULER_GAMMA  # the digamma function of k + 1


def _second_series(order):
    """Coefficients of the power series beside the logarithm, 9.6.11: of (x/2)^2, from the highest power on."""
    return [(_harmonic(k) + _harmonic(k + order)) / (math.factorial(k) * math.factorial(k + order)) for k in range(20)][::-1]


def _bessel_k(order, scaled):
    """The power series up to 2, the integral 9.6.24 as a sum up to 24, Hankel's 9.7.2 above. The sums are of exp(x) K."""
    first, split, step, far, term = 2.0, 24.0, 0.14, [], 1.0
    for k in range(28):
        far.append(term)
        term *= (4 * order**2 - (2 * k + 1) ** 2) / (8 * (k + 1))
    power = [1.0 / (math.factorial(k) * math.factorial(k + order)) for k in range(20)]

    def convert(x):
        s = lambda v: c.scalar(v, x)  # noqa: E731
        near = relay.minimum(x, s(first))
        half = relay.multiply(near, s(0.5))
        square = relay.multiply(half, half)
        log = relay.multiply(_log_of_half(near), c.polynomial(square, power[::-1]))
        tail = relay.multiply(s(0.5), c.polynomial(square, _second_series(order)))
        low = relay.subtract(tail, log) if not order else relay.add(
            relay.divide(s(1), near), relay.multiply(half, relay.subtract(log, tail)))  # fmt: skip
        low = relay.multiply(low, relay.exp(near))
        mid = relay.minimum(relay.maximum(x, s(first)), s(split))
        middle = s(step / 2)
        for k in range(1, 28):
            t = k * step
            value = relay.exp(relay.multiply(mid, s(1 - math.cosh(t))))
            middle = relay.add(middle, relay.multiply(value, s(step * math.cosh(order * t))))
        much = relay.maximum(x, s(split))
        high = relay.multiply(relay.divide(s(math.sqrt(math.pi / 2)), relay.sqrt(much)), c.polynomial(relay.divide(s(1), much), far[::-1]))
        y = relay.where(relay.less(x, s(first)), low, relay.where(relay.less(x, s(split)), middle, high))
        y = y if scaled else relay.multiply(y, relay.exp(relay.negative(x)))
        return relay.where(relay.equal(x, s(0)), s(np.inf), relay.where(relay.less(x, s(0)), s(np.nan), y))

    return convert


for _order in (0, 1):
    aten(f"special_bessel_j{_order}")(_wide(_bessel_j(_order)))
    aten(f"special_bessel_y{_order}")(_wide(_bessel_y(_order)))
    aten(f"special_modified_bessel_k{_order}")(_wide(_bessel_k(_order, False)))
    aten(f"special_scaled_modified_bessel_k{_order}")(_wide(_bessel_k(_order, True)))


# ---- Hurwitz' zeta function, and the derivatives of digamma ----

_EULER = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)  # Bernoulli numbers B(2k)


def _hurwitz(s, q):
    """The sum of (q + k)^-s: ten terms, and the formula of Euler and Maclaurin for the others."""
    one = c.scalar(1, q)
    power = lambda x, e: relay.power(x, relay.negative(e))  # noqa: E731
    total = c.summed([power(relay.add(q, c.scalar(k, q)), s) for k in range(10)])
    z = relay.add(q, c.scalar(10, q))
    last = power(z, s)
    total = c.summed([total, relay.divide(relay.multiply(last, z), relay.subtract(s, one)), relay.multiply(last, c.scalar(0.5, q))])
    s = relay.minimum(s, c.scalar(1e4, s))  # beyond, the first terms are all there is
    factor, shrink = relay.divide(relay.multiply(s, last), z), relay.multiply(z, z)
    for k, b in enumerate(_EULER, 1):
        total = relay.add(total, relay.multiply(factor, c.scalar(b / math.factorial(2 * k), q)))
        grow = relay.multiply(relay.add(s, c.scalar(2 * k - 1, s)), relay.add(s, c.scalar(2 * k, s)))
        factor = relay.divide(relay.multiply(factor, grow), shrink)
    return total


def _shifted(s, q):
    """:func:`_hurwitz`, for whole s of negative q, too: the sum over all whole numbers, without those below q."""
    below = relay.less(q, c.scalar(0, q))
    down = relay.negative(q)
    part, other = relay.subtract(q, relay.floor(q)), relay.subtract(down, relay.floor(down))  # both are exact
    odd = relay.equal(relay.floor_mod(s, c.scalar(2, s)), c.scalar(1, s))
    signed = lambda v: relay.where(odd, relay.negative(v), v)  # noqa: E731
    whole = relay.add(_hurwitz(s, part), signed(_hurwitz(s, other)))
    rest = _hurwitz(s, relay.subtract(c.scalar(1, q), q))
    return relay.where(below, relay.subtract(whole, signed(rest)), _hurwitz(s, q))


@aten("special_zeta", types=Types("x q", real=True))
def _zeta(x, q):
    kind = dtype_of(x)
    x, q = c.as_dtype(x, "float64"), c.as_dtype(q, "float64")
    s = lambda v: c.scalar(v, x)  # noqa: E731
    y = relay.where(relay.logical_or(relay.greater(q, s(0)), relay.equal(x, relay.floor(x))), _shifted(x, q), s(np.nan))
    y = relay.where(relay.logical_and(relay.less_equal(q, s(0)), relay.equal(q, relay.floor(q))), s(np.inf), y)
    y = relay.where(relay.equal(x, s(1)), s(np.inf), relay.where(relay.less(x, s(1)), s(np.nan), y))
    return c.as_dtype(y, kind)


@aten("polygamma", "special_polygamma")
def _polygamma(n, x):
    if n == 0:
        return ATEN["aten::digamma"](x)
    return _wide(lambda v: _derivative(n, v))(x)


def _derivative(n, x):
    """(-1)^(n+1) n! zeta(n + 1, x)."""
    y = relay.multiply(_shifted(c.scalar(n + 1, x), x), c.scalar((-1.0) ** (n + 1) * math.factorial(n), x))
    pole = relay.logical_and(relay.less_equal(x, c.scalar(0, x)), relay.equal(x, relay.floor(x)))
    return relay.where(pole, c.scalar(np.inf * (-1.0) ** (n + 1), x), y)


@aten("special_erfcx")
@_wide
def _erfcx(x):
    return _erfcx_of(x)


@aten("frexp.Tensor")
def _frexp(x):
    """A fraction from 0.5 on below 1 and the power of 2 beside it."""
    wide, zero = relay.cast(x, "float64"), array(0.0, "float64")
    alone = relay.logical_or(relay.equal(wide, zero), relay.logical_not(relay.less(relay.abs(wide), array(np.inf, "float64"))))
    size = relay.where(alone, array(1.0, "float64"), relay.abs(wide))
    e = relay.add(relay.floor(relay.log2(size)), array(1.0, "float64"))
    half = relay.multiply(e, array(0.5, "float64"))  # in two steps, which do not overflow
    first = relay.floor(half)
    f = relay.multiply(relay.multiply(size, relay.exp2(relay.negative(first))), relay.exp2(relay.subtract(first, e)))
    up, down = relay.greater_equal(f, array(1.0, "float64")), relay.less(f, array(0.5, "float64"))
    for there, factor, step in ((up, 0.5, 1.0), (down, 2.0, -1.0)):
        f = relay.where(there, relay.multiply(f, array(factor, "float64")), f)
        e = relay.where(there, relay.add(e, array(step, "float64")), e)
    f = relay.where(alone, wide, relay.copysign(f, wide))
    return [relay.cast(f, dtype_of(x)), relay.cast(relay.where(alone, zero, e), "int32")]


# ---- Chebyshev's polynomials by their recurrence up to degree 8, by closed forms above: of acos x within 1, of acosh |x| beyond ----


def _recurrence(x, n, first):
    """The polynomials of the degrees 0 to 8, of which each n chooses its own; `first` is that of degree 1."""
    twice, before, y = relay.multiply(x, c.scalar(2, x)), c.scalar(1, x), first
    out = relay.where(relay.equal(n, c.scalar(0, n)), before, y)
    for k in range(2, 9):
        before, y = y, relay.subtract(relay.multiply(twice, y), before)
        out = relay.where(relay.equal(n, c.scalar(k, n)), y, out)
    return out


def _chebyshev(kind):
    """T and U: cos(n a), and sin((n + 1) a) / sin(a). V and W: cos((n + 1/2) a) / cos(a / 2), and with sines."""

    def closed(x, n):
        s = lambda v: c.scalar(v, x)  # noqa: E731
        one, size = s(1), relay.abs(x)
        odd = relay.not_equal(relay.floor_mod(n, s(2)), s(0))
        sign = relay.where(relay.logical_and(odd, relay.less(x, s(0))), s(-1), one)
        angle, wide = relay.acos(relay.clip(x, -1, 1)), relay.acosh(relay.maximum(size, one))
        half = relay.add(n, s(0.5))
        cosine, sine = (lambda v, a, f=f: f(relay.multiply(v, a)) for f in (relay.cos, relay.sin))
        ch, sh = (lambda v: relay.cosh(relay.multiply(v, wide))), (lambda v: relay.sinh(relay.multiply(v, wide)))
        even = lambda: relay.divide(ch(half), ch(s(0.5)))  # noqa: E731
        uneven = lambda: relay.divide(sh(half), sh(s(0.5)))  # noqa: E731
        many = relay.add(relay.multiply(n, s(2)), one)
        above, below = relay.equal(x, one), relay.equal(x, s(-1))
        twice = relay.multiply(x, s(2))
        if kind == "t":
            near, far, ends, first = cosine(n, angle), ch(n), (one, one), x
        elif kind == "u":
            next_one = relay.add(n, one)
            near, far = relay.divide(sine(next_one, angle), relay.sin(angle)), relay.divide(sh(next_one), sh(one))
            ends, first = (next_one, next_one), twice
        elif kind == "v":
            near = relay.divide(cosine(half, angle), cosine(s(0.5), angle))
            far, ends, first = relay.where(relay.greater(x, s(0)), even(), uneven()), (one, many), relay.subtract(twice, one)
        else:
            near = relay.divide(sine(half, angle), sine(s(0.5), angle))
            far, ends, first = relay.where(relay.greater(x, s(0)), uneven(), even()), (many, one), relay.add(twice, one)
        y = relay.where(relay.less_equal(size, one), near, relay.multiply(sign, far))
        y = relay.where(relay.less_equal(n, s(8)), _recurrence(x, n, first), y)
        y = relay.where(above, ends[0], relay.where(below, relay.multiply(sign, ends[1]), y))
        y = relay.where(relay.equal(n, s(0)), one, relay.where(relay.less(n, s(0)), s(0), y))
        y = relay.where(relay.logical_and(relay.not_equal(x, x), relay.greater(n, s(0))), x, y)
        gone = relay.equal(ch(relay.subtract(n, s(2))), s(np.inf))  # where two terms before the last are infinite, the recurrence ends in NaN
        return relay.where(relay.logical_and(gone, relay.greater(n, s(8))), s(np.nan), y)

    return closed


def _of_degree(f, shifted):
    def convert(x, n):
        kind = dtype_of(x)
        x, n = relay.cast(x, "float64"), relay.trunc(relay.cast(n, "float64"))
        x = relay.subtract(relay.multiply(x, c.scalar(2, x)), c.scalar(1, x)) if shifted else x
        return relay.cast(f(x, n), kind)

    return convert


for _kind in "tuvw":
    for _prefix in ("", "shifted_"):
        aten(f"special_{_prefix}chebyshev_polynomial_{_kind}", types=Types("x n", real=True))(_of_degree(_chebyshev(_kind), bool(_prefix)))
