"""What the sweep measures errors by where PyTorch's own formula in float64 is not exact: by mpmath (which PyTorch brings), wider types,
or better formulas. Each function takes and returns tensors of float64."""

import functools
import math

import numpy as np
import onnx
import torch


def _elementwise(f, like, finite=True):
    """``f`` of Python numbers, element by element; where it gives None, the element of ``like`` stays."""

    def of(*tensors):
        out = like(*tensors).clone()
        flat = [t.expand(out.shape).reshape(-1).tolist() for t in tensors]
        found = [f(*v) if not finite or all(np.isfinite(x) for x in v) else None for v in zip(*flat)]
        for k, v in enumerate(found):
            if v is not None:
                out.view(-1)[k] = float(v)
        return out

    return of


def _special(name, like):
    """A function of one number."""

    def f(x):
        import mpmath

        with mpmath.workprec(200 + max(math.frexp(x)[1], 0)):
            f = _far if name in _FAR and abs(x) > 1e10 else getattr(_Functions, name)
            return f(mpmath, mpmath.mpf(x), *_FAR.get(name, ())[: 2 * (f is _far)]) if x else None

    return _elementwise(functools.cache(f), like)


class _Functions:
    j0 = staticmethod(lambda m, x: m.besselj(0, x))
    j1 = staticmethod(lambda m, x: m.besselj(1, x))
    y0 = staticmethod(lambda m, x: m.bessely(0, x) if x > 0 else None)
    y1 = staticmethod(lambda m, x: m.bessely(1, x) if x > 0 else None)
    k0 = staticmethod(lambda m, x: m.besselk(0, x) if 0 < x < 1 else None)
    k1 = staticmethod(lambda m, x: m.besselk(1, x) if 0 < x < 1 else None)
    k0e = staticmethod(lambda m, x: m.besselk(0, x) * m.exp(x) if 0 < x < 1 else None)
    k1e = staticmethod(lambda m, x: m.besselk(1, x) * m.exp(x) if 0 < x < 1 else None)
    digamma = staticmethod(lambda m, x: None if x <= 0 and x == m.floor(x) else m.digamma(x))


_FAR = {"j0": (0, "cos"), "j1": (1, "cos"), "y0": (0, "sin"), "y1": (1, "sin")}


def _far(m, x, order, function):
    """Hankel's series of large arguments, two terms of it."""
    if x < 0 and function == "sin":
        return None
    a = abs(x)
    angle = a - (2 * order + 1) * m.pi / 4 + (4 * order**2 - 1) / (8 * a)
    return m.sqrt(2 / (m.pi * a)) * getattr(m, function)(angle) * (-1 if x < 0 and order else 1)


def _zeta(s, q):
    """Hurwitz' function where PyTorch's sum cancels, and beyond the powers that it can form."""
    if s != s or math.isinf(q):
        return None
    if s > 1000:
        return q ** -min(s, 1e6) if q > 1 else None
    import mpmath

    if 1 < s < 3 and 0 < q < 1e-3 or 1 < s < 1.001 and q > 0:  # PyTorch ends its sum too early
        return mpmath.zeta(s, q)
    if q > 1e10 and 1 < s <= 1000:
        s, q = mpmath.mpf(s), mpmath.mpf(q)
        return q ** (1 - s) / (s - 1) + q**-s / 2
    if not (1 < s <= 300 and s == int(s) and -300 < q < 0 and q != int(q)):
        return None

    with mpmath.workprec(1000):
        q, n = mpmath.mpf(q), int(-q) + 1
        return mpmath.fsum((q + k) ** -int(s) for k in range(n)) + mpmath.zeta(int(s), q + n)


def _polygamma(x, n):
    found = _zeta(n + 1.0, x) if x < 0 and x != int(x) else None
    return None if found is None else (-1) ** (n + 1) * math.factorial(int(n)) * found


def _chebyshev(kind):
    def f(x, n):
        import mpmath as m

        n = int(n)
        with m.workprec(300 + 1100 * (abs(x) > 1e3)):
            x = m.mpf(x)
            before, y = m.mpf(1), {"t": x, "u": 2 * x, "v": 2 * x - 1, "w": 2 * x + 1}[kind]
            if n <= 0:
                return before if n == 0 else m.mpf(0)
            for _ in range(n - 1):
                before, y = y, 2 * x * y - before
            return y

    return f


def remainder(mod):
    """NumPy's: exact, where PyTorch's vector code gives NaN for a quotient beyond the range."""

    def of(x, y):
        x, y = (v if isinstance(v, torch.Tensor) else torch.tensor(v) for v in (x, y))
        if not (x.dtype == torch.float64 or y.dtype == torch.float64):
            return getattr(torch, mod)(x, y)
        with np.errstate(all="ignore"):
            r = torch.from_numpy(np.asarray(np.fmod(x.double().numpy(), y.double().numpy())))
        return r if mod == "fmod" else torch.where((r != 0) & ((r < 0) != (y.double() < 0)), r + y.double(), r)

    return of


def normalised(x, axes, eps=1e-5, root=None):
    """(x - mean) / sqrt(variance + eps) in the widest floats of NumPy."""
    w = x.numpy().astype(np.longdouble)
    with np.errstate(all="ignore"):
        rest = w - w.mean(axes, keepdims=True)
        spread = (rest * rest).mean(axes, keepdims=True)
        y = rest / (np.sqrt(spread + np.longdouble(eps)) if root is None else root(spread))
        return y


