"""From a configuration to what the engine builds and runs.

A template's schedule is a list of steps over a compute DAG, as a state of the auto-scheduler is, so both are built, checked and
timed by the same machinery: here a configuration becomes a state of a search task. The DAG may depend on the configuration
(packed layouts), so a task of templates has a search task for each DAG that comes up; all have one workload key, by which the
best time so far is kept.
"""

import json
import traceback

from ... import _core, te
from ...auto_scheduler import ComputeDAG, SearchTask
from ...auto_scheduler.hardware import FIELDS, HardwareParams
from ...auto_scheduler.measure import MeasureInput as EngineInput
from ...states import core_state
from ...target import HAND_LOCAL_BYTES, HAND_VTHREADS, hand_vector_bytes
from ..task.dispatcher import DispatchContext
from .measure import MeasureErrorNo, MeasureResult

__all__ = ["Programs", "advise", "failure", "limits_of", "state_of"]

MOST_TEXT = 1024  # of an error


def shortened(text):
    """An error text without the source and the stack of the engine, cut."""
    text = str(text)
    for end in ("Stack trace", "Compilation error"):
        at = text.find(end)
        if at > 0:
            text = text[:at]
    return text[:MOST_TEXT]


def failure(number, error, all_cost, timestamp, trace="", extra=None):
    """A MeasureResult of something that went wrong.

    Parameters
    ----------
    number : MeasureErrorNo
    error : Exception
    all_cost, timestamp : float
    trace : str
        Where it was raised, if in Python.
    extra : dict, optional
    """
    return MeasureResult((shortened(trace or error), error), int(number), all_cost, timestamp, extra)


def limits_of(target):
    """What a GPU of this target can do, in the names of build arguments: {"check_gpu": ...}; nothing for a CPU."""
    if "gpu" not in target.keys:
        return {}
    hw = HardwareParams(target=target)
    return {
        "check_gpu": {"max_threads_per_block": hw.max_threads_per_block,
                      "max_shared_memory_per_block": hw.max_shared_memory_per_block}
    }


def advise(target, device):
    """Tells whoever tunes for any OpenCL device on one that has templates of its own. ``device``: its name."""
    if target.kind.name == "opencl" and "mali" not in target.keys and "mali" in device.lower():
        DispatchContext.warn_once(f"the device is {device}: templates of Mali GPUs are tuned for the target 'opencl -device=mali'")


def state_of(task, config, target):
    """What a configuration computes and how: (ComputeDAG, State of it).

    Raises what the template raises; what it notes as an error of the configuration is in ``config.errors``.
    """
    with target:
        schedule, tensors = task.instantiate(config)
    dag = ComputeDAG(list(tensors))
    return dag, dag.state_from_schedule(schedule)


def _alone(error):
    """The exception without the frames that it went through, which hold all that the template has defined."""
    e = error
    while e is not None:
        e.__traceback__, e = None, e.__cause__ or e.__context__
    return error


class Programs:
    """Makes states of the configurations of one task.

    Parameters
    ----------
    task : autotvm.task.Task
    limits : dict, optional
        Of the GPU that runs them: fields of `HardwareParams` that replace the target's.
    inputs : list of array, optional
        What they are measured with.
    """

    def __init__(self, task, limits=None, inputs=None):
        self.task, self._tasks, self._inputs = task, {}, inputs
        known = {k: int(v) for k, v in (limits or {}).items() if k.startswith("max_") and k in FIELDS}
        own = {"max_vthread_extent": HAND_VTHREADS, "vector_unit_bytes": hand_vector_bytes(task.target),
               "max_local_memory_per_block": HAND_LOCAL_BYTES}
        self._hardware = HardwareParams(target=task.target, **{**own, **known})
        self._key = json.dumps([task.name, task.args], default=str)

    def of(self, inp):
        """The engine's input for a configuration. Raises what the template raises or has noted as an error."""
        with te.scratch():  # of the definitions only those of a new computation stay
            key, steps = self._steps(inp)
        return EngineInput(self._tasks[key], _core.State(self._tasks[key].compute_dag, steps))

    def _steps(self, inp):
        """Which of the search tasks a configuration is a state of, and the state's steps."""
        dag, state = state_of(self.task, inp.config, inp.target)
        if not inp.config.valid():
            raise inp.config.errors[0]
        key = dag.workload_key()
        if key not in self._tasks:
            dag.detach()
            self._tasks[key] = SearchTask(compute_dag=dag, workload_key=self._key, target=inp.target,
                                          hardware_params=self._hardware, layout_rewrite_option=0, desc=self.task.name)
            self._tasks[key].given_inputs = self._inputs
        return key, core_state(state).steps()

    def try_of(self, inp, now):
        """The engine's input, or the MeasureResult that says why there is none."""
        with te.scratch():
            try:
                return self.of(inp)
            except Exception as e:  # noqa: BLE001 - what a template does is the result of its configuration
                number = MeasureErrorNo.INSTANTIATION_ERROR if inp.config.errors else MeasureErrorNo.COMPILE_HOST
                return failure(number, _alone(e), 0.0, now(), "".join(traceback.format_exception(e, limit=-2)))

