"""A tracker under strangers who say nothing, half of something, or something very slowly: members notice nothing of them."""

import asyncio
import contextlib
import logging
import os
import pathlib
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from fractions import Fraction

import distributed.protocol.pickle as pickles
import psutil
import pytest
from distributed.comm import connect, listen
from distributed.protocol.serialize import ToPickle
from fleet import Fleet, certificates

from helpers import PATIENCE, wait_until
from nestsmith.cluster import commands, door
from nestsmith.cluster.client import Client
from nestsmith.cluster.engine import security_of
from nestsmith.cluster.tracker import Tracker

HERE = pathlib.Path(__file__).parent
LIMITED = "import os, resource\nn = int(os.environ['TEST_NOFILE'])\nresource.setrlimit(resource.RLIMIT_NOFILE, (n, n))\n"


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("tls")) / "team"


@contextlib.contextmanager
def limited(files, folder, *options):
    """A fleet of one server whose processes may have so many open files."""
    (folder / "sitecustomize.py").write_text(LIMITED)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    with Fleet(*options, PYTHONPATH=path, TEST_NOFILE=str(files)) as fleet:
        fleet.serve("board")
        yield fleet


@contextlib.contextmanager
def strangers(port, *counts):
    p = subprocess.Popen([sys.executable, HERE / "strangers.py", *map(str, (port, *counts))],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert p.stdout.readline() == "there\n"
        yield
    finally:
        p.stdin.close()
        p.wait(PATIENCE)


def lease(port, team):
    """Seconds until a new member has a device."""
    begin = time.monotonic()
    client = Client("127.0.0.1", port, team)
    try:
        got = client.acquire("board")
        took = time.monotonic() - begin
        got.release()
        return took
    finally:
        client.close()


def siege(fleet, team, counts, seconds):
    """(seconds of each lease, memory by what it was before, bytes of the log)"""
    lease(fleet.port, team)
    tracker = psutil.Process(fleet.tracker.child.pid)
    before, took = tracker.memory_info().rss, []
    with strangers(fleet.port, *counts):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            took.append(lease(fleet.port, team))
            time.sleep(0.2)
        memory = tracker.memory_info().rss / before
    while not fleet.tracker._new.empty():
        fleet.tracker.lines.append(fleet.tracker._new.get_nowait())
    return took, memory, sum(len(x) + 1 for x in fleet.tracker.lines if x)


def test_members_notice_nothing_of_strangers(team, tmp_path):
    """More of them than there are descriptors."""
    with limited(128, tmp_path, "--tls-dir", str(team)) as fleet:
        took, memory, log = siege(fleet, team, (150, 150, 20, 20), 4.0)
        assert len(took) >= 2 and max(took) < 10 and memory < 1.5 and log < 10000, (took, memory, log)
        process = psutil.Process(fleet.tracker.child.pid)
        assert process.num_fds() < 128
        lines = [x.partition(": ")[2] for x in fleet.tracker.lines if ": " in x]
        assert len(lines) == len(set(lines))  # one of each cause


def peer(port, host="127.0.0.1"):
    s = socket.create_connection((host, port), timeout=PATIENCE)
    s.settimeout(PATIENCE)
    return s


def closed(s):
    """Waits until the other side closes."""
    try:
        while s.recv(4096):
            pass
    except OSError:
        pass
    return True


class Hall:
    """A door of this process, and who has come in."""

    def __init__(self, hello, **options):
        self.inside, self.lines, self.loop = [], [], asyncio.new_event_loop()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.port, ready = self.listening.getsockname()[1], threading.Event()

        async def enter(guest):
            self.inside.append(guest.sock)
            self.door.take(guest)

        async def open_door():
            self.door = door.Door(hello, options.pop("enter", enter), say=self.lines.append, **options)
            self.door.watch(self.listening)
            ready.set()

        self.loop.create_task(open_door())
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        ready.wait(PATIENCE)

    def call(self, f):
        async def run():
            return f()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.call(self.door.stop)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        for s in self.inside:
            s.close()


def tls_hello():
    """What a client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="x").do_handshake()
    return outgoing.read()


MESSAGES = {door.hello_of_tls: tls_hello(), door.hello_of_length: struct.pack("<Q", 100) + b"x" * 100}


@pytest.mark.parametrize("hello", MESSAGES, ids=["tls", "plain"])
def test_who_says_nothing_is_closed_and_who_says_hello_comes_in(hello, monkeypatch):
    monkeypatch.setattr(door, "SECONDS", 1.0)
    words = MESSAGES[hello]
    with Hall(hello) as hall:
        begin = time.monotonic()
        silent, half, member, pieces = (peer(hall.port) for _ in range(4))
        half.sendall(words[:6])
        member.sendall(words)
        wait_until(lambda: len(hall.inside) == 1)
        for k in range(0, len(words), 40):  # a slow member
            pieces.sendall(words[k : k + 40])
        wait_until(lambda: len(hall.inside) == 2)
        assert hall.inside[0].recv(1 << 16) == words  # nothing was read before
        for s in (silent, half):
            assert closed(s) and time.monotonic() - begin < 15
        for wrong in (b"GET / HTTP/1.0\r\n\r\n", struct.pack("<Q", 3 << 29) + b"x", bytes(8) if hello is door.hello_of_tls else b"\xff" * 8):
            s = peer(hall.port)
            s.sendall(wrong)
            assert closed(s)
        wait_until(lambda: hall.call(lambda: len(hall.door)) == 0)
        assert len(hall.inside) == 2 and 1 <= len(hall.lines) <= 3 and len(set(hall.lines)) == len(hall.lines)
        for s in (silent, half, member, pieces):
            s.close()


def test_when_places_run_out_the_one_who_said_nothing_for_longest_goes(monkeypatch):
    monkeypatch.setattr(door, "KNOWN_PART", 1)

    async def never(guest):
        await asyncio.sleep(3600)

    words = MESSAGES[door.hello_of_tls]
    with Hall(door.hello_of_tls, enter=never) as hall:
        hall.door.most = 6
        known = [peer(hall.port) for _ in range(2)]
        for s in known:
            s.sendall(words)
        wait_until(lambda: hall.call(lambda: len(hall.door._known)) == 2)
        half = [peer(hall.port) for _ in range(4)]
        for s in half:
            s.sendall(words[:6])
            wait_until(lambda s=s: hall.call(lambda: len(hall.door._begun)) == 1 + half.index(s))
        new = [peer(hall.port) for _ in range(3)]
        for s in new:
            s.sendall(words)
        wait_until(lambda: hall.call(lambda: len(hall.door._known)) == 5)  # the newest always has a place
        assert all(closed(s) for s in half[:3])
        assert hall.call(lambda: (len(hall.door), len(hall.door._begun))) == (6, 1)
        assert len(hall.lines) == 1
        monkeypatch.setattr(door, "KNOWN_PART", 2)  # of those whose hello is whole there are fewer: each costs memory
        last = peer(hall.port)
        last.sendall(words)
        assert closed(known[0]) and closed(known[1])
        wait_until(lambda: hall.call(lambda: len(hall.door._known)) == 4)
        for s in (last, *known, *half, *new):
            s.close()


def test_a_line_for_each_cause_a_minute(monkeypatch):
    said, now = [], [1000.0]
    monkeypatch.setattr(door.time, "monotonic", lambda: now[0])
    notes = door.Notes(said.append)
    for k in range(5000):
        now[0] += 0.1
        notes.note("late", f"127.0.0.{k % 250}")
        if k % 2:
            notes.note("rude", "127.0.0.1")
    assert 16 <= len(said) <= 18 and sum(map(len, said)) < 1500 and "600 more" in said[-1] + said[-2]


def test_a_log_that_nobody_reads_stops_nobody():
    r, w = os.pipe()
    with open(w, "w") as stream:
        handler = commands._Lines(stream)
        record = logging.LogRecord("x", logging.INFO, "", 0, "y" * 100000, (), None)
        for _ in range(200):  # 200 kB into 64
            handler.emit(record)
        assert 0 < len(os.read(r, 1 << 20)) <= 1 << 16
        handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "again", (), None))
        assert os.read(r, 1 << 20) == b"again\n"
        os.close(r)


def test_other_users_of_dask_in_the_process_do_not_notice():
    """A tracker of this process reads no pickles, before and after which others send theirs."""

    async def send(address, what):
        comm = await connect(address, timeout=PATIENCE)
        await comm.write({"op": "x", "what": ToPickle(what), "close": True})
        try:
            return await asyncio.wait_for(comm.read(), PATIENCE)
        finally:
            comm.abort()

    async def answer(comm):
        await comm.write({"got": ToPickle((await comm.read())["what"])})
        await comm.close()

    async def play():
        async with listen("tcp://127.0.0.1:0", answer) as other:
            assert (await send(other.contact_address, Fraction(1, 3)))["got"] == Fraction(1, 3)
            tracker = Tracker(host="127.0.0.1", port=0, protocol="tcp", security=security_of(None), dashboard=False, contact_address=None)
            await tracker
            assert "holds a pickle" in str(await send(tracker.address, Fraction(1, 3)))
            assert (await send(other.contact_address, Fraction(1, 3)))["got"] == Fraction(1, 3)
            assert pickles.loads(pickles.dumps(Fraction(1, 7))) == Fraction(1, 7)
            await tracker.close()

    asyncio.run(play())


@pytest.mark.full
@pytest.mark.parametrize("whole", [0, 200])
def test_a_siege(team, tmp_path, whole):
    """What the numbers of the documentation say, for an idle machine; and with strangers who cost a handshake each."""
    with limited(1024, tmp_path, "--tls-dir", str(team)) as fleet:
        took, memory, log = siege(fleet, team, (2000, 2000, 200, whole), 60.0)
        print(f"{len(took)} leases, the longest {max(took):.2f} s; memory x {memory:.2f}; log {log} bytes")
        assert max(took) <= (5.0 if whole else 1.0) and memory <= 1.2 and log <= 10000, (max(took), memory, log)
