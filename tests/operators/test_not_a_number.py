"""Values that are not numbers, and infinities: minima and maxima show them as NumPy and PyTorch do, on every way to a program."""

import itertools
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nestsmith as ns
from nestsmith import IRModule, _core, relay, te, topi, transform
from nestsmith.contrib import graph_executor
from nestsmith.target import Target

NAN, INF = float("nan"), float("inf")
nn = relay.nn


def special(*shape, dtype="float32", seed=0):
    """Numbers with NaN and infinities among them, rows of minus infinity, and rows of NaN."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.uniform(-3, 3, shape)
    for value, share in ((NAN, 0.05), (INF, 0.03), (-INF, 0.1)):
        x[rng.random(shape) < share] = value
    flat = x.reshape(-1, shape[-1])
    flat[0], flat[-1], flat[len(flat) // 2] = -INF, INF, NAN
    return x.astype(dtype)


def of_torch(f, *more, **kw):
    return lambda *arrays: f(*(torch.from_numpy(a) for a in arrays), *more, **kw).numpy()


def expectation(want, *arrays):
    with np.errstate(all="ignore"):
        return np.asarray(want(*(np.asarray(a) for a in arrays)))


OPERATORS = {
    "relu": (nn.relu, of_torch(F.relu), 1),
    "maximum": (relay.maximum, np.maximum, 2),
    "minimum": (relay.minimum, np.minimum, 2),
    "maximum with a constant": (
        lambda x: relay.maximum(x, relay.const(1.0)),
        lambda x: np.maximum(x, np.float32(1)),
        1,
    ),
    "minimum of a constant": (lambda x: relay.minimum(relay.const(1.0), x), lambda x: np.minimum(np.float32(1), x), 1),
    "relu6": (lambda x: relay.clip(x, 0, 6), of_torch(F.relu6), 1),
    "leaky_relu": (lambda x: nn.leaky_relu(x, 0.1), of_torch(F.leaky_relu, 0.1), 1),
    "max": (lambda x: relay.max(x, -1), lambda x: x.max(-1), 1),
    "min": (lambda x: relay.min(x, -1), lambda x: x.min(-1), 1),
    "max over rows": (lambda x: relay.max(x, 0), lambda x: x.max(0), 1),
    "argmax": (lambda x: relay.argmax(x, -1), lambda x: x.argmax(-1), 1),
    "argmin": (lambda x: relay.argmin(x, -1), lambda x: x.argmin(-1), 1),
    "argmax over rows": (lambda x: relay.argmax(x, 0), lambda x: x.argmax(0), 1),
    "softmax": (nn.softmax, of_torch(F.softmax, -1), 1),
    "log_softmax": (nn.log_softmax, of_torch(F.log_softmax, -1), 1),
    "logsumexp": (lambda x: relay.logsumexp(x, (-1,)), of_torch(torch.logsumexp, -1), 1),
    "sign": (relay.sign, of_torch(torch.sign), 1),
    "relu of a sum": (lambda x, y: nn.relu(relay.add(x, y)), lambda x, y: np.maximum(x + y, 0), 2),
}
POOLS = {
    "max_pool2d": (lambda x: nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), of_torch(F.max_pool2d, 3, 2, 1)),
    "max_pool2d NHWC": (
        lambda x: nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"),
        lambda x: of_torch(F.max_pool2d, 2)(x.transpose(0, 3, 1, 2).copy()).transpose(0, 2, 3, 1),
    ),
    "global_max_pool2d": (nn.global_max_pool2d, lambda x: x.max((2, 3), keepdims=True)),
    "adaptive_max_pool2d": (lambda x: nn.adaptive_max_pool2d(x, (3, 2)), of_torch(F.adaptive_max_pool2d, (3, 2))),
}


def run(call, arrays, target="llvm", constants=()):
    """The network of one operator; inputs in `constants` are constants, so that passes fold them."""
    args = [
        relay.const(a) if k in constants else relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype))
        for k, a in enumerate(arrays)
    ]
    params = [a for a in args if isinstance(a, relay.Var)]
    with transform.PassContext(opt_level=3):
        lib = relay.build(IRModule.from_expr(relay.Function(params, call(*args))), target)
    device = ns.opencl(0) if target == "opencl" else ns.cpu(0)
    m = graph_executor.GraphModule(lib["default"](device))
    m.run(**{f"x{k}": a for k, a in enumerate(arrays) if k not in constants})
    return m.get_output(0).numpy()


def same(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)  # NaN equals NaN


@pytest.mark.some(28)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("width", [3, 16, 37])
def test_operators(name, width):
    call, want, n = OPERATORS[name]
    arrays = [special(9, width, seed=k) for k in range(n)]
    same(run(call, arrays), expectation(want, *arrays))


@pytest.mark.parametrize("name", POOLS)
def test_pools(name):
    call, want = POOLS[name]
    x = special(2, 4, 9, 8) if "NHWC" not in name else special(2, 8, 6, 16)
    same(run(call, [x]), expectation(want, x))
    x = np.full_like(x, -INF)
    same(run(call, [x]), expectation(want, x))


@pytest.mark.parametrize(
    "name", ["relu", "maximum", "minimum", "relu6", "max", "argmin", "softmax", "logsumexp", "sign"]
)
def test_folded_constants(name):
    """What passes evaluate is what programs compute."""
    call, want, n = OPERATORS[name]
    arrays = [special(9, 16, seed=k) for k in range(n)]
    outer = lambda zero, *args: relay.add(relay.cast(call(*args), "float32"), zero)  # noqa: E731
    zero = np.zeros(expectation(want, *arrays).shape, "float32")
    same(run(outer, [zero, *arrays], constants=range(1, n + 1)), expectation(want, *arrays))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_element_types(dtype):
    x, y = special(9, 16, dtype=dtype), special(9, 16, dtype=dtype, seed=1)
    same(run(relay.maximum, [x, y]), expectation(np.maximum, x, y))
    same(run(lambda v: relay.min(v, 1), [x]), expectation(lambda v: v.min(1), x))
    same(run(lambda v: relay.argmax(v, 1), [x]), expectation(lambda v: v.argmax(1), x))
    low = np.full((1, 4, 5, 5), -INF, dtype)
    assert (run(lambda v: nn.max_pool2d(v, (3, 3), padding=(1, 1)), [low]) == -INF).all()


def test_arguments_of_extreme_values():
    """The neutral element of an argument's search is no candidate, even where all values equal it."""
    for dtype, low, high in (
        ("int8", -128, 127),
        ("int32", -(2**31), 2**31 - 1),
        ("uint8", 0, 255),
        ("float32", -INF, INF),
    ):
        for call, value in ((relay.argmax, low), (relay.argmin, high)):
            assert (run(lambda x, f=call: f(x, 1), [np.full((3, 5), value, dtype)]) == 0).all()


