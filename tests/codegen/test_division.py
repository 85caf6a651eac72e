"""Integer divisions by data: zero is an exception that names the program, the smallest number by -1 wraps as sums do; and
what nobody divides by costs nothing. On GPUs, which cannot report, zero gives 0."""

import json

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, relay, te
from nestsmith.contrib import graph_executor

INTS = [f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)]


def trunc_div(a, b):
    q = a // b
    return q + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


OPERATORS = {
    "floordiv": (te.floordiv, relay.floor_divide, np.floor_divide),
    "floormod": (te.floormod, relay.floor_mod, np.mod),
    "truncdiv": (te.truncdiv, relay.divide, trunc_div),
    "truncmod": (te.truncmod, relay.mod, np.fmod),
}


def numbers(dtype, n=64):
    """All signs, the smallest number by -1 and 1, and no zero below."""
    info, rng = np.iinfo(dtype), np.random.default_rng(1)
    a, b = (rng.integers(info.min, info.max, n, dtype, endpoint=True) for _ in range(2))
    b[::2] = rng.integers(1, 8, n // 2)
    b[b == 0] = 1
    a[:4], b[:4] = info.min, np.array([-1, 1, -1, 7]).astype(dtype)
    a[4:6], b[4:6] = info.max, np.array([-1, 2]).astype(dtype)
    return a, b


def wanted(name, a, b):
    with np.errstate(all="ignore"):
        return OPERATORS[name][2](a, b)


def program(name, dtype, target="llvm", how="serial", n=64):
    a, b = (te.placeholder((n,), dtype, name=x) for x in "AB")
    c = te.compute((n,), lambda i: OPERATORS[name][0](a[i], b[i]), name="quotients")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], 16)
    if target != "llvm":
        s[c].bind(outer, te.thread_axis("blockIdx.x"))
        s[c].bind(inner, te.thread_axis("threadIdx.x"))
    elif how != "serial":
        s[c].parallel(outer) if how == "parallel" else s[c].vectorize(inner)
    return s, [a, b, c], target


def run(f, *arrays, target="llvm"):
    dev = ns.device(target)
    x = [ns.nd.array(a, dev) for a in arrays]
    out = ns.nd.array(np.zeros_like(arrays[-1]), dev)
    f(*x, out)
    return out.numpy()


@pytest.mark.some(8)
@pytest.mark.parametrize("how", ["serial", "parallel", "vectorize"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, how):
    for dtype in INTS if how == "serial" else INTS[2:3]:
        a, b = numbers(dtype)
        f = ns.build(*program(name, dtype, how=how), name=f"my_{name}")
        np.testing.assert_array_equal(run(f, a, b), wanted(name, a, b), str(dtype))
        for at in (0, 37, 63):
            zero = b.copy()
            zero[at] = 0
            with pytest.raises(ns.TVMError, match=f'program "my_{name}" divides an integer by zero'):
                run(f, a, zero)
        np.testing.assert_array_equal(run(f, a, b), wanted(name, a, b), str(dtype))  # the program goes on working


@pytest.mark.parametrize("name", OPERATORS)
def test_the_interpreter_agrees(name):
    for dtype in INTS:
        a, b = numbers(dtype)
        s, args, _ = program(name, dtype)
        state = s._core.state(args)
        for stage in ("loops", "program"):
            out = np.zeros_like(a)
            assert not _core.interp(state, "c", [a, b, out], stage=stage)["findings"]
            np.testing.assert_array_equal(out, wanted(name, a, b), f"{dtype} {stage}")
            with pytest.raises(ValueError, match="division by zero in a program"):
                _core.interp(state, "c", [a, np.zeros_like(b), out], stage=stage)


@pytest.mark.parametrize("target", ["opencl", "cuda"])
@pytest.mark.parametrize("name", OPERATORS)
def test_on_a_gpu_zero_gives_zero(name, target):
    dev = ns.device(target)
    if not dev.exist:
        pytest.skip(dev.why_not)
    for dtype in INTS:
        a, b = numbers(dtype)
        b[7:9] = 0
        want = wanted(name, a, np.where(b == 0, 1, b).astype(dtype))
        want[7:9] = 0
        got = run(ns.build(*program(name, dtype, target)), a, b, target=target)
        np.testing.assert_array_equal(got, want, str(dtype))


def test_what_is_not_divided_is_not_told():
    a, b = (te.placeholder((64,), "int32", name=x) for x in "AB")
    c = te.compute((64,), lambda i: te.if_then_else(b[i] != 0, te.floordiv(a[i], b[i]), -1), name="C")
    f = ns.build(te.create_schedule(c.op), [a, b, c], "llvm")
    x, y = numbers("int32")
    y[5] = 0
    got = run(f, x, y)
    y[5] = 1
    want = wanted("floordiv", x, y)
    want[5] = -1
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("divide", [te.floordiv, te.floormod, te.truncdiv, te.truncmod])
def test_a_number_by_itself(divide):
    x = te.placeholder((4,), "int32", name="x")
    y = te.compute((4,), lambda i: divide(x[i], x[i]), name="y")
    f = ns.build(te.create_schedule(y.op), [x, y], "llvm")
    with pytest.raises(ns.TVMError, match="divides an integer by zero"):
        run(f, np.int32([1, 0, 2, 3]))


@pytest.mark.parametrize("level", [0, 3])
def test_networks(level):
    a, b = numbers("int32")
    x, y = (relay.var(n, shape=(64,), dtype="int32") for n in "xy")
    mod = ns.IRModule.from_expr(relay.Function([x, y], relay.floor_divide(x, y) + relay.mod(x, relay.const(7))))
    with ns.transform.PassContext(opt_level=level):
        m = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](ns.cpu(0)))
    m.run(x=a, y=b)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(m.get_output(0).numpy(), wanted("floordiv", a, b) + np.fmod(a, np.int32(7)))
    with pytest.raises(ns.TVMError, match="floor_divide.* divides an integer by zero"):
        m.run(x=a, y=np.zeros_like(b))
    with pytest.raises(ValueError, match="division by zero"):
        relay.build(ns.IRModule.from_expr(relay.Function([x], relay.floor_divide(x, relay.const(0)))), "llvm")


