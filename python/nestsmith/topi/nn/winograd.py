"""Winograd convolution F(m x m, 3 x 3) for NHWC: transform tiles of the data, multiply, transform back.

The three constant matrices come from the Cook-Toom construction with the points 0, -1, 1, 1/2, -2 (more for larger windows)
and infinity. They
appear in the DAG as stages of nested selects that read nothing, so that schedules can inline and unroll them. Transforms
amplify rounding errors, so 16-bit floats are transformed, multiplied and, if the weight is transformed ahead of time, stored
in float32.
"""

import struct
from fractions import Fraction

from ... import te, tir
from ..util import as_const_int, const_table, get_pad_tuple, is_float, prod, sum_type, tuple_of
from .pad import pad

__all__ = ["conv2d_winograd_nhwc", "conv2d_winograd_nhwc_without_weight_transform", "conv2d_winograd_weight_transform",
           "winograd_tile_size"]  # fmt: skip

_HALF, _QUARTER = Fraction(1, 2), Fraction(1, 4)
# Interpolation points: so many first ones of the first row that has enough.
_POINTS = (
    (0, -1, 1, _HALF, -2, -_HALF),
    (0, -1, 1, _HALF, -_HALF, 2, -2, -_QUARTER, 4),
)
_CONST = "auto_scheduler_simplify_const_tensor_indices"
_UNROLLED = "auto_scheduler_always_unroll_inner"


def _rounded(x, dtype):
    """A fraction as a literal of the type: float32 literals hold what float32 can."""
    return float(x) if dtype == "float64" else struct.unpack("f", struct.pack("f", float(x)))[0]


def transform_matrices(tile_size, kernel_size=3):
    """(A, B, G) as lists of rows of fractions."""
    alpha = tile_size + kernel_size - 1
    n = alpha - 1
    row = next((row for row in _POINTS if 2 <= n <= len(row)), None)
    if row is None:
        raise ValueError(f"no winograd matrices for tile size {tile_size} and kernel size {kernel_size}")
    a = [Fraction(x) for x in row[:n]]
    f = [prod(a[i] - a[k] for k in range(n) if k != i) for i in range(n)]
    div = [abs(f[0]), *f[1:], Fraction(1)]

    def powers(columns, divide):
        rows = [[(a[i] ** j) / (div[i] if divide else 1) for j in range(columns)] for i in range(n)]
        return [*rows, [Fraction(int(j == columns - 1)) for j in range(columns)]]

    lagrange = [[Fraction(0)] * n for _ in range(n)]
    for i in range(n):
        poly = [Fraction(1)]
        for k in range(n):
            if k != i:
                up, same = [Fraction(0), *poly], [*poly, Fraction(0)]
                poly = [u - a[k] * s for u, s in zip(up, same)]
        for r in range(n):
            lagrange[r][i] = poly[r] / f[i]
    t = [[Fraction(int(i == j)) for j in range(n)] + [-(a[i] ** n)] for i in range(n)]
    b = [[sum(lagrange[r][i] * t[i][c] for i in range(n)) for c in range(n + 1)] for r in range(n)]
    b.append([Fraction(int(c == n)) for c in range(n + 1)])
    return powers(tile_size, False), [[v * div[c] for c, v in enumerate(row)] for row in b], powers(kernel_size, True)


def const_matrix(matrix, name, dtype="float32"):
    """A constant matrix as a stage: one select per element, the last element outermost."""
    rows, columns = len(matrix), len(matrix[0])
    return const_table(rows, columns, lambda r, c: _rounded(matrix[r][c], dtype), dtype, name, {"const_matrix": 1})


def _need_float(dtype):
    if not is_float(dtype):
        raise ValueError(f"winograd's transforms are made of fractions, which {dtype} does not hold; use the direct convolution")


def winograd_tile_size(height):
    """Output tile size for an input of this height: 4 if it is divisible by 8, else 2."""
    return 4 if as_const_int(height) % 8 == 0 else 2


