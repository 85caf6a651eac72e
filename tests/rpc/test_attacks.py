"""What strangers on the same machine, or with the same network, try: nothing that they send is unpickled or run."""

import asyncio
import contextlib
import os
import pathlib
import pickle
import socket
import struct
import subprocess
import sys
import threading

import msgpack
import psutil
import pytest
from distributed.comm import connect, listen
from distributed.protocol.serialize import Serialize, ToPickle
from fleet import Fleet, manned

from helpers import wait_until
from nestsmith import rpc
from nestsmith.cluster import peers
from nestsmith.cluster.ledger import Ledger
from nestsmith.cluster.talk import heard, told

fleet = manned("a")


class Evil:
    """Makes a file where it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return open, (self.mark, "w")


def ports(process):
    """Where a command and what it started listen."""
    top = psutil.Process(process.child.pid)
    found = set()
    for p in (top, *top.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # of a session that ends just now
            found |= {c.laddr.port for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    return sorted(found)


def messages(mark):
    """What makes a plain Dask scheduler, nanny or worker run code, or write where it is told to."""
    evil, nothing = pickle.dumps(Evil(mark)), pickle.dumps(())
    function = {"function": evil, "args": nothing, "kwargs": pickle.dumps({}), "wait": True}
    task = {"op": "compute-task", "key": "x", "run_spec": ToPickle(Evil(mark)), "function": evil, "args": nothing, "kwargs": nothing,
            "priority": (0,), "duration": 1, "nbytes": {}, "who_has": {}, "resource_restrictions": {}, "actor": False, "annotations": {},
            "stimulus_id": "x", "run_id": 1}  # fmt: skip
    return {
        "a pickle": [{"op": "ns-client", "user": ToPickle(Evil(mark))}],
        "an object": [{"op": "ns-client", "user": Serialize(Evil(mark))}],
        "a large pickle": [{"op": "ns-client", "user": ToPickle((Evil(mark), b"x" * (1 << 25)))}],
        "a function": [{"op": "run_function", **function}, {"op": "run", **function}, {"op": "run_coroutine", **function}],
        "a feed": [{"op": "feed", "function": evil, "interval": 1}],
        "a plugin": [{"op": name, "plugin": evil, "name": "x", "idempotent": False} for name in (
            "plugin_add", "plugin-add", "register_scheduler_plugin", "register_worker_plugin", "register_nanny_plugin")],
        "a broadcast": [{"op": "broadcast", "msg": {"op": "run", **function}}],
        "a task": [{"op": "connection_stream"}, task],
        "a graph": [{"op": "register-client", "client": "x", "versions": {}}, {"op": "connection_stream"},
                    {"op": "update-graph", "client": "x", "expr_ser": ToPickle(Evil(mark)), "keys": ["x"]}],
        "a dump": [{"op": "dump_cluster_state_to_url", "url": f"file://{mark}", "exclude": [], "format": "yaml"}],
        "a file": [{"op": "upload_file", "filename": str(mark), "data": b"x", "load": True}],
    }  # fmt: skip


async def say(port, series):
    comm = await connect(f"tcp://127.0.0.1:{port}", timeout=30)
    try:
        for m in series:
            await comm.write(m)
        await comm.write({"op": "nonsense, which is answered after all that came before", "close": True})
        while True:
            await asyncio.wait_for(comm.read(), 20)
    except (TimeoutError, OSError):
        pass
    finally:
        comm.abort()


@pytest.mark.parametrize("what", list(messages("x")))
def test_tracker_nanny_and_board_run_nothing_that_they_are_sent(fleet, tmp_path, what):
    mark = tmp_path / "mark"
    doors = ports(fleet.tracker) + ports(fleet.servers[0])
    assert len(doors) == 3
    for port in doors:
        asyncio.run(say(port, messages(mark)[what]))
        assert list(tmp_path.iterdir()) == [], (what, port)
    with rpc.request_remote("a", "127.0.0.1", fleet.port) as remote:
        assert remote.listdir() == []


def test_clients_unpickle_nothing_of_a_tracker(tmp_path):
    async def serve(ready):
        async def answer(comm):
            await comm.read()
            await comm.write({"event": "welcome", "x": ToPickle(Evil(tmp_path / "mark"))})
            await comm.close()

        async with listen("tcp://127.0.0.1:0", answer) as door:
            ready.put_nowait(door.contact_address)
            await over.wait()

    over, ready, loop = asyncio.Event(), asyncio.Queue(), asyncio.new_event_loop()
    t = threading.Thread(target=lambda: loop.run_until_complete(serve(ready)))
    t.start()
    address = asyncio.run_coroutine_threadsafe(ready.get(), loop).result(60)
    with pytest.raises((rpc.RPCError, ValueError), match="no tracker of nestsmith|holds a pickle"):
        rpc.connect_tracker("127.0.0.1", int(address.rpartition(":")[2]))
    loop.call_soon_threadsafe(over.set)
    t.join()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("family, host", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::ffff:127.0.0.1")])
def test_the_owner_of_a_connection_is_known(family, host):
    try:
        door = socket.create_server((host, 0), family=family)
    except OSError as e:
        pytest.skip(f"no {host} here: {e}")
    with door, socket.socket(family) as s:
        s.connect(door.getsockname())
        plain = tuple(x[:2] for x in (s.getsockname(), s.getpeername()))
        assert peers.owner_of(*plain) == os.getuid() and peers.is_own(*plain)
        assert peers.owner_of(("127.0.0.1", 1), plain[1]) is None and not peers.is_own(("127.0.0.1", 1), plain[1])


OTHER = """
import os, sys
from nestsmith import rpc
from nestsmith.cluster.engine import LOOP  # all is loaded before rights are given up
os.seteuid(65534)
try:
    rpc.connect_tracker("127.0.0.1", int(sys.argv[1]))
