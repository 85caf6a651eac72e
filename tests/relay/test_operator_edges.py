"""Operators of PyTorch where their formulas lose digits or leave the type: all cases are one network, against exact values."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
mpmath = pytest.importorskip("mpmath")

import nestsmith  # noqa: E402
from helpers import rest_full  # noqa: E402

inf, nan = math.inf, math.nan
S, F = torch.special, torch.nn.functional
X = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 3.5, 7.0, 10.3, 17.2, 25.0, 60.0)


def exact(f, xs):
    with mpmath.workprec(200):
        return [float(f(mpmath.mpf(x))) for x in xs]


def double(*v):
    return torch.tensor(v, dtype=torch.float64)


def half(*v):
    return torch.tensor(v, dtype=torch.float16)


def _matrix(scale):
    return torch.tensor([[0.1, -0.7], [0.9, 0.3]], dtype=torch.float64) * scale


def _exp(a):
    with mpmath.workprec(200):
        return [[float(v) for v in row] for row in mpmath.expm(mpmath.matrix(a.tolist())).tolist()]


def _attention(q, k, v):
    return torch.softmax(q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v.double()


M = mpmath
ONES = torch.ones(4, 300, dtype=torch.float16) * 16  # products of 76,800, which float16 does not hold
ROWS = torch.ones(2, 3, 40, dtype=torch.float16) * 50
WINDOW = double(nan, 1.0, nan, 2.0, 5.0, 5.0).reshape(1, 1, 6)
# name: (operator, its tensors, what it gives, how many units in the last place it may be off)
CASES = {
    "selu": (F.selu, [double(0.5, -1.0)], [0.5 * 1.0507009873554804934, 1.0507009873554804934 * 1.6732632423543772848 * math.expm1(-1)], 4),
    "rms_norm": (lambda x: F.rms_norm(x, (2,)), [double(1e-9, 3e-9)], [1e-9 / math.sqrt(5e-18 + 2**-52), 3e-9 / math.sqrt(5e-18 + 2**-52)], 8),
    "matrix_exp": (torch.linalg.matrix_exp, [torch.stack([_matrix(1.0), _matrix(9.0)])], [_exp(_matrix(1.0)), _exp(_matrix(9.0))], 400),
    "lgamma": (torch.lgamma, [double(*X, 1e-310, -0.5, -30.0)], lambda: [*exact(M.loggamma, (*X, 1e-310)), math.log(2 * M.pi**0.5), inf], 40),
    "lgamma of int": (torch.lgamma, [torch.tensor([1, 2])], [0.0, 0.0], 0),
    "digamma": (torch.digamma, [double(*X, -1 + 2**-53)], lambda: exact(M.digamma, (*X, -1 + 2**-53)), 64),
    "polygamma": (lambda x: torch.polygamma(4, x), [double(-0.5, 2.0)], [24 * -float(M.zeta(5, 1.5)), float(M.polygamma(4, 2))], 16),
    "zeta": (S.zeta, [double(2.0, 4e18), double(-1e-4, 2.0)], [float(M.mpf(1e-4) ** -2 + M.zeta(2, 1 - M.mpf(1e-4))), 0.0], 8),
    "ndtri": (S.ndtri, [double(5e-324, 0.0, -1e-20, 0.5)], [-38.467405617144346, -inf, nan, 0.0], 4),
    "i0e": (S.i0e, [double(*X, 1.7976931348623157e308)], lambda: [*exact(lambda x: M.besseli(0, x) * M.exp(-x), X), 2.9754474593159e-155], 64),
    "i1": (S.i1, [double(*X, 1.7976931348623157e308, -0.0)], lambda: [*exact(lambda x: M.besseli(1, x), X), inf, 0.0], 64),
    "chebyshev": (S.chebyshev_polynomial_t, [double(0.0, 0.5, -2.0), double(1.0, 3.0, 4.0)], [0.0, -1.0, 97.0], 0),
    "inv": (lambda x: torch.linalg.inv(x).isfinite().sum(), [double(1.0, 2.0, 2.0, 4.0).reshape(2, 2)], 0, 0),
    "cholesky": (lambda x: torch.linalg.cholesky_ex(x)[0][1, 1], [double(1.0, 2.0, 2.0, 1.0).reshape(2, 2)], nan, 0),
    "any": (lambda x: torch.any(x, 0), [torch.tensor([0, 3], dtype=torch.uint8)], 1, 0),
    "logsumexp": (lambda x: torch.logsumexp(x, 0), [half(-inf).reshape(())], -inf, 0),
    "addmv": (lambda c, a, b: torch.addmv(c, a, b, beta=0.5, alpha=0.5), [half(*[-100.0] * 4), ONES, ONES[0]], [38350.0] * 4, 1),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=0.5), [half(-100.0), ONES, ONES.T], [[38350.0] * 4] * 4, 1),
    "addbmm": (lambda c, a, b: torch.addbmm(c, a, b, beta=-20.0), [half(1000.0), ROWS[:, :1, :10], ROWS[:, :1, :10].mT], [[30000.0]], 1),
    "attention": (F.scaled_dot_product_attention, [ROWS, ROWS, ROWS], _attention(ROWS, ROWS, ROWS).tolist(), 1),
    "max_pool": (lambda x: F.max_pool1d(x, 3, return_indices=True)[1], [WINDOW], [[[2, 4]]], 0),
    "adaptive_max_pool": (lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True)[1], [WINDOW], [[[0, 2, 4, 4]]], 0),
    "bilinear": (F.bilinear, [double(inf, 1.0)[None], double(2.0, 3.0)[None], torch.ones(1, 2, 2).double()], [[inf]], 0),
    "poisson": (lambda x, t: F.poisson_nll_loss(x, t, False, True, reduction="sum"), [half(*[1e4] * 9)] * 2, 9 * 0.5 * math.log(2e4 * math.pi), 2),
    "poisson of int": (F.poisson_nll_loss, [torch.tensor([1, 2]), torch.tensor([3, 4])], (math.e - 3 + math.e**2 - 8) / 2, 8),
    "batch_norm": (
        lambda x: F.batch_norm(x, None, None, training=True), [torch.tensor([[1e4], [10001.0], [10002.0]])], [[-1.5**0.5], [0.0], [1.5**0.5]], 100),
}  # fmt: skip
for _k, _f in {"bessel_j0": lambda x: M.besselj(0, x), "bessel_j1": lambda x: M.besselj(1, x), "bessel_y0": lambda x: M.bessely(0, x),
               "bessel_y1": lambda x: M.bessely(1, x), "scaled_modified_bessel_k1": lambda x: M.besselk(1, x) * M.exp(x)}.items():  # fmt: skip
    CASES[_k] = (getattr(S, _k), [double(*X)], lambda f=_f: exact(f, X), 64)


class Network(torch.nn.Module):
    def __init__(self, cases):
        super().__init__()
        self.cases = cases

    def forward(self, *tensors):
        rest = iter(tensors)
        return tuple(f(*(next(rest) for _ in xs)) for f, xs, _, _ in self.cases.values())


@pytest.mark.parametrize("part", rest_full(0, 1, 2, short=(0,)))
def test_cases(part):
    chosen = dict(list(CASES.items())[part::3])
    tensors = tuple(x.clone() for _, xs, _, _ in chosen.values() for x in xs)
    program = torch.export.export(Network(chosen).eval(), tensors, strict=False)
    found = nestsmith.compile(program, tensors, target="llvm", guess=False)(*tensors)
    wrong = []
    for (name, (_, _, want, ulps)), got in zip(chosen.items(), found):
        step = torch.finfo(got.dtype).eps if got.is_floating_point() else 0
        got = got.double().numpy() if got.is_floating_point() else got.numpy()
        want = np.asarray(want() if callable(want) else want, got.dtype)
        with np.errstate(invalid="ignore"):
            near = np.abs(got - want) <= ulps * step * np.maximum(np.abs(want), 1e-300)
        if got.shape != want.shape or not (near | (got == want) | (np.isnan(got) & np.isnan(want))).all():
            wrong.append((name, got.tolist(), want.tolist()))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_batch_norm_of_halves_is_imported(kind):
    x, v = torch.rand(3, 2, 4).to(getattr(torch, kind)), torch.rand(2).to(getattr(torch, kind))

    class Eval(torch.nn.Module):
        def forward(self, x, v):
            return torch._native_batch_norm_legit(x, v, v, v, v, False, 0.1, 1e-5)

    mod, _ = nestsmith.relay.frontend.from_pytorch(torch.export.export(Eval(), (x, v), strict=False))
    mod = nestsmith.relay.transform.InferType()(mod)
    assert [t.dtype for t in mod["main"].body.checked_type.fields] == [kind] * 3
