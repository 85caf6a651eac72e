"""Messages between a client and a server without a tracker: JSON and bytes, framed as those of a runner (csrc/runner/runner.h).

Arguments and results of functions are numbers, texts, bytes, None, arrays of the session, functions of the server, and lists of these.
"""

import contextlib
import json
import socket
import ssl
import struct
import threading

import numpy as np

from ..cluster.peers import is_own
from ..cluster.settings import free_port, listening_host
from ..error import RPCError, TVMError, TVMValueError, registered_error
from ..runtime.ndarray import NDArray

__all__ = ["Listener", "Wire", "client_context", "error_of", "pack", "raised", "server_context", "unpack"]

_LENGTHS = struct.Struct("<IQ")
HEAD, PAYLOAD, FIRST = 4 << 20, 1 << 30, 1 << 12  # most bytes of a message's JSON, of its data, of a first message


def server_context(tls):
    """The context of a server that serves members of the team only; None without TLS."""
    return tls and _context(tls, ssl.PROTOCOL_TLS_SERVER)


def client_context(tls):
    """The context of a client; None without TLS."""
    return tls and _context(tls, ssl.PROTOCOL_TLS_CLIENT)


def _context(tls, protocol):
    context = ssl.SSLContext(protocol)
    context.check_hostname = False  # a team's certificate is the same on all machines
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    return context


class Wire:
    """A connection that carries messages. Threads take turns with `ask`."""

    def __init__(self, sock):
        self.sock, self._turn = sock, threading.Lock()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def of_own_user(self):
        """Whether the process at the other end is of this user, as far as it can be told."""
        return is_own(self.sock.getpeername()[:2], self.sock.getsockname()[:2])

    def close(self):
        """Ends the connection; who waits for a message gets an error."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def send(self, message, data=b""):
        """Sends a message. Raises OSError, and ValueError if it is too large."""
        head = json.dumps(message).encode()
        if len(head) > HEAD or len(data) > PAYLOAD:
            raise TVMValueError(f"a message of {len(head) + len(data)} bytes is too large")
        self.sock.sendall(_LENGTHS.pack(len(head), len(data)) + head)
        if data:
            self.sock.sendall(data)

    def _take(self, n):
        out = bytearray(n)
        view = memoryview(out)
        while view:
            got = self.sock.recv_into(view[: 1 << 20])
            if not got:
                raise ConnectionError("the connection was closed")
            view = view[got:]
        return bytes(out)

    def receive(self, seconds=None, most=(HEAD, PAYLOAD)):
        """(message, data). Raises OSError (TimeoutError after so many seconds), and ValueError for something else."""
        self.sock.settimeout(seconds)
        try:
            n_head, n = _LENGTHS.unpack(self._take(_LENGTHS.size))
            if n_head > most[0] or n > most[1]:
                raise ValueError("it is no message of nestsmith")
            message = json.loads(self._take(n_head))
            if not isinstance(message, dict):
                raise ValueError("it is no message of nestsmith")
            return message, self._take(n)
        finally:
            with contextlib.suppress(OSError):
                self.sock.settimeout(None)

    def ask(self, message, data=b"", seconds=None):
        """The answer to a message. An interrupted question ends the connection: its answer would be taken for that of the next one."""
        with self._turn:
            try:
                self.send(message, data)
                return self.receive(seconds)
            except BaseException:
                self.close()
                raise


class Listener:
    """Waits for connections on the first free port, and hands each to a thread of its own; without TLS on this machine only."""

    def __init__(self, host, port, port_end, tls, serve):
        self.host, _ = listening_host(host, tls, False)
        self._socket, self._serve = socket.create_server((self.host, free_port(self.host, port, port_end))), serve
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="nestsmith-rpc", daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):  # it was closed
            while True:
                sock, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(sock,), name="nestsmith-rpc-session", daemon=True).start()

    def close(self):
        """Waits no more. May be called again."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def error_of(e):
    """The message that tells of an exception."""
    return {"error": "python", "class": type(e).__name__, "msg": str(e)}


def raised(name, text):
    """The exception that a message tells of: of the class of that name, and a TVMError in any case."""
    kind = registered_error(name)
    if issubclass(kind, TVMError):
        return kind(text)
    if issubclass(kind, ValueError):
        return TVMValueError(text)
    try:
        return type(name, (RPCError, kind), {})(text)
    except TypeError:  # classes that cannot be joined
        return RPCError(f"{name}: {text}")


def pack(value, out, name_of):
    """JSON of a value; its bytes are appended to `out`. `name_of` gives arrays and functions a number: ("nd" or "fn", number).

    Raises TypeError for something that cannot be sent.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float, np.integer, np.floating)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (bytes, bytearray, memoryview)):
        out.append(bytes(value))
        return {"bytes": len(out[-1])}
    if isinstance(value, (list, tuple)):
        return {"list": [pack(v, out, name_of) for v in value]}
    if isinstance(value, NDArray):
        return {"nd": name_of(value), "shape": list(value.shape), "dtype": value.dtype, "device": [value.device.device_type, value.device.device_id]}
    if callable(value):
        return {"fn": name_of(value)}
    raise TypeError(f"a {type(value).__name__} cannot be sent; arguments and results are numbers, texts, bytes, arrays, functions and lists")


def unpack(value, data, made_of):
    """The value of what `pack` made. ``made_of(kind, description)`` makes arrays and functions; `data` is a reader of the bytes."""
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        return data.read(int(value["bytes"]))
    if "list" in value:
        return [unpack(v, data, made_of) for v in value["list"]]
    return made_of("nd" if "nd" in value else "fn", value)
