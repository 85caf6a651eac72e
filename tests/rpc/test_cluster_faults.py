"""What becomes of trackers, servers and clients that are killed, stopped or late: 3 servers, 2 keys, 2 clients."""

import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from fleet import Fleet, Process, remote_matmul

import nestsmith
from helpers import runs, wait_until
from nestsmith import auto_scheduler, rpc
from nestsmith.cluster.engine import LOOP

CLIENT = """
import sys, time
from nestsmith import rpc
with rpc.connect_tracker("127.0.0.1", int(sys.argv[1])).request(sys.argv[2]) as remote:
    print("have", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def harbour():
    f = Fleet()
    yield f
    f.close()


@pytest.fixture
def fleet(harbour):
    """Three servers, whatever the test before did to them."""
    harbour.man("a", "a", "b")
    right = wait_until(lambda: (counts(harbour, "a"), counts(harbour, "b")) == ((2, 2, 0), (1, 1, 0)), 60)
    assert right, (counts(harbour, "a"), counts(harbour, "b"), [(p.key, p.lines, list(p._new.queue)) for p in harbour.servers])
    return harbour


def counts(fleet, key):
    """(total, free, pending) of a key."""
    tracker = rpc.connect_tracker("127.0.0.1", fleet.port)
    q = tracker.summary()["queue_info"].get(key, {"total": 0, "free": 0, "pending": 0})
    tracker.close()
    return q["total"], q["free"], q["pending"]


def descendants(pid):
    """Processes below one, nearest first."""
    found, parents = [], {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    todo = [pid]
    while todo:
        below = parents.get(todo.pop(0), [])
        found += below
        todo += below
    return found


def board(server):
    """The process of the server that holds the device."""
    for pid in descendants(server.child.pid):
        try:
            if b"spawn_main" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        except OSError:
            continue
    raise AssertionError("the server has no worker process")


def client(fleet, key):
    """Another process that has a device."""
    p = subprocess.Popen([sys.executable, "-c", CLIENT, str(fleet.port), key], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "have\n"
    return p


def test_the_numbers_of_the_query_are_right_at_each_step(fleet, closing):
    assert (counts(fleet, "a"), counts(fleet, "b")) == ((2, 2, 0), (1, 1, 0))
    one = closing(client(fleet, "a"))
    two = closing(client(fleet, "a"))
    assert counts(fleet, "a") == (2, 0, 0)
    tracker, got = rpc.connect_tracker("127.0.0.1", fleet.port), {}

    def ask(name, priority):
        got[name] = tracker.request("a", priority=priority)

    waiting = []
    for name, priority in (("patient", 0), ("urgent", 5)):
        waiting.append(threading.Thread(target=ask, args=(name, priority)))
        waiting[-1].start()
        assert wait_until(lambda: counts(fleet, "a") == (2, 0, len(waiting)))
    one.kill()  # a client that dies frees its device
    waiting[1].join(60)
    assert list(got) == ["urgent"] and counts(fleet, "a") == (2, 0, 1)
    got["urgent"].close()
    waiting[0].join(60)
    assert set(got) == {"urgent", "patient"}
    os.kill(two.pid, signal.SIGTERM)
    assert wait_until(lambda: counts(fleet, "a") == (2, 1, 0))
    tracker.close()
    assert wait_until(lambda: counts(fleet, "a") == (2, 2, 0))
    fleet.servers[2].stop()
    assert wait_until(lambda: counts(fleet, "b") == (0, 0, 0))


def test_a_late_server_gets_the_work_that_waits(fleet):
    got = []

    def ask():
        with rpc.request_remote("late", "127.0.0.1", fleet.port) as remote:
            got.append((time.monotonic(), remote.listdir()))

    t = threading.Thread(target=ask)
    t.start()
    assert wait_until(lambda: counts(fleet, "late") == (0, 0, 1))
    fleet.serve("late")
    begin = time.monotonic()
    t.join(60)
    assert got[0][0] - begin < 2 and got[0][1] == []


def test_a_board_that_is_killed_comes_back_and_its_programs_end(fleet):
    server = fleet.servers[2]
    with rpc.request_remote("b", "127.0.0.1", fleet.port, timeout=600) as remote:
        remote.upload(b"x", "x")
        below = descendants(server.child.pid)
        os.kill(board(server), signal.SIGKILL)
        with pytest.raises(rpc.RPCError, match=r"key 'b'|lost"):
            while True:
                remote.listdir()
    with rpc.request_remote("b", "127.0.0.1", fleet.port) as remote:
        assert remote.listdir() == []  # a new process, an empty directory
    others = [p for p in below if p not in descendants(server.child.pid)]
    assert wait_until(lambda: not any(runs(p) for p in others))


def test_a_server_that_is_killed_leaves_nothing(fleet):
    server = fleet.servers[2]
    remote = rpc.request_remote("b", "127.0.0.1", fleet.port, timeout=600)
    below = descendants(server.child.pid)
    server.child.kill()  # the nanny alone
    with pytest.raises(rpc.RPCError):
        while True:
            remote.listdir()
    remote.close()
    assert wait_until(lambda: not any(runs(p) for p in below)), [p for p in below if runs(p)]
    assert wait_until(lambda: counts(fleet, "b") == (0, 0, 0))


def test_a_tracker_that_comes_back_finds_its_servers_and_clients(fleet):
    tracker = rpc.connect_tracker("127.0.0.1", fleet.port)
    held = tracker.request("a")
    os.killpg(fleet.tracker.child.pid, signal.SIGKILL)
    fleet.tracker.child.wait()
    with pytest.raises(rpc.RPCError, match="tracker"):
        while True:
            held.listdir()
    later = []
    t = threading.Thread(target=lambda: later.append(tracker.request("b")))  # asked while it is away
    t.start()
    fleet.tracker = fleet.start_tracker(fleet.port)
    for s in fleet.servers:
        s.wait("registered as")
    t.join(120)
    assert later[0].listdir() == []
    tracker.close()
    assert wait_until(lambda: (counts(fleet, "a"), counts(fleet, "b")) == ((2, 2, 0), (1, 1, 0)))


def test_a_server_of_another_version_is_refused_with_both(fleet, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import nestsmith\nnestsmith.__version__ = '0.0.9'\n")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    old = Process("nestsmith.exec.rpc_server", "--host=127.0.0.1", "--port=0", f"--tracker=127.0.0.1:{fleet.port}", "--key=a", PYTHONPATH=path)
    old.wait(rf"error: refused: nestsmith is 0\.0\.9 there and {nestsmith.__version__} at the tracker")
    assert old.child.wait(60) == 1
    assert counts(fleet, "a") == (2, 2, 0)


def test_talk_that_makes_no_sense_harms_nobody(fleet):
    """Bytes of strangers: the tracker goes on."""
    rng = random.Random(0)
    for n in (0, 1, 8, 100, 10_000):
        with socket.create_connection(("127.0.0.1", fleet.port)) as s:
            s.sendall(rng.randbytes(n))
    tracker = rpc.connect_tracker("127.0.0.1", fleet.port)
    for message in ({"do": "acquire"}, {"do": "release", "lease": 5}, {"do": "?"}, {}, [], {"do": "acquire", "id": 1, "key": 3, "priority": "x"}):
        other = rpc.connect_tracker("127.0.0.1", fleet.port)
        LOOP.wait(other._client._comm.write(message))
        other.close()
    assert counts(fleet, "a") == (2, 2, 0)
    tracker.close()


def test_a_port_of_another_program_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with contextlib.suppress(OSError):  # the end of the test
                while True:
                    with server.accept()[0] as s:
                        s.recv(16)
                        s.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        other, port = threading.Thread(target=answer), server.getsockname()[1]
        other.start()
        with pytest.raises(rpc.RPCError, match=f"{port} answers, but not as expected"):
            rpc.connect_tracker("127.0.0.1", port)
        server.shutdown(socket.SHUT_RDWR)
        other.join()


def disturb(fleet, rng):
    """One fault; what is gone is started again."""
    what = rng.choice(["board", "board stops", "server", "client", "tracker"])
    if what in ("board", "board stops"):
        try:
            pid = board(rng.choice(fleet.servers))
        except AssertionError:
            return  # it is just being started again
        os.kill(pid, signal.SIGKILL if what == "board" else signal.SIGSTOP)
        if what != "board":
            time.sleep(rng.random())
            os.kill(pid, signal.SIGCONT)
    elif what == "server":
        gone = fleet.servers.pop(rng.randrange(len(fleet.servers)))
        gone.close()
        fleet.serve(rng.choice("ab") if {"a", "b"} <= {s.key for s in fleet.servers} else gone.key)
    elif what == "client":
        p = subprocess.Popen([sys.executable, "-c", CLIENT, str(fleet.port), "b"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random())
        p.kill()
        p.wait()
    else:
        fleet.tracker.close()
        fleet.tracker = fleet.start_tracker(fleet.port)
        fleet.tracker.wait("bind to")


@pytest.mark.parametrize("faults", [4, pytest.param(500, marks=pytest.mark.full)])
def test_tuning_survives(fleet, tmp_path, faults):
    """Faults while two clients tune: every run ends with all its records, each once."""
    rng, done = random.Random(faults), threading.Event()
    failures, logs = [], []

    def tune(key, number):
        task = auto_scheduler.SearchTask(func=remote_matmul, args=(24 + 8 * (key == "b"),), target="llvm")
        log = str(tmp_path / f"{key}{number}.json")
        logs.append(log)
        runner = auto_scheduler.RPCRunner(key, "127.0.0.1", fleet.port, n_parallel=2, min_repeat_ms=1, wait_limit=120)
        policy = auto_scheduler.SketchPolicy(task, verbose=0)
        inputs = [auto_scheduler.MeasureInput(task, s) for s in policy.sample_initial_population()[:12]]
        builder = auto_scheduler.LocalBuilder(n_parallel=1)
        results = runner.run(inputs, builder.build(inputs, 0), 0)
        auto_scheduler.save_records(log, inputs, results)
        runner.close()
        assert len(results) == 12 and all(r.error_no in (0, 8) for r in results), results

    def keep_tuning(key):
        number = 0
        while not done.is_set() or number == 0:
            try:
                tune(key, number)
            except BaseException as e:  # noqa: BLE001 - told by the main thread
                failures.append(e)
                return
            number += 1

    threads = [threading.Thread(target=keep_tuning, args=(key,)) for key in "ab"]
    for t in threads:
        t.start()
    for _ in range(faults):
        disturb(fleet, rng)
        if failures:
            break
    done.set()
    for t in threads:
        t.join(600)
    assert not failures, failures
    for log in logs:
        lines = [json.loads(line) for line in open(log)]
        assert len(lines) == 12 and len({json.dumps(x["i"][1]) for x in lines}) == 12
    for s in list(fleet.servers):
        assert s.child.poll() is None
    assert wait_until(lambda: counts(fleet, "a")[:2] == (sum(s.key == "a" for s in fleet.servers),) * 2)
