"""Measuring on many devices: batches go to the devices of a key, one device per lane, and come back as results.

A task stays on devices of one class (name, clock, driver, and a canary within a few percent), so that times of different machines
never mix. A device that is lost costs a batch one more try on another one.
"""

import collections
import concurrent.futures
import logging
import threading
import time

from .. import forks
from .client import Client, DeviceLost
from .settings import ClusterError

__all__ = ["Batch", "Lanes"]

logger = logging.getLogger("nestsmith")

TRIES = 2  # devices that a batch is sent to before it has failed
HOLD_BATCHES = 16  # a device that others wait for is given back after the batch at hand; else it is kept for so many
IDLE_SECONDS = 1.0  # then a device is given back
CANARY_GPU, CANARY_CPU = 0.03, 0.25  # devices of one class differ by less; clocks of CPUs change with their load
PATIENCE_SECONDS = 10.0  # for a tracker that is just being started
SURPLUS_SECONDS = 60.0  # for what surrounds the measuring of a batch


class Batch:
    """Candidates of one task: artifacts, the task's data and best, policy, deadline.

    Parameters
    ----------
    task : str
        Names the task: equal names, equal data.
    target : Target
        Of the programs.
    rows : callable
        Makes the task's data as `_core.TaskData` takes it; asked when a device needs it.
    items : list of (bytes, str)
        Programs and their manifests.
    policy : dict
        The engine's RunPolicy.
    best : callable
        Seconds that are to be beaten, 0: none; asked when the batch is sent.
    family : str, optional
        Tasks of one family stay on devices of one class; default the task.
    """

    def __init__(self, task, target, rows, items, policy, best=lambda: 0.0, family=""):
        self.family = family or task
        self.task, self.target, self.rows, self.items, self.policy, self.best = task, target, rows, items, dict(policy), best
        self.future, self.tries, self.seconds = concurrent.futures.Future(), 0, 0.0

    @property
    def limit(self):
        """Seconds after which the batch has failed as a whole."""
        each = float(self.policy["timeout"]) + float(self.policy.get("cooldown", 0.0)) + 2.0
        return each * (2 * len(self.items) + 8) + SURPLUS_SECONDS

    kind = property(lambda self: self.target.kind.device_type, doc="Type of the device.")


class _Class:
    """The class on which a task is measured."""

    def __init__(self, text, canary):
        self.text, self.canary, self.members = text, canary, set()  # members: addresses that have measured it


def _alike(batch, canary, known):
    """Whether two times of the program that every device runs are those of one class; 0 is a time that nobody knows."""
    return not canary or not known or abs(canary / known - 1) <= (CANARY_GPU if batch.kind == 2 else CANARY_CPU)