def _affine(y, weight, bias, shape):
    y = y.reshape(shape)
    lift = (1, -1) + (1,) * (y.ndim - 2)
    with np.errstate(all="ignore"):
        for v, f in ((weight, np.multiply), (bias, np.add)):
            y = y if v is None else f(y, v.numpy().reshape(lift))
        return torch.from_numpy(y.astype(np.float64))


def group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    y = normalised(x.reshape(x.shape[0], groups, -1), 2, eps=eps)
    return _affine(y, weight, bias, x.shape)


def instance_norm(x, *args, weight=None, bias=None, use_input_stats=True, eps=1e-5, **more):
    if args or not use_input_stats:
        return torch.nn.functional.instance_norm(x, *args, weight=weight, bias=bias, use_input_stats=use_input_stats, eps=eps, **more)
    y = normalised(x, tuple(range(2, x.dim())), eps=eps)
    return _affine(y, weight, bias, x.shape)


def batch_norm(x, weight, bias, mean, var, momentum, eps):
    found = torch.ops.aten._batch_norm_with_update(x, weight, bias, mean, var, momentum, eps)
    y = normalised(x, tuple(a for a in range(x.dim()) if a != 1), eps=eps)
    return _affine(y, weight, bias, x.shape), *found[1:]


def spread(root, with_mean):
    """Variances and deviations in the widest floats of NumPy, as PyTorch's functions are called by its database."""

    def f(x, dim=None, unbiased=True, keepdim=False, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        axes = None if dim is None or dim == () or dim == [] else (dim,) if isinstance(dim, int) else tuple(dim)
        axes = tuple(range(x.dim())) if axes is None else tuple(a % max(x.dim(), 1) for a in axes) if x.dim() else ()
        with np.errstate(all="ignore"):
            w = x.numpy().astype(np.longdouble)
            mean = w.mean(axes, keepdims=True)
            rest = w - mean
            count = np.longdouble(math.prod(w.shape[a] for a in axes)) - (int(bool(unbiased)) if correction is None else correction)
            out = (rest * rest).sum(axes, keepdims=keepdim) / max(count, np.longdouble(0))
            out = torch.from_numpy(np.asarray(np.sqrt(out) if root else out, np.float64))
            mean = torch.from_numpy(np.asarray(mean if keepdim else mean.squeeze(axes), np.float64))
        return (out, mean) if with_mean else out

    return f


def _mean_variance(node, x):
    """ONNX's MeanVarianceNormalization over the axes 0, 2 and 3."""
    y = normalised(x, (0, 2, 3), root=lambda v: np.sqrt(v) + np.longdouble(1e-9))
    return torch.from_numpy(y.astype(np.float64))


def _group_norm(node, x, scale, bias):
    """ONNX's GroupNormalization, whose weights are of channels, or of groups before version 21."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    weights = (v.repeat_interleave(x.shape[1] // v.numel()) for v in (scale, bias))
    return group_norm(x, given["num_groups"], *weights, eps=given.get("epsilon", 1e-5))


_S = torch.special
EXACT = {
    "special.ndtr": lambda x: torch.special.erfc(-x * 0.5**0.5) / 2,
    "fmod": remainder("fmod"),
    "remainder": remainder("remainder"),
    "__rmod__": lambda x, by: remainder("remainder")(by, x),
    "digamma": _special("digamma", torch.digamma),
    "special.zeta": _elementwise(_zeta, _S.zeta, finite=False),
    **{f"{k}{'_mean' * m}{tail}": spread(k == "std", m) for k in ("var", "std") for m in (False, True) for tail in ("", ".unbiased")},
    "_batch_norm_with_update": batch_norm,
    "nn.functional.group_norm": group_norm,
    "nn.functional.instance_norm": instance_norm,
    **{f"special.bessel_{k}": _special(k, getattr(_S, f"bessel_{k}")) for k in ("j0", "j1", "y0", "y1")},
    **{f"special.modified_bessel_{k}": _special(k, getattr(_S, f"modified_bessel_{k}")) for k in ("k0", "k1")},
    **{f"special.scaled_modified_bessel_{k}": _special(f"{k}e", getattr(_S, f"scaled_modified_bessel_{k}")) for k in ("k0", "k1")},
    **{f"special.chebyshev_polynomial_{k}": _elementwise(_chebyshev(k), getattr(_S, f"chebyshev_polynomial_{k}")) for k in "tuvw"},
}
# Functions with zeros that are no floats: beside these a result is small and its error is that of the argument.
ZEROS = ("lgamma", "digamma", "bessel", "chebyshev")
EXACT_ONNX = {"MeanVarianceNormalization": _mean_variance, "GroupNormalization": _group_norm}  # of the node and its inputs


def exact(name):
    """The function that an operator of PyTorch's database is measured by; None if that is PyTorch's in float64."""
    if name.endswith("polygamma_n_0"):
        return lambda x, n: EXACT["digamma"](x)
    if "polygamma" in name:
        return lambda x, n: _elementwise(lambda v: _polygamma(v, n), lambda t: torch.polygamma(n, t))(x)
    return EXACT.get(name)
