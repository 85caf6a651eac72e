"""Measuring configurations: what they fail of, what is checked, what comes out."""

import os
import pathlib
import platform
import re
import signal
import subprocess
import tempfile
import threading
import time

import numpy as np
import pytest
from faulty_templates import FAULTS

import nestsmith
from helpers import wait_until
from nestsmith import _core, autotvm, te
from nestsmith.auto_scheduler.cost import NOTHING, rank_of
from nestsmith.autotvm import LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, MeasureResult, measure_option
from nestsmith.autotvm.measure import Builder, Runner, create_measure_batch
from nestsmith.autotvm.measure.pipeline import trimmed
from nestsmith.autotvm.tuner import GridSearchTuner, RandomTuner, XGBTuner

QUICK = {"number": 1, "repeat": 1, "min_repeat_ms": 0, "cooldown_interval": 0}


def inputs(task, indices):
    return [MeasureInput(task.target, task, task.config_space.get(i)) for i in indices]


def measured(task, indices, builder=None, runner=None):
    measure = create_measure_batch(task, measure_option(builder or LocalBuilder(n_parallel=2), runner or LocalRunner(**QUICK)))
    try:
        return measure(inputs(task, indices))
    finally:
        getattr(measure, "close", bool)()


def faulty(name, n=4096, **how):
    """The result of the configuration with that fault."""
    return measured(autotvm.task.create("tests/faults", (n,), "llvm"), [FAULTS.index(name)], **how)[0]


def product(target="llvm", n=64):
    return autotvm.task.create("tests/product", (n, n, n), target)