class Lanes:
    """The devices of a key, as many at once as `n_parallel` says and the tracker gives.

    Parameters
    ----------
    key : str
    host, port, tls_dir : optional
        Of the tracker.
    priority, n_parallel : int
    device, lock : int
        Number of the device on its board; what to do if another tuner uses it there (`busy`).
    """

    def __init__(self, key, host=None, port=None, priority=1, n_parallel=1, device=0, lock=0, tls_dir=None, wait_limit=None):
        self.key, self.priority, self.n_parallel, self.device, self.lock = key, priority, max(1, n_parallel), device, lock
        self._where, self._wait_limit = (host, port, tls_dir), wait_limit
        forks.renew(self)._forked()

    def _forked(self):
        self._client, self._queue, self._threads, self._classes, self._stop = None, collections.deque(), [], {}, False
        self._change = threading.Condition()
        self.busy = 0.0  # seconds that devices spent on batches, all together
        self._known, self._other = set(), set()  # (lease, task) whose data was sent; (family, address) of another class

    @property
    def client(self):
        """The connection to the tracker."""
        with self._change:
            if self._client is None:
                self._client = Client(*self._where, patience=PATIENCE_SECONDS)
            return self._client

    def check(self, wait=10.0):
        """Raises ClusterError if no device of the key is at the tracker within `wait` seconds."""
        end = time.monotonic() + wait
        while not self.client.summary()["queue_info"].get(self.key, {}).get("total"):
            if time.monotonic() > end:
                self.client.acquire(self.key, self.priority, wait_limit=0).release()
                return
            time.sleep(0.2)

    def class_of(self, family):
        """The class on which a family of tasks is measured, as text; "" before its first result."""
        found = self._classes.get(family)
        return found.text if found else ""

    def submit(self, batch):
        """Queues a batch; returns its future, whose result is a list of the engine's results."""
        with self._change:
            self._stop = False
            self._queue.append(batch)
            if len(self._threads) < self.n_parallel:
                t = threading.Thread(target=self._lane, name=f"nestsmith-{self.key}", daemon=True)
                self._threads.append(t)
                t.start()
            self._change.notify_all()
        return batch.future

    def close(self):
        """Drops what waits, ends what runs, gives all devices back."""
        with self._change:
            self._stop = True
            dropped, self._queue = list(self._queue), collections.deque()
            client, self._client, threads = self._client, None, list(self._threads)
            self._change.notify_all()
        for b in dropped:
            b.future.cancel()
        if client is not None:
            client.close()  # whoever asks a device hears that it is lost
        for t in threads:
            if t is not threading.current_thread():
                t.join()

    # ---- a lane ----
    def _next(self, lease, seconds):
        """A batch that the device may measure, or None after so many seconds; without a device any batch."""
        end = time.monotonic() + seconds
        with self._change:
            while not self._stop:
                for b in self._queue:
                    if lease is None or self._fits(b, lease):
                        self._queue.remove(b)
                        return b
                if self._queue and lease is not None:
                    return None  # others are of another class
                left = end - time.monotonic()
                if left <= 0:
                    return None
                self._change.wait(left)
        return None

    def _fits(self, batch, lease):
        want = self._classes.get(batch.family)
        have = lease.facts["classes"].get(str(batch.kind))
        return have is not None and (batch.family, lease.address) not in self._other and (want is None or want.text == have)

    def _lane(self):
        lease, used = None, 0
        try:
            while True:
                batch = self._next(lease, IDLE_SECONDS)
                if lease is not None and (batch is None or lease.lost or not self._fits(batch, lease)):
                    lease = self._give_back(lease)
                    if batch is None:
                        continue
                if batch is None:
                    with self._change:
                        if not self._queue or self._stop:
                            self._threads.remove(threading.current_thread())
                            return
                    continue
                try:
                    if lease is None:
                        lease, used = self._take(batch), 0
                    self._measure(batch, lease)
                    used += 1
                except DeviceLost as e:
                    lease = self._give_back(lease)
                    self._again(batch, e)
                except BaseException as e:  # noqa: BLE001 - the waiting thread is to hear it
                    lease = self._give_back(lease)
                    self._fail(batch, e)
                if lease is not None and (lease.wanted or used >= HOLD_BATCHES):
                    lease = self._give_back(lease)
        finally:
            self._give_back(lease)
            with self._change:
                if threading.current_thread() in self._threads:
                    self._threads.remove(threading.current_thread())

    def _give_back(self, lease):
        if lease is not None:
            self._known = {k for k in self._known if k[0] != lease.token}
            try:
                lease.release()
            except ClusterError:
                pass
        return None

    def _take(self, batch):
        want = self._classes.get(batch.family)
        but = [address for family, address in self._other if family == batch.family]
        lease = self.client.acquire(self.key, self.priority, want.text if want else None, but, self._wait_limit)
        if str(batch.kind) not in lease.facts["classes"]:
            lease.release()
            raise ClusterError(f"the devices of key {self.key!r} ({lease.address}) have no {batch.target.kind.name}")
        try:
            lease.ask({"do": "open", "limit": 0, "start": False}, 60.0)
        except BaseException:
            lease.release()
            raise
        return lease

    def _fail(self, batch, e):
        if not batch.future.done():
            batch.future.set_exception(e)

    def _again(self, batch, e):
        batch.tries += 1
        if batch.tries >= TRIES or self._stop:
            self._fail(batch, e)
            return
        logger.info("%s; its %d candidates are sent to another device", e, len(batch.items))
        with self._change:
            self._queue.appendleft(batch)
            self._change.notify_all()

    def _measure(self, batch, lease):
        m = {
            "do": "measure", "target": str(batch.target), "device": self.device, "lock": self.lock, "task": batch.task,
            "best": float(batch.best()), "policy": batch.policy, "items": batch.items, "limit": batch.limit, "rows": None,
        }  # fmt: skip
        begin = time.monotonic()
        if (lease.token, batch.task) not in self._known:
            m["rows"] = batch.rows()
        reply = lease.ask(m, batch.limit)
        if reply.get("unknown"):
            reply = lease.ask({**m, "rows": batch.rows()}, batch.limit)
        self._known.add((lease.token, batch.task))
        batch.seconds = time.monotonic() - begin
        with self._change:
            self.busy += batch.seconds
        if not self._same_class(batch, lease, float(reply["canary"])):
            self._again_elsewhere(batch, lease)
            return
        batch.future.set_result([dict(r, costs=list(r["costs"])) for r in reply["results"]])

    def _same_class(self, batch, lease, canary):
        """Whether the device is of the class of the task, which is that of the first one that measured it. A device is looked at
        when it measures the task for the first time: what changes later is its own drift, which its worker deals with."""
        text = lease.facts["classes"][str(batch.kind)]
        with self._change:
            known = self._classes.setdefault(batch.family, _Class(text, canary))
            if lease.address not in known.members and not _alike(batch, canary, known.canary):
                self._other.add((batch.family, lease.address))
                return False
            known.canary = known.canary or canary
            known.members.add(lease.address)
        return True

    def _again_elsewhere(self, batch, lease):
        logger.warning("%s is as %s says but runs at another speed: the task %.60s is not measured there", lease.address,
                       lease.facts["classes"][str(batch.kind)], batch.task)  # fmt: skip
        with self._change:
            self._queue.appendleft(batch)
            self._change.notify_all()
