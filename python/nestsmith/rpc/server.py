"""A server without a tracker: `rpc.connect` opens sessions on it.

Every session has a runner of its own for programs and memory. Functions that are registered in the server's process (`register_func`) are
called in it. Without TLS it listens on this machine only, and serves processes of its own user.
"""

import contextlib
import io
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
import time

from .. import check
from ..cluster.runner import Runner
from ..cluster.settings import tls_from
from ..contrib import utils
from ..error import RPCError, RPCSessionTimeoutError
from ..registry import get_global_func
from ..runtime.ndarray import NDArray
from . import testing  # noqa: F401  (registers functions for tests)
from .session import RPCSession, remote_array
from .wire import FIRST, Listener, Wire, client_context, error_of, pack, server_context, unpack

__all__ = ["Server", "Service", "Tracker"]

logger = logging.getLogger("RPCServer")
HELLO_SECONDS = 10.0
_HOPS = "rpc.Connect",
_KINDS = ((RPCSessionTimeoutError, "timeout"), (RPCError, "rpc"), (MemoryError, "memory"), (ValueError, "value"),
          (OSError, "io"))


def _server_env(load_library=(), work_path=None):
    """A new folder for the files of a server."""
    return utils.tempdir(work_path)


class _Session:
    """What a server does for one client."""

    def __init__(self, seconds, hop=None):
        self.end = time.monotonic() + seconds if seconds else None
        self.hop, self.runner = hop, None if hop else Runner("local")
        self.facts = hop.facts if hop else self.runner.facts
        self._own = None if hop else RPCSession(self, self.facts, "served")
        self._kept, self._number = {}, itertools.count(1)

    def ask(self, request, data=b"", limit=None):
        """As a link of `RPCSession`: for arrays of this session in functions of the server."""
        return self.runner.ask(request, data, limit)

    def abandon(self):
        """Nothing: the session ends with its connection."""

    def close(self):
        """Ends the programs."""
        self.hop.close() if self.hop else self.runner.kill()

    def left(self):
        """Seconds until the session's end, None without one. Raises RPCSessionTimeoutError."""
        if self.end is None:
            return None
        if self.end <= time.monotonic():
            raise RPCSessionTimeoutError("the session's time is over; ask for more with session_timeout=")
        return self.end - time.monotonic()

    def answer(self, request, data):
        """(reply, data) to a request."""
        left = self.left()
        if self.hop is not None:
            return self.hop.ask(request, data, left)
        op = request.get("op")
        if op == "has":
            return {"has": get_global_func(request["name"], allow_missing=True) is not None}, b""
        if op == "call":
            return self._call(request, data)
        if op == "drop" and isinstance(request.get("handle"), int) and request["handle"] < 0:
            self._kept.pop(-request["handle"], None)
            return {}, b""
        return self.runner.ask(request, data, left)

    def _call(self, request, data):
        func = self._kept[request["fn"]] if "fn" in request else get_global_func(request["name"])
        made = {"nd": lambda d: remote_array(self._own, d, keep=False), "fn": lambda d: self._kept[d["fn"]]}
        reader = io.BytesIO(data)
        args = [unpack(a, reader, lambda kind, d: made[kind](d)) for a in request["args"]]
        try:
            result = func(*args)
        except Exception as e:  # noqa: BLE001 - what a function raises is told to the client
            return error_of(e), b""
        out: list = []
        return {"value": pack(result, out, self._name)}, b"".join(out)

    def _name(self, value):
        """The number of what is returned: an array goes into the session's memory, a function is kept until the client drops it."""
        if isinstance(value, NDArray):
            tensor = self.ask({"op": "alloc", "device": [1, 0], "bytes": value.nbytes})[0]["tensor"]
            self.ask({"op": "write", "tensor": tensor}, value.numpy().tobytes())
            return tensor
        number = next(self._number)
        self._kept[number] = value
        return number


