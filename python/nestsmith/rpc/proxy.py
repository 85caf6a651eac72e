"""A meeting point for servers that cannot be reached: they go to it, and clients find them by key."""

import collections
import contextlib
import socket
import threading

from .wire import FIRST, Listener, Wire

__all__ = ["Proxy"]

WAIT_SECONDS = 10.0  # of a client for a server of its key


class Proxy:
    """Brings clients and servers (`Server` with ``is_proxy=True``) of one key together, on this machine.

    Parameters
    ----------
    host, port, port_end
        Where it listens: on the first free port; ``port`` says which.

    Raises
    ------
    ValueError
        For `tracker_addr`: boards of a tracker go to the tracker themselves.
    RPCError
        If no port is free.
    """

    def __init__(self, host="127.0.0.1", port=9091, port_end=9199, web_port=0, timeout_client=600, timeout_server=600, tracker_addr=None,
                 index_page=None, resource_files=None):  # fmt: skip
        if tracker_addr is not None:
            raise ValueError("a proxy knows no tracker: servers register with it themselves (python -m nestsmith.exec.rpc_server --tracker)")
        self._waiting, self._change = collections.defaultdict(collections.deque), threading.Condition()
        self._listener = Listener(host, port, port_end, None, self._meet)
        self.host, self.port = self._listener.host, self._listener.port

    def _meet(self, sock):
        wire = Wire(sock)
        try:
            if not wire.of_own_user():
                return wire.close()
            hello, _ = wire.receive(WAIT_SECONDS, (FIRST, 0))
            with self._change:
                if "serve" in hello:
                    self._waiting[hello["serve"]].append(wire)
                    return self._change.notify_all()
                key = hello.get("key", "")
                if not self._change.wait_for(lambda: self._waiting[key], WAIT_SECONDS):
                    return wire.send({"error": "rpc", "msg": f"no server has the key {key!r}"})
                server = self._waiting[key].popleft()
            server.send(hello)
        except (OSError, ValueError):
            return wire.close()
        threading.Thread(target=_pump, args=(wire.sock, server.sock), daemon=True).start()
        return _pump(server.sock, wire.sock)

    def terminate(self):
        """Ends it and those that wait. May be called again."""
        self._listener.close()
        for wire in [w for waiting in self._waiting.values() for w in waiting]:
            wire.close()


def _pump(source, sink):
    """Carries bytes until an end is closed, then closes both."""
    with contextlib.suppress(OSError):
        while got := source.recv(1 << 16):
            sink.sendall(got)
    for s in (source, sink):
        with contextlib.suppress(OSError):
            s.shutdown(socket.SHUT_RDWR)