def _by_column(matrix, column, read, dtype):
    """The sum of matrix[k][column] * read(k) over k as one select per column, so that an unrolled loop over columns leaves
    products with what is not 0 alone."""

    def total(c):
        terms = [(row[c], k) for k, row in enumerate(matrix) if row[c]]
        terms.sort(key=lambda t: t[0] < 0)  # one that can stand first without a sign
        out = None
        for v, k in terms:
            x = read(k) if abs(v) == 1 else read(k) * tir.const(_rounded(abs(v), dtype), dtype)
            if out is None:
                out = x if v > 0 else tir.const(0.0, dtype) - x
            else:
                out = out + x if v > 0 else out - x
        return tir.const(0.0, dtype) if out is None else out

    columns = len(matrix[0])
    now = total(columns - 1)
    for c in reversed(range(columns - 1)):
        now = tir.Select(tir.EQ(column, c), total(c), now)
    return now


def _packed_data(tile_element, b, tiles, ci, acc):
    """B^T d B of each tile d and channel as one sum: the definition that records of TVM speak of."""
    alpha = len(b)
    input_tile = te.compute((alpha, alpha, tiles, ci), tile_element, name="input_tile")
    B = const_matrix(b, "B", acc)
    r_a, r_b = te.reduce_axis((0, alpha), "r_a"), te.reduce_axis((0, alpha), "r_b")
    return te.compute(
        (alpha, alpha, tiles, ci),
        lambda eps, nu, p, ci: te.sum(input_tile[r_a, r_b, p, ci] * B[r_a, eps] * B[r_b, nu], axis=[r_a, r_b]),
        name="data_pack", attrs={_CONST: ["eps", "nu", "r_a", "r_b"]},
    )  # fmt: skip


def _inverse(bgemm, a, acc):
    """A^T g A of each product g, as one sum."""
    alpha, m = len(a), len(a[0])
    A = const_matrix(a, "A", acc)
    r_a, r_b = te.reduce_axis((0, alpha), "r_a"), te.reduce_axis((0, alpha), "r_b")
    return te.compute((m, m, *bgemm.shape[2:]),
                      lambda vh, vw, p, co: te.sum(bgemm[r_a, r_b, p, co] * A[r_a, vh] * A[r_b, vw], axis=[r_a, r_b]),
                      name="inverse", attrs={_CONST: ["vh", "vw", "r_a", "r_b"]})  # fmt: skip


def _transformed_by_rows(source, matrix, name, part, tiles, channels, dtype):
    """matrix^T source matrix for each tile and channel, rows first and then columns; `source(i, j, p, c)` reads an element.

    It is one stage for the rows, which schedules compute where the other needs them, and one for the columns."""
    n, m = len(matrix), len(matrix[0])
    rows = te.compute((tiles, n, m, channels),
                      lambda p, j, i, c: _by_column(matrix, i, lambda k: source(k, j, p, c), dtype), name=part,
                      attrs={_UNROLLED: ["i", "j"]})  # fmt: skip
    return te.compute((m, m, tiles, channels),
                      lambda i, j, p, c: _by_column(matrix, j, lambda k: rows[p, k, i, c], dtype), name=name,
                      attrs={_CONST: ["i", "j"]})  # fmt: skip