# ---- other targets ----
CPUS = ["x86-64", "sandybridge", "haswell", "skylake-avx512"]
SUBSET = ["relu", "maximum", "minimum", "relu6", "max", "min over rows", "argmax over rows"]
OPERATORS["min over rows"] = (lambda x: relay.min(x, 0), lambda x: x.min(0), 1)


def check_subset(target, names=SUBSET, widths=(3, 32)):
    for name, width in itertools.product(names, widths):
        call, want, n = OPERATORS[name]
        arrays = [special(9, width, seed=k) for k in range(n)]
        same(run(call, arrays, target), expectation(want, *arrays))


def runs_here(cpu):
    with open("/proc/cpuinfo") as f:
        flags = f.read()
    return {"haswell": " avx2", "sandybridge": " avx", "skylake-avx512": " avx512vl"}.get(cpu, " ") in flags


@pytest.mark.full
@pytest.mark.parametrize("compiler", ["cc", "clang"])
@pytest.mark.parametrize("cpu", CPUS)
def test_processors(cpu, compiler, monkeypatch):
    """Every form of the helpers in the C text: with masks, with a choice, and without x86 instructions."""
    import platform

    if platform.machine() != "x86_64" or not runs_here(cpu):
        pytest.skip(f"this processor does not run programs for {cpu}")
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CC", compiler)
    check_subset(f"llvm -mcpu={cpu}")


def test_opencl():
    dev = ns.opencl(0)
    if not dev.exist:
        pytest.skip(dev.why_not)
    check_subset("opencl", ["relu6", "maximum", "argmax over rows"], [32])