class Service:
    """Answers clients of one key; what `Server` starts.

    Parameters
    ----------
    key : str
    tls : cluster.settings.Tls, optional
    timeout : float, optional
        Seconds that a session may last at most.
    connect : callable
        ``connect(host, port, key)`` opens a session on another server, for clients that want to go on from here.
    """

    def __init__(self, key, tls, timeout, connect):
        self.key, self.timeout, self._connect, self._tls = key, timeout, connect, tls
        self._context, self._wires, self._lock = server_context(tls), set(), threading.Lock()

    def serve(self, sock):
        """One connection, from its first message to its end."""
        try:
            wire = Wire(self._context.wrap_socket(sock, server_side=True) if self._context else sock)
        except OSError:
            return sock.close()
        with self._lock:
            self._wires.add(wire)
        try:
            self.talk(wire)
        except (OSError, ValueError, RecursionError):
            pass  # gone, or it talks nonsense
        finally:
            wire.close()
            with self._lock:
                self._wires.discard(wire)

    def talk(self, wire):
        """Answers a client."""
        if self._tls is None and not wire.of_own_user():
            return
        hello, _ = wire.receive(HELLO_SECONDS, (FIRST, 0))
        try:
            session = self._session(hello)
        except Exception as e:  # noqa: BLE001 - it is told to the client
            return wire.send({"error": "rpc", "msg": str(e)})
        with contextlib.closing(session):
            wire.send({"hello": session.facts})
            while True:
                request, data = wire.receive()
                try:
                    reply, out = session.answer(request, data)
                except Exception as e:  # noqa: BLE001 - it is told to the client
                    reply, out = {"error": next((k for c, k in _KINDS if isinstance(e, c)), "runtime"), "msg": str(e)}, b""
                wire.send(reply, out)

    def _session(self, hello):
        if hello.get("nestsmith") != 1:
            raise RPCError("it is no client of nestsmith")
        if self.key and hello.get("key") != self.key:
            raise RPCError(f"this server's key is {self.key!r}, not {hello.get('key')!r}")
        limits = [s for s in (self.timeout, hello.get("seconds")) if s]
        args = hello.get("constructor") or []
        if not args:
            return _Session(min(limits, default=0))
        if args[0] not in _HOPS or len(args) < 3:
            raise RPCError(f"there is no session constructor {args[0]!r}; there is {', '.join(_HOPS)} (host, port, key)")
        return _Session(min(limits, default=0), self._connect(str(args[1]), int(args[2]), str(args[3]) if len(args) > 3 else ""))

    def close(self):
        """Ends all connections."""
        with self._lock:
            wires = list(self._wires)
        for w in wires:
            w.close()


class _Command:
    """A tracker or a board of `python -m nestsmith.exec`, as long as the object lives."""

    def __init__(self, module, arguments, ready):
        command = [sys.executable, "-m", f"nestsmith.exec.{module}", *map(str, arguments)]
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))}
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
        said, self.port = [], 0
        for line in self._child.stderr:
            said.append(line)
            if "bind to " in line:
                self.port = int(line.strip().rpartition(":")[2])
            if ready in line or "not registered" in line:
                break
        if not said or ready not in said[-1]:
            self.terminate()
            raise RPCError(f"{module} did not start: {''.join(said[-3:]).strip() or 'it ended without a word'}")
        threading.Thread(target=self._child.stderr.read, daemon=True).start()  # nothing waits for a reader

    def terminate(self):
        """Ends the process. May be called again."""
        if self._child.poll() is None:
            self._child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(10)

    def __del__(self):
        with contextlib.suppress(AttributeError):
            self.terminate()


class Tracker(_Command):
    """A tracker in a process of its own: the command ``python -m nestsmith.exec.rpc_tracker``.

    Parameters
    ----------
    host, port, port_end
        Where it listens: on the first free port; ``port`` says which.
    silent, reuse_addr, timeout
        Accepted.
    """

    def __init__(self, host="127.0.0.1", port=9190, port_end=9199, silent=False, reuse_addr=True, timeout=None):
        self.host = "127.0.0.1" if host in ("0.0.0.0", "") else host
        super().__init__("rpc_tracker", ["--host", host, "--port", port, "--port-end", port_end], "bind to ")


class Server:
    """A server: of its own, where `connect` opens sessions, or with `tracker_addr` a device of a tracker.

    Parameters
    ----------
    host, port, port_end : str, int, int
        Where it listens: on the first free port; ``port`` says which. Without TLS on this machine only, whatever `host` says.
    is_proxy : bool
        `host` and `port` are those of a `Proxy`, which it goes to.
    tracker_addr : (str, int), optional
        A tracker that lends it; it runs as the command ``python -m nestsmith.exec.rpc_server`` then.
    key : str
        What it is asked for by.
    custom_addr : str, optional
        The address at which others reach it; with a tracker.
    server_init_callback : callable, optional
        Called before the first client comes; it may register functions.
    timeout : float, optional
        Seconds that a session may last.
    load_library, silent, no_fork, reuse_addr
        Accepted.
    tls_dir : str, optional
        Directory with ca.pem, cert.pem, key.pem; NESTSMITH_TLS_DIR without it.

    Raises
    ------
    RPCError
        If no port is free, or it cannot register: no tracker, or one that cannot reach it.
    """

    def __init__(self, host="0.0.0.0", port=9091, port_end=9199, is_proxy=False, tracker_addr=None, key="", load_library=None,
                 custom_addr=None, silent=False, no_fork=False, server_init_callback=None, reuse_addr=True, timeout=None, tls_dir=None):  # fmt: skip
        if server_init_callback is not None:
            server_init_callback()
        self._command = self._listener = None
        self.host = "127.0.0.1" if host in ("0.0.0.0", "") else host
        if tracker_addr is not None and not is_proxy:
            self._as_board(host, port, port_end, tracker_addr, key, custom_addr, tls_dir)
            return
        tls = tls_from(tls_dir)
        self._service = Service(key, tls, timeout and check.number("timeout", timeout, 0), lambda *where: _connect(*where, tls))
        if is_proxy:
            self.port, self._tls, self._key = port, tls, key
            self._ended = threading.Event()
            threading.Thread(target=self._go_to_proxy, name="nestsmith-rpc-server", daemon=True).start()
            return
        self._listener = Listener(host, port, port_end, tls, self._service.serve)
        self.port = self._listener.port

    def _as_board(self, host, port, port_end, tracker, key, custom, tls_dir):
        try:
            socket.getaddrinfo(custom or "127.0.0.1", port)
        except OSError as e:
            raise RPCError(f"custom_addr is {custom!r}, which nobody can reach: {e}") from None
        options = ["--host", host, "--port", port, "--port-end", port_end, "--tracker", f"{tracker[0]}:{tracker[1]}", "--key", key]
        options += ["--custom-addr", custom] if custom else []
        self._command = _Command("rpc_server", options + (["--tls-dir", tls_dir] if tls_dir else []), "registered as ")
        self.port = self._command.port

    def _go_to_proxy(self):
        """Waits at the proxy for a client, again and again."""
        while not self._ended.is_set():
            try:
                wire = _open(self.host, self.port, self._tls)
                wire.send({"nestsmith": 1, "serve": self._key})
                with self._service._lock:
                    self._service._wires.add(wire)
                self._service.talk(wire)
            except (OSError, ValueError):
                self._ended.wait(0.2)

    def terminate(self):
        """Ends it and its sessions. May be called again."""
        if self._command is not None:
            return self._command.terminate()
        if self._listener is not None:
            self._listener.close()
        else:
            self._ended.set()
        self._service.close()
        return None

    def __del__(self):
        with contextlib.suppress(AttributeError):
            self.terminate()


