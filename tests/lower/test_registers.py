"""CPU programs: vector statements and register accumulators give NumPy's numbers, bit for bit, on small integers."""

import os
import platform
import re
import shutil
import subprocess

import numpy as np
import pytest

import nestsmith as ns
from helpers import in_turn
from nestsmith import te, tir


def run(s, args, arrays):
    """Builds, runs and returns (last argument, source)."""
    f = ns.build(s, args, "llvm", name="prog")
    last = args[-1]
    out = ns.nd.array(np.full([int(x) for x in last.shape], 77).astype(last.dtype), ns.cpu(0))
    f(*[ns.nd.array(a, ns.cpu(0)) for a in arrays], out)
    return out.numpy(), f.get_source()


def ints(rng, shape, dtype="float32"):
    return rng.integers(-4, 5, size=shape).astype(dtype)


def matmul(n, m, k, dtype="float32", acc=None, transposed=False):
    a = te.placeholder((n, k), name="A", dtype=dtype)
    b = te.placeholder((m, k) if transposed else (k, m), name="B", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")

    def point(i, j):
        x, y = a[i, r], (b[j, r] if transposed else b[r, j])
        return te.sum(x.astype(acc) * y.astype(acc) if acc else x * y, axis=r)

    return a, b, te.compute((n, m), point, name="C")


@pytest.mark.parametrize(
    "dtype,acc,n,m,k,ti,tj,tk",
    in_turn(
        [
            ("float32", None),
            ("float64", None),
            ("int32", None),
            ("int64", None),
            ("int8", "int32"),
            ("uint8", "int32"),
            ("int16", "int32"),
            ("float16", "float32"),
            ("int32", "float32"),
        ],
        [
            (16, 64, 24, 4, 32, 8),
            (12, 49, 20, 3, 7, 5),
            (6, 26, 9, 2, 13, 3),
            (5, 30, 16, 5, 30, 16),
            (8, 96, 32, 8, 96, 4),
        ],
    ),
)
def test_matmul_tiles(dtype, acc, n, m, k, ti, tj, tk):
    if dtype == "float16" and "clang" in os.environ.get("CC", ""):
        pytest.skip("older versions of clang have no _Float16 on this processor")
    a, b, c = matmul(n, m, k, dtype, acc)
    s = te.create_schedule(c.op)
    (i, j), (r,) = c.op.axis, c.op.reduce_axis
    io, ii = s[c].split(i, ti)
    jo, ji = s[c].split(j, tj)
    ro, ri = s[c].split(r, tk)
    s[c].reorder(io, jo, ro, ri, ii, ji)
    s[c].vectorize(ji)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0 if dtype[0] == "u" else -4, 5, size=t).astype(dtype) for t in ((n, k), (k, m)))
    got, src = run(s, [a, b, c], [x, y])
    assert np.array_equal(got, (x.astype("float64") @ y.astype("float64")).astype(acc or dtype))
    if dtype in ("float32", "float64"):
        assert "acc_0" in src and "vector_size" in src


@pytest.mark.parametrize("rows, columns", [(6, 2), (2, 6)])
def test_neighbouring_statements_share_the_operand_of_the_longer_side(rows, columns):
    """A tile of vectors that two loops make, columns outside: each number of the longer side is used up before the next one, so that
    the tile, the shorter side and one more are all that registers hold."""
    lanes = 4
    a, b, c = matmul(rows, columns * lanes, 32)
    s = te.create_schedule(c.op)
    (i, j), (r,) = c.op.axis, c.op.reduce_axis
    jo, ji = s[c].split(j, lanes)
    s[c].reorder(r, jo, i, ji)
    s[c].vectorize(ji)
    rng = np.random.default_rng(0)
    x, y = ints(rng, (rows, 32)), ints(rng, (32, columns * lanes))
    f = ns.build(s, [a, b, c], "llvm -mcpu=x86-64", name="prog") if platform.machine() == "x86_64" else None
    if f is None:
        pytest.skip("16 registers of four numbers are assumed")
    out = ns.nd.array(np.zeros((rows, columns * lanes), "float32"), ns.cpu(0))
    f(ns.nd.array(x, ns.cpu(0)), ns.nd.array(y, ns.cpu(0)), out)
    assert np.array_equal(out.numpy(), x @ y)
    sums = re.findall(r"acc_\d+ = \(acc_\d+ \+ \((.*) \* (.*)\)\);", f.get_source())
    assert len(sums) == rows * columns
    side = [m[rows < columns] for m in sums]
    assert sum(x != y for x, y in zip(side, side[1:])) == max(rows, columns) - 1


