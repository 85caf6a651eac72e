"""What tracker, servers and clients are told: addresses, environment variables, certificates."""

import contextlib
import errno
import ipaddress
import os
import pathlib
import socket

from .. import check
from ..error import RPCError as ClusterError, RPCSessionTimeoutError as SessionTimeout

__all__ = ["ClusterError", "SessionTimeout", "Tls", "client_host", "free_port", "listening_host", "parse_tracker",
           "tls_from", "tracker_of"]

DEFAULT_PORT, LAST_PORT = 9190, 65535
FILES = "ca.pem", "cert.pem", "key.pem"


def client_host(host):
    """The address that a client connects to: 0.0.0.0 is where a server of this machine listens."""
    return "127.0.0.1" if host in ("0.0.0.0", "", "::") else host


def is_loopback(host):
    """Whether an address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening_host(host, tls, insecure):
    """(address to listen on, line to say or ""): without TLS nothing listens beyond this machine unless asked to."""
    if tls is not None or is_loopback(host):
        return host, ""
    if insecure:
        return host, (f"listening on {host} without TLS: whoever reaches this port can run programs here with your "
                      "rights; use --tls-dir (rpc_tracker --make-tls DIR makes the certificates)")
    return "127.0.0.1", (f"listening on 127.0.0.1 instead of {host}: without TLS only this machine is served; give "
                         "--tls-dir DIR (made by rpc_tracker --make-tls DIR) for others, or --insecure on a network "
                         "that you trust")


def _port(value, least=1):
    number = check.integer("port", value, least)
    if number > LAST_PORT:
        raise ValueError(f"port is {number}; ports end at {LAST_PORT}")
    return number


def _is_free(host, port):
    """Whether a server could listen there, which has several addresses where a name stands for them."""
    free, why = False, None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            with contextlib.closing(socket.socket(family, kind, protocol)) as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: what has ended leaves its port at once
                s.bind(address)
                free = True
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                return False
            why = e
    if not free:
        raise why or OSError(f"{host} has no address")
    return True


def free_port(host, port, port_end):
    """The first port of [port, port_end), in any case `port` itself, that nobody listens on; 0, which leaves it to the system, is kept.

    It can be taken until it is used: who fails then asks again.

    Raises
    ------
    ValueError
        If they are no ports.
    ClusterError
        If none is free, or `host` is no address of this machine.
    """
    if not _port(port, 0):
        return 0
    last = max(port, min(port_end - 1, LAST_PORT))
    try:
        for p in range(port, last + 1):
            if _is_free(host, p):
                return p
    except OSError as e:
        raise ClusterError(f"cannot listen on {host}:{p}: {e.strerror or e}; give an address of this machine (--host)") from None
    ports = f"port {port} is not" if last == port else f"no port from {port} to {last} is"
    raise ClusterError(f"{ports} free on {host}; give another range (--port, --port-end)")


def _environment(name):
    return os.environ.get(f"NESTSMITH_{name}") or os.environ.get(f"TVM_{name}")


def tracker_of(host=None, port=None):
    """(host, port) of the tracker: as given, else NESTSMITH_TRACKER_HOST/PORT, TVM_TRACKER_HOST/PORT, 127.0.0.1:9190.

    Raises ValueError if the port is no number.
    """
    host = host or _environment("TRACKER_HOST") or "127.0.0.1"
    port = port if port is not None else _environment("TRACKER_PORT") or DEFAULT_PORT
    try:
        number = int(port)
    except (TypeError, ValueError):
        raise ValueError(f"the tracker's port is {port!r}; it must be a number") from None
    return client_host(check.text("host", host)), _port(number)


def parse_tracker(text):
    """(host, port) of HOST:PORT, split at the last colon. Raises ValueError."""
    host, colon, port = str(text).rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"--tracker is {text!r}; write HOST:PORT, for example 192.168.1.2:9190")
    return client_host(host.strip("[]")), _port(int(port))


class Tls:
    """A directory with ca.pem, cert.pem and key.pem, of one machine or shared by all.

    Raises
    ------
    ValueError
        If a file is missing.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        missing = [f for f in FILES if not (self.folder / f).is_file()]
        if missing:
            raise ValueError(f"the TLS directory {os.fspath(folder)!r} has no {', '.join(missing)}; `rpc_tracker "
                             "--make-tls DIR` makes one")
        self.ca, self.cert, self.key = (os.fspath(self.folder / f) for f in FILES)


def tls_from(folder=None):
    """The `Tls` of a directory, of NESTSMITH_TLS_DIR if none is given, or None."""
    folder = folder or os.environ.get("NESTSMITH_TLS_DIR")
    return Tls(folder) if folder else None
