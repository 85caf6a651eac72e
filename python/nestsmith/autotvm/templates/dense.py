"""Products of a matrix [M, K] with the transpose of another, [N, K]."""

import math

from ... import te, topi
from ...numerics import sum_type
from ...topi.util import get_const_tuple
from ..task.space import SplitEntity
from ..task.topi_integration import register_topi_compute, register_topi_schedule
from .loops import accumulate, begin, bind, largest_divisor, simd_lanes, unroll_within
from .packing import packed
from .spatial_pack import VECTORS


def _result(product, bias, dtype, acc):
    """With bias, in the type that is asked for."""
    out = product
    if bias is not None:
        out = te.compute(product.shape, lambda i, j: product(i, j) + bias(j).astype(acc), name="T_add", tag="broadcast")
    return topi.cast(out, dtype) if dtype != acc else out


# ---- Mali ----
@register_topi_compute("dense.mali")
def dense_mali(cfg, data, weight, bias=None, out_dtype=None):
    """[M, K] times the transpose of [N, K], plus bias [N]."""
    out = topi.nn.dense(data, weight, bias, out_dtype)
    (m, k), (n, _) = get_const_tuple(data.shape), get_const_tuple(weight.shape)
    cfg.define_split("tile_y", cfg.axis(m), num_outputs=3)
    cfg.define_split("tile_x", cfg.axis(n), num_outputs=3)
    cfg.define_split("c_unroll", cfg.reduce_axis(k), num_outputs=2, max_factor=64)
    if cfg.is_fallback:
        cfg.fallback_split("tile_y", [-1, 8, 1])
        cfg.fallback_split("tile_x", [-1, 8, 4])
        cfg.fallback_split("c_unroll", [-1, 4])
    return out


@register_topi_schedule("dense.mali")
def schedule_dense_mali(cfg, outs):
    """A thread computes a tile in registers."""
    s, product, out = begin(outs, "dense")
    limit = 32
    local = accumulate(s, product, out)
    y, x = s[out].op.axis
    by, ty, yi = cfg["tile_y"].apply(s, out, y)
    bx, tx, xi = cfg["tile_x"].apply(s, out, x)
    s[out].reorder(by, bx, ty, tx, yi, xi)
    bind(s[out], (by, bx, ty, tx), "blockIdx.y blockIdx.x threadIdx.y threadIdx.x")
    rows, columns = cfg["tile_y"].size[-1], cfg["tile_x"].size[-1]
    if rows < limit:
        s[out].unroll(yi)
    if columns in VECTORS:
        s[out].vectorize(xi)
    s[local].compute_at(s[out], tx)
    y, x = s[local].op.axis
    k, ku = cfg["c_unroll"].apply(s, local, s[local].op.reduce_axis[0])
    s[local].reorder(k, ku, y, x)
    s[local].unroll(ku)
    if rows < limit:
        s[local].unroll(y)
    if columns in VECTORS:
        s[local].vectorize(x)
    return s


# ---- CUDA and other GPUs ----
def _schedule_small_batch(cfg, outs):
    s, product, out = begin(outs, "dense", "matmul")
    (k,) = s[product].op.reduce_axis
    cfg.define_split("tile_k", k, num_outputs=2)
    if cfg.is_fallback:
        cfg["tile_k"] = SplitEntity([-1, 64])
    _, ki = cfg["tile_k"].apply(s, product, k)
    parts = s.rfactor(product, ki)
    y, x = s[out].op.axis
    if product.op != out.op:
        s[product].compute_at(s[out], x)
    bind(s[out], (y, x), "blockIdx.y blockIdx.x")
    tx = s[product].op.reduce_axis[0]
    s[product].bind(tx, te.thread_axis("threadIdx.x"))
    s[parts].compute_at(s[product], tx)
    return s


def _dense(cfg, data, weight, bias=None, out_dtype=None):
    """[M, K] times the transpose of [N, K], plus bias [N]."""
    return topi.nn.dense(data, weight, bias, out_dtype)


def _matmul(cfg, tensor_a, tensor_b, bias=None, out_dtype=None, transpose_a=False, transpose_b=False):
    """A product of matrices, either of them transposed."""
    return topi.nn.matmul(tensor_a, tensor_b, bias, out_dtype, transpose_a, transpose_b)