def _open(host, port, tls):
    """A connection. Raises OSError."""
    sock = socket.create_connection((host, port), timeout=HELLO_SECONDS)
    context = client_context(tls)
    return Wire(context.wrap_socket(sock) if context else sock)


class _Connected:
    """The link of a session on a server."""

    calls = True  # functions of the server can be called

    def __init__(self, wire, seconds):
        self._wire, self._end = wire, time.monotonic() + seconds if seconds else None

    def ask(self, request, data=b"", limit=None):
        """(reply, data). Raises RPCError if the connection is gone."""
        seconds = min((s for s in (limit, self._end and self._end - time.monotonic()) if s), default=None)
        try:
            return self._wire.ask(request, data, seconds and max(seconds, 0) + HELLO_SECONDS)
        except TimeoutError:
            raise RPCSessionTimeoutError(f"{request.get('op')} got no answer in the session's time") from None
        except OSError as e:
            raise RPCError(f"the connection to the server is gone ({e})") from None

    def close(self):
        """Ends the session."""
        self._wire.close()

    abandon = close


def _connect(host, port, key, tls, seconds=0, constructor=()):
    """A link with a server, whose ``facts`` are what its runner said. Raises RPCError."""
    try:
        wire = _open(host, port, tls)
        hello = {"nestsmith": 1, "key": key, "seconds": seconds, "constructor": list(constructor)}
        reply, _ = wire.ask(hello, b"", 120.0)
    except (OSError, ValueError) as e:
        why = f"cannot connect to a server at {host}:{port} ({e})"
        raise RPCError(f"{why}; rpc.Server is one, a tracker's devices are had by connect_tracker") from None
    if "error" in reply:
        wire.close()
        raise RPCError(f"the server at {host}:{port} refuses: {reply.get('msg')}")
    link = _Connected(wire, seconds)
    link.facts = reply["hello"]
    return link


def connect(url, port, key="", session_timeout=0, session_constructor_args=None, enable_logging=False, tls_dir=None):
    """A session on an `rpc.Server` without a tracker.

    Parameters
    ----------
    url, port : str, int
        Where it listens.
    key : str
        The server's key.
    session_timeout : float
        Seconds that the session may last; 0: as long as the server lets it.
    session_constructor_args : list, optional
        ``["rpc.Connect", host, port, key]``: go on to another server, which the first one reaches.
    enable_logging : bool
        Accepted.
    tls_dir : str, optional
        Directory with ca.pem, cert.pem, key.pem; NESTSMITH_TLS_DIR without it.

    Returns
    -------
    RPCSession

    Raises
    ------
    RPCError
        If there is no server, or it refuses: for another key, or an unknown constructor.
    """
    seconds = check.number("session_timeout", session_timeout, -1) or 0
    args = [a.decode() if isinstance(a, bytes) and a.isascii() and len(a) < FIRST else a for a in session_constructor_args or ()]
    if not all(isinstance(a, (str, int, float, bool)) for a in args):
        raise RPCError(f"session_constructor_args is {args[:1]}...; there is ['rpc.Connect', host, port, key]")
    link = _connect(url, check.integer("port", port, 1), key, tls_from(tls_dir), seconds, args)
    return RPCSession(link, link.facts, f"{key or 'server'} at {url}:{port}")
