"""Measuring: candidates in, results out, with compiling and running overlapped by the engine.

A `Measurer` serves a whole tuning run. `submit` queues a batch and returns at once; `wait` collects it. Results reach
callbacks as they come out, so that a log is complete up to the last finished candidate whatever happens.
"""

import concurrent.futures
import logging
import os
import queue
import threading
import time
from collections import Counter

from nestsmith import _core

from ..states import handle_of
from .cost import FAILED, NOTHING, Cost, cause_of, rank_of, seconds_of
from .display import Progress, short, title
from .measure import LocalBuilder, LocalRunner, MeasureInput, MeasureResult, cannot_check, check_row, details, one_each
from .measure_record import RecordReader, RecordToFile
from .models import make_cost_model
from .signals import Held

__all__ = ["Measurer", "SearchThread", "StopTuning", "tune_alone", "default_model"]

logger = logging.getLogger("auto_scheduler")

MAX_FAILURES_IN_A_ROW = 150
DRAIN_SECONDS = 0.7  # for what is being measured when a run is ended
MEMORY = 384 << 20  # bytes that all searches of a run may take to remember states that they met before
SEARCH_SECONDS = 1.0  # for what users' code does in the search thread then; the engine ends in much less
ASK_SECONDS = 60.0  # for a compiler that is asked whether it knows a processor
TASK_TRIES = 2  # a compiler that somebody kills must not end a run


class StopTuning(Exception):
    """Raised by a callback to end the run in good order."""


def default_model(adaptive_training=False, model_file=None, num_warmup_sample=100):
    """The model that tuning uses when the user names none."""
    return make_cost_model("auto", None, model_file, num_warmup_sample, adaptive_training)


def check_compilers(options, tasks):
    """RuntimeError if a compiler is missing here: better now than as the result of every candidate."""
    if type(options.builder) is not LocalBuilder:
        return
    for t in tasks:
        engine = t.target.engine()
        there, why = _core.build_available(engine)
        if there and engine.cpu:  # a name that the compiler may not know
            try:
                _core.build(engine, "int nestsmith_asks;", ASK_SECONDS)
            except RuntimeError as e:
                there, why = False, e
        if not there:
            raise RuntimeError(f"candidates for {t.target.kind.name} cannot be compiled: {why}")


class _Batch:
    def __init__(self, task, policy, inputs, verify=False):
        self.task, self.policy, self.inputs, self.verify = task, policy, list(inputs), verify
        self.results = [None] * len(self.inputs)
        self.left, self.recalled = len(self.inputs), []
        # Of a user's own builder and runner. Not a SimpleQueue: where signals interrupt its `get` until the time is over, it
        # waits forever (CPython 3.11).
        self.future, self.arrived = None, queue.Queue()
        self.away = []  # futures of groups that a runner measures elsewhere
        self.first_tag, self.started, self.ended = 0, time.time(), 0.0