except rpc.RPCError as e:
    print(e)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_other_users_of_the_machine_are_refused_unless_it_is_insecure(fleet):
    out = subprocess.run([sys.executable, "-c", OTHER, str(fleet.port)], capture_output=True, text=True, timeout=120, check=True).stdout
    assert f"refuses this client: it serves user {os.getuid()} of its machine alone" in out and "--insecure" in out
    open_to_all = Fleet("--insecure")
    try:
        done = subprocess.run([sys.executable, "-c", OTHER, str(open_to_all.port)], capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout == ""
    finally:
        open_to_all.close()


FLOOD = """
import encodings.idna, os, socket, struct, sys  # all is loaded before rights are given up
os.seteuid(65534)
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5)
n, sent = 1500 << 20, 0
try:
    s.sendall(struct.pack("<QQQ", n + 16, 1, n))
    while sent < 256 << 20:
        sent += s.send(bytes(1 << 20))
except OSError:
    pass
print(sent >> 20)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_nothing_of_other_users_is_read(fleet):
    """A frame of 1.5 GB: what the kernel keeps for us is all that is taken of it."""
    for port, process in [(fleet.port, fleet.tracker), *((p, fleet.servers[0]) for p in ports(fleet.servers[0]))]:
        tree = [psutil.Process(process.child.pid), *psutil.Process(process.child.pid).children(recursive=True)]
        before = sum(p.memory_info().rss for p in tree)
        r = subprocess.run([sys.executable, "-c", FLOOD, str(port)], capture_output=True, text=True, timeout=120, check=True)
        assert int(r.stdout) < 32, port
        assert sum(p.memory_info().rss for p in tree) - before < 16 << 20, port


def test_a_first_message_has_a_limit(fleet):
    """Of this user's processes, too: they may be mistaken."""
    with socket.create_connection(("127.0.0.1", fleet.port)) as s:
        s.settimeout(60)
        s.sendall(struct.pack("<Q", 2 << 20))
        with contextlib.suppress(OSError):
            while s.recv(4096):
                pass
    assert rpc.connect_tracker("127.0.0.1", fleet.port).summary()["queue_info"]["a"]["total"] == 1


def test_hellos_that_make_no_sense_end_the_connection_only(fleet):
    for hello in (b"", b"\xc1", msgpack.packb([1]), msgpack.packb({"op": 5}), msgpack.packb({"op": ["x"]}), msgpack.packb("x" * 9999)):
        with socket.create_connection(("127.0.0.1", fleet.port)) as s:
            frames = struct.pack("<QQQ", 2, 0, len(hello)) + hello
            s.sendall(struct.pack("<Q", len(frames)) + frames)
            s.shutdown(socket.SHUT_WR)
            s.settimeout(60)
            while s.recv(4096):
                pass
    assert rpc.connect_tracker("127.0.0.1", fleet.port).summary()["queue_info"]["a"]["total"] == 1


@pytest.mark.parametrize("message", [
    None, [], {}, {"do": []}, {"do": "acquire"}, {"do": "acquire", "id": True, "key": "k", "priority": 1, "like": None, "but": [], "wait": 1},
    {"do": "acquire", "id": 1, "key": "\x1b[2J", "priority": 1, "like": None, "but": [], "wait": 1},
    {"do": "acquire", "id": 1, "key": "k", "priority": 1, "like": None, "but": [[]], "wait": 1},
    {"do": "acquire", "id": 1, "key": "k", "priority": 1, "like": None, "but": [], "wait": float("nan")}, {"do": "release", "lease": {}},
])  # fmt: skip
def test_the_ledger_hears_no_nonsense(message):
    with pytest.raises(ValueError, match="a client"):
        heard(message)
    with pytest.raises(ValueError, match="server"):
        told(message)


def test_a_device_that_is_granted_while_its_request_is_taken_back_is_free():
    x = Ledger()
    x.board_added("a", "k", {"classes": {}}, 0)
    assert [e[0] for e in x.acquire("me", 7, "k", 1)] == ["begin", "grant"]
    assert [e[0] for e in x.cancel("me", 7, 2)] == ["end"] and not x.leases
    assert x.acquire("other", 7, "k", 3) and x.cancel("me", 7, 4) == [] and len(x.leases) == 1


NAMES = ["..", "../x", "..\\x", "/x", "//x", "./x", "x/..", "x/", "\u2024\u2024/x", "\uff0e\uff0e\uff0fx/../..", "a\x00/../x", "\x7f", "x" * 128,
         "/proc/self/root/x", "~/x/", "%2e%2e/x", "\udcae\udcae/x"]  # fmt: skip
LIKE_NAMES = ["\uff0e\uff0e\uff0fx", "\u2024\u2024\u2215x", "\u2025\u29f8x", "..\u200b", "%2e%2e%2fx", "...", "~", "-rf", "nul", "x\u202e",
              "\udcae\udcae"]  # fmt: skip


@pytest.mark.parametrize("op", ["put", "get", "del", "load"])
def test_names_that_would_leave_the_directory_are_refused(op):
    with rpc.LocalSession() as remote:
        for name in NAMES:
            with pytest.raises(ValueError):
                remote.ask({"op": op, "name": name}, b"x")
        assert remote.listdir() == []


def test_names_that_only_look_so_stay_inside():
    with rpc.LocalSession() as remote:
        place = pathlib.Path(remote._link.runner._made.path)
        around = sorted(place.parent.iterdir())
        made = 0
        for name in LIKE_NAMES:
            try:
                remote.ask({"op": "put", "name": name}, b"x")
                made += 1
            except ValueError:
                continue
        inside = os.listdir(os.fsencode(place))
        assert len(inside) == made >= 8 and sorted(place.parent.iterdir()) == around
    assert not place.exists()


def test_a_name_that_becomes_a_link_between_two_looks_is_not_followed(tmp_path):
    """A process swaps a file for links to what lies outside, as fast as it can. Only for symbolic links opening is the look; that a
    file has no second name is seen after it was opened, and a hard link that goes in between is not: whoever can make one to a
    file of this user has this user's rights already."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    stop, swaps = threading.Event(), []
    with rpc.LocalSession() as remote:
        place = pathlib.Path(remote._link.runner._made.path)

        def swap():
            while not stop.is_set():
                for k, how in enumerate((os.symlink, None)):
                    new = place / f"new{k}"
                    new.unlink(missing_ok=True)
                    how(secret, new) if how else new.write_bytes(b"plain")
                    os.replace(new, place / "x")
                    swaps.append(how)

        t = threading.Thread(target=swap)
        t.start()
        assert wait_until(lambda: len(swaps) > 3)
        told_plain = refused = 0
        while told_plain + refused < 600 or not (told_plain and refused):
            try:
                assert remote.ask({"op": "get", "name": "x"})[1] in (b"plain", b"", b"mine")
                remote.ask({"op": "put", "name": "x"}, b"mine")
                told_plain += 1
            except (ValueError, OSError):
                refused += 1
        stop.set()
        t.join()
        assert secret.read_bytes() == b"secret"
