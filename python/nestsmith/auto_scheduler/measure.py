"""Measuring: what candidates are built and run with, and what comes out.

Candidates run in an isolated process per device. Whatever one does there (crash, endless loop, broken GPU context)
costs that
candidate; the next one gets a fresh process.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import logging
import math
import threading
import time
import weakref

from nestsmith import _core, check, forks

from ..contrib import cc, ndk, tar
from ..numerics import MATH_MODES
from ..runtime.ndarray import bytes_of
from ..states import core_state
from .cost import FAILED, Cost, seconds_of
from .hardware import cores
from .signals import Held

__all__ = ["MeasureInput", "MeasureResult", "MeasureErrorNo", "BuildResult", "ProgramBuilder", "ProgramRunner",
           "LocalBuilder", "LocalRunner", "LocalRPCMeasureContext", "ProgramMeasurer", "MeasureCallback",
           "PythonBasedMeasureCallback"]

logger = logging.getLogger("auto_scheduler")

MAX_ERROR_MSG_LEN = 512


class MeasureErrorNo:
    """Numbers of what can go wrong."""

    NO_ERROR, INSTANTIATION_ERROR, COMPILE_HOST, COMPILE_DEVICE, RUNTIME_DEVICE = range(5)
    WRONG_ANSWER, BUILD_TIMEOUT, RUN_TIMEOUT, UNKNOWN_ERROR = range(5, 9)


_ERROR_NAMES = ("NoError", "InstantiationError", "CompileHostError", "CompileDeviceError", "RuntimeDeviceError",
                "WrongAnswerError", "BuildTimeoutError", "RunTimeoutError", "UnknownError")


def shorten(text):
    """An error text cut to its first and last 256 characters."""
    text = str(text)
    half = MAX_ERROR_MSG_LEN // 2
    return text if len(text) <= MAX_ERROR_MSG_LEN else text[:half] + "\n...\n" + text[-half:]


class MeasureInput:
    """A candidate: a task and a state of its DAG."""

    def __init__(self, task, state):
        self.task, self.state = task, state

    engine_state = property(lambda self: core_state(self.state), doc="The engine's State.")

    def serialize(self):
        """Something that pickles, with which `deserialize` makes the input again."""
        return [self.task, self.engine_state.steps()]

    @staticmethod
    def deserialize(data):
        """The input of what `serialize` returned."""
        task, steps = data
        return MeasureInput(task, task.compute_dag.wrap_state(_core.State(task.compute_dag, steps)))

    def __reduce__(self):
        return MeasureInput.deserialize, (self.serialize(),)

    def __repr__(self):
        return f"MeasureInput({self.task!r}, {len(self.state.transform_steps)} steps)"


class BuildResult:
    """A built candidate: `program` is (source, manifest, binary), None if building failed.

    `filename` is "" (programs are kept in memory), `args` the tensors of the DAG, `time_cost` seconds.
    """

    def __init__(self, filename=None, args=None, error_no=0, error_msg=None, time_cost=0.0, program=None):
        self.filename = filename or ""
        self.args = list(args or [])
        self.error_no = int(error_no)
        self.error_msg = error_msg or ""
        self.time_cost, self.program = float(time_cost), program

    def __repr__(self):
        if self.error_no == 0:
            return f"BuildResult(error_no:0, time_cost:{self.time_cost:.4g})"
        return (f"BuildResult(error_type:{_ERROR_NAMES[self.error_no]}, error_msg:{self.error_msg}, "
                f"time_cost:{self.time_cost:.4g})")


class MeasureResult:
    """Result of one candidate: `costs` in seconds (one per repeat, `[1e10]` if it failed), `error_no`, `error_msg`,
    `all_cost` (seconds spent on building and running it), `timestamp`. `extra` holds details such as the cause of a
    failure."""

    def __init__(self, costs, error_no, error_msg, all_cost, timestamp, extra=None):
        self.costs = [Cost(getattr(c, "value", c)) for c in costs]
        self.error_no = int(error_no)
        self.error_msg = error_msg or ""
        self.all_cost, self.timestamp = float(all_cost), float(timestamp)
        self.extra = dict(extra or {})

    def __repr__(self):
        if self.error_no == 0:
            costs = ",".join(f"{c:.4g}" for c in self.costs)
            return (f"MeasureResult(cost:[{costs}], error_no:0, all_cost:{self.all_cost:.4g}, "
                    f"Tstamp:{self.timestamp:.2f})")
        name = _ERROR_NAMES[self.error_no] if 0 <= self.error_no < len(_ERROR_NAMES) else self.error_no
        return (f"MeasureResult(error_type:{name}, error_msg:{self.error_msg}, all_cost:{self.all_cost:.4g}, "
                f"Tstamp:{self.timestamp:.2f})")


class MeasureCallback:
    """Called after each measured batch, in list order, in the main process."""

    def callback(self, policy, inputs, results):
        """`inputs` and `results` are lists of equal length."""
        raise NotImplementedError


class PythonBasedMeasureCallback(MeasureCallback):
    """Base of callbacks that users write."""


class ProgramBuilder:
    """Base of builders: `build(inputs, verbose)` returns one `BuildResult` per input."""

    n_parallel = 1
    timeout = 15

    def build(self, measure_inputs, verbose=1):
        """Builds candidates. Never raises for what a candidate does."""
        raise NotImplementedError

    def cancel(self):
        """Makes a running `build` in another thread end soon, where that is possible; what it returns then is dropped."""


class ProgramRunner:
    """Base of runners: `run(inputs, build_results, verbose)` returns one `MeasureResult` per input."""

    timeout = 10
    number = 3
    repeat = 1
    min_repeat_ms = 100
    cooldown_interval = 0.0
    enable_cpu_cache_flush = False
    device = 0
    devices = 1  # that measure at the same time

    def run(self, measure_inputs, build_results, verbose=1):
        """Runs built candidates. Never raises for what a candidate does."""
        raise NotImplementedError

    def cancel(self):
        """Makes a running `run` in another thread end soon, where that is possible; what failed then is dropped."""


def one_each(who, what, got, inputs):
    """The list that a user's builder or runner returned; ValueError that names it if there is not one for each input."""
    got = list(got)
    if len(got) != len(inputs):
        raise ValueError(f"{type(who).__name__}.{what} returned {len(got)} results for {len(inputs)} candidates")
    return got


