"""The shipped templates: every configuration computes the operator, or is refused with a reason that records hold as error 1."""

import os
import random

import numpy as np
import pytest
import template_cases as t
import template_sweep
import tutorial_template  # noqa: F401

import nestsmith as ns
from nestsmith import _core, autotvm
from nestsmith.autotvm.measure.program import Programs
from nestsmith.autotvm.task.dispatcher import ApplyConfig
from nestsmith.autotvm.task.space import ConfigSpace, FallbackConfigEntity
from nestsmith.autotvm.task.task import TASK_TABLE, lookup_task

SMALL = [(name, shape) for name, case in t.CASES.items() for shape in case.small]
DIALECT = {"opencl": "opencl", "llvm": "c"}
OTHERS = {  # in other tests: a part of another template, or the tutorial's own arguments
    "conv2d_nchw_winograd_without_weight_transform.cuda",
    "matmul_default.gpu",
}


def test_every_template_has_a_case():
    place = "nestsmith.autotvm.templates."
    shipped = {n for n, e in TASK_TABLE.items() if e.fcompute and str(e.fcompute.__module__).startswith(place)}
    assert shipped == set(t.CASES) | OTHERS


@pytest.mark.some(9)
@pytest.mark.parametrize("name, shape", SMALL)
def test_small_shapes_interpreted(name, shape):
    """Alone and with what follows in a network, checked for races and bounds while it runs."""
    space, ran = t.space_of(name, shape), 0
    kind = t.CASES[name].target.kind.name
    for k, cfg in enumerate(t.drawn(space, 2, str((name, shape)))):
        s, tensors = t.instantiate(name, shape, cfg, followed=k % 2 == 1)
        if not cfg.valid():
            continue
        arrays = t.data(tensors, k)
        want = t.expected(name, shape, arrays)
        got = np.full(want.shape, np.nan if want.dtype.kind == "f" else -99, tensors[-1].dtype)
        report = _core.interp(s._core.state(tensors), DIALECT[kind], [*arrays, got], stage="program")
        assert not report["findings"], (cfg, report["findings"][:3])
        t.check(name, got, want)
        ran += 1
    assert ran


@pytest.mark.parametrize("name", sorted(t.CASES))
def test_the_fallback_is_valid(name):
    """Where nothing is recorded a template has a configuration all the same."""
    shape, cfg = t.CASES[name].small[0], FallbackConfigEntity()
    s, tensors = t.instantiate(name, shape, cfg)
    assert cfg.valid() and cfg.is_fallback
    arrays = t.data(tensors, 0)
    want = t.expected(name, shape, arrays)
    got = np.full(want.shape, np.nan if want.dtype.kind == "f" else -99, tensors[-1].dtype)
    dialect = DIALECT[t.CASES[name].target.kind.name]
    assert not _core.interp(s._core.state(tensors), dialect, [*arrays, got], stage="program")["findings"]
    t.check(name, got, want)