@pytest.mark.parametrize("rows, columns, kept", [(4, 2, 6), (2, 4, 6), (4, 3, 7), (8, 1, 1), (1, 8, 1), (1, 1, 0)])
def test_operands_of_several_sums_are_loaded_once(rows, columns, kept):
    """What two statements of a tile read is a variable that the compiler cannot take for memory; what one reads is not."""
    if platform.machine() != "x86_64":
        pytest.skip("16 registers of eight numbers are assumed")
    lanes = 8
    a, b, c = matmul(rows * 2, columns * lanes, 32)
    s = te.create_schedule(c.op)
    (i, j), (r,) = c.op.axis, c.op.reduce_axis
    io, ii = s[c].split(i, rows)
    s[c].reorder(io, r, ii, j)
    s[c].vectorize(j)
    rng = np.random.default_rng(0)
    x, y = ints(rng, (rows * 2, 32)), ints(rng, (32, columns * lanes))
    f = ns.build(s, [a, b, c], "llvm -mcpu=haswell", name="prog")
    src = f.get_source()
    if "avx2" in open("/proc/cpuinfo").read():
        out = ns.nd.array(np.zeros((rows * 2, columns * lanes), "float32"), ns.cpu(0))
        f(ns.nd.array(x, ns.cpu(0)), ns.nd.array(y, ns.cpu(0)), out)
        assert np.array_equal(out.numpy(), x @ y)
    assert len(re.findall(r"NS_KEEP32\(kept\w*\);", src)) == kept
    for name in re.findall(r"NS_KEEP32\((kept\w*)\);", src):
        assert len(re.findall(rf"\b{name}\b", src)) == 2 + (columns if f"{name} = ns_bcast" in src else rows)


def test_operands_narrower_than_a_register_compile_with_other_compilers():
    """With AVX-512, 8 numbers of 8 bits for sums of 64 bits are half a register, which clang takes for none."""
    if platform.machine() != "x86_64" or not shutil.which("clang"):
        pytest.skip("needs clang for x86_64")
    a, b, c = matmul(4, 32, 32, "int8", "int64")
    s = te.create_schedule(c.op)
    s[c].reorder(c.op.reduce_axis[0], *c.op.axis)
    s[c].vectorize(c.op.axis[1])
    src = ns.build(s, [a, b, c], "llvm -mcpu=skylake-avx512", name="prog").get_source()
    assert "kept" in src
    made = subprocess.run(
        ["clang", "-march=skylake-avx512", "-O2", "-c", "-x", "c", "-", "-o", os.devnull], input=src, text=True, capture_output=True
    )
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("rows, columns, parts", [(7, 2, [8, 6]), (7, 3, [12, 9]), (13, 2, [10, 8]), (14, 1, [7]), (5, 4, [10]), (3, 1, [3])])
def test_tiles_of_awkward_sizes_are_cut_unevenly(rows, columns, parts, leading):
    """Too many rows for the registers, and no divisor that keeps a core busy: about equal parts, or fewer columns at a time. `leading`: all
    tiles are set to zero before the first one is computed."""
    if platform.machine() != "x86_64":
        pytest.skip("16 registers of four numbers are assumed")
    lanes = 4
    a, b, c = matmul(2 * rows, 2 * columns * lanes, 24)
    s = te.create_schedule(c.op)
    (i, j), (r,) = c.op.axis, c.op.reduce_axis
    (io, ii), (jo, ji) = s[c].split(i, rows), s[c].split(j, columns * lanes)
    ro, ri = s[c].split(r, 24)
    s[c].reorder(*([ro, io, jo] if leading else [io, jo, ro]), ri, ii, ji)
    s[c].vectorize(ji)
    rng = np.random.default_rng(0)
    x, y = ints(rng, (2 * rows, 24)), ints(rng, (24, 2 * columns * lanes))
    f = ns.build(s, [a, b, c], "llvm -mcpu=x86-64", name="prog")
    out = ns.nd.array(np.full((2 * rows, 2 * columns * lanes), 77, "float32"), ns.cpu(0))
    f(ns.nd.array(x, ns.cpu(0)), ns.nd.array(y, ns.cpu(0)), out)
    assert np.array_equal(out.numpy(), x @ y)
    tiles = re.split(r"for \(int32_t k\w* = 0", f.get_source())[1:]
    assert [len(re.findall(r"acc_\w+ = \(acc_\w+ \+", t)) for t in tiles] == parts
    assert started(f.get_source())


