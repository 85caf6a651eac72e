"""Winograd convolution F(m x m, r x r) for NCHW: tiles of the input and the weight are transformed, multiplied for every point
of a tile, and transformed back.

The transforms are products with constant matrices. Their loops are unrolled, so that the constants fold.
"""

from collections import namedtuple

from ... import te, topi
from ...numerics import sum_type
from ...topi.nn.winograd import const_matrix, transform_matrices
from ...topi.util import get_const_tuple, get_pad_tuple, tuple_of
from ..task.topi_integration import register_topi_compute, register_topi_schedule
from .loops import apply_unrolling, begin, bind, define_unrolling, extent, fetch, grid3, is_computed, spread
from .packing import packed

_BLOCKED, _CUDA = "winograd_conv2d_output", "conv2d_nchw_winograd"
# m, r: tile and window; a: their reach; tiles: (along the height, along the width), their number in the batch
_Plan = namedtuple("_Plan", "m r a n ci co oh ow tiles number pad dtype acc matrices")


def _plan(data, co, m, r, strides, padding, dilation, out_dtype):
    if tuple_of(strides, 2, "strides") != (1, 1) or tuple_of(dilation, 2, "dilation") != (1, 1):
        raise ValueError(f"winograd convolution needs stride 1 and dilation 1, not {strides} and {dilation}")
    n, ci, ih, iw = get_const_tuple(data.shape)
    pt, pl, pb, pr = get_pad_tuple(padding, (r, r))
    oh, ow = ih + pt + pb - r + 1, iw + pl + pr - r + 1
    tiles, a = (-(-oh // m), -(-ow // m)), m + r - 1
    more = [(t - 1) * m + a - size for t, size in zip(tiles, (ih + pt + pb, iw + pl + pr))]  # what the last tiles read
    pad = topi.nn.pad(data, (0, 0, pt, pl), (0, 0, pb + max(0, more[0]), pr + max(0, more[1])), name="data_pad")
    dtype = out_dtype or data.dtype
    acc = sum_type(dtype)
    number = n * tiles[0] * tiles[1]
    return _Plan(m, r, a, n, ci, co, oh, ow, tiles, number, pad, dtype, acc, transform_matrices(m, r))


def _count(cfg, p):
    """The operations of the plain convolution, to which its other templates are compared."""
    cfg.add_flop(2 * p.n * p.co * p.oh * p.ow * p.r * p.r * p.ci)


def _point(p, b, e, u):
    """Where the point (e, u) of tile b of the batch stands in the padded input, for a channel."""
    nh, nw = p.tiles
    image, row, column = b // (nh * nw), b // nw % nh, b % nw
    return lambda c: p.pad(image, c, row * p.m + e, column * p.m + u).astype(p.acc)


def _weight_body(p, kernel, channels):
    """An element of the transformed weight; `channels` says which (output, input) channel an element belongs to."""
    G = const_matrix(p.matrices[2], "G", p.acc)
    y, x = te.reduce_axis((0, p.r), "r_kh"), te.reduce_axis((0, p.r), "r_kw")

    def body(e, u, *rest):
        return te.sum(kernel(*channels(*rest), y, x).astype(p.acc) * G(e, y) * G(u, x), axis=[y, x])

    return body


def _two_sums(p):
    return te.reduce_axis((0, p.a), "r_a"), te.reduce_axis((0, p.a), "r_b")


def _back(p, product, count, tag):
    """From the products [a, a, CO, tiles] to the output."""
    A, (ra, rb) = const_matrix(p.matrices[0], "A", p.acc), _two_sums(p)
    inverse = te.compute((p.co, count, p.m, p.m),
                         lambda c, b, vh, vw: te.sum(product(ra, rb, c, b) * A(ra, vh) * A(rb, vw), axis=[ra, rb]),
                         name="inverse")
    nh, nw = p.tiles
    return te.compute(
        (p.n, p.co, p.oh, p.ow),
        lambda n, c, h, w: inverse(c, n * nh * nw + h // p.m * nw + w // p.m, h % p.m, w % p.m).astype(p.dtype),
        name="output", tag=tag,
    )


def _blocked(cfg, p, kernel, bna, bnb, tiles, tag):
    """The form with blocks of `bna` output channels and `bnb` of the tiles, of which there are `tiles` with the rest."""
    d = te.compute(
        (p.ci, tiles // bnb, p.a, p.a, bnb),
        lambda c, q, e, u, t: te.if_then_else(q * bnb + t < p.number, _point(p, q * bnb + t, e, u)(c),
                                              te.const(0, p.acc))
        if tiles > p.number
        else _point(p, q * bnb + t, e, u)(c),
        name="d",
    )
    U = kernel
    if len(kernel.shape) == 4:
        body = _weight_body(p, kernel, lambda co, ci, v: (co * bna + v, ci))
        U = packed(kernel, (p.a, p.a, p.co // bna, p.ci, bna), body, (0, 1, 2, 3, 2), "U", winograd=p.m)
    B, (ra, rb) = const_matrix(p.matrices[1], "B", p.acc), _two_sums(p)
    V = te.compute((p.a, p.a, tiles // bnb, p.ci, bnb),
                   lambda e, u, q, c, t: te.sum(d(c, q, ra, rb, t) * B(ra, e) * B(rb, u), axis=[ra, rb]), name="V")
    c = te.reduce_axis((0, p.ci), "c")
    M = te.compute(
        (p.a, p.a, p.co, tiles),
        lambda e, u, k, b: te.sum(U(e, u, k // bna, c, k % bna).astype(p.acc) * V(e, u, b // bnb, c, b % bnb), axis=c),
        name="M",
        attrs={"whole_extent": 1},  # the last block is full, though nobody reads all of it
    )
    _count(cfg, p)
    return _back(p, M, p.number, tag)


def _parts(s, output):
    """(inverse, product, packed weight, transformed input, tiles of it); constants and the padding are inlined."""
    (inverse,) = s[output].op.input_tensors
    product, A = s[inverse].op.input_tensors
    weight, image = s[product].op.input_tensors
    d, B = s[image].op.input_tensors
    (pad,) = s[d].op.input_tensors
    for t in (A, B, pad):
        s[t].compute_inline()
    return inverse, product, weight, image, d


def _unroll(stage, axes):
    for a in axes:
        stage.unroll(a)


def _transform_weight(s, U):
    """The weight's transform with its short loops inside; gives its loops over blocks of output channels and input channels."""
    s[U.op.input_tensors[1]].compute_inline()
    e, u, co, ci, v = s[U].op.axis
    y, x = s[U].op.reduce_axis
    s[U].reorder(co, ci, e, u, y, x, v)
    _unroll(s[U], (e, u, y, x))
    s[U].vectorize(v)
    return co, ci


# ---- Mali ----
def _mali_tile(height):
    return 4 if height % 4 == 0 else 2


@register_topi_compute("conv2d_nchw_winograd.mali")
def conv2d_nchw_winograd_mali(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """3x3 convolution of [N, CI, H, W] with [CO, CI, 3, 3], or with a weight that is transformed already: [a, a, CO/v, CI, v]."""
    m = _mali_tile(get_const_tuple(data.shape)[2])
    shape = get_const_tuple(kernel.shape)
    co = shape[0] if len(shape) == 4 else shape[2] * shape[4]
    p = _plan(data, co, m, 3, strides, padding, dilation, out_dtype)
    cfg.define_knob("tile_bna", [x for x in (1, 2, 4, 8, 16) if co % x == 0])
    cfg.define_knob("tile_bnb", [1, 2, 4, 8, 16])
    cfg.define_split("tile_t1", p.ci, num_outputs=2, max_factor=128)
    cfg.define_split("tile_t2", co, num_outputs=2, max_factor=128)
    cfg.define_split("c_unroll", p.ci, num_outputs=2, max_factor=8)
    cfg.define_knob("yt", [1, 2, 4, 8, 16, 32])
    if cfg.is_fallback:
        cfg["tile_bnb"].val = 4
        cfg["tile_bna"].val = next(x for x in (4, 2, 1) if co % x == 0)
        cfg["yt"].val = 8
        cfg.fallback_split("tile_t1", [-1, 128])
        cfg.fallback_split("tile_t2", [-1, 128])
        cfg.fallback_split("c_unroll", [-1, 8])
    bna, bnb = cfg["tile_bna"].val, cfg["tile_bnb"].val
    return _blocked(cfg, p, kernel, bna, bnb, -(-p.number // bnb) * bnb, _BLOCKED)


@register_topi_schedule("conv2d_nchw_winograd.mali")
def schedule_conv2d_nchw_winograd_mali(cfg, outs):
    """Four kernels: transform of the input, (of the weight,) products, transform back with whatever follows."""
    s, output, out = begin(outs, _BLOCKED)
    inverse, M, U, V, d = _parts(s, output)
    if is_computed(U):
        co, ci = _transform_weight(s, U)
        (by, ty), (bx, tx) = s[U].split(co, factor=1), s[U].split(ci, factor=256)
        s[U].reorder(by, bx, ty, tx)
        bind(s[U], (by, bx, ty, tx), "blockIdx.y blockIdx.x threadIdx.y threadIdx.x")

    VL = s.cache_write(V, "local")
    e, u, q, c, t = s[V].op.axis
    s[V].reorder(q, c, e, u, t)
    _unroll(s[V], (e, u))
    s[V].vectorize(t)
    bx, tx = cfg["tile_t1"].apply(s, V, s[V].fuse(q, c))
    bind(s[V], (bx, tx), "blockIdx.x threadIdx.x")
    e, u, _, _, t = s[VL].op.axis
    _unroll(s[VL], (e, u, *s[VL].op.reduce_axis))
    s[VL].vectorize(t)
    s[d].compute_at(s[V], tx)
    s[VL].compute_at(s[V], tx)

    e, u, k, b = s[M].op.axis
    yo, xo, yi, xi = s[M].tile(k, b, cfg["tile_bna"].val, cfg["tile_bnb"].val)
    c, cu = cfg["c_unroll"].apply(s, M, s[M].op.reduce_axis[0])
    s[M].reorder(yo, xo, c, cu, yi, xi)
    _unroll(s[M], (cu, yi))
    s[M].vectorize(xi)
    grid3(s[M], (s[M].fuse(e, u), yo, xo), (1, cfg["yt"].val, 1))

    _unroll(s[inverse], (*s[inverse].op.axis[2:], *s[inverse].op.reduce_axis))
    if output.op != out.op:
        s[output].compute_inline()
    m = extent(s[inverse].op.axis[2])
    n, c, h, w = s[out].op.axis
    h, w, hi, wi = s[out].tile(h, w, m, m)
    _unroll(s[out], (hi, wi))
    bx, tx = cfg["tile_t2"].apply(s, out, s[out].fuse(n, c, h, w))
    bind(s[out], (bx, tx), "blockIdx.x threadIdx.x")
    s[inverse].compute_at(s[out], tx)
    return s


# ---- ARM CPUs ----
@register_topi_compute("conv2d_nchw_winograd.arm_cpu")
def conv2d_nchw_winograd_arm(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """3x3 convolution of [N, CI, H, W] with [CO, CI, 3, 3], or with a weight that is transformed already: [a, a, CO/v, CI, v]."""
    shape = get_const_tuple(kernel.shape)
    co = shape[0] if len(shape) == 4 else shape[2] * shape[4]
    p = _plan(data, co, 4, 3, strides, padding, dilation, out_dtype)
    cfg.define_split("tile_p", cfg.axis(p.number), num_outputs=2, filter=lambda x: x.size[-1] <= 16)
    cfg.define_split("tile_k", cfg.axis(co), num_outputs=2, filter=lambda x: x.size[-1] <= 16)
    return _blocked(cfg, p, kernel, cfg["tile_k"].size[-1], cfg["tile_p"].size[-1], p.number, _BLOCKED)


@register_topi_schedule("conv2d_nchw_winograd.arm_cpu")
def schedule_conv2d_nchw_winograd_arm(cfg, outs):
    """Products of a block of output channels are made where they are transformed back."""
    s, output, out = begin(outs, _BLOCKED)
    inverse, M, U, V, d = _parts(s, output)
    if is_computed(U):
        co, _ = _transform_weight(s, U)
        s[U].parallel(co)

    e, u, b, c, t = s[V].op.axis
    ra, rb = s[V].op.reduce_axis
    s[V].reorder(b, c, e, u, ra, rb, t)
    _unroll(s[V], (e, u, ra, rb))
    s[V].vectorize(t)
    s[V].parallel(b)
    s[d].compute_at(s[V], c)

    e, u, k, b = s[M].op.axis
    (c,) = s[M].op.reduce_axis
    cfg.define_split("tile_c", c, num_outputs=2, filter=lambda x: x.size[-1] <= 16)
    co, ci = cfg["tile_c"].apply(s, M, c)
    xo, xi = cfg["tile_p"].apply(s, M, b)
    s[M].reorder(e, u, xo, co, k, ci, xi)
    cfg.define_annotate("ann_reduce", [ci], policy="try_unroll")
    cfg.define_annotate("ann_spatial", [k, xi], policy="try_unroll_vec")
    cfg["ann_reduce"].apply(s, M, [ci], axis_lens=[cfg["tile_c"].size[-1]], max_unroll=16, cfg=cfg)
    lens = [cfg["tile_k"].size[-1], cfg["tile_p"].size[-1]]
    cfg["ann_spatial"].apply(s, M, [k, xi], axis_lens=lens, max_unroll=16, cfg=cfg)

    _unroll(s[inverse], (*s[inverse].op.axis[2:], *s[inverse].op.reduce_axis))
    if output.op != out.op:
        s[output].compute_inline()
    n, k, h, w = s[out].op.axis
    ko, _ = cfg["tile_k"].apply(s, out, k)
    block = s[out].fuse(n, ko)
    s[out].parallel(block)
    s[M].compute_at(s[out], block)
    m = extent(s[inverse].op.axis[2])
    _, wo, _, _ = s[out].tile(h, w, m, m)
    s[inverse].compute_at(s[out], wo)
    return s


# ---- CUDA ----
def _cuda_tile(height):
    return topi.nn.winograd_tile_size(height)


def _compute_cuda(cfg, data, kernel, strides, padding, dilation, out_dtype, pre_computed):
    m = _cuda_tile(get_const_tuple(data.shape)[2])
    shape = get_const_tuple(kernel.shape)
    r, co = (shape[0] + 1 - m, shape[3]) if pre_computed else (shape[3], shape[0])
    p = _plan(data, co, m, r, strides, padding, dilation, out_dtype)
    weight = kernel
    if not pre_computed:
        body = _weight_body(p, kernel, lambda ci, co: (co, ci))
        weight = packed(kernel, (p.a, p.a, p.ci, co), body, (0, 1, 3, 2), "kernel_pack", winograd=m)
    d = te.compute((p.ci, p.number, p.a, p.a), lambda c, b, e, u: _point(p, b, e, u)(c), name="d")
    B, (ra, rb) = const_matrix(p.matrices[1], "B", p.acc), _two_sums(p)
    image = te.compute((p.a, p.a, p.ci, p.number),
                       lambda e, u, c, b: te.sum(d(c, b, ra, rb) * B(ra, e) * B(rb, u), axis=[ra, rb]),
                       name="data_pack")
    rc = te.reduce_axis((0, p.ci), "ci")
    product = te.compute((p.a, p.a, co, p.number),
                         lambda e, u, k, b: te.sum(weight(e, u, rc, k).astype(p.acc) * image(e, u, rc, b), axis=rc),
                         name="bgemm")
    _count(cfg, p)
    return _back(p, product, p.number, _CUDA)


def _multiply_on_gpu(cfg, s, product, weight, image):
    """The product as one tiled matrix product for every point of a tile, with operands in shared memory."""
    e, u, y, x = s[product].op.axis
    cfg.define_split("tile_b", cfg.axis(extent(e) * extent(u)), num_outputs=4, filter=lambda v: v.size[-3:] == [1, 1, 1])
    cfg.define_split("tile_y", y, num_outputs=4)
    cfg.define_split("tile_x", x, num_outputs=4)
    cfg.define_split("tile_rc", s[product].op.reduce_axis[0], num_outputs=2)
    define_unrolling(cfg, [0, 128, 1500])

    local = s.cache_write(product, "local")
    loads = [s.cache_read(t, "shared", [local]) for t in (weight, image)]
    e, u, y, x = s[product].op.axis
    scope, b = s[product].split(s[product].fuse(e, u), nparts=1)
    bz, vz, tz, zi = cfg["tile_b"].apply(s, product, b)
    by, vy, ty, yi = cfg["tile_y"].apply(s, product, y)
    bx, vx, tx, xi = cfg["tile_x"].apply(s, product, x)
    blocks, virtual, threads = (bz, by, bx), (vz, vy, vx), (tz, ty, tx)
    bind(s[product], blocks, "blockIdx.z blockIdx.y blockIdx.x")
    bind(s[product], virtual, "vthread vthread vthread")
    bind(s[product], threads, "threadIdx.z threadIdx.y threadIdx.x")
    s[product].reorder(scope, *blocks, *virtual, *threads, zi, yi, xi)
    s[local].compute_at(s[product], tx)

    e, u, y, x = s[local].op.axis
    b = s[local].fuse(e, u)
    rco, rci = cfg["tile_rc"].apply(s, local, s[local].op.reduce_axis[0])
    s[local].reorder(rco, rci, b, y, x)
    for load in loads:
        s[load].compute_at(s[local], rco)
        fetch(s, load, [cfg[name].size[2] for name in ("tile_b", "tile_y", "tile_x")], neighbours=True)
    apply_unrolling(cfg, s[product], scope)


def _schedule_cuda(cfg, outs):
    s, output, out = begin(outs, _CUDA)
    inverse, product, weight, image, d = _parts(s, output)

    local = s.cache_write(image, "local")
    _unroll(s[local], (*s[local].op.axis[:2], *s[local].op.reduce_axis))
    e, u, c, b = s[image].op.axis
    b, bi = s[image].split(b, factor=1)
    s[image].reorder(c, b, bi, e, u)
    spread(s[image], (c, b), 128)
    s[local].compute_at(s[image], bi)
    s[d].compute_at(s[image], bi)

    if is_computed(weight):
        s[weight.op.input_tensors[1]].compute_inline()
        e, u, ci, co = s[weight].op.axis
        y, x = s[weight].op.reduce_axis
        s[weight].reorder(ci, co, e, u, y, x)
        _unroll(s[weight], (e, u, y, x))
        spread(s[weight], (ci, co), 128)

    _multiply_on_gpu(cfg, s, product, weight, image)

    m = extent(s[inverse].op.axis[2])
    n, co, h, w = s[out].op.axis
    h, w, _, _ = s[out].tile(h, w, m, m)
    _, tx = spread(s[out], (n, co, h, w), 128)
    if output.op != out.op:
        s[output].compute_inline()
    _unroll(s[inverse], (*s[inverse].op.axis[2:], *s[inverse].op.reduce_axis))
    s[inverse].compute_at(s[out], tx)
    return s


@register_topi_compute("conv2d_nchw_winograd.cuda")
def conv2d_nchw_winograd_cuda(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """Convolution of [N, CI, H, W] with [CO, CI, r, r]."""
    return _compute_cuda(cfg, data, kernel, strides, padding, dilation, out_dtype, False)


@register_topi_compute("conv2d_nchw_winograd_without_weight_transform.cuda")
def conv2d_nchw_winograd_without_weight_transform_cuda(cfg, data, kernel, strides, padding, dilation, out_dtype):
    """Convolution of [N, CI, H, W] with a weight that is transformed already: [a, a, CI, CO]."""
    return _compute_cuda(cfg, data, kernel, strides, padding, dilation, out_dtype, True)


for _name in ("conv2d_nchw_winograd.cuda", "conv2d_nchw_winograd_without_weight_transform.cuda"):
    register_topi_schedule(_name)(_schedule_cuda)
