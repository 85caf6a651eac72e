"""Products of matrices on tensor cores: every pass gives the bits of the definition on small integers, without races, reads
of copies that have not arrived, or accesses out of bounds; NVRTC takes the code; what is no product is refused.
"""

import functools
import json
import re

import numpy as np
import pytest

from helpers import check_passes, full, in_turn, rest_full
from nestsmith import _core, te, tir, topi
from nestsmith.numerics import is_float, to_bfloat16

CUDA = _core.Target("cuda", sm=90)


def arrays(tensors, seed=0):
    rng = np.random.default_rng(seed)
    data = [rng.integers(-4, 5, [int(x) for x in t.shape]) for t in tensors]
    return [to_bfloat16(x) if t.dtype == "bfloat16" else x.astype(t.dtype) for x, t in zip(data, tensors)]


def scheduled(out, block, warp, stages=3, transposed=False, split=1, terms=1, warpgroups=0, wide=False, teams=1, last=False):
    """One kernel: everything but the sum is inlined, the sum is computed inside the output."""
    s = te.create_schedule(out.op)
    total = None
    for stage in s.stages:
        if isinstance(stage.op, te.PlaceholderOp):
            continue
        if stage.op.reduce_axis:
            total = stage
        elif stage.op.name != out.op.name:
            stage.compute_inline()
    if total.op.name != out.op.name:
        total.compute_at(s[out], s[out].op.axis[-1])
    s[out].tensor_cores(block, warp, stages, transposed, split, terms, warpgroups, wide, teams, last)
    return s


def verify(tensors, block, warp, stages=3, transposed=False, split=1, terms=1, target=CUDA, **how):
    s = scheduled(tensors[-1], block, warp, stages, transposed, split, terms, **how)
    assert check_passes(s._core, target, arrays(tensors), tensors) == []
    return s


def product(m, n, k, dtype="float16", batch=(), turn_a=False, turn_b=False, out=None, tail=True):
    """`dtype`: of both factors, or of each: "uint8 int8"."""
    left, right = (dtype.split() * 2)[:2]
    out = out or ("float32" if is_float(left) else "int32")
    a = te.placeholder(batch + ((k, m) if turn_a else (m, k)), left, name="A")
    b = te.placeholder(batch + ((n, k) if turn_b else (k, n)), right, name="B")
    r = te.reduce_axis((0, k), name="k")

    def point(*i):
        x = a[i[:-2] + ((r, i[-2]) if turn_a else (i[-2], r))]
        y = b[i[:-2] + ((i[-1], r) if turn_b else (r, i[-1]))]
        return te.sum(x.astype(out) * y.astype(out), axis=r)

    c = te.compute((*batch, m, n), point, name="C")
    if not tail:
        return [a, b, c]
    bias = te.placeholder((n,), out, name="bias")
    return [a, b, bias, te.compute(c.shape, lambda *i: tir.max(c[i] + bias[i[-1]], tir.const(0, out)), name="D")]


TURNED = [((a, b),) for a, b in ((False, False), (True, False), (False, True), (True, True))]


