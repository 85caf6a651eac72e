"""Tasks: what is tuned, for which machine, with which options."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import Any

import numpy as np

from .. import _core, check, nd
from ..compiling import compile_source
from ..error import TVMValueError
from ..numerics import MATH_MODES, math_mode, mode_fits, needed_math, stored, unfit
from ..relay.passes import PassContext
from ..states import core_state
from ..target import TUNABLE, Target
from .compute_dag import ComputeDAG, LayoutRewriteOption, LoadJSON, SaveJSON
from .hardware import HardwareParams
from .holdings import Holdings
from .log_files import no_log
from .measure import LocalBuilder, LocalRunner, MeasureInput
from .measure_record import load_best_record
from .workload_keys import decode_workload_key
from .workload_registry import is_registered, make_workload_key, register_workload_tensors

__all__ = ["HardwareParams", "SearchTask", "TuningOptions", "create_task", "auto_schedule",
           "register_task_input_buffer", "get_task_input_buffer", "register_task_input_check_func",
           "recover_measure_input"]

logger = logging.getLogger("auto_scheduler")



class _Default(int):
    """A number that was not chosen by the user, who may write the same one."""


PER_ROUND = _Default(64)
ROUNDS, SMALLEST_ROUND = 4, 8  # of each task, unless the user chose a size


class TuningOptions:
    """Options of a tuning run.

    Parameters
    ----------
    num_measure_trials : int
        Candidates to measure in all. 0 or 1 with `SearchTask.tune`: search only.
    early_stopping : int, optional
        Stop after so many trials without improvement.
    num_measures_per_round : int
        Candidates per round, after which the cost model learns. Where it is not given and trials are few, rounds are
        smaller than 64, so that every task has at least four: see `round_size`.
    verbose : int
        0 silent, 1 progress, 2 every result.
    builder, runner : object or "local"
        Who compiles and who runs.
    measure_callbacks : list, optional
        Called after each measured batch, for example `RecordToFile`.

    Raises
    ------
    TypeError
        If a number is none, or a callback is not callable.
    ValueError
        If a number is negative, or `builder` or `runner` is an unknown word.
    """

    def __init__(self, num_measure_trials=0, early_stopping=None, num_measures_per_round=PER_ROUND, verbose=1,
                 builder="local", runner="local", measure_callbacks=None):
        for name, v in (("builder", builder), ("runner", runner)):
            if isinstance(v, str) and v != "local":
                raise ValueError(f"{name}={v!r}: the only name is 'local'; pass an object for anything else")
            if v is None or isinstance(v, (int, float)):
                raise ValueError(f"{name}={v!r}: expected 'local' or an object such as LocalRunner(...)")
        self.num_measure_trials = check.integer("num_measure_trials", num_measure_trials, 0)
        self.early_stopping = max(-1, check.integer("early_stopping", -1 if early_stopping is None else early_stopping))
        if not isinstance(num_measures_per_round, _Default):
            num_measures_per_round = check.integer("num_measures_per_round", num_measures_per_round, 1)
        self.num_measures_per_round = num_measures_per_round
        self.verbose = verbose
        self.builder = LocalBuilder() if builder == "local" else builder
        self.runner = LocalRunner() if runner == "local" else runner
        if not isinstance(measure_callbacks, (list, tuple, type(None))):
            raise TypeError(f"measure_callbacks is a {type(measure_callbacks).__name__}; it must be a list")
        for c in measure_callbacks or []:
            if not (callable(c) or hasattr(c, "callback")):
                raise TypeError(f"measure_callbacks holds {c!r}; write for example RecordToFile('log.json')")
        self.measure_callbacks = list(measure_callbacks or [])

    def __repr__(self):
        return f"TuningOptions({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"

    def round_size(self, n_tasks=1):
        """Candidates per round of a run over `n_tasks` tasks.

        A size that the user gave is only cut so that every task has one round. The default is cut further, so that every
        task has four rounds of at least 8 candidates: a model that has seen the first ones proposes better ones.

        Parameters
        ----------
        n_tasks : int

        Returns
        -------
        int
            0 if there are fewer trials than tasks.
        """
        rounds = ROUNDS if isinstance(self.num_measures_per_round, _Default) else 1
        size = min(self.num_measures_per_round, self.num_measure_trials // n_tasks)
        return int(min(size, max(SMALLEST_ROUND, self.num_measure_trials // (rounds * n_tasks))))


class tuner:
    """Who tunes a task; puts itself here, because it stands above tasks."""

    tune: Any = None


class SearchTask:
    """A computation to be tuned for a target.

    Parameters
    ----------
    func : callable or str, optional
        A registered workload function or its name; with `args`.
    args : list, optional
    compute_dag : ComputeDAG, optional
        Made from the workload key if missing.
    workload_key : str, optional
        Needed if `func` is missing.
    target : Target or str
    target_host : optional
    hardware_params : HardwareParams, optional
    layout_rewrite_option : LayoutRewriteOption, optional
    task_inputs : dict of str to NDArray, or list of str, optional
        Fixed inputs for measuring; a dict registers them.
    task_inputs_overwrite : bool
        Replace registered inputs of the same name.
    task_inputs_save_to_file : bool
        Also write them to ``.npy`` files in the working directory.
    desc : str
        Shown in tables.
    math : str, optional
        How products of float32 may be computed: "strict", "tf32", on tensor cores with factors rounded to TF32, or "float32x3",
        there as the sum of three such products. "fp16_accumulation" allows products of float16 whose sums become float16 to be
        added up in float16 there, "tf32+fp16_accumulation" and "float32x3+fp16_accumulation" both. By default as the PassContext
        allows it (``nestsmith.allow_tf32``, ``nestsmith.allow_float32x3``, ``nestsmith.allow_fp16_accumulation``), on targets
        that have tensor cores.

    Raises
    ------
    AssertionError
        If neither `func` nor `workload_key`, or no `target`, is given.
    TypeError
        If `hardware_params` is something else.
    ValueError
        If the workload is not registered, or `task_inputs` is neither a dict nor a list of names.
    """

    def __init__(self, func=None, args=None, compute_dag=None, workload_key=None, target=None, target_host=None,
                 hardware_params=None, layout_rewrite_option=None, task_inputs=None, task_inputs_overwrite=False,
                 task_inputs_save_to_file=False, desc="", math=None):
        assert func is not None or workload_key is not None, ("Either a workload function or a workload key should be "
                                                              "provided")
        if func is not None:
            workload_key = make_workload_key(func, args if args is not None else ())
        assert target is not None, "Must specify a target."
        self.target, self.target_host = Target.canon_target_and_host(target, target_host)
        self.workload_key, self.desc = workload_key, desc
        self.compute_dag = ComputeDAG(workload_key) if compute_dag is None else compute_dag
        if hardware_params is not None and not isinstance(hardware_params, HardwareParams):
            raise TypeError(f"hardware_params: expected HardwareParams, got {type(hardware_params).__name__}")
        self.hardware_params = hardware_params or HardwareParams(target=self.target)
        if math is None:
            math = math_mode(PassContext.current().config, self.target)
        check.one_of_names("math", math, MATH_MODES)
        self.math = math
        if layout_rewrite_option is None:
            layout_rewrite_option = LayoutRewriteOption.get_target_default(self.target)
        self.layout_rewrite_option = layout_rewrite_option
        self.constant_inputs, self.constant_bytes = (), 0  # weights of a network, and what all its weights take
        self.task_input_names = self._register_inputs(task_inputs, task_inputs_overwrite, task_inputs_save_to_file)
        self.given_inputs = None  # arrays by position instead of by name: what `ref_input` of a template's runner says
        self._engine = None

    def _register_inputs(self, inputs, overwrite, save):
        if inputs is None:
            return []
        for name in inputs if isinstance(inputs, (dict, list, tuple)) else ():
            if isinstance(name, str):
                check.text("task_inputs: a name", name)
        if isinstance(inputs, dict):
            for name, data in inputs.items():
                register_task_input_buffer(self.workload_key, name, data, overwrite, save)
            return list(inputs)
        if isinstance(inputs, (list, tuple)) and all(isinstance(i, str) for i in inputs):
            return list(inputs)
        raise ValueError("task_inputs should be a dict of name -> NDArray or a list of names.")

    def fixed_inputs(self):
        """What candidates are measured with where that is the user's: per tensor of the DAG an array or None; None if there is
        nothing. Raises ValueError for a name that no input has, a number of arrays, a shape or a type that does not fit.
        """
        tensors = self.compute_dag.tensors
        if self.given_inputs is not None:
            return self._by_position(tensors)
        if not self.task_input_names:
            return None
        by_name = {n: get_task_input_buffer(self.workload_key, n) for n in self.task_input_names}
        names = task_input_of(tensors)
        wrong = check.unmatched(by_name, [n for n in names if n])
        if wrong:
            raise ValueError(f"task_inputs of {self}: no input is called {wrong}; there are {', '.join(filter(None, names))}")
        given = [_host_array(by_name[n]) if n in by_name else None for n in names]
        for t, a in zip(tensors, given):
            if a is not None:
                _check_fit("task_inputs", t, a, f"{self} takes")
        return given

    def _by_position(self, tensors):
        given, inputs = [_host_array(a) for a in self.given_inputs], [t for t in tensors if t.op.is_placeholder]
        takers = {len(inputs): inputs, len(tensors): tensors}.get(len(given))
        if takers is None:
            raise ValueError(f"ref_input has {len(given)} arrays; {self.desc or self} has {len(inputs)} inputs and {len(tensors)} arguments")
        of = {t: a for t, a in zip(takers, given) if t.op.is_placeholder}
        for t, a in of.items():
            _check_fit("ref_input", t, a, "the configuration at hand takes")
        return [of.get(t) for t in tensors]

    def engine_target(self):
        """The target with the task's hardware parameters, as the engine takes it. Raises ValueError for a target that cannot
        be tuned.
        """
        kind = self.target.kind.name
        if kind not in TUNABLE:
            raise ValueError(f"target {kind!r} cannot be tuned; kinds: {', '.join(sorted(TUNABLE))}")
        return self.target.engine(self.hardware_params.as_tuple())

    def engine_policy(self):
        """An engine-side search of this task with default parameters; for facts about states."""
        if self._engine is None:
            self._engine = _core.Policy(self.compute_dag, self.engine_target())
        return self._engine

    def tune(self, tuning_options, search_policy=None, adaptive_training=False, cost_model="auto"):
        """Searches and measures until the trials are used up. Results go to the callbacks, for example a log file.

        Parameters
        ----------
        tuning_options : TuningOptions
            With at most one trial the search only proposes a state; nothing is measured.
        search_policy : SearchPolicy, optional
            A `SketchPolicy` with `cost_model` by default.
        adaptive_training : bool
            Train the cost model less often as records become many.
        cost_model : str or CostModel
            Ranks candidates where no `search_policy` is given.

        Returns
        -------
        State or None
            The best measured state; the first proposal if nothing is measured; None if nothing valid was found.

        Raises
        ------
        TypeError
            If `tuning_options` is no TuningOptions.
        RuntimeError
            If a compiler is missing, or 150 candidates in a row fail for one cause.
        """
        return tuner.tune(self, tuning_options, search_policy, adaptive_training, cost_model)

    def apply_best(self, log_file, include_compatible=False, layout_rewrite_option=None):
        """The best record of this workload in a log, as a schedule for `lower` and `build`.

        Parameters
        ----------
        log_file : str
        include_compatible : bool
            Also take a record of the same computation whose sizes divide the wanted ones.
        layout_rewrite_option : LayoutRewriteOption, optional
            The task's own by default.

        Returns
        -------
        schedule : te.Schedule
        tensors : list of te.Tensor

        Raises
        ------
        RuntimeError
            If the log has no valid record of this workload for this kind of target.
        """
        inp = self._best_input(log_file, include_compatible)
        option = self.layout_rewrite_option if layout_rewrite_option is None else layout_rewrite_option
        return self.compute_dag.apply_steps_from_state(inp.state, option)

    def print_best(self, log_file, print_mode="schedule"):
        """Text of the best record of this workload in a log. Prints nothing.

        Parameters
        ----------
        log_file : str
        print_mode : str
            "schedule": Python text in the names of `te`; "trace": the steps as JSON; "cuda", "opencl", "c": the source, for a
            task of such a target; "report": what the compiled program takes of the GPU (needs NVRTC, no GPU).

        Returns
        -------
        str

        Raises
        ------
        RuntimeError
            If the log has no valid record of this workload, or the program cannot be compiled here.
        ValueError
            If `print_mode` is none of these.
        AssertionError
            If the source is asked for in a language that the task's target does not use.
        """
        inp = self._best_input(log_file, False)
        if print_mode == "schedule":
            return self.compute_dag.print_python_code_from_state(inp.state)
        if print_mode == "trace":
            return core_state(inp.state).steps()
        if print_mode in ("cuda", "opencl", "c"):
            kind = self.target.kind.name
            assert kind == print_mode or (print_mode == "c" and self.target.kind.device_type == 1), (
                f"print_mode={print_mode!r} needs such a target, not {kind}"
            )
            return self._source(inp.state)[0]
        if print_mode == "report":
            return self._report(inp.state)
        raise ValueError(f"Invalid print_mode: {print_mode}; expected schedule, trace, cuda, opencl, c or report")

    def _source(self, state, *name):
        return _core.candidate_source(core_state(state), self.engine_target(), int(self.layout_rewrite_option), *name)

    def _report(self, state):
        if self.target.kind.name != "cuda":
            raise ValueError(f"print_mode='report' needs a cuda target, not {self.target.kind.name}")
        source, manifest = self._source(state, _core.BUILD_NAME)
        dynamic = max(k["dyn_shared_bytes"] for k in json.loads(manifest)["kernels"])
        binary, _ = compile_source(self.target, source, self.desc or self.workload_key, of_steps=True)
        r = _core.build_report(self.target.engine(), binary, dynamic)
        if r is None:
            return "not known: the program is compiled when it is loaded\n"
        return (f"kernels {r['kernels']}; the most of each: {r['regs']} registers and {r['local_bytes']} bytes of "
                f"local memory per thread, {r['shared_bytes']} bytes of shared memory per block\nlowest occupancy: "
                f"{r['occupancy']:.0%} ({r['blocks']} blocks of {r['threads']} threads per multiprocessor)\n")

    alt_keys = ()  # its names in other releases
    variants = ()  # tasks that compute the same in other ways (`relay.winograd` = "measured")

    @property
    def keys(self):
        """Its workload key, and those that it has in other releases."""
        return self.workload_key, *self.alt_keys

    @property
    def layer_keys(self):
        """The keys of records that say how to compute this: its own, and those of its variants."""
        return self.keys + tuple(k for v in self.variants for k in v.keys)

    def _best_input(self, log_file, include_compatible):
        """The best record as a MeasureInput on this task's own DAG."""
        for key in () if no_log(log_file) else self.keys:
            inp, _ = load_best_record(log_file, key, self.target, include_compatible, self.math)
            if inp is not None:
                steps = core_state(inp.state).steps()
                needs = needed_math(self.compute_dag, steps)
                if not mode_fits(needs, self.math):
                    raise RuntimeError(
                        f"{log_file}: the best record of {self.workload_key} {unfit(needs)}, which a task whose "
                        f'math is "{self.math}" does not do; it has lost its mark, or was measured before there were any: remove it, '
                        f'or make the task with math="{needs}"'
                    )
                state = _core.State(self.compute_dag, steps)
                return MeasureInput(self, self.compute_dag.wrap_state(state.infer_bounds()))
        held = Holdings.of_log(log_file)
        workloads = [decode_workload_key(k) for k in self.keys]
        own, failed = held.tally(workloads)
        raise RuntimeError(f"Cannot find any valid schedule for {self.workload_key} in file {log_file}: {held.records} "
                           f"records read, {own} of this workload, {failed} of them failed; "
                           f"{held.reasons([(workloads, False)], self.target.kind.name, math=self.math)}")

    def __getstate__(self):
        out = {k: v for k, v in self.__dict__.items() if k not in ("_engine", "compute_dag")}
        if self.compute_dag.workload is None:  # another process may not know the key
            with contextlib.suppress(TypeError):
                out["_dag"] = SaveJSON(self.compute_dag)
        return out

    def __setstate__(self, state):
        text = state.pop("_dag", None)
        self.__dict__.update(state)
        self._engine = None
        if text is not None and not is_registered(self.workload_key):
            self.compute_dag = LoadJSON(text)
            register_workload_tensors(self.workload_key, self.compute_dag.tensors)
        else:
            self.compute_dag = ComputeDAG(self.workload_key)

    def __repr__(self):
        return f"SearchTask({self.desc or self.workload_key}, {self.target})"


