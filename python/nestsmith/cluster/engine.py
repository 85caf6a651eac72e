"""Dask distributed, which carries messages, encrypts them and supervises processes. Nothing else of the package imports it.

Of Dask's own jobs nothing is used: their queue does not know devices that are taken, and their functions travel as pickles.
Devices are lent by the ledger, and a session talks to its device directly. So the servers here answer the few operations that they
name (`Fence`), and messages that hold pickles are not read.
"""

from __future__ import annotations

import contextlib
import contextvars
import copyreg
import errno
import logging
import os
import socket
import ssl
import struct
import sys
import threading
from typing import Any

try:
    import asyncio

    import dask
    import distributed
    import distributed.nanny
    import distributed.protocol.pickle as pickles
    import distributed.scheduler
    import distributed.worker
    from distributed.comm import CommClosedError, connect
    from distributed.comm.addressing import parse_address, unparse_host_port
    from distributed.comm.tcp import MAX_BUFFER_SIZE, TCP, TLS, TCPListener, TLSListener, get_stream_address
    from distributed.core import rpc
    from distributed.diagnostics.plugin import SchedulerPlugin
    from distributed.protocol import dumps
    from distributed.protocol.utils import pack_frames
    from distributed.security import Security
    from tornado.iostream import IOStream, SSLIOStream
    from tornado.netutil import bind_sockets, ssl_wrap_socket
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(f"measuring on other machines needs the package {e.name!r}: pip install "
                              "nestsmith[cluster]") from None

from .. import forks
from . import peers
from .door import Door, hello_of_length, hello_of_tls
from .settings import ClusterError

# Dask has every exception class that exists pickled with its traceback, in a way that RPCSessionTimeoutError, which has two bases
# in C, does not survive; ours are pickled as ever.
for _class in [c for c in copyreg.dispatch_table if c.__module__.split(".")[0] == __name__.split(".")[0]]:
    del copyreg.dispatch_table[_class]

__all__ = ["CommClosedError", "Loop", "Nanny", "Scheduler", "SchedulerPlugin", "Worker", "address_of", "close_comm",
           "configure", "connect", "first_cause", "open_comm", "plainly", "rpc", "security_of", "versions"]

CONNECT_SECONDS = 10.0  # to reach somebody
LOST_SECONDS = 30  # a server that is silent for so long is lost; what is reached has as long to answer
_SETTINGS = {
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": f"{LOST_SECONDS}s",
    "distributed.scheduler.allowed-failures": 0,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.system-monitor.disk": False,
    "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
    "distributed.comm.timeouts.tcp": "15s",  # less is refused: ten probes, a second apart
}  # fmt: skip
_unpickle, _plain = pickles.loads, contextvars.ContextVar("nestsmith_plain", default=False)


def _loads(data, *, buffers=()):
    """Dask's unpickler, which reads nothing in this package's conversations: in the tasks of `plainly`, and from connections to its
    servers. Other users of Dask in the process do not notice."""
    if _plain.get():
        raise ValueError("a message holds a pickle; nestsmith reads numbers, texts, bytes, lists and dicts")
    return _unpickle(data, buffers=buffers)


pickles.loads = distributed.scheduler.loads = _loads


async def plainly(coroutine):
    """The coroutine's result; nothing is unpickled in it, nor in the tasks that it starts. To be run as a separate task."""
    _plain.set(True)
    return await coroutine


class _Plain:
    """A connection to a server of this package."""

    async def read(self, deserializers=None):
        before = _plain.set(True)
        try:
            return await super().read(deserializers)  # type: ignore[misc]
        finally:
            _plain.reset(before)


class _PlainTCP(_Plain, TCP):
    pass


class _PlainTLS(_Plain, TLS):
    pass


def _message(what):
    """The bytes of a message."""
    frames = pack_frames(dumps(what))
    return struct.pack("Q", len(frames)) + frames


