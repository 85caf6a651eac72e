"""A server's worker process: it lends one device. Programs never run in here, but in the runner of a session or in the isolated
worker of the measuring engine."""

import asyncio
import os
import platform
import threading
import time

from .. import _core
from .bench import Bench
from .engine import CommClosedError, Worker, close_comm
from .runner import Runner, RunnerLost, command_of
from .settings import ClusterError, SessionTimeout
from .tracker import own_versions

__all__ = ["Board", "class_of"]

BEGIN_SECONDS = 10.0  # for the tracker's word on a lease that a client already has
KILLS = 3  # of runners in a row: then something is wrong with the device, and the process starts anew
_TYPES = 1, 2, 4
_HANDLES = ("tensor", "module", "graph", "handle")  # fields of requests and replies that hold one; "args" holds several


def class_of(info):
    """Devices of one class have one name, clock and driver. Without spaces: it is a word in records."""
    text = f"{info['name']}/{info.get('clock_khz', 0) // 1000}MHz/{info.get('driver_version', info.get('driver', 0))}"
    return "_".join(text.split())


def _classes(device):
    """Class by device type, as text (JSON has no other keys)."""
    if device != "local":
        runner = Runner(device)
        try:
            first = {d["type"]: d for d in reversed(runner.facts["devices"])}
        finally:
            runner.kill()
        return {str(t): class_of(d) for t, d in first.items()}, runner.facts["machine"]
    found = {t: _core.device_query(t, 0) for t in _TYPES}
    return {str(t): class_of(d) for t, d in found.items() if d}, platform.machine()


class Session:
    """What a client does with the device while it has it. All but `end` is called from one thread at a time."""

    def __init__(self, board, token):
        self.board, self.token, self.limit, self.ended = board, token, None, ""
        self._runner, self._bench, self._lock, self._free = None, board.bench(), threading.Lock(), threading.Event()
        self._free.set()
        self.begun = time.monotonic()
        self._gone = self._last = 0  # handles of runners that ended; of all

    def _start(self):
        with self._lock:
            if self.ended:
                raise ClusterError(self.ended)
        runner = self._runner or Runner(self.board.device)
        with self._lock:
            self._runner = runner
            if self.ended:
                runner.kill()
                raise ClusterError(self.ended)
        return runner

    def _seconds_left(self, asked):
        if self.limit is None:
            return asked
        left = self.begun + self.limit - time.monotonic()
        if left <= 0:
            raise SessionTimeout(f"the session's {self.limit:g} s are over; ask for more with request(..., session_timeout=)")
        return min(left, asked) if asked else left

    def answer(self, message):
        """The reply to a client's message. Never raises."""
        self._free.clear()
        try:
            return self._answer(message)
        finally:
            self._free.set()

    def _answer(self, message):
        try:
            reply = self._act(message)
            self.board.kills = 0
            return reply
        except (SessionTimeout, RunnerLost) as e:
            with self._lock:
                runner, self._runner, self._gone = self._runner, None, self._last  # a later request gets a fresh one
            if runner is not None:
                runner.kill()
            if self.ended:  # and the runner with it: no fault of what it ran
                return {"error": "lost", "msg": self.ended}
            self.board.killed()
            return {"error": "timeout" if isinstance(e, SessionTimeout) else "lost", "msg": self._explain(e)}
        except (ValueError, TypeError, KeyError) as e:
            return {"error": "value", "msg": f"{e}"}
        except MemoryError as e:
            return {"error": "memory", "msg": f"{e}"}
        except Exception as e:  # noqa: BLE001 - whatever a program or a device does is the client's to know
            return {"error": "lost", "msg": self.ended} if self.ended else {"error": "runtime", "msg": f"{e}"}

    def _explain(self, e):
        spent = time.monotonic() - self.begun
        over = isinstance(e, SessionTimeout) and self.limit is not None and spent >= self.limit
        return f"{e}; {spent:.1f} s of the session's {self.limit:g} s were spent" if over else str(e)

    def _act(self, m):
        what = m["do"]
        if what == "open":
            self.limit = float(m["limit"]) if m.get("limit") else None
            self._seconds_left(None)
            return {"facts": {**self.board.facts(), **({"hello": self._start().facts} if m.get("start", True) else {})}}
        if what == "ask":
            limit = self._seconds_left(float(m["limit"]) if m.get("limit") else None)
            reply, data = self._start().ask(self._inward(dict(m["request"])), m.get("data", b""), limit)
            return {"reply": self._outward(reply), "data": data}
        if what == "measure":
            return self._bench.measure(m, self._seconds_left(float(m["limit"]) if m.get("limit") else None))
        raise ValueError(f"a session cannot {what!r}")

    # Handles go on counting where those of an ended runner stopped: what the client still has of it names nothing else.
    def _inward(self, request):
        for field in _HANDLES:
            if field in request:
                request[field] = self._own(request[field])
        if "args" in request:
            request["args"] = [self._own(h) for h in request["args"]]
        return request

    def _own(self, handle):
        if int(handle) <= self._gone:
            raise ValueError(f"handle {handle} was in a process of this session that has ended")
        return int(handle) - self._gone

    def _outward(self, reply):
        for field in _HANDLES:
            if field in reply:
                reply[field] += self._gone
                self._last = max(self._last, reply[field])
        return reply

    def end(self, why):
        """Ends what runs, from any thread, and waits for its end."""
        with self._lock:
            self.ended = self.ended or why
            runner, self._runner = self._runner, None
        self._bench.ended = True
        if runner is not None:
            runner.kill()
        self._free.wait()
        self._bench.close()