@pytest.mark.parametrize("name", sorted(t.CASES))
def test_measuring_takes_every_template(name):
    """From a configuration over its steps, which may be a stranger's, to the text that tuners compile."""
    case, shape = t.CASES[name], t.CASES[name].small[0]
    task = autotvm.task.create(name, (*case.tensors(*shape), *case.args(*shape)), case.target)
    for cfg in (task.config_space.get(0), task.config_space.get(len(task.config_space) // 2)):
        made = Programs(task).try_of(autotvm.MeasureInput(case.target, task, cfg), lambda: 0.0)
        assert not isinstance(made, autotvm.MeasureResult), made
        assert _core.candidate_source(made.state, made.task.engine_target(), 0)[0]


@pytest.mark.parametrize("name, digits, says", [
    ("conv2d_nchw_spatial_pack.mali", {"tile_ow": [-1, 1, 12], "ann_spatial": ["none", "vec", "none"]}, "lanes"),
    ("depthwise_conv2d_nchw.mali", {"tile_x": [-1, 1, 12], "ann_spatial": ["none", "none", "vec"]}, "lanes"),
])
def test_what_is_refused(name, digits, says):
    space = t.space_of(name, t.CASES[name].small[0])
    knob = {n: next(i for i, e in enumerate(s) if list(vars(e).values())[0] == digits.get(n, list(vars(s[0]).values())[0]))
            for n, s in space.space_map.items()}
    cfg = space.get(space.knob2point([knob[n] for n in space.space_map]))
    t.instantiate(name, t.CASES[name].small[0], cfg)
    assert not cfg.valid() and says in str(cfg.errors[0])


def test_a_large_window_is_refused_not_unrolled():
    """A window of 17 rows with both reductions unrolled is an error of the configuration."""
    name, shape = "conv2d_nchw_spatial_pack.mali", (1, 2, 20, 2, 17, 1, 0, 1)
    space = t.space_of(name, shape)
    last = {"ann_reduce": 3}
    cfg = space.get(space.knob2point([last.get(n, 0) for n in space.space_map]))
    t.instantiate(name, shape, cfg)
    assert not cfg.valid() and "unroll" in str(cfg.errors[0])


def test_other_products():
    """matmul_default.gpu takes either operand transposed."""
    from nestsmith import te

    a, b = te.placeholder((8, 6), name="a"), te.placeholder((8, 10), name="b")
    entry = lookup_task("matmul_default.gpu")
    space = ConfigSpace()
    for cfg in (space, None):
        cfg = cfg or space.get(len(space) - 1)
        with ApplyConfig(cfg), t.GPU:
            out = entry.fcompute(a, b, None, "float32", True, False)
            s = entry.fschedule([out])
    x, y = t.data([a, b, out], 0)
    got = np.empty((6, 10), "float32")
    assert not _core.interp(s._core.state([a, b, out]), "opencl", [x, y, got], stage="program")["findings"]
    np.testing.assert_array_equal(got, x.T @ y)


def test_a_transformed_weight_is_taken_as_it_is():
    from nestsmith import te
    from nestsmith.relay.packing import Packing

    name, shape = "conv2d_nchw_winograd_without_weight_transform.cuda", (1, 4, 12, 8, 3, 1, 1, 1)
    x, w = t.data([*t.CASES["conv2d_nchw.cuda"].tensors(*shape), None], 0)
    packed = Packing(w.shape, (4, 4, 4, 8), (0, 1, 3, 2), 2)(w)
    inputs = te.placeholder(x.shape, name="data"), te.placeholder(packed.shape, name="weight")
    entry, space = lookup_task(name), ConfigSpace()
    for cfg in (space, None):
        cfg = cfg or space.get(len(space) // 2)
        with ApplyConfig(cfg), t.GPU:
            out = entry.fcompute(*inputs, (1, 1), (1, 1, 1, 1), (1, 1), "float32")
            s = entry.fschedule([out])
    got = np.empty((1, 8, 12, 12), "float32")
    assert not _core.interp(s._core.state([*inputs, out]), "opencl", [x, packed, got], stage="program")["findings"]
    t.check("conv2d_nchw_winograd.cuda", got, t.expected("conv2d_nchw.cuda", shape, [x, w]))


def test_the_tutorials_template():
    """A user's own template, as the tutorial has it: its space, and a configuration of it."""
    with t.CUDA:
        task = autotvm.task.create("tutorial/conv2d_no_batching", (1, 7, 7, 512, 512, 3, 3, (1, 1), (1, 1)), t.CUDA)
        assert len(task.config_space) == 10454400
        small = autotvm.task.create("tutorial/conv2d_no_batching", (1, 6, 6, 8, 4, 3, 3, (1, 1), (1, 1)), t.CUDA)
        s, tensors = small.instantiate(small.config_space.get(len(small.config_space) // 3))
    x, w = t.data(tensors, 0)
    got = np.empty((1, 8, 6, 6), "float32")
    assert not _core.interp(s._core.state(tensors), "cuda", [x, w, got], stage="program")["findings"]
    np.testing.assert_array_equal(got, t.conv_nchw(x, w, 1, 1, 1))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.full] * (n == "dense_large_batch.gpu"))
                                  for n, c in sorted(t.CASES.items()) if c.target is t.GPU])  # fmt: skip
def test_cuda_compiles(name):
    """For sm_90 by NVRTC, which needs no GPU."""
    there, why = _core.build_available(t.CUDA.engine())
    if not there:
        pytest.skip(why)
    shape = t.CASES[name].small[0]
    space, rng = t.space_of(name, shape, t.CUDA), random.Random(name)
    for k in (len(name) % 2,):  # followed or not; without unrolling, which takes NVRTC minutes
        digits = [0 if n.startswith("auto_unroll") or "k" in n else rng.randrange(len(s)) for n, s in space.space_map.items()]
        s, tensors = t.instantiate(name, shape, space.get(space.knob2point(digits)), t.CUDA, followed=k % 2 == 1)
        ns.build(s, tensors, t.CUDA)


def needs(name):
    device = ns.device("cpu" if t.CASES[name].target.kind.device_type == 1 else "opencl", 0)
    if not device.exist:
        pytest.skip(f"no device: {device.why_not}")


@pytest.mark.parametrize("name", sorted(t.CASES))
def test_compiled(name):
    """One configuration of each on PoCL or this CPU: that the compilers understand what the interpreter does."""
    needs(name)
    shape = t.CASES[name].small[-1]
    space = t.space_of(name, shape)
    assert t.build_and_run(name, shape, space.get(0), 0, followed=True) == "right"


def real(*args):
    """Parameters: pairs of a template and a shape of ResNet-18, MobileNet or VGG."""
    ids = "-".join
    return pytest.mark.parametrize("pair", template_sweep.pairs(*args), ids=lambda p: ids([p.name, "x".join(map(str, p.shape))]))


@pytest.mark.full
@real()
def test_real_shapes(pair):
    """Twenty random configurations, bit for bit. NESTSMITH_SWEEP names a ledger that template_sweep.py has begun: what was right in
    it is not run again. What takes a compiler too long, or needs more than the device has, is no wrong answer."""
    needs(pair.name)
    template_sweep.check(template_sweep.sweep([pair], os.environ.get("NESTSMITH_SWEEP"))[pair])


@pytest.mark.full
@real("", "cuda -arch=sm_90", True)
def test_real_shapes_compile_for_cuda(pair):
    """The same with NVRTC, which needs no GPU."""
    there, why = _core.build_available(t.CUDA.engine())
    if not there:
        pytest.skip(why)
    template_sweep.check(template_sweep.sweep([pair], os.environ.get("NESTSMITH_SWEEP"))[pair])