@autotvm.template("tests/product")
def _product(n, m, k):
    """A product in tiles; on a GPU the tiles are blocks."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    cfg = autotvm.get_config()
    y, x = s[c].op.axis
    cfg.define_split("tile_y", y, num_outputs=2, max_factor=16)
    cfg.define_split("tile_x", x, num_outputs=2, max_factor=16)
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    if "gpu" in nestsmith.target.Target.current().keys:
        s[c].reorder(yo, xo, yi, xi, s[c].op.reduce_axis[0])
        for axis, name in ((yo, "blockIdx.y"), (xo, "blockIdx.x"), (yi, "threadIdx.y"), (xi, "threadIdx.x")):
            s[c].bind(axis, te.thread_axis(name))
    else:
        s[c].reorder(yo, xo, s[c].op.reduce_axis[0], yi, xi)
    return s, [a, b, c]


# ---- what can go wrong ----


def test_1_a_template_that_refuses():
    r = faulty("refused")
    assert r.error_no == MeasureErrorNo.INSTANTIATION_ERROR and "no such tile" in r.costs[0]
    assert isinstance(r.costs[1], Exception)


@pytest.mark.parametrize("target", ["opencl", "opencl -device=mali"])
def test_1_a_kernel_that_breaks_a_limit(target):
    r = measured(autotvm.task.create("tests/faults.gpu", (1 << 16, 8192), target), [0])[0]
    assert r.error_no == MeasureErrorNo.INSTANTIATION_ERROR and "limit of the device: threads" in r.costs[0]


@pytest.mark.parametrize("target", ["opencl", "opencl -device=mali", "cuda -arch=sm_90"])
def test_1_a_thread_that_holds_too_much(target):
    """A GPU reserves as much for every thread that it can hold."""
    there, why = _core.build_available(nestsmith.target.Target(target).engine())
    if not there:
        pytest.skip(why)
    kept, refused = (autotvm.task.create("tests/faults.local", (1 << 13, rows), target) for rows in (1 << 10, 1 << 11))
    built = {k.args[1]: LocalBuilder(n_parallel=1).build([MeasureInput(k.target, k, k.config_space.get(0))])[0] for k in (kept, refused)}
    assert built[1 << 10].error is None
    r = built[1 << 11]
    assert r.error_no == MeasureErrorNo.INSTANTIATION_ERROR and "limit of the device: local" in r.costs[0]


def test_2_a_template_that_raises():
    r = faulty("raises")
    assert r.error_no == MeasureErrorNo.COMPILE_HOST and "KeyError: 'tile_z'" in r.costs[0]


def test_3_a_kernel_that_the_device_cannot_run_with_so_many_threads():
    task = autotvm.task.create("tests/faults.gpu", (1 << 16, 8192), "opencl")
    limitless = LocalBuilder(build_kwargs={"check_gpu": {"max_threads_per_block": 1 << 20}})
    r = measured(task, [0], builder=limitless)[0]
    assert r.error_no == MeasureErrorNo.COMPILE_DEVICE and "8192 work-items" in r.costs[0]


class Crashing(LocalBuilder):
    """Its first program stores to an address that it does not own: no template can, for indices are checked."""

    def build(self, measure_inputs):
        first, second = super().build(measure_inputs)
        source, manifest, _ = first.program.program
        with tempfile.NamedTemporaryFile(suffix=".so") as made:
            text = re.sub(r"\)\s*\{", lambda m: m[0] + "*(volatile int *)8 = 1;", source[source.rindex("NsParallel par") :], count=1)
            text = source[: source.rindex("NsParallel par")] + text
            subprocess.run(["cc", "-shared", "-fPIC", "-march=native", "-x", "c", "-o", made.name, "-"], input=text.encode(), check=True)
            first.program.program = source, manifest, pathlib.Path(made.name).read_bytes()
        return [first, second]


def test_4_a_program_that_crashes_and_the_next_one():
    task = autotvm.task.create("tests/faults", (4096,), "llvm")
    bad, good = measured(task, [0, 0], builder=Crashing(), runner=LocalRunner(check="off", **QUICK))
    assert bad.error_no == MeasureErrorNo.RUNTIME_DEVICE and "Segmentation fault" in bad.costs[0]
    assert good.error_no == 0


def test_4_an_index_beyond_the_end():
    """It counts as 0 in what measuring makes up, and ends nothing: neither the worker nor the next program."""
    task = autotvm.task.create("tests/faults", (4096,), "llvm")
    assert [r.error_no for r in measured(task, [FAULTS.index("beyond"), 0])] == [0, 0]


class Swapping(LocalBuilder):
    """Mixes up what it has built."""

    def build(self, measure_inputs):
        first, second = super().build(measure_inputs)
        first.program, second.program = second.program, first.program
        return [first, second]


def test_5_wrong_results():
    """Of a user's builder, whose artifacts an engine's runner runs."""
    task = autotvm.task.create("tests/faults", (4096,), "llvm")
    both = [FAULTS.index("none"), FAULTS.index("other")]
    results = measured(task, both, builder=Swapping())
    assert [r.error_no for r in results] == [MeasureErrorNo.WRONG_ANSWER] * 2
    assert [r.error_no for r in measured(task, both)] == [0, 0]


def test_6_a_build_that_takes_too_long():
    r = faulty("none", n=4096 + os.getpid() % 1000, builder=LocalBuilder(timeout=1e-3))
    assert r.error_no == MeasureErrorNo.BUILD_TIMEOUT and "0.001 s" in r.costs[0]


def test_7_a_program_that_does_not_end():
    r = faulty("endless", runner=LocalRunner(timeout=1, check="off", **QUICK))
    assert r.error_no == MeasureErrorNo.RUN_TIMEOUT and "limit of 1 s (timeout= of the runner)" in r.costs[0]


class Elsewhere(Builder):
    """A user's builder."""

    def build(self, measure_inputs):
        return [object() for _ in measure_inputs]


def test_8_an_artifact_that_nobody_knows():
    r = faulty("none", builder=Elsewhere())
    assert r.error_no == MeasureErrorNo.UNKNOWN_ERROR and "no artifact of a LocalBuilder" in r.costs[0]


# ---- what comes out ----


