"""Who builds and who runs configurations.

A builder turns inputs into artifacts, a runner times artifacts. Users may write either: a subclass of `Builder` or `Runner`.
`LocalBuilder` and `LocalRunner` stand for the engine's own, which work together without waiting for each other.
"""

import importlib
import logging
import time
import warnings

from ... import _absent, check
from ...auto_scheduler import measure as engine
from ...auto_scheduler.cost import NOTHING, rank_of
from ...auto_scheduler.hardware import cores
from ...auto_scheduler.measure import one_each
from ...runtime.device import device
from .loading import measure_loaded
from .measure import BuildResult, MeasureErrorNo, MeasureResult
from .pipeline import Pipeline, result_of
from .program import Programs, advise, failure, limits_of

__all__ = ["Builder", "EngineRunner", "LocalBuilder", "LocalRunner", "Runner", "create_measure_batch", "measure_option"]

logger = logging.getLogger("autotvm")

CHECKS = "off", "best", "all"
REMOTE = ("RPCRunner", "check_remote", "default_module_loader", "request_remote")  # these need the extra `cluster`


def __getattr__(name):
    if name in REMOTE:
        return getattr(importlib.import_module(".remote", __package__), name)
    raise _absent.attribute_error(__name__, name)


class Builder:
    """Base of builders.

    Parameters
    ----------
    timeout : float
        Seconds per build.
    n_parallel : int, optional
        Builds at the same time, and configurations per batch; default one per core.
    build_kwargs : dict, optional
        What is to be known of the device, in place of what the runner says.
    """

    def __init__(self, timeout=10, n_parallel=None, build_kwargs=None):
        check.number("timeout", timeout, above=0)
        if n_parallel is not None:
            check.integer("n_parallel", n_parallel, 1)
        self.timeout, self.n_parallel = timeout, n_parallel or cores()
        self.user_build_kwargs, self.build_kwargs = dict(build_kwargs or {}), {}
        self.task = None

    def set_task(self, task, build_kwargs=None):
        """Called before the configurations of a task are built, with what the runner says of the device."""
        self.task, self.build_kwargs = task, dict(build_kwargs or {})
        for key, value in self.user_build_kwargs.items():
            if key in self.build_kwargs and self.build_kwargs[key] != value:
                logger.warning("Overriding the build argument %s=%r of the runner with %r", key, self.build_kwargs[key], value)
            self.build_kwargs[key] = value

    def build(self, measure_inputs):
        """A `BuildResult` for each input, or a `MeasureResult` for what could not be built."""
        raise NotImplementedError


class Runner:
    """Base of runners.

    Parameters
    ----------
    timeout : float
        Seconds per configuration.
    n_parallel : int, optional
        Configurations that run at the same time.

    Attributes
    ----------
    overlaps : bool
        What this machine does in the meantime disturbs no times, so tuners plan while a batch is measured. Default False.
    """

    overlaps = False

    def __init__(self, timeout=5, n_parallel=None):
        self.timeout, self.n_parallel = timeout, n_parallel or 1
        self.task = None

    def set_task(self, task):
        """Called before the configurations of a task are run. What it returns is kept until they are done."""
        self.task = task

    def get_build_kwargs(self):
        """What builders must know of the device, as a dict."""
        return {}

    def run(self, measure_inputs, build_results):
        """A `MeasureResult` for each input."""
        raise NotImplementedError


class _Built(BuildResult):
    """An artifact in memory: what the engine's runners take."""

    program = input = None


class LocalBuilder(Builder):
    """Builds on this machine.

    Parameters
    ----------
    timeout : float
        Seconds per build; what takes longer is killed.
    n_parallel : int, optional
        Builds at the same time, and configurations per batch; default one per core.
    build_kwargs : dict, optional
    build_func : "default", "ndk", "stackvm" or callable
        Accepted for scripts that give it: what `auto_scheduler.measure.check_build_func` says.
    do_fork : bool
        Accepted: builds are in processes of their own always.
    runtime : optional
        Accepted.

    Raises
    ------
    ValueError
        If ``build_func`` is something else, or a number is too small.
    """

    def __init__(self, timeout=10, n_parallel=None, build_kwargs=None, build_func="default", do_fork=False, runtime=None):
        super().__init__(timeout, n_parallel, build_kwargs)
        self.build_func, self.do_fork, self.runtime = build_func, do_fork, runtime
        self.engine = engine.LocalBuilder(timeout, self.n_parallel, build_func)

    def __repr__(self):
        return f"LocalBuilder(timeout={self.timeout}, n_parallel={self.n_parallel})"

    def build(self, measure_inputs):
        programs = Programs(measure_inputs[0].task, self.build_kwargs.get("check_gpu")) if measure_inputs else None
        found = [programs.try_of(i, time.time) for i in measure_inputs]
        built = iter(self.engine.build([p for p in found if not isinstance(p, MeasureResult)], verbose=0))
        return [p if isinstance(p, MeasureResult) else self._result(p, next(built)) for p in found]

    @staticmethod
    def _result(program, built):
        if built.error_no:
            return failure(built.error_no, RuntimeError(built.error_msg), built.time_cost, time.time())
        shapes = tuple((tuple(t.shape), t.dtype) for t in program.task.compute_dag.tensors)
        out = _Built(None, shapes, None, built.time_cost)
        out.program, out.input = built, program
        return out


