"""Operators of PyTorch that models want beside the layers: family by family, in edge cases, against PyTorch. NumPy computes what was
imported; the networks as programs are a longer test."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from whole_networks import computed, outputs

from nestsmith import relay
from nestsmith.error import OpNotImplemented


class Module(nn.Module):
    """Functions of the same inputs, each with results of its own."""

    def __init__(self, *functions):
        super().__init__()
        self.functions = functions
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("counts", torch.tensor([2, 0, 1]))

    def forward(self, *x):
        return [f(self, *x) for f in self.functions]


def imported(functions, inputs):
    """What PyTorch makes of the functions, and the network with its weights."""
    model = Module(*functions).eval()
    with torch.no_grad():
        want = [t.numpy() for t in torch.utils._pytree.tree_leaves(model(*(x.clone() for x in inputs)))]
    mod, params = relay.frontend.from_pytorch(model, example_inputs=tuple(inputs))
    return want, mod, params


def compare(got, want):
    assert len(got) == len(want)
    for k, (g, w) in enumerate(zip(got, want)):
        assert g.dtype == w.dtype and g.shape == w.shape, f"output {k}: {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5, equal_nan=True, err_msg=f"output {k}")


def written(f):
    """`f` writes into a copy of its first input."""

    def g(s, x, *more):
        y = x.clone()
        f(s, y, *more)
        return y

    return g


def assign(at, value):
    """y[at(...)] = value"""
    return written(lambda s, y, *more: y.__setitem__(at(s, y, *more), value))


torch.manual_seed(0)
X, I, B = torch.randn(4, 3, 5), torch.tensor([1, 0, -1]), torch.rand(4, 3) > 0.5
TO, SRC = torch.randint(0, 4, (6, 3, 5)), torch.randn(6, 3, 5)
SRC[0, 0, 0], SRC[1, 1, 1] = float("nan"), float("inf")
WHOLE = (SRC.nan_to_num(0, 0) * 5).long()
GROUPS, TABLE = torch.randn(3, 8, 4), torch.randn(6, 4)
INF, NAN, S = float("inf"), float("nan"), torch.special
NONE = torch.zeros(0, dtype=torch.long)

ROTATE = torch.polar(torch.ones(5, 1, 2), torch.arange(10.0).view(5, 1, 2) / 3)
FILTER, MIX = torch.fft.rfft(torch.arange(90.0) / 90), torch.randn(3, 4, dtype=torch.cfloat)


def _modes(x):
    """A layer of a Fourier neural operator: the first frequencies, mixed."""
    f = torch.fft.rfft(x)
    out = torch.zeros(2, 4, 46, dtype=torch.cfloat)
    out[..., :7] = torch.einsum("bix,io->box", f[..., :7], MIX)
    return torch.fft.irfft(out, n=90)


def _arithmetic(a, b, x):
    return (a + b, a - b, a * b, a / b, 2 * a, a / 3, a + 1j, -a, a.conj(), b.exp(), b.log(), a**2, 1 / b, a - x, x - a, torch.where(x > 0, a, b),
            b.sgn(), a.mean(1), a.sum(-1), a @ b.mT, torch.cat([a, b], 1), torch.stack([a, b]), a.permute(2, 0, 1, 3)[..., 1:], a.flip(1).roll(1, 2),
            a.masked_fill(x > 0, 0), a.to(torch.complex128), F.pad(a, (1, 1)), a.reshape(2, -1), a[0, [1, 0]], torch.zeros_like(a) + b,
            a * x.double(), (1 + 2j) * x, x.to(torch.cfloat), torch.fft.fft(x).mul_(2))  # fmt: skip


FAMILIES = {
    "without elements": ([
        lambda s, x: torch.cat([x[..., :5] * 2, x[..., 5:]], -1),
        lambda s, x: (x[..., 5:], x[..., 5:].sum(-1), x[..., 5:].mean(-1), x[4:].prod(0), x[4:].any(0), x[4:].all(0), x[4:].logsumexp(0)),
        lambda s, x: (x[..., 5:] @ torch.ones(0, 2), F.pad(x[..., 5:], (1, 2), value=3.0), F.linear(x[..., 5:], torch.ones(4, 0), torch.ones(4))),
        lambda s, x: (torch.split(x, [5, 0], 2), torch.tensor_split(x, 4, 1), torch.softmax(x[4:], -1)),
        lambda s, x: (x.index_put((NONE,), x[4:]), x.scatter(0, NONE.expand(3, 5, 0).mT[:0], x), x.index_add(0, NONE, x[4:])),
        lambda s, x: (torch.slice_scatter(x, x[4:], 0, 4), x.index_fill(1, NONE, 2.0), x.index_copy(0, NONE, x[4:])),
        written(lambda s, y: (y[4:].add_(1), y[..., 5:].fill_(2.0))),
    ], (X,)),
    "known masks": ([
        lambda s, x: (x[:, s.mask], x.mT[:, :, s.mask] * 2, x[:, ~s.mask], x[:, s.mask, 1], x[:, s.counts > 0]),
        lambda s, x: (x[:, s.mask.nonzero()[:, 0]], torch.where(s.mask)[0] + x[0, 0, 0], torch.masked_select(x, s.mask[:, None])),
        lambda s, x: (x.repeat_interleave(s.counts, 1), x[:, :, :3].repeat_interleave(s.counts, 2).sum(2)),
        lambda s, x: (x[torch.tensor([True, False, False, True])], x[torch.arange(4) > 1], x * s.counts[0].item(),
                      torch.unique(s.counts) + x[0, 0, :3]),
        assign(lambda s, y: (slice(None), s.mask), 2.0),
        written(lambda s, y: y.mT.__setitem__((slice(None), slice(None), s.mask), y.mT[:, :, :2])),
    ], (X,)),
    "assigned by index": ([
        assign(lambda s, y, i, b: (slice(None), i), 2.0),
        assign(lambda s, y, i, b: (slice(None), slice(None), i), torch.arange(12.0).view(4, 1, 3)),
        assign(lambda s, y, i, b: (i, slice(None), i), torch.arange(9.0).view(3, 3)),
        assign(lambda s, y, i, b: (slice(None), i, i), torch.arange(12.0).view(4, 3)),
        assign(lambda s, y, i, b: (..., 1, i), 1.0),
        assign(lambda s, y, i, b: b, torch.arange(5.0)),
        assign(lambda s, y, i, b: (slice(None), b[0]), 5.0),
        assign(lambda s, y, i, b: y > 0, -1.0),
        lambda s, x, i, b: (x.put(i, torch.tensor([1.0, 2.0, 3.0])), x.put(i % 2, torch.tensor([1.0, 2.0, 3.0]), True)),
        lambda s, x, i, b: F.fold(F.unfold(x[None, None, 0], 2, padding=1), (3, 5), 2, padding=1),
        lambda s, x, i, b: x.index_put((i, i[:, None]), torch.ones(5), accumulate=True),
    ], (X, I, B)),
    "combined by index": ([
        *(lambda s, x, at, src, how=how, own=own: (x.scatter_reduce(0, at, src, how, include_self=own),
                                                 x.scatter_reduce(0, TO[:2, :2], src, how, include_self=own),
                                                 (x * 5).long().scatter_reduce(1, at[:3, :2, :4] % 3, WHOLE, how, include_self=own))
          for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)),
        *(lambda s, x, at, src, how=how: x.index_reduce(1, at[0, 0, :3] % 3, src[:4], how, include_self=False) for how in ("mean", "amax", "prod")),
        lambda s, x, at, src: (x.scatter(0, at, src), x.scatter(0, at, 2.0), x.scatter(2, at[:4, :, :2], src), x.scatter_add(0, at, src)),
    ], (X, TO, SRC)),
    "chosen by data": ([
        lambda s, x, b, r, o: (x.masked_scatter(b[..., None], torch.arange(60.0)), x[0].masked_scatter(b[:3, :1], x[1:]),
                                     r.masked_scatter(o[:1] > 3, NONE.float())),
        lambda s, x, b, r, o: (F.grouped_mm(r.view(-1)[:40].view(5, 8), GROUPS, offs=o + 1),
                                     F.grouped_mm(r.view(-1)[:16].view(2, 8), GROUPS, offs=o // 2)),
        lambda s, x, b, r, o: (torch.histc(r, 10, -1, 1.5), torch.histc(x, 7), torch.histc(x * 0 + 2, 4), r.long().float().histc(4, 0, 3)),
        lambda s, x, b, r, o: (x.long().mode(), x[0].round().mode(0, True), r.round().mode(0), x[0, 0, 0].mode(), (x / 0).mode(2)),
        lambda s, x, b, r, o: x.masked_select(s.mask[:, None]),
    ], (X, B, torch.randn(5, 11), torch.tensor([2, 2, 4], dtype=torch.int32))),
    "bags": ([
        *(lambda s, i, o, w, how=how: (F.embedding_bag(i, TABLE, o, mode=how, padding_idx=3), F.embedding_bag(i[:10].view(2, 5), TABLE, mode=how),
                                       F.embedding_bag(i, TABLE, o, mode=how, include_last_offset=True)) for how in ("max", "mean", "sum")),
        lambda s, i, o, w: F.embedding_bag(i, TABLE, o, mode="sum", per_sample_weights=w),
    ], (torch.randint(0, 6, (11,)), torch.tensor([0, 2, 2, 7, 11]), torch.rand(11))),
    "places of maxima": ([
        lambda s, x: (F.max_pool2d(x, 3, 2, 1, 2, True, True), F.max_pool1d(x[0], 3, return_indices=True)),
        lambda s, x: (F.adaptive_max_pool2d(x, (3, 4), return_indices=True), F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2,
                                                                                            output_size=x.shape[2:])),
        lambda s, x: (F.max_pool3d(x, 2, return_indices=True), F.adaptive_max_pool1d(x[0], 4, return_indices=True),
                      F.max_unpool1d(*F.max_pool1d(x[0], 2, return_indices=True), 2, output_size=(9,)),
                      F.max_pool2d(x.round(), 3, return_indices=True)),
    ], (torch.randn(2, 3, 8, 9),)),
    "statistics of the data": ([
        lambda s, x: (F.batch_norm(x, None, None, X[0, :, 0], X[1, :, 0], True), F.batch_norm(x[:, :, 0, 0], None, None, training=True)),
        lambda s, x: torch.ops.aten._native_batch_norm_legit_functional(x, None, X[0, :, 0], X[1, :, 0], X[2, :, 0], True, 0.1, 1e-5),
        lambda s, x: (torch.native_layer_norm(x, (8, 9), None, None, 1e-5), torch.native_group_norm(x, None, None, 2, 3, 72, 3, 1e-5)),
        lambda s, x: torch.ops.aten._native_batch_norm_legit.no_stats(x, None, X[0, :, 0], True, 0.1, 1e-5),
    ], (torch.randn(2, 3, 8, 9),)),
    "three axes, three operands": ([
        lambda s, x, g, a: (F.grid_sample(x, g, align_corners=False), F.bilinear(a, a, torch.arange(32.0).view(2, 4, 4) / 9, a[0, :2])),
        lambda s, x, g, a: F.grid_sample(x, g, "nearest", "reflection", True),
        *(lambda s, x, g, a, beyond=beyond: F.grid_sample(x, g, "bilinear", beyond, True) for beyond in ("border", "reflection")),
    ], (torch.randn(2, 3, 4, 5, 6), torch.rand(2, 3, 4, 2, 3) * 2.6 - 1.3, torch.randn(3, 4))),
    "complex": ([
        lambda s, x, q: (torch.view_as_real(torch.view_as_complex(q.view(2, 5, 3, 2, 2)) * ROTATE).flatten(3), torch.stft(
            x[0], 8, 4, window=torch.hann_window(8), return_complex=True).abs(), torch.fft.irfft(torch.fft.rfft(x) * FILTER, n=90)),
        lambda s, x, q: (torch.fft.fft2(q).imag, torch.fft.ifft(torch.fft.fft(x, dim=1, norm="ortho"), dim=1).real, _modes(x)),
        lambda s, x, q: [torch.view_as_real(v.resolve_conj()) for v in _arithmetic(torch.fft.fft(q), torch.complex(q, q * 2 + 1), q)],
        lambda s, x, q: [v for b in [torch.complex(q, q * 2 + 1)] for v in (b.angle(), b.abs(), b.real, b.imag, b == b.flip(0), b.isnan(), b.norm())],
        lambda s, x, q: torch.istft(torch.stft(x[0], 8, 2, window=torch.hann_window(8), return_complex=True), 8, 2, window=torch.hann_window(8)),
        lambda s, x, q: (torch.fft.rfft2(x).abs(), torch.fft.irfft2(torch.fft.rfft2(x)), torch.fft.rfftn(q, norm="forward").real, torch.fft.hfft(q),
                         torch.view_as_real(torch.fft.ihfft(q).resolve_conj()), torch.fft.rfft(x, n=5).abs(), torch.fft.rfft(x, n=11, dim=1).abs()),
        *(lambda s, x, q, n=n: (torch.fft.irfft(torch.fft.rfft(x, n=n), n=n), torch.view_as_real(torch.fft.fft(x, n=n)) / n**0.5)
          for n in (1, 2, 15, 64, 67, 128, 400, 521, 1018)),
    ], (torch.randn(2, 3, 90), torch.randn(2, 5, 3, 4))),
    "factors of matrices": ([
        lambda s, a, b: (torch.linalg.det(a), torch.linalg.inv_ex(a), torch.linalg.lu(a[:, :3]),
                         torch.linalg.cholesky_ex(a @ a.mT + 4 * torch.eye(4))),
        lambda s, a, b: (torch.linalg.solve_ex(a, b), torch.linalg.qr(a[..., :3]), torch.linalg.matrix_exp(a / 9)),
        lambda s, a, b: (torch.linalg.inv(a), torch.linalg.solve(a, b[..., 0]), torch.linalg.slogdet(a), torch.linalg.lu_factor(a),
                         a.logdet().isnan()),
        lambda s, a, b: [v for up in (True, False) for v in (torch.linalg.solve_triangular(a, b, upper=up),
                                                             torch.linalg.solve_triangular(a, b.mT, upper=up, left=False, unitriangular=True))],
        lambda s, a, b: (torch.linalg.cholesky(a @ a.mT + 4 * torch.eye(4), upper=True), torch.linalg.qr(a, "complete"), torch.geqrf(a)),
        lambda s, a, b: [torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b if left else b.mT, left=left, adjoint=way)
                         for left in (True, False) for way in (True, False)],
        lambda s, a, b: (torch.ormqr(*torch.geqrf(a), b), torch.ormqr(*torch.geqrf(a), b.mT, left=False, transpose=True)),
        lambda s, a, b: (torch.linalg.inv_ex(a * 0 + 1)[1], torch.linalg.cholesky_ex(-a @ a.mT)[1], torch.linalg.det(a * 0 + 1)),
    ], (torch.randn(2, 4, 4), torch.randn(2, 4, 3))),
    "strides and order": ([
        lambda s, x: (x.as_strided((3, 2), (2, 4), 1), x.as_strided_scatter(torch.zeros(2, 2), (2, 2), (9, 4), 3), x[0].clone().resize_(2, 5),
                      F.pad(x, (-4, 1, -1, 2), "replicate"), x.sqrt().nanmedian(), x.sqrt().nanmedian(2)[0]),
        lambda s, x: [getattr(S, f"{p}chebyshev_polynomial_{k}")(x[0], torch.arange(5)) for k in "tuvw" for p in ("", "shifted_")],
        lambda s, x: [getattr(S, f"chebyshev_polynomial_{k}")(torch.tensor([-1.0, 1, NAN, 0.5]) + 0 * x[0, 0, 0], torch.tensor([3, 4, 2, -1]))
                      for k in "tuvw"],
    ], (torch.randn(4, 3, 5),)),
    "special functions": ([
        lambda s, z, u: (z.lgamma(), z.digamma(), torch.frexp(z), u.double().erfinv(), (u.nan_to_num() * 9).long().lgamma()),
        lambda s, z, u: (torch.special.ndtri((u + 1) / 2), torch.special.zeta(z, 2 - z), torch.polygamma(2, u * 9)),
        lambda s, z, u: (S.i0(u * 40), S.i0e(z), S.i1(u * 40), S.i1e(z), S.log_ndtr(z), S.erfcx(u * 9), S.spherical_bessel_j0(u * 9)),
        lambda s, z, u: (S.bessel_j0(u * 30), S.bessel_j1(u * 30), S.bessel_y0(u * 30), S.bessel_y1(u * 30), S.modified_bessel_k0(u * 30)),
        lambda s, z, u: (S.modified_bessel_k1(u * 30), S.scaled_modified_bessel_k0(u * 30), S.scaled_modified_bessel_k1(u * 30)),
    ], (torch.tensor([-1e30, -5.5, -3, -2.5, -1, -0.3, -1e-20, -0.0, 0, 1e-20, 0.3, 0.5, 1, 1.5, 2, 2.0001, 5, 30, 1e5, 1e30, INF, -INF, NAN]),
        torch.tensor([-1, -0.999999, -0.5, -1e-10, -0.0, 0, 1e-20, 0.3, 0.7, 0.99, 0.9999999, 1, NAN]))),
}  # fmt: skip


FEW = 1  # rows of each family that every run of the tests takes, in one network: exporting is what costs


def few():
    """The first row of each family, and the inputs of all."""
    functions, inputs = [], []
    for rows, given in FAMILIES.values():
        first = len(inputs)
        functions += [lambda s, *x, f=f, a=first, b=first + len(given): f(s, *x[a:b]) for f in rows[:FEW]]
        inputs += given
    return functions, inputs


def test_first_rows():
    functions, inputs = few()
    want, mod, params = imported(functions, inputs)
    compare(computed(mod, params, [x.numpy() for x in inputs]), want)


PROJECTED = [nn.LSTM(5, 6, 2, proj_size=4, bidirectional=True, batch_first=True), nn.LSTM(5, 6, proj_size=4, bias=False)]


def test_projections():
    for layer in PROJECTED:
        x, layer = torch.randn(2, 3, 5), layer.eval()
        with torch.no_grad():
            want = [t.numpy() for t in torch.utils._pytree.tree_leaves(layer(x))]
        compare(computed(*relay.frontend.from_pytorch(layer, example_inputs=(x,)), [x.numpy()]), want)


@pytest.mark.full
@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_programs(name):
    want, mod, params = imported(*FAMILIES[name])
    compare(computed(mod, params, [x.numpy() for x in FAMILIES[name][1]]), want)
    compare(outputs(mod, params, FAMILIES[name][1]), want)


def test_quantised():
    """What quantisation of exported programs writes: to the bit, but for factors that PyTorch computes in float64."""
    pytest.importorskip("torch.ao.quantization.fx._decomposed")
    q = torch.ops.quantized_decomposed
    ends, scales, zeros = (-128, 127, torch.int8), torch.tensor([0.1, 0.02, 0.5]), torch.tensor([3, -7, 0])

    def around(x, of, back, *more):
        y = of(x, *more, *ends)
        return y, back(y, *more, *ends)

    def rows(x):
        y = q.quantize_per_token(x, scales[:, None], zeros[:, None], *ends)
        return y, q.dequantize_per_token(y, scales[:, None], zeros[:, None], *ends, torch.float32)

    ranges = [lambda s, x, f=f: f(x, *ends[:2], 1e-5, torch.int8) for f in (q.choose_qparams.tensor, q.choose_qparams_symmetric.tensor)]
    functions = [
        lambda s, x: around(x, q.quantize_per_tensor, q.dequantize_per_tensor, 0.07, 5),
        lambda s, x: around(x, q.quantize_per_tensor.tensor, q.dequantize_per_tensor.tensor, scales[:1], zeros[:1]),
        lambda s, x: around(x, q.quantize_per_channel, q.dequantize_per_channel, scales, zeros, 0),
        lambda s, x: rows(x),
        *ranges,
    ]
    want, mod, params = imported(functions, (x := torch.randn(3, 4) * 9,))
    for got, w in zip(computed(mod, params, [x.numpy()]), want, strict=True):
        assert got.dtype == w.dtype and np.allclose(got, w, 1e-6, 0), (got, w)


def test_slopes():
    """Without axes, too."""
    layers, inputs = [nn.RReLU().eval(), nn.RReLU(0.1, 0.5).eval(), nn.PReLU()], (torch.randn(3, 4), torch.tensor(-2.0))
    want, mod, params = imported([lambda s, *x: [f(v).detach() for f in layers for v in x]], inputs)
    compare(computed(mod, params, [x.numpy() for x in inputs]), want)


def test_regions():
    ops = pytest.importorskip("torchvision.ops")
    boxes = torch.tensor([[1.0, 2, 9, 12], [0, 0, 20, 8], [-3, 4, 5, 30], [5, 5, 5.2, 5.1]])
    images, at = torch.randn(2, 4, 9, 7), torch.cat([torch.tensor([[0.0], [1], [1], [0]]), boxes], 1)
    weight, beside, count = torch.randn(6, 2, 3, 2), torch.randn(2, 24, 5, 9) * 2, torch.rand(2, 12, 5, 9)
    rows = [
        lambda s, x, b, at, o, m: ops.roi_align(x, at, (3, 2), 0.5, 2, True),
        lambda s, x, b, at, o, m: ops.roi_align(x[:1], [b], 3, 0.4, 3, False),
        lambda s, x, b, at, o, m: ops.roi_align(x, at, (3, 2), 0.25),
        lambda s, x, b, at, o, m: ops.deform_conv2d(x, o, weight, torch.arange(6.0), (2, 1), (1, 2), (1, 2), m),
    ]
    inputs = (images, boxes, at, beside, count)
    want, mod, params = imported(rows, inputs)
    compare(computed(mod, params, [x.numpy() for x in inputs]), want)
    with pytest.raises(OpNotImplemented, match="give a sampling_ratio above 0"):
        imported([lambda s, x, b: ops.roi_align(x, [b], 3, 0.4, -1, True)], (images[:1], boxes))
    want, mod, params = imported([lambda s, x, b: ops.roi_align(x, [b], 3, 1.0)], (images[:1], boxes))
    with pytest.raises(RuntimeError, match="roi_align"):
        computed(mod, params, [images[:1].numpy(), boxes.numpy()])  # a box that is larger than the map
    with pytest.raises(OpNotImplemented, match="depends on the data"):
        imported([lambda s, b: ops.nms(b, b[:, 0], 0.5)], (boxes,))


def test_complex_outside():
    with pytest.raises(OpNotImplemented, match="return torch.view_as_real"):
        imported([lambda s, x: torch.fft.rfft(x)], [X])
    with pytest.raises(OpNotImplemented, match="give torch.view_as_real"):
        imported([lambda s, x: x.abs()], [FILTER])


def test_sizes_that_data_decide():
    with pytest.raises(OpNotImplemented, match="u0.*depends on the data"):
        imported([lambda s, x: x[x > 0]], [X])
    with pytest.raises(OpNotImplemented, match="torch.where has fixed shapes"):
        imported([written(lambda s, y: y.__setitem__((y[..., 0] > 0, I[:1]), 2.0))], [X])