def started(source, name="C"):
    """Whether sums begin in registers: nothing reads what is to hold the result."""
    return not re.search(rf"= \*\(const \w+ \*\)\({name} ", source)


@pytest.mark.parametrize(
    "order, inner, whole",
    [
        ("iojo r iiji", 32, True),
        ("iojo r jiii", 32, True),
        ("iojo ro ii ri ji", 4, True),
        ("io r jo iiji", 32, True),
        ("r iojo iiji", 32, True),
        ("io ro jo ri iiji", 32, True),
        ("ro iojo ri iiji", 32, True),
        ("ro iojo ri iiji", 16, False),
    ],
)
def test_sums_begin_in_registers_where_they_were_set_right_before(order, inner, whole):
    """A number that a loop writes to all elements of a tile is what its registers begin with, unless sums come back to memory in
    between; the loop may do so for many tiles."""
    a, b, c = matmul(8, 64, 32)
    s = te.create_schedule(c.op)
    (i, j), (r,) = c.op.axis, c.op.reduce_axis
    axes = {}
    axes["io"], axes["ii"] = s[c].split(i, 4)
    axes["jo"], axes["ji"] = s[c].split(j, 8)
    axes["r"] = r
    if "ri" in order:
        axes["ro"], axes["ri"] = s[c].split(r, inner)
    s[c].reorder(*[axes[n] for n in re.findall("ii|io|ji|jo|ri|ro|r", order)])
    rng = np.random.default_rng(2)
    x, y = ints(rng, (8, 32)), ints(rng, (32, 64))
    got, src = run(s, [a, b, c], [x, y])
    assert np.array_equal(got, x @ y)
    assert started(src) == whole, src


def test_single_sums_begin_in_registers():
    a = te.placeholder((3, 40), name="A")
    r = te.reduce_axis((0, 40), name="k")
    c = te.compute((3,), lambda i: te.sum(a[i, r], axis=r), name="C")
    s = te.create_schedule(c.op)
    ro, ri = s[c].split(c.op.reduce_axis[0], 40)
    s[c].reorder(ro, c.op.axis[0], ri)
    x = ints(np.random.default_rng(4), (3, 40))
    got, src = run(s, [a, c], [x])
    assert np.array_equal(got, x.sum(1))
    assert not re.search(r"= C\[", src), src


