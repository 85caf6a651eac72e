"""The commands `rpc_tracker`, `rpc_server` and `query_rpc_tracker`."""

import argparse
import asyncio
import contextlib
import logging
import select
import signal
import sys

from .client import Client
from .display import summary_text
from .engine import plainly
from .probe import probe
from .runner import check_device
from .server import serve_board
from .settings import ClusterError, listening_host, parse_tracker, tls_from, tracker_of
from .talk import key_of
from .tls import make_tls
from .tracker import serve_tracker

__all__ = ["query", "server", "tracker"]


class _Lines(logging.StreamHandler):
    """Lines on a stream that never stop the process: once a pipe is full, further lines are lost."""

    def emit(self, record):
        """Writes the line, if there is room for it."""
        try:
            room = select.poll()
            room.register(self.stream.fileno(), select.POLLOUT)
            if not room.poll(0):
                return
        except (OSError, ValueError):  # no file: nothing to wait for
            pass
        super().emit(record)

    def format(self, record):
        """At most as much as fits wherever there is room."""
        return super().format(record)[: select.PIPE_BUF // 4 - 1]


def _say(name, silent):
    """A function that logs a line as INFO:<name>:<line> on the standard error."""
    log = logging.getLogger(name)
    log.propagate = False
    handler = _Lines(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    log.handlers[:] = [handler]
    log.setLevel(logging.WARNING if silent else logging.INFO)
    return log


def _listening(parser, port, port_end):
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on; without TLS 127.0.0.1 unless --insecure is given")
    parser.add_argument("--port", type=int, default=port, help="first port to try")
    parser.add_argument("--port-end", type=int, default=port_end, help="the port after the last one to try")
    parser.add_argument("--silent", action="store_true", help="warnings only")
    parser.add_argument("--insecure", action="store_true", help="listen on other addresses without TLS, and serve every user")
    parser.add_argument("--tls-dir", help="directory with ca.pem, cert.pem, key.pem; NESTSMITH_TLS_DIR without it")


async def _until_signal(coroutine):
    """Runs until the coroutine ends, or SIGINT or SIGTERM comes."""
    task, loop = asyncio.ensure_future(coroutine), asyncio.get_running_loop()
    for s in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(s, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _run(coroutine):
    try:
        asyncio.run(_until_signal(plainly(coroutine)))
    except ClusterError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


def _where(args, log):
    """(TLS or None, address to listen on)."""
    tls = tls_from(args.tls_dir)
    host, line = listening_host(args.host, tls, args.insecure)
    if line:
        log.warning("%s", line)
    return tls, host


def _guarded(body):
    def main(argv=None):
        try:
            return body(argv)
        except (ValueError, ClusterError) as e:
            print(f"error: {e}", file=sys.stderr)
            return 1

    main.__doc__ = body.__doc__
    return main


@_guarded
def tracker(argv=None):
    """`python -m nestsmith.exec.rpc_tracker`: lends the devices of all servers that register; returns the exit status."""
    parser = argparse.ArgumentParser("rpc_tracker", description="Lends the devices of all servers that register.")
    _listening(parser, 9190, 9199)
    parser.add_argument("--make-tls", metavar="DIR", help="make a private CA and a certificate in DIR, and end")
    parser.add_argument("--days", type=int, default=3650, help="how long the certificates of --make-tls are valid")
    args = parser.parse_args(argv)
    if args.make_tls:
        print("\n".join(make_tls(args.make_tls, args.days)))
        return 0
    log = _say("RPCTracker", args.silent)
    tls, host = _where(args, log)
    return _run(serve_tracker(host, args.port, args.port_end, tls, log.info, args.insecure))


@_guarded
def server(argv=None):
    """`python -m nestsmith.exec.rpc_server`: registers a device with a tracker; returns the exit status."""
    parser = argparse.ArgumentParser("rpc_server", description="Registers a device with a tracker and serves it.")
    _listening(parser, 9090, 9199)
    parser.add_argument("--tracker", help="HOST:PORT of the tracker")
    parser.add_argument("--key", default="", help="what the device is asked for by")
    parser.add_argument("--device", default="local", help="local, adb:SERIAL or ssh:USER@HOST")
    parser.add_argument("--custom-addr", help="the address at which others reach this server")
    for name in ("--no-fork", "--through-proxy"):
        parser.add_argument(name, action="store_true", help="accepted, has no effect")
    parser.add_argument("--load-library", help="accepted, has no effect")
    args = parser.parse_args(argv)
    log = _say("RPCServer", args.silent)
    for name in ("no_fork", "through_proxy", "load_library"):
        if getattr(args, name):
            log.warning("--%s has no effect", name.replace("_", "-"))
    if not args.tracker:
        raise ValueError("--tracker HOST:PORT is missing: a server is reached through its tracker")
    if not args.key:
        raise ValueError("--key is missing: give the name by which the device is asked for, such as rk3399")
    key_of(args.key)
    check_device(args.device)
    tls, host = _where(args, log)
    return _run(
        serve_board(host, args.port, args.port_end, parse_tracker(args.tracker), tls, args.key, args.device, args.custom_addr, log.info,
                    args.insecure)
    )


@_guarded
def query(argv=None):
    """`python -m nestsmith.exec.query_rpc_tracker`: prints who is there; returns the exit status."""
    parser = argparse.ArgumentParser("query_rpc_tracker", description="Prints the devices of a tracker and who waits for them.")
    parser.add_argument("--host", help="of the tracker; NESTSMITH_TRACKER_HOST, TVM_TRACKER_HOST or 127.0.0.1 without it")
    parser.add_argument("--port", type=int, help="of the tracker; NESTSMITH_TRACKER_PORT, TVM_TRACKER_PORT or 9190 without it")
    parser.add_argument("--tls-dir", help="directory with ca.pem, cert.pem, key.pem; NESTSMITH_TLS_DIR without it")
    parser.add_argument("--verbose", action="store_true", help="also what each device does, for whom and since when")
    parser.add_argument("--probe", metavar="KEY", help="try a device of the key: every step from here to its memory, and what it takes")
    args = parser.parse_args(argv)
    host, port = tracker_of(args.host, args.port)
    client = Client(host, port, args.tls_dir)
    try:
        if args.probe is not None:
            probe(client, key_of(args.probe), print)
            return 0
        summary = client.summary()
    finally:
        client.close()
    print(f"Tracker address {args.host or host}:{port}\n")
    print(summary_text(summary, args.verbose))
    return 0