class Configured:
    """Base of what its options make: they are what is pickled, and what the text shows."""

    options: tuple = ()  # names of the constructor's arguments, which are attributes

    def __getstate__(self):
        return {k: getattr(self, k) for k in self.options}

    def __setstate__(self, state):
        self.__init__(**state)

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__getstate__().items())})"


def _mark(verbose, text, end=""):
    if verbose >= 1:
        print(text, end=end, flush=True)


def _wait(future, signals):
    """The future's result; signals are heard while waiting."""
    while concurrent.futures.wait([future], timeout=0.05).not_done:
        signals.check()
    return future.result()


BUILD_FUNCS = "default", "ndk", "stackvm"


def check_build_func(build_func):
    """What a builder takes as `build_func`. Programs are measured without being packed, and compiled by the compiler of their target:
    none of what is taken changes anything.

    Parameters
    ----------
    build_func : str or callable
        One of `BUILD_FUNCS`, or a function of `contrib` that links or packs.

    Raises
    ------
    ValueError
        For anything else: another function would have to be called, and is not.
    """
    if not callable(build_func):
        if build_func not in BUILD_FUNCS:
            raise ValueError(f"build_func is {build_func!r}; it must be one of {', '.join(BUILD_FUNCS)} or a function of nestsmith.contrib")
    elif not hasattr(build_func, "output_format"):
        raise ValueError("build_func has no attribute output_format: the extension of the files that it makes")
    elif build_func not in (ndk.create_shared, tar.tar) and getattr(build_func, "__module__", "") != cc.__name__:
        raise ValueError(f"build_func is {build_func!r}, which would not be called: candidates are not packed, and a "
                         "target's compiler compiles them (option -mtriple, or CC); leave build_func out, and give "
                         "your function to export_library(path, fcompile=...)")