# One block for each element: its threads divide the sum among them.
dense_small_batch = register_topi_compute("dense_small_batch.gpu")(_dense)
schedule_dense_small_batch = register_topi_schedule("dense_small_batch.gpu")(_schedule_small_batch)
matmul_default = register_topi_compute("matmul_default.gpu")(_matmul)
schedule_matmul_default = register_topi_schedule("matmul_default.gpu")(_schedule_small_batch)
dense_large_batch = register_topi_compute("dense_large_batch.gpu")(_dense)


@register_topi_schedule("dense_large_batch.gpu")
def schedule_dense_large_batch(cfg, outs):
    """Tiles in shared memory, of which there are two copies, and in registers."""
    s, product, out = begin(outs, "dense")
    a, b = s[product].op.input_tensors
    (m, n), (k,) = s[product].op.axis, s[product].op.reduce_axis
    # The other implementation prunes these with a filter that nothing passes, and then does without one.
    cfg.define_split("tile_x", m, num_outputs=4)
    cfg.define_split("tile_y", n, num_outputs=4)
    cfg.define_split("tile_k", k, num_outputs=3)
    if cfg.is_fallback:
        length = [topi.get_const_int(axis.dom.extent) for axis in (m, n, k)]
        for name, size in zip(("tile_x", "tile_y"), length):
            cfg[name] = SplitEntity([-1, 2, 16, 2] if size > 1 else [1, 1, 1, 1])
        cfg["tile_k"] = SplitEntity([-1, 8, 1] if length[2] > 8 else [-1, 1, 1])

    shared = [s.cache_read(t, "shared", [product]) for t in (a, b)]
    own = [s.cache_read(t, "local", [product]) for t in shared]
    local = s.cache_write(product, "local")
    if product.op != out.op:
        s[product].compute_inline()
    bx, vx, tx, xi = cfg["tile_x"].apply(s, out, s[out].op.axis[0])
    by, vy, ty, yi = cfg["tile_y"].apply(s, out, s[out].op.axis[1])
    s[out].reorder(by, bx, vy, vx, ty, tx, yi, xi)
    bind(s[out], (by, bx, vy, vx, ty, tx), "blockIdx.y blockIdx.x vthread vthread threadIdx.y threadIdx.x")

    s[local].compute_at(s[out], tx)
    ko, kt, ki = cfg["tile_k"].apply(s, local, s[local].op.reduce_axis[0])
    s[local].reorder(ko, kt, ki, *s[local].op.axis)
    s[local].unroll(kt)
    threads = cfg["tile_y"].size[2], cfg["tile_x"].size[2]
    for load, stage in zip(shared, map(s.__getitem__, shared)):
        stage.compute_at(s[local], ko)
        ty, _ = stage.split(s[load].op.axis[0], nparts=threads[0])
        _, tx = stage.split(s[load].op.axis[1], factor=4 * threads[1])
        tx, _ = stage.split(tx, nparts=threads[1])
        bind(stage, (ty, tx), "threadIdx.y threadIdx.x")
        stage.double_buffer()
    for load in own:
        s[load].compute_at(s[local], kt)
    return s


dense_int8 = register_topi_compute("dense_int8.cuda")(_dense)


