"""What `query_rpc_tracker --probe KEY` does: the way of a measurement, step by step."""

import os
import time

from .client import DeviceLost
from .settings import ClusterError

__all__ = ["probe"]

_SECONDS = 60.0  # for a step
_BYTES = 1 << 20


def probe(client, key, say, wait_limit=10.0):
    """Asks for a device of a key, moves a file and writes to each of its devices' memories.

    Parameters
    ----------
    client : Client
    key : str
    say : callable
        Gets a line for each step: what it was and the milliseconds that it took.
    wait_limit : float
        Seconds to wait while no device has the key. While all are busy it waits, and the log says who has them.

    Raises
    ------
    ClusterError
        For the step that does not work, with the address and a remedy.
    """

    def step(what, body, *args):
        begin = time.monotonic()
        found = body(*args)
        say(f"{what(found)}: {(time.monotonic() - begin) * 1e3:.1f} ms")
        return found

    def ask(message, data=b""):
        reply = lease.ask({"do": "ask", "request": message, "data": data, "limit": _SECONDS}, _SECONDS)
        return reply["reply"], reply["data"]

    def begin():
        try:
            return lease.ask({"do": "open", "limit": _SECONDS}, _SECONDS)["facts"]["hello"]
        except DeviceLost as e:
            raise ClusterError(f"{e}; the tracker reaches it at {lease.address.split('://')[1]}: open that port for "
                               "this machine, too, or start the server with --custom-addr and an address that both "
                               "reach") from None

    def compare(what, got):
        if got != data:
            raise ClusterError(f"{what} does not come back as it went")

    def move():
        ask({"op": "put", "name": "probe"}, data)
        compare("a file", ask({"op": "get", "name": "probe"})[1])

    def keep(device):
        tensor = ask({"op": "alloc", "device": [device["type"], device["id"]], "bytes": len(data)})[0]["tensor"]
        ask({"op": "write", "tensor": tensor}, data)
        compare(f"memory of {device['name']}", ask({"op": "read", "tensor": tensor})[1])
        ask({"op": "drop", "handle": tensor})

    data = os.urandom(_BYTES)
    step(lambda _: f"the tracker {client.host}:{client.port} answers", client.summary)
    lease = step(lambda x: f"it lends {x.address.split('://')[1]} for key {key}", client.acquire, key, 1, None, (), wait_limit)
    try:
        facts = step(lambda x: f"a session begins on {x['machine']}", begin)
        step(lambda _: "a file of 1 MiB goes there and comes back", move)
        for d in facts["devices"]:
            step(lambda _, d=d: f"{d['name']} keeps 1 MiB", keep, d)
    finally:
        lease.release()
    say("the device is given back")
