"""`round_tf32`: the same bits from compiled programs, vectors of the C target, OpenCL, the interpreter, literals and NumPy."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, relay, te
from nestsmith.numerics import to_tf32


def values():
    """Each exponent with the bits about a half of the eleventh place, and what is no number or not finite."""
    low = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x2FFF, 0x3000, 0x7FEFFF, 0x7FF000, 0x7FFFFF], "uint32")
    bits = (np.arange(256, dtype="uint32")[:, None] << np.uint32(23)) | low
    any_bits = np.random.default_rng(0).integers(0, 2**32, 1 << 14, dtype="uint32")
    return np.concatenate([bits.ravel(), bits.ravel() | np.uint32(1 << 31), any_bits]).view("float32")


def rounded(n):
    a = te.placeholder((n,), name="a")
    return a, te.compute((n,), lambda i: te.round_tf32(a[i]), name="b")


def same_bits(got, want):
    """But for those of what is not a number."""
    assert got.dtype == want.dtype == "float32"
    assert np.array_equal(np.isnan(got), np.isnan(want))
    number = ~np.isnan(want)
    np.testing.assert_array_equal(got.view("uint32")[number], want.view("uint32")[number])


def test_what_numpy_rounds():
    x, y = values(), to_tf32(values())
    finite = np.isfinite(y)
    assert not (y.view("uint32")[finite] & 0x1FFF).any() and np.array_equal(np.isnan(x), np.isnan(y))
    below, above = (np.abs(x.view("uint32")[finite].astype("int64") - y.view("uint32")[finite]) <= k for k in (0xFFF, 0x1000))
    away = (y.view("uint32")[finite] & 0x7FFFFFFF) > (x.view("uint32")[finite] & 0x7FFFFFFF)
    assert above.all() and (below | away).all()  # a tie goes away from zero
    same_bits(to_tf32(y), y)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_on_cpus(lanes):
    x = values()[lanes == 1 :]  # in plain loops, too: an odd number of values
    a, b = rounded(x.size)
    s = te.create_schedule(b.op)
    if lanes > 1:
        s[b].vectorize(s[b].split(b.op.axis[0], factor=lanes)[1])
    made = ns.build(s, [a, b], "llvm")
    assert ("ns_round_tf32_f32x" in made.get_source()) == (lanes > 1)
    out = ns.nd.array(np.zeros_like(x))
    made(ns.nd.array(x), out)
    same_bits(out.numpy(), to_tf32(x))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("target", ["opencl", "cuda"])
def test_on_gpus(target, lanes):
    x, device = values(), ns.device(target, 0)
    if not device.exist:
        pytest.skip(f"no {target} device")
    a, b = rounded(x.size)
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=lanes)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    if lanes > 1:
        s[b].vectorize(inner)
    arrays = [ns.nd.array(v, device) for v in (x, np.zeros_like(x))]
    ns.build(s, [a, b], target)(*arrays)
    same_bits(arrays[1].numpy(), to_tf32(x))


def test_interpreted_and_folded():
    x = values()
    a, b = rounded(x.size)
    got = np.empty_like(x)
    _core.interp_dag(_core.ComputeDAG([a, b]), [x, got])
    same_bits(got, to_tf32(x))
    for v in (1 + 2**-11, 1 + 2**-12, -3.0, 1e-40):
        assert np.float32(te.round_tf32(te.const(v, "float32")).value) == to_tf32(v)
    for other in ("float16", "float64", "int32"):
        with pytest.raises(TypeError, match=f"takes float32, not {other}"):
            te.round_tf32(te.var("v", other))
        with pytest.raises(ValueError, match=f"takes float32, not {other}"):
            relay.transform.InferType()(ns.IRModule.from_expr(relay.round_tf32(relay.var("v", shape=(3,), dtype=other))))


@pytest.mark.parametrize("sm", [75, 80, 90])
def test_the_compiler_of_cuda_takes_it(sm):
    """By the instruction where there is one."""
    there, why = _core.build_available("cuda")
    if not there:
        pytest.skip(why)
    a, b = rounded(256)
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    target = _core.Target("cuda", sm=sm)
    source = _core.program(s._core, [a, b], target, "main")[0]
    assert source.count("ns_to_tf32(ns_f32_as_u32(") == 1 and "cvt.rna.tf32.f32" in source
    assert _core.build_report(target, _core.build(target, source, 0, "")[0])["local_bytes"] == 0