# ---- fixed inputs for measuring ----

_BUFFERS: dict = {"default": {}}
_CHECK_FUNCS: dict = {}


def _buffer_file(name, shape, dtype):
    return f"{name}.{'_'.join(str(d) for d in shape)}_{dtype}.npy"


def _load_buffer(name):
    try:
        entries = sorted(os.listdir("."))
    except OSError:  # the working directory is gone, or may not be listed
        entries = []
    for entry in entries:
        if not (entry.startswith(name + ".") and entry.endswith(".npy")):
            continue
        shape_text, _, dtype = entry[len(name) + 1 : -4].rpartition("_")
        try:
            shape = tuple(int(d) for d in shape_text.split("_") if d)
        except ValueError:
            continue
        try:
            return np.load(entry, allow_pickle=False)
        except ValueError:  # written by older releases: numbers as text
            return np.loadtxt(entry).astype(dtype).reshape(shape)
    return None


def _found_in_file(table, name):
    """Takes an input from its file, where there is one; whether there is."""
    found = _load_buffer(name)
    if found is not None:
        table[name] = nd.array(found)
    return found is not None


def _host_array(data):
    return np.ascontiguousarray(data.numpy() if hasattr(data, "numpy") else data)


def _check_fit(argument, tensor, array, takes):
    """ValueError unless an array of a user has the shape of a tensor, and the type of its values as they are stored."""
    shape = tuple(int(n) for n in tensor.shape)
    if (array.shape, array.dtype) != (shape, stored(tensor.dtype)):
        raise ValueError(f"{argument} for {tensor.op.name} is {array.dtype} {array.shape}; {takes} {tensor.dtype} {shape}")