class Board(Worker):
    """A Dask worker that lends its device and runs nothing that Dask sends.

    Parameters
    ----------
    key, device, shown : str
        Key and device of the server; its address as others are told.
    """

    def __init__(self, *args, key="", device="local", shown="", **kwargs):
        self.key, self.device, self.shown, self.kills = key, device, shown, 0
        self._sessions, self._granted, self._change, self._one = {}, {}, asyncio.Condition(), asyncio.Lock()
        super().__init__(*args, startup_information={"nestsmith": Board.facts_of}, **kwargs)
        self.handlers["ns-lease"] = self.serve_lease
        self.stream_handlers["ns-begin"] = self.begin_lease
        self.stream_handlers["ns-end"] = self.end_lease
        self._classes, self._machine = _classes(device)

    @staticmethod
    def facts_of(worker):
        """What the tracker is told."""
        return worker.facts()

    def facts(self):
        """What clients are told: key, versions, classes of the devices by type, machine."""
        return {"key": self.key, "versions": own_versions(), "classes": self._classes, "machine": self._machine,
                "device": self.device, "shown": self.shown}

    def bench(self):
        """What a session measures with."""
        return Bench(None if self.device == "local" else lambda options: command_of(self.device, options))

    def killed(self):
        """A runner was ended by force or by what it ran."""
        self.kills += 1
        if self.kills >= KILLS:
            os._exit(1)  # the nanny starts a new process; the tracker tells whoever had the device

    # ---- leases, told by the tracker ----
    async def begin_lease(self, lease):
        """The tracker has lent the device."""
        self._granted[lease] = True
        async with self._change:
            self._change.notify_all()

    async def end_lease(self, lease):
        """The tracker has taken the device back."""
        self._granted.pop(lease, None)
        session, comm = self._sessions.pop(lease, (None, None))
        if session is not None:
            await asyncio.get_running_loop().run_in_executor(None, session.end, "the lease has ended")
            await close_comm(comm)

    async def _granted_in_time(self, lease):
        async def wait():
            async with self._change:
                await self._change.wait_for(lambda: lease in self._granted)

        try:
            await asyncio.wait_for(wait(), BEGIN_SECONDS)
        except TimeoutError:
            return False
        return True

    # ---- one client ----
    async def serve_lease(self, comm, lease):
        """The conversation of a lease: one message, one reply; it ends with the connection or with the lease."""
        if not await self._granted_in_time(lease) or lease in self._sessions:
            await comm.write({"error": "lost", "msg": "the tracker has not lent this device to you"})
            await close_comm(comm)
            return
        async with self._one:  # what the last one left has ended
            if lease in self._granted:  # it may have been taken back meanwhile
                await self._converse(comm, lease)
        await close_comm(comm)

    async def _converse(self, comm, lease):
        session, loop = Session(self, lease), asyncio.get_running_loop()
        self._sessions[lease] = session, comm
        try:
            heard = asyncio.ensure_future(comm.read())
            while True:
                message = await heard
                heard = asyncio.ensure_future(comm.read())  # while the device works: the client may go away
                work = loop.run_in_executor(None, session.answer, message)
                await asyncio.wait([work, heard], return_when=asyncio.FIRST_COMPLETED)
                if not work.done() and heard.exception() is not None:
                    break
                await comm.write(await work)
        except (CommClosedError, OSError):
            pass
        finally:
            self._sessions.pop(lease, None)
            heard.cancel()
            await loop.run_in_executor(None, session.end, "the client has gone")
            await close_comm(comm)
