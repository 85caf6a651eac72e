"""A server: a nanny that keeps one board process alive and registered, whatever becomes of it or of the tracker."""

import asyncio
import contextlib
import os
import socket

from .board import Board
from .engine import LOST_SECONDS, Nanny, address_of, close_comm, first_cause, open_comm, rpc, security_of
from .scratch import Scratch, sweep
from .settings import ClusterError, free_port

__all__ = ["serve_board"]

BACK_OFF = (0.25, 0.5, 1, 2, 4, 8, 16, 30)  # seconds between tries
CONFIRM_SECONDS = 10.0
START_SECONDS = 120.0  # for its process, which loads its libraries on a slow board that may be busy


class _Nanny(Nanny):
    """Its board answers those whom it answers itself."""

    def __init__(self, *args, insecure, say, **kwargs):
        super().__init__(*args, open_to_all=insecure, say=say, **kwargs)
        self.worker_kwargs["open_to_all"] = insecure


class Refused(ClusterError):
    """The tracker does not want this server: trying again is of no use."""


async def _check_way(address, tls):
    await close_comm(await open_comm(address, tls))


async def _start(host, ports, tracker, tls, key, device, custom, work, insecure, say):
    address = address_of(*tracker, tls)
    await _check_way(address, tls)
    port = free_port(host, *ports)
    shown = f"{custom}:{port}" if custom else ""
    nanny = _Nanny(
        address, nthreads=1, name=f"{key}@{socket.gethostname()}:{os.getpid()}", resources={f"dev.{key}": 1}, security=security_of(tls),
        worker_class=Board, worker_port=port, host=host, protocol="tls" if tls else "tcp", local_directory=work,
        memory_limit=0, death_timeout=START_SECONDS, key=key, device=device, shown=shown,
        contact_address=f"{address.split('://')[0]}://{shown}" if shown else None, dashboard=False, insecure=insecure, say=say,
    )  # fmt: skip
    try:
        await nanny
        return nanny
    except Exception as e:  # noqa: BLE001 - what starting a process can raise has no common base
        await nanny.close(timeout=2)
        raise ClusterError(f"the server's process did not start: {first_cause(e)}") from None


async def _ask(what, nanny, tracker, tls, seconds):
    """The tracker's answer on this server. Raises asyncio.TimeoutError, OSError."""
    async with rpc(address_of(*tracker, tls), connection_args=security_of(tls).get_connection_args("worker")) as scheduler:
        return await asyncio.wait_for(getattr(scheduler, what)(address=nanny.worker_address), seconds)


async def _confirm(nanny, tracker, tls):
    reply = await _ask("ns_confirm", nanny, tracker, tls, CONFIRM_SECONDS)
    why = reply["why"] if isinstance(reply, dict) else f"{tracker[0]}:{tracker[1]} is no tracker of nestsmith"
    if why:
        raise Refused(why)


async def _forgotten(nanny, tracker, tls):
    """Returns when the tracker does not know the server any more, or does not answer."""
    strange = 0  # answers in a row; one comes while its process starts anew
    while strange < 2:
        await asyncio.sleep(LOST_SECONDS / 3)
        try:
            reply = await _ask("ns_known", nanny, tracker, tls, LOST_SECONDS)
        except (TimeoutError, OSError):
            return
        strange = 0 if reply == {"known": True} else strange + 1


async def _stays(nanny, tracker, tls):
    """Returns when the server is not registered any more."""
    asking = asyncio.ensure_future(_forgotten(nanny, tracker, tls))
    try:
        while nanny.status.name in ("running", "starting", "init", "paused") and not asking.done():
            await asyncio.sleep(0.2)
    finally:
        asking.cancel()


async def serve_board(host, port, port_end, tracker, tls, key, device, custom, say, insecure=False):
    """Registers with the tracker and serves until cancelled. `say` gets lines for the user. Raises ClusterError if the tracker
    refuses this server."""
    tries = 0
    sweep()
    with contextlib.closing(Scratch("server")) as work:
        while True:
            nanny = None
            try:
                nanny = await _start(host, (port, port_end), tracker, tls, key, device, custom, work.path, insecure, say)
                if not tries:
                    say(f"bind to {nanny.worker_address.split('://')[1]}")
                await _confirm(nanny, tracker, tls)
                say(f"registered as {key} with tracker {tracker[0]}:{tracker[1]}")
                tries = 0
                await _stays(nanny, tracker, tls)
                say(f"the tracker {tracker[0]}:{tracker[1]} went away; trying to register again")
            except (TimeoutError, ClusterError, OSError) as e:
                if isinstance(e, Refused):
                    raise
                say(f"not registered with tracker {tracker[0]}:{tracker[1]}: {e or type(e).__name__}; trying again")
            finally:
                if nanny is not None:
                    await nanny.close(timeout=2)
            await asyncio.sleep(BACK_OFF[min(tries, len(BACK_OFF) - 1)])
            tries += 1