@pytest.mark.filterwarnings("ignore:measuring uses the given inputs")
@pytest.mark.parametrize("check", ["off", "best", "all"])
def test_inputs_of_the_user(check):
    """Zeros in place of numbers that a program divides by: every candidate stops there."""
    task = autotvm.task.create("tests/quotients", (64,), "llvm")
    runner = LocalRunner(check=check, **QUICK)
    divisors = np.zeros(64, "int32")
    with pytest.warns(RuntimeWarning, match="be sure that they fit"):
        runner.ref_input = [np.ones(64, "int32"), divisors]
    if platform.machine() in ("x86_64", "AMD64"):  # others divide by 0
        assert [r.error_no for r in measured(task, [0], runner=runner)] == [MeasureErrorNo.RUNTIME_DEVICE]
    divisors[:] = 3
    runner.ref_input = [np.ones(64, "int32"), divisors, np.zeros(64, "int32")]
    assert [r.error_no for r in measured(task, [0], runner=runner)] == [0]
    for wrong, text in (([divisors], "1 arrays; .* has 2 inputs and 3"), ([divisors, divisors.astype("float32")], "for B is float32"),
                        ([divisors, divisors[:3]], r"B is int32 \(3,\); .* takes int32 \(64,\)")):  # fmt: skip
        runner.ref_input = wrong
        with pytest.raises(ValueError, match=text):
            measured(task, [0], runner=runner)


def test_a_module_loader_on_this_machine():
    task, seen = product("llvm"), []
    loader = autotvm.measure.default_module_loader(lambda remote, built: seen.append((remote.name, os.path.exists(built.filename))))
    runner = LocalRunner(number=2, repeat=4, module_loader=loader)
    results = measured(task, [0, 7], runner=runner)
    assert [(r.error_no, len(r.costs)) for r in results] == [(0, 2)] * 2 and seen == [("local", True)] * 2
    endless = autotvm.task.create("tests/faults", (4096,), "llvm")
    found = measured(endless, [FAULTS.index("endless"), FAULTS.index("refused")], runner=LocalRunner(timeout=2, module_loader=loader))
    assert [r.error_no for r in found] == [MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.INSTANTIATION_ERROR], found


def test_devices_rest_where_the_user_says_so():
    begin = time.monotonic()
    results = measured(product("llvm"), range(5), runner=LocalRunner(**{**QUICK, "cooldown_interval": 0.4}))
    assert time.monotonic() - begin >= 4 * 0.4 and [r.error_no for r in results] == [0] * 5


@pytest.mark.parametrize("target", ["llvm", "opencl"])
@pytest.mark.parametrize("check", ["best", "all"])
def test_configurations_are_measured(target, check):
    task = product(target)
    results = measured(task, [0, 7, 12, 24], runner=LocalRunner(timeout=60, check=check, number=2, repeat=3, min_repeat_ms=1, cooldown_interval=0))
    assert [r.error_no for r in results] == [0] * 4
    assert all(0 < c < 1 for r in results for c in r.costs)
    assert all(len(r.costs) == 1 and r.extra["stage"] in ("quick", "full") for r in results)
    assert all(r.all_cost > 0 and r.timestamp > 1.7e9 for r in results)


def runs(measure):
    """How many programs the engine has run for a pipeline."""
    return sum(s.stats()["ran"] for s in measure._measurer._sessions.values())


@pytest.mark.parametrize("check, first, second", [("best", 3, 1), ("off", 2, 1), ("all", 2, 1)])
def test_what_would_become_the_best_runs_once_more_and_is_compared(check, first, second):
    task = product(n=256)
    measure = create_measure_batch(task, measure_option(LocalBuilder(n_parallel=2), LocalRunner(check=check, **QUICK)))
    try:
        assert [r.error_no for r in measure(inputs(task, [24, 4]))] == [0, 0]
        assert runs(measure) == first
        assert (measure._best < NOTHING) == (check == "best")
        measure._best = False, 0.0  # nothing can be better
        measure(inputs(task, [0]))
        assert runs(measure) == first + second
    finally:
        measure.close()


def test_of_many_costs_the_extremes_are_left_out():
    assert trimmed([3.0, 1.0, 2.0]) == (2.0,) and trimmed([1.0, 2.0]) == (1.0, 2.0) and trimmed([1.0]) == (1.0,)
    assert trimmed(range(10)) == tuple(range(1, 9))