class LocalBuilder(Configured, ProgramBuilder):
    """Compiles candidates on this machine.

    Parameters
    ----------
    timeout : float
        Seconds per candidate; compilers that take longer are killed.
    n_parallel : int, optional
        Candidates compiled at the same time; default one per core.
    build_func : "default", "ndk", "stackvm" or callable
        See `check_build_func`.

    Raises
    ------
    ValueError
        If `build_func` is unknown or a function of another package, or `timeout` is not positive.
    TypeError
        If a number is none.
    """

    options = "timeout", "n_parallel", "build_func"

    def __init__(self, timeout=15, n_parallel=None, build_func="default"):
        check_build_func(build_func)
        check.number("timeout", timeout, above=0)
        if n_parallel is not None:
            check.integer("n_parallel", n_parallel, 0)
        self.timeout = timeout
        self.n_parallel = int(n_parallel) if n_parallel else cores()
        self.build_func = build_func
        forks.renew(self)._forked()

    def _forked(self):
        self._pool, self._compilers, self._local = None, [], threading.local()
        self._cancelled, self._lock = False, threading.Lock()

    def _compiler(self):
        if not hasattr(self._local, "compiler"):
            self._local.compiler = _core.Compiler()
            self._compilers.append(self._local.compiler)
        return self._local.compiler

    def _build_one(self, inp):
        start = time.time()
        tensors = list(getattr(inp.task.compute_dag, "tensors", []))
        if self._cancelled:
            return BuildResult("", tensors, MeasureErrorNo.UNKNOWN_ERROR, "cancelled")
        try:
            source, manifest = _core.candidate_source(inp.engine_state, inp.task.engine_target(),
                                                      int(getattr(inp.task, "layout_rewrite_option", 0) or 0))
        except Exception as e:  # noqa: BLE001 - an illegal schedule is a result, not an error of the tuner
            return BuildResult("", tensors, MeasureErrorNo.INSTANTIATION_ERROR, shorten(e), time.time() - start)
        error, binary, message, _, _ = self._compiler().run(inp.task.target.engine(), source, float(self.timeout), None,
                                                            inp.task.target.cross_compiler)
        if error:
            return BuildResult("", tensors, error, shorten(message),
                               self.timeout if error == MeasureErrorNo.BUILD_TIMEOUT else time.time() - start)
        return BuildResult("", tensors, 0, "", time.time() - start, (source, manifest, binary))

    def cancel(self):
        """Ends the compilers of a running `build` in another thread; what they compiled has failed."""
        self._cancelled = True
        for c in list(self._compilers):
            c.stop()

    def close(self):
        """Ends the compile threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._forked()

    def build(self, measure_inputs, verbose=1):
        """Builds candidates in parallel; prints one mark each (``.`` built, ``.E`` failed, ``.T`` timed out)."""
        if self._cancelled:
            self.close()
            self._cancelled = False
        results = []
        with Held() as signals:
            with self._lock:  # several batches may be built at once
                if self._pool is None:
                    self._pool = concurrent.futures.ThreadPoolExecutor(self.n_parallel)
                pool = self._pool
            try:
                for f in [pool.submit(self._build_one, i) for i in measure_inputs]:
                    results.append(_wait(f, signals))
                    _mark(verbose, {0: ".", MeasureErrorNo.BUILD_TIMEOUT: ".T"}.get(results[-1].error_no, ".E"))
            except BaseException:
                self.cancel()
                self.close()
                raise
        return results


_live_workers: weakref.WeakSet = weakref.WeakSet()


@atexit.register
def _end_workers():
    for runner in list(_live_workers):
        runner.close()


_DETAILS = ("cause", "quick", "full", "runs", "regs", "local_bytes", "shared_bytes", "occupancy", "max_error", "blocks",
            "spread", "redone", "cut", "audited", "disturbed")


def details(result):
    """`MeasureResult.extra` of the engine's result: `stage` is "full" or "quick", the rest as the engine names it."""
    extra = {k: result[k] for k in _DETAILS if k in result}
    extra["stage"] = "full" if result["full"] else "quick"
    return extra


_MODES = "auto", "strict"
_CACHE = "mixed", "hot", "cold"
_BUSY = {None: 0, "turns": 1, "fail": 2, "ignore": 3}


def _devices(device):
    """The number, or the list of numbers, as it was given; checked."""
    listed = list(device) if isinstance(device, (list, tuple)) else [device]
    if not listed:
        raise ValueError("device is an empty list; give the number of a device or several")
    for d in listed:
        check.integer("device", d, 0)
    return [int(d) for d in listed] if isinstance(device, (list, tuple)) else int(device)