class _Listening:
    """A listener of Dask's whose connections wait at a `Door` until they are known to be a member's."""

    open_to_all = False  # answer other users of this machine, too
    say = None  # gets lines for the log
    encrypted: bool

    async def start(self):
        why = f"it serves user {os.getuid()} of its machine alone; it needs TLS, or --insecure"
        hello = {"compression": None, "python": tuple(sys.version_info)[:3], "pickle-protocol": 4}  # Dask's, which is said before any is heard
        refusal = _message(hello) + _message({"event": "refused", "why": why})
        self.tcp_server = Door(hello_of_tls if self.encrypted else hello_of_length, self._enter,
                               None if self.encrypted or self.open_to_all else self._owners, refusal, self.say)
        for sock in self._bound():
            self.tcp_server.watch(sock)
        self.get_host_port()

    def _bound(self):
        for left in range(4, -1, -1):
            try:
                return bind_sockets(self.port, address=self.ip, backlog=int(dask.config.get("distributed.comm.socket-backlog")))
            except OSError as e:  # the system may choose one that is taken for another address of this machine
                if self.port or e.errno != errno.EADDRINUSE or not left:
                    raise
        return []

    @staticmethod
    def _owners(taken):
        return peers.are_own([(address[:2], sock.getsockname()[:2]) for sock, address in taken])

    async def _enter(self, guest):
        sock, guest.sock = guest.sock, None
        stream = comm = None
        try:
            address = self.prefix + unparse_host_port(*sock.getpeername()[:2])
            if self.encrypted:
                sock = ssl_wrap_socket(sock, self.server_args["ssl_options"], server_side=True, do_handshake_on_connect=False)
            stream = (SSLIOStream if self.encrypted else IOStream)(sock, max_buffer_size=MAX_BUFFER_SIZE)
            comm = await asyncio.wait_for(self._greet(stream, address), guest.left())
        finally:
            if comm is None:
                (stream or sock).close()
        self.tcp_server.take(guest)
        await self.comm_handler(comm)

    async def _greet(self, stream, address):
        if self.encrypted:
            await stream.wait_for_handshake()
        comm = self.comm_class(stream, self.prefix + get_stream_address(stream), address, self.deserialize)
        comm.allow_offload = self.allow_offload
        try:
            await self.on_connection(comm)
        except BaseException:
            comm.abort()
            raise
        return comm


class _ListeningTCP(_Listening, TCPListener):
    comm_class = _PlainTCP


class _ListeningTLS(_Listening, TLSListener):
    comm_class = _PlainTLS


_LISTENERS = {"tcp": _ListeningTCP, "tls": _ListeningTLS}


class Fence:
    """What a server of Dask answers here: the operations that are named, to those whom TLS lets in, or, without it, to processes of
    this user. Dask's own servers run functions for whoever asks.

    Parameters
    ----------
    open_to_all : bool
        Answer other users of this machine, too.
    say : callable, optional
        Gets lines on those who are not let in.
    """

    ANSWERS: frozenset[str] = frozenset()  # operations of connections
    HEARS: frozenset[str] = frozenset()  # of streams between scheduler and workers
    handlers: dict[str, Any]
    stream_handlers: dict[str, Any]

    def __init__(self, *args, open_to_all=False, say=None, **kwargs):
        configure()
        self._open_to_all, self._say = open_to_all, say
        super().__init__(*args, **kwargs)
        self.handlers = {k: v for k, v in self.handlers.items() if k in self.ANSWERS}
        self.stream_handlers = {k: v for k, v in self.stream_handlers.items() if k in self.HEARS}

    async def start_unsafe(self):
        """Dask's; what it says to others and hears from them holds no pickles."""
        return await asyncio.ensure_future(plainly(super().start_unsafe()))

    async def listen(self, port_or_addr=None, allow_offload=True, **kwargs):
        """As Dask's, with a door."""
        scheme, place = parse_address(port_or_addr, strict=True)
        listener = _LISTENERS[scheme](place, self.handle_comm, deserialize=self.deserialize, allow_offload=allow_offload, **kwargs)
        listener.open_to_all, listener.say = self._open_to_all, self._say
        await listener.start()
        self.listeners.append(listener)