@pytest.mark.parametrize("arch, exact", [("sm_70", False), ("sm_80", True), ("sm_90", True)])
def test_cuda_text(arch, exact):
    """One instruction where there is one; below, comparisons that keep what is not a number."""
    from nestsmith.topi.default_schedule import default_state

    target = Target(f"cuda -arch={arch}")
    x = te.placeholder((64, 64), name="x")
    for out in (topi.relu(x), topi.max(x, 1)):
        text = _core.candidate_source(default_state(_core.ComputeDAG([x, out]), target), target.engine(), 0, "f")[0]
        assert ("max.NaN.f32" in text) == exact and "fmax" not in text
        assert exact or "? " in text
    x = te.placeholder((64, 64), "float64", name="x")
    out = topi.relu(x)
    text = _core.candidate_source(default_state(_core.ComputeDAG([x, out]), target), target.engine(), 0, "f")[0]
    assert "max.NaN" not in text  # there is none for doubles


# ---- schedules, and the interpreter ----
def reduction(kind):
    x = te.placeholder((4, 96), name="x")
    k = te.reduce_axis((0, 96), name="k")
    return x, te.compute((4,), lambda i: getattr(te, kind)(x[i, k], axis=k), name="y")


def agrees(state, x, want, target="c"):
    out = np.zeros_like(want)
    report = _core.interp(state, target, [x, out])
    assert not report["findings"]
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_interpreter_and_schedules(kind):
    x, y = reduction(kind)
    a = special(4, 96)
    a[1, 40] = 1.0
    want = expectation(lambda v: getattr(v, kind)(1), a)
    dag = _core.ComputeDAG([x, y])
    out = np.zeros_like(want)
    _core.interp_dag(dag, [a, out])
    np.testing.assert_array_equal(out, want)
    agrees(_core.State(dag), a, want)
    s = te.create_schedule(y.op)  # partial results, and then theirs
    outer, _ = s[y].split(s[y].op.reduce_axis[0], factor=8)
    s.rfactor(y, outer)
    program = ns.build(s, [x, y], "llvm")
    arrays = [ns.nd.array(a), ns.nd.empty((4,))]
    program(*arrays)
    np.testing.assert_array_equal(arrays[1].numpy(), want)
    for threads in (16, 96):  # shuffles within a warp; a tree in shared memory
        state = _core.State(dag)
        state.apply("SP", 1, 1, 96, [threads], 1)
        state.apply("AN", 1, 0, 5)
        state.apply("AN", 1, 2, 6)
        agrees(state, a, want, "cuda")


@pytest.mark.parametrize("argument", ["argmax", "argmin"])
@pytest.mark.parametrize("threads", [0, 16, 48])
def test_arguments_across_threads(argument, threads):
    x = te.placeholder((5, 48), name="x")
    dag = _core.ComputeDAG([x, getattr(topi, argument)(x, 1)])
    a = special(5, 48)
    want = expectation(lambda v: getattr(v, argument)(1), a).astype("int32")
    state = _core.State(dag)
    if not threads:
        agrees(state, a, want)
        return
    state.apply("SP", 1, 1, 48, [threads], 1)
    state.apply("AN", 1, 2, 6)
    for stage in (1, 2):
        state.apply("AN", stage, 0, 5)
    agrees(state, a, want, "cuda")


def test_literals():
    lit = lambda v: te.const(v, "float32")  # noqa: E731
    for a, b in itertools.product((NAN, 1.0), (NAN, 2.0)):
        for f, g in ((te.max, np.maximum), (te.min, np.minimum)):
            np.testing.assert_array_equal(f(lit(a), lit(b)).value, g(a, b))


def test_texts_are_those_of_the_reference():
    """The neutral element of a maximum computes as minus infinity and prints as the lowest number."""
    x = te.placeholder((1, 4, 6, 6), name="x")
    dag = _core.ComputeDAG([x, topi.nn.pool2d(x, 3, 2, 1, 1, "max")])
    assert "-3.40282e+38f" in dag.text() and "inf" not in dag.text()
    assert "-3.40282e+38f" in str(ns.lower(te.create_schedule(dag.ops[-1]), [x, dag.ops[-1].output(0)]))
    assert te.min_value("float32").value == np.finfo("float32").min  # what users ask for is a number