def register_task_input_buffer(workload_key, input_name, input_data, overwrite=False, save_to_file=False):
    """Registers a fixed input for measuring and returns the array in use. Raises RuntimeError if the name is
    taken and `overwrite` is not set.
    """
    table = _BUFFERS.setdefault(workload_key, {})
    if not overwrite:
        if input_name in table:
            raise RuntimeError(f"Tensor {input_name} exists already; pass overwrite=True to replace it")
        if _found_in_file(table, input_name):
            return table[input_name]
    table[input_name] = input_data
    if save_to_file:
        data = _host_array(input_data)
        np.save(_buffer_file(input_name, data.shape, data.dtype), data)
    return input_data


def get_task_input_buffer(workload_key, input_name):
    """A registered input: of this workload, from a file, or of the "default" table; `ValueError` if missing."""
    table = _BUFFERS.setdefault(workload_key, {})
    if input_name not in table:
        _found_in_file(table, input_name)
    for t in (table, _BUFFERS["default"]):
        if input_name in t:
            return t[input_name]
    raise ValueError(f"{input_name} not found in the registered inputs of {workload_key}; use "
                     "register_task_input_buffer")


def task_input_of(tensors):
    """The name under which `task_inputs` knows each of `tensors` (a task's inputs and outputs): that of the placeholder,
    or what a function registered with `register_task_input_check_func` says; None for the others."""
    tensors = list(tensors)
    said: dict = {}
    for f in _CHECK_FUNCS.values():
        said.update(f(tensors))
    return [said.get(t, t.op.name if t.op.is_placeholder else None) for t in tensors]