class EngineRunner(Runner):
    """Base of runners that give artifacts to one of the engine's runners, here or elsewhere.

    Parameters
    ----------
    runner : auto_scheduler.ProgramRunner
        Runs what `LocalBuilder` has built.
    check : "off", "best" or "all"
        What is compared with the unscheduled program's results: nothing, what would become the best, everything.
        Raises ValueError for another word.
    n_parallel : int, optional
        Configurations that run at the same time.
    module_loader : callable, optional
        How an artifact gets onto the device, as `measure.default_module_loader` returns it: for devices that have to be set up. What is
        loaded so is timed and not compared.

    Attributes
    ----------
    engine : auto_scheduler.ProgramRunner
    executor : executor.Executor, optional
        Of a user: each candidate is given to its ``submit`` and its future's result is taken. None: the engine's own processes.
    number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, device
        Of the engine's runner.
    """

    executor = None

    def __init__(self, runner, check="best", n_parallel=None, module_loader=None):
        super().__init__(runner.timeout, n_parallel)
        self.module_loader, self._ref_input = module_loader, None
        for name in ("number", "repeat", "min_repeat_ms", "cooldown_interval", "enable_cpu_cache_flush", "device"):
            setattr(self, name, getattr(runner, name))
        if check not in CHECKS:
            raise ValueError(f"check is {check!r}; it must be one of {', '.join(CHECKS)}")
        self.engine, self.check = runner, check

    @property
    def ref_input(self):
        """Arrays that configurations are measured with, in the order of the arguments, with or without the results; None: numbers
        that measuring makes up. Results are compared with what the unscheduled program makes of them."""
        return self._ref_input

    @ref_input.setter
    def ref_input(self, value):
        if value is not None:
            warnings.warn("measuring uses the given inputs: be sure that they fit the operator in every "
                          "configuration; templates that change layouts take arrays of other shapes", RuntimeWarning,
                          stacklevel=2)
        self._ref_input = None if value is None else list(value)

    def remote_kwargs(self):
        """What a `module_loader` is told: the arguments of the session that it opens."""
        return {"timeout": self.timeout}

    def run(self, measure_inputs, build_results):
        if self.executor is not None:
            pairs = zip(measure_inputs, build_results)
            return [future_result(f) for f in [self.executor.submit(run_one, self, i, b, ref_input=self.ref_input) for i, b in pairs]]
        if self.module_loader is not None:
            return self._run_loaded(measure_inputs, build_results)
        return self._run_good(measure_inputs, build_results)

    def _run_good(self, measure_inputs, build_results):
        good = [b for b in build_results if isinstance(b, _Built)]
        for b in good:
            b.input.task.given_inputs = self.ref_input
        ran = iter(one_each(self.engine, "run", self.engine.run([b.input for b in good], [b.program for b in good], 0), good))
        return [result_of(next(ran)) if isinstance(b, _Built) else self._refuse(b) for b in build_results]

    def _run_loaded(self, measure_inputs, build_results):
        good = [(i, b) for i, b in zip(measure_inputs, build_results) if isinstance(b, BuildResult) and not b.error]
        ran = iter(measure_loaded(self, *zip(*good)) if good else ())
        return [next(ran) if isinstance(b, BuildResult) and not b.error else self._refuse(b) for b in build_results]

    @staticmethod
    def _refuse(built):
        if isinstance(built, MeasureResult):
            return built
        error = TypeError(f"{type(built).__name__} is no artifact of a LocalBuilder")
        return failure(MeasureErrorNo.UNKNOWN_ERROR, error, 0.0, time.time())


def run_one(runner, measure_input, build_result, ref_input=None):
    """The `MeasureResult` of one built candidate; what a runner gives its ``executor``."""
    if runner.module_loader is not None:
        return runner._run_loaded([measure_input], [build_result])[0]
    return runner._run_good([measure_input], [build_result])[0]


def future_result(future):
    """A future's result, by the name that it has there."""
    return (future.result if hasattr(future, "result") else future.get)()


