"""The user's side: leases from a tracker, and conversations with the devices that are lent.

The engine is reached through five functions: `acquire`, `Lease.ask`, `Lease.release`, `summary`, `close`.
"""

import asyncio
import contextlib
import getpass
import itertools
import logging
import os
import socket
import time

from .. import check, forks
from .display import waiting_text
from .engine import LOOP, CommClosedError, address_of, close_comm, open_comm
from .ledger import RENEW_SECONDS, WAIT_SECONDS
from .runner import raise_error
from .settings import ClusterError, tls_from, tracker_of
from .talk import MOST_SECONDS, key_of
from .tracker import own_versions

__all__ = ["Client", "DeviceLost", "Lease"]

logger = logging.getLogger("nestsmith")

SILENT_SECONDS = 30.0  # a tracker that says nothing for so long is lost
BACK_SECONDS = 60.0  # for a tracker that went away and comes back
TELL_SECONDS = 30.0


class DeviceLost(ClusterError):
    """The device went away, or its lease ended, while it was used."""


def _who():
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}:{os.getpid()}"


class Lease:
    """A device that is ours until `release`: `facts` are what its server says of it."""

    def __init__(self, client, token, address, facts, key):
        self.client, self.token, self.address, self.facts, self.key = client, token, address, facts, key
        self._comm, self._lock, self.lost, self.wanted = None, asyncio.Lock(), "", False  # wanted: others wait for it

    async def _ask(self, message, seconds):
        async with self._lock:
            try:
                if self.lost:
                    raise DeviceLost(self.lost)
                if self._comm is None:
                    self._comm = await open_comm(self.address, self.client.tls)
                    await self._comm.write({"op": "ns-lease", "lease": self.token, "reply": False})
                await self._comm.write(message)
                return await asyncio.wait_for(self._comm.read(), seconds)
            except TimeoutError:  # first: it is an OSError, too
                raise DeviceLost(await self._drop(f"{self} gave no answer within {seconds:g} s")) from None
            except (CommClosedError, OSError) as e:
                raise DeviceLost(await self._drop(f"{self} went away while it was used ({e})")) from None
            except ClusterError as e:  # it went away between the grant and now
                raise DeviceLost(await self._drop(str(e))) from None
            except asyncio.CancelledError:
                await self._drop()
                raise

    def __str__(self):
        return f"the device {self.address} (key {self.key!r})"

    async def _drop(self, why=""):
        """Ends the connection; why the device is lost: what was known already says more than that a connection ended."""
        self.lost = self.lost or why or f"the connection to {self} was closed"
        await close_comm(self._comm)
        return self.lost

    def ask(self, message, seconds=86400.0):
        """The device's reply to a message (a dict of numbers, texts and bytes).

        Raises
        ------
        DeviceLost
            If the device or the lease is gone, or nothing comes within `seconds`.
        SessionTimeout, ValueError, MemoryError, OSError, TVMError
            What the device's session says.
        """
        reply = LOOP.wait(self._ask(message, seconds + 10.0))
        if "error" in reply:
            if reply["error"] == "lost":
                raise DeviceLost(reply["msg"])
            raise_error(reply["error"], reply["msg"])
        return reply

    def release(self):
        """Gives the device back. May be called again."""
        LOOP.wait(self._release())

    def abandon(self):
        """The same without waiting: for finalizers, which run in any thread, that of the connections too."""
        LOOP.start(self._release())

    async def _release(self):
        await self._drop()
        await self.client.forget(self)