def _convolution(data, weight, strides, padding, dilation, out_dtype, packed, by_rows=False):
    if tuple_of(strides, 2, "strides") != (1, 1) or tuple_of(dilation, 2, "dilation") != (1, 1):
        raise ValueError(f"winograd convolution needs stride 1 and dilation 1, not {strides} and {dilation}")
    out_dtype = out_dtype or data.dtype
    for dtype in (data.dtype, weight.dtype, out_dtype):
        _need_float(dtype)
    n, h, w, ci = (as_const_int(s) for s in data.shape)
    # With a packed weight the target may have preferred another tile (CPU: 4).
    m = as_const_int(weight.shape[0]) - 2 if packed else winograd_tile_size(h)
    alpha = m + 2
    if packed:
        co, wci, expected = weight.shape[2], weight.shape[3], (alpha, alpha)
    else:
        wci, co, expected = weight.shape[2], weight.shape[3], (3, 3)
    if tuple(weight.shape[:2]) != expected or wci != ci:
        raise ValueError(f"weight of shape {tuple(weight.shape)} does not fit: it must start with {expected} and have "
                         f"{ci} input channels")  # fmt: skip
    pt, pl, pb, pr = get_pad_tuple(padding, (3, 3))
    oh, ow = h + pt + pb - 2, w + pl + pr - 2
    nh, nw = -(-oh // m), -(-ow // m)
    p = n * nh * nw
    # One amount for both dimensions is part of the definition; where the image is not square it can be too small, and
    # then every dimension gets what its tiles read.
    extra = (nw - 1) * m + alpha - (oh + pt + pb)
    more_h = max(extra, (nh - 1) * m + alpha - (h + pt + pb))
    more_w = max(extra, (nw - 1) * m + alpha - (w + pl + pr))
    a, b, g = transform_matrices(m)
    acc = sum_type(out_dtype)
    data_pad = pad(data, (0, pt, pl, 0), (0, pb + more_h, pr + more_w, 0), name="data_pad")

    def tile_element(eps, nu, p, ci):
        return data_pad[te.indexdiv(p, nh * nw), te.indexmod(te.indexdiv(p, nw), nh) * m + eps,
                        te.indexmod(p, nw) * m + nu, ci].astype(acc)  # fmt: skip

    if by_rows:
        data_pack = _transformed_by_rows(tile_element, b, "data_pack", "data_rows", p, ci, acc)
    else:
        data_pack = _packed_data(tile_element, b, p, ci, acc)
    u = weight if packed else _pack_kernel(weight, g, alpha, acc)
    r_c = te.reduce_axis((0, ci), "ci")
    bgemm = te.compute(
        (alpha, alpha, p, co),
        lambda eps, nu, p, co: te.sum(data_pack[eps, nu, p, r_c] * u[eps, nu, co, r_c].astype(acc), axis=r_c),
        name="bgemm", attrs={"layout_free_placeholders": [weight]} if packed else None,
    )  # fmt: skip
    if by_rows:
        inverse = _transformed_by_rows(lambda *at: bgemm[at], a, "inverse", "inverse_rows", p, co, acc)
    else:
        inverse = _inverse(bgemm, a, acc)
    return te.compute(
        (n, oh, ow, co),
        lambda n, h, w, co: inverse[
            te.indexmod(h, m), te.indexmod(w, m), n * nh * nw + te.indexdiv(h, m) * nw + te.indexdiv(w, m), co
        ].astype(out_dtype),
        name="conv2d_winograd",
    )


def _pack_kernel(weight, g, alpha, acc):
    G = const_matrix(g, "G", acc)
    r_kh, r_kw = te.reduce_axis((0, 3), "r_kh"), te.reduce_axis((0, 3), "r_kw")
    return te.compute(
        (alpha, alpha, weight.shape[3], weight.shape[2]),
        lambda eps, nu, co, ci: te.sum(
            weight[r_kh, r_kw, ci, co].astype(acc) * G[eps, r_kh] * G[nu, r_kw], axis=[r_kh, r_kw]
        ),
        name="kernel_pack",
    )


def conv2d_winograd_nhwc(data, weight, strides=1, padding=1, dilation=1, out_dtype=None, pre_computed=False):
    """3x3 convolution of [N, H, W, CI] with [3, 3, CI, CO] (``pre_computed``: with the transformed weight)."""
    return _convolution(data, weight, strides, padding, dilation, out_dtype, pre_computed)


def conv2d_winograd_nhwc_without_weight_transform(data, weight, strides=1, padding=1, dilation=1, out_dtype=None,
                                                  by_rows=False):  # fmt: skip
    """3x3 convolution of [N, H, W, CI] with a weight transformed to [tile+2, tile+2, CO, CI].

    `by_rows`: tiles are transformed first by rows and then by columns, with a third of the operations of the definition that
    TVM has, which is one sum over both."""
    return _convolution(data, weight, strides, padding, dilation, out_dtype, True, by_rows)


def conv2d_winograd_weight_transform(kernel, tile_size):
    """The weight [CO, CI, 3, 3] transformed to [tile+2, tile+2, CO, CI]; float32 if the weight has 16-bit floats."""
    _need_float(kernel.dtype)
    co, ci, kh, kw = kernel.shape
    if (kh, kw) != (3, 3):
        raise ValueError(f"the winograd weight transform takes 3x3 kernels, not {(kh, kw)}")
    alpha = tile_size + 2
    acc = sum_type(kernel.dtype)
    G = const_matrix(transform_matrices(tile_size)[2], "G", acc)
    r_kh, r_kw = te.reduce_axis((0, 3), "r_kh"), te.reduce_axis((0, 3), "r_kw")
    return te.compute(
        (alpha, alpha, co, ci),
        lambda eps, nu, co, ci: te.sum(
            kernel[co, ci, r_kh, r_kw].astype(acc) * G[eps, r_kh] * G[nu, r_kw], axis=[r_kh, r_kw]
        ),
        name="transform_weight",
    )