class LocalRunner(EngineRunner):
    """Runs configurations in an isolated process on this machine.

    Parameters
    ----------
    timeout : float
        Seconds per configuration.
    number : int
        Runs that one cost is the mean of.
    repeat : int
        Costs; of more than two the smallest and the largest are left out.
    min_repeat_ms : int
        Each cost takes at least so long.
    cooldown_interval : float
        Seconds for which the device rests after each configuration. A device that slows down is noticed without it.
    enable_cpu_cache_flush : bool
        Flush the caches before every run; ``number`` becomes 1 and ``min_repeat_ms`` 0.
    module_loader : callable, optional
        As of `EngineRunner`.
    device : int or list of int
        Which device of the target's kind; several measure side by side.
    check : "off", "best" or "all"
        What is compared with the unscheduled program's results: nothing, what would become the best, everything.
    mode, l2, busy
        As of `auto_scheduler.LocalRunner`. In mode "auto" what cannot become the best is cut short.

    Raises
    ------
    ValueError
        If a word is unknown or a number too small.
    """

    def __init__(self, timeout=10, number=4, repeat=3, min_repeat_ms=0, cooldown_interval=0.0,
                 enable_cpu_cache_flush=False, module_loader=None, device=0, check="best", mode="auto", l2="mixed",
                 busy=None):
        super().__init__(
            engine.LocalRunner(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush,
                               device, mode, l2, busy),
            check,
            module_loader=module_loader,
        )

    def __repr__(self):
        return f"LocalRunner(timeout={self.timeout}, number={self.number}, repeat={self.repeat})"

    def get_build_kwargs(self):
        target = self.task.target
        if target.kind.name == "opencl":
            number = self.device[0] if isinstance(self.device, list) else self.device
            advise(target, device(target.kind.name, number).device_name or "")
        return limits_of(target)


def measure_option(builder, runner):
    """Who builds and who runs, for `Tuner.tune`.

    Parameters
    ----------
    builder : Builder or "local"
    runner : Runner or "local"

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        For another word.
    TypeError
        For what is neither a word nor a builder and a runner.
    """
    given = {"builder": builder, "runner": runner}
    for what, ours, does in (("builder", LocalBuilder, "build"), ("runner", LocalRunner, "run")):
        value = given[what]
        if isinstance(value, str):
            if value != "local":
                raise ValueError(f"{what} is {value!r}; the only name is 'local'")
            value = given[what] = ours()
        if not (hasattr(value, "set_task") and hasattr(value, does)):
            raise TypeError(f"{what} is {value!r}; it must be 'local' or a {what.capitalize()}")
    return given


class _Batches:
    """Builds a batch, then runs it: for builders and runners of users."""

    def __init__(self, builder, runner, attached):
        self.builder, self.runner, self._attached = builder, runner, attached
        self.n_parallel, self.overlaps = builder.n_parallel, getattr(runner, "overlaps", False)

    def __call__(self, inputs, meanwhile=None):
        built = one_each(self.builder, "build", self.builder.build(inputs), inputs)
        if meanwhile is not None:
            meanwhile()
        return [self._checked(r) for r in one_each(self.runner, "run", self.runner.run(inputs, built), inputs)]

    def _checked(self, result):
        """A result that can be compared and written: costs that are no times have failed. Raises TypeError if it is none."""
        if not hasattr(result, "error_no"):
            raise TypeError(f"{type(self.runner).__name__}.run returned {result!r} for a candidate; it must be a MeasureResult")
        if result.error_no or rank_of(result) != NOTHING:
            return result
        error = ValueError(f"{type(self.runner).__name__}.run measured {result.costs!r}; costs are seconds, of at least 1e-10")
        return failure(MeasureErrorNo.UNKNOWN_ERROR, error, result.all_cost, result.timestamp)


def create_measure_batch(task, option):
    """A function that measures a list of MeasureInput of a task.

    Parameters
    ----------
    task : autotvm.task.Task
    option : dict
        What `measure_option` returns.

    Returns
    -------
    callable
        Its attribute ``n_parallel`` says how many inputs a batch should have, ``overlaps`` whether this machine may do something
        else while they are measured; a second argument is a function that begins with it. Where it has a method ``close``, call
        it in the end.

    Raises
    ------
    TypeError
        If ``option`` is something else.
    """
    if not (isinstance(option, dict) and option.keys() >= {"builder", "runner"}):
        raise TypeError(f"measure_option is {option!r}; autotvm.measure_option(builder=..., runner=...) makes one")
    builder, runner = option["builder"], option["runner"]
    attached = runner.set_task(task)
    builder.set_task(task, runner.get_build_kwargs())
    if type(builder) is LocalBuilder and isinstance(runner, EngineRunner) and runner.module_loader is None:
        return Pipeline(task, builder, runner)
    return _Batches(builder, runner, attached)