class Measurer:
    """Builds and runs candidates for all tasks of a run.

    In a ``with`` block it holds the signals (`signals.Held`): they are acted upon in `poll` and in users' callbacks.

    Parameters
    ----------
    options : TuningOptions
        Builder, runner, callbacks and verbosity.
    progress : Progress, optional
        Told about every result.
    check : bool
        Compare every candidate's output with the unscheduled program's.
    """

    def __init__(self, options, progress=None, check=True):
        self.options, self.check, self.verbose = options, check, options.verbose
        self.progress = progress or Progress(options.num_measure_trials, 0)
        self.trials = self.valid = 0
        self.causes = Counter()
        self.best = {}  # rank of the best result by workload key
        self.known = {}  # results of an earlier run by (workload key, steps): not measured again
        self.failures_in_a_row = {}
        self._sessions, self._tasks, self._tags, self._next_tag = {}, {}, {}, 0
        self._pool = self._helpers = None
        self._ready = {}
        self._process = os.getpid()
        self._lock = threading.RLock()  # submit may run in another thread than poll and close
        self._diagnosed = set()
        self._failed_callbacks, self._ending = [], False
        self._foreign_batches = []
        self.signals = Held()
        self.stop = _core.Stop()  # ends what other threads prepare when the run ends before its time
        self.split = TimeSplit()

    def __enter__(self):
        self.signals.__enter__()
        return self

    def __exit__(self, *exc):
        try:
            self.close()
        finally:
            self.signals.__exit__(*exc)

    def close(self):
        """Ends all threads and processes; logs that could not be written before are tried once more."""
        if self._process != os.getpid():  # a forked child leaves what is its parent's
            return
        self.stop.set()
        for cb in self.options.measure_callbacks:
            try:
                getattr(cb, "flush", bool)()
            except OSError as e:
                logger.error("measure callback %s: records are lost: %s", type(cb).__name__, e)
        if self._helpers:
            self._helpers.shutdown(wait=True, cancel_futures=True)
            self._helpers = None
        with self._lock:
            for s in self._sessions.values():
                self.split.take(s.stats())
                s.close()
            self._sessions.clear()
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
            if isinstance(self.options.runner, LocalRunner):
                self.options.runner.close()  # users keep their runner; its processes start again when needed

    # ---- submitting ----

    @property
    def local(self):
        """Whether the engine's own sessions measure, not users' builders and runners."""
        return type(self.options.builder) is LocalBuilder and type(self.options.runner) is LocalRunner

    def _session(self, task):
        runner = self.options.runner
        key = task.target.engine()
        if key not in self._sessions:
            if self.stop.is_set():
                raise RuntimeError("the run has ended")
            builder = self.options.builder
            jobs = max(1, int(getattr(builder, "n_parallel", 0) or 0))
            self._sessions[key] = _core.Session(task.engine_target(), task.target.kind.device_type,
                                                getattr(runner, "device", 0) or 0, jobs, jobs,
                                                float(getattr(builder, "timeout", 15)),
                                                lock=int(getattr(runner, "lock_mode", 0)), stop=self.stop)
        return key, self._sessions[key]

    def prepare(self, tasks):
        """Starts the workers and makes the inputs and expected outputs of all tasks, in other threads."""
        if not self.local:
            return
        self._helpers = concurrent.futures.ThreadPoolExecutor(4)
        for t in tasks:
            self._ready[id(t)] = self._helpers.submit(self._make_task, t)

    def _session_task(self, task):
        ready = self._ready.get(id(task))
        return ready.result() if ready else self._make_task(task)

    def _make_task(self, task, check=None):
        check = self.check if check is None else check
        with self._lock:
            key, session = self._session(task)
        slot = key, id(task), check
        if slot not in self._tasks:
            layout = int(task.layout_rewrite_option or 0)
            inputs = task.fixed_inputs()
            try:
                number = self._try_task(session, task, layout, inputs, check)
            except RuntimeError as e:
                if not check or isinstance(e, ValueError):
                    raise
                cannot_check(task, e)
                number = session.task(task.compute_dag, task.engine_target(), layout, False, inputs)
            if task.constant_bytes:
                session.cold(number, sum(1 << i for i in task.constant_inputs), int(task.constant_bytes))
            self._tasks[slot] = (number, task)
            if task.workload_key in self.best:  # of an earlier run
                session.incumbent(number, self.best[task.workload_key][1])
        return session, self._tasks[slot][0]

    def _try_task(self, session, task, layout, inputs, check):
        """The session's number of a task. The compiler of its reference program may have been killed, or its directory
        removed: then once more."""
        for k in range(TASK_TRIES):
            try:
                return session.task(task.compute_dag, task.engine_target(), layout, check, inputs, check_row(task))
            except (RuntimeError, OSError) as e:
                if k + 1 == TASK_TRIES or isinstance(e, ValueError):
                    raise
                logger.info("the reference program of %s is made again: %s", task, str(e).splitlines()[0])
        raise AssertionError("unreachable")

    def submit(self, task, policy, inputs, verify=False):
        """Queues candidates; returns a handle for `wait`. `verify`: they have been measured without a check of their results;
        now they run once with it, and nobody is told."""
        batch = _Batch(task, policy, inputs, verify)
        todo = self._recall(batch)
        if not todo:
            return batch
        if not self.local:
            if self._pool is None:
                self._pool = concurrent.futures.ThreadPoolExecutor(self._builds_at_once())
            batch.future = self._pool.submit(self._foreign, batch, todo)
            self._foreign_batches.append(batch)
            return batch
        session, number = self._make_task(task, True) if verify else self._session_task(task)
        r = self.options.runner
        batch.first_tag = self._next_tag
        self._next_tag += len(todo)
        for k, i in enumerate(todo):
            self._tags[batch.first_tag + k] = (batch, i)
        states = [handle_of(batch.inputs[i].state) for i in todo]
        with self._lock:
            session.submit(number, states, batch.first_tag, r.verifying_policy() if verify else r.engine_policy(self.check, race=True))
        return batch

    def recall_from(self, log_file):
        """Takes the results of a log as those of the same candidates of this run. Returns how many there are."""
        for inp, res in RecordReader(log_file):
            self.known.setdefault((inp.task.workload_key, inp.state.steps()), res)
        return len(self.known)

    def _recall(self, batch):
        """Fills in what an earlier run has measured; returns the indices of the rest."""
        todo = []
        for i, inp in enumerate(batch.inputs):
            res = self.known.get((batch.task.workload_key, handle_of(inp.state).steps())) if self.known else None
            if res is None:
                todo.append(i)
            else:
                batch.results[i] = res
                batch.left -= 1
                batch.recalled.append((i, res))
        return todo

    def _builds_at_once(self):
        """Batches: a batch waits for its slowest program, and another one has work for the idle compile threads meanwhile. What
        users write is called by one thread at a time."""
        runner = self.options.runner
        away = type(self.options.builder) is LocalBuilder and hasattr(runner, "start")
        return 1 + max(1, int(runner.devices)) if away else 1

    def _foreign(self, batch, todo):
        """A user's own builder and runner: groups are built, then run, and arrive one by one."""
        size = 2 * max(1, int(getattr(self.options.builder, "n_parallel", 1) or 1))
        verbose = self.verbose if self.progress.style == "text" else 0
        builder, runner = self.options.builder, self.options.runner
        for k in range(0, len(todo), size):
            if self.stop.is_set():
                return
            group = [batch.inputs[i] for i in todo[k : k + size]]
            built = one_each(builder, "build", builder.build(group, verbose), group)
            if hasattr(runner, "start"):  # the next group is built while this one is measured
                batch.away.append(self._start_away(batch, todo[k : k + size], group, built))
                continue
            results = one_each(runner, "run", runner.run(group, built, verbose), group)
            self._arrive(batch, todo[k : k + size], results)

    def _arrive(self, batch, numbers, results):
        ended = self.stop.is_set()  # then what failed may have failed for that
        batch.arrived.put([(i, r) for i, r in zip(numbers, results) if not (ended and r.error_no)])

    def _start_away(self, batch, numbers, group, built):
        key = batch.task.workload_key
        future = self.options.runner.start(group, built, lambda: self.best[key][1] if key in self.best else 0.0,
                                           race=True, checked=self.check)
        landed = concurrent.futures.Future()  # done once the results have arrived

        def land(f):
            if f.cancelled():
                landed.cancel()
            elif f.exception() is not None:
                landed.set_exception(f.exception())
            else:
                self._arrive(batch, numbers, f.result())
                landed.set_result(None)

        future.add_done_callback(land)
        return landed

    # ---- collecting ----

    def wait(self, batch):
        """Results of a batch in the order of its inputs. On Ctrl-C, or where a callback raises, what runs is finished and
        recorded."""
        try:
            while batch.left > 0:
                self.poll(0.2)
        except BaseException:
            self.drain()
            raise
        return self.finish(batch)

    def measure(self, task, policy, inputs):
        """Submits and waits."""
        return self.wait(self.submit(task, policy, inputs))

    def poll(self, wait=0.0):
        """Takes in what has come out; waits up to `wait` seconds for the first. Acts upon signals that have come."""
        foreign = list(self._foreign_batches)  # the search thread may add one meanwhile
        for b in foreign:
            self._take_foreign_results(b, wait)
            if b.left == 0:
                self._foreign_batches.remove(b)
        if self._sessions:
            self._take_session_results(0.0 if foreign else wait)
        elif wait and not foreign:
            time.sleep(wait)
        self.signals.check()

    def finish(self, batch):
        """After the last result of a batch has come out."""
        batch.ended = time.time()
        self._account([(batch, i, r, "") for i, r in batch.recalled], call_back=False)  # these are in the log already
        self.progress.measured(batch)
        self._diagnose(batch)
        return batch.results

    def _take_foreign_results(self, batch, wait):
        done = batch.future.done() and all(f.done() for f in batch.away)  # asked first: what arrived before is taken below
        try:
            pairs = batch.arrived.get(timeout=0 if done else wait)
        except queue.Empty:
            if done:
                batch.left = 0
                for f in [batch.future, *batch.away]:
                    if not f.cancelled():
                        f.result()  # raises what the builder or the runner raised
            return
        for i, r in pairs:
            batch.results[i] = r
        batch.left -= len(pairs)
        self._account([(batch, i, r, "") for i, r in pairs])

    def _take_session_results(self, wait):
        out = []
        sessions = list(self._sessions.values())
        pending = [s for s in sessions if s.pending()]
        if wait and not pending:
            time.sleep(wait)
        for s in pending:
            for d in s.poll(wait if len(pending) == 1 else min(wait, 0.02)):
                batch, i = self._tags.pop(d["tag"])
                ok = d["error"] == 0
                res = MeasureResult(d["costs"] if ok and d["costs"] else [FAILED], d["error"], d["msg"],
                                    d["build_seconds"] + d["run_seconds"], time.time())
                res.extra = details(d)
                res.extra["l2"] = getattr(self.options.runner, "l2", "mixed")
                batch.results[i] = res
                batch.left -= 1
                out.append((batch, i, res, d["cause"]))
        for s in sessions:
            text = s.notice()
            if text:
                self.progress.say(text.rstrip())
        if out:
            self._account(out)

    def _account(self, items, call_back=True):
        groups = {}
        for batch, i, res, cause in items:
            if batch.verify:
                continue
            self.trials += 1
            res.costs = [Cost(f"{c:.6g}") for c in res.costs]  # as in the log, so that a resumed run knows the same
            key = batch.task.workload_key
            if seconds_of(res) < FAILED:
                self.valid += 1
                self.failures_in_a_row[key] = ("", 0)
                self.best[key] = min(self.best.get(key, NOTHING), rank_of(res))
            else:
                cause = cause or cause_of(res)
                self.causes[cause] += 1
                last, n = self.failures_in_a_row.get(key, ("", 0))
                self.failures_in_a_row[key] = (cause, n + 1 if cause == last or n == 0 else 1)
            self.progress.result(batch, res, batch.inputs[i])
            groups.setdefault(id(batch), (batch, []))[1].append((batch.inputs[i], res))
        if call_back:
            self._call_back(groups.values())

    def _call_back(self, groups):
        """All callbacks are told about all batches, the one that keeps the log among them; then what the first of them
        raised is raised. One that has failed is not asked again while the run ends."""
        failure = None
        for batch, pairs in groups:
            inputs, results = [p[0] for p in pairs], [p[1] for p in pairs]
            for cb in self.options.measure_callbacks:
                if any(cb is f for f in self._failed_callbacks):
                    continue
                try:
                    told = cb.callback if hasattr(cb, "callback") else cb
                    if isinstance(cb, RecordToFile):  # no signal between a measurement and its record
                        told(batch.policy, inputs, results)
                    else:
                        self.signals.call(told, batch.policy, inputs, results)
                except BaseException as e:
                    if not isinstance(e, (KeyboardInterrupt, SystemExit, StopTuning)):
                        self._failed_callbacks.append(cb)
                    if failure is None:
                        failure = e
                    else:
                        logger.error("measure callback %s failed as well:", type(cb).__name__, exc_info=e)
        if failure is None or (self._ending and isinstance(failure, StopTuning)):
            return
        if self._ending and isinstance(failure, Exception):  # another one ended the run and is on its way to the user
            logger.error("a measure callback failed while the run ended:", exc_info=failure)
            return
        raise failure

    def drain(self):
        """The run ends before its time, by Ctrl-C or an error: nothing new starts; what is measured within
        `DRAIN_SECONDS` is recorded, the rest is dropped."""
        self._ending = True
        self.stop.set()
        try:
            for s in self._sessions.values():
                s.cancel()
            for x in (self.options.builder, self.options.runner) if self._foreign_batches else ():
                getattr(x, "cancel", bool)()
            limit = time.monotonic() + DRAIN_SECONDS  # then a candidate that hangs is ended with its worker
            while time.monotonic() < limit and self._under_way():
                self.poll(0.05)
        except KeyboardInterrupt:
            logger.warning("interrupted again: ending the workers now")
        except Exception:  # the caller is raising what ended the run
            logger.exception("while the run ended")
        finally:
            self.close()

    def _under_way(self):
        return any(s.pending() for s in self._sessions.values()) or any(b.left > 0 for b in self._foreign_batches)

    def hopeless(self, task):
        """The cause if this task has failed too often in a row for one reason, else None."""
        cause, n = self.failures_in_a_row.get(task.workload_key, ("", 0))
        return cause if n >= MAX_FAILURES_IN_A_ROW else None

    def _diagnose(self, batch):
        key = batch.task.workload_key
        done = [r for r in batch.results if r is not None]
        if not done or key in self._diagnosed or key in self.best or any(seconds_of(r) < FAILED for r in done):
            return
        self._diagnosed.add(key)
        seen, text = Counter(), {}
        for r in done:
            cause = cause_of(r)
            seen[cause] += 1
            text.setdefault(cause, str(r.error_msg).strip().splitlines()[0][:160] if str(r.error_msg).strip() else "")
        lines = [f"No candidate of {batch.task.desc or key} has run successfully ({len(done)} tried)."]
        lines += [f"  {n} x {c}   {text[c]}" for c, n in seen.most_common(5)]
        self.progress.say("\n".join(lines))