def check_row(task):
    """The row of `_core.tolerances` by which a task's float32 results are compared, where it is not that of float32."""
    return None if task.math == "strict" else MATH_MODES[task.math].compared


def task_rows(task, stop=None):
    """What candidates of a task read and have to compute, as `_core.TaskData` takes it; `stop` ends the reference program.
    Results are compared to the bit only where the inputs are the small integers that this allows."""
    tensors, given = task.compute_dag.tensors, task.fixed_inputs()
    arrays = _core.reference_data(task.compute_dag, stop=stop, inputs=given)
    math = check_row(task)
    exact = [False] * len(tensors) if given or math else _core.reference_exact(task.compute_dag)
    types = [math if math and t.dtype == "float32" and not t.op.is_placeholder else t.dtype for t in tensors]
    return [(len(a), a, not t.op.is_placeholder, as_, same) for a, t, as_, same in zip(arrays, tensors, types, exact)]


def cannot_check(task, error):
    """Says that candidates of a task are measured without a comparison."""
    first = str(error).splitlines()[0]
    logger.warning("results of %s cannot be checked, its program as it is written does not run: %s", task, first)


def rows_of(task, checked=True, stop=None):
    """`task_rows`, or `bare_rows` where nothing is compared or the task's own program does not run."""
    try:
        return task_rows(task, stop) if checked else bare_rows(task)
    except RuntimeError as e:
        if isinstance(e, ValueError) or (stop is not None and stop.is_set()):
            raise
        cannot_check(task, e)
        return bare_rows(task)


def bare_rows(task):
    """As `task_rows` for candidates whose results nobody compares: sizes, and of the data what the user gives."""
    tensors = task.compute_dag.tensors
    given = task.fixed_inputs() or [None] * len(tensors)
    return [(bytes_of(t.shape, t.dtype), None if a is None else a.tobytes(), not t.op.is_placeholder, t.dtype, False)
            for t, a in zip(tensors, given)]  # fmt: skip