@register_topi_schedule("dense_int8.cuda")
def schedule_dense_int8(cfg, outs):
    """Tiles in shared memory, loaded 16 (or 4) bytes at a time, four products in a row."""
    s, product, out = begin(outs, "dense")
    a, b = s[product].op.input_tensors
    (m, n), (k,) = s[product].op.axis, s[product].op.reduce_axis
    length = topi.get_const_int(k.dom.extent)
    wide = 16 if length % 16 == 0 else 4
    cfg.define_split("tile_y", m, num_outputs=4)
    cfg.define_split("tile_x", n, num_outputs=4)
    cfg.define_split("tile_k", cfg.axis(length // wide), num_outputs=2)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])

    shared = [s.cache_read(t, "shared", [product]) for t in (a, b)]
    local = s.cache_write(product, "local")
    if product.op != out.op:
        s[product].compute_inline()
    scope, y = s[out].split(s[out].op.axis[0], nparts=1)
    by, vy, ty, yi = cfg["tile_y"].apply(s, out, y)
    bx, vx, tx, xi = cfg["tile_x"].apply(s, out, s[out].op.axis[1])
    s[out].reorder(scope, by, bx, vy, vx, ty, tx, yi, xi)
    bind(s[out], (by, bx, vy, vx, ty, tx), "blockIdx.y blockIdx.x vthread vthread threadIdx.y threadIdx.x")
    s[local].compute_at(s[out], tx)
    ko, ki = s[local].split(s[local].op.reduce_axis[0], factor=4)
    ko, kt = cfg["tile_k"].apply(s, local, ko)
    s[local].reorder(ko, kt, *s[local].op.axis, ki)
    s[local].unroll(ki)
    lanes = math.gcd(wide, 4 * cfg["tile_k"].size[-1])
    for load in shared:
        stage = s[load]
        stage.compute_at(s[local], ko)
        outer, inner = stage.split(s[load].op.axis[1], factor=lanes)
        stage.vectorize(inner)
        spread_out = stage.fuse(s[load].op.axis[0], outer)
        spread_out, tx = stage.split(spread_out, factor=cfg["tile_x"].size[2])
        _, ty = stage.split(spread_out, factor=cfg["tile_y"].size[2])
        bind(stage, (ty, tx), "threadIdx.y threadIdx.x")
    s[out].pragma(scope, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    return s


# ---- x86 ----
@register_topi_compute("dense_nopack.x86")
def dense_nopack(cfg, data, weight, bias=None, out_dtype=None):
    """[M, K] times the transpose of [N, K], plus bias [N]; the lanes of a vector sum apart from each other first."""
    (m, k), (n, _) = get_const_tuple(data.shape), get_const_tuple(weight.shape)
    for name, length in (("tile_y", m), ("tile_x", n), ("tile_k", k)):
        cfg.define_split(name, length, num_outputs=2)
    if cfg.is_fallback:
        v = largest_divisor(k, 2 * simd_lanes())
        cfg["tile_k"], cfg["tile_x"] = SplitEntity([k // v, v]), SplitEntity([n, 1])
        cfg["tile_y"] = SplitEntity([1, m])
    dtype = out_dtype or data.dtype
    acc, v = sum_type(dtype), cfg["tile_k"].size[-1]
    outer, inner = te.reduce_axis((0, k // v), "k"), te.reduce_axis((0, v), "kk")
    lanes = te.compute(
        (m, n, v),
        lambda z, y, x: te.sum(data(z, outer * v + x).astype(acc) * weight(y, outer * v + x).astype(acc), axis=outer),
        name="lanes",
    )
    product = te.compute((m, n), lambda y, x: te.sum(lanes(y, x, inner), axis=inner), name="dense", tag="dense_nopack")
    return _result(product, bias, dtype, acc)


@register_topi_schedule("dense_nopack.x86")
def schedule_dense_nopack(cfg, outs):
    """Tiles of the output run in parallel."""
    s, product, out = begin(outs, "dense_nopack")
    (lanes,) = s[product].op.input_tensors
    y, x = s[out].op.axis
    yo, yi = cfg["tile_y"].apply(s, out, y)
    xo, xi = cfg["tile_x"].apply(s, out, x)
    s[out].reorder(yo, xo, yi, xi)
    tile = s[out].fuse(yo, xo)
    s[out].parallel(tile)
    if product.op != out.op:
        s[product].compute_at(s[out], tile)
    unroll_within(s[product], [(s[product].op.reduce_axis[0], None)])
    s[lanes].compute_at(s[out], tile)
    z, y, v = s[lanes].op.axis
    zy = s[lanes].fuse(z, y)
    s[lanes].reorder(s[lanes].op.reduce_axis[0], zy, v)
    unroll_within(s[lanes], [(zy, cfg["tile_y"].size[-1] * cfg["tile_x"].size[-1])])
    s[lanes].vectorize(v)
    return s


def _fallback_pack(cfg, m, n, k):
    x = largest_divisor(n, 2 * simd_lanes())
    outer, middle = n // x, 1
    while outer > 4 and outer % 2 == 0:
        outer, middle = outer // 2, middle * 2
    rest, sizes = m, []
    for _ in range(2):
        sizes.append(next(d for d in (8, 4, 2, 1) if rest % d == 0))
        rest //= sizes[-1]
    inner, between = sizes
    cfg["tile_y"], cfg["tile_x"] = SplitEntity([rest, between, inner]), SplitEntity([outer, middle, x])
    cfg["tile_k"], cfg["tile_inner"] = SplitEntity([k, 1]), SplitEntity([m // inner, inner])


@register_topi_compute("dense_pack.x86")
def dense_pack(cfg, data, weight, bias=None, out_dtype=None):
    """[M, K] times the transpose of [N, K], or of a weight that is packed already: [N/b, K, b]; plus bias [N]."""
    m, k = get_const_tuple(data.shape)
    n, *_ = shape = get_const_tuple(weight.shape)
    n *= shape[2] if len(shape) == 3 else 1
    cfg.define_split("tile_y", m, num_outputs=3)
    cfg.define_split("tile_x", n, num_outputs=3)
    cfg.define_split("tile_k", k, num_outputs=2)
    cfg.define_split("tile_inner", m, num_outputs=2, filter=lambda y: y.size[-1] <= 16)
    if cfg.is_fallback:
        _fallback_pack(cfg, m, n, k)
    block = shape[2] if len(shape) == 3 else cfg["tile_x"].size[-1]
    if len(shape) == 2:
        original = weight
        weight = packed(original, (n // block, k, block), lambda z, y, x: original(z * block + x, y), (0, 1, 0),
                        "packed_weight")
    dtype = out_dtype or data.dtype
    acc, rk = sum_type(dtype), te.reduce_axis((0, k), "k")
    product = te.compute(
        (m, n), lambda y, x: te.sum(data(y, rk).astype(acc) * weight(x // block, rk, x % block).astype(acc), axis=rk),
        name="dense", tag="dense_pack",
    )
    return _result(product, bias, dtype, acc)


def _tile_pack(cfg, stage, s, tensor):
    """Loops of an output; returns (tile of tiles, tile)."""
    y, x = stage.op.axis
    yt, yo, yi = cfg["tile_y"].apply(s, tensor, y)
    xt, xo, xi = cfg["tile_x"].apply(s, tensor, x)
    stage.reorder(xt, yt, yo, xo, yi, xi)
    outer, inner = stage.fuse(xt, yt), stage.fuse(yo, xo)
    unroll_within(stage, [(yi, cfg["tile_y"].size[-1])])
    stage.vectorize(xi)
    return outer, inner


@register_topi_schedule("dense_pack.x86")
def schedule_dense_pack(cfg, outs):
    """Tiles of tiles run in parallel; a tile is summed in registers."""
    s, product, out = begin(outs, "dense_pack")
    _, weight = s[product].op.input_tensors
    if not weight.op.is_placeholder:
        s[weight].parallel(s[weight].op.axis[0])
    part = s.cache_write(product, "global")
    outer, tile = _tile_pack(cfg, s[product], s, product)
    if product.op == out.op:
        s[product].parallel(outer)
    else:
        outer, _ = _tile_pack(cfg, s[out], s, out)
        s[product].compute_at(s[out], outer)
        s[out].parallel(outer)
    s[part].compute_at(s[product], tile)
    y, x = s[part].op.axis
    ko, ki = cfg["tile_k"].apply(s, part, s[part].op.reduce_axis[0])
    rows, deep = cfg["tile_inner"].size[-1], cfg["tile_k"].size[-1]
    if rows > 1:
        yo, yi = s[part].split(y, factor=rows)
        s[part].reorder(ko, yo, ki, yi, x)
        unroll_within(s[part], [(yi, rows), (ki, deep), (yo, -(-cfg["tile_y"].size[-1] // rows))])
    else:
        s[part].reorder(ko, ki, y, x)
        unroll_within(s[part], [(y, cfg["tile_y"].size[-1]), (ki, deep)])
    s[part].vectorize(x)
    return s