class Client:
    """A connection to a tracker, kept up as long as it is used: a tracker that comes back is found again.

    Parameters
    ----------
    host, port : str, int, optional
        Of the tracker; see `settings.tracker_of`.
    tls_dir : str, optional
        Directory with ca.pem, cert.pem, key.pem; NESTSMITH_TLS_DIR without it.
    patience : float
        Seconds to try for if the tracker is not there at first.
    """

    def __init__(self, host=None, port=None, tls_dir=None, patience=-1.0):
        self.patience = patience
        self.host, self.port = tracker_of(host, port)
        self.tls = tls_from(tls_dir)
        self.address = address_of(self.host, self.port, self.tls)
        self._numbers = itertools.count(1)
        forks.renew(self)._forked()

    def _forked(self):
        self._comm, self._tasks, self._waiting, self._leases = None, [], {}, {}
        self._connecting, self._heard, self._closings = None, 0.0, 0

    def __repr__(self):
        return f"Client({self.host}:{self.port})"

    # ---- the connection ----
    async def _connect(self):
        """A connection that has been welcomed."""
        closings = self._closings
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._comm is not None and not self._comm.closed():
                return self._comm
            comm = await open_comm(self.address, self.tls)
            try:
                await comm.write({"op": "ns-client", "user": _who(), "versions": own_versions(), "reply": False})
                hello = await asyncio.wait_for(comm.read(), SILENT_SECONDS)
            except TimeoutError:
                await close_comm(comm)
                raise ClusterError(f"{self.host}:{self.port} is reached and says nothing for {SILENT_SECONDS:g} s: no tracker of "
                                   "nestsmith, or too busy to answer") from None  # fmt: skip
            except (CommClosedError, OSError) as e:
                await close_comm(comm)
                raise ClusterError(f"{self.host}:{self.port} is no tracker of nestsmith, or it is ending ({e})") from None
            if hello.get("event") != "welcome":
                await close_comm(comm)
                raise ClusterError(f"the tracker {self.host}:{self.port} refuses this client: {hello.get('why')}")
            if self._closings != closings:
                await close_comm(comm)
                raise ClusterError(f"{self} was closed")
            self._comm, self._heard = comm, time.monotonic()
            for t in self._tasks:
                t.cancel()
            self._tasks = [asyncio.ensure_future(self._listen(comm)), asyncio.ensure_future(self._keep_up(comm))]
            return comm

    async def _listen(self, comm):
        try:
            while True:
                m = await comm.read()
                self._heard = time.monotonic()
                event = m["event"]
                if event in ("grant", "refuse", "summary"):
                    waiting = self._waiting.pop(m["id"], None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(m)
                    elif event == "grant":
                        await comm.write({"do": "release", "lease": m["lease"]})
                elif event == "wanted":
                    for lease in self._leases.values():
                        lease.wanted = lease.wanted or lease.key == m["key"]
                elif event == "lost" and m["lease"] in self._leases:
                    lease = self._leases.pop(m["lease"])
                    lease.lost = f"{m['why']} (key {lease.key!r}, tracker {self.host}:{self.port})"
                    await close_comm(lease._comm)
        except (CommClosedError, OSError, KeyError, TypeError):
            await self._gone(comm)

    async def _gone(self, comm):
        await close_comm(comm)
        if comm is not self._comm:
            return
        self._comm = None
        for lease in self._leases.values():
            lease.lost = f"the connection to the tracker {self.host}:{self.port} is lost, and the device {lease.address} with it"
            await close_comm(lease._comm)
        self._leases.clear()
        waiting, self._waiting = self._waiting, {}
        for f in waiting.values():
            if not f.done():
                f.set_exception(ConnectionResetError("the tracker's connection was closed"))

    async def _keep_up(self, comm):
        while comm is self._comm:
            await asyncio.sleep(RENEW_SECONDS / 6)
            if time.monotonic() - self._heard > SILENT_SECONDS:
                await self._gone(comm)
                return
            try:
                await comm.write({"do": "renew"})
            except (CommClosedError, OSError):
                await self._gone(comm)

    async def _request(self, message):
        comm = await self._connect()
        number = next(self._numbers)
        self._waiting[number] = future = asyncio.get_running_loop().create_future()
        try:
            await comm.write({**message, "id": number})
            return await future
        except asyncio.CancelledError:
            self._waiting.pop(number, None)
            if message["do"] == "acquire" and not comm.closed():
                await comm.write({"do": "cancel", "id": number})
            raise
        except (CommClosedError, OSError) as e:
            raise ConnectionResetError(str(e)) from None

    async def _persist(self, message):
        """The answer to a message, from a tracker that may go away and come back."""
        end, closings = None, self._closings
        while True:
            try:
                return await self._request(message)
            except (ConnectionResetError, ClusterError) as e:
                if self._closings != closings:  # what waits for a device ends; a later question connects anew
                    raise ClusterError(f"{self} was closed") from None
                now = time.monotonic()
                end = end or now + (BACK_SECONDS if self._heard else self.patience)
                if now > end and not self._heard:
                    raise
                if now > end:
                    raise ClusterError(f"the tracker {self.host}:{self.port} went away and did not come back: {e}") from None
                await asyncio.sleep(0.2)

    # ---- the face ----
    def acquire(self, key, priority=1, like=None, but=(), wait_limit=None):
        """Waits for a device.

        Parameters
        ----------
        key : str
        priority : int
            Larger is served first.
        like : str, optional
            Only a device of this class, as its facts tell it.
        but : list of str
            Addresses of devices that will not do.
        wait_limit : float, optional
            Seconds to wait while no device has the key; default 60. While some have it and are used by others there is no limit.

        Returns
        -------
        Lease

        Raises
        ------
        ClusterError
            If the tracker is not there, or none of its devices has the key for so long.
        """
        wait = WAIT_SECONDS if wait_limit is None else min(check.number("wait_limit", wait_limit, -1), MOST_SECONDS)
        got = []
        try:
            return LOOP.wait(self._acquire(key_of(key), int(priority), like, list(but), float(wait), got))
        except BaseException:  # Ctrl-C: it may have been granted meanwhile
            for lease in got:
                lease.abandon()
            raise

    async def _acquire(self, key, priority, like, but, wait, got):
        message = {"do": "acquire", "key": key, "priority": priority, "like": like, "but": but, "wait": wait}
        asked = asyncio.ensure_future(self._persist(message))
        begin = time.monotonic()
        try:
            while not (await asyncio.wait([asked], timeout=TELL_SECONDS))[0]:
                why = await self._what_keeps(key)
                logger.warning("waiting for a device of key %r at tracker %s:%d for %.0f s: %s", key, self.host, self.port,
                               time.monotonic() - begin, why)  # fmt: skip
        except asyncio.CancelledError:
            if not asked.cancel() and asked.exception() is None and asked.result()["event"] == "grant":
                await self._tell({"do": "release", "lease": asked.result()["lease"]})
            raise
        m = asked.result()
        if m["event"] == "refuse":
            raise ClusterError(f"{m['why']}; tracker {self.host}:{self.port}; `python -m "
                               f"nestsmith.exec.query_rpc_tracker --host={self.host} --port={self.port} --verbose` "
                               "shows what is there")
        lease = Lease(self, m["lease"], m["address"], m["facts"], key)
        self._leases[lease.token] = lease
        got.append(lease)
        return lease

    async def _what_keeps(self, key):
        """Why a device of a key is not free, in words."""
        try:
            return waiting_text((await asyncio.wait_for(self._persist({"do": "summary"}), TELL_SECONDS))["summary"], key)
        except (TimeoutError, ClusterError):
            return "the tracker does not answer"

    async def forget(self, lease):
        """Tells the tracker that a lease is given back."""
        if self._leases.pop(lease.token, None) is not None:
            await self._tell({"do": "release", "lease": lease.token})

    async def _tell(self, message):
        if self._comm is not None:
            with contextlib.suppress(CommClosedError, OSError):  # with the connection the lease is gone
                await self._comm.write(message)

    def summary(self):
        """What the tracker knows: "server_info", "queue_info", "devices", "waiting", "last"."""
        return LOOP.wait(self._persist({"do": "summary"}))["summary"]

    def close(self):
        """Gives everything back. Who waits for a device in another thread gets a ClusterError."""
        LOOP.wait(self._close())

    def abandon(self):
        """The same without waiting, for finalizers."""
        LOOP.start(self._close())

    async def _close(self):
        self._closings += 1
        for t in self._tasks:
            t.cancel()
        if self._comm is not None:
            await self._gone(self._comm)
