"""Search policies: how candidates of one task are proposed."""

import logging
import os
import random
import time

from nestsmith import _core, check
from nestsmith.error import TVMValueError

from ..numerics import MATH_MODES, mode_fits, needed_math, unfit
from ..states import core_state, handle_of
from .cost import FAILED, seconds_of
from .cost_model import AnalyticModel, RandomModel
from .display import emit, title
from .holdings import Holdings, mode_of
from .measure import MeasureInput
from .measure_record import RecordReader, RecordState
from .models import make_cost_model
from .workload_keys import decode_workload_key

__all__ = ["SearchPolicy", "SketchPolicy", "EmptyPolicy", "SearchCallback", "PreloadMeasuredStates",
           "PreloadCustomSketchRule"]

logger = logging.getLogger("auto_scheduler")


def threads():
    """Threads that the search may use."""
    text = os.environ.get("NESTSMITH_SEARCH_THREADS", "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SearchCallback:
    """Base of callbacks that run once, when a policy is made."""

    def __call__(self, policy):
        raise NotImplementedError


class PreloadMeasuredStates(SearchCallback):
    """Marks the states of a log as measured: they are not measured again, and the good ones come back as parents.

    Parameters
    ----------
    filename : str
        Log of an earlier run. Records of the same workload key and the same kind of target count.
    """

    def __init__(self, filename):
        self.filename = filename
        self._held, self._version = Holdings(), None  # of the file as it was last: several policies ask for it

    def _log(self):
        if not RecordReader(self.filename).is_there():
            return Holdings.of_log(self.filename)
        now = os.stat(self.filename)
        version = now.st_ino, now.st_size, now.st_mtime_ns
        if version != self._version:
            self._held, self._version = Holdings.of_log(self.filename), version
        return self._held

    def __call__(self, policy):
        task, kind, n, bad = policy.search_task, policy.search_task.target.kind.name, 0, 0
        names = [decode_workload_key(k) for k in task.keys]
        held = self._log()
        own = {i for i, g in enumerate(held.groups) if g and g[0] in names and g[1] == kind and mode_fits(mode_of(g[2]), task.math)}
        for inp, res in RecordReader(self.filename).at(held.log.places(own) if own else ()):
            try:
                policy.preload(inp, res)
                n += 1
            except (ValueError, RuntimeError) as e:
                bad += 1
                logger.info("%s: a record does not replay: %s", self.filename, e)
        if policy.verbose >= 1:
            if n:
                print(f"SearchPolicy: Loaded {n} measurement records from {self.filename} for {task.workload_key}"
                      + (f" ({bad} did not replay)" if bad else ""))
            else:
                print(f"SearchPolicy: No measurement records found in {self.filename} for {task.workload_key}: "
                      f"{held.records} records read, "
                      f"{held.why_not(names, kind, math=task.math) or f'{bad} of them did not replay'}")


class PreloadCustomSketchRule(SearchCallback):
    """A user's sketch rule, asked before the built-in ones.

    Parameters
    ----------
    meet_condition_func : callable
        (policy, state, stage_id) -> `PASS`, `APPLY` or `APPLY_AND_SKIP_REST`.
    apply_func : callable
        (policy, state, stage_id) -> list of [state, next_stage_id]; -1 ends the derivation.
    rule_name : str
    """

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(self, meet_condition_func, apply_func, rule_name="CustomSketchRule"):
        self.meet_condition_func, self.apply_func, self.rule_name = meet_condition_func, apply_func, rule_name

    def __call__(self, policy):
        def check(state, stage):
            v = self.meet_condition_func(policy, _wrap(policy, state), stage)
            if isinstance(v, bool) or not isinstance(v, int):
                logger.warning("%s: the condition returned %r instead of a constant; the rule is applied and the rest "
                               "skipped", self.rule_name, v)
                return self.APPLY_AND_SKIP_REST
            return v

        def apply(state, stage):
            return self.apply_func(policy, _wrap(policy, state), stage)

        policy.engine.add_rule(check, apply)


def _wrap(policy, state):
    """States reach users' rules in the form that `ComputeDAG` hands out."""
    make = getattr(policy.search_task.compute_dag, "wrap_state", None)
    return make(state) if make else state


class NothingFound(TVMValueError):
    """A search has no valid program to propose: the message says why. Tuning of several tasks goes on without this one."""


class SearchPolicy:
    """Base of policies."""

    def __init__(self, task, init_search_callbacks=None, verbose=1):
        self.search_task, self.verbose = task, verbose
        callbacks = list(init_search_callbacks or [])
        if callbacks and verbose >= 1:
            title("Call init-search callbacks")
        for c in callbacks:
            c(self)

    def set_verbose(self, verbose):
        """0 silent, 1 progress."""
        self.verbose = verbose

    def preload(self, inp, res):
        """A record of an earlier run. Raises ValueError if the task may not compute as the record does."""

    def propose(self, n):
        """Up to `n` states to measure next; an empty list when the space is used up."""
        raise NotImplementedError

    def learn(self, inputs, results):
        """Results of what was proposed."""

    def for_session(self, local, memory):
        """A run begins. `local`: the engine's own sessions measure what is proposed; `memory`: bytes that the search may take
        to remember what it need not do again."""

    def begin_round(self, done, total):
        """A round of a run begins: `done` of its `total` trials are given out already."""

    def cancel(self):
        """Makes a running `propose` or `learn` in another thread end soon, where that is possible."""

    def continue_search_one_round(self, num_measure, measurer):
        """One round: search, measure, learn. Returns (inputs, results), both empty when the space is used up."""
        inputs = [MeasureInput(self.search_task, s) for s in self.propose(num_measure)]
        if not inputs:
            return [], []
        results = measurer.measure(self.search_task, self, inputs)
        self.learn(inputs[: len(results)], results)
        return inputs[: len(results)], results


class EmptyPolicy(SearchPolicy):
    """Always proposes the program as written, without any schedule. For tests."""

    def __init__(self, task, init_search_callbacks=None):
        super().__init__(task, init_search_callbacks)

    def propose(self, n):
        return [self.search_task.compute_dag.get_init_state()]


def _tensor_cores(task, asked):
    """What the search parameter stands for in a task."""
    most = MATH_MODES[task.math].tensor_cores
    if isinstance(asked, str):
        check.one_of_names("search parameter tensor_cores:", asked, ("auto",))
        return most
    asks, single = next((m for m, row in MATH_MODES.items() if row.tensor_cores == asked), "strict"), MATH_MODES[task.math].single
    if not mode_fits(asks, single):
        how = "strictly" if single == "strict" else f"as {single}"
        raise ValueError(f'search parameter tensor_cores is {asked}, but the task is to compute float32 {how}; make it with math="{asks}"')
    return asked


def _wide_stores(task, asked):
    """What the search parameter stands for in a task."""
    if not isinstance(asked, str):
        return asked
    check.one_of_names("search parameter wide_stores:", asked, ("auto",))
    machine = task.engine_target().machine  # None: a CPU
    return int(machine is not None and machine["sm"] == 90)


class SketchPolicy(SearchPolicy):
    """Sketches, random completion, evolution by mutation.

    Parameters
    ----------
    task : SearchTask
    program_cost_model : CostModel or str, optional
        Ranks candidates; random by default, as users of the published scripts expect. Tuning uses a learned model.
    params : dict, optional
        Overrides of `DEFAULT_PARAMS`; the missing keys are filled in. ``search_mode`` is "extended" or "compatible":
        on a GPU the extended mode draws and mutates sizes within the limits of the device and chooses thread counts
        and vector widths of loads; the compatible mode draws like the reference, with its shares of refused samples.
        Both make the same kinds of steps, so records of either can be read by both. ``thread_sums`` adds, in the extended
        mode, a sketch for the product of a matrix and a vector, in which the threads of a block share the sum of one
        element, to the tiled one; 0 leaves it to sizes for which the reference has it. ``states_per_tiling_in_batch`` and
        ``states_per_tiling`` limit, in the extended mode, how many states with one tiling of the output (equal splits
        into the most levels) are measured for each eight candidates of a round and in all, as long as others are left;
        the latter grows with the number of measured states. Random picks (``eps_greedy``) and programs without such
        splits are not limited; a round of fewer than eight counts as eight. 0: no limit. ``double_buffer_prob`` lets
        the extended mode use double buffers: the probability with which a drawn GPU candidate fills its tiles in shared
        memory while the block works on the ones before, and with which a mutation begins or ends that for a kernel.
        0 (never) unless given: the space grows by it, the trials do not. ``tensor_cores`` lets the extended mode compute
        products of matrices (dense, batched products, convolutions) on the tensor cores of CUDA devices from compute
        capability 7.5 on: 0 never, 1 those of float16 and (from 8.0 on) bfloat16, added up in float32, and of integers of 8 bits, which
        are in int32, 2 those of float32 as well, whose factors are rounded to TF32 (10 bits behind the first), if `task.math` is
        "tf32" (from 8.0 on), 3 instead with three such products for one, if it is "float32x3" or "tf32"; "auto": 2 or 3 for tasks of these
        modes, 1 for others. ``lane_products``: 1 adds such
        programs for float32 that stays float32 or may be "float32x3", in which slices of the factors are copied while others are multiplied, by the
        threads themselves, and blocks may share a sum; 0: never. ``warpgroups``:
        1 adds programs that do this by instructions of four warps (``wgmma``, compute capability 9.0), for which TF32 factors
        are cut off, not rounded, 2 such of two slices at a time as well; 0: never. ``wide_stores``: 1 lets programs on tensor
        cores pass their results through shared memory, so that a warp stores whole lines, 0: never; "auto": 1 on compute
        capability 9.0, where it was measured, 0 elsewhere. ``last_blocks``: 1 lets the last of the blocks that share a sum add it
        up in the same kernel, in place of a cluster or a second kernel; 0: never. ``descent``: in the extended mode, the share of a run's trials,
        its last ones, that are neighbours of the fastest measured state: candidates in which one decision is another one, of
        each decision those that the cost model likes best. 0: none.
    seed : int, optional
        Equal seeds give equal searches, whatever the number of threads; random if missing.
    verbose : int
    init_search_callbacks : list, optional
    """

    DEFAULT_PARAMS = {"eps_greedy": 0.05, "retry_search_one_round_on_empty": 1, "sample_init_min_population": 50,
                      "sample_init_use_measured_ratio": 0.2, "evolutionary_search_population": 2048,
                      "evolutionary_search_num_iters": 4, "evolutionary_search_mutation_prob": 0.85,
                      "cpu_multi_level_tiling_structure": "SSRSRS", "gpu_multi_level_tiling_structure": "SSSRRSRS",
                      "max_innermost_split_factor": 64, "max_vectorize_size": 16, "disable_change_compute_location": 0,
                      "search_mode": "extended", "thread_sums": 1, "states_per_tiling_in_batch": 1,
                      "states_per_tiling": 8, "double_buffer_prob": 0.0, "tensor_cores": "auto", "lane_products": 1,
                      "warpgroups": 2, "wide_stores": "auto", "last_blocks": 0, "descent": 0.1}

    def __init__(self, task, program_cost_model=None, params=None, seed=None, verbose=1, init_search_callbacks=None):
        params = {} if params is None else params
        for key in params:
            check.one_of_names("search parameter", key, self.DEFAULT_PARAMS)
        for key, value in self.DEFAULT_PARAMS.items():
            params.setdefault(key, value)
        model = make_cost_model("random" if program_cost_model is None else program_cost_model)
        self.params, self.program_cost_model = params, model
        self.seed = seed or random.randint(1, 1 << 30)
        engine = {**params, "tensor_cores": _tensor_cores(task, params["tensor_cores"])}
        engine["half_sums"] = int(MATH_MODES[task.math].half_sums)
        engine["wide_stores"] = _wide_stores(task, params["wide_stores"])
        if isinstance(model, RandomModel):
            engine["evolutionary_search_num_iters"] = min(2, engine["evolutionary_search_num_iters"])
        self.engine = _core.Policy(task.compute_dag, task.engine_target(), engine, self.seed, threads())
        self.engine.set_scorer(model.scorer(task, self.engine))
        self.engine.set_listener(self._progress)
        self._retries = params["retry_search_one_round_on_empty"]
        self.search_seconds = 0.0
        super().__init__(task, init_search_callbacks, verbose)

    def _progress(self, kind, it, count, failed, best, least, seconds, mutated, refused):
        if self.verbose < 1:
            return
        if kind == 0:
            text = f"Generate Sketches\t\t#s: {count}"
        elif kind == 1:
            goal = self.params["sample_init_min_population"]
            text = f"Sample Iter: {it}\t#Pop: {count}\t#Target: {goal}\tfail_ct: {failed}\tTime elapsed: {seconds:.2f}"
        elif kind == 2:
            text = f"Sample Initial Population\t#s: {count}\tfail_ct: {failed}\tTime elapsed: {seconds:.2f}"
        elif kind == 3:
            text = f"GA Iter: {it}\tMax score: {best:.4f}\tMin score: {least:.4f}\t#Pop: {count}\t"
            text += f"#M+: {mutated:.0f}\t#M-: {refused:.0f}"
        elif kind == 4:
            text = f"EvolutionarySearch\t\t#s: {count}\tTime elapsed: {seconds:.2f}"
        elif kind == 6:
            text = f"Coordinate Descent\t\t#s: {count} of {count + failed} neighbours\tTime elapsed: {seconds:.2f}"
        else:
            text = f"#Target has been reduced to {count} due to too many failures or duplications"
        emit(text)

    def generate_sketches(self, print_for_debug=False):
        """All sketches of the task: states whose tile sizes are still open."""
        out = [_wrap(self, s) for s in self._engine_call(self.engine.sketches)]
        if print_for_debug:
            for i, s in enumerate(out):
                print("=" * 20 + f" {i} " + "=" * 20)
                print(s)
        return out

    def _engine_call(self, fn, *args):
        """An engine call. What a user's rule or cost model raised comes out as it is, with its own traceback; that the
        engine finds nothing is `NothingFound`."""
        try:
            return fn(*args)
        except (RuntimeError, ValueError) as e:
            failure = e.__cause__ or (NothingFound(*e.args) if isinstance(e, ValueError) else e)
        raise failure

    def sample_initial_population(self):
        """Distinct valid states. Raises `NothingFound` if none is found in bounded time."""
        return [_wrap(self, s) for s in self._engine_call(self.engine.sample)]

    def evolutionary_search(self, init_populations, out_size):
        """Up to `out_size` states bred from the given ones, best first; none that was measured."""
        return [_wrap(self, s)
                for s in self._engine_call(self.engine.evolve, [core_state(s) for s in init_populations], out_size)]

    def preload(self, inp, res):
        state = inp.state.steps() if isinstance(inp.state, RecordState) else handle_of(inp.state)
        task = self.search_task
        needs = needed_math(task.compute_dag, state if isinstance(state, str) else state.steps())
        if not mode_fits(needs, task.math):
            raise ValueError(f'the record {unfit(needs)}, the task\'s math is "{task.math}"')
        self._report(state, res)

    def _report(self, state, res):
        cost = seconds_of(res)
        self.engine.report(state, cost, cost < FAILED)

    def hint(self, state, first=False):
        """A state of this task that may be good, from wherever: it joins the first generation of later rounds. `first`: it is
        measured in the next round, if at most half of that is such states."""
        self.engine.hint(handle_of(state), first)

    def propose(self, n):
        if self.verbose >= 1:
            title("Search")
        t0 = time.time()
        for _ in range(self._retries + 1):
            out = self._engine_call(self.engine.candidates, n)
            if out:
                break
        self.search_seconds += time.time() - t0
        return [_wrap(self, c) for c in out]

    def for_session(self, local, memory):
        self.engine.remember(min(memory, 32 << 20))
        if local:
            self.engine.want_programs(int(self.search_task.layout_rewrite_option or 0))

    def begin_round(self, done, total):
        self.engine.progress(done, total)

    def learn(self, inputs, results):
        for i, r in zip(inputs, results):
            self._report(handle_of(i.state), r)
        t0 = time.time()
        self.program_cost_model.update(inputs, results)
        if self.verbose >= 1 and not isinstance(self.program_cost_model, (RandomModel, AnalyticModel)):
            title("Train cost model")
            emit(f"Time elapsed for training: {time.time() - t0:.2f} s")

    def cancel(self):
        self.engine.cancel()
        self.program_cost_model.cancel()