def test_floats_are_divided_by_a_zero_that_is_written_down():
    a = te.placeholder((3,), name="A")
    b = te.compute((3,), lambda i: te.div(a[i], te.const(0.0, "float32")), name="B")
    c = te.compute((3,), lambda i: a[i] + te.div(te.const(0.0, "float16"), te.const(0.0, "float16")).astype("float32"), name="C")
    f = ns.build(te.create_schedule([b.op, c.op]), [a, b, c], "llvm")
    x, *outs = (ns.nd.array(np.array(v, "float32")) for v in ([1, -1, 0], [0] * 3, [0] * 3))
    f(x, *outs)
    np.testing.assert_array_equal(outs[0].numpy(), [np.inf, -np.inf, np.nan])
    assert np.isnan(outs[1].numpy()).all()


def test_tuning_a_division():
    """The reference runs in the tuner's own process, on inputs that divide."""
    a, b = (te.placeholder((16,), "int32", name=x) for x in "AB")
    dag = _core.ComputeDAG([a, b, te.compute((16,), lambda i: te.truncmod(a[i], b[i]), name="C")])
    x, y, z = (np.frombuffer(d, "int32") for d in _core.reference_data(dag))
    assert (y != 0).all()
    np.testing.assert_array_equal(z, np.fmod(x, y))


def test_nothing_is_paid_where_nothing_can_be_zero():
    """Index arithmetic divides by constants, as do operators with a constant divisor."""
    a = te.placeholder((64, 6), "int32", name="A")
    c = te.compute((384,), lambda i: te.floormod(a[te.indexdiv(i, 6), te.indexmod(i, 6)], 7), name="C")
    for target in ("c", "cuda"):
        s = te.create_schedule(c.op)
        outer, inner = s[c].split(c.op.axis[0], 64)
        if target == "c":
            s[c].parallel(outer)
        else:
            s[c].bind(outer, te.thread_axis("blockIdx.x"))
            s[c].bind(inner, te.thread_axis("threadIdx.x"))
        source, manifest = _core.program(s._core.state([a, c]), None, target, "main")
        assert "ns_zero" not in source and "ns_any" not in source and json.loads(manifest)["kernels"]
    b = te.placeholder((64, 6), "int32", name="B")
    d = te.compute((64, 6), lambda i, j: te.floormod(a[i, j], b[i, j]), name="D")
    assert "ns_zero" in _core.program(te.create_schedule(d.op)._core.state([a, b, d]), None, "c", "main")[0]