def register_task_input_check_func(func_name, f=None, override=False):
    """Registers a function from a list of tensors to {tensor: buffer name}. Raises ValueError if `func_name` is neither
    a string nor a function, RuntimeError if it is taken.
    """
    if callable(func_name):
        f, func_name = func_name, func_name.__qualname__
    if not isinstance(func_name, str):
        raise ValueError("expect string function name")

    def register(func):
        if func_name in _CHECK_FUNCS and not override:
            raise RuntimeError(f"{func_name} has been registered already")
        _CHECK_FUNCS[func_name] = func
        return func

    return register(f) if f is not None else register


def recover_measure_input(inp, rebuild_state=False):
    """The input with the DAG that reading a log leaves out; with `rebuild_state` also the state's stages.

    Raises ValueError (TVMValueError) if the record's task is unknown or cannot be made, or its steps cannot be applied.
    """
    task = inp.task
    if getattr(task, "compute_dag", None) is None:
        given = {"workload_key": task.workload_key, "target": task.target, "target_host": task.target_host,
                 "hardware_params": task.hardware_params, "layout_rewrite_option": task.layout_rewrite_option,
                 "math": task.math, "task_inputs": list(task.task_input_names)}
        try:
            task = SearchTask(**given)
        except (ValueError, RuntimeError):
            raise
        except Exception as e:  # a user's function is called with what the log says
            key = check.shown(given["workload_key"], 400)
            raise TVMValueError(f"workload {key} of a record cannot be made: {type(e).__name__}: {e}") from e
    state = core_state(inp.state)
    if rebuild_state and not isinstance(state, _core.State):
        state = _core.State(task.compute_dag, state.steps())
    if isinstance(state, _core.State):
        state = task.compute_dag.wrap_state(state.infer_bounds() if rebuild_state else state)
    return MeasureInput(task, state)


# ---- names of older releases ----


def create_task(func, args, target, target_host=None, hardware_params=None):
    """Older name of `SearchTask(func=..., args=...)`."""
    return SearchTask(func=func, args=args, target=target, target_host=target_host, hardware_params=hardware_params)


def auto_schedule(task, search_policy=None, tuning_options=None):
    """Older form of `task.tune`: tunes and returns (schedule, tensors) of the best state. Raises ValueError if `task` is
    no SearchTask, RuntimeError if nothing valid was found.
    """
    if not isinstance(task, SearchTask):
        raise ValueError("Invalid task: " + str(task) + " . `auto_scheduler.auto_schedule` expects a SearchTask.")
    state = task.tune(tuning_options or TuningOptions(), search_policy)
    if state is None:
        raise RuntimeError("no valid schedule was found for " + task.workload_key)
    return task.compute_dag.apply_steps_from_state(state, task.layout_rewrite_option)