class LocalRunner(Configured, ProgramRunner):
    """Runs candidates in an isolated process on this machine.

    Parameters
    ----------
    timeout : float
        Seconds per candidate, loading and checking included.
    number, repeat, min_repeat_ms : int
        `repeat` costs; each over blocks of at least `number` runs that last at least `min_repeat_ms` together.
    cooldown_interval : float
        Seconds for which the device rests after each candidate.
    enable_cpu_cache_flush : bool
        Flush the caches before every run; `number` becomes 1 and `min_repeat_ms` 0.
    device : int or list of int
        Which device of the task's kind; a list: these measure side by side.
    mode : "auto" or "strict"
        "strict": every candidate is timed for `min_repeat_ms` x `repeat`. "auto": candidates that cannot become the
        best are cut short; the best of a round and the best so far are timed in turn.
    l2 : "mixed", "hot" or "cold"
        What is in the cache when a run begins. "mixed": activations are and the weights of a network are not, as in the
        network. "hot": everything that fits. "cold": no input.
    busy : "turns", "fail" or "ignore", optional
        If another process tunes on the device: take turns with it, raise RuntimeError, measure beside it. By default
        turns on NVIDIA GPUs, else "ignore".

    Raises
    ------
    ValueError
        If `mode` is unknown or a number is too small.
    """

    options: tuple = ("timeout", "number", "repeat", "min_repeat_ms", "cooldown_interval", "enable_cpu_cache_flush", "device",
                      "mode", "l2", "busy")

    def __init__(self, timeout=10, number=3, repeat=1, min_repeat_ms=100, cooldown_interval=0.0,
                 enable_cpu_cache_flush=False, device=0, mode="auto", l2="mixed", busy=None):
        if enable_cpu_cache_flush:
            number, min_repeat_ms = 1, 0
        for name, value, allowed in (("mode", mode, _MODES), ("l2", l2, _CACHE), ("busy", busy, _BUSY)):
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; allowed are {', '.join(repr(a) for a in allowed)}")
        for name, value, least in (("timeout", timeout, 0), ("number", number, 1), ("repeat", repeat, 1),
                                   ("min_repeat_ms", min_repeat_ms, 0), ("cooldown_interval", cooldown_interval, 0)):
            if not least <= check.number(name, value) < math.inf or (name == "timeout" and value <= 0):
                raise ValueError(f"{name} is {value}, must be finite and "
                                 f"{'positive' if name == 'timeout' else f'at least {least}'}")
        self.timeout, self.number, self.repeat, self.min_repeat_ms = timeout, int(number), int(repeat), int(min_repeat_ms)
        self.cooldown_interval, self.enable_cpu_cache_flush = cooldown_interval, bool(enable_cpu_cache_flush)
        self.device, self.mode, self.l2, self.busy = _devices(device), mode, l2, busy
        forks.renew(self)._forked()

    def _forked(self):
        self._workers, self._data = {}, {}
        self._pool, self._stop = None, _core.Stop()

    strict = property(lambda self: self.mode == "strict", doc="Whether every candidate is timed in full.")

    @property
    def devices(self):
        """How many measure at the same time."""
        return len(self.device) if isinstance(self.device, list) else 1

    def engine_policy(self, check=True, race=False):
        """The engine's RunPolicy. `race`: a candidate is cut short when it cannot become its task's best."""
        return {"number": self.number, "repeat": self.repeat, "min_repeat_ms": self.min_repeat_ms,
                "timeout": self.timeout, "cooldown": self.cooldown_interval, "flush": self.enable_cpu_cache_flush,
                "check": check, "strict": self.strict, "race": race and not self.strict, "cache": self.l2}

    def verifying_policy(self):
        """The engine's RunPolicy of one run whose results are compared."""
        return {**self.engine_policy(), "number": 1, "repeat": 1, "min_repeat_ms": 0, "strict": True}

    lock_mode = property(lambda self: _BUSY[self.busy], doc="The engine's number of `busy`.")

    def _task_data(self, task):
        key = task.workload_key, id(task.compute_dag)
        if key not in self._data:
            data = _core.TaskData(rows_of(task, stop=self._stop))
            self._data = {key: (task.compute_dag, data)}  # with the DAG: the id of one that is gone may be another's
        return self._data[key][1]

    def _worker(self, task):
        kind = task.target.kind.device_type
        if kind not in self._workers:
            device = self.device[0] if isinstance(self.device, list) else self.device
            self._workers[kind] = _core.Worker(kind, device, self.lock_mode, self._stop)
            _live_workers.add(self)
        return self._workers[kind]

    def _run_one(self, inp, built):
        start = time.time()
        if built.error_no:
            return MeasureResult([FAILED], built.error_no, built.error_msg, built.time_cost, start)
        try:
            worker = self._worker(inp.task)
            r = worker.run(0, self._task_data(inp.task), built.program[2], built.program[1], self.engine_policy())
        except (Exception, KeyboardInterrupt) as e:  # noqa: BLE001 - no device, no memory, or cancelled: the candidate failed
            return MeasureResult([FAILED], MeasureErrorNo.UNKNOWN_ERROR, shorten(e),
                                 built.time_cost + time.time() - start, time.time())
        ok = r["error"] == 0
        return MeasureResult(r["costs"] if ok else [FAILED], r["error"], shorten(r["msg"]),
                             built.time_cost + time.time() - start, time.time(), details(r))

    def cancel(self):
        """Ends a running `run` in another thread; what it had not finished has failed."""
        self._stop.set()
        for w in list(self._workers.values()):
            w.stop(True)

    def close(self):
        """Ends the worker processes; they start again when needed."""
        for w in self._workers.values():
            try:
                w.close()
            except RuntimeError:
                w.stop(True)
        self._workers = {}

    def run(self, measure_inputs, build_results, verbose=1):
        """Runs candidates one after the other; prints one mark each (``*`` run, ``*E`` failed, ``*W`` wrong output,
        ``*T`` timed out). Raises RuntimeError if another process tunes on the device and `busy` is "fail"."""
        if self._stop.is_set():
            self.close()
            self._stop = _core.Stop()
        with Held() as signals:
            if self._pool is None:
                self._pool = concurrent.futures.ThreadPoolExecutor(1)
            try:
                return self._run_all(measure_inputs, build_results, verbose, signals)
            except BaseException:
                self.cancel()
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._pool = None
                self.close()
                raise

    def _run_all(self, measure_inputs, build_results, verbose, signals):
        for inp in measure_inputs if self.busy == "fail" else ():
            _wait(self._pool.submit(self._worker, inp.task), signals)  # refuses at once, not candidate by candidate
        marks = {0: "*", MeasureErrorNo.WRONG_ANSWER: "*W", MeasureErrorNo.RUN_TIMEOUT: "*T"}
        results = []
        for inp, built in zip(measure_inputs, build_results):
            r = _wait(self._pool.submit(self._run_one, inp, built), signals)
            if not built.error_no:
                _mark(verbose, marks.get(r.error_no, "*E"))
            results.append(r)
            rest = time.monotonic() + self.cooldown_interval
            while time.monotonic() < rest and not self._stop.is_set():
                time.sleep(min(0.05, max(0.0, rest - time.monotonic())))
                signals.check()
        _mark(verbose, "", "\n")
        return results