def convolution(layout, n, h, ci, co, kernel, stride, pad, dilation, dtype, out=None, groups=1):
    shapes = {
        "NHWC": ((n, h, h + 1, ci), (kernel, kernel, ci // groups, co), "HWIO"),
        "NCHW": ((n, ci, h, h + 1), (co, ci // groups, kernel, kernel), "OIHW"),
    }[layout]
    x, w = te.placeholder(shapes[0], dtype, name="X"), te.placeholder(shapes[1], dtype, name="W")
    y = topi.nn.conv(x, w, stride, pad, dilation, groups, layout, shapes[2], out)
    r = te.placeholder([int(i) for i in y.shape], y.dtype, name="R")
    return [x, w, r, topi.nn.relu(topi.add(y, r))]


@pytest.mark.parametrize("dtype,transposed,turned", in_turn([("float16", False), ("float32", True)], TURNED))
def test_products_that_divide_nothing(dtype, turned, transposed):
    verify(product(34, 21, 43, dtype, (), *turned), (32, 32, 32), (16, 16), 3, transposed)


@pytest.mark.parametrize(
    "block,warp,stages",
    [((16, 8, 16), (16, 8), 2), ((64, 24, 16), (32, 24), 4), ((48, 40, 48), (16, 40), 3), ((32, 64, 64), (16, 32), 5)],
)
def test_tiles(block, warp, stages):
    verify(product(40, 56, 72), block, warp, stages)
    verify(product(40, 56, 72, turn_a=True), block, warp, stages)


def test_a_batch_and_no_stage_behind_the_sum():
    verify(product(24, 16, 32, batch=(2, 3), turn_b=True, tail=False), (16, 16, 16), (16, 8))
    verify(product(24, 16, 32, "float32", batch=(5,), tail=False), (16, 16, 16), (16, 8))
    verify(product(1, 40, 64, turn_b=True), (16, 16, 32), (16, 8), 3, transposed=True)


@pytest.mark.parametrize("sm", [80, 90])
def test_blocks_share_a_sum(sm):
    """Clusters add up among themselves from compute capability 9.0 on, before a second kernel does."""
    target = _core.Target("cuda", sm=sm)
    verify(product(20, 22, 120), (16, 16, 16), (16, 8), split=3, target=target)
    verify(product(20, 21, 100, "float32", batch=(2,), tail=False), (16, 16, 16), (16, 16), split=2, target=target)
    verify(convolution("NHWC", *SHAPES[1], "float16"), (32, 32, 16), (16, 32), 2, split=2, target=target)
    verify(convolution("NCHW", *SHAPES[0], "float16"), (32, 32, 16), (16, 32), 2, True, split=8, target=target)  # empty parts


def test_sums_that_come_to_lie_where_slices_were():
    """Slices of 224 KB: the blocks of a cluster wait for each other before they send."""
    target = _core.Target("cuda", sm=90)
    for last, late in ((6, True), (5, False)):
        tensors = product(20, 70, 260, "float32", turn_b=True)
        s = verify(tensors, (64, 80, 64), (64, 80), last, split=4, warpgroups=1, target=target)
        assert ("ns_cluster_begin_late" in _core.program(s._core, tensors, target, "f")[0]) == late


def test_clusters():
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    tensors = product(100, 72, 512)
    for sm, split, kernels in ((80, 4, 2), (90, 4, 1), (90, 16, 2), (100, 4, 1), (120, 4, 2)):
        target = _core.Target("cuda", sm=sm)
        s = scheduled(tensors[-1], (64, 32, 32), (32, 16), split=split)
        source, manifest = _core.program(s._core, tensors, target, "f")
        assert len(json.loads(manifest)["kernels"]) == kernels
        assert ("__cluster_dims__(1, 1, 4)" in source) == ("mapa.shared::cluster" in source) == (kernels == 1)
        assert "release.aligned" not in source  # a fence of all memory, which waits for stores
        assert _core.build_report(target, _core.build(target, source, 0, "")[0])["local_bytes"] == 0


def test_places_in_shared_memory_without_the_number_of_the_block():
    """An address of a block in a cluster has its number from bit 24 on, which is not of a tile's description."""
    tensors = product(256, 256, 512)
    s = scheduled(tensors[-1], (64, 128, 64), (64, 128), split=4, warpgroups=1)
    source = _core.program(s._core, tensors, _core.Target("cuda", sm=90), "f")[0]
    assert "__cluster_dims__(1, 1, 4)" in source and "__cvta_generic_to_shared(first) & 0x3ffff;" in source


def test_a_sum_of_16_bits():
    verify(product(24, 16, 40, out="float16"), (16, 16, 16), (16, 8))
    verify(product(24, 16, 40, out="float16", tail=False), (16, 16, 16), (16, 8))


BYTES = {"int8": "s8.s8", "uint8": "u8.u8", "int8 uint8": "s8.u8", "uint8 int8": "u8.s8"}  # of PTX


@pytest.mark.parametrize("dtype,turned", in_turn(list(BYTES), TURNED))
def test_products_of_integers(dtype, turned):
    """Of 8 bits, added up in 32; what does not lie along the sum is copied one by one."""
    s = verify(product(34, 21, 75, dtype, (), *turned), (32, 32, 64), (16, 16), 3, transposed=turned[0])
    assert s._core.math() == "strict"
    verify(product(34, 24, 96, dtype, (2,), *turned, tail=False), (32, 24, 32), (32, 24), 2, wide=turned[1])


@pytest.mark.parametrize("sm", [80, 90])
def test_blocks_share_a_sum_of_integers(sm):
    target = _core.Target("cuda", sm=sm)
    verify(product(20, 22, 240, "int8", turn_b=True), (16, 16, 32), (16, 8), split=3, target=target)
    verify(product(20, 21, 140, "uint8 int8", batch=(2,), tail=False), (16, 16, 64), (16, 16), split=2, target=target)


def test_sums_of_integers_wrap():
    """As the definition's do: 33,056 products of 255 by 255 are more than 2^31."""
    tensors = product(2, 3, 33056, "uint8", turn_b=True, tail=False)
    data = [np.full(x.shape, 255, x.dtype) for x in arrays(tensors)[:2]] + [np.zeros((2, 3), "int32")]
    report = _core.interp(scheduled(tensors[-1], (16, 8, 256), (16, 8), 2)._core.state(tensors), CUDA, data, stage="program")
    assert report["findings"] == [] and (data[-1] == 33056 * 255**2 - 2**32).all()


def test_what_is_done_with_sums_of_integers():
    """A product of a layer of 8 bits is brought back to them."""
    a, b, c = product(40, 32, 64, "uint8 int8", turn_b=True, tail=False)
    scale = te.placeholder((32,), "float32", name="scale")

    def narrow(i, j):
        return tir.max(tir.min(te.round((c[i, j] + 3).astype("float32") * scale[j]), 127.0), -128.0).astype("int8")

    verify([a, b, scale, te.compute(c.shape, narrow, name="D")], (32, 32, 64), (16, 32), wide=True)


SHAPES = [(1, 7, 16, 24, 3, 1, 1, 1), (2, 9, 5, 19, 3, 2, 1, 1), (1, 11, 3, 16, 5, 2, 2, 2), (1, 8, 8, 16, 1, 1, 0, 1)]


@pytest.mark.parametrize(
    "layout,shape,dtype,transposed",
    [
        ("NHWC", 0, "float16", False),
        ("NHWC", 1, "float16", True),
        ("NHWC", 2, "float32", False),
        ("NCHW", 3, "float16", True),
        ("NCHW", 1, "float32", False),
        ("NHWC", 0, "int8", True),
        ("NCHW", 2, "uint8", False),
    ],
)
def test_convolutions(layout, shape, dtype, transposed):
    out = None if is_float(dtype) else "int32"
    verify(convolution(layout, *SHAPES[shape], dtype, out), (32, 32, 32), (16, 32), 2 + transposed, transposed)


GROUPED = [(1, 7, 32, 64, 3, 1, 1, 1), (2, 9, 12, 20, 3, 2, 1, 1), (1, 6, 24, 16, 1, 1, 0, 1)]


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "shape,groups,dtype,how,layout",
    in_turn(
        [
            (0, 4, "float16", {}),
            (1, 4, "bfloat16", {"split": 2}),
            (0, 2, "float16", {"transposed": True, "wide": True}),
            (1, 2, "float32", {"terms": 0, "teams": 2}),
            (2, 2, "float32", {"terms": 3, "transposed": True}),
            (2, 4, "int8", {"split": 2, "last": True}),
            (0, 2, "float16", {"warpgroups": 1}),
        ],
        ["NCHW", "NHWC"],
    ),
)
def test_groups_of_channels(shape, groups, dtype, how, layout):
    """Each group is a product of its own: a block's tile is of one of them."""
    out = None if is_float(dtype) else "int32"
    tensors = convolution(layout, *GROUPED[shape], dtype, out, groups=groups)
    block, warp = ((64, 32, 32), (64, 32)) if "warpgroups" in how else ((32, 16, 32), (16, 16))
    s = verify(tensors, block, warp, **how)
    source, manifest = _core.program(s._core, tensors, CUDA, "f")
    n, h, ci, co, kernel, stride, pad, _ = GROUPED[shape]
    pixels = int(np.prod(tensors[-1].shape)) // co
    rows, columns = (pixels, co // groups)[:: -1 if (layout == "NCHW") != bool(how.get("transposed")) else 1]
    grid = [-(-rows // block[0]), -(-columns // block[1]), groups * how.get("split", 1)]
    assert json.loads(manifest)["kernels"][0]["grid"] == grid


def test_padding_is_asked_once():
    """A bit for each tap of a copy's row; a window of 49 taps, and sizes that are no padding, are asked with each copy."""
    for kernel, taps in ((3, True), (5, True), (7, False)):
        tensors = convolution("NHWC", 1, 5, 32, 16, kernel, 1, kernel // 2, 1, "float16")
        source = _core.program(verify(tensors, (32, 16, 32), (16, 16))._core, tensors, CUDA, "f")[0]
        begin = source.index("for (int kt")
        asked = re.findall(r"if \(kt < .*?\n  ? ? ? ?}", source[begin:], re.S)
        assert ("A_inside" in source[:begin]) == taps and bool(asked) and ("A_inside" in asked[0]) == taps
        assert (" && " in asked[0]) != taps
    plain = convolution("NHWC", 1, 9, 32, 16, 1, 1, 0, 1, "float16")
    assert "inside" not in _core.program(verify(plain, (32, 16, 32), (16, 16))._core, plain, CUDA, "f")[0]


@pytest.mark.parametrize("k", [16, 64])
def test_conditions_that_read_memory(k):
    """They are asked for rows that are there, and no others."""
    a, b = te.placeholder((20, k), "float32", name="A"), te.placeholder((k, 24), "float32", name="B")
    zero, r = tir.const(0, "float32"), te.reduce_axis((0, k), name="k")
    kept = te.compute((20, k), lambda i, j: tir.if_then_else(a[i, j] > zero, a[i, j], zero), name="kept")
    c = te.compute((20, 24), lambda i, j: te.sum(kept[i, r] * b[r, j], axis=r), name="C")
    verify([a, b, c], (16, 16, 16), (16, 16))


def test_who_knows_but_the_group():
    """A transposed convolution's weights know a channel's number in its group; where both factors know it, it is of a batch."""
    x, w = te.placeholder((1, 16, 5, 5), "float16", name="X"), te.placeholder((16, 12, 3, 3), "float16", name="W")
    tensors = [x, w, topi.nn.conv2d_transpose(x, w, 2, 1, groups=4)]
    verify(tensors, (16, 32, 16), (16, 16))
    a, b = te.placeholder((8, 4, 9), "float16", name="A"), te.placeholder((8, 9, 6), "float16", name="B")
    r = te.reduce_axis((0, 9), name="r")
    c = te.compute((8, 4, 6), lambda o, i, j: te.sum(a[o // 2, i, r] * b[o, r, j], axis=r), name="C")
    verify([a, b, c], (16, 16, 16), (16, 8))


@pytest.mark.full
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype,out", [("float16", "float32"), ("float16", None), ("float32", None), ("int8", "int32")])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_convolutions(shape, dtype, out, layout, transposed):
    verify(convolution(layout, *shape, dtype, out), (32, 32, 32), (16, 32), 2 + transposed, transposed)


THREE_TERMS = [
    (product(70, 37, 43, "float32", turn_b=True), (64, 32, 32), (64, 32), 3, False, {}),
    (product(70, 20, 150, "float32", turn_b=True), (128, 24, 64), (64, 24), 5, True, {"split": 3}),
    (product(30, 60, 70, "float32", turn_b=True), (64, 64, 16), (64, 32), 4, False, {"wide": True}),
    (convolution("NHWC", 2, 5, 5, 19, 3, 2, 1, 1, "float32"), (64, 32, 32), (64, 32), 3, True, {"split": 2, "last": True}),
]


@pytest.mark.parametrize("case", rest_full(*range(len(THREE_TERMS)), short=(0, 3)))
def test_three_terms_by_warpgroups(case):
    tensors, block, warp, stages, transposed, how = THREE_TERMS[case]
    verify(tensors, block, warp, stages, transposed, terms=3, warpgroups=1, target=_core.Target("cuda", sm=90), **how)


def test_the_text_of_three_terms_by_warpgroups():
    target = _core.Target("cuda", sm=90)
    tensors = product(100, 72, 512, "float32", turn_b=True)
    s = scheduled(tensors[-1], (128, 56, 32), (64, 56), 4, True, 2, 3, warpgroups=1)
    assert "float32x3, warpgroups" in str(s)
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    source = _core.program(s._core, tensors, target, "f")[0]
    products = re.findall(r"ns_wgmma_registers_56\(&sums_of_slice\[0\], &(A_\w+)\[\d+\], ns_tile\(&(B_\w+)\[", source)
    assert products == [("A_low", "B_slices"), ("A_high", "B_low")] * 4 + [("A_high", "B_slices")] * 4  # large ones last
    loop = source[source.index("for (int kt") :]
    assert loop.index("ns_rest(") < loop.rindex("ns_wgmma_registers_56(") < loop.index("ns_parts(")  # of B between products, of A behind
    assert _core.build_report(target, _core.build(target, source, 0, "")[0])["local_bytes"] == 0


def test_three_terms():
    verify(product(34, 21, 43, "float32"), (32, 32, 32), (16, 16), terms=3)
    verify(convolution("NHWC", *SHAPES[1], "float32"), (32, 32, 16), (16, 32), 2, split=2, terms=3)
    verify(product(34, 21, 150, "float32"), (16, 24, 72), (16, 24), 2, terms=3)  # an odd number of steps, added up at 64 and 72
    verify(product(34, 24, 260, "float32"), (32, 24, 128), (16, 24), 3, True, terms=3, wide=True)
    verify(product(34, 21, 150, "float32"), (32, 32, 8), (16, 16), 3, split=4, terms=3, target=_core.Target("cuda", sm=80))
    tensors = product(20, 24, 40, "float32")
    s = scheduled(tensors[-1], (16, 16, 16), (16, 16), 2, False, 2, 3)
    assert "split 2, float32x3" in str(s) and "(16, 16), 2, False, 2, 3)" in s._core.python()
    again = te.create_schedule(s.outputs)
    again.apply_steps(s.steps())
    assert again.steps() == s.steps() and str(again) == str(s)
    there, why = nvrtc()
    if there:
        source = _core.program(s._core, tensors, CUDA, "f")[0]
        kinds = re.findall(r"ns_mma_((?:low|high)_(?:low|high))\(&", source)
        assert kinds == ([kind for kind in ("low_high", "high_low", "high_high") for _ in range(2)]) * 2  # two fragments, two steps along k
        assert _core.build_report(CUDA, _core.build(CUDA, source, 0, "")[0])["local_bytes"] == 0
    half = product(20, 24, 40)
    refused(scheduled(half[-1], (16, 16, 16), (16, 8), terms=3), half, "is one of TF32")
    with pytest.raises(ValueError, match="the sum of 3"):
        scheduled(tensors[-1], (16, 16, 16), (16, 8), terms=4)


def test_sums_in_float16():
    """Where the definition brings sums to it: pairs of them are in a register."""
    for tail in (False, True):
        verify(product(34, 22, 43, out="float16", tail=tail), (32, 32, 32), (16, 16), terms=2, wide=tail)
    a, b, c = product(40, 24, 120, tail=False)
    half = te.compute(c.shape, lambda i, j: tir.max(c[i, j].astype("float16"), tir.const(0, "float16")), name="D")
    for sm in (80, 90):
        s = verify([a, b, half], (16, 16, 16), (16, 8), 3, True, split=2, terms=2, target=_core.Target("cuda", sm=sm))
    assert s._core.math() == "fp16_accumulation" and "split 2, sums in float16" in str(s) and "(16, 8), 3, True, 2, 2)" in s._core.python()
    again = te.create_schedule(s.outputs)
    again.apply_steps(s.steps())
    assert again.steps() == s.steps() and str(again) == str(s)


def test_sums_in_float16_are_rounded_by_every_product():
    """2,048 and 32 times one more: float16 has no 2,049. Fragments are of 16 products."""
    tensors = product(16, 8, 2048 + 32 * 16, turn_b=True, out="float16", tail=False)
    data = [np.ones(x.shape, "float16") for x in arrays(tensors)]
    data[0][:, 2048:] = np.arange(32 * 16) % 16 == 0
    for terms, total in ((1, 2080), (2, 2048)):
        state = scheduled(tensors[-1], (16, 8, 32), (16, 8), 2, terms=terms)._core.state(tensors)
        assert _core.interp(state, CUDA, data, stage="program")["findings"] == [] and (data[-1] == total).all()


def test_who_has_no_sums_in_float16():
    for tensors, why in (
        (product(34, 22, 43), "its sums do not become float16"),
        (product(34, 22, 43, tail=False), "its sums do not become float16"),
        (product(34, 22, 43, "bfloat16", out="bfloat16"), "its sums do not become float16"),
        (product(34, 22, 43, "float32", out="float32"), "its sums do not become float16"),
    ):
        refused(scheduled(tensors[-1], (32, 32, 32), (16, 16), terms=2), tensors, why)
    with pytest.raises(ValueError, match="its sums are float32"):
        scheduled(product(70, 37, 75, out="float16")[-1], (64, 64, 64), (64, 32), terms=2, warpgroups=1)


@pytest.mark.parametrize("sm", rest_full(80, 90, 120, short=(90,)))
def test_the_compiler_takes_sums_in_float16(sm):
    """Half as many registers as of float32."""
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    tensors, target, regs = product(512, 512, 512, out="float16", turn_b=True), _core.Target("cuda", sm=sm), []
    for terms in (1, 2):
        s = scheduled(tensors[-1], (128, 128, 32), (64, 64), 3, terms=terms)
        source = _core.program(s._core, tensors, target, "f")[0]
        assert ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16" in source) == (terms == 2)
        report = _core.build_report(target, _core.build(target, source, 0, "")[0])
        assert report["local_bytes"] == 0
        regs.append(report["regs"])
    assert regs[1] < regs[0] - 32


LAST = [  # what is multiplied, then block, warp, stages, transposed, split, and what else the step says
    (product(20, 22, 120), (16, 16, 16), (16, 8), 3, False, 3, {}),
    (product(20, 21, 100, "float32", (2,), tail=False), (16, 16, 16), (16, 16), 3, False, 2, {}),
    (product(24, 40, 200, "float32"), (32, 32, 16), (16, 16), 2, True, 16, {"terms": 3}),
    (convolution("NHWC", *SHAPES[1], "float16"), (32, 32, 16), (16, 32), 2, False, 2, {}),
    (convolution("NCHW", *SHAPES[0], "float16"), (32, 32, 16), (16, 32), 2, True, 8, {}),  # empty parts
    (product(70, 40, 150, turn_b=True), (64, 64, 64), (64, 32), 3, False, 2, {"warpgroups": 1}),
    (product(66, 72, 160, turn_a=True), (128, 64, 32), (64, 64), 4, True, 4, {"warpgroups": 2}),
    (product(20, 24, 120, "float32"), (40, 24, 16), (40, 24), 2, False, 4, {"terms": 0}),
    (product(20, 21, 120, "float32", (2,), tail=False), (24, 32, 64), (24, 32), 2, False, 3, {"terms": 0, "teams": 8}),
    (convolution("NHWC", *SHAPES[1], "float32"), (32, 16, 16), (32, 16), 3, False, 5, {"terms": 0, "teams": 4}),
]


@pytest.mark.parametrize("case", rest_full(*range(len(LAST)), short=(0, 3, 5, 7)))
def test_the_last_block_adds_up(case):
    """It is one kernel then, also where there are clusters; the counters are a workspace that the kernel writes."""
    tensors, block, warp, stages, transposed, split, how = LAST[case]
    s = verify(tensors, block, warp, stages, transposed, split, last=True, **how)
    assert "last block adds up" in str(s)
    manifest = json.loads(_core.program(s._core, tensors, CUDA, "f")[1])
    assert [w["dtype"] for w in manifest["work"]] == ["int32", "float32"] and len(manifest["kernels"]) == 1
    assert all(not p["read_only"] for p in manifest["kernels"][0]["params"] if p["kind"] == "work")


def test_the_last_block_adds_up_on_other_machines():
    for sm in (80, 120):
        verify(*LAST[0][:6], target=_core.Target("cuda", sm=sm), last=True)


def test_shared_sums_have_the_same_bits_in_any_way():
    """A second kernel, a cluster and the last block add up the same parts in the same order."""
    for terms, dtype in ((1, "float16"), (0, "float32")):
        tensors, found = product(20, 24, 120, dtype), []
        rng = np.random.default_rng(terms)
        data = [rng.standard_normal([int(x) for x in t.shape]).astype(t.dtype) for t in tensors]
        for sm, last in ((80, False), (90, False), (90, True)):
            s = scheduled(tensors[-1], (16, 16, 16), (16, 8), split=4, terms=terms, last=last)
            target = _core.Target("cuda", sm=sm)
            out = [*data[:-1], np.full_like(data[-1], np.nan)]
            assert _core.interp(s._core.state(tensors), target, out, stage="program")["findings"] == []
            found.append(out[-1])
        assert all(np.array_equal(x, found[0]) for x in found)


@pytest.mark.parametrize("sm", rest_full(80, 90, 120, short=(90,)))
def test_the_compiler_takes_last_blocks(sm):
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    target = _core.Target("cuda", sm=sm)
    for tensors, block, warp, stages, transposed, split, how in LAST:
        if sm != 90 and "warpgroups" in how:
            continue
        s = scheduled(tensors[-1], block, warp, stages, transposed, split, last=True, **how)
        source, _ = _core.program(s._core, tensors, target, "f")
        assert source.count("ns_last_block(&last[0]") == 1 and "__cluster_dims__" not in source
        assert _core.build_report(target, _core.build(target, source, 0, "")[0])["local_bytes"] == 0


def test_the_step_of_last_blocks():
    tensors = product(20, 24, 120)
    s = scheduled(tensors[-1], (16, 16, 16), (16, 8), split=4, last=True)
    assert "split 4, last block adds up" in str(s)
    assert json.loads(s.steps())[-1] == ["MM", 4, [16, 16, 16, 16, 8, 3, 0, 4, 1, 0, 0, 1, 1]]
    again = te.create_schedule(s.outputs)
    again.apply_steps(s.steps())
    assert again.steps() == s.steps() and str(again) == str(s)
    assert _core.program(again._core, tensors, CUDA, "f") == _core.program(s._core, tensors, CUDA, "f")
    for how, why in (({}, "it needs a split"), ({"split": 2, "wide": True}, "no split")):
        with pytest.raises(ValueError, match=why):
            scheduled(tensors[-1], (16, 16, 16), (16, 8), last=True, **how)


LANES = [  # what is multiplied, then block, warp, stages, transposed, split, teams
    (product(34, 21, 43, "float32"), (32, 32, 32), (16, 16), 3, False, 1, 1),
    (product(40, 56, 72, "float32", (), True, True), (32, 64, 16), (32, 32), 4, False, 1, 1),  # lines of A along its rows, of B along k
    (product(40, 56, 72, "float32", (), False, True), (48, 32, 16), (24, 8), 3, True, 1, 1),
    (product(20, 24, 120, "float32"), (40, 24, 16), (40, 24), 2, False, 4, 1),  # three columns of four lanes: pairs
    (product(20, 24, 120, "float32", (2,)), (24, 32, 32), (8, 32), 3, False, 1, 4),
    (product(20, 21, 120, "float32", tail=False), (24, 32, 64), (24, 32), 2, False, 3, 8),
    (convolution("NHWC", 1, 5, 16, 24, 3, 1, 1, 1, "float32"), (24, 32, 32), (24, 16), 3, False, 2, 2),
    (convolution("NHWC", 2, 7, 5, 19, 3, 2, 1, 1, "float32"), (32, 16, 16), (32, 16), 3, False, 2, 4),
    (convolution("NCHW", 2, 7, 5, 19, 3, 2, 1, 1, "float32"), (32, 16, 16), (16, 16), 3, False, 1, 2),
]


@pytest.mark.some(2)
@pytest.mark.parametrize("case,sm", [(k, 90) if k not in (3, 5) else full(k, 90) for k in range(len(LANES))]
                         + [(k, 80) if k in (0, 3, 5) else full(k, 80) for k in range(len(LANES))])  # fmt: skip
def test_products_by_lanes(case, sm):
    """float32 stays float32; blocks of a cluster (or a second kernel) and teams of a block add up. What is multiplied is loaded from
    shared memory 16 bytes at a time (8 where a lane's columns are pairs). Kernels need no stack."""
    tensors, block, warp, stages, transposed, split, teams = LANES[case]
    target = _core.Target("cuda", sm=sm)
    s = scheduled(tensors[-1], block, warp, stages, transposed, split, 0, teams=teams)
    if sm == 80 and split == 1:
        texts = [_core.lower_text(s._core.state(tensors), "passes", t) for t in (target, CUDA)]
        assert texts[0] == texts[1], "without clusters it is the program of any machine"
    else:
        assert check_passes(s._core, target, arrays(tensors), tensors) == []
    assert s._core.math() == "strict"
    source, _ = _core.program(s._core, tensors, target, "f")
    assert "sums[" not in source  # variables, which compilers take in the fraction of the time
    columns = "float2" if warp == (40, 24) else "float4"
    wide = re.findall(r" = \*\(const (float\d) \*\)\(([AB]_slices) ", source)
    assert set(wide) == {("float4", "A_slices"), (columns, "B_slices")} and not re.search(r"_lane_\d+ = [AB]_slices", source)
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    assert _core.build_report(target, _core.build(target, source, 0, "")[0])["local_bytes"] == 0


@pytest.mark.parametrize("terms,wide,result", in_turn([(0, False), (1, True)], ["float64", "int64"]))
def test_results_of_eight_bytes(terms, wide, result):
    """Four neighbours of them, or of what they are added to, are more than one access may have."""
    a, b, c = product(40, 32, 48, "float32" if terms == 0 else "float16", tail=False)
    z = te.placeholder(c.shape, result, name="Z")
    tensors = [a, b, z, te.compute(c.shape, lambda i, j: c[i, j].astype(result) + z[i, j], name="D")]
    verify(tensors, (32, 32, 16), (16, 32), terms=terms, wide=wide)
    back = te.compute(c.shape, lambda i, j: c[i, j] + z[i, j].astype("float32"), name="D")
    verify([a, b, z, back], (32, 32, 16), (16, 32), terms=terms, wide=wide)


def test_the_step_of_products_by_lanes():
    tensors = LANES[4][0]
    s = scheduled(tensors[-1], (24, 32, 32), (8, 32), 3, False, 1, 0, teams=4)
    assert "product by lanes: block 24x32x32, warp 8x32, 3 stages, split 1, 4 teams" in str(s)
    assert json.loads(s.steps()) == [["CA", 2, 4, 2], ["MM", 4, [24, 32, 32, 8, 32, 3, 0, 1, 0, 0, 0, 4]]]
    again = te.create_schedule(s.outputs)
    again.apply_steps(s.steps())
    assert again.steps() == s.steps() and str(again) == str(s)
    for wrong, why in (
        ({"terms": 1, "teams": 2}, "only lanes that multiply by themselves share"),
        ({"terms": 0, "teams": 16}, "each team has a multiple of 4"),
        ({"terms": 0, "teams": 0}, "one team or more"),
        ({"terms": 0, "teams": -1}, "is not between 0 and 256"),
        ({"terms": 0, "wide": True}, "neither wide stores nor warpgroups"),
        ({"terms": 4}, "with 0, its own"),
    ):
        with pytest.raises(ValueError, match=why):
            scheduled(tensors[-1], (32, 32, 32), (16, 32), 3, **wrong)
    half = product(20, 24, 40)
    refused(scheduled(half[-1], (32, 32, 32), (16, 32), terms=0), half, "with 0, its own")
    with pytest.raises(ValueError, match="a product by lanes, which only CUDA targets have"):
        _core.program(s._core, tensors, _core.Target("opencl"), "f")


WARPGROUPS = [  # what is multiplied, then block, warp, stages, transposed, split, slices at a time
    (product(70, 37, 75, turn_b=True), (64, 64, 64), (64, 32), 3, False, 1, 1),  # lines along k
    (product(66, 136, 40), (64, 128, 16), (64, 128), 3, False, 1, 2),  # B in two panels along its rows
    (product(72, 64, 40, turn_a=True), (128, 64, 32), (64, 32), 4, True, 1, 2),  # half a panel each
    (product(130, 37, 43, "bfloat16", turn_a=True), (128, 16, 32), (128, 16), 2, False, 1, 1),
    (product(66, 24, 40, "float32", batch=(2,), turn_b=True), (64, 24, 32), (64, 24), 3, False, 1, 1),
    (product(64, 33, 60, "float32"), (64, 32, 8), (64, 8), 4, True, 2, 2),
    (product(20, 22, 120, tail=False), (64, 32, 16), (64, 32), 3, False, 8, 1),
    (product(70, 37, 300, turn_b=True), (64, 64, 128), (64, 32), 3, False, 1, 1),  # lines along k in two pieces
    (product(66, 24, 140, "float32", batch=(2,), turn_b=True), (64, 24, 64), (64, 24), 2, False, 1, 1),
]


def warpgroups(case):
    tensors, block, warp, stages, transposed, split, at_a_time = case
    return tensors, scheduled(tensors[-1], block, warp, stages, transposed, split, 1, at_a_time)


@pytest.mark.parametrize("case", range(len(WARPGROUPS)))
def test_warpgroups(case):
    tensors, s = warpgroups(WARPGROUPS[case])
    assert check_passes(s._core, CUDA, arrays(tensors), tensors) == []


@pytest.mark.parametrize("layout,shape,dtype,transposed", [("NHWC", 1, "float16", False), ("NCHW", 0, "float32", True)])
def test_convolutions_by_warpgroups(layout, shape, dtype, transposed):
    block, warp, split = ((64, 32, 32), (64, 32), 2) if dtype == "float16" else ((64, 64, 16), (64, 16), 1)
    verify(convolution(layout, *SHAPES[shape], dtype), block, warp, 3, transposed, split, warpgroups=1 + transposed)


@pytest.mark.parametrize("case", range(len(WARPGROUPS)))
def test_the_compiler_takes_warpgroups(case):
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    tensors, s = warpgroups(WARPGROUPS[case])
    source, manifest = _core.program(s._core, tensors, CUDA, "f")
    assert "wgmma.mma_async" in source and "mma.sync" not in source and "ldmatrix" not in source
    assert _core.build_report(CUDA, _core.build(CUDA, source, 0, "")[0])["local_bytes"] == 0
    again = te.create_schedule(s.outputs)
    again.apply_steps(s.steps())
    assert str(again) == str(s) and ", warpgroups" in str(s)
    assert _core.program(again._core, tensors, CUDA, "f")[0] == source


def test_large_tiles_by_warpgroups():
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    tensors = product(4096, 4096, 256, turn_b=True)
    for at_a_time, stages in ((1, 3), (2, 4)):
        s = scheduled(tensors[-1], (256, 128, 64), (128, 128), stages, warpgroups=at_a_time)
        source, manifest = _core.program(s._core, tensors, CUDA, "f")
        assert json.loads(manifest)["kernels"][0]["block"] == [256, 1, 1] and "__align__(1024)" in source
        report = _core.build_report(CUDA, _core.build(CUDA, source, 0, "")[0])
        assert report["local_bytes"] == 0 and report["regs"] > 128
        assert re.findall(r"^ {4}asm.*wgmma\.wait_group\.sync\.aligned (\d)", source, re.M) == [str(at_a_time - 1)]  # in the loop
        behind = source[source.index("for (int kt") :].partition("\n  }\n")[2]  # what is under way then, before the sums are read
        assert behind.startswith("  ns_sums_128_0(&sums[0]);")


def test_pointers_advance_with_the_slices():
    """In place of an address of each copy, where they advance evenly: along a row, not from tap to tap; and one question for all copies
    whether there is a slice still to come, unless the last one is cut off."""
    for k, whole in ((256, True), (200, False)):
        tensors = product(64, 64, k, turn_b=True)
        source = _core.program(scheduled(tensors[-1], (64, 64, 32), (32, 32), 3)._core, tensors, CUDA, "f")[0]
        before, loop = source.split("  for (int kt = 0;")
        copies = re.findall(r"ns_copy_async_16\(&\w+\[.*?\], (.*), (.*)\);", loop)
        assert len(copies) == 4 and all(re.fullmatch(r"[AB]_from \+ \d+", source) for source, _ in copies)
        assert all((cond == "true") == whole for _, cond in copies) and ("if (kt < " in loop) == whole
        assert before.count("_from = ") == 2 and re.findall(r"^    ([AB])_from \+= 32;", loop, re.M) == ["A", "B"]
    tensors = convolution("NHWC", *SHAPES[0], "float16")
    source = _core.program(scheduled(tensors[-1], (64, 32, 32), (32, 32), 3)._core, tensors, CUDA, "f")[0]
    assert "X_from" not in source and "ns_copy_async" in source


@pytest.mark.parametrize(
    "block,warp,stages,terms,at_a_time,why",
    [
        ((64, 32, 32), (32, 32), 3, 1, 1, "64 x 8"),
        ((64, 32, 32), (64, 32), 3, 1, 3, "1 or 2 slices"),
        ((64, 32, 48), (64, 32), 3, 1, 1, "32, 64 or a multiple of 128 bytes"),
        ((64, 24, 16), (64, 24), 3, 1, 1, "multiple of 1024 bytes"),
        ((64, 32, 32), (64, 32), 4, 3, 2, "of one slice at a time"),
        ((64, 32, 128), (64, 32), 4, 3, 1, "of 64 along k at most"),
        ((64, 256, 32), (64, 256), 3, 3, 1, "64 sums of three terms"),
        ((64, 32, 32), (64, 32), 2, 3, 1, "three stages or more"),
        ((64, 32, 32), (64, 32), 2, 1, 2, "more stages"),
        ((256, 256, 32), (128, 256), 3, 1, 1, "128 sums"),
    ],
)
def test_tiles_that_no_warpgroup_can_do(block, warp, stages, terms, at_a_time, why):
    with pytest.raises(ValueError, match=why):
        scheduled(product(50, 37, 43)[-1], block, warp, stages, terms=terms, warpgroups=at_a_time)


def test_who_has_warpgroups():
    tensors, s = warpgroups(WARPGROUPS[0])
    for sm in (80, 100, 120):
        with pytest.raises(ValueError, match=f"only compute capability 9.0 has, not {sm}"):
            _core.program(s._core, tensors, _core.Target("cuda", sm=sm), "f")
    tensors = product(50, 37, 43)  # a slice that fits 32 bits alone
    refused(scheduled(tensors[-1], (64, 32, 8), (64, 32), warpgroups=1), tensors, "multiple of 16")
    whole = product(70, 37, 75, "int8", turn_b=True)
    refused(scheduled(whole[-1], (64, 64, 64), (64, 32), warpgroups=1), whole, "which are of floats alone")
    refused(scheduled(whole[-1], (32, 32, 16), (16, 16)), whole, "multiple of 32")
    refused(scheduled(whole[-1], (32, 32, 32), (16, 16), terms=0), whole, "with 0, its own")


WIDE = [  # what is multiplied, then block, warp, stages, transposed, slices that warpgroups multiply at a time
    (product(34, 21, 43), (32, 32, 32), (16, 16), 3, False, 0),  # one element at a time: rows of 21
    (product(34, 22, 43, out="float16"), (32, 32, 32), (16, 16), 3, True, 0),  # two
    (product(20, 100, 40, "bfloat16", batch=(2,), tail=False), (32, 96, 16), (16, 96), 2, False, 0),  # 48 columns at a time
    (product(70, 36, 64, "float32"), (64, 64, 32), (32, 64), 3, True, 0),  # shared memory that slices had
    (product(40, 24, 16), (16, 8, 16), (16, 8), 2, False, 0),
    (product(70, 40, 75, turn_b=True), (64, 64, 64), (64, 32), 3, False, 1),
    (product(72, 64, 40, turn_a=True), (128, 64, 32), (64, 64), 4, True, 2),
]


@pytest.mark.parametrize("case", range(len(WIDE)))
def test_wide_stores(case):
    tensors, block, warp, stages, transposed, at_a_time = WIDE[case]
    verify(tensors, block, warp, stages, transposed, warpgroups=at_a_time, wide=True)


@pytest.mark.parametrize("layout,shape,dtype,transposed", [("NHWC", 1, "float16", True), ("NCHW", 0, "float32", False)])
def test_wide_stores_of_convolutions(layout, shape, dtype, transposed):
    verify(convolution(layout, *SHAPES[shape], dtype), (32, 32, 32), (16, 32), 2 + transposed, transposed, wide=True)


@pytest.mark.parametrize("sm,transposed", in_turn([80, 90, 120], [False, True]))
def test_the_compiler_takes_wide_stores(sm, transposed):
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    tensors = product(256, 96, 136, out="float16")
    s = scheduled(tensors[-1], (64, 64, 32), (32, 32), 4, transposed, wide=True)
    target = _core.Target("cuda", sm=sm)
    source, manifest = _core.program(s._core, tensors, target, "f")
    assert source.count("__syncwarp()") == 4 and "*(ushort4 *)(D" in source and "ushort2" not in source
    assert _core.build_report(target, _core.build(target, source, 0, "")[0])["local_bytes"] == 0
    again = te.create_schedule(s.outputs)
    again.apply_steps(s.steps())
    assert str(again) == str(s) and ", wide stores" in str(s)
    assert _core.program(again._core, tensors, target, "f")[0] == source


def test_who_has_no_wide_stores():
    with pytest.raises(ValueError, match="no split"):
        scheduled(product(50, 37, 43)[-1], (32, 32, 32), (16, 16), split=2, wide=True)


@pytest.mark.parametrize("stages,counted", [(2, False), (3, True), (4, False), (5, True), (7, True)])
def test_the_place_of_a_slice(stages, counted):
    """It is a remainder where that is a mask, else it counts on: no remainder stands between a slice and its fragments."""
    tensors = product(34, 24, 200)
    verify(tensors, (32, 32, 32), (16, 16), stages)
    source = _core.program(scheduled(tensors[-1], (32, 32, 32), (16, 16), stages)._core, tensors, CUDA, "f")[0]
    assert ("place[0]" in source) == counted and "kt %" not in source and "kt + 1) %" not in source


def test_another_kernel_beside_it():
    """One kernel brings its barriers along, the other gets them from the pass."""
    tensors = product(16, 32, 32)
    d = tensors[-1]
    r = te.reduce_axis((0, 32), name="r")
    e = te.compute((16,), lambda i: te.sum(d[i, r], axis=r), name="E")
    s = te.create_schedule(e.op)
    c = d.op.input_tensors[0]
    s[c].compute_at(s[d], s[d].op.axis[-1])
    s[d].tensor_cores((16, 16, 32), (16, 8), 2)
    near = s.cache_read(d, "shared", [e])
    s[near].compute_at(s[e], s[e].op.axis[0])
    s[e].bind(s[e].op.axis[0], te.thread_axis("blockIdx.x"))
    _, k = s[near].split(s[near].op.axis[1], factor=32)
    s[near].bind(k, te.thread_axis((0, 32), "threadIdx.x"))
    s[e].bind(s[e].op.reduce_axis[0], te.thread_axis((0, 32), "threadIdx.x"))
    tensors = [*tensors[:-1], e]
    assert check_passes(s._core, CUDA, arrays(tensors), tensors) == []


@functools.cache
def nvrtc():
    return _core.build_available(CUDA)


# ---- below compute capability 8.0 ----

T4, V100 = _core.Target("cuda", sm=75), _core.Target("cuda", sm=70)
OLDER = [  # what is multiplied, on what, then block, warp, stages, transposed, split, and what else the step says
    (product(34, 24, 96, turn_b=True), T4, (32, 32, 32), (16, 16), 2, False, 1, {}),  # two sets of fragments
    (product(34, 24, 96, turn_a=True), T4, (32, 32, 16), (16, 16), 3, True, 1, {"wide": True}),
    (product(34, 21, 43), T4, (32, 32, 32), (16, 16), 4, False, 2, {}),
    (product(34, 22, 48, out="float16"), T4, (32, 32, 16), (16, 16), 2, False, 1, {"terms": 2}),
    (product(34, 24, 160, "int8", turn_b=True), T4, (32, 24, 64), (16, 24), 2, False, 1, {}),
    (product(34, 24, 160, "uint8 int8", (2,), turn_b=True), T4, (48, 32, 32), (16, 16), 3, True, 2, {"last": True}),
    (convolution("NHWC", *SHAPES[0], "float16"), T4, (32, 32, 32), (16, 32), 2, False, 1, {}),
    (convolution("NCHW", *SHAPES[3], "float16"), T4, (32, 32, 16), (16, 32), 3, True, 4, {"last": True}),
    (product(34, 24, 96, "float32"), V100, (32, 24, 16), (16, 24), 2, False, 1, {"terms": 0}),
    (product(34, 21, 43, "float32"), V100, (32, 32, 16), (16, 16), 3, True, 2, {"terms": 0, "teams": 2}),
    (convolution("NHWC", *SHAPES[1], "float32"), V100, (32, 16, 16), (32, 16), 3, False, 5, {"terms": 0, "teams": 4, "last": True}),
]  # fmt: skip
ONE_BY_ONE = (2, 7)  # neighbours of less than 4 bytes
NEWER = r"cp\.async|m16n8k16|m16n8k32|tf32|bf16|NaN|griddepcontrol|cluster|wgmma"  # instructions from 8.0 on
TURING = r"mma\.|ldmatrix"  # and from 7.5 on


@pytest.mark.some(5)
@pytest.mark.parametrize("case", range(len(OLDER)))
def test_older_machines(case):
    """Slices pass through registers, read before the products and stored behind them; the compiler takes it for 7.5, the first that it
    knows."""
    tensors, target, block, warp, stages, transposed, split, how = OLDER[case]
    s = verify(tensors, block, warp, stages, transposed, split, target=target, **how)
    source = _core.program(s._core, tensors, target, "f")[0]
    assert not re.search(NEWER if target.sm == 75 else f"{NEWER}|{TURING}", source)
    fetched, stored = (source.count(f"  ns_copy_{part}_") for part in ("fetch", "put"))
    assert fetched == stored and (fetched == 0) == (case in ONE_BY_ONE)
    if nvrtc()[0]:
        assert _core.build_report(T4, _core.build(T4, source, 0, "")[0])["local_bytes"] == 0


def test_reads_come_before_the_products_and_stores_behind_them():
    tensors = product(64, 64, 256, turn_b=True)
    source = _core.program(scheduled(tensors[-1], (64, 64, 32), (32, 32), 2)._core, tensors, T4, "f")[0]
    loop = source[source.index("for (int kt") :]
    order = [loop.index(word) for word in ("ns_copy_fetch_16(", "ns_mma_f16(", "ns_copy_put_16(", "__syncthreads()")]
    assert order == sorted(order) and loop.count("__syncthreads()") == 1


# PTX's fragments by shape: where the registers of a begin (row, along k), those of b (along k), and pairs of sums (row).
FRAGMENTS = {
    "m16n8k16": (((0, 0), (8, 0), (0, 8), (8, 8)), (0, 8), (0, 8)),
    "m16n8k32": (((0, 0), (8, 0), (0, 16), (8, 16)), (0, 16), (0, 8)),
    "m16n8k8": (((0, 0), (8, 0)), (0,), (0, 8)),
    "m8n8k16": (((0, 0),), (0,), (0,)),
}


def places(starts, per):
    """(lane, register, element) with its line and its place along k."""
    for lane, q, i in np.ndindex(32, len(starts), per):
        line, k = starts[q]
        yield lane, q, i, line + lane // 4, k + lane % 4 * per + i


def run_instruction(shape, a, b, sums):
    """By lanes and registers; sums are by lanes and pairs."""
    of_a, of_b, of_sums = FRAGMENTS[shape]
    m, k = (int(x) for x in re.fullmatch(r"m(\d+)n8k(\d+)", shape).groups())
    left, right = np.zeros((m, k)), np.zeros((8, k))
    for tile, registers, starts in ((left, a, of_a), (right, b, [(0, k0) for k0 in of_b])):
        for lane, q, i, line, at in places(starts, registers.shape[2]):
            tile[line, at] = registers[lane, q, i]
    for lane, pair, i in np.ndindex(32, len(of_sums), 2):
        sums[lane, pair, i] += left[of_sums[pair] + lane // 4] @ right[lane % 4 * 2 + i]


@pytest.mark.parametrize("sm, dtype, terms, shapes", [
    (75, "float16", 1, ["m16n8k8"] * 2), (75, "float16", 2, ["m16n8k8"] * 2),
    (75, "int8", 1, ["m8n8k16"] * 4), (75, "int8 uint8", 1, ["m8n8k16"] * 4),
    (80, "float16", 1, ["m16n8k16"]), (80, "float16", 2, ["m16n8k16"]), (80, "uint8", 1, ["m16n8k32"]),
])  # fmt: skip
def test_instructions_of_a_product(sm, dtype, terms, shapes):
    """What the text does with the registers of 32 lanes, which hold fragments of the whole product, is that product."""
    tensors = product(32, 32, 64, dtype, turn_b=True, out="float16" if terms == 2 else None)
    source = _core.program(scheduled(tensors[-1], (32, 32, 32), (16, 16), 2, terms=terms)._core, tensors, _core.Target("cuda", sm=sm), "f")[0]
    text = re.search(r"void ns_mma_\w+\(.*?\n}\n", source, re.S)[0]
    whole, per, rng = FRAGMENTS["m16n8k16" if dtype == "float16" else "m16n8k32"], 2 if dtype == "float16" else 4, np.random.default_rng(sm)
    left, right = rng.integers(-9, 9, (16, 8 * per)), rng.integers(-9, 9, (8, 8 * per))
    held = {"a": np.zeros((32, 4, per)), "b": np.zeros((32, 2, per)), "c": np.zeros((32, 2, 2))}
    for name, factor, starts in (("a", left, whole[0]), ("b", right, [(0, k) for k in whole[1]])):
        for lane, q, i, line, at in places(starts, per):
            held[name][lane, q, i] = factor[line, at]
    found = re.findall(r'aligned\.(m\w+)\.row\.col\.[\w.]+ (.*?);" :\n(.*?)\);\n', text, re.S)
    assert [shape for shape, *_ in found] == shapes
    for shape, form, constraints in found:
        operands = [(name, int(n)) for name, n in re.findall(r"(\w)\[(\d)\]", constraints)]
        d, a, b, c = ([operands[int(n)] for n in re.findall(r"%(\d+)", group)] for group in re.findall(r"{(.*?)}", form))
        assert d == c and {name for name, _ in c} == {"c"} and {name for name, _ in a} == {"a"} and {name for name, _ in b} == {"b"}
        pairs = [n for _, n in c] if terms == 2 else [n // 2 for _, n in c[::2]]
        assert terms == 2 or [n for _, n in c] == [2 * pair + i for pair in pairs for i in (0, 1)]
        sums = held["c"][:, pairs]
        run_instruction(shape, held["a"][:, [n for _, n in a]], held["b"][:, [n for _, n in b]], sums)
        held["c"][:, pairs] = sums
    for lane, pair, i in np.ndindex(32, 2, 2):
        assert held["c"][lane, pair, i] == left[whole[2][pair] + lane // 4] @ right[lane % 4 * 2 + i]


@pytest.mark.parametrize("sm, dtype, how, why", [
    (75, "bfloat16", {}, r"factors of bfloat16, which compute capability 7\.5 does not have: 8\.0 is the first\..* in float16$"),
    (75, "float32", {}, r"factors of float32, which compute capability 7\.5 does not have: 8\.0 is the first\..* by lanes \(0 terms\)$"),
    (72, "float32", {"terms": 3}, r"factors of float32, which compute capability 7\.2 does not have: 8\.0 is the first\..* by lanes \(0 terms\)$"),
    (70, "float16", {}, r"factors of float16, which compute capability 7\.0 does not have: 7\.5 is the first\. Leave the stage to loops$"),
    (70, "int8", {}, r"factors of int8, which compute capability 7\.0 does not have: 7\.5 is the first\. Leave the stage to loops$"),
    (61, "float32", {"terms": 0}, r"a product by lanes of float32, which compute capability 6\.1 does not have: 7\.0 is the first"),
])  # fmt: skip
def test_what_older_machines_do_not_have(sm, dtype, how, why):
    tensors = product(48, 40, 64, dtype)
    with pytest.raises(ValueError, match=why):
        _core.program(scheduled(tensors[-1], (32, 32, 32), (16, 16), 2, **how)._core, tensors, _core.Target("cuda", sm=sm), "f")


OF_MACHINES = {  # in `make test`; the newest takes as text what the others do
    75: ("float16", "int8 uint8"), 80: ("bfloat16", "uint8"), 90: ("float16", "float32", "int8"), 120: ("float32", "uint8 int8"),
}  # fmt: skip


@pytest.mark.some(6)
@pytest.mark.parametrize(
    "dtype,sm,split",
    [
        (dtype, sm, split) if split == 1 and dtype in short else full(dtype, sm, split)
        for split in (1, 2)
        for sm, short in OF_MACHINES.items()
        for dtype in ("float16", "bfloat16", "float32", *BYTES)
    ],
)
def test_the_compiler_takes_it(dtype, sm, split):
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    tensors = product(200, 72, 136, dtype)
    s = scheduled(tensors[-1], (64, 64, 32), (32, 32), 3, split=split)
    target = _core.Target("cuda", sm=sm)
    if not _core.on_tensor_cores(dtype.split()[0], sm):
        pytest.skip("not on its tensor cores")
    source, manifest = _core.program(s._core, tensors, target, "f")
    assert "mma.sync" in source and ("cp.async" in source) == (sm >= 80) and "ldmatrix" in source
    assert dtype not in BYTES or f"mma.sync.aligned.{'m16n8k32' if sm >= 80 else 'm8n8k16'}.row.col.s32.{BYTES[dtype]}.s32" in source
    binary = _core.build(target, source, 0, "")[0]
    report = _core.build_report(target, binary)
    assert report["local_bytes"] == 0  # sums and fragments are registers
    assert json.loads(manifest)["kernels"][0]["block"] == [128, 1, 1]


def test_large_tiles_and_many_blocks():
    """Slices beyond what a kernel may declare are asked for at launch; many blocks do not make the compiler save registers."""
    there, why = nvrtc()
    if not there:
        pytest.skip(why)
    tensors = product(4096, 4096, 256)
    s = scheduled(tensors[-1], (128, 256, 64), (64, 64), 4)
    source, manifest = _core.program(s._core, tensors, CUDA, "f")
    kernel = json.loads(manifest)["kernels"][0]
    assert kernel["shared_bytes"] == 0 and kernel["dyn_shared_bytes"] == 4 * (128 + 256) * 64 * 2 + 1024
    report = _core.build_report(CUDA, _core.build(CUDA, source, 0, "")[0])
    assert report["local_bytes"] == 0 and report["regs"] > 128
    for limits, sm in (((-1, 16, 64, 32768, 2**31 - 1, 1024, 8, 32), 90), (None, 86)):
        with pytest.raises(ValueError, match="shared memory per block"):
            _core.program(s._core, tensors, _core.Target("cuda", limits, sm=sm), "f")


def test_the_step_travels():
    tensors = product(50, 37, 43)
    s = scheduled(tensors[-1], (32, 32, 32), (16, 16), 3)
    assert "D tensor cores: block 32x32x32, warp 16x16, 3 stages, split 1" in str(s)
    again = te.create_schedule(s.outputs)
    again.apply_steps(s.steps())
    assert again.steps() == s.steps() and str(again) == str(s)
    source = [_core.program(x._core, tensors, CUDA, "f")[0] for x in (s, again)]
    assert source[0] == source[1] and "mma.sync" in source[0]
    assert "s[D].tensor_cores((32, 32, 32), (16, 16), 3, False, 1)" in s._core.python()
    task = ('["key"]', "cuda -keys=cuda,gpu", (-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32), "", 0, [])
    line = _core.record_text(*task, s.steps(), [1e-3], 0, 0.1, 1, "v0.6")
    assert [x[0] for x in json.loads(line)["i"][1][1]] == ["CA"]  # what TVM reads
    assert json.loads(_core.record_parse(line)[6]) == json.loads(s.steps())


@pytest.mark.parametrize(
    "block,warp,stages,why",
    [
        ((32, 32, 32), (24, 16), 3, "16 x 8"),
        ((32, 32, 32), (16, 12), 3, "16 x 8"),
        ((32, 32, 20), (16, 16), 3, "multiple of 8"),
        ((48, 32, 32), (32, 16), 3, "multiple of the warp's"),
        ((32, 32, 32), (16, 16), 1, "2 to 8 stages"),
        ((256, 256, 32), (128, 128), 2, "128 sums"),
        ((512, 32, 32), (16, 16), 3, "between 0 and 256"),
        ((0, 32, 32), (16, 16), 3, "positive"),
    ],
)
def test_tiles_that_no_machine_can_do(block, warp, stages, why):
    with pytest.raises(ValueError, match=why):
        scheduled(product(50, 37, 43)[-1], block, warp, stages)


def behind(tensors, rows):
    """The product, and a second kernel that reads so many of its rows."""
    d = tensors[-1]
    e = te.compute((rows, 16), lambda i, j: d[i, j] + 1, name="E")
    s = te.create_schedule(e.op)
    s[d.op.input_tensors[0]].compute_at(s[d], s[d].op.axis[-1])
    s[d].tensor_cores((16, 16, 16), (16, 8), 2)
    s[e].bind(s[e].op.axis[0], te.thread_axis("blockIdx.x"))
    s[e].bind(s[e].op.axis[1], te.thread_axis("threadIdx.x"))
    return s, [*tensors[:-1], e]


def refused(s, tensors, why):
    with pytest.raises(ValueError, match=why):
        _core.program(s._core, tensors, CUDA, "f")


def test_the_kernel_is_whole():
    """It stands alone and stores every element of its result, and of nothing else: what asks for more or less is refused."""
    tensors = product(48, 16, 32)
    d = tensors[-1]
    c = d.op.input_tensors[0]
    s, args = behind(tensors, 48)
    assert check_passes(s._core, CUDA, arrays(args), args) == []
    refused(*behind(tensors, 20), "D on tensor cores is computed as a whole, but only a part of it along i0 is read")
    s, args = behind(tensors, 48)
    s[d].compute_at(s[args[-1]], args[-1].op.axis[0])
    refused(s, args, "D is on tensor cores, whose kernel is its own")
    s = scheduled(d, (16, 16, 16), (16, 8))
    s[c].tensor_cores((16, 16, 16), (16, 8), 2)
    refused(s, tensors, "C is on tensor cores, whose kernel is its own")
    for t in (c, d):
        s = scheduled(d, (16, 16, 16), (16, 8))
        s[t].set_store_predicate(s[t].op.axis[0].var < 3)
        refused(s, tensors, "D on tensor cores stores all of its elements")
    refused(scheduled(d, (16, 16, 16), (16, 8)), [*tensors[:-1], c, d], "keeps its sum C in registers")
    alone = product(48, 16, 32, tail=False)[-1]
    s = scheduled(alone, (16, 16, 16), (16, 8))
    with pytest.raises(ValueError, match=r"stage 2 \(C\) is on tensor cores and would be made anew"):
        s.cache_write(alone, "local")
    assert "C tensor cores" in str(s)


@pytest.mark.parametrize(
    "m,n,k,batch,why",
    [
        (16, 16, 16, 70000, "1 x 70000 blocks in y and z; a GPU takes 65535"),
        (16, 16 * 70000, 16, 1, "70000 x 1 blocks in y and z; a GPU takes 65535"),
        (2**31 - 1, 16, 16, 1, "too large"),
        (16, 2**31 - 1, 16, 1, "too large"),
        (16, 16, 2**31 - 1, 1, "too large"),
        (65536, 16, 16, 65536, "blocks in y and z"),
    ],
)
def test_sizes_that_no_machine_can_do(m, n, k, batch, why):
    tensors = product(m, n, k, batch=(batch,))
    refused(scheduled(tensors[-1], (16, 16, 16), (16, 8)), tensors, why)


def test_a_cast_that_rounds_stays():
    """Only what a 16-bit float becomes without loss is left out."""
    a, b = te.placeholder((16, 32), "float16", name="A"), te.placeholder((32, 16), "float16", name="B")
    k = te.reduce_axis((0, 32), name="k")

    def whole(x):
        return x.astype("int16").astype("float32")

    c = te.compute((16, 16), lambda i, j: te.sum(whole(a[i, k]) * whole(b[k, j]), axis=k), name="C")
    s = scheduled(c, (16, 16, 16), (16, 8))
    values = [(x * 0.75).astype(x.dtype) for x in arrays([a, b, c])]
    assert check_passes(s._core, CUDA, values, [a, b, c]) == []


def lowered(tensors, target=CUDA, block=(32, 32, 32)):
    s = scheduled(tensors[-1], block, (16, 16))
    return _core.program(s._core, tensors, target, "f")


def test_what_is_refused():
    a, b = te.placeholder((8, 8), "float16", name="A"), te.placeholder((8, 8), "float16", name="B")
    k = te.reduce_axis((0, 8), name="k")
    largest = te.compute((8, 8), lambda i, j: te.max(a[i, k] * b[k, j], axis=k), name="C")
    total = te.compute((8, 8), lambda i, j: te.sum(a[i, k] + b[k, j], axis=k), name="C")
    alone = te.compute((8, 8), lambda i, j: te.sum(a[i, j] * b[k, j], axis=k), name="C")
    for c, why in (largest, "no sum"), (total, "no product"), (alone, "in one factor alone"):
        with pytest.raises(ValueError, match=why):
            lowered([a, b, c])
    with pytest.raises(ValueError, match="multiple of 16"):
        lowered(product(50, 37, 43), block=(32, 32, 24))
    with pytest.raises(ValueError, match="only CUDA targets"):
        lowered(product(50, 37, 43), _core.Target("opencl"))
    with pytest.raises(ValueError, match="neither float32 nor a 16-bit float"):
        lowered(product(50, 37, 43, out="float64"))


def test_counters_share_no_memory():
    """Of last blocks: an int32 temporary before the product would leave its values there."""
    a, b = te.placeholder((16, 64), "int32", name="A"), te.placeholder((64, 512), "int8", name="B")
    e = te.compute((16, 64), lambda i, j: a[i, j] + 1, name="E")
    f = te.compute((16, 64), lambda i, j: (e[i, j] * 1).astype("int8"), name="F")
    r = te.reduce_axis((0, 64), name="k")
    c = te.compute((16, 512), lambda i, j: te.sum(f[i, r].astype("int32") * b[r, j].astype("int32"), axis=r), name="C")
    s = te.create_schedule(c.op)
    for t in (e, f):
        s[t].bind(s[t].op.axis[0], te.thread_axis("blockIdx.x"))
        s[t].bind(s[t].op.axis[1], te.thread_axis("threadIdx.x"))
    s[c].tensor_cores((16, 8, 32), (16, 8), 2, False, 2, 1, 0, False, 1, True)
    rng = np.random.default_rng(0)
    data = [rng.integers(-4, 5, [int(n) for n in t.shape]).astype(t.dtype) for t in (a, b, c)]
    assert check_passes(s._core, CUDA, data, [a, b, c]) == []
    names = [w["name"] for w in json.loads(_core.program(s._core, [a, b, c], CUDA, "f")[1])["work"]]
    assert "counts" in names


def test_products_that_wrap_are_none():
    """int8 times int8 in int8, as the definition says, is not what tensor cores compute."""
    a, b, r = te.placeholder((16, 64), "int8", name="A"), te.placeholder((64, 16), "int8", name="B"), te.reduce_axis((0, 64), name="k")
    c = te.compute((16, 16), lambda i, j: te.sum((a[i, r] * b[r, j]).astype("int32"), axis=r), name="C")
    s = scheduled(c, (16, 16, 32), (16, 8), 3)
    with pytest.raises(ValueError, match="its products wrap before they are added up"):
        _core.program(s._core, [a, b, c], CUDA, "f")


def test_two_products_of_different_kinds():
    """What both need is told, and blocks of a cluster send sums of either type."""
    p, q = te.placeholder((16, 128), "int8", name="P"), te.placeholder((128, 16), "int8", name="Q")
    u, v = te.placeholder((16, 32), "float16", name="U"), te.placeholder((32, 16), "float16", name="V")
    x, y = te.placeholder((16, 32), "float32", name="X"), te.placeholder((32, 16), "float32", name="Y")
    k = [te.reduce_axis((0, n), name=f"k{n}") for n in (128, 32)]
    whole = te.compute((16, 16), lambda i, j: te.sum(p[i, k[0]].astype("int32") * q[k[0], j].astype("int32"), axis=k[0]), name="whole")
    half = te.compute((16, 16), lambda i, j: te.sum(u[i, k[1]] * v[k[1], j], axis=k[1]), name="half")
    single = te.compute((16, 16), lambda i, j: te.sum(x[i, k[1]] * y[k[1], j], axis=k[1]), name="single")
    for first, terms in ((half, 2), (whole, 1)):
        s = te.create_schedule([first.op, single.op])
        s[first].tensor_cores((16, 16, 32), (16, 8), 2, False, 2, terms)
        s[single].tensor_cores((16, 16, 8), (16, 8), 2, False, 2, 1)
        args = [*((u, v) if first is half else (p, q)), x, y, first, single]
        assert s._core.state(args).math() == ("tf32+fp16_accumulation" if first is half else "tf32")
        source = _core.program(s._core, args, CUDA, "f")[0]
        assert source.count("void ns_cluster_send_") == (1 if first is half else 2)
        if _core.build_available("cuda")[0]:
            assert _core.build(_core.Target("cuda", sm=90), source)[0]
