"""The tracker: a Dask scheduler that lends devices. The ledger is its plugin; a client is a connection whose end is the client's."""

import asyncio
import itertools
import platform
import sys
import time

from . import engine
from .engine import CommClosedError, Scheduler, SchedulerPlugin, close_comm, first_cause, open_comm, security_of
from .ledger import Ledger
from .settings import ClusterError, free_port
from .talk import MOST_TEXT, heard, told

__all__ = ["Tracker", "serve_tracker"]

TICK_SECONDS = 1.0
BEAT_SECONDS = 5.0
WAY_BACK_SECONDS = 5.0


def own_versions():
    """What clients and servers must have in common with the tracker."""
    package = sys.modules[__name__.partition(".")[0]]  # not imported: it stands above its rooms
    return {"nestsmith": package.__version__, "python": ".".join(platform.python_version_tuple()[:2]), **engine.versions()}


def version_conflict(theirs):
    """A line that names both, or ""."""
    ours = own_versions()
    theirs = theirs if isinstance(theirs, dict) else {}
    wrong = [k for k in ours if theirs.get(k) != ours[k]]
    return ", ".join(f"{k} is {theirs.get(k, 'unknown')!s:.40} there and {ours[k]} at the tracker" for k in wrong)


class LedgerPlugin(SchedulerPlugin):
    """The ledger inside the scheduler: hears of workers, answers clients."""

    name = "nestsmith-ledger"

    def __init__(self, scheduler, tls):
        self.scheduler, self.tls, self.ledger = scheduler, tls, Ledger()
        self._names, self._clients, self._refused = itertools.count(1), {}, {}
        scheduler.handlers["ns-client"] = self.serve_client
        scheduler.handlers["ns_confirm"], scheduler.handlers["ns_known"] = self.confirm, self.known

    # ---- boards ----
    def add_worker(self, scheduler, worker):
        """A Dask worker registered: if it is a board of our version it is lent from now on."""
        self.hear_of(worker, scheduler.workers[worker].extra)

    def hear_of(self, address, extra):
        """What a worker says when it registers, whatever it is."""
        facts = extra.get("nestsmith") if isinstance(extra, dict) else None
        try:
            wrong = version_conflict(facts.get("versions")) if isinstance(facts, dict) else ""
            facts = facts if wrong else told(facts)
        except ValueError as e:
            wrong = str(e)
        if wrong:
            self._refused[address] = wrong
            return
        self._do(self.ledger.board_added(address, facts["key"], facts, time.monotonic()))

    def remove_worker(self, scheduler, worker, **kwargs):
        """A worker is gone, or silent for too long."""
        self._refused.pop(worker, None)
        self._do(self.ledger.board_removed(worker, time.monotonic()))

    def known(self, address):
        """Whether a server is still registered, for servers that ask now and then: a link that was cut tells nobody."""
        return {"known": address in self.ledger.boards}

    async def confirm(self, address):
        """What becomes of a server that has registered: {"why": ""} if it is lent. Tests the way back to it."""
        why = self._refused.get(address)
        if why:
            return {"why": f"refused: {why}"}
        if address not in self.ledger.boards:
            return {"why": "not registered"}
        try:
            await close_comm(await open_comm(address, self.tls, WAY_BACK_SECONDS, 0))
        except ClusterError as e:
            await self.scheduler.remove_worker(address, stimulus_id="ns-blocked")
            return {"why": f"the tracker cannot reach this server ({e}); open the port, or give --custom-addr"}
        return {"why": ""}

    # ---- clients ----
    async def serve_client(self, comm, user="", versions=None):
        """One client, from its first message to the end of its connection."""
        wrong = version_conflict(versions)
        if wrong:
            await comm.write({"event": "refused", "why": wrong})
            return None
        user = "".join(c for c in str(user)[:MOST_TEXT] if c.isprintable())
        name = f"{user or 'client'}#{next(self._names)}"
        self._clients[name] = comm, asyncio.Lock()
        try:
            await comm.write({"event": "welcome"})
            while True:
                self.hear(name, user, await comm.read())
        except (CommClosedError, OSError, ValueError):
            pass  # gone, or it talks nonsense
        finally:
            self._clients.pop(name, None)
            self._do(self.ledger.client_lost(name, time.monotonic()))
            await close_comm(comm)
        return None

    def hear(self, name, user, message):
        """A client's message. Raises ValueError if it makes no sense."""
        now, (do, m) = time.monotonic(), heard(message)
        if do == "acquire":
            self._do(self.ledger.acquire(name, m.pop("id"), now=now, user=user, **m))
        elif do == "cancel":
            self._do(self.ledger.cancel(name, m["id"], now))
        elif do == "release":
            self._do(self.ledger.release(name, m["lease"], now))
        elif do == "renew":
            self.ledger.renew(name, now)
        elif do == "summary":
            self._say(name, {"event": "summary", "id": m["id"], "summary": self.ledger.summary(now)})

    def _do(self, events):
        for what, who, *rest in events:
            if what in ("begin", "end"):
                if who in self.scheduler.stream_comms:
                    self.scheduler.stream_comms[who].send({"op": f"ns-{what}", "lease": rest[0]})
            elif what == "grant":
                number, token, address, facts = rest
                self._say(who, {"event": "grant", "id": number, "lease": token, "address": address, "facts": facts})
            elif what == "refuse":
                self._say(who, {"event": "refuse", "id": rest[0], "why": rest[1]})
            elif what == "wanted":
                self._say(who, {"event": "wanted", "key": rest[0]})
            elif what == "lost":
                self._say(who, {"event": "lost", "lease": rest[0], "why": rest[1]})

    def _say(self, name, message):
        if name in self._clients:
            asyncio.ensure_future(self._write(name, message))

    async def _write(self, name, message):
        comm, lock = self._clients.get(name, (None, None))
        try:
            async with lock:
                await comm.write(message)
        except (CommClosedError, OSError, AttributeError, TypeError):
            pass  # the reader notices

    # ---- time ----
    async def run(self):
        """What happens as time goes by."""
        beat = 0.0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._do(self.ledger.tick(time.monotonic()))
            beat += TICK_SECONDS
            if beat >= BEAT_SECONDS:
                beat = 0.0
                for name in list(self._clients):
                    self._say(name, {"event": "beat"})


class Tracker(Scheduler):
    """A scheduler that lends devices."""

    async def serve(self, tls):
        """Lends devices until the scheduler is closed."""
        plugin = LedgerPlugin(self, tls)
        self.add_plugin(plugin, name=plugin.name)
        ticking = asyncio.ensure_future(plugin.run())
        await self.finished()
        ticking.cancel()


async def serve_tracker(host, port, port_end, tls, say, insecure=False):
    """Listens on the first free port of [port, port_end); `say` gets one line then. Raises ClusterError if none is free."""
    tracker = Tracker(host=host, port=free_port(host, port, port_end), protocol="tls" if tls else "tcp",
                      security=security_of(tls), dashboard=False, contact_address=None, open_to_all=insecure, say=say)
    try:
        await tracker
    except (OSError, RuntimeError) as e:
        raise ClusterError(f"cannot listen on {host}: {first_cause(e)}") from None
    say(f"bind to {host}:{tracker.port}")
    await tracker.serve(tls)