class _NoServer:
    """Stands for the tracker and server of older releases: measuring uses no network."""

    port = 0
    host = "127.0.0.1"

    def terminate(self):
        """Nothing to end."""


class LocalRPCMeasureContext:
    """A runner that isolates candidates from this process; kept under its old name.

    `runner` is a `LocalRunner` with the given options. There is no server and no open port. `close()`, ``with`` and the
    end of the program stop its processes.
    """

    def __init__(self, priority=1, n_parallel=1, timeout=10, number=3, repeat=1, min_repeat_ms=0, cooldown_interval=0.0,
                 enable_cpu_cache_flush=False, device=0, mode="auto", l2="mixed", busy=None):
        self.tracker = self.server = _NoServer()
        self.runner = LocalRunner(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush,
                                  device, mode, l2, busy)

    def close(self):
        """Stops the worker."""
        self.runner.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __del__(self):
        if hasattr(self, "runner"):
            self.runner.close()


class ProgramMeasurer:
    """Builds and runs candidates, keeps the best per workload, and tells the callbacks.

    Parameters
    ----------
    builder, runner : ProgramBuilder, ProgramRunner
    callbacks : list
    verbose : int
    max_continuous_error : int, optional
        Failures in a row after which everything is printed; default 150.
    """

    def __init__(self, builder, runner, callbacks=None, verbose=1, max_continuous_error=None):
        self.builder, self.runner, self.callbacks, self.verbose = builder, runner, list(callbacks or []), verbose
        self.max_continuous_error = (
            150 if max_continuous_error is None or max_continuous_error < 0 else max_continuous_error
        )
        self.reset()

    def reset(self):
        """Forgets all results."""
        self.ct, self.error_ct = 0, 0
        self.best_cost, self.best_state, self.best_ct, self.has_valid = {}, {}, {}, set()

    def measure(self, task, policy, inputs, batch_size=-1):
        """Measures a list of inputs; returns their results."""
        size = batch_size if batch_size > 0 else 2 * max(1, self.builder.n_parallel)
        _mark(self.verbose, f"Get {len(inputs)} programs to measure:", "\n")
        start, out = time.time(), []
        for k in range(0, len(inputs), size):
            group = inputs[k : k + size]
            built = one_each(self.builder, "build", self.builder.build(group, self.verbose), group)
            results = one_each(self.runner, "run", self.runner.run(group, built, self.verbose), group)
            for inp, res in zip(group, results):
                self._account(inp, res)
            for callback in self.callbacks:
                (callback.callback if hasattr(callback, "callback") else callback)(policy, group, results)
            out += results
        _mark(self.verbose, f"Time elapsed for measurement: {time.time() - start:.2f} s", "\n")
        return out

    def _account(self, inp, res):
        self.ct += 1
        key = inp.task.workload_key
        if res.error_no != 0:
            self.error_ct += 1
            if self.error_ct == self.max_continuous_error + 1:
                logger.warning("%d candidates in a row failed; the last one: %s", self.error_ct, res)
            return
        self.error_ct = 0
        self.has_valid.add(key)
        cost = seconds_of(res)
        if cost < self.best_cost.get(key, FAILED):
            self.best_cost[key], self.best_state[key], self.best_ct[key] = cost, inp.state, self.ct