class TimeSplit:
    """Where the time of a run went: search and training in this process, compile workers, the device; and what the engine
    says about the trustworthiness of the figures."""

    SUMS = ("compile_s", "run_s", "late_elapsed", "late_run_s", "elapsed", "waited_s", "lanes", "compiled", "cached",
            "ran", "full", "devices", "cut", "audited", "wrong_cuts", "finals", "finalists", "finals_again", "checks",
            "disturbed", "shifts", "redone", "deaths", "spares")
    MOST = "canary", "canary_spread", "longest_recovery"

    def __init__(self):
        self.search = self.train = 0.0
        for k in self.SUMS + self.MOST:
            setattr(self, k, 0)

    def take(self, stats):
        """Adds the figures of one session of the engine."""
        for k in self.SUMS:
            setattr(self, k, getattr(self, k) + stats[k])
        for k in self.MOST:
            setattr(self, k, max(getattr(self, k), stats[k]))

    def text(self):
        """The lines of the summary, "" if nothing was measured here."""
        if not self.elapsed or not self.ran:
            return ""
        e, lanes, devices = self.elapsed, max(1, self.lanes), max(1, self.devices)
        late = 1 - self.late_run_s / (self.late_elapsed * devices) if self.late_elapsed > 0 else None
        idle = f"Idle: device {100 * (1 - self.run_s / (e * devices)):.0f} %"
        if late is not None:
            idle += f" (after the first minute {100 * late:.0f} %)"
        return "\n".join([
            f"Time: {e:.1f} s; search {self.search:.1f} s, training {self.train:.1f} s, compiling {self.compile_s:.1f} s in "
            f"{lanes} lanes ({self.compiled} programs, {self.cached} from the cache), device {self.run_s:.1f} s "
            f"({self.full} of {self.ran} timed in full)",
            f"{idle}, compile lanes {100 * max(0.0, 1 - self.compile_s / (e * lanes)):.0f} %", *self.trust()])

    def trust(self):
        """Lines about stopped candidates, the canary and workers."""
        out = []
        if self.finals or self.cut:
            race = f"Race: {self.finalists} finalists in {self.finals} finals; {self.cut} candidates stopped early"
            if self.audited:
                race += f", {self.audited} of them measured in full all the same: {self.wrong_cuts} wrongly stopped"
            out.append(race)
        if self.checks:
            quiet = f"Canary: {self.checks} checks, spread {100 * self.canary_spread:.1f} %"
            if self.disturbed:
                quiet += (f"; the device was disturbed at {self.disturbed} of them (another process, or its clock "
                          f"changed): {self.redone} candidates and {self.finals_again} finals were measured again")
            if self.shifts:
                quiet += f"; its clock settled at a new level {self.shifts} times"
            out.append(quiet)
        if self.waited_s > 0.1:
            out.append(f"Waited {self.waited_s:.1f} s for another tuner on the device")
        if self.deaths:
            out.append(f"Workers: {self.deaths} ended by candidates, {self.spares} spares took over, the longest wait "
                       f"for one {1e3 * self.longest_recovery:.0f} ms")
        return out