class Bare(Fence):
    """A server without Dask's extensions and pages."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, extensions={}, **kwargs)

    def start_http_server(self, *args, **kwargs):
        """No pages."""


class Scheduler(Bare, distributed.scheduler.Scheduler):
    """A scheduler that knows of workers and runs nothing."""

    ANSWERS = frozenset({"register-worker", "register_nanny", "heartbeat_worker", "unregister"})
    HEARS = frozenset({"keep-alive", "log-event", "worker-status-change"})


class Worker(Bare, distributed.worker.Worker):
    """A worker that can be told to end and runs nothing."""

    HEARS = frozenset({"close", "remove-worker", "worker-status-change"})


class Nanny(Fence, distributed.nanny.Nanny):
    """A nanny. Its worker tells it when it ends for good, so that the server registers again and says so."""

    ANSWERS = frozenset({"close_gracefully"})


def configure(silent=True):
    """Dask's settings in this process; its own log is silent unless somebody wants to see it."""
    dask.config.set(_SETTINGS)
    if silent:
        for name in ("distributed", "tornado", "tornado.application", "tornado.general", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # what strangers send is no news


def versions():
    """What must be equal on both sides."""
    return {"dask": distributed.__version__}


def security_of(tls):
    """Dask's Security for a `settings.Tls`, or None."""
    if tls is None:
        return Security()
    roles = {f"tls_{role}_{part}": value for role in ("client", "worker", "scheduler")
             for part, value in (("cert", tls.cert), ("key", tls.key))}  # fmt: skip
    return Security(tls_ca_file=tls.ca, require_encryption=True, **roles)


def address_of(host, port, tls):
    """The address of a tracker as Dask writes it."""
    name = f"[{host}]" if ":" in host else host
    return f"{'tls' if tls else 'tcp'}://{name}:{port}"


def _reach(address):
    """A plain connection to who listens there, and what to call him. ClusterError if nobody does."""
    host, _, port = address.split("://")[1].rpartition(":")
    try:
        return socket.create_connection((host.strip("[]"), int(port)), timeout=3), f"{host}:{port}"
    except OSError as e:
        raise ClusterError(f"nobody answers at {host}:{port} ({e.strerror or e}): is it running there, and may its port be reached?") from None


def _is_reached(address):
    """Raises ClusterError if it is not. A machine accepts connections for a process that has not come to look at them."""
    _reach(address)[0].close()


def _why_not(address, tls):
    """Why a connection was not made, in words that help."""
    try:
        plain, there = _reach(address)
    except ClusterError as e:
        return str(e)
    with plain:
        if tls is None:
            return f"{there} answers, but not as expected: if it uses TLS, give --tls-dir (or NESTSMITH_TLS_DIR)"
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=tls.ca)
        context.check_hostname = False
        try:
            context.load_cert_chain(tls.cert, tls.key)
            with context.wrap_socket(plain) as talk:
                talk.settimeout(2)
                talk.recv(1)  # what TLS 1.3 says of our certificate comes after the handshake
        except ssl.SSLError as e:
            return f"TLS with {there} failed: {getattr(e, 'verify_message', '') or e.reason or e}"
        except TimeoutError:
            pass
        except OSError as e:
            return f"{there} does not speak TLS or refuses this certificate ({e})"
    return f"{there} did not answer in time"


async def _connect(address, tls, limit):
    """Dask's connection. One that is closed while both sides say hello is tried again: where many strangers knock, a server may close it."""
    for pause in (0.05, 0.2, 0.8, None):
        try:
            return await connect(address, timeout=limit, **security_of(tls).get_connection_args("client"))
        except CommClosedError:
            if pause is None:
                raise
            await asyncio.sleep(pause)


async def open_comm(address, tls, seconds=CONNECT_SECONDS, answer=None):
    """A connection. Raises ClusterError that says why there is none: nobody is reached within `seconds`, or who is reached does not
    answer within `answer` more (default LOST_SECONDS: a busy machine takes its time), or answers something else."""
    answer, run = LOST_SECONDS if answer is None else answer, asyncio.get_running_loop().run_in_executor
    # The limit is ours: a process that is stopped lets others connect and never says hello, for which Dask waits for ever.
    talk = asyncio.ensure_future(_connect(address, tls, seconds + answer + 1))
    comm = None
    try:
        if not (await asyncio.wait([talk], timeout=seconds))[0]:
            await run(None, _is_reached, address)
            if not (await asyncio.wait([talk], timeout=answer))[0]:
                raise ClusterError("it is reached and says nothing; its process is stopped, or a link is cut")
        comm = talk.result()
        return comm
    except ClusterError as e:
        raise ClusterError(f"cannot connect to {address}: {e}") from None
    except Exception:  # noqa: BLE001 - what answers there may be anything and say anything
        raise ClusterError(f"cannot connect to {address}: {await run(None, _why_not, address, tls)}") from None
    finally:
        if comm is None and not talk.cancel() and not talk.cancelled() and talk.exception() is None:
            await close_comm(talk.result())  # nobody waits for it any more


def first_cause(e):
    """What a server's failure to start began with; Dask wraps it once per process on the way."""
    while e.__cause__ is not None:
        e = e.__cause__
    return e


async def close_comm(comm):
    """Closes a connection, whatever state it is in."""
    with contextlib.suppress(Exception):
        comm.abort()


class Loop:
    """The thread in which this process talks to others; one per process, started when needed."""

    def __init__(self):
        forks.renew(self)._forked()

    def _forked(self):
        self._lock, self._loop = threading.Lock(), None

    def _running(self):
        with self._lock:
            if self._loop is None:
                configure()
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="nestsmith-cluster", daemon=True).start()
            return self._loop

    def start(self, coroutine):
        """Runs a coroutine in the thread; returns a concurrent future."""

        return asyncio.run_coroutine_threadsafe(plainly(coroutine), self._running())

    def wait(self, coroutine):
        """The coroutine's result. Ctrl-C cancels it. Not from a finalizer: garbage is collected in any thread."""
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


LOOP = Loop()
