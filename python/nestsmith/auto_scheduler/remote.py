"""Measuring on devices that a tracker lends. Compiling stays here; a batch of programs of one task goes to a board and is measured
there as `LocalRunner` measures here: in an isolated process, raced, checked, watched by the canary."""

import concurrent.futures
import time

from nestsmith import check, forks

from ..cluster.client import DeviceLost
from ..cluster.lanes import Batch, Lanes
from ..cluster.settings import tls_from, tracker_of
from ..cluster.talk import key_of
from .cost import FAILED
from .measure import LocalRunner, MeasureErrorNo, MeasureResult, details, rows_of, shorten
from .signals import Held

__all__ = ["RPCRunner"]


class RPCRunner(LocalRunner):
    """Runs candidates on devices of a tracker.

    Parameters
    ----------
    key : str
        What the devices are asked for by.
    host, port : str, int, optional
        Of the tracker; without them NESTSMITH_TRACKER_HOST and _PORT, TVM_TRACKER_HOST and _PORT, 127.0.0.1:9190.
    priority : int
        Larger is served first.
    n_parallel : int
        Devices that measure at the same time.
    timeout : float
        Seconds per candidate, loading and checking included; waiting for a device does not count.
    number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, device, mode, l2, busy
        As of `LocalRunner`; `device` is a number, and it is the board that rests.
    tls_dir : str, optional
        Directory with ca.pem, cert.pem and key.pem; NESTSMITH_TLS_DIR without it.
    wait_limit : float, optional
        Seconds to wait while no device has the key; default 60.

    Raises
    ------
    ValueError
        If a number is too small, `mode` is unknown, the key is empty, the port is none or a certificate is missing.
    RPCError
        When measuring begins: no tracker, or no device of the key.
    """

    options = "key", "host", "port", "priority", "n_parallel", "tls_dir", "wait_limit", *LocalRunner.options

    def __init__(self, key, host=None, port=None, priority=1, n_parallel=1, timeout=10, number=3, repeat=1,
                 min_repeat_ms=0, cooldown_interval=0.0, enable_cpu_cache_flush=False, device=0, mode="auto",
                 l2="mixed", busy=None, tls_dir=None, wait_limit=None):
        self.key, self.host, self.port, self.priority = key_of(key), host, port, check.integer("priority", priority)
        tracker_of(host, port)  # what is wrong is told now and not when measuring begins
        tls_from(tls_dir)
        if wait_limit is not None:
            check.number("wait_limit", wait_limit, -1)
        self.n_parallel = check.integer("n_parallel", n_parallel or 1, 1)
        self.tls_dir, self.wait_limit = tls_dir, wait_limit
        check.integer("device", device, 0)
        super().__init__(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, device, mode, l2, busy)
        forks.renew(self)._forked()

    def _forked(self):
        super()._forked()
        self._lanes, self._rows = None, {}

    devices = property(lambda self: self.n_parallel, doc="How many measure at the same time.")

    @property
    def lanes(self):
        """The devices."""
        if self._lanes is None:
            self._lanes = Lanes(self.key, self.host, self.port, self.priority, self.n_parallel, self.device, self.lock_mode,
                                self.tls_dir, self.wait_limit)  # fmt: skip
        return self._lanes

    def start(self, measure_inputs, build_results, best=lambda: 0.0, race=False, checked=True):
        """Queues built candidates of one task; returns a future of their results. `best` gives the seconds to beat, 0: none."""
        task = measure_inputs[0].task
        good = [k for k, b in enumerate(build_results) if not b.error_no]
        policy = self.engine_policy(checked, race)
        if task.constant_bytes:
            policy.update(cold_args=sum(1 << i for i in task.constant_inputs), cold_bytes=int(task.constant_bytes))
        out = concurrent.futures.Future()
        if not good:
            out.set_result([self._result(b, None, 0.0, "") for b in build_results])
            return out
        family = f"{task.workload_key} {task.target}"
        name = f"{family} {task.compute_dag.workload_key()} {checked}"  # templates have several DAGs for one workload
        items = [(build_results[k].program[2], build_results[k].program[1]) for k in good]
        batch = Batch(name, task.target, lambda: self._board_rows(task, checked), items, policy, best, family)

        def arrived(done):
            if done.cancelled():
                out.cancel()
                return
            e, found = done.exception(), {}
            if isinstance(e, (DeviceLost, TimeoutError)):
                found = dict.fromkeys(good, {"error": MeasureErrorNo.UNKNOWN_ERROR, "msg": str(e)})
            elif e is not None:
                out.set_exception(e)
                return
            else:
                found = dict(zip(good, done.result()))
            where = self.lanes.class_of(family)
            out.set_result([self._result(b, found.get(k), batch.seconds / len(good), where) for k, b in enumerate(build_results)])

        self.lanes.submit(batch).add_done_callback(arrived)
        return out

    def _board_rows(self, task, checked):
        key = id(task.compute_dag), checked
        held = self._rows.get(key)
        if held is None:
            if len(self._rows) > 3:  # of another lane, too
                self._rows.clear()
            sent = [(n, None if v is None else bytes(v), *rest) for n, v, *rest in rows_of(task, checked, self._stop)]
            self._rows[key] = held = task.compute_dag, sent  # with the DAG: the id of one that is gone may be another's
        return held[1]

    def _result(self, built, r, seconds, where):
        if built.error_no or r is None:
            return MeasureResult([FAILED], built.error_no, built.error_msg, built.time_cost, time.time())
        extra = {**details(r), "class": where, "l2": self.l2} if "full" in r else {}
        costs = r["costs"] if r["error"] == 0 and r["costs"] else [FAILED]
        return MeasureResult(costs, r["error"], shorten(r["msg"]), built.time_cost + seconds, time.time(), extra)

    def run(self, measure_inputs, build_results, verbose=1):
        """Runs candidates, each task's together; prints nothing. Raises RPCError if there is no device."""
        groups, out = {}, [None] * len(measure_inputs)
        for i, inp in enumerate(measure_inputs):
            groups.setdefault(id(inp.task), []).append(i)
        with Held() as signals:
            try:
                started = [(where, self.start([measure_inputs[i] for i in where], [build_results[i] for i in where]))
                           for where in groups.values()]  # fmt: skip
                for where, future in started:
                    while concurrent.futures.wait([future], timeout=0.05).not_done:
                        signals.check()
                    for i, r in zip(where, future.result()):
                        out[i] = r
            except BaseException:
                self.close()
                raise
        return out

    def cancel(self):
        """Ends what runs, from another thread."""
        self._stop.set()
        if self._lanes is not None:
            self._lanes.close()

    def close(self):
        """Gives the devices back; they are asked for again when needed."""
        if self._lanes is not None:
            self._lanes.close()
        super().close()