class SearchThread:
    """The thread in which a run searches and learns, beside the one that waits for results and hears signals.

    Parameters
    ----------
    policies : list of SearchPolicy
        What the thread works for: asked to end what they do when the run ends before its time.
    measurer : Measurer
        Of the run.
    """

    def __init__(self, policies, measurer):
        self.policies, self.measurer, self._jobs, self._abandoned = policies, measurer, [], False
        for p in policies:
            p.for_session(measurer.local, MEMORY // len(policies))
        self._pool = concurrent.futures.ThreadPoolExecutor(1)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None and not self._abandoned:
            self._pool.shutdown()
            return
        limit = time.monotonic() + SEARCH_SECONDS
        self.abandon()
        while concurrent.futures.wait(self._jobs, timeout=0.02).not_done and time.monotonic() < limit:
            self.abandon()  # again: what had not begun yet did not hear it

    def submit(self, function, *arguments):
        """Queues a call; returns its future."""
        self._jobs = [j for j in self._jobs if not j.done()]
        self._jobs.append(self._pool.submit(function, *arguments))
        return self._jobs[-1]

    def result(self, function, *arguments):
        """What the call returns; signals are heard meanwhile."""
        job = self.submit(function, *arguments)
        while not job.done():
            self.measurer.poll()
            concurrent.futures.wait([job], timeout=0.05)
        return job.result()

    def abandon(self):
        """What waits does not start; what runs is asked to end."""
        self._abandoned = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.measurer.stop.set()
        for p in self.policies:
            p.cancel()


def tune_alone(policy, options, measurer):
    """Tunes one task; returns the best state, or the search's first choice if nothing is to be measured."""
    task, total, count = policy.search_task, options.num_measure_trials, 0
    best, best_rank, best_count = None, NOTHING, 0
    measurer.progress = Progress(total, options.verbose)
    measurer.progress.task(short(task.desc) or "task")
    with SearchThread([policy], measurer) as search:
        if total <= 1:
            states = search.result(policy.propose, 1)
            return states[0] if states else None
        try:
            while count < total:
                n = min(options.round_size(), total - count)
                policy.begin_round(count, total)
                states = search.result(policy.propose, n)
                if not states:
                    measurer.progress.say("It seems all candidates in the search space have been measured.")
                    break
                inputs = [MeasureInput(task, s) for s in states]
                results = measurer.wait(search.result(measurer.submit, task, policy, inputs))
                search.result(policy.learn, inputs, results)
                for i, r in zip(inputs, results):
                    count += 1
                    if rank_of(r) < best_rank:
                        best, best_rank, best_count = i.state, rank_of(r), count
                measurer.progress.set_estimate(None if best is None else best_rank[1])
                measurer.progress.round_line()
                if measurer.hopeless(task):
                    raise RuntimeError(f"{MAX_FAILURES_IN_A_ROW} candidates in a row failed: {measurer.hopeless(task)}")
                if options.early_stopping >= 0 and count - best_count > options.early_stopping and best is not None:
                    measurer.progress.say("Stop early since no performance improvement in the last "
                                          f"{options.early_stopping} measurements trials.")
                    break
        except StopTuning:
            pass
        finally:
            measurer.progress.close()
    if measurer.progress.style == "text":
        title("Done")
    if measurer.progress.style != "none":
        print(_summary(task, best_rank[1], count, measurer, options), flush=True)
    return best


def log_file_of(options):
    """Name of the file that a `RecordToFile` among the callbacks writes, or None."""
    return next((str(cb.filename) for cb in options.measure_callbacks if getattr(cb, "filename", None)), None)


def _summary(task, cost, count, measurer, options):
    name, log = short(task.desc) or task.workload_key, log_file_of(options)
    failed = ", ".join(f"{c} {n}" for c, n in measurer.causes.most_common(4))
    tail = f"Failed: {count - measurer.valid}{' (' + failed + ')' if failed else ''}" + (f"  Saved: {log}" if log else "")
    if cost >= FAILED:
        return (f"Warning: {name} has no valid result after {count} trials.  {tail}\nTune it with more trials or a "
                "longer LocalRunner(timeout=...); the failures are named above.")
    flop = task.compute_dag.flop_ct
    speed = f" ({flop / cost / 1e9:.2f} GFLOPS)" if flop > 0 else ""
    text = f"Best of {name}: {cost * 1e3:.4g} ms{speed}  Valid: {measurer.valid}/{count}  {tail}"
    if log:
        text += (f"\nTo build it: sch, args = task.apply_best({log!r})\nTo go on later: task.tune(options, "
                 "search_policy=auto_scheduler.SketchPolicy(task, \"auto\", "
                 f"init_search_callbacks=[auto_scheduler.PreloadMeasuredStates({log!r})]))")
    return text