def test_a_packed_layout_is_checked_as_what_it_computes():
    """The computation of each configuration is another one; both are compared with their own."""
    task = autotvm.task.create("tests/packed", (64,), "llvm")
    results = measured(task, range(3), runner=LocalRunner(check="all", **QUICK))
    assert [r.error_no for r in results] == [0, 0, 0] and not any(r.extra["max_error"] for r in results)


@autotvm.template("tests/packed")
def packed(n):
    cfg = autotvm.get_config()
    cfg.define_knob("block", [4, 8, 16])
    block = cfg["block"].val
    w, x = te.placeholder((n // block, n, block), name="W"), te.placeholder((n,), name="x")
    k = te.reduce_axis((0, n), name="k")
    y = te.compute((n,), lambda i: te.sum(w[i // block, k, i % block] * x[k], axis=k), name="y")
    cfg.add_flop(2 * n * n)
    s = te.create_schedule(y.op)
    s[y].split(y.op.axis[0], block)
    return s, [w, x, y]


def test_builder_and_runner_work_apart():
    task = product()
    builder, runner = LocalBuilder(n_parallel=2), LocalRunner(**QUICK)
    runner.set_task(task)
    builder.set_task(task, runner.get_build_kwargs())
    built = builder.build(inputs(task, [0, 5]))
    assert built[0].arg_info == (((64, 64), "float32"),) * 3 and built[0].time_cost > 0 and built[0].error is None
    results = runner.run(inputs(task, [0, 5]), built)
    assert [r.error_no for r in results] == [0, 0] and all(0 < r.costs[0] < 1 for r in results)
    runner.engine.close()
    builder.engine.close()


def test_limits_of_a_gpu_go_to_the_builder(caplog):
    task = autotvm.task.create("tests/faults.gpu", (1024, 64), "opencl -device=mali")
    runner = LocalRunner()
    runner.set_task(task)
    said = runner.get_build_kwargs()["check_gpu"]
    assert said["max_threads_per_block"] == 256 and said["max_shared_memory_per_block"] > 0
    builder = LocalBuilder(build_kwargs={"check_gpu": {"max_threads_per_block": 32}})
    builder.set_task(task, runner.get_build_kwargs())
    assert builder.build_kwargs == {"check_gpu": {"max_threads_per_block": 32}} and "Overriding" in caplog.text
    assert builder.build(inputs(task, [0]))[0].error_no == MeasureErrorNo.INSTANTIATION_ERROR
    runner.set_task(product())
    assert runner.get_build_kwargs() == {}


def test_a_mali_gpu_has_templates_of_its_own(caplog):
    """Whoever tunes the templates of any OpenCL device on one is told; so is nobody else."""
    for target, device, told in (
        ("opencl", None, False), ("opencl -device=mali", "Mali-G72 r0p3", False), ("opencl", "NVIDIA H200", False), ("opencl", "Mali-G72 r0p3", True),
    ):  # fmt: skip
        task = autotvm.task.create("tests/faults.gpu", (1024, 64), target)
        runner = LocalRunner() if device is None else autotvm.RPCRunner("board", "127.0.0.1", 9190)
        runner.task = task
        if device is not None:  # what a board has said
            runner._limits[task.target.kind.device_type] = {"name": device, "max_threads_per_block": 384, "max_shared_per_block": 1 << 15}
        assert runner.get_build_kwargs()["check_gpu"]["max_threads_per_block"] > 0
        assert ("'opencl -device=mali'" in caplog.text) == told, device


def test_words_stand_for_the_usual_ones():
    option = measure_option("local", runner="local")
    assert type(option["builder"]) is LocalBuilder and type(option["runner"]) is LocalRunner
    assert (option["runner"].number, option["runner"].repeat, option["runner"].timeout, option["builder"].timeout) == (4, 3, 10, 10)
    for wrong in ((None, "local"), ("local", 5), (LocalRunner(), "local"), ("local", LocalBuilder())):
        with pytest.raises(TypeError, match="it must be 'local' or a"):
            measure_option(*wrong)
    for wrong in (("remote", "local"), ("local", "remote")):
        with pytest.raises(ValueError, match="the only name is 'local'"):
            measure_option(*wrong)
    with pytest.raises(ValueError, match="output_format"):
        LocalBuilder(build_func=lambda *a: None)
    with pytest.raises(ValueError, match="build_func is 'gcc'"):
        LocalBuilder(build_func="gcc")
    with pytest.raises(ValueError, match="check is 'some'"):
        LocalRunner(check="some")


class Half(Runner):
    """Returns too few results."""

    def run(self, measure_inputs, build_results):
        return []


def test_a_users_runner_that_returns_too_little_is_named():
    with pytest.raises(ValueError, match="Half.run returned 0 results for 1"):
        faulty("none", runner=Half())


class Says(Runner):
    """Returns one result for each configuration."""

    def __init__(self, result):
        super().__init__()
        self.result = result

    def run(self, measure_inputs, build_results):
        return [self.result for _ in measure_inputs]


@pytest.mark.parametrize("costs", [(), (0.0,), (-1e-3,), (float("nan"),), (float("inf"), 1e-3), ("fast",)])
def test_costs_that_are_no_times_have_failed(costs):
    result = faulty("none", runner=Says(MeasureResult(costs, 0, 0.1, 1.0)))
    assert result.error_no == MeasureErrorNo.UNKNOWN_ERROR and "Says.run measured" in result.costs[0]


def test_results_that_are_none_are_named():
    with pytest.raises(TypeError, match="Says.run returned None for a candidate"):
        faulty("none", runner=Says(None))


# ---- tuning ----


@pytest.mark.some(1)
@pytest.mark.parametrize("target, trials", [("llvm", 16), ("opencl", 8)])
def test_a_template_is_tuned_and_its_best_is_applied(target, trials, tmp_path):
    task, log = product(target), tmp_path / "log.json"
    tuner = XGBTuner(task, plan_size=8)
    tuner.tune(
        trials, measure_option(LocalBuilder(n_parallel=4), LocalRunner(timeout=60, number=2, repeat=1, cooldown_interval=0)),
        callbacks=[autotvm.callback.log_to_file(log)],
    )  # fmt: skip
    results = [r for _, r in autotvm.record.load_from_file(log)]
    assert len(results) == trials and sum(r.error_no == 0 for r in results) >= trials // 2
    assert min(map(rank_of, results)) == pytest.approx(rank_of(tuner.best_measure_pair[1]), rel=1e-5)
    assert tuner.cost_model.features.failed == 0 and tuner.train_ct == trials // 8
    with autotvm.apply_history_best(log), task.target:
        schedule, tensors = _product(64, 64, 64)
    f = nestsmith.build(schedule, tensors, target=task.target)
    a, b = (np.random.default_rng(s).integers(-3, 4, (64, 64)).astype("float32") for s in (1, 2))
    dev = nestsmith.runtime.device(task.target.kind.name)
    args = [nestsmith.nd.array(x, dev) for x in (a, b, np.zeros((64, 64), "float32"))]
    f(*args)
    np.testing.assert_array_equal(args[2].numpy(), a @ b)


def test_ctrl_c_ends_a_run_in_good_order(tmp_path):
    """What was measured is in the log, nothing is left running, and the tuner goes on afterwards."""
    task, log = product(n=128), tmp_path / "log.json"
    record = autotvm.callback.log_to_file(log)

    def interrupt():
        assert wait_until(lambda: log.exists() and len(log.read_text().splitlines()) >= 4)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    tuner = GridSearchTuner(task)
    option = measure_option(LocalBuilder(n_parallel=4), LocalRunner(number=50, repeat=3, min_repeat_ms=100, check="off", mode="strict"))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        tuner.tune(25, option, callbacks=[record])
    thread.join()
    assert not autotvm.GLOBAL_SCOPE.in_tuning
    pairs = list(autotvm.record.load_from_file(log))
    assert 4 <= len(pairs) < 25 and "# done" not in log.read_text()
    again = RandomTuner(task)
    again.tune(len(pairs) + 1, measure_option("local", LocalRunner(**QUICK)), resume_log=log)
    assert again.best_config is not None