def test_greatest_ones_begin_with_the_least_number():
    n, k = 8, 16
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, 16), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, 16), lambda i, j: te.max(a[i, r] + b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    s[c].reorder(c.op.axis[0], c.op.reduce_axis[0], c.op.axis[1])
    rng = np.random.default_rng(3)
    x, y = ints(rng, (n, k)) - 100, ints(rng, (k, 16))
    got, src = run(s, [a, b, c], [x, y])
    assert np.array_equal(got, (x[:, :, None] + y).max(1))
    assert started(src), src


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("order", ["ijr", "irj", "rij", "jri"])
def test_plain_loop_orders(order, transposed):
    a, b, c = matmul(9, 40, 17, transposed=transposed)
    s = te.create_schedule(c.op)
    axes = dict(zip("ijr", [*c.op.axis, *c.op.reduce_axis]))
    s[c].reorder(*[axes[x] for x in order])
    rng = np.random.default_rng(1)
    x, y = ints(rng, (9, 17)), ints(rng, (40, 17) if transposed else (17, 40))
    got, _ = run(s, [a, b, c], [x, y])
    assert np.array_equal(got, x @ (y.T if transposed else y))


def test_tiles_larger_than_the_registers():
    a, b, c = matmul(64, 512, 4)
    s = te.create_schedule(c.op)
    (i, j), (r,) = c.op.axis, c.op.reduce_axis
    s[c].reorder(r, i, j)
    s[c].vectorize(j)
    rng = np.random.default_rng(2)
    x, y = ints(rng, (64, 4)), ints(rng, (4, 512))
    got, src = run(s, [a, b, c], [x, y])
    assert np.array_equal(got, x @ y) and src.count(" acc_") < 400


ACCESSES = {
    "contiguous": (lambda x, i, j: x[i, j], lambda x: x[:, :30]),
    "unaligned": (lambda x, i, j: x[i, j + 1], lambda x: x[:, 1:31]),
    "strided": (lambda x, i, j: x[i, j * 2 + 1], lambda x: x[:, 1:61:2]),
    "broadcast": (lambda x, i, j: x[i, 3], lambda x: np.broadcast_to(x[:, 3:4], (x.shape[0], 30))),
    "column": (lambda x, i, j: x[j % 8, i], lambda x: np.stack([x[j % 8, : x.shape[0]] for j in range(30)], 1)),
    "reversed": (lambda x, i, j: x[i, 29 - j], lambda x: x[:, 29::-1]),
    "divided": (lambda x, i, j: x[i, j // 4], lambda x: x[:, np.arange(30) // 4]),
    "select": (
        lambda x, i, j: te.if_then_else(te.all(j >= 2, j < 20), x[i, j - 2], 0.0),
        lambda x: np.concatenate([np.zeros((x.shape[0], 2)), x[:, :18], np.zeros((x.shape[0], 10))], 1),
    ),
    "row padding": (
        lambda x, i, j: te.if_then_else(i >= 1, x[i - 1, j], 1.0),
        lambda x: np.concatenate([np.ones((1, 30)), x[:-1, :30]]),
    ),
    "condition on values": (
        lambda x, i, j: te.if_then_else(x[i, j] > 0.0, x[i, j], 0.0),
        lambda x: np.maximum(x[:, :30], 0),
    ),
}


@pytest.mark.parametrize("name,factor,reduce", in_turn(list(ACCESSES), [30, 15, 10, 6, 2], [False, True]))
def test_accesses(name, factor, reduce):
    point, expect = ACCESSES[name]
    n = 8
    x = te.placeholder((n, 64), name="X")
    if reduce:
        w = te.placeholder((5,), name="W")
        r = te.reduce_axis((0, 5), name="r")
        y = te.compute((n, 30), lambda i, j: te.sum(point(x, i, j) * w[r], axis=r), name="Y")
    else:
        y = te.compute((n, 30), lambda i, j: point(x, i, j) * 2.0 + 1.0, name="Y")
    s = te.create_schedule(y.op)
    jo, ji = s[y].split(y.op.axis[1], factor)
    if reduce:
        s[y].reorder(y.op.axis[0], jo, *y.op.reduce_axis, ji)
    s[y].vectorize(ji)
    rng = np.random.default_rng(3)
    a, b = ints(rng, (n, 64)), ints(rng, (5,))
    got, _ = run(s, [x, w, y] if reduce else [x, y], [a, b] if reduce else [a])
    want = expect(a) * b.sum() if reduce else expect(a) * 2 + 1
    assert np.array_equal(got, want.astype("float32"))


@pytest.mark.parametrize(
    "h,co,ci,stride,tile", [(7, 20, 8, 1, (7, 1, 20)), (14, 32, 3, 2, (1, 7, 32)), (9, 48, 4, 1, (3, 3, 16))]
)
def test_convolution_with_fused_vectors(h, co, ci, stride, tile):
    x = te.placeholder((h, h, ci), name="X")
    w = te.placeholder((3, 3, ci, co), name="W")
    p = te.compute(
        (h + 2, h + 2, ci),
        lambda y, z, c: te.if_then_else(te.all(y >= 1, y <= h, z >= 1, z <= h), x[y - 1, z - 1, c], 0.0),
        name="P",
    )
    ry, rx, rc = (te.reduce_axis((0, n), name=m) for n, m in ((3, "ry"), (3, "rx"), (ci, "rc")))
    o = (h - 1) // stride + 1
    y = te.compute(
        (o, o, co),
        lambda i, j, c: te.sum(p[i * stride + ry, j * stride + rx, rc] * w[ry, rx, rc, c], axis=[ry, rx, rc]),
        name="Y",
    )
    s = te.create_schedule(y.op)
    outer, inner = zip(*[s[y].split(a, f) for a, f in zip(y.op.axis, tile)])
    s[y].reorder(*outer, ry, rx, rc, *inner)
    s[y].vectorize(s[y].fuse(*inner[1:]))
    s[p].compute_at(s[y], outer[0])
    s[p].vectorize(s[p].op.axis[2])
    rng = np.random.default_rng(4)
    a, b = ints(rng, (h, h, ci)), ints(rng, (3, 3, ci, co))
    got, _ = run(s, [x, w, y], [a, b])
    q = np.pad(a, ((1, 1), (1, 1), (0, 0)))
    want = sum(
        np.einsum(
            "ijc,cd->ijd", q[i : i + stride * (o - 1) + 1 : stride, j : j + stride * (o - 1) + 1 : stride], b[i, j]
        )
        for i in range(3)
        for j in range(3)
    )
    assert np.array_equal(got, want)


def test_straight_code_with_private_arrays_becomes_vectors():
    x = te.placeholder((4, 32), name="X")
    t = te.compute((4, 32), lambda i, c: x[i, c] * 2.0, name="T")
    y = te.compute((4, 32), lambda i, c: t[i, c] + t[3 - i, c], name="Y")
    s = te.create_schedule(y.op)
    i, c = y.op.axis
    s[y].reorder(c, i)
    s[y].unroll(i)
    s[t].compute_at(s[y], c)
    s[t].unroll(t.op.axis[0])
    a = ints(np.random.default_rng(5), (4, 32))
    got, src = run(s, [x, y], [a])
    assert np.array_equal(got, a * 2 + a[::-1] * 2) and "vector_size" in src


def test_a_private_array_of_replicated_code_is_one_array():
    """A select that an unrolled loop decides replicates what is computed inside it, its array included."""
    x = te.placeholder((3, 32), name="X")
    t = te.compute((3, 2, 32), lambda i, k, c: x[i, c] + k, name="T")
    y = te.compute((3, 32), lambda i, c: tir.Select(i == 1, t[i, 0, c] * t[i, 1, c], t[i, 0, c] - t[i, 1, c] * 3.0), name="Y")
    s = te.create_schedule(y.op)
    i, c = y.op.axis
    s[y].reorder(c, i)
    s[y].unroll(i)
    s[t].compute_at(s[y], i)
    a = ints(np.random.default_rng(7), (3, 32))
    got, src = run(s, [x, y], [a])
    want = a - (a + 1) * 3
    want[1] = a[1] * (a[1] + 1)
    assert np.array_equal(got, want) and "vector_size" in src


def test_iterations_that_depend_on_each_other_stay_scalar():
    """A reduction along the would-be lanes and a max over an axis keep their order."""
    x = te.placeholder((6, 64), name="X")
    r = te.reduce_axis((0, 64), name="r")
    y = te.compute((6,), lambda i: te.max(x[i, r], axis=r), name="Y")
    s = te.create_schedule(y.op)
    a = ints(np.random.default_rng(6), (6, 64))
    got, _ = run(s, [x, y], [a])
    assert np.array_equal(got, a.max(1))


def test_guarded_sums_begin_in_registers():
    """Rows that lie beyond the edge are not added up, where the sums are made for a reader's tile; they hold the number all the same."""
    a, b, c = matmul(16, 32, 24)
    d = te.compute((17, 32), lambda i, j: te.if_then_else(i >= 1, c[i - 1, j], 5.0), name="D")
    s = te.create_schedule(d.op)
    io, ii = s[d].split(d.op.axis[0], 4)
    s[c].compute_at(s[d], io)
    i, j = c.op.axis
    s[c].reorder(i, c.op.reduce_axis[0], j)
    s[c].vectorize(j)
    x, y = ints(np.random.default_rng(0), (16, 24)), ints(np.random.default_rng(1), (24, 32))
    f = ns.build(s, [a, b, d], "llvm -mcpu=x86-64" if platform.machine() == "x86_64" else "llvm", name="prog")
    out = ns.nd.array(np.full((17, 32), 77, "float32"), ns.cpu(0))
    f(ns.nd.array(x, ns.cpu(0)), ns.nd.array(y, ns.cpu(0)), out)
    assert np.array_equal(out.numpy(), np.vstack([np.full((1, 32), 5), x @ y]))
    assert "if (" in f.get_source() and not re.search(r"acc_\w+ = \*\(const \w+ \*\)\(C ", f.get_source())


EPILOGUES = {  # of C, a bias of columns and another matrix; is it made of the registers? None: it may be
    "bias and ReLU": (lambda c, b, d, i, j: te.max(c[i, j] + b[j], 0.0), lambda c, b, d: np.maximum(c + b, 0), True),
    "another matrix": (lambda c, b, d, i, j: d[i, j] + c[i, j] * 2.0, lambda c, b, d: d + c * 2, True),
    "read twice": (lambda c, b, d, i, j: c[i, j] * (c[i, j] + b[j]), lambda c, b, d: c * (c + b), True),
    "under a condition": (
        lambda c, b, d, i, j: te.if_then_else(i >= 2, c[i, j] + b[j], d[i, j]),
        lambda c, b, d: np.where(np.arange(len(c))[:, None] >= 2, c + b, d),
        None,
    ),
    "two of its elements": (lambda c, b, d, i, j: c[i, j] + c[i, 0], lambda c, b, d: c + c[:, :1], False),
    "backwards": (lambda c, b, d, i, j: c[i, c.shape[1] - 1 - j] + b[j], lambda c, b, d: c[:, ::-1] + b, False),
}


TILED = [(12, 64, 24, 3, 32), (14, 40, 9, 7, 40), (10, 26, 5, 5, 13), (6, 96, 300, 6, 48), (9, 24, 1, 9, 24)]


@pytest.mark.parametrize("name,n,m,k,ti,tj,split", in_turn(list(EPILOGUES), TILED, [None, 8]))
def test_what_becomes_of_sums_is_made_of_registers(name, n, m, k, ti, tj, split):
    point, expect, made = EPILOGUES[name]
    a, b, c = matmul(n, m, k)
    bias, d = te.placeholder((m,), name="bias"), te.placeholder((n, m), name="D")
    out = te.compute((n, m), lambda i, j: point(c, bias, d, i, j), name="out")
    s = te.create_schedule(out.op)
    io, ii = s[out].split(out.op.axis[0], ti)
    jo, ji = s[out].split(out.op.axis[1], tj)
    s[out].reorder(io, jo, ii, ji)
    s[c].compute_at(s[out], jo)
    (ci, cj), (r,) = c.op.axis, c.op.reduce_axis
    s[c].reorder(r, ci, cj)
    if split:  # loops of one sweep that are several of the other
        inner = s[c].split(cj, split)
        s[c].reorder(r, ci, *inner)
    rng = np.random.default_rng(4)
    x, y, v, w = ints(rng, (n, k)), ints(rng, (k, m)), ints(rng, (m,)), ints(rng, (n, m))
    got, src = run(s, [a, b, bias, d, out], [x, y, v, w])
    assert np.array_equal(got, expect(x @ y, v, w).astype("float32"))
    kept = re.search(r"\(C \+|\bC\[", src.split("acc_0", 1)[-1])
    if made is False:
        assert kept
    elif made and m % 8 == 0 and tj % 8 == 0 and k > 1:
        assert not kept, src


def test_sums_with_two_readers_stay_in_memory():
    a, b, c = matmul(8, 32, 16)
    d = te.compute((8, 32), lambda i, j: c[i, j] + 1.0, name="D")
    e = te.compute((8, 32), lambda i, j: c[i, j] * d[i, j], name="E")
    s = te.create_schedule(e.op)
    io, _ = s[e].split(e.op.axis[0], 4)
    s[d].compute_at(s[e], io)
    s[c].compute_at(s[e], io)
    s[c].reorder(*c.op.reduce_axis, *c.op.axis)
    rng = np.random.default_rng(5)
    x, y = ints(rng, (8, 16)), ints(rng, (16, 32))
    got, _ = run(s, [a, b, e], [x, y])
    assert np.array_equal(got, (x @ y) * (x @ y + 1))
